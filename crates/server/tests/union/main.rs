//! One queue, every voice: what is put through one is taken through any other,
//! on the real binary, over sockets.

#[path = "../common/mod.rs"]
mod common;
mod pairs;
mod rules;
mod scripts;
mod several;
mod voices;
