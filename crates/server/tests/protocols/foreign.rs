//! Clients that speak something else: answered or closed at once, and logged
//! in the log once for each listener.

use crate::common::Start;
use crate::tls::{ALL as PROTOCOLS, LISTEN};

/// The head of a ClientHello: all that a client sends before it waits.
const HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";

#[test]
fn a_client_of_another_protocol_gets_an_error_at_once_and_the_log_a_line() {
    let mut server = Start::default().listen(&LISTEN).serve_logged();
    for _ in 0..3 {
        for protocol in PROTOCOLS {
            for hello in [HELLO, &HELLO[..1]] {
                let mut client = server.client_of(protocol);
                client.send(hello);
                if protocol == "http" {
                    client.until(b"HTTP/1.1 400 Bad Request\r\n");
                    client.until(b"\r\n\r\n");
                } else {
                    client.expect(b"\x15\x03\x01\x00\x02\x02\x28");
                }
                client.expect_end();
            }
        }
    }
    assert!(server.terminate().success());
    let log = server.stderr_text();
    let about = |protocol: &str, what: &str| {
        let lines = log.lines().filter(|line| line.contains(what));
        lines.filter(|line| line.contains(protocol)).count()
    };
    for protocol in PROTOCOLS {
        assert_eq!(about(protocol, "speaks TLS"), 1, "{protocol}: {log}");
    }
}

/// Requests that a page of any site may have a browser send: headers and the body are the page's,
/// the body here a list of commands of every protocol that puts.
fn posts() -> Vec<Vec<u8>> {
    let commands = b"put 1 0 60 2\r\nhi\r\nset q 0 0 2\r\nhi\r\nPUSH 1 hi\r\n\
        push {\"q\":1}\r\n\x01\0\0\0\x01q\0\0\0\x02hi";
    let head = format!(
        "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\n\
         Content-Length: {}\r\nOrigin: http://elsewhere.example\r\n\r\n",
        commands.len()
    );
    let long = format!("GET /{} ", "a".repeat(9000));
    vec![
        [head.as_bytes(), commands].concat(),
        [b"OPTIONS * HTTP/1.0\n".as_slice(), commands].concat(),
        [long.as_bytes(), commands].concat(),
    ]
}

#[test]
fn a_web_page_puts_nothing() {
    let protocols = &PROTOCOLS[..5];
    let mut server = Start::default().listen(&LISTEN[..5]).serve_logged();
    let mut sent = 0;
    for protocol in protocols {
        for post in posts() {
            let mut client = server.client_of(protocol);
            client.try_send(&post);
            client.until(b"HTTP/1.0 400 Bad Request\r\n");
            client.until(b"not spoken on this port\n");
            sent += 1;
        }
        // However it is cut.
        let mut client = server.client_of(protocol);
        let line = b"POST /x HTTP/1.1\r\n";
        for byte in line {
            client.send(&[*byte]);
        }
        client.until(b"HTTP/1.0 400 Bad Request\r\n");
        client.until(b"not spoken on this port\n");
        client.expect_end();
        sent += 1;
    }
    server.await_number("connections_spoke_http", |count| count == sent);
    assert_eq!(server.number("total_puts"), 0);
    // What only begins like it is for the protocol to answer.
    let mut client = server.client_of("beanstalk");
    client.ask(
        b"DELETE /1\r\nput 1 0 60 2\r\nhi\r\n",
        b"UNKNOWN_COMMAND\r\nINSERTED 1\r\n",
    );
    assert!(server.terminate().success());
    let log = server.stderr_text();
    for protocol in protocols {
        let lines = log.lines().filter(|line| line.contains("speaks HTTP"));
        let about = lines.filter(|line| line.contains(&format!("{protocol} at")));
        assert_eq!(about.count(), 1, "{protocol}: {log}");
    }
}
