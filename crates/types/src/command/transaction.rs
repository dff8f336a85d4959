//! Several things in one step: what a hook decided, with what it looked at.
//!
//! A hook runs beside the shard, without its lock. What it read comes back as
//! guards, what it wants as effects; if a guard no longer holds nothing
//! happens, and the hook is asked again. So the answer of a hook is one command
//! like any other, and its facts are all the log knows of it.

use crate::batch::NewBatch;
use crate::command::{Command, Edit, How, Put};
use crate::id::{MessageId, QueueId};
use crate::lease::Cancel;
use crate::message::{Message, State};
use crate::name::Name;
use crate::tie::BatchId;
use crate::time::Ms;

/// A step of several parts: all of them or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Conditions that must hold as seen; else [`crate::CommandError::Conflict`].
    pub guards: Vec<Guard>,
    /// The effects, in order.
    pub effects: Vec<Effect>,
    /// The command this is about. If it is refused nothing happens. A take
    /// sees what the effects did, and may wait; that it is refused or finds
    /// nothing does not undo them. Must not be a transaction.
    pub then: Option<Box<Command>>,
}

/// Data that a transaction has read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    Message {
        id: MessageId,
        /// As it was; `None`: there was none.
        seen: Option<MessageVersion>,
    },
    /// An entry of a table.
    Table {
        table: Name,
        key: Box<[u8]>,
        /// Version of the entry; `None`: there was none.
        version: Option<u64>,
    },
}

/// A message as it was seen: whatever is done to one changes some of this,
/// but for its status, attributes and attachments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageVersion {
    pub queue: QueueId,
    pub priority: u32,
    pub position: i64,
    pub state: State,
    /// Leases so far.
    pub reserves: u32,
}

impl MessageVersion {
    /// The visible state of a message.
    pub fn of(message: &Message) -> Self {
        Self {
            queue: message.queue,
            priority: message.priority,
            position: message.position,
            state: message.state,
            reserves: message.reserves,
        }
    }
}

/// A question for news of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitLease {
    pub id: MessageId,
    /// The message as it was reserved.
    pub seen: MessageVersion,
    /// The client knows whether the message is cancelled, and when the lease ends; `None`: it knows
    /// nothing.
    pub known: Option<(bool, Option<Ms>)>,
    /// The client waits so long at most for something else.
    pub wait_ms: u64,
}

/// One thing that happens. Those about messages need one that nobody has
/// reserved but the caller, or that is pending ([`PendingDecisionKind`]); else the
/// whole step is refused with [`crate::CommandError::Conflict`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A message is stored.
    Put(Put),
    /// As [`Command::Settle`], by anyone. `Release` needs a reserved or
    /// pending message.
    Settle { id: MessageId, how: How },
    /// A message is removed.
    Delete(MessageId),
    /// As [`Command::Cancel`], also of a message that another client holds; no effect on one that is
    /// done or cancelled.
    Cancel(MessageId, Box<Cancel>),
    /// A message goes to the tail of a queue and is ready there.
    Move {
        id: MessageId,
        /// Target queue.
        to: Name,
    },
    /// A buried or delayed message is ready again; no effect on others.
    Kick(MessageId),
    /// As [`Command::Hold`], whatever the caller may do.
    Hold {
        queue: Name,
        /// `None`: all of the queue.
        key: Option<Box<[u8]>>,
        for_ms: u64,
    },
    /// A message is changed.
    Edit(MessageId, Box<Edit>),
    /// The default end of a pending message, if no hook decides otherwise.
    Conclude(MessageId),
    /// A batch is made, in its shard, of an id that was given for it
    /// ([`crate::BatchRequest::Number`]), whatever the caller may do. What the step puts may be its
    /// members, also in other shards.
    MakeBatch {
        id: BatchId,
        /// As it is requested.
        new: Box<NewBatch>,
    },
    /// A batch is committed, whatever the caller may do: when all else of the step has happened.
    CommitBatch(BatchId),
    /// A table's entry is set or removed.
    Set {
        /// The table; made on first use.
        table: Name,
        /// The key, 65,535 bytes at most.
        key: Box<[u8]>,
        /// `None`: removed.
        value: Option<Box<[u8]>>,
        /// Gone after so many ms.
        ttl_ms: Option<u64>,
    },
}

impl Effect {
    /// The message it is about.
    pub fn message(&self) -> Option<MessageId> {
        match self {
            Effect::Settle { id, .. }
            | Effect::Delete(id)
            | Effect::Cancel(id, _)
            | Effect::Move { id, .. }
            | Effect::Kick(id)
            | Effect::Edit(id, _)
            | Effect::Conclude(id) => Some(*id),
            Effect::Put(_)
            | Effect::Hold { .. }
            | Effect::MakeBatch { .. }
            | Effect::CommitBatch(_)
            | Effect::Set { .. } => None,
        }
    }
}

/// Requests about the durable tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableRequest {
    /// One entry.
    Get { table: Name, key: Box<[u8]> },
    /// Entries in the order of their keys.
    List {
        table: Name,
        /// Skip keys up to and including this one.
        after: Option<Box<[u8]>>,
        /// Entries at most.
        max: u32,
    },
    /// Removes a table and all in it.
    Drop(Name),
}

/// A key of a durable table with its value and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    pub key: Box<[u8]>,
    pub value: Box<[u8]>,
    /// Rises with every change, over all tables of a shard.
    pub version: u64,
    /// Gone from this time on.
    pub until: Option<Ms>,
}

/// An event that happens by itself and that a hook can decide instead. The message is *pending*
/// meanwhile: reserved by the client that decides, so that nobody can take it, and ready again if
/// the server stops before that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PendingDecisionKind {
    /// Its time ran out: it would vanish, or go to the queue's `expire_to`.
    Expire,
    /// Its lease ran out: it would be ready again.
    LeaseEnd,
    /// It was tried too often: it would be buried, or go to the dead-letter
    /// queue.
    DeadLetter,
}

/// One message that waits for a decision ([`Effect::Conclude`] or another
/// effect on it).
#[derive(Clone, Debug, PartialEq)]
pub struct PendingDecision {
    /// The event that is about to happen.
    pub kind: PendingDecisionKind,
    /// The message as it is now, pending.
    pub message: Message,
    pub queue: Name,
}

/// Which decisions hooks want, and for which client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PendingDecisions {
    /// The client that decides.
    pub client_id: crate::command::ClientId,
    /// Messages that expire.
    pub expire: bool,
    /// Leases that run out.
    pub lease_end: bool,
    /// Messages that were tried too often.
    pub dead_letter: bool,
}

impl PendingDecisions {
    /// True if this kind is wanted.
    pub fn wants(&self, kind: PendingDecisionKind) -> bool {
        match kind {
            PendingDecisionKind::Expire => self.expire,
            PendingDecisionKind::LeaseEnd => self.lease_end,
            PendingDecisionKind::DeadLetter => self.dead_letter,
        }
    }
}
