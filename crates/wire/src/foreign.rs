//! Connections that speak something else, as their first bytes tell.

/// A protocol on a connection that the server recognizes but does not speak there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Foreign {
    /// TLS: its first byte says "handshake".
    Tls,
    /// HTTP: its first line is a request of that protocol.
    Http,
}

impl Foreign {
    /// For the log: what the client speaks, and what it should.
    pub fn text(self) -> &'static str {
        match self {
            Foreign::Tls => "a client speaks TLS to a plain port: the listener has no certificate",
            Foreign::Http => "a client speaks HTTP (a web page, perhaps), which is not spoken here",
        }
    }

    /// The text that the server sends before it closes the connection.
    pub fn answer(self) -> &'static [u8] {
        match self {
            Foreign::Tls => TLS_ALERT,
            Foreign::Http => HTTP_REFUSED,
        }
    }
}

/// Tells whether a connection begins as TLS does; asked again, it says no.
#[derive(Debug)]
pub(crate) struct First(bool);

impl First {
    pub(crate) fn new() -> Self {
        Self(true)
    }

    /// Looks at the input of a connection, once there is some.
    pub(crate) fn is_tls(&mut self, input: &[u8]) -> bool {
        let Some(&byte) = input.first() else {
            return false;
        };
        std::mem::replace(&mut self.0, false) && byte == TLS
    }
}

/// Whether a connection begins with a request of HTTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Http {
    No,
    /// More bytes will tell.
    Maybe,
    Yes,
}

impl Http {
    /// Looks at the first bytes of a connection. What browsers can be made to
    /// send by pages of others is all told from its first line, before a byte
    /// behind it is looked at: names of headers and bodies may be commands.
    pub fn of(input: &[u8]) -> Self {
        let starts = METHODS.iter().map(|method| begins(input, method));
        match starts.fold(Self::No, |a, b| if a == Self::No { b } else { a }) {
            Self::Yes => {}
            Self::No => return Self::No,
            Self::Maybe => return Self::Maybe,
        }
        let Some(end) = memchr::memchr(b'\n', &input[..input.len().min(HTTP_LINE_MAX)]) else {
            return if input.len() < HTTP_LINE_MAX {
                Self::Maybe
            } else {
                Self::Yes
            };
        };
        let line = &input[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match line.last_chunk() {
            Some(&[b' ', b'H', b'T', b'T', b'P', b'/', major, b'.', minor])
                if major.is_ascii_digit() && minor.is_ascii_digit() =>
            {
                Self::Yes
            }
            _ => Self::No,
        }
    }
}

/// Whether the input begins with this method and a target.
fn begins(input: &[u8], method: &[u8]) -> Http {
    let (name, rest) = input.split_at(input.len().min(method.len()));
    if !method.starts_with(name) {
        return Http::No;
    }
    let whole = TARGETS.iter().any(|target| rest.starts_with(target));
    let part = TARGETS.iter().any(|target| target.starts_with(rest));
    match (whole, part) {
        (true, _) => Http::Yes,
        (false, true) => Http::Maybe,
        (false, false) => Http::No,
    }
}

const METHODS: [&[u8]; 9] = [
    b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT",
];
/// Beginnings of a request target: a path, an address, the server itself.
const TARGETS: [&[u8]; 3] = [b" /", b" http", b" *"];
/// A first line that begins as HTTP's does and is longer is taken for one,
/// bytes.
const HTTP_LINE_MAX: usize = 8 << 10;

/// To a client that speaks HTTP.
const HTTP_REFUSED: &[u8] = b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Content-Length: 31\r\nConnection: close\r\n\r\nHTTP is not spoken on this port\n";

/// The first byte of TLS (RFC 8446, section 5.1: a record of a handshake).
pub(crate) const TLS: u8 = 0x16;

/// A fatal alert: handshake failure.
const TLS_ALERT: &[u8] = &[0x15, 3, 1, 0, 2, 2, 40];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_byte_decides() {
        let mut first = First::new();
        assert!(!first.is_tls(b""));
        assert!(first.is_tls(b"\x16\x03"));
        assert!(!first.is_tls(b"\x16"));
        let mut first = First::new();
        assert!(!first.is_tls(b"p"));
        assert!(!first.is_tls(b"\x16"));
    }

    #[test]
    fn http_is_recognized_by_its_first_line() {
        for (input, is) in [
            ("GET / HTTP/1.1\r\n", Http::Yes),
            ("POST /a b HTTP/1.0\nput 0 0 10 1\r\n", Http::Yes),
            ("OPTIONS * HTTP/2.0\r\n\r\n", Http::Yes),
            ("TRACE http://x/ HTTP/1.1\r\n", Http::Yes),
            ("GET /q\r\n", Http::No),
            ("GET /q HTTP/1.1x\r\n", Http::No),
            ("GET /q\r\nGET / HTTP/1.1\r\n", Http::No),
            ("GET q HTTP/1.1\r\n", Http::No),
            ("get / HTTP/1.1\r\n", Http::No),
            ("PUSH / HTTP/1.1\r\n", Http::No),
            ("GETS / HTTP/1.1\r\n", Http::No),
            ("\r\nGET / HTTP/1.1\r\n", Http::No),
        ] {
            assert_eq!(Http::of(input.as_bytes()), is, "{input:?}");
            // Byte by byte it comes to the same, and before the end of the
            // line never to a yes.
            let end = input.find('\n').unwrap_or(0) + 1;
            let guess = (0..end).map(|end| Http::of(&input.as_bytes()[..end]));
            let guess = guess.chain([is]).find(|guess| *guess != Http::Maybe);
            assert_eq!(guess, Some(is), "{input:?}");
        }
        let long = [b"PUT /".as_slice(), &[b'a'; HTTP_LINE_MAX]].concat();
        assert_eq!(Http::of(&long[..HTTP_LINE_MAX - 1]), Http::Maybe);
        assert_eq!(Http::of(&long), Http::Yes);
        for method in METHODS {
            let line = [method, b" /x HTTP/1.1\n"].concat();
            assert_eq!(Http::of(&line), Http::Yes);
        }
    }

    #[test]
    fn lengths_are_those_of_what_follows() {
        let text = HTTP_REFUSED.split(|&byte| byte == b'\n').rev().nth(1);
        assert_eq!(text.map(<[u8]>::len), Some(31));
        let len = u16::from_be_bytes(*TLS_ALERT[3..].first_chunk().unwrap());
        assert_eq!(TLS_ALERT.len(), 5 + usize::from(len));
    }
}
