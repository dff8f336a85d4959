//! Which server gets the load.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;

/// A TCP address or the path of a unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A TCP address.
    Tcp(SocketAddr),
    /// The path of a unix socket.
    Unix(PathBuf),
}

impl Target {
    /// Reads `host:port`, `:port` or `port` (both on 127.0.0.1), or
    /// `unix:PATH`.
    ///
    /// # Errors
    /// A sentence that says what is taken, or why the host is not known.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Target::Unix(PathBuf::from(path)));
        }
        if let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse::<u16>() {
            return Ok(Target::local(port));
        }
        let usage = "write HOST:PORT, :PORT, PORT or unix:PATH";
        let mut found = text
            .to_socket_addrs()
            .map_err(|error| format!("\"{text}\": {error}; {usage}"))?;
        found
            .next()
            .map(Target::Tcp)
            .ok_or_else(|| format!("\"{text}\" has no address; {usage}"))
    }

    /// A TCP address that only this machine reaches.
    pub fn local(port: u16) -> Self {
        Target::Tcp(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    /// The load stays on this machine.
    pub fn is_local(&self) -> bool {
        match self {
            Target::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Target::Unix(_) => true,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Tcp(address) => address.fmt(f),
            Target::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Target;

    #[test]
    fn only_loopback_and_unix_sockets_are_local() {
        for (text, local) in [
            ("127.0.0.1:80", true),
            ("127.9.9.9:80", true),
            ("[::1]:80", true),
            ("[::ffff:127.0.0.1]:80", true),
            (":80", true),
            ("80", true),
            ("unix:/run/q.sock", true),
            ("10.0.0.1:80", false),
            ("0.0.0.0:80", false),
            ("[::]:80", false),
            ("[::ffff:10.0.0.1]:80", false),
        ] {
            assert_eq!(Target::parse(text).unwrap().is_local(), local, "{text}");
        }
        for text in ["", "unix:", "1.2.3.4", "1.2.3.4:99999", "70000"] {
            assert!(Target::parse(text).is_err(), "{text}");
        }
    }
}
