//! Queues whose keys mean something: in order, in fair shares, with limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use quintet_engine::*;
use quintet_sim::world::{World, plain, reserve, text, waiting};
use quintet_types::*;

fn world(overrides: Overrides) -> World {
    let mut w = World::new();
    configure(&mut w, overrides);
    w
}

fn configure(w: &mut World, overrides: Overrides) {
    let queue = "q".into();
    let overrides = Some(Box::new(overrides));
    w.ask(
        9,
        Command::Configure {
            queue,
            overrides,
            must_exist: false,
        },
    );
}

fn groups(groups: Groups) -> Overrides {
    Overrides {
        groups: Some(groups),
        ..Overrides::default()
    }
}

fn of_key(key: &str, body: &str) -> Put {
    Put {
        queue: "q".into(),
        body: Body::new(body.as_bytes()),
        more: Some(Box::new(PutMore {
            key: Some(Arc::from(key.as_bytes())),
            ..PutMore::default()
        })),
        ..Put::default()
    }
}

fn put(w: &mut World, key: &str, body: &str) -> MessageId {
    w.put_as(of_key(key, body))
}

/// Up to so many, held for a time.
fn receive(count: u32, ms: u64) -> Take {
    let lease = LeaseRequest {
        owner: LeaseOwner::Time,
        time: LeaseTime::Fixed(ms),
        back_to: BackTo::Position,
        held_max: 0,
    };
    Take {
        lease: Some(lease),
        messages_max: count,
        ..plain("q")
    }
}

fn settle(w: &mut World, id: MessageId, how: How) {
    let by = By::Anyone;
    let done = w.ask(1, Command::Settle { id, by, how });
    assert_eq!(done, Some(Outcome::Done));
}

fn delete(w: &mut World, id: MessageId) {
    settle(w, id, How::Finish);
}

fn extend(w: &mut World, id: MessageId, ms: u64) {
    let ms = Some(ms);
    let by = By::Anyone;
    let done = w.ask(1, Command::Extend { id, by, ms });
    assert!(
        !matches!(done, Some(Outcome::Refused(_)) | None),
        "{done:?}"
    );
}

/// Given back, due after a time.
fn later(ms: u64) -> How {
    How::Release {
        priority: None,
        due: if ms == 0 { When::Now } else { When::In(ms) },
        back_to: None,
    }
}

#[test]
fn a_group_waits_for_its_leased_message_and_another_does_not() {
    let mut w = world(groups(Groups::Ordered));
    let a = put(&mut w, "g1", "a");
    put(&mut w, "g1", "b");
    put(&mut w, "g1", "c");
    put(&mut w, "g2", "d");
    assert_eq!(w.take(1, receive(1, 30_000)), "a");
    assert_eq!(w.take(2, receive(10, 30_000)), "d");
    delete(&mut w, a);
    assert_eq!(w.take(2, receive(10, 30_000)), "b+c");
}

#[test]
fn a_take_of_several_follows_the_group_it_began_with() {
    let mut w = world(groups(Groups::Ordered));
    for (key, body) in [("g1", "a"), ("g1", "b"), ("g2", "c"), ("g1", "d")] {
        put(&mut w, key, body);
    }
    assert_eq!(w.take(1, receive(3, 30_000)), "a+b+d");
    assert_eq!(w.take(1, receive(1, 30_000)), "c");
}

#[test]
fn a_reserved_message_blocks_later_ones_of_its_group() {
    for (longer, then) in [(1, "a"), (2, "a+b"), (0, "empty")] {
        let mut w = world(groups(Groups::Ordered));
        let ids = ["a", "b", "c"].map(|body| put(&mut w, "g", body));
        assert_eq!(w.take(1, receive(3, 1000)), "a+b+c");
        extend(&mut w, ids[longer], 4000);
        w.wait(2500);
        assert_eq!(w.take(1, receive(5, 1000)), then);
    }
}

#[test]
fn a_released_message_goes_before_later_ones_of_its_group() {
    let mut w = world(groups(Groups::Ordered));
    let ids = ["a", "b"].map(|body| put(&mut w, "g", body));
    assert_eq!(w.take(1, receive(2, 30_000)), "a+b");
    settle(&mut w, ids[0], later(0));
    assert_eq!(w.take(1, receive(5, 30_000)), "a");
    // Finished out of its order, no harm is done.
    put(&mut w, "g", "c");
    delete(&mut w, ids[1]);
    assert_eq!(w.take(1, receive(5, 30_000)), "empty");
    delete(&mut w, ids[0]);
    assert_eq!(w.take(1, receive(5, 30_000)), "c");
}

#[test]
fn delays_failures_and_restarts_keep_the_order() {
    let mut w = world(Overrides {
        retry_delay_ms: Some(1000),
        retry_jitter: Some(0),
        ..groups(Groups::Ordered)
    });
    let ids = ["a", "b", "c"].map(|body| put(&mut w, "g", body));
    assert_eq!(w.take(1, receive(1, 500)), "a");
    // Its lease runs out: a failure, after which it rests.
    w.wait(500);
    assert_eq!(w.take(1, receive(5, 30_000)), "empty");
    w.restart();
    assert_eq!(w.take(1, receive(5, 30_000)), "empty");
    w.wait(1000);
    assert_eq!(w.take(1, receive(1, 30_000)), "a");
    w.restart();
    assert_eq!(w.take(1, receive(5, 30_000)), "empty");
    settle(&mut w, ids[0], later(700));
    assert_eq!(w.take(1, receive(5, 30_000)), "empty");
    w.wait(700);
    // Set aside it leaves its group, and comes back to its place.
    let aside = How::Bury {
        priority: None,
        reason: Box::default(),
    };
    settle(&mut w, ids[0], aside);
    assert_eq!(w.take(1, receive(1, 30_000)), "b");
    w.ask(1, Command::KickId(ids[0]));
    assert_eq!(w.take(1, receive(1, 30_000)), "a");
    assert_eq!(w.take(1, receive(1, 30_000)), "empty");
}

#[test]
fn no_way_back_changes_the_order() {
    for back_to in [BackTo::Head, BackTo::Tail] {
        let mut w = world(groups(Groups::Ordered));
        for body in ["a", "b"] {
            put(&mut w, "g", body);
        }
        let mut take = receive(2, 0);
        take.lease.as_mut().unwrap().owner = LeaseOwner::Connection;
        take.lease.as_mut().unwrap().back_to = back_to;
        assert_eq!(w.take(1, take.clone()), "a+b");
        w.hang_up(1);
        assert_eq!(w.take(1, take), "a+b");
        let how = How::Release {
            priority: None,
            due: When::Now,
            back_to: Some(back_to),
        };
        let (queue, max) = (None, 9);
        w.ask(1, Command::SettleHeld { queue, how, max });
        assert_eq!([w.pop("q"), w.pop("q")], ["a", "b"]);
    }
}

#[test]
fn priorities_order_groups_and_positions_order_their_messages() {
    let mut w = world(groups(Groups::Ordered));
    for (key, priority, body) in [("g", 5, "a"), ("h", 4, "b"), ("g", 1, "c"), ("h", 9, "d")] {
        let priority = Some(priority);
        w.put_as(Put {
            priority,
            ..of_key(key, body)
        });
    }
    let newest = Take {
        end: End::Newest,
        ..plain("q")
    };
    assert_eq!(w.take(1, newest), "b");
    assert_eq!([w.pop("q"), w.pop("q"), w.pop("q")], ["a", "c", "d"]);
}

#[test]
fn messages_without_a_key_are_independent() {
    let mut w = world(groups(Groups::Ordered));
    for body in ["a", "b"] {
        w.put("q", body);
    }
    assert_eq!(w.take(1, reserve("q")), "a");
    assert_eq!(w.take(2, reserve("q")), "b");
}

#[test]
fn a_message_that_cannot_be_framed_blocks_its_group_for_that_consumer() {
    let mut w = world(groups(Groups::Ordered));
    for (key, body) in [("g", "long"), ("g", "a"), ("h", "b")] {
        put(&mut w, key, body);
    }
    let short = Take {
        body_max: Some(1),
        wait: Wait::Forever,
        ..plain("q")
    };
    assert_eq!(w.take(1, short.clone()), "b");
    assert_eq!(w.take(1, short), "waits");
    // When somebody has taken it the next one fits.
    assert_eq!(w.pop("q"), "long");
    assert_eq!(w.delivered(), [(1, "a".to_owned())]);
}

#[test]
fn companions_leave_in_order() {
    let mut w = world(groups(Groups::Ordered));
    for (priority, body) in [(9, "a"), (1, "b"), (5, "c")] {
        w.put_as(Put {
            priority: Some(priority),
            ..of_key("g", body)
        });
    }
    let mut held = of_key("g", "d");
    held.more.as_mut().unwrap().not_selectable = true;
    w.put_as(held);
    let take = Take {
        group: Some(GroupLimit {
            messages_max: 9,
            bytes_max: 1000,
        }),
        ..plain("q")
    };
    assert_eq!(w.take(1, take), "a+b+c+d");
}

#[test]
fn only_the_first_of_a_group_is_leased_by_its_id() {
    let mut w = world(groups(Groups::Ordered));
    let ids = ["a", "b"].map(|body| put(&mut w, "g", body));
    let lease = receive(1, 1000).lease.unwrap();
    let by_id = |w: &mut World, id| {
        let outcome = w.ask(1, Command::ReserveId { id, lease });
        text(&outcome.expect("answered"))
    };
    let refused = by_id(&mut w, ids[1]);
    assert!(refused.contains("not found"), "{refused}");
    assert_eq!(by_id(&mut w, ids[0]), "a");
    assert!(by_id(&mut w, ids[1]).contains("not found"));
    delete(&mut w, ids[0]);
    assert_eq!(by_id(&mut w, ids[1]), "b");
}

#[test]
fn waiting_consumers_get_the_next_of_a_group_when_it_is_free() {
    let mut w = world(groups(Groups::Ordered));
    let ids = ["a", "b", "c"].map(|body| put(&mut w, "g", body));
    assert_eq!(w.take(1, receive(1, 30_000)), "a");
    let waits = Take {
        wait: Wait::Forever,
        ..receive(1, 30_000)
    };
    for client_id in [2, 3] {
        assert_eq!(w.take(client_id, waits.clone()), "waits");
    }
    delete(&mut w, ids[0]);
    assert_eq!(w.delivered(), [(2, "b".to_owned())]);
    // Moved away it keeps nobody back.
    let to = "other".into();
    w.ask(
        9,
        Command::Delete {
            id: ids[1],
            by: By::Anyone,
        },
    );
    assert_eq!(w.delivered(), [(3, "c".to_owned())]);
    w.ask(9, Command::Move { id: ids[2], to });
}

#[test]
fn of_one_key_no_more_are_out_than_may_be() {
    let mut w = world(Overrides {
        key_in_flight_max: Some(2),
        ..Overrides::default()
    });
    let ids = ["a", "b", "c"].map(|body| put(&mut w, "g", body));
    put(&mut w, "h", "d");
    assert_eq!(w.take(1, receive(9, 30_000)), "a+b+d");
    let waits = Take {
        wait: Wait::Forever,
        ..receive(1, 30_000)
    };
    assert_eq!(w.take(2, waits), "waits");
    // One that only looks sees what the limit holds back.
    let peek = Take {
        peek: true,
        ..plain("q")
    };
    assert_eq!(w.take(3, peek), "c");
    delete(&mut w, ids[1]);
    assert_eq!(w.delivered(), [(2, "c".to_owned())]);
}

/// Limits of 0 are none: what they kept back goes, in its order.
#[test]
fn lifted_limits_of_a_key_serve_waiting_consumers() {
    let limits = |max, count| Overrides {
        key_in_flight_max: Some(max),
        key_take_rate: Some(Rate {
            count,
            per_ms: 3_600_000,
        }),
        ..Overrides::default()
    };
    for tight in [limits(1, 0), limits(0, 1)] {
        let mut w = world(tight);
        for body in ["a", "b", "c", "d"] {
            put(&mut w, "g", body);
        }
        assert_eq!(w.take(1, receive(9, 30_000)), "a");
        let waits = || Take {
            wait: Wait::Forever,
            ..receive(1, 30_000)
        };
        for client_id in [2, 3] {
            assert_eq!(w.take(client_id, waits()), "waits");
        }
        configure(&mut w, limits(0, 0));
        // What an index was kept of is let go of in steps.
        while w.engine.next_deadline() <= w.now {
            w.tick();
        }
        let served = [(2, "b".to_owned()), (3, "c".to_owned())];
        assert_eq!(w.delivered(), served);
        assert_eq!(w.take(4, receive(9, 30_000)), "d");
    }
}

#[test]
fn a_rate_of_a_key_passes_over_it_until_its_moment() {
    let mut w = world(Overrides {
        key_take_rate: Some(Rate {
            count: 10,
            per_ms: 1000,
        }),
        key_take_burst: Some(2),
        ..Overrides::default()
    });
    for body in ["a", "b", "c", "d"] {
        put(&mut w, "g", body);
    }
    put(&mut w, "h", "e");
    let popped = [w.pop("q"), w.pop("q"), w.pop("q"), w.pop("q")];
    assert_eq!(popped, ["a", "b", "e", "empty"]);
    for client_id in [1, 2] {
        assert_eq!(w.take(client_id, waiting("q")), "waits");
    }
    w.wait(99);
    assert_eq!(w.delivered(), []);
    w.wait(1);
    assert_eq!(w.delivered(), [(1, "c".to_owned())]);
    w.wait(100);
    assert_eq!(w.delivered(), [(2, "d".to_owned())]);
    // What is known of a key is forgotten when it is rested, not sooner.
    put(&mut w, "g", "f");
    assert_eq!(w.pop("q"), "empty");
    w.wait(100);
    assert_eq!(w.pop("q"), "f");
    w.wait(10_000);
    assert_eq!(w.engine.next_deadline(), Ms::NEVER);
}

#[test]
fn keys_under_their_share_go_before_one_over_it_which_is_not_starved() {
    let mut w = world(groups(Groups::Fair));
    for number in 0..140 {
        put(&mut w, "A", &format!("a{number}"));
    }
    assert_eq!(w.take(1, receive(1, 30_000)), "a0");
    let first = w.take(1, receive(39, 30_000));
    assert!(first.ends_with("+a39"), "{first}");
    put(&mut w, "B", "b");
    assert_eq!(w.take(1, receive(1, 30_000)), "b");
    assert_eq!(w.take(1, receive(1, 30_000)), "a40");
    for number in 0..20 {
        put(&mut w, "C", &format!("c{number}"));
    }
    let took = w.take(2, receive(18, 30_000));
    let took: Vec<&str> = took.split('+').collect();
    assert_eq!(took[14..], ["c14", "a41", "c15", "c16"]);
    // No key with less than thirty, or no more than a tenth, is over its share.
    let mut w = world(groups(Groups::Fair));
    for number in 0..40 {
        put(&mut w, "A", &format!("a{number}"));
    }
    put(&mut w, "B", "b");
    assert_eq!(w.take(1, receive(1, 30_000)), "a0");
    assert_eq!(w.take(1, receive(28, 30_000)).len() % 2, 0);
    assert_eq!(w.take(1, receive(1, 30_000)), "a29");
    assert_eq!(w.take(1, receive(1, 30_000)), "b");
}

/// Messages in runs, by block.
#[derive(Default)]
struct Runs {
    blocks: BTreeMap<BlockAt, Vec<Message>>,
    next: u32,
    /// Blocks that were read.
    read: usize,
    /// Blocks in memory at most, between two reads.
    loaded: u64,
}

impl Runs {
    /// Everything that may leaves memory, in blocks of so many.
    fn evict(&mut self, w: &mut World, size: usize) {
        let mut picked = Vec::new();
        let rest = w
            .engine
            .pick_segment_ref(SegmentRef(0), 0, u32::MAX, &mut picked);
        assert_eq!(rest, None);
        picked.sort_by_key(|p| {
            (
                p.message.queue,
                p.state_index,
                p.state_index.order(&p.message),
            )
        });
        let run = RunId(self.next);
        self.next += 1;
        let (mut ordinal, mut number) = (0, 0);
        for state_index in picked
            .chunk_by(|a, b| (a.message.queue, a.state_index) == (b.message.queue, b.state_index))
        {
            for block in state_index.chunks(size) {
                let written = Written {
                    number,
                    ordinal,
                    queue: block[0].message.queue,
                    state_index: block[0].state_index,
                    entries: block.iter().map(|p| (p.message.id, p.pick)).collect(),
                };
                w.engine.evict(run, &written, &mut w.facts);
                let messages = block.iter().map(|p| p.message.clone()).collect();
                self.blocks.insert(BlockAt { run, ordinal }, messages);
                ordinal += block.len() as u32;
                number += 1;
            }
        }
        w.verify();
    }

    fn find(&self, is: impl Fn(&Message) -> bool) -> Vec<(RunId, u32)> {
        let blocks = self.blocks.iter();
        let all = blocks.flat_map(|(at, messages)| {
            let numbered = (at.ordinal..).zip(messages);
            numbered.map(|(ordinal, message)| ((at.run, ordinal), message))
        });
        let found = all.filter(|(_, message)| is(message));
        found.map(|(position, _)| position).collect()
    }

    /// Reads what is asked for, until nothing is.
    fn read(&mut self, w: &mut World) {
        for round in 0.. {
            assert!(round < 10_000, "it asks again and again");
            let wants = w.engine.take_wants();
            if wants.is_empty() {
                return;
            }
            let mut found = Vec::new();
            for want in wants {
                found.push(match want {
                    Want::Block(at, _) => {
                        self.read += 1;
                        let messages = (at.ordinal..).zip(self.blocks[&at].iter().cloned());
                        LookupResult::Block(at, Some(messages.collect()))
                    }
                    Want::Id(id) => LookupResult::Id(id, self.find(|message| message.id == id)),
                    Want::Key(queue, key) => {
                        let found = self.find(|message| message.key() == Some(&key));
                        LookupResult::Key(queue, key, found)
                    }
                    Want::Room => panic!("there is no bound"),
                });
            }
            w.engine
                .supply(w.now, found, &mut w.facts, &mut w.deliveries);
            self.loaded = self.loaded.max(w.engine.cold_stats().loaded);
        }
    }

    /// A take with what it needs of runs.
    fn take(&mut self, w: &mut World, client_id: u64, take: Take) -> String {
        let answer = w.ask(client_id, Command::Take(take));
        self.read(w);
        w.verify();
        match answer.or_else(|| w.deliveries.pop().map(|delivery| delivery.outcome)) {
            Some(outcome) => text(&outcome),
            None => "waits".into(),
        }
    }
}

/// A hundred blocks of one key, and one message of another behind them.
#[test]
fn a_blocked_message_is_read_once_and_leaves_memory_again() {
    for by_limit in [false, true] {
        let limit = Overrides {
            key_in_flight_max: Some(1),
            ..Overrides::default()
        };
        let mut w = world(match by_limit {
            true => limit,
            false => groups(Groups::Ordered),
        });
        let mut runs = Runs::default();
        let first = put(&mut w, "g", "0");
        for number in 1..2000 {
            put(&mut w, "g", &format!("{number}"));
        }
        put(&mut w, "h", "other");
        assert_eq!(w.take(1, receive(1, 30_000)), "0");
        runs.evict(&mut w, 20);
        assert_eq!(w.engine.cold_stats().blocks, 100);
        assert_eq!(runs.take(&mut w, 2, receive(1, 30_000)), "other");
        assert_eq!(runs.read, 100);
        assert!(runs.loaded <= 64, "{} blocks in memory", runs.loaded);
        // Who waits behind it does not read it again.
        assert_eq!(runs.take(&mut w, 3, receive(1, 30_000)), "empty");
        let waits = Take {
            wait: Wait::Forever,
            ..receive(1, 30_000)
        };
        assert_eq!(runs.take(&mut w, 4, waits), "waits");
        w.wait(1);
        runs.read(&mut w);
        assert!(runs.read <= 100 + 32, "{} were read", runs.read);
        // When it may go the block it begins in is read, and no more.
        while w.engine.unload_oldest(0, &mut w.facts) {}
        let before = runs.read;
        delete(&mut w, first);
        runs.read(&mut w);
        assert_eq!(w.delivered(), [(4, "1".to_owned())]);
        assert!(runs.read - before <= 2, "{} were read", runs.read - before);
        w.restart();
        assert_eq!(runs.take(&mut w, 2, receive(1, 30_000)), "empty");
    }
}

/// One that is delayed, or less urgent, and in a run keeps back what stands
/// behind it.
#[test]
fn a_message_in_a_run_blocks_later_ones_of_its_group() {
    let mut w = world(groups(Groups::Ordered));
    let mut runs = Runs::default();
    w.put_as(Put {
        due: When::In(500),
        ..of_key("g", "a")
    });
    w.put_as(Put {
        priority: Some(9000),
        ..of_key("h", "b")
    });
    runs.evict(&mut w, 1);
    w.restart();
    put(&mut w, "g", "c");
    put(&mut w, "h", "d");
    put(&mut w, "i", "e");
    assert_eq!(runs.take(&mut w, 1, receive(1, 30_000)), "e");
    assert_eq!(runs.take(&mut w, 1, receive(1, 30_000)), "b");
    assert_eq!(runs.take(&mut w, 1, receive(1, 30_000)), "empty");
    w.wait(500);
    runs.read(&mut w);
    assert_eq!(runs.take(&mut w, 1, receive(9, 30_000)), "a+c");
}

/// Settings that change while many wait are put in force a slice a step.
#[test]
fn keys_begin_to_mean_something_while_many_wait() {
    let mut w = World::new();
    for number in 0..20_000 {
        let put = of_key(&format!("k{}", number % 7), &format!("{number}"));
        let caller = Caller {
            client_id: ClientId(9),
            principal: Principal(0),
        };
        w.submit(caller, Command::Put(put));
    }
    assert_eq!(w.take(1, receive(1, 30_000)), "0");
    configure(&mut w, groups(Groups::Ordered));
    // It is not told that nothing is there.
    assert_eq!(w.take(2, receive(2, 30_000)), "waits");
    let mut ticks = 0;
    while w.deliveries.is_empty() {
        assert_eq!(w.engine.next_deadline(), w.now);
        w.tick();
        ticks += 1;
    }
    assert!((2..9).contains(&ticks), "{ticks} ticks");
    assert_eq!(w.delivered(), [(2, "1+8".to_owned())]);
    // Flushed, reserved ones still keep back what comes behind them.
    w.ask(
        9,
        Command::Flush {
            queue: "q".into(),
            reserved: false,
        },
    );
    put(&mut w, "k0", "new");
    put(&mut w, "k3", "free");
    assert_eq!(w.take(3, receive(1, 30_000)), "free");
    configure(&mut w, groups(Groups::None));
    assert_eq!(w.take(3, receive(1, 30_000)), "new");
    w.wait(0);
    w.restart();
    w.verify();
}

/// Of a queue, and of the key that would be next.
#[test]
fn the_limit_that_keeps_takes_waiting_is_named() {
    let rate = Some(Rate {
        count: 1,
        per_ms: 3_600_000,
    });
    let none = Overrides::default;
    let in_flight = Overrides {
        in_flight_max: Some(1),
        ..none()
    };
    let take_rate = Overrides {
        take_rate: rate,
        ..none()
    };
    let key_in_flight = Overrides {
        key_in_flight_max: Some(1),
        ..none()
    };
    let key_rate = Overrides {
        key_take_rate: rate,
        ..none()
    };
    let both = Overrides {
        key_in_flight_max: Some(2),
        ..key_rate.clone()
    };
    for (overrides, of_queue, of_key) in [
        (none(), None, None),
        (in_flight, Some(TakeLimit::InFlight), None),
        (take_rate, Some(TakeLimit::Rate), None),
        (key_in_flight, None, Some(TakeLimit::InFlight)),
        (key_rate, None, Some(TakeLimit::Rate)),
        (both.clone(), None, Some(TakeLimit::Rate)),
    ] {
        let mut w = world(overrides);
        put(&mut w, "g", "a");
        put(&mut w, "g", "b");
        assert_eq!(w.take(1, receive(1, 30_000)), "a");
        assert_eq!(limits(&mut w), (of_queue, of_key));
    }
    let mut w = world(both);
    put(&mut w, "g", "a");
    let (queue, key) = ("q".into(), Some((*b"g").into()));
    w.ask(
        1,
        Command::Hold {
            queue,
            key,
            for_ms: 1000,
        },
    );
    assert_eq!(limits(&mut w), (None, Some(TakeLimit::Hold)));
}

fn limits(w: &mut World) -> (Option<TakeLimit>, Option<TakeLimit>) {
    let Some(Outcome::Stats(stats)) = w.ask(9, Command::Stats(StatsOf::Queue("q".into()))) else {
        panic!("numbers");
    };
    let StatsReply::Queue(stats) = *stats else {
        panic!("numbers of a queue");
    };
    (stats.limited, stats.key_limit)
}
