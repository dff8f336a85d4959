//! Batches, tracked messages, dependencies, and how messages are tried again, as a log may hold
//! them.

use proptest::prelude::*;
use quintet_engine::*;
use quintet_types::*;

use super::{bytes, id, ms, name, number, one_of, small};

pub(crate) fn tie() -> impl Strategy<Value = Tie> {
    let batch = number().prop_map(BatchId);
    (batch, one_of(Role::ALL)).prop_map(|(batch, role)| Tie { batch, role })
}

pub(crate) fn reply() -> impl Strategy<Value = Option<Box<ReplyTo>>> {
    let reply = (bytes(), bytes()).prop_map(|(queue, correlation)| ReplyTo {
        queue: Name::new(&queue),
        correlation,
    });
    prop::option::of(reply.prop_map(Box::new))
}

fn callback() -> impl Strategy<Value = Callback> {
    let numbers = (prop::option::of(small()), prop::option::of(number()));
    let attrs = prop::collection::vec((bytes(), bytes()), 0..3);
    let more = (prop::option::of(bytes()), prop::option::of(retry()));
    (name(), bytes(), numbers, attrs, more).prop_map(
        |(queue, body, (priority, ttr_ms), attrs, (name, retry))| Callback {
            queue,
            body: body.into(),
            priority,
            ttr_ms,
            attrs,
            name: name.map(Into::into),
            retry,
        },
    )
}

pub(crate) fn progress() -> impl Strategy<Value = Progress> {
    let counts = (number(), number(), number());
    let children = (number(), number());
    let states = (one_of(CallbackState::ALL), one_of(CallbackState::ALL));
    (counts, any::<bool>(), states, children, ms()).prop_map(
        |((total, pending, failed), open, (complete, success), children, until)| Progress {
            total,
            pending,
            failed,
            open,
            complete,
            success,
            children_running: children.0,
            children_pending: children.1,
            until,
        },
    )
}

pub(crate) fn batch() -> impl Strategy<Value = Batch> {
    let callback = || prop::option::of(callback());
    let parent = prop::option::of((1..1u64 << 63).prop_map(BatchId));
    let cancelled = one_of(CancelledAs::ALL);
    let made = (bytes(), parent, callback(), callback(), cancelled);
    (number(), ms(), made, progress()).prop_map(
        |(id, created, (description, parent, complete, success, cancelled), progress)| Batch {
            id: BatchId(id),
            created,
            made: NewBatch {
                description,
                parent,
                complete,
                success,
                cancelled,
            },
            progress,
        },
    )
}

pub(crate) fn owed() -> impl Strategy<Value = Fact> {
    let numbers = (any::<(i64, i64, i64, i64)>(), any::<(bool, bool)>());
    (number(), numbers).prop_map(|(batch, ((total, pending, failed, cancelled), done))| {
        Fact::BatchOwed {
            batch: BatchId(batch),
            owed: Tally {
                total,
                pending,
                failed,
                cancelled,
                complete_done: done.0,
                success_done: done.1,
            },
        }
    })
}

pub(crate) fn retry() -> impl Strategy<Value = Retry> {
    let numbers = (number(), number(), number(), number());
    let more = (any::<bool>(), number());
    (any::<i64>(), small(), more, any::<u8>(), numbers).prop_map(
        |(
            max,
            failures,
            (on_timeout, buried_ttl_ms),
            power,
            (base_ms, factor_ms, jitter_ms, cap_ms),
        )| Retry {
            max,
            failures,
            backoff: Backoff {
                base_ms,
                factor_ms,
                power,
                jitter_ms,
                cap_ms,
            },
            on_timeout,
            buried_ttl_ms,
        },
    )
}

fn track() -> impl Strategy<Value = Track> {
    let percent = prop::option::of(0..=100u8);
    let texts = (name(), bytes(), bytes());
    (texts, one_of(TrackState::ALL), percent, ms(), ms()).prop_map(
        |((queue, name, note), state, percent, changed, until)| Track {
            queue,
            name: name.into(),
            state,
            percent,
            note,
            changed,
            until,
        },
    )
}

pub(crate) fn tracked() -> impl Strategy<Value = Fact> {
    (id(), prop::option::of(track())).prop_map(|(id, track)| Fact::Tracked {
        id,
        track: track.map(Box::new),
    })
}

pub(crate) fn after() -> impl Strategy<Value = After> {
    let parents = prop::collection::btree_map(id(), one_of(ParentState::ALL), 0..4);
    let rules = (one_of(AfterOn::ALL), one_of(IfFailed::ALL));
    (parents, rules, prop::option::of(ms())).prop_map(|(parents, (on, if_failed), due)| After {
        parents: parents
            .into_iter()
            .map(|(id, state)| Parent { id, state })
            .collect(),
        on,
        if_failed,
        due,
    })
}
