//! `[[cron]]` tables under a wall clock that is set, kills and full queues.
//! What is due is tested without a server, in `cron::plan`.

use std::path::Path;

use crate::common::{Data, Server, Start, await_that, eventually, faults, quintet, text};
use quintet_faults::Faults;
use serde_json::Value;

/// Four years, which have one 29 February whenever they begin.
const LEAP: i64 = 1461 * 86_400_000;
const CRON: &str = "[[cron]]\nname = 'c'\nschedule = '0 0 29 2 *'\nqueue = 'w'\nbody = 'due'\n";

fn start(faults: &Faults, data: &Path, config: &str) -> Server {
    let start = Start::of(config).sync("always");
    Server::start_under(faults, data, &start)
}

/// Waits until the table was looked at.
fn await_read_of_table(server: &Server) {
    await_that("the table is not read", || {
        text(&server.run(&["stats", "--json"]).stdout).contains("\"cron_c_runs\"")
    });
}

/// The clock is set forward over a due time. What is put for it is put once,
/// also if the server is killed thereafter and the clock is set back and forth.
#[test]
fn a_missed_run_is_put_once_under_every_fault() {
    let data = Data::fresh();
    let faults = faults(&data);
    let config = format!("shards = 2\n{CRON}missed = 'once'\n");
    let server = start(&faults, &data, &config);
    // Its cursor is there: what passes from now on was missed.
    await_read_of_table(&server);
    faults.shift_clock(LEAP);
    server.await_number("cron_c_runs", |runs| runs == 1);
    server.kill();
    let server = start(&faults, &data, &config);
    await_read_of_table(&server);
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
    let data = Data::fresh();
    let faults = faults(&data);
    let server = start(&faults, &data, CRON);
    await_read_of_table(&server);
    server.kill();
    // It was off for twelve years.
    faults.shift_clock(3 * LEAP);
    let server = start(&faults, &data, CRON);
    await_read_of_table(&server);
    assert_eq!(server.number("cron_c_missed"), 3);
    assert_eq!(server.number("cron_c_runs"), 0);
    assert_eq!(server.number("ready"), 0);
}

/// A queue that is full gets its message when it has room.
#[test]
fn a_put_that_is_refused_is_tried_again() {
    let data = Data::fresh();
    let faults = faults(&data);
    let config = format!("{CRON}missed = 'once'\n[[queue]]\nname = 'w'\nmessages_max = 1\n");
    let server = start(&faults, &data, &config);
    server.client().put("w", b"first");
    await_read_of_table(&server);
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
    let data = Data::fresh();
    let faults = faults(&data);
    let server = start(&faults, &data, "crons_max = 1\n");
    let reload = |text: &str| {
        server.configure(text);
        server.signal(rustix::process::Signal::HUP);
    };
    reload(&format!("{CRON}missed = 'once'\n"));
    await_read_of_table(&server);
    faults.shift_clock(LEAP);
    server.await_number("cron_c_runs", |runs| runs == 1);
    let renamed = CRON.replace("'c'", "'d'");
    reload(&format!("{renamed}missed = 'once'\n"));
    await_that("the new table is not read", || {
        text(&server.run(&["stats", "--json"]).stdout).contains("\"cron_d_runs\"")
    });
    assert_eq!(server.number("cron_d_runs"), 0);
    assert_eq!(server.number("ready"), 1);
}

/// The list of `quintet cron`.
fn crons(server: &Server) -> Vec<Value> {
    let listed = text(&server.run(&["cron", "--json"]).stdout);
    let lines = listed.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn steer(server: &Server, act: &str, name: &str) {
    let done = server.run(&["cron", act, name]);
    assert!(
        done.status.success(),
        "{act} {name}: {}",
        text(&done.stderr)
    );
}

/// A pause outlives a kill; what is due in it is neither put nor missed, nor
/// made up for.
#[test]
fn a_pause_outlives_a_kill_and_skips_due_times() {
    let data = Data::fresh();
    let faults = faults(&data);
    // `d` is looked at after `c`, and tells that the clock was seen.
    let other = CRON.replace("'c'", "'d'").replace("'w'", "'v'");
    let config = format!("{CRON}missed = 'once'\n{other}missed = 'once'\n");
    let server = start(&faults, &data, &config);
    steer(&server, "pause", "c");
    server.kill();
    let server = start(&faults, &data, &config);
    assert_eq!(crons(&server)[0]["paused"], true);
    assert_eq!(crons(&server)[1]["paused"], false);
    await_read_of_table(&server);
    faults.shift_clock(LEAP);
    server.await_number("cron_d_runs", |runs| runs == 1);
    assert_eq!(server.number("cron_c_runs"), 0);
    server.kill();
    let server = start(&faults, &data, &config);
    steer(&server, "resume", "c");
    server.kill();
    let server = start(&faults, &data, &config);
    await_read_of_table(&server);
    assert_eq!(server.number("cron_c_runs"), 0);
    assert_eq!(crons(&server)[0]["missed_runs"], 0);
    faults.shift_clock(2 * LEAP);
    server.await_number("cron_c_runs", |runs| runs == 1);
    assert_eq!(
        crons(&server)[0]["missed_runs"],
        1,
        "of those after the pause"
    );
    server.client().take("w", b"due");
    server.client().take_nothing("w");
}

/// A client that got the reply to a put finds it once, whatever is killed; where there was no
/// reply, message and cursor are both there or neither is.
#[test]
fn a_run_by_hand_puts_once_also_where_the_server_is_killed() {
    let data = Data::fresh();
    let faults = faults(&data);
    let mut server = start(&faults, &data, CRON);
    let last = |server: &Server| crons(server)[0]["last_ms"].as_u64();
    let (mut there, mut put) = (0, last(&server));
    for round in 0..12 {
        if round % 2 == 0 {
            steer(&server, "run", "c");
            server.kill();
            server = start(&faults, &data, CRON);
            there += 1;
            assert_eq!(server.number("ready"), there, "put, and once");
            assert_ne!(last(&server), put);
        } else {
            // The kill meets it anywhere.
            let mut run = quintet(&["cron", "run", "c", "--data"]);
            let mut run = run.arg(&data).spawn().expect("it starts");
            let mut looks = 0;
            while looks < round && run.try_wait().expect("a child").is_none() {
                // A process, as the run is one: as many of them as it takes to meet all of it.
                server.run(&["stats"]);
                looks += 1;
            }
            server.kill();
            let succeeded = run.wait().expect("it ends").success();
            server = start(&faults, &data, CRON);
            let ready = server.number("ready");
            let marked = last(&server) != put;
            assert_eq!(ready, there + u64::from(marked), "told: {succeeded}");
            assert!(marked || !succeeded, "reported and not there");
            there = ready;
        }
        put = last(&server);
    }
}

/// A reload that changes a table leaves its pause; one that takes it out
/// forgets it.
#[test]
fn a_pause_is_as_long_as_its_table() {
    let data = Data::fresh();
    let faults = faults(&data);
    let server = start(&faults, &data, CRON);
    steer(&server, "pause", "c");
    let reload = |text: &str, is: &dyn Fn(&[Value]) -> bool| {
        server.configure(text);
        server.signal(rustix::process::Signal::HUP);
        eventually("the reload changes nothing", || {
            Some(crons(&server)).filter(|all| is(all))
        })
    };
    let schedule = "'1 0 29 2 *'";
    let other = CRON.replace("'0 0 29 2 *'", schedule);
    let all = reload(&other, &|all| all[0]["schedule"] == "1 0 29 2 *");
    assert_eq!(all[0]["paused"], true, "{all:?}");
    reload("crons_max = 7\n", &<[Value]>::is_empty);
    let all = reload(CRON, &|all| !all.is_empty());
    assert_eq!(all[0]["paused"], false, "it is a new one: {all:?}");
}
