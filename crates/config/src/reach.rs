//! The options that `http` and `sqs` listeners share: who may come, and by which names.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use quintet_wire::Options;

use super::parse_duration_ms;

/// Clients that can reach a listener.
pub struct Reach {
    /// Empty: all.
    pub allowed_ips: Vec<IpNet>,
    pub trusted_proxies: Vec<IpNet>,
    pub hosts: Vec<String>,
}

impl Reach {
    pub(crate) fn of(options: &Options) -> Result<Self, String> {
        Ok(Self {
            allowed_ips: networks(options.text("allowed_ips"))?,
            trusted_proxies: networks(options.text("trusted_proxies"))?,
            hosts: words(options.text("hosts")).map(str::to_owned).collect(),
        })
    }
}

/// Reads `name:password` pairs separated by white space.
///
/// # Errors
/// A sentence that does not repeat the passwords.
pub(crate) fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let pair = |pair: &str| match pair.split_once(':') {
        Some((name, password)) if !name.is_empty() && !password.is_empty() => {
            Ok((name.to_owned(), password.to_owned()))
        }
        _ => Err("users takes name:password pairs separated by spaces".to_owned()),
    };
    text.split_whitespace().map(pair).collect()
}

/// Reads addresses and networks (`10.0.0.0/8`) separated by white space or
/// commas.
///
/// # Errors
/// A sentence that names the one that is none.
fn networks(text: &str) -> Result<Vec<IpNet>, String> {
    words(text)
        .map(|word| {
            let address = word.parse::<IpAddr>().map(IpNet::from);
            address
                .or_else(|_| word.parse::<IpNet>())
                .map_err(|_| format!("allowed_ips takes addresses and networks, not \"{word}\""))
        })
        .collect()
}

/// An option with a time, `most` ms at most.
pub(crate) fn time(options: &Options, name: &str, most: u64) -> Result<Duration, String> {
    let ms = parse_duration_ms(options.text(name)).map_err(|why| format!("{name} {why}"))?;
    match ms <= most {
        true => Ok(Duration::from_millis(ms)),
        false => Err(format!("{name} takes {} s at most", most / 1000)),
    }
}

/// Words separated by white space or commas.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_whitespace() || c == ',')
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{networks, pairs};

    #[test]
    fn pairs_and_networks_are_read_and_others_refused() {
        let read = pairs("anna:se:cret  bert:geheim").expect("pairs");
        let pair = |name: &str, password: &str| (name.to_owned(), password.to_owned());
        assert_eq!(read, [pair("anna", "se:cret"), pair("bert", "geheim")]);
        assert!(pairs("anna").is_err() && pairs("anna:").is_err() && pairs(":x").is_err());
        let read = networks("10.0.0.0/8, 192.168.1.7 ::1").expect("networks");
        assert_eq!(read.len(), 3);
        assert!(networks("10.0.0.0/33").is_err() && networks("home").is_err());
    }
}
