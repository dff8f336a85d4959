//! Opening listeners' sockets.

use std::io;

use anyhow::{Context as _, Result};

use crate::config::Address;
use crate::io::Bound;

/// Opens a listener's socket.
///
/// # Errors
/// The address is in use or not ours; says what to do.
pub(crate) fn bind(voice: &str, address: &Address) -> Result<Bound> {
    Bound::open(address).with_context(|| match address {
        Address::Tcp(at) if at.port() != 0 => format!(
            "cannot listen on {address} for {}: another address can be given with --listen \
             {}=HOST:PORT",
            voice, voice
        ),
        Address::Tcp(_) | Address::Unix(_) => format!("cannot listen on {address} for {}", voice),
    })
}

/// Only the server's own user may use the control socket.
pub(crate) fn restrict(path: &std::path::Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}
