//! Limits of one address or one user at once, over real sockets.

use std::time::{Duration, Instant};

use quintet_auth::NewToken;
use rustix::process::Signal;

use crate::common::{Client, PATIENCE, Server, Start, await_that, eventually, page, text};
use crate::tls::LISTEN;

fn start(config: &str) -> Server {
    Start::of(config).listen(&LISTEN).serve()
}

/// Each address of this machine may use so much.
fn here(limits: &str) -> String {
    format!("[[limit]]\naddress = '127.0.0.0/8'\n{limits}\n")
}

/// Connects until the server lets it in: sends this and receives that.
fn comes_in(server: &Server, protocol: &str, words: &str, reply: &str) -> Client {
    eventually("it comes in", || {
        let mut client = server.client_of(protocol);
        client.try_send(words.as_bytes());
        let output = client.exact(reply.len());
        (output == reply.as_bytes()).then_some(client)
    })
}

#[test]
fn one_connection_too_many_is_refused_in_its_protocol_s_words() {
    let server = start(&here("connections_max = 2"));
    let mut first = server.client_of("memcache");
    first.put("q", b"hi");
    let mut second = server.client_of("beanstalk");
    second.ask(b"use q\r\n", b"USING q\r\n");
    let why = "too many connections from this address";
    for (protocol, reply) in [
        ("memcache", format!("SERVER_ERROR {why}\r\n")),
        ("lineup", format!("-{why}\r\n")),
        ("jobqueue", format!("ERROR\0{why}\0")),
        ("beanstalk", "OUT_OF_MEMORY\r\n".to_owned()),
        ("pinpriq", String::new()),
    ] {
        let mut third = server.client_of(protocol);
        third.expect(reply.as_bytes());
        third.expect_end();
    }
    let (status, body) = page(&server, "/healthz");
    assert_eq!((status, body), (429, format!("429 - {why}")));
    server.await_number("limit_refusals_connections_address", |n| n == 6);
    // Others are unharmed, operators too, and a place that is free is given.
    first.take("q", b"hi");
    drop(second);
    let mut third = comes_in(&server, "memcache", "get q\r\n", "END\r\n");
    third.put("q", b"hi");
    // Another number counts from the next connection on.
    server.configure(&here("connections_max = 3"));
    server.signal(Signal::HUP);
    comes_in(
        &server,
        "memcache",
        "get q\r\n",
        "VALUE q 0 2\r\nhi\r\nEND\r\n",
    );
    assert!(server.stop().success());
}

/// A client that sends faster than its rate is answered at that rate, all of it and in order, also
/// behind an end of its stream.
#[test]
fn requests_over_the_rate_wait() {
    let server = start(&here("requests_per_second = 20\nrequests_burst = 10"));
    let began = Instant::now();
    let mut clients = [(); 3].map(|()| server.client_of("memcache"));
    for client in &mut clients {
        client.send(&b"set q 0 0 2\r\nhi\r\n".repeat(10));
        client.send(&b"get q\r\n".repeat(10));
        client.half_close();
    }
    for client in &mut clients {
        client.expect(&b"STORED\r\n".repeat(10));
        client.until(b"END\r\n");
        while !client.some().is_empty() {}
    }
    // 60 requests, of which 10 come at once. It may take longer, never less.
    let least = Duration::from_millis(50 * (60 - 10));
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
    assert!(server.number("limit_delays_address") > 0);
    assert_eq!(server.number("limit_refusals_requests_address"), 0);
    server.stop();
}

#[test]
fn http_gets_retry_after() {
    let server = start(&here("requests_per_second = 1\nrequests_burst = 1"));
    let began = Instant::now();
    let mut waiting = Vec::new();
    while server.number("limit_refusals_requests_address") == 0 {
        let mut client = server.client_of("http");
        client.send(b"GET /q.json HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        waiting.push(client);
        assert!(began.elapsed() < PATIENCE);
    }
    let replies = waiting
        .iter_mut()
        .map(|client| text(&client.until(b"\r\n\r\n")));
    let (fine, refused): (Vec<_>, Vec<_>) =
        replies.partition(|head| head.starts_with("HTTP/1.1 200 "));
    assert!(!fine.is_empty() && !refused.is_empty());
    for head in refused {
        let head = head.to_lowercase();
        assert!(head.starts_with("http/1.1 429 "), "{head}");
        assert!(head.contains("\r\nretry-after: "), "{head}");
    }
    // Whoever asks whether it lives does not wait.
    assert_eq!(page(&server, "/healthz").0, 200);
    server.stop();
}

/// Many half requests hold no more than their address may; a client that is closed
/// gets the reason, and a client that holds nothing goes on.
#[test]
fn bytes_in_flight_are_bounded_by_address() {
    let server = start(&here("bytes_in_flight_max = '1MiB'"));
    let mut halves: Vec<Client> = (0..40)
        .map(|_| {
            let mut client = server.client_of("memcache");
            client.send(b"set q 0 0 60000\r\n");
            client.try_send(&[b'x'; 59_999]);
            client
        })
        .collect();
    server.await_number("limit_refusals_bytes_in_flight_address", |n| n > 0);
    server.await_number("connections_memory_bytes", |bytes| bytes <= 1 << 20);
    server.client_of("memcache").put("other", b"hi");
    let mut reply = 0;
    for client in &mut halves {
        client.try_send(b"x\r\n");
        let output = text(&client.some());
        match output.as_str() {
            "STORED\r\n" => {}
            "SERVER_ERROR too many bytes in flight from this address\r\n" => reply += 1,
            // It was written to after it was closed.
            "" => {}
            other => panic!("{other}"),
        }
    }
    assert!(reply > 0, "no client got the reason");
    server.client_of("memcache").take("other", b"hi");
    server.stop();
}

/// What came behind a request that waits is memory of its connection, the replies to it too.
#[test]
fn requests_behind_one_that_waits_are_counted() {
    let config = "[[listen]]\nprotocol = 'memcache'\naddress = 0\n[[listen]]\n\
                  protocol = 'faktory'\naddress = 0\nfetch_wait_ms = 10000";
    let server = Start::of(config).serve_as_configured();
    let mut memcache = server.client();
    let mut client = server.client_of("faktory");
    client.expect(b"+HI {\"v\":2}\r\n");
    client.ask(b"HELLO {\"v\":2}\r\n", b"+OK\r\n");
    // Short enough to come in one piece.
    let behind = "x".repeat(20_000);
    client.send(format!("FETCH w\r\nACK {behind}\r\n").as_bytes());
    memcache.await_stat("queue_w_waiters", |n| n == 1);
    let held = server.number("connections_memory_bytes");
    assert!(held >= 20_000, "{held} bytes");
    client.expect(b"$-1\r\n-ERR invalid ACK ");
    client.expect(format!("{behind}\r\n").as_bytes());
    server.await_number("connections_memory_bytes", |bytes| bytes < 20_000);
}

/// A body over HTTP that does not fit is refused, what it holds is given back,
/// and a protocol's half requests count in the same limit.
#[test]
fn bodies_over_http_count_as_bytes_in_flight() {
    let server = start(&here("bytes_in_flight_max = '1MiB'"));
    let asks = |bytes: usize| {
        let mut client = server.client_of("http");
        let head = format!(
            "POST /api/v1/queues/q/messages HTTP/1.1\r\nhost: localhost\r\n\
             content-type: application/json\r\ncontent-length: {bytes}\r\n\
             connection: close\r\n\r\n"
        );
        client.send(head.as_bytes());
        client
    };
    let body = |bytes: usize| {
        let (begin, end) = ("{\"messages\":[{\"body\":\"", "\"}]}");
        let filled = "x".repeat(bytes - begin.len() - end.len());
        format!("{begin}{filled}{end}").into_bytes()
    };
    let whole = 700_000;
    let mut half = asks(whole);
    half.send(&body(whole)[..whole - 1]);
    server.await_number("connections_memory_bytes", |bytes| bytes > 650_000);
    let mut other = asks(whole);
    other.try_send(&body(whole));
    let head = text(&other.until(b"\r\n\r\n")).to_lowercase();
    assert!(head.starts_with("http/1.1 429 "), "{head}");
    assert!(head.contains("\r\nretry-after: "), "{head}");
    server.await_number("limit_refusals_bytes_in_flight_address", |n| n > 0);
    half.send(b"}");
    assert!(text(&half.until(b"\r\n")).starts_with("HTTP/1.1 201 "));
    let mut after = asks(whole);
    after.send(&body(whole));
    assert!(text(&after.until(b"\r\n")).starts_with("HTTP/1.1 201 "));
    server.stop();
}

#[test]
fn failed_logins_count_against_their_address() {
    let users = "[[user]]\nname = 'ann'\n";
    let server = start(&format!("{}{users}", here("failures_per_minute = 3")));
    let mut tries = server.client_of("lineup");
    for _ in 0..3 {
        tries.ask(b"auth ann wrong\r\n", b"-NOT_PERMITTED\r\n");
    }
    let mut next = server.client_of("lineup");
    next.expect(b"-too many logins or handshakes from this address have failed\r\n");
    next.expect_end();
    server.await_number("limit_refusals_failures_address", |n| n == 1);
    server.stop();
}

#[test]
fn a_user_has_limits_wherever_it_logs_in() {
    let token = NewToken::of([2; 32]);
    let config = format!(
        "[[user]]\nname = 'ann'\ntokens = ['{}']\n[[user]]\nname = 'cyd'\n\
         [[grant]]\nuser = 'ann'\nqueues = ['*']\nrights = ['put', 'take']\n\
         [[limit]]\nuser = '*'\nconnections_max = 1\n\
         [[listen]]\nprotocol = 'jobqueue'\nuser = 'cyd'\n",
        token.id.show()
    );
    let server = start(&config);
    let login = format!("auth ann {}\r\n", token.text);
    let mut ann = comes_in(&server, "lineup", &login, "+OK\r\n");
    let mut more = server.client_of("beanstalk");
    more.ask(login.as_bytes(), b"TOO_MANY_CONNECTIONS\r\n");
    let mut cyd = server.client_of("jobqueue");
    cyd.ask(b"CONNECT\0", b"OK\0");
    let mut other = server.client_of("jobqueue");
    other.expect(b"ERROR\0too many connections of this user\0");
    other.expect_end();
    server.await_number("limit_refusals_connections_user", |n| n == 2);
    // The connection that was refused goes on, and may log in later.
    ann.send(b"PUSH 2 hi\r\n");
    ann.until(b"\r\n");
    drop(ann);
    await_that("it may log in", || {
        more.send(login.as_bytes());
        more.until(b"\r\n") == b"OK\r\n"
    });
    server.stop();
}

/// Puts over the API; its status, and what it says.
fn put_over_http(server: &Server, queue: &str, body: &str) -> (u16, String) {
    let json = format!("{{\"messages\":[{{\"body\":\"{body}\"}}]}}");
    let mut client = server.client_of("http");
    client.send(
        format!(
            "POST /api/v1/queues/{queue}/messages HTTP/1.1\r\nHost: localhost\r\n\
             Connection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{json}",
            json.len()
        )
        .as_bytes(),
    );
    let output = client.all();
    let status = output.get(9..12).and_then(|status| status.parse().ok());
    (status.expect("a status"), output)
}

/// A put over memcache is answered so, and the connection closed.
fn refused(server: &Server, queue: &str, bytes: usize, why: &str) {
    let mut client = server.client_of("memcache");
    client.send(format!("set {queue} 0 0 {bytes}\r\n{}\r\n", "x".repeat(bytes)).as_bytes());
    client.expect(format!("SERVER_ERROR {why}\r\n").as_bytes());
}

#[test]
fn a_user_makes_so_many_queues_and_stores_so_much_also_after_a_restart() {
    let user = |name: &str| {
        format!(
            "[[user]]\nname = '{name}'\n[[grant]]\nuser = '{name}'\nqueues = ['*']\n\
             rights = ['put', 'take', 'settle', 'admin']\n"
        )
    };
    let config = |queues: u64| {
        let listen = ["memcache", "beanstalk", "http"]
            .map(|protocol| format!("[[listen]]\nprotocol = '{protocol}'\nuser = 'ann'\n"))
            .concat();
        format!(
            "shards = 4\n{}{}\
             [[limit]]\nuser = 'ann'\nqueues_max = {queues}\nbytes_stored_max = 100\n{listen}\
             [[listen]]\nprotocol = 'lineup'\nuser = 'cyd'\n",
            user("ann"),
            user("cyd")
        )
    };
    let server = start(&config(3));
    let mut ann = server.client_of("memcache");
    let forty = "x".repeat(40);
    for queue in ["q1", "q2"] {
        ann.put(queue, forty.as_bytes());
    }
    // Bytes: in whichever shard the queue is, over every protocol.
    refused(&server, "q1", 21, "too many bytes stored by this user");
    let (status, output) = put_over_http(&server, "q2", &"y".repeat(21));
    assert_eq!(status, 507, "{output}");
    assert!(output.contains("\"code\":\"user_bytes\""), "{output}");
    assert_eq!(put_over_http(&server, "q3", "z").0, 201);
    // Queues.
    let (status, output) = put_over_http(&server, "q4", "z");
    assert_eq!(status, 429, "{output}");
    assert!(output.contains("\"code\":\"user_queues\""), "{output}");
    refused(&server, "q4", 1, "too many queues of this user");
    let mut tube = server.client_of("beanstalk");
    tube.send(b"use q4\r\nput 0 0 60 1\r\nz\r\n");
    let output = [tube.until(b"\r\n"), tube.until(b"\r\n")].concat();
    assert!(output.ends_with(b"OUT_OF_MEMORY\r\n"), "{}", text(&output));
    assert!(server.number("memcache_refusals_user_queues") > 0);
    // Others make their own.
    let mut cyd = server.client_of("lineup");
    cyd.send(b"PUSH 1 2\r\nhi\r\n");
    let output = cyd.until(b"\r\n");
    assert!(output.starts_with(b"+"), "{}", text(&output));

    let server = server.kill_and_start(Start::of(&config(3)).listen(&LISTEN));
    let mut ann = server.client_of("memcache");
    refused(&server, "q4", 1, "too many queues of this user");
    refused(&server, "q1", 21, "too many bytes stored by this user");
    ann.take("q1", forty.as_bytes());
    ann.put("q3", forty.as_bytes());
    ann.send(b"delete q2\r\n");
    ann.until(b"\r\n");
    ann.put("q4", b"z");
    // Another limit counts at once.
    server.configure(&config(4));
    server.signal(Signal::HUP);
    await_that("the new limit does not count", || {
        let mut ann = server.client_of("memcache");
        ann.send(b"set q5 0 0 1\r\nz\r\n");
        ann.until(b"\r\n") == b"STORED\r\n"
    });
    refused(&server, "q6", 1, "too many queues of this user");
    server.stop();
}
