//! A log over a stream that others replicate, on streams in memory and simulated.

mod blobs;
mod collision;
mod command_errors;
mod common;
mod mem;
mod members;
mod seats;
mod stream_conformance;
mod takeover;
mod upgrade;
