//! Consumers of several queues among all the others, with the queues in one shard
//! and in four.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use super::protocols::{Guest, House, PATIENT, PROTOCOLS, Protocol, QUEUES};

use crate::common::{PATIENCE, reserve, text};

/// Messages of the long test.
const MESSAGES: usize = 2000;

/// A beanstalk client that watches all queues.
fn watcher(house: &House) -> Guest {
    let mut guest = house.guest(Protocol::Beanstalk, QUEUES[0]);
    for (queue, watched) in QUEUES[1..].iter().zip(2..) {
        let reply = format!("WATCHING {watched}\r\n");
        guest.ask(format!("watch {queue}\r\n").as_bytes(), reply.as_bytes());
    }
    guest
}

/// A pinpriq client that has subscribed to all queues and is not ready.
fn subscriber(house: &House) -> Guest {
    let mut guest = house.guest(Protocol::Pinpriq, QUEUES[0]);
    for queue in QUEUES {
        let len = u16::try_from(queue.len()).expect("short").to_be_bytes();
        let subscribe = [b"\x73", &len[..], queue.as_bytes()].concat();
        guest.wire().send(&subscribe);
    }
    // Decided before anything that comes by another connection.
    guest.ask(b"\x50\0\x04none", b"\0\0");
    guest
}

fn next_of(subscriber: &mut Guest) -> String {
    subscriber.wire().send(b"\x41");
    subscriber.waited()
}

fn command(house: &House, wait: &str) -> String {
    let mut args = vec!["take", "--wait", wait];
    args.extend(QUEUES);
    text(&house.server.run(&args).stdout).trim_end().to_owned()
}

#[test]
fn the_best_over_all_queues_comes_first() {
    for shards in [1, 4] {
        let house = House::open(shards, "");
        let mut watcher = watcher(&house);
        let mut subscriber = subscriber(&house);
        let consumers: [&mut dyn FnMut() -> String; 3] = [
            &mut || watcher.take(),
            &mut || next_of(&mut subscriber),
            &mut || command(&house, "0"),
        ];
        for take in consumers {
            let puts = [
                (Protocol::Memcache, "a", 1024),
                (Protocol::Lineup, "b", 3),
                (Protocol::Jobqueue, "c", 500),
                (Protocol::Pinpriq, "d", 200),
                (Protocol::Beanstalk, "c", 1),
                (Protocol::CommandLine, "b", 2000),
                (Protocol::Lineup, "d", 0),
                (Protocol::Jobqueue, "a", 700),
            ];
            for (from, queue, priority) in puts {
                house
                    .guest(from, queue)
                    .put_with_priority(priority, &priority.to_string());
            }
            let mut priorities = puts.map(|(_, _, priority)| priority);
            priorities.sort_unstable();
            for priority in priorities {
                assert_eq!(take(), priority.to_string());
            }
        }
    }
}

#[test]
fn a_put_of_any_protocol_into_any_queue_wakes_a_consumer_of_all() {
    for (shards, queues) in [(1, &QUEUES[..1]), (4, &QUEUES[..])] {
        let house = House::open(shards, "");
        let mut watcher = watcher(&house);
        let mut subscriber = subscriber(&house);
        for queue in queues {
            for from in PROTOCOLS {
                watcher.wait();
                house.await_number(queue, "waiters", 1);
                subscriber.wire().send(b"\x41");
                house.await_number(queue, "waiters", 2);
                house.guest(from, queue).put("one");
                house.guest(from, queue).put("two");
                // In the order in which they came.
                assert_eq!(watcher.waited(), "one", "{from:?} into {queue}");
                assert_eq!(subscriber.waited(), "two", "{from:?} into {queue}");
            }
        }
        for queue in QUEUES {
            assert_eq!(house.number(queue, "ready"), 0);
            house.await_number(queue, "waiters", 0);
        }
    }
}

/// A client that waits for all queues stands in each line where it came, and leaves all of them
/// with a message of one.
#[test]
fn a_consumer_of_all_queues_waits_once_in_each() {
    for shards in [1, 4] {
        let house = House::open(shards, "");
        let mut watcher = watcher(&house);
        watcher.wait();
        for queue in QUEUES {
            house.await_number(queue, "waiters", 1);
        }
        let mut later = QUEUES.map(|queue| {
            let mut waiter = house.guest(Protocol::Jobqueue, queue);
            waiter.wait();
            house.await_number(queue, "waiters", 2);
            waiter
        });
        house.guest(Protocol::Memcache, "c").put("first");
        assert_eq!(watcher.waited(), "first");
        for (queue, waiter) in QUEUES.iter().zip(&mut later) {
            house.guest(Protocol::Lineup, queue).put(queue);
            assert_eq!(waiter.waited(), *queue);
        }
    }
}

/// Puts into every queue that are decided in one go: each shard has something
/// before the first delivery is read.
#[test]
fn puts_in_one_segment_serve_a_wait_once() {
    for shards in [1, 4] {
        let house = House::open(shards, "");
        let mut watcher = watcher(&house);
        let mut subscriber = subscriber(&house);
        let mut putter = house.guest(Protocol::Jobqueue, "a");
        for _ in 0..20 {
            watcher.wait();
            house.await_number("d", "waiters", 1);
            subscriber.wire().send(b"\x41");
            house.await_number("d", "waiters", 2);
            let adds = QUEUES.map(|queue| {
                let head = [b"ADD\0", queue.as_bytes(), b"\0"].concat();
                let numbers = [1_u32, 60, 1].map(u32::to_le_bytes).concat();
                [head, numbers, queue.as_bytes().to_vec()].concat()
            });
            putter.wire().send(&adds.concat());
            for _ in QUEUES {
                putter.wire().expect(b"ADDED\0");
                putter.wire().exact(8);
            }
            let mut bodies = BTreeSet::from([watcher.waited(), subscriber.waited()]);
            // The rest is there for whoever asks.
            bodies.extend([watcher.take(), next_of(&mut subscriber)]);
            assert_eq!(bodies, QUEUES.map(str::to_owned).into());
            assert_eq!(watcher.take_now(), None);
        }
    }
}

/// beanstalkd's warning comes from whatever shard the lease is in, and not
/// while there is something to take.
#[test]
fn deadline_soon_is_sent_for_every_set_of_watched_queues() {
    for shards in [1, 4] {
        let house = House::open(shards, "");
        for queue in QUEUES {
            let mut worker = watcher(&house);
            // Only the queue behind it, so that another shard is waited for.
            for other in QUEUES.iter().filter(|other| **other != next(queue)) {
                worker.wire().send(format!("ignore {other}\r\n").as_bytes());
            }
            for left in ["3", "2", "1"] {
                let reply = format!("WATCHING {left}\r\n");
                worker.wire().expect(reply.as_bytes());
            }
            let mut putter = house.guest(Protocol::Beanstalk, queue);
            let began = Instant::now();
            loop {
                let short = putter.job(1, 0, 1, "short");
                let here = house
                    .guest(Protocol::Beanstalk, next(queue))
                    .job(1, 0, 60, "here");
                // In one piece, so that no second passes in between. Something to
                // take comes first, even in the last second; what was told is told
                // again.
                let all = format!(
                    "reserve-job {short}\r\nreserve\r\ndelete {here}\r\nreserve\r\n\
                     reserve-with-timeout 0\r\ndelete {short}\r\nreserve-with-timeout 0\r\n"
                );
                let held = format!("RESERVED {short} 5\r\nshort\r\n");
                let replies = format!(
                    "{held}RESERVED {here} 4\r\nhere\r\nDELETED\r\n\
                     DEADLINE_SOON\r\nDEADLINE_SOON\r\nDELETED\r\nTIMED_OUT\r\n"
                );
                worker.wire().send(all.as_bytes());
                let received = (0..7).map(|_| reply(&mut worker)).collect::<String>();
                if received == replies {
                    break;
                }
                // The lease was over where the server slept through its second, and the job
                // came again.
                assert!(received.matches(&held).count() > 1, "{received}");
                assert!(began.elapsed() < PATIENCE, "no notification");
            }
            // One that waits is told when it begins; where the server slept
            // through the last second, it is over, and so it waits once more.
            let later = putter.job(1, 0, 2, "later");
            let wait = format!("reserve-job {later}\r\nreserve-with-timeout 9\r\n");
            let began = Instant::now();
            loop {
                worker.wire().send(wait.as_bytes());
                let held = format!("RESERVED {later} 5\r\nlater\r\n");
                worker.wire().expect(held.as_bytes());
                let received = text(&worker.wire().until(b"\r\n"));
                if received == "DEADLINE_SOON\r\n" {
                    break;
                }
                assert_eq!(received, "TIMED_OUT\r\n");
                assert!(began.elapsed() < PATIENCE, "no notification");
            }
            // Held or back in its queue, which is the next round's.
            worker.ask(format!("delete {later}\r\n").as_bytes(), b"DELETED\r\n");
        }
    }
}

/// A reply of beanstalk, and the body that a reservation has.
fn reply(worker: &mut Guest) -> String {
    let mut received = worker.wire().until(b"\r\n");
    if received.starts_with(b"RESERVED ") {
        received.extend(worker.wire().until(b"\r\n"));
    }
    text(&received)
}

fn next(queue: &str) -> &'static str {
    let at = QUEUES.iter().position(|name| *name == queue).expect("one");
    QUEUES[(at + 1) % QUEUES.len()]
}

/// Result of a consumer: its messages, or that it had to stop.
type ConsumerResult = (usize, String);

/// Takes until it gets "stop".
fn consume(
    house: &House,
    number: usize,
    protocol: Protocol,
    queue: Option<&str>,
    sender: &Sender<ConsumerResult>,
) {
    let mut guest = match (protocol, queue) {
        (Protocol::Beanstalk, None) => watcher(house),
        (Protocol::Pinpriq, None) => subscriber(house),
        (protocol, queue) => house.guest(protocol, queue.unwrap_or(QUEUES[0])),
    };
    loop {
        let body = match (protocol, queue) {
            (Protocol::CommandLine, None) => command(house, "60s"),
            (Protocol::Pinpriq, None) => next_of(&mut guest),
            _ => {
                guest.wait();
                guest.waited()
            }
        };
        let stop = body == "stop";
        sender.send((number, body)).expect("somebody listens");
        if stop {
            return;
        }
    }
}

/// Waits that come to nothing, beside all else: with limits, given up, hung up
/// on.
fn distract(house: &House, done: &Receiver<()>) {
    let mut turn = 0;
    while done.try_recv() == Err(TryRecvError::Empty) {
        let queue = format!("empty{}", turn % 7);
        let mut memcache = house.guest(Protocol::Memcache, &queue);
        memcache
            .wire()
            .send(format!("get {queue}/t=1\r\n").as_bytes());
        memcache.wire().expect(b"END\r\n");
        let mut left = house.guest(Protocol::Jobqueue, &queue);
        left.wire().send(&reserve(&queue, 0));
        left.wire().half_close();
        left.wire().expect_end();
        let mut changing = house.guest(Protocol::Pinpriq, &queue);
        changing.wait();
        let unsubscribe = changing.named(0x75);
        changing.wire().send(&unsubscribe);
        turn += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Consumers of every protocol, of one queue and of all, while producers of every
/// protocol put: each message reaches one of them, and nobody waits in vain.
#[test]
fn every_message_reaches_one_of_the_waiting_consumers() {
    for shards in [1, 4] {
        let house = &House::open(shards, "");
        let mut consumers: Vec<(Protocol, Option<&str>)> = vec![
            (Protocol::Beanstalk, None),
            (Protocol::Beanstalk, None),
            (Protocol::Pinpriq, None),
            (Protocol::Pinpriq, None),
            (Protocol::CommandLine, None),
        ];
        for (protocol, queue) in PATIENT.iter().zip(QUEUES.iter().cycle()) {
            if *protocol != Protocol::CommandLine {
                consumers.push((*protocol, Some(*queue)));
                consumers.push((*protocol, Some(next(queue))));
            }
        }
        let (sender, received) = channel();
        let (end, ended) = channel();
        std::thread::scope(|scope| {
            // Dropped if this fails, so that the others come to an end.
            let end = end;
            for (number, (protocol, queue)) in consumers.iter().copied().enumerate() {
                let sender = sender.clone();
                scope.spawn(move || consume(house, number, protocol, queue, &sender));
            }
            scope.spawn(move || distract(house, &ended));
            let producers: Vec<Protocol> = PROTOCOLS
                .into_iter()
                .filter(|protocol| *protocol != Protocol::CommandLine)
                .collect();
            let each = MESSAGES / producers.len();
            for (protocol, from) in producers.into_iter().zip((0..).step_by(each)) {
                scope.spawn(move || {
                    let mut guests = QUEUES.map(|queue| house.guest(protocol, queue));
                    for number in from..from + each {
                        guests[number % QUEUES.len()].put(&number.to_string());
                    }
                });
            }
            let mut seen = BTreeSet::new();
            for _ in 0..MESSAGES {
                let (_, body) = received.recv_timeout(PATIENCE).expect("all");
                let number: usize = body.parse().expect("a number");
                assert!(seen.insert(number), "{number} came twice");
            }
            assert_eq!(seen.len(), MESSAGES);
            // Each message that is put now ends one who still waits for it.
            let mut waiting: BTreeSet<usize> = (0..consumers.len()).collect();
            while let Some(&number) = waiting.first() {
                let queue = consumers[number].1.unwrap_or(QUEUES[number % QUEUES.len()]);
                house.guest(Protocol::Lineup, queue).put("stop");
                let (who, body) = received.recv_timeout(PATIENCE).expect("one");
                assert_eq!(body, "stop");
                assert!(waiting.remove(&who));
            }
            end.send(()).expect("it goes on until then");
        });
        for queue in QUEUES {
            assert_eq!(house.number(queue, "ready"), 0);
            assert_eq!(house.number(queue, "reserved"), 0);
            house.await_number(queue, "waiters", 0);
        }
    }
}
