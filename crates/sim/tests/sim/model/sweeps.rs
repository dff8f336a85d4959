//! Operations on many messages, and cancelling.

use proptest::prelude::*;
use quintet_types::{Cancel, Filter, Sweep, SweepAct};

use super::ops::{message_name, name, of, state, text};

pub(super) fn cancel() -> impl Strategy<Value = Cancel> {
    (text(), of(&[0, 5, 5, 60])).prop_map(|(reason, grace_ms)| Cancel { reason, grace_ms })
}

pub(super) fn sweep() -> impl Strategy<Value = Sweep> {
    let act = prop_oneof![
        1 => Just(SweepAct::Count),
        1 => Just(SweepAct::Delete),
        1 => Just(SweepAct::Kick),
        1 => cancel().prop_map(SweepAct::Cancel),
        1 => name().prop_map(SweepAct::Move),
        2 => prop::option::weighted(0.3, name()).prop_map(|to| SweepAct::Redrive { to }),
        1 => name().prop_map(SweepAct::RedriveInto),
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
    (name(), state(), filter, act).prop_map(|(queue, state, filter, act)| Sweep {
        queue,
        state,
        filter,
        act,
        after: None,
        max: u32::MAX,
    })
}
