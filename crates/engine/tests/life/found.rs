//! Disagreements the naive model found, each with the rule it broke.

use quintet_engine::{Engine, Fact, Pause};
use quintet_types::*;

use crate::world::{World, open, plain, prioritized, reserve, waiting};

fn rules(rules: &[(&str, Overrides)]) -> Settings {
    let rules = rules
        .iter()
        .map(|(name, o)| (Pattern::new(name), o.clone()));
    Settings {
        rules: rules.collect(),
        ..Settings::default()
    }
}

fn over(queues: &[&str], take: Take) -> Take {
    Take {
        queues: queues.iter().map(|name| Name::from(*name)).collect(),
        ..take
    }
}

/// Restarts from what a new segment begins with: everything older is gone.
fn restart_from_snapshot(w: &mut World) {
    w.facts.clear();
    w.engine.set_segment_ref(SegmentRef(1));
    let mut snapshot = Vec::new();
    w.engine.snapshot(&mut |fact| snapshot.push(fact.clone()));
    w.facts = snapshot;
    w.engine.copy_out(SegmentRef(0), 0, u32::MAX, &mut w.facts);
    w.restart();
}

#[test]
fn a_list_of_puts_is_stored_whole_beside_a_waiter_over_its_queues() {
    let mut w = World::new();
    w.take(1, over(&["a", "b"], waiting("a")));
    let outcome = w.ask(
        2,
        Command::PutMany(vec![prioritized("a", 1, "x"), prioritized("b", 1, "y")]),
    );
    assert_eq!(
        outcome,
        Some(Outcome::PutMany(vec![MessageId(1), MessageId(2)]))
    );
    assert_eq!(w.delivered(), [(1, "x".to_string())]);
    assert_eq!(w.pop("b"), "y");
}

#[test]
fn the_consumer_that_waited_longest_is_first_in_every_queue_of_a_list() {
    let mut w = World::new();
    w.take(1, waiting("a"));
    w.take(2, over(&["a", "b"], waiting("a")));
    w.ask(
        3,
        Command::PutMany(vec![prioritized("b", 9, "y"), prioritized("a", 1, "x")]),
    );
    assert_eq!(w.delivered(), [(1, "x".to_string()), (2, "y".to_string())]);
}

#[test]
fn a_repeated_list_is_known_though_the_queue_is_full() {
    let mut w = World::with(rules(&[(
        "q",
        Overrides {
            messages_max: Some(1),
            ..Overrides::default()
        },
    )]));
    let put = Put {
        more: Some(Box::new(PutMore {
            token: Some(b"t".as_slice().into()),
            ..PutMore::default()
        })),
        ..prioritized("q", 1, "x")
    };
    let first = w.ask(1, Command::PutMany(vec![put.clone(), put.clone()]));
    assert_eq!(
        first,
        Some(Outcome::PutMany(vec![MessageId(1), MessageId(1)]))
    );
    assert_eq!(w.ask(1, Command::PutMany(vec![put.clone(), put])), first);
}

#[test]
fn a_list_with_a_body_that_never_fits_is_refused_whole() {
    let mut w = World::with(rules(&[(
        "q",
        Overrides {
            bytes_max: Some(2),
            when_full: Some(WhenFull::DropOldest),
            ..Overrides::default()
        },
    )]));
    let outcome = w.ask(
        1,
        Command::PutMany(vec![prioritized("q", 1, "x"), prioritized("q", 1, "long")]),
    );
    assert_eq!(outcome, Some(Outcome::Refused(CommandError::QueueFull)));
    assert_eq!(w.pop("q"), "empty");
}

#[test]
fn a_peek_from_the_newest_end_sees_each_once() {
    let mut w = World::new();
    for (priority, body) in [(1, "a"), (2, "b"), (1, "c")] {
        w.put_as(prioritized("q", priority, body));
    }
    let peek = Take {
        end: End::Newest,
        peek: true,
        messages_max: 9,
        ..plain("q")
    };
    assert_eq!(w.take(1, peek), "c+a+b");
}

#[test]
fn a_companion_the_consumer_cannot_frame_stays() {
    let mut w = World::new();
    for body in ["long", "b", "c"] {
        w.put_as(Put {
            more: Some(Box::new(PutMore {
                key: Some(b"k".as_slice().into()),
                ..PutMore::default()
            })),
            ..prioritized("q", 1, body)
        });
    }
    let group = Some(GroupLimit {
        messages_max: 9,
        bytes_max: 99,
    });
    let take = Take {
        group,
        body_max: Some(2),
        ..plain("q")
    };
    assert_eq!((w.take(1, take), w.pop("q")), ("b+c".into(), "long".into()));
}

#[test]
fn deduplication_records_go_with_their_queue() {
    let mut w = World::new();
    let put = |queue: &str| Put {
        more: Some(Box::new(PutMore {
            token: Some(b"t".as_slice().into()),
            ..PutMore::default()
        })),
        ..prioritized(queue, 1, "x")
    };
    w.put_as(put("old"));
    w.ask(1, Command::Drop("old".into()));
    restart_from_snapshot(&mut w);
    assert_eq!(w.put_as(put("new")), MessageId(2));
    assert_eq!(w.pop("new"), "x");
}

#[test]
fn a_child_older_than_its_parent_stays_its_child() {
    let mut w = World::new();
    w.put("grandchild", "x");
    w.put("child", "y");
    let join = |parent: &str, child: &str| Command::Join {
        parent: parent.into(),
        child: child.into(),
    };
    w.ask(1, join("parent", "child"));
    w.ask(1, join("child", "grandchild"));
    restart_from_snapshot(&mut w);
    w.put("child", "z");
    assert_eq!(
        (w.pop("grandchild"), w.pop("grandchild")),
        ("x".into(), "z".into())
    );
}

#[test]
fn the_idle_time_begins_again_after_a_restart_and_settings_stay() {
    let mut settings = Settings::default();
    settings.defaults.idle_ms = 5_000;
    let mut w = World::with(settings);
    w.put("q", "x");
    w.pop("q");
    w.put("told", "x");
    w.pop("told");
    w.ask(
        1,
        Command::Pause {
            queue: "told".into(),
            for_ms: None,
        },
    );
    w.wait(3_000);
    w.restart();
    let there = |w: &mut World, name: &str| {
        let stats = w.ask(1, Command::Stats(StatsOf::Queue(name.into())));
        matches!(stats, Some(Outcome::Stats(_)))
    };
    w.wait(3_000);
    assert!(there(&mut w, "q"));
    w.wait(9_000);
    assert!(!there(&mut w, "q"));
    assert!(there(&mut w, "told"));
}

#[test]
fn expired_messages_do_not_come_back_when_expire_to_is_set() {
    let mut w = World::new();
    w.put_as(Put {
        expires: Expiry::In(10),
        ..prioritized("q", 1, "x")
    });
    w.wait(10);
    let overrides = Overrides {
        expire_to: Some("late".into()),
        ..Overrides::default()
    };
    w.ask(
        1,
        Command::Configure {
            queue: "q".into(),
            overrides: Some(Box::new(overrides)),
            must_exist: false,
        },
    );
    w.restart();
    w.wait(0);
    assert_eq!(w.pop("late"), "empty");
}

#[test]
fn a_queue_that_is_down_is_down_for_reserves_by_id() {
    let mut w = World::new();
    let id = w.put("q", "x");
    let overrides = Overrides {
        down: Some(true),
        ..Overrides::default()
    };
    w.ask(
        1,
        Command::Configure {
            queue: "q".into(),
            overrides: Some(Box::new(overrides)),
            must_exist: false,
        },
    );
    let lease = reserve("q").lease.unwrap();
    assert_eq!(
        w.ask(1, Command::ReserveId { id, lease }),
        Some(Outcome::Refused(CommandError::QueueDown))
    );
}

#[test]
fn a_lease_from_a_dropped_queue_is_found_under_its_name() {
    let mut w = World::new();
    w.put("q", "x");
    assert_eq!(w.take(1, open("q")), "x");
    w.ask(2, Command::Drop("q".into()));
    w.put("q", "y");
    assert_eq!(w.take(1, open("q")), CommandError::HeldLimit.text());
    let close = Command::SettleHeld {
        queue: Some("q".into()),
        how: How::Finish,
        max: 9,
    };
    assert_eq!(w.ask(1, close), Some(Outcome::Count(1)));
    assert_eq!(w.take(1, open("q")), "y");
}

#[test]
fn leases_that_end_together_keep_their_order_at_the_head() {
    let mut w = World::new();
    for body in ["a", "b", "c"] {
        w.put("q", body);
    }
    let lease = LeaseRequest {
        owner: LeaseOwner::Time,
        time: LeaseTime::Fixed(10),
        back_to: BackTo::Head,
        held_max: 0,
    };
    let take = Take {
        lease: Some(lease),
        messages_max: 2,
        ..plain("q")
    };
    assert_eq!(w.take(1, take), "a+b");
    w.wait(10);
    assert_eq!((w.pop("q"), w.pop("q")), ("a".into(), "b".into()));
}

#[test]
fn totals_of_a_dropped_queue_survive_its_segment() {
    let mut w = World::new();
    w.put("q", "x");
    w.take(1, open("q"));
    w.ask(1, Command::Drop("q".into()));
    restart_from_snapshot(&mut w);
    let Some(Outcome::Stats(stats)) = w.ask(1, Command::Stats(StatsOf::Shard)) else {
        panic!("no numbers");
    };
    let StatsReply::Shard(shard) = *stats else {
        panic!("other numbers");
    };
    assert_eq!((shard.totals.puts, shard.totals.leases), (1, 1));
}

#[test]
fn a_message_that_leaves_a_memory_queue_is_counted_after_a_restart() {
    let mut w = World::with(rules(&[(
        "m",
        Overrides {
            memory: Some(true),
            ..Overrides::default()
        },
    )]));
    w.restart();
    let id = w.put("m", "x");
    w.ask(1, Command::Move { id, to: "q".into() });
    let back = w.put("q", "y");
    w.ask(
        1,
        Command::Move {
            id: back,
            to: "m".into(),
        },
    );
    let before = w.engine.image();
    w.restart();
    assert_eq!(w.engine.image(), before);
}

/// A reader that begins at a segment does not know the leases from the segments before it.
#[test]
fn messages_that_an_epoch_returns_are_counted_by_a_later_reader() {
    let mut w = World::new();
    w.put("a", "x");
    w.put("a", "y");
    w.take(1, open("a"));
    w.take(2, reserve("a"));
    w.facts.clear();
    w.engine.set_segment_ref(SegmentRef(1));
    let mut snapshot = Vec::new();
    w.engine.snapshot(&mut |fact| snapshot.push(fact.clone()));
    w.facts = snapshot;
    let epoch = w.engine.epoch() + 1;
    w.engine.begin_epoch(w.now, epoch, [7; 16], &mut w.facts);
    w.engine.copy_out(SegmentRef(0), 0, u32::MAX, &mut w.facts);
    assert_eq!(w.replayed(SegmentRef(1)).image(), w.engine.image());
}

/// A standby that read the whole log still has what is left of a dropped queue: a lease, purged
/// messages and deduplication records. An owner that began later gives the number to a new queue.
#[test]
fn a_reader_of_the_whole_log_gives_a_new_queue_a_dropped_ones_number() {
    let unique = |queue: &str, body: &str| Put {
        more: Some(Box::new(PutMore {
            dedupe: Some(Dedupe {
                id: b"once".as_slice().into(),
                window_ms: None,
                scope: None,
                on_repeat: None,
            }),
            ..PutMore::default()
        })),
        ..prioritized(queue, 1, body)
    };
    for leased in [true, false] {
        let mut w = World::new();
        w.restart();
        w.put("other", "stays");
        for number in 0..300 {
            w.put("old", &format!("old {number}"));
        }
        w.put_as(unique("old", "old mark"));
        if leased {
            w.take(1, reserve("old"));
        }
        w.ask(1, Command::Drop("old".into()));
        let mut standby = w.replayed(SegmentRef(0));

        restart_from_snapshot(&mut w);
        w.facts.clear();
        w.put_as(unique("new", "x"));
        w.put("new", "y");
        for fact in w.facts.clone() {
            standby.replay(fact, SegmentRef(2));
        }
        standby.verify().expect("indexes agree");
        let of = |engine: &Engine| {
            let facts = engine.image().into_iter();
            let messages = facts.filter(|fact| matches!(fact, Fact::Image(..)));
            messages.map(|fact| format!("{fact:?}")).collect::<Vec<_>>()
        };
        assert_eq!(of(&standby), of(&w.engine), "leased: {leased}");
        assert_eq!(of(&standby).len(), 3);
        assert_eq!(standby.image(), w.engine.image());
    }
}

/// A client whose first connection is lost sends its take again before the server sees the loss.
#[test]
fn the_loss_of_the_first_answer_leaves_the_leases_of_its_repeat() {
    let mut w = World::new();
    w.put("q", "a");
    let mut take = Take {
        token: Some(b"t".as_slice().into()),
        ..reserve("q")
    };
    take.lease.as_mut().expect("a lease").owner = LeaseOwner::Time;
    let handed = |w: &mut World, client_id| match w.ask(client_id, Command::Take(take.clone())) {
        Some(Outcome::Messages(messages)) => messages.into_vec(),
        other => panic!("{other:?}"),
    };
    let first = handed(&mut w, 1);
    let repeat = handed(&mut w, 2);
    assert_eq!(first[0].id, repeat[0].id);
    assert_eq!(w.ask(1, Command::Restore(first)), Some(Outcome::Count(0)));
    assert_eq!(w.pop("q"), "empty");
    let settle = Command::Settle {
        id: repeat[0].id,
        by: By::Anyone,
        how: How::Finish,
    };
    assert_eq!(w.ask(9, settle), Some(Outcome::Done));
}

/// A log that makes no sense has such facts, and is read.
#[test]
fn a_message_that_is_archived_in_a_dropped_queue_has_no_retention() {
    let mut w = World::new();
    w.put("q", "a");
    w.take(1, reserve("q"));
    w.ask(1, Command::Drop("q".into()));
    let leased = w.facts.iter().find_map(|fact| {
        let Fact::Leased { at, .. } = fact else {
            return None;
        };
        Some(*at)
    });
    let at = leased.expect("it was taken");
    let mut engine = w.replayed(SegmentRef(0));
    let archived = Fact::Archived {
        at,
        relayed: false,
        now: w.now,
        status: Box::default(),
    };
    engine.replay(archived, SegmentRef(1));
    let tick = |engine: &mut Engine, now| {
        let mut facts: Vec<Fact> = Vec::new();
        engine.tick(now, &mut facts, &mut Vec::new());
        assert!(facts.is_empty(), "{facts:?}");
    };
    let late = w.now + (1 << 40);
    tick(&mut engine, w.now);
    assert!(engine.next_deadline() > late, "nothing ends by itself");
    let pause = Pause {
        until: Some(w.now + 1),
        for_ms: 1,
    };
    let paused = Fact::QueuePaused {
        queue: at.queue,
        pause: Some(pause),
    };
    engine.replay(paused, SegmentRef(1));
    tick(&mut engine, late);
}
