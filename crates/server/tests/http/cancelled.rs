//! Cancelled messages over the API, and how workers of other protocols hear of it.

use serde_json::{Value, json};

use super::api::{get, post};
use crate::common::{Data, Server, Start, eventually, http, page, text};

fn start() -> Start<'static> {
    Start::of("shards = 4\n").listen(&["http=0", "beanstalk=0"])
}

fn put(server: &Server, name: &str, more: Value) -> u64 {
    let mut message = json!({"body": name, "name": name, "tracked": true});
    if let (Some(message), Value::Object(more)) = (message.as_object_mut(), more) {
        message.extend(more);
    }
    let stored = post(
        server,
        "/queues/film/messages",
        &json!({"messages": [message]}),
    );
    stored.json["ids"][0].as_u64().expect("an id")
}

fn reserve(server: &Server) -> String {
    let leased = post(
        server,
        "/queues/film/reserve",
        &json!({"lease_ms": 600_000}),
    );
    let lease = leased.json["messages"][0]["lease"].as_str();
    lease.expect("a lease").to_owned()
}

fn state(server: &Server, name: &str) -> (String, String) {
    let track = get(server, &format!("/queues/film/tracks/{name}")).json;
    let field = |field: &str| track[field].as_str().unwrap_or_default().to_owned();
    (field("state"), field("status"))
}

fn cancelled() -> (String, String) {
    ("cancelled".to_owned(), "sold out".to_owned())
}

#[test]
fn a_worker_learns_of_a_cancel_and_the_grace_outlives_a_kill() {
    let data = Data::fresh();
    let server = Server::start_with(&data, start());
    let id = put(&server, "one", json!({}));
    let lease = reserve(&server);
    let path = format!("/messages/{id}/cancel");
    let extend = |server: &Server| post(server, &format!("/leases/{lease}/extend"), &json!({}));
    assert_eq!(extend(&server).status, 204);
    let long = json!({"grace_ms": 604_800_001_u64});
    assert_eq!(post(&server, &path, &long).json["field"], "grace_ms");
    let ask = json!({"reason": "sold out", "grace_ms": 600_000});
    assert_eq!(post(&server, &path, &ask).status, 204);
    let again = post(&server, &path, &ask);
    assert_eq!(
        (again.status, &again.json["code"]),
        (409, &json!("already_cancelled"))
    );
    let server = server.kill_and_start(start());
    let received = extend(&server);
    assert_eq!(
        (received.status, &received.json),
        (200, &json!({"cancelled": true}))
    );
    let progress = post(
        &server,
        &format!("/leases/{lease}/progress"),
        &json!({"percent": 9}),
    );
    assert_eq!(progress.json, json!({"cancelled": true}));
    let named = post(
        &server,
        "/queues/film/names/one/extend",
        &json!({"lease_ms": 700_000}),
    );
    assert_eq!(named.json, json!({"cancelled": true}));
    let shown = get(&server, &format!("/messages/{id}")).json;
    assert_eq!(shown["cancelled"]["reason"], "sold out");
    // A finish within the grace wins.
    assert_eq!(
        post(&server, &format!("/leases/{lease}/finish"), &json!({})).status,
        204
    );
    assert_eq!(state(&server, "one").0, "done");
    let late = post(&server, "/queues/film/names/one/cancel", &ask);
    assert_eq!(
        (late.status, &late.json["code"]),
        (409, &json!("already_done"))
    );
    let gone = post(&server, &path, &ask);
    assert_eq!(gone.status, 404);
    assert!(
        gone.json["detail"].to_string().contains("finished"),
        "{}",
        gone.json
    );
    let audit = text(&server.run(&["audit"]).stdout);
    let line = |status: &str| format!("POST /api/v1/messages/{id}/cancel{status}");
    assert!(
        audit.contains(&line(" of film 204")) && audit.contains(&line(" 409")),
        "{audit}"
    );
}

#[test]
fn a_message_whose_grace_is_over_does_not_come_back() {
    let data = Data::fresh();
    let server = Server::start_with(&data, start());
    let id = put(&server, "one", json!({}));
    let lease = reserve(&server);
    put(&server, "two", json!({"delay_ms": 3_600_000}));
    let ask = json!({"reason": "sold out", "grace_ms": 300});
    assert_eq!(
        post(&server, &format!("/messages/{id}/cancel"), &ask).status,
        204
    );
    assert_eq!(
        post(&server, "/queues/film/names/two/cancel", &ask).status,
        204
    );
    assert_eq!(state(&server, "two"), cancelled());
    eventually("the grace is over", || {
        (state(&server, "one") == cancelled()).then_some(())
    });
    let late = post(&server, &format!("/leases/{lease}/finish"), &json!({}));
    assert_eq!(
        (late.status, &late.json["code"]),
        (409, &json!("lease_over"))
    );
    let server = server.kill_and_start(start());
    assert_eq!(state(&server, "one"), cancelled());
    let traced = get(&server, &format!("/messages/{id}/trace")).json;
    assert_eq!(traced["end"], "cancelled");
    let none = post(&server, "/queues/film/reserve", &json!({})).json;
    assert_eq!(none["messages"], json!([]));
    let metrics = server.ask("GET /metrics", "", "").body;
    assert!(
        metrics.contains("quintet_messages_cancelled_total 2\n"),
        "{metrics}"
    );
}

#[test]
fn messages_are_cancelled_by_a_filter_a_batch_and_from_the_command_line() {
    let data = Data::fresh();
    let server = Server::start_with(&data, start());
    let callback = json!({"complete": {"queue": "ran", "body": "all"}});
    let made = post(&server, "/batches", &callback).json;
    let batch = made["id"].as_str().expect("an id").to_owned();
    put(&server, "member", json!({"batch": batch}));
    reserve(&server);
    put(&server, "waiting", json!({"batch": batch}));
    put(&server, "other", json!({}));
    let keyed = put(&server, "keyed", json!({"key": "k"}));
    assert_eq!(
        post(&server, &format!("/batches/{batch}/commit"), &json!({})).status,
        200
    );
    let wrong = post(
        &server,
        "/queues/film/operations/purge",
        &json!({"grace_ms": 5}),
    );
    assert_eq!(wrong.status, 400);
    let counted = json!({"batch": batch, "dry_run": true});
    let counted = post(&server, "/queues/film/operations/cancel", &counted).json;
    // Also the one that a worker holds.
    assert_eq!(counted["messages"], 2);
    let by_key = json!({"key": "k", "reason": "sold out"});
    assert_eq!(
        post(&server, "/queues/film/operations/cancel", &by_key).json["messages"],
        1
    );
    assert_eq!(state(&server, "keyed"), cancelled());
    let gone = server.outputs(&["cancel", "--id", &keyed.to_string()]);
    assert!(gone.2 != 0 && gone.1.contains("cancelled"), "{gone:?}");
    let args = ["cancel", "film", "--batch", &batch, "--reason", "sold out"];
    let (output, _, _) =
        server.outputs(&[&args[..], &["--grace", "0s", "--yes", "--quiet"]].concat());
    assert_eq!(output, "2 messages cancelled\n");
    assert_eq!(state(&server, "member"), cancelled());
    let shown = get(&server, &format!("/batches/{batch}")).json;
    assert_eq!(
        (&shown["pending"], &shown["failed"]),
        (&json!(2), &json!(2))
    );
    let left = get(&server, "/queues/film/messages").json;
    assert_eq!(left["messages"][0]["name"], "other");
    let callback = post(&server, "/queues/ran/reserve", &json!({})).json;
    assert_eq!(callback["messages"][0]["body"], "all");
}

/// Reserved ones that are cancelled already are not counted by a dry run, as they are not cancelled
/// again; and the console does not say that their leases begin anew.
#[test]
fn a_second_cancel_is_not_counted_and_begins_no_lease_again() {
    let server = start().serve();
    let ids = ["one", "two", "three"].map(|name| put(&server, name, json!({})));
    reserve(&server);
    reserve(&server);
    let ask = json!({"grace_ms": 600_000});
    let extend = |id: u64| {
        let (_, shown) = page(&server, &format!("/messages/{id}"));
        let (_, token) = shown.split_once("name=\"csrf\" value=\"").expect("a form");
        let form = format!("csrf={}", token.split('"').next().expect("its end"));
        let path = format!("POST /messages/{id}/do/extend");
        let done = server.ask(&path, http::FORM, &form);
        assert_eq!(done.status, 303, "{done:?}");
        page(&server, done.header("location").expect("where to")).1
    };
    assert!(extend(ids[0]).contains("Extended: its lease starts again."));
    let path = format!("/messages/{}/cancel", ids[0]);
    assert_eq!(post(&server, &path, &ask).status, 204);
    let shown = extend(ids[0]);
    assert!(
        !shown.contains("starts again") && shown.contains("It is cancelled: its lease ends after"),
        "{shown}"
    );
    let cancel = |more: Value| {
        let reply = post(&server, "/queues/film/operations/cancel", &more);
        reply.json["messages"].as_u64().expect("a number")
    };
    let reserved = json!({"state": "reserved", "dry_run": true});
    assert_eq!(cancel(reserved), 1, "of two that are reserved");
    assert_eq!(cancel(json!({"dry_run": true})), 2, "and one that is ready");
    assert_eq!(cancel(json!({"state": "ready", "dry_run": true})), 1);
    let output = server.printed(&["cancel", "film", "--dry-run"]);
    assert!(output.contains('2') && !output.contains('3'), "{output}");
    assert_eq!(cancel(json!({"state": "reserved"})), 1);
    assert_eq!(cancel(json!({"state": "reserved", "dry_run": true})), 0);
}

/// The cursor of such a cancel tells in which state it goes on.
#[test]
fn a_cancel_without_a_state_goes_through_all_of_them() {
    let server = start().serve();
    for name in ["held", "ready", "more"] {
        put(&server, name, json!({}));
    }
    put(&server, "late", json!({"delay_ms": 3_600_000}));
    reserve(&server);
    let path = "/queues/film/operations/cancel";
    let (mut ask, mut each) = (json!({"max": 1, "grace_ms": 600_000}), Vec::new());
    loop {
        let done = post(&server, path, &ask);
        assert_eq!(done.status, 200, "{}", done.json);
        each.push(done.json["messages"].as_u64().expect("a number"));
        match &done.json["cursor"] {
            Value::Null => break,
            cursor => ask["cursor"] = cursor.clone(),
        }
        assert!(each.len() < 20, "it ends");
    }
    assert_eq!(each.iter().sum::<u64>(), 4, "{each:?}");
    for name in ["ready", "more", "late"] {
        assert_eq!(state(&server, name).0, "cancelled");
    }
    let left = get(&server, "/queues/film/messages?state=reserved").json;
    assert!(left["messages"][0]["cancelled"].is_object(), "{left}");
    for wrong in ["5.", "x.", "0_0_0_1"] {
        let refused = post(&server, path, &json!({"cursor": wrong}));
        assert_eq!(refused.json["field"], "cursor", "{wrong}");
    }
    // Of one state it is as before.
    let one = post(&server, path, &json!({"state": "ready", "cursor": "2."}));
    assert_eq!(one.status, 400, "{}", one.json);
}

/// A request is read to its end before it is refused: its connection goes on.
#[test]
fn a_wrong_id_is_an_error_after_the_body_was_read() {
    let server = start().serve();
    let mut client = server.client_of("http");
    for (path, body) in [("cancel", r#"{"grace_ms":0}"#), ("move", r#"{"to":"q"}"#)] {
        let length = body.len();
        let head = format!("POST /api/v1/messages/0/{path} HTTP/1.1\r\nhost: localhost\r\n");
        let head = format!("{head}{}content-length: {length}\r\n\r\n", http::JSON);
        client.send(head.as_bytes());
        // Whoever refuses by the head alone does so now.
        assert_eq!(get(&server, "/messages/0").status, 400);
        client.send(body.as_bytes());
        let refused = text(&client.until(b"}"));
        let field = refused.contains("\"code\":\"bad_field\"");
        assert!(field && !refused.contains("close\r\n"), "{refused}");
    }
}

#[test]
fn workers_of_beanstalk_and_faktory_hear_of_it() {
    let config = "[[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\n\
                  [[listen]]\nprotocol = 'beanstalk'\naddress = '127.0.0.1:0'\n\
                  [[listen]]\nprotocol = 'faktory'\naddress = '127.0.0.1:0'\nent = true\n";
    let server = Start::of(config).serve_as_configured();
    let id = put(&server, "one", json!({}));
    let mut worker = server.client_of("beanstalk");
    worker.ask(b"watch film\r\nreserve\r\n", b"WATCHING 2\r\n");
    worker.until(b"one\r\n");
    let touch = format!("touch {id}\r\n");
    worker.ask(touch.as_bytes(), b"TOUCHED\r\n");
    let ask = json!({"reason": "sold out", "grace_ms": 600_000});
    assert_eq!(
        post(&server, &format!("/messages/{id}/cancel"), &ask).status,
        204
    );
    worker.ask(touch.as_bytes(), b"NOT_FOUND\r\n");
    worker.ask(format!("release {id} 0 0\r\n").as_bytes(), b"RELEASED\r\n");
    assert_eq!(state(&server, "one"), cancelled());

    let mut worker = server.client_of("faktory");
    worker.until(b"\r\n");
    worker.ask(b"HELLO {\"v\":2}\r\n", b"+OK\r\n");
    let push =
        r#"PUSH {"jid":"job00001","jobtype":"T","args":[],"queue":"film","custom":{"track":1}}"#;
    worker.ask(format!("{push}\r\n").as_bytes(), b"+OK\r\n");
    worker.send(b"FETCH film\r\n");
    worker.until(b"}\r\n");
    let track = b"TRACK SET {\"jid\":\"job00001\",\"percent\":5}\r\n";
    worker.ask(track, b"+OK\r\n");
    assert_eq!(
        post(&server, "/queues/film/names/job00001/cancel", &ask).status,
        204
    );
    worker.ask(track, b"-ERR Job is cancelled\r\n");
    worker.ask(b"ACK {\"jid\":\"job00001\"}\r\n", b"+OK\r\n");
    assert_eq!(state(&server, "job00001").0, "done");
}

#[test]
fn a_faktory_worker_gets_a_cancel_with_each_beat_also_after_the_grace() {
    let config = "[[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\n\
                  [[listen]]\nprotocol = 'faktory'\naddress = '127.0.0.1:0'\nent = true\n";
    let server = Start::of(config).serve_as_configured();
    let mut worker = server.client_of("faktory");
    worker.until(b"\r\n");
    let hello = b"HELLO {\"v\":2,\"wid\":\"w\",\"cancelled\":true}\r\n";
    worker.ask(hello, b"+OK\r\n");
    for (jid, track) in [("job00001", 1), ("job00002", 0)] {
        let custom = format!(r#""custom":{{"track":{track}}}"#);
        let push =
            format!(r#"PUSH {{"jid":"{jid}","jobtype":"T","args":[],"queue":"film",{custom}}}"#);
        worker.ask(format!("{push}\r\n").as_bytes(), b"+OK\r\n");
        worker.send(b"FETCH film\r\n");
        worker.until(b"}\r\n");
    }
    let named = |jid: &str, action: &str, ask: Value| {
        let path = format!("/queues/film/names/{jid}/{action}");
        assert_eq!(post(&server, &path, &ask).status, 204, "{path}");
    };
    let ask = |grace_ms: u64| json!({"reason": "sold out", "grace_ms": grace_ms});
    // The grace of the tracked one is over before the worker could hear of it.
    named("job00001", "cancel", ask(0));
    named("job00002", "cancel", ask(600_000));
    let output = r#"{"state":"running","cancelled":["job00001","job00002"]}"#;
    let output = format!("${}\r\n{output}\r\n", output.len());
    let beat = b"BEAT {\"wid\":\"w\"}\r\n";
    worker.ask(beat, output.as_bytes());
    named("job00002", "release", json!({}));
    worker.ask(beat, output.as_bytes());
    let track = b"TRACK SET {\"jid\":\"job00001\",\"percent\":50,\"desc\":\"step 3\"}\r\n";
    worker.ask(track, b"-ERR Job is cancelled\r\n");
    assert_eq!(state(&server, "job00001"), cancelled());
    worker.ask(b"ACK {\"jid\":\"job00001\"}\r\n", b"+OK\r\n");
    let gone = b"-ERR Job not found job00002\r\n";
    worker.ask(b"FAIL {\"jid\":\"job00002\"}\r\n", gone);
    worker.ask(beat, b"+OK\r\n");
}

#[test]
fn a_queue_of_others_is_not_cancelled() {
    let config = "[[user]]\nname = 'ann'\n[[grant]]\nuser = 'ann'\nqueues = ['mine']\n\
                  rights = ['put', 'peek', 'settle']\n[[grant]]\nuser = 'ann'\nqueues = ['film']\n\
                  rights = ['put']\n[[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\nuser = 'ann'\n";
    let server = Start::of(config).serve_as_configured();
    let id = put(&server, "one", json!({}));
    for path in [
        format!("/messages/{id}/cancel"),
        "/queues/film/names/one/cancel".to_owned(),
        "/queues/film/operations/cancel".to_owned(),
        // Of many it is the right of a purge.
        "/queues/mine/operations/cancel".to_owned(),
    ] {
        let refused = post(&server, &path, &json!({}));
        assert_eq!(
            (refused.status, &refused.json["code"]),
            (403, &json!("not_permitted")),
            "{path}"
        );
    }
    let own = json!({"messages": [{"body": "x"}]});
    let id = post(&server, "/queues/mine/messages", &own).json["ids"][0].clone();
    assert_eq!(
        post(&server, &format!("/messages/{id}/cancel"), &json!({})).status,
        204
    );
}
