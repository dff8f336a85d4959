//! Events from a log that is damaged while the server runs.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use serde_json::{Value, json};

use super::api::ask;
use super::message_events::{await_begun, now, put, reply, request, since};
use crate::common::{Data, Start, eventually};

const BODIES: [&str; 3] = ["the first body", "the second body", "the third body"];

/// Damages the header of the frame with the second body.
fn damage(data: &Path) {
    let entries = std::fs::read_dir(data).expect("listed");
    for entry in entries {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        if !name.starts_with("segment-") {
            continue;
        }
        let mut content = std::fs::read(&path).expect("read");
        let of = |what: &str| {
            let mut all = content.windows(what.len());
            all.position(|some| some == what.as_bytes())
        };
        if let (Some(first), Some(second)) = (of(BODIES[0]), of(BODIES[1])) {
            let begin = first + BODIES[0].len();
            let part = content.get_mut(begin..second).expect("in this order");
            part.iter_mut().for_each(|byte| *byte ^= 0x5a);
            let file = File::options().write(true).open(&path).expect("opened");
            return file.write_all_at(part, begin as u64).expect("written");
        }
    }
    panic!("the bodies are in no file");
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let kind = |event: &Value| event["kind"] == "put" || event["kind"] == "lost";
    let listed = events.iter().filter(|event| kind(event));
    listed
        .map(|event| event["kind"].as_str().expect("a kind"))
        .collect()
}

#[test]
fn a_reader_gets_damage_once_and_comes_to_the_end() {
    let data = Data::fresh();
    let server = Start::default().listen(&["http=0"]).serve_at(&data);
    let begin = now(&server);
    for body in BODIES {
        put(&server, "work", json!({ "body": body }));
    }
    let (whole, end) = since(&server, &begin, 100, "");
    assert_eq!(kinds(&whole), ["put", "put", "put"]);
    damage(&data);
    for max in [1, 2, 100] {
        let (listed, at) = since(&server, &begin, max, "");
        assert_eq!(kinds(&listed), ["put", "lost", "put"], "{listed:?}");
        assert_eq!(at, end);
    }
    let (listed, _) = since(&server, &begin, 100, "&queue=other&kinds=dead");
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(
        (&listed[0]["kind"], &listed[0]["why"]),
        (&json!("lost"), &json!("unreadable"))
    );
    let (listed, _) = since(&server, "oldest", 100, "");
    assert_eq!(kinds(&listed), ["put", "lost", "put"], "{listed:?}");
    let printed = server.printed(&["events", "--since", &begin]);
    assert_eq!(printed.matches("lost").count(), 1, "{printed}");
}

/// The number of a queue that is deleted goes to the next one that is made.
#[test]
fn an_event_gets_no_name_that_its_queue_lost_in_the_damage() {
    let data = Data::fresh();
    let config = "shards = 1\n";
    let server = Start::of(config).listen(&["http=0"]).serve_at(&data);
    let begin = now(&server);
    put(&server, "stays", json!({ "body": "x" }));
    let id = put(&server, "old", json!({ "body": BODIES[0] }));
    for path in [format!("/messages/{id}"), "/queues/old".to_owned()] {
        let reply = ask(&server, &format!("DELETE {path}"), "", "");
        assert!(reply.status < 300, "{path}: {}", reply.json);
    }
    put(&server, "new", json!({ "body": BODIES[1] }));
    put(&server, "new", json!({ "body": BODIES[2] }));
    put(&server, "stays", json!({ "body": "x" }));
    damage(&data);
    for max in [1, 100] {
        let (listed, _) = since(&server, &begin, max, "");
        assert_eq!(kinds(&listed), ["put", "put", "lost", "put"], "{listed:?}");
        let queues: Vec<&Value> = listed.iter().map(|event| &event["queue"]).collect();
        let expected = ["stays", "old", "", "stays"].map(|name| match name {
            "" => Value::Null,
            name => json!(name),
        });
        assert_eq!(queues, expected.iter().collect::<Vec<_>>());
    }
}

#[test]
fn a_webhook_goes_on_behind_damage_and_counts_it() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let config = format!("[[webhook]]\nname = 'one'\nurl = 'http://{address}/'\n");
    let data = Data::fresh();
    let server = Start::of(&config).listen(&["http=0"]).serve_at(&data);
    await_begun(&server, "one");
    // The log is damaged behind the events that the receiver is being told.
    let first = put(&server, "work", json!({ "body": BODIES[0] }));
    let mut next = request(&listener);
    put(&server, "work", json!({ "body": BODIES[1] }));
    let third = put(&server, "work", json!({ "body": BODIES[2] }));
    damage(&data);
    let mut listed: Vec<Value> = Vec::new();
    loop {
        let (mut stream, _, body) = next;
        let body: Value = serde_json::from_str(&body).expect("JSON");
        reply(&mut stream, "200 OK");
        listed.extend(body["events"].as_array().expect("events").iter().cloned());
        if listed.iter().any(|event| event["id"] == third) {
            break;
        }
        next = request(&listener);
    }
    assert_eq!(kinds(&listed), ["put", "lost", "put"], "{listed:?}");
    assert_eq!(listed[0]["id"], first, "{listed:?}");
    eventually("it is counted", || {
        (server.number("webhook_one_gaps") == 1).then_some(())
    });
}
