//! Facts: everything that must be remembered.
//!
//! The durable state of a shard is a function of its facts in order. A fact
//! holds values that were resolved when it was decided, so applying it reads
//! neither configuration nor clock. The byte layout is in [`crate::codec`].

use quintet_types::{
    After, At, Attachment, Attr, Batch, BatchId, Cancelled, ClientId, Lease, Message, MessageId,
    Ms, Name, Overrides, ParentState, Progress, QueueId, QueueTotals, Rate, Removal, Return, RunId,
    Scope, Tally, Track, Transfer, coded,
};

use crate::cold::Block;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A process (or a new owner) began: every lease bound to a connection or
    /// a child process ends, in an order that keeps the messages' own order.
    Epoch {
        /// Rises with each.
        epoch: u64,
        /// When.
        now: Ms,
    },
    /// Ids below this one are used up.
    IdMark(u64),
    /// The secret key of the shard's [`DedupeId::Hash`]es. Told again in snapshots.
    HashKey([u8; 16]),
    /// A queue came into being. Repeated in snapshots: no effect if it exists.
    QueueMade {
        /// Its number, never used before.
        queue: QueueId,
        name: Name,
        /// It gets copies of this queue's puts.
        parent: Option<QueueId>,
        /// When.
        created: Ms,
    },
    /// The user that made a queue, for its quotas.
    QueueMaker {
        queue: QueueId,
        /// The user's name.
        maker: Box<[u8]>,
    },
    /// A queue's own settings from now on.
    QueueConfigured {
        queue: QueueId,
        /// All of them; the default clears all.
        overrides: Box<Overrides>,
    },
    QueuePaused {
        queue: QueueId,
        /// `None`: it is not paused.
        pause: Option<Pause>,
    },
    /// No message of a key is handed out for a time, or a hold of a key ends early.
    KeyHeld {
        queue: QueueId,
        key: Box<[u8]>,
        /// When.
        now: Ms,
        /// `None`: it is held no longer.
        until: Option<Ms>,
    },
    /// How a queue's messages age from now on.
    AgingSet {
        queue: QueueId,
        /// `None`: nothing in it ever aged.
        clock: Option<AgingClock>,
    },
    /// A flush: the waiting messages of a queue are discarded.
    QueueFlushed {
        queue: QueueId,
        /// The newest id there was.
        through: MessageId,
        /// How many went.
        count: u64,
    },
    /// A purge: the waiting and the reserved messages of a queue are discarded; those leases are
    /// over.
    QueuePurged {
        queue: QueueId,
        /// The newest id there was.
        through: MessageId,
        /// How many went.
        count: u64,
    },
    /// Puts into a queue are known as repeats no longer, but for those whose message still decides
    /// that ([`Scope::Waiting`] and its kind).
    DedupeForgotten {
        queue: QueueId,
    },
    /// A queue and all in it are gone.
    QueueDropped {
        queue: QueueId,
        /// The newest id there was.
        through: MessageId,
        /// Because nobody used it.
        idle: bool,
    },
    /// Snapshot: a queue's totals and counters, absolute.
    QueueCounted {
        queue: QueueId,
        totals: Box<QueueTotals>,
        /// The lowest place given to an aborted message so far.
        head: i64,
        /// The last turn given to a buried message.
        bury_order: u64,
    },
    /// A block of a run is in force: its messages have left memory and the
    /// log. The run was written and synced before.
    Evicted {
        run: RunId,
        /// The block; it counts only what is alive.
        block: Box<Block>,
        /// Its messages in order; 0 for those that were gone by then.
        ids: Vec<MessageId>,
    },
    /// A message leaves its run. What became of it is the next fact: its
    /// image, or that it is gone.
    Loaded {
        run: RunId,
        /// Its entry there.
        ordinal: u32,
        /// The message, as it stood.
        at: At,
        /// Length of its body.
        bytes: u64,
        /// It is counted apart where it stood, if that is a state index where such are
        /// ([`Block::apart`]).
        apart: bool,
    },
    /// Snapshot: a block of a run that is in force.
    RunImage {
        run: RunId,
        block: Box<Block>,
        /// A bit for each entry that has left; `None`: none has.
        dead: Option<Box<[u64]>>,
    },
    /// The remaining messages of a run are in force in another one.
    RunGone(RunId),
    /// Snapshot: the shard's counters, absolute.
    ShardCounted(Box<ShardCounts>),
    Put(Message),
    /// The whole of a stored message, written again so that the segment with
    /// its put can go.
    ///
    /// The lease is boxed, as a fact is moved with each put and take.
    Image(Message, Option<Box<Lease>>),
    /// A removing take was undone.
    Restored(Message),
    /// A message is gone.
    Removed {
        at: At,
        why: Removal,
    },
    /// A message is reserved.
    Leased {
        at: At,
        lease: Lease,
    },
    /// A message that waited is reserved again under its last lease's number: that was extended
    /// when it was over.
    Reheld {
        at: At,
        lease: Lease,
    },
    /// A lease runs from the start again.
    Touched {
        at: At,
        /// When the lease ends now.
        until: Ms,
    },
    /// A message went back to its queue.
    Released {
        /// Which, as it stood.
        at: At,
        /// Its priority now.
        priority: u32,
        /// Its place now.
        position: i64,
        /// Not taken before.
        due: Option<Ms>,
        /// How long that is, ms.
        delay_ms: u64,
        why: Return,
        /// Its try failed, which counts; what is known of why, perhaps nothing.
        failed: Option<Box<[u8]>>,
    },
    /// A message was set aside.
    Buried {
        /// Which, as it stood.
        at: At,
        /// Its priority now.
        priority: u32,
        /// When.
        now: Ms,
        /// By the dead-letter rule.
        dead: bool,
        /// Why, for the operator.
        reason: Box<[u8]>,
        /// Gone from this time on, if it is buried still.
        until: Option<Ms>,
        /// Its turn is made of the time; else it is the number after the last turn of its queue.
        by_time: bool,
    },
    /// A message is finished and kept.
    Archived {
        at: At,
        /// `relayed`, else `done`.
        relayed: bool,
        /// When.
        now: Ms,
        /// Status text.
        status: Box<[u8]>,
    },
    /// A buried or delayed message is ready again.
    Kicked {
        at: At,
    },
    /// A message went to another queue.
    Moved {
        /// Which, as it stood.
        at: At,
        to: QueueId,
        /// Its place there.
        position: i64,
        why: Transfer,
        /// When.
        now: Ms,
    },
    /// A message left for a queue of another shard. It is out of its queue
    /// and waits to be carried over.
    Sent {
        /// Which, as it stood.
        at: At,
        /// Target queue.
        to: Name,
        why: Transfer,
        /// When.
        now: Ms,
    },
    /// The whole of a message that waits to be carried to the queue of this
    /// name, written again so that the segment with its put can go.
    SentImage(Message, Name),
    /// A message came from another shard.
    Arrived {
        /// As it is stored here, under an id of this shard.
        message: Message,
        /// Its id there.
        from: MessageId,
    },
    /// A message that was sent has arrived in its shard: it is no longer here.
    Carried(MessageId),
    /// A prepared message entered its queue's order.
    Committed {
        at: At,
    },
    /// A message was changed.
    Edited {
        /// Which, as it stood.
        at: At,
        change: Box<Change>,
    },
    /// A message is kept from consumers until somebody has decided what becomes of
    /// it; its lease, if it had one, is over.
    Pending {
        /// Which, as it stood.
        at: At,
        /// The client that decides.
        client_id: ClientId,
    },
    /// An entry of a table was set, or removed.
    TableSet {
        table: Name,
        key: Box<[u8]>,
        /// `None`: removed.
        value: Option<Box<[u8]>>,
        /// Gone from this time on.
        until: Option<Ms>,
        /// Rises with each change.
        version: u64,
    },
    TableDropped(Name),
    /// A batch came into being. Told again in snapshots, as it is then.
    BatchMade(Box<Batch>),
    /// How far a batch is, absolute.
    BatchProgress {
        batch: BatchId,
        progress: Progress,
    },
    BatchGone(BatchId),
    /// Changes here of members of a batch of another shard that are not counted there yet,
    /// absolute; nothing: all of them are.
    BatchOwed {
        batch: BatchId,
        owed: Tally,
    },
    /// The record of a tracked message from now on, also when it is gone. Repeated in snapshots.
    Tracked {
        id: MessageId,
        /// `None`: nothing is any more.
        track: Option<Box<Track>>,
    },
    /// The messages for which another one is held. Absolute, and told again in images.
    Awaits {
        child: MessageId,
        /// `None`: it is not held any more, or gone.
        after: Option<Box<After>>,
    },
    /// A message for which others are held has come to its end. Told again in snapshots while some
    /// of them do not know.
    ParentEnded {
        parent: MessageId,
        succeeded: bool,
    },
    /// A held message knows that one of its parents has ended.
    ParentTold {
        child: MessageId,
        parent: MessageId,
        succeeded: bool,
    },
    /// A held message is held no more.
    Freed {
        /// Which, as it stood.
        at: At,
        /// As it knows its parents then.
        after: Box<After>,
    },
    /// Messages of another shard are held for one of this shard. Absolute, and told again in
    /// images. With the shard's own number: nobody waits here any more for one of another shard.
    Watched {
        parent: MessageId,
        /// Where they are held.
        shard: u8,
        /// Waiting, or how it has ended; `None`: the shard knows, or waits no more.
        state: Option<ParentState>,
    },
    /// A put is remembered, so that a repeat is known.
    Remembered {
        queue: QueueId,
        kind: DedupeKind,
        dedupe_record: DedupeId,
        /// The first put.
        id: MessageId,
        /// Until when at most; [`Ms::NEVER`]: no time ends it.
        until: Ms,
        /// The condition that also ends it.
        scope: Scope,
        /// Of a token ([`quintet_types::PutMore::token_sum`]); 0: none.
        sum: u64,
    },
}

/// Facts that change a message, and more; with where the message stood.
macro_rules! change_of_message {
    ($at:ident $(, $more:ident)*) => {
        Fact::Removed { $at, .. }
            | Fact::Leased { $at, .. }
            | Fact::Reheld { $at, .. }
            | Fact::Released { $at, .. }
            | Fact::Buried { $at, .. }
            | Fact::Archived { $at, .. }
            | Fact::Kicked { $at }
            | Fact::Freed { $at, .. }
            | Fact::Moved { $at, .. }
            | Fact::Sent { $at, .. }
            | Fact::Committed { $at }
            | Fact::Pending { $at, .. }
            | Fact::Edited { $at, .. }
            $(| Fact::$more { $at, .. })*
    };
}

impl Fact {
    /// Where the message stood that it changes.
    pub(crate) fn at(&self) -> Option<&At> {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "all others bring a message, or are about none"
        )]
        match self {
            change_of_message!(at) => Some(at),
            _ => None,
        }
    }

    /// The queue it is about, if it is about one.
    pub fn queue(&self) -> Option<QueueId> {
        match self {
            Fact::Epoch { .. }
            | Fact::IdMark(_)
            | Fact::HashKey(_)
            | Fact::ShardCounted(_)
            | Fact::SentImage(..)
            | Fact::Carried(_)
            | Fact::TableSet { .. }
            | Fact::TableDropped(_)
            | Fact::BatchMade(_)
            | Fact::BatchProgress { .. }
            | Fact::BatchGone(_)
            | Fact::BatchOwed { .. }
            | Fact::Tracked { .. }
            | Fact::Awaits { .. }
            | Fact::ParentEnded { .. }
            | Fact::ParentTold { .. }
            | Fact::Watched { .. }
            | Fact::RunGone(_) => None,
            Fact::QueueMade { queue, .. }
            | Fact::QueueMaker { queue, .. }
            | Fact::QueueConfigured { queue, .. }
            | Fact::QueuePaused { queue, .. }
            | Fact::KeyHeld { queue, .. }
            | Fact::AgingSet { queue, .. }
            | Fact::QueueFlushed { queue, .. }
            | Fact::QueuePurged { queue, .. }
            | Fact::DedupeForgotten { queue }
            | Fact::QueueDropped { queue, .. }
            | Fact::QueueCounted { queue, .. }
            | Fact::Remembered { queue, .. } => Some(*queue),
            Fact::Evicted { block, .. } | Fact::RunImage { block, .. } => Some(block.queue),
            Fact::Put(message)
            | Fact::Image(message, _)
            | Fact::Restored(message)
            | Fact::Arrived { message, .. } => Some(message.queue),
            change_of_message!(at, Loaded, Touched) => Some(at.queue),
        }
    }

    /// The other queue that it is about, if there are two.
    pub(crate) fn other_queue(&self) -> Option<QueueId> {
        if let Fact::Moved { to, .. } = self {
            Some(*to)
        } else if let Fact::QueueMade { parent, .. } = self {
            *parent
        } else {
            None
        }
    }
}

/// A queue's takes are not served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pause {
    /// Until then; `None`: until resumed.
    pub until: Option<Ms>,
    /// As asked, ms.
    pub for_ms: u64,
}

/// Tells how far the messages of a queue have aged. A message keeps where the clock stood when it
/// began to wait; its priority has risen by the steps since then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AgingClock {
    /// Where it stood when this rate began.
    pub steps: u32,
    /// When that was.
    pub since: Ms,
    /// Steps in a time.
    pub rate: Rate,
}

impl AgingClock {
    /// Where it stands.
    pub fn at(&self, now: Ms) -> u32 {
        let count = now.since(self.since).saturating_mul(self.rate.count.into());
        let steps = count.checked_div(self.rate.per_ms).unwrap_or(0);
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        self.steps.saturating_add(steps)
    }
}

/// Counters of a shard that no queue has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShardCounts {
    pub made: u64,
    /// Queues dropped by command.
    pub dropped: u64,
    /// Queues dropped because idle.
    pub expired: u64,
    /// Totals of the queues that are gone.
    pub gone: QueueTotals,
}

coded! {
    /// Kinds of deduplication records: what makes a put a repeat.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
    pub enum DedupeKind, "mark" {
        /// A dedupe id that refuses.
        Dedupe = 0,
        Token = 1,
        /// A message key, in a queue that dedupes by key.
        Key = 2,
    }
}

/// The id of a deduplication record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DedupeId {
    /// The client's bytes, in logs from before there was a key.
    Whole(Box<[u8]>),
    /// Their hash under [`Fact::HashKey`].
    Hash([u64; 2]),
}

/// A resolved edit: `None` leaves a thing as it is.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Change {
    /// When.
    pub now: Ms,
    /// New priority.
    pub priority: Option<u32>,
    /// New due time; `Some(None)`: ready at once.
    pub due: Option<Option<Ms>>,
    /// New status text.
    pub status: Option<Box<[u8]>>,
    /// All attributes anew.
    pub attrs: Option<Vec<Attr>>,
    /// All attachments anew.
    pub attachments: Option<Vec<Attachment>>,
    /// New time after which it is gone; `Some(None)`: it stays.
    pub expires: Option<Option<Ms>>,
    /// It is cancelled; if it is reserved, its lease ends then at the latest.
    pub cancelled: Option<Box<Cancelled>>,
}

/// Takes facts down, in order.
pub trait Journal {
    /// Records one fact. Infallible: a journal that cannot write ends the
    /// process, as nothing may be answered then.
    fn record(&mut self, fact: &Fact);

    /// Records again what the log knows: the segment that is written begins with it.
    fn restate(&mut self, fact: &Fact) {
        self.record(fact);
    }

    /// A fact of a queue that is in memory only, which nobody records. `name` is the queue's.
    fn pass(&mut self, _fact: &Fact, _name: impl FnOnce() -> Name) {}
}

impl Journal for Vec<Fact> {
    fn record(&mut self, fact: &Fact) {
        self.push(fact.clone());
    }
}
