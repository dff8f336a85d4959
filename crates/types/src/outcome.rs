//! Answers of a shard.

use crate::batch::Batch;
use crate::caller::ClientId;
use crate::command::{Cursor, TableEntry};
use crate::command_error::CommandError;
use crate::id::MessageId;
use crate::lease::{Lease, LeaseNews};
use crate::message::Message;
use crate::name::Name;
use crate::result::MessageResult;
use crate::stats::StatsReply;
use crate::tie::BatchId;
use crate::track::Track;

use smallvec::SmallVec;

/// Messages handed to a consumer, each with the name of the queue it came from.
pub type Handed = SmallVec<[Message; 1]>;

/// Result of one call of [`crate::Command::DropQueues`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// Queues dropped, or that would be.
    pub queues: u64,
    /// Messages in them, those under a lease included.
    pub messages: u64,
    /// Queues that match and were passed over, as they hold messages.
    pub passed: u64,
    /// Start of the next call; `None`: all were looked at.
    pub next: Option<(u8, u32)>,
}

/// Result of one slice of a [`crate::Command::BulkOp`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct BulkDone {
    /// Messages that were looked at.
    pub examined: u64,
    /// Those of them that fit, and that it was done to.
    pub matched: u64,
    /// Messages that are shown ([`crate::BulkAction::Show`]), as they are stored.
    pub messages: Vec<Message>,
    /// The lease of each, where they are reserved.
    pub leases: Vec<Lease>,
    /// Start of the next slice; `None`: that was all.
    pub next: Option<Cursor>,
}

/// The engine's answer to a command. `Refused` changed nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Done, nothing to tell.
    Done,
    /// Done, to a message that is cancelled ([`crate::Cancelled`]).
    Cancelled,
    /// Stored under this id; `fresh` is false if an earlier put was repeated.
    Put {
        id: MessageId,
        /// False for a repeat.
        fresh: bool,
    },
    /// All stored, ids in order.
    PutMany(Vec<MessageId>),
    /// Messages taken, leased or looked at. Never empty.
    Messages(Handed),
    /// Nothing there, or nothing came in time.
    Empty,
    /// Nothing there, and a lease of the caller is about to end.
    DeadlineSoon,
    /// So many.
    Count(u64),
    /// All of a transaction was done.
    Transaction {
        /// Ids of what its effects put, in order.
        ids: Vec<MessageId>,
        /// The outcome of the command it was about, if there was one.
        then: Option<Box<Outcome>>,
    },
    Entries(Vec<TableEntry>),
    Batch(Box<Batch>),
    /// Batches, and where to go on: a shard, and behind which of its; `None`:
    /// that was all.
    Batches(Vec<Batch>, Option<(u8, BatchId)>),
    /// The state of a tracked message, and its id.
    Tracked(MessageId, Box<Track>),
    Result(Box<MessageResult>),
    Lease(Box<LeaseNews>),
    /// Result of [`crate::Command::DropQueues`].
    Dropped(Dropped),
    /// Result of a slice of [`crate::Command::BulkOp`].
    BulkDone(Box<BulkDone>),
    Stats(Box<StatsReply>),
    Refused(CommandError),
    /// A hook's no, and why. The engine never says it.
    Denied(Box<str>),
}

impl Outcome {
    /// The outcome of the command itself, if it was decided as part of a transaction.
    pub fn of_command(self) -> Self {
        if let Outcome::Transaction { then, .. } = self {
            then.map_or(Outcome::Done, |then| *then)
        } else {
            self
        }
    }

    /// The first of the messages it hands out, also as part of a transaction.
    #[inline]
    pub fn first_handed(&self) -> Option<&Message> {
        let command = if let Outcome::Transaction { then, .. } = self {
            then.as_deref()?
        } else {
            self
        };
        if let Outcome::Messages(messages) = command {
            messages.first()
        } else if let Outcome::BulkDone(bulk_done) = command {
            bulk_done.messages.first()
        } else {
            None
        }
    }
}

/// The condition for sending a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// Nothing of its own, only its turn.
    Turn,
    /// Everything recorded so far is durable.
    Durable,
    /// Everything recorded so far is written to the OS, and the puts of ids up
    /// to this one are durable.
    Written(MessageId),
}

/// The engine's answer to a command.
#[derive(Debug)]
pub enum Answer {
    /// The outcome, and what its reply waits for.
    Now(Outcome, Hold),
    /// The take waits; a [`Delivery`] to the caller will follow.
    Later,
}

/// An outcome for a take that waited.
#[derive(Debug)]
pub struct Delivery {
    /// The client that waited.
    pub to: ClientId,
    /// True for the client's subscription ([`crate::Command::Watch`]).
    pub standing: bool,
    /// True if the take stood in line in other shards too. It still does,
    /// though nothing is served there any more: its places are to be given up
    /// ([`crate::Engine::leave_lines`]) before the client waits again.
    pub claimed: bool,
    /// The outcome. For a subscription always messages; it is then cleared.
    pub outcome: Outcome,
    /// The condition for sending its reply.
    pub hold: Hold,
    /// Name of the queue the messages came from (the first one's).
    pub queue: Name,
    /// The messages were only looked at: if nobody reads this any more, there
    /// is nothing to undo.
    pub peeked: bool,
}
