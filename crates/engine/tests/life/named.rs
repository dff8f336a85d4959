//! Messages by their own names, and how they say themselves what becomes of them.

use quintet_sim::world::{World, plain, reserve, text};
use quintet_types::*;

fn put(w: &mut World, queue: &str, body: &str, more: PutMore) -> MessageId {
    w.put_as(Put {
        queue: queue.into(),
        body: Body::new(body.as_bytes()),
        more: Some(Box::new(more)),
        ..Put::default()
    })
}

fn named(name: &str) -> PutMore {
    PutMore {
        name: Some(name.as_bytes().into()),
        ..PutMore::default()
    }
}

/// A take under a lease of time alone.
fn timed(queue: &str, ms: u64, back_to: BackTo) -> Take {
    Take {
        lease: Some(LeaseRequest {
            owner: LeaseOwner::Time,
            time: LeaseTime::TtrElse(ms),
            back_to,
            held_max: 0,
        }),
        ..plain(queue)
    }
}

fn by_name(w: &mut World, client_id: u64, name: &str, action: NamedAction) -> String {
    let by_name = ByName {
        queue: None,
        name: name.as_bytes().into(),
        by: By::Bearer,
        action,
    };
    let outcome = w.ask(client_id, Command::ByName(Box::new(by_name)));
    text(&outcome.expect("it does not wait"))
}

fn finish(w: &mut World, name: &str) -> String {
    by_name(w, 7, name, NamedAction::Settle(How::Finish))
}

fn fail() -> NamedAction {
    NamedAction::Settle(How::Fail {
        error: b"no route".as_slice().into(),
        note: vec![(b"n".as_slice().into(), Some(b"1".as_slice().into()))],
    })
}

#[test]
fn any_client_settles_a_message_under_a_timed_lease_by_name() {
    let mut w = World::new();
    put(&mut w, "q", "a", named("job"));
    assert_eq!(finish(&mut w, "job"), "message not found", "it waits");
    assert_eq!(w.take(1, timed("q", 100, BackTo::Position)), "a");
    assert_eq!(finish(&mut w, "jo"), "message not found");
    // Also after a restart, which ends no lease of time.
    w.restart();
    assert_eq!(by_name(&mut w, 3, "job", NamedAction::Peek), "a");
    assert_eq!(finish(&mut w, "job"), "Done");
    assert_eq!(finish(&mut w, "job"), "message not found");
}

#[test]
fn a_lease_of_a_connection_is_not_settled_by_name_but_by_its_holder() {
    let mut w = World::new();
    put(&mut w, "q", "a", named("job"));
    assert_eq!(w.take(1, reserve("q")), "a");
    assert_eq!(finish(&mut w, "job"), "message not found");
    let own = ByName {
        queue: Some("q".into()),
        name: b"job".as_slice().into(),
        by: By::Owner,
        action: NamedAction::Settle(How::Finish),
    };
    let own = || Command::ByName(Box::new(own.clone()));
    assert_eq!(
        w.ask(2, own()),
        Some(Outcome::Refused(CommandError::NotFound)),
        "another's"
    );
    assert_eq!(w.ask(1, own()), Some(Outcome::Done));
}

#[test]
fn of_several_with_one_name_the_one_leased_longest_ago_is_settled() {
    let mut w = World::new();
    for body in ["a", "b"] {
        put(&mut w, body, body, named("job"));
    }
    assert_eq!(w.take(1, timed("b", 1000, BackTo::Position)), "b");
    w.wait(5);
    assert_eq!(w.take(1, timed("a", 50, BackTo::Position)), "a");
    assert_eq!(by_name(&mut w, 1, "job", NamedAction::Peek), "b");
    w.wait(5);
    // Its time begins anew, so the other one's has run longer.
    assert_eq!(by_name(&mut w, 1, "job", NamedAction::Extend(None)), "Done");
    assert_eq!(by_name(&mut w, 1, "job", NamedAction::Peek), "a");
    w.restart();
    assert_eq!(finish(&mut w, "job"), "Done");
    assert_eq!(by_name(&mut w, 1, "job", NamedAction::Peek), "b");
}

#[test]
fn names_have_1_to_255_bytes() {
    let mut w = World::new();
    for (len, good) in [(0, false), (1, true), (255, true), (256, false)] {
        let more = PutMore {
            name: Some(vec![b'n'; len].into()),
            ..PutMore::default()
        };
        let put = Put {
            queue: "q".into(),
            more: Some(Box::new(more)),
            ..Put::default()
        };
        let refused = Some(Outcome::Refused(CommandError::BadMessageName));
        assert_eq!(w.ask(1, Command::Put(put)) != refused, good, "{len} bytes");
    }
}

#[test]
fn a_bulk_operation_finds_messages_by_name_in_any_state() {
    let mut w = World::new();
    for name in ["x", "job", "y", "job"] {
        put(&mut w, "q", name, named(name));
    }
    let bulk_op = |action| {
        Command::BulkOp(Box::new(BulkOp {
            queue: "q".into(),
            state: ListState::Ready,
            filter: Filter {
                name: Some(b"job".as_slice().into()),
                ..Filter::default()
            },
            action,
            after: None,
            max: 100,
        }))
    };
    let Some(Outcome::BulkDone(bulk_done)) = w.ask(1, bulk_op(BulkAction::Delete)) else {
        panic!("not done");
    };
    assert_eq!(bulk_done.matched, 2);
    assert_eq!((w.pop("q"), w.pop("q")), ("x".into(), "y".into()));
}

#[test]
fn a_message_returned_to_the_tail_is_behind_all_others() {
    let mut w = World::new();
    for body in ["a", "b"] {
        put(&mut w, "q", body, named(body));
    }
    let release = || {
        NamedAction::Settle(How::Release {
            priority: None,
            due: When::Now,
            back_to: None,
        })
    };
    // Two that fail by turns do not keep each other from the third.
    for body in ["a", "b", "a"] {
        assert_eq!(w.take(1, timed("q", 100, BackTo::Tail)), body);
        assert_eq!(by_name(&mut w, 1, body, release()), "Done");
    }
    w.put("q", "c");
    w.restart();
    let order = [w.pop("q"), w.pop("q"), w.pop("q")];
    assert_eq!(order, ["b", "a", "c"].map(str::to_owned));
}

#[test]
fn several_that_come_back_to_the_tail_at_once_keep_their_order() {
    for restarts in [false, true] {
        let mut w = World::new();
        for body in ["a", "b", "c"] {
            w.put("q", body);
        }
        let lease = LeaseRequest {
            owner: LeaseOwner::Connection,
            ..timed("q", 0, BackTo::Tail).lease.expect("a lease")
        };
        for body in ["a", "b"] {
            let take = Take {
                lease: Some(lease),
                ..plain("q")
            };
            assert_eq!(w.take(1, take), body);
        }
        match restarts {
            true => w.restart(),
            false => w.hang_up(1),
        }
        w.put("q", "d");
        let order = [w.pop("q"), w.pop("q"), w.pop("q"), w.pop("q")];
        assert_eq!(order, ["c", "a", "b", "d"].map(str::to_owned), "{restarts}");
    }
}

#[test]
fn a_take_in_order_gets_from_the_first_queue_that_has_something() {
    let mut w = World::new();
    let take = |wait| Take {
        queues: ["high", "low"].map(Name::from).into_iter().collect(),
        pick: Pick::InOrder,
        wait,
        ..Take::default()
    };
    // Older, and of a better priority.
    w.put_as(Put {
        priority: Some(0),
        queue: "low".into(),
        body: Body::new(b"l"),
        ..Put::default()
    });
    w.put("high", "h");
    assert_eq!(w.take(1, take(Wait::No)), "h");
    assert_eq!(w.take(1, take(Wait::No)), "l");
    // So does one that waited, if both get something in one step.
    assert_eq!(w.take(1, take(Wait::Forever)), "waits");
    let puts = ["low", "high"].map(|queue| Put {
        queue: queue.into(),
        body: Body::new(queue.as_bytes()),
        ..Put::default()
    });
    w.ask(2, Command::PutMany(puts.into()));
    assert_eq!(w.delivered(), [(1, "high".to_owned())]);
}

#[test]
fn a_consumer_has_its_own_default_time_and_is_shown_it() {
    let mut w = World::new();
    w.put("q", "a");
    let Some(Outcome::Messages(handed)) = w.ask(1, Command::Take(timed("q", 70, BackTo::Position)))
    else {
        panic!("taken");
    };
    assert_eq!(handed[0].ttr_ms, Some(70));
    w.wait(69);
    assert_eq!(w.pop("q"), "empty");
    w.wait(1);
    assert_eq!(w.pop("q"), "a");
}

#[test]
fn a_message_is_retried_by_its_own_policy() {
    for (max, failures, ends) in [(1, 2, "buried"), (-1, 1, "buried"), (0, 1, "gone")] {
        let mut w = World::new();
        let retry = Retry {
            max,
            failures: 0,
            backoff: Backoff {
                base_ms: 100,
                factor_ms: 10,
                power: 2,
                ..Backoff::default()
            },
            on_timeout: true,
            buried_ttl_ms: 0,
        };
        let id = put(
            &mut w,
            "q",
            "a",
            PutMore {
                retry: Some(retry),
                ..named("job")
            },
        );
        for failure in 1..=failures {
            assert_eq!(w.take(1, timed("q", 50, BackTo::Tail)), "a");
            // The first is said, the second lets its lease run out.
            match failure {
                1 => assert_eq!(by_name(&mut w, 2, "job", fail()), "Done"),
                _ => w.wait(50),
            }
            w.restart();
            if failure < failures {
                w.wait(99);
                assert_eq!(w.take(1, timed("q", 50, BackTo::Tail)), "empty");
                w.wait(1);
            }
        }
        let left = w.ask(1, Command::Peek(Peek::Id(id)));
        let Some(Outcome::Messages(left)) = left else {
            assert_eq!(ends, "gone", "{max}");
            continue;
        };
        assert_eq!((left[0].state, ends), (State::Buried, "buried"), "{max}");
        assert_eq!(left[0].failures(), failures);
        let extra = left[0].extra.as_ref().expect("it has a name");
        let noted = (b"n".as_slice().into(), b"1".as_slice().into());
        assert_eq!(extra.attrs, [noted], "{max}");
    }
}

#[test]
fn without_on_timeout_only_a_reported_failure_counts() {
    let mut w = World::new();
    let retry = Retry {
        max: 0,
        ..Retry::default()
    };
    put(
        &mut w,
        "q",
        "a",
        PutMore {
            retry: Some(retry),
            ..named("job")
        },
    );
    assert_eq!(w.take(1, timed("q", 50, BackTo::Position)), "a");
    w.wait(50);
    assert_eq!(w.take(1, timed("q", 50, BackTo::Position)), "a");
    assert_eq!(by_name(&mut w, 2, "job", fail()), "Done");
    assert_eq!(w.pop("q"), "empty");
}
