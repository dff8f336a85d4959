//! The part of a meta command that is kept until its reply is written.

use crate::output::Output;

/// The reply a meta command is owed.
#[derive(Debug)]
pub(super) struct MetaReply {
    pub(super) to: MetaTo,
    /// `q`: what is usual is not said.
    pub(super) quiet: bool,
    /// The fields that the client asked for, in its order.
    pub(super) back: Box<[Back]>,
}

/// Which command it answers.
#[derive(Debug)]
pub(super) enum MetaTo {
    /// `mg`; without `value` the message is only looked at, or an open read
    /// settled.
    Get {
        peek: bool,
        value: bool,
    },
    /// `ms` with these flags and so many bytes.
    Set {
        flags: u32,
        len: u64,
    },
    Delete,
    /// `me` of this key, as it was sent.
    Describe(Box<[u8]>),
    /// `ms` of a client that has to log in.
    Login,
}

/// One flag of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Back {
    /// A word as it was sent: `O` with its token.
    Word(Box<[u8]>),
    /// `k` with the key as it was sent; behind it `b`, if that is base64.
    Key { key: Box<[u8]>, base64: bool },
    /// `f`: the client's flags.
    Flags,
    /// `s`: the bytes of the item.
    Size,
    /// A reply with fixed text.
    Fixed(&'static str),
}

impl MetaReply {
    /// Writes a reply line; `item` is the flags and the length of the item it
    /// is about. Without one only the part that names the request is sent.
    pub(super) fn head(&self, word: &str, item: Option<(u32, u64)>, output: &mut Output) {
        output.put(word.as_bytes());
        self.write_item(item, output);
    }

    /// The same, if the client wants to know what is usual.
    pub(super) fn unless_quiet(&self, word: &str, item: Option<(u32, u64)>, output: &mut Output) {
        if !self.quiet {
            self.head(word, item, output);
        }
    }

    /// Writes the line in front of a value.
    pub(super) fn value(&self, flags: u32, len: u64, output: &mut Output) {
        output.put(b"VA ");
        output.number(len);
        self.write_item(Some((flags, len)), output);
    }

    fn write_item(&self, item: Option<(u32, u64)>, output: &mut Output) {
        for back in &self.back {
            match (back, item) {
                (Back::Word(word), _) => {
                    output.put(b" ");
                    output.put(word);
                }
                (Back::Key { key, base64 }, _) => {
                    output.put(b" k");
                    output.put(key);
                    output.put(if *base64 { b" b" } else { b"" });
                }
                (Back::Flags, Some((flags, _))) => {
                    output.put(b" f");
                    output.number(u64::from(flags));
                }
                (Back::Size, Some((_, len))) => {
                    output.put(b" s");
                    output.number(len);
                }
                (Back::Fixed(word), Some(_)) => {
                    output.put(b" ");
                    output.put(word.as_bytes());
                }
                (Back::Flags | Back::Size | Back::Fixed(_), None) => {}
            }
        }
        output.put(b"\r\n");
    }
}
