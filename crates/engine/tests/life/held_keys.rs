//! Held keys: nothing of them is handed out for a time.

use std::sync::Arc;

use quintet_sim::world::{World, plain, reserve, text, waiting};
use quintet_types::*;

fn world(groups: Groups) -> World {
    let mut settings = Settings::default();
    settings.defaults.groups = groups;
    World::with(settings)
}

fn put(w: &mut World, key: &str, body: &str) -> MessageId {
    let key = (!key.is_empty()).then(|| Arc::from(key.as_bytes()));
    w.put_as(Put {
        more: Some(Box::new(PutMore {
            key,
            ..PutMore::default()
        })),
        ..Put::new("q".into(), Body::new(body.as_bytes()))
    })
}

fn ask(w: &mut World, command: Command) -> String {
    text(&w.ask(9, command).expect("it does not wait"))
}

fn hold(w: &mut World, key: &str, for_ms: u64) -> String {
    let (queue, key) = ("q".into(), Some(key.as_bytes().into()));
    ask(w, Command::Hold { queue, key, for_ms })
}

fn settle(w: &mut World, id: MessageId, how: How, for_ms: u64) -> String {
    let by = By::Anyone;
    ask(
        w,
        Command::SettleHolding {
            id,
            by,
            how,
            hold: Holding::Key(for_ms),
        },
    )
}

fn release() -> How {
    How::Release {
        priority: None,
        due: When::Now,
        back_to: None,
    }
}

/// Held keys, and how long each is held yet.
fn held(w: &mut World) -> Vec<(String, u64)> {
    let of = StatsOf::HeldKeys("q".into());
    let Some(Outcome::Stats(stats)) = w.ask(9, Command::Stats(of)) else {
        panic!("numbers");
    };
    let StatsReply::HeldKeys(held) = *stats else {
        panic!("held keys");
    };
    let now = w.now;
    let held = held.iter();
    held.map(|held| {
        let key = String::from_utf8_lossy(&held.key).into_owned();
        (key, held.until.since(now))
    })
    .collect()
}

#[test]
fn nothing_of_a_held_key_is_handed_out_until_its_time_is_over() {
    for groups in [Groups::Ordered, Groups::Fair] {
        let mut w = world(groups);
        put(&mut w, "a", "a1");
        put(&mut w, "a", "a2");
        put(&mut w, "b", "b1");
        put(&mut w, "", "none");
        assert_eq!(hold(&mut w, "a", 1000), "Done");
        assert_eq!(held(&mut w), [("a".to_owned(), 1000)]);
        // A peek shows it, a take of several does not get it.
        let many = Take {
            messages_max: 9,
            ..plain("q")
        };
        assert_eq!(w.take(1, many.clone()), "b1+none");
        assert_eq!(w.ask(1, Command::Take(waiting("q"))), None);
        w.wait(999);
        assert_eq!(w.delivered(), []);
        w.wait(1);
        assert_eq!(w.delivered(), [(1, "a1".to_owned())]);
        assert_eq!(held(&mut w), []);
        assert_eq!(w.pop("q"), "a2");
    }
}

#[test]
fn a_worker_holds_the_key_of_its_message_in_the_step_that_ends_the_lease() {
    for (how, after) in [(release(), "a1"), (How::Finish, "a2")] {
        let mut w = world(Groups::Ordered);
        let id = put(&mut w, "a", "a1");
        put(&mut w, "a", "a2");
        assert_eq!(w.take(1, reserve("q")), "a1");
        // This one waits for what the key keeps back.
        assert_eq!(w.ask(2, Command::Take(waiting("q"))), None);
        assert_eq!(settle(&mut w, id, how, 500), "Done");
        assert_eq!(w.delivered(), []);
        w.wait(499);
        assert_eq!(w.delivered(), []);
        w.wait(1);
        assert_eq!(w.delivered(), [(2, after.to_owned())]);
    }
}

#[test]
fn no_worker_shortens_a_hold_and_an_operator_ends_it() {
    let mut w = world(Groups::Fair);
    let ids = ["a1", "a2"].map(|body| put(&mut w, "a", body));
    assert_eq!(w.take(1, reserve("q")), "a1");
    assert_eq!(w.take(1, reserve("q")), "a2");
    settle(&mut w, ids[0], release(), 1000);
    settle(&mut w, ids[1], release(), 10);
    assert_eq!(held(&mut w), [("a".to_owned(), 1000)]);
    let facts = w.facts.len();
    assert_eq!(hold(&mut w, "a", 50), "Done");
    assert_eq!(held(&mut w), [("a".to_owned(), 1000)]);
    assert_eq!(w.facts.len(), facts);
    assert_eq!(hold(&mut w, "a", 2000), "Done");
    assert_eq!(held(&mut w), [("a".to_owned(), 2000)]);
    assert_eq!(w.pop("q"), "empty");
    assert_eq!(w.ask(1, Command::Take(waiting("q"))), None);
    assert_eq!(hold(&mut w, "a", 0), "Done");
    assert_eq!(w.delivered(), [(1, "a1".to_owned())]);
    // Ending it again changes nothing.
    let facts = w.facts.len();
    assert_eq!(hold(&mut w, "a", 0), "Done");
    assert_eq!(w.facts.len(), facts);
}

#[test]
fn a_hold_survives_a_restart_a_flush_and_other_settings() {
    let mut w = world(Groups::Fair);
    put(&mut w, "a", "a1");
    hold(&mut w, "a", 1000);
    hold(&mut w, "b", 2000);
    w.wait(100);
    w.restart();
    assert_eq!(
        held(&mut w),
        [("a".to_owned(), 900), ("b".to_owned(), 1900)]
    );
    assert_eq!(w.pop("q"), "empty");
    let (queue, reserved) = ("q".into(), false);
    ask(&mut w, Command::Flush { queue, reserved });
    put(&mut w, "a", "a2");
    assert_eq!(w.pop("q"), "empty");
    for groups in [Groups::None, Groups::Ordered] {
        let overrides = Overrides {
            groups: Some(groups),
            ..Overrides::default()
        };
        let command = Command::Configure {
            queue: "q".into(),
            overrides: Some(Box::new(overrides)),
            must_exist: true,
        };
        ask(&mut w, command);
    }
    assert_eq!(w.pop("q"), "empty");
    // One that ended while the server was down.
    w.now = w.now + 900;
    w.restart();
    w.wait(0);
    assert_eq!(w.pop("q"), "a2");
    assert_eq!(held(&mut w), [("b".to_owned(), 1000)]);
    ask(&mut w, Command::Drop("q".into()));
    put(&mut w, "b", "b1");
    assert_eq!(w.pop("q"), "b1");
}

#[test]
fn a_hold_that_would_mean_nothing_is_an_error() {
    let mut w = world(Groups::None);
    let id = put(&mut w, "a", "a1");
    let unused = CommandError::KeysUnused.text();
    assert_eq!(hold(&mut w, "a", 10), unused);
    assert_eq!(w.take(1, reserve("q")), "a1");
    let facts = w.facts.len();
    assert_eq!(settle(&mut w, id, How::Finish, 10), unused);
    // Nothing was done.
    assert_eq!(w.facts.len(), facts);

    let mut w = world(Groups::Fair);
    let id = put(&mut w, "", "none");
    assert_eq!(w.take(1, reserve("q")), "none");
    let no_key = CommandError::NoKey.text();
    assert_eq!(settle(&mut w, id, How::Finish, 10), no_key);
    let absent = Command::Hold {
        queue: "other".into(),
        key: Some([1].into()),
        for_ms: 1,
    };
    assert_eq!(ask(&mut w, absent), CommandError::QueueNotFound.text());
}

#[test]
fn held_keys_of_a_queue_are_bounded_and_make_room_when_their_time_is_over() {
    let mut w = world(Groups::Fair);
    put(&mut w, "a", "a1");
    let memory = w.engine.fixed_bytes();
    for number in 0..HELD_KEYS_MAX as u64 {
        let command = Command::Hold {
            queue: "q".into(),
            key: Some(number.to_le_bytes().into()),
            for_ms: if number == 7 { 10 } else { 1000 },
        };
        let caller = Caller {
            client_id: ClientId(9),
            principal: Principal(0),
        };
        w.submit(caller, command);
    }
    let full = CommandError::TooManyHeldKeys.text();
    assert_eq!(hold(&mut w, "a", 10), full);
    let each = (w.engine.fixed_bytes() - memory) / HELD_KEYS_MAX as u64;
    assert!((100..200).contains(&each), "{each} bytes of memory each");
    w.now = w.now + 10;
    assert_eq!(hold(&mut w, "a", 10), "Done");
    w.wait(2000);
    assert_eq!(held(&mut w), []);
    assert_eq!(w.engine.fixed_bytes(), memory);
    assert_eq!(w.pop("q"), "a1");
}

/// A hold writes a key to the log, so it is a put to the disk; its end is not.
#[test]
fn on_a_full_disk_a_hold_is_refused_and_ends() {
    let mut w = world(Groups::Ordered);
    put(&mut w, "a", "x");
    assert_eq!(hold(&mut w, "a", 1000), "Done");
    w.engine.set_space(quintet_engine::Space::NoPuts);
    assert_eq!(hold(&mut w, "a", 2000), CommandError::NoSpace.text());
    assert_eq!(hold(&mut w, "a", 0), "Done");
}

/// A queue is held whatever keys mean in it, and no hold shortens a pause.
#[test]
fn a_worker_or_operator_holds_a_whole_queue_and_makes_a_pause_only_longer() {
    let mut w = world(Groups::None);
    let hold = |w: &mut World, for_ms| {
        let id = put(w, "", "a");
        w.ask(1, Command::ReserveId { id, lease: lease() });
        let (by, how, hold) = (By::Anyone, How::Finish, Holding::Queue(for_ms));
        ask(w, Command::SettleHolding { id, by, how, hold })
    };
    assert_eq!(hold(&mut w, 1000), "Done");
    assert_eq!(hold(&mut w, 10), "Done");
    put(&mut w, "", "later");
    assert_eq!(w.ask(2, Command::Take(waiting("q"))), None);
    w.wait(500);
    w.restart();
    w.wait(499);
    assert_eq!(w.pop("q"), "empty");
    w.wait(1);
    assert_eq!(w.pop("q"), "later");
    // An operator's pause without an end stays.
    let (queue, for_ms) = ("q".into(), None);
    ask(&mut w, Command::Pause { queue, for_ms });
    assert_eq!(hold(&mut w, 10), "Done");
    let operator = |w: &mut World, for_ms| {
        let (queue, key) = ("q".into(), None);
        ask(w, Command::Hold { queue, key, for_ms })
    };
    assert_eq!(operator(&mut w, 10), "Done");
    put(&mut w, "", "stays");
    w.wait(100);
    assert_eq!(w.pop("q"), "empty");
    assert_eq!(operator(&mut w, 0), "Done");
    assert_eq!(operator(&mut w, 10), "Done");
    assert_eq!(operator(&mut w, 5), "Done");
    w.wait(9);
    assert_eq!(w.pop("q"), "empty");
    w.wait(1);
    assert_eq!(w.pop("q"), "stays");
}

fn lease() -> LeaseRequest {
    reserve("q").lease.expect("it leases")
}
