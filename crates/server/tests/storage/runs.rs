//! Backlogs larger than memory on the real binary: messages leave for run
//! files and come back in order, by id, by time; after stops and kills; and
//! around damage.

use std::path::{Path, PathBuf};

use crate::common::{Client, Data, Server, Start, await_that, noise, quintet, text};

/// The least memory that works, and a short log: nearly everything is in runs.
const LITTLE: &str = "memory = \"32MiB\"\nlog_bytes = \"8MiB\"\nsegment_bytes = \"4MiB\"\n";
const LISTEN: &[&str] = &["memcache=127.0.0.1:0", "beanstalk=127.0.0.1:0"];

fn start(data: &Path) -> Server {
    Start::of(LITTLE).sync("50ms").listen(LISTEN).serve_at(data)
}

fn body(number: u64) -> Vec<u8> {
    let mut body = format!("{number}:").into_bytes();
    body.resize(100 + (number % 50) as usize, b'.');
    body
}

/// Puts `numbers` into a queue, many at a time.
fn fill(client: &mut Client, queue: &str, numbers: std::ops::Range<u64>) {
    let all: Vec<u64> = numbers.collect();
    for some in all.chunks(500) {
        let mut request = Vec::new();
        for &number in some {
            let body = body(number);
            request.extend(format!("set {queue} 0 0 {}\r\n", body.len()).into_bytes());
            request.extend(body);
            request.extend(b"\r\n");
        }
        client.ask(&request, &b"STORED\r\n".repeat(some.len()));
    }
}

/// Takes these from a queue and nothing else, many at a time.
fn drain(client: &mut Client, queue: &str, numbers: std::ops::Range<u64>) {
    let all: Vec<u64> = numbers.collect();
    for some in all.chunks(500) {
        client.send(format!("get {queue}\r\n").repeat(some.len()).as_bytes());
        for &number in some {
            client.expect_value(queue, &body(number));
        }
    }
}

pub(crate) fn runs_in(data: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(data).expect("the data directory");
    let mut runs: Vec<PathBuf> = files
        .map(|file| file.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|end| end == "qrun"))
        .collect();
    runs.sort();
    runs
}

/// A run's number, which is the last part of its name.
fn number_of(run: &Path) -> u32 {
    let name = run.file_stem().and_then(|name| name.to_str());
    let number = name.and_then(|name| name.rsplit('-').next()?.parse().ok());
    number.unwrap_or_else(|| panic!("{} has no number", run.display()))
}

/// Steps that wait for the disk are answered as others are: when it is known what came of them.
#[test]
fn an_act_on_messages_that_left_memory_is_few_lines_of_the_audit() {
    const COUNT: u64 = 30_000;
    let data = Data::fresh();
    let server = start(&data);
    fill(&mut server.client(), "work", 0..COUNT);
    await_that("nothing left memory", || !runs_in(&data).is_empty());
    let moved = server.run(&["move", "work", "other", "--yes", "--fast"]);
    assert!(moved.status.success(), "{}", text(&moved.stderr));
    let (mut lines, mut messages) = (0, 0);
    server.stop();
    for line in std::fs::read_to_string(data.join("audit.log"))
        .expect("the audit")
        .lines()
    {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        if line["what"] == "POST /api/v1/queues/work/operations/move to other" {
            assert_eq!(line["result"], "200", "{line}");
            lines += 1;
            messages += line["messages"].as_u64().unwrap_or(0);
        }
    }
    assert!((1..10).contains(&lines), "{lines} lines");
    assert_eq!(messages, COUNT);
}

fn end_of(server: &Server, id: u64) -> String {
    let (output, _, _) = server.outputs(&["trace", &id.to_string(), "--json"]);
    let output = output.lines().last().unwrap_or("null");
    let output: serde_json::Value = serde_json::from_str(output).expect("JSON");
    output["end"].as_str().unwrap_or_default().to_owned()
}

/// The ends of messages in runs are recorded late, in half of the places.
#[test]
fn a_large_purge_does_not_hide_how_other_messages_ended() {
    const COUNT: u64 = 60_000;
    let data = Data::fresh();
    let server = Start::of(&format!("{LITTLE}ends_max = 40000\n"))
        .sync("50ms")
        .listen(LISTEN)
        .serve_at(&data);
    let mut client = server.client();
    client.put("other", b"x");
    let other = server.json(&["peek", "other", "--json"])["id"].as_u64();
    let other = other.expect("an id");
    // Few are in memory.
    let set = format!("set work 0 0 500\r\n{}\r\n", ".".repeat(500));
    for _ in 0..COUNT / 500 {
        client.ask(set.repeat(500).as_bytes(), &b"STORED\r\n".repeat(500));
    }
    await_that("few left memory", || {
        server.number("cold_messages") > COUNT * 3 / 4
    });
    server.printed(&["delete", &other.to_string()]);
    client.ask(b"flush work\r\n", b"END\r\n");
    // The files go behind the last end.
    await_that("files are left", || runs_in(&data).is_empty());
    assert_eq!(end_of(&server, other), "deleted");
    let purged = |id| end_of(&server, id) == "purged";
    let ids: Vec<u64> = (other + 1..=other + COUNT).step_by(500).collect();
    assert!(ids.iter().any(|&id| purged(id)));
    // Of the others it is known that there was a purge.
    let lost = ids.iter().find(|&&id| !purged(id));
    let lost = lost.expect("more than ends_max").to_string();
    let (_, why, _) = server.outputs(&["trace", &lost]);
    assert!(why.contains("queue work was purged by "), "{why}");
}

/// The engine knows no ids of messages in runs; they are read behind the purge.
#[test]
fn the_ends_of_messages_that_a_purge_removed_from_runs_are_known() {
    const COUNT: u64 = 30_000;
    let data = Data::fresh();
    let server = start(&data);
    let mut client = server.client();
    fill(&mut client, "work", 0..COUNT);
    fill(&mut client, "other", 0..COUNT);
    await_that("nothing left memory", || {
        server.number("cold_messages") > COUNT
    });
    let first = server.json(&["peek", "work", "--json"])["id"].as_u64();
    let first = first.expect("an id");
    let others = server.json(&["peek", "other", "--json"])["id"].as_u64();
    // It leaves its block before.
    let deleted = first + COUNT - 500;
    server.printed(&["delete", &deleted.to_string()]);
    client.ask(b"flush work\r\n", b"END\r\n");
    // Another client's command does not make it the one that purged.
    client.put("work", b"x");
    let end = |id: u64| end_of(&server, id);
    let ids: Vec<u64> = (first..first + COUNT).step_by(1500).collect();
    await_that("the ends are not known", || {
        ids.iter().all(|&id| end(id) == "purged")
    });
    assert_eq!(end(deleted), "deleted");
    assert_eq!(end(others.expect("an id")), "");
    drain(&mut client, "other", 0..COUNT);
}

#[test]
fn a_backlog_leaves_memory_and_comes_back_in_order() {
    const COUNT: u64 = 150_000;
    let data = Data::fresh();
    let server = start(&data);
    let mut client = server.client();
    fill(&mut client, "work", 0..COUNT);
    assert_eq!(server.number("ready"), COUNT);
    client.await_stat("queue_work_items", |items| items == COUNT);
    let cold = server.number("cold_messages");
    assert!(cold > COUNT / 2, "{cold} of {COUNT} are in runs");
    assert!(server.number("memory_bytes") < 32 << 20);
    drain(&mut client, "work", 0..COUNT / 3);
    // A kill in the middle, and a stop in good order.
    server.kill();
    let server = start(&data);
    let mut client = server.client();
    drain(&mut client, "work", COUNT / 3..COUNT / 2);
    assert!(server.stop().success());
    let server = start(&data);
    let mut client = server.client();
    assert_eq!(server.number("ready"), COUNT - COUNT / 2);
    // New ones go behind what is cold.
    fill(&mut client, "work", COUNT..COUNT + 1000);
    drain(&mut client, "work", COUNT / 2..COUNT + 1000);
    client.take_nothing("work");
    assert_eq!(server.number("cold_messages"), 0);
    assert!(server.number("cold_fetched") > 0);
}

/// The newest runs of several shards are dead and deleted before a kill, and
/// the log tells the next start of them. The runs that it writes, all of one
/// shard, keep their files.
#[test]
fn runs_that_died_before_a_start_take_no_others_with_them() {
    const EACH: usize = 300;
    let data = Data::fresh();
    let start = || {
        // The log keeps all of it, so that the next start reads of runs that died.
        let config =
            "shards = 4\nmemory = \"56MiB\"\nlog_bytes = \"1GiB\"\nsegment_bytes = \"4MiB\"\n";
        Start::of(config)
            .sync("50ms")
            .listen(LISTEN)
            .serve_at(&data)
    };
    let body = noise(8000);
    let put = |client: &mut Client, queue: &str| {
        for _ in 0..EACH {
            client.put(queue, &body);
        }
    };
    let take = |client: &mut Client, queue: &str, count: usize| {
        for _ in 0..count {
            client.take(queue, &body);
        }
        client.take_nothing(queue);
    };
    let server = start();
    let mut client = server.client();
    let queues: Vec<String> = (0..16).map(|number| format!("queue-{number}")).collect();
    let mut rounds = 0;
    let newest = || runs_in(&data).iter().map(|run| number_of(run)).max();
    while server.number("cold_runs") < 8 {
        queues.iter().for_each(|queue| put(&mut client, queue));
        rounds += 1;
        assert!(rounds < 50, "nothing leaves memory");
    }
    let dead = newest();
    for queue in &queues {
        take(&mut client, queue, rounds * EACH);
    }
    await_that("dead runs stay", || runs_in(&data).is_empty());
    server.kill();
    let server = start();
    let mut client = server.client();
    let mut rounds = 0;
    // Several looks of the compactor, each of which deletes what is dead.
    while server.number("cold_runs") < 6 {
        put(&mut client, &queues[0]);
        rounds += 1;
        assert!(rounds < 200, "nothing leaves memory");
    }
    let lowest = runs_in(&data).iter().map(|run| number_of(run)).min();
    assert!(lowest > dead, "{lowest:?} was a dead run's: {dead:?}");
    assert!(server.stop().success());
    let server = start();
    take(&mut server.client(), &queues[0], rounds * EACH);
}

#[test]
fn cold_messages_answer_by_id_state_and_time() {
    const COUNT: u64 = 90_000;
    let data = Data::fresh();
    let server = start(&data);
    let mut beans = server.client_of("beanstalk");
    beans.ask(b"use t\r\nwatch t\r\n", b"USING t\r\nWATCHING 2\r\n");
    let job = |number: u64| format!("{number:0100}");
    for first in (0..COUNT).step_by(500) {
        let puts: String = (first..first + 500)
            .map(|n| format!("put {} 0 60 100\r\n{}\r\n", n % 100, job(n)))
            .collect();
        beans.send(puts.as_bytes());
        for n in first..first + 500 {
            beans.expect(format!("INSERTED {}\r\n", n + 1).as_bytes());
        }
    }
    beans.ask(
        b"put 0 3600 60 5\r\nlater\r\n",
        format!("INSERTED {}\r\n", COUNT + 1).as_bytes(),
    );
    assert!(server.number("cold_messages") > COUNT / 5);
    // Of the least urgent priority, so it left early.
    let cold = 99;
    beans.send(format!("peek {}\r\n", cold + 1).as_bytes());
    beans.expect(format!("FOUND {} 100\r\n{}\r\n", cold + 1, job(cold)).as_bytes());
    beans.send(format!("delete {}\r\ndelete {}\r\n", cold + 1, cold + 1).as_bytes());
    beans.expect(b"DELETED\r\nNOT_FOUND\r\n");
    beans.ask(
        format!("delete {}\r\n", COUNT + 7).as_bytes(),
        b"NOT_FOUND\r\n",
    );
    // By priority, then by id, as if all were in memory.
    for n in [0, 100, 200] {
        beans.ask(
            b"reserve\r\n",
            format!("RESERVED {} 100\r\n{}\r\n", n + 1, job(n)).as_bytes(),
        );
        beans.ask(format!("bury {} 5\r\n", n + 1).as_bytes(), b"BURIED\r\n");
    }
    beans.ask(
        b"peek-delayed\r\n",
        format!("FOUND {} 5\r\nlater\r\n", COUNT + 1).as_bytes(),
    );
    server.kill();
    let server = start(&data);
    let mut beans = server.client_of("beanstalk");
    beans.send(b"use t\r\npeek-buried\r\nkick 2\r\n");
    beans.expect(format!("USING t\r\nFOUND 1 100\r\n{}\r\nKICKED 2\r\n", job(0)).as_bytes());
    beans.send(b"stats-tube t\r\n");
    let stats = text(&beans.until(b"pause-time-left: 0\n\r\n"));
    let line = format!("current-jobs-ready: {}\n", COUNT - 1 - 3 + 2);
    assert!(stats.contains(&line), "{stats}");
    assert!(stats.contains("current-jobs-buried: 1\n"), "{stats}");
}

#[test]
fn large_bodies_go_to_runs_and_come_from_there() {
    let data = Data::fresh();
    let server = start(&data);
    let mut client = server.client();
    let large: Vec<Vec<u8>> = (0..40).map(|n| noise(900_000 + n)).collect();
    for body in &large {
        client.put("large", body);
    }
    fill(&mut client, "small", 0..20_000);
    // Its own segments are retired: what lives in them is in runs.
    client.await_stat("log_bytes", |_| true);
    await_that("the log stays long", || {
        !(server.number("log_bytes") > 16 << 20 || server.number("cold_run_bytes") <= 10 << 20)
    });
    server.kill();
    let server = start(&data);
    let mut client = server.client();
    // Leased from a run: its body stays there, and it survives another kill.
    client.send(b"get large/open\r\n");
    client.expect_value("large", &large[0]);
    server.kill();
    let server = start(&data);
    let mut client = server.client();
    for body in &large {
        client.take("large", body);
    }
    client.take_nothing("large");
}

#[test]
fn a_damaged_block_is_named_and_the_rest_is_served() {
    const COUNT: u64 = 30_000;
    let data = Data::fresh();
    let server = start(&data);
    let mut client = server.client();
    fill(&mut client, "work", 0..COUNT);
    await_that("nothing left memory", || !runs_in(&data).is_empty());
    assert!(server.stop().success());
    // In the middle of a run are blocks, not its indexes.
    let run = runs_in(&data).pop().expect("a run");
    let mut bytes = std::fs::read(&run).expect("read");
    let middle = bytes.len() / 3;
    bytes[middle] ^= 0x40;
    std::fs::write(&run, bytes).expect("written");

    let server = start(&data);
    let mut client = server.client();
    let mut seen = 0;
    let mut last = None;
    loop {
        client.send(b"get work\r\n");
        let head = text(&client.until(b"\r\n"));
        if head == "END\r\n" {
            break;
        }
        let body = text(&client.until(b"\r\nEND\r\n"));
        let number: u64 = body
            .split(':')
            .next()
            .and_then(|n| n.parse().ok())
            .expect("a number");
        assert!(last < Some(number), "{number} after {last:?}");
        last = Some(number);
        seen += 1;
    }
    let damaged = server.number("cold_messages_damaged");
    assert!(damaged > 0 && damaged < 1000, "{damaged} out of reach");
    assert_eq!(seen + damaged, COUNT);
    assert_eq!(server.number("cold_read_errors"), 1);
}

#[test]
fn a_budget_too_small_is_refused_with_the_smallest_that_works() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("quintet.toml");
    std::fs::write(&config, "memory = \"32MiB\"\nshards = 4\n").expect("written");
    let out = quintet(&["serve", "--print-config", "--config"])
        .arg(&config)
        .output()
        .expect("the binary runs");
    assert!(!out.status.success());
    let says = text(&out.stderr);
    assert!(says.contains("the smallest that works is 56MiB"), "{says}");
}
