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

mod across;
mod awaits;
mod carry;
mod claim;
mod codec;
mod cold;
mod decide;
mod engine;
mod fact;
pub mod format;
mod lease_waits;
mod pace;
mod permits;
mod referrers;
mod step;
mod store;
mod take_tokens;
mod waiters;

pub use across::{Across, ShardBest};
pub use carry::{Side, carry, carry_owed, put_with_others, watch_parents};
pub use codec::{FactError, FactKind, LargeBodies, read_message, write_message};
pub use cold::{Block, BlockAt, EntryFacts, LookupResult, Picked, Rewritten, Want, Written};
pub use decide::{NamedParents, Spill};
pub use engine::{CopiedOut, Engine, PurgedBlock, Space};
pub use fact::{AgingClock, Change, DedupeId, DedupeKind, Fact, Journal, Pause, ShardCounts};
