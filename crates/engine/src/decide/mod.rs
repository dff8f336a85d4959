//! Deciding: each command looks at the state, refuses or states facts. A
//! error is always found before the first fact, and so is that something has
//! to be read from a run first ([`Stop`]).
//!
//! Messages that may be in a run are looked for in a few ways: by id (`found`,
//! `look_up`), along a state index (`state_index`), as the best for a consumer (`best`,
//! `is_here`, `companions_are_here`), as what makes way for a put
//! (`room_is_here`). Each of them answers what is there or [`Cold`], which
//! nothing else can make, and has asked for the rest then. A command calls them
//! before its first fact: what acts (`settle_one`, `transfer`, `hand`,
//! `store_put` ...) cannot answer `Cold`, and the one place that hands `Cold` on
//! to the requester, `decide_or_ask`, stops the process if a fact was recorded.

mod admin;
mod afar;
mod after;
mod aging;
mod batch;
mod bring;
mod bulk_op;
mod by_id;
mod cancel;
mod choose;
mod cold;
mod grouped;
mod hold;
mod keep;
mod lease;
mod make;
mod named;
mod one_key;
mod progress;
mod put;
mod refer;
mod result;
mod room;
mod serve;
mod settle;
mod show;
mod take;
mod timers;
mod track;
mod transaction;
mod watch;

pub use afar::NamedParents;
pub(crate) use batch::put_of;
pub(crate) use cold::{Cold, Reading, Stop, durable};
pub use keep::Spill;
pub(crate) use timers::COLD_WAIT_MS;

/// Held messages that learn of a parent's end or go on in one step of a command, and of a tick.
pub(crate) const TOLD_PER_COMMAND: usize = 64;
pub(crate) const TOLD_PER_TICK: usize = 512;
