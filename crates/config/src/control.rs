//! The control channel, as the configuration knows it.

/// Its name in the configuration.
pub const NAME: &str = "admin";
/// One line about it.
pub const ABOUT: &str =
    "The control channel of the command line, for clients with a certificate or a login.";
