//! The control socket, as the configuration knows it.

/// Its name among the protocols.
pub const NAME: &str = "admin";
/// An error, as earlier versions had listeners of this name.
pub(crate) const GONE: &str = "there is no protocol \"admin\" any more: the command line reaches \
    this server from elsewhere by a listener \"http\" with TLS (--server https://HOST:PORT)";
