//! Connections and commands on their way to the shards: I/O threads and what they serve, the
//! dispatcher of the client API, logins, limits of addresses and users, and hooks around commands.

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

mod auth;
mod clients;
mod control;
mod dispatcher;
mod dispatchers;
mod edge;
mod hooks;
mod http_counts;
mod io;
mod quotas;
mod tls;

pub use auth::{Auth, AuthCounts, HttpGate, Security};
pub use clients::{Client, Listing};
pub use control::{CONTROL, Control};
pub use dispatchers::Dispatchers;
pub use edge::{Edge, ForwardingByProtocol, Limits, Listening};
pub use hooks::Hooks;
pub use http_counts::HttpCounts;
pub use io::{Guests, IoThread, LOGINS_LOOK, Mailbox, Stream, ThreadCounts, Upload};
pub use quotas::Quotas;
pub use tls::{Tls, Watch};
