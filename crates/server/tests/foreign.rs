//! Clients that speak something else: answered or closed at once, and told of
//! in the log once for each listener.

mod common;

use std::fs::File;

use common::{Server, Start};

const VOICES: [&str; 6] = [
    "memcache",
    "lineup",
    "jobqueue",
    "beanstalk",
    "pinpriq",
    "http",
];

/// The head of a ClientHello: all that a client sends before it waits.
const HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";

#[test]
fn who_speaks_something_else_is_told_so_at_once_and_the_log_once() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let listen = VOICES.map(|voice| format!("{voice}=127.0.0.1:0"));
    let start = Start {
        listen: &listen.each_ref().map(String::as_str),
        ..Start::default()
    };
    let mut command = Server::command(&folder.path().join("data"), &start);
    command.stderr(File::create(&log).unwrap());
    let server = Server::await_ready(&folder.path().join("data"), command);
    for _ in 0..3 {
        for voice in VOICES {
            for hello in [HELLO, &HELLO[..1]] {
                let mut client = server.client_of(voice);
                client.send(hello);
                if voice == "http" {
                    client.until(b"HTTP/1.1 400 Bad Request\r\n");
                    client.until(b"\r\n\r\n");
                } else {
                    client.expect(b"\x15\x03\x01\x00\x02\x02\x28");
                }
                client.expect_end();
            }
        }
        let mut client = server.client_of("memcache");
        client.send(b"\x80");
        client.expect(b"\x81");
        client.until(b"text protocol only");
        client.expect_end();
    }
    assert!(server.stop().success());
    let log = std::fs::read_to_string(log).unwrap();
    let about = |voice: &str, what: &str| {
        let lines = log.lines().filter(|line| line.contains(what));
        lines.filter(|line| line.contains(voice)).count()
    };
    for voice in VOICES {
        assert_eq!(about(voice, "speaks TLS"), 1, "{voice}: {log}");
    }
    assert_eq!(about("memcache at", "binary protocol"), 1, "{log}");
}
