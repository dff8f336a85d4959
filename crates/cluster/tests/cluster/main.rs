//! A log over a stream that others replicate, on streams in memory and simulated.

mod blobs;
mod collision;
mod common;
mod members;
mod refusals;
mod seats;
mod stream_conformance;
mod takeover;
mod upgrade;
