//! `quintet export` and `import`: queues move whole, and what was interrupted
//! goes on.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};

use crate::common::{Client, Server, Start, noise, quintet, text};
use serde_json::{Value, json};

#[track_caller]
fn done(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Exports everything to a new file.
fn export(server: &Server, path: &Path, format: &str) {
    let path = path.to_str().unwrap();
    let args = [
        "export",
        "--all-states",
        "--format",
        format,
        "--output",
        path,
    ];
    done(&server.run(&args));
}

fn import(server: &Server, path: &Path) -> Output {
    server.run(&["import", path.to_str().unwrap()])
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let line = |line: &str| serde_json::from_str(line).expect(line);
    text.lines().map(line).collect()
}

/// Without what a server numbers for itself, and as a lease leaves it.
fn comparable(path: &Path) -> Vec<Value> {
    let mut lines = lines(path);
    for line in &mut lines {
        let map = line.as_object_mut().unwrap();
        for field in ["id", "place", "bury_order"] {
            map.remove(field);
        }
        if map["state"] == "reserved" {
            map.insert("state".into(), "ready".into());
        }
    }
    lines
}

/// A message of every state, with every field.
fn every_kind() -> String {
    let far = 4_000_000_000_000_u64;
    let mut lines = vec![
        json!({"queue": "work", "priority": 0, "body": "best"}),
        json!({"queue": "work", "priority": 7, "body": "", "flags": 9, "ttr_ms": 0}),
        json!({"queue": "work", "priority": 7, "body": "\u{e4}\n\"\u{0}", "key": "",
               "expires_ms": far, "ttr_ms": 60_000, "reserves": 3, "timeouts": 2, "releases": 1,
               "kicks": 4, "buries": 5, "changed_ms": 10, "status": "again", "failures": 6,
               "name": "third", "tracked": true}),
        json!({"queue": "work", "priority": 4_294_967_295_u32, "body_base64": "/wA=",
               "key": {"base64": "/w=="}, "attrs": [["a", "b"], ["c", {"base64": "gA=="}]]}),
        json!({"queue": "work", "priority": 0, "body": "held", "not_selectable": true, "key": "k"}),
        json!({"queue": "work", "state": "delayed", "priority": 1, "body": "later", "due_ms": far}),
        json!({"queue": "work", "state": "buried", "priority": 1, "body": "bad", "status": "why",
               "changed_ms": 11, "buries": 1}),
        json!({"queue": "work", "state": "buried", "priority": 1, "body": "worse", "changed_ms": 5}),
        json!({"queue": "work", "state": "prepared", "priority": 1, "body": "almost"}),
        json!({"queue": "a\\x00b", "state": "done", "priority": 1, "body": "was", "changed_ms": far}),
        json!({"queue": "a\\x00b", "state": "relayed", "priority": 1, "body": "went",
               "changed_ms": far, "status": "ok"}),
    ];
    for line in &mut lines {
        line["created_ms"] = json!(1_700_000_000_000_u64);
    }
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    lines.join("\n")
}

#[test]
fn queues_move_with_all_states_and_fields_in_both_forms() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let first = Server::start(&file("first"));
    std::fs::write(file("hand.jsonl"), every_kind()).unwrap();
    done(&import(&first, &file("hand.jsonl")));
    for len in [65_536, 65_537, 3_000_000] {
        std::fs::write(file("body"), noise(len)).unwrap();
        done(&first.run(&["put", "large", "--file", file("body").to_str().unwrap()]));
    }
    let mut client = first.client();
    client.ask(b"get work/open\r\n", b"VALUE work 0 4\r\nbest\r\nEND\r\n");

    export(&first, &file("first.jsonl"), "jsonl");
    export(&first, &file("first.jsonl.gz"), "gzip");
    let states: Vec<String> = lines(&file("first.jsonl"))
        .iter()
        .map(|line| line["state"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        states,
        [
            "done", "relayed", "ready", "ready", "ready", "reserved", "ready", "ready", "ready",
            "ready", "delayed", "buried", "buried", "prepared"
        ]
    );
    let before = comparable(&file("first.jsonl"));
    // What was given is there.
    for (line, original) in before[5..].iter().zip(every_kind().lines()) {
        let original: Value = serde_json::from_str(original).unwrap();
        for (field, value) in original.as_object().unwrap() {
            if *value != json!(0) || field == "ttr_ms" || field == "priority" {
                assert_eq!(line[field], *value, "{field} of {original}");
            }
        }
    }
    for (name, from) in [("second", "first.jsonl"), ("third", "first.jsonl.gz")] {
        let server = Server::start(&file(name));
        done(&import(&server, &file(from)));
        let out = file(&format!("{name}.jsonl"));
        export(&server, &out, "jsonl");
        assert_eq!(comparable(&out), before, "{name}");
        // Nothing is lost in the log.
        server.kill();
        let server = Server::start(&file(name));
        let out = file(&format!("{name}-again.jsonl"));
        export(&server, &out, "jsonl");
        assert_eq!(comparable(&out), before, "{name}");
        let track = done(&server.run(&["track", "work", "third", "--json"]));
        let track: Value = serde_json::from_str(&track).unwrap();
        assert_eq!(
            (&track["state"], &track["status"]),
            (&json!("waiting"), &json!("again"))
        );
    }
}

/// The file is of no server: `cli/src/records/tests.rs` says what is in it.
#[test]
fn an_export_in_the_old_binary_form_is_imported_and_no_new_one_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let binary = include_bytes!("../../../cli/tests/fixtures/export.qx");
    std::fs::write(file("old.qx"), binary).unwrap();
    let server = Server::start(&file("data"));
    let imported = import(&server, &file("old.qx"));
    let printed = text(&imported.stderr);
    assert!(imported.status.success(), "{printed}");
    assert!(printed.contains("9 messages stored"), "{printed}");
    export(&server, &file("all.jsonl"), "jsonl");
    let all = lines(&file("all.jsonl"));
    let queues: Vec<_> = all
        .iter()
        .map(|line| line["queue"].as_str().unwrap())
        .collect();
    let b = "b\\x00c";
    assert_eq!(queues, ["a", "a", "a", "a", "a", b, b, "d", "d"]);
    let full = all.iter().find(|line| line["status"] == "again");
    let full = full.expect("the second message");
    assert_eq!(full["buries"], json!(5));
    assert_eq!(full["name"], json!({"base64": "bv8="}));

    let refused = server.run(&["export", "--format", "binary"]);
    assert_eq!(refused.status.code(), Some(1));
    let why = text(&refused.stderr);
    assert!(why.contains("use --format gzip"), "{why}");
}

/// A pipe has no name and no end that could be looked at first.
#[test]
fn compressed_lines_pass_through_pipes() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let server = filled(&from, 300);
    let output = server.run(&["export", "work", "--format", "gzip"]);
    assert!(output.stdout.starts_with(&[0x1f, 0x8b]));
    let server = Server::start(&to);
    let mut import = quintet(&["import", "-", "--quiet", "--data"])
        .arg(&server.data)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = import.stdin.take().unwrap();
    // Its beginning alone, too.
    for part in [&output.stdout[..1], &output.stdout[1..]] {
        stdin.write_all(part).unwrap();
    }
    drop(stdin);
    assert!(import.wait().unwrap().success());
    holds_in_order(&server, 300);
}

#[test]
fn only_named_queues_and_what_is_still_to_be_done() {
    let dir = tempfile::tempdir().unwrap();
    let hand = dir.path().join("hand.jsonl");
    std::fs::write(&hand, every_kind()).unwrap();
    let server = Server::start(&dir.path().join("data"));
    done(&import(&server, &hand));
    let all = done(&server.run(&["export", "work", "--quiet"]));
    assert_eq!(all.lines().count(), 8, "{all}");
    assert!(!all.contains("almost") && all.contains("later") && all.contains("worse"));
    let none = server.run(&["export", "nosuch"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none.stderr).contains("there is no queue nosuch"));
    // Into another queue, twice.
    for args in [&["--into", "other"][..], &["--into", "other", "--again"]] {
        let path = hand.to_str().unwrap();
        let mut all = vec!["import", path];
        all.extend(args);
        done(&server.run(&all));
    }
    let count = done(&server.run(&["export", "other", "--all-states"]));
    assert_eq!(count.lines().count(), 22);
}

#[test]
fn an_export_of_all_queues_has_the_batches_and_an_import_says_that_it_makes_none() {
    let dir = tempfile::tempdir().unwrap();
    let (plain, gzip) = (dir.path().join("plain"), dir.path().join("gzip"));
    let first = Server::start(&dir.path().join("first"));
    let new = [
        "batch",
        "new",
        "--success",
        "ran=all ran",
        "--description",
        "March",
    ];
    let batch = done(&first.run(&new));
    let batch = batch.trim();
    done(&first.run(&["put", "work", "page", "--batch", batch]));
    export(&first, &plain, "jsonl");
    let all = lines(&plain);
    let exported = &all[0]["batch"];
    let field = |name: &str| exported[name].clone();
    assert_eq!(
        (field("id"), field("description")),
        (json!(batch), json!("March"))
    );
    assert_eq!((field("total"), field("pending")), (json!(1), json!(1)));
    assert_eq!(
        (field("open"), field("success")),
        (json!(true), json!("no"))
    );
    let callback = json!({"queue": "ran", "body": "all ran", "headers": {}});
    assert_eq!(field("callbacks"), json!({ "success": callback }));
    assert_eq!((&all[1]["batch"], all.len()), (&json!(batch), 2));
    // Interrupted behind the batches: they are there once.
    let text_of_all = std::fs::read_to_string(&plain).unwrap();
    let begin = text_of_all.find('\n').unwrap() + 1;
    std::fs::write(&plain, &text_of_all[..begin]).unwrap();
    let resume = ["export", "--resume", "--all-states", "--output"];
    done(&first.run(&[&resume[..], &[plain.to_str().unwrap()]].concat()));
    assert_eq!(std::fs::read_to_string(&plain).unwrap(), text_of_all);
    let of_one = done(&first.run(&["export", "work", "--quiet"]));
    assert_eq!(of_one.lines().count(), 1, "{of_one}");

    export(&first, &gzip, "gzip");
    for (name, path) in [("second", &plain), ("third", &gzip)] {
        let other = Server::start(&dir.path().join(name));
        let printed = text(&import(&other, path).stderr);
        assert!(printed.contains("1 message stored"), "{printed}");
        let expected = "1 message of the source belonged to batches";
        assert!(printed.contains(expected), "{printed}");
        assert!(!done(&other.run(&["batch", "--json"])).contains("b-"));
    }
}

/// Their parents may not have run at the other server.
#[test]
fn an_imported_held_message_waits_for_a_kick_and_the_import_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("held.jsonl");
    let first = Server::start(&dir.path().join("first"));
    let parent = done(&first.run(&["put", "build", "make"]));
    done(&first.run(&["put", "deploy", "ship", "--after", parent.trim()]));
    done(&first.run(&["export", "--output", file.to_str().unwrap()]));
    let other = Server::start(&dir.path().join("other"));
    // Also from there on to another one.
    for into in [&["--into", "deploy"][..], &["--into", "again", "--again"]] {
        let all = [&["import", file.to_str().unwrap()], into].concat();
        let imported = other.run(&all);
        let printed = text(&imported.stderr);
        assert!(imported.status.success(), "{printed}");
        let expected = "1 message of the source waited for other messages: its copy stays delayed";
        assert!(printed.contains(expected), "{printed}");
    }
    let take = |queue: &str| other.run(&["take", queue]);
    assert_eq!(text(&take("deploy").stdout).trim(), "make");
    assert!(!take("deploy").status.success(), "the other one waits");
    done(&other.run(&["kick", "deploy", "--state", "delayed"]));
    assert_eq!(text(&take("deploy").stdout).trim(), "ship");
    std::fs::remove_file(&file).unwrap();
    done(&other.run(&["export", "again", "--output", file.to_str().unwrap()]));
    // There it is delayed as long as can be, and waits for nothing.
    let printed = text(&import(&first, &file).stderr);
    assert!(!printed.contains("waited for other messages"), "{printed}");
}

/// A server with `count` messages of 1 KiB in order.
fn filled(dir: &Path, count: usize) -> Server {
    let server = Server::start(dir);
    let put = |number| format!("set work 0 0 1024\r\n{}\r\n", body(number));
    let all: Vec<String> = (0..count).map(put).collect();
    let mut client = server.client();
    for some in all.chunks(100) {
        client.ask(some.concat().as_bytes(), &b"STORED\r\n".repeat(some.len()));
    }
    server
}

fn body(number: usize) -> String {
    format!("{number:01024}")
}

/// Takes the first `count`, many at a time.
#[track_caller]
fn take_in_order(client: &mut Client, count: usize) {
    for first in (0..count).step_by(100) {
        let some = first..count.min(first + 100);
        client.send(&b"get work\r\n".repeat(some.len()));
        for number in some {
            client.expect_value("work", body(number).as_bytes());
        }
    }
}

#[track_caller]
fn holds_in_order(server: &Server, count: usize) {
    let mut client = server.client();
    take_in_order(&mut client, count);
    client.take_nothing("work");
}

/// A file with `count` messages.
fn file_of(dir: &Path, count: usize, format: &str) -> PathBuf {
    let server = filled(&dir.join("source"), count);
    let path = dir.join("all");
    export(&server, &path, format);
    path
}

/// An import that has received two thirds of `all`, and has stored some of it.
fn two_thirds(server: &Server, all: &[u8]) -> Child {
    let mut import = quintet(&["import", "-", "--data"])
        .arg(&server.data)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stdin = import.stdin.as_mut().unwrap();
    stdin.write_all(&all[..all.len() / 3 * 2]).unwrap();
    let mut client = server.client();
    client.await_stat("queue_work_items", |items| items > 0);
    import
}

#[test]
fn an_import_that_was_killed_is_repeated_without_doubles() {
    let dir = tempfile::tempdir().unwrap();
    let path = file_of(dir.path(), 900, "jsonl");
    let server = Server::start(&dir.path().join("target"));
    let all = std::fs::read(&path).unwrap();
    let mut import_some = two_thirds(&server, &all);
    import_some.kill().unwrap();
    import_some.wait().unwrap();

    let again = import(&server, &path);
    done(&again);
    assert!(
        text(&again.stderr).contains("were stored by an earlier import"),
        "{}",
        text(&again.stderr)
    );
    // And once more, with nothing left to do.
    let once_more = text(&import(&server, &path).stderr);
    assert!(
        once_more.starts_with("0 messages stored, 900 were"),
        "{once_more}"
    );
    holds_in_order(&server, 900);
}

#[test]
fn a_damaged_file_is_named_and_goes_on_when_it_is_mended() {
    for format in ["jsonl", "gzip"] {
        let dir = tempfile::tempdir().unwrap();
        let path = file_of(dir.path(), 700, format);
        let server = Server::start(&dir.path().join("target"));
        let good = std::fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[good.len() / 2] ^= 0x80;
        std::fs::write(&path, &bad).unwrap();
        let failed = import(&server, &path);
        let why = text(&failed.stderr);
        assert_eq!(failed.status.code(), Some(3), "{why}");
        let place = if format == "jsonl" {
            ": line 3"
        } else {
            ": line "
        };
        assert!(
            why.contains(path.to_str().unwrap()) && why.contains(place),
            "{why}"
        );
        assert!(
            !why.starts_with("0 messages"),
            "what came before is stored: {why}"
        );
        // Cut short, as by an export that was interrupted.
        std::fs::write(&path, &good[..good.len() - 700]).unwrap();
        assert_eq!(import(&server, &path).status.code(), Some(3));
        std::fs::write(&path, &good).unwrap();
        done(&import(&server, &path));
        holds_in_order(&server, 700);
    }
}

#[test]
fn an_export_that_was_interrupted_goes_on() {
    for format in ["jsonl", "gzip"] {
        let dir = tempfile::tempdir().unwrap();
        let server = filled(&dir.path().join("data"), 600);
        std::fs::write(dir.path().join("body"), noise(200_000)).unwrap();
        let large = dir.path().join("body");
        done(&server.run(&["put", "large", "--file", large.to_str().unwrap()]));
        let whole = dir.path().join("whole");
        export(&server, &whole, format);
        let good = std::fs::read(&whole).unwrap();
        let wanted = dir.path().join("wanted");
        export(&server, &wanted, "jsonl");
        let part = dir.path().join("part");
        let name = part.to_str().unwrap();
        let args = [
            "export",
            "--all-states",
            "--format",
            format,
            "--output",
            name,
        ];
        let len = good.len();
        for len in [0, 20, len / 9, len / 3, len - 1, len] {
            std::fs::write(&part, &good[..len]).unwrap();
            let refused = server.run(&args);
            assert!(text(&refused.stderr).contains("--resume"), "it exists");
            let mut args = args.to_vec();
            args.push("--resume");
            done(&server.run(&args));
            // The same file brings the same messages.
            if len > 0 && std::fs::read(&part).unwrap() == good {
                continue;
            }
            let target = Server::start(&dir.path().join(format!("target-{len}")));
            done(&import(&target, &part));
            let copy = dir.path().join(format!("copy-{len}"));
            export(&target, &copy, "jsonl");
            assert!(
                comparable(&copy) == comparable(&wanted),
                "{format} cut at {len}"
            );
        }
    }
}

#[test]
fn a_take_during_an_export_does_not_end_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = filled(&dir.path().join("data"), 3000);
    let mut export = quintet(&["export", "work", "--data"])
        .arg(&server.data)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(export.stdout.take().unwrap());
    let mut line = String::new();
    // It is under way, and waits for its reader with most of it to come.
    out.read_line(&mut line).unwrap();
    take_in_order(&mut server.client(), 2000);
    let ids: Vec<u64> = std::iter::once(line)
        .chain(out.lines().map(|line| line.unwrap()))
        .map(|line| {
            serde_json::from_str::<Value>(&line).unwrap()["id"]
                .as_u64()
                .unwrap()
        })
        .collect();
    assert!(export.wait().unwrap().success());
    assert!(
        ids.windows(2).all(|pair| pair[0] < pair[1]),
        "in order, once"
    );
    assert!(ids.len() < 2500, "it did not run ahead: {}", ids.len());
    let kept: Vec<u64> = ids.iter().copied().filter(|&id| id > 2000).collect();
    assert_eq!(kept, (2001..=3000).collect::<Vec<u64>>());
}

#[test]
fn a_full_queue_refuses_the_rest_and_a_repeat_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = file_of(dir.path(), 700, "gzip");
    let server = Start::of("[[queue]]\nname = \"work\"\nmessages_max = 600\n")
        .serve_at(&dir.path().join("target"));
    let full = import(&server, &path);
    let why = text(&full.stderr);
    assert_eq!(full.status.code(), Some(1), "{why}");
    assert!(
        why.contains("queue full") && why.contains("repeat"),
        "{why}"
    );
    let mut client = server.client();
    for number in 0..200 {
        client.take("work", body(number).as_bytes());
    }
    done(&import(&server, &path));
    for number in 200..700 {
        client.take("work", body(number).as_bytes());
    }
    client.take_nothing("work");
}

#[test]
fn a_queue_that_knows_keys_refuses_repeats_and_takes_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys.jsonl");
    let line = |key: &str| json!({"queue": "work", "key": key, "body": key}).to_string();
    let server = Start::of("[[queue]]\nname = \"work\"\ndedupe_by_key = \"1h\"\n")
        .serve_at(&dir.path().join("data"));
    std::fs::write(&path, line("b")).unwrap();
    done(&import(&server, &path));
    let mut many: Vec<String> = ["a", "b", "c"].iter().map(|key| line(key)).collect();
    many.extend((0..300).map(|n| line(&n.to_string())));
    std::fs::write(&path, many.join("\n")).unwrap();
    for (stored, repeats) in [(302, "1 is a duplicate"), (0, "302 were stored")] {
        let output = import(&server, &path);
        done(&output);
        let printed = text(&output.stderr);
        // Behind its progress, if it took long.
        let begin = format!("{stored} messages stored");
        assert!(
            printed.lines().any(|line| line.starts_with(&begin)),
            "{printed}"
        );
        assert!(printed.contains(repeats), "{printed}");
    }
}

#[test]
fn an_import_whose_server_dies_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = file_of(dir.path(), 900, "jsonl");
    let server = Server::start(&dir.path().join("target"));
    let all = std::fs::read(&path).unwrap();
    let mut import = two_thirds(&server, &all);
    let mut stdin = import.stdin.take().unwrap();
    server.kill();
    // It may have noticed already.
    stdin.write_all(&all[all.len() / 3 * 2..]).ok();
    drop(stdin);
    let output = import.wait_with_output().unwrap();
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("repeat the command"), "{printed}");
}
