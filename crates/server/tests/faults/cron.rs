//! `[[cron]]` tables under a wall clock that is set, kills and full queues.
//! What is due is tested without a server, in `cron::plan`.

use std::path::Path;
use std::time::Instant;

use crate::common::{PATIENCE, Server, Start, faults, text};
use quintet_faults::Faults;

/// Four years, which have one 29 February whenever they begin.
const LEAP: i64 = 1461 * 86_400_000;
const CRON: &str = "[[cron]]\nname = 'c'\nschedule = '0 0 29 2 *'\nqueue = 'w'\nbody = 'due'\n";

fn start(faults: &Faults, data: &Path, config: &str) -> Server {
    let start = Start {
        sync: Some("always"),
        config: Some(config),
        ..Start::default()
    };
    Server::start_under(faults, data, &start)
}

/// Waits until the table was looked at.
fn await_look(server: &Server) {
    let began = Instant::now();
    while !text(&server.run(&["stats", "--json"]).stdout).contains("\"cron_c_runs\"") {
        assert!(began.elapsed() < PATIENCE, "nobody looks at the table");
    }
}

/// The clock is set forward over a due time. What is put for it is put once,
/// also if the server is killed thereafter and the clock is set back and forth.
#[test]
fn a_missed_run_is_put_once_whatever_happens() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let faults = faults(&data);
    let config = format!("shards = 2\n{CRON}missed = 'once'\n");
    let server = start(&faults, &data, &config);
    // Its mark is there: what passes from now on was missed.
    await_look(&server);
    faults.shift_clock(LEAP);
    server.await_number("cron_c_runs", |runs| runs == 1);
    server.kill();
    let server = start(&faults, &data, &config);
    await_look(&server);
    assert_eq!(server.number("cron_c_runs"), 0);
    faults.shift_clock(0);
    faults.shift_clock(LEAP);
    faults.shift_clock(2 * LEAP);
    server.await_number("cron_c_runs", |runs| runs == 1);
    assert_eq!(server.number("ready"), 2);
    let mut client = server.client();
    client.take("w", b"due");
    client.take("w", b"due");
    client.take_nothing("w");
}

#[test]
fn skipped_runs_are_counted_and_nothing_is_put() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let faults = faults(&data);
    let server = start(&faults, &data, CRON);
    await_look(&server);
    server.kill();
    // It was off for twelve years.
    faults.shift_clock(3 * LEAP);
    let server = start(&faults, &data, CRON);
    await_look(&server);
    assert_eq!(server.number("cron_c_missed"), 3);
    assert_eq!(server.number("cron_c_runs"), 0);
    assert_eq!(server.number("ready"), 0);
}

/// A queue that is full gets its message when it has room.
#[test]
fn a_put_that_is_refused_is_tried_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let faults = faults(&data);
    let config = format!("{CRON}missed = 'once'\n[[queue]]\nname = 'w'\nmessages_max = 1\n");
    let server = start(&faults, &data, &config);
    server.client().put("w", b"first");
    await_look(&server);
    faults.shift_clock(LEAP);
    server.await_number("cron_c_failures", |failures| failures > 1);
    assert_eq!(server.number("cron_c_runs"), 0);
    server.client().take("w", b"first");
    server.await_number("cron_c_runs", |runs| runs == 1);
    server.client().take("w", b"due");
}

/// A reload brings a table, and a new schedule makes up for nothing.
#[test]
fn a_reload_counts() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let faults = faults(&data);
    let server = start(&faults, &data, "crons_max = 1\n");
    let file = data.with_extension("toml");
    let reload = |text: &str| {
        std::fs::write(&file, text).expect("written");
        server.signal(rustix::process::Signal::HUP);
    };
    reload(&format!("{CRON}missed = 'once'\n"));
    await_look(&server);
    faults.shift_clock(LEAP);
    server.await_number("cron_c_runs", |runs| runs == 1);
    let renamed = CRON.replace("'c'", "'d'");
    reload(&format!("{renamed}missed = 'once'\n"));
    let began = Instant::now();
    while !text(&server.run(&["stats", "--json"]).stdout).contains("\"cron_d_runs\"") {
        assert!(began.elapsed() < PATIENCE, "nobody looks at the new table");
    }
    assert_eq!(server.number("cron_d_runs"), 0);
    assert_eq!(server.number("ready"), 1);
}
