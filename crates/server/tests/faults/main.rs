//! The binary killed, without power, with calls that fail and a clock that is set.

#[path = "../common/mod.rs"]
mod common;

mod crash;
mod cron;
mod names;
mod preloaded;
