//! Connections that speak something else, as their first byte tells.

/// What a connection speaks that no voice understands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Foreign {
    /// TLS: its first byte says "handshake".
    Tls,
    /// memcached's binary protocol: its first byte says "request". Only the
    /// voice of its text protocol tells.
    MemcacheBinary,
}

impl Foreign {
    /// For the log: what the client speaks, and what it should.
    pub fn text(self) -> &'static str {
        match self {
            Foreign::Tls => "a client speaks TLS, which has to end before this server",
            Foreign::MemcacheBinary => {
                "a client speaks memcached's binary protocol; its text protocol is spoken here"
            }
        }
    }

    /// What is said to it before it is closed.
    pub(crate) fn answer(self) -> &'static [u8] {
        match self {
            Foreign::Tls => TLS_ALERT,
            Foreign::MemcacheBinary => BINARY_UNKNOWN,
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

/// The first byte of TLS (RFC 8446, section 5.1: a record of a handshake).
pub(crate) const TLS: u8 = 0x16;
/// The first byte of a request in memcached's binary protocol.
pub(crate) const BINARY: u8 = 0x80;

/// A fatal alert: handshake failure.
const TLS_ALERT: &[u8] = &[0x15, 3, 1, 0, 2, 2, 40];

/// A response to no request in particular: unknown command, with a text.
const BINARY_UNKNOWN: &[u8] =
    b"\x81\0\0\0\0\0\0\x81\0\0\0\x12\0\0\0\0\0\0\0\0\0\0\0\0text protocol only";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_byte_tells() {
        let mut first = First::new();
        assert!(!first.is_tls(b""));
        assert!(first.is_tls(b"\x16\x03"));
        assert!(!first.is_tls(b"\x16"));
        let mut first = First::new();
        assert!(!first.is_tls(b"p"));
        assert!(!first.is_tls(b"\x16"));
    }

    #[test]
    fn lengths_are_those_of_what_follows() {
        let len = u32::from_be_bytes(*BINARY_UNKNOWN[8..].first_chunk().unwrap());
        assert_eq!(BINARY_UNKNOWN.len(), 24 + len as usize);
        let len = u16::from_be_bytes(*TLS_ALERT[3..].first_chunk().unwrap());
        assert_eq!(TLS_ALERT.len(), 5 + usize::from(len));
    }
}
