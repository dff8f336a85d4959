//! The commands of a shard. All protocols share them: when a protocol needs something new, the
//! command is extended for all of them.

use crate::after::PutAfter;
use crate::batch::BatchRequest;
use crate::body::Body;
use crate::caller::ClientId;
use crate::id::MessageId;
use crate::lease::{BackTo, Cancel};
use crate::message::{Attachment, Attr, AttrChange, Extra, Message, State};
use crate::name::Name;
use crate::result::ReplyTo;
use crate::retry::Retry;
use crate::settings::{Overrides, Pattern};
use crate::tie::{BatchId, Tie};
use crate::time::Ms;
use crate::unique::{DEDUPE_RECORD_BYTES, Dedupe};

mod about;
mod bulk_op;
mod keys;
mod named;
mod operation;
mod peek;
mod transaction;

use std::sync::Arc;

use smallvec::SmallVec;

pub use about::{About, Subject, Verb};
pub use bulk_op::{BulkAction, BulkOp, Cursor, Filter};
pub use keys::{GroupLimit, Keys};
pub use named::{ByName, Holding, MESSAGE_NAME_BYTES_MAX, NamedAction};
pub use operation::{Needed, Operation};
pub use peek::{ListState, Peek, StatsOf};
pub use transaction::{
    AwaitLease, Effect, Guard, MessageVersion, PendingDecision, PendingDecisionKind,
    PendingDecisions, TableEntry, TableRequest, Transaction,
};

/// The longest key that the one protocol with keys can name (pinpriq).
pub const KEY_BYTES_MAX: usize = 65_535;

/// A moment named by a client: sessions have no clock of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum When {
    /// Of a put: as its queue says ([`crate::QueueSettings::default_delay_ms`]). Else at once.
    #[default]
    Default,
    Now,
    /// So many milliseconds after the command is decided.
    In(u64),
    At(Ms),
}

/// When a put message expires.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Expiry {
    /// As the queue's settings say.
    #[default]
    Default,
    /// Never, unless the queue has an upper bound.
    Never,
    /// So many milliseconds after the put.
    In(u64),
    /// At this time; one that is past stores and expires at once.
    At(Ms),
    /// When the wall clock shows this. What is stored is the engine's time of
    /// that moment as it looks when the message is put: setting the clock
    /// later does not move it.
    AtWall(Ms),
}

/// A new message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Put {
    /// Target queue; made on first use.
    pub queue: Name,
    /// Refused with [`crate::CommandError::QueueNotFound`] if there is no such queue.
    pub must_exist: bool,
    pub body: Body,
    /// `None`: the queue's default.
    pub priority: Option<u32>,
    /// Opaque client flags.
    pub flags: u32,
    /// Not taken before.
    pub due: When,
    /// Gone after.
    pub expires: Expiry,
    /// Time to run in ms; `Some(0)` means "no deadline".
    pub ttr_ms: Option<u64>,
    /// Properties that a plain message does not have.
    pub more: Option<Box<PutMore>>,
}

impl Put {
    /// A put of `body` into `queue` with everything else at its default.
    pub fn new(queue: Name, body: Body) -> Self {
        Self {
            queue,
            must_exist: false,
            body,
            priority: None,
            flags: 0,
            due: When::default(),
            expires: Expiry::default(),
            ttr_ms: None,
            more: None,
        }
    }

    /// The size of its message ([`crate::Message::size`]).
    #[inline]
    pub fn size(&self) -> u64 {
        self.body.len() + self.more.as_deref().map_or(0, PutMore::size)
    }

    /// The batch it is to be counted in.
    pub fn batch(&self) -> Option<BatchId> {
        self.more.as_ref()?.batch.map(|tie| tie.batch)
    }

    /// True if it asks to be held for the message of this id.
    pub fn waits_for(&self, id: MessageId) -> bool {
        let after = self.more.as_ref().and_then(|more| more.after.as_ref());
        after.is_some_and(|after| after.ids.contains(&id))
    }
}

/// The rarer parts of a put.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutMore {
    /// True: not selectable (never selected on its own).
    pub not_selectable: bool,
    /// True: prepared, not yet in the queue's order.
    pub prepared: bool,
    /// Grouping key, 65,535 bytes at most; a put with a longer one is refused
    /// with [`crate::CommandError::MessageTooLarge`].
    pub key: Option<Arc<[u8]>>,
    /// Named values; sorted by the engine.
    pub attrs: Vec<Attr>,
    /// Files beside the log.
    pub attachments: Vec<Attachment>,
    /// Refuses or returns the first put with the same id in the queue.
    pub dedupe: Option<Dedupe>,
    /// Repeating the put with the same token within a day returns the first
    /// one's id and stores nothing.
    pub token: Option<Box<[u8]>>,
    /// A sum of the request that has the token. A put with a known token and another sum is
    /// [`crate::CommandError::TokenUsed`]. 0: any request.
    pub token_sum: u64,
    /// The message's own name, by which its sender knows it: opaque, 1 to
    /// [`MESSAGE_NAME_BYTES_MAX`] bytes ([`crate::CommandError::BadMessageName`]), not
    /// unique. A reserved message can be settled by it ([`Command::ByName`]), all of
    /// a queue found by it ([`Filter::name`]).
    pub name: Option<Arc<[u8]>>,
    /// How it is tried again when it fails; `None`: as its queue says.
    pub retry: Option<Retry>,
    /// The batch it is counted in, which has to be open
    /// ([`crate::CommandError::BatchClosed`]); [`Tie::member`]. Copies in children
    /// of its queue are not counted.
    pub batch: Option<Tie>,
    /// Keeps the outcome under the message's name, also for [`crate::Settings::track_keep_ms`]
    /// after the last change ([`NamedAction::Track`]). One without a name is refused with
    /// [`crate::CommandError::BadMessageName`]. Copies in children of its queue are not tracked.
    pub tracked: bool,
    /// Puts its result into a queue when it ends; its caller has to be allowed to put there.
    /// Copies in children of its queue send no reply.
    pub reply: Option<Box<ReplyTo>>,
    /// Holds it until these have ended. Copies in children of its queue are held too.
    pub after: Option<Box<PutAfter>>,
    /// Where it was before, if it comes from another server.
    pub past: Option<Box<Past>>,
}

impl PutMore {
    /// See [`crate::Message::size`].
    #[inline(never)]
    fn size(&self) -> u64 {
        let attrs = self.attrs.iter();
        let attrs: usize = attrs.map(|(name, value)| name.len() + value.len()).sum();
        let files: usize = self.attachments.iter().map(|file| file.name.len()).sum();
        let key = self.key.as_ref().map_or(0, |key| key.len());
        let name = self.name.as_ref().map_or(0, |name| name.len());
        let status = self.past.as_ref().map_or(0, |past| past.status.len());
        (attrs + files + key + name + status) as u64
    }

    /// True if what groups a message, or tells a repeat of it, is longer than is
    /// kept: repeats are remembered after their messages are gone.
    pub fn has_long_key(&self) -> bool {
        let key = self.key.as_ref().map_or(0, |key| key.len());
        let dedupe = self.dedupe.as_ref().map_or(0, |dedupe| dedupe.id.len());
        let token = self.token.as_ref().map_or(0, |token| token.len());
        key.max(dedupe).max(token) > KEY_BYTES_MAX
    }

    /// Bytes of memory that it adds to a message, about.
    pub fn bytes(&self) -> u64 {
        let len = |bytes: Option<usize>| bytes.map_or(0, |len| len + 32);
        let attrs = self.attrs.iter();
        let attrs: usize = attrs
            .map(|(name, value)| name.len() + value.len() + 64)
            .sum();
        let dedupe_records = u64::from(self.dedupe.is_some()) + u64::from(self.token.is_some());
        let of = [
            len(self.key.as_ref().map(|key| key.len())),
            len(self.name.as_ref().map(|name| name.len())),
            attrs,
            self.after.as_ref().map_or(0, |after| after.count() * 160),
            size_of::<Extra>(),
        ];
        let reply = self.reply.as_ref().map_or(0, |reply| reply.bytes());
        of.iter().sum::<usize>() as u64 + dedupe_records * DEDUPE_RECORD_BYTES + reply
    }
}

/// The history of a message that was stored elsewhere (`quintet import`). The children of its queue
/// get no copies: they had theirs when it was first put.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// The state it enters. `Reserved` counts as `Ready`: a lease stays with
    /// the server that gave it. A buried one is the last of its queue's.
    pub state: State,
    /// When it was put there. A time to come counts as now.
    pub created: Ms,
    /// When its state last changed. A time to come, and 0 for one that is
    /// buried, done or relayed, count as now.
    pub changed: Ms,
    /// Status text, or why it was buried.
    pub status: Box<[u8]>,
    /// Leases so far.
    pub reserves: u32,
    /// Leases that ran out.
    pub timeouts: u32,
    /// Times it was given back.
    pub releases: u32,
    /// Times it was buried.
    pub buries: u32,
    /// Times it was kicked.
    pub kicks: u32,
    /// Tries that failed, as its queue counts them.
    pub failures: u32,
}

/// Which end of the best priority is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum End {
    /// First in, first out: all protocols but pinpriq.
    #[default]
    Oldest,
    /// The newest of the best priority (pinpriq).
    Newest,
}

/// Which of several queues a take is served from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pick {
    /// The one with the best message: by priority, then the oldest (or newest).
    #[default]
    Best,
    /// The first in the order they are named that has something. A take that
    /// waits over queues of several shards gets what comes first.
    InOrder,
}

/// How long a take waits for a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wait {
    #[default]
    No,
    /// So many milliseconds.
    For(u64),
    Until(Ms),
    /// Until there is one.
    Forever,
}

/// The owner of a lease, which decides when the lease ends by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseOwner {
    /// The caller's connection: ends with it, and with a restart.
    Connection,
    /// The caller's child process: ends with it, and with a restart.
    Process,
    /// Time alone: survives disconnect and restart.
    Time,
    /// Time alone, unless the lease has no deadline: then the connection
    /// (Go Job Queue ttp 0, so that a crash cannot lose the job).
    TimeElseConnection,
}

/// How long a lease lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseTime {
    /// The message's ttr if it was given one, else no deadline.
    OwnTtr,
    /// The message's ttr, else the queue's default, which the consumer is then
    /// shown as if it were the message's own. [`crate::AT_ONCE_MS`]: it runs out
    /// in the step that gives it.
    TtrOrDefault,
    /// The same, but no time is none: it is over in the step that gives it.
    TtrOrOver,
    /// As [`LeaseTime::TtrOrDefault`], but where that is no deadline so many ms: for consumers
    /// without a connection, whose end would end such a lease.
    TtrOrDefaultElse(u64),
    /// So many ms; 0: no deadline.
    Fixed(u64),
    /// The message's ttr, else so many ms (0: no deadline), which the consumer is
    /// then shown as if it were the message's own.
    TtrElse(u64),
    /// It is released in the step that gives it: a look that counts.
    Over,
}

/// The lease a take asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseRequest {
    pub owner: LeaseOwner,
    /// How long.
    pub time: LeaseTime,
    /// Where the message goes when the lease ends unsettled.
    pub back_to: BackTo,
    /// Leases the caller may hold in the same queue before this take is
    /// refused ([`crate::CommandError::HeldLimit`]); 0: no limit.
    pub held_max: u32,
}

/// Takes or looks at messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Take {
    /// From these, as `pick` says. Absent queues are empty queues.
    pub queues: SmallVec<[Name; 1]>,
    /// Refused with [`crate::CommandError::QueueNotFound`] if one of them does not exist, and so
    /// answered when one is dropped while it waits. A queue that somebody only waits on or refers
    /// to does not exist. Of a subscription it says nothing.
    pub must_exist: bool,
    pub pick: Pick,
    /// Which end of the best priority.
    pub end: End,
    /// Pull companions of the same key too.
    pub group: Option<GroupLimit>,
    /// It gets messages of one key only.
    pub keys: Option<Box<Keys>>,
    /// `None`: the message is removed.
    pub lease: Option<LeaseRequest>,
    /// True: a peek, which changes nothing.
    pub peek: bool,
    /// Behaviour when no message is there.
    pub wait: Wait,
    /// Messages at most (all those there are, if fewer); 0 counts as 1. A
    /// group is never cut short by it. A look over several queues sees one;
    /// whether it has several, a subscription knows of the queues it named and
    /// of those [`Command::WatchQueue`] changed in the shard that serves it.
    pub messages_max: u32,
    /// Bodies longer than this are skipped and counted.
    pub body_max: Option<u64>,
    /// Refused with [`crate::CommandError::HeldLimit`] if the caller holds this
    /// many leases in the queue; 0: no limit. For takes without lease and
    /// looks.
    pub refuse_if_held: u32,
    /// True: both limits on held leases ([`LeaseRequest::held_max`] and
    /// `refuse_if_held`) count the caller's leases in all queues (Darner).
    pub held_anywhere: bool,
    /// Answer `DeadlineSoon` when nothing is ready and a lease of the caller
    /// ends within so many ms, now or while waiting (beanstalkd).
    pub deadline_soon_ms: Option<u64>,
    /// A take of one queue under leases of time that is sent again with its token, within five
    /// minutes, gets the same leases, and they begin anew, as long as all of them are as they were
    /// given: none ended, extended or cancelled. Else it is a take as any other. A restart forgets
    /// the tokens, and so do more of them than 8 MiB hold. Two clients with one token share what
    /// they get: who asks for several keeps them apart.
    pub token: Option<Box<[u8]>>,
    /// A sum of the request that has the token. A take with a known token and another sum is
    /// [`crate::CommandError::TokenUsed`]. 0: any request.
    pub token_sum: u64,
}

impl Take {
    /// Memory of its places in the lines of several queues, about, while it waits.
    pub fn bytes_in_line(&self) -> u64 {
        const PLACE: usize = 96;
        if self.wait == Wait::No || self.queues.len() < 2 {
            return 0;
        }
        let places = self.queues.iter().map(|name| PLACE + name.as_bytes().len());
        places.sum::<usize>() as u64
    }
}

/// The clients who may act on a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// The holder of its lease.
    Owner,
    /// The holder of its lease, or anybody if it is not reserved.
    OwnerOrFree,
    /// Anybody (Go Job Queue DELETE, the operator).
    Anyone,
    /// Any client that can name the message, if it is under a lease of time alone.
    Bearer,
    /// The client that shows the lease.
    Lease(LeaseRef),
}

/// One lease for good: no other one of the message has the same three numbers. Each lease has the
/// next number, a move gives another place, and of two that a power cut gave one number the
/// processes differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseRef {
    /// Where the message stood ([`Message::position`](crate::Message::position)). At another
    /// position it is [`crate::CommandError::NotFound`].
    pub position: i64,
    /// How many leases it had had, this one included ([`crate::Message::reserves`]).
    pub number: u32,
    /// Of the process that gave it ([`crate::Engine::epoch`]).
    pub epoch: u64,
    /// True: also if it is over, and if somebody else holds the message by now, as long as it
    /// waits or is reserved; else that is [`crate::CommandError::LeaseOver`].
    pub over: bool,
}

/// Bytes that are kept of what a failure is said to be about.
pub const ERROR_BYTES_MAX: usize = 4096;

/// The attribute that says how far the work on a message has come, in percent.
pub const PROGRESS: &[u8] = b"progress";

/// The end of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// The message is done and gone.
    Finish,
    /// The message is done and kept for the queue's retention time.
    Archive {
        /// True: `relayed`, false: `done`.
        relayed: bool,
        /// Status text.
        status: Box<[u8]>,
    },
    /// Back into the queue.
    Release {
        /// New priority, if it changes.
        priority: Option<u32>,
        /// Not taken before.
        due: When,
        /// Where in its priority; `None`: as the lease says.
        back_to: Option<BackTo>,
    },
    /// Back into the queue, as its try failed: it rests and is tried again, or not, as the queue's
    /// policy says ([`crate::QueueSettings::retry_after_ms`]).
    Fail {
        /// The error, for the operator; kept with the message. Up to [`ERROR_BYTES_MAX`] bytes are.
        error: Box<[u8]>,
        /// Attributes to set or remove beside it.
        note: Vec<AttrChange>,
    },
    /// Set aside.
    Bury {
        /// New priority, if it changes.
        priority: Option<u32>,
        /// Why, for the operator.
        reason: Box<[u8]>,
    },
}

impl How {
    /// Back into the queue, for who takes it then; its priority stays.
    pub fn release(due: When) -> Self {
        How::Release {
            priority: None,
            due,
            back_to: None,
        }
    }

    /// True if the message goes back to its queue, which only one under a lease can.
    pub fn gives_back(&self) -> bool {
        matches!(self, How::Release { .. } | How::Fail { .. })
    }
}

/// Changes to a stored message. Priority, due time and body only while it is not
/// reserved: a consumer must not find the order changed under its lease, and holds
/// the body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// New body. What is stored under an id never changes, so the message goes
    /// and one with all else of it takes its place, under an id of its own:
    /// the answer is that of a put.
    pub body: Option<Body>,
    pub priority: Option<u32>,
    /// New due time.
    pub due: Option<When>,
    /// New status text.
    pub status: Option<Box<[u8]>>,
    /// Attributes to set (`Some`) or remove (`None`).
    pub attrs: Vec<AttrChange>,
    /// New list of attachments.
    pub attachments: Option<Vec<Attachment>>,
}

/// Keys of a queue that are held at most.
pub const HELD_KEYS_MAX: usize = 10_000;
/// A key or queue is held for so long at most, ms: a week.
pub const HOLD_MAX_MS: u64 = 7 * 24 * 3600 * 1000;

/// Messages a command that is about many ([`Command::Kick`]) is about at most, so that others wait
/// for none long.
pub const MESSAGES_PER_STEP: u64 = 4096;

/// A command. Each is decided and applied as one indivisible step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Stores a message (and its copies in the queue's children).
    Put(Put),
    /// Stores all of these or none. One that repeats an earlier one of the
    /// list (token, dedupe id or key), whatever its rule, is answered with
    /// that one's id. Waiting takes see all of the list at once.
    PutMany(Vec<Put>),
    /// Takes, leases or looks; may wait.
    Take(Take),
    /// Sets or clears the caller's subscription: it waits in line beside the
    /// caller's other commands and its outcome comes as a delivery of its own,
    /// which ends it. If one stands already it becomes this one and keeps its
    /// place in line. It may name no queue; then it waits to be changed.
    Watch(Option<Box<Take>>),
    /// Changes the caller's subscription if one still stands: one that was
    /// served, though its delivery may be on the way, does not begin anew.
    Rewatch(Box<Take>),
    /// Adds a queue to the caller's subscription, or takes it away, if one
    /// still stands; else as [`Command::Rewatch`] with all its queues, but what
    /// it costs does not grow with them. If the queue cannot be made the take
    /// does not stand any more.
    WatchQueue {
        queue: Name,
        /// True: it is added.
        on: bool,
    },
    /// Ends the caller's waiting take with `Empty`.
    StopWaiting,
    /// Says that the caller refers to a queue, or no longer does: as one that
    /// puts into it (`uses`), as one that takes from it (`watches`); `None`
    /// leaves that as it is. A queue that is referred to exists; it counts the
    /// two kinds and is never dropped for idleness. Ends with the connection,
    /// leaves no trace in the log.
    Refer {
        /// The queue; made if the caller refers to it.
        queue: Name,
        /// Puts into it (beanstalkd `use`).
        uses: Option<bool>,
        /// Takes from it (beanstalkd `watch`).
        watches: Option<bool>,
    },
    /// Ends a lease, by id. Also acts on messages that are not reserved if
    /// `by` allows it.
    Settle {
        id: MessageId,
        /// The permitted client.
        by: By,
        how: How,
    },
    /// [`Command::Settle`]; in the same step the message's key or queue is held, unless it is held
    /// for longer. Refused as [`Command::Hold`], and for a message without a key.
    SettleHolding {
        id: MessageId,
        /// The permitted client.
        by: By,
        how: How,
        hold: Holding,
    },
    /// Ends leases the caller holds in a queue (`None`: in any), oldest first,
    /// `max` at most. Answers how many.
    SettleHeld {
        queue: Option<Name>,
        how: How,
        /// Leases at most.
        max: u32,
    },
    /// Starts the lease's time again, from its ttr. Unlike [`Command::Extend`] it is refused for a
    /// cancelled message: some protocols have no other word for that.
    Touch(MessageId),
    /// Lets a lease end so many ms from now (`None`: as long as it was given for). No effect on
    /// one without deadline. Who shows one that is over and may ([`LeaseRef::over`]) has a message
    /// that waits reserved again, under the same number, for nobody in particular.
    Extend {
        id: MessageId,
        /// The permitted client: [`By::Anyone`] for leases that are identified by the seen state of
        /// the message ([`crate::Guard`]).
        by: By,
        /// At least 1.
        ms: Option<u64>,
    },
    /// Says how far the work on a reserved message has come, for clients that look.
    /// It stays until something else is said, also when the message comes back.
    Progress {
        id: MessageId,
        /// The permitted client.
        by: By,
        /// 0 to 100, kept as the attribute [`PROGRESS`]; `None`: as it was.
        percent: Option<u8>,
        /// The message's status text from now on, [`ERROR_BYTES_MAX`] bytes of
        /// it; `None`: as it was.
        text: Option<Box<[u8]>>,
    },
    /// Does something to a reserved message by its own name.
    ByName(Box<ByName>),
    /// Leases this very message if it is ready, delayed or buried; a pause
    /// does not stop it.
    ReserveId { id: MessageId, lease: LeaseRequest },
    /// Asks how a message ended, and waits for that so many ms at most: [`crate::Outcome::Result`],
    /// or [`crate::Outcome::Empty`] for one that has not. A client waits for one message at a time.
    AwaitResult { id: MessageId, wait_ms: u64 },
    /// Asks how a lease is, and waits for other news of it: [`crate::Outcome::Lease`], or
    /// [`crate::Outcome::Empty`] if there were none in time. A client waits for one lease at a
    /// time.
    AwaitLease(AwaitLease),
    /// Looks without taking.
    Peek(Peek),
    /// Removes a message in any state.
    Delete {
        id: MessageId,
        /// The permitted client.
        by: By,
    },
    /// Cancels a message. One that nobody holds is removed. A reserved one is marked
    /// ([`crate::Cancelled`]), so its holder can end its work. Refused for one that is cancelled or
    /// done.
    Cancel(MessageId, Box<Cancel>),
    /// Buried or delayed messages back to ready, in order,
    /// [`MESSAGES_PER_STEP`] at most: if it was that many, ask again for the
    /// rest. Answers how many.
    Kick {
        queue: Name,
        /// Which: buried or delayed ones; none of another state is kicked.
        state: ListState,
        /// Messages at most.
        max: u64,
    },
    /// One buried or delayed message back to ready.
    KickId(MessageId),
    /// Sends a dead letter back to the queue it came from, as [`BulkAction::Redrive`] does.
    Redrive(MessageId),
    /// Moves a message that is not reserved to the tail of a queue, the same
    /// or another; whatever its state was, it is ready there. Limits are not
    /// asked: nothing is lost on the way.
    Move {
        id: MessageId,
        /// Target queue.
        to: Name,
    },
    /// Looks through a queue and does something to what fits. Answers
    /// [`crate::Outcome::BulkDone`].
    BulkOp(Box<BulkOp>),
    /// Puts a prepared message into its queue's order.
    Commit(MessageId),
    /// Changes a stored message.
    Edit(MessageId, Box<Edit>),
    /// Takes are not served until the time is over (`None`: until resumed;
    /// `Some(0)`: resumes). Refused if the queue does not exist.
    Pause {
        queue: Name,
        /// For how long, ms.
        for_ms: Option<u64>,
    },
    /// No message of this key (`None`: of the queue) is handed out until the time is over, or
    /// longer if it is held for longer; 0 ends that. Refused as [`Command::Pause`]; if the queue's
    /// settings give keys no meaning ([`crate::CommandError::KeysUnused`]), and for more than
    /// [`HELD_KEYS_MAX`] keys of a queue.
    Hold {
        queue: Name,
        key: Option<Box<[u8]>>,
        for_ms: u64,
    },
    /// Makes a queue, with these settings of its own. Refused with
    /// [`crate::CommandError::QueueExists`] if there is one of that name, which stays as it is.
    Create {
        queue: Name,
        overrides: Box<Overrides>,
    },
    /// Changes a queue's settings until cleared (`None`: clears all changes).
    Configure {
        queue: Name,
        overrides: Option<Box<Overrides>>,
        /// Refused with [`crate::CommandError::QueueNotFound`] if there is no such queue, rather
        /// than making it.
        must_exist: bool,
    },
    /// Replaces a queue's own settings ([`crate::QueueSetup::own`]). Refused with
    /// [`crate::CommandError::Conflict`] if they are not `from`. The queue must exist.
    Reconfigure {
        queue: Name,
        from: Box<Overrides>,
        to: Box<Overrides>,
    },
    /// From now on `child` gets a copy of every put to `parent` (Kestrel
    /// fan-out). No effect if `child` has a parent; copies are not copied on. A
    /// queue has 1,024 children at most ([`crate::CommandError::TooManyQueues`]).
    /// A put whose queue only passes it on, and has nobody to, answers id 0. Answers
    /// [`crate::Outcome::Count`] of 1 if the child was not one before, else
    /// [`crate::Outcome::Done`].
    Join {
        /// The queue whose puts are copied.
        parent: Name,
        /// The queue that gets the copies.
        child: Name,
    },
    /// Discards what waits in a queue. Answers how many messages that were.
    Flush {
        queue: Name,
        /// True: what is reserved as well, in the same step: for its holders it is gone. Else it
        /// may still come back.
        reserved: bool,
    },
    /// [`Command::Flush`], but for what is reserved, on every queue in which something waits.
    FlushAll,
    /// Discards the queue and all in it; reserved messages vanish when they
    /// are released. Answers how many messages that were, with those.
    Drop(Name),
    /// Drops the queues whose names match, a slice of them: as many as bear
    /// looking at in one step, from `from` on. Says how many, and where to go
    /// on.
    DropQueues {
        pattern: Pattern,
        /// Also those that hold messages, with these.
        messages: bool,
        /// Only says what it would do.
        dry_run: bool,
        /// A shard, and where in it; (0, 0) to begin.
        from: (u8, u32),
    },
    /// Discards expired messages now (`None`: everywhere), of many the first
    /// 4,096; the rest follows by itself. Answers how many.
    FlushExpired(Option<Name>),
    /// Asks whether a put with this dedupe id is still remembered in the queue.
    /// Answers the first one's id, or [`crate::CommandError::NotFound`].
    Remembered {
        queue: Name,
        /// [`Dedupe::id`].
        id: Box<[u8]>,
    },
    /// Uses up one id without storing anything (beanstalkd EXPECTED_CRLF).
    BurnId,
    /// Undoes a take whose reply never began to leave: what it removed is back
    /// at its place, and a lease of time alone that the caller still holds is
    /// over. (A lease of a connection ends with it anyway.)
    Restore(Vec<Message>),
    /// Several things in one step.
    Transaction(Box<Transaction>),
    /// Asks the durable tables.
    Table(TableRequest),
    /// Makes, changes or shows batches.
    Batch(BatchRequest),
    /// Asks for numbers.
    Stats(StatsOf),
}
