//! Results: how a message ended, as a client that waits for it gets it.

use crate::id::MessageId;
use crate::name::Name;

named! {
    /// How a message ended.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
    pub enum ResultState, word {
        /// It was finished, with or without a result, or taken without a lease.
        #[default]
        Done = "done",
        /// It failed and was not to be tried again.
        Failed = "failed",
        /// It was buried, or became a dead letter.
        Dead = "dead",
        /// Its time was over.
        Expired = "expired",
        Cancelled = "cancelled",
        /// It was deleted, purged, dropped or replaced.
        Gone = "gone",
        /// It went to another shard, where it has another id.
        Moved = "moved",
    }
}

/// The end of a message.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MessageResult {
    /// Its id as it ended: another body gives a message another one.
    pub id: MessageId,
    /// The queue it ended in; empty: that queue is gone.
    pub queue: Name,
    pub state: ResultState,
    /// The result, if it is done; else the error or the reason. `None`: there is none.
    pub text: Option<Box<[u8]>>,
}

/// Where a message's result goes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ReplyTo {
    /// The queue that gets the reply, made if need be.
    pub queue: Name,
    /// The reply's attribute [`CORRELATION`], [`crate::MESSAGE_NAME_BYTES_MAX`] bytes at most. Of a
    /// put that leaves it empty it becomes the message's own name, or its id.
    pub correlation: Box<[u8]>,
}

impl ReplyTo {
    /// With a correlation id: its own, else this name, else this id.
    #[must_use]
    pub fn known_by(mut self: Box<Self>, name: Option<&[u8]>, id: MessageId) -> Box<Self> {
        if self.correlation.is_empty() {
            self.correlation = match name {
                Some(name) => name.into(),
                None => id.0.to_string().into_bytes().into(),
            };
        }
        self
    }

    /// Bytes of memory, about.
    pub(crate) fn bytes(&self) -> u64 {
        (size_of::<Self>() + self.queue.as_bytes().len() + self.correlation.len()) as u64
    }
}

/// The attribute of a reply that says which message it is about.
pub const CORRELATION: &[u8] = b"correlation_id";
/// The attribute of a reply that says how that message ended ([`ResultState::word`]).
pub const REPLY_STATE: &[u8] = b"state";
