//! Go Job Queue on the real binary: replies that never leave, and lengths that
//! are only announced.

use std::time::{Duration, Instant};

use crate::common::{Client, Server, Start, noise, reserve};

/// Longer than a busy machine keeps a server from going on.
const QUIET: Duration = Duration::from_secs(3);

fn start(config: &str) -> Server {
    Start::of(config)
        .sync("never")
        .listen(&["memcache=0", "jobqueue=0"])
        .serve()
}

fn add(queue: &str, ttp: u32, data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(data.len()).expect("short");
    let numbers = [5, ttp, len].map(u32::to_le_bytes).concat();
    [b"ADD\0", queue.as_bytes(), b"\0", &numbers, data].concat()
}

fn add_all(client: &mut Client, queue: &str, count: usize, data: &[u8]) {
    for _ in 0..count {
        client.ask(&add(queue, 3600, data), b"ADDED\0");
        client.exact(8);
    }
}

/// A worker that dies without reading: jobs whose replies could not begin to
/// leave are there for others at once, the rest when their ttp is over.
#[test]
fn a_reservation_without_a_sent_reply_is_undone() {
    for shards in [1, 4] {
        let server = start(&format!("shards = {shards}"));
        let mut memcache = server.client();
        let mut client = server.client_of("jobqueue");
        // More than the system holds for a client that does not read.
        add_all(&mut client, "w", 400, &noise(60_000));
        let mut stuck = server.client_of("jobqueue");
        stuck.send(&reserve("w", 1).repeat(400));
        // As far as the server goes for one that does not read. That it goes no
        // further is no event: it is so when nothing happens for seconds.
        let (mut leases, mut since) = (0, Instant::now());
        while leases == 0 || since.elapsed() < QUIET {
            let now = server.queue_number("w", "total_leases");
            if now != leases {
                (leases, since) = (now, Instant::now());
            }
            std::thread::sleep(QUIET / 20);
        }
        assert!(leases < 400, "the system held all of it");
        drop(stuck);
        memcache.await_stat("curr_connections", |n| n == 2);
        // A server that was slow has gone on behind that look.
        let leases = server.queue_number("w", "total_leases");
        let delivered = server.queue_number("w", "reserved");
        assert_eq!(server.queue_number("w", "ready") + delivered, 400);
        assert!(delivered > 0, "what began to leave may have arrived");
        assert!(delivered < leases, "all {leases} are still reserved");
        // They stand where they stood.
        client.ask(&reserve("w", 1), b"RESERVED\0");
        let id = u64::from_le_bytes(client.exact(8).try_into().expect("an id"));
        // Without the shard's number, which stands above.
        let number = id & 0xffff_ffff;
        assert_eq!(number, delivered as u64 + 1);
    }
}

/// Announced lengths take no memory before their bytes are there.
#[test]
fn announced_lengths_take_no_memory() {
    let server = start("");
    let mut client = server.client_of("jobqueue");
    client.ask(b"CONNECT\0", b"OK\0");
    let before = resident_kib(&server);
    let clients: Vec<Client> = (0..100)
        .map(|n| {
            let mut client = server.client_of("jobqueue");
            // Half within the limit of 64 MiB, half at the most there is.
            let len = if n % 2 == 0 { 60_u32 << 20 } else { u32::MAX };
            let numbers = [5, 60, len].map(u32::to_le_bytes).concat();
            client.ask(
                &[b"CONNECT\0ADD\0w\0", &numbers[..], b"begin"].concat(),
                b"OK\0",
            );
            if n % 2 == 1 {
                client.expect(b"ERROR\0Job data too large\0");
                client.expect_end();
            }
            client
        })
        .collect();
    let after = resident_kib(&server);
    assert!(
        after < before + (32 << 10),
        "{before} KiB, then {after} KiB"
    );
    drop(clients);
    client.ask(&reserve("w", 1), b"TIMEOUT\0");
}

fn resident_kib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id()));
    let status = status.expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    number.and_then(|n| n.parse().ok()).expect("a size")
}
