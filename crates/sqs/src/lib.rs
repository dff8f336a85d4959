//! The protocol `sqs`: both protocols of Amazon SQS over HTTP, JSON 1.0 and
//! Query, for SDKs that have this server as their endpoint.
//!
//! A request is read into an [`Action`], checked, asked of the shards through
//! the client API, and answered in the words of the protocol it came in. Sockets,
//! TLS and limits are those of `quintet-web`. Source: the service's model of
//! 2012-11-05, and `docs/protocols/sqs.md` for what differs on purpose.

#![warn(clippy::cast_possible_truncation)]

mod ask;
mod batch;
mod digest;
mod fault;
mod form;
mod handle;
mod input;
mod listener;
mod message;
mod moves;
mod names;
mod once;
mod policy;
mod queue;
mod queues;
mod receive;
mod reply;
mod request;
mod send;
mod settle;
mod shown;
pub mod sign;
mod unreadable;
mod value;
mod whole;
mod xml;

pub use digest::of_body as md5_of_body;
pub use fault::{Fault, Shape};
pub use handle::Secrets;
pub use input::Action;
pub use listener::{FileSettings, Options, Sqs};
pub use request::{Head, Nowhere, ParsedRequest, WireFormat, read};
pub use shown::ListenerInfo;
pub use sign::Keys;
