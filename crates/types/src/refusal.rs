//! Why a shard refuses a command.

use crate::id::MessageId;

/// The engine's normal "no". Exhaustive on purpose: a new one stops every
/// voice compiling until it says how to tell its client. Nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Refusal {
    /// The queue has as many messages or bytes as its settings allow.
    QueueFull,
    /// The body is longer than the queue's settings allow.
    MessageTooLarge,
    /// No such message, or it is in a state or with an owner that does not
    /// allow this.
    NotFound,
    /// No such queue.
    QueueNotFound,
    /// There is a queue of this name already.
    QueueExists,
    /// The lease that was shown is over; the message is still there.
    LeaseOver,
    /// The caller already holds as many leases in the queue as it may.
    HeldLimit,
    /// A put with the same dedupe id was accepted before.
    Duplicate(MessageId),
    /// The token of the put or take came before with another request
    /// ([`crate::PutMore::token_sum`], [`crate::Take::token_sum`]).
    TokenUsed(MessageId),
    /// The queue is administratively down.
    QueueDown,
    /// The server is draining: no puts.
    Draining,
    /// The disk is full: no puts, but what empties queues still works.
    NoSpace,
    /// The memory limit is reached and nothing more can be held.
    NoMemory,
    /// As many queues as the settings allow.
    TooManyQueues,
    /// The user has made as many queues as it may.
    UserQueues,
    /// The queues that the user who made this one has made hold as many bytes
    /// as they may.
    UserBytes,
    /// As many waiting takes as the settings allow.
    TooManyWaiters,
    /// The empty name, or one over 65,535 bytes.
    BadName,
    /// A message's own name that is empty, or longer than
    /// [`crate::MESSAGE_NAME_BYTES_MAX`].
    BadMessageName,
    /// The caller has no right to do this.
    NotPermitted,
    /// What a hook looked at has changed since ([`crate::Compound`]).
    Conflict,
    /// The durable tables hold as much as the settings allow.
    TablesFull,
    /// A queue's tags would have more bytes than [`crate::TAGS_BYTES_MAX`].
    TagsFull,
    /// The configuration locks a setting ([`crate::QueueSettings::locked`]).
    Locked,
    /// Names and settings of queues and the tables take as much as they may
    /// at the beginning of each segment of the log.
    SnapshotFull,
    /// No such batch.
    BatchNotFound,
    /// The batch is committed, or done: nothing is added to it.
    BatchClosed,
    /// A batch without a callback.
    BatchWithoutCallback,
    /// Description and callbacks of the batch are longer than the settings
    /// allow.
    BatchTooLarge,
    /// As many batches as the settings allow.
    TooManyBatches,
    /// As many puts are remembered as may be ([`crate::Settings::dedupe_max`]).
    DedupeFull,
    /// What would be decided could not be kept by enough machines now. Never
    /// said by the engine: it is not asked.
    Unavailable,
    /// The outcome is not known: the command may have been done, or be done later. The engine never
    /// returns it.
    Unknown,
}

macro_rules! codes {
    ($($refusal:pat => $code:literal,)*) => {
        /// Every code there is.
        pub const CODES: &'static [&'static str] = &[$($code),*];

        /// A word for programs, the same in every version.
        pub fn code(self) -> &'static str {
            match self {
                $($refusal => $code,)*
            }
        }
    };
}

impl Refusal {
    codes! {
        Refusal::QueueFull => "queue_full",
        Refusal::MessageTooLarge => "message_too_large",
        Refusal::NotFound => "not_found",
        Refusal::QueueNotFound => "queue_not_found",
        Refusal::QueueExists => "queue_exists",
        Refusal::LeaseOver => "lease_over",
        Refusal::HeldLimit => "held_limit",
        Refusal::Duplicate(_) => "duplicate",
        Refusal::TokenUsed(_) => "token_used",
        Refusal::QueueDown => "queue_down",
        Refusal::Draining => "draining",
        Refusal::NoSpace => "no_space",
        Refusal::NoMemory => "no_memory",
        Refusal::TooManyQueues => "too_many_queues",
        Refusal::UserQueues => "user_queues",
        Refusal::UserBytes => "user_bytes",
        Refusal::TooManyWaiters => "too_many_waiters",
        Refusal::BadName => "bad_name",
        Refusal::BadMessageName => "bad_message_name",
        Refusal::NotPermitted => "not_permitted",
        Refusal::Conflict => "conflict",
        Refusal::TablesFull => "tables_full",
        Refusal::TagsFull => "tags_full",
        Refusal::Locked => "locked",
        Refusal::SnapshotFull => "snapshot_full",
        Refusal::BatchNotFound => "batch_not_found",
        Refusal::BatchClosed => "batch_closed",
        Refusal::BatchWithoutCallback => "batch_without_callback",
        Refusal::BatchTooLarge => "batch_too_large",
        Refusal::TooManyBatches => "too_many_batches",
        Refusal::DedupeFull => "dedupe_full",
        Refusal::Unavailable => "unavailable",
        Refusal::Unknown => "unknown",
    }

    /// A short English text, fit for operators and for protocols that show
    /// free text.
    pub fn text(self) -> &'static str {
        match self {
            Refusal::QueueFull => "queue full",
            Refusal::MessageTooLarge => "message too large",
            Refusal::NotFound => "message not found",
            Refusal::QueueNotFound => "queue not found",
            Refusal::QueueExists => "queue exists already",
            Refusal::LeaseOver => "the lease is over",
            Refusal::HeldLimit => "close current item first",
            Refusal::Duplicate(_) => "duplicate message",
            Refusal::TokenUsed(_) => "the same token came with another request",
            Refusal::QueueDown => "queue is down",
            Refusal::Draining => "server is draining",
            Refusal::NoSpace => "disk full",
            Refusal::NoMemory => "out of memory",
            Refusal::TooManyQueues => "too many queues",
            Refusal::UserQueues => "too many queues of this user",
            Refusal::UserBytes => "too many bytes stored by this user",
            Refusal::TooManyWaiters => "too many waiting clients",
            Refusal::BadName => "bad queue name",
            Refusal::BadMessageName => "bad message name",
            Refusal::NotPermitted => "not permitted",
            Refusal::Conflict => "changed while it was being decided",
            Refusal::TablesFull => "tables full",
            Refusal::TagsFull => "tags full",
            Refusal::Locked => "locked by the configuration",
            Refusal::SnapshotFull => "snapshot full",
            Refusal::BatchNotFound => "no such batch",
            Refusal::BatchClosed => "batch is committed",
            Refusal::BatchWithoutCallback => "batch without callback",
            Refusal::BatchTooLarge => "batch too large",
            Refusal::TooManyBatches => "too many batches",
            Refusal::DedupeFull => "too many deduplication ids",
            Refusal::Unavailable => "no quorum",
            Refusal::Unknown => "the outcome is not known: it may have been done",
        }
    }
}
