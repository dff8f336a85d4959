//! Messages that are buried stay for as long as their queue, or they themselves, say.

use quintet_types::*;

use crate::cold::Runs;
use crate::world::{World, prioritized, reserve};

/// Queue `q`, where buried ones stay for a second.
fn world() -> World {
    let mut w = World::new();
    configure(&mut w, 1000);
    w
}

fn configure(w: &mut World, buried_ttl_ms: u64) {
    let overrides = Overrides {
        buried_ttl_ms: Some(buried_ttl_ms),
        ..Overrides::default()
    };
    let configure = Command::Configure {
        queue: "q".into(),
        overrides: Some(Box::new(overrides)),
        must_exist: false,
    };
    assert_eq!(w.ask(9, configure), Some(Outcome::Done));
}

fn bury(w: &mut World, body: &str) -> MessageId {
    bury_as(w, prioritized("q", 5, body))
}

fn bury_as(w: &mut World, put: Put) -> MessageId {
    let id = w.put_as(put);
    let settle = Command::Settle {
        id,
        by: By::Anyone,
        how: How::Bury {
            priority: None,
            reason: b"a".as_slice().into(),
        },
    };
    assert_eq!(w.ask(9, settle), Some(Outcome::Done));
    id
}

/// A message that says itself how long it stays.
fn own(body: &str, buried_ttl_ms: u64) -> Put {
    let retry = Retry {
        max: -1,
        buried_ttl_ms,
        ..Retry::default()
    };
    Put {
        more: Some(Box::new(PutMore {
            retry: Some(retry),
            ..PutMore::default()
        })),
        ..prioritized("q", 5, body)
    }
}

fn stats(w: &mut World) -> QueueStats {
    let outcome = w.ask(9, Command::Stats(StatsOf::Queue("q".into())));
    let Some(Outcome::Stats(reply)) = outcome else {
        panic!("{outcome:?}");
    };
    match *reply {
        StatsReply::Queue(stats) => stats,
        other => panic!("{other:?}"),
    }
}

fn buried(w: &mut World) -> u64 {
    stats(w).gauges.buried
}

fn expired(w: &mut World) -> u64 {
    stats(w).totals.expired
}

#[test]
fn they_stay_until_their_time_to_the_millisecond_and_count_as_expired() {
    let mut w = world();
    bury(&mut w, "1");
    w.wait(999);
    w.tick();
    assert_eq!((buried(&mut w), expired(&mut w)), (1, 0));
    assert_eq!(w.engine.next_deadline(), w.now + 1);
    w.wait(1);
    w.tick();
    assert_eq!((buried(&mut w), expired(&mut w)), (0, 1));
}

#[test]
fn a_message_kicked_or_buried_again_begins_its_time_again() {
    let mut w = world();
    let id = bury(&mut w, "1");
    w.wait(900);
    w.ask(9, Command::KickId(id));
    w.wait(900);
    w.tick();
    assert_eq!(w.take(1, reserve("q")), "1", "what waits has no such time");
    let how = How::Bury {
        priority: None,
        reason: Box::default(),
    };
    let by = By::Owner;
    w.ask(1, Command::Settle { id, by, how });
    w.wait(999);
    w.tick();
    assert_eq!(buried(&mut w), 1);
    w.wait(1);
    w.tick();
    assert_eq!(buried(&mut w), 0);
}

#[test]
fn a_changed_setting_counts_for_those_buried_from_then_on() {
    let mut w = world();
    bury(&mut w, "1");
    configure(&mut w, 0);
    bury(&mut w, "2");
    configure(&mut w, 5000);
    bury(&mut w, "3");
    for (wait, left) in [(999, 3), (1, 2), (3999, 2), (1, 1), (1 << 40, 1)] {
        w.wait(wait);
        w.tick();
        assert_eq!(buried(&mut w), left, "after {wait} more");
    }
}

#[test]
fn a_message_has_its_own_buried_ttl_also_by_the_dead_letter_rule() {
    let mut w = world();
    let id = w.put_as(own("1", 300));
    assert_eq!(w.take(1, reserve("q")), "1");
    let how = How::Fail {
        error: b"no".as_slice().into(),
        note: Vec::new(),
    };
    let by = By::Owner;
    w.ask(1, Command::Settle { id, by, how });
    assert_eq!(buried(&mut w), 1, "below 0 the first failure ends it");
    w.wait(299);
    w.tick();
    assert_eq!(buried(&mut w), 1);
    w.wait(1);
    w.tick();
    assert_eq!(buried(&mut w), 0);
}

#[test]
fn their_times_survive_a_restart_and_so_do_those_that_came_buried() {
    let mut w = world();
    bury(&mut w, "1");
    let past = Past {
        state: State::Buried,
        ..Past::default()
    };
    w.put_as(Put {
        more: Some(Box::new(PutMore {
            past: Some(Box::new(past)),
            ..PutMore::default()
        })),
        ..prioritized("q", 5, "2")
    });
    w.wait(600);
    w.restart();
    assert_eq!(buried(&mut w), 2);
    w.wait(399);
    w.tick();
    assert_eq!(buried(&mut w), 2);
    w.wait(1);
    w.tick();
    assert_eq!(buried(&mut w), 0);
}

#[test]
fn messages_in_runs_are_read_when_their_time_is_over_and_not_before() {
    let (mut w, mut runs) = (world(), Runs::default());
    bury(&mut w, "1");
    bury_as(&mut w, own("2", 400));
    configure(&mut w, 0);
    bury(&mut w, "3");
    runs.evict(&mut w);
    assert_eq!(buried(&mut w), 3);
    for (wait, reads, left) in [(399, false, 3), (1, true, 2), (599, false, 2), (1, true, 1)] {
        w.wait(wait);
        w.tick();
        assert_eq!(w.engine.has_wants(), reads, "after {wait} more");
        runs.read(&mut w);
        w.tick();
        assert_eq!(buried(&mut w), left, "after {wait} more");
        w.engine.verify().unwrap();
    }
    assert_eq!(expired(&mut w), 2);
    w.wait(1 << 40);
    w.tick();
    assert!(!w.engine.has_wants(), "the third stays for ever");
    w.restart();
    assert_eq!(buried(&mut w), 1);
}

#[test]
fn a_buried_message_whose_ttl_is_over_stays_until_it_is_kicked() {
    let mut w = world();
    configure(&mut w, 0);
    let id = bury_as(
        &mut w,
        Put {
            expires: Expiry::In(50),
            ..prioritized("q", 5, "1")
        },
    );
    w.wait(5000);
    w.tick();
    assert_eq!(buried(&mut w), 1);
    w.ask(9, Command::KickId(id));
    assert_eq!(w.take(1, reserve("q")), "empty");
    assert_eq!(expired(&mut w), 1);
}

/// A hook holds the message while it decides, and a restart would make it ready.
#[test]
fn no_hook_runs_for_a_buried_message_whose_time_is_over() {
    let mut w = world();
    let pending_decisions = PendingDecisions {
        client_id: ClientId(77),
        expire: true,
        lease_end: true,
        dead_letter: true,
    };
    w.engine
        .set_pending_decisions(w.now, pending_decisions, &mut w.facts, &mut w.deliveries);
    bury(&mut w, "a");
    w.wait(1000);
    assert!(w.engine.take_pending_decisions().is_empty());
    assert_eq!((buried(&mut w), expired(&mut w)), (0, 1));
}
