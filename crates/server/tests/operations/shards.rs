//! Several shards, on the real binary: what one shard sends to a queue of
//! another.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::common::{Data, Server, Start};
use quintet_types::shard_of_queue;

const SHARDS: usize = 4;

/// Starts with four shards, as many I/O threads and more configuration.
fn start(data: &Path, more: &str) -> Server {
    start_with(data, "50ms", more)
}

fn start_with(data: &Path, sync: &str, more: &str) -> Server {
    let config = format!("shards = {SHARDS}\nio_threads = 4\nlog_level = \"warn\"\n{more}");
    Start::of(&config).sync(sync).serve_at(data)
}

/// A queue name that begins with `stem` and lives in this shard.
fn name_in(shard: usize, stem: &str) -> String {
    (0..)
        .map(|n| format!("{stem}{n}"))
        .find(|name| shard_of_queue(name.as_bytes(), SHARDS) == shard)
        .expect("names go everywhere")
}

/// Settings that send what was tried once from each queue to the next.
fn dead_letters(rules: &[(&str, &str)]) -> String {
    rules
        .iter()
        .map(|(from, to)| {
            format!("[[queue]]\nname = \"{from}\"\nattempts_max = 1\ndead_letter = \"{to}\"\n")
        })
        .collect()
}

#[test]
fn dead_letters_go_to_a_queue_of_another_shard() {
    let data = Data::fresh();
    // Up and down the order in which shards are locked.
    let work: Vec<String> = (0..SHARDS).map(|shard| name_in(shard, "work")).collect();
    let dead: Vec<String> = (0..SHARDS)
        .map(|shard| name_in((shard + 1) % SHARDS, "dead"))
        .collect();
    let rules: Vec<(&str, &str)> = work
        .iter()
        .zip(&dead)
        .map(|(work, dead)| (work.as_str(), dead.as_str()))
        .collect();
    let server = start(&data, &dead_letters(&rules));
    let mut client = server.client();
    for (work, dead) in &rules {
        for body in ["first", "second", "third"] {
            client.put(work, body.as_bytes());
        }
        client.put(work, &crate::common::noise(100_000));
        for body in ["first", "second"] {
            client.send(format!("get {work}/open\r\n").as_bytes());
            client.expect_value(work, body.as_bytes());
            client.ask(format!("get {work}/abort\r\n").as_bytes(), b"END\r\n");
        }
        // At once, as in one shard: no reply was awaited in between.
        client.take(dead, b"first");
    }
    server.kill();

    let server = start(&data, &dead_letters(&rules));
    let mut client = server.client();
    for (work, dead) in &rules {
        client.take(dead, b"second");
        client.take_nothing(dead);
        client.take(work, b"third");
        client.send(format!("get {work}/open\r\n").as_bytes());
        client.expect_value(work, &crate::common::noise(100_000));
    }
    // A connection that is lost gives back what it had opened.
    drop(client);
    let mut client = server.client();
    for (work, dead) in &rules {
        client.send(format!("get {dead}/t=120000\r\n").as_bytes());
        client.expect_value(dead, &crate::common::noise(100_000));
        client.take_nothing(work);
    }
    assert_eq!(client.stat("curr_items"), 0);
    assert!(server.stop().success());
}

#[test]
fn expired_messages_wake_a_consumer_in_another_shard() {
    let data = Data::fresh();
    let (brief, late) = (name_in(3, "brief"), name_in(1, "late"));
    let rule = format!("[[queue]]\nname = \"{brief}\"\nttl = \"50ms\"\nexpire_to = \"{late}\"\n");
    let server = start(&data, &rule);
    let (mut consumer, mut putter) = (server.client(), server.client());
    consumer.send(format!("get {late}/t=120000\r\n").as_bytes());
    putter.put(&brief, b"too late");
    consumer.expect_value(&late, b"too late");
    putter.take_nothing(&brief);
    assert!(server.stop().success());
}

/// Kills the server again and again while messages go from shard to shard;
/// each is found once in the end.
#[test]
fn dead_letters_survive_kills_on_their_way() {
    const ROUNDS: usize = 12;
    const EACH: usize = 5;
    let data = Data::fresh();
    let work: Vec<String> = (0..SHARDS).map(|shard| name_in(shard, "work")).collect();
    let dead = name_in(0, "dead");
    let rules: Vec<(&str, &str)> = work
        .iter()
        .map(|work| (work.as_str(), dead.as_str()))
        .collect();
    let rules = dead_letters(&rules);
    let mut expected = Vec::new();
    for round in 0..ROUNDS {
        let server = start_with(&data, "always", &rules);
        let mut holders = Vec::new();
        for work in &work {
            for n in 0..EACH {
                let body = format!("{work} {round} {n}");
                let mut holder = server.client();
                holder.put(work, body.as_bytes());
                holder.send(format!("get {work}/open\r\n").as_bytes());
                holder.expect_value(work, body.as_bytes());
                expected.push(body);
                holders.push(holder);
            }
        }
        // Some are given up just before the kill, the rest by the next start,
        // which is killed as soon as it is ready.
        holders.truncate(round * holders.len() / ROUNDS);
        server.kill();
        start_with(&data, "always", &rules).kill();
    }
    let server = start_with(&data, "always", &rules);
    let mut client = server.client();
    client.await_stat(&format!("queue_{dead}_items"), |items| {
        items == expected.len() as u64
    });
    let mut found = Vec::new();
    for _ in 0..expected.len() {
        client.send(format!("get {dead}\r\n").as_bytes());
        let item = crate::common::text(&client.until(b"END\r\n"));
        found.push(item.lines().nth(1).unwrap_or_default().to_owned());
    }
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(client.stat("curr_items"), 0);
    assert!(server.stop().success());
}

/// A connection to the API on the control socket, which takes from several queues.
struct Consumer(BufReader<UnixStream>);

impl Consumer {
    fn new(server: &Server) -> Self {
        let stream = UnixStream::connect(server.data.join("quintet.sock")).expect("connected");
        stream
            .set_read_timeout(Some(crate::common::PATIENCE))
            .expect("a timeout");
        Self(BufReader::new(stream))
    }

    fn ask(&mut self, queues: &[String], wait_ms: u64) {
        let queues = queues.join("\",\"");
        let take = format!("{{\"queues\":[\"{queues}\"],\"wait_ms\":{wait_ms}}}");
        let request = format!(
            "POST /api/v1/take HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{take}",
            take.len()
        );
        let sent = self.0.get_mut().write_all(request.as_bytes());
        sent.expect("sent");
    }

    /// The message, if there was one.
    fn answer(&mut self) -> Option<String> {
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("an answer in time");
            match line.to_lowercase().trim_end().split_once(": ") {
                Some(("content-length", digits)) => length = digits.parse().expect("a length"),
                None if line == "\r\n" => break,
                _ => {}
            }
        }
        let mut reply = vec![0; length];
        self.0.read_exact(&mut reply).expect("a reply");
        let reply = crate::common::text(&reply);
        let (line, body) = reply.split_once('\n').expect("a line");
        (!line.ends_with("\"messages\":[]}")).then(|| body.to_owned())
    }
}

#[test]
fn consumers_over_all_shards_get_everything_once() {
    const CONSUMERS: usize = 6;
    const EACH: usize = 150;
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir.path().join("data"), "");
    let queues: Vec<String> = (0..SHARDS).map(|shard| name_in(shard, "q")).collect();
    let consumers: Vec<_> = (0..CONSUMERS)
        .map(|first| {
            let mut consumer = Consumer::new(&server);
            // Each in an order of its own, some from fewer shards.
            let mut queues = queues.clone();
            queues.rotate_left(first % SHARDS);
            queues.truncate(SHARDS - first % 2);
            std::thread::spawn(move || {
                let mut got = Vec::new();
                loop {
                    consumer.ask(&queues, 20_000);
                    match consumer.answer() {
                        Some(end) if end == "end" => return got,
                        Some(body) => got.push(body),
                        None => panic!("waited in vain after {got:?}"),
                    }
                }
            })
        })
        .collect();
    let putters: Vec<_> = queues
        .iter()
        .map(|queue| {
            let (mut client, queue) = (server.client(), queue.clone());
            std::thread::spawn(move || {
                for n in 0..EACH {
                    client.put(&queue, format!("{queue} {n}").as_bytes());
                }
            })
        })
        .collect();
    for putter in putters {
        putter.join().expect("all are put");
    }
    // What is there comes before what is put from here on, in each queue. One
    // that every consumer asks for ends them one by one.
    let last = queues.iter().find(|queue| {
        (0..CONSUMERS).all(|first| {
            let mut queues = queues.clone();
            queues.rotate_left(first % SHARDS);
            queues.truncate(SHARDS - first % 2);
            queues.contains(queue)
        })
    });
    let last = last.expect("a queue of all").clone();
    let mut client = server.client();
    client.await_stat("curr_items", |items| items == 0);
    for _ in 0..CONSUMERS {
        client.put(&last, b"end");
    }
    let mut got: Vec<String> = Vec::new();
    for consumer in consumers {
        got.extend(consumer.join().expect("a taker that ends"));
    }
    let mut expected: Vec<String> = queues
        .iter()
        .flat_map(|queue| (0..EACH).map(move |n| format!("{queue} {n}")))
        .collect();
    got.sort_unstable();
    expected.sort_unstable();
    assert_eq!(got, expected);
    // Nobody stands in any line any more.
    for queue in &queues {
        assert_eq!(client.stat(&format!("queue_{queue}_waiters")), 0);
    }
    assert!(server.stop().success());
}

#[test]
fn the_first_put_over_all_shards_is_taken_first() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir.path().join("data"), "");
    let queues: Vec<String> = (0..SHARDS).map(|shard| name_in(shard, "q")).collect();
    let mut consumer = Consumer::new(&server);
    consumer.ask(&queues, 0);
    assert_eq!(consumer.answer(), None);
    let priority = |queue: &str, priority: &str, text: &str| {
        let put = server.run(&["put", "--priority", priority, queue, text]);
        assert!(put.status.success(), "{}", crate::common::text(&put.stderr));
    };
    priority(&queues[1], "5", "first of 5");
    priority(&queues[0], "9", "first of 9");
    priority(&queues[3], "5", "second of 5");
    priority(&queues[2], "1", "of 1");
    for body in ["of 1", "first of 5", "second of 5", "first of 9"] {
        consumer.ask(&queues, 0);
        assert_eq!(consumer.answer().as_deref(), Some(body));
    }
    // A wait that ends, and one that its client gives up.
    consumer.ask(&queues, 20);
    assert_eq!(consumer.answer(), None);
    consumer.ask(&queues, 60_000);
    let mut client = server.client();
    // Known as soon as it is asked for, once somebody stands in its line.
    let waiters = format!("queue_{}_waiters", queues[2]);
    client.await_stat(&waiters, |waiters| waiters == 1);
    drop(consumer);
    client.await_stat(&waiters, |waiters| waiters == 0);
    client.put(&queues[2], b"left alone");
    client.take(&queues[2], b"left alone");
    assert!(server.stop().success());
}
