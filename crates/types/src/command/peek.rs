//! Messages to look at.

use crate::id::MessageId;
use crate::name::Name;

/// Which message to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peek {
    /// This one, whatever its state.
    Id(MessageId),
    /// The next one that a FIFO consumer would get; ignores pause.
    Ready(Name),
    /// The delayed one that is due first.
    Delayed(Name),
    /// The one that was buried first.
    Buried(Name),
    /// Up to `max` messages of one state in order, from an id on (console).
    List {
        queue: Name,
        state: ListState,
        /// Skip ids up to and including this one.
        after: Option<MessageId>,
        /// Messages at most.
        max: u32,
    },
}

/// States as an operator lists them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListState {
    /// Ready now, those not selectable included.
    Ready,
    /// Waiting for their due time.
    Delayed,
    /// Under a lease.
    Reserved,
    /// Set aside.
    Buried,
    /// Not yet committed.
    Prepared,
    /// Done or relayed.
    Archived,
}
