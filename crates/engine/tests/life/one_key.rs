//! Takes of several messages of one key.

use std::sync::Arc;

use quintet_sim::world::{World, plain, prioritized, waiting};
use quintet_types::*;

use crate::cold::Runs;

fn put(w: &mut World, key: &str, body: &str) {
    let key = (!key.is_empty()).then(|| Arc::from(key.as_bytes()));
    w.put_as(Put {
        more: Some(Box::new(PutMore {
            key,
            ..PutMore::default()
        })),
        ..Put::new("q".into(), Body::new(body.as_bytes()))
    });
}

fn one() -> Take {
    Take {
        keys: Some(Box::new(Keys::One)),
        messages_max: 3,
        ..plain("q")
    }
}

fn of(key: &str) -> Take {
    Take {
        keys: Some(Box::new(Keys::Of(Arc::from(key.as_bytes())))),
        messages_max: 9,
        ..waiting("q")
    }
}

#[test]
fn a_take_of_one_key_gets_the_first_message_and_those_of_its_key_in_their_order() {
    for groups in [Groups::None, Groups::Ordered, Groups::Fair] {
        let mut settings = Settings::default();
        settings.defaults.groups = groups;
        let mut w = World::with(settings);
        let puts = [
            ("a", "a1"),
            ("b", "b1"),
            ("", "none"),
            ("a", "a2"),
            ("b", "b2"),
        ];
        for (key, body) in puts.into_iter().chain([("a", "a3"), ("a", "a4")]) {
            put(&mut w, key, body);
        }
        let taken = [0; 4].map(|_| w.take(1, one()));
        assert_eq!(taken, ["a1+a2+a3", "b1+b2", "none", "a4"], "{groups:?}");
    }
}

#[test]
fn a_consumer_that_waits_for_a_key_leaves_other_messages_to_later_consumers() {
    for groups in [Groups::None, Groups::Fair] {
        let mut settings = Settings::default();
        settings.defaults.groups = groups;
        let mut w = World::with(settings);
        put(&mut w, "b", "b1");
        assert_eq!(w.take(1, of("a")), "waits");
        assert_eq!(w.take(2, plain("q")), "b1");
        assert_eq!(w.take(2, waiting("q")), "waits");
        put(&mut w, "b", "b2");
        assert_eq!(w.delivered(), [(2, "b2".to_owned())]);
        put(&mut w, "a", "a1");
        assert_eq!(w.delivered(), [(1, "a1".to_owned())]);
    }
}

#[test]
fn with_ordered_keys_no_reserve_waits_for_one() {
    let mut settings = Settings::default();
    settings.defaults.groups = Groups::Ordered;
    let mut w = World::with(settings);
    put(&mut w, "b", "b1");
    assert_eq!(w.take(1, of("a")), "empty");
}

#[test]
fn a_message_that_may_be_behind_one_on_disk_waits_for_a_later_take() {
    let mut w = World::new();
    let mut runs = Runs::default();
    let keyed = |priority: u32, body: &str| Put {
        more: Some(Box::new(PutMore {
            key: Some(Arc::from(&b"a"[..])),
            ..PutMore::default()
        })),
        ..prioritized("q", priority, body)
    };
    w.put_as(keyed(5, "second"));
    runs.evict(&mut w);
    w.put_as(keyed(9, "third"));
    w.put_as(keyed(0, "first"));
    assert_eq!(w.take(1, one()), "first");
    let waits = Take {
        wait: Wait::Forever,
        ..one()
    };
    assert_eq!(w.take(1, waits), "waits");
    runs.read(&mut w);
    assert_eq!(w.delivered(), [(1, "second+third".to_owned())]);
}

#[test]
fn a_limit_of_the_key_bounds_a_take_of_it() {
    let mut settings = Settings::default();
    settings.defaults.key_in_flight_max = 2;
    let mut w = World::with(settings);
    for body in ["a1", "a2", "a3"] {
        put(&mut w, "a", body);
    }
    let leased = Take {
        keys: Some(Box::new(Keys::One)),
        messages_max: 3,
        ..quintet_sim::world::reserve("q")
    };
    assert_eq!(w.take(1, leased), "a1+a2");
    assert_eq!(
        w.take(
            1,
            Take {
                wait: Wait::No,
                ..of("a")
            }
        ),
        "empty"
    );
}
