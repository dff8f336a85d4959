//! Leases, and the reasons for which messages change their place.

use crate::caller::ClientId;
use crate::result::ResultState;
use crate::time::Ms;

/// A lease on a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// The holder; nobody ([`ClientId`] 0) for a lease from before a restart.
    pub client_id: ClientId,
    /// The end of the lease besides its holder and its time.
    pub bound: Bound,
    /// When it ends; `None`: it has no deadline.
    pub until: Option<Ms>,
    /// Its length, for touch; 0 without deadline.
    pub span_ms: u64,
    /// Where the message goes when it ends.
    pub back_to: BackTo,
    /// The process that gave it: that of the log where it stands. 0 in the fact that gives it.
    pub epoch: u64,
    /// When it began, as far as its deadline tells; 0: it had none. 0 in the fact that gives it.
    pub since: Ms,
}

coded! {
    /// A condition that ends a lease.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Bound, "lease" {
        /// The connection that holds it.
        Connection = 0 => "connection",
        /// The child process that holds it.
        Process = 1 => "process",
        /// Only its deadline: survives disconnect and restart.
        Time = 2 => "time",
    }
}

/// A request to cancel messages.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Cancel {
    /// Why, for the worker and the operator; [`crate::ERROR_BYTES_MAX`] bytes of it are kept.
    pub reason: Box<[u8]>,
    /// A worker that holds the message has so long to end its work. 0: its lease ends at once.
    pub grace_ms: u64,
}

impl Cancel {
    /// The grace of a request that gives none, ms.
    pub const GRACE_MS: u64 = 30_000;
    /// The longest grace that a request may give, ms: a week.
    pub const GRACE_MAX_MS: u64 = 7 * 24 * 3600 * 1000;
}

/// A message under a lease that is cancelled. Its holder may still finish it; however else the
/// lease ends, the message does not come back.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Cancelled {
    /// The lease ends then at the latest.
    pub until: Ms,
    pub reason: Box<[u8]>,
}

/// The state of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LeaseNews {
    pub state: LeaseState,
    /// When it ends; `None`: it has no deadline, or has ended.
    pub until: Option<Ms>,
    /// The message is or was cancelled.
    pub cancelled: Option<Box<Cancelled>>,
}

impl LeaseNews {
    /// True if the message is cancelled, or ended so.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_some() || self.state == LeaseState::Ended(ResultState::Cancelled)
    }
}

/// Whether a lease lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LeaseState {
    /// It lasts.
    #[default]
    Held,
    /// It has ended, and the message is in a queue.
    Back,
    /// It has ended as the message has.
    Ended(ResultState),
}

coded! {
    /// Why a message is gone.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Removal, "removal" {
        /// By a removing take.
        Taken = 0,
        /// By the holder of its lease.
        Finished = 1,
        /// By id.
        Deleted = 2,
        /// Its time ran out.
        Expired = 3,
        /// The queue was full.
        Discarded = 4,
        /// Its queue was dropped while it was reserved.
        Doomed = 5,
        /// It was archived long enough.
        Retention = 6,
        /// A put with its dedupe id took its place.
        Replaced = 7,
        /// It failed and says itself that it is not tried again.
        Failed = 8,
        Cancelled = 9,
        /// By an operation on many messages of its queue.
        Purged = 10,
        /// By a command, after it was archived: it was counted as finished then.
        DeletedDone = 11,
        /// By an operation on many messages of its queue, after it was archived.
        PurgedDone = 12,
    }
}

impl Removal {
    /// True if its message has succeeded; `None`: that was known before, when it was archived.
    pub fn succeeded(self) -> Option<bool> {
        match self {
            Self::Taken | Self::Finished => Some(true),
            Self::Deleted
            | Self::DeletedDone
            | Self::PurgedDone
            | Self::Replaced
            | Self::Expired
            | Self::Purged
            | Self::Discarded
            | Self::Doomed
            | Self::Failed
            | Self::Cancelled => Some(false),
            Self::Retention => None,
        }
    }
}

coded! {
    /// Why a reserved message went back.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Return, "return" {
        /// Its holder gave it back.
        Released = 0,
        /// The lease ran out.
        Timeout = 1,
        /// The holder's connection or process is gone.
        Lost = 2,
        /// It waited for a decision, and nothing else became of it.
        Pending = 3,
        /// Its holder never heard of the lease, which counts as no attempt.
        Unheard = 16,
    }
}

coded! {
    /// Why a message changed queues.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Transfer, "transfer" {
        Command = 0,
        DeadLetter = 1,
        /// Its time ran out and the queue says where such messages go.
        Expired = 2,
        /// By the dead-letter rule, as it failed too often.
        Failures = 3,
        /// A dead letter that begins anew: what was counted of it, and where it came from, is
        /// forgotten.
        Redriven = 4,
    }
}

impl Transfer {
    /// True if it went by the dead-letter rule.
    pub fn is_dead_letter(self) -> bool {
        matches!(self, Self::DeadLetter | Self::Failures)
    }

    /// True if the queue it comes to says anew how long it lives.
    pub fn lives_anew(self) -> bool {
        self.is_dead_letter() || self == Self::Redriven
    }
}

coded! {
    /// Where a message goes when it comes back.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum BackTo, "lease" {
        /// Its old place in its priority.
        #[default]
        Position = 0,
        /// The head of its priority (memcache abort).
        Head = 1,
        /// The tail of its priority: behind all that is there when it comes back.
        /// Several that come back in one step keep their own order.
        Tail = 2,
    }
}
