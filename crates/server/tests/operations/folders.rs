//! `quintet import --from`: what other servers left on disk.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::common::{Server, Start, quintet, text};
use crate::moving::{Beanstalkd, all, done, import, put};

/// A message as RQ keeps it.
fn message(root: &Path, path: &str, fields: &Value, files: &[(&str, &[u8])]) -> PathBuf {
    let folder = root.join("queue").join(path);
    std::fs::create_dir_all(folder.join("attach")).unwrap();
    std::fs::create_dir_all(folder.join("job")).unwrap();
    let id = folder.file_name().unwrap().to_str().unwrap();
    let mut all = json!({
        "msg_id": id, "dest": "http://old:3333/q/mail", "src": "test", "count": 0,
        "max_count": 15, "orig_msg_id": format!("http://old:3333/q/mail/{id}"), "due": 1_257_746_280,
    });
    for (name, value) in fields.as_object().unwrap() {
        all[name] = value.clone();
    }
    std::fs::write(folder.join("msg"), all.to_string()).unwrap();
    std::fs::write(
        folder.join("status"),
        "{\"job_status\":\"err - no such host\"}",
    )
    .unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.join("attach").join(name), bytes).unwrap();
    }
    folder
}

/// A server with a queue `mail` that has a script and is paused.
fn server(dir: &Path) -> Server {
    let data = dir.join("data");
    std::fs::create_dir_all(data.join("rq/config")).unwrap();
    std::fs::write(data.join("rq/config/mail.pause"), "").unwrap();
    let script = dir.join("script.sh");
    std::fs::write(&script, "#!/bin/sh\necho done >&3\n").unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let config = format!("[[queue]]\nname = \"mail\"\nscript = {script:?}\nexec_prefix = \"\"\n");
    Start::of(&config).serve_at(&data)
}

/// All files below a folder, with their bytes.
fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.append(&mut files(&path)),
            false => drop(found.insert(path.clone(), std::fs::read(&path).unwrap())),
        }
    }
    found
}

fn by_body(server: &Server) -> BTreeMap<String, Value> {
    let messages = all(server).into_iter();
    messages
        .map(|message| (message["body"].as_str().unwrap().to_owned(), message))
        .collect()
}

fn attr(message: &Value, name: &str) -> Option<String> {
    let attrs = message["attrs"].as_array()?.iter();
    let mut found = attrs.filter(|pair| pair[0] == name);
    found
        .next()
        .map(|pair| pair[1].as_str().unwrap().to_owned())
}

#[test]
fn a_folder_of_rq_moves_with_states_fields_and_files() {
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("old");
    let far = 4_000_000_000_u64;
    message(
        &old,
        "mail/que/20091109.0558.57.780.1",
        &json!({
            "param1": "waits", "param2": "two", "param4": "", "count": 3, "max_count": "5",
            "post_run_webhook": ["http://a/"], "force_remote": true,
        }),
        &[],
    );
    message(
        &old,
        "mail/que/20091109.0558.57.780.2",
        &json!({"param1": "later", "due": far}),
        &[],
    );
    message(
        &old,
        "mail/run/20091109.0558.57.780.3",
        &json!({"param1": "ran"}),
        &[],
    );
    message(
        &old,
        "mail/err/20091109.0558.57.780.4",
        &json!({"param1": "failed"}),
        &[],
    );
    message(
        &old,
        "mail/prep/20091109.0558.57.780.5",
        &json!({"param1": "almost"}),
        &[],
    );
    let picture = crate::common::noise(300_000);
    let two: &[(&str, &[u8])] = &[("a.png", &picture), ("empty", b"")];
    message(
        &old,
        "mail/que/20091109.0558.57.780.6",
        &json!({"param1": "files"}),
        two,
    );
    message(
        &old,
        "mail/err/20091109.0558.57.780.7",
        &json!({"param1": "bad files"}),
        two,
    );
    message(
        &old,
        "other/que/20091109.0558.57.780.8",
        &json!({"param1": "elsewhere"}),
        &[],
    );
    message(
        &old,
        "mail/done/20091109/05/58/20091109.0558.57.780.9",
        &json!({}),
        &[],
    );
    // Made and not written: nobody was told of it.
    std::fs::create_dir_all(old.join("queue/mail/prep/20091109.0558.57.780.10")).unwrap();
    let before = files(&old);

    let server = server(dir.path());
    let from = format!("rq:{}", old.display());
    let counts = "mail: 2 err, 1 prep, 3 que, 1 run\nother: 1 que\n";
    assert_eq!(done(&import(&server, &from, &["--dry-run"])), counts);
    assert_eq!(all(&server).len(), 0);

    let output = import(&server, &from, &[]);
    done(&output);
    let printed = text(&output.stderr);
    assert!(printed.contains(counts), "{printed}");
    assert!(
        printed.contains("\n8 messages stored\n1 of them failed at RQ"),
        "{printed}"
    );
    assert_eq!(files(&old), before, "the folder is only read");

    let messages = by_body(&server);
    let state = |body: &str| messages[body]["state"].as_str().unwrap();
    assert_eq!(
        [
            "waits",
            "later",
            "ran",
            "failed",
            "almost",
            "files",
            "bad files",
            "elsewhere"
        ]
        .map(state),
        [
            "ready", "delayed", "ready", "buried", "prepared", "ready", "prepared", "ready"
        ]
    );
    let waits = &messages["waits"];
    for (name, value) in [
        ("param2", "two"),
        ("param4", ""),
        ("count", "3"),
        ("max_count", "5"),
        ("src", "test"),
        ("force_remote", "1"),
        ("post_run_webhook", "[\"http://a/\"]"),
        (
            "orig_msg_id",
            "http://old:3333/q/mail/20091109.0558.57.780.1",
        ),
    ] {
        assert_eq!(attr(waits, name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(messages["later"]["due_ms"], far * 1000);
    assert_eq!(messages["failed"]["status"], "no such host");
    assert_eq!(messages["elsewhere"]["queue"], "other");
    for body in ["files", "bad files"] {
        let folder = attr(&messages[body], "dir").expect("it has files");
        let folder = server.data.join("rq").join(folder).join("attach");
        assert!(std::fs::read(folder.join("a.png")).unwrap() == picture);
        assert_eq!(std::fs::read(folder.join("empty")).unwrap(), b"");
    }

    // Again: nothing comes twice.
    let output = import(&server, &from, &[]);
    done(&output);
    let printed = text(&output.stderr);
    assert!(
        printed.contains("0 messages stored, 8 were stored by"),
        "{printed}"
    );
    assert_eq!(all(&server).len(), 8);
}

/// Attachments go to the data directory of the server that gets the messages, also where no flag
/// names it.
#[test]
fn attachments_go_to_the_server_that_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("old");
    let path = "mail/que/20091109.0558.57.780.1";
    let fields = json!({"param1": "files"});
    message(&old, path, &fields, &[("a.txt", b"hello")]);
    let server = server(dir.path());
    let elsewhere = dir.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&server.data, elsewhere.join("quintet")).unwrap();
    let from = format!("rq:{}", old.display());
    let mut import = quintet(&["import", "--from", &from]);
    import.current_dir(&elsewhere).env_remove("QUINTET_DATA");
    done(&import.env("XDG_RUNTIME_DIR", &elsewhere).output().unwrap());
    let folder = attr(&by_body(&server)["files"], "dir").expect("it has a file");
    let file = server.data.join("rq").join(folder).join("attach/a.txt");
    assert_eq!(std::fs::read(file).unwrap(), b"hello");
    assert!(!elsewhere.join("data").exists());
}

#[test]
fn a_wrong_folder_is_named_with_the_count_of_stored_messages() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(dir.path());
    let old = dir.path().join("old");
    let from = format!("rq:{}", old.display());
    std::fs::create_dir_all(&old).unwrap();
    let refused = |why: &str, code: i32| {
        let output = import(&server, &from, &[]);
        let printed = text(&output.stderr);
        assert!(printed.contains(why), "{why}: {printed}");
        assert_eq!(output.status.code(), Some(code), "{printed}");
        printed
    };
    refused("is not a folder of RQ", 1);
    message(
        &old,
        "mail/que/20091109.0558.57.780.1",
        &json!({"param1": "good"}),
        &[],
    );
    let strange = message(
        &old,
        "mail/two_done/20091109.0558.57.780.2",
        &json!({}),
        &[],
    );
    refused("of another version of RQ", 3);
    assert_eq!(
        all(&server).len(),
        0,
        "nothing is imported of an unknown queue"
    );
    std::fs::remove_dir_all(strange).unwrap();

    // A queue without a script has no attachments.
    let other = message(
        &old,
        "none/que/20091109.0558.57.780.4",
        &json!({}),
        &[("a", b"b")],
    );
    refused("the messages of the queue none have attachments", 1);
    assert_eq!(all(&server).len(), 0);
    std::fs::remove_dir_all(other).unwrap();

    let bad = message(&old, "mail/que/20091109.0558.57.780.3", &json!({}), &[]);
    let whole = std::fs::read(bad.join("msg")).unwrap();
    std::fs::write(bad.join("msg"), &whole[..whole.len() / 2]).unwrap();
    let printed = refused("it is not what RQ writes", 3);
    assert!(printed.contains("1 message stored"), "{printed}");
    std::fs::write(bad.join("msg"), &whole).unwrap();
    let output = import(&server, &from, &[]);
    done(&output);
    let printed = text(&output.stderr);
    assert!(
        printed.contains("1 message stored, 1 was stored by"),
        "{printed}"
    );

    // RQ is still there.
    std::fs::create_dir_all(old.join("config")).unwrap();
    let manager = UnixListener::bind(old.join("config/queuemgr.sock")).unwrap();
    refused("stop it first", 1);
    drop(manager);
    done(&import(&server, &from, &[]));
}

#[test]
fn a_binlog_of_the_real_beanstalkd_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("old");
    std::fs::create_dir_all(&old).unwrap();
    let from = format!("binlog:{}", old.display());
    let server = Server::start(&dir.path().join("data"));
    // Small files, so that there are several, and jobs are written again.
    let binlog = old.to_str().unwrap();
    let running = Beanstalkd::start(&["-b", binlog, "-f", "0", "-s", "16384"]);
    let mut client = running.client();
    for number in 0..400 {
        put(
            &mut client,
            "5 0 60",
            format!("gone {number} {:100}", "").as_bytes(),
        );
    }
    put(&mut client, "7 0 60", b"ready");
    put(&mut client, "8 3600 61", b"later");
    client.ask(
        b"use mail\r\nwatch mail\r\n",
        b"USING mail\r\nWATCHING 2\r\n",
    );
    put(&mut client, "9 0 62", b"bad\r\n\x00");
    put(&mut client, "9 0 62", b"");
    client.ask(b"reserve-job 403\r\n", b"RESERVED 403 6\r\nbad\r\n\x00\r\n");
    client.ask(b"bury 403 11\r\n", b"BURIED\r\n");
    for id in 1..=400 {
        client.ask(format!("delete {id}\r\n").as_bytes(), b"DELETED\r\n");
    }
    // Reserved when it dies: ready.
    client.ask(b"reserve-job 404\r\n", b"RESERVED 404 0\r\n\r\n");
    let output = import(&server, &from, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("stop that beanstalkd first"));
    drop(running);

    let before = files(&old);
    assert!(before.len() > 1);
    let counts = "default: 1 delayed, 1 ready\nmail: 1 buried, 1 ready\n";
    assert_eq!(done(&import(&server, &from, &["--dry-run"])), counts);
    done(&import(&server, &from, &[]));
    assert_eq!(files(&old), before, "it is only read");
    let messages = by_body(&server);
    assert_eq!(messages.len(), 4);
    let (bad, later) = (&messages["bad\r\n\0"], &messages["later"]);
    assert_eq!(
        (&bad["state"], &bad["priority"]),
        (&json!("buried"), &json!(11))
    );
    assert_eq!(
        (&bad["ttr_ms"], &bad["queue"]),
        (&json!(62_000), &json!("mail"))
    );
    assert_eq!((&bad["reserves"], &bad["buries"]), (&json!(1), &json!(1)));
    assert_eq!(
        (&later["state"], &later["priority"]),
        (&json!("delayed"), &json!(8))
    );
    let rest = later["due_ms"].as_u64().unwrap() - later["created_ms"].as_u64().unwrap();
    assert!((3_600_000..3_601_000).contains(&rest), "{later}");
    assert_eq!(messages["ready"]["priority"], 7);
    assert_eq!(messages[""]["state"], "ready");
    let output = import(&server, &from, &[]);
    done(&output);
    assert!(text(&output.stderr).contains("0 messages stored, 4 were stored by"));

    // A truncated one: what can be read is stored, and the place is said.
    let last = before.keys().filter(|path| !path.ends_with("lock")).max();
    let last = last.unwrap();
    let bytes = &before[last];
    std::fs::remove_file(last).unwrap();
    std::fs::write(last, &bytes[..bytes.len().min(60)]).unwrap();
    let other = Server::start(&dir.path().join("other"));
    let output = import(&other, &from, &[]);
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{printed}");
    assert!(
        printed.contains("the file ends inside a record"),
        "{printed}"
    );
    assert!(printed.contains(" stored"), "{printed}");
    // One of which nothing is left, its beginning, or a record.
    let first = before.keys().find(|path| !path.ends_with("lock")).unwrap();
    let whole = &before[first];
    let blank = |from: usize, to: usize| {
        let mut bytes = whole.clone();
        bytes[from..to].fill(0);
        bytes
    };
    std::fs::write(last, bytes).unwrap();
    for (left, says) in [
        (Vec::new(), "the file is empty"),
        (vec![0; 3], "the file begins with zeros"),
        (vec![0; 4096], "the file begins with zeros"),
        (blank(0, 4), "the file begins with zeros"),
        (blank(4, 120), "nothing but zeros where a record should be"),
    ] {
        // A beanstalkd lets nobody write into what it has filled.
        std::fs::remove_file(first).unwrap();
        std::fs::write(first, left).unwrap();
        for more in [&[][..], &["--dry-run"]] {
            let output = import(&other, &from, more);
            let printed = text(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{says}: {printed}");
            let named = first.to_str().unwrap();
            assert!(
                printed.contains(named) && printed.contains(says),
                "{says}: {printed}"
            );
        }
    }
    std::fs::write(first, whole).unwrap();
    // And one of a version to come.
    std::fs::write(last, 8_u32.to_le_bytes()).unwrap();
    let output = import(&other, &from, &[]);
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{printed}");
    assert!(printed.contains("version 8 of a binlog"), "{printed}");
}

#[test]
fn a_journal_of_kestrel_is_read_with_its_older_files() {
    let dir = tempfile::tempdir().unwrap();
    let item = |code: u8, read: Option<u32>, expires: u64, body: &str| {
        let mut all = vec![code];
        all.extend(read.into_iter().flat_map(u32::to_le_bytes));
        all.extend(u32::try_from(body.len() + 16).unwrap().to_le_bytes());
        all.extend(1_700_000_000_000_u64.to_le_bytes());
        all.extend(expires.to_le_bytes());
        all.extend(body.as_bytes());
        all
    };
    let number = |code: u8, number: u32| [&[code][..], &number.to_le_bytes()].concat();
    let far = 4_000_000_000_000;
    let old = dir.path().join("journal");
    std::fs::create_dir_all(&old).unwrap();
    // In the packed file already.
    std::fs::write(old.join("work.100"), item(2, None, 0, "packed away")).unwrap();
    let packed = [
        item(7, Some(5), 0, "open when packed"),
        vec![3],
        number(4, 5),
        item(2, None, 0, "gone"),
        item(2, None, far, "first"),
    ];
    std::fs::write(old.join("work.200.pack"), packed.concat()).unwrap();
    let later = [
        vec![1],
        item(2, None, 0, "closed"),
        item(2, None, 0, "aborted"),
    ];
    std::fs::write(old.join("work.300"), later.concat()).unwrap();
    let newest = [
        // "first" is read as 6, closed as 7 and "aborted" as 8.
        vec![3],
        number(9, 7),
        number(9, 8),
        number(6, 7),
        item(2, None, 0, "last"),
        number(5, 8),
        item(8, Some(5), 0, "continued"),
    ];
    std::fs::write(old.join("work"), newest.concat()).unwrap();
    std::fs::write(old.join("worker.100"), item(2, None, 0, "of another")).unwrap();
    let before = files(&old);

    let server = Server::start(&dir.path().join("data"));
    let path = old.join("work");
    let from = format!("kestrel-journal:{}", path.display());
    assert_eq!(
        done(&import(&server, &from, &["--dry-run"])),
        "work: 4 ready\n"
    );
    done(&import(&server, &from, &[]));
    let messages = all(&server);
    let bodies: Vec<&str> = messages
        .iter()
        .map(|message| message["body"].as_str().unwrap())
        .collect();
    assert_eq!(bodies, ["first", "aborted", "last", "continued"]);
    assert_eq!(messages[0]["expires_ms"], far);
    assert_eq!(messages[0]["created_ms"], 1_700_000_000_000_u64);
    assert_eq!(messages[0]["queue"], "work");
    assert_eq!(files(&old), before, "it is only read");
    let output = import(&server, &from, &[]);
    done(&output);
    assert!(text(&output.stderr).contains("0 messages stored, 4 were stored by"));

    // The last one is cut short, as a crash leaves it.
    let whole = newest.concat();
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let other = Server::start(&dir.path().join("other"));
    let output = import(&other, &from, &[]);
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{printed}");
    assert!(
        printed.contains("the file ends inside a record"),
        "{printed}"
    );
    // What it says was closed is open without it.
    assert!(printed.contains("4 messages stored"), "{printed}");
    let none = import(&other, "kestrel-journal:/none/at/all", &[]);
    assert!(text(&none.stderr).contains("cannot read"));
}
