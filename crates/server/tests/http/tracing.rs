//! Spans of messages as a collector gets them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use serde_json::{Value, json};

use crate::common::{PATIENCE, Server, Start, await_that, http, text};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A collector that answers every request with this status, and hands on the
/// spans, with the head of their request.
fn collector(status: &'static str) -> (SocketAddr, Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("its address");
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let sender = sender.clone();
            std::thread::spawn(move || serve(stream, status, &sender));
        }
    });
    (address, receiver)
}

fn serve(stream: TcpStream, status: &str, sender: &Sender<(String, Value)>) {
    let mut writer = stream.try_clone().expect("a handle");
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line == "\r\n" {
                break;
            }
            head += &line.to_lowercase();
        }
        let length = head.split("content-length: ").nth(1).expect("a length");
        let length = length
            .lines()
            .next()
            .expect("a line")
            .parse()
            .expect("a number");
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        let document: Value = serde_json::from_slice(&body).expect("JSON");
        let resource = &document["resourceSpans"][0];
        let spans = resource["scopeSpans"][0]["spans"]
            .as_array()
            .expect("spans");
        for span in spans {
            let service = &resource["resource"]["attributes"][0]["value"]["stringValue"];
            let mut span = span.clone();
            span["service"] = service.clone();
            // The test may have ended.
            let _delivered = sender.send((head.clone(), span));
        }
        let reply = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}");
        if writer.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

fn start(data: &Path, endpoint: &str, more: &str) -> Server {
    let config = format!("otlp_endpoint = 'http://{endpoint}'\n{more}");
    Start::of(&config)
        .listen(&["memcache=0", "beanstalk=0", "http=0"])
        .serve_at(data)
}

/// Puts a message over the API as a part of the trace.
fn put(server: &Server, queue: &str, flags: &str, body: &str) {
    let path = format!("POST /api/v1/queues/{queue}/messages");
    let parent = format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-{flags}\r\n");
    let body = json!({ "messages": [{ "body": body }] }).to_string();
    let reply = server.ask(&path, &format!("{parent}{}", http::JSON), body);
    assert_eq!(reply.status, 201);
}

/// The next span, with its name.
fn next(spans: &Receiver<(String, Value)>) -> (String, Value) {
    let (_, span) = spans.recv_timeout(PATIENCE).expect("a span");
    (span["name"].as_str().expect("a name").to_owned(), span)
}

#[test]
fn a_collector_gets_spans_of_puts_waits_and_runs() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("fails");
    std::fs::write(&script, "#!/bin/sh\necho \"fail no disk\" >&3\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, executable).unwrap();
    let headers = dir.path().join("headers");
    std::fs::write(&headers, "x-token: s3cret\n").unwrap();
    let (address, spans) = collector("200 OK");
    let more = format!(
        "otlp_headers_file = '{}'\notlp_service_name = 'mine'\n\
         [[queue]]\nname = 'script'\nscript = '{}'\nexec_prefix = ''\n",
        headers.display(),
        script.display()
    );
    let server = start(&dir.path().join("data"), &address.to_string(), &more);
    // Another protocol takes it, and finishes it.
    put(&server, "work", "01", "a");
    let mut worker = server.client_of("beanstalk");
    worker.send(b"watch work\r\nreserve\r\n");
    worker.until(b"RESERVED ");
    let id = text(&worker.until(b" "));
    let id = id.trim().to_owned();
    worker.until(b"\r\na\r\n");
    worker.send(format!("delete {id}\r\n").as_bytes());
    worker.until(b"DELETED\r\n");
    let (head, span) = spans.recv_timeout(PATIENCE).expect("a span");
    assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
    assert!(head.contains("x-token: s3cret"), "{head}");
    let mut all = vec![(span["name"].as_str().unwrap().to_owned(), span)];
    all.extend([next(&spans), next(&spans)]);
    let of = |name: &str| &all.iter().find(|(known, _)| known == name).expect(name).1;
    let (put_span, wait, run) = (of("put work"), of("wait work"), of("run work"));
    assert_eq!(put_span["parentSpanId"], "00f067aa0ba902b7");
    let time = |span: &Value, key: &str| -> u64 { span[key].as_str().unwrap().parse().unwrap() };
    for span in [put_span, wait, run] {
        assert_eq!(
            (&span["traceId"], &span["service"]),
            (&json!(TRACE), &json!("mine"))
        );
        assert!(time(span, "startTimeUnixNano") <= time(span, "endTimeUnixNano"));
        assert!(span.get("status").is_none(), "{span}");
        let id_of = json!({ "key": "messaging.message.id", "value": { "stringValue": id } });
        assert!(
            span["attributes"].as_array().unwrap().contains(&id_of),
            "{span}"
        );
    }
    for span in [wait, run] {
        assert_eq!(span["parentSpanId"], put_span["spanId"]);
    }
    // Not sampled, and without a trace: none. A script that fails: said so.
    put(&server, "work", "00", "b");
    server.client().put("work", b"c");
    put(&server, "script", "01", "d");
    let all = [next(&spans), next(&spans), next(&spans)];
    let of = |name: &str| &all.iter().find(|(known, _)| known == name).expect(name).1;
    let run = of("run script");
    assert_eq!(run["status"]["code"], 2, "{run}");
    assert!(
        run["status"]["message"]
            .as_str()
            .unwrap()
            .contains("no disk"),
        "{run}"
    );
    of("put script");
    of("wait script");
    server.await_number("otlp_spans_sent", |sent| sent == 6);
    assert_eq!(server.number("otlp_spans_dropped"), 0);
    // What ended is sent before the server ends.
    put(&server, "last", "01", "e");
    server.client().take("last", b"e");
    assert!(server.stop().success());
    let names: Vec<String> = spans
        .try_iter()
        .map(|(_, span)| span["name"].to_string())
        .collect();
    assert!(names.contains(&"\"put last\"".to_owned()), "{names:?}");
}

#[test]
fn a_collector_that_takes_nothing_delays_no_client() {
    let dir = tempfile::tempdir().unwrap();
    let (refuses, _spans) = collector("400 Bad Request");
    let server = start(&dir.path().join("refused"), &refuses.to_string(), "");
    put(&server, "work", "01", "a");
    server.await_number("otlp_spans_failed", |failed| failed == 1);
    put(&server, "work", "01", "b");
    assert!(server.stop().success());
    // Nobody is there.
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let more = "otlp_spans_max = 1\n";
    let server = start(&dir.path().join("gone"), &gone.to_string(), more);
    await_that("one is dropped", || {
        put(&server, "work", "01", "a");
        server.number("otlp_spans_dropped") > 0
    });
    assert!(server.stop().success());
}

#[test]
fn a_wrong_collector_is_an_error_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    for (setting, named) in [
        ("otlp_endpoint = 'localhost:4318'", "otlp_endpoint"),
        (
            "otlp_endpoint = 'http://localhost:1'\notlp_ca = 'nowhere'",
            "otlp_ca",
        ),
        (
            "otlp_endpoint = 'http://localhost:1'\notlp_headers_file = 'nowhere'",
            "otlp_headers_file",
        ),
    ] {
        let config = dir.path().join("q.toml");
        std::fs::write(&config, setting).unwrap();
        let out =
            crate::common::quintet(&["serve", "--listen", "memcache=127.0.0.1:0", "--config"])
                .arg(&config)
                .arg("--data")
                .arg(dir.path().join("data"))
                .output()
                .unwrap();
        let output = text(&out.stderr);
        assert!(!out.status.success() && output.contains(named), "{output}");
    }
}
