//! A simulated world for tests: a disk that loses things, chance from a seed, and suites that every
//! implementation of a contract must pass. Nothing depends on this but tests.

pub mod client_api;
pub mod cluster;
pub mod damage;
pub mod disk;
pub mod facts;
pub mod history;
mod intercepted;
pub mod log_tests;
pub mod model;
mod random;
pub mod shards;
pub mod transcript;
pub mod world;

pub use intercepted::Intercepted;
pub use random::{Random, seeds};
