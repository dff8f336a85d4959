//! Steps about queues whose keys mean something.

use std::sync::Arc;

use proptest::prelude::*;
use quintet_types::*;

use super::ops::{Op, how, of, on, op, take};

fn key() -> impl Strategy<Value = Option<Arc<[u8]>>> {
    of(&[None, Some("x"), Some("x"), Some("y"), Some("z")])
        .prop_map(|key| key.map(|key| Arc::from(key.as_bytes())))
}

fn keyed_put() -> impl Strategy<Value = Put> {
    let due = prop_oneof![5 => Just(When::Now), 1 => (1..20u64).prop_map(When::In)];
    let expires = prop_oneof![9 => Just(Expiry::Default), 1 => (1..30u64).prop_map(Expiry::In)];
    let queue = of(&["a", "a", "a", "b"]).prop_map(Name::from);
    let len = of(&[0, 0, 0, 3]);
    let not_selectable = prop::bool::weighted(0.1);
    (
        queue,
        key(),
        of(&[None, None, None, Some(1)]),
        due,
        expires,
        len,
        not_selectable,
    )
        .prop_map(
            |(queue, key, priority, due, expires, len, not_selectable)| Put {
                queue,
                body: Body::new(&vec![7; len]),
                priority,
                due,
                expires,
                more: Some(Box::new(PutMore {
                    key,
                    not_selectable,
                    ..PutMore::default()
                })),
                ..Put::default()
            },
        )
}

/// Of the same queues, mostly one.
fn keyed_take() -> impl Strategy<Value = Take> {
    (take(), of(&[1, 1, 2, 3, 9]), prop::bool::weighted(0.2)).prop_map(|(mut take, many, both)| {
        take.queues = [Name::from("a")].into();
        if both {
            take.queues.push("b".into());
        }
        take.messages_max = many;
        if take.body_max.is_some_and(|max| max < 3) {
            take.body_max = Some(2);
        }
        take.refuse_if_held = 0;
        if let Some(lease) = &mut take.lease {
            lease.held_max = 0;
        }
        take
    })
}

/// The queue gets these settings too.
fn configure(own: Overrides) -> Op {
    let configure = Command::Configure {
        queue: "a".into(),
        overrides: Some(Box::new(own)),
        must_exist: false,
    };
    Op::ClientRequest(0, configure)
}

/// A step about message groups, most often.
pub(crate) fn group_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        20 => (0..3u8, keyed_put()).prop_map(|(client_id, put)| Op::ClientRequest(client_id, Command::Put(put))),
        20 => (0..3u8, keyed_take()).prop_map(|(client_id, take)| Op::ClientRequest(client_id, Command::Take(take))),
        20 => (0..3u8, any::<u16>(), on()).prop_map(|(client_id, pick, on)| Op::On(client_id, pick, on)),
        2 => of(Groups::ALL).prop_map(|groups| {
            configure(Overrides { groups: Some(groups), ..Overrides::default() })
        }),
        2 => of(&[0, 1, 2]).prop_map(|max| {
            configure(Overrides { key_in_flight_max: Some(max), ..Overrides::default() })
        }),
        4 => (of(&["x", "x", "y"]), of(&[0, 4, 15, 40])).prop_map(|(key, for_ms)| {
            let key = Some(key.as_bytes().into());
            Op::ClientRequest(0, Command::Hold { queue: "a".into(), key, for_ms })
        }),
        1 => any::<bool>().prop_map(|reserved| {
            Op::ClientRequest(0, Command::Flush { queue: "a".into(), reserved })
        }),
        6 => of(&[1, 3, 10, 20, 60]).prop_map(Op::Pass),
        8 => (prop::option::of(of(&[200, 1000, u64::MAX])), 1..4usize)
            .prop_map(|(bytes, size)| Op::Evict(bytes, size)),
        6 => (0..3usize).prop_map(Op::Unload),
        2 => (0..3usize).prop_map(Op::Rewrite),
        4 => op(),
    ]
}

/// Keys mean something in every queue.
pub(crate) fn group_settings() -> impl Strategy<Value = Settings> {
    let groups = of(&[
        Groups::Ordered,
        Groups::Ordered,
        Groups::Ordered,
        Groups::None,
    ]);
    let rate = of(&[0, 0, 0, 1, 3]);
    (groups, of(&[0, 0, 1, 2]), rate, of(&[0, 5])).prop_map(|(groups, max, count, retry)| {
        let mut settings = Settings::default();
        settings.defaults.groups = groups;
        settings.defaults.key_in_flight_max = max;
        settings.defaults.key_take_rate = Rate { count, per_ms: 20 };
        settings.defaults.default_ttr_ms = 15;
        settings.defaults.retry_delay_ms = retry;
        settings.defaults.retry_jitter = 0;
        settings
    })
}

/// Many messages of few keys, put and taken at once.
pub(crate) fn fair_op() -> impl Strategy<Value = Op> {
    let puts =
        (key(), 1..50usize, of(&[None, None, Some(1)])).prop_map(|(key, count, priority)| {
            let put = Put {
                queue: "a".into(),
                priority,
                body: Body::new(&vec![7; count % 2 * 3]),
                more: Some(Box::new(PutMore {
                    key,
                    ..PutMore::default()
                })),
                ..Put::default()
            };
            Command::PutMany(vec![put; count])
        });
    let takes = (
        1..45u32,
        of(&[None, None, Some(2)]),
        prop::bool::weighted(0.8),
        of(&[5, 30]),
    );
    let takes = takes.prop_map(|(messages_max, body_max, leased, ms)| {
        let lease = LeaseRequest {
            owner: LeaseOwner::Connection,
            time: LeaseTime::Fixed(ms),
            back_to: BackTo::Position,
            held_max: 0,
        };
        Command::Take(Take {
            queues: [Name::from("a")].into(),
            messages_max,
            body_max,
            lease: leased.then_some(lease),
            ..Take::default()
        })
    });
    prop_oneof![
        6 => puts.prop_map(|puts| Op::ClientRequest(0, puts)),
        9 => (0..3u8, takes).prop_map(|(client_id, take)| Op::ClientRequest(client_id, take)),
        3 => (0..3u8, how(), 1..40u32).prop_map(|(client_id, how, max)| {
            Op::ClientRequest(client_id, Command::SettleHeld { queue: None, how, max })
        }),
        2 => (0..3u8, any::<u16>(), on()).prop_map(|(client_id, pick, on)| Op::On(client_id, pick, on)),
        2 => of(&[1, 5, 30]).prop_map(Op::Pass),
        1 => of(&[0, 3]).prop_map(|max| {
            configure(Overrides { key_in_flight_max: Some(max * 12), ..Overrides::default() })
        }),
        1 => (0..3u8).prop_map(Op::HangUp),
        1 => Just(Op::Restart),
    ]
}

/// A change of what a queue had of its own, which mostly is nothing.
pub(super) fn reconfigure((queue, from, to): (Name, Option<Overrides>, Overrides)) -> Command {
    let (from, to) = (Box::new(from.unwrap_or_default()), Box::new(to));
    Command::Reconfigure { queue, from, to }
}
