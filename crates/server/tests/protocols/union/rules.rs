//! The rules of `protocols/union.md`, "Conflicts on one shared queue", by
//! their numbers.

use std::time::{Duration, Instant};

use super::protocols::{FIFO, House, LEASING, PATIENT, PROTOCOLS, Protocol, in_houses};
use crate::common::{reserve, text};

#[test]
fn rule_1_priority_0_of_pinpriq_is_not_selectable_and_priority_0_is_first() {
    in_houses(|house, queue| {
        let mut pinpriq = house.guest(Protocol::Pinpriq, queue);
        pinpriq.push(0, 0, "key", "held back");
        house.expect_nothing(queue);
        // Waits do not get it either.
        let mut waiters = PATIENT.map(|protocol| house.guest(protocol, queue));
        for (waiter, number) in waiters.iter_mut().zip(1..) {
            waiter.wait();
            house.await_number(queue, "waiters", number);
        }
        pinpriq.push(0, 0, "key", "held back too");
        assert_eq!(house.number(queue, "waiters"), 5);
        drop(waiters);
        house.await_number(queue, "waiters", 0);
        // Counted apart.
        assert_eq!(house.number(queue, "not_selectable"), 2);
        assert_eq!(house.number(queue, "ready"), 0);

        // 0 of the others comes before pinpriq's 1.
        for to in PROTOCOLS {
            pinpriq.push(1, 0, "other", "one");
            for from in [Protocol::Lineup, Protocol::Jobqueue, Protocol::Beanstalk] {
                house.guest(from, queue).put_with_priority(0, "zero");
            }
            let mut consumer = house.guest(to, queue);
            for expected in ["zero", "zero", "zero", "one"] {
                assert_eq!(consumer.take(), expected, "{to:?}");
            }
        }

        // It leaves as a companion,
        pinpriq.push(5, 0, "key", "selected");
        let group = pinpriq.pop();
        let bodies: Vec<&str> = group.iter().map(|(_, body)| body.as_str()).collect();
        assert_eq!(bodies, ["selected", "held back too", "held back"]);
        // by its time,
        pinpriq.push(0, 50, "key", "short");
        house.await_number(queue, "total_expired", 1);
        // by its id,
        pinpriq.push(0, 0, "key", "by id");
        let mut jobqueue = house.guest(Protocol::Jobqueue, queue);
        let next = jobqueue.add(1, 60, "the next id");
        jobqueue.delete(next - 1, b"OK\0");
        assert_eq!(house.number(queue, "not_selectable"), 0);
        // or with the queue.
        pinpriq.push(0, 0, "key", "flushed");
        let flush = format!("flush {queue}\r\n");
        house
            .guest(Protocol::Memcache, queue)
            .ask(flush.as_bytes(), b"END\r\n");
        assert_eq!(house.number(queue, "not_selectable"), 0);
        assert_eq!(house.number(queue, "ready"), 0);
    });
}

#[test]
fn rule_2_the_end_belongs_to_the_consumer() {
    in_houses(|house, queue| {
        let mut pinpriq = house.guest(Protocol::Pinpriq, queue);
        for to in FIFO {
            for body in ["1", "2", "3", "4", "5"] {
                house
                    .guest(Protocol::Lineup, queue)
                    .put_with_priority(9, body);
            }
            let mut fifo = house.guest(to, queue);
            let taken = [
                pinpriq.take(),
                fifo.take(),
                pinpriq.take(),
                fifo.take(),
                pinpriq.take(),
            ];
            assert_eq!(taken, ["5", "1", "4", "2", "3"], "{to:?}");
        }
        // The best priority comes before the newest.
        pinpriq.push(1, 0, "a", "best");
        pinpriq.push(2, 0, "b", "newest");
        assert_eq!(
            (pinpriq.take(), pinpriq.take()),
            ("best".into(), "newest".into())
        );
    });
}

#[test]
fn rule_3_a_message_without_a_priority_has_the_default_priority() {
    for (shards, queue) in [(1, "a"), (4, "c")] {
        let house = House::open(shards, "[[queue]]\nname = 'd'\ndefault_priority = 7\n");
        for to in PROTOCOLS {
            let mut memcache = house.guest(Protocol::Memcache, queue);
            let mut consumer = house.guest(to, queue);
            // Alone it is strictly first in, first out;
            for body in ["1", "2", "3"] {
                memcache.put(body);
            }
            let order = [consumer.take(), consumer.take(), consumer.take()];
            let expected = match to {
                Protocol::Pinpriq => ["3", "2", "1"],
                _ => ["1", "2", "3"],
            };
            assert_eq!(order, expected, "{to:?}");
            // mixed with others, priority goes first.
            memcache.put("1024");
            for priority in [1025, 1023] {
                let mut putter = house.guest(Protocol::Beanstalk, queue);
                putter.put_with_priority(priority, &priority.to_string());
            }
            let order = [consumer.take(), consumer.take(), consumer.take()];
            assert_eq!(order, ["1023", "1024", "1025"], "{to:?}");
        }
        // The priority is a setting.
        house.guest(Protocol::Memcache, "d").put("7");
        for priority in [8, 6] {
            let mut putter = house.guest(Protocol::Lineup, "d");
            putter.put_with_priority(priority, &priority.to_string());
        }
        let mut consumer = house.guest(Protocol::Jobqueue, "d");
        assert_eq!(
            [consumer.take(), consumer.take(), consumer.take()],
            ["6", "7", "8"]
        );
    }
}

fn open_reads(protocol: &str) -> &str {
    match protocol {
        "memcache" => "max_open_reads = 9",
        _ => "",
    }
}

#[test]
fn rule_4_back_to_the_old_place_or_before_all_of_the_priority() {
    for (shards, queue) in [(1, "a"), (4, "c")] {
        let house = House::open_with(shards, "", open_reads);
        let put = |bodies: &[&str]| {
            let mut lineup = house.guest(Protocol::Lineup, queue);
            bodies.iter().for_each(|body| lineup.put(body));
        };
        let expect = |bodies: &[&str]| {
            let mut lineup = house.guest(Protocol::Lineup, queue);
            for body in bodies {
                assert_eq!(lineup.take(), *body);
            }
            assert_eq!(house.number(queue, "ready"), 0);
        };
        // Beanstalk: its old place, though it was taken second.
        put(&["1", "2", "3"]);
        let mut beanstalk = house.guest(Protocol::Beanstalk, queue);
        let mut first = house.guest(Protocol::Memcache, queue);
        assert_eq!(first.take(), "1");
        assert_eq!(beanstalk.hold().as_deref(), Some("2"));
        let release = format!("release {} 1024 0\r\n", beanstalk.held_id());
        put(&["4"]);
        beanstalk.ask(release.as_bytes(), b"RELEASED\r\n");
        expect(&["2", "3", "4"]);

        // Memcache: a new place before all of its priority, but not of a better one.
        put(&["1", "2", "3"]);
        house
            .guest(Protocol::Lineup, queue)
            .put_with_priority(5, "better");
        let mut memcache = house.guest(Protocol::Memcache, queue);
        let mut other = house.guest(Protocol::Beanstalk, queue);
        assert_eq!(other.hold().as_deref(), Some("better"));
        for body in ["1", "2"] {
            assert_eq!(memcache.hold().as_deref(), Some(body));
        }
        drop(other);
        house.await_number(queue, "reserved", 2);
        let abort = format!("get {queue}/abort\r\n");
        memcache.ask(abort.as_bytes(), b"END\r\n");
        memcache.ask(abort.as_bytes(), b"END\r\n");
        // The one aborted last is next.
        expect(&["better", "2", "1", "3"]);

        // Several that one disconnect returns keep their order, here and there.
        for holder in [Protocol::Memcache, Protocol::Beanstalk] {
            put(&["1", "2", "3", "4"]);
            let mut holder = house.guest(holder, queue);
            for body in ["1", "2", "3"] {
                assert_eq!(holder.hold().as_deref(), Some(body));
            }
            drop(holder);
            house.await_number(queue, "reserved", 0);
            expect(&["1", "2", "3", "4"]);
        }

        // Jobqueue: its old place, when the ttp is over.
        let mut jobqueue = house.guest(Protocol::Jobqueue, queue);
        jobqueue.add(1024, 1, "1");
        put(&["2"]);
        assert_eq!(jobqueue.hold().as_deref(), Some("1"));
        put(&["3"]);
        house.await_number(queue, "reserved", 0);
        expect(&["1", "2", "3"]);
    }
}

#[test]
fn rule_5_only_pinpriq_pulls_companions_and_none_that_is_reserved() {
    in_houses(|house, queue| {
        let mut pinpriq = house.guest(Protocol::Pinpriq, queue);
        for to in FIFO {
            pinpriq.push(1, 0, "key", "1");
            pinpriq.push(2, 0, "key", "2");
            pinpriq.push(0, 0, "key", "0");
            // The others do not look at keys.
            assert_eq!(house.guest(to, queue).take(), "1", "{to:?}");
            let group = pinpriq.pop();
            let bodies: Vec<&str> = group.iter().map(|(_, body)| body.as_str()).collect();
            assert_eq!(bodies, ["2", "0"], "{to:?}");
        }
        for holder in LEASING {
            pinpriq.push(1, 0, "key", "held");
            let mut holder = house.guest(holder, queue);
            assert_eq!(holder.hold().as_deref(), Some("held"));
            pinpriq.push(9, 0, "key", "there");
            assert_eq!(pinpriq.pop(), [("key".into(), "there".into())]);
            assert_eq!(house.number(queue, "reserved"), 1);
            holder.finish();
            assert_eq!(house.number(queue, "reserved"), 0);
        }
    });
}

#[test]
fn rule_6_the_holder_finishes_except_that_jobqueue_deletes_any() {
    in_houses(|house, queue| {
        house.guest(Protocol::Lineup, queue).put("a");
        let mut worker = house.guest(Protocol::Beanstalk, queue);
        assert_eq!(worker.hold().as_deref(), Some("a"));
        let id = worker.held_id();
        let commands = [
            format!("delete {id}\r\n"),
            format!("release {id} 0 0\r\n"),
            format!("bury {id} 0\r\n"),
            format!("touch {id}\r\n"),
        ];
        let mut stranger = house.guest(Protocol::Beanstalk, queue);
        for command in &commands {
            stranger.ask(command.as_bytes(), b"NOT_FOUND\r\n");
        }
        for word in ["close", "abort"] {
            let command = format!("get {queue}/{word}\r\n");
            let mut memcache = house.guest(Protocol::Memcache, queue);
            memcache.ask(command.as_bytes(), b"END\r\n");
        }
        assert_eq!(house.number(queue, "reserved"), 1);
        let mut jobqueue = house.guest(Protocol::Jobqueue, queue);
        jobqueue.delete(id, b"OK\0");
        assert_eq!(house.number(queue, "reserved"), 0);
        // The worker has to expect that.
        for command in &commands {
            worker.ask(command.as_bytes(), b"NOT_FOUND\r\n");
        }

        // What memcache holds, too: then there is nothing to close.
        let id = jobqueue.add(1, 60, "b");
        let mut memcache = house.guest(Protocol::Memcache, queue);
        assert_eq!(memcache.hold().as_deref(), Some("b"));
        jobqueue.delete(id, b"OK\0");
        memcache.finish();
        assert_eq!(memcache.take_now(), None);
    });
}

#[test]
fn rule_7_delete_drops_for_all_protocols_and_flush_leaves_reserved_messages() {
    in_houses(|house, queue| {
        // One of each state; answers the holder.
        let fill = || {
            let mut beanstalk = house.guest(Protocol::Beanstalk, queue);
            beanstalk.job(0, 0, 60, "buried");
            assert_eq!(beanstalk.hold().as_deref(), Some("buried"));
            let bury = format!("bury {} 0\r\n", beanstalk.held_id());
            beanstalk.ask(bury.as_bytes(), b"BURIED\r\n");
            beanstalk.job(0, 600, 60, "delayed");
            house
                .guest(Protocol::Jobqueue, queue)
                .add(0, 60, "reserved");
            let mut holder = house.guest(Protocol::Jobqueue, queue);
            assert_eq!(holder.hold().as_deref(), Some("reserved"));
            for protocol in PROTOCOLS {
                house.guest(protocol, queue).put("ready");
            }
            house
                .guest(Protocol::Pinpriq, queue)
                .push(0, 0, "key", "held back");
            let mut worker = house.guest(Protocol::Beanstalk, queue);
            worker.job(0, 0, 60, "worked on");
            assert_eq!(worker.hold().as_deref(), Some("worked on"));
            (holder, worker)
        };
        let numbers = || {
            let keys = ["ready", "delayed", "buried", "not_selectable", "reserved"];
            keys.map(|key| house.number(queue, key))
        };
        let mut memcache = house.guest(Protocol::Memcache, queue);

        let (mut holder, mut worker) = fill();
        assert_eq!(numbers(), [6, 1, 1, 1, 2]);
        let delete = format!("delete {queue}\r\n");
        memcache.ask(delete.as_bytes(), b"DELETED\r\n");
        assert_eq!(numbers(), [0, 0, 0, 0, 0]);
        // What is reserved vanishes when it is released; it can be finished.
        let release = format!("release {} 0 0\r\n", worker.held_id());
        worker.ask(release.as_bytes(), b"RELEASED\r\n");
        holder.finish();
        house.expect_nothing(queue);

        let (mut holder, mut worker) = fill();
        let flush = format!("flush {queue}\r\n");
        memcache.ask(flush.as_bytes(), b"END\r\n");
        let [ready, delayed, _, not_selectable, reserved] = numbers();
        assert_eq!([ready, delayed, not_selectable, reserved], [0, 0, 0, 2]);
        // What is reserved comes back if it is given back.
        let release = format!("release {} 0 0\r\n", worker.held_id());
        worker.ask(release.as_bytes(), b"RELEASED\r\n");
        assert_eq!(memcache.take(), "worked on");
        holder.finish();
        assert_eq!(memcache.take_now(), None);
    });
}

fn small(protocol: &str) -> &str {
    match protocol {
        "memcache" => "max_item_size = 100",
        "jobqueue" | "beanstalk" => "max_job_size = 200",
        "lineup" => "max_message_size = 300",
        _ => "",
    }
}

#[test]
fn rule_8_limits_count_at_entry_and_what_cannot_be_framed_is_skipped() {
    for (shards, queue) in [(1, "a"), (4, "c")] {
        let house = House::open_with(shards, "", small);
        let body = "x".repeat(301);
        let mut memcache = house.guest(Protocol::Memcache, queue);
        let set = format!("set {queue} 0 0 301\r\n{body}\r\n");
        memcache.ask(set.as_bytes(), b"NOT_STORED\r\n");
        let mut lineup = house.guest(Protocol::Lineup, queue);
        let push = format!("PUSH 1 301\r\n{body}\r\n");
        lineup.ask(push.as_bytes(), b"-MESSAGE_TOO_LARGE\r\n");
        let mut jobqueue = house.guest(Protocol::Jobqueue, queue);
        let add = [b"ADD\0", queue.as_bytes(), b"\0", &[0; 8], &[201, 0, 0, 0]].concat();
        jobqueue.ask(&add, b"ERROR\0Job data too large\0");
        let mut beanstalk = house.guest(Protocol::Beanstalk, queue);
        let put = format!("put 0 0 60 301\r\n{body}\r\n");
        beanstalk.ask(put.as_bytes(), b"JOB_TOO_BIG\r\n");
        assert_eq!(house.number(queue, "ready"), 0);

        // What one lets in, the others hand out, whatever their own limit.
        for to in PROTOCOLS {
            house.guest(Protocol::CommandLine, queue).put(&body);
            assert_eq!(house.guest(to, queue).take(), body, "{to:?}");
        }

        // pinpriq cannot frame this one, and goes on to the next.
        let long = "y".repeat(65_536);
        house
            .guest(Protocol::CommandLine, queue)
            .put_with_priority(1, &long);
        let mut pinpriq = house.guest(Protocol::Pinpriq, queue);
        assert_eq!(pinpriq.take_now(), None);
        house
            .guest(Protocol::CommandLine, queue)
            .put_with_priority(2, "short");
        assert_eq!(pinpriq.take(), "short");
        assert!(house.number(queue, "total_skipped") >= 2);
        assert_eq!(house.guest(Protocol::Memcache, queue).take(), long);
    }
}

#[test]
fn rule_9_a_name_outside_a_protocols_subset_is_not_reachable_there() {
    in_houses(|house, _| {
        // A name with a space: for pinpriq, jobqueue and the command line.
        let spaced = "two words";
        let mut pinpriq = house.guest(Protocol::Pinpriq, spaced);
        pinpriq.push(1, 0, "key", "spaced");
        let mut beanstalk = house.guest(Protocol::Beanstalk, "other");
        beanstalk.ask(b"watch two words\r\n", b"BAD_FORMAT\r\n");
        for name in ["two", "words", "two_words", "two%20words"] {
            let mut memcache = house.guest(Protocol::Memcache, name);
            assert_eq!(memcache.take_now(), None, "{name}");
        }
        for to in [Protocol::Jobqueue, Protocol::CommandLine] {
            assert_eq!(house.guest(to, spaced).take(), "spaced");
            pinpriq.push(1, 0, "key", "spaced");
        }
        assert_eq!(pinpriq.take(), "spaced");

        // One that is not UTF-8: for pinpriq alone.
        let mut raw = house.guest(Protocol::Pinpriq, "q");
        raw.wire()
            .send(b"\x70\0\x02\0\0\x01\0\x01\0\x03kraw\xff\0\x50\0\x02\xff\0");
        assert_eq!(raw.group(), [("k".into(), "raw".into())]);
        let mut jobqueue = house.guest(Protocol::Jobqueue, "q");
        let reply = b"ERROR\0Malformed RESERVE command: queue name is not UTF-8\0";
        jobqueue.ask(b"RESERVE\0\xff\0\x01\0\0\0", reply);

        // No aliases: case and punctuation count.
        house.guest(Protocol::Jobqueue, "Work").put("upper");
        house.guest(Protocol::Jobqueue, "work").put("lower");
        house.guest(Protocol::Jobqueue, "work.1").put("dotted");
        for (queue, body) in [("work", "lower"), ("Work", "upper"), ("work.1", "dotted")] {
            assert_eq!(house.guest(Protocol::Beanstalk, queue).take(), body);
        }
    });
}

#[test]
fn rule_10_what_a_message_lacks_is_shown_as_a_default() {
    in_houses(|house, queue| {
        let lineup = || house.guest(Protocol::Lineup, queue).put("plain");
        // No key for pinpriq,
        lineup();
        let mut pinpriq = house.guest(Protocol::Pinpriq, queue);
        assert_eq!(pinpriq.pop(), [(String::new(), "plain".into())]);
        // and none is not the empty one: they leave one by one.
        lineup();
        pinpriq.push(1, 0, "", "empty key");
        assert_eq!(pinpriq.pop(), [(String::new(), "empty key".into())]);
        assert_eq!(pinpriq.take(), "plain");

        // Flags 0 for memcache; those it gave come back.
        lineup();
        let mut memcache = house.guest(Protocol::Memcache, queue);
        let get = format!("get {queue}\r\n");
        let value = format!("VALUE {queue} 0 5\r\nplain\r\nEND\r\n");
        memcache.ask(get.as_bytes(), value.as_bytes());
        let set = format!("set {queue} 7 0 1\r\nf\r\n");
        memcache.ask(set.as_bytes(), b"STORED\r\n");
        let value = format!("VALUE {queue} 7 1\r\nf\r\nEND\r\n");
        memcache.ask(get.as_bytes(), value.as_bytes());

        // 60 seconds for jobqueue and beanstalk.
        lineup();
        let mut jobqueue = house.guest(Protocol::Jobqueue, queue);
        jobqueue.wire().send(&reserve(queue, 1));
        assert_eq!(jobqueue.reserved(), Some(("plain".into(), 60)));
        jobqueue.finish();
        lineup();
        let mut beanstalk = house.guest(Protocol::Beanstalk, queue);
        assert_eq!(beanstalk.hold().as_deref(), Some("plain"));
        let stats = format!("stats-job {}\r\n", beanstalk.held_id());
        beanstalk.wire().send(stats.as_bytes());
        let stats = text(&beanstalk.wire().until(b"\n\r\n"));
        let left = |line: &str| line.strip_prefix("time-left: ")?.parse::<u64>().ok();
        let left = stats.lines().find_map(left);
        assert!(left.is_some_and(|s| (1..=60).contains(&s)), "{stats}");
        beanstalk.finish();

        // A job that memcache takes is gone; one that it opens is held without
        // limit, unless the job has a time to run: that holds too.
        house.guest(Protocol::Beanstalk, queue).job(1, 0, 1, "job");
        assert_eq!(memcache.take(), "job");
        lineup();
        assert_eq!(memcache.hold().as_deref(), Some("plain"));
        let mut second = house.guest(Protocol::Memcache, queue);
        house.guest(Protocol::Beanstalk, queue).job(1, 0, 1, "job");
        assert_eq!(second.hold().as_deref(), Some("job"));
        let mut waiter = house.guest(Protocol::Jobqueue, queue);
        waiter.wait();
        assert_eq!(waiter.waited(), "job");
        assert_eq!(house.number(queue, "reserved"), 1);
        memcache.finish();
    });
}

#[test]
fn rule_12_the_consumer_of_any_protocol_that_waits_longest_is_first() {
    in_houses(|house, queue| {
        // Every protocol is first once.
        for turn in 0..PATIENT.len() {
            let mut order = PATIENT;
            order.rotate_left(turn);
            let mut waiters = Vec::new();
            for (protocol, number) in order.into_iter().zip(1..) {
                let mut waiter = house.guest(protocol, queue);
                waiter.wait();
                house.await_number(queue, "waiters", number);
                waiters.push((protocol, waiter));
            }
            for ((protocol, mut waiter), from) in waiters.into_iter().zip(PROTOCOLS) {
                let body = format!("for {protocol:?}");
                house.guest(from, queue).put(&body);
                assert_eq!(waiter.waited(), body);
            }
        }

        // pinpriq joins with its ready byte, not with the subscription.
        let mut pinpriq = house.guest(Protocol::Pinpriq, queue);
        let subscribe = pinpriq.named(0x73);
        pinpriq.wire().send(&subscribe);
        let mut jobqueue = house.guest(Protocol::Jobqueue, queue);
        jobqueue.wait();
        house.await_number(queue, "waiters", 1);
        pinpriq.wire().send(b"\x41");
        house.await_number(queue, "waiters", 2);
        house.guest(Protocol::Lineup, queue).put("first");
        house.guest(Protocol::Lineup, queue).put("second");
        assert_eq!(jobqueue.waited(), "first");
        assert_eq!(pinpriq.waited(), "second");
    });
}

#[test]
fn rule_13_a_second_is_never_less() {
    in_houses(|house, _| {
        let second = Duration::from_secs(1);
        std::thread::scope(|scope| {
            for run in 0..3 {
                let name = |what: &str| format!("{what}{run}");
                let queues = [
                    name("wait"),
                    name("ttp"),
                    name("ttr"),
                    name("delay"),
                    name("ttl"),
                ];
                let [wait, ttp, ttr, delay, ttl] = queues;
                // The clock starts before the request and stops after its end.
                scope.spawn(move || {
                    let began = Instant::now();
                    let mut jobqueue = house.guest(Protocol::Jobqueue, &wait);
                    assert_eq!(jobqueue.hold(), None);
                    assert!(began.elapsed() >= second);
                    let began = Instant::now();
                    let mut beanstalk = house.guest(Protocol::Beanstalk, &wait);
                    beanstalk.ask(b"reserve-with-timeout 1\r\n", b"TIMED_OUT\r\n");
                    assert!(began.elapsed() >= second);
                });
                scope.spawn(move || {
                    let mut jobqueue = house.guest(Protocol::Jobqueue, &ttp);
                    jobqueue.add(1, 1, "ttp");
                    let began = Instant::now();
                    assert!(jobqueue.hold().is_some());
                    jobqueue.wait();
                    assert_eq!(jobqueue.waited(), "ttp");
                    assert!(began.elapsed() >= second);
                });
                scope.spawn(move || {
                    let mut beanstalk = house.guest(Protocol::Beanstalk, &ttr);
                    beanstalk.job(1, 0, 1, "ttr");
                    let mut waiter = house.guest(Protocol::Memcache, &ttr);
                    let began = Instant::now();
                    assert!(beanstalk.hold().is_some());
                    waiter.wait();
                    assert_eq!(waiter.waited(), "ttr");
                    assert!(began.elapsed() >= second);
                });
                scope.spawn(move || {
                    let mut waiter = house.guest(Protocol::Jobqueue, &delay);
                    waiter.wait();
                    let began = Instant::now();
                    house
                        .guest(Protocol::Beanstalk, &delay)
                        .job(1, 1, 60, "due");
                    assert_eq!(waiter.waited(), "due");
                    assert!(began.elapsed() >= second);
                });
                scope.spawn(move || {
                    let mut memcache = house.guest(Protocol::Memcache, &ttl);
                    let set = format!("set {ttl} 0 1 3\r\nttl\r\n");
                    let began = Instant::now();
                    memcache.ask(set.as_bytes(), b"STORED\r\n");
                    let peek = format!("get {ttl}/peek\r\n");
                    loop {
                        memcache.wire().send(peek.as_bytes());
                        if memcache.wire().value().expect("a reply").is_none() {
                            break;
                        }
                        std::thread::sleep(second / 50);
                    }
                    assert!(began.elapsed() >= second);
                });
            }
        });
    });
}
