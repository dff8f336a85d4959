//! The cookie of a login: a random token.

use hyper::HeaderMap;
use hyper::header::COOKIE;
use quintet_types::{Principal, hex, unhex};
use rustix::rand::{GetRandomFlags, getrandom};
use std::time::{Duration, Instant};

/// The cookie's name.
pub(crate) const NAME: &str = "quintet_session";
/// The same where it goes over TLS alone and for the whole site: browsers take one of such a name
/// from this host only, never from another one of its domain.
pub(crate) const HOST_NAME: &str = "__Host-quintet_session";
/// Bytes of a token: nobody guesses one.
pub(crate) const TOKEN: usize = 32;

/// Content of a cookie, in hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub(crate) [u8; TOKEN]);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// A new random token.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn new() -> Result<Self, rustix::io::Errno> {
        let mut bytes = [0; TOKEN];
        let mut filled = 0;
        while filled < TOKEN {
            filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
        }
        Ok(Self(bytes))
    }

    /// The one among a request's cookies.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let cookies = headers.get_all(COOKIE).iter();
        let texts = cookies.filter_map(|value| value.to_str().ok());
        let mut pairs = texts.flat_map(|text| text.split(';'));
        pairs.find_map(|pair| {
            let (name, value) = pair.trim().split_once('=')?;
            [NAME, HOST_NAME]
                .contains(&name)
                .then(|| Self::read(value))
                .flatten()
        })
    }

    pub(crate) fn read(text: &str) -> Option<Self> {
        Some(Self(unhex(text)?.try_into().ok()?))
    }

    pub(crate) fn show(&self) -> String {
        hex(&self.0)
    }
}

/// Kept by its listener alone: it is gone when it has ended.
pub struct Session {
    pub(crate) who: Principal,
    /// The number of its login, for `Gate::counts`.
    pub(crate) proof: u64,
    pub(crate) began: Instant,
    /// How long it lasts.
    pub(crate) time: Duration,
}

impl Session {
    /// False when its time is over.
    pub(crate) fn lasts(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.began) < self.time
    }
}
