//! Which hosts a built-in script may ask: an address comes with a message,
//! so from anybody who may put one, and the server can reach hosts that its
//! clients cannot.

use std::net::IpAddr;

/// The hosts that may be asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hosts(Vec<Host>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Host {
    /// `*`: every host.
    All,
    /// `*.example.org`: with the dot.
    Below(String, Option<u16>),
    /// A name or an address, in lower case and without brackets.
    One(String, Option<u16>),
}

impl Hosts {
    /// Reads names, addresses and `*.NAME`, each perhaps with `:PORT`, or `*`,
    /// separated by white space or commas; empty: none.
    ///
    /// # Errors
    /// A sentence about the one that is none of these.
    pub fn read(text: &str) -> Result<Self, String> {
        let words = text.split([' ', '\t', '\n', ',']);
        let hosts = words.filter(|word| !word.is_empty()).map(|word| {
            if word == "*" {
                return Ok(Host::All);
            }
            let wrong = || format!("takes HOST, HOST:PORT, *.NAME or *, not \"{word}\"");
            let (name, port) = split_port(word).ok_or_else(wrong)?;
            match name.strip_prefix('*') {
                Some(rest) if rest.len() > 1 && rest.starts_with('.') && is_name(&rest[1..]) => {
                    Ok(Host::Below(rest.to_owned(), port))
                }
                None if is_name(&name) || name.parse::<IpAddr>().is_ok() => {
                    Ok(Host::One(name, port))
                }
                _ => Err(wrong()),
            }
        });
        hosts.collect::<Result<_, _>>().map(Self)
    }

    /// True if this address may be asked.
    pub(super) fn allow(&self, url: &str) -> bool {
        let Some((host, port)) = target(url) else {
            return false;
        };
        let fits = |wanted: &Option<u16>| wanted.is_none_or(|wanted| wanted == port);
        self.0.iter().any(|known| match known {
            Host::All => true,
            // Numbers have no names below them.
            Host::Below(end, wanted) => {
                let below = host.len() > end.len() && host.ends_with(end.as_str());
                below && host.parse::<IpAddr>().is_err() && fits(wanted)
            }
            Host::One(name, wanted) => *name == host && fits(wanted),
        })
    }
}

/// The host an address leads to, as the client reads it, in lower case, and the
/// port.
pub(super) fn target(url: &str) -> Option<(String, u16)> {
    let uri: ureq::http::Uri = url.parse().ok()?;
    let default = match uri.scheme_str()? {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    (!host.is_empty()).then(|| (host, uri.port_u16().unwrap_or(default)))
}

/// `HOST`, `HOST:PORT`, `[ADDRESS]:PORT` or a bare IPv6 address.
fn split_port(word: &str) -> Option<(String, Option<u16>)> {
    let lower = word.to_ascii_lowercase();
    if let Some(rest) = lower.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let port = match port.strip_prefix(':') {
            Some(port) => Some(port.parse().ok()?),
            None if port.is_empty() => None,
            None => return None,
        };
        return Some((address.to_owned(), port));
    }
    if lower.parse::<IpAddr>().is_ok() {
        return Some((lower, None));
    }
    match lower.split_once(':') {
        Some((name, port)) => Some((name.to_owned(), Some(port.parse().ok()?))),
        None => Some((lower, None)),
    }
}

fn is_name(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text.bytes().all(legal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_hosts_are_allowed() {
        let none = Hosts::read("").expect("read");
        let all = Hosts::read("*").expect("read");
        let some = Hosts::read("Host.example, *.in.example:8080 10.0.0.7 [::1]:80").expect("read");
        for (url, allowed) in [
            ("http://host.example/q/x", true),
            ("https://HOST.example.:99/", true),
            ("http://ann:pw@host.example/", true),
            // What stands before the @ is a login, and no host.
            ("http://host.example@evil.example/", false),
            ("http://evil.example/?host.example", false),
            ("http://a.in.example:8080/", true),
            ("http://a.in.example/", false),
            ("http://in.example:8080/", false),
            ("http://evilin.example:8080/", false),
            ("http://10.0.0.7/", true),
            ("http://10.0.0.70/", false),
            ("http://[::1]/", true),
            ("http://[::1]:81/", false),
            ("http://127.0.0.1/", false),
            ("ftp://host.example/", false),
            ("host.example", false),
            ("", false),
        ] {
            assert_eq!(some.allow(url), allowed, "{url}");
            assert!(!none.allow(url), "{url}");
            assert_eq!(all.allow(url), target(url).is_some(), "{url}");
        }
    }

    #[test]
    fn an_invalid_host_is_named() {
        for wrong in [
            "a:b", "*x", "**", "*.", "http://a", "a/b", "[::1", "a:99999", "*.a*",
        ] {
            let message = Hosts::read(wrong).expect_err(wrong);
            assert!(message.contains(wrong), "{message}");
        }
    }
}
