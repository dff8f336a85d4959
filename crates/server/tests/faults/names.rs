//! Power cuts that take names whose directory was not synced, of files and of directories: what was
//! said to be there is found again, and what was said to be gone is gone.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

use crate::common::{Server, Start, faults, quintet, text};
use quintet_faults::{Action, Call, Faults, Rule, Undo, files};
use serde_json::{Value, json};

const CONFIG: &str = "shards = 2\n[[queue]]\nname = 'set'\nscript = '/bin/true'\npaused = true\n\
                      [[listen]]\nvoice = 'memcache'\naddress = '127.0.0.1:0'\n\
                      [[listen]]\nvoice = 'http'\naddress = '127.0.0.1:0'\nallow_new_queue = true\n";

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
    let (status, said) = ask(server, &format!("POST {path}"), kind, form);
    assert!((200..400).contains(&status), "{path}: {status} {said}");
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
    let (_, said) = ask(server, &path, "multipart/form-data; boundary=x", body);
    assert!(said.contains("-Attached successfully"), "{said}");
    format!("/q/{queue}/{id}/attach/a.txt")
}

fn cut(server: Server, faults: &Faults) {
    faults.cut();
    assert_eq!(server.ended().signal(), Some(9));
}

/// Directories included: that of the data, and those of scripts.
#[test]
fn what_a_first_start_was_given_survives_a_power_cut() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
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
fn what_an_operator_ended_a_power_cut_does_not_bring_back() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
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
fn a_backup_that_says_it_is_there_survives_a_power_cut() {
    let dir = tempfile::tempdir().unwrap();
    let (data, copy) = (dir.path().join("data"), dir.path().join("copy"));
    let server = start(&data, None);
    server.client_of("memcache").put("w", b"kept");
    let attached = attach(&server, "set");
    let faults = faults(&copy);
    faults.undo(Undo::PagesAndNames);
    let told = Rule::once(Call::Write, Action::CutAfter).on(files::OUTSIDE);
    faults.rule(0, told);
    let mut backup = quintet(&["backup"]);
    backup.arg(&copy).arg("--data").arg(&data);
    faults.attach(&mut backup);
    let ended = backup.output().expect("the binary runs");
    assert_eq!(ended.status.signal(), Some(9));
    assert!(text(&ended.stdout).contains("files of scripts"));
    server.kill();
    let server = start(&copy, None);
    server.client_of("memcache").take("w", b"kept");
    assert_eq!(get(&server, &attached), (200, "attached".to_owned()));
    assert!(server.stop().success());
}
