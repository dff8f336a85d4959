//! Spans of what becomes of messages, for an OpenTelemetry collector.
//!
//! A message that was put with a `traceparent` whose trace is sampled has a span
//! of its put, one of each wait, and one of each lease. What is decided is
//! followed by [`Follower`], from the facts that the log gets; what ended goes
//! through a queue of bounded length ([`Spans`]) to the thread that sends it
//! ([`Exporter`]). Nobody waits for that thread.

mod encode;
mod export;
mod follow;
mod span;

pub use export::{Collector, Exporter};
pub use follow::{Follower, Source};
pub use span::{Counts, Kind, Span, Spans};
