//! Queues with scripts: any protocol puts, any protocol takes what scripts pass on,
//! and a crash ends what ran before it runs again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::protocols::{House, PROTOCOLS};
use crate::common::{Server, Start, eventually};

/// Writes a script; answers a configuration with a queue `a` that runs it.
fn script(folder: &Path, text: &str) -> String {
    let path = folder.join("script.sh");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("made executable");
    format!(
        "[[queue]]\nname = \"a\"\nscript = \"{}\"\nexec_prefix = \"\"\n",
        path.display()
    )
}

#[track_caller]
fn lines_of(path: &Path, count: usize) -> Vec<String> {
    eventually(&format!("{count} lines"), || {
        let text = fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        (lines.len() == count && text.ends_with('\n')).then_some(lines)
    })
}

#[test]
fn every_protocol_runs_scripts_and_gets_their_copies() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = script(
        folder.path(),
        "if [ \"$RQ_PARAM1\" = later ] && [ $RQ_COUNT = 0 ]; then echo resend 3000-x >&3; exit; fi\n\
         echo dup 0-X-b >&3; read answer <&4; echo \"done $answer\" >&3",
    );
    for shards in [1, 4] {
        let house = House::open(shards, &config);
        // A copy goes only to a queue that exists.
        let mut reader = house.guest(PROTOCOLS[0], "b");
        reader.put("here");
        assert_eq!(reader.take(), "here");
        for (n, protocol) in (1..).zip(PROTOCOLS) {
            let body = format!("from {protocol:?}");
            house.guest(protocol, "a").put(&body);
            house.await_number("a", "done", n);
            assert_eq!(house.guest(protocol, "b").take(), body, "{protocol:?}");
        }
        house.guest(PROTOCOLS[0], "a").put("later");
        house.await_number("a", "delayed", 1);
    }
}

#[test]
fn a_killed_server_ends_the_script_before_it_runs_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let log: PathBuf = folder.path().join("log");
    // Writes its number and whether the one before it lives; the first goes on
    // for ever.
    let config = script(
        folder.path(),
        &format!(
            "before=$(tail -n 1 {0} 2>/dev/null | cut -d ' ' -f 1)\n\
             case \"$(cat /proc/${{before:-0}}/stat 2>/dev/null)\" in\n\
             ''|*') Z '*) lives=no;; *) lives=yes;; esac\n\
             echo \"$$ $lives $RQ_COUNT $RQ_PARAM1\" >>{0}\n\
             trap '' TERM\n\
             while [ -z \"$before\" ]; do sleep 1; done\n\
             echo done >&3",
            log.display()
        ),
    );
    let data = folder.path().join("data");
    let start = || Start::of(&config);
    let config_with_grace = format!("script_grace = \"200ms\"\n{config}");
    let first = Server::start_with(&data, start());
    first.client().put("a", b"x");
    let lines = lines_of(&log, 1);
    assert!(lines[0].ends_with(" no 0 x"), "{lines:?}");
    first.kill();
    let second = Start::of(&config_with_grace).serve_at(&data);
    let lines = lines_of(&log, 2);
    assert!(lines[1].ends_with(" no 0 x"), "{lines:?}");
    drop(second);
}
