//! Waits over HTTP end with whoever waits: with the client's side of the connection, and with
//! the server.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::api::{get, post};
use crate::common::{Client, PATIENCE, Server, Start, text};
use serde_json::json;

/// A poll is cut here if nothing ends it.
const STOP_WAIT_S: u64 = 60;

fn served(dir: &tempfile::TempDir, shards: u8) -> Server {
    let config = format!("stop_wait = \"{STOP_WAIT_S}s\"\nshards = {shards}\n");
    let start = Start {
        listen: &[
            "memcache=127.0.0.1:0",
            "beanstalk=127.0.0.1:0",
            "faktory=127.0.0.1:0",
            // Only the end of a client or of the server ends a wait in time.
            "http=127.0.0.1:0,timeout=1h",
            "sqs=127.0.0.1:0",
        ],
        config: Some(&config),
        ..Start::default()
    };
    Server::start_with(&dir.path().join("data"), start)
}

fn reserve(queue: &str, keep: &str) -> String {
    reserve_in(queue, keep, 60_000)
}

fn reserve_in(queue: &str, keep: &str, wait_ms: u64) -> String {
    let body = json!({"wait_ms": wait_ms, "lease_ms": 60_000}).to_string();
    format!(
        "POST /api/v1/queues/{queue}/reserve HTTP/1.1\r\nhost: localhost\r\nconnection: {keep}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A poll that waits, the only one.
fn poll(server: &Server, queue: &str) -> Client {
    let mut client = server.client_of("http");
    client.send(reserve(queue, "close").as_bytes());
    server.await_number("waiters", |waiters| waiters > 0);
    client
}

/// One that the system resets when it is dropped, as something of it is unread.
fn poll_that_resets(server: &Server, queue: &str) -> TcpStream {
    use std::io::Write as _;
    let mut client = TcpStream::connect(server.address_of("http")).expect("connected");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let first = "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";
    client.write_all(first.as_bytes()).expect("sent");
    client.peek(&mut [0]).expect("its answer is there");
    client
        .write_all(reserve(queue, "close").as_bytes())
        .expect("sent");
    server.await_number("waiters", |waiters| waiters > 0);
    client
}

#[test]
fn a_poll_whose_client_is_gone_takes_nothing() {
    for shards in [1, 4] {
        let dir = tempfile::tempdir().expect("a folder");
        let server = served(&dir, shards);
        let is_there = |body: &str| {
            server.await_number("waiters", |waiters| waiters == 0);
            let put = json!({"messages": [{ "body": body }]});
            assert_eq!(post(&server, "/queues/q/messages", &put).status, 201);
            let taken = post(&server, "/queues/q/reserve", &json!({"lease_ms": 60_000}));
            assert_eq!(
                taken.json["messages"][0]["body"], body,
                "nobody else got it"
            );
        };
        // It ends in good order, and by a reset.
        drop(poll(&server, "q"));
        is_there("closed");
        drop(poll_that_resets(&server, "q"));
        is_there("reset");
        // It says that it sends no more, and may still listen: it is told that there is nothing.
        let mut half = poll(&server, "q");
        half.half_close();
        let reply = text(&half.exact(usize::MAX));
        assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
        assert!(reply.contains("\"messages\":[]"), "{reply}");
        is_there("half closed");
    }
}

/// A client that sends its request and nothing more is answered: `nc -N` does so.
#[test]
fn a_request_whose_client_sends_nothing_more_is_answered() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = served(&dir, 1);
    let put = json!({"messages": [{"body": "x"}]}).to_string();
    let put = format!(
        "POST /api/v1/queues/q/messages HTTP/1.1\r\nhost: localhost\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{put}",
        put.len()
    );
    let show = "GET /api/v1/queues/q HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned();
    let page = "GET /queues/q HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned();
    for (request, status) in [
        (put, "201"),
        (show, "200"),
        (page, "200"),
        (reserve_in("q", "close", 0), "200"),
    ] {
        let mut client = server.client_of("http");
        client.send(request.as_bytes());
        client.half_close();
        let reply = text(&client.exact(usize::MAX));
        assert_eq!(reply.split(' ').nth(1), Some(status), "{request}: {reply}");
    }
    // The last one got the message, which is leased for it.
    assert_eq!(get(&server, "/queues/q").json["reserved"], 1);
}

/// Half a body is no request: its client is told so at once when it ends its side.
#[test]
fn half_a_body_of_a_client_that_is_gone_is_given_up() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = served(&dir, 1);
    let mut client = server.client_of("http");
    client.send(
        b"POST /api/v1/queues/q/messages HTTP/1.1\r\nhost: localhost\r\n\
          content-type: application/json\r\ncontent-length: 100\r\n\r\n{\"mess",
    );
    client.half_close();
    let reply = text(&client.exact(usize::MAX));
    assert!(reply.starts_with("HTTP/1.1 400 "), "{reply}");
    let asked = get(&server, "/queues/q");
    assert_eq!(asked.status, 404, "nothing was put");
}

#[test]
fn a_stop_answers_everybody_who_waits_at_once() {
    for shards in [1, 4] {
        let dir = tempfile::tempdir().expect("a folder");
        let server = served(&dir, shards);
        let mut poll = poll(&server, "q");
        let mut sqs = server.client_of("sqs");
        let make = "Action=CreateQueue&QueueName=s";
        let form = |body: &str| {
            format!(
                "POST / HTTP/1.1\r\nhost: localhost\r\n\
                 content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        sqs.send(form(make).as_bytes());
        sqs.until(b"</CreateQueueResponse>");
        let receive =
            "Action=ReceiveMessage&WaitTimeSeconds=20&QueueUrl=http://localhost/000000000000/s";
        sqs.send(form(receive).as_bytes());
        let mut beanstalk = server.client_of("beanstalk");
        beanstalk.send(b"watch b\r\nreserve-with-timeout 60\r\n");
        beanstalk.until(b"WATCHING 2\r\n");
        let mut memcache = server.client_of("memcache");
        memcache.send(b"get m/t=60000\r\n");
        // Beanstalk's waits in two tubes.
        server.await_number("waiters", |waiters| waiters == 5);
        // Half a head, and half a body of each kind.
        let mut halves: Vec<(Client, &str)> = Vec::new();
        for (request, answer) in [
            ("POST /api/v1/queues/q/messages HTTP/1.1\r\nhost: loc", ""),
            (
                "POST /api/v1/queues/q/messages HTTP/1.1\r\nhost: localhost\r\n\
                 content-type: application/json\r\ncontent-length: 100\r\n\r\n{\"mess",
                "HTTP/1.1 503 ",
            ),
            (
                "POST /q/x/new_message HTTP/1.1\r\nhost: localhost\r\n\
                 content-type: application/x-www-form-urlencoded\r\ncontent-length: 100\r\n\r\nmess",
                "HTTP/1.1 503 ",
            ),
        ] {
            let mut client = server.client_of("http");
            client.send(request.as_bytes());
            halves.push((client, answer));
        }
        let mut half = server.client_of("sqs");
        half.send(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nAction=Rec");
        halves.push((half, "HTTP/1.1 "));
        // The halves are known once there are as many connections.
        let known = |json: &serde_json::Value| json.as_array().map_or(0, Vec::len);
        let began = Instant::now();
        while known(&get(&server, "/connections").json) < 9 {
            assert!(
                began.elapsed() < PATIENCE,
                "{:?}",
                get(&server, "/connections").json
            );
        }

        let began = Instant::now();
        assert!(server.stop().success());
        let took = began.elapsed();
        assert!(
            took < Duration::from_secs(STOP_WAIT_S / 2),
            "it took {took:?}"
        );
        let reply = text(&poll.exact(usize::MAX));
        assert!(reply.contains("\"messages\":[]"), "{reply}");
        let reply = text(&sqs.exact(usize::MAX));
        assert!(
            reply.contains("<ReceiveMessageResult></ReceiveMessageResult>"),
            "{reply}"
        );
        assert_eq!(text(&beanstalk.exact(usize::MAX)), "TIMED_OUT\r\n");
        assert_eq!(text(&memcache.exact(usize::MAX)), "END\r\n");
        for (mut client, answer) in halves {
            let reply = text(&client.exact(usize::MAX));
            assert!(reply.starts_with(answer), "{reply}");
        }
    }
}
