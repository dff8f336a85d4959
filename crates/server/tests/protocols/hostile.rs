//! Clients that take more than their share, and what others notice of them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Client, Server, Start, noise};
use serde_json::json;

const BUDGET: u64 = 8 << 20;

fn tight() -> Server {
    Start::of("connection_memory = '8MiB'\nsync = '50ms'\n").serve()
}

/// Somebody who does nothing special, beside others who do.
fn goes_on(server: &Server) {
    let mut good = server.client();
    for n in 0..100 {
        let body = format!("message {n}");
        good.put("good", body.as_bytes());
        good.take("good", body.as_bytes());
    }
}

/// Beside these clients: some are closed, others go on, and in the end nothing is left.
fn keeps_to_the_budget(server: &Server, greedy: Vec<Client>) {
    goes_on(server);
    server.await_number("connections_closed_for_memory", |n| n >= 1);
    server.await_number("connections_memory_bytes", |n| n <= BUDGET);
    goes_on(server);
    drop(greedy);
    server.await_number("connections_memory_bytes", |n| n == 0);
    goes_on(server);
}

#[test]
fn half_sent_bodies_keep_to_the_budget() {
    let server = tight();
    let body = noise(60_000);
    let mut greedy = Vec::new();
    for _ in 0..400 {
        let mut client = server.client();
        client.try_send(b"set w 0 0 60000\r\n");
        client.try_send(&body[..50_000]);
        greedy.push(client);
    }
    keeps_to_the_budget(&server, greedy);
}

#[test]
fn unread_replies_keep_to_the_budget() {
    let server = tight();
    server.client().put("w", &noise(60_000));
    let peeks = b"get w/peek\r\n".repeat(200);
    let mut greedy = Vec::new();
    for _ in 0..60 {
        let mut client = server.client();
        client.try_send(&peeks);
        greedy.push(client);
    }
    keeps_to_the_budget(&server, greedy);
}

/// The places of a take in the lines of many queues are memory of its connection while it waits.
#[test]
fn places_in_line_are_counted() {
    let server = Start::default()
        .listen(&["memcache=0", "beanstalk=0", "http=0"])
        .serve();
    let names: Vec<String> = (0..1000).map(|n| format!("q{n}")).collect();
    let used = || server.number("connections_memory_bytes");
    let mut client = server.client_of("beanstalk");
    for name in &names {
        client.send(format!("watch {name}\r\n").as_bytes());
        client.until(b"\r\n");
    }
    let watches = used();
    client.send(b"reserve\r\n");
    server.await_number("connections_memory_bytes", |now| now > watches + 90_000);
    client.half_close();
    client.expect(b"TIMED_OUT\r\n");
    server.await_number("connections_memory_bytes", |now| now <= watches);
    drop(client);
    server.await_number("connections_memory_bytes", |now| now < 20_000);
    let body = json!({"queues": names, "wait_ms": 60_000}).to_string();
    let mut client = server.client_of("http");
    let take = format!(
        "POST /api/v1/take HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.send(take.as_bytes());
    server.await_number("connections_memory_bytes", |now| now > 90_000);
    drop(client);
    server.await_number("connections_memory_bytes", |now| now < 20_000);
}

/// Queues with long names, so that listings of them are long.
fn many_queues(server: &Server, count: usize) {
    let mut client = server.client();
    for from in (0..count).step_by(500) {
        let mut puts = Vec::new();
        for n in from..from + 500 {
            puts.extend(format!("set {} 0 0 1\r\nx\r\n", listed(n)).bytes());
        }
        client.ask(&puts, &b"STORED\r\n".repeat(500));
    }
}

fn listed(n: usize) -> String {
    format!("{:a>100}", format!("-{n}"))
}

/// A listing is made as it is read, so a client that reads none of it takes
/// little; others do not wait for it.
#[test]
fn unread_listings_keep_to_the_budget() {
    let server = Start::of("connection_memory = '8MiB'\nsync = '50ms'\n")
        .listen(&["memcache=0", "beanstalk=0"])
        .serve();
    many_queues(&server, 5000);
    let mut greedy = Vec::new();
    for n in 0..20 {
        let mut client = server.client();
        client.try_send(if n % 2 == 0 {
            b"stats\r\n"
        } else {
            b"dump_stats\r\n"
        });
        greedy.push(client);
        let mut client = server.client_of("beanstalk");
        client.try_send(&b"list-tubes\r\n".repeat(20));
        greedy.push(client);
    }
    keeps_to_the_budget(&server, greedy);
}

/// Pages of a listing are of different moments, and what is there all the time
/// is in it once.
#[test]
fn listings_are_whole_while_queues_come_and_go() {
    let server = Start::of("shards = 2\nsync = '50ms'\n")
        .listen(&["memcache=0", "beanstalk=0"])
        .serve();
    many_queues(&server, 2000);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = server.client();
            for n in 0.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let name = format!("passing{}", n % 700);
                client.put(&name, b"x");
                client.send(format!("delete {name}\r\n").as_bytes());
                client.until(b"\r\n");
            }
        });
        let all: BTreeSet<String> = (0..2000).map(listed).collect();
        for _ in 0..2 {
            let stays = |name: &&str| !name.starts_with("passing") && *name != "default";
            let once = |names: Vec<&str>| {
                let stay: Vec<&str> = names.into_iter().filter(stays).collect();
                assert_eq!(stay.len(), all.len());
                assert!(stay.iter().all(|name| all.contains(*name)));
                assert_eq!(stay.iter().collect::<BTreeSet<_>>().len(), all.len());
            };
            let mut client = server.client();
            client.send(b"stats\r\n");
            let text = String::from_utf8(client.until(b"END\r\n")).unwrap();
            let items = text.lines().filter_map(|line| {
                let (name, _) = line.strip_prefix("STAT queue_")?.split_once("_items ")?;
                (!name.contains('_')).then_some(name)
            });
            once(items.collect());
            client.send(b"dump_stats\r\n");
            let text = String::from_utf8(client.until(b"END\r\n")).unwrap();
            let names = text.lines().filter_map(|line| line.strip_prefix("queue '"));
            once(names.filter_map(|line| line.strip_suffix("' {")).collect());
            let mut client = server.client_of("beanstalk");
            client.send(b"list-tubes\r\n");
            let head = String::from_utf8(client.until(b"\r\n")).unwrap();
            let len = head.trim().strip_prefix("OK ").unwrap().parse().unwrap();
            let text = String::from_utf8(client.exact(len)).unwrap();
            client.expect(b"\r\n");
            let names = text.lines().filter_map(|line| line.strip_prefix("- "));
            once(names.collect());
            client.send(b"stats\r\n");
            let text = String::from_utf8(client.until(b"id: ")).unwrap();
            let tubes = text.lines().find_map(|l| l.strip_prefix("current-tubes: "));
            assert!(tubes.unwrap().parse::<usize>().unwrap() > 2000);
            let listing = server.run(&["queues", "--json"]).stdout;
            let listing = String::from_utf8(listing).unwrap();
            let queues = listing.lines().map(|line| {
                let queue: serde_json::Value = serde_json::from_str(line).unwrap();
                queue["name"].as_str().unwrap().to_owned()
            });
            let queues: Vec<String> = queues.collect();
            assert!(queues.is_sorted());
            once(queues.iter().map(String::as_str).collect());
        }
        over.store(true, Ordering::Relaxed);
    });
}

/// HTTP has no memory of its own.
#[test]
fn http_keeps_to_the_budget() {
    let server = Start::of(
        "connection_memory = '8MiB'\nsync = '50ms'\nwebhook_hosts = 'localhost'\n\
                 [[listen]]\nprotocol = 'memcache'\naddress = '127.0.0.1:0'\n\
                 [[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\nmax_form = '4MiB'\n",
    )
    .serve_as_configured();
    let post = |server: &Server, len: usize| {
        let mut client = server.client_of("http");
        let head = format!(
            "POST /q/webhook/new_message HTTP/1.1\r\nHost: localhost\r\n\
             Content-Type: application/json\r\nContent-Length: {len}\r\n\r\n"
        );
        client.send(head.as_bytes());
        client.try_send(&noise(3_000_000));
        client
    };
    let mut greedy: Vec<Client> = (0..2).map(|_| post(&server, 3_500_000)).collect();
    server.await_number("connections_memory_bytes", |n| n >= 6_000_000);
    for _ in 0..5 {
        post(&server, 3_500_000).until(b"connection_memory");
    }
    server.await_number("connections_closed_for_memory", |n| n >= 5);
    goes_on(&server);
    greedy.clear();
    server.await_number("connections_memory_bytes", |n| n == 0);
}

/// Connections that say nothing, or half a head, make way for who speaks.
#[test]
fn silent_connections_keep_no_probe_out() {
    // Without making way they would stay for an hour.
    let server = Start::of(
        "sync = '50ms'\n[[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\n\
                 timeout = '1h'\n",
    )
    .serve_as_configured();
    let probe = |path: &str| {
        let mut client = server.client_of("http");
        client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        client.until(b"HTTP/1.1 200 OK\r\n");
        client
    };
    let mut silent: Vec<Client> = Vec::new();
    // One that asks and then keeps its place is as silent.
    silent.extend((0..20).map(|_| probe("/healthz")));
    for n in 0..500 {
        let mut client = server.client_of("http");
        client.try_send(&b"GET / HT"[..n % 9]);
        silent.push(client);
    }
    for path in ["/healthz", "/readyz", "/healthz"] {
        probe(path);
    }
    assert!(server.run(&["stats"]).status.success());
}

/// Watched tubes and labels of workers count as connection memory while the server keeps them.
#[test]
fn watched_tubes_and_labels_of_workers_are_counted() {
    let server = Start::of("").listen(&["beanstalk=0", "faktory=0"]).serve();
    let mut watches = server.client_of("beanstalk");
    let tube = |n: usize| format!("{n}-{}", "x".repeat(190));
    for n in 0..500 {
        watches.ask(
            format!("watch {}\r\n", tube(n)).as_bytes(),
            format!("WATCHING {}\r\n", n + 2).as_bytes(),
        );
    }
    server.await_number("connections_memory_bytes", |n| n > 500 * 190);
    let mut worker = server.client_of("faktory");
    worker.until(b"\r\n");
    let labels = vec![format!("\"{}\"", "y".repeat(250)); 32].join(",");
    let hello = format!("HELLO {{\"v\":2,\"wid\":\"w\",\"labels\":[{labels}]}}\r\n");
    worker.ask(hello.as_bytes(), b"+OK\r\n");
    server.await_number("connections_memory_bytes", |n| n > 500 * 190 + 32 * 250);
    for n in 0..500 {
        watches.send(format!("ignore {}\r\n", tube(n)).as_bytes());
    }
    watches.until(b"WATCHING 1\r\n");
    server.await_number("connections_memory_bytes", |n| {
        n < 500 * 190 && n > 32 * 250
    });
    drop(worker);
    server.await_number("connections_memory_bytes", |n| n == 0);
    server.stop();
}

/// Near the bound, who holds something waits, and goes on when others left.
#[test]
fn a_client_that_waits_for_memory_continues() {
    let server = tight();
    let body = noise(60_000);
    let half = |server: &Server| {
        let mut client = server.client();
        client.send(b"set w 0 0 60000\r\n");
        client.send(&body[..50_000]);
        client
    };
    let mut clients: Vec<Client> = (0..20).map(|_| half(&server)).collect();
    server.await_number("connections_memory_bytes", |n| n >= 20 * 50_000);
    for client in &mut clients {
        client.send(&body[50_000..]);
        client.send(b"\r\n");
    }
    for client in &mut clients {
        client.expect(b"STORED\r\n");
    }
    assert_eq!(server.number("connections_closed_for_memory"), 0);
}

#[test]
fn an_address_without_a_connection_gets_one_and_so_does_an_operator() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let unix = format!("memcache=unix:{}", socket.display());
    let server = Start::of("connections_max = 3\n")
        .listen(&["memcache=0", &unix])
        .serve_at(&dir.path().join("data"));
    let mut first = server.client();
    let mut others = [server.client(), server.client()];
    first.put("w", b"one");
    others[0].put("w", b"two");
    others[1].put("w", b"three");
    server.client().expect_end();
    server.await_number("connections_refused", |n| n == 1);
    let mut elsewhere = Client::unix(&socket);
    elsewhere.take("w", b"one");
    Client::unix(&socket).expect_end();
    drop(first);
    others[0].take("w", b"two");
}

#[test]
fn uploads_keep_to_their_share_of_the_disk_and_end_with_their_connection() {
    let server = Start::of("upload_bytes_max = '1MiB'\n").serve();
    let body = noise(1 << 20);
    let mut first = server.client();
    first.send(b"set w 0 0 600000\r\n");
    first.send(&body[..400_000]);
    server.await_number("connections_upload_bytes", |n| n == 600_000);
    let mut second = server.client();
    let put = |client: &mut Client| {
        client.send(b"set w 0 0 500000\r\n");
        client.send(&body[..500_000]);
        client.send(b"\r\n");
    };
    put(&mut second);
    let refused = crate::common::text(&second.until(b"\r\n"));
    assert!(refused.contains("disk full"), "{refused}");
    server.await_number("connections_uploads_refused", |n| n == 1);
    drop(first);
    server.await_number("connections_upload_bytes", |n| n == 0);
    // What a body was refused to is closed.
    let mut second = server.client();
    put(&mut second);
    second.expect(b"STORED\r\n");
    // One alone may be longer than all together.
    second.send(b"set w 0 0 1048577\r\n");
    second.send(&body);
    second.ask(b"x\r\n", b"STORED\r\n");
}
