//! The engine beside the naive model, its facts, and every order of steps.

mod facts;
mod key_groups;
mod model;
mod shards;
