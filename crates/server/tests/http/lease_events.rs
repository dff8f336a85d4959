//! `GET /api/v1/leases/TOKEN/events`, and the header that names cancelled leases.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::api::{ask, get, post};
use crate::common::{PATIENCE, Server, Start, eventually, text};

fn served() -> Server {
    Start::default().listen(&["http=0"]).serve()
}

/// Puts a message and reserves it: its id and its lease.
fn held(server: &Server) -> (u64, String) {
    let body = json!({"messages": [{"body": "a"}]});
    let put = post(server, "/queues/film/messages", &body);
    assert_eq!(put.status, 201, "{}", put.json);
    let body = json!({"lease_ms": 600_000});
    let leased = post(server, "/queues/film/reserve", &body);
    let message = &leased.json["messages"][0];
    let lease = message["lease"].as_str().expect("a lease").to_owned();
    (message["id"].as_u64().expect("an id"), lease)
}

struct Events(TcpStream);

impl Events {
    fn open(server: &Server, lease: &str) -> Self {
        let mut stream = TcpStream::connect(server.address_of("http")).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let request =
            format!("GET /api/v1/leases/{lease}/events HTTP/1.1\r\nhost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        Self(stream)
    }

    /// The next event of this name.
    fn next(&mut self, name: &str) -> Value {
        let begin = format!("event: {name}\ndata: ");
        let (mut received, mut byte) = (Vec::new(), [0]);
        loop {
            let read = self.0.read(&mut byte).expect("an event");
            assert_eq!(read, 1, "it ended: {}", String::from_utf8_lossy(&received));
            received.push(byte[0]);
            let text = String::from_utf8_lossy(&received);
            let data = text.split_once(&begin).map(|(_, data)| data.to_owned());
            if let Some((data, _)) = data.as_deref().and_then(|data| data.split_once("\n\n")) {
                return serde_json::from_str(data).expect("JSON");
            }
        }
    }

    /// The rest, up to the end of the stream.
    fn rest(mut self) -> String {
        let mut rest = String::new();
        self.0.read_to_string(&mut rest).expect("it ends");
        rest
    }
}

fn open_streams(server: &Server) -> u64 {
    let numbers = get(server, "/server").json;
    numbers["event_streams"]
        .as_u64()
        .unwrap_or_else(|| panic!("{numbers}"))
}

#[test]
fn a_stream_of_a_lease_sends_extension_cancel_and_end() {
    let server = served();
    let (id, lease) = held(&server);
    let mut events = Events::open(&server, &lease);
    let first = events.next("lease");
    assert_eq!(first["id"], id);
    assert!(
        first["left_ms"].as_u64().expect("time") > 500_000,
        "{first}"
    );
    let extend = |ms: u64| {
        let path = format!("/leases/{lease}/extend");
        post(&server, &path, &json!({ "lease_ms": ms }))
    };
    assert_eq!(extend(3_000_000).status, 204);
    let longer = events.next("lease");
    assert!(
        longer["left_ms"].as_u64().expect("time") > 2_000_000,
        "{longer}"
    );
    let cancel = json!({"reason": "sold out", "grace_ms": 60_000});
    let path = format!("/messages/{id}/cancel");
    assert_eq!(post(&server, &path, &cancel).status, 204);
    let notice = events.next("cancelled");
    assert_eq!(
        (&notice["id"], &notice["reason"]),
        (&json!(id), &json!("sold out"))
    );
    // The stream counts from a moment that may be some ms older.
    assert!(
        notice["left_ms"].as_u64().expect("time") < 61_000,
        "{notice}"
    );
    // One that begins now hears it too.
    let mut late = Events::open(&server, &lease);
    assert_eq!(late.next("cancelled")["reason"], "sold out");
    let finished = post(&server, &format!("/leases/{lease}/finish"), &json!({}));
    assert_eq!(finished.status, 204);
    for mut events in [events, late] {
        assert_eq!(
            events.next("ended"),
            json!({"id": id, "left_ms": null, "until_ms": null, "state": "done"})
        );
        events.rest();
    }
    eventually("the streams are gone", || {
        (open_streams(&server) == 0).then_some(())
    });
    let over = get(&server, &format!("/leases/{lease}/events"));
    assert_eq!(
        (over.status, &over.json["code"]),
        (409, &json!("lease_over"))
    );
    let none = get(&server, "/leases/nonsense/events");
    assert_eq!((none.status, &none.json["field"]), (400, &json!("token")));
}

/// No record says how a lease ended that ends while its stream is not waiting for news of it.
#[test]
fn each_stream_sends_the_end_of_its_lease_without_recorded_ends() {
    let server = Start::of("ends_max = 0\n").listen(&["http=0"]).serve();
    for round in 0..40 {
        let (id, lease) = held(&server);
        let mut events = Events::open(&server, &lease);
        events.next("lease");
        // The finish follows the extension before the stream has told of that.
        let extended = json!({"lease_ms": 700_000 + round}).to_string();
        let request = |verb: &str, body: &str| {
            format!(
                "POST /api/v1/leases/{lease}/{verb} HTTP/1.1\r\nhost: localhost\r\n\
                 content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        let both = request("extend", &extended) + &request("finish", "{}");
        let mut worker = TcpStream::connect(server.address_of("http")).expect("connected");
        worker.write_all(both.as_bytes()).expect("sent");
        let ended = events.next("ended");
        let state = ended["state"].as_str().expect("a state");
        assert_eq!(ended["id"], id);
        assert!(matches!(state, "done" | "unknown"), "{ended}");
        events.rest();
    }
}

#[test]
fn without_a_grace_the_worker_gets_the_reason_and_the_end() {
    let server = served();
    let (id, lease) = held(&server);
    let mut events = Events::open(&server, &lease);
    events.next("lease");
    let cancel = json!({"reason": "sold out", "grace_ms": 0});
    let path = format!("/messages/{id}/cancel");
    assert_eq!(post(&server, &path, &cancel).status, 204);
    assert_eq!(events.next("cancelled")["reason"], "sold out");
    assert_eq!(events.next("ended")["state"], "cancelled");
    events.rest();
    // An operator gives another one back.
    let (id, lease) = held(&server);
    let mut events = Events::open(&server, &lease);
    events.next("lease");
    let path = format!("/messages/{id}/release");
    assert!(post(&server, &path, &json!({})).status < 300);
    assert_eq!(events.next("ended")["state"], "waiting");
    let audit = text(&server.run(&["audit"]).stdout);
    let line = format!("POST /api/v1{path} of film 204");
    assert!(audit.contains(&line), "{audit}");
}

#[test]
fn a_stream_of_a_lease_ends_with_its_client_and_with_the_server_and_they_are_counted() {
    let server = Start::of("stop_wait = '60s'\n")
        .listen(&["http=0,max_streams=2"])
        .serve();
    let (_, lease) = held(&server);
    let mut half = Events::open(&server, &lease);
    half.next("lease");
    let mut whole = Events::open(&server, &lease);
    whole.next("lease");
    assert_eq!(open_streams(&server), 2);
    let third = get(&server, &format!("/leases/{lease}/events"));
    assert_eq!(
        (third.status, &third.json["code"]),
        (503, &json!("too_many_streams"))
    );
    half.0.shutdown(Shutdown::Write).expect("shut down");
    half.rest();
    eventually("one is left", || (open_streams(&server) == 1).then_some(()));
    let began = Instant::now();
    assert!(server.stop().success());
    assert!(began.elapsed() < Duration::from_secs(30), "it ends at once");
    whole.rest();
}

#[test]
fn events_of_a_lease_need_the_right_to_extend_it() {
    let config = "[[user]]\nname = 'ann'\n[[grant]]\nuser = 'ann'\nqueues = ['film']\n\
                  rights = ['put', 'take']\n[[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\nuser = 'ann'\n";
    let server = Start::of(config).serve_as_configured();
    let (_, lease) = held(&server);
    let refused = get(&server, &format!("/leases/{lease}/events"));
    assert_eq!(
        (refused.status, &refused.json["code"]),
        (403, &json!("not_permitted"))
    );
    // Nor what its id or token in another request would tell.
    let named = ask(
        &server,
        "POST /queues/film/reserve",
        &format!("quintet-leases: {lease}\r\n"),
        "{}",
    );
    assert!(!named.head.contains("quintet-cancelled"), "{}", named.head);
}

#[test]
fn replies_name_leases_whose_messages_are_cancelled() {
    let server = served();
    let leases: Vec<(u64, String)> = (0..3).map(|_| held(&server)).collect();
    for (id, _) in &leases[..2] {
        let cancel = json!({"reason": "no", "grace_ms": 60_000});
        let path = format!("/messages/{id}/cancel");
        assert_eq!(post(&server, &path, &cancel).status, 204);
    }
    let all: Vec<&str> = leases.iter().map(|(_, lease)| lease.as_str()).collect();
    let reserve = |leases: &str| {
        let headers = format!("quintet-leases: {leases}\r\n");
        ask(
            &server,
            "POST /queues/film/reserve",
            &headers,
            "{\"wait_ms\": 10}",
        )
    };
    let reply = reserve(&all.join(", "));
    let expected = format!("quintet-cancelled: {}\r\n", all[..2].join(", "));
    assert_eq!(reply.status, 200, "{}", reply.json);
    assert!(
        (reply.head.clone() + "\r\n").contains(&expected),
        "{}",
        reply.head
    );
    assert!(!reserve(all[2]).head.contains("quintet-cancelled"));
    let extended = post(&server, &format!("/leases/{}/extend", all[0]), &json!({}));
    assert_eq!(extended.json, json!({"cancelled": true}));
    assert!(
        extended
            .head
            .contains(&format!("quintet-cancelled: {}", all[0])),
        "{}",
        extended.head
    );
    let many = vec![all[0]; 33].join(",");
    for (leases, status) in [(many.as_str(), 400), ("nonsense", 400)] {
        let reply = reserve(leases);
        assert_eq!(
            (reply.status, &reply.json["code"]),
            (status, &json!("bad_field"))
        );
    }
}
