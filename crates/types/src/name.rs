//! Queue names: short byte strings, usually stored without an allocation.

use std::borrow::Borrow;
use std::fmt;

use smallvec::SmallVec;

/// The name of a queue: any bytes, 1 to 65,535 of them.
///
/// Each protocol lets through only the names that are legal in its protocol; the
/// engine itself takes any bytes. Names of up to 24 bytes live inside the value.
#[derive(PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Name(SmallVec<[u8; 24]>);

impl Clone for Name {
    fn clone(&self) -> Self {
        // A `SmallVec` would copy byte by byte.
        Self::new(&self.0)
    }
}

impl Name {
    /// Copies `bytes` into a name.
    pub fn new(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }

    /// The name that is shown so ([`fmt::Display`]): `\xNN` is a byte, `\\` a
    /// backslash, all else stands for itself.
    pub fn of_shown(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut out = SmallVec::new();
        let mut at = 0;
        while at < bytes.len() {
            let hex = (bytes[at..].starts_with(b"\\x"))
                .then(|| text.get(at + 2..at + 4))
                .flatten()
                .and_then(|digits| u8::from_str_radix(digits, 16).ok());
            match hex {
                Some(byte) => {
                    out.push(byte);
                    at += 4;
                }
                None if bytes[at..].starts_with(b"\\\\") => {
                    out.push(b'\\');
                    at += 2;
                }
                None => {
                    out.push(bytes[at]);
                    at += 1;
                }
            }
        }
        Self(out)
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// True for the name of no bytes, which no queue can have.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if a queue can have it.
    pub fn is_possible(&self) -> bool {
        !self.is_empty() && self.0.len() <= 65_535
    }

    /// Bytes of its printable form.
    pub fn shown_len(&self) -> usize {
        let shown = |byte: &u8| match byte {
            b'\\' => 2,
            0x20..=0x7e => 1,
            _ => 4,
        };
        self.0.iter().map(shown).sum()
    }

    /// The fan-out child `name` of this queue: `mail` and `audit` are
    /// `mail+audit`, which lives in the same shard
    /// ([`shard_of_queue`](crate::shard_of_queue)). `None`: it would be too
    /// long or without a name, or this is a child itself, which has none.
    pub fn child(&self, name: &Name) -> Option<Name> {
        if self.is_empty() || name.is_empty() || self.0.contains(&b'+') {
            return None;
        }
        let child = Name::new(&[self.as_bytes(), b"+", name.as_bytes()].concat());
        child.is_possible().then_some(child)
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self::new(text.as_bytes())
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Name {
    /// Printable form: bytes outside printable ASCII as `\xNN`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in &self.0 {
            match byte {
                b'\\' => f.write_str("\\\\")?,
                0x20..=0x7e => write!(f, "{}", byte as char)?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}
