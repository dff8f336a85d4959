//! Any node of a cluster takes any client: a connection that comes to a node which does not own the
//! queues is *tunneled* to the one that does. To the owner it is a connection like others, so every
//! protocol, HTTP and the control socket work through it unchanged.
//!
//! [`line`] is what proxies and owners say to each other before a client's bytes flow; `tunnel`
//! holds the clients' side, `peer_connection` the owner's; [`tls`] protects peer connections. A
//! [`watch`](tokio::sync::watch) of [`Owners`], which somebody else keeps, tells who owns. Nothing
//! here knows of queues, logs or NATS.

#![warn(
    clippy::cast_possible_truncation,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm
)]

mod counts;
pub mod line;
mod peer_connection;
mod proxy;
mod secure;
mod shared;
mod socket;
pub mod tls;
mod tunnel;

pub use counts::Counts;
pub use proxy::{Proxy, ProxyListener};
pub use shared::{Client, DropGuard, Intake, Node, Settings, Stream};
pub use socket::Socket;
/// How a proxy learns the owner.
pub use tokio::sync::watch;
pub use tunnel::ask_node;

/// The owner of the queues, as far as this node knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Owners {
    /// Nobody, or nobody known.
    #[default]
    Nobody,
    /// Another node, at this address for peer connections.
    Other(Hint),
    /// This one: the threads that serve the queues accept from its proxy listeners.
    Us(Hint),
}

/// An owner, as its claim names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The epoch that began with it; the highest one is true.
    pub epoch: u64,
    /// The node's name.
    pub node: String,
    /// Where peer connections to it go, `HOST:PORT`.
    pub address: String,
}

impl Owners {
    /// The owner, if there is one.
    pub fn hint(&self) -> Option<&Hint> {
        match self {
            Self::Nobody => None,
            Self::Other(hint) | Self::Us(hint) => Some(hint),
        }
    }

    /// This node owns.
    pub fn is_us(&self) -> bool {
        matches!(self, Self::Us(_))
    }
}
