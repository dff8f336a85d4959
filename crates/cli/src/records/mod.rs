//! Files of messages: lines of JSON, also compressed, or a binary form that older versions wrote
//! (`docs/export-format.md`).

mod binary;
mod code;
mod gzip;
mod lines;

use std::cell::Cell;
use std::fs::File;
use std::io::{BufReader, Cursor, Read, Write};
use std::rc::Rc;

use anyhow::{Context, Result};
use flate2::bufread::MultiGzDecoder;
use quintet_control::Head;
use serde_json::Value;

use binary::BinarySource;
pub(super) use gzip::{GzipSink, Members, has_member, is_export};
pub(super) use lines::{LineSink, LineSource};

/// Bodies longer than this pass in pieces.
pub(super) const PIECES_OVER: u64 = quintet_wire::STREAM_OVER;

/// The forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// A line of JSON for each message.
    Jsonl,
    /// The same lines, compressed, with checksums.
    Gzip,
    /// Only read.
    #[value(hide = true)]
    Binary,
}

/// A file that is not what it should be.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {why}")]
pub(super) struct BadInput {
    /// Where: "line 7", "byte 4096".
    place: String,
    why: String,
}

impl BadInput {
    pub(super) fn error(place: impl Into<String>, why: impl Into<String>) -> anyhow::Error {
        let (place, why) = (place.into(), why.into());
        anyhow::Error::new(Self { place, why })
    }
}

/// Takes messages.
pub(super) trait Sink {
    /// Writes a message whose body, of `head.bytes` bytes, is read from `body`.
    ///
    /// # Errors
    /// The body ends early or the file takes no more; the file then ends
    /// inside a message.
    fn message(&mut self, head: &Head, body: &mut dyn Read) -> Result<()>;

    /// Writes a batch, which is no message.
    ///
    /// # Errors
    /// The file takes no more.
    fn batch(&mut self, batch: &Value) -> Result<()>;

    /// Writes what is kept back, and that this is all.
    ///
    /// # Errors
    /// The file takes no more.
    fn finish(&mut self) -> Result<()>;
}

/// A message of a file.
pub(super) struct Entry {
    pub(super) head: Head,
    /// `None`: it is large and comes in pieces, [`Source::pieces`].
    pub(super) body: Option<Vec<u8>>,
}

/// A body that goes on in pieces.
#[derive(Default)]
pub(super) struct Large(Vec<u8>);

impl Large {
    /// A message of a source; keeps a long body for [`Large::write`].
    pub(super) fn entry(&mut self, head: Head, body: Vec<u8>) -> Entry {
        if body.len() as u64 > PIECES_OVER {
            self.0 = body;
            return Entry { head, body: None };
        }
        let body = Some(body);
        Entry { head, body }
    }

    /// Writes the body that was kept.
    ///
    /// # Errors
    /// `into` takes no more.
    pub(super) fn write(&mut self, into: &mut dyn Write) -> Result<()> {
        Ok(into.write_all(&std::mem::take(&mut self.0))?)
    }
}

/// Gives messages.
pub(super) trait Source {
    /// The next message; `None` at the end. The pieces of the one before have
    /// been read.
    ///
    /// # Errors
    /// [`BadInput`], or the file cannot be read.
    fn next(&mut self) -> Result<Option<Entry>>;

    /// Writes the body of the message that came last to `into`: `head.bytes`
    /// bytes, or an error.
    ///
    /// # Errors
    /// As [`Source::next`], or `into` takes no more.
    fn pieces(&mut self, into: &mut dyn Write) -> Result<()>;

    /// Where the message that came last stands, for people.
    fn place(&self) -> String;

    /// How far it is: bytes of a file, messages of another server.
    fn position(&self) -> u64;

    /// So many more of the messages it gave, in their order, are durable where they went.
    ///
    /// # Errors
    /// It does something about that, and cannot.
    fn stored(&mut self, _messages: u64) -> Result<()> {
        Ok(())
    }
}

/// A file, or standard input for `-`.
pub(super) fn open(path: &std::path::Path) -> Result<(Box<dyn Read>, Option<u64>)> {
    if path.as_os_str() == "-" {
        return Ok((Box::new(std::io::stdin()), None));
    }
    let open = || -> std::io::Result<(File, u64)> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        Ok((file, bytes))
    };
    let (file, bytes) = open().with_context(|| format!("cannot read {}", path.display()))?;
    Ok((Box::new(file), Some(bytes)))
}

/// Reads any form.
///
/// # Errors
/// It cannot be read, or is of a later version.
pub(super) fn source(from: Box<dyn Read>) -> Result<Box<dyn Source>> {
    let read = Rc::default();
    let mut from = Counted(from, Rc::clone(&read));
    let (begin, format) = begin_of(&mut from).context("cannot read the file")?;
    let is_export = is_export(&begin);
    let from = BufReader::with_capacity(1 << 18, Cursor::new(begin).chain(from));
    Ok(match format {
        Some(Format::Binary) => Box::new(BinarySource::new(from)?),
        Some(Format::Gzip) if is_export => {
            Box::new(LineSource::new(BufReader::new(Members::new(from)), read))
        }
        Some(Format::Gzip) => {
            let lines = MultiGzDecoder::new(from);
            Box::new(LineSource::new(BufReader::new(lines), read))
        }
        Some(Format::Jsonl) | None => Box::new(LineSource::new(from, read)),
    })
}

/// Counts the bytes that are read.
struct Counted<R>(R, Rc<Cell<u64>>);

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.0.read(into)?;
        self.1.set(self.1.get() + read as u64);
        Ok(read)
    }
}

/// How a file begins, and its form; `None`: it is empty.
///
/// # Errors
/// It cannot be read.
pub(super) fn begin_of(from: impl Read) -> Result<(Vec<u8>, Option<Format>)> {
    let mut begin = Vec::new();
    from.take(64).read_to_end(&mut begin)?;
    let magic = &binary::MAGIC[..begin.len().min(8)];
    let format = begin.first().map(|&first| match first {
        gzip::FIRST_BYTE => Format::Gzip,
        _ if begin.starts_with(magic) => Format::Binary,
        _ => Format::Jsonl,
    });
    Ok((begin, format))
}

/// Reads exactly `bytes` bytes of a body into memory.
fn read_body(body: &mut dyn Read, bytes: u64) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    body.take(bytes).read_to_end(&mut all)?;
    if all.len() as u64 != bytes {
        return Err(cut_short());
    }
    Ok(all)
}

/// Calls `each` with pieces of a body of `bytes` bytes; all but the last are
/// `size` bytes long.
fn in_pieces(
    body: &mut dyn Read,
    bytes: u64,
    size: usize,
    mut each: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut left = bytes;
    let mut piece = Vec::with_capacity(size);
    while left > 0 {
        piece.clear();
        let want = left.min(size as u64);
        (&mut *body).take(want).read_to_end(&mut piece)?;
        if piece.len() as u64 != want {
            return Err(cut_short());
        }
        each(&piece)?;
        left -= want;
    }
    Ok(())
}

fn cut_short() -> anyhow::Error {
    anyhow::anyhow!("the server closed the connection inside a message")
}

#[cfg(test)]
mod tests;
