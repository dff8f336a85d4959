//! Where a listener listens.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

/// A TCP address or the path of a unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Address {
    /// Reads `host:port`, `:port` or `port` (both on 127.0.0.1), or
    /// `unix:PATH`.
    ///
    /// # Errors
    /// A sentence that says what is taken.
    pub fn parse(text: &str) -> Result<Self, String> {
        let usage =
            || format!("\"{text}\" is not an address; write HOST:PORT, :PORT, PORT or unix:PATH");
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(usage());
            }
            return Ok(Address::Unix(PathBuf::from(path)));
        }
        let port = text.strip_prefix(':').unwrap_or(text);
        if let Ok(port) = port.parse::<u16>() {
            return Ok(Address::local(port));
        }
        if !text.contains(':') {
            return Err(usage());
        }
        text.to_socket_addrs()
            .map_err(|error| format!("{}: {error}", usage()))?
            .next()
            .map(Address::Tcp)
            .ok_or_else(usage)
    }

    /// A TCP address that only this machine reaches.
    pub fn local(port: u16) -> Self {
        Address::Tcp(SocketAddr::from(([127, 0, 0, 1], port)))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn every_form_is_read_and_shown() {
        for (text, shown) in [
            ("127.0.0.1:80", "127.0.0.1:80"),
            (":80", "127.0.0.1:80"),
            ("0", "127.0.0.1:0"),
            ("[::1]:7", "[::1]:7"),
            ("unix:/run/q.sock", "unix:/run/q.sock"),
        ] {
            let address = Address::parse(text).map(|a| a.to_string());
            assert_eq!(address.as_deref(), Ok(shown));
        }
        for text in ["", "unix:", "localhost", "1.2.3.4:99999", "70000"] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }
}
