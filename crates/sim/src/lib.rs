//! Simulated world for tests.
