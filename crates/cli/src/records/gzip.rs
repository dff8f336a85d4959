//! Lines of JSON in gzip (`docs/export-format.md`, "Compressed lines"): members one behind the
//! other, and an empty one at the end with the number of lines.

use std::cell::Cell;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::rc::Rc;

use anyhow::Result;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder, GzHeader};
use quintet_control::Head;

use super::{LineSink, Sink};

/// A file begins with it, and no line of JSON does.
pub(super) const FIRST_BYTE: u8 = 0x1f;
/// The comment of every member; that of the last one goes on with the number of lines.
const COMMENT: &str = "quintet export";
/// A member ends behind the line with which it has so many bytes.
const MEMBER: usize = 256 << 10;
/// It ends inside a line when it has so many.
const MEMBER_MAX: usize = 1 << 20;
/// A member of fewer bytes is verified before its first line is given.
const VERIFIED: usize = 2 << 20;

/// Writes compressed lines.
pub(crate) struct GzipSink<W: Write>(LineSink<Packed<W>>);

/// Compresses what is written.
struct Packed<W: Write> {
    out: W,
    member: GzEncoder<Vec<u8>>,
    /// Bytes in it.
    filled: usize,
    /// Lines in the file.
    lines: u64,
}

impl<W: Write> GzipSink<W> {
    /// Goes on with a file behind so many lines.
    pub(crate) fn new(out: W, lines: u64) -> Self {
        Self(LineSink::new(Packed {
            out,
            member: member(COMMENT.to_owned()),
            filled: 0,
            lines,
        }))
    }
}

fn member(comment: String) -> GzEncoder<Vec<u8>> {
    let member = GzBuilder::new().comment(comment);
    member.write(Vec::new(), Compression::default())
}

impl<W: Write> Packed<W> {
    /// Ends the member if it has so many bytes.
    fn end_with(&mut self, bytes: usize) -> io::Result<()> {
        if self.filled < bytes {
            return Ok(());
        }
        self.filled = 0;
        let whole = std::mem::replace(&mut self.member, member(COMMENT.to_owned()));
        self.out.write_all(&whole.finish()?)
    }
}

impl<W: Write> Write for Packed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.member.write_all(bytes)?;
        self.filled += bytes.len();
        self.end_with(MEMBER_MAX)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W: Write> Sink for GzipSink<W> {
    fn message(&mut self, head: &Head, body: &mut dyn Read) -> Result<()> {
        self.0.message(head, body)?;
        self.0.out.lines += 1;
        Ok(self.0.out.end_with(MEMBER)?)
    }

    fn finish(&mut self) -> Result<()> {
        let packed = &mut self.0.out;
        packed.end_with(1)?;
        packed.member = member(format!("{COMMENT} {}", packed.lines));
        packed.end_with(0)?;
        self.0.finish()
    }
}

/// Counts the bytes that are read.
pub(crate) struct Counted<R> {
    from: R,
    pub(crate) read: Rc<Cell<u64>>,
}

impl<R> Counted<R> {
    pub(crate) fn new(from: R) -> Self {
        let read = Rc::default();
        Self { from, read }
    }
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(into)?;
        self.consume(read);
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.from.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.read.set(self.read.get() + bytes as u64);
        self.from.consume(bytes);
    }
}

/// Reads what members have. A small one is verified first; of a longer one, which `quintet export`
/// does not write, only a part is in memory.
pub(crate) struct Members<R: BufRead> {
    from: Place<R>,
    /// Given next, from `at` on.
    held: Vec<u8>,
    at: usize,
    /// Lines so far.
    pub(crate) lines: u64,
    /// A member had the comment of an export, so that the last one has the number of lines.
    is_export: bool,
    /// That one came.
    pub(crate) ended: bool,
    /// It ended where more should be.
    pub(crate) cut: bool,
}

enum Place<R: BufRead> {
    /// Where a member begins, or the file ends.
    Between(R),
    Inside(GzDecoder<R>),
    /// Behind an error.
    Damaged,
}

impl<R: BufRead> Members<R> {
    pub(crate) fn new(from: R) -> Self {
        Self {
            from: Place::Between(from),
            held: Vec::new(),
            at: 0,
            lines: 0,
            is_export: false,
            ended: false,
            cut: false,
        }
    }

    /// True when all of the members before is given.
    pub(crate) fn is_between(&self) -> bool {
        self.at == self.held.len() && matches!(self.from, Place::Between(_))
    }

    /// Reads the next member, or more of a long one; false: there is none.
    fn more(&mut self) -> io::Result<bool> {
        let mut member = match std::mem::replace(&mut self.from, Place::Damaged) {
            Place::Inside(member) => member,
            Place::Between(mut from) => {
                if from.fill_buf()?.is_empty() {
                    self.from = Place::Between(from);
                    return match self.is_export && !self.ended {
                        true => Err(ErrorKind::UnexpectedEof.into()),
                        false => Ok(false),
                    };
                }
                let member = GzDecoder::new(from);
                self.begin(member.header().and_then(GzHeader::comment))?;
                member
            }
            Place::Damaged => return Err(ErrorKind::InvalidData.into()),
        };
        self.at = 0;
        self.held.clear();
        let read = (&mut member)
            .take(VERIFIED as u64)
            .read_to_end(&mut self.held);
        if read.is_err() {
            self.held.clear();
        }
        let is_whole = read? < VERIFIED;
        self.lines += self.held.iter().filter(|&&byte| byte == b'\n').count() as u64;
        self.from = match is_whole {
            true => Place::Between(member.into_inner()),
            false => Place::Inside(member),
        };
        Ok(true)
    }

    /// Notes the comment of a member that begins.
    fn begin(&mut self, comment: Option<&[u8]>) -> io::Result<()> {
        match comment.and_then(|comment| comment.strip_prefix(COMMENT.as_bytes())) {
            None => {}
            Some([]) => (self.is_export, self.ended) = (true, false),
            Some(lines) if lines == format!(" {}", self.lines).as_bytes() => {
                (self.ended, self.lines) = (true, 0);
            }
            Some(_) => return Err(ErrorKind::InvalidData.into()),
        }
        Ok(())
    }

    /// The same error in the words of an import.
    fn told(&mut self, error: io::Error) -> io::Error {
        let kind = error.kind();
        let why = if kind == ErrorKind::UnexpectedEof {
            self.cut = true;
            "the file ends behind it, before its end: it was cut, or its export was interrupted"
        } else if [ErrorKind::InvalidInput, ErrorKind::InvalidData].contains(&kind) {
            "the compressed lines behind it are damaged"
        } else {
            return error;
        };
        io::Error::new(ErrorKind::InvalidData, why)
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(into)?;
        self.consume(read);
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Members<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.at == self.held.len() {
            match self.more() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return Err(self.told(error)),
            }
        }
        Ok(&self.held[self.at..])
    }

    fn consume(&mut self, bytes: usize) {
        self.at += bytes;
    }
}
