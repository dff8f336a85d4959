//! The compact form: groups of messages with checksums (`docs/export-format.md`,
//! "The binary form").

use std::io::{BufReader, Read, Write};

use anyhow::{Context as _, Result, bail};
use quintet_control::{Head, Text};
use quintet_types::varint;

use super::code::{self, take_text};
use super::{BadInput, Entry, PIECES_OVER, Sink, Source, in_pieces, read_body};

/// A file begins with it.
pub(super) const MAGIC: [u8; 8] = *b"QUINTEXP";
const VERSION: u16 = 1;
const FILE_HEAD: usize = 32;
const GROUP_HEAD: usize = 16;
/// A group is written when it has this many bytes.
const GROUP_BYTES: usize = 256 << 10;
/// No writer makes a longer one: a group, and one more message with its
/// attributes.
const GROUP_BYTES_MAX: usize = 64 << 20;
/// Bytes of a large body in a group.
const PIECE: usize = 256 << 10;

/// Content of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A queue's name, and messages of it with their bodies.
    Messages = 1,
    /// A queue's name, and the head of a large message of it.
    Large = 2,
    /// A part of the body of the large message before.
    Piece = 3,
    /// How many messages there were; nothing follows.
    End = 4,
}

/// Writes groups.
pub(crate) struct BinarySink<W: Write> {
    out: W,
    /// Where the next group begins in the file.
    offset: u64,
    queue: String,
    group: Vec<u8>,
    messages: u64,
}

impl<W: Write> BinarySink<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// It takes nothing.
    pub(crate) fn new(mut out: W, created_ms: u64) -> Result<Self> {
        let mut head = Vec::with_capacity(FILE_HEAD);
        head.extend_from_slice(&MAGIC);
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.extend_from_slice(&[0; 2]);
        head.extend_from_slice(&created_ms.to_le_bytes());
        head.extend_from_slice(&[0; 8]);
        head.extend_from_slice(&crc32c::crc32c(&head).to_le_bytes());
        out.write_all(&head)?;
        Ok(Self::resume(out, FILE_HEAD as u64, 0))
    }

    /// Goes on with a file at `offset`, behind so many messages.
    pub(crate) fn resume(out: W, offset: u64, messages: u64) -> Self {
        Self {
            out,
            offset,
            queue: String::new(),
            group: Vec::new(),
            messages,
        }
    }

    fn group(&mut self, kind: Kind, content: &[u8]) -> Result<()> {
        let Ok(len) = u32::try_from(content.len()) else {
            bail!("a message with more than 4 GiB beside its body");
        };
        let mut head = [0; GROUP_HEAD];
        head[4..8].copy_from_slice(&len.to_le_bytes());
        head[8..12].copy_from_slice(&crc32c::crc32c(content).to_le_bytes());
        head[12] = kind as u8;
        let crc = head_crc(self.offset, &head);
        head[..4].copy_from_slice(&crc.to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(content)?;
        self.offset += (GROUP_HEAD + content.len()) as u64;
        Ok(())
    }

    fn end_group(&mut self) -> Result<()> {
        if self.group.is_empty() {
            return Ok(());
        }
        let mut group = std::mem::take(&mut self.group);
        let done = self.group(Kind::Messages, &group);
        group.clear();
        self.group = group;
        done
    }
}

/// A group read from the wrong place is never taken for the right one.
fn head_crc(offset: u64, head: &[u8; GROUP_HEAD]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&offset.to_le_bytes()), &head[4..])
}

fn put_name(queue: &str, out: &mut Vec<u8>) {
    varint::put(out, queue.len() as u64);
    out.extend_from_slice(queue.as_bytes());
}

impl<W: Write> Sink for BinarySink<W> {
    fn message(&mut self, head: &Head, body: &mut dyn Read) -> Result<()> {
        let large = head.bytes > PIECES_OVER;
        if large || self.group.len() >= GROUP_BYTES || self.queue != head.queue {
            self.end_group()?;
        }
        self.messages += 1;
        if large {
            let mut content = Vec::new();
            put_name(&head.queue, &mut content);
            code::write(head, &mut content);
            self.group(Kind::Large, &content)?;
            return in_pieces(body, head.bytes, PIECE, |piece| {
                self.group(Kind::Piece, piece)
            });
        }
        if self.group.is_empty() {
            self.queue.clone_from(&head.queue);
            put_name(&head.queue, &mut self.group);
        }
        code::write(head, &mut self.group);
        self.group.extend(read_body(body, head.bytes)?);
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.end_group()?;
        let mut content = Vec::new();
        varint::put(&mut content, self.messages);
        self.group(Kind::End, &content)?;
        Ok(self.out.flush()?)
    }
}

/// Reads groups.
pub(crate) struct BinarySource<R: Read> {
    from: BufReader<R>,
    /// Where the next group begins: behind whole ones only.
    pub(crate) offset: u64,
    /// The group being read, and how far.
    group: Vec<u8>,
    at: usize,
    queue: String,
    /// Where it begins.
    begin: u64,
    /// Bytes of a large body still to come.
    large: u64,
    /// Messages so far.
    pub(crate) messages: u64,
    ended: bool,
    /// It ended where more should be.
    pub(crate) cut: bool,
}

impl<R: Read> BinarySource<R> {
    /// Reads the head of the file.
    ///
    /// # Errors
    /// [`BadInput`], a later version, or it cannot be read.
    pub(crate) fn new(mut from: BufReader<R>) -> Result<Self> {
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
            cut: false,
        })
    }

    /// True when there is nothing more in the group last read.
    pub(crate) fn is_between_groups(&self) -> bool {
        self.at == self.group.len() && self.large == 0
    }

    fn bad(&self, why: &str) -> anyhow::Error {
        BadInput::error(self.place(), why)
    }

    /// Reads the next group, verified.
    fn next_group(&mut self) -> Result<Kind> {
        self.begin = self.offset;
        (self.at, self.group) = (0, std::mem::take(&mut self.group));
        self.group.clear();
        let mut head = [0; GROUP_HEAD];
        let mut read = Vec::new();
        (&mut self.from)
            .take(GROUP_HEAD as u64)
            .read_to_end(&mut read)?;
        self.cut = read.len() < GROUP_HEAD;
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
        self.cut = self.group.len() < len as usize;
        if self.cut {
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

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn file() -> (Vec<u8>, Vec<(Head, Vec<u8>)>) {
        let messages: Vec<(Head, Vec<u8>)> = [(3, "a"), (100_000, "a"), (0, "b"), (70, "b")]
            .iter()
            .zip(1..)
            .map(|(&(len, queue), id)| {
                let head = Head {
                    queue: queue.to_owned(),
                    id,
                    priority: Some(1),
                    created_ms: Some(1),
                    bytes: len,
                    ..Head::default()
                };
                (
                    head,
                    vec![b'0' + u8::try_from(id).unwrap(); usize::try_from(len).unwrap()],
                )
            })
            .collect();
        let mut sink = BinarySink::new(Vec::new(), 0).unwrap();
        for (head, body) in &messages {
            sink.message(head, &mut &body[..]).unwrap();
        }
        sink.finish().unwrap();
        (sink.out, messages)
    }

    /// Reads until the end, or until an error.
    fn read(bytes: Vec<u8>) -> (Vec<(Head, Vec<u8>)>, Option<String>) {
        let mut all = Vec::new();
        let mut source = match BinarySource::new(BufReader::new(Cursor::new(bytes))) {
            Ok(source) => source,
            Err(error) => return (all, Some(error.to_string())),
        };
        loop {
            match source.next() {
                Ok(None) => return (all, None),
                Err(error) => return (all, Some(error.to_string())),
                Ok(Some(entry)) => {
                    let mut body = Vec::new();
                    match entry.body {
                        Some(small) => body = small,
                        None => {
                            if let Err(error) = source.pieces(&mut body) {
                                return (all, Some(error.to_string()));
                            }
                        }
                    }
                    all.push((entry.head, body));
                }
            }
        }
    }

    #[test]
    fn written_text_reads_back() {
        let (bytes, messages) = file();
        assert!(read(bytes) == (messages, None));
    }

    #[test]
    fn a_file_cut_anywhere_gives_whole_messages_and_says_where_it_ends() {
        let (bytes, messages) = file();
        for len in (0..bytes.len())
            .step_by(41)
            .chain(bytes.len() - 60..bytes.len())
        {
            let (read, why) = read(bytes[..len].to_vec());
            assert!(messages.starts_with(&read));
            assert!(why.expect("an error").starts_with("byte "));
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_is_found() {
        let (bytes, messages) = file();
        for at in (0..bytes.len()).step_by(97).chain(0..120) {
            let mut bytes = bytes.clone();
            bytes[at] ^= 4;
            let (read, why) = read(bytes);
            assert!(messages.starts_with(&read) && why.is_some(), "byte {at}");
        }
    }
}
