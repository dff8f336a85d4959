//! Highest cost of one step, whatever there is.

use quintet_engine::Fact;
use quintet_types::*;

use crate::world::{World, plain, prioritized, reserve, waiting};

const MANY: u64 = 5000;

/// Puts of `q`, in one step.
fn puts(w: &mut World, put: impl Fn(u64) -> Put) {
    let puts = (0..MANY).map(|number| Put {
        queue: "q".into(),
        body: Body::new(number.to_string().as_bytes()),
        ..put(number)
    });
    w.ask(9, Command::PutMany(puts.collect()));
}

fn gauges(w: &mut World) -> QueueGauges {
    match w.ask(9, Command::Stats(StatsOf::Queue("q".into()))) {
        Some(Outcome::Stats(stats)) => match *stats {
            StatsReply::Queue(stats) => stats.gauges,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// The most facts one tick recorded, of all that are due.
fn longest_tick(w: &mut World) -> usize {
    let mut longest = 0;
    while w.engine.next_deadline() <= w.now {
        let before = w.facts.len();
        w.engine.tick(w.now, &mut w.facts, &mut w.deliveries);
        w.engine.verify().unwrap();
        longest = longest.max(w.facts.len() - before);
    }
    longest
}

#[test]
fn messages_due_at_once_become_ready_in_steps_and_in_order() {
    let mut w = World::new();
    puts(&mut w, |_| Put {
        due: When::In(1000),
        ..Put::default()
    });
    w.now = w.now + 1001;
    assert_eq!(w.pop("q"), "0");
    let held = gauges(&mut w);
    assert!(held.delayed > MANY / 2, "{held:?}");
    longest_tick(&mut w);
    assert_eq!(gauges(&mut w).ready, MANY - 1);
    let all = Take {
        messages_max: MANY as u32,
        ..plain("q")
    };
    let Some(Outcome::Messages(all)) = w.ask(1, Command::Take(all)) else {
        panic!("there are some");
    };
    let ids: Vec<u64> = all.iter().map(|message| message.id.0).collect();
    assert_eq!(ids, (2..=MANY).collect::<Vec<_>>());
}

/// Many that have expired, and one behind them that has not.
fn expired() -> World {
    let mut w = World::new();
    puts(&mut w, |number| Put {
        expires: match number + 1 < MANY {
            true => Expiry::In(1000),
            false => Expiry::Never,
        },
        ..Put::default()
    });
    w.now = w.now + 1001;
    w
}

#[test]
fn behind_many_that_expired_at_once_a_waiting_take_is_served() {
    let mut w = expired();
    let before = w.facts.len();
    assert_eq!(w.take(1, waiting("q")), "waits");
    assert!(w.facts.len() - before < MANY as usize / 2);
    assert!(longest_tick(&mut w) < MANY as usize / 2);
    assert_eq!(w.delivered(), [(1, (MANY - 1).to_string())]);
}

/// No client gets the reply that there is nothing while something stands behind them.
#[test]
fn no_take_behind_many_expired_messages_gets_empty() {
    let peek = Take {
        peek: true,
        ..plain("q")
    };
    let two = Take {
        messages_max: 2,
        ..plain("q")
    };
    let both = Take {
        queues: ["q", "r"].map(Name::from).into_iter().collect(),
        ..plain("q")
    };
    let newest = Take {
        end: End::Newest,
        ..plain("q")
    };
    for take in [plain("q"), peek, two, both, newest, reserve("q")] {
        let mut w = expired();
        let newest = take.end == End::Newest;
        let answered = w.take(1, take);
        if newest {
            // The good one stands first there.
            assert_eq!(answered, (MANY - 1).to_string());
            continue;
        }
        assert_eq!(answered, "waits");
        // One after it does not overtake it.
        assert_eq!(w.take(2, plain("q")), "waits");
        assert!(w.engine.next_deadline() <= w.now);
        assert!(longest_tick(&mut w) < MANY as usize / 2);
        let good = (MANY - 1).to_string();
        let delivered = w.delivered();
        assert_eq!(delivered[0], (1, good), "{delivered:?}");
        assert_eq!(delivered.len(), 2, "{delivered:?}");
    }
}

/// Where all have expired, that is its reply, when they are gone.
#[test]
fn a_take_behind_only_expired_messages_gets_empty() {
    let mut w = World::new();
    puts(&mut w, |_| Put {
        expires: Expiry::In(1000),
        ..Put::default()
    });
    w.now = w.now + 1001;
    assert_eq!(w.take(1, plain("q")), "waits");
    longest_tick(&mut w);
    assert_eq!(w.delivered(), [(1, "empty".into())]);
    // Who hangs up meanwhile is told nothing.
    let mut w = expired();
    assert_eq!(w.take(1, plain("q")), "waits");
    w.hang_up(1);
    longest_tick(&mut w);
    assert_eq!((w.delivered(), w.pop("q")), (vec![], "4999".into()));
}

#[test]
fn messages_of_a_closed_connection_return_in_steps_and_in_order() {
    let mut w = World::new();
    puts(&mut w, |_| Put::default());
    let many = Take {
        messages_max: MANY as u32,
        ..reserve("q")
    };
    let timed = Take {
        lease: reserve("q").lease.map(|lease| LeaseRequest {
            owner: LeaseOwner::Time,
            ..lease
        }),
        ..plain("q")
    };
    assert_eq!(w.take(1, timed), "0");
    w.ask(1, Command::Take(many));
    let before = w.facts.len();
    w.hang_up(1);
    assert!(w.facts.len() - before < MANY as usize / 2);
    assert!(gauges(&mut w).reserved > MANY / 2);
    assert!(longest_tick(&mut w) < MANY as usize / 2);
    let held = gauges(&mut w);
    assert_eq!((held.ready, held.reserved), (MANY - 1, 1));
    assert_eq!((w.pop("q"), w.pop("q")), ("1".into(), "2".into()));
}

#[test]
fn a_kick_a_move_and_children_have_a_bound() {
    let mut w = World::new();
    puts(&mut w, |_| Put {
        due: When::In(1000),
        ..Put::default()
    });
    let kick = Command::Kick {
        queue: "q".into(),
        state: ListState::Delayed,
        max: u64::MAX,
    };
    assert_eq!(w.ask(1, kick.clone()), Some(Outcome::Count(4096)));
    assert_eq!(w.ask(1, kick), Some(Outcome::Count(MANY - 4096)));
    let moves = Command::BulkOp(Box::new(BulkOp {
        action: BulkAction::Move("r".into()),
        ..BulkOp::show("q".into(), ListState::Ready, u32::MAX)
    }));
    for left in [MANY - 1024, MANY - 2048] {
        match w.ask(1, moves.clone()) {
            Some(Outcome::BulkDone(done)) => assert_eq!(done.matched, 1024),
            other => panic!("{other:?}"),
        }
        assert_eq!(gauges(&mut w).ready, left);
    }
    let join = |child: u32| Command::Join {
        parent: "p".into(),
        child: Name::from(format!("p+{child}").as_str()),
    };
    for child in 0..1024 {
        assert_eq!(w.ask(1, join(child)), Some(Outcome::Count(1)));
    }
    let refused = Some(Outcome::Refused(CommandError::TooManyQueues));
    assert_eq!(w.ask(1, join(1024)), refused);
    assert_eq!(w.ask(1, join(7)), Some(Outcome::Done));
}

/// A restart with lower limits, as after an upgrade that counts more: the queues keep what they
/// hold, and take no more.
#[test]
fn a_queue_that_is_over_its_limit_at_a_start_refuses_puts_and_loses_nothing() {
    for when_full in [WhenFull::Refuse, WhenFull::DropOldest] {
        let mut w = World::new();
        let long = "x".repeat(1000);
        for _ in 0..10 {
            w.put("q", &long);
        }
        w.settings.defaults.bytes_max = 5000;
        w.settings.defaults.messages_max = 5;
        w.settings.defaults.when_full = when_full;
        w.restart();
        // Whatever time does by itself: minutes of it.
        for _ in 0..10 {
            w.wait(60_000);
        }
        assert_eq!(gauges(&mut w).ready, 10, "{when_full:?}");
        if when_full == WhenFull::Refuse {
            let refused = w.ask(1, Command::Put(prioritized("q", 1, "late")));
            assert_eq!(refused, Some(Outcome::Refused(CommandError::QueueFull)));
            assert_eq!(gauges(&mut w).ready, 10);
            // It takes puts again once it is within its limits.
            (0..6).for_each(|_| assert_eq!(w.pop("q"), long));
            w.put("q", "late");
        }
    }
}

/// The same of a user's bytes and of memory.
#[test]
fn memory_over_its_limit_at_a_start_refuses_puts_and_loses_nothing() {
    let mut w = World::new();
    let attrs = || PutMore {
        attrs: vec![(b"a".as_slice().into(), vec![b'x'; 10_000].into())],
        ..PutMore::default()
    };
    for _ in 0..10 {
        w.put_as(Put {
            more: Some(Box::new(attrs())),
            ..prioritized("q", 1, "x")
        });
    }
    w.settings.memory_max = 50_000;
    w.settings.defaults.when_full = WhenFull::DropOldest;
    w.restart();
    for _ in 0..10 {
        w.wait(60_000);
    }
    assert_eq!(gauges(&mut w).ready, 10);
    let put = Command::Put(prioritized("q", 1, "late"));
    let refused = Some(Outcome::Refused(CommandError::NoMemory));
    assert_eq!(w.ask(1, put), refused);
    assert_eq!(gauges(&mut w).ready, 10);
    (0..7).for_each(|_| assert_eq!(w.pop("q"), "x"));
    w.put("q", "late");
    // What a put brings counts before it is stored.
    let large = Put {
        more: Some(Box::new(attrs())),
        ..prioritized("q", 1, "x")
    };
    assert_eq!(
        w.ask(1, Command::Put(large.clone())),
        Some(Outcome::Put {
            id: MessageId(12),
            fresh: true
        })
    );
    assert_eq!(w.ask(1, Command::Put(large)), refused);
}

/// A message with 100 bytes of one kind of content, its body among the kinds.
fn hundred(kind: usize) -> Put {
    let bytes = [b'x'; 100];
    let mut more = PutMore::default();
    let mut put = prioritized("q", 1, "");
    match kind {
        0 => put.body = Body::new(&bytes),
        1 => more.attrs = vec![(bytes[..40].into(), bytes[..60].into())],
        2 => more.key = Some(bytes.into()),
        3 => more.name = Some(bytes.into()),
        _ => {
            more.past = Some(Box::new(Past {
                state: State::Ready,
                status: bytes.into(),
                ..Past::default()
            }));
        }
    }
    put.more = Some(Box::new(more));
    put
}

/// Every kind of content counts, in memory and in runs.
#[test]
fn all_of_a_message_counts_for_the_bytes_of_its_queue() {
    for kind in 0..5 {
        let mut w = World::new();
        w.settings.defaults.bytes_max = 250;
        w.restart();
        let full = Some(Outcome::Refused(CommandError::QueueFull));
        w.put_as(hundred(kind));
        let id = w.put_as(hundred(kind));
        assert_eq!(w.ask(1, Command::Put(hundred(kind))), full, "{kind}");
        let list = Command::PutMany(vec![hundred(kind)]);
        assert_eq!(w.ask(1, list), full, "{kind}");
        let sizes = |w: &mut World| (gauges(w).waiting_bytes, gauges(w).bytes);
        assert_eq!(sizes(&mut w), (200, 200), "{kind}");
        w.restart();
        assert_eq!(sizes(&mut w), (200, 200), "{kind}");
        // What is taken waits no more; what is said of a message is part of it.
        w.take(1, reserve("q"));
        assert_eq!(sizes(&mut w), (100, 200), "{kind}");
        let (by, how) = (
            By::Anyone,
            How::Bury {
                priority: None,
                reason: b"why".as_slice().into(),
            },
        );
        w.ask(
            1,
            Command::Settle {
                id: MessageId(1),
                by,
                how,
            },
        );
        let expected = if kind == 4 { 3 } else { 103 };
        assert_eq!(sizes(&mut w), (100, 100 + expected), "{kind}");
        w.put_as(hundred(kind));
        w.ask(1, Command::Delete { id, by });
        assert_eq!(sizes(&mut w), (100, 100 + expected), "{kind}");
    }
}

/// A queue `q` of five messages at most, where the oldest make way, that holds two steps' worth and
/// 100, as after an upgrade that counts more.
fn far_over_its_limit() -> (World, u64) {
    let many = 2 * MESSAGES_PER_STEP + 100;
    let mut w = World::new();
    let puts = (0..many).map(|_| prioritized("q", 1024, "x"));
    w.ask(9, Command::PutMany(puts.collect()));
    w.settings.defaults.messages_max = 5;
    w.settings.defaults.when_full = WhenFull::DropOldest;
    w.restart();
    assert_eq!(gauges(&mut w).ready, many);
    (w, many)
}

#[test]
fn a_queue_far_over_its_limit_shrinks_by_a_bounded_number_with_each_put() {
    let step = MESSAGES_PER_STEP;
    let (mut w, many) = far_over_its_limit();
    for left in [many - step + 1, many - 2 * step + 2] {
        w.put("q", "late");
        assert_eq!(gauges(&mut w).ready, left);
    }
    w.put("q", "late");
    assert_eq!(gauges(&mut w).ready, 5);
}

/// Several puts in one step share that number, and all of them are stored.
#[test]
fn puts_of_a_list_drop_a_bounded_number_together() {
    let step = MESSAGES_PER_STEP;
    let (mut w, many) = far_over_its_limit();
    let list = || Command::PutMany(vec![prioritized("q", 1024, "late"); 10]);
    assert!(matches!(w.ask(1, list()), Some(Outcome::PutMany(_))));
    // Of the ten each but the first drops one for itself.
    assert_eq!(gauges(&mut w).ready, many - step - 9 + 10);
    assert!(matches!(w.ask(1, list()), Some(Outcome::PutMany(_))));
    assert!(matches!(w.ask(1, list()), Some(Outcome::PutMany(_))));
    assert_eq!(gauges(&mut w).ready, 5);
}

/// No log has a queue of 2^28 or more. One of a great number takes no memory for those before it.
#[test]
fn a_queue_is_refused_whose_number_would_be_too_great() {
    let mut w = World::new();
    w.put("there", "a");
    w.facts.push(Fact::QueueMade {
        queue: QueueId((1 << 28) - (1 << 24) - 1),
        name: "last".into(),
        parent: None,
        created: Ms(1),
    });
    w.restart();
    let put = |queue: &str| Command::Put(Put::new(queue.into(), Body::new(b"b")));
    let refused = Some(Outcome::Refused(CommandError::TooManyQueues));
    assert_eq!(w.ask(9, put("new")), refused);
    for queue in ["there", "last"] {
        assert!(matches!(w.ask(9, put(queue)), Some(Outcome::Put { .. })));
    }
}
