//! Numbers, histories, spans and the audit of a running server, the events of followed queues and
//! of the log, webhooks and schedules: all of it works on the shards and the client API, and knows neither sockets nor
//! nodes.

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

pub mod audit;
mod events;
pub mod history;
pub mod metrics;
pub mod schedules;
mod spans;
pub mod stuck;
mod tails;
pub mod webhooks;

pub use events::EventLog;
pub use spans::Tracing;
pub use tails::Tails;
