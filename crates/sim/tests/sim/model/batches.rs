//! Requests about batches, and messages to wait for.

use proptest::prelude::*;
use quintet_types::*;

use super::ops::{message_name, of, priority, text};

/// The last batch that was made, or one of those before; which they are is
/// known when it is asked.
pub(super) fn batch_pick() -> impl Strategy<Value = BatchId> {
    of(&[0, 0, 0, 1, 2, 9]).prop_map(BatchId)
}

fn callback() -> impl Strategy<Value = Option<Callback>> {
    let queue = of(&["a", "b", "c", "d", "m", ""]).prop_map(Name::from);
    let callback = (queue, text(), priority(), prop::option::of(message_name()));
    let callback = callback.prop_map(|(queue, body, priority, name)| Callback {
        queue,
        body: body.into(),
        priority,
        name: name.filter(|name| !name.is_empty()).map(Into::into),
        ..Callback::default()
    });
    prop::option::weighted(0.7, callback)
}

pub(super) fn batch() -> impl Strategy<Value = BatchRequest> {
    let parent = prop::option::weighted(0.3, batch_pick());
    let new = (
        parent,
        callback(),
        callback(),
        of(&["", "x", "too long for a batch"]),
        of(CancelledAs::ALL),
    );
    prop_oneof![
        4 => new.prop_map(|(parent, complete, success, description, cancelled)| {
            BatchRequest::New(Box::new(NewBatch {
                parent,
                complete,
                success,
                description: description.as_bytes().into(),
                cancelled,
            }))
        }),
        1 => Just(BatchRequest::Number { queue: Name::from("a"), parent: None }),
        1 => batch_pick().prop_map(BatchRequest::Open),
        6 => batch_pick().prop_map(BatchRequest::Commit),
        1 => batch_pick().prop_map(BatchRequest::Show),
        1 => batch_pick().prop_map(BatchRequest::Forget),
        1 => (batch_pick(), 0..4u32)
            .prop_map(|(after, max)| BatchRequest::List { shard: 0, after, max }),
    ]
}

/// How a message says itself that it is tried again.
pub(super) fn retry() -> impl Strategy<Value = Retry> {
    let max = of(&[-1, 0, 1, 2]);
    let more = (any::<bool>(), of(&[0, 0, 12]));
    (max, 0..2u32, of(&[0, 7]), more).prop_map(|(max, failures, base_ms, more)| {
        let (on_timeout, buried_ttl_ms) = more;
        let backoff = Backoff {
            base_ms,
            factor_ms: 3,
            power: 2,
            jitter_ms: 0,
            cap_ms: 0,
        };
        Retry {
            max,
            failures,
            backoff,
            on_timeout,
            buried_ttl_ms,
        }
    })
}

/// Parents are picked by an index into the messages there are, when it is put.
pub(super) fn after() -> impl Strategy<Value = PutAfter> {
    let parents = prop::collection::vec(0..12u64, 1..4);
    let rules = (of(AfterOn::ALL), of(IfFailed::ALL));
    (parents, rules).prop_map(|(parents, (on, if_failed))| PutAfter {
        ids: parents.into_iter().map(MessageId).collect(),
        on,
        if_failed,
        ..PutAfter::default()
    })
}
