//! The stream of a replicated log, kept by NATS JetStream. All that is NATS is here.
//!
//! `api` has the bytes of questions and answers, `follow` what is done with entries that come in
//! any order; both are pure. `connect` and `line` have the connections, `client` and `tail` what
//! goes over them.

mod api;
mod ask;
mod bucket;
mod client;
mod connect;
mod error;
mod fetch;
mod follow;
mod line;
mod objects;
mod tail;

pub use api::{Config, Info, Names, Peer, Peers, Refused};
pub use bucket::{Bucket, Value};
pub use client::{JetStream, Server};
pub use connect::Servers;
pub use error::Error;
pub use objects::Objects;

/// A result whose error is an [`Error`] unless it names another.
type Result<T, E = Error> = std::result::Result<T, E>;
