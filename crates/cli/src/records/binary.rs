//! The form that older versions wrote: groups of messages with checksums
//! (`docs/export-format.md`, "The binary form").

use std::io::{Read, Write};

use anyhow::{Context as _, Result, bail};
use quintet_control::{Head, Text};
use quintet_types::varint;

use super::code::{self, take_text};
use super::{BadInput, Entry, PIECES_OVER, Source};

/// A file begins with it.
pub(super) const MAGIC: [u8; 8] = *b"QUINTEXP";
const VERSION: u16 = 1;
const FILE_HEAD: usize = 32;
const GROUP_HEAD: usize = 16;
/// No writer made a longer one: a group, and one more message with its
/// attributes.
const GROUP_BYTES_MAX: usize = 64 << 20;

/// Content of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A queue's name, and messages of it with their bodies.
    Messages,
    /// A queue's name, and the head of a large message of it.
    Large,
    /// A part of the body of the large message before.
    Piece,
    /// How many messages there were; nothing follows.
    End,
}

/// A group read from the wrong place is never taken for the right one.
fn head_crc(offset: u64, head: &[u8; GROUP_HEAD]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&offset.to_le_bytes()), &head[4..])
}

/// Reads groups.
pub(crate) struct BinarySource<R> {
    from: R,
    /// Where the next group begins: behind whole ones only.
    offset: u64,
    /// The group being read, and how far.
    group: Vec<u8>,
    at: usize,
    queue: String,
    /// Where it begins.
    begin: u64,
    /// Bytes of a large body still to come.
    large: u64,
    /// Messages so far.
    messages: u64,
    ended: bool,
}

impl<R: Read> BinarySource<R> {
    /// Reads the head of the file.
    ///
    /// # Errors
    /// [`BadInput`], a later version, or it cannot be read.
    pub(crate) fn new(mut from: R) -> Result<Self> {
        let mut head = Vec::new();
        (&mut from).take(FILE_HEAD as u64).read_to_end(&mut head)?;
        if head.len() < FILE_HEAD {
            return Err(BadInput::error("byte 0", "the file ends inside its head"));
        }
        let (fields, crc) = head.split_at(FILE_HEAD - 4);
        if crc32c::crc32c(fields).to_le_bytes() != crc {
            return Err(BadInput::error("byte 0", "wrong checksum"));
        }
        let version = u16::from_le_bytes([head[8], head[9]]);
        if version != VERSION {
            bail!(
                "the file has version {version}, of a newer quintet; this quintet reads version 1"
            );
        }
        Ok(Self {
            from,
            offset: FILE_HEAD as u64,
            group: Vec::new(),
            at: 0,
            queue: String::new(),
            begin: 0,
            large: 0,
            messages: 0,
            ended: false,
        })
    }

    fn bad(&self, why: &str) -> anyhow::Error {
        BadInput::error(self.place(), why)
    }

    /// Reads the next group, verified.
    fn next_group(&mut self) -> Result<Kind> {
        self.begin = self.offset;
        self.at = 0;
        self.group.clear();
        let mut head = [0; GROUP_HEAD];
        let mut read = Vec::new();
        (&mut self.from)
            .take(GROUP_HEAD as u64)
            .read_to_end(&mut read)?;
        if read.is_empty() {
            return Err(self.bad("the file ends before its end: its export was interrupted"));
        }
        if read.len() < GROUP_HEAD {
            return Err(self.bad("the file ends inside a group"));
        }
        head.copy_from_slice(&read);
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if word(0) != head_crc(self.offset, &head) {
            return Err(self.bad("wrong checksum of a group's head"));
        }
        let len = word(4);
        if len as usize > GROUP_BYTES_MAX {
            return Err(self.bad("a group is longer than any"));
        }
        (&mut self.from)
            .take(u64::from(len))
            .read_to_end(&mut self.group)
            .context("cannot read the file")?;
        if self.group.len() < len as usize {
            return Err(self.bad("the file ends inside a group"));
        }
        if word(8) != crc32c::crc32c(&self.group) {
            return Err(self.bad("wrong checksum"));
        }
        self.offset += GROUP_HEAD as u64 + u64::from(len);
        match head[12] {
            1 => Ok(Kind::Messages),
            2 => Ok(Kind::Large),
            3 => Ok(Kind::Piece),
            4 => Ok(Kind::End),
            _ => Err(self.bad("an unknown kind of group")),
        }
    }

    fn head(&mut self) -> Option<Head> {
        let mut from = self.group.get(self.at..)?;
        let head = code::read(&self.queue, &mut from)?;
        self.at = self.group.len() - from.len();
        Some(head)
    }

    fn name(&mut self) -> Option<()> {
        let mut from = &self.group[..];
        let Text(name) = take_text(&mut from)?;
        self.queue = String::from_utf8(name).ok()?;
        self.at = self.group.len() - from.len();
        Some(())
    }

    /// The next message of a group, whole.
    fn entry(&mut self) -> Option<Entry> {
        let head = self.head()?;
        let end = self.at.checked_add(usize::try_from(head.bytes).ok()?)?;
        let body = Some(self.group.get(self.at..end)?.to_vec());
        self.at = end;
        Some(Entry { head, body })
    }
}

const NO_MESSAGE: &str = "its content is not messages, although its checksums are correct";

impl<R: Read> Source for BinarySource<R> {
    fn next(&mut self) -> Result<Option<Entry>> {
        if self.ended {
            return Ok(None);
        }
        if self.at == self.group.len() {
            match self.next_group()? {
                Kind::Messages => {
                    self.name().ok_or_else(|| self.bad(NO_MESSAGE))?;
                }
                Kind::Large => {
                    let head = self.name().and_then(|()| self.head());
                    let head = head.filter(|head| head.bytes > PIECES_OVER);
                    let head = head.ok_or_else(|| self.bad(NO_MESSAGE))?;
                    self.large = head.bytes;
                    self.at = self.group.len();
                    self.messages += 1;
                    return Ok(Some(Entry { head, body: None }));
                }
                Kind::Piece => return Err(self.bad("a part of a body without a message")),
                Kind::End => {
                    let counted = varint::take(&mut &self.group[..]);
                    self.at = self.group.len();
                    if counted != Some(self.messages) {
                        return Err(self.bad("messages before it are missing"));
                    }
                    self.ended = true;
                    return Ok(None);
                }
            }
        }
        let entry = self.entry().ok_or_else(|| self.bad(NO_MESSAGE))?;
        self.messages += 1;
        Ok(Some(entry))
    }

    fn pieces(&mut self, into: &mut dyn Write) -> Result<()> {
        while self.large > 0 {
            if self.next_group()? != Kind::Piece {
                return Err(self.bad("the body of the message before is not whole"));
            }
            let piece = self.group.len() as u64;
            self.at = self.group.len();
            self.large = match self.large.checked_sub(piece) {
                Some(left) if piece > 0 => left,
                _ => return Err(self.bad("the body of the message before is not whole")),
            };
            into.write_all(&self.group)?;
        }
        Ok(())
    }

    fn place(&self) -> String {
        format!("byte {}", self.begin)
    }

    fn position(&self) -> u64 {
        self.offset
    }
}
