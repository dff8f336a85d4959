//! memcached's meta commands: `mg`, `ms`, `md`, `me`, `mn`. What their flags
//! mean of a queue is in `docs/protocols/memcache.md`.

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use quintet_types::{Command, Expiry, Name, StatsOf};

use super::Count;
use super::line::{GetOptions, Target, Words, expiry, number};
use super::meta_reply::{Back, MetaReply, MetaTo};
use super::reply::{Fault, MemcacheReply};
use super::request::{Begun, no_more};
use super::session::{CRLF, MemcacheSession, Set};
use crate::session::{ClientRequest, Env};

/// Bytes of an opaque token at most, as in memcached.
const OPAQUE_MAX: usize = 32;

/// The flags of each command that say something of their own; `b`, `k`, `q`,
/// `O` and those that no queue uses (`u`, `P`, `L`) belong to all.
const GET: &[u8] = b"vfscthlENRT";
const SET: &[u8] = b"scFTMCENI";
const DELETE: &[u8] = b"CEITx";

/// Flags of a meta command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    pub(super) base64: bool,
    pub(super) quiet: bool,
    value: bool,
    flags: u32,
    expires: Expiry,
    /// A flag needs a cache, which a queue is not.
    cache: bool,
    pub(super) back: Box<[Back]>,
}

impl Flags {
    /// Reads the words behind the key `word` and, of a set, its length.
    /// `own` are the letters that the command knows beside those of all.
    pub(super) fn parse(words: Words<'_>, word: &[u8], own: &[u8]) -> Result<Self, Fault> {
        let mut read = Self::default();
        let mut back = Vec::new();
        let mut seen = 0u128;
        for flag in words {
            let (&letter, token) = flag.split_first().ok_or(Fault::BAD_LINE)?;
            if !letter.is_ascii_alphabetic()
                || !(b"bkqOuPL".contains(&letter) || own.contains(&letter))
            {
                return Err(Fault::BAD_FLAG);
            }
            if seen >> letter & 1 == 1 {
                return Err(Fault::TWICE);
            }
            seen |= 1 << letter;
            if b"bkqvfscthluxI".contains(&letter) && !token.is_empty() {
                return Err(Fault::BAD_FLAG);
            }
            match letter {
                b'b' => read.base64 = true,
                b'q' => read.quiet = true,
                b'v' => read.value = true,
                b'O' if token.len() > OPAQUE_MAX => return Err(Fault::LONG_OPAQUE),
                b'O' => back.push(Back::Word(flag.into())),
                b'k' => back.push(Back::Key {
                    key: word.into(),
                    base64: false,
                }),
                b'f' => back.push(Back::Flags),
                b's' => back.push(Back::Size),
                b'c' => back.push(Back::Fixed("c0")),
                b't' => back.push(Back::Fixed("t-1")),
                b'h' => back.push(Back::Fixed("h0")),
                b'l' => back.push(Back::Fixed("l0")),
                b'F' => {
                    let flags = number(token).and_then(|flags| u32::try_from(flags).ok());
                    read.flags = flags.ok_or(Fault::BAD_TOKEN)?;
                }
                b'T' if own == SET => read.expires = expiry(token).ok_or(Fault::BAD_TOKEN)?,
                b'M' => match token {
                    b"S" | b"s" | b"set" => {}
                    b"E" | b"e" | b"A" | b"a" | b"P" | b"p" | b"R" | b"r" | b"add" | b"append"
                    | b"prepend" | b"replace" => read.cache = true,
                    _ => return Err(Fault::BAD_TOKEN),
                },
                // No item has such a number, so that 0 is what all have.
                b'C' | b'E' => {
                    read.cache |= number(token).ok_or(Fault::BAD_TOKEN)? != 0;
                }
                // It belongs to an append.
                b'N' if own == SET => {}
                b'N' | b'R' | b'T' | b'I' | b'x' => read.cache = true,
                // `u`, `P`, `L`.
                _ => {}
            }
        }
        for returned in &mut back {
            if let Back::Key { base64, .. } = returned {
                *base64 = read.base64;
            }
        }
        read.back = back.into();
        Ok(read)
    }

    /// The key, decoded if it has to be.
    fn key<'a>(&self, word: &'a [u8]) -> Result<Cow<'a, [u8]>, Fault> {
        if self.base64 {
            decoded(word).map(Cow::Owned).ok_or(Fault::BAD_KEY)
        } else {
            Ok(Cow::Borrowed(word))
        }
    }

    fn reply(self, to: MetaTo) -> MemcacheReply {
        MemcacheReply::Meta(Box::new(MetaReply {
            to,
            quiet: self.quiet,
            back: self.back,
        }))
    }
}

impl MemcacheSession {
    /// Begins one of them, whose verb is in small letters.
    pub(super) fn meta(
        &mut self,
        verb: &[u8],
        used: usize,
        mut words: Words<'_>,
        env: &Env<'_>,
    ) -> Begun {
        if verb == b"mn" {
            no_more(&words)?;
            env.tally.bump(Count::Other as usize);
            return Ok(self.last(used, ClientRequest::Own, MemcacheReply::Line("MN\r\n")));
        }
        let word = words.next().filter(|word| !word.is_empty());
        let word = word.ok_or(Fault::BAD_LINE)?;
        match verb {
            b"mg" => {
                let flags = Flags::parse(words, word, GET)?;
                self.meta_get(used, word, flags, env)
            }
            b"ms" => {
                let len = words.next().and_then(number).ok_or(Fault::BAD_LINE)?;
                let flags = Flags::parse(words, word, SET)?;
                if flags.cache {
                    return self.unwanted_data(used, len);
                }
                self.meta_set(used, word, len, flags, env)
            }
            b"md" => {
                let flags = Flags::parse(words, word, DELETE)?;
                if flags.cache {
                    return Err(Fault::NOT_A_CACHE);
                }
                let key = flags.key(word)?;
                let queue = self.queue(Some(&key))?;
                self.remove(used, Command::Drop(queue), flags.reply(MetaTo::Delete), env)
            }
            _ => {
                let flags = Flags::parse(words, word, b"")?;
                let key = flags.key(word)?;
                let queue = self.queue(Some(&key))?;
                env.tally.bump(Count::Other as usize);
                let command = Command::Stats(StatsOf::Queue(queue));
                let reply = flags.reply(MetaTo::Describe(word.into()));
                Ok(self.last(used, ClientRequest::Engine(command), reply))
            }
        }
    }

    fn meta_get(&mut self, used: usize, word: &[u8], flags: Flags, env: &Env<'_>) -> Begun {
        if flags.cache {
            return Err(Fault::NOT_A_CACHE);
        }
        let key = flags.key(word)?;
        let target = Target::parse(&key, self.shared.name_max)?;
        let mut options = GetOptions::parse(target.options)?;
        // What would be taken and not shown would be lost.
        if !flags.value && !options.only_settle() {
            if options.open {
                return Err(Fault::OPEN_UNSEEN);
            }
            options.peek = true;
        }
        let to = MetaTo::Get {
            peek: options.peek,
            value: flags.value,
        };
        self.fetch(used, &target, &options, flags.reply(to), env)
    }

    fn meta_set(
        &mut self,
        used: usize,
        word: &[u8],
        len: u64,
        flags: Flags,
        env: &Env<'_>,
    ) -> Begun {
        let key = flags.key(word)?;
        let target = Target::parse(&key, self.shared.name_max)?;
        let set = Set {
            queue: Name::new(target.name),
            flags: flags.flags,
            expires: flags.expires,
            len,
            end: CRLF,
            sync: target.only_sync()?,
            reply: {
                let to = MetaTo::Set {
                    flags: flags.flags,
                    len,
                };
                flags.reply(to)
            },
        };
        self.put(used, &target, set, env)
    }
}

/// The reply to an `ms` with which a client logs in: the words behind its length.
pub(super) fn login(words: Words<'_>, key: &[u8]) -> Result<MemcacheReply, Fault> {
    Ok(Flags::parse(words, key, SET)?.reply(MetaTo::Login))
}

/// Decodes base64 (RFC 4648, section 4), with its padding and no bits left over, or two texts
/// would be one key.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let bytes = BASE64_STANDARD.decode(text).ok();
    bytes.filter(|bytes| !bytes.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_strictly() {
        for (text, bytes) in [
            ("Zg==", &b"f"[..]),
            ("Zm8=", b"fo"),
            ("Zm9v", b"foo"),
            ("Zm9vYg==", b"foob"),
            ("+/+/", b"\xfb\xff\xbf"),
        ] {
            assert_eq!(decoded(text.as_bytes()).as_deref(), Some(bytes), "{text}");
        }
        for bad in [
            "", "Zg", "Zg=", "Zg=a", "Z===", "====", "Zh==", "Zm9=", "Zm9v\n", "Zm-v",
        ] {
            assert_eq!(decoded(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn flags_are_read_once_and_by_their_command() {
        let parse = |text: &str, own| Flags::parse(Words::new(text.as_bytes()), b"w", own);
        let read = parse("v k q O123 f u P1 L2", GET).unwrap();
        assert!(read.value && read.quiet && !read.cache);
        let key = Back::Key {
            key: b"w"[..].into(),
            base64: false,
        };
        let opaque = Back::Word(b"O123"[..].into());
        assert_eq!(*read.back, [key, opaque, Back::Flags]);
        assert!(parse("T30", GET).unwrap().cache);
        assert_eq!(parse("T30", SET).unwrap().expires, Expiry::In(30_000));
        assert_eq!(parse("F4294967295", SET).unwrap().flags, u32::MAX);
        for (bad, own, fault) in [
            ("v v", GET, Fault::TWICE),
            ("v1", GET, Fault::BAD_FLAG),
            ("v", SET, Fault::BAD_FLAG),
            ("F1", GET, Fault::BAD_FLAG),
            ("?", GET, Fault::BAD_FLAG),
            ("v  f", GET, Fault::BAD_LINE),
            ("F4294967296", SET, Fault::BAD_TOKEN),
            ("T", SET, Fault::BAD_TOKEN),
            ("Mx", SET, Fault::BAD_TOKEN),
            ("C-1", SET, Fault::BAD_TOKEN),
            (
                "O012345678901234567890123456789012",
                GET,
                Fault::LONG_OPAQUE,
            ),
        ] {
            assert_eq!(parse(bad, own), Err(fault), "{bad}");
        }
        for (text, own, cache) in [
            ("C0 E0 MS", SET, false),
            ("C1", SET, true),
            ("E1", DELETE, true),
            ("MA N30", SET, true),
            ("I", SET, true),
            ("x", DELETE, true),
            ("N30", GET, true),
            ("R30", GET, true),
        ] {
            assert_eq!(parse(text, own).unwrap().cache, cache, "{text}");
        }
    }
}
