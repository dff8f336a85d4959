//! Opening listeners' sockets.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};

use anyhow::{Context as _, Result};

use crate::again;
use crate::config::{Address, Config};
use crate::io::Bound;

/// Leaves out the default listeners whose ports other programs have, with a warning for each. If
/// all are taken all stay, so that opening the first one fails.
pub(crate) fn leave_out_taken(config: &mut Config) {
    // Nodes of a cluster open the same listeners, as they bring clients to each other's.
    if config.cluster.is_on() {
        return;
    }
    let port = |address: &Address| match address {
        Address::Tcp(at) if !again::will_hand(&address.to_string()) && is_taken(*at) => Some(*at),
        Address::Tcp(_) | Address::Unix(_) => None,
    };
    let (mut kept, mut taken) = (Vec::new(), Vec::new());
    for listen in &config.listen {
        match port(&listen.address).filter(|_| listen.is_default) {
            None => kept.push(listen.clone()),
            Some(at) => taken.push((listen.served.name(), at)),
        }
    }
    if kept.is_empty() {
        return;
    }
    config.listen = kept;
    for (protocol, at) in taken {
        let others = at.port().saturating_add(1)..=u16::MAX;
        let free = others
            .take(100)
            .find(|&port| !is_taken(SocketAddr::new(at.ip(), port)));
        let port = free.map_or("PORT".to_owned(), |port| port.to_string());
        tracing::warn!(
            "{protocol}: {at} is in use, not opened; --port {protocol}={port} opens it elsewhere"
        );
    }
}

fn is_taken(at: SocketAddr) -> bool {
    TcpListener::bind(at).is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
}

/// Opens a listener's socket.
///
/// # Errors
/// The address is in use or not ours; says what to do.
pub(crate) fn bind(voice: &str, address: &Address) -> Result<Bound> {
    Bound::open(address).with_context(|| match address {
        Address::Tcp(at) if at.port() != 0 => format!(
            "cannot listen on {address} for {voice}: choose another port where this listener is \
             named (--port, --listen or [[listen]]); --port {voice}=PORT moves a default listener"
        ),
        Address::Tcp(_) | Address::Unix(_) => format!("cannot listen on {address} for {voice}"),
    })
}

/// Only the server's own user may use the control socket.
pub(crate) fn restrict(path: &std::path::Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Given, load};

    #[test]
    fn a_default_listener_whose_port_is_taken_is_left_out_and_a_named_one_stays() {
        let others = TcpListener::bind("127.0.0.1:0").expect("a port");
        let taken = Address::Tcp(others.local_addr().expect("its port"));
        let mut config = load(&Given::default()).expect("the defaults");
        for listen in &mut config.listen {
            listen.address = Address::local(0);
        }
        let all = config.listen.len();
        config.listen[1].address = taken.clone();
        config.listen[2].address = taken.clone();
        config.listen[2].is_default = false;
        leave_out_taken(&mut config);
        assert_eq!(config.listen.len(), all - 1);
        assert_eq!(config.listen[1].address, taken);
        assert!(!config.listen[1].is_default);

        // Then opening the first one says why not.
        for listen in &mut config.listen {
            (listen.address, listen.is_default) = (taken.clone(), true);
        }
        leave_out_taken(&mut config);
        assert_eq!(config.listen.len(), all - 1);
        assert!(bind("memcache", &config.listen[0].address).is_err());
    }
}
