//! How clients say who they are.

use std::fmt;

/// Whether a connection's client may say who it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Logins {
    /// There is nobody to be: words for it are like any other.
    #[default]
    Off,
    /// It may, and may also go on without.
    Open,
    /// It has to before anything else.
    Needed,
}

/// Credentials of a client. Neither part is checked to be text.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    pub name: Box<[u8]>,
    /// A password, a token or a secret.
    pub secret: Box<[u8]>,
}

/// Not for logs: the secret stays out.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({:?})", String::from_utf8_lossy(&self.name))
    }
}

/// Why a client is not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoginRefused {
    /// No such user, or not its password, or a token that has ended.
    Wrong,
    /// Nobody at its address may try for a while: too many failed.
    Throttled,
    /// More wait to be checked than may.
    Busy,
    /// The user has as many connections as it may.
    TooMany,
}

impl LoginRefused {
    /// A sentence for protocols with free text.
    pub fn text(self) -> &'static str {
        match self {
            Self::Wrong => "authentication failure",
            Self::Throttled => "too many failed logins, try again later",
            Self::Busy => "too many logins at once, try again later",
            Self::TooMany => "too many connections of this user",
        }
    }

    /// A word for protocols with words, with the end of a line.
    pub(crate) fn line(self) -> &'static [u8] {
        match self {
            Self::Wrong => b"NOT_PERMITTED\r\n",
            Self::Throttled => b"TOO_MANY_FAILURES\r\n",
            Self::Busy => b"TOO_MANY_LOGINS\r\n",
            Self::TooMany => b"TOO_MANY_CONNECTIONS\r\n",
        }
    }
}

/// Reads the line `auth NAME SECRET`, without its end, in either case. `None`:
/// it is another command.
pub(crate) fn auth_line(line: &[u8]) -> Option<Login> {
    let (word, rest) = line.split_at_checked(4)?;
    let rest = rest.strip_prefix(b" ")?;
    if !word.eq_ignore_ascii_case(b"auth") {
        return None;
    }
    Some(name_and_secret(rest))
}

/// Reads `NAME SECRET`; what has no space is a name without a secret.
pub(crate) fn name_and_secret(bytes: &[u8]) -> Login {
    let at = memchr::memchr(b' ', bytes).unwrap_or(bytes.len());
    Login {
        name: bytes[..at].into(),
        secret: bytes.get(at + 1..).unwrap_or_default().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_auth_line_has_a_name_and_the_rest() {
        for (line, found) in [
            (&b"auth ann hush"[..], Some((&b"ann"[..], &b"hush"[..]))),
            (b"AUTH ann two words", Some((b"ann", b"two words"))),
            (b"auth ann", Some((b"ann", b""))),
            (b"auth  x", Some((b"", b"x"))),
            (b"auth \xff \xfe", Some((b"\xff", b"\xfe"))),
            (b"auth", None),
            (b"authx ann hush", None),
            (b"", None),
        ] {
            let read = auth_line(line);
            let read = read.as_ref().map(|login| (&*login.name, &*login.secret));
            assert_eq!(read, found, "{:?}", String::from_utf8_lossy(line));
        }
    }
}
