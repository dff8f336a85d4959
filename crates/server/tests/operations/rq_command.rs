//! RQ's command line, as a copy of the binary in RQ's own folder, and what its
//! shell tests do with it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Server, Start, eventually, text};

/// Short form of RQ's own test script.
const SCRIPT: &str = "#!/bin/sh
echo run just started >&3
echo TESTTESTTEST
case $RQ_PARAM1 in
  err) echo err by design >&3; exit 0;;
  sneaky) echo done sneaky non-zero exit >&3; exit 1;;
  resend1) if [ $RQ_COUNT = 0 ]; then echo resend 0-again >&3; exit 0; fi;;
esac
echo done done sleeping >&3
";

struct Rq {
    server: Server,
    root: PathBuf,
    _dir: tempfile::TempDir,
}

impl Rq {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("directory");
        let data = dir.path().join("data");
        let root = data.join("rq");
        std::fs::create_dir_all(root.join("bin")).expect("made");
        std::fs::copy(env!("CARGO_BIN_EXE_quintet"), root.join("bin/rq")).expect("copied");
        let script = dir.path().join("script.sh");
        executable(&script, SCRIPT);
        let queue = |name: &str| {
            format!("[[queue]]\nname = {name:?}\nscript = {script:?}\nexec_prefix = \"\"\n")
        };
        let config = queue("test");
        let start = Start::of(&config);
        Self {
            server: Server::start_with(&data, start),
            root,
            _dir: dir,
        }
    }

    /// `./bin/rq` in RQ's folder; what it printed, and whether it exited with 0.
    fn rq(&self, args: &[&str]) -> (String, bool) {
        let output = Command::new("./bin/rq")
            .args(args)
            .current_dir(&self.root)
            .output()
            .expect("runs");
        assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
        (text(&output.stdout), output.status.success())
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        let (printed, good) = self.rq(args);
        assert!(good, "{args:?}: {printed}");
        let rest = printed.strip_prefix("ok ").expect("ok");
        rest.trim_end_matches('\n').to_owned()
    }

    #[track_caller]
    fn fail(&self, args: &[&str]) -> String {
        let (printed, good) = self.rq(args);
        assert!(!good, "{args:?}: {printed}");
        let rest = printed.strip_prefix("fail ").expect("fail");
        rest.trim_end_matches('\n').to_owned()
    }

    /// The status a message ends with.
    #[track_caller]
    fn end(&self, id: &str) -> String {
        eventually(&format!("the end of {id}"), || {
            let status = self.ok(&["statusmesg", "--msg_id", id]);
            let state = status.split(' ').next().unwrap_or_default();
            let ended = ["done", "err", "relayed"].contains(&state);
            ended.then_some(status)
        })
    }
}

fn executable(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("allowed");
}

#[test]
fn messages_end_as_their_scripts_say() {
    let rq = Rq::start();
    let improper = "err - PROCESS EXITED IMPROPERLY - MOVING TO ERR - Completion was done but exit \
                    status was 1";
    for (param, status, count) in [
        ("done", "done - done sleeping", "0"),
        ("err", "err - by design", "0"),
        ("sneaky", improper, "0"),
        ("resend1", "done - done sleeping", "1"),
    ] {
        let param1 = format!("--param1={param}");
        let id = rq.ok(&[
            "sendmesg",
            "--dest",
            "test",
            "--src",
            "dru4",
            "--relay-ok",
            &param1,
        ]);
        assert_eq!(rq.end(&id), status);
        assert_eq!(rq.ok(&["statuscountmesg", "--msg_id", &id]), count);
        assert_eq!(
            rq.ok(&["state", "--msg_id", &id]),
            status.split(' ').next().expect("one")
        );
    }
    assert_eq!(
        rq.ok(&["queue", "test"]),
        "UP\nprep 0\nque 0\nrun 0\ndone 2\nrelayed 0\nerr 2\nerrack 0"
    );
    assert_eq!(rq.ok(&["queues"]), "3\nrelay\ntest\nwebhook");
}

#[test]
fn a_file_is_attached_and_cloned_along() {
    let rq = Rq::start();
    std::fs::write(rq.root.join("a file.txt"), "hello\n").expect("written");
    let id = rq.ok(&[
        "prepmesg",
        "--dest",
        "test",
        "--src",
        "dru4",
        "--param1=done",
    ]);
    assert_eq!(rq.ok(&["state", "--msg_id", &id]), "prep");
    let md5 = "b1946ac92492d2347c6235b4d2611184";
    let attached = rq.ok(&[
        "attachmesg",
        "--msg_id",
        &id,
        "--pathname",
        "a file.txt",
        "--name",
        "f.txt",
    ]);
    let expected = format!("{md5}-Attached successfully for Message: {id} attachment");
    assert_eq!(attached, expected);
    assert_eq!(rq.ok(&["commitmesg", "--msg_id", &id]), "msg commited");
    assert_eq!(rq.end(&id), "done - done sleeping");
    let clone = rq.ok(&["clone", "--msg_id", &id]);
    assert_ne!(clone, id);
    assert_eq!(rq.end(&clone), "done - done sleeping");
    let files = rq.ok(&["attachstatusmesg", "--msg_id", &clone]);
    let words: Vec<&str> = files.split_whitespace().collect();
    assert_eq!(words[..4], ["1", "f.txt", md5, "6"]);
    assert_eq!(std::fs::read(words[4]).expect("a file"), b"hello\n");
    assert_eq!(rq.ok(&["deletemesg", "--msg_id", &id]), "msg deleted");
    assert_eq!(rq.fail(&["state", "--msg_id", &id]), "msg not found");
}

#[test]
fn only_one_waits_and_a_queue_stops_by_command_and_by_file() {
    let rq = Rq::start();
    let one = [
        "single_que",
        "--dest",
        "test",
        "--src",
        "dru4",
        "--relay-ok",
        "--param1=done",
    ];
    assert_eq!(rq.ok(&["pause", "test"]), "test");
    assert_eq!(rq.ok(&["queue", "test"]).lines().next(), Some("PAUSE"));
    let first = rq.ok(&one);
    assert_eq!(rq.ok(&one), first);
    rq.ok(&["resume", "test"]);
    assert_eq!(rq.end(&first), "done - done sleeping");
    // As RQ's shell tests do it.
    std::fs::write(rq.root.join("config/test.down"), "").expect("touched");
    assert_eq!(rq.ok(&["queue", "test"]).lines().next(), Some("DOWN"));
    assert_eq!(rq.fail(&one), "status: DOWN");
    std::fs::remove_file(rq.root.join("config/test.down")).expect("removed");
    assert_eq!(rq.ok(&["queue", "test"]).lines().next(), Some("UP"));
    let next = rq.ok(&one);
    assert_eq!(rq.end(&next), "done - done sleeping");
}

#[test]
fn a_failed_command_prints_a_reason_and_exits_with_one() {
    let rq = Rq::start();
    for (args, why) in [
        (&["sendmesg", "--dest", "nope"][..], "404 - Queue not found"),
        (
            &["sendmesg", "--dest", "../x"],
            "404 - Queue not found: queue name has invalid characters",
        ),
        (
            &["sendmesg", "--dest", "http://a/q/b"],
            "Sorry - cannot relay message",
        ),
        (&["sendmesg"], "sendmesg needs --dest"),
        (
            &["sendmesg", "--dest", "test", "--due=soon"],
            "due is not a time: soon",
        ),
        (
            &[
                "attachmesg",
                "--msg_id",
                "http://a/q/test/1",
                "--pathname",
                "no such",
            ],
            "No such file no such to attach to message",
        ),
        (
            &[
                "attachmesg",
                "--msg_id",
                "http://a/q/test/1",
                "--pathname",
                "config",
            ],
            "Attachment currently cannot be a directory config",
        ),
        (
            &["state", "--msg_id", "1"],
            "1 is not a full message id, as in http://HOST:PORT/q/QUEUE/ID",
        ),
        (&["dance"], "unknown command dance; see rq help"),
        (&["up"], "up needs one name"),
    ] {
        assert_eq!(rq.fail(args), why);
    }
    let (help, good) = rq.rq(&["help"]);
    assert!(good && help.starts_with("Usage: rq COMMAND"));
    // The same through the long name, told where; and with no server.
    let root = rq.root.to_str().expect("UTF-8").to_owned();
    let long = |args: &[&str]| {
        let output = crate::common::quintet(&["rq"])
            .args(args)
            .output()
            .expect("runs");
        (text(&output.stdout), output.status.success())
    };
    // Its help and its errors name the command as it was typed.
    let (help, good) = long(&["help"]);
    assert!(
        good && help.starts_with("Usage: quintet rq COMMAND"),
        "{help}"
    );
    for example in ["sendmesg --dest", "statusmesg --msg_id http"] {
        assert!(
            help.contains(&format!("\n  quintet rq {example}")),
            "{help}"
        );
    }
    let (printed, good) = long(&["dance", "--root", &root]);
    assert!(
        !good && printed == "fail unknown command dance; see quintet rq help\n",
        "{printed}"
    );
    let (printed, good) = long(&["queues", "--root", &root]);
    assert!(
        good && printed == "ok 3\nrelay\ntest\nwebhook\n",
        "{printed}"
    );
    drop(rq.server);
    let (printed, good) = long(&["queues", "--root", &root]);
    assert!(
        !good && printed.starts_with("fail no server answers at "),
        "{printed}"
    );
}

#[test]
fn rules_of_the_router_are_verified_by_rule() {
    let folder = tempfile::tempdir().expect("directory");
    let config = folder.path().join("rq/config");
    std::fs::create_dir_all(&config).expect("made");
    let root = folder.path().join("rq");
    let run = |more: &[&str]| {
        let output = crate::common::quintet(&["rq", "verify_rules"])
            .args(more)
            .arg("--root")
            .arg(&root)
            .output()
            .expect("runs");
        (text(&output.stdout), output.status.success())
    };
    let (printed, good) = run(&[]);
    assert!(!good && printed.starts_with("fail "), "{printed}");
    std::fs::write(config.join("rq_router_rules.rb"), "rule 'default'\n").expect("written");
    let (printed, good) = run(&[]);
    assert!(
        !good && printed.contains("write its rules as rq_router_rules.toml"),
        "{printed}"
    );
    let rule = "[[rule]]\ndesc = 'a'\nsrc = '^a'\naction = 'relay'\nroute = ['h']\n";
    let path = config.join("rq_router_rules.toml");
    std::fs::write(&path, rule.repeat(2)).expect("written");
    assert_eq!(run(&[]), ("ok 2 rules\n".to_owned(), true));
    let other = folder.path().join("other.toml");
    let bad = format!("{rule}[[rule]]\ndesc = 'b'\nsrc = '('\naction = 'send'\n");
    std::fs::write(&other, bad).expect("written");
    let other = other.to_str().expect("UTF-8").to_owned();
    let (printed, good) = run(&[&other]);
    let lines: Vec<&str> = printed.lines().collect();
    assert!(!good, "{printed}");
    assert_eq!(
        lines,
        [
            format!("fail {other}: 2 wrong").as_str(),
            "rule 2 (b): action: \"send\" is not one of relay, balance, done, err, blackhole",
            "rule 2 (b): src: unclosed group",
        ]
    );
}
