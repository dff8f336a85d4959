//! The queue engine: messages, queues, leases, timers.
//!
//! Deterministic and without a world: time is an argument, nothing here knows
//! of sockets, files, threads or configuration files. [`Engine::submit`]
//! decides a command into facts and applies them; replaying the facts with
//! the same `apply` gives the same durable state.

#![warn(
    clippy::cast_possible_truncation,
    clippy::host_endian_bytes,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm
)]

mod account;
mod across;
mod batch;
mod body;
mod carry;
mod claim;
mod codec;
mod cold;
mod command;
mod compound;
mod decide;
mod ends;
mod engine;
mod fact;
pub mod format;
mod message;
mod name;
mod outcome;
mod pace;
mod permits;
mod referrers;
mod retry;
mod retry_own;
mod settings;
mod shards;
mod stats;
mod step;
mod store;
mod tags;
mod take_tokens;
mod time;
mod track;
pub mod varint;
mod waiters;

pub use account::Account;
pub use across::{Across, Best};
pub use batch::{
    BATCH, BATCH_EVENT, Batch, BatchAsk, BatchId, Callback, Event, NewBatch, Progress, Role, Said,
    Tally, Tie,
};
pub use body::{Body, ChunkPlace, LargeBody};
pub use carry::{Side, carry, carry_owed, put_member};
pub use codec::{FactError, FactKind, LargeBodies};
pub use cold::{
    Block, BlockAt, ColdStats, EntryFacts, Found, Lane, Order, Picked, Rewritten, RunId, Want,
    Written,
};
pub use command::{
    About, AttrChange, BackTo, By, ByName, Caller, Command, Cursor, Dedupe, ERROR_BYTES_MAX, Edit,
    End, Expiry, Filter, GroupLimit, How, LeaseAsk, LeaseOwner, LeaseRef, LeaseTime, ListState,
    MESSAGE_NAME_BYTES_MAX, MESSAGES_PER_STEP, NamedAct, OnRepeat, PROGRESS, Party, Past, Peek,
    Pick, Principal, Put, PutMore, Scope, StatsOf, Subject, Sweep, SweepAct, Take, Verb, Wait,
    When,
};
pub use compound::{
    Compound, Effect, Guard, Intent, IntentKind, Intents, Seen, TableAsk, TableEntry,
};
pub use decide::Spill;
pub use ends::{Ended, Ending};
pub use engine::{CopiedOut, Engine, Space};
pub use fact::{
    Bound, Change, Fact, Journal, Lease, Mark, MarkId, Pause, Removal, Return, ShardCounts,
    Transfer,
};
pub use message::{
    At, Attachment, Attr, Extra, Home, Message, MessageId, QueueId, RANK_DEFAULT, State,
};
pub use name::Name;
pub use outcome::{Answer, Delivery, Dropped, Handed, Hold, Outcome, Refusal, Swept};
pub use permits::Permits;
pub use retry::RetryOn;
pub use retry_own::{Backoff, Retry};
pub use settings::{
    AT_ONCE_MS, DeadLetter, Groups, Overrides, Pattern, QueueSettings, Rate, Settings, WhenFull,
};
pub use shards::{shard_of_id, shard_of_queue};
pub use stats::{
    Left, MessageStats, NamePage, PartyStats, QueueGauges, QueuePage, QueueSetup, QueueStats,
    QueueTotals, ShardStats, StatsReply,
};
pub use store::MARK_BYTES;
pub use tags::{TAGS_BYTES_MAX, Tags};
pub use time::{Ms, WallAhead};
pub use track::{TRACK_NOTE_BYTES_MAX, Track, TrackState};
