//! Reserves that wait until there are enough messages for one reply.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::api::{ask, get, post};
use crate::common::{Client, Server, Start, await_that, http, text};

fn served() -> Server {
    Start::default().listen(&["beanstalk=0", "http=0"]).serve()
}

fn put(server: &Server, bodies: &[&str]) {
    let messages: Vec<Value> = bodies.iter().map(|body| json!({ "body": body })).collect();
    let reply = post(
        server,
        "/queues/rows/messages",
        &json!({ "messages": messages }),
    );
    assert_eq!(reply.status, 201, "{}", reply.json);
}

fn number(server: &Server, what: &str) -> u64 {
    get(server, "/queues/rows").json[what].as_u64().unwrap()
}

fn reserve(server: &Server, headers: &str, body: &Value) -> Vec<Value> {
    let reply = ask(
        server,
        "POST /queues/rows/reserve",
        headers,
        &body.to_string(),
    );
    assert_eq!(reply.status, 200, "{}", reply.json);
    reply.json["messages"].as_array().unwrap().clone()
}

fn each(messages: &[Value], field: &str) -> Vec<String> {
    let texts = messages
        .iter()
        .map(|message| message[field].as_str().unwrap());
    texts.map(str::to_owned).collect()
}

/// Sends a reserve and leaves its reply to be read.
fn begun(server: &Server, body: &Value) -> Client {
    let body = body.to_string();
    let mut client = server.client_of("http");
    let length = body.len();
    let head = format!(
        "POST /api/v1/queues/rows/reserve HTTP/1.1\r\nhost: localhost\r\n{}content-length: {length}\r\n\r\n",
        http::JSON
    );
    client.send(format!("{head}{body}").as_bytes());
    client
}

const LONG: u64 = 60_000;

#[test]
fn messages_whose_leases_end_at_once_are_in_the_reply() {
    let start = Start::of("[defaults]\ndefault_ttr = '1ms'\n");
    let server = start.listen(&["http=0"]).serve();
    put(&server, &["a"]);
    let gathers = json!({"max": 10, "min": 2, "linger_ms": 1000});
    let messages = reserve(&server, "", &gathers);
    assert_eq!(each(&messages, "body"), ["a"]);
}

#[test]
fn a_reserve_is_answered_when_there_are_enough() {
    let server = served();
    put(&server, &["a"]);
    let request = json!({ "max": 5, "min": 3, "linger_ms": LONG, "lease_ms": 600_000 });
    let began = Instant::now();
    let mut client = begun(&server, &request);
    // It holds the first, and waits on.
    await_that("a count of the queue", || {
        number(&server, "reserved") == 1 && number(&server, "waiters") == 1
    });
    put(&server, &["b"]);
    await_that("a count of the queue", || {
        number(&server, "reserved") == 2 && number(&server, "waiters") == 1
    });
    put(&server, &["c", "d"]);
    let reply = text(&client.until(b"}]"));
    for body in ["a", "b", "c"] {
        assert!(reply.contains(&format!("\"body\":\"{body}\"")), "{reply}");
    }
    assert!(began.elapsed() < Duration::from_millis(LONG));
    assert_eq!(
        number(&server, "reserved"),
        reply.matches("\"lease\":").count() as u64
    );
    // As many as there are at once, up to `max`.
    put(&server, &["e", "f", "g", "h", "i", "j"]);
    assert_eq!(reserve(&server, "", &request).len(), 5);
}

#[test]
fn when_the_time_is_over_the_reply_has_the_present_messages() {
    let server = served();
    put(&server, &["a", "b"]);
    // Without `min` it is `max`.
    let found = reserve(&server, "", &json!({ "max": 3, "linger_ms": 50 }));
    assert_eq!(each(&found, "body"), ["a", "b"]);
    for lease in each(&found, "lease") {
        let finish = format!("/leases/{lease}/finish");
        assert_eq!(post(&server, &finish, &json!({})).status, 204);
    }
    // Nobody lingers for nothing.
    let none = reserve(&server, "", &json!({ "max": 3, "linger_ms": LONG }));
    assert!(none.is_empty());
    assert_eq!(number(&server, "reserved"), 0);
}

#[test]
fn the_wait_leaves_a_worker_half_of_its_lease() {
    let server = served();
    put(&server, &["a"]);
    let request = json!({ "max": 2, "linger_ms": LONG, "lease_ms": 16_000 });
    let began = Instant::now();
    let found = reserve(&server, "", &request);
    assert_eq!(found.len(), 1);
    assert!(began.elapsed() < Duration::from_millis(LONG / 2));
    let lease = found[0]["lease"].as_str().unwrap();
    let finish = format!("/leases/{lease}/finish");
    assert_eq!(post(&server, &finish, &json!({})).status, 204);
}

#[test]
fn messages_of_a_client_that_goes_away_meanwhile_are_ready_again() {
    let server = served();
    put(&server, &["a"]);
    let request = json!({ "max": 3, "linger_ms": LONG, "lease_ms": 600_000 });
    let client = begun(&server, &request);
    await_that("a count of the queue", || {
        number(&server, "reserved") == 1 && number(&server, "waiters") == 1
    });
    put(&server, &["b"]);
    await_that("a count of the queue", || {
        number(&server, "reserved") == 2 && number(&server, "waiters") == 1
    });
    drop(client);
    await_that("a count of the queue", || {
        number(&server, "ready") == 2 && number(&server, "waiters") == 0
    });
    assert_eq!(number(&server, "reserved"), 0);
    let found = reserve(&server, "", &json!({ "max": 3, "linger_ms": 20 }));
    assert_eq!(each(&found, "body"), ["a", "b"]);
}

#[test]
fn a_lease_without_a_sent_reply_counts_as_no_attempt() {
    let server = served();
    put(&server, &["a"]);
    let limits = json!({ "attempts_max": 1 }).to_string();
    let set = ask(&server, "PATCH /queues/rows/settings", "", &limits);
    assert_eq!(set.status, 200, "{}", set.json);
    let request = json!({ "max": 3, "linger_ms": LONG, "lease_ms": 600_000 });
    let client = begun(&server, &request);
    await_that("a lease", || number(&server, "reserved") == 1);
    drop(client);
    await_that("its end", || number(&server, "reserved") == 0);
    assert_eq!(number(&server, "ready"), 1);
    let found = reserve(&server, "", &json!({ "max": 1 }));
    assert_eq!(found[0]["attempts"], 1, "{found:?}");
}

#[test]
fn a_repeat_gets_the_leases_of_all_parts() {
    let server = served();
    put(&server, &["a"]);
    let body = json!({ "max": 3, "min": 2, "linger_ms": LONG, "lease_ms": 600_000 });
    let once = || reserve(&server, "idempotency-key: r\r\n", &body);
    let first = std::thread::scope(|scope| {
        let first = scope.spawn(once);
        await_that("a count of the queue", || number(&server, "waiters") == 1);
        put(&server, &["b"]);
        first.join().unwrap()
    });
    put(&server, &["c"]);
    let again = once();
    assert_eq!(each(&again, "lease"), each(&first, "lease"));
    assert_eq!(number(&server, "reserved"), 2);
    // Another `min` is another request.
    let other = json!({ "max": 3, "min": 3, "linger_ms": LONG, "lease_ms": 600_000 });
    let path = "POST /queues/rows/reserve";
    let reply = ask(&server, path, "idempotency-key: r\r\n", &other.to_string());
    assert_eq!(
        (reply.status, reply.json["code"].as_str()),
        (422, Some("token_used"))
    );
}

/// The id of the one message that is reserved.
fn reserved(server: &Server) -> u64 {
    let listed = get(server, "/queues/rows/messages?state=reserved").json;
    let [message] = &listed["messages"].as_array().unwrap()[..] else {
        panic!("one is reserved: {listed}");
    };
    message["id"].as_u64().unwrap()
}

#[test]
fn a_message_that_is_deleted_meanwhile_is_not_in_the_reply_and_does_not_count() {
    let server = served();
    put(&server, &["a"]);
    let request = json!({ "max": 5, "min": 3, "linger_ms": LONG, "lease_ms": 600_000 });
    let mut client = begun(&server, &request);
    await_that("a count of the queue", || {
        number(&server, "reserved") == 1 && number(&server, "waiters") == 1
    });
    let delete = format!("DELETE /messages/{}", reserved(&server));
    assert_eq!(ask(&server, &delete, "", "").status, 204);
    put(&server, &["b", "c"]);
    // It holds two, and waits on.
    await_that("a count of the queue", || {
        number(&server, "reserved") == 2 && number(&server, "waiters") == 1
    });
    put(&server, &["d"]);
    let reply = text(&client.until(b"}]"));
    let there = ["a", "b", "c", "d"].map(|body| reply.contains(&format!("\"body\":\"{body}\"")));
    assert_eq!(there, [false, true, true, true], "{reply}");
    assert_eq!(number(&server, "reserved"), 3);
}

#[test]
fn a_message_that_another_takes_meanwhile_is_not_in_the_reply() {
    let server = served();
    put(&server, &["a"]);
    let request = json!({ "max": 2, "linger_ms": LONG, "lease_ms": 600_000 });
    let mut client = begun(&server, &request);
    await_that("a lease", || number(&server, "reserved") == 1);
    let id = reserved(&server);
    assert_eq!(
        ask(&server, "POST /queues/rows/pause", "", "{}").status,
        204
    );
    let release = format!("/messages/{id}/release");
    assert_eq!(post(&server, &release, &json!({})).status, 204);
    let to = json!({ "to": "elsewhere" });
    let moved = post(&server, &format!("/messages/{id}/move"), &to);
    assert_eq!(moved.status, 204, "{}", moved.json);
    let other = post(&server, "/queues/elsewhere/reserve", &json!({})).json;
    assert_eq!(other["messages"][0]["body"], "a");
    let resumed = ask(&server, "POST /queues/rows/resume", "", "");
    assert_eq!(resumed.status, 204, "{}", resumed.json);
    put(&server, &["b", "c"]);
    let reply = text(&client.until(b"}]"));
    let there = ["a", "b", "c"].map(|body| reply.contains(&format!("\"body\":\"{body}\"")));
    assert_eq!(there, [false, true, true], "{reply}");
}

#[test]
fn a_message_that_is_cancelled_meanwhile_is_in_the_reply_as_cancelled() {
    let server = served();
    put(&server, &["a"]);
    let request = json!({ "max": 2, "linger_ms": LONG, "lease_ms": 600_000 });
    let mut client = begun(&server, &request);
    await_that("a lease", || number(&server, "reserved") == 1);
    let cancel = format!("/messages/{}/cancel", reserved(&server));
    let why = json!({ "reason": "sold out", "grace_ms": 600_000 });
    assert_eq!(post(&server, &cancel, &why).status, 204);
    put(&server, &["b"]);
    let reply = text(&client.until(b"}]"));
    assert_eq!(reply.matches("\"lease\":").count(), 2, "{reply}");
    assert_eq!(reply.matches("sold out").count(), 1, "{reply}");
}

#[test]
fn conditions_that_cannot_be_met_are_errors() {
    let server = served();
    for (body, field) in [
        (json!({ "max": 2, "min": 3, "linger_ms": 1 }), "min"),
        (json!({ "min": 0, "linger_ms": 1 }), "min"),
        (json!({ "max": 2, "min": 2 }), "linger_ms"),
        (json!({ "max": 2, "linger_ms": 60_001 }), "linger_ms"),
    ] {
        let reply = post(&server, "/queues/rows/reserve", &body);
        let found = (reply.status, reply.json["field"].as_str());
        assert_eq!(found, (400, Some(field)), "{}", reply.json);
    }
}

fn put_keyed(server: &Server, messages: &[(Option<&str>, &str)]) {
    let messages = messages.iter();
    let messages: Vec<Value> = messages
        .map(|(key, body)| json!({ "body": body, "key": key }))
        .collect();
    let reply = post(
        server,
        "/queues/rows/messages",
        &json!({ "messages": messages }),
    );
    assert_eq!(reply.status, 201, "{}", reply.json);
}

#[test]
fn a_reply_of_one_key_waits_for_more_of_that_key_alone() {
    let server = served();
    let (a, b) = (Some("a"), Some("b"));
    put_keyed(&server, &[(a, "a1"), (b, "b1"), (a, "a2"), (None, "none")]);
    let request =
        json!({ "max": 5, "min": 3, "one_key": true, "linger_ms": LONG, "lease_ms": 600_000 });
    let mut client = begun(&server, &request);
    await_that("a count of the queue", || {
        number(&server, "reserved") == 2 && number(&server, "waiters") == 1
    });
    put_keyed(&server, &[(b, "b2"), (a, "a3")]);
    let reply = text(&client.until(b"}]"));
    let bodies = ["a1", "a2", "a3", "b1", "b2", "none"];
    let there = bodies.map(|body| reply.contains(&format!("\"body\":\"{body}\"")));
    assert_eq!(there, [true, true, true, false, false, false], "{reply}");
    // Without a wait it is what is there.
    let at_once = json!({ "max": 5, "one_key": true });
    assert_eq!(each(&reserve(&server, "", &at_once), "body"), ["b1", "b2"]);
    // One without a key is alone, and does not wait for others.
    put_keyed(&server, &[(None, "alone")]);
    assert_eq!(each(&reserve(&server, "", &request), "body"), ["none"]);
}
