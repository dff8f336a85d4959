//! Names and settings of queues, with which every file of the log begins: they
//! have a bound, and beyond it nothing is written for ever, a stop ends, and
//! an operator can clean up.

use crate::common::{Data, Server, Start, text};

const LISTEN: &[&str] = &[
    "memcache=127.0.0.1:0",
    "beanstalk=127.0.0.1:0",
    "jobqueue=127.0.0.1:0",
    "pinpriq=127.0.0.1:0",
];

fn start(data: &std::path::Path, sync: &str, config: &str) -> Server {
    Start::of(config).sync(sync).listen(LISTEN).serve_at(data)
}

fn len(bytes: &[u8]) -> [u8; 2] {
    u16::try_from(bytes.len()).expect("short").to_be_bytes()
}

fn push(queue: &[u8]) -> Vec<u8> {
    let head = [&[0x70][..], &len(queue), &[0, 0, 1, 0, 0, 0, 1]].concat();
    [&head[..], b"x", queue].concat()
}

fn name(number: usize, len: usize) -> Vec<u8> {
    let mut name = format!("{number:06}").into_bytes();
    name.resize(len, b'n');
    name
}

fn number(stats: &str, key: &str) -> u64 {
    let start = format!("\"{key}\":");
    let (_, after) = stats.split_once(start.as_str()).expect(key);
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("digits")
}

/// Names that no longer fit into a segment together: every frame began another
/// segment with all of them again, also when nobody asked for anything, and
/// neither a stop nor a restart ended it.
#[test]
fn names_longer_than_a_segment_are_not_written_for_ever() {
    for (sync, shards) in [("always", 1), ("never", 1), ("always", 2)] {
        let data = Data::fresh();
        let config = format!(
            "segment_bytes = '4MiB'\nsnapshot_bytes_max = '32MiB'\nlog_bytes = '8MiB'\n\
             shards = {shards}\n"
        );
        let server = start(&data, sync, &config);
        let mut client = server.client_of("pinpriq");
        let mut sent = 0;
        for number in 0..150 {
            let push = push(&name(number, 65_000));
            client.send(&push);
            sent += push.len() as u64;
        }
        client.ask(&[0x50, 0, 1, b'z'], &[0, 0]);
        let stats = text(&server.run(&["stats", "--json"]).stdout);
        assert_eq!(number(&stats, "queues"), 150, "{sync} {shards}");
        let written = number(&stats, "log_written_bytes");
        assert!(written < 3 * sent, "{sync}: {written} bytes for {sent}");
        // A restart finds all of it in one segment, of which it is the most.
        assert!(server.stop().success());
        let server = start(&data, sync, &config);
        let mut memcache = server.client();
        for _ in 0..50 {
            memcache.put("small", b"x");
            memcache.take("small", b"x");
        }
        let stats = text(&server.run(&["stats", "--json"]).stdout);
        let written = number(&stats, "log_written_bytes");
        // The one that ends with the first frame, and its snapshot.
        assert!(written < 11 << 20, "{sync}: {written} bytes");
        // Under a bound it is over, it is served, cleaned, and stops.
        assert!(server.stop().success());
        let config = config.replace("32MiB", "0");
        let server = start(&data, sync, &config);
        let mut memcache = server.client();
        memcache.ask(b"set new 0 0 1\r\nx\r\n", b"SERVER_ERROR snapshot full\r\n");
        let mut client = server.client_of("pinpriq");
        let pop = [&[0x50][..], &len(&name(3, 65_000)), &name(3, 65_000)].concat();
        client.ask(&pop, &[0, 1, 0, 0, 0, 1, b'x']);
        let tried = text(&server.run(&["drop", "0*", "--dry-run"]).stdout);
        assert_eq!(
            tried,
            "1 queue would be dropped, with 0 messages\n149 more queues hold messages: \
             --messages drops them too\n"
        );
        let dropped = text(&server.run(&["drop", "0*"]).stdout);
        assert!(dropped.starts_with("1 queue dropped, with 0 messages\n"));
        let dropped = text(&server.run(&["drop", "0*", "--messages", "--json"]).stdout);
        assert_eq!(number(&dropped, "queues"), 149);
        assert_eq!(number(&dropped, "messages"), 149);
        let mut memcache = server.client();
        memcache.put("new", b"x");
        // What there was to begin a segment with is gone from the disk too.
        memcache.await_stat("log_bytes", |bytes| bytes < 4 << 20);
        assert!(server.stop().success());
    }
}

#[test]
fn every_protocol_says_that_the_snapshot_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let config = "snapshot_bytes_max = '4KiB'\n[[queue]]\nname = 'there'\n";
    let server = start(&dir.path().join("data"), "never", config);
    let mut memcache = server.client();
    memcache.put("there", b"x");
    let mut stored = 0;
    loop {
        memcache.send(format!("set q{stored} 0 0 1\r\nx\r\n").as_bytes());
        match &memcache.until(b"\r\n")[..] {
            b"STORED\r\n" => stored += 1,
            refused => {
                assert_eq!(refused, b"SERVER_ERROR snapshot full\r\n");
                break;
            }
        }
        assert!(stored < 100);
    }
    let mut memcache = server.client();
    memcache.ask(b"get q0+child\r\n", b"SERVER_ERROR snapshot full\r\n");
    let mut beanstalk = server.client_of("beanstalk");
    beanstalk.ask(b"use new\r\n", b"OUT_OF_MEMORY\r\n");
    beanstalk.ask(b"watch new\r\n", b"OUT_OF_MEMORY\r\n");
    let mut jobqueue = server.client_of("jobqueue");
    let add = [
        &b"ADD\0new\0"[..],
        &[5, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0],
        b"x",
    ];
    jobqueue.ask(&add.concat(), b"ERROR\0Snapshot full\0");
    let mut pinpriq = server.client_of("pinpriq");
    pinpriq.send(&push(b"new"));
    pinpriq.ask(&[0x50, 0, 1, b'z'], &[0, 0]);
    let refused = server.run(&["put", "new", "x"]);
    let why = text(&refused.stderr);
    assert!(why.starts_with("quintet: snapshot full: "), "{why}");
    // What is there is served.
    let mut memcache = server.client();
    memcache.put("there", b"y");
    let stats = text(&server.run(&["stats", "--json"]).stdout);
    assert!(number(&stats, "snapshot_bytes") <= 4096);
    assert!(server.stop().success());
}
