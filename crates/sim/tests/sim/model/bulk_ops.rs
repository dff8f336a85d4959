//! Operations on many messages, operations by name, and cancelling.

use proptest::prelude::*;
use quintet_types::{
    BulkAction, BulkOp, By, ByName, Cancel, Cursor, Filter, MessageId, Ms, NamedAction,
};

use super::ops::{how, message_name, name, of, state, text};

pub(super) fn cancel() -> impl Strategy<Value = Cancel> {
    (text(), of(&[0, 5, 5, 60])).prop_map(|(reason, grace_ms)| Cancel { reason, grace_ms })
}

pub(super) fn bulk_op() -> impl Strategy<Value = BulkOp> {
    let action = prop_oneof![
        1 => Just(BulkAction::Count),
        3 => Just(BulkAction::Show),
        2 => Just(BulkAction::ShowBack),
        1 => Just(BulkAction::CountToCancel),
        1 => Just(BulkAction::Delete),
        1 => Just(BulkAction::Purge),
        1 => Just(BulkAction::Kick),
        1 => cancel().prop_map(BulkAction::Cancel),
        2 => name().prop_map(BulkAction::Move),
        2 => prop::option::weighted(0.3, name()).prop_map(|to| BulkAction::Redrive { to }),
        1 => name().prop_map(BulkAction::RedriveInto),
    ];
    let filter = (
        prop::option::weighted(0.2, text()),
        prop::option::weighted(0.2, message_name()),
        of(&[0, 0, 10]),
    )
        .prop_map(|(key, name, older_ms)| Filter {
            key,
            name,
            older_ms,
            ..Filter::default()
        });
    // Those that are not selectable have a list of their own from the last on.
    let top = Cursor {
        not_selectable: true,
        order: (u32::MAX, i64::MAX, MessageId(u64::MAX)),
    };
    let back = (of(&[None, Some(top)]), of(&[1, 2, u32::MAX]));
    (name(), state(), filter, action, back).prop_map(|(queue, state, filter, action, back)| {
        let (after, max) = match action {
            BulkAction::ShowBack => back,
            _ => (None, u32::MAX),
        };
        BulkOp {
            queue,
            state,
            filter,
            action,
            after,
            max,
        }
    })
}

/// The key or queue that a lease's end holds.
pub(super) fn holding() -> impl Strategy<Value = quintet_types::Holding> {
    use quintet_types::Holding::{Key, Queue};
    of(&[
        Key(0),
        Key(5),
        Key(10),
        Key(25),
        Queue(0),
        Queue(5),
        Queue(25),
    ])
}

pub(super) fn by_name() -> impl Strategy<Value = ByName> {
    let action = prop_oneof![
        2 => Just(NamedAction::Peek),
        6 => Just(NamedAction::Track),
        1 => (1_000_000..1_000_100u64).prop_map(|at| NamedAction::Until(Ms(at))),
        4 => how().prop_map(NamedAction::Settle),
        1 => (how(), holding()).prop_map(|(how, hold)| NamedAction::SettleHolding(how, hold)),
        2 => cancel().prop_map(NamedAction::Cancel),
        1 => of(&[None, Some(1), Some(40)]).prop_map(NamedAction::Extend),
        1 => (of(&[None, Some(0), Some(100)]), prop::option::of(text()))
            .prop_map(|(percent, text)| NamedAction::Progress(percent, text)),
    ];
    let queue = prop::option::weighted(0.3, name());
    let by = of(&[By::Bearer, By::Bearer, By::Anyone, By::Owner]);
    (queue, message_name(), by, action).prop_map(|(queue, name, by, action)| ByName {
        queue,
        name,
        by,
        action,
    })
}
