//! TLS 1.2 and 1.3, for listeners and clients: what files say ([`Settings`], [`Acceptor`]), who a
//! client is by its certificate ([`Identity`]), and a connection that somebody else moves the bytes
//! of ([`Channel`]). The protocol is rustls's, with ring.
//!
//! Nothing here knows of queues, protocols or event loops.

#![warn(
    clippy::cast_possible_truncation,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm
)]

mod acceptor;
mod channel;
mod client;
mod error;
mod files;
mod identity;
mod pending;
mod secure;
mod self_signed;

use std::sync::Arc;

pub use acceptor::{Acceptor, Settings, Source};
pub use channel::{Channel, Read, Scratch, Side};
pub use client::{ClientFiles, client_config, server_name};
pub use error::{Error, Failure, Reason};
pub use files::{certificates, private_key, roots};
pub use identity::Identity;
/// Types of configurations and names.
pub use rustls;
/// A server's and a client's side of a [`Channel`].
pub use rustls::{client::UnbufferedClientConnection, server::UnbufferedServerConnection};
pub use secure::{Opened, Secure, Shared, identity};
pub use self_signed::{CERTIFICATE, KEY};

/// A server's side of a connection.
pub type ServerChannel = Channel<UnbufferedServerConnection>;
/// A client's side of a connection.
pub type ClientChannel = Channel<UnbufferedClientConnection>;

/// The first byte of a connection that begins as TLS does: a record of a handshake (RFC 8446,
/// section 5.1).
pub const HANDSHAKE: u8 = 0x16;

/// Named, as another crate of the program may bring another one.
fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
