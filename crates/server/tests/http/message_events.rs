//! `GET /api/v1/events?since=`: what happened to messages, from the log; and webhooks.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use quintet_auth::Password;
use serde_json::{Value, json};

use super::api::{ask, get, post};
use crate::common::{Data, PATIENCE, Server, Start, eventually};

/// Segments are retired soon.
const SMALL_LOG: &str = "log_bytes = '16MiB'\n";
const LISTEN: &[&str] = &["memcache=0", "beanstalk=0", "http=0"];

pub(super) fn now(server: &Server) -> String {
    let page = get(server, "/events?since=now");
    assert_eq!((page.status, &page.json["events"]), (200, &json!([])));
    page.json["next"].as_str().expect("a position").to_owned()
}

/// All events behind a position in pages of so many, and the position behind them.
pub(super) fn since(server: &Server, since: &str, max: u32, more: &str) -> (Vec<Value>, String) {
    let (mut all, mut at) = (Vec::new(), since.to_owned());
    loop {
        let page = get(server, &format!("/events?since={at}&max={max}{more}"));
        assert_eq!(page.status, 200, "{}", page.json);
        let events = page.json["events"].as_array().expect("events");
        assert!(events.len() <= max as usize);
        all.extend(events.iter().cloned());
        at = page.json["next"].as_str().expect("a position").to_owned();
        if page.json["more"] == false {
            return (all, at);
        }
    }
}

pub(super) fn put(server: &Server, queue: &str, message: Value) -> u64 {
    let path = format!("/queues/{queue}/messages");
    let stored = post(server, &path, &json!({ "messages": [message] }));
    assert_eq!(stored.status, 201, "{}", stored.json);
    stored.json["ids"][0].as_u64().expect("an id")
}

fn reserve(server: &Server, queue: &str) -> String {
    let leased = post(server, &format!("/queues/{queue}/reserve"), &json!({})).json;
    let lease = leased["messages"][0]["lease"].as_str();
    lease.unwrap_or_else(|| panic!("{leased}")).to_owned()
}

fn done(server: &Server, path: &str, body: Value) {
    let reply = post(server, path, &body);
    assert!(
        reply.status < 300,
        "{path}: {} {}",
        reply.status,
        reply.json
    );
}

/// Kind and reason.
fn words(event: &Value) -> String {
    let word = |key: &str| event[key].as_str().unwrap_or_default();
    format!("{} {}", word("kind"), word("why"))
        .trim_end()
        .to_owned()
}

/// The events of each message, in their order.
fn by_id(events: &[Value]) -> BTreeMap<u64, Vec<String>> {
    let mut all: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for event in events {
        if let Some(id) = event["id"].as_u64() {
            all.entry(id).or_default().push(words(event));
        }
    }
    all
}

#[test]
fn events_of_messages_are_sent_for_every_protocol() {
    for shards in [1, 4] {
        let config = format!("shards = {shards}\n[[queue]]\nname = 'once'\nattempts_max = 1\n");
        let server = Start::of(&config).listen(LISTEN).serve();
        let begin = now(&server);
        let mut expected = BTreeMap::new();
        let mut expect = |id: u64, received: &[&str]| {
            expected.insert(
                id,
                received
                    .iter()
                    .map(|one| (*one).to_owned())
                    .collect::<Vec<_>>(),
            );
        };
        // memcache takes without a lease, beanstalk with one.
        let mut memcache = server.client_of("memcache");
        memcache.put("mem", b"x");
        memcache.take("mem", b"x");
        let mut stalk = server.client_of("beanstalk");
        stalk.ask(b"use stalk\r\n", b"USING stalk\r\n");
        stalk.ask(b"watch stalk\r\n", b"WATCHING 2\r\n");
        stalk.send(b"put 5 0 60 1\r\na\r\n");
        let id = String::from_utf8(stalk.until(b"\r\n")).expect("text");
        let id: u64 = id
            .trim()
            .strip_prefix("INSERTED ")
            .expect(&id)
            .parse()
            .expect("an id");
        stalk.ask(
            b"reserve\r\n",
            format!("RESERVED {id} 1\r\na\r\n").as_bytes(),
        );
        stalk.ask(format!("bury {id} 5\r\n").as_bytes(), b"BURIED\r\n");
        stalk.ask(format!("kick-job {id}\r\n").as_bytes(), b"KICKED\r\n");
        stalk.ask(format!("delete {id}\r\n").as_bytes(), b"DELETED\r\n");
        expect(
            id,
            &[
                "put",
                "reserved",
                "dead buried",
                "released kicked",
                "removed deleted",
            ],
        );

        let id = put(&server, "work", json!({"body": "four", "name": "order-1"}));
        let named = id;
        let lease = reserve(&server, "work");
        done(
            &server,
            &format!("/leases/{lease}/fail"),
            json!({"error": "no such user"}),
        );
        let failed = id;
        done(&server, &format!("/messages/{id}/kick"), json!({}));
        let lease = reserve(&server, "work");
        done(&server, &format!("/leases/{lease}/finish"), json!({}));
        expect(
            id,
            &[
                "put",
                "reserved",
                "failed released",
                "released kicked",
                "reserved",
                "finished",
            ],
        );

        let id = put(&server, "work", json!({"body": "b"}));
        done(
            &server,
            &format!("/messages/{id}/cancel"),
            json!({"reason": "sold out"}),
        );
        expect(id, &["put", "cancelled"]);

        let id = put(&server, "once", json!({"body": "b"}));
        let lease = reserve(&server, "once");
        done(&server, &format!("/leases/{lease}/release"), json!({}));
        // One attempt is all it has.
        let empty = post(&server, "/queues/once/reserve", &json!({})).json;
        assert_eq!(empty["messages"], json!([]));
        let dead = id;

        let id = put(&server, "work", json!({"body": "b", "ttl_ms": 50}));
        expect(id, &["put", "expired"]);

        let moved = put(&server, "work", json!({"body": "b"}));
        done(
            &server,
            &format!("/messages/{moved}/move"),
            json!({"to": "other"}),
        );
        for body in ["1", "2", "3"] {
            put(&server, "bulk", json!({ "body": body }));
        }
        assert_eq!(
            ask(&server, "DELETE /queues/bulk?messages=true", "", "").status,
            204
        );

        // The last one comes by itself.
        eventually("it expires", || {
            let (all, _) = since(&server, &begin, 100, "&kinds=expired");
            (!all.is_empty()).then_some(())
        });
        let (all, end) = since(&server, &begin, 3, "");
        let received = by_id(&all);
        for (id, expected) in &expected {
            assert_eq!(received.get(id), Some(expected), "{id}: {all:?}");
        }
        let dead = &received[&dead];
        assert_eq!(dead[..2], ["put", "reserved"], "{dead:?}");
        assert!(dead.iter().any(|one| one == "dead attempts"), "{dead:?}");
        let of = |id: u64, kind: &str| {
            let mut found = all
                .iter()
                .filter(|one| one["id"] == id && one["kind"] == kind);
            found
                .next()
                .unwrap_or_else(|| panic!("no {kind} of {id}: {all:?}"))
                .clone()
        };
        let put = of(named, "put");
        assert_eq!(
            (&put["name"], &put["bytes"], &put["queue"]),
            (&json!("order-1"), &json!(4), &json!("work"))
        );
        assert!(put["at_ms"].as_u64() > Some(1_600_000_000_000));
        assert_eq!(of(failed, "failed")["error"], "no such user");
        let left = of(moved, "moved");
        assert_eq!(
            (&left["queue"], &left["to"]),
            (&json!("work"), &json!("other"))
        );
        let arrived = all.iter().filter(|one| one["was"] == moved).count();
        assert_eq!(arrived > 0, left["id"] != json!(moved) || arrived > 0);
        let taken = all
            .iter()
            .find(|one| one["queue"] == "mem" && one["kind"] == "finished");
        assert_eq!(taken.expect("there")["why"], "taken");
        let gone = all.iter().filter(|one| one["queue"] == "bulk");
        assert!(
            gone.clone()
                .any(|one| words(one) == "removed queue_deleted"),
            "{all:?}"
        );
        assert_eq!(
            gone.filter(|one| one["kind"] == "put").count(),
            3,
            "of a queue that is gone"
        );

        // Any size of pages, any filter.
        assert_eq!(since(&server, &begin, 1, ""), (all.clone(), end.clone()));
        assert_eq!(since(&server, &end, 100, "").0, Vec::<Value>::new());
        let (some, _) = since(&server, &begin, 100, "&queue=w*&queue=once&kinds=put,dead");
        let fits = |one: &&Value| {
            let (queue, kind) = (one["queue"].as_str(), one["kind"].as_str());
            matches!(queue, Some("work" | "once")) && matches!(kind, Some("put" | "dead"))
        };
        let expected: Vec<Value> = all.iter().filter(fits).cloned().collect();
        assert_eq!(some, expected);
    }
}

#[test]
fn a_reader_goes_on_after_a_kill_and_misses_nothing() {
    for shards in [1, 2] {
        let config = format!("shards = {shards}\n");
        let start = || Start::of(&config).listen(LISTEN);
        let data = Data::fresh();
        let mut server = start().serve_at(&data);
        let mut at = now(&server);
        let (mut put_ids, mut received) = (BTreeSet::new(), Vec::new());
        for round in 0..3 {
            for number in 0..20 {
                let queue = format!("q{}", number % 5);
                put_ids.insert(put(&server, &queue, json!({ "body": number.to_string() })));
            }
            // Half of them are read before the kill.
            if round < 2 {
                let page = get(&server, &format!("/events?since={at}&max=10")).json;
                received.extend(page["events"].as_array().expect("events").iter().cloned());
                at = page["next"].as_str().expect("a position").to_owned();
            }
            server = server.kill_and_start(start());
        }
        let (rest, _) = since(&server, &at, 7, "");
        received.extend(rest);
        let restarts = received
            .iter()
            .filter(|one| one["kind"] == "restart")
            .count();
        assert_eq!(restarts, 3, "one for each start");
        let puts: Vec<u64> = received
            .iter()
            .filter(|one| one["kind"] == "put")
            .map(|one| one["id"].as_u64().expect("an id"))
            .collect();
        assert_eq!(puts.iter().copied().collect::<BTreeSet<_>>(), put_ids);
        assert_eq!(puts.len(), put_ids.len(), "and none twice");
    }
}

/// Puts and takes until so many more segments were retired.
fn retire(server: &Server, segments: u64) {
    let before = server.number("log_retired");
    let mut client = server.client_of("memcache");
    let body = vec![b'x'; 60_000];
    while server.number("log_retired") < before + segments {
        for _ in 0..20 {
            client.put("big", &body);
            client.take("big", &body);
        }
    }
}

#[test]
fn a_slow_reader_of_events_delays_nothing_and_gets_an_error() {
    let start = Start::of(SMALL_LOG).sync("never").listen(LISTEN);
    let server = start.serve();
    let begin = now(&server);
    put(&server, "work", json!({"body": "a"}));
    // A stream that nobody reads.
    let mut stream = TcpStream::connect(server.address_of("http")).expect("connected");
    let request = format!(
        "GET /api/v1/events?since={begin} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("sent");
    retire(&server, 2);
    // More of the log may still be on its way out.
    eventually("the oldest position is read", || {
        let gone = get(&server, &format!("/events?since={begin}"));
        let code = &gone.json["code"];
        assert_eq!((gone.status, code), (410, &json!("position_gone")));
        let oldest = gone.json["oldest"].as_str().expect("a position");
        let page = get(&server, &format!("/events?since={oldest}"));
        (page.status == 200).then_some(())
    });
    let page = get(&server, "/events?since=oldest&kinds=put&max=1");
    assert_eq!(
        (page.status, &page.json["events"][0]["queue"]),
        (200, &json!("big"))
    );
    let failed = server.run(&["events", "--since", &begin]);
    let output = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(
        !failed.status.success() && output.contains("oldest position"),
        "{output}"
    );
    drop(stream);
}

#[test]
fn a_stream_sends_events_and_continues_behind_its_last_id() {
    let server = Start::default().listen(LISTEN).serve();
    let begin = now(&server);
    let first = put(&server, "work", json!({"body": "a"}));
    let open = |headers: &str| {
        let mut stream = TcpStream::connect(server.address_of("http")).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let request = format!(
            "GET /api/v1/events?since={begin} HTTP/1.1\r\nhost: localhost\r\n\
             accept: text/event-stream\r\n{headers}\r\n"
        );
        stream.write_all(request.as_bytes()).expect("sent");
        stream
    };
    let until = |stream: &mut TcpStream, what: &str| {
        let (mut heard, mut byte) = (Vec::new(), [0]);
        while !String::from_utf8_lossy(&heard).contains(what) {
            stream.read_exact(&mut byte).expect("an event");
            heard.push(byte[0]);
        }
        String::from_utf8(heard).expect("text")
    };
    let mut stream = open("");
    let heard = until(&mut stream, &format!("\"id\":{first}"));
    let id = heard
        .lines()
        .find_map(|line| line.strip_prefix("id: "))
        .expect("an id");
    let second = put(&server, "work", json!({"body": "b"}));
    until(&mut stream, &format!("\"id\":{second}"));
    let again = until(
        &mut open(&format!("last-event-id: {id}\r\n")),
        &format!("\"id\":{second}"),
    );
    assert!(!again.contains(&format!("\"id\":{first}")), "{again}");
}

#[test]
fn a_stream_ends_with_its_client_and_with_the_server() {
    let server = Start::of("stop_wait = '60s'\n").listen(LISTEN).serve();
    let begin = now(&server);
    let open = || {
        let mut stream = TcpStream::connect(server.address_of("http")).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let request = format!(
            "GET /api/v1/events?since={begin} HTTP/1.1\r\nhost: localhost\r\n\
             accept: text/event-stream\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("sent");
        stream
    };
    let mut half = open();
    half.shutdown(Shutdown::Write).expect("shut down");
    let mut all = String::new();
    half.read_to_string(&mut all).expect("it ends");
    assert!(all.contains("event: messages"), "{all}");
    let mut stream = open();
    let (mut heard, mut byte) = (Vec::new(), [0]);
    while !heard.ends_with(b"\n\n\r\n") {
        stream.read_exact(&mut byte).expect("a page");
        heard.push(byte[0]);
    }
    // It says nothing more where nothing happens.
    stream
        .set_read_timeout(Some(Duration::from_millis(2500)))
        .expect("set");
    let quiet = stream.read(&mut byte);
    assert!(quiet.is_err(), "{quiet:?}");
    let began = Instant::now();
    assert!(server.stop().success());
    assert!(began.elapsed() < Duration::from_secs(30), "it ends at once");
}

#[test]
fn a_request_waits_for_the_next_event_and_a_position_is_checked() {
    let server = Start::default().listen(LISTEN).serve();
    let begin = now(&server);
    std::thread::scope(|scope| {
        let path = format!("/events?since={begin}&wait_ms=60000&queue=work");
        let server = &server;
        let wait = scope.spawn(move || get(server, &path).json);
        let id = put(server, "work", json!({"body": "a"}));
        let page = wait.join().expect("a reply");
        assert_eq!(page["events"][0]["id"], id);
    });
    let late = get(
        &server,
        &format!("/events?since={}&wait_ms=50", now(&server)),
    )
    .json;
    assert_eq!(late["events"], json!([]));
    for (path, field) in [
        ("since=", "since"),
        ("since=nonsense", "since"),
        ("since=AAAAAAAAAAAAAAAAAAAAAAAAAAAA", "since"),
        ("since=now&kinds=born", "kinds"),
        ("since=now&max=0", "max"),
        ("since=now&max=1001", "max"),
        ("since=now&wait_ms=60001", "wait_ms"),
        ("since=now&colour=red", "colour"),
        ("kinds=put", "kinds"),
    ] {
        let reply = get(&server, &format!("/events?{path}"));
        assert_eq!(
            (reply.status, &reply.json["field"]),
            (400, &json!(field)),
            "{path}"
        );
    }
    // A position of another server.
    let other = Start::default().listen(LISTEN).serve();
    let reply = get(&other, &format!("/events?since={begin}"));
    assert_eq!(
        (reply.status, &reply.json["code"]),
        (410, &json!("position_gone"))
    );
    // The command line goes on where it ended.
    let printed = server.printed(&["events", "--since", &begin]);
    let (events, next) = printed
        .trim_end()
        .rsplit_once("\nnext ")
        .expect("two lines");
    assert!(
        events.contains("put") && events.contains("work"),
        "{printed}"
    );
    assert_eq!(
        server.printed(&["events", "--since", next]),
        format!("next {next}\n")
    );
    let lines = server.printed(&["events", "--since", &begin, "--json", "--kinds", "put"]);
    assert!(
        lines.starts_with("{\"at_ms\":") || lines.contains("\"kind\":\"put\""),
        "{lines}"
    );
}

#[test]
fn a_reader_sees_the_events_of_queues_that_it_may_see() {
    let hash = Password::of_cost(b"hush", [1; 16], 8, 1).expect("a hash");
    let hash = hash.as_str();
    for shards in [1, 4] {
        let config = format!(
            "shards = {shards}\n\
             [[user]]\nname = 'ann'\npassword = '{hash}'\n\
             [[user]]\nname = 'bob'\npassword = '{hash}'\n\
             [[user]]\nname = 'put'\npassword = '{hash}'\n\
             [[grant]]\nuser = 'ann'\nqueues = ['ann*']\nrights = ['peek']\n\
             [[grant]]\nuser = 'put'\nqueues = ['*']\nrights = ['put']\n\
             [[grant]]\nuser = 'bob'\nqueues = ['*']\nrights = ['put', 'take', 'settle', 'peek', 'admin']\n"
        );
        let server = Start::of(&config).listen(&["http=0"]).serve();
        let as_user = |user: &str, head: &str, body: &str| {
            let login = BASE64_STANDARD.encode(format!("{user}:hush"));
            ask(
                &server,
                head,
                &format!("authorization: Basic {login}\r\n"),
                body,
            )
        };
        let begin = as_user("bob", "GET /events?since=now", "").json;
        let begin = begin["next"].as_str().expect("a position").to_owned();
        for queue in ["ann-1", "bob-1"] {
            let body = json!({"messages": [{"body": "a"}, {"body": "b"}]}).to_string();
            let stored = as_user("bob", &format!("POST /queues/{queue}/messages"), &body);
            let id = stored.json["ids"][0].as_u64().expect("an id");
            let to = if queue == "ann-1" { "bob-2" } else { "ann-2" };
            let body = json!({ "to": to }).to_string();
            let moved = as_user("bob", &format!("POST /messages/{id}/move"), &body);
            assert!(moved.status < 300, "{}", moved.json);
        }
        let seen = |user: &str| {
            let page = as_user(user, &format!("GET /events?since={begin}&max=1000"), "");
            assert_eq!(page.status, 200, "{}", page.json);
            page.json["events"].as_array().expect("events").clone()
        };
        assert!(seen("bob").len() >= 6);
        assert_eq!(
            seen("put"),
            Vec::<Value>::new(),
            "a right to put shows nothing"
        );
        let ann = seen("ann");
        assert!(
            ann.iter().all(|one| !one.to_string().contains("bob")),
            "{ann:?}"
        );
        let puts = ann.iter().filter(|one| one["kind"] == "put");
        assert_eq!(puts.count(), 2, "{ann:?}");
        let arrived = ann
            .iter()
            .any(|one| one["to"] == "ann-2" || one["queue"] == "ann-2");
        assert!(arrived, "{ann:?}");
    }
}

/// Reads a request. None if its sender was killed before it had written all of it.
pub(super) fn next_event(stream: &mut TcpStream) -> Option<(String, String)> {
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut whole = |bytes: &mut [u8]| match stream.read_exact(bytes) {
        Ok(()) => Some(()),
        Err(error) => {
            let ended = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
            assert!(ended.contains(&error.kind()), "{error}");
            None
        }
    };
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        whole(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("text").to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.expect("a length").parse().expect("a number")];
    whole(&mut body)?;
    Some((head, String::from_utf8(body).expect("text")))
}

/// The next whole request: its connection, head and body.
pub(super) fn request(listener: &TcpListener) -> (TcpStream, String, String) {
    loop {
        let mut stream = accept(listener);
        if let Some((head, body)) = next_event(&mut stream) {
            return (stream, head, body);
        }
    }
}

pub(super) fn reply(stream: &mut TcpStream, status: &str) {
    let reply = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(reply.as_bytes()).expect("answered");
}

pub(super) fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).expect("set");
    let (stream, _) = eventually("a request", || listener.accept().ok());
    stream.set_nonblocking(false).expect("set");
    stream
}

#[test]
fn a_webhook_gets_events_at_least_once_over_errors_and_a_kill() {
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "Jefe\n").expect("written");
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).expect("set");
    let [takes, hangs] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let url = |of: &TcpListener| format!("http://{}/x", of.local_addr().expect("an address"));
    let config = format!(
        "[[webhook]]\nname = 'hangs'\nurl = '{}'\n\
         [[webhook]]\nname = 'takes'\nurl = '{}'\nsecret_file = '{}'\nqueues = ['work*']\nkinds = ['put']\n",
        url(&hangs),
        url(&takes),
        secret.display()
    );
    let start = || Start::of(&config).listen(LISTEN);
    let data = Data::fresh();
    let mut server = start().serve_at(&data);
    let mut held = Vec::new();
    let mut ids = BTreeSet::new();
    let mut received = BTreeSet::new();
    let mut heard_of = |body: &str| {
        let body: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(body["webhook"], "takes");
        for event in body["events"].as_array().expect("events") {
            assert_eq!(
                (&event["kind"], &event["queue"]),
                (&json!("put"), &json!("work"))
            );
            received.insert(event["id"].as_u64().expect("an id"));
        }
    };
    await_begun(&server, "takes");
    await_begun(&server, "hangs");
    put(&server, "other", json!({"body": "a"}));
    ids.insert(put(&server, "work", json!({"body": "a"})));
    held.push(accept(&hangs));
    // Errors, and no reply at all, are tried again.
    let (mut stream, head, first) = request(&takes);
    assert!(head.contains("quintet-signature: sha256="), "{head}");
    reply(&mut stream, "500 Oh");
    let (stream, _, again) = request(&takes);
    assert_eq!(again, first);
    drop(stream);
    let (mut stream, _, again) = request(&takes);
    assert_eq!(again, first, "the same events again");
    assert!(server.number("webhook_takes_failures") >= 2);
    reply(&mut stream, "204 No Content");
    heard_of(&first);
    // What was accepted, or not, before a kill: all is told in the end.
    for round in 0..2 {
        ids.insert(put(&server, "work", json!({"body": "b"})));
        let (mut stream, _, body) = request(&takes);
        if round == 1 {
            reply(&mut stream, "200 OK");
            heard_of(&body);
        }
        ids.insert(put(&server, "work", json!({"body": "c"})));
        server = server.kill_and_start(start());
        let (mut stream, _, body) = request(&takes);
        reply(&mut stream, "200 OK");
        heard_of(&body);
    }
    // A request of the process that was killed may wait here still: nobody counts its reply.
    takes.set_nonblocking(true).expect("set");
    eventually("all events are sent and counted", || {
        if let Ok((mut stream, _)) = takes.accept() {
            stream.set_nonblocking(false).expect("set");
            let (_, body) = next_event(&mut stream)?;
            reply(&mut stream, "200 OK");
            let body: Value = serde_json::from_str(&body).expect("JSON");
            for event in body["events"].as_array().expect("events") {
                received.insert(event["id"].as_u64().expect("an id"));
            }
        }
        (received == ids && server.number("webhook_takes_events") > 0).then_some(())
    });
}

/// The webhook's position is stored.
pub(super) fn await_begun(server: &Server, name: &str) {
    let lag = format!("quintet_webhook_lag_bytes{{name=\"{name}\"}}");
    eventually("its position is stored", || {
        let text = server.ask("GET /metrics", "", "").body;
        text.contains(&lag).then_some(())
    });
}

#[test]
fn a_webhook_that_the_log_has_passed_goes_on_at_the_oldest_event() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let config = format!(
        "{SMALL_LOG}[[webhook]]\nname = 'slow'\nurl = 'http://{address}/'\nkinds = ['put']\n"
    );
    let start = || Start::of(&config).sync("never").listen(LISTEN);
    let data = Data::fresh();
    let server = start().serve_at(&data);
    await_begun(&server, "slow");
    put(&server, "work", json!({"body": "a"}));
    let stream = accept(&listener);
    retire(&server, 2);
    drop(stream);
    // Those it was being told of are told; then it goes on with those that are left.
    let began = Instant::now();
    while server.number("webhook_slow_gaps") == 0 {
        assert!(began.elapsed() < PATIENCE, "no gap");
        let (mut stream, ..) = request(&listener);
        reply(&mut stream, "200 OK");
    }
    assert_eq!(server.number("webhook_slow_gaps"), 1);
    // More was retired than one body of `retire`.
    assert!(server.number("webhook_slow_gap_bytes") > 60_000);
}

/// A receiver under TLS with this certificate. Answers the body of the next request, with 204, or
/// why its handshake failed.
fn receive_under_tls(
    listener: &TcpListener,
    config: &std::sync::Arc<rustls::ServerConfig>,
) -> Result<String, String> {
    let mut socket = accept(listener);
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    let mut session = rustls::ServerConnection::new(config.clone()).expect("a session");
    while session.is_handshaking() {
        session
            .complete_io(&mut socket)
            .map_err(|error| error.to_string())?;
    }
    let mut stream = rustls::Stream::new(&mut session, &mut socket);
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        // A client that does not trust the certificate says so behind its own part.
        let read = stream.read(&mut byte).map_err(|error| error.to_string())?;
        if read == 0 {
            return Err("it closed".to_owned());
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("text").to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.expect("a length").parse().expect("a number")];
    stream.read_exact(&mut body).expect("a body");
    let reply = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";
    stream.write_all(reply).expect("answered");
    session.send_close_notify();
    session.complete_io(&mut socket).expect("closed");
    Ok(String::from_utf8(body).expect("text"))
}

#[test]
fn a_webhook_under_tls_checks_its_configured_authorities() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = |name: &str| {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("made");
        let file = folder.path().join(format!("{name}.crt"));
        std::fs::write(&file, made.cert.pem()).expect("written");
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der());
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.expect("a key"))
            .expect("a certificate");
        (file.display().to_string(), std::sync::Arc::new(config))
    };
    let (own, receiver) = made("127.0.0.1");
    let (other, elsewhere) = made("elsewhere.example");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("https://{}/x", listener.local_addr().expect("an address"));
    let config = |ca: &str| {
        format!("relay_ca = '{ca}'\n[[webhook]]\nname = 'far'\nurl = '{url}'\nkinds = ['put']\n")
    };
    let data = Data::fresh();
    let mut id = None;
    // An authority of others, those that browsers trust, and a certificate of another name.
    for (ca, certificate) in [(&*other, &receiver), ("", &receiver), (&*other, &elsewhere)] {
        let config = config(ca);
        let server = Start::of(&config).listen(LISTEN).serve_at(&data);
        await_begun(&server, "far");
        id.get_or_insert_with(|| put(&server, "work", json!({"body": "a"})));
        let refused = receive_under_tls(&listener, certificate);
        assert!(refused.is_err(), "{ca}: {refused:?}");
        eventually("it is counted", || {
            (server.number("webhook_far_failures") > 0).then_some(())
        });
        assert_eq!(server.number("webhook_far_events"), 0);
        server.kill();
    }
    // With its own authority nothing was lost.
    let config = config(&own);
    let server = Start::of(&config).listen(LISTEN).serve_at(&data);
    let body = eventually("the event is sent", || {
        receive_under_tls(&listener, &receiver).ok()
    });
    let body: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(body["events"][0]["id"], id.expect("it was put"), "{body}");
    eventually("it is counted", || {
        (server.number("webhook_far_events") == 1).then_some(())
    });
}
