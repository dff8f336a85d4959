//! The words of the queue: commands, outcomes, messages, settings, statistics, names, ids.
//!
//! Every room names them; no behaviour of a queue is here. `quintet-engine` has that.

#![warn(
    clippy::cast_possible_truncation,
    clippy::host_endian_bytes,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm
)]

#[macro_use]
mod coded;
mod account;
mod batch;
mod body;
mod caller;
mod command;
mod ends;
mod id;
mod lane;
mod lease;
mod message;
mod name;
mod outcome;
mod permits;
mod policy;
mod refusal;
mod retry;
mod settings;
mod shards;
mod stats;
mod tags;
mod tie;
mod time;
mod track;
mod unique;
pub mod varint;

pub use account::Account;
pub use batch::{
    BATCH, BATCH_EVENT, Batch, BatchAsk, Callback, Event, NewBatch, Progress, Said, Tally,
};
pub use body::{Body, ChunkPlace, LargeBody};
pub use caller::{Caller, Party, Principal};
pub use coded::Coded;
pub use command::{
    About, By, ByName, Command, Compound, Cursor, ERROR_BYTES_MAX, Edit, Effect, End, Expiry,
    Filter, GroupLimit, Guard, How, Intent, IntentKind, Intents, LeaseAsk, LeaseOwner, LeaseRef,
    LeaseTime, ListState, MESSAGE_NAME_BYTES_MAX, MESSAGES_PER_STEP, NamedAct, PROGRESS, Past,
    Peek, Pick, Put, PutMore, Seen, StatsOf, Subject, Sweep, SweepAct, TableAsk, TableEntry, Take,
    Verb, Wait, When,
};
pub use ends::{Ended, Ending};
pub use id::{MessageId, QueueId, RunId};
pub use lane::{ColdStats, Lane, Order};
pub use lease::{BackTo, Bound, Cancel, Cancelled, Lease, Removal, Return, Transfer};
pub use message::{At, Attachment, Attr, AttrChange, Extra, Home, Message, RANK_DEFAULT, State};
pub use name::Name;
pub use outcome::{Answer, Delivery, Dropped, Handed, Hold, Outcome, Swept};
pub use permits::Permits;
pub use refusal::{Class, Refusal};
pub use retry::{Backoff, Retry, RetryOn, mixed};
pub use settings::{
    AT_ONCE_MS, DeadLetter, Groups, Overrides, Pattern, QueueSettings, Rate, Settings, WhenFull,
};
pub use shards::{SHARD_SHIFT, shard_of_id, shard_of_queue};
pub use stats::{
    Left, MessageStats, NamePage, PartyStats, QueueGauges, QueuePage, QueueSetup, QueueStats,
    QueueTotals, ShardStats, StatsReply,
};
pub use tags::{TAGS_BYTES_MAX, Tags};
pub use tie::{BatchId, Role, Tie};
pub use time::{Ms, WallAhead};
pub use track::{TRACK_NOTE_BYTES_MAX, Track, TrackState};
pub use unique::{Dedupe, MARK_BYTES, OnRepeat, Scope};
