//! pinpriq on the real binary: beside other protocols, over several shards, and
//! with subscribers that vanish.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::thread;

use crate::common::{Client, Server, Start, named, noise, text};

const LISTEN: &[&str] = &["memcache=127.0.0.1:0", "pinpriq=127.0.0.1:0"];

fn start(config: &str) -> Server {
    Start::of(config).sync("never").listen(LISTEN).serve()
}

fn len(bytes: &[u8]) -> [u8; 2] {
    u16::try_from(bytes.len()).expect("short").to_be_bytes()
}

fn push(queue: &str, priority: u8, key: &[u8], payload: &[u8]) -> Vec<u8> {
    let name = queue.as_bytes();
    let head = [&[0x70][..], &len(name), &[0, 0, priority]].concat();
    [&head, &len(key)[..], &len(payload), key, payload, name].concat()
}

fn pop(queue: &str) -> Vec<u8> {
    named(0x50, queue)
}

/// A group as the server sends it.
fn group(packets: &[(&[u8], &[u8])]) -> Vec<u8> {
    let count = u16::try_from(packets.len()).expect("few").to_be_bytes();
    let packets = packets
        .iter()
        .map(|(key, payload)| [&len(key)[..], &len(payload), key, payload].concat());
    [count.to_vec(), packets.collect::<Vec<_>>().concat()].concat()
}

/// All that was sent before has been decided.
#[track_caller]
fn settle(client: &mut Client) {
    client.ask(&pop("nothing here"), &group(&[]));
}

#[test]
fn bodies_that_cannot_be_framed_are_skipped_and_counted() {
    let server = start("");
    let mut memcache = server.client();
    let long = noise(65_536);
    memcache.put("w", &long);
    let mut client = server.client_of("pinpriq");
    client.ask(&pop("w"), &group(&[]));
    // What another protocol put has no key, and is in no group.
    memcache.put("w", b"one");
    memcache.put("w", &noise(65_535));
    client.ask(&pop("w"), &group(&[(b"", &noise(65_535))]));
    client.send(&named(0x73, "w"));
    client.ask(&[0x41, 0x41], &group(&[(b"", b"one")]));
    let stats = text(&server.run(&["stats", "w", "--json"]).stdout);
    assert!(!stats.contains("\"total_skipped\":0"), "{stats}");
    memcache.take("w", &long);
}

#[test]
fn pushes_that_are_dropped_are_counted() {
    let config = "[[queue]]\nname = 'full'\nmessages_max = 1";
    let server = start(config);
    let mut client = server.client_of("pinpriq");
    for payload in [b"1", b"2", b"3"] {
        client.send(&push("full", 1, b"k", payload));
    }
    client.send(&push("", 1, b"k", b"no queue"));
    client.ask(&pop("full"), &group(&[(b"k", b"1")]));
    let stats = text(&server.run(&["stats", "--json"]).stdout);
    for counter in [
        "\"pinpriq_cmd_push\":4",
        "\"pinpriq_pushes_dropped\":3",
        "\"pinpriq_pop_hits\":1",
    ] {
        assert!(stats.contains(counter), "{counter}: {stats}");
    }
}

/// Also of a subscriber that is not ready.
#[test]
fn subscriptions_are_memory_of_their_connection() {
    let server = start("");
    let mut client = server.client_of("pinpriq");
    let named = |verb: u8| {
        let each = (0..40).map(|n| named(verb, &format!("{n:01000}")));
        each.collect::<Vec<_>>().concat()
    };
    client.send(&named(0x73));
    settle(&mut client);
    server.await_number("connections_memory_bytes", |bytes| bytes >= 40_000);
    client.send(&named(0x75));
    settle(&mut client);
    server.await_number("connections_memory_bytes", |bytes| bytes < 40_000);
}

/// A group whose first byte never left goes back whole, in its order.
#[test]
fn a_group_for_a_subscriber_that_is_gone_goes_back() {
    for shards in [1, 4] {
        let server = start(&format!("shards = {shards}"));
        let mut memcache = server.client();
        let mut client = server.client_of("pinpriq");
        // More than the system holds for a client that does not read.
        client.send(&push("w", 1, b"k", &noise(60_000)).repeat(400));
        settle(&mut client);
        let mut stuck = server.client_of("pinpriq");
        stuck.send(&named(0x73, "q"));
        stuck.send(&[0x41]);
        settle(&mut stuck);
        // Ready, and then stuck behind a group that it does not read.
        stuck.send(&pop("w"));
        memcache.await_stat("queue_w_items", |n| n == 0);
        client.send(&push("q", 0, b"k", b"companion"));
        client.send(&push("q", 7, b"k", b"selected"));
        client.send(&push("q", 9, b"k", b"behind it"));
        settle(&mut client);
        // The first push of a priority was delivered, with what was there.
        let left = text(&server.run(&["stats", "q", "--json"]).stdout);
        assert!(left.contains("\"ready\":1"), "{left}");
        assert!(left.contains("\"not_selectable\":0"), "{left}");
        drop(stuck);
        memcache.await_stat("queue_q_items", |n| n == 3);
        client.send(&pop("q"));
        let all: &[(&[u8], &[u8])] = &[
            (b"k", b"selected"),
            (b"k", b"behind it"),
            (b"k", b"companion"),
        ];
        client.expect(&group(all));
    }
}

#[test]
fn a_subscriber_that_is_ready_is_not_idle() {
    let config = "[[listen]]\nprotocol = 'pinpriq'\naddress = 0\nidle = '4s'";
    let server = Start::of(config).serve_as_configured();
    let mut ready = server.client();
    ready.send(&named(0x73, "q"));
    ready.send(&[0x41]);
    settle(&mut ready);
    let mut idle = server.client();
    idle.send(&named(0x73, "q"));
    settle(&mut idle);
    idle.expect_end();
    server.client().send(&push("q", 1, b"k", b"came"));
    ready.expect(&group(&[(b"k", b"came")]));
    // Now it is.
    ready.expect_end();
}

/// Reads one group of one packet; its key.
fn key_of_one(client: &mut Client) -> Vec<u8> {
    let head = client.exact(6);
    let [0, 1, k0, k1, 0, 0] = head[..] else {
        panic!("no group of one without payload: {head:?}");
    };
    client.exact(u16::from_be_bytes([k0, k1]).into())
}

/// Over queues of several shards the best packet comes first.
#[test]
fn a_subscription_over_shards_goes_by_priority() {
    let server = start("shards = 4");
    let mut client = server.client_of("pinpriq");
    for n in 1..=8_u8 {
        client.send(&push(&format!("q{n}"), 9 - n, &[n], b""));
    }
    settle(&mut client);
    for n in 1..=8 {
        client.send(&named(0x73, &format!("q{n}")));
    }
    for n in (1..=8_u8).rev() {
        client.send(&[0x41]);
        assert_eq!(key_of_one(&mut client), [n]);
    }
}

/// Subscribers over all shards, which change their subscriptions while packets
/// come: each packet reaches one of them, and nobody waits in vain.
#[test]
fn every_packet_reaches_one_subscriber() {
    const SUBSCRIBERS: usize = 8;
    const PACKETS: usize = 1500;
    const QUEUES: usize = 8;
    for shards in [1, 4] {
        let config = format!("shards = {shards}\nio_threads = 3");
        let server = start(&config);
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            for number in 0..SUBSCRIBERS {
                let (server, sender) = (&server, sender.clone());
                scope.spawn(move || subscribe(server, number, QUEUES, &sender));
            }
            let mut client = server.client_of("pinpriq");
            for n in 0..PACKETS {
                let queue = format!("q{}", n % QUEUES);
                client.send(&push(
                    &queue,
                    (n % 3 + 1) as u8,
                    n.to_string().as_bytes(),
                    b"",
                ));
            }
            let mut seen = BTreeSet::new();
            for _ in 0..PACKETS {
                let key: Vec<u8> = receiver
                    .recv_timeout(crate::common::PATIENCE)
                    .expect("a packet");
                assert!(seen.insert(key), "a packet came twice");
            }
            for n in 0..SUBSCRIBERS {
                let key = format!("stop {n}");
                client.send(&push("stop", 1, key.as_bytes(), b""));
            }
            settle(&mut client);
        });
    }
}

/// Takes packets, one for each ready byte, until one says stop.
fn subscribe(server: &Server, number: usize, queues: usize, sender: &mpsc::Sender<Vec<u8>>) {
    let mut client = server.client_of("pinpriq");
    client.send(&named(0x73, "stop"));
    for queue in 0..queues {
        client.send(&named(0x73, &format!("q{queue}")));
    }
    for turn in number.. {
        let changed = format!("q{}", turn % queues);
        let mut frames = named(0x75, &changed);
        frames.push(0x41);
        frames.extend(named(0x73, &changed));
        if turn % 3 == 0 {
            frames.extend(named(0x75, &changed));
            frames.extend(named(0x73, &changed));
        }
        client.send(&frames);
        let key = key_of_one(&mut client);
        if key.starts_with(b"stop") {
            return;
        }
        sender.send(key).expect("the test listens");
    }
}
