//! A message with all its fields, and the lines of the audit.

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

pub mod audit;
mod head;

pub use head::{Head, Standing, Text, told};

/// Messages of one `POST /queues/{queue}/records` at most.
pub const RECORDS_MAX: usize = 2048;
