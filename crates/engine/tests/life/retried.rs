//! Messages whose tries fail: they rest, longer each time, and are tried often enough.

use quintet_sim::world::{World, plain, reserve};
use quintet_types::*;

fn world(policy: Overrides) -> World {
    let mut w = World::new();
    let (queue, overrides) = ("q".into(), Some(Box::new(policy)));
    w.ask(
        9,
        Command::Configure {
            queue,
            overrides,
            must_exist: false,
        },
    );
    w
}

fn policy() -> Overrides {
    Overrides {
        retry_delay_ms: Some(100),
        retry_factor: Some(3),
        retry_delay_max_ms: Some(500),
        retry_jitter: Some(0),
        ..Overrides::default()
    }
}

fn settle(w: &mut World, client_id: u64, id: MessageId, how: How) {
    let by = By::Owner;
    w.ask(client_id, Command::Settle { id, by, how });
}

fn fail(error: &str) -> How {
    How::Fail {
        error: error.as_bytes().into(),
        note: Vec::new(),
    }
}

fn release(due: When) -> How {
    How::Release {
        priority: None,
        due,
        back_to: None,
    }
}

fn message(w: &mut World, id: MessageId) -> Message {
    match w.ask(9, Command::Peek(Peek::Id(id))) {
        Some(Outcome::Messages(mut messages)) => messages.remove(0),
        other => panic!("{other:?}"),
    }
}

/// An attribute of a message.
fn attr(w: &mut World, id: MessageId, name: &str) -> Option<String> {
    let message = message(w, id);
    let attrs = &message.extra.as_ref()?.attrs;
    let (_, value) = attrs
        .iter()
        .find(|(known, _)| **known == *name.as_bytes())?;
    Some(String::from_utf8_lossy(value).into_owned())
}

#[test]
fn a_message_rests_longer_after_each_failure_and_never_comes_early() {
    let mut w = world(policy());
    let id = w.put("q", "a");
    for rest in [100, 300, 500, 500] {
        assert_eq!(w.take(1, reserve("q")), "a");
        settle(&mut w, 1, id, fail("no route"));
        w.wait(rest - 1);
        assert_eq!(w.take(1, reserve("q")), "empty", "after {rest} ms");
        w.wait(1);
    }
    assert_eq!(message(&mut w, id).failures(), 4);
    let extra = message(&mut w, id).extra.expect("it failed");
    assert_eq!(*extra.status, *b"no route");
}

/// Fails a message of a server's defaults, with these changes, until it is buried, `most` times at
/// most; answers how long it rested after each failure, in ms.
fn rests(policy: Overrides, most: usize) -> (Vec<u64>, bool) {
    let mut w = World::with(Settings {
        defaults: QueueSettings::of_server(),
        ..Settings::default()
    });
    let (queue, overrides) = ("q".into(), Some(Box::new(policy)));
    let configure = Command::Configure {
        queue,
        overrides,
        must_exist: false,
    };
    w.ask(9, configure);
    let (id, mut rests) = (w.put("q", "a"), Vec::new());
    for _ in 0..most {
        assert_eq!(w.take(1, reserve("q")), "a", "after {rests:?}");
        settle(&mut w, 1, id, fail("no route"));
        let failed = message(&mut w, id);
        if failed.state == State::Buried {
            return (rests, true);
        }
        let rest = failed.due().map_or(0, |due| due.since(w.now));
        rests.push(rest);
        w.wait(rest);
    }
    (rests, false)
}

#[test]
fn by_default_a_message_is_tried_25_times_with_longer_rests_and_jitter_then_buried() {
    let (times, buried) = rests(Overrides::default(), 100);
    assert!(buried, "{times:?}");
    assert_eq!(times.len(), 24, "the 25th try is the last: {times:?}");
    let mut even = 0;
    for (failure, rest) in times.into_iter().enumerate() {
        let least = (1000 << failure).min(3_600_000);
        // A tenth more at most.
        assert!((least..=least + least / 10).contains(&rest), "{rest}");
        even += usize::from(rest == least);
    }
    assert!(even < 12, "jitter parts those that failed together");
}

#[test]
fn retry_max_0_has_a_failed_message_ready_at_once_without_end() {
    let none = Overrides {
        retry_max: Some(0),
        ..Overrides::default()
    };
    assert_eq!(rests(none, 60), (vec![0; 60], false));
}

#[test]
fn its_rest_survives_a_restart() {
    let mut w = world(policy());
    let id = w.put("q", "a");
    assert_eq!(w.take(1, reserve("q")), "a");
    settle(&mut w, 1, id, fail(""));
    w.wait(40);
    w.restart();
    w.wait(59);
    assert_eq!(w.take(1, reserve("q")), "empty");
    w.wait(1);
    assert_eq!(w.take(1, reserve("q")), "a");
    settle(&mut w, 1, id, fail(""));
    w.wait(299);
    assert_eq!(w.take(1, reserve("q")), "empty", "it has failed twice");
    w.wait(1);
    assert_eq!(w.take(1, reserve("q")), "a");
}

#[test]
fn every_cause_counts_but_those_that_are_left_out() {
    for (on, counted) in [
        (RetryOn::ALL, 3),
        (RetryOn::TIMEOUT, 1),
        (RetryOn::RELEASE.and(RetryOn::LOST), 2),
        (RetryOn::NONE, 0),
    ] {
        let mut w = world(Overrides {
            retry_on: Some(on),
            ..policy()
        });
        let id = w.put("q", "a");
        let take = |w: &mut World, client_id| {
            w.wait(1000);
            let lease = LeaseRequest {
                time: LeaseTime::Fixed(50),
                ..reserve("q").lease.expect("a lease")
            };
            let take = Take {
                lease: Some(lease),
                ..reserve("q")
            };
            assert_eq!(w.take(client_id, take), "a");
        };
        take(&mut w, 1);
        settle(&mut w, 1, id, release(When::Now));
        take(&mut w, 1);
        w.wait(50);
        take(&mut w, 2);
        w.hang_up(2);
        assert_eq!(message(&mut w, id).failures(), counted, "{on:?}");
    }
}

#[test]
fn a_delay_of_its_own_is_no_failure() {
    let mut w = world(policy());
    let id = w.put("q", "a");
    assert_eq!(w.take(1, reserve("q")), "a");
    settle(&mut w, 1, id, release(When::In(7)));
    assert_eq!(message(&mut w, id).failures(), 0);
    w.wait(7);
    assert_eq!(w.take(1, reserve("q")), "a");
}

#[test]
fn a_message_that_failed_too_often_is_buried_with_its_error() {
    let mut w = world(Overrides {
        retry_max: Some(1),
        ..policy()
    });
    let id = w.put("q", "a");
    for _ in 0..2 {
        w.wait(500);
        assert_eq!(w.take(1, reserve("q")), "a");
        settle(&mut w, 1, id, fail("no route"));
    }
    let buried = message(&mut w, id);
    assert_eq!(buried.state, State::Buried);
    let status = buried.extra.expect("it was buried").status;
    assert_eq!(*status, *b"no route (failed 2 times)");
    // One more try after each kick.
    w.ask(9, Command::KickId(id));
    assert_eq!(w.take(1, reserve("q")), "a");
    settle(&mut w, 1, id, fail("still none"));
    assert_eq!(message(&mut w, id).state, State::Buried);
}

#[test]
fn a_message_reserved_too_often_is_buried_with_its_error_first() {
    for (error, expected) in [
        ("no route\n", "no route (reserved 1 time without finish)"),
        ("", "reserved 1 time without finish"),
    ] {
        let mut w = world(Overrides {
            attempts_max: Some(1),
            ..policy()
        });
        let id = w.put("q", "a");
        assert_eq!(w.take(1, reserve("q")), "a");
        settle(&mut w, 1, id, fail(error));
        let buried = message(&mut w, id);
        assert_eq!(buried.state, State::Buried);
        let status = buried.extra.expect("it was buried").status;
        assert_eq!(*status, *expected.as_bytes());
    }
}

#[test]
fn a_dead_letter_has_its_failures_error_and_queue() {
    let mut w = world(Overrides {
        retry_max: Some(1),
        dead_letter: Some(DeadLetter::To("dead".into())),
        ..policy()
    });
    let id = w.put("q", "a");
    for _ in 0..2 {
        w.wait(500);
        assert_eq!(w.take(1, reserve("q")), "a");
        settle(&mut w, 1, id, fail("no route"));
    }
    let mut stored = |name: &str| attr(&mut w, id, &format!("dead_letter_{name}"));
    let all = ["reason", "failures", "attempts", "error", "queue"].map(&mut stored);
    let expected = ["failures", "2", "2", "no route", "q"];
    assert_eq!(all.map(Option::unwrap), expected.map(str::to_owned));
    assert_eq!(message(&mut w, id).failures(), 0, "it begins again there");
    assert_eq!(w.pop("dead"), "a");
}

#[test]
fn whichever_limit_comes_first_ends_it() {
    for (attempts_max, retry_max, reason) in [(2, 5, "attempts"), (5, 1, "failures")] {
        let mut w = world(Overrides {
            attempts_max: Some(attempts_max),
            retry_max: Some(retry_max),
            dead_letter: Some(DeadLetter::To("dead".into())),
            ..policy()
        });
        let id = w.put("q", "a");
        for _ in 0..2 {
            w.wait(500);
            assert_eq!(w.take(1, reserve("q")), "a");
            settle(&mut w, 1, id, fail("no route"));
        }
        let stored = attr(&mut w, id, "dead_letter_reason");
        assert_eq!(stored.as_deref(), Some(reason));
    }
}

#[test]
fn without_a_policy_only_a_reported_failure_counts() {
    let mut w = World::new();
    let id = w.put("q", "a");
    assert_eq!(w.take(1, reserve("q")), "a");
    settle(&mut w, 1, id, release(When::Now));
    assert_eq!(message(&mut w, id).failures(), 0);
    assert_eq!(w.take(1, reserve("q")), "a");
    settle(&mut w, 1, id, fail(&"x".repeat(5000)));
    assert_eq!(message(&mut w, id).failures(), 1);
    let kept = message(&mut w, id).extra.expect("it failed").status.len();
    assert_eq!(kept, ERROR_BYTES_MAX);
    assert_eq!(w.take(1, plain("q")), "a");
}

#[test]
fn a_policy_that_changes_counts_from_the_next_failure_on() {
    let mut w = world(policy());
    let id = w.put("q", "a");
    assert_eq!(w.take(1, reserve("q")), "a");
    settle(&mut w, 1, id, fail(""));
    let none = Overrides {
        retry_delay_ms: Some(0),
        ..policy()
    };
    let (queue, overrides) = ("q".into(), Some(Box::new(none)));
    w.ask(
        9,
        Command::Configure {
            queue,
            overrides,
            must_exist: false,
        },
    );
    w.wait(99);
    assert_eq!(w.take(1, reserve("q")), "empty", "it waits as configured");
    w.wait(1);
    assert_eq!(w.take(1, reserve("q")), "a");
    settle(&mut w, 1, id, release(When::Now));
    assert_eq!(w.take(1, reserve("q")), "a");
}
