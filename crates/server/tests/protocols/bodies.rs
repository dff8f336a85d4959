//! Large items: streamed in, streamed out, found again, moved with their
//! segments.

use std::path::Path;
use std::time::Instant;

use crate::common::{Client, Data, PATIENCE, Server, Start, noise};

const SMALL_LOG: &str = "segment_bytes = '4MiB'\nlog_bytes = '8MiB'";

#[test]
fn items_of_every_size_round_trip() {
    let dir = tempfile::tempdir().unwrap();
    for sync in ["always", "never"] {
        let server = Start::default().sync(sync).serve_at(&dir.path().join(sync));
        let mut client = server.client();
        // Around every boundary: streaming, chunks, reads.
        let k = 1 << 10;
        for len in [
            0,
            1,
            64 * k - 1,
            64 * k,
            64 * k + 1,
            256 * k,
            256 * k + 1,
            3 * k * k + 7,
        ] {
            let body = noise(len);
            client.put("w", &body);
            client.take("w", &body);
        }
        // Pipelined behind one another.
        let body = noise(300_000);
        let mut requests = Vec::new();
        for _ in 0..5 {
            requests.extend(format!("set w 0 0 {}\r\n", body.len()).bytes());
            requests.extend(&body);
            requests.extend(b"\r\nget w\r\n");
        }
        let (mut sender, requests) = (server.client(), requests);
        sender.send(&requests);
        for _ in 0..5 {
            sender.expect(b"STORED\r\n");
            sender.expect_value("w", &body);
        }
    }
}

#[test]
fn large_items_survive_a_kill() {
    let data = Data::fresh();
    let body = noise(1_000_000);
    let server = Server::start(&data);
    let mut client = server.client();
    client.put("w", &body);
    client.put("w", b"small");
    // Cut off inside a body: nothing is stored of it.
    let mut cut = server.client();
    cut.send(b"set w 0 0 900000\r\n");
    cut.send(&body[..500_000]);
    server.kill();
    let server = Server::start(&data);
    let mut client = server.client();
    client.take("w", &body);
    client.take("w", b"small");
    client.take_nothing("w");
}

#[test]
fn an_item_that_ends_wrong_is_not_stored() {
    let server = Server::fresh();
    let mut client = server.client();
    client.send(b"set w 0 0 200000\r\n");
    client.send(&noise(200_000));
    client.ask(b"xx", b"CLIENT_ERROR bad data chunk\r\n");
    client.expect_end();
    server.client().take_nothing("w");
}

#[test]
fn an_item_too_large_is_swallowed() {
    let server = Start::of("[defaults]\nmessage_bytes_max = '100KiB'").serve();
    let mut client = server.client();
    client.send(b"set w 0 0 200000\r\n");
    client.send(&noise(200_000));
    client.ask(b"\r\nget w\r\n", b"NOT_STORED\r\nEND\r\n");
    client.put("w", &noise(100_000));
}

/// Names of the log's files.
fn segments(data: &Path) -> impl Iterator<Item = String> {
    let files = std::fs::read_dir(data).unwrap();
    let names = files.filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    names.filter(|name| name.starts_with("segment-"))
}

/// Puts and takes until the log's files are as they should be.
fn pass_through(client: &mut Client, is_so: impl Fn() -> bool) {
    let filler = noise(50_000);
    let began = Instant::now();
    while !is_so() {
        for _ in 0..100 {
            client.put("w", &filler);
            client.take("w", &filler);
        }
        assert!(began.elapsed() < PATIENCE * 2, "no segment was retired");
    }
}

/// Old messages, small and large, outlive many times the log's size of
/// traffic: their segments are retired under them.
#[test]
fn old_messages_move_out_of_old_segments() {
    let data = Data::fresh();
    let start = || Start::of(SMALL_LOG).sync("never").serve_at(&data);
    let large = noise(700_000);
    let server = start();
    let mut client = server.client();
    client.put("old", b"small");
    client.put("old", &large);
    // Until the first segment is surely gone.
    let oldest = segments(&data).min();
    pass_through(&mut client, || segments(&data).min() != oldest);
    server.kill();
    let server = start();
    let mut client = server.client();
    client.take("old", b"small");
    client.take("old", &large);
    client.take_nothing("w");
    assert!(server.stop().success());
}

/// A body over several segments, reserved, so that it cannot leave for a run:
/// each segment is kept, or its chunks are written again, until it is taken.
#[test]
fn no_segment_is_retired_with_chunks_in_it() {
    let data = Data::fresh();
    let start = || Start::of(SMALL_LOG).sync("never").serve_at(&data);
    let large = noise(10 << 20);
    let server = start();
    let mut holder = server.client();
    holder.put("old", &large);
    holder.send(b"get old/open\r\n");
    holder.expect_value("old", &large);
    // Until none of its first segments has its name any more.
    let last = segments(&data).max();
    pass_through(&mut server.client(), || segments(&data).min() > last);
    server.kill();
    let server = start();
    let mut client = server.client();
    client.take("old", &large);
    client.take_nothing("old");
    assert!(server.stop().success());
}

/// Half a body ends with its client, with a connection's `idle`, and with the server.
#[test]
fn half_a_body_holds_nothing() {
    let config = "stop_wait = '10m'\n[[listen]]\nprotocol = 'memcache'\naddress = 0\nidle = '2s'\n\
                  [[listen]]\nprotocol = 'memcache'\naddress = 0\n";
    let server = Start::of(config).serve_as_configured();
    let patient = server.addresses_of("memcache").nth(1).expect("two of them");
    let begun = |address: &str| {
        let mut client = Client::tcp(address);
        client.send(b"set w 0 0 900000\r\n");
        client.send(&noise(100_000));
        client
    };
    let half = |address: &str| {
        let client = begun(address);
        server.await_number("connections_memory_bytes", |n| n > 0);
        client
    };
    let holds_nothing = || server.await_number("connections_memory_bytes", |n| n == 0);
    drop(half(patient));
    holds_nothing();
    let mut ended = half(patient);
    ended.half_close();
    ended.expect_end();
    holds_nothing();
    // It may be closed before anybody sees what it holds.
    begun(server.address()).expect_end();
    holds_nothing();
    let mut stays = half(patient);
    assert!(server.stop().success());
    stays.expect_end();
}
