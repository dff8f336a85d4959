//! Deciding: each command looks at the state, refuses or states facts. A
//! refusal is always found before the first fact.

mod admin;
mod choose;
mod cold;
mod compound;
mod keep;
mod put;
mod room;
mod settle;
mod show;
mod take;
mod timers;

pub(crate) use cold::Parked;
pub use keep::Spill;
pub(crate) use timers::COLD_WAIT_MS;
