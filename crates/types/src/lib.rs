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
mod after;
mod batch;
mod body;
mod bytes;
mod caller;
mod command;
mod command_error;
mod ends;
mod http_limits;
mod id;
mod lease;
mod locks;
mod message;
mod name;
mod outcome;
mod permits;
mod policy;
mod result;
mod retry;
mod server_stats;
mod settings;
mod shards;
mod state_index;
mod stats;
mod tags;
mod tie;
mod time;
mod track;
mod unique;
pub mod varint;

pub use account::Account;
pub use after::{
    AFTER_ALL_MAX, AFTER_MAX, After, AfterOn, DUE_MAX, HELD, IfFailed, Parent, ParentState,
    PutAfter, Verdict,
};
pub use batch::{
    BATCH, BATCH_EVENT, Batch, BatchRequest, Callback, CallbackState, CancelledAs, Event, NewBatch,
    Progress, Tally,
};
pub use body::{Body, ChunkPlace, LargeBody};
pub use bytes::{fnv, hex, unhex};
pub use caller::{Caller, ClientId, Principal};
pub use coded::Coded;
pub use command::{
    About, AwaitLease, BulkAction, BulkOp, By, ByName, Command, Cursor, ERROR_BYTES_MAX, Edit,
    Effect, End, Expiry, Filter, GroupLimit, Guard, HELD_KEYS_MAX, HOLD_MAX_MS, Holding, How,
    KEY_BYTES_MAX, Keys, LeaseOwner, LeaseRef, LeaseRequest, LeaseTime, ListState,
    MESSAGE_NAME_BYTES_MAX, MESSAGES_PER_STEP, MessageVersion, NamedAction, Needed, Operation,
    PROGRESS, Past, Peek, PendingDecision, PendingDecisionKind, PendingDecisions, Pick, Put,
    PutMore, StatsOf, Subject, TableEntry, TableRequest, Take, Transaction, Verb, Wait, When,
};
pub use command_error::{Class, CommandError};
pub use ends::{Attempt, AttemptEnd, Ended, Ending};
pub use http_limits::HttpLimits;
pub use id::{MessageId, QueueId, RunId};
pub use lease::{
    BackTo, Bound, Cancel, Cancelled, Lease, LeaseNews, LeaseState, Removal, Return, Transfer,
};
pub use locks::locked;
pub use message::{
    At, Attachment, Attr, AttrChange, Extra, FOLDER, Message, PRIORITY_DEFAULT, SegmentRef, State,
    cut,
};
pub use name::Name;
pub use outcome::{Answer, BulkDone, Delivery, Dropped, Handed, Hold, Outcome};
pub use permits::Permits;
pub use result::{CORRELATION, MessageResult, REPLY_STATE, ReplyTo, ResultState};
pub use retry::{Backoff, Retry, RetryOn, mixed};
pub use server_stats::ServerStats;
pub use settings::{
    AT_ONCE_MS, DeadLetter, Groups, Overrides, Pattern, QueueSettings, Rate, Settings, WhenFull,
};
pub use shards::{SHARD_SHIFT, shard_of_id, shard_of_queue};
pub use state_index::{Order, StateIndex, TURN_SHIFT};
pub use stats::{
    ClientStats, ColdStats, Dependant, DependantPage, HeldKey, Left, MessageStats, NamePage,
    QueueGauges, QueuePage, QueueSetup, QueueStats, QueueTotals, ShardStats, StatsReply, TakeLimit,
};
pub use tags::{TAGS_BYTES_MAX, Tags};
pub use tie::{BatchId, Role, Tie};
pub use time::{Ms, WallAhead};
pub use track::{TRACK_NOTE_BYTES_MAX, Track, TrackState};
pub use unique::{DEDUPE_RECORD_BYTES, Dedupe, OnRepeat, Scope};
