//! What an HTTP listener serves: RQ's addresses, the console, `/api/v1`, and what others ask a
//! server about its health.

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

mod metrics;
mod rights;
mod site;

pub use site::Site;
