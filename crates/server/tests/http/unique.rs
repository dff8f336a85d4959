//! Deduplication of puts of any protocol, by settings, by the API and by the command line.

use serde_json::json;

use super::api::{ask, post};
use crate::common::{Server, Start, text};

const CONFIG: &str = "
[[queue]]
name = \"bodies\"
unique_by_body = true
unique_for = \"0\"
unique_until = \"waiting\"

[[queue]]
name = \"firsts\"
unique_by_body = true
unique_repeat = \"first\"

[[queue]]
name = \"pages\"
unique_for = \"0\"
unique_until = \"started\"
unique_repeat = \"replace\"
";

fn served(dir: &tempfile::TempDir) -> Server {
    Start::of(CONFIG)
        .listen(&["memcache=0", "http=0", "beanstalk=0"])
        .serve_at(&dir.path().join("data"))
}

fn output(server: &Server, args: &[&str]) -> Result<String, String> {
    let out = server.run(args);
    match out.status.success() {
        true => Ok(text(&out.stdout).trim_end().to_owned()),
        false => Err(text(&out.stderr)),
    }
}

#[test]
fn a_body_waits_once_whichever_protocol_puts_it_also_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let server = served(&dir);
    server.client().put("bodies", b"a");
    server.kill();

    let server = served(&dir);
    let mut beanstalk = server.client_of("beanstalk");
    let mut response = |request: &str| {
        beanstalk.send(request.as_bytes());
        text(&beanstalk.until(b"\r\n"))
    };
    assert_eq!(response("use bodies\r\n"), "USING bodies\r\n");
    assert_eq!(response("put 0 0 60 1\r\na\r\n"), "INTERNAL_ERROR\r\n");
    // A queue that answers a repeat as the first shows producers no error.
    assert_eq!(response("use firsts\r\n"), "USING firsts\r\n");
    let first = response("put 0 0 60 1\r\na\r\n");
    assert!(first.starts_with("INSERTED "), "{first}");
    assert_eq!(response("put 0 0 60 1\r\na\r\n"), first);
    assert_eq!(response("use bodies\r\n"), "USING bodies\r\n");
    let unique = "put-unique 5000 0 60 1 other\r\na\r\n";
    let inserted = response(unique);
    let other = inserted.strip_prefix("INSERTED ").expect("another id");
    assert_eq!(response(unique), format!("DUPLICATE {other}"));
    let message = json!({ "messages": [{ "body": "a" }] });
    let refused = post(&server, "/queues/bodies/messages", &message);
    assert_eq!(
        (refused.status, &refused.json["code"]),
        (409, &json!("duplicate"))
    );
    let first = refused.json["duplicate_of"].clone();
    // Taken and given back it counts again; finished it does not.
    let reserved = post(
        &server,
        "/queues/bodies/reserve",
        &json!({ "lease_ms": 60000 }),
    );
    let message_of = |at: usize| reserved.json["messages"][at].clone();
    assert_eq!(message_of(0)["id"], first);
    let fresh = post(&server, "/queues/bodies/messages", &message);
    assert_eq!(fresh.status, 201, "{}", fresh.json);
    let refused = post(&server, "/queues/bodies/messages", &message);
    assert_eq!(refused.json["duplicate_of"], fresh.json["ids"][0]);
}

#[test]
fn a_repeat_is_refused_answered_as_the_first_or_replaces_it_by_its_setting() {
    let dir = tempfile::tempdir().unwrap();
    let server = served(&dir);
    let put = |body: &str, dedupe: serde_json::Value| {
        let message = json!({ "messages": [{ "body": body, "dedupe": dedupe }] });
        let reply = post(&server, "/queues/pages/messages", &message);
        (
            reply.status,
            reply.json["ids"][0].as_u64(),
            reply.json["code"].clone(),
        )
    };
    // As the queue says.
    let first = put("one", json!({ "id": "7" }));
    let second = put("two", json!({ "id": "7" }));
    assert_eq!((first.0, second.0), (201, 201));
    assert_ne!(first.1, second.1);
    // As the put says.
    let same = put("three", json!({ "id": "7", "on_repeat": "first" }));
    assert_eq!((same.0, same.1), (201, second.1));
    let refused = put("four", json!({ "id": "7", "on_repeat": "refuse" }));
    assert_eq!((refused.0, refused.2), (409, json!("duplicate")));
    let unique = ["--unique", "7"];
    let cli = |body: &str, more: &[&str]| {
        output(
            &server,
            &[&["put", "pages", body], &unique[..], more].concat(),
        )
    };
    let third = cli("five", &[]).expect("it replaces");
    assert_eq!(cli("six", &["--on-repeat", "first"]), Ok(third));
    let why = cli("seven", &["--on-repeat", "refuse"]).expect_err("a repeat");
    assert!(why.contains("duplicate"), "{why}");
    assert_eq!(output(&server, &["take", "pages"]), Ok("five".to_owned()));
    assert!(output(&server, &["take", "pages"]).is_err());
    // Started, it is remembered no more; by time alone it is, whatever became of it.
    let timed = ["--unique-until", "time", "--unique-for", "1h"];
    cli("eight", &timed).expect("no repeat");
    assert_eq!(output(&server, &["take", "pages"]), Ok("eight".to_owned()));
    let why = cli("nine", &timed).expect_err("a repeat whose first is gone");
    assert!(why.contains("duplicate"), "{why}");

    for (dedupe, field) in [
        (json!({ "id": "7", "until": "ever" }), "until"),
        (json!({ "id": "7", "on_repeat": "maybe" }), "on_repeat"),
    ] {
        let message = json!({ "messages": [{ "body": "x", "dedupe": dedupe }] }).to_string();
        let reply = ask(&server, "POST /queues/pages/messages", "", &message);
        assert_eq!(reply.status, 400, "{}", reply.json);
        let response = reply.json.to_string();
        assert!(response.contains(field), "{response}");
    }
    let wrong = output(&server, &["put", "pages", "x", "--unique-for", "1h"]).unwrap_err();
    assert!(wrong.contains("--unique"), "{wrong}");
}

#[test]
fn a_purge_of_all_forgets_ids_that_only_time_ends() {
    let dir = tempfile::tempdir().unwrap();
    let server = served(&dir);
    let put = |queue: &str, id: &str| {
        let timed = ["--unique-until", "time", "--unique-for", "1h"];
        let put = ["put", queue, "x", "--unique", id];
        output(&server, &[&put[..], &timed].concat())
    };
    for id in ["1", "2", "3"] {
        put("work", id).expect("the first");
    }
    // These leave messages.
    for more in [&["--max", "1"][..], &["--contains", "none"]] {
        output(&server, &[&["purge", "work", "--yes"], more].concat()).expect("purged");
        put("work", "1").expect_err("it is remembered");
    }
    output(&server, &["purge", "work", "--dry-run"]).expect("counted");
    put("work", "1").expect_err("it is remembered");
    let purged = output(&server, &["purge", "work", "--yes"]);
    assert_eq!(purged.as_deref(), Ok("2 messages purged"));
    put("work", "1").expect("a purge forgets it");
    // Also where nothing waits any more.
    output(&server, &["take", "work"]).expect("it is there");
    put("work", "1").expect_err("it is remembered");
    output(&server, &["purge", "work", "--yes"]).expect("purged");
    put("work", "1").expect("a purge forgets it");
}
