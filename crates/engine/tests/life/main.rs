//! The life of messages, one rule a test. What the model of `quintet-sim` found is in `found`.

mod afar;
mod after;
mod after_limits;
mod aging;
mod asserted;
mod awaited;
mod batches;
mod begun;
mod bounds;
mod bulk_done;
mod buried;
mod callers;
mod cancelled;
mod carried;
mod clock;
mod cold;
mod created;
mod decided;
mod ends;
mod found;
mod grouped;
mod held_keys;
mod limited;
mod made;
mod named;
mod newest;
mod one_key;
mod paged;
mod past;
mod purged;
mod replies;
mod results;
mod retried;
mod shown;
mod told;
mod unique;
mod watched;

use quintet_sim::world;
use quintet_types::*;

use world::{World, open, plain, prioritized, reserve, waiting};

#[test]
fn priorities_then_fifo_and_newest_first_from_the_same_queue() {
    let mut w = World::new();
    for (priority, body) in [(9, "a"), (1, "b"), (5, "c"), (1, "d"), (1, "e")] {
        w.put_as(prioritized("q", priority, body));
    }
    assert_eq!(
        w.take(
            1,
            Take {
                end: End::Newest,
                ..plain("q")
            }
        ),
        "e"
    );
    assert_eq!(
        (w.pop("q"), w.pop("q"), w.pop("q")),
        ("b".into(), "d".into(), "c".into())
    );
    assert_eq!((w.pop("q"), w.pop("q")), ("a".into(), "empty".into()));
}

#[test]
fn first_id_is_one_and_ids_survive_restart_even_unused_ones() {
    let mut w = World::new();
    assert_eq!(w.put("q", "a"), MessageId(1));
    w.ask(1, Command::BurnId);
    w.pop("q");
    w.restart();
    assert_eq!(w.put("q", "b"), MessageId(3));
}

#[test]
fn companions_leave_together_and_one_not_selectable_never_alone() {
    let mut w = World::new();
    let keyed = |priority: u32, key: &str, body: &str, not_selectable| Put {
        more: Some(Box::new(PutMore {
            not_selectable,
            key: Some(key.as_bytes().into()),
            ..PutMore::default()
        })),
        ..prioritized("q", priority, body)
    };
    w.put_as(keyed(0, "k", "zero", true));
    let group = GroupLimit {
        messages_max: 65535,
        bytes_max: 1 << 26,
    };
    let pop = || Take {
        end: End::Newest,
        group: Some(group),
        ..plain("q")
    };
    assert_eq!(w.take(1, pop()), "empty");
    assert_eq!(w.pop("q"), "empty");
    w.put_as(keyed(1, "k", "1", false));
    w.put_as(keyed(9, "k", "2", false));
    w.put_as(keyed(1, "x", "3", false));
    w.restart();
    assert_eq!(w.take(1, pop()), "3");
    assert_eq!(w.take(1, pop()), "1+2+zero");
    assert_eq!(w.take(1, pop()), "empty");
}

#[test]
fn a_key_that_no_protocol_can_name_is_refused() {
    let mut w = World::new();
    let mut put = |more: PutMore| {
        let put = Put {
            queue: "q".into(),
            more: Some(Box::new(more)),
            ..Put::default()
        };
        w.ask(9, Command::Put(put))
    };
    let key = |len: usize| PutMore {
        key: Some(vec![7; len].into()),
        ..PutMore::default()
    };
    // These are remembered when the message is gone.
    let token = |len: usize| PutMore {
        token: Some(vec![7; len].into()),
        ..PutMore::default()
    };
    let unique = |len: usize| PutMore {
        dedupe: Some(Dedupe {
            id: vec![7; len].into(),
            window_ms: Some(1000),
            scope: None,
            on_repeat: None,
        }),
        ..PutMore::default()
    };
    let refused = Some(Outcome::Refused(CommandError::MessageTooLarge));
    for more in [key(65_536), token(65_536), unique(65_536)] {
        assert_eq!(put(more), refused);
    }
    for more in [key(65_535), token(65_535), unique(65_535)] {
        assert_ne!(put(more), refused);
    }
}

#[test]
fn an_aborted_read_goes_to_the_head_and_a_disconnect_keeps_order() {
    let mut w = World::new();
    for body in ["a", "b", "c"] {
        w.put("q", body);
    }
    assert_eq!(w.take(1, open("q")), "a");
    assert_eq!(w.take(1, open("q")), "close current item first");
    assert_eq!(w.take(2, open("q")), "b");
    let abort = |queue: &str| Command::SettleHeld {
        queue: Some(queue.into()),
        how: How::Release {
            priority: None,
            due: When::Now,
            back_to: None,
        },
        max: 1,
    };
    assert_eq!(w.ask(1, abort("q")), Some(Outcome::Count(1)));
    assert_eq!(w.ask(2, abort("q")), Some(Outcome::Count(1)));
    let two = || {
        let mut take = open("q");
        take.lease.as_mut().unwrap().held_max = 9;
        take
    };
    // The text: an aborted item is the next one fetched.
    assert_eq!(
        (w.take(3, two()), w.take(3, two())),
        ("b".into(), "a".into())
    );
    w.hang_up(3);
    assert_eq!(
        (w.pop("q"), w.pop("q"), w.pop("q")),
        ("b".into(), "a".into(), "c".into())
    );
}

#[test]
fn leases_end_with_connection_time_or_restart_as_they_are_bound() {
    let mut w = World::new();
    let a = w.put_as(Put {
        ttr_ms: Some(1000),
        ..prioritized("q", 1, "a")
    });
    assert_eq!(w.take(1, reserve("q")), "a");
    w.wait(999);
    assert_eq!(w.pop("q"), "empty");
    w.ask(1, Command::Touch(a));
    w.wait(999);
    assert_eq!(w.pop("q"), "empty");
    w.wait(1);
    assert_eq!(w.take(2, reserve("q")), "a");
    w.restart();
    assert_eq!(w.take(2, reserve("q")), "a");
    w.hang_up(2);
    let timed = LeaseRequest {
        owner: LeaseOwner::TimeElseConnection,
        time: LeaseTime::TtrOrDefault,
        back_to: BackTo::Position,
        held_max: 0,
    };
    assert_eq!(
        w.take(
            3,
            Take {
                lease: Some(timed),
                ..plain("q")
            }
        ),
        "a"
    );
    w.hang_up(3);
    w.restart();
    assert_eq!(w.pop("q"), "empty");
    // Downtime counts: the deadline is absolute.
    w.wait(1000);
    assert_eq!(w.pop("q"), "a");
}

#[test]
fn waiters_are_served_in_line_and_dead_ones_skipped() {
    let mut w = World::new();
    assert_eq!(w.take(1, waiting("q")), "waits");
    assert_eq!(w.take(2, waiting("q")), "waits");
    assert_eq!(
        w.take(
            3,
            Take {
                wait: Wait::For(500),
                ..plain("q")
            }
        ),
        "waits"
    );
    w.hang_up(1);
    w.put("q", "x");
    assert_eq!(w.delivered(), [(2, "x".into())]);
    w.wait(499);
    assert_eq!(w.delivered(), []);
    w.wait(1);
    assert_eq!(w.delivered(), [(3, "empty".into())]);
    assert_eq!(w.take(4, waiting("q")), "waits");
    w.ask(5, Command::Drop("q".into()));
    w.put("q", "again");
    assert_eq!(w.delivered(), [(4, "again".into())]);
}

#[test]
fn a_waiter_over_several_queues_gets_the_best_and_only_once() {
    let mut w = World::new();
    let both = Take {
        queues: ["a", "b"].map(Name::from).into_iter().collect(),
        wait: Wait::Forever,
        ..Take::default()
    };
    assert_eq!(w.take(1, both.clone()), "waits");
    w.put("b", "x");
    w.put("a", "y");
    assert_eq!(w.delivered(), [(1, "x".into())]);
    w.put_as(prioritized("b", 1, "z"));
    assert_eq!(w.take(1, both), "z");
}

#[test]
fn a_subscription_is_served_once_and_keeps_its_turn_when_it_changes() {
    let mut w = World::new();
    let on = |queues: &[&str]| {
        Box::new(Take {
            queues: queues.iter().map(|&queue| queue.into()).collect(),
            wait: Wait::Forever,
            ..Take::default()
        })
    };
    // The first names no queue yet, and is still in front of the second.
    w.ask(1, Command::Watch(Some(on(&[]))));
    w.ask(2, Command::Watch(Some(on(&["a"]))));
    w.ask(1, Command::Rewatch(on(&["a", "b"])));
    w.put("a", "x");
    assert_eq!(w.delivered(), [(1, "x".to_owned())]);
    // Its delivery may still be on the way: a change begins nothing anew.
    w.ask(1, Command::Rewatch(on(&["b"])));
    w.put("b", "y");
    assert_eq!(w.delivered(), []);
    w.ask(1, Command::Watch(Some(on(&["b"]))));
    assert_eq!(w.delivered(), [(1, "y".to_owned())]);
    w.ask(2, Command::Rewatch(on(&["c"])));
    w.put("a", "z");
    assert_eq!(w.delivered(), []);
    w.ask(2, Command::Rewatch(on(&["c", "a"])));
    assert_eq!(w.delivered(), [(2, "z".to_owned())]);
}

#[test]
fn delay_and_expiry_are_predicates_on_time() {
    let mut w = World::new();
    w.put_as(Put {
        due: When::In(100),
        ..prioritized("q", 1, "late")
    });
    w.put_as(Put {
        expires: Expiry::In(50),
        ..prioritized("q", 2, "short")
    });
    w.put_as(Put {
        expires: Expiry::At(Ms(5)),
        ..prioritized("q", 2, "never seen")
    });
    let facts = w.facts.len();
    assert_eq!(w.pop("q"), "short");
    w.put_as(Put {
        expires: Expiry::In(50),
        ..prioritized("q", 2, "short")
    });
    w.restart();
    w.wait(60);
    assert_eq!(w.pop("q"), "empty");
    w.wait(40);
    assert_eq!(w.pop("q"), "late");
    assert!(w.facts.len() > facts);
}

#[test]
fn a_delayed_message_wakes_a_waiter() {
    let mut w = World::new();
    w.put_as(Put {
        due: When::In(100),
        ..prioritized("q", 1, "late")
    });
    assert_eq!(w.take(1, waiting("q")), "waits");
    assert_eq!(w.engine.next_deadline(), w.now + 100);
    w.wait(100);
    assert_eq!(w.delivered(), [(1, "late".into())]);
}

#[test]
fn bury_kick_and_delete() {
    let mut w = World::new();
    let a = w.put("q", "a");
    let b = w.put_as(Put {
        due: When::In(1000),
        ..prioritized("q", 1, "b")
    });
    w.take(1, reserve("q"));
    let bury = How::Bury {
        priority: None,
        reason: b"why".as_slice().into(),
    };
    let settle = |by, id| Command::Settle {
        id,
        by,
        how: bury.clone(),
    };
    assert_eq!(
        w.ask(2, settle(By::Owner, a)),
        Some(Outcome::Refused(CommandError::NotFound))
    );
    assert_eq!(w.ask(1, settle(By::Owner, a)), Some(Outcome::Done));
    w.restart();
    assert_eq!(
        w.ask(
            1,
            Command::Kick {
                queue: "q".into(),
                state: ListState::Buried,
                max: 9
            }
        ),
        Some(Outcome::Count(1))
    );
    assert_eq!(
        w.ask(
            1,
            Command::Kick {
                queue: "q".into(),
                state: ListState::Delayed,
                max: 9
            }
        ),
        Some(Outcome::Count(1))
    );
    assert_eq!((w.pop("q"), w.pop("q")), ("b".into(), "a".into()));
    let delete = Command::Delete {
        id: b,
        by: By::Anyone,
    };
    assert_eq!(
        w.ask(1, delete),
        Some(Outcome::Refused(CommandError::NotFound))
    );
}

#[test]
fn flush_leaves_reserved_ones_and_drop_dooms_them() {
    let mut w = World::new();
    w.put("q", "a");
    w.put("q", "b");
    w.take(1, open("q"));
    assert_eq!(
        w.ask(
            2,
            Command::Flush {
                queue: "q".into(),
                reserved: false
            }
        ),
        Some(Outcome::Count(1))
    );
    w.put("q", "c");
    w.hang_up(1);
    assert_eq!((w.pop("q"), w.pop("q")), ("a".into(), "c".into()));
    w.put("q", "d");
    w.put("q", "e");
    w.take(1, open("q"));
    w.ask(2, Command::Drop("q".into()));
    w.put("q", "f");
    w.hang_up(1);
    w.restart();
    assert_eq!((w.pop("q"), w.pop("q")), ("f".into(), "empty".into()));
}

#[test]
fn puts_over_the_memory_limit_are_refused_until_there_is_room() {
    let settings = Settings {
        memory_max: 2000,
        ..Settings::default()
    };
    let mut w = World::with(settings);
    let put = || Command::Put(prioritized("q", 1, &"x".repeat(300)));
    let mut stored = 0;
    while let Some(Outcome::Put { .. }) = w.ask(1, put()) {
        stored += 1;
        assert!(stored < 10, "ten times 300 bytes are over 2000");
    }
    assert!(stored > 0);
    let refused = Some(Outcome::Refused(CommandError::NoMemory));
    assert_eq!(w.ask(1, put()), refused);
    w.pop("q");
    assert!(matches!(w.ask(1, put()), Some(Outcome::Put { .. })));
    assert_eq!(w.ask(1, put()), refused);
}

#[test]
fn a_full_queue_refuses_or_drops_the_oldest() {
    let rule = |name: &str, when_full| {
        let overrides = Overrides {
            messages_max: Some(2),
            when_full: Some(when_full),
            ..Overrides::default()
        };
        (Pattern::new(name), overrides)
    };
    let rules = vec![
        rule("refuse", WhenFull::Refuse),
        rule("drop", WhenFull::DropOldest),
    ];
    let mut w = World::with(Settings {
        rules,
        ..Settings::default()
    });
    for queue in ["refuse", "drop"] {
        w.put(queue, "a");
        w.put(queue, "b");
    }
    let third = |queue| Command::Put(prioritized(queue, 1024, "c"));
    assert_eq!(
        w.ask(1, third("refuse")),
        Some(Outcome::Refused(CommandError::QueueFull))
    );
    assert!(matches!(w.ask(1, third("drop")), Some(Outcome::Put { .. })));
    w.restart();
    assert_eq!((w.pop("refuse"), w.pop("drop")), ("a".into(), "b".into()));
    let many = vec![prioritized("refuse", 1, "x"), prioritized("refuse", 1, "y")];
    assert_eq!(
        w.ask(1, Command::PutMany(many)),
        Some(Outcome::Refused(CommandError::QueueFull))
    );
    assert_eq!(
        (w.pop("refuse"), w.pop("refuse")),
        ("b".into(), "empty".into())
    );
}

#[test]
fn repeats_are_known_by_token_dedupe_id_and_key() {
    let mut w = World::new();
    let with = |more| Put {
        more: Some(Box::new(more)),
        ..prioritized("q", 1, "a")
    };
    let token = || {
        with(PutMore {
            token: Some(b"t".as_slice().into()),
            ..PutMore::default()
        })
    };
    let id = w.put_as(token());
    w.pop("q");
    w.restart();
    assert_eq!(
        w.ask(1, Command::Put(token())),
        Some(Outcome::Put { id, fresh: false })
    );
    let dedupe = || {
        let dedupe = Dedupe {
            id: b"d".as_slice().into(),
            window_ms: Some(100),
            scope: None,
            on_repeat: None,
        };
        with(PutMore {
            dedupe: Some(dedupe),
            ..PutMore::default()
        })
    };
    let first = w.put_as(dedupe());
    assert_eq!(
        w.ask(1, Command::Put(dedupe())),
        Some(Outcome::Refused(CommandError::Duplicate(first)))
    );
    w.wait(100);
    assert_ne!(w.put_as(dedupe()), first);
}

#[test]
fn too_many_attempts_bury_or_move_to_the_dead_letter_queue() {
    let rule = |name: &str, dead_letter| {
        let overrides = Overrides {
            attempts_max: Some(2),
            dead_letter: Some(dead_letter),
            ..Overrides::default()
        };
        (Pattern::new(name), overrides)
    };
    let rules = vec![
        rule("bury", DeadLetter::Bury),
        rule("move", DeadLetter::To("dead".into())),
    ];
    let mut w = World::with(Settings {
        rules,
        ..Settings::default()
    });
    for queue in ["bury", "move"] {
        w.put(queue, queue);
        for _ in 0..2 {
            assert_eq!(w.take(1, reserve(queue)), queue);
            w.hang_up(1);
        }
        assert_eq!(w.take(1, reserve(queue)), "empty");
    }
    w.restart();
    assert_eq!(w.pop("dead"), "move");
    w.ask(
        1,
        Command::Kick {
            queue: "bury".into(),
            state: ListState::Buried,
            max: 1,
        },
    );
    assert_eq!(w.pop("bury"), "bury");
}

#[test]
fn pause_stops_takes_until_its_time() {
    let mut w = World::new();
    assert_eq!(
        w.ask(
            1,
            Command::Pause {
                queue: "q".into(),
                for_ms: Some(5)
            }
        ),
        Some(Outcome::Refused(CommandError::QueueNotFound))
    );
    w.put("q", "a");
    w.ask(
        1,
        Command::Pause {
            queue: "q".into(),
            for_ms: Some(1000),
        },
    );
    assert_eq!(w.take(1, waiting("q")), "waits");
    w.wait(999);
    assert_eq!(w.delivered(), []);
    w.wait(1);
    assert_eq!(w.delivered(), [(1, "a".into())]);
}

#[test]
fn children_get_copies_from_their_first_mention_on() {
    let mut w = World::new();
    w.put("p", "before");
    w.ask(
        1,
        Command::Join {
            parent: "p".into(),
            child: "p+c".into(),
        },
    );
    w.restart();
    w.put("p", "after");
    w.put("p+c", "direct");
    assert_eq!(
        (w.pop("p+c"), w.pop("p+c")),
        ("after".into(), "direct".into())
    );
    assert_eq!((w.pop("p"), w.pop("p")), ("before".into(), "after".into()));
}

#[test]
fn a_restored_take_is_back_at_its_place() {
    let mut w = World::new();
    w.put("q", "a");
    w.put("q", "b");
    let Some(Outcome::Messages(handed)) = w.ask(1, Command::Take(plain("q"))) else {
        panic!()
    };
    w.ask(1, Command::Restore(handed.into_vec()));
    w.restart();
    assert_eq!((w.pop("q"), w.pop("q")), ("a".into(), "b".into()));
}

#[test]
fn deadline_soon_comes_before_a_lease_ends() {
    let mut w = World::new();
    w.put_as(Put {
        ttr_ms: Some(2000),
        ..prioritized("q", 1, "a")
    });
    w.take(1, reserve("q"));
    let ask = Take {
        deadline_soon_ms: Some(1000),
        wait: Wait::Forever,
        ..reserve("q")
    };
    assert_eq!(w.take(1, ask.clone()), "waits");
    w.wait(1000);
    assert_eq!(w.delivered(), [(1, "soon".into())]);
    assert_eq!(w.take(1, ask), "soon");
}

#[test]
fn memory_queues_leave_no_trace_but_their_ids() {
    let rules = vec![(
        Pattern::new("m"),
        Overrides {
            memory: Some(true),
            ..Overrides::default()
        },
    )];
    let mut w = World::with(Settings {
        rules,
        ..Settings::default()
    });
    let id = w.put("m", "a");
    w.put("q", "b");
    w.restart();
    assert_eq!((w.pop("m"), w.pop("q")), ("empty".into(), "b".into()));
    assert!(w.put("m", "c") > id);
}

#[test]
fn snapshot_and_images_replace_the_facts_before_them() {
    let mut w = World::new();
    for body in ["a", "b", "c"] {
        w.put("q", body);
    }
    w.take(1, open("q"));
    w.engine.set_segment_ref(SegmentRef(1));
    w.facts.clear();
    let engine = &w.engine;
    let mut snapshot = Vec::new();
    engine.snapshot(&mut |fact| snapshot.push(fact.clone()));
    w.facts = snapshot;
    w.put("q", "d");
    let copied = w.engine.copy_out(SegmentRef(0), 0, u32::MAX, &mut w.facts);
    assert_eq!((copied.images, copied.next), (3, None));
    assert_eq!(w.engine.segment_refs_live(SegmentRef(0)), 0);
    assert!(w.engine.segment_refs_live(SegmentRef(1)) > 0);
    assert_eq!(w.replayed(SegmentRef(1)).image(), w.engine.image());
}

#[test]
fn a_flush_of_many_is_freed_in_slices() {
    let mut w = World::new();
    let many = (0..10_000).map(|_| prioritized("q", 1, "x")).collect();
    w.ask(1, Command::PutMany(many));
    w.ask(
        1,
        Command::Flush {
            queue: "q".into(),
            reserved: false,
        },
    );
    assert_eq!(w.pop("q"), "empty");
    assert!(
        w.engine.next_deadline() <= w.now,
        "freeing goes on by itself"
    );
    w.wait(0);
    assert_eq!(w.engine.next_deadline(), Ms::NEVER);
    assert_eq!(w.engine.segment_refs_live(SegmentRef(0)), 0);
}

#[test]
fn a_queue_exists_while_a_client_refers_to_it() {
    let mut w = World::new();
    let refer = |uses, watches| Command::Refer {
        queue: "q".into(),
        uses,
        watches,
    };
    let numbers = |w: &mut World| match w.ask(9, Command::Stats(StatsOf::Queue("q".into()))) {
        Some(Outcome::Stats(stats)) => match *stats {
            StatsReply::Queue(queue) => Some((queue.gauges.users, queue.gauges.watchers)),
            other => panic!("{other:?}"),
        },
        _ => None,
    };
    w.ask(1, refer(Some(true), Some(true)));
    w.ask(2, refer(Some(true), None));
    w.ask(2, refer(Some(true), None));
    assert_eq!(numbers(&mut w), Some((2, 1)));
    assert!(w.facts.is_empty(), "references are not logged");

    // Whoever refers to a queue means its name, so they outlive a drop.
    w.put("q", "a");
    w.ask(9, Command::Drop("q".into()));
    assert_eq!(numbers(&mut w), Some((2, 1)));

    w.ask(2, refer(Some(false), None));
    w.ask(1, refer(None, Some(false)));
    assert_eq!(numbers(&mut w), Some((1, 0)));
    w.hang_up(1);
    assert_eq!(numbers(&mut w), None);
}

/// A lease that outlives its connection, unless it has no deadline.
fn timed(queue: &str) -> Take {
    let mut take = reserve(queue);
    take.lease.as_mut().unwrap().owner = LeaseOwner::TimeElseConnection;
    take
}

#[test]
fn a_restored_lease_of_time_is_over_and_its_message_at_its_place() {
    let mut w = World::new();
    w.put("q", "a");
    w.put("q", "b");
    let mut handed = Vec::new();
    for client_id in [1, 2] {
        let Some(Outcome::Messages(messages)) = w.ask(client_id, Command::Take(timed("q"))) else {
            panic!()
        };
        handed.push(messages.into_vec());
    }
    let [a, b] = handed.try_into().unwrap();
    // Not by somebody else.
    let restored = w.ask(1, Command::Restore(b));
    assert_eq!(restored, Some(Outcome::Count(0)));
    let restored = w.ask(1, Command::Restore(a.clone()));
    assert_eq!(restored, Some(Outcome::Count(1)));
    w.put("q", "c");
    w.restart();
    assert_eq!(w.take(3, timed("q")), "a");
    // Nor once more.
    let restored = w.ask(1, Command::Restore(a));
    assert_eq!(restored, Some(Outcome::Count(0)));
    assert_eq!((w.pop("q"), w.pop("q")), ("c".into(), "empty".into()));
}

#[test]
fn a_consumer_is_shown_the_time_it_has() {
    let mut w = World::new();
    w.put("q", "a");
    w.put_as(Put {
        ttr_ms: Some(0),
        ..prioritized("q", 9999, "b")
    });
    let mut shown = || match w.ask(1, Command::Take(timed("q"))) {
        Some(Outcome::Messages(messages)) => messages[0].ttr_ms,
        other => panic!("{other:?}"),
    };
    assert_eq!((shown(), shown()), (Some(60_000), Some(0)));
}
