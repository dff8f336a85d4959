//! The order of messages: state indexes of a queue and the runs that messages leave memory for.

use crate::id::MessageId;
use crate::message::Message;

/// Order inside a state index: priority, position, id for what is ready; for the other state
/// indexes the priority is 0 and the position is the due time, the turn among the buried, or the
/// time of archiving.
pub type Order = (u32, i64, MessageId);

/// A turn among the buried is the time in ms, so many bits further left, or the turn after the last
/// one of its queue if that is later. Turns that a release before 0.2 gave are small numbers.
pub const TURN_SHIFT: u32 = 12;

coded! {
    /// A queue's messages in one state, as they are sorted in a run.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
    pub enum StateIndex, "state index" {
        /// Ready to be taken.
        #[default]
        Ready = 0,
        /// Ready, but leaves only with a companion.
        NotSelectable = 1,
        /// Waiting for its due time.
        Delayed = 2,
        /// Set aside.
        Buried = 3,
        /// Done or relayed, and kept.
        Archived = 4,
    }
}

impl StateIndex {
    /// True for those a flush empties.
    pub fn is_waiting(self) -> bool {
        matches!(
            self,
            StateIndex::Ready | StateIndex::NotSelectable | StateIndex::Delayed
        )
    }

    /// Where a message stands in this state index.
    pub fn order(self, message: &Message) -> Order {
        let extra = message.extra.as_deref();
        match self {
            StateIndex::Ready | StateIndex::NotSelectable => message.order(),
            // Times in ms stay far below 2^63.
            StateIndex::Delayed => (0, message.due().map_or(0, |due| due.0 as i64), message.id),
            StateIndex::Buried => (
                0,
                extra.map_or(0, |extra| extra.bury_order as i64),
                message.id,
            ),
            StateIndex::Archived => (
                0,
                extra.map_or(0, |extra| extra.changed.0 as i64),
                message.id,
            ),
        }
    }
}
