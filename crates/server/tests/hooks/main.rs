//! Lua hooks in the real binary, and `quintet hooks`.

#[path = "../common/mod.rs"]
mod common;

mod events;
mod tools;
