//! Reading a command line: words, queue names, options, numbers.

use quintet_types::{Expiry, Ms};

use super::reply::Fault;

/// The words of a line, separated by single spaces. A space too many makes an
/// empty word.
#[derive(Clone)]
pub(super) struct Words<'a>(Option<&'a [u8]>);

impl<'a> Words<'a> {
    /// The words of `line`, whose end (LF or CR LF) and trailing spaces are
    /// ignored.
    pub(super) fn new(mut line: &'a [u8]) -> Self {
        line = line.strip_suffix(b"\n").unwrap_or(line);
        line = line.strip_suffix(b"\r").unwrap_or(line);
        while let [rest @ .., b' '] = line {
            line = rest;
        }
        Self(Some(line))
    }

    /// True if there is another word.
    pub(super) fn more(&self) -> bool {
        self.0.is_some()
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.0?;
        match rest.iter().position(|&byte| byte == b' ') {
            Some(at) => {
                self.0 = Some(&rest[at + 1..]);
                Some(&rest[..at])
            }
            None => {
                self.0 = None;
                Some(rest)
            }
        }
    }
}

/// A queue name with what follows it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target<'a> {
    /// The queue, without options.
    pub(super) name: &'a [u8],
    /// For a fan-out name `parent+child`: the length of `parent`.
    pub(super) parent: Option<usize>,
    /// The options with their slashes; empty if there are none.
    pub(super) options: &'a [u8],
}

impl<'a> Target<'a> {
    /// Reads `name[/option...]`. A name is 1 to `name_max` printable bytes,
    /// with no slash or tilde in it, no dot in front, and something on both
    /// sides of its first `+`.
    pub(super) fn parse(word: &'a [u8], name_max: usize) -> Result<Self, Fault> {
        let mut plus = None;
        let mut end = word.len();
        for (at, &byte) in word.iter().enumerate() {
            match byte {
                b'/' => {
                    end = at;
                    break;
                }
                b'+' if plus.is_none() => plus = Some(at),
                b'~' => return Err(Fault::BAD_NAME),
                0x21..=0x7e => {}
                _ => return Err(Fault::BAD_NAME),
            }
        }
        let (name, options) = word.split_at(end);
        if name.is_empty() {
            return Err(Fault::NO_NAME);
        }
        if name.len() > name_max
            || name[0] == b'.'
            || plus.is_some_and(|at| at == 0 || at + 1 == name.len())
        {
            return Err(Fault::BAD_NAME);
        }
        Ok(Self {
            name,
            parent: plus,
            options,
        })
    }

    /// The name, if it stands alone.
    pub(super) fn alone(self) -> Result<&'a [u8], Fault> {
        if self.options.is_empty() {
            Ok(self.name)
        } else {
            Err(Fault::BAD_OPTION)
        }
    }

    /// Whether `/sync` follows the name of a set; nothing else may.
    pub(super) fn only_sync(&self) -> Result<bool, Fault> {
        match self.options {
            b"" => Ok(false),
            b"/sync" => Ok(true),
            _ => Err(Fault::BAD_OPTION),
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct GetOptions {
    pub(super) wait_ms: u64,
    pub(super) open: bool,
    pub(super) close: bool,
    pub(super) abort: bool,
    pub(super) peek: bool,
}

impl GetOptions {
    /// Reads `/option...` and refuses the combinations that make no sense.
    pub(super) fn parse(text: &[u8]) -> Result<Self, Fault> {
        let mut options = Self::default();
        let Some(text) = text.strip_prefix(b"/") else {
            return Ok(options);
        };
        for option in text.split(|&byte| byte == b'/') {
            match option {
                b"open" => options.open = true,
                b"close" => options.close = true,
                b"abort" => options.abort = true,
                b"peek" => options.peek = true,
                _ => {
                    options.wait_ms = option
                        .strip_prefix(b"t=")
                        .and_then(number)
                        .ok_or(Fault::BAD_OPTION)?;
                }
            }
        }
        if options.abort && (options.open || options.close || options.peek) {
            Err(Fault::ABORT_ALONE)
        } else if options.open && options.peek {
            Err(Fault::OPEN_AND_PEEK)
        } else if options.close && options.peek {
            Err(Fault::CLOSE_AND_PEEK)
        } else {
            Ok(options)
        }
    }

    /// True if nothing is fetched: an open read is closed or aborted.
    pub(super) fn only_settle(&self) -> bool {
        self.abort || self.close && !self.open
    }
}

/// A decimal number without sign.
pub(super) fn number(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10)
            .then(|| value.checked_mul(10)?.checked_add(u64::from(digit)))
            .flatten()
    })
}

/// Longest expiry, in seconds, that is counted from now; a larger one is a
/// Unix time (memcached's 30 days; Kestrel's bound of 1,000,000 would read the
/// rest as dates of January 1970).
const RELATIVE_MAX_S: u64 = 60 * 60 * 24 * 30;

/// Reads a memcache expiry time: 0 for none, seconds from now, a Unix time, or
/// something negative for "already expired".
pub(super) fn expiry(word: &[u8]) -> Option<Expiry> {
    if let Some(digits) = word.strip_prefix(b"-") {
        return number(digits).map(|_| Expiry::At(Ms(0)));
    }
    number(word).map(expiry_of)
}

/// The meaning of such a number of seconds: 0 for none, from now, a Unix time.
pub(super) fn expiry_of(seconds: u64) -> Expiry {
    let ms = seconds.saturating_mul(1000);
    match seconds {
        0 => Expiry::Default,
        1..=RELATIVE_MAX_S => Expiry::In(ms),
        _ => Expiry::AtWall(Ms(ms)),
    }
}

/// The announcement of a data block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Announced {
    pub(super) flags: u32,
    pub(super) expires: Expiry,
    pub(super) len: u64,
    pub(super) noreply: bool,
}

impl Announced {
    /// Reads what follows the name of a storage command: `bytes` (the form of
    /// Darner's document), or `flags exptime bytes` with an optional
    /// `noreply`. `cas` has one more number before that.
    pub(super) fn parse(mut words: Words<'_>, cas: bool) -> Option<Self> {
        let first = words.next()?;
        if !words.more() && !cas {
            return Some(Self {
                flags: 0,
                expires: Expiry::Default,
                len: number(first)?,
                noreply: false,
            });
        }
        let flags = u32::try_from(number(first)?).ok()?;
        let expires = expiry(words.next()?)?;
        let len = number(words.next()?)?;
        if cas {
            number(words.next()?)?;
        }
        let noreply = match words.next() {
            None => false,
            Some(b"noreply") => true,
            Some(_) => return None,
        };
        (!words.more()).then_some(Self {
            flags,
            expires,
            len,
            noreply,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_at_single_spaces() {
        let words = |line: &'static str| {
            Words::new(line.as_bytes())
                .map(|word| std::str::from_utf8(word).unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(words("get w  \r\n"), ["get", "w"]);
        assert_eq!(words("get w\n"), ["get", "w"]);
        assert_eq!(words("get  w\r\n"), ["get", "", "w"]);
        assert_eq!(words("\r\n"), [""]);
    }

    #[test]
    fn names() {
        let name = |word: &'static str| Target::parse(word.as_bytes(), 8);
        assert_eq!(
            name("w/open"),
            Ok(Target {
                name: b"w",
                parent: None,
                options: b"/open"
            })
        );
        assert_eq!(name("a+b+c").unwrap().parent, Some(1));
        assert_eq!(name("a.b").unwrap().name, b"a.b");
        assert_eq!(name("/open"), Err(Fault::NO_NAME));
        for bad in [".a", "a~", "+b", "a+", "a\x7f", "caf\u{e9}", "123456789"] {
            assert_eq!(name(bad), Err(Fault::BAD_NAME), "{bad}");
        }
    }

    #[test]
    fn options() {
        let parse = |text: &str| GetOptions::parse(text.as_bytes());
        let both = parse("/t=500/open").unwrap();
        assert!(both.open && both.wait_ms == 500);
        assert_eq!(parse("/open/t=500").unwrap(), both);
        for bad in ["/", "/opne", "/t=", "/t=x", "/t=-1", "/OPEN", "/open/"] {
            assert_eq!(parse(bad), Err(Fault::BAD_OPTION), "{bad}");
        }
        assert_eq!(parse("/open/abort"), Err(Fault::ABORT_ALONE));
        assert_eq!(parse("/open/peek"), Err(Fault::OPEN_AND_PEEK));
        assert_eq!(parse("/peek/close"), Err(Fault::CLOSE_AND_PEEK));
        assert!(parse("/abort/t=1").unwrap().abort);
    }

    #[test]
    fn numbers() {
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        for bad in ["", "18446744073709551616", "-1", "+1", "1a", " 1"] {
            assert_eq!(number(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn expiry_times() {
        assert_eq!(expiry(b"0"), Some(Expiry::Default));
        assert_eq!(expiry(b"2592000"), Some(Expiry::In(2_592_000_000)));
        assert_eq!(expiry(b"2592001"), Some(Expiry::AtWall(Ms(2_592_001_000))));
        assert_eq!(expiry(b"-1"), Some(Expiry::At(Ms(0))));
        assert_eq!(expiry(b"-"), None);
    }

    #[test]
    fn announcements() {
        let parse = |line: &str, cas| Announced::parse(Words::new(line.as_bytes()), cas);
        assert_eq!(parse("5", false).unwrap().len, 5);
        let full = parse("7 9 5 noreply", false).unwrap();
        assert_eq!((full.flags, full.len, full.noreply), (7, 5, true));
        assert_eq!(full.expires, Expiry::In(9000));
        for bad in [
            "",
            "1 2",
            "1 2 3 4",
            "1 2 3 noreply x",
            "x",
            "4294967296 0 1",
        ] {
            assert_eq!(parse(bad, false), None, "{bad}");
        }
        assert_eq!(parse("1 2 3 4 noreply", true).unwrap().len, 3);
        assert_eq!(parse("1 2 3", true), None);
        assert_eq!(parse("3", true), None);
    }
}
