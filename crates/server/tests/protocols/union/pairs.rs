//! Every protocol with every other: bodies, priorities, order, leases, delays, times
//! to live and waits go across.

use super::protocols::{FIFO, House, LEASING, PATIENT, PROTOCOLS, Protocol, QUEUES, in_houses};

#[test]
fn every_protocol_takes_messages_of_every_other() {
    for (shards, queues) in [(1, &QUEUES[..1]), (4, &QUEUES[..])] {
        let house = House::open(shards, "");
        for queue in queues {
            for from in PROTOCOLS {
                for to in PROTOCOLS {
                    let body = format!("{from:?} to {to:?}");
                    house.guest(from, queue).put(&body);
                    assert_eq!(house.guest(to, queue).take(), body, "{from:?} to {to:?}");
                }
            }
            assert_eq!(house.number(queue, "ready"), 0);
            assert_eq!(house.number(queue, "reserved"), 0);
        }
    }
}

/// All byte values but zero, which the command line cannot be given.
#[test]
fn any_bytes_go_across() {
    in_houses(|house, queue| {
        let body: String = (1..=u8::MAX).map(char::from).collect();
        for from in PROTOCOLS {
            for to in PROTOCOLS {
                house.guest(from, queue).put(&body);
                assert_eq!(house.guest(to, queue).take(), body, "{from:?} to {to:?}");
            }
        }
    });
}

#[test]
fn priorities_count_for_every_consumer() {
    in_houses(|house, queue| {
        let puts = [
            (Protocol::Memcache, 1024),
            (Protocol::Lineup, 2000),
            (Protocol::Jobqueue, 500),
            (Protocol::Beanstalk, 700),
            (Protocol::Pinpriq, 200),
            (Protocol::CommandLine, 100),
            (Protocol::Lineup, 0),
            (Protocol::Jobqueue, u32::MAX),
        ];
        for to in PROTOCOLS {
            for (from, priority) in puts {
                house
                    .guest(from, queue)
                    .put_with_priority(priority, &priority.to_string());
            }
            let mut consumer = house.guest(to, queue);
            let mut priorities = puts.map(|(_, priority)| priority);
            priorities.sort_unstable();
            for priority in priorities {
                assert_eq!(consumer.take(), priority.to_string(), "{to:?}");
            }
        }
    });
}

#[test]
fn within_a_priority_the_oldest_of_any_protocol_is_first() {
    in_houses(|house, queue| {
        let putters = PROTOCOLS.map(|protocol| match protocol {
            // Has one priority of its own; the others come to it below.
            Protocol::Pinpriq => (protocol, 200),
            _ => (protocol, 1024),
        });
        for to in FIFO {
            for (from, priority) in putters {
                house
                    .guest(from, queue)
                    .put_with_priority(priority, &format!("{from:?}"));
            }
            let mut consumer = house.guest(to, queue);
            assert_eq!(consumer.take(), "Pinpriq");
            for (from, _) in putters
                .iter()
                .filter(|(from, _)| *from != Protocol::Pinpriq)
            {
                assert_eq!(consumer.take(), format!("{from:?}"), "{to:?}");
            }
        }
        // At a priority that all but memcache can name.
        for to in FIFO {
            let some = PROTOCOLS.iter().filter(|from| **from != Protocol::Memcache);
            for from in some.clone() {
                house
                    .guest(*from, queue)
                    .put_with_priority(7, &format!("{from:?}"));
            }
            let mut consumer = house.guest(to, queue);
            for from in some {
                assert_eq!(consumer.take(), format!("{from:?}"), "{to:?}");
            }
        }
    });
}

/// Nobody else gets a message that one client holds; anybody gets it when the client lets it go.
#[test]
fn leases_hold_against_every_protocol() {
    in_houses(|house, queue| {
        for from in LEASING {
            let mut holder = house.guest(from, queue);
            house.guest(Protocol::Lineup, queue).put("held");
            assert_eq!(holder.hold().as_deref(), Some("held"));
            house.expect_nothing(queue);
            holder.finish();
            assert_eq!(house.number(queue, "reserved"), 0, "{from:?}");
            for to in PROTOCOLS {
                let mut holder = house.guest(from, queue);
                // A ttp of 0, so that jobqueue's ends with the connection too.
                house.guest(Protocol::Jobqueue, queue).add(1, 0, "again");
                assert_eq!(holder.hold().as_deref(), Some("again"));
                drop(holder);
                house.await_number(queue, "reserved", 0);
                assert_eq!(house.guest(to, queue).take(), "again", "{from:?} to {to:?}");
            }
        }
    });
}

/// A time to run that one protocol gave ends the lease of another, and a waiter of
/// any third gets the message.
#[test]
fn times_to_run_count_for_every_protocol() {
    in_houses(|house, _| {
        let mut all = Vec::new();
        for from in [Protocol::Jobqueue, Protocol::Beanstalk] {
            for to in PATIENT {
                for holder in LEASING {
                    let queue = format!("{from:?}-{to:?}-{holder:?}");
                    let mut putter = house.guest(from, &queue);
                    match from {
                        Protocol::Jobqueue => putter.add(1, 1, "late"),
                        _ => putter.job(1, 0, 1, "late"),
                    };
                    let mut holder = house.guest(holder, &queue);
                    assert_eq!(holder.hold().as_deref(), Some("late"));
                    let mut waiter = house.guest(to, &queue);
                    waiter.wait();
                    all.push((queue, holder, waiter));
                }
            }
        }
        for (queue, _holder, waiter) in &mut all {
            assert_eq!(waiter.waited(), "late", "{queue}");
        }
    });
}

#[test]
fn a_delay_counts_for_every_protocol() {
    in_houses(|house, queue| {
        // So far off that nobody gets it, whatever the test takes.
        house
            .guest(Protocol::Beanstalk, queue)
            .job(1, 600, 60, "far");
        let delayed = ["put", queue, "far", "--delay", "10m"];
        assert!(house.server.run(&delayed).status.success());
        assert_eq!(house.number(queue, "delayed"), 2);
        house.expect_nothing(queue);
        house
            .guest(Protocol::Beanstalk, queue)
            .ask(b"kick 9\r\n", b"KICKED 2\r\n");
        for to in [Protocol::Lineup, Protocol::Pinpriq] {
            assert_eq!(house.guest(to, queue).take(), "far");
        }
        // Who waits gets it when it is due.
        let mut waiters = PATIENT.map(|to| {
            let queue = format!("{to:?}");
            let mut waiter = house.guest(to, &queue);
            waiter.wait();
            house.await_number(&queue, "waiters", 1);
            house
                .guest(Protocol::Beanstalk, &queue)
                .job(1, 1, 60, "due");
            waiter
        });
        for waiter in &mut waiters {
            assert_eq!(waiter.waited(), "due");
        }
    });
}

#[test]
fn a_time_to_live_counts_for_every_protocol() {
    in_houses(|house, queue| {
        let mut memcache = house.guest(Protocol::Memcache, queue);
        let set = format!("set {queue} 0 1 4\r\nsoon\r\n");
        memcache.ask(set.as_bytes(), b"STORED\r\n");
        house
            .guest(Protocol::Pinpriq, queue)
            .push(7, 100, "key", "soon");
        let put = ["put", queue, "soon", "--ttl", "100ms"];
        assert!(house.server.run(&put).status.success());
        house.await_number(queue, "total_expired", 3);
        house.expect_nothing(queue);
        for to in PROTOCOLS {
            // Not what has a long life.
            let set = format!("set {queue} 0 3600 4\r\nlong\r\n");
            memcache.ask(set.as_bytes(), b"STORED\r\n");
            house
                .guest(Protocol::Pinpriq, queue)
                .push(9, 65_535, "key", "next");
            let mut consumer = house.guest(to, queue);
            assert_eq!(
                (consumer.take(), consumer.take()),
                ("next".into(), "long".into())
            );
        }
        // Nor what is held, as long as it is.
        let mut holders = LEASING.map(|protocol| {
            let queue = format!("{protocol:?}");
            let mut holder = house.guest(protocol, &queue);
            let mut pinpriq = house.guest(Protocol::Pinpriq, &queue);
            for (key, ttl) in [("1", 4000), ("2", 4000)] {
                pinpriq.push(7, ttl, key, "held");
                assert_eq!(holder.hold().as_deref(), Some("held"));
                if protocol == Protocol::Memcache {
                    break;
                }
            }
            (queue, holder)
        });
        house
            .guest(Protocol::Pinpriq, "witness")
            .push(7, 4000, "key", "put after them");
        house.await_number("witness", "total_expired", 1);
        for (queue, holder) in &mut holders {
            assert_eq!(house.number(queue, "total_expired"), 0, "{queue}");
            if queue != "Memcache" {
                holder.finish();
            }
            let expires = match queue.as_str() {
                "Memcache" => {
                    holder.ask(b"get Memcache/abort\r\n", b"END\r\n");
                    1
                }
                "Beanstalk" => {
                    let id = holder.held_id();
                    let release = format!("release {id} 0 0\r\n");
                    holder.ask(release.as_bytes(), b"RELEASED\r\n");
                    1
                }
                _ => {
                    holder.finish();
                    0
                }
            };
            assert_eq!(house.number(queue, "total_expired"), expires, "{queue}");
            assert_eq!(house.number(queue, "ready"), 0, "{queue}");
        }
    });
}

#[test]
fn a_put_through_any_protocol_wakes_a_waiter_of_any_other() {
    for shards in [1, 4] {
        let house = House::open(shards, "");
        for (to, queue) in PATIENT.iter().zip(QUEUES.iter().cycle()) {
            for from in PROTOCOLS {
                let mut waiter = house.guest(*to, queue);
                waiter.wait();
                house.await_number(queue, "waiters", 1);
                house.guest(from, queue).put("came");
                assert_eq!(waiter.waited(), "came", "{from:?} to {to:?}");
            }
            assert_eq!(house.number(queue, "ready"), 0);
        }
    }
}
