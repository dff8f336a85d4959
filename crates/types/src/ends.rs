//! The ends of messages that are gone.

use crate::caller::{Caller, ClientId};
use crate::id::MessageId;
use crate::lease::{Bound, Removal};
use crate::name::Name;
use crate::time::Ms;

named! {
    /// How a message came to its end.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum Ended, word {
        /// Taken without a lease.
        #[default]
        Taken = "removed",
        /// By the holder of its lease.
        Finished = "finished",
        /// By its id.
        Deleted = "deleted",
        /// Its time ran out.
        Expired = "expired",
        /// Dropped, as its queue was full.
        Dropped = "dropped",
        /// Its queue, or a part of it, was purged.
        Purged = "purged",
        /// Its queue was deleted.
        QueueDeleted = "queue_deleted",
        /// Finished, and kept long enough.
        Forgotten = "forgotten",
        /// A repeat of its put took its place, as another message.
        Replaced = "replaced",
        /// It failed, and says itself that it is not tried again.
        Failed = "failed",
        /// It was cancelled.
        Cancelled = "cancelled",
        /// It got another body, and with it another id.
        Edited = "edited",
        /// It went to a queue of another shard, where it has another id.
        Moved = "moved",
        /// The same, as the shard that sent it knows it.
        Sent = "moved",
    }
}

impl Ended {
    /// A client asked for it, by a command about these messages.
    pub const fn is_asked_for(self) -> bool {
        match self {
            Self::Taken | Self::Finished | Self::Deleted | Self::Purged | Self::QueueDeleted => {
                true
            }
            Self::Expired
            | Self::Dropped
            | Self::Forgotten
            | Self::Replaced
            | Self::Failed
            | Self::Cancelled
            | Self::Edited
            | Self::Moved
            | Self::Sent => false,
        }
    }

    /// It went with others of its queue, or with its queue.
    pub fn is_purge(self) -> bool {
        matches!(self, Self::Purged | Self::QueueDeleted)
    }

    /// The message, or the one in its place, has another id.
    pub fn renames(self) -> bool {
        matches!(self, Self::Replaced | Self::Edited | Self::Moved)
    }
}

impl From<Removal> for Ended {
    fn from(why: Removal) -> Self {
        match why {
            Removal::Taken => Self::Taken,
            Removal::Finished => Self::Finished,
            Removal::Deleted | Removal::DeletedDone => Self::Deleted,
            Removal::Expired => Self::Expired,
            Removal::Discarded => Self::Dropped,
            Removal::Doomed => Self::QueueDeleted,
            Removal::Purged | Removal::PurgedDone => Self::Purged,
            Removal::Retention => Self::Forgotten,
            Removal::Replaced => Self::Replaced,
            Removal::Failed => Self::Failed,
            Removal::Cancelled => Self::Cancelled,
        }
    }
}

/// The end of a message, as far as it is known ([`crate::Settings::ends_max`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ending {
    /// Where it was, or went to; `None`: that queue is gone.
    pub queue: Option<Name>,
    pub why: Ended,
    /// Engine time.
    pub at: Ms,
    /// The caller that did it; `None`: nobody's command, or it was before the last start.
    pub by: Option<Caller>,
    /// Its id from then on.
    pub is_now: Option<MessageId>,
}

named! {
    /// How an attempt ended without success.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum AttemptEnd, word {
        /// Its holder, or the policy of the queue, counts it as a failure.
        Failed = "failed",
        /// Its lease ran out.
        TimedOut = "timeout",
        /// The connection or process of its holder ended.
        Lost = "lost",
        /// Given back without a failure.
        Released = "released",
        Buried = "buried",
        DeadLetter = "dead_letter",
        /// A hook decided about its message.
        Decided = "hook",
    }
}

/// An attempt that ended without success, as far as it is known ([`crate::Settings::ends_max`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// The first id of its message.
    pub id: MessageId,
    /// Where it was: those who may not see messages there do not see the attempt.
    pub queue: Name,
    /// Engine time of its end.
    pub at: Ms,
    /// Its holder; 0: not known, as after a restart.
    pub client_id: ClientId,
    pub bound: Bound,
    /// Which attempt of the message it was.
    pub number: u32,
    pub end: AttemptEnd,
    /// The first line of the error, cut.
    pub error: Box<[u8]>,
}

impl Attempt {
    /// Attempts of one message that are shown at most.
    pub const SHOWN: usize = 20;
}
