//! Operations on many messages, and cancelling.

use proptest::prelude::*;
use quintet_types::{BulkAction, BulkOp, Cancel, Filter};

use super::ops::{message_name, name, of, state, text};

pub(super) fn cancel() -> impl Strategy<Value = Cancel> {
    (text(), of(&[0, 5, 5, 60])).prop_map(|(reason, grace_ms)| Cancel { reason, grace_ms })
}

pub(super) fn bulk_op() -> impl Strategy<Value = BulkOp> {
    let action = prop_oneof![
        1 => Just(BulkAction::Count),
        1 => Just(BulkAction::CountToCancel),
        1 => Just(BulkAction::Delete),
        1 => Just(BulkAction::Purge),
        1 => Just(BulkAction::Kick),
        1 => cancel().prop_map(BulkAction::Cancel),
        1 => name().prop_map(BulkAction::Move),
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
    (name(), state(), filter, action).prop_map(|(queue, state, filter, action)| BulkOp {
        queue,
        state,
        filter,
        action,
        after: None,
        max: u32::MAX,
    })
}
