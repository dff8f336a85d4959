//! The pieces of a request: words and names that end in a zero byte, and
//! numbers in little-endian order.

use memchr::memchr;

/// Longest command word, bytes; the longest there is has seven.
pub(super) const WORD_MAX: usize = 32;

quintet_types::named! {
    /// A command this protocol knows.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(super) enum Verb, name {
        Add = "ADD",
        Connect = "CONNECT",
        Delete = "DELETE",
        Reserve = "RESERVE",
    }
}

/// The front of the input read as a command word.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Word<'a> {
    /// One of ours, and its length with the zero.
    Known(Verb, usize),
    /// A word, but none of ours.
    Unknown(&'a [u8]),
    /// The beginning of a word.
    Part,
    /// More letters than any word has.
    TooLong,
    /// No word: the stream is not this protocol.
    Alien,
}

/// Looks for a word: one or more of A to Z, then a zero byte.
pub(super) fn word(input: &[u8]) -> Word<'_> {
    let window = &input[..input.len().min(WORD_MAX + 1)];
    match window.iter().position(|byte| !byte.is_ascii_uppercase()) {
        None if window.len() > WORD_MAX => Word::TooLong,
        None => Word::Part,
        Some(end) if end == 0 || window[end] != 0 => Word::Alien,
        Some(end) => {
            let known = |verb: &Verb| verb.name().as_bytes() == &window[..end];
            match Verb::ALL.into_iter().find(known) {
                Some(verb) => Word::Known(verb, end + 1),
                None => Word::Unknown(&window[..end]),
            }
        }
    }
}

/// A search for the zero at the end of a name, which remembers how far it came
/// so that a name that comes byte by byte is not searched again from its start.
#[derive(Debug, Default)]
pub(super) struct NameEnd {
    scanned: usize,
}

/// The front of the input read as a name.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum NameAt<'a> {
    /// The name, without its zero.
    Whole(&'a [u8]),
    /// The beginning of one.
    Part,
    /// Longer than a name may be.
    TooLong,
}

impl NameEnd {
    /// Looks for a name of at most `max` bytes.
    pub(super) fn find<'a>(&mut self, input: &'a [u8], max: usize) -> NameAt<'a> {
        let window = &input[..input.len().min(max + 1)];
        let from = std::mem::take(&mut self.scanned).min(window.len());
        match memchr(0, &window[from..]) {
            Some(at) => NameAt::Whole(&window[..from + at]),
            None if window.len() > max => NameAt::TooLong,
            None => {
                self.scanned = window.len();
                NameAt::Part
            }
        }
    }
}

/// The number in `input` at `at`, if it is whole.
pub(super) fn number(input: &[u8], at: usize) -> Option<u32> {
    let bytes = input.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

/// The same for an id.
pub(super) fn id(input: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*input.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        for (input, expected) in [
            (&b"ADD\0q"[..], Word::Known(Verb::Add, 4)),
            (b"CONNECT\0", Word::Known(Verb::Connect, 8)),
            (b"DELETE\0", Word::Known(Verb::Delete, 7)),
            (b"RESERVE\0", Word::Known(Verb::Reserve, 8)),
            (b"FOO\0x", Word::Unknown(b"FOO")),
            (b"", Word::Part),
            (b"ADD", Word::Part),
            (b"add\0", Word::Alien),
            (b"ADd", Word::Alien),
            (b"AD1\0", Word::Alien),
            (b"\0", Word::Alien),
            (b"GET / HTTP/1.1\r\n", Word::Alien),
            (&[b'A'; 32], Word::Part),
            (&[b'A'; 33], Word::TooLong),
        ] {
            assert_eq!(word(input), expected, "{}", input.escape_ascii());
        }
        let mut longest = vec![b'A'; 32];
        longest.push(0);
        assert_eq!(word(&longest), Word::Unknown(&[b'A'; 32]));
    }

    #[test]
    fn names_end_in_a_zero() {
        let find = |input| NameEnd::default().find(input, 3);
        assert_eq!(find(b"\0"), NameAt::Whole(b""));
        assert_eq!(find(b"abc\0d"), NameAt::Whole(b"abc"));
        assert_eq!(find(b"abc"), NameAt::Part);
        assert_eq!(find(b"abcd"), NameAt::TooLong);
        let mut end = NameEnd::default();
        assert_eq!(end.find(b"ab", 3), NameAt::Part);
        assert_eq!(end.find(b"ab\0", 3), NameAt::Whole(b"ab"));
        assert_eq!(end.find(b"\0", 3), NameAt::Whole(b""));
    }

    #[test]
    fn numbers_are_little_endian() {
        assert_eq!(number(&[9, 1, 2, 0, 0], 1), Some(0x0201));
        assert_eq!(number(&[1, 2, 0], 0), None);
        assert_eq!(number(&[], 4), None);
        assert_eq!(id(&[1, 0, 0, 0, 0, 0, 0, 0x80]), Some(1 | 0x80 << 56));
        assert_eq!(id(&[0; 7]), None);
    }
}
