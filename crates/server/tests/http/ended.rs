//! Waits over HTTP end with their client: with the client's side of the connection, and with
//! the server.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::api::{get, post};
use crate::common::{Client, PATIENCE, Server, Start, await_that, text, tls};
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
fn poll_that_resets(server: &Server, request: &str) -> TcpStream {
    use std::io::Write as _;
    let mut client = TcpStream::connect(server.address_of("http")).expect("connected");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let first = "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";
    client.write_all(first.as_bytes()).expect("sent");
    client.peek(&mut [0]).expect("its answer is there");
    client.write_all(request.as_bytes()).expect("sent");
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
                "no other client got it"
            );
        };
        // It ends in good order, and by a reset.
        drop(poll(&server, "q"));
        is_there("closed");
        drop(poll_that_resets(&server, &reserve("q", "close")));
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

/// A take over several queues, a reserve and a receive, in the clear and under TLS: whatever comes
/// the moment after their client is gone is there for others.
#[test]
fn messages_after_the_end_of_a_client_are_there_for_others() {
    for shards in [1, 4] {
        let dir = tempfile::tempdir().expect("a folder");
        let listen = |protocol: &str, tls: &str| {
            format!("[[listen]]\nprotocol = '{protocol}'\naddress = '127.0.0.1:0'\n{tls}\n")
        };
        let secret = "tls = 'self-signed'";
        let config = format!(
            "shards = {shards}\n{}{}{}{}",
            listen("http", ""),
            listen("http", secret),
            listen("sqs", ""),
            listen("sqs", secret)
        );
        let data = dir.path().join("data");
        let server = Server::start_as_configured(&data, Start::of(&config));
        let trusts = quintet_tls::client_config(&quintet_tls::ClientFiles {
            ca: Some(data.join(quintet_tls::CERTIFICATE)),
            shown: None,
        });
        let trusts = trusts.expect("the server's certificate");
        let form = |body: &str| {
            format!(
                "POST / HTTP/1.1\r\nhost: localhost\r\n\
                 content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        let mut sqs = server.client_of("sqs");
        sqs.send(form("Action=CreateQueue&QueueName=q").as_bytes());
        sqs.until(b"</CreateQueueResponse>");
        let body = json!({"queues": ["a", "q", "b"], "wait_ms": 60_000}).to_string();
        let take = format!(
            "POST /api/v1/take HTTP/1.1\r\nhost: localhost\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let receive = "Action=ReceiveMessage&WaitTimeSeconds=20&VisibilityTimeout=60&\
                       QueueUrl=http://localhost/000000000000/q";
        for (protocol, request) in [
            ("http", take),
            ("http", reserve("q", "keep-alive")),
            ("sqs", form(receive)),
        ] {
            for (is_secret, resets) in [(false, false), (false, true), (true, false), (true, true)]
            {
                let address = server.addresses_of(protocol).nth(usize::from(is_secret));
                let address = address.expect("a listener");
                let (mut client, socket): (Box<dyn std::io::Write>, _) = match is_secret {
                    false => {
                        let plain = TcpStream::connect(address).expect("connected");
                        let socket = plain.try_clone().expect("a socket");
                        (Box::new(plain), socket)
                    }
                    true => {
                        let under_tls = tls(address, trusts.clone());
                        let socket = under_tls.sock.try_clone().expect("a socket");
                        (Box::new(under_tls), socket)
                    }
                };
                client.write_all(request.as_bytes()).expect("sent");
                client.flush().expect("sent");
                server.await_number("waiters", |waiters| waiters > 0);
                let how = format!("{shards} {is_secret} {resets} {request}");
                if resets {
                    // Closed with nothing lingering, it is reset.
                    let none = Some(Duration::ZERO);
                    rustix::net::sockopt::set_socket_linger(&socket, none).expect("set");
                }
                drop((client, socket));
                let put = json!({"messages": [{"body": "x"}]});
                assert_eq!(post(&server, "/queues/q/messages", &put).status, 201);
                let asks = json!({"wait_ms": 20_000, "lease_ms": 60_000});
                let taken = post(&server, "/queues/q/reserve", &asks);
                let message = &taken.json["messages"][0];
                assert_eq!(message["body"], "x", "{how}");
                let finish = format!("/leases/{}/finish", message["lease"].as_str().expect("one"));
                assert_eq!(post(&server, &finish, &json!({})).status, 204);
                server.await_number("waiters", |waiters| waiters == 0);
            }
        }
    }
}

/// Nobody reads the bytes behind a poll while it waits, and its end is seen behind them.
#[test]
fn a_poll_with_bytes_behind_it_ends_with_its_client() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = served(&dir, 1);
    let poll = reserve("q", "keep-alive");
    let body = json!({"queues": ["q"], "wait_ms": 60_000}).to_string();
    let take = format!(
        "POST /api/v1/take HTTP/1.1\r\nhost: localhost\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let is_there = |requested: &str| {
        server.await_number("waiters", |waiters| waiters == 0);
        let put = json!({"messages": [{"body": "1"}, {"body": "2"}]});
        assert_eq!(post(&server, "/queues/q/messages", &put).status, 201);
        let asks = json!({"lease_ms": 60_000, "max": 10});
        let taken = post(&server, "/queues/q/reserve", &asks);
        let taken = taken.json["messages"].as_array().map(Vec::len);
        assert_eq!(taken, Some(2), "another client got one: {requested}");
    };
    for (first, behind) in [
        (&poll, &*poll),
        (&poll, "GET /he"),
        (&poll, "\r\n\r\nG"),
        (&take, &*take),
    ] {
        let requested = format!("{first}{behind}");
        let mut client = server.client_of("http");
        client.send(requested.as_bytes());
        server.await_number("waiters", |waiters| waiters > 0);
        drop(client);
        is_there(&requested);
        drop(poll_that_resets(&server, &requested));
        is_there(&requested);
    }
    // It still listens.
    let mut half = server.client_of("http");
    half.send(format!("{poll}{}", reserve("q", "close")).as_bytes());
    server.await_number("waiters", |waiters| waiters > 0);
    half.half_close();
    let replies = text(&half.exact(usize::MAX));
    assert_eq!(replies.matches("\"messages\":[]").count(), 2, "{replies}");
    is_there("half closed");

    let form = |body: &str| {
        format!(
            "POST / HTTP/1.1\r\nhost: localhost\r\n\
             content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let mut sqs = server.client_of("sqs");
    sqs.send(form("Action=CreateQueue&QueueName=s").as_bytes());
    sqs.until(b"</CreateQueueResponse>");
    let receive =
        "Action=ReceiveMessage&WaitTimeSeconds=20&QueueUrl=http://localhost/000000000000/s";
    for behind in [&*form(receive), "GET /he"] {
        let mut sqs = server.client_of("sqs");
        sqs.send(format!("{}{behind}", form(receive)).as_bytes());
        server.await_number("waiters", |waiters| waiters > 0);
        let began = Instant::now();
        drop(sqs);
        server.await_number("waiters", |waiters| waiters == 0);
        assert!(began.elapsed() < Duration::from_secs(19), "{behind}");
    }
}

/// A reserve that is sent again while it waits goes on in the newer request alone.
#[test]
fn a_repeat_takes_the_place_of_a_reserve_that_waits() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = served(&dir, 1);
    let keyed = |queue: &str| {
        let line = "\r\nidempotency-key: k\r\nconnection";
        reserve(queue, "close").replacen("\r\nconnection", line, 1)
    };
    let mut first = server.client_of("http");
    first.send(keyed("q").as_bytes());
    server.await_number("waiters", |waiters| waiters == 1);
    let mut elsewhere = server.client_of("http");
    elsewhere.send(keyed("r").as_bytes());
    server.await_number("waiters", |waiters| waiters == 2);
    let mut again = server.client_of("http");
    again.send(keyed("q").as_bytes());
    let began = Instant::now();
    let reply = text(&first.exact(usize::MAX));
    assert!(began.elapsed() < Duration::from_secs(50), "its time ended");
    assert!(reply.contains("\"messages\":[]"), "{reply}");
    server.await_number("waiters", |waiters| waiters == 2);
    let put = json!({"messages": [{"body": "1"}, {"body": "2"}]});
    assert_eq!(post(&server, "/queues/q/messages", &put).status, 201);
    let reply = text(&again.exact(usize::MAX));
    assert!(reply.contains("\"body\":\"1\""), "{reply}");
    let shown = get(&server, "/queues/q").json;
    assert_eq!(
        (&shown["ready"], &shown["reserved"]),
        (&json!(1), &json!(1))
    );
    drop(elsewhere);
}

/// Heads that leave open for whom or under which key a request is.
#[test]
fn a_request_has_one_host_and_at_most_one_key() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = served(&dir, 1);
    let two_keys = "connection: close\r\nidempotency-key: a\r\nidempotency-key: b\r\n";
    let two_keys = reserve_in("q", "close", 0).replacen("connection: close\r\n", two_keys, 1);
    for (protocol, request, status) in [
        ("http", "GET /api/v1/queues HTTP/1.1\r\n\r\n", "400"),
        ("sqs", "GET /?Action=ListQueues HTTP/1.1\r\n\r\n", "400"),
        ("http", "GET /api/v1/queues HTTP/1.0\r\n\r\n", "200"),
        ("http", &two_keys, "400"),
    ] {
        let mut client = server.client_of(protocol);
        client.send(request.as_bytes());
        let reply = text(&client.exact(usize::MAX));
        assert_eq!(reply.split(' ').nth(1), Some(status), "{request}: {reply}");
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

/// Half a body is no request: its client gets an error at once when it ends its side.
#[test]
fn half_a_body_of_a_client_that_is_gone_is_discarded() {
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
    let requested = get(&server, "/queues/q");
    assert_eq!(requested.status, 404, "nothing was put");
}

#[test]
fn a_stop_answers_all_waiting_clients_at_once() {
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
        await_that("nine connections", || {
            known(&get(&server, "/connections").json) >= 9
        });

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

/// A wait for a result or an event has an answer of its own, and a stream its end.
#[test]
fn a_stop_answers_reads_that_wait() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = served(&dir, 1);
    let put = json!({"messages": [{"body": "x"}]});
    let put = post(&server, "/queues/q/messages", &put);
    let id = put.json["ids"][0].as_u64().expect("an id");
    let reads = [
        (format!("/messages/{id}/result?wait_ms=60000"), "200"),
        ("/events?since=now&wait_ms=60000".to_owned(), "200"),
        ("/events".to_owned(), "200"),
    ];
    let requested = reads.map(|(path, status)| {
        let mut client = server.client_of("http");
        let request = format!("GET /api/v1{path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        client.send(request.as_bytes());
        (client, path, status)
    });
    let busy = |json: &serde_json::Value| json.to_string().matches("GET /api/v1/").count();
    // With the one that asks.
    await_that("all wait", || busy(&get(&server, "/connections").json) >= 4);
    let began = Instant::now();
    assert!(server.stop().success());
    let took = began.elapsed();
    assert!(
        took < Duration::from_secs(STOP_WAIT_S / 2),
        "it took {took:?}"
    );
    for (mut client, path, status) in requested {
        let reply = text(&client.exact(usize::MAX));
        assert_eq!(reply.split(' ').nth(1), Some(status), "{path}: {reply}");
    }
}

/// The server does not wait for a client that reads nothing of a long reply.
#[test]
fn a_stop_gives_up_clients_that_do_not_read() {
    for protocol in ["http", "memcache"] {
        let dir = tempfile::tempdir().expect("a folder");
        let server = served(&dir, 1);
        // More than sockets hold.
        server.client().put("q", "x".repeat(10 << 20).as_bytes());
        let id = get(&server, "/queues/q/messages").json["messages"][0]["id"].to_string();
        let mut client = server.client_of(protocol);
        match protocol {
            "http" => {
                let path = format!("/api/v1/messages/{id}/body");
                let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
                client.send(request.as_bytes());
            }
            _ => client.send(b"get q\r\n"),
        }
        let unread = |client: &serde_json::Value| client["unread_bytes"].as_u64() > Some(0);
        await_that("something waits for the client", || {
            let clients = get(&server, "/connections").json;
            clients
                .as_array()
                .is_some_and(|clients| clients.iter().any(unread))
        });
        let began = Instant::now();
        assert!(server.stop().success());
        let took = began.elapsed();
        assert!(
            took < Duration::from_secs(STOP_WAIT_S / 2),
            "{protocol}: it took {took:?}"
        );
        drop(client);
    }
}

/// Nothing else would give the message of a worker that is gone to another.
#[test]
fn a_lease_has_the_time_of_its_queue_and_a_minute_where_that_has_none() {
    let dir = tempfile::tempdir().expect("a folder");
    let start = Start {
        listen: &["http=127.0.0.1:0"],
        config: Some(
            "[[queue]]\nname = 'work'\ndefault_ttr = '0'\n\
             [[queue]]\nname = 'short'\ndefault_ttr = '10s'\n",
        ),
        ..Start::default()
    };
    let server = Server::start_with(&dir.path().join("data"), start);
    let put = json!({"messages": [{"body": "x"}]});
    // A millisecond more, as both ends are rounded.
    for (queue, time) in [("work", 10_002..=60_001), ("short", 1..=10_001)] {
        let path = |verb: &str| format!("/queues/{queue}/{verb}");
        assert_eq!(post(&server, &path("messages"), &put).status, 201);
        let taken = post(&server, &path("reserve"), &json!({})).json;
        assert_eq!(taken["messages"].as_array().map(Vec::len), Some(1));
        let leases = get(&server, &path("leases")).json;
        let left = leases["leases"][0]["left_ms"].as_u64();
        assert!(left.is_some_and(|left| time.contains(&left)), "{leases}");
    }
}
