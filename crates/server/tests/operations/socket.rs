//! `/api/v1` on the control socket.

use std::os::unix::net::UnixStream;

use serde_json::Value;

use crate::common::{Client, Reply, Server, eventually, text};

/// Asks there; `headers` end in CR LF each.
fn ask(server: &Server, what: &str, headers: &str) -> Reply {
    Client::unix(&server.data.join("quintet.sock")).page(what, headers)
}

fn json(reply: &Reply) -> Value {
    assert!(reply.status < 300, "{} {}", reply.status, reply.body);
    serde_json::from_str(&reply.body).unwrap_or_default()
}

#[test]
fn the_api_is_on_the_control_socket_without_a_listener_of_http() {
    let mut server = Server::fresh();
    assert_eq!(text(&server.run(&["put", "work", "hello"]).stdout), "1\n");
    let queues = json(&ask(&server, "GET /api/v1/queues", ""));
    assert_eq!(queues["queues"][0]["name"], "work");
    assert_eq!(ask(&server, "GET /healthz", "").body, "ok");
    // What is there for browsers is not here.
    for page in ["/", "/queues/work", "/q", "/login", "/assets/rq.css"] {
        assert_eq!(
            ask(&server, &format!("GET {page}"), "").status,
            404,
            "{page}"
        );
    }
    // Another name is a page that had its name pointed here.
    let foreign = "host: example.com\r\n";
    assert_ne!(ask(&server, "GET /api/v1/queues", foreign).status, 200);

    // Who it was, in the list of connections and in the audit, as of other protocols.
    let account = format!("uid {}", rustix::process::geteuid().as_raw());
    let there = json(&ask(&server, "GET /api/v1/connections", ""));
    assert_eq!(there[0]["user"], account.as_str(), "{there}");
    let deleted = ask(&server, "DELETE /api/v1/messages/1", "");
    assert_eq!(deleted.status, 204);
    let audit = text(&server.run(&["audit"]).stdout);
    let line = format!("{account} - http DELETE /api/v1/messages/1 of work 204");
    assert!(audit.contains(&line), "{audit}");
    assert!(
        !audit.contains("/record"),
        "a put is everyday work: {audit}"
    );

    // One byte after the other, and what begins as neither.
    let mut slow = Client::unix(&server.data.join("quintet.sock"));
    for byte in b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n" {
        slow.send(&[*byte]);
    }
    assert!(slow.all().ends_with("ok"));
    let mut odd = Client::unix(&server.data.join("quintet.sock"));
    odd.send(b"\x16\x03\x01\n");
    assert!(odd.all().contains("error"));
    let mut silent = Client::unix(&server.data.join("quintet.sock"));
    silent.half_close();
    silent.expect_end();
    server.terminate();
}

#[test]
fn of_connections_that_speak_http_there_are_so_many_and_commands_still_work() {
    let server = Server::fresh();
    let path = server.data.join("quintet.sock");
    // Those that say nothing make way for others, which are answered, or told that there are too
    // many.
    use std::io::{Read as _, Write as _};
    // All at once, and again if some of them ended to make room: those are silent by then.
    let burst = || {
        let streams = std::iter::repeat_with(|| {
            let mut stream = UnixStream::connect(&path).expect("connected");
            let request = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";
            stream.write_all(request).expect("sent");
            stream
        });
        let mut streams: Vec<UnixStream> = streams.take(120).collect();
        let replies = streams.iter_mut().map(|stream| {
            let mut reply = [0; 12];
            stream.read_exact(&mut reply).expect("a reply");
            text(&reply)
        });
        let replies: Vec<String> = replies.collect();
        let count = |status: &str| {
            replies
                .iter()
                .filter(|reply| reply.ends_with(status))
                .count()
        };
        let (served, refused) = (count(" 200"), count(" 503"));
        assert!(served >= 64 && served + refused == 120, "{replies:?}");
        (refused > 0).then_some(streams)
    };
    let streams = eventually("so many at once", burst);
    // Silent ones make way for a command.
    let put = server.run(&["put", "work", "x"]);
    assert_eq!(text(&put.stdout), "1\n", "{}", text(&put.stderr));
    // The one that asks for the number is left.
    drop(streams);
    server.await_number("http_connections", |open| open == 1);
    assert_eq!(ask(&server, "GET /livez", "").status, 200);
}

/// Clients send the next records before the reply to those before: nothing behind an error is done.
#[test]
fn records_are_stored_once_and_none_behind_an_error() {
    let server = Server::fresh();
    let post = |head: &str, bodies: &str| {
        let length = head.len() + 1 + bodies.len();
        format!(
            "POST /api/v1/queues/work/records HTTP/1.1\r\nhost: localhost\r\n\
             content-length: {length}\r\n\r\n{head}\n{bodies}"
        )
    };
    let two = |token: &str| {
        let head = format!(
            r#"{{"tokens":[[0,"{token}"]],"messages":[{{"queue":"work","bytes":1}},{{"queue":"work","bytes":2}}]}}"#
        );
        post(&head, "abb")
    };
    let requested = |requests: &[String]| {
        let mut client = Client::unix(&server.data.join("quintet.sock"));
        client.send(requests.concat().as_bytes());
        client.all()
    };
    let output = requested(&[two("first"), two("first"), two("second")]);
    let replies: Vec<&str> = output.split("HTTP/1.1 ").skip(1).collect();
    assert_eq!(replies.len(), 2, "{output}");
    assert!(replies[0].starts_with("201") && replies[0].ends_with("{\"ids\":[1,2]}"));
    assert!(replies[1].starts_with("409") && replies[1].contains("\"duplicate\""));
    for (token, status) in [("first", 200), ("second", 404)] {
        let path = format!("GET /api/v1/queues/work/imports/{token}");
        assert_eq!(ask(&server, &path, "").status, status, "{token}");
    }
    let with_token = |token: &str| {
        format!(r#"{{"tokens":[[0,"{token}"]],"messages":[{{"queue":"work","bytes":1}}]}}"#)
    };
    let many = |list: &str, count| {
        let (message, token) = (r#"{"queue":"work"}"#, r#"[0,"x"]"#);
        let times = |text, name| vec![text; if list == name { count } else { 1 }].join(",");
        let (tokens, messages) = (times(token, "tokens"), times(message, "messages"));
        format!(r#"{{"tokens":[{tokens}],"messages":[{messages}]}}"#)
    };
    for (head, bodies, field) in [
        (r#"{"messages":[]}"#, "", "messages"),
        (
            r#"{"messages":[{"queue":"work","bytes":2}]}"#,
            "a",
            "messages",
        ),
        (
            r#"{"messages":[{"queue":"other","bytes":1}]}"#,
            "a",
            "messages[0].queue",
        ),
        (
            r#"{"messages":[{"queue":"work","bytes":1,"batch":"b-0000000000000001"}]}"#,
            "a",
            "messages[0].batch",
        ),
        (
            r#"{"tokens":[[1,"x"]],"messages":[{"queue":"work","bytes":1}]}"#,
            "a",
            "tokens",
        ),
        (&with_token(""), "a", "tokens"),
        (&with_token(&"x".repeat(256)), "a", "tokens"),
        (&many("messages", 2049), "", "messages"),
        (&many("tokens", 2049), "", "tokens"),
    ] {
        let output = requested(&[post(head, bodies), two("behind")]);
        assert!(output.starts_with("HTTP/1.1 400"), "{output}");
        assert!(
            output.contains(&format!("\"field\":\"{field}\"")),
            "{output}"
        );
        assert_eq!(output.matches("HTTP/1.1 ").count(), 1, "{output}");
    }
    let queues = json(&ask(&server, "GET /api/v1/queues", ""));
    assert_eq!(queues["queues"][0]["ready"], 2, "{queues}");
    // The limits themselves are accepted.
    let mut client = Client::unix(&server.data.join("quintet.sock"));
    let longest = post(&with_token(&"x".repeat(255)), "a");
    client.send((longest + &post(&many("messages", 2048), "")).as_bytes());
    client.half_close();
    let output = client.all();
    assert_eq!(output.matches("HTTP/1.1 201").count(), 2, "{output}");
}
