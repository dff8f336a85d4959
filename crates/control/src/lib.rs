//! The control channel: requests and replies as lines of JSON.
//!
//! What the commands that talk to a running server (`quintet put`, `take`,
//! `browse`, `purge` and so on) speak with a running server over the unix socket in its data directory. Not a public
//! protocol: client and server are the same binary, and it may change with
//! every version.
//!
//! A request is one line, `{"put": {...}, "bytes": n}` and the like, followed
//! by `n` bytes of body if it says so. A reply is one line; where it lists
//! messages with `bytes`, their bodies follow in that order.

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

pub mod audit;
mod head;
mod reply;
mod request;
mod session;

pub use head::{Head, Standing, Text, told};
pub use session::LINE_MAX;

use quintet_config::control;
use quintet_wire::{Listener, Options, Protocol, Session};

/// The control channel, as the server sees protocols. Not among
/// [`quintet_wire::PROTOCOLS`]: over TCP it is served where a listener asks for
/// it, to clients with a certificate or a login.
pub const PROTOCOL: Protocol = Protocol {
    name: control::NAME,
    port: 0,
    about: control::ABOUT,
    options: &[],
    tally_names: &[],
    listener: open,
};

struct Admin;

fn open(_options: &Options) -> Result<Box<dyn Listener>, String> {
    Ok(Box::new(Admin))
}

impl Listener for Admin {
    fn open(&self) -> Box<dyn Session> {
        Box::new(session::AdminSession::default())
    }
}
