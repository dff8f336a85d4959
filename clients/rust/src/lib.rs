//! Tests alone: `tests/faktory.rs`.
