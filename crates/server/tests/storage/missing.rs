//! Files of the log that are missing or shorter: `quintet check` and a start
//! name them. And directories that an earlier version wrote, which say nothing
//! of what must be there, open.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::common::{Data, Server, Start, await_that, noise, quintet, text};

const CONFIG: &str = "segment_bytes = '4MiB'\nlog_bytes = '64MiB'\nspare_segments = 1\n";

fn start(data: &Path) -> Server {
    Start::of(CONFIG).serve_at(data)
}

/// The segments, oldest first.
fn segments(data: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(data).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("segment-") && name.ends_with(".log")
    });
    paths.sort();
    paths
}

/// True if the directory says that its newest segment must be there.
fn newest_is_recorded(data: &Path) -> bool {
    let number = |path: &Path, at: usize| {
        let name = path
            .file_name()?
            .to_str()?
            .split(['-', '.'])
            .nth(at)?
            .to_owned();
        name.parse::<u64>().ok()
    };
    let newest = segments(data).last().and_then(|path| number(path, 1));
    let entries = std::fs::read_dir(data).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    let extent = paths.find(|path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("extent-"))
    });
    newest.is_some() && extent.and_then(|path| number(&path, 2)) == newest
}

/// Bytes of a segment that are not the zeros behind its last frame.
fn content(path: &Path) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    let zeros = bytes.iter().rev().take_while(|byte| **byte == 0).count();
    (bytes.len() - zeros) as u64
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// Output of a start that fails.
fn start_error(data: &Path) -> String {
    let mut command = Server::command(data, &Start::default());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // One that serves says so, and would not end.
    let mut first = String::new();
    let stdout = child.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut first).unwrap();
    if !first.is_empty() {
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{data:?} was served");
    text(&output.stderr)
}

/// Makes a directory as an earlier commit has left it.
fn unpack(data: &Path) {
    std::fs::create_dir(data).unwrap();
    let packed = format!("{}/tests/old/d2d82bc.tar.gz", env!("CARGO_MANIFEST_DIR"));
    let mut tar = std::process::Command::new("tar");
    let unpacked = tar.args(["xzf", &packed, "-C"]).arg(data).status();
    assert!(unpacked.expect("tar").success());
}

#[test]
fn missing_and_cut_files_are_named_at_start_and_by_check() {
    for in_order in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let server = start(&data);
        let mut client = server.client();
        let body = noise(50_000);
        for _ in 0..250 {
            client.put("work", &body);
        }
        match in_order {
            true => assert!(server.stop().success()),
            false => {
                // What must be there is written down right behind what it is about.
                await_that("the newest is never recorded", || newest_is_recorded(&data));
                server.kill();
            }
        }
        let all = segments(&data);
        assert!(all.len() > 3, "{all:?}");
        type Loss = fn(&[PathBuf]) -> Vec<PathBuf>;
        let losses: [(&str, usize, Loss); 6] = [
            ("oldest", 0, |all| vec![all[0].clone()]),
            ("newest", all.len() - 1, |all| all[all.len() - 1..].to_vec()),
            ("middle", 1, |all| vec![all[1].clone()]),
            ("all", 0, |all| all.to_vec()),
            ("cut", all.len() - 1, |_| Vec::new()),
            ("zeros", all.len() - 1, |_| Vec::new()),
        ];
        for (what, named, gone) in losses {
            if what == "zeros" && !in_order {
                // Not to be told from a crash (docs/log-format.md).
                continue;
            }
            let damaged = dir.path().join(what);
            copy(&data, &damaged);
            let here = segments(&damaged);
            for path in gone(&here) {
                std::fs::remove_file(path).unwrap();
            }
            if let "cut" | "zeros" = what {
                let path = &here[named];
                let len = std::fs::metadata(path).unwrap().len();
                let file = std::fs::File::options().write(true).open(path).unwrap();
                // All but the first frames; where segments end, and whether they were made ahead,
                // is up to how busy the machine is. One that was not does not say how long it was:
                // only its header must be there after a crash.
                let made_ahead = len >= 4 << 20;
                let left = match in_order || made_ahead {
                    true => 100_000.min(content(path) / 2),
                    false => 64,
                };
                file.set_len(left).unwrap();
                if what == "zeros" {
                    file.set_len(len).unwrap();
                }
            }
            let name = here[named].file_name().unwrap().to_str().unwrap();
            let check = || {
                let output = quintet(&["check", "--data"])
                    .arg(&damaged)
                    .output()
                    .unwrap();
                (output.status.code(), text(&output.stdout))
            };
            let (code, printed) = check();
            assert_eq!(code, Some(3), "{what} {in_order}: {printed}");
            assert!(printed.contains(name), "{what} {in_order}: {printed}");
            let printed = start_error(&damaged);
            assert!(printed.contains(name), "{what} {in_order}: {printed}");
            assert_eq!(check().0, Some(3), "{what}: mended by a start");
            let repair = quintet(&["repair", "--data"])
                .arg(&damaged)
                .output()
                .unwrap();
            assert!(repair.status.success(), "{}", text(&repair.stderr));
            assert_eq!(check().0, Some(0), "{what} {in_order}");
            let server = start(&damaged);
            let mut client = server.client();
            client.put("after", b"x");
            client.take("after", b"x");
            assert!(server.stop().success());
        }
    }
}

/// Written by the version before there were extents, stopped in order and
/// killed.
#[test]
fn directories_of_an_earlier_version_open() {
    for how in ["stopped", "killed"] {
        let data = Data::fresh();
        let old = format!("{}/tests/old/22501e1-{how}", env!("CARGO_MANIFEST_DIR"));
        copy(Path::new(&old), &data);
        let check = quintet(&["check", "--data"]).arg(&data).output().unwrap();
        assert!(check.status.success(), "{}", text(&check.stdout));
        for _ in 0..2 {
            assert!(start(&data).stop().success());
        }
        let server = Start::default()
            .listen(&["memcache=0", "beanstalk=0"])
            .serve_at(&data);
        let mut client = server.client();
        for number in 1..5 {
            client.take("work", format!("body-{number}").as_bytes());
        }
        client.take_nothing("work");
        let mut client = server.client_of("beanstalk");
        client.send(b"watch tube\r\nreserve\r\nreserve\r\n");
        client.expect(b"WATCHING 2\r\nRESERVED 7 4\r\nurge\r\nRESERVED 6 4\r\nrank\r\n");
        assert!(server.stop().success());
    }
}

/// A segment's or a run's header is one of a later version of the program: its version, or a
/// feature flag that this one does not know.
#[test]
fn a_directory_of_a_newer_version_is_refused_by_naming_the_program_and_stays_as_it_is() {
    for (suffix, at, says) in [
        (".log", 8, "format version 2"),
        (".log", 16, "feature flags 0x2"),
        (".qrun", 8, "format version 2"),
        (".qrun", 16, "feature flags 0x2"),
    ] {
        let data = Data::fresh();
        unpack(&data);
        let mut files = Vec::new();
        files_under(&data, &mut files);
        files.retain(|path| path.to_string_lossy().ends_with(suffix));
        files.sort();
        let path = files.first().expect("a file of its kind");
        let before = newer(path, at);

        // First: it ends also where a server would start.
        let check = quintet(&["check", "--data"]).arg(&data).output().unwrap();
        assert!(!check.status.success());
        let start = Start::of("shards = 2\n").output(&data);
        assert!(!start.status.success());
        for printed in [
            text(&start.stderr),
            text(&check.stdout) + &text(&check.stderr),
        ] {
            let name = path.file_name().unwrap().to_string_lossy();
            for word in [says, "quintet 9.1.0", &*name] {
                assert!(printed.contains(word), "{suffix}: {printed}");
            }
        }
        assert_eq!(std::fs::read(path).unwrap(), before, "it is left as it is");
    }
}

fn files_under(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files_under(&path, files),
            false => files.push(path),
        }
    }
}

/// Makes both copies of a header another version's at this offset; answers the file's bytes.
fn newer(path: &Path, at: usize) -> Vec<u8> {
    let mut bytes = std::fs::read(path).unwrap();
    // Of a segment they stand side by side, of a run one at each end.
    let copies = match path.extension().is_some_and(|suffix| suffix == "log") {
        true => [0..2048, 2048..4096],
        false => [0..128, bytes.len() - 128..bytes.len()],
    };
    for copy in copies {
        let header = &mut bytes[copy];
        header[at] = 2;
        header[56..88].fill(0);
        header[56..69].copy_from_slice(b"quintet 9.1.0");
        let end = header.len() - 4;
        let sum = crc32c::crc32c(&header[..end]);
        header[end..].copy_from_slice(&sum.to_le_bytes());
    }
    std::fs::write(path, &bytes).unwrap();
    bytes
}

/// A directory of two shards from the commit before the host had a crate of its
/// own, with runs, large bodies in a run and in the log, dead letters, and
/// messages in every state. Packed, as its segments are mostly zeros.
#[test]
fn a_directory_with_runs_of_an_earlier_commit_opens() {
    let data = Data::fresh();
    unpack(&data);
    let check = quintet(&["check", "--data"]).arg(&data).output().unwrap();
    let printed = text(&check.stdout);
    assert!(
        check.status.success() && printed.contains("2 runs, 244 messages"),
        "{printed}"
    );
    let start = || {
        let start = Start::of("shards = 2\n").listen(&["memcache=0", "beanstalk=0"]);
        Server::start_with(&data, start)
    };
    // What is taken in the first life stays away in the second.
    let server = start();
    let mut client = server.client();
    for queue in ["cold-a", "cold-b"] {
        for number in 0..60 {
            client.take(queue, format!("cold {number}").as_bytes());
        }
    }
    client.take("large", &[b'L'; 150_000]);
    assert!(server.stop().success());
    let server = start();
    let mut client = server.client();
    for queue in ["cold-a", "cold-b"] {
        for number in 60..120 {
            client.take(queue, format!("cold {number}").as_bytes());
        }
    }
    for queue in ["hot-a", "hot-b"] {
        for number in 0..5 {
            client.take(queue, format!("hot {number}").as_bytes());
        }
    }
    client.take("large-hot", &[b'H'; 150_000]);
    client.take("buried", b"tried");
    for queue in [
        "cold-a", "cold-b", "hot-a", "hot-b", "large", "buried", "churn",
    ] {
        client.take_nothing(queue);
    }
    let mut client = server.client_of("beanstalk");
    client.send(b"use work\r\npeek-ready\r\npeek-delayed\r\npeek-buried\r\n");
    let found = b"USING work\r\nFOUND 123 5\r\nready\r\nFOUND 124 7\r\ndelayed\r\nFOUND 122 6\r\nburied\r\n";
    client.expect(found);
    assert!(server.stop().success());
}
