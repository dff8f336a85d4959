//! Aging: the priority of a message rises while it waits.

use quintet_engine::Fact;
use quintet_sim::world::{World, plain, prioritized, reserve, text};
use quintet_types::*;

use crate::cold::Runs;

const MINUTE: u64 = 60_000;

fn aging(count: u32, minutes: u64) -> Overrides {
    Overrides {
        aging: Some(Rate {
            count,
            per_ms: minutes * MINUTE,
        }),
        ..Overrides::default()
    }
}

/// A step in ten minutes.
fn world() -> World {
    let mut settings = Settings::default();
    settings.rules.push((Pattern::new("old*"), aging(1, 10)));
    World::with(settings)
}

fn configure(w: &mut World, overrides: Overrides) {
    let configure = Command::Configure {
        queue: "old".into(),
        overrides: Some(Box::new(overrides)),
        must_exist: false,
    };
    assert_eq!(w.ask(9, configure), Some(Outcome::Done));
}

fn put(w: &mut World, queue: &str, priority: u32, body: &str) -> MessageId {
    w.put_as(prioritized(queue, priority, body))
}

/// All of a queue, in the order it leaves.
fn all(w: &mut World, queue: &str) -> String {
    let many = Take {
        messages_max: 99,
        ..plain(queue)
    };
    w.take(1, many)
}

#[test]
fn a_message_that_waits_long_goes_before_new_ones_that_are_more_urgent() {
    for queue in ["old", "young"] {
        let mut w = world();
        put(&mut w, queue, 5, "patient");
        for minutes in [20, 20, 9, 2] {
            w.wait(minutes * MINUTE);
            put(&mut w, queue, 0, "urgent");
        }
        let order = match queue {
            // It stands beside the urgent one of the same step, and came before it.
            "old" => "urgent+urgent+urgent+patient+urgent",
            _ => "urgent+urgent+urgent+urgent+patient",
        };
        w.restart();
        assert_eq!(all(&mut w, queue), order);
    }
}

#[test]
fn the_shown_priority_is_that_of_the_put_and_a_release_keeps_the_age() {
    let mut w = world();
    let id = put(&mut w, "old", 5, "patient");
    w.wait(50 * MINUTE);
    assert_eq!(w.take(1, reserve("old")), "patient");
    let how = How::Release {
        priority: None,
        due: When::Now,
        back_to: None,
    };
    let by = By::Anyone;
    w.ask(1, Command::Settle { id, by, how });
    put(&mut w, "old", 1, "newer");
    let Some(Outcome::Messages(found)) = w.ask(1, Command::Peek(Peek::Id(id))) else {
        panic!("it is there");
    };
    assert_eq!(found[0].priority, 5);
    assert_eq!(all(&mut w, "old"), "patient+newer");
}

#[test]
fn a_delay_counts_as_age_and_a_kick_takes_nothing_of_it() {
    for kicked in [false, true] {
        let mut w = world();
        let id = w.put_as(Put {
            due: When::In(50 * MINUTE),
            ..prioritized("old", 5, "delayed")
        });
        w.wait(20 * MINUTE);
        // The clock stops with the next message: 2 steps, and no forecast of more.
        configure(&mut w, aging(0, 10));
        put(&mut w, "old", 9, "last");
        if kicked {
            assert_eq!(w.ask(1, Command::KickId(id)), Some(Outcome::Done));
        }
        w.wait(30 * MINUTE);
        put(&mut w, "old", 2, "urgent");
        put(&mut w, "old", 4, "newer");
        assert_eq!(all(&mut w, "old"), "urgent+delayed+newer+last", "{kicked}");
    }
}

#[test]
fn a_change_keeps_the_rise_and_counts_from_the_next_message() {
    let mut w = world();
    put(&mut w, "old", 10, "a");
    w.wait(50 * MINUTE);
    // Risen to 5; from the next message on it rises twice as fast.
    configure(&mut w, aging(2, 10));
    put(&mut w, "old", 5, "b");
    w.restart();
    w.wait(20 * MINUTE);
    // To 1 and 1.
    put(&mut w, "old", 0, "c");
    configure(&mut w, aging(0, 10));
    w.wait(500 * MINUTE);
    // The rise stopped with the next message.
    put(&mut w, "old", 2, "d");
    assert_eq!(all(&mut w, "old"), "c+a+b+d");
    // Nothing ages any more, and nothing is kept of it.
    put(&mut w, "old", 7, "e");
    w.verify();
    let kept = w.engine.image();
    let clock = |fact: &Fact| matches!(fact, Fact::AgingSet { .. });
    assert!(!kept.iter().any(clock), "{kept:?}");
}

#[test]
fn beside_other_queues_a_priority_rises_to_0_at_most() {
    let both = || Take {
        queues: ["old", "young"].map(Name::from).into_iter().collect(),
        ..Take::default()
    };
    let mut w = world();
    put(&mut w, "old", 3, "patient");
    w.wait(10 * MINUTE);
    put(&mut w, "young", 3, "third");
    put(&mut w, "young", 1, "first");
    assert_eq!(w.take(1, both()), "first");
    assert_eq!(w.take(1, both()), "patient");
    assert_eq!(w.take(1, both()), "third");
    put(&mut w, "young", 0, "before");
    put(&mut w, "old", 1, "patient");
    w.wait(100 * MINUTE);
    assert_eq!(
        (w.take(1, both()), w.take(1, both())),
        ("before".into(), "patient".into())
    );
    // The clock of the queue has gone on since its first message.
    put(&mut w, "old", 1, "risen");
    w.wait(100 * MINUTE);
    put(&mut w, "young", 1, "newer");
    assert_eq!(w.take(1, both()), "risen");
}

#[test]
fn a_move_begins_the_age_again_by_the_target_queue() {
    let mut w = world();
    let moves = |from: &str, to: &str| {
        Command::BulkOp(Box::new(BulkOp {
            action: BulkAction::Move(to.into()),
            ..BulkOp::show(from.into(), ListState::Ready, 9)
        }))
    };
    put(&mut w, "old", 5, "a");
    put(&mut w, "older", 5, "first");
    w.wait(50 * MINUTE);
    w.ask(1, moves("old", "older"));
    put(&mut w, "older", 4, "b");
    w.restart();
    assert_eq!(all(&mut w, "older"), "first+b+a");
    put(&mut w, "older", 9, "c");
    w.ask(1, moves("older", "young"));
    put(&mut w, "young", 10, "d");
    assert_eq!(all(&mut w, "young"), "c+d");
}

#[test]
fn messages_in_runs_keep_their_age() {
    let mut w = world();
    let mut runs = Runs::default();
    put(&mut w, "old", 5, "a");
    put(&mut w, "old", 9, "b");
    w.wait(50 * MINUTE);
    runs.evict(&mut w);
    put(&mut w, "old", 0, "c");
    put(&mut w, "old", 1, "d");
    let mut order = Vec::new();
    for _ in 0..4 {
        match w.ask(1, Command::Take(plain("old"))) {
            Some(outcome) => order.push(text(&outcome)),
            None => {
                runs.read(&mut w);
                order.extend(w.delivered().into_iter().map(|(_, body)| body));
            }
        }
    }
    assert_eq!(order, ["a", "c", "d", "b"]);
}

#[test]
fn a_snapshot_keeps_the_risen_priorities() {
    let mut w = world();
    put(&mut w, "old", 5, "patient");
    w.wait(50 * MINUTE);
    // A later segment, and nothing before it.
    w.engine.set_segment_ref(SegmentRef(1));
    w.facts.clear();
    let mut snapshot = Vec::new();
    w.engine.snapshot(&mut |fact| snapshot.push(fact.clone()));
    w.facts = snapshot;
    w.engine.copy_out(SegmentRef(0), 0, u32::MAX, &mut w.facts);
    w.engine = w.replayed(SegmentRef(1));
    put(&mut w, "old", 1, "newer");
    assert_eq!(all(&mut w, "old"), "patient+newer");
}

#[test]
fn groups_rise_with_their_first_message() {
    for groups in [Groups::Ordered, Groups::Fair] {
        let mut settings = Settings::default();
        settings.defaults.groups = groups;
        settings.rules.push((Pattern::new("old"), aging(1, 10)));
        let mut w = World::with(settings);
        let keyed = |priority: u32, key: &str, body: &str| Put {
            more: Some(Box::new(PutMore {
                key: Some(key.as_bytes().into()),
                ..PutMore::default()
            })),
            ..prioritized("old", priority, body)
        };
        w.put_as(keyed(5, "a", "a"));
        w.wait(45 * MINUTE);
        w.put_as(keyed(0, "b", "b"));
        w.put_as(keyed(2, "c", "c"));
        assert_eq!(all(&mut w, "old"), "b+a+c");
    }
}

#[test]
fn where_nothing_ages_a_message_carries_nothing() {
    let mut w = world();
    put(&mut w, "young", 5, "a");
    let plain = |fact: &Fact| matches!(fact, Fact::Put(message) if message.extra.is_none());
    assert!(w.facts.iter().any(plain));
    assert!(
        !w.facts
            .iter()
            .any(|fact| matches!(fact, Fact::AgingSet { .. }))
    );
}

#[test]
fn a_reply_ages_like_any_message_of_its_queue() {
    let mut w = world();
    put(&mut w, "old", 1024, "first");
    let reply = ReplyTo {
        queue: "old".into(),
        ..ReplyTo::default()
    };
    let id = w.put_as(Put {
        more: Some(Box::new(PutMore {
            reply: Some(Box::new(reply)),
            ..PutMore::default()
        })),
        ..prioritized("young", 1024, "ask")
    });
    w.wait(50 * MINUTE);
    assert_eq!(w.take(1, reserve("young")), "ask");
    let (relayed, status) = (false, b"reply"[..].into());
    let how = How::Archive { relayed, status };
    let by = By::Anyone;
    assert_eq!(
        w.ask(1, Command::Settle { id, by, how }),
        Some(Outcome::Done)
    );
    put(&mut w, "old", 1023, "more urgent");
    w.restart();
    assert_eq!(all(&mut w, "old"), "first+more urgent+reply");
}

#[test]
fn where_messages_age_a_full_queue_refuses_and_drops_none() {
    let mut w = world();
    let full = |count| Overrides {
        messages_max: Some(1),
        when_full: Some(WhenFull::DropOldest),
        ..aging(count, 10)
    };
    configure(&mut w, full(1));
    put(&mut w, "old", 5, "first");
    let second = || Command::Put(prioritized("old", 5, "second"));
    let refused = Some(Outcome::Refused(CommandError::QueueFull));
    assert_eq!(w.ask(1, second()), refused);
    // Also while those that have aged wait.
    configure(&mut w, full(0));
    assert_eq!(w.ask(1, second()), refused);
    assert_eq!(all(&mut w, "old"), "first");
}

#[test]
fn urgent_is_counted_by_the_priority_of_the_put() {
    let mut w = world();
    put(&mut w, "old", 1023, "first");
    w.wait(20 * MINUTE);
    put(&mut w, "old", 1023, "behind two steps");
    w.verify();
}

#[test]
fn a_message_that_is_restored_to_an_empty_queue_stands_by_its_clock() {
    let mut w = world();
    put(&mut w, "old", 5, "first");
    w.wait(50 * MINUTE);
    put(&mut w, "old", 5, "taken");
    let many = Take {
        messages_max: 99,
        ..plain("old")
    };
    let Some(Outcome::Messages(taken)) = w.ask(1, Command::Take(many)) else {
        panic!("they are there");
    };
    configure(&mut w, aging(0, 10));
    // The clock ends with the next message.
    put(&mut w, "old", 7, "newer");
    w.ask(1, Command::Restore(taken.into_vec()));
    assert_eq!(all(&mut w, "old"), "first+taken+newer");
}
