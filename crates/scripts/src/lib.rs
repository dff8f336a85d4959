//! Queue scripts: the RQ protocol, without its sockets.
//!
//! A queue with a script is an ordinary queue whose consumer is built in: for
//! each message a process runs, which says over a pipe what becomes of it.
//! [`Rq`] has all that RQ's HTTP API, socket and command line ask for.
//! For users: `docs/scripts.md`.
//!
//! Knows of the engine only what a [`quintet_client::ClientApi`] shows.

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

mod acknowledged;
mod admin;
mod attach;
mod blobs;
mod child;
mod cleanup;
mod config;
mod consumer;
mod copy;
mod errack;
mod fault;
mod files;
mod group;
mod guest;
mod ids;
mod keeper;
mod kept;
pub mod launch;
mod life;
mod messages;
mod new;
mod operator;
mod options;
mod overview;
mod paths;
mod pipe;
mod queue;
mod record;
mod router;
pub mod rules;
mod run;
mod scandir;
mod schedule;
mod script;
mod service;
pub mod socket;
mod timers;
mod unread;
mod verdict;
mod yaml;

pub use admin::{Admin, AdminOp};
pub use attach::Attached;
pub use blobs::Blobs;
pub use config::{QueueConfig, ScheduleEntry, check_queue_name};
pub use fault::Fault;
pub use ids::last_part;
pub use kept::each_attachment;
pub use messages::SEARCH_BYTES;
pub use new::{Method, NewMessage};
pub use options::{Builtin, Limits, Options};
pub use overview::Scripted;
pub use paths::check_file_name;
pub use record::STATES;
pub use router::ROUTER;
pub use rules::RulesState;
pub use service::{QueueInfo, Rq, Sizes};
pub use unread::{Unread, unread};
