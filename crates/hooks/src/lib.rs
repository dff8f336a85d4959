//! Lua hooks: functions of the operator's that are called for events of the
//! server and decide what becomes of them.
//!
//! A hook runs without any shard's lock. What it reads is recorded as guards,
//! what it asks for as effects, and both are submitted as one compound command
//! together with the command the event is about; if a guard no longer holds
//! the hook is run again. Replay never runs Lua. Nothing here knows of
//! sockets, the log or a protocol.

mod error;
mod event;
mod limits;
mod meter;
mod pattern;
mod sandbox;
mod strings;

pub use error::HookError;
pub use event::{Event, Events};
pub use limits::Limits;

#[cfg(test)]
mod sandbox_tests;
