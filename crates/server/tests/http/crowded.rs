//! A listener whose places are all taken still tells how the server is, and polls and bodies that
//! have not arrived hold no places.

use std::time::Duration;

use crate::api::{get, post};
use crate::common::{Client, Server, Start, eventually, page, text};
use serde_json::json;

const PLACES: usize = 10;

fn served(dir: &tempfile::TempDir) -> Server {
    with_options(dir, "")
}

fn with_options(dir: &tempfile::TempDir, options: &str) -> Server {
    let http = format!("http=127.0.0.1:0,max_connections={PLACES}{options}");
    let start = Start {
        listen: &["memcache=127.0.0.1:0", &http],
        ..Start::default()
    };
    Server::start_with(&dir.path().join("data"), start)
}

fn request(path: &str, body: &str, len: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {len}\r\n\r\n{body}"
    )
}

/// Everything answers.
fn assert_it_answers(server: &Server) {
    for path in ["/healthz", "/readyz", "/metrics", "/"] {
        assert_eq!(page(server, path).0, 200, "{path}");
    }
    let put = json!({"messages": [{"body": "x"}]});
    assert_eq!(post(server, "/queues/other/messages", &put).status, 201);
    assert_eq!(get(server, "/queues").status, 200);
}

#[test]
fn polls_and_half_bodies_block_no_other_request() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = served(&dir);
    let poll = json!({"wait_ms": 60_000}).to_string();
    let poll = request("/api/v1/queues/q/reserve", &poll, poll.len());
    let polls: Vec<Client> = (0..PLACES)
        .map(|_| {
            let mut client = server.client_of("http");
            client.send(poll.as_bytes());
            client
        })
        .collect();
    server.await_number("waiters", |waiters| waiters == PLACES as u64);
    assert_it_answers(&server);
    let half = request("/api/v1/queues/q/messages", "{\"mess", 100);
    let halves: Vec<Client> = (0..PLACES)
        .map(|_| {
            let mut client = server.client_of("http");
            client.send(half.as_bytes());
            client
        })
        .collect();
    assert_it_answers(&server);
    // Further polls keep their places, and the first one that would leave less than a quarter to
    // others is told so.
    let mut kept = Vec::new();
    let reply = loop {
        let mut more = server.client_of("http");
        more.send(poll.as_bytes());
        more.set_patience(Duration::from_millis(50)).expect("open");
        let waits = (PLACES + kept.len() + 1) as u64;
        let reply = eventually("a wait or a reply", || {
            if server.number("waiters") == waits {
                return Some(None);
            }
            more.before(b"}").ok().map(Some)
        });
        match reply {
            Some(reply) => break text(&reply),
            None => kept.push(more),
        }
        assert!(kept.len() < PLACES, "polls have all places");
    };
    assert!(reply.starts_with("HTTP/1.1 503 "), "{reply}");
    assert!(reply.contains("too_many_polls"), "{reply}");
    assert_it_answers(&server);
    // Their ends are seen at once.
    drop((polls, halves, kept));
    server.await_number("waiters", |waiters| waiters == 0);
    assert_it_answers(&server);
}

#[test]
fn health_checks_have_connection_slots_of_their_own() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = served(&dir);
    // Replies that nobody reads hold their places.
    let long = json!({"messages": [{"body": "x".repeat(900_000)}]});
    assert_eq!(post(&server, "/queues/q/messages", &long).status, 201);
    let id = get(&server, "/queues/q/messages").json["messages"][0]["id"].to_string();
    let read = format!("GET /api/v1/messages/{id}/body HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let unread: Vec<Client> = (0..PLACES)
        .map(|_| {
            let mut client = server.client_of("http");
            client.send(read.repeat(40).as_bytes());
            client.exact(1);
            client
        })
        .collect();
    for path in ["/healthz", "/readyz", "/metrics", "/healthz"] {
        assert_eq!(page(&server, path).0, 200, "{path}");
    }
    // The others get theirs when one is free.
    let mut waits = server.client_of("http");
    waits.send(b"GET /api/v1/queues HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!(page(&server, "/healthz").0, 200);
    drop(unread);
    assert!(text(&waits.until(b"\r\n")).starts_with("HTTP/1.1 200 "));
}

#[test]
fn slow_bodies_hold_up_no_small_one() {
    let dir = tempfile::tempdir().expect("a folder");
    // The slow ones have more time than this test for a reply.
    let server = with_options(&dir, ",timeout=1h");
    let record = |body: &str, len: usize| request("/api/v1/queues/q/record", body, len);
    // More than are stored at once; an address has four.
    let large = record("{}\nthe beginning", 1 << 20);
    let slow: Vec<Client> = (0..8)
        .map(|_| {
            let mut client = server.client_of("http");
            client.send(large.as_bytes());
            client
        })
        .collect();
    server.await_number("connections_upload_bytes", |bytes| bytes > 3 << 20);
    let mut small = server.client_of("http");
    small.send(record("{}\nx", 4).as_bytes());
    let reply = text(&small.until(b"}"));
    assert!(reply.starts_with("HTTP/1.1 201 "), "{reply}");
    drop(slow);
    let queues = vec!["q"; 1025];
    let taken = post(&server, "/take", &json!({ "queues": queues }));
    assert_eq!(taken.status, 400, "too many queues for one take");
}

#[test]
fn silent_connections_make_way_for_a_request() {
    let dir = tempfile::tempdir().expect("a folder");
    // The request waits for a place longer than this test for its reply.
    let server = with_options(&dir, ",timeout=1h");
    let silent: Vec<Client> = (0..PLACES)
        .map(|_| {
            let mut client = server.client_of("http");
            client.send(b"GET /api/v1/queues HTTP/1.1\r\nhost: localhost\r\n\r\n");
            assert!(text(&client.until(b"\r\n")).starts_with("HTTP/1.1 200 "));
            client
        })
        .collect();
    assert_eq!(get(&server, "/queues").status, 200);
    drop(silent);
}
