//! Why a shard refuses a command.

use crate::id::MessageId;

/// Of which kind an error is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Something has as much as it may; it may have room later.
    Full,
    /// It is not there.
    Absent,
    /// A right is missing, or the configuration forbids it.
    NotPermitted,
    /// The state of something stands in the way: asked again it is refused
    /// again, unless that has changed.
    Busy,
    /// The queue or the server does not serve this now.
    Unavailable,
    /// The request itself can never be done.
    Malformed,
    /// It may have been done, or be done later.
    Unknown,
}

macro_rules! command_errors {
    (@any $type:ty) => {
        _
    };
    ($(
        $(#[$doc:meta])*
        $error:ident $(($type:ty))? => $class:ident, $code:literal, $text:literal;
    )*) => {
        /// The engine's normal "no": nothing changed. Protocols tell its [`Class`], and
        /// the few errors apart that their clients know.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum CommandError {
            $($(#[$doc])* $error $(($type))?,)*
        }

        impl CommandError {
            /// Every code there is.
            pub const CODES: &'static [&'static str] = &[$($code),*];

            /// The kind, for protocols that have few errors.
            pub fn class(self) -> Class {
                match self {
                    $(Self::$error $((command_errors!(@any $type)))? => Class::$class,)*
                }
            }

            /// A word for programs, the same in every version.
            pub fn code(self) -> &'static str {
                match self {
                    $(Self::$error $((command_errors!(@any $type)))? => $code,)*
                }
            }

            /// A short English text, fit for operators and for protocols that
            /// show free text.
            pub fn text(self) -> &'static str {
                match self {
                    $(Self::$error $((command_errors!(@any $type)))? => $text,)*
                }
            }
        }
    };
}

command_errors! {
    /// The queue has as many messages or bytes as its settings allow.
    QueueFull => Full, "queue_full", "queue full";
    /// The body is longer than the queue's settings allow.
    MessageTooLarge => Malformed, "message_too_large", "message too large";
    /// No such message, or it is in a state or with an owner that does not
    /// allow this.
    NotFound => Absent, "not_found", "message not found";
    /// No such queue.
    QueueNotFound => Absent, "queue_not_found", "queue not found";
    /// There is a queue of this name already.
    QueueExists => Busy, "queue_exists", "queue exists already";
    /// The lease that was shown is over; the message is still there.
    LeaseOver => Busy, "lease_over", "the lease is over";
    /// The caller already holds as many leases in the queue as it may.
    HeldLimit => Busy, "held_limit", "close current item first";
    /// A put with the same dedupe id was accepted before.
    Duplicate(MessageId) => Busy, "duplicate", "duplicate message";
    /// The token of the put or take came before with another request
    /// ([`crate::PutMore::token_sum`], [`crate::Take::token_sum`]).
    TokenUsed(MessageId) => Busy, "token_used", "the same token came with another request";
    /// The queue is administratively down.
    QueueDown => Unavailable, "queue_down", "queue is down";
    /// The server is draining: no puts.
    Draining => Unavailable, "draining", "server is draining";
    /// The disk is full: no puts, but what empties queues still works.
    NoSpace => Full, "no_space", "disk full";
    /// The memory limit is reached and nothing more can be held.
    NoMemory => Full, "no_memory", "out of memory";
    /// As many queues as the settings allow.
    TooManyQueues => Full, "too_many_queues", "too many queues";
    /// The user has made as many queues as it may.
    UserQueues => Full, "user_queues", "too many queues of this user";
    /// The queues that the user who made this one has made hold as many bytes
    /// as they may.
    UserBytes => Full, "user_bytes", "too many bytes stored by this user";
    /// As many waiting takes as the settings allow.
    TooManyWaiters => Full, "too_many_waiters", "too many waiting clients";
    /// The empty name, or one over 65,535 bytes.
    BadName => Malformed, "bad_name", "bad queue name";
    /// A message's own name that is empty, or longer than
    /// [`crate::MESSAGE_NAME_BYTES_MAX`].
    BadMessageName => Malformed, "bad_message_name", "bad message name";
    /// The caller has no right to do this.
    NotPermitted => NotPermitted, "not_permitted", "not permitted";
    /// A message that a hook saw has changed since ([`crate::Transaction`]).
    Conflict => Busy, "conflict", "changed while it was being decided";
    /// The durable tables hold as much as the settings allow.
    TablesFull => Full, "tables_full", "tables full";
    /// A queue's tags would have more bytes than [`crate::TAGS_BYTES_MAX`].
    TagsFull => Full, "tags_full", "tags full";
    /// The configuration locks a setting ([`crate::QueueSettings::locked`]).
    Locked => NotPermitted, "locked", "locked by the configuration";
    /// Names and settings of queues and the tables take as much as they may
    /// at the beginning of each segment of the log.
    SnapshotFull => Full, "snapshot_full", "snapshot full";
    BatchNotFound => Absent, "batch_not_found", "no such batch";
    /// The batch is committed, or done: nothing is added to it.
    BatchClosed => Busy, "batch_closed", "batch is committed";
    /// A new batch needs at least one callback.
    BatchWithoutCallback => Malformed, "batch_without_callback", "batch without callback";
    /// Description and callbacks of the batch are longer than the settings
    /// allow.
    BatchTooLarge => Malformed, "batch_too_large", "batch too large";
    /// As many batches as the settings allow.
    TooManyBatches => Full, "too_many_batches", "too many batches";
    /// As many puts are remembered as may be ([`crate::Settings::dedupe_max`]).
    DedupeFull => Full, "dedupe_full", "too many deduplication ids";
    AlreadyCancelled => Busy, "already_cancelled", "the message is cancelled already";
    /// The message is done, so it cannot be cancelled.
    AlreadyDone => Busy, "already_done", "the message is done already";
    /// The queue's settings give keys no meaning, so none can be held.
    KeysUnused => Busy, "keys_unused", "the queue has no groups and no limit of keys";
    /// A hold by message id needs the key of that message.
    NoKey => Busy, "no_key", "the message has no key";
    /// As many keys of the queue are held as may be ([`crate::HELD_KEYS_MAX`]).
    TooManyHeldKeys => Full, "too_many_held_keys", "too many keys of the queue are held";
    /// The put waits for more messages than [`crate::AFTER_MAX`], its command for more than 10,000,
    /// copies for children included, or for more than 16 that are in runs.
    AfterTooMany => Malformed, "after_too_many", "after too many messages, or too many that are not in memory";
    /// The put waits for a message that is not there, and whose end is not known; 0: for a name
    /// that no tracked message has.
    AfterNotFound(MessageId) => Absent, "after_not_found", "a message to wait for is not known";
    /// The put waits for a message of its own name, or for the one that it takes the place of.
    AfterItself => Malformed, "after_itself", "a message cannot wait for itself";
    /// Others wait for the message, and know it by its id, which would change.
    Awaited => Busy, "awaited", "other messages wait for this one";
    /// Too few machines could store the decision now. Never said by the engine: it is not asked.
    Unavailable => Unavailable, "unavailable", "no quorum";
    /// The outcome is not known: the command may have been done, or be done later. The engine never
    /// returns it.
    Unknown => Unknown, "unknown", "the outcome is not known: it may have been done";
}
