//! Opening listeners' sockets, and saying where they are.

use std::io::{self, ErrorKind, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use anyhow::{Result, bail};
use quintet_config::{Address, Config, Listen, Served};
use quintet_edge::Tls;
use quintet_process::again;

/// Leaves out the default listeners whose ports other programs have, with a warning for each. The
/// data directory is locked before: an earlier server of this directory has closed its listeners
/// when it gives up the lock.
///
/// # Errors
/// Names each port: all are taken.
pub(crate) fn leave_out_taken(config: &mut Config) -> Result<()> {
    // Nodes of a cluster open the same listeners, as they bring clients to each other's.
    if config.cluster.is_on() {
        return Ok(());
    }
    let of_others = |listen: &Listen| match &listen.address {
        Address::Tcp(at) if listen.is_default && !again::will_hand(&at.to_string()) => {
            is_taken(*at).then_some(*at)
        }
        Address::Tcp(_) | Address::Unix(_) => None,
    };
    let (mut kept, mut taken) = (Vec::new(), Vec::new());
    for listen in &config.listen {
        match of_others(listen) {
            None => kept.push(listen.clone()),
            Some(at) => taken.push((listen.served.name(), at)),
        }
    }
    if kept.is_empty() && !taken.is_empty() {
        let all = taken
            .iter()
            .map(|(protocol, at)| format!("{protocol} {at}"));
        bail!(
            "the port of every default listener is in use: {}; --port PROTOCOL=PORT opens one \
             elsewhere",
            all.collect::<Vec<_>>().join(", ")
        );
    }
    config.listen = kept;
    for (protocol, at) in taken {
        let others = at.port().saturating_add(1)..=u16::MAX;
        let free = others
            .take(100)
            .find(|&port| !is_taken(SocketAddr::new(at.ip(), port)));
        let port = free.map_or("PORT".to_owned(), |port| port.to_string());
        tracing::warn!(
            "{protocol}: {at} is in use, so this listener is not open; --port {protocol}={port} \
             opens it on another port"
        );
    }
    Ok(())
}

fn is_taken(at: SocketAddr) -> bool {
    TcpListener::bind(at).is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
}

/// The console's address for a browser on this machine; `None`: no listener has it.
pub(crate) fn console(config: &Config, addresses: &[(&str, Address)], tls: &Tls) -> Option<String> {
    let is_http = |listen: &Listen| matches!(listen.served, Served::Http);
    let number = config.listen.iter().position(is_http)?;
    // The addresses are in the listeners' order.
    let (_, Address::Tcp(at)) = addresses.get(number)? else {
        return None;
    };
    let scheme = if tls.of(number).is_some() {
        "https"
    } else {
        "http"
    };
    let mut at = *at;
    match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => at.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => at.set_ip(Ipv6Addr::LOCALHOST.into()),
        IpAddr::V4(_) | IpAddr::V6(_) => {}
    }
    Some(format!("{scheme}://{at}/"))
}

/// Prints the lines that supervisors and tests wait for, and where a person goes on.
pub(crate) fn announce(addresses: &[(&str, Address)], console: Option<&str>, is_open: bool) {
    let mut lines = String::new();
    for (protocol, address) in addresses {
        lines += &format!("listening {protocol} {address}\n");
    }
    if let Some(console) = console {
        lines += &format!("console: {console}\n");
        if is_open {
            lines += "no users are configured: every account on this machine can use this server\n";
        }
    }
    print(&lines);
}

/// Prints one more line of that kind.
pub(crate) fn say(line: &str) {
    print(&format!("{line}\n"));
}

/// A server goes on if nobody reads its standard output any more.
fn print(lines: &str) {
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_all(lines.as_bytes()).and_then(|()| out.flush()) {
        tracing::warn!("cannot write to standard output: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quintet_config::{CommandLine, load};

    #[test]
    fn a_default_listener_whose_port_is_taken_is_left_out_and_a_named_one_stays() {
        let others = TcpListener::bind("127.0.0.1:0").expect("a port");
        let taken = Address::Tcp(others.local_addr().expect("its port"));
        let mut config = load(&CommandLine::default()).expect("the defaults");
        for listen in &mut config.listen {
            listen.address = Address::local(0);
        }
        let all = config.listen.len();
        config.listen[1].address = taken.clone();
        config.listen[2].address = taken.clone();
        config.listen[2].is_default = false;
        leave_out_taken(&mut config).expect("others are free");
        assert_eq!(config.listen.len(), all - 1);
        assert_eq!(config.listen[1].address, taken);
        assert!(!config.listen[1].is_default);

        for listen in &mut config.listen {
            (listen.address, listen.is_default) = (taken.clone(), true);
        }
        let error = leave_out_taken(&mut config).expect_err("none is free");
        let error = error.to_string();
        for listen in &config.listen {
            let named = format!("{} {taken}", listen.served.name());
            assert!(error.contains(&named), "{named}: {error}");
        }
    }
}
