//! Power cuts that take names whose directory was not synced, of files and of directories: what was
//! said to be there is found again, and what was said to be gone is gone.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};

use crate::common::{Data, Server, Start, faults, quintet, text};
use quintet_faults::{Action, Call, Faults, Rule, Undo, errno, files};
use serde_json::{Value, json};

const CONFIG: &str = "shards = 2\n[[queue]]\nname = 'set'\nscript = '/bin/true'\npaused = true\n\
                      [[listen]]\nprotocol = 'memcache'\naddress = '127.0.0.1:0'\n\
                      [[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\nallow_new_queue = true\n";

fn start(data: &Path, faults: Option<&Faults>) -> Server {
    let settings = Start::of(CONFIG).sync("always");
    let mut command = Server::command_as_configured(data, &settings);
    if let Some(faults) = faults {
        faults.undo(Undo::PagesAndNames);
        faults.attach(&mut command);
    }
    Server::await_ready(data, command)
}

/// The status and the body.
fn ask(server: &Server, request: &str, kind: &str, body: &str) -> (u16, String) {
    let reply = server.ask(request, &format!("content-type: {kind}\r\n"), body);
    (reply.status, reply.body)
}

fn get(server: &Server, path: &str) -> (u16, String) {
    ask(server, &format!("GET {path}"), "text/plain", "")
}

fn fill_in(server: &Server, path: &str, form: &str) {
    let kind = "application/x-www-form-urlencoded";
    let (status, printed) = ask(server, &format!("POST {path}"), kind, form);
    assert!((200..400).contains(&status), "{path}: {status} {printed}");
}

fn make_queue(server: &Server, name: &str) {
    let form = format!("queue[name]={name}&queue[script]=/bin/true&queue[num_workers]=1");
    fill_in(server, "/new_queue", &form);
    assert_eq!(get(server, &format!("/q/{name}/config.json")).0, 200);
}

/// A message that is prepared, with an attachment: where that is.
fn attach(server: &Server, queue: &str) -> String {
    let new = json!({"_method": "prep"}).to_string();
    let path = format!("POST /q/{queue}/new_message");
    let (_, made) = ask(server, &path, "application/json", &new);
    let made: Value = serde_json::from_str(&made).expect("JSON");
    let full = made[1].as_str().expect("an id");
    let id = full.rsplit('/').next().expect("a short id");
    let body = "--x\r\nContent-Disposition: form-data; name=\"filedata\"; filename=\"a.txt\"\r\n\r\n\
                attached\r\n--x--\r\n";
    let path = format!("POST /q/{queue}/{id}/attach/new?x_format=json");
    let (_, printed) = ask(server, &path, "multipart/form-data; boundary=x", body);
    assert!(printed.contains("-Attached successfully"), "{printed}");
    format!("/q/{queue}/{id}/attach/a.txt")
}

fn cut(server: Server, faults: &Faults) {
    faults.cut();
    assert_eq!(server.ended().signal(), Some(9));
}

/// Directories included: that of the data, and those of scripts.
#[test]
fn the_state_of_a_first_start_survives_a_power_cut() {
    let data = Data::fresh();
    let faults = faults(&data);
    let server = start(&data, Some(&faults));
    server.client_of("memcache").put("w", b"kept");
    make_queue(&server, "made");
    let attached = [attach(&server, "set"), attach(&server, "made")];
    cut(server, &faults);
    let server = start(&data, None);
    server.client_of("memcache").take("w", b"kept");
    for path in &attached {
        assert_eq!(get(&server, path), (200, "attached".to_owned()), "{path}");
    }
    assert!(server.stop().success());
}

/// A pause and a queue do not come back with the file that said so.
#[test]
fn an_ended_down_and_a_deleted_queue_stay_so_after_a_power_cut() {
    let data = Data::fresh();
    let faults = faults(&data);
    let server = start(&data, Some(&faults));
    make_queue(&server, "gone");
    fill_in(&server, "/q/set/adminoper", "down=1");
    fill_in(&server, "/q/set/adminoper", "up=1");
    fill_in(&server, "/delete_queue", "queue_name=gone");
    assert_eq!(get(&server, "/q/gone/config.json").0, 404);
    cut(server, &faults);
    let server = start(&data, None);
    server.client_of("memcache").put("set", b"taken in");
    assert_eq!(get(&server, "/q/gone/config.json").0, 404);
    assert!(server.stop().success());
}

/// Of a node of a cluster: repeated after a cut at any step of it, or not, its new directory has
/// everything.
#[test]
fn a_detach_that_a_power_cut_ended_goes_on() {
    for step in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let (node, data) = (dir.path().join("node"), dir.path().join("data"));
        let alone = dir.path().join("alone");
        let server = start(&alone, None);
        server.client_of("memcache").put("w", b"kept");
        let attached = attach(&server, "set");
        assert!(server.stop().success());
        // A node's directory, as far as a detach looks at it.
        let mirror = node.join("mirror-1");
        std::fs::create_dir_all(&mirror).unwrap();
        for file in std::fs::read_dir(&alone).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            let to = match name.as_str() {
                "rq" | "shards" => node.join(&name),
                _ => mirror.join(&name),
            };
            std::fs::rename(alone.join(&name), to).unwrap();
        }
        let faults = faults(dir.path());
        faults.undo(Undo::PagesAndNames);
        // The number of shards, a note, the log, the scripts; and with the words that it is done.
        let rule = match step {
            4 => Rule::once(Call::Write, Action::CutAfter).on(files::OUTSIDE),
            _ => Rule::once(Call::Rename, Action::CutAfter).after(step),
        };
        faults.rule(0, rule);
        let detach = |faults: Option<&Faults>| {
            let mut command = quintet(&["cluster", "detach", "--force", "--data"]);
            command.arg(&node).arg("--to").arg(&data);
            if let Some(faults) = faults {
                faults.attach(&mut command);
            }
            command.output().expect("the binary runs")
        };
        assert_eq!(detach(Some(&faults)).status.signal(), Some(9), "{step}");
        if step < 4 {
            let again = detach(None);
            assert!(again.status.success(), "{step}: {}", text(&again.stderr));
        }
        let server = start(&data, None);
        server.client_of("memcache").take("w", b"kept");
        let found = get(&server, &attached);
        assert_eq!(found, (200, "attached".to_owned()), "{step}");
        assert!(server.stop().success());
    }
}

/// The power goes with the words that a backup is there.
#[test]
fn a_finished_backup_survives_a_power_cut() {
    let dir = tempfile::tempdir().unwrap();
    let (data, copy) = (dir.path().join("data"), dir.path().join("copy"));
    let server = start(&data, None);
    server.client_of("memcache").put("w", b"kept");
    let attached = attach(&server, "set");
    let faults = faults(&copy);
    faults.undo(Undo::PagesAndNames);
    let output = Rule::once(Call::Write, Action::CutAfter).on(files::OUTSIDE);
    faults.rule(0, output);
    let mut backup = quintet(&["backup"]);
    backup.arg(&copy).arg("--data").arg(&data);
    faults.attach(&mut backup);
    let ended = backup.output().expect("the binary runs");
    assert_eq!(ended.status.signal(), Some(9));
    assert!(text(&ended.stdout).contains(" of scripts"));
    server.kill();
    let server = start(&copy, None);
    server.client_of("memcache").take("w", b"kept");
    assert_eq!(get(&server, &attached), (200, "attached".to_owned()));
    assert!(server.stop().success());
}

/// Runs it with the n-th such call going wrong, for n from 0 until it goes well; each time `again`
/// looks at what is there. Of two actions every second call meets the second.
fn each_failure(
    target: &Path,
    command: &dyn Fn() -> std::process::Command,
    again: &mut dyn FnMut(&str),
) {
    let (full, broken) = (Action::Fail(errno::ENOSPC), Action::Fail(errno::EIO));
    for (call, actions) in [
        (Call::Create, [full, full]),
        (Call::Write, [full, broken]),
        (Call::Write, [Action::CutAfter, Action::CutAfter]),
        (Call::Sync, [broken, broken]),
        (Call::Sync, [Action::CutBefore, Action::CutBefore]),
    ] {
        for (number, action) in (0..).zip(actions.into_iter().cycle()) {
            let faults = faults(target);
            faults.undo(Undo::PagesAndNames);
            faults.rule(0, Rule::once(call, action).after(number));
            let mut failing = command();
            faults.attach(&mut failing);
            let ended = failing.output().expect("the binary runs");
            let (at, printed) = (format!("{call:?} {number} {action:?}"), text(&ended.stderr));
            if faults.fired(0).1 == 0 {
                assert!(ended.status.success(), "{at}: {printed}");
                assert!(number > 0, "no {call:?}");
                again(&at);
                break;
            }
            match action {
                Action::Fail(_) => assert_eq!(ended.status.code(), Some(1), "{at}: {printed}"),
                _ => assert_eq!(ended.status.signal(), Some(9), "{at}: {printed}"),
            }
            again(&at);
        }
    }
}

/// An export into a directory of its own, whose disk fails: `--resume` goes on, and each message is
/// there once.
#[test]
fn an_export_that_fails_goes_on() {
    const MESSAGES: usize = 20;
    let dir = tempfile::tempdir().unwrap();
    let (data, target) = (dir.path().join("data"), dir.path().join("target"));
    let server = start(&data, None);
    let mut client = server.client_of("memcache");
    (0..MESSAGES).for_each(|number| client.put("w", &[b'a' + number as u8 % 26; 30_000]));
    for format in ["jsonl", "gzip"] {
        let file = target.join("all");
        let export = |more: &[&str]| {
            let mut export = quintet(&["export", "w", "--format", format, "--output"]);
            export.arg(&file).arg("--data").arg(&data).args(more);
            export
        };
        let begin = || {
            let _none = std::fs::remove_dir_all(&target);
            std::fs::create_dir(&target).unwrap();
            export(&[])
        };
        each_failure(&target, &begin, &mut |at| {
            let ended = export(&["--resume"]).output().expect("the binary runs");
            assert!(ended.status.success(), "{at}: {}", text(&ended.stderr));
            let mut import = quintet(&["import", "--dry-run", "-q"]);
            import.arg(&file).arg("--data").arg(&data);
            let ended = import.output().expect("the binary runs");
            let output = text(&ended.stdout) + &text(&ended.stderr);
            assert!(ended.status.success(), "{at}: {output}");
            assert_eq!(output, format!("w: {MESSAGES} ready\n"), "{at}");
        });
    }
    assert!(server.stop().success());
}

/// The files below a folder, by their paths in it.
fn files_below(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).expect("a path below it");
            let bytes = std::fs::read(&path).expect("a file");
            found.insert(name.to_owned(), bytes);
        }
    }
    found
}

/// A backup onto a disk that fails: it says so, and the next one is whole.
#[test]
fn a_backup_that_fails_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let (data, copy) = (dir.path().join("data"), dir.path().join("copy"));
    let server = start(&data, None);
    server.client_of("memcache").put("w", b"kept");
    let attached = attach(&server, "set");
    let backup = || {
        let mut backup = quintet(&["backup"]);
        backup.arg(&copy).arg("--data").arg(&data);
        backup
    };
    let begin = || {
        let _none = std::fs::remove_dir_all(&copy);
        backup()
    };
    let is_served = |at: &str| {
        let of_copy = start(&copy, None);
        of_copy.client_of("memcache").take("w", b"kept");
        assert_eq!(
            get(&of_copy, &attached),
            (200, "attached".to_owned()),
            "{at}"
        );
        assert!(of_copy.stop().success());
    };
    let made = backup().output().expect("the binary runs");
    assert!(made.status.success(), "{}", text(&made.stderr));
    let whole = files_below(&copy);
    is_served("without a failure");
    each_failure(&copy, &begin, &mut |at| {
        let mut ended = backup().output().expect("the binary runs");
        if !ended.status.success() {
            // A power cut leaves a part, which is not taken for a whole.
            let printed = text(&ended.stderr);
            assert!(printed.contains("copy"), "{at}: {printed}");
            std::fs::remove_dir_all(&copy).unwrap();
            ended = backup().output().expect("the binary runs");
        }
        assert!(ended.status.success(), "{at}: {}", text(&ended.stderr));
        // The same files are served in the same way.
        if files_below(&copy) != whole {
            is_served(at);
        }
    });
    assert!(server.stop().success());
}

/// A directory with damage on a disk that fails: `check` says so and changes nothing, and a `repair`
/// that failed is run again. The messages beside the damage stay.
#[test]
fn a_repair_that_fails_is_run_again() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, data) = (dir.path().join("whole"), dir.path().join("data"));
    let serve = |data: &Path| {
        let settings = Start::of("segment_bytes = '4MiB'\n").sync("always");
        settings.listen(&["memcache=0"]).serve_at(data)
    };
    let is = |name: &Path, kind: &str| name.to_string_lossy().starts_with(kind);
    let server = serve(&whole);
    let mut client = server.client_of("memcache");
    for body in [b"first", b"wrong", b"third"] {
        client.put("w", body);
    }
    drop(client);
    assert!(server.stop().success());
    let mut damaged = files_below(&whole);
    damaged.retain(|name, _| !is(name, "spare-"));
    let mut places = 0;
    for (name, bytes) in &mut damaged {
        let found = bytes.windows(5).position(|part| part == b"wrong");
        if let Some(at) = found.filter(|_| is(name, "segment-")) {
            bytes[at] ^= 0x40;
            places += 1;
        }
    }
    assert_eq!(places, 1);
    let begin = || {
        let _none = std::fs::remove_dir_all(&data);
        for (name, bytes) in &damaged {
            let path = data.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    };
    let tool = |word: &str, faults: Option<&Faults>| {
        let mut command = quintet(&[word, "--data"]);
        command.arg(&data);
        if let Some(faults) = faults {
            faults.attach(&mut command);
        }
        command.output().expect("the binary runs")
    };
    let failing = |word: &str, rule: Rule| {
        let faults = faults(&data);
        faults.undo(Undo::PagesAndNames);
        faults.rule(0, rule);
        let ended = tool(word, Some(&faults));
        assert_eq!(faults.fired(0).1, 1, "{rule:?}");
        ended
    };
    let segments = || {
        let mut all = files_below(&data);
        all.retain(|name, _| is(name, "segment-") && name.to_string_lossy().ends_with(".log"));
        all
    };

    begin();
    assert_eq!(tool("check", None).status.code(), Some(3));
    assert!(tool("repair", None).status.success());
    let repaired = segments();
    let server = serve(&data);
    let mut client = server.client_of("memcache");
    client.take("w", b"first");
    client.take("w", b"third");
    drop(client);
    assert!(server.stop().success());

    let (full, broken) = (Action::Fail(errno::ENOSPC), Action::Fail(errno::EIO));
    begin();
    let read = Rule::once(Call::Read, broken).on(files::SEGMENT);
    let ended = failing("check", read);
    let printed = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{printed}");
    assert!(files_below(&data) == damaged, "a check changed something");
    for (call, action, on, after) in [
        (Call::Create, full, files::SEGMENT, 0),
        (Call::Write, full, files::SEGMENT, 1),
        (Call::Write, Action::CutAfter, files::SEGMENT, 1),
        (Call::Sync, broken, files::SEGMENT, 0),
        (Call::Sync, Action::CutBefore, files::SEGMENT, 1),
        (Call::Rename, Action::CutAfter, files::SEGMENT, 0),
        (Call::Sync, Action::CutBefore, files::DIRECTORY, 2),
        (Call::Unlink, Action::CutAfter, files::OTHER, 0),
    ] {
        begin();
        let rule = Rule::once(call, action).on(on).after(after);
        let ended = failing("repair", rule);
        let printed = text(&ended.stderr);
        match action {
            Action::Fail(_) => assert_eq!(ended.status.code(), Some(1), "{rule:?}: {printed}"),
            _ => assert_eq!(ended.status.signal(), Some(9), "{rule:?}: {printed}"),
        }
        let again = tool("repair", None);
        let printed = text(&again.stderr);
        assert!(again.status.success(), "{rule:?}: {printed}");
        // Also of a segment that the first one had replaced.
        let printed = text(&again.stdout);
        assert_eq!(printed.matches("lost: ").count(), 1, "{rule:?}: {printed}");
        assert_eq!(tool("check", None).status.code(), Some(0), "{rule:?}");
        assert!(segments() == repaired, "{rule:?}");
    }
}
