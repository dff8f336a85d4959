//! Standard error, in the form of `log_format`.

use serde_json::Value;

use crate::common::{Server, Start, eventually};

/// Waits for a line whose `key` is this.
fn line_with(server: &Server, key: &str, value: &str) -> Value {
    eventually(&format!("a line with {key} {value}"), || {
        let text = server.stderr_text();
        // The last one may be half written.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let lines = whole.lines().map(|line| {
            let parsed = serde_json::from_str::<Value>(line);
            parsed.unwrap_or_else(|error| panic!("{error}: {line}"))
        });
        let mut fitting = lines.filter(|line| line[key] == value);
        fitting.next()
    })
}

#[test]
fn each_line_is_an_object_that_names_the_client() {
    let mut server = Start::of("log_format = 'json'\nlog_level = 'debug'\n")
        .listen(&[
            "beanstalk=0",
            "memcache=0",
            "lineup=0",
            "jobqueue=0",
            "http=0",
        ])
        .serve_logged();
    let mut seen = Vec::new();
    for (protocol, sent, reason) in [
        ("beanstalk", "fly\r\n", "UNKNOWN_COMMAND"),
        ("memcache", "fly\r\n", "ERROR"),
        ("lineup", "FLY\r\n", "-"),
    ] {
        let mut client = server.client_of(protocol);
        client.send(sent.as_bytes());
        let reply = client.until(b"\r\n");
        let reply = String::from_utf8_lossy(reply.trim_ascii_end()).into_owned();
        assert!(reply.starts_with(reason), "{reply}");
        let line = line_with(&server, "reason", &reply);
        assert_eq!(line["level"], "DEBUG");
        assert_eq!(line["protocol"], protocol);
        assert!(
            line["peer"]
                .as_str()
                .is_some_and(|peer| peer.starts_with("127.0.0.1:"))
        );
        seen.push(line["conn"].as_u64().expect("a number"));
    }
    seen.dedup();
    assert_eq!(seen.len(), 3, "each connection has its number");
    // What went well is no line.
    let mut fine = server.client_of("beanstalk");
    fine.ask(
        b"use q\r\nreserve-with-timeout 0\r\n",
        b"USING q\r\nTIMED_OUT\r\n",
    );
    let mut http = server.client_of("http");
    http.ask(
        b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"HTTP/1.1 404 ",
    );
    let line = line_with(&server, "protocol", "http");
    assert_eq!(
        (&line["reason"], &line["peer"]),
        (&404.into(), &"127.0.0.1".into())
    );
    server.terminate();
    assert_eq!(line_with(&server, "act", "stop")["target"], "audit");
    let text = server.stderr_text();
    let mut lines = text.lines();
    let began = lines.find(|line| line.contains("\"message\":\"read "));
    assert!(
        began.is_some_and(|line| line.contains("\"group\":0")),
        "{text}"
    );
    assert!(
        !text.contains("TIMED_OUT") && !text.contains("USING"),
        "{text}"
    );
}
