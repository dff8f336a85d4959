//! A message with all its fields, the file of the audit, and errors of JSON in plain English.

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

pub mod audit;
mod head;
mod plain;

pub use head::{Head, Standing, Text, message_value};
pub use plain::plain;

/// Messages of one `POST /queues/{queue}/records` at most.
pub const RECORDS_MAX: usize = 2048;
