//! Receivers of webhooks that do not answer.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use crate::common::{PATIENCE, Server, Start, eventually};

/// Messages for a receiver that hangs: more than are looked at for others, and than there are
/// workers.
const HANGING: usize = 300;

fn put(server: &Server, url: &str) {
    let body = format!("{{\"param1\": \"{url}\", \"param2\": \"{{}}\"}}");
    let mut client = server.client_of("http");
    client.send(
        format!(
            "POST /q/webhook/new_message HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .as_bytes(),
    );
    let reply = client.exact(usize::MAX);
    assert!(
        reply.starts_with(b"HTTP/1.1 200 "),
        "{}",
        String::from_utf8_lossy(&reply)
    );
}

/// True if its client has not closed it.
fn is_open(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("set");
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

#[test]
fn a_receiver_that_hangs_stops_no_other_s_webhooks() {
    let dir = tempfile::tempdir().expect("a folder");
    let config = "webhook_hosts = \"127.0.0.1\"\n";
    let start = Start {
        listen: &["memcache=127.0.0.1:0", "http=127.0.0.1:0"],
        config: Some(config),
        ..Start::default()
    };
    let server = Server::start_with(&dir.path().join("data"), start);
    let [hangs, answers] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let url = |of: &TcpListener| format!("http://{}/", of.local_addr().expect("an address"));
    for _ in 0..HANGING {
        put(&server, &url(&hangs));
    }
    // It is being told.
    for listener in [&hangs, &answers] {
        listener.set_nonblocking(true).expect("set");
    }
    let mut held = vec![eventually("a try", || hangs.accept().ok()).0];
    put(&server, &url(&answers));
    let (mut connection, _) = eventually("the other webhook is called", || answers.accept().ok());
    connection
        .set_read_timeout(Some(PATIENCE))
        .expect("a timeout");
    let mut byte = [0];
    connection.read_exact(&mut byte).expect("a request");
    let reply = "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";
    connection.write_all(reply.as_bytes()).expect("answered");
    while let Ok((stream, _)) = hangs.accept() {
        held.push(stream);
    }
    let open = held.iter().filter(|stream| is_open(stream)).count();
    assert!(open <= 2, "{open} tries at once of a receiver that hangs");
}
