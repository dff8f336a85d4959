//! Simulated world for tests.

pub mod transcript;
