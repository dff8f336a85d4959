//! HTTP: RQ's API at its old addresses and in its old forms, plain pages, and
//! the built-in scripts that speak it to other servers.
//!
//! A few threads run event loops; what waits for the shards or the disk runs
//! in others. Bodies pass through in pieces. What RQ means is in
//! `quintet-scripts`; here are only addresses, forms and answers
//! (`docs/voices/http.md`).

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

mod api;
mod app;
mod authorization;
pub mod builtin;
mod bytes_in_json;
mod clients;
mod console;
mod cookie;
mod download;
mod elsewhere;
mod events;
mod files;
mod flash;
mod form;
mod gate;
mod guard;
mod heard;
mod held;
mod metrics;
mod paced;
mod pages;
mod paths;
mod payer;
mod places;
mod range;
mod replies;
mod reply;
mod routes;
mod secure;
mod serve;
mod sessions;
mod settings;
mod site;
mod streams;
mod takers;
mod undo;
mod upload;
mod visitor;

pub use api::{Batch, Cron, NewBatch, batch_line, batches_after, list_batches, track_line};
pub use bytes_in_json::{base64_unless_text, lossy};
pub use clients::{Client, ClientNow, Clients};
pub use console::shown_bytes;
pub use elsewhere::{Called, CalledAs, Elsewhere};
pub use form::{Whole, whole};
pub use gate::{Answer, Counted, Full, Gate, Known, Pace, Shown, Tell, pace};
pub use guard::{Asked, Denied, Guard, Logins, User, is_one_of, networks, users, words};
pub use heard::heard;
pub use paths::relative_root;
pub use payer::{Held, Payer};
pub use places::{Apart, Seat, Waits};
pub use replies::{Errand, Replied, TellReply};
pub use reply::Problem;
pub use serve::{Answering, Connected, Linked, Links, Serve, Socket, Web};
pub use settings::{Limits, Settings};
pub use site::Site;
pub use streams::StreamCounts;
pub use undo::{Losses, Undo};
