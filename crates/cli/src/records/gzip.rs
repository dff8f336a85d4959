//! Lines of JSON in gzip (`docs/export-format.md`, "Compressed lines"): members one behind the
//! other, and an empty one at the end.

use std::io::{self, BufRead, Cursor, ErrorKind, Read, Write};

use anyhow::Result;
use flate2::bufread::GzDecoder;
use flate2::{Compression, GzBuilder, GzHeader};
use quintet_control::Head;
use serde_json::Value;

use super::{LineSink, Sink};

/// A compressed file begins with it, and no line of JSON does.
pub(super) const FIRST_BYTE: u8 = 0x1f;
/// The comment of every member; that of the last one goes on with the number of lines.
const COMMENT: &str = "quintet export";
/// Bytes of a member's header before its comment.
const HEADER: usize = 10;
/// A member ends behind the line with which it has so many bytes.
const MEMBER: usize = 256 << 10;
/// It ends inside a line when it has so many.
const MEMBER_MAX: usize = 1 << 20;

/// Whether a compressed file that begins so is an export, also if it was cut there.
pub(crate) fn is_export(begin: &[u8]) -> bool {
    let mut comment = begin.iter().skip(HEADER).zip(COMMENT.as_bytes());
    comment.all(|(is, wanted)| is == wanted)
}

/// Whether a member begins somewhere in these bytes.
pub(crate) fn has_member(bytes: &[u8]) -> bool {
    let begins = |some: &[u8]| some.starts_with(&[FIRST_BYTE, 0x8b]) && is_export(some);
    bytes.windows(HEADER + COMMENT.len()).any(begins)
}

/// Writes compressed lines.
pub(crate) struct GzipSink<W: Write> {
    out: W,
    /// Of the member that is not written yet.
    held: Vec<u8>,
    /// How many are in the file.
    lines: u64,
}

impl<W: Write> GzipSink<W> {
    /// Goes on with a file behind so many lines.
    pub(crate) fn new(out: W, lines: u64) -> Self {
        let held = Vec::new();
        Self { out, held, lines }
    }

    /// Writes a member if it has so many bytes.
    fn end_with(&mut self, bytes: usize) -> io::Result<()> {
        match self.held.len() < bytes {
            true => Ok(()),
            false => self.member(COMMENT.to_owned()),
        }
    }

    fn member(&mut self, comment: String) -> io::Result<()> {
        let member = GzBuilder::new().comment(comment);
        let mut member = member.write(Vec::new(), Compression::default());
        member.write_all(&self.held)?;
        self.held.clear();
        self.out.write_all(&member.finish()?)
    }
}

impl<W: Write> Write for GzipSink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let some = bytes.len().min(MEMBER_MAX - self.held.len());
        self.held.extend_from_slice(&bytes[..some]);
        self.end_with(MEMBER_MAX)?;
        Ok(some)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W: Write> Sink for GzipSink<W> {
    fn message(&mut self, head: &Head, body: &mut dyn Read) -> Result<()> {
        LineSink::new(&mut *self).message(head, body)?;
        self.lines += 1;
        Ok(self.end_with(MEMBER)?)
    }

    fn batch(&mut self, batch: &Value) -> Result<()> {
        LineSink::new(&mut *self).batch(batch)?;
        self.lines += 1;
        Ok(self.end_with(MEMBER)?)
    }

    fn finish(&mut self) -> Result<()> {
        self.end_with(1)?;
        self.member(format!("{COMMENT} {}", self.lines))?;
        Ok(self.flush()?)
    }
}

/// Reads what an export compressed; a member is verified before its first line is given.
pub(crate) struct Members<R> {
    pub(crate) from: R,
    /// Given next.
    held: Cursor<Vec<u8>>,
    /// Lines so far.
    pub(crate) lines: u64,
    /// The last member was read.
    ended: bool,
}

impl<R: BufRead> Members<R> {
    pub(crate) fn new(from: R) -> Self {
        Self {
            from,
            held: Cursor::default(),
            lines: 0,
            ended: false,
        }
    }

    /// True when everything of the members before was given.
    pub(crate) fn is_between(&self) -> bool {
        self.held.position() == self.held.get_ref().len() as u64
    }

    /// Reads the next member; false: there is none.
    ///
    /// # Errors
    /// It is damaged, cut or of no export, or it cannot be read.
    pub(crate) fn more(&mut self) -> io::Result<bool> {
        if self.from.fill_buf()?.is_empty() {
            return match self.ended {
                true => Ok(false),
                false => Err(ErrorKind::UnexpectedEof.into()),
            };
        }
        let mut member = GzDecoder::new(&mut self.from);
        let comment = member.header().and_then(GzHeader::comment);
        let comment = comment.unwrap_or_default().to_vec();
        let mut held = Vec::new();
        (&mut member)
            .take(MEMBER_MAX as u64 + 1)
            .read_to_end(&mut held)?;
        self.ended = comment == format!("{COMMENT} {}", self.lines).as_bytes();
        if held.len() > MEMBER_MAX || !self.ended && comment != COMMENT.as_bytes() {
            return Err(ErrorKind::InvalidData.into());
        }
        let lines = held.iter().filter(|&&byte| byte == b'\n').count() as u64;
        self.lines = if self.ended { 0 } else { self.lines + lines };
        self.held = Cursor::new(held);
        Ok(true)
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.is_between() && self.more()? {}
        self.held.read(into)
    }
}
