//! The site of an HTTP listener: RQ's addresses, the console, `/api/v1`, health and metrics.

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

mod metrics;
mod rights;
mod site;

pub use site::Site;
