//! Values that the configuration reads, and the host and hooks obey.
//!
//! They stand apart from those who obey them, so that a change of a decision in the engine does
//! not build the configuration again.

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

mod cron;
mod event;
mod host;
mod limits;
mod schedule;

pub use cron::{Cron, MOMENT_MAX, iso};
pub use event::{Event, Events};
pub use host::{Sharing, SyncPolicy, smallest};
pub use limits::Limits;
pub use schedule::{
    EVERY_MS_MAX, EVERY_MS_MIN, MOMENTS_MAX, Missed, Overlap, Recurrence, Schedule, Timing,
};
