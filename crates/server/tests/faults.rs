//! The real binary under faults: power cuts that undo what was not synced,
//! syncs that fail, a wall clock that is set. See `crates/faults`.

mod common;

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::time::Instant;

use common::{PATIENCE, Server, Start, faults, noise, text};
use quintet_faults::{Call, Faults, Undo};

const SMALL_LOG: &str = "segment_bytes = '4MiB'\nlog_bytes = '8MiB'\nmemory = '32MiB'\n";

fn start(faults: &Faults, data: &Path, sync: &str, config: &str) -> Server {
    Server::start_under(
        faults,
        data,
        &Start {
            sync: Some(sync),
            config: Some(config),
            ..Start::default()
        },
    )
}

/// The power has gone, at a rule's or the test's word.
#[track_caller]
fn cut(server: Server, faults: &Faults, cuts: u64) {
    let status = server.ended();
    assert_eq!(status.signal(), Some(9), "{status}");
    assert_eq!(faults.cuts(), cuts, "it ended, but not by a cut");
    faults.end_rules();
}

/// A number of `/proc/PID/io`.
fn counted_by_kernel(server: &Server, key: &str) -> u64 {
    let path = format!("/proc/{}/io", server.child.id());
    let io = std::fs::read_to_string(path).expect("the process runs");
    let start = format!("{key}: ");
    let value = io.lines().find_map(|line| line.strip_prefix(&start));
    value.and_then(|v| v.parse().ok()).expect("a number")
}

/// A number of the server's statistics.
fn number(server: &Server, name: &str) -> u64 {
    let stats = text(&server.run(&["stats", "--json"]).stdout);
    let (_, after) = stats
        .split_once(&format!("\"{name}\":"))
        .expect("a number of this name");
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

/// Bytes the kernel counted and the library did not.
fn bytes_past(server: &Server, faults: &Faults) -> (i64, i64) {
    let began = Instant::now();
    loop {
        let before = faults.bytes();
        let kernel = (
            counted_by_kernel(server, "rchar"),
            counted_by_kernel(server, "wchar"),
        );
        // A moment in which nothing went on.
        if faults.bytes() == before {
            let past = |kernel: u64, ours: u64| kernel.cast_signed() - ours.cast_signed();
            return (past(kernel.0, before.0), past(kernel.1, before.1));
        }
        assert!(began.elapsed() < PATIENCE, "the server is never quiet");
    }
}

/// All bytes that the kernel saw read and written went through the library, as
/// did the syncs that the server counts; else a fault could pass by the calls
/// that matter.
#[test]
fn no_call_goes_past_the_library() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let faults = faults(&data);
    // It reads what it overwrites only for an undoing.
    faults.undo(Undo::Nothing);
    let server = start(&faults, &data, "always", SMALL_LOG);
    let mut client = server.client();
    client.put("w", b"first");
    let before = bytes_past(&server, &faults);
    // Many segments come and go, runs too.
    let body = noise(50_000);
    for _ in 0..300 {
        client.put("w", &body);
        client.put("stays", &body);
        client.send(b"get w\r\n");
        client.until(b"\r\nEND\r\n");
    }
    client.put("large", &noise(3_000_000));
    client.send(b"get large\r\n");
    client.until(b"\r\nEND\r\n");
    for _ in 0..300 {
        client.take("stays", &body);
    }
    let began = Instant::now();
    while number(&server, "log_retired") < 3 {
        assert!(began.elapsed() < PATIENCE, "no segment is retired");
    }
    // A segment is synced once for each sync that the server counts, beside
    // those of segments before it.
    let syncs = number(&server, "log_syncs");
    let after = bytes_past(&server, &faults);
    assert_eq!(after.1, before.1, "bytes written past the library");
    // malloc of glibc looks once how the machine overcommits: a byte, by a
    // call of its own.
    let read = after.0 - before.0;
    assert!(
        (0..=1).contains(&read),
        "{read} bytes read past the library"
    );
    assert!(
        faults.calls(Call::Sync).ours >= syncs,
        "{syncs} syncs, seen {:?}",
        faults.calls(Call::Sync)
    );
    for call in [
        Call::Open,
        Call::Create,
        Call::Read,
        Call::Write,
        Call::Rename,
        Call::Unlink,
        Call::Accept,
        Call::Recv,
        Call::Send,
    ] {
        assert!(faults.calls(call).ours > 0, "{call:?} is not seen");
    }
    assert!(
        faults.calls(Call::Clock).all > 0,
        "nobody looks at the clock"
    );
    assert!(server.stop().success());
}

/// The library does what it says: with syncs only at an interval of a minute, a
/// cut loses what was acknowledged, and a `kill -9` does not.
#[test]
fn a_power_cut_undoes_what_was_not_synced() {
    for (undo, kept) in [(Undo::Nothing, true), (Undo::Pages, false)] {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let faults = faults(&data);
        faults.undo(undo);
        let server = start(&faults, &data, "60s", "");
        let mut client = server.client();
        client.put("w", b"hello");
        assert_eq!(faults.unsynced() > 0, !kept);
        faults.cut();
        cut(server, &faults, 1);
        assert_eq!(faults.undone() > 0, !kept);
        let server = start(&faults, &data, "always", "");
        match kept {
            true => server.client().take("w", b"hello"),
            false => server.client().take_nothing("w"),
        }
    }
}
