//! Streams of events, over sockets.

use crate::common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use common::{PATIENCE, World, eventually};
use quintet_http::{Settings, StreamCounts};
use serde_json::{Value, json};

fn quickly(settings: &mut Settings) {
    settings.limits.events_every = Duration::from_millis(20);
}

fn put(world: &World, queue: &str) {
    let path = format!("/api/v1/queues/{queue}/messages");
    let reply = world.post_json(&path, &json!({ "messages": [{ "body": "x" }] }));
    assert!(reply.status < 300, "{}", reply.text());
}

/// A stream whose head has come.
struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(world: &World, query: &str) -> Self {
        let mut stream = world.connect();
        let address = world.address;
        let head = format!("GET /api/v1/events{query} HTTP/1.1\r\nhost: {address}\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("sent");
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(stream.read_line(&mut head).expect("a head"), 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        Self(stream)
    }

    /// The next event's data; `None`: the stream is over.
    fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).expect("an event in time") == 0 {
                return None;
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data).expect("JSON"));
            }
        }
    }

    /// Reads events until one tells this.
    fn until(&mut self, what: &str, tells: impl Fn(&Value) -> bool) -> Value {
        loop {
            let event = self.next();
            let event = event.unwrap_or_else(|| panic!("it ended before {what}"));
            if tells(&event) {
                return event;
            }
        }
    }
}

#[test]
fn a_stream_sends_changes_of_its_queues() {
    let world = World::with(quickly);
    put(&world, "work");
    put(&world, "other");
    let mut one = Stream::open(&world, "?queue=work&queue=not%20yet");
    let first = one.next().expect("what is there");
    assert_eq!(first["work"]["ready"], 1);
    assert_eq!(first.as_object().expect("an object").len(), 1, "{first}");
    // Who joins later is told all of it as well, and so is who names none.
    let mut joined = Stream::open(&world, "?queue=not%20yet&queue=work&queue=work");
    assert_eq!(joined.next().expect("all")["work"]["ready"], 1);
    let mut all = Stream::open(&world, "");
    let first = all.next().expect("all");
    assert_eq!(
        (&first["work"]["ready"], &first["other"]["ready"]),
        (&json!(1), &json!(1))
    );
    put(&world, "work");
    put(&world, "not%20yet");
    for stream in [&mut one, &mut joined] {
        stream.until("a put", |event| event["work"]["ready"] == 2);
    }
    let mut late = Stream::open(&world, "?queue=not%20yet");
    assert_eq!(late.next().expect("all")["not yet"]["ready"], 1);
    world.ask("DELETE", "/api/v1/queues/work", &[], b"");
    for stream in [&mut one, &mut joined, &mut all] {
        stream.until("its end", |event| {
            event.get("work").is_some_and(Value::is_null)
        });
    }
}

#[test]
fn a_wrong_selection_is_refused_by_its_field() {
    let world = World::with(quickly);
    let many: Vec<String> = (0..101).map(|at| format!("queue=q{at}")).collect();
    let long = format!("queue={}", "x".repeat(20_000));
    for query in [&many.join("&"), &long, "queues=work", "queue="] {
        let reply = world.get(&format!("/api/v1/events?{query}"));
        assert_eq!(reply.status, 400, "{query}");
        assert_eq!(
            reply.header("content-type"),
            Some("application/problem+json")
        );
        let field = query.split('=').next().expect("a name");
        assert_eq!(reply.json()["field"], field, "{query}");
    }
}

/// Streams have no place among the connections: with ten of these there are hundreds of streams,
/// and others are served.
#[test]
fn hundreds_of_streams_are_served_and_one_more_is_refused() {
    // Both ends of each are files of this process; other tests need some as well.
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let many = (files.current.unwrap_or(u64::MAX) / 4).min(300);
    let counts = Arc::new(StreamCounts::default());
    let world = World::with(|settings| {
        settings.limits.connections_max = 10;
        settings.limits.streams_max = many as usize;
        settings.stream_counts = Arc::clone(&counts);
        settings.limits.events_every = Duration::from_millis(100);
    });
    put(&world, "work");
    let open = || Stream::open(&world, "?queue=work");
    let mut streams: Vec<Stream> = (0..many).map(|_| open()).collect();
    assert_eq!(counts.open(), many);
    let refused = world.get("/api/v1/events?queue=work");
    assert_eq!(refused.status, 503);
    assert_eq!(
        refused.header("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(refused.json()["code"], "too_many_streams");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(counts.refused(), 1);
    assert_eq!(world.get("/healthz").status, 200);
    put(&world, "work");
    for stream in &mut streams {
        stream.until("a put", |event| event["work"]["ready"] == 2);
    }
    drop(streams.pop());
    eventually("a place is free", || (counts.open() < many).then_some(()));
    streams.push(open());
    assert_eq!(counts.open(), many);
}

#[test]
fn streams_end_when_the_server_stops_and_do_not_hold_it_up() {
    let mut world = World::with(quickly);
    put(&world, "work");
    let mut stream = Stream::open(&world, "?queue=work");
    stream.next().expect("what is there");
    let (sender, receiver) = mpsc::channel();
    let web = world.web.take().expect("it is served");
    std::thread::spawn(move || sender.send(web.stop(Duration::from_secs(86_400))));
    assert_eq!(
        receiver.recv_timeout(PATIENCE),
        Ok(true),
        "it waits for a stream"
    );
    while stream.next().is_some() {}
    let mut rest = Vec::new();
    let _reset = stream.0.read_to_end(&mut rest);
    assert!(rest.is_empty());
}
