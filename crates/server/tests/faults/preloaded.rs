//! The real binary under faults: power cuts that undo what was not synced,
//! syncs that fail, a wall clock that is set. See `crates/faults`.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::time::Instant;

use crate::common::{
    Client, Data, PATIENCE, Server, Start, await_that, eventually, faults, noise, text,
};
use quintet_faults::{Action, Call, Faults, Rule, Undo, errno, files};

const SMALL_LOG: &str = "segment_bytes = '4MiB'\nlog_bytes = '8MiB'\nmemory = '32MiB'\n";

fn start(faults: &Faults, data: &Path, sync: &str, config: &str) -> Server {
    Server::start_under(faults, data, &Start::of(config).sync(sync))
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

/// Bytes the kernel counted and the library did not.
fn bytes_past(server: &Server, faults: &Faults) -> (i64, i64) {
    eventually("the server is never quiet", || {
        let before = faults.bytes();
        let kernel = (
            counted_by_kernel(server, "rchar"),
            counted_by_kernel(server, "wchar"),
        );
        // A moment in which nothing went on.
        let past = |kernel: u64, ours: u64| kernel.cast_signed() - ours.cast_signed();
        let quiet = faults.bytes() == before;
        quiet.then(|| (past(kernel.0, before.0), past(kernel.1, before.1)))
    })
}

/// All bytes that the kernel saw read and written went through the library, as
/// did the syncs that the server counts; else a fault could pass by the calls
/// that matter.
#[test]
fn no_call_goes_past_the_library() {
    let data = Data::fresh();
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
    await_that("no segment is retired", || {
        server.number("log_retired") >= 3
    });
    // A segment is synced once for each sync that the server counts, beside
    // those of segments before it.
    let syncs = server.number("log_syncs");
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
    assert!(faults.calls(Call::Clock).all > 0, "the clock is not read");
    assert!(server.stop().success());
}

/// The library does what it says: with syncs only at an interval of a minute, a
/// cut loses what was acknowledged, and a `kill -9` does not.
#[test]
fn a_power_cut_undoes_unsynced_writes() {
    for (undo, kept) in [(Undo::Nothing, true), (Undo::Pages, false)] {
        let data = Data::fresh();
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

/// Sends a request, and cuts the power with its reply.
fn cut_with_reply(faults: &Faults, client: &mut Client, request: &[u8], reply: &[u8]) {
    let rule = Rule::once(Call::Send, Action::CutAfter).on(files::SOCKET);
    faults.rule(0, rule);
    client.ask(request, reply);
}

/// With `always`, the power goes in the moment in which a reply has left: what
/// it said is so after the restart. A put, a take that removes, a lease and its
/// end; with one I/O thread, which syncs itself, and with four.
#[test]
fn a_replied_change_survives_a_power_cut_right_after_the_reply() {
    for config in ["", "io_threads = 4\nshards = 2\n"] {
        let data = Data::fresh();
        let faults = faults(&data);
        faults.undo(Undo::PagesAndNames);
        let life = |what: &mut dyn FnMut(&mut Client)| {
            let before = faults.cuts();
            let server = start(&faults, &data, "always", config);
            let mut client = server.client();
            // A connection for each I/O thread, of which the last is ours.
            let others: Vec<Client> = (0..3).map(|_| server.client()).collect();
            what(&mut client);
            cut(server, &faults, before + 1);
            drop(others);
        };
        for round in 0..3 {
            life(&mut |client| {
                cut_with_reply(&faults, client, b"set a 0 0 3\r\none\r\n", b"STORED\r\n");
            });
            life(&mut |client| {
                // Several at once share a sync.
                let request = b"set a 0 0 3\r\ntwo\r\n".repeat(3);
                cut_with_reply(&faults, client, &request, b"STORED\r\n");
            });
            life(&mut |client| {
                let reply = b"VALUE a 0 3\r\none\r\nEND\r\n";
                cut_with_reply(&faults, client, b"get a\r\n", reply);
            });
            life(&mut |client| {
                let reply = b"VALUE a 0 3\r\ntwo\r\nEND\r\n";
                cut_with_reply(&faults, client, b"get a/open\r\n", reply);
            });
            life(&mut |client| {
                client.send(b"get a/open\r\n");
                client.expect_value("a", b"two");
                cut_with_reply(&faults, client, b"get a/close\r\n", b"END\r\n");
            });
            let server = start(&faults, &data, "always", config);
            let mut client = server.client();
            // Two of three, as one was taken for good.
            client.take("a", b"two");
            client.take("a", b"two");
            client.take_nothing("a");
            assert!(server.stop().success(), "round {round}");
        }
    }
}

/// A put that serves a consumer on another I/O thread: neither is answered before
/// the put is durable.
#[test]
fn a_waiting_consumer_gets_no_message_that_a_power_cut_undoes() {
    let data = Data::fresh();
    let faults = faults(&data);
    for round in 1..=8 {
        let server = start(&faults, &data, "always", "io_threads = 4\n");
        let mut consumer = server.client();
        let mut putter = server.client();
        putter.put("gone", b"x");
        putter.take("gone", b"x");
        consumer.send(b"get w/t=60000/open\r\n");
        putter.await_stat("queue_w_waiters", |waiters| waiters == 1);
        faults.rule(
            0,
            Rule::once(Call::Send, Action::CutAfter).on(files::SOCKET),
        );
        putter.send(b"set w 0 0 1\r\nx\r\n");
        cut(server, &faults, round);
        let server = start(&faults, &data, "always", "");
        server.client().take("w", b"x");
        assert!(server.stop().success());
    }
}

/// The end of a server that ends by itself.
fn end_of(faults: &Faults, data: &Path, what: impl FnOnce(&Server)) -> (Option<i32>, String) {
    let log = data.with_extension("stderr");
    let mut command = Server::command(data, &START_ALWAYS);
    faults.attach(&mut command);
    command.stderr(std::fs::File::create(&log).unwrap());
    let server = Server::await_ready(data, command);
    what(&server);
    let status = server.ended();
    (status.code(), std::fs::read_to_string(&log).unwrap())
}

const START_ALWAYS: Start<'static> = Start {
    sync: Some("always"),
    listen: &[],
    config: Some(SMALL_LOG),
};

/// A sync that fails is final: no reply of what it was for, the process ends
/// with the reason, and what the disk lost is lost, not half there. The disk
/// forgets what it could not write, as Linux does, so that a second try would
/// seem to succeed.
#[test]
fn a_sync_that_fails_answers_no_client_and_ends_the_server() {
    for error in [errno::EIO, errno::ENOSPC, errno::EDQUOT] {
        for pipelined in [1, 20] {
            let data = Data::fresh();
            let faults = faults(&data);
            let (code, output) = end_of(&faults, &data, |server| {
                let mut client = server.client();
                client.put("w", b"kept");
                let fail = Rule::once(Call::Sync, Action::Fail(error)).on(files::SEGMENT);
                faults.rule(0, fail);
                client.send(&b"set w 0 0 4\r\nlost\r\n".repeat(pipelined));
                client.expect_end();
            });
            assert_eq!(faults.fired(0).1, 1);
            assert!(code.is_some_and(|code| code != 0), "{code:?}: {output}");
            assert!(output.contains("cannot sync segment-"), "{output}");
            faults.end_rules();
            let server = start(&faults, &data, "always", SMALL_LOG);
            let mut client = server.client();
            client.take("w", b"kept");
        }
    }
}

/// The same for whatever else is synced, of the log, its spares and the runs.
#[test]
fn no_sync_that_fails_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    for (at, of) in [files::SEGMENT, files::RUN, files::DIRECTORY]
        .into_iter()
        .enumerate()
    {
        let data = dir.path().join(format!("data{at}"));
        let faults = faults(&data);
        let mut stored = 0;
        let body = noise(50_000);
        let (code, output) = end_of(&faults, &data, |server| {
            let mut client = server.client();
            faults.rule(
                0,
                Rule::once(Call::Sync, Action::Fail(errno::EIO))
                    .on(of)
                    .after(4),
            );
            // 100 MB, with memory for 32: runs are written soon.
            for _ in 0..2000 {
                client.try_send(format!("set w 0 0 {}\r\n", body.len()).as_bytes());
                client.try_send(&body);
                client.try_send(b"\r\n");
                match &client.exact(8)[..] {
                    b"STORED\r\n" => stored += 1,
                    _ => break,
                }
            }
        });
        assert_eq!(faults.fired(0).1, 1, "kind {of} after {stored}");
        assert!(code.is_some_and(|code| code != 0), "{code:?}: {output}");
        assert!(output.contains("sync"), "{output}");
        faults.end_rules();
        let server = start(&faults, &data, "always", SMALL_LOG);
        let mut client = server.client();
        for _ in 0..stored {
            client.take("w", &body);
        }
    }
}

/// Scripts' consumers wait for an answer when they leave their lines, which does not come while the
/// disk is full: a stop ends all the same, and says what that means.
#[test]
fn a_stop_ends_also_while_nothing_can_be_written() {
    let data = Data::fresh();
    let faults = faults(&data);
    let settings = Start::of("stop_wait = '100ms'\nscript_grace = '100ms'\n")
        .sync("always")
        .listen(&["memcache=0", "http=0"]);
    let log = data.with_extension("stderr");
    let mut command = Server::command(&data, &settings);
    faults.attach(&mut command);
    command.stderr(std::fs::File::create(&log).unwrap());
    let server = Server::await_ready(&data, command);
    let mut client = server.client();
    client.put("w", b"kept");
    let full = Rule::every(Call::Write, Action::Fail(errno::ENOSPC));
    faults.rule(0, full.on(files::SEGMENT));
    client.send(b"set w 0 0 4\r\nlost\r\n");
    // Until all that goes on by itself has come to wait for it.
    await_that("nothing is written", || faults.fired(0).1 >= 80);
    server.signal(rustix::process::Signal::TERM);
    let status = server.ended();
    let output = std::fs::read_to_string(&log).unwrap();
    assert_eq!(status.code(), Some(1), "{output}");
    assert!(
        output.contains("the disk is full: the last changes"),
        "{output}"
    );
    faults.end_rules();
    let server = Server::start_under(&faults, &data, &settings);
    server.client().take("w", b"kept");
    assert!(server.stop().success());
}

/// Queues with scripts are opened through the client API, which does not answer while the disk is
/// full.
#[test]
fn a_start_that_waits_for_space_ends_at_the_first_signal() {
    let data = Data::fresh();
    let faults = faults(&data);
    let config = "[[queue]]\nname = 's'\nscript = '/bin/true'\npaused = true\n";
    let settings = Start::of(config)
        .sync("always")
        .listen(&["http=0", "memcache=0"]);
    let first = Server::start_under(&faults, &data, &Start::of("").sync("always"));
    first.client().put("w", b"kept");
    assert!(first.stop().success());
    let log = data.with_extension("stderr");
    let output = || std::fs::read_to_string(&log).unwrap();
    // What a start writes where there is space.
    let full = Rule::every(Call::Write, Action::Fail(errno::ENOSPC)).on(files::SEGMENT);
    faults.rule(0, full.after(u64::MAX));
    let server = Server::start_under(&faults, &data, &settings);
    let writes = faults.fired(0).0;
    assert!(server.stop().success());
    let mut waited = 0;
    for written in 0..writes {
        faults.rule(0, full.after(written));
        let mut command = Server::command(&data, &settings);
        faults.attach(&mut command);
        command.stderr(std::fs::File::create(&log).unwrap());
        let mut server = Server::spawn(&data, command).unwrap();
        // Until it has given up, or tries again and again.
        let ends = eventually("it neither ends nor tries again", || {
            let ended = server.child.try_wait().unwrap().is_some();
            (ended || faults.fired(0).1 >= 80).then_some(ended)
        });
        if !ends {
            server.signal(rustix::process::Signal::TERM);
        }
        let before_ready = server.try_ready().unwrap();
        waited += u64::from(!ends && before_ready.is_some());
        assert_eq!(server.ended().code(), Some(1), "{written}: {}", output());
        let lost = output().contains("the disk is full: the last changes");
        assert_eq!(lost, !ends, "{written}: {}", output());
        faults.end_rules();
    }
    assert!(waited > 0, "no start waits for space, with {writes} writes");
    let server = Server::start_under(&faults, &data, &settings);
    server.client_of("memcache").take("w", b"kept");
    assert!(server.stop().success());
}

/// The power goes at each call of a first start that could leave something by half, and the next
/// start finds nothing that it cannot read.
#[test]
fn a_first_start_that_a_power_cut_ended_begins_again() {
    let config = "shards = 4\n";
    for (call, undo) in [
        (Call::Sync, Undo::Pages),
        (Call::Sync, Undo::PagesAndNames),
        (Call::Rename, Undo::Pages),
    ] {
        let mut cuts = 0;
        loop {
            let data = Data::fresh();
            let faults = faults(&data);
            faults.undo(undo);
            faults.rule(0, Rule::once(call, Action::CutBefore).after(cuts));
            let first = Start::of(config);
            let mut command = Server::command(&data, &first);
            faults.attach(&mut command);
            let first = Server::ready_or_ended(&data, command);
            if first.is_ok() && faults.cuts() == 0 {
                break;
            }
            // What comes after it is ready is cut, too.
            drop(first);
            cuts += 1;
            faults.end_rules();
            let server = start(&faults, &data, "always", config);
            let mut client = server.client();
            client.put("w", b"whole");
            client.take("w", b"whole");
            assert!(server.stop().success(), "after {cuts} of {call:?}");
        }
        assert!(cuts > 1, "{call:?} is not called");
    }
}

/// The power goes in the moment in which a run's file is deleted: that nobody
/// needs it was durable before, under every policy.
#[test]
fn a_run_is_deleted_only_after_that_is_durable() {
    for (sync, skip) in [("never", 0), ("never", 1), ("always", 1)] {
        let data = Data::fresh();
        let faults = faults(&data);
        let server = start(&faults, &data, sync, SMALL_LOG);
        let mut client = server.client();
        let body = noise(20_000);
        let began = Instant::now();
        let mut put = 0;
        // Four runs of cold messages at least, then all are taken.
        while server.number("cold_runs") < 4 {
            for _ in 0..200 {
                client.put("w", &body);
            }
            put += 200;
            assert!(began.elapsed() < PATIENCE, "nothing leaves memory");
        }
        // That the runs came into force is durable under every policy:
        // else the cut takes that back too, and nobody misses a file.
        client.ask(b"set other/sync 0 0 1\r\nx\r\n", b"STORED\r\n");
        let rule = Rule::once(Call::Unlink, Action::CutAfter);
        faults.rule(0, rule.on(files::RUN).after(skip));
        let mut taken = 0;
        while taken < put {
            client.try_send(b"get w\r\n");
            let expected = format!("VALUE w 0 {}\r\n", body.len());
            if client.exact(expected.len()) != expected.as_bytes() {
                break;
            }
            if client.exact(body.len() + 7) != [&body[..], b"\r\nEND\r\n"].concat() {
                break;
            }
            taken += 1;
        }
        cut(server, &faults, 1);
        // What was taken may be back, where nothing waits for the disk;
        // nothing refers to a file that is gone.
        let server = start(&faults, &data, "always", SMALL_LOG);
        let mut client = server.client();
        client.take("other", b"x");
        let left = server.number("ready");
        assert!(left + taken + 1 >= put, "{left} of {put}, {taken} taken");
        for _ in 0..left {
            client.take("w", &body);
        }
        client.take_nothing("w");
    }
}

/// Once a fact of the log says that messages are in a run, the run is on the
/// disk, its name too: the power goes when there are some.
#[test]
fn a_run_in_force_survives_a_power_cut() {
    for undo in [Undo::Pages, Undo::PagesAndNames, Undo::SomePages] {
        let data = Data::fresh();
        let faults = faults(&data);
        faults.undo(undo);
        faults.seed(7);
        let server = start(&faults, &data, "always", SMALL_LOG);
        let mut client = server.client();
        let body = noise(20_000);
        let began = Instant::now();
        let mut put = 0;
        while server.number("cold_runs") < 2 {
            for _ in 0..200 {
                client.put("w", &body);
            }
            put += 200;
            assert!(began.elapsed() < PATIENCE, "nothing leaves memory");
        }
        // What was said of the runs before it is durable with this.
        client.put("w", &body);
        faults.cut();
        cut(server, &faults, 1);
        let server = start(&faults, &data, "always", SMALL_LOG);
        let mut client = server.client();
        for _ in 0..=put {
            client.take("w", &body);
        }
        client.take_nothing("w");
    }
}

/// The wall clock is set, forth and back and by years, while the server runs
/// and between two starts: what was acknowledged is there, waits and delays end
/// in their time and not before, and each step is counted.
#[test]
fn acknowledged_messages_outlive_steps_of_the_clock() {
    const YEAR: i64 = 366 * 86_400_000;
    let data = Data::fresh();
    let faults = faults(&data);
    let beans = Start::default()
        .sync("always")
        .listen(&["memcache=0", "beanstalk=0"]);
    let mut put = 0;
    for steps in [[0, YEAR, 0], [-30_000, 0, 30_000], [YEAR, -YEAR, 0]] {
        let server = Server::start_under(&faults, &data, &beans);
        for step in steps {
            let mut client = server.client();
            // An hour to live; kept whatever the clock shows meanwhile.
            client.ask(b"set w 0 3600 1\r\nx\r\n", b"STORED\r\n");
            put += 1;
            let mut job = server.client_of("beanstalk");
            // The second begins before the reply says so.
            let began = Instant::now();
            job.send(b"use t\r\nput 0 1 60 1\r\nj\r\n");
            job.until(b"INSERTED ");
            job.until(b"\r\n");
            faults.shift_clock(step);
            job.send(b"watch t\r\nreserve-with-timeout 100\r\n");
            job.until(b"RESERVED ");
            let id = text(&job.until(b" "));
            job.until(b"j\r\n");
            let passed = began.elapsed();
            assert!(
                passed.as_millis() >= 990,
                "due after {passed:?} of a second"
            );
            assert!(passed.as_secs() < 60, "a second's delay took {passed:?}");
            job.ask(
                format!("delete {}\r\n", id.trim()).as_bytes(),
                b"DELETED\r\n",
            );
        }
        assert_eq!(server.number("ready"), put);
        server.kill();
    }
    let server = Server::start_under(&faults, &data, &beans);
    for _ in 0..put {
        server.client().take("w", b"x");
    }
    server.client().take_nothing("w");
    assert!(faults.calls(Call::Clock).all > 0);
}

/// An hour in a queue's settings lasts an hour, whatever the wall clock shows: the rest after a
/// failure, a rate of takes, a body that is remembered.
#[test]
fn rests_rates_and_repeats_do_not_follow_the_clock() {
    const YEAR: i64 = 366 * 86_400_000;
    let data = Data::fresh();
    let faults = faults(&data);
    let start = Start::of(
        "[[queue]]\nname = 'rests'\nretry_delay = '1h'\n\
             [[queue]]\nname = 'rated'\ntake_rate = '1/h'\n\
             [[queue]]\nname = 'once'\nunique_by_body = true\nunique_for = '1h'\n",
    )
    .sync("always")
    .listen(&["memcache=0", "beanstalk=0"]);
    let server = Server::start_under(&faults, &data, &start);
    let put = |queue: &str| server.run(&["put", queue, "x"]).status.success();
    for queue in ["rests", "rated", "rated", "once"] {
        assert!(put(queue), "{queue}");
    }
    let mut beans = server.client_of("beanstalk");
    beans.send(b"watch rests\r\nreserve-with-timeout 0\r\n");
    beans.until(b"RESERVED ");
    let id = text(&beans.until(b" "));
    beans.until(b"x\r\n");
    beans.ask(
        format!("release {} 0 0\r\n", id.trim()).as_bytes(),
        b"RELEASED\r\n",
    );
    server.client().take("rated", b"x");
    for (steps, shift) in [YEAR, 0, -YEAR, 0].into_iter().enumerate() {
        faults.shift_clock(shift);
        // A server with nothing to do does not look at the clock.
        let began = Instant::now();
        while server.number("clock_steps") <= steps as u64 {
            beans
                .send(b"use due\r\nput 0 1 60 1\r\nd\r\nwatch due\r\nreserve-with-timeout 100\r\n");
            beans.until(b"RESERVED ");
            let due = text(&beans.until(b" "));
            beans.until(b"d\r\n");
            beans.ask(
                format!("delete {}\r\n", due.trim()).as_bytes(),
                b"DELETED\r\n",
            );
            assert!(began.elapsed() < PATIENCE, "the clock is not read");
        }
        beans.ask(b"reserve-with-timeout 0\r\n", b"TIMED_OUT\r\n");
        server.client().take_nothing("rated");
        assert!(!put("once"), "a repeat");
    }
    assert!(server.stop().success());
}

/// An address that failed too often waits for seconds, not until the wall clock is back where it
/// was.
#[test]
fn a_clock_that_is_set_back_blocks_no_login() {
    const YEAR: i64 = 366 * 86_400_000;
    let data = Data::fresh();
    let faults = faults(&data);
    let token = quintet_auth::NewToken::of([2; 32]);
    let config = format!("[[user]]\nname = 'bob'\ntokens = ['{}']\n", token.id.show());
    let server = start(&faults, &data, "always", &config);
    let logged = |secret: &str| {
        let mut client = server.client();
        let words = format!("bob {secret}");
        client.send(format!("set x 0 0 {}\r\n{words}\r\n", words.len()).as_bytes());
        text(&client.until(b"\r\n"))
    };
    await_that("any number may fail", || {
        logged("wrong").contains("too many failed logins")
    });
    faults.shift_clock(-YEAR);
    await_that("it waits for the clock", || {
        logged(&token.text) == "STORED\r\n"
    });
    assert!(server.stop().success());
}

/// A put on one I/O thread serves a consumer on another. The consumer's thread holds
/// its reply until the put is durable; then the first one, which synced it,
/// tells it. It matters when the sync ends while the consumer's thread is asking
/// the log thread for one, which then finds nothing to do: so syncs take as
/// long as such an asking does, more or less, many times.
#[test]
fn a_consumer_on_another_thread_gets_only_durable_messages() {
    let data = Data::fresh();
    let faults = faults(&data);
    faults.skip_syncs();
    let server = start(&faults, &data, "always", "io_threads = 4\n");
    let mut putter = server.client();
    let mut consumers: Vec<Client> = (0..3).map(|_| server.client()).collect();
    // Syncs are fast, so the thread of the put does each one itself.
    for _ in 0..40 {
        putter.put("fast", b"x");
        putter.take("fast", b"x");
    }
    for delay_us in (0..400).step_by(2) {
        for consumer in &mut consumers {
            consumer.send(b"get w/t=600000\r\n");
            putter.await_stat("queue_w_waiters", |waiters| waiters == 1);
            let slow = Action::Delay(delay_us);
            faults.rule(0, Rule::once(Call::Sync, slow).on(files::SEGMENT));
            putter.put("w", b"served");
            consumer.expect_value("w", b"served");
        }
    }
    assert!(server.stop().success());
}

/// A stop answers puts that wait for memory at once, though no message can leave memory: the write
/// of a run does not come back.
#[test]
fn a_stop_answers_puts_that_wait_for_memory() {
    const ROOM: u64 = 12 << 20;
    let data = Data::fresh();
    let faults = faults(&data);
    let config = format!("{SMALL_LOG}stop_wait = '10m'\nshards = 1\n");
    let listen = ["memcache=127.0.0.1:0", "http=127.0.0.1:0"];
    let start = Start::of(&config).sync("never").listen(&listen);
    let hangs = Action::Delay(u32::MAX);
    faults.rule(0, Rule::every(Call::Write, hangs).on(files::RUN));
    let server = Server::start_under(&faults, &data, &start);
    let mut client = server.client();
    let body = noise(60_000);
    // Most of it without a look: no message takes 70,000 bytes.
    for _ in 0..ROOM / 70_000 {
        client.put("w", &body);
    }
    while server.number("memory_bytes") <= ROOM {
        client.put("w", &body);
    }
    client.send(b"set w 0 0 1\r\nx\r\n");
    let mut http = server.client_of("http");
    let put = r#"{"messages":[{"body":"x"}]}"#;
    http.send(
        format!(
            "POST /api/v1/queues/w/messages HTTP/1.1\r\nhost: localhost\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{put}",
            put.len()
        )
        .as_bytes(),
    );
    await_that("both requests are there", || {
        let listed = server.ask("GET /api/v1/connections", "", "");
        listed.body.contains("/api/v1/queues/w/messages")
    });
    server.signal(rustix::process::Signal::TERM);
    client.expect(b"STORED\r\n");
    http.until(b"HTTP/1.1 201 ");
    server.kill();
}

/// SIGSTOP would stop all of them. The first thread sees to signals, and serves nobody.
#[test]
fn a_single_thread_stands_still_and_goes_on() {
    let data = Data::fresh();
    let faults = faults(&data);
    let mut server = start(&faults, &data, "never", "");
    let first = u64::from(server.child.id());
    faults.hold(first);
    await_that("it stands still", || faults.held() == first);
    server.signal(rustix::process::Signal::TERM);
    let mut client = server.client();
    client.put("w", b"x");
    client.take("w", b"x");
    faults.hold(0);
    assert!(server.wait().success());
}
