//! The log: what a Quintet server must remember, in order, as frames of opaque bytes.
//!
//! [`Log`] is the contract. [`LocalLog`] keeps segments in a directory (`docs/log-format.md`
//! describes every byte). Nothing here knows of messages, queues, clocks or sockets: time and
//! storage are arguments.
//!
//! Layers, from the bottom: [`storage`](Storage), `frame`, `segment`, `scan` (reading frames from
//! a file), `local` (appending), `recovery` (opening), `spares`, and beside them `check`, `repair`
//! and `backup`. [`run`] is apart from the log: files of what left memory, in the same directory.

#![warn(
    clippy::cast_possible_truncation,
    clippy::host_endian_bytes,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm
)]

mod backup;
mod check;
mod error;
mod extent;
mod failure;
mod files;
mod frame;
mod frames;
mod head;
mod local;
mod lock;
mod narrow;
mod recovery;
mod repair;
pub mod run;
mod scan;
mod segment;
mod spares;
mod storage;
mod survey;
mod traits;
mod types;

pub use backup::{BackupSummary, backup};
pub use check::{CheckSummary, check};
pub use error::LogError;
pub use frame::{FRAME_HEADER_BYTES, FrameBuf, FrameKind, FrameView, PAYLOAD_BYTES_MAX};
pub use local::{LocalLog, LocalStore, Options};
pub use lock::DirLock;
pub use recovery::{Cut, Recovery};
pub use repair::{RepairSummary, repair};
pub use spares::{SpareState, Spares};
pub use storage::{Disk, Storage, StorageFile, make_dir, replace_file, sync_name};
pub use survey::{Finding, LostRange};
pub use traits::{
    BodyReader, Log, LogStore, ReadBodies, Replay, Retiring, Shared, SyncPoint, SyncWork,
};
pub use types::{Epoch, Placed, Position, ReplayFrame, SegmentInfo, SegmentNumber, Stamp};

/// A result whose error is a [`LogError`] unless it names another.
type Result<T, E = LogError> = std::result::Result<T, E>;
