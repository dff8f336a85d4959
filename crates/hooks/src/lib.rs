//! Lua hooks: functions of the operator's that are called for events of the
//! server and decide what becomes of them.
//!
//! A hook runs without any shard's lock. What it reads is recorded as guards,
//! what it asks for as effects, and both are submitted as one transaction command
//! together with the command the event is about; if a guard no longer holds
//! the hook is run again. Replay never runs Lua. Nothing here knows of
//! sockets, the log or a protocol.

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

mod api;
mod error;
mod fields;
mod host;
mod load;
mod meter;
mod occasions;
mod pattern;
mod program;
mod puts;
mod register;
mod repeats;
mod sandbox;
mod shared;
mod state;
mod step;
mod strings;
mod subject;
mod submit;
mod takes;
mod verdict;
mod waiting;

pub use error::HookError;
pub use host::{Host, Level, Who};
pub use occasions::HookReply;
pub use program::Program;
pub use quintet_policy::{Cron, Event, Events, Limits};
pub use shared::{Counters, EventStats, Metrics, Shared};
pub use state::HookState;
pub use submit::Decided;

/// The parts with which `quintet-trial` runs hooks and their tests without a server.
pub mod parts {
    pub use crate::fields::{name, put_from, span, table_of};
    pub use crate::load::without_preamble;
    pub use crate::meter::Meter;
    pub use crate::sandbox::open as sandbox;
    pub use crate::waiting::lease_for;
}

#[cfg(test)]
mod sandbox_tests;
