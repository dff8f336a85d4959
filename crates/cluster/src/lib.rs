//! A log that several machines can follow: frames as entries of a stream that somebody else keeps
//! and replicates, with one owner at a time.
//!
//! [`StreamLog`] is a [`Log`](quintet_log::Log) over any [`Stream`]; [`StreamStore`] opens one.
//! Every byte of an entry is described in `docs/cluster-format.md`. Nothing here knows of messages,
//! queues or sockets.
//!
//! Layers, from the bottom: [`entry`] (the codec), `reign` (claims, heartbeats and handoffs),
//! [`reader`] (what is believed of a stream), `window` and `resolve` (what was sent and not
//! acknowledged), `streamlog`, `copy` and `bid` (what was read, and claiming behind it), `open`.
//! [`Ownership`] decides who should own, and [`Member`] does what it says. Time is an argument up
//! to [`World`], which is what waits.

#![warn(
    clippy::host_endian_bytes,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used
)]

mod appender;
mod bid;
mod blobs;
mod copy;
mod doubts;
pub mod entry;
mod inbox;
mod member;
mod open;
mod ownership;
pub mod reader;
#[cfg(test)]
mod reader_tests;
mod recent;
mod reign;
mod resolve;
mod status;
mod stream;
mod streamlog;
mod window;
mod world;

pub use blobs::{Blobs, CachedRuns};
pub use member::{Duty, Member, Membership, Owned};
pub use open::{Fences, StreamStore};
pub use ownership::{Action, Claimed, Event, Ownership, Successor, Timing};
pub use reign::{Beginning, Claim, Reign};
pub use status::{Role, Status, Tally};
pub use stream::{Answer, Distrusted, Ends, EntryLookup, ReplyFn, Seq, Stream, Tail, TailEvent};
pub use streamlog::{Acks, StreamLog};
pub use window::Limits;
pub use world::{Moment, Threads, Ticks, World};

/// A result whose error is a [`quintet_log::LogError`] unless it names another.
type Result<T, E = quintet_log::LogError> = std::result::Result<T, E>;

/// Which cluster: chosen at random when it is made, and part of every entry's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClusterId(pub u64);

/// A writer: chosen at random each time a process begins to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Writer(pub u64);

/// Entries that may be sent and not acknowledged, at most. What an owner has sent when it is
/// deposed can be stored up to so many places behind what it knows of.
pub const WINDOW_MAX: usize = 64;

/// Places behind a claim that a new owner fills before it appends anything else: more than what
/// older owners may still have on its way.
pub const PADDING: u64 = WINDOW_MAX as u64 + 1;
