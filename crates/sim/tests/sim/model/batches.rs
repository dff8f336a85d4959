//! Requests about batches, and messages to wait for.

use proptest::prelude::*;
use quintet_types::*;

use super::ops::{Op, message_name, of, on, op, priority, take, text};

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

/// A put of what may belong to a batch, be tracked and wait for others.
fn member() -> impl Strategy<Value = Put> {
    let rare = (
        prop::option::weighted(0.8, batch_pick()),
        prop::option::weighted(0.5, message_name()),
        prop::option::weighted(0.3, after()),
        prop::option::weighted(0.2, retry()),
    );
    (of(&["a", "a", "b"]), rare).prop_map(|(queue, (batch, name, after, retry))| {
        let name = name.filter(|name| !name.is_empty());
        let more = PutMore {
            batch: batch.map(Tie::member),
            tracked: name.is_some(),
            name: name.map(Into::into),
            after: after.map(Box::new),
            retry,
            ..PutMore::default()
        };
        Put {
            queue: queue.into(),
            more: Some(Box::new(more)),
            ..Put::default()
        }
    })
}

/// A step about batches and their members, most often.
pub(crate) fn batch_op() -> impl Strategy<Value = Op> {
    let takes = (take(), of(&["a", "a", "b", "c"])).prop_map(|(mut take, queue)| {
        take.queues = [Name::from(queue)].into();
        Command::Take(take)
    });
    let commands = prop_oneof![
        9 => batch().prop_map(Command::Batch),
        6 => member().prop_map(Command::Put),
        5 => takes,
    ];
    prop_oneof![
        17 => (0..3u8, commands).prop_map(|(client_id, command)| Op::ClientRequest(client_id, command)),
        8 => (0..3u8, any::<u16>(), on()).prop_map(|(client_id, pick, on)| Op::On(client_id, pick, on)),
        3 => of(&[1, 10, 60, 300, 1100]).prop_map(Op::Pass),
        6 => op(),
    ]
}
