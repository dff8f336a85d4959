//! Checks of a request: addresses, host names, origins and logins. All of them run before a byte of
//! a body is read.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN, REFERER};
use hyper::{HeaderMap, Method, Uri};
use ipnet::IpNet;

use crate::authorization::Authorization;
use crate::gate::{Answer, Gate, LoginCredentials};
use crate::reply::channel;
use crate::requester::Requester;

/// A name and its password.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// Without a colon.
    pub name: String,
    /// Any text.
    pub password: String,
}

/// Not for logs: the password stays out.
impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "User({})", self.name)
    }
}

/// Somebody else who knows who may log in, asked first: with the name and the
/// password, both empty if the client gave none. `None`: it does not know.
/// Called for every request, so it has to be quick.
#[derive(Clone)]
pub struct Logins(pub Arc<LoginCheck>);

/// See [`Logins`].
pub type LoginCheck = dyn Fn(&str, &[u8]) -> Option<bool> + Send + Sync;

/// The rules of a listener.
#[derive(Clone, Default)]
pub struct Guard {
    /// Nobody: no login is requested.
    pub users: Vec<User>,
    /// Asked before them.
    pub logins: Option<Logins>,
    /// Asked instead of both, if it knows users.
    pub gate: Option<Arc<dyn Gate>>,
    /// Empty: any address.
    pub allowed_ips: Vec<IpNet>,
    /// Names this server is called by, beside addresses, `localhost` and the
    /// machine's own; `*`: any.
    pub hosts: Vec<String>,
    /// Names of one label are this server too, as container networks call it: no page of the
    /// world has one.
    pub short_hosts: bool,
}

/// Why a request is turned away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denied {
    /// Its address is not among `allowed_ips`.
    Address,
    /// It names a host that is not this server (DNS rebinding).
    Host,
    /// A page of another site makes a browser ask (cross-site request
    /// forgery).
    Origin,
    /// No login, or a wrong one.
    Login,
    /// Its login was not looked at.
    NotNow(&'static str),
}

impl Denied {
    /// The reason, for people.
    pub fn text(self) -> &'static str {
        match self {
            Self::Address => "your address is not in allowed_ips of this listener",
            Self::Host => "this server has another name; hosts = \"NAME\" in its settings adds one",
            Self::Origin => "a page of another site may not do this",
            Self::Login => "a login is needed",
            Self::NotNow(why) => why,
        }
    }
}

fn shown(supplied: &Authorization) -> LoginCredentials<'_> {
    match supplied {
        Authorization::Nothing => LoginCredentials::Nothing,
        Authorization::Basic(name, password) => LoginCredentials::Basic(name, password),
        Authorization::Bearer(token) => LoginCredentials::Bearer(token),
    }
}

/// Longest name of a host with its port, bytes: DNS has none over 253.
const HOST_BYTES_MAX: usize = 260;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

impl Guard {
    /// Looks at a request; `peer` is `None` for a unix socket.
    ///
    /// # Errors
    /// It is turned away.
    pub fn check(
        &self,
        peer: Option<IpAddr>,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(), Denied> {
        if !self.address_allowed(peer) {
            return Err(Denied::Address);
        }
        // An absolute request target names the host and wins over the header.
        let host = match uri.authority() {
            Some(authority) => Some(authority.as_str()),
            None => text(headers, &HOST),
        };
        if host.is_some_and(|host| !self.host_known(host)) {
            return Err(Denied::Host);
        }
        if !method.is_safe() && cross_site(host, headers) {
            return Err(Denied::Origin);
        }
        Ok(())
    }

    /// Logs the client in, by the server's users, or by the listener's own logins. `certified` is
    /// the common name of a certificate that was checked; a login says more.
    pub async fn log_in(
        &self,
        peer: Option<IpAddr>,
        headers: &HeaderMap,
        certified: Option<&str>,
    ) -> Result<Requester, Denied> {
        let Some(gate) = self.gate.as_ref().filter(|gate| gate.is_used()) else {
            return match self.logged_in(headers) {
                true => Ok(Requester::default()),
                false => Err(Denied::Login),
            };
        };
        let (sender, receiver) = channel();
        let supplied = Authorization::read(text(headers, &AUTHORIZATION));
        let shown = match (shown(&supplied), certified) {
            (LoginCredentials::Nothing, Some(name)) => LoginCredentials::Certificate(name),
            (shown, _) => shown,
        };
        gate.log_in(peer, shown, sender);
        match receiver.await {
            Ok(Answer::In(principal, proof)) => Ok(Requester {
                known: Some((principal, Arc::clone(gate))),
                proof,
                ..Requester::default()
            }),
            Ok(Answer::No) => Err(Denied::Login),
            Ok(Answer::NotNow(why)) => Err(Denied::NotNow(why)),
            Err(_) => Err(Denied::NotNow("the server is stopping")),
        }
    }

    fn address_allowed(&self, peer: Option<IpAddr>) -> bool {
        let Some(peer) = peer else { return true };
        let peer = peer.to_canonical();
        self.allowed_ips.is_empty() || self.allowed_ips.iter().any(|net| net.contains(&peer))
    }

    /// A page of another site can point its own name at this machine, but not
    /// an address or a name it does not own.
    fn host_known(&self, host: &str) -> bool {
        // Replies have it many times: in each URL of a list.
        if host.len() > HOST_BYTES_MAX {
            return false;
        }
        if self.hosts.iter().any(|known| known == "*") {
            return true;
        }
        let Some(name) = host_name(host) else {
            return false;
        };
        let own = rustix::system::uname();
        let own = own.nodename().to_str().unwrap_or_default();
        let same = |known: &str| known.eq_ignore_ascii_case(name);
        name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
            || same("localhost")
            || name.to_ascii_lowercase().ends_with(".localhost")
            || (!own.is_empty() && same(own))
            || (self.short_hosts && is_label(name))
            || self.hosts.iter().any(|known| same(known))
    }

    fn logged_in(&self, headers: &HeaderMap) -> bool {
        if self.users.is_empty() && self.logins.is_none() {
            return true;
        }
        let (name, password) = match Authorization::read(text(headers, &AUTHORIZATION)) {
            Authorization::Basic(name, password) => (name, password),
            Authorization::Nothing | Authorization::Bearer(_) => Default::default(),
        };
        if let Some(Logins(logins)) = &self.logins
            && let Some(may) = logins(&String::from_utf8_lossy(&name), &password)
        {
            return may;
        }
        if self.users.is_empty() {
            return true;
        }
        // Both empty: no login.
        !(name.is_empty() && password.is_empty()) && is_one_of(&self.users, &name, &password)
    }
}

/// True if one of `users` has this name and password.
pub fn is_one_of(users: &[User], name: &[u8], password: &[u8]) -> bool {
    // Every user is compared, so the time shows nothing.
    users.iter().fold(false, |found, user| {
        let name = same_bytes(name, user.name.as_bytes());
        found | (name & same_bytes(password, user.password.as_bytes()))
    })
}

/// Compares in a time that depends on the length of `supplied` alone.
fn same_bytes(supplied: &[u8], kept: &[u8]) -> bool {
    let mut differs = u8::from(supplied.len() != kept.len());
    for (at, byte) in supplied.iter().enumerate() {
        let other = kept.get(at).copied().unwrap_or_default();
        differs |= std::hint::black_box(byte ^ other);
    }
    std::hint::black_box(differs) == 0
}

/// True if a browser says that a page of another origin made this request.
/// Other clients send none of these headers.
fn cross_site(host: Option<&str>, headers: &HeaderMap) -> bool {
    if let Some(site) = text(headers, &SEC_FETCH_SITE)
        && !matches!(site, "same-origin" | "none")
    {
        return true;
    }
    let from = match (text(headers, &ORIGIN), text(headers, &REFERER)) {
        (Some(origin), _) => Some(origin),
        (None, referer) => referer,
    };
    // "null" and what is no address have no authority, so they differ.
    from.is_some_and(|from| {
        let authority = from.parse::<Uri>().ok();
        let authority = authority.as_ref().and_then(Uri::authority);
        match (authority, host) {
            (Some(from), Some(host)) => !from.as_str().eq_ignore_ascii_case(host),
            _ => true,
        }
    })
}

/// The name without the port; `None`: it is not both, a name and maybe a port.
fn host_name(host: &str) -> Option<&str> {
    let name = match host.starts_with('[') {
        true => host
            .split_inclusive(']')
            .next()
            .filter(|name| name.ends_with(']')),
        false => host.split(':').next(),
    };
    let (name, behind) = host.split_at(name?.len());
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let whole = behind.is_empty() || behind.strip_prefix(':').is_some_and(is_port);
    whole.then_some(name)
}

/// True for a host's name without a dot.
fn is_label(name: &str) -> bool {
    let of_names = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !name.is_empty() && name.bytes().all(of_names)
}

/// A header's value; one that is no text is rubbish and fits nothing.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers
        .get(name)
        .map(|value| value.to_str().unwrap_or("\u{fffd}"))
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
