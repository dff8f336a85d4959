//! A flush that takes what is reserved as well.

use quintet_sim::world::{World, open, reserve, waiting};
use quintet_types::*;

fn purge(w: &mut World, queue: &str) -> u64 {
    let (queue, reserved) = (queue.into(), true);
    match w.ask(9, Command::Flush { queue, reserved }) {
        Some(Outcome::Count(count)) => count,
        other => panic!("{other:?}"),
    }
}

/// Others hold so many that what is reserved next is still to be freed some commands after a purge.
fn hold_many(w: &mut World) {
    const MANY: u32 = 2000;
    let caller = Caller::server(ClientId(7));
    let put = Put::new("q".into(), Body::new(b"other"));
    w.submit(caller, Command::PutMany(vec![put; MANY as usize]));
    let all = Take {
        messages_max: MANY,
        ..reserve("q")
    };
    w.submit(caller, Command::Take(all));
}

fn gauges(w: &mut World, queue: &str) -> QueueGauges {
    match w.ask(9, Command::Stats(StatsOf::Queue(queue.into()))) {
        Some(Outcome::Stats(stats)) => match *stats {
            StatsReply::Queue(stats) => stats.gauges,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// Waiting, delayed and reserved messages, by a connection or by time, are gone in one step;
/// messages put since are not, though the slices that free the gone ones come later.
#[test]
fn a_purge_removes_reserved_messages_and_none_put_since() {
    let mut w = World::new();
    for body in ["a", "b", "c"] {
        w.put("q", body);
    }
    w.put_as(Put {
        due: When::In(50),
        ..Put::new("q".into(), Body::new(b"later"))
    });
    assert_eq!(w.take(1, open("q")), "a");
    assert_eq!(w.take(2, reserve("q")), "b");
    assert_eq!(purge(&mut w, "q"), 4);
    w.put("q", "new");
    let now = gauges(&mut w, "q");
    let counted = (now.ready, now.delayed, now.reserved, now.bytes);
    assert_eq!(counted, (1, 0, 0, 3));
    w.verify();
    // Replay leads to the same, whatever of it was freed by then.
    let replayed = w.replayed(SegmentRef(0));
    assert_eq!(replayed.image(), w.engine.image());
    w.wait(60_000);
    w.hang_up(1);
    w.hang_up(2);
    w.verify();
    assert_eq!((w.pop("q"), w.pop("q")), ("new".into(), "empty".into()));
    assert_eq!(gauges(&mut w, "q").bytes, 0);
}

/// For its holder it is gone, whatever the holder does, and counts as none of its leases.
#[test]
fn for_its_holder_it_is_gone() {
    let mut w = World::new();
    hold_many(&mut w);
    let id = w.put("q", "a");
    assert_eq!(w.take(1, reserve("q")), "a");
    assert_eq!(purge(&mut w, "q"), 2001);
    let not_found = Some(Outcome::Refused(CommandError::NotFound));
    let by = By::Owner;
    assert_eq!(w.ask(1, Command::Touch(id)), not_found);
    assert_eq!(w.ask(1, Command::Delete { id, by }), not_found);
    let how = How::Release {
        priority: None,
        due: When::Now,
        back_to: None,
    };
    let settle = Command::Settle { id, by, how };
    assert_eq!(w.ask(1, settle), not_found);
    let held = Command::SettleHeld {
        queue: None,
        how: How::Finish,
        max: 9,
    };
    assert_eq!(w.ask(1, held), Some(Outcome::Count(0)));
    w.put("q", "b");
    let one_at_most = Take {
        held_anywhere: true,
        lease: open("q").lease.map(|lease| LeaseRequest {
            held_max: 1,
            ..lease
        }),
        ..open("q")
    };
    assert_eq!(w.take(1, one_at_most), "b");
}

/// Messages that limits and keys delayed because of them may go.
#[test]
fn positions_of_reserved_messages_are_free() {
    for overrides in [
        Overrides {
            in_flight_max: Some(1),
            ..Overrides::default()
        },
        Overrides {
            groups: Some(Groups::Ordered),
            ..Overrides::default()
        },
        Overrides {
            key_in_flight_max: Some(1),
            ..Overrides::default()
        },
    ] {
        let mut w = World::new();
        let (queue, overrides) = ("q".into(), Box::new(overrides));
        w.ask(9, Command::Create { queue, overrides });
        let keyed = |body: &str| {
            let more = PutMore {
                key: Some((*b"k").into()),
                ..PutMore::default()
            };
            Put {
                more: Some(Box::new(more)),
                ..Put::new("q".into(), Body::new(body.as_bytes()))
            }
        };
        w.put_as(keyed("a"));
        assert_eq!(w.take(1, reserve("q")), "a");
        assert_eq!(w.take(2, waiting("q")), "waits");
        assert_eq!(purge(&mut w, "q"), 1);
        w.put_as(keyed("b"));
        assert_eq!(w.delivered(), [(2, "b".to_owned())]);
        w.verify();
    }
}

/// A deduplication record that ends with its message is over at once, not when that is freed.
#[test]
fn its_id_may_be_put_again() {
    let mut w = World::new();
    let put = || {
        let dedupe = Dedupe {
            id: (*b"id").into(),
            window_ms: Some(0),
            scope: Some(Scope::Done),
            on_repeat: Some(OnRepeat::Refuse),
        };
        let more = PutMore {
            dedupe: Some(dedupe),
            ..PutMore::default()
        };
        Command::Put(Put {
            more: Some(Box::new(more)),
            ..Put::new("q".into(), Body::new(b"x"))
        })
    };
    let is_fresh = |outcome| matches!(outcome, Some(Outcome::Put { fresh: true, .. }));
    hold_many(&mut w);
    assert!(is_fresh(w.ask(1, put())));
    assert_eq!(w.take(1, reserve("q")), "x");
    assert!(!is_fresh(w.ask(1, put())));
    assert_eq!(purge(&mut w, "q"), 2001);
    assert!(is_fresh(w.ask(1, put())));
    w.verify();
}

/// Many are freed in slices, and the queue is empty before.
#[test]
fn many_go_at_once_and_are_freed_in_slices() {
    const MANY: u64 = 20_000;
    let mut w = World::new();
    let caller = Caller::server(ClientId(1));
    let put = Put::new("q".into(), Body::new(b"x"));
    w.submit(caller, Command::PutMany(vec![put; MANY as usize]));
    let all = Take {
        messages_max: MANY as u32,
        ..reserve("q")
    };
    w.submit(caller, Command::Take(all));
    assert_eq!(gauges(&mut w, "q").reserved, MANY);
    let before = w.engine.memory_bytes();
    assert_eq!(purge(&mut w, "q"), MANY);
    assert_eq!(gauges(&mut w, "q").reserved, 0);
    assert!(w.engine.memory_bytes() > before / 2, "freed in one step");
    w.wait(1);
    assert!(w.engine.memory_bytes() < before / 10);
    w.verify();
}

/// A purge leaves an empty name, which goes when it is idle, long before the window would be over.
#[test]
fn records_that_a_purge_forgot_keep_no_queue() {
    let mut settings = Settings::default();
    settings.defaults.idle_ms = 1_000;
    let mut w = World::with(settings);
    let put = Put {
        more: Some(Box::new(PutMore {
            token: Some((*b"id").into()),
            ..PutMore::default()
        })),
        ..Put::new("q".into(), Body::new(b"x"))
    };
    w.put_as(put);
    purge(&mut w, "q");
    let is_there = |w: &mut World| {
        let stats = w.ask(1, Command::Stats(StatsOf::Queue("q".into())));
        matches!(stats, Some(Outcome::Stats(_)))
    };
    assert!(is_there(&mut w));
    w.wait(9_000);
    assert!(!is_there(&mut w));
    w.verify();
}

/// Whichever way a queue is emptied, and over a restart; the other queue's records stay.
#[test]
fn an_emptied_queue_knows_no_repeats_of_earlier_puts() {
    let purge = Command::BulkOp(Box::new(BulkOp {
        queue: "q".into(),
        state: ListState::Ready,
        filter: Filter::default(),
        action: BulkAction::Purge,
        after: None,
        max: u32::MAX,
    }));
    let flush = |reserved| Command::Flush {
        queue: "q".into(),
        reserved,
    };
    let dedupe = Dedupe {
        id: (*b"id").into(),
        window_ms: Some(60_000),
        scope: None,
        on_repeat: Some(OnRepeat::First),
    };
    let by_id = PutMore {
        dedupe: Some(dedupe),
        ..PutMore::default()
    };
    let by_token = PutMore {
        token: Some((*b"id").into()),
        ..PutMore::default()
    };
    for empty in [flush(true), flush(false), Command::FlushAll, purge] {
        for more in [&by_id, &by_token] {
            for taken in [false, true] {
                let mut w = World::new();
                let put = |queue: &str| {
                    Command::Put(Put {
                        more: Some(Box::new(more.clone())),
                        ..Put::new(queue.into(), Body::new(b"x"))
                    })
                };
                let is_fresh = |outcome| matches!(outcome, Some(Outcome::Put { fresh: true, .. }));
                assert!(is_fresh(w.ask(1, put("q"))));
                assert!(is_fresh(w.ask(1, put("other"))));
                if taken {
                    assert_eq!(w.take(1, open("q")), "x");
                }
                w.ask(1, empty.clone());
                w.restart();
                assert!(is_fresh(w.ask(1, put("q"))), "{empty:?} {taken}");
                assert!(!is_fresh(w.ask(1, put("q"))), "{empty:?} {taken}");
                w.restart();
                assert!(!is_fresh(w.ask(1, put("q"))), "{empty:?} {taken}");
                let all = empty == Command::FlushAll;
                assert_eq!(is_fresh(w.ask(1, put("other"))), all);
                w.verify();
            }
        }
    }
}

/// Puts that come between the slices are remembered.
#[test]
fn a_purge_in_slices_forgets_only_repeats_from_before_its_begin() {
    let mut w = World::new();
    let put = |w: &mut World, id: &str| {
        let more = PutMore {
            token: Some(id.as_bytes().into()),
            ..PutMore::default()
        };
        let put = Put {
            more: Some(Box::new(more)),
            ..Put::new("q".into(), Body::new(b"x"))
        };
        let outcome = w.ask(1, Command::Put(put));
        matches!(outcome, Some(Outcome::Put { fresh: true, .. }))
    };
    for id in ["1", "2", "3"] {
        assert!(put(&mut w, id));
    }
    let mut purge = BulkOp {
        queue: "q".into(),
        state: ListState::Ready,
        filter: Filter::default(),
        action: BulkAction::Purge,
        after: None,
        max: 2,
    };
    loop {
        let outcome = w.ask(1, Command::BulkOp(Box::new(purge.clone())));
        let Some(Outcome::BulkDone(done)) = outcome else {
            panic!("{outcome:?}");
        };
        if purge.after.is_none() {
            assert!(put(&mut w, "4"));
        }
        purge.after = done.next;
        if done.next.is_none() {
            break;
        }
    }
    assert!(!put(&mut w, "4"));
    assert!(put(&mut w, "3"));
    w.verify();
}
