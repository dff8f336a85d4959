//! The file of an export: new, or gone on with.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, IsTerminal as _, Read, Seek as _, SeekFrom, Write, sink, stdout};
use std::path::Path;

use anyhow::{Context, Result, bail};
use quintet_control::Head;

use crate::records::{self, BinarySink, BinarySource, Format, LineSink, LineSource, Sink, Source};

/// The output, and the whole messages at its beginning.
pub(super) type Opened = (Box<dyn Sink>, Tail);

/// Opens the output. `None`: it is complete.
///
/// # Errors
/// It exists, cannot be made, or cannot be gone on with.
pub(super) fn open(path: &Path, format: Format, resume: bool) -> Result<Option<Opened>> {
    if path.as_os_str() == "-" {
        if resume {
            bail!("--resume cannot continue standard output: name a file with --output");
        }
        if format == Format::Binary && stdout().is_terminal() {
            bail!("cannot write the binary format to a terminal: name a file with --output");
        }
        let out = BufWriter::with_capacity(1 << 18, stdout());
        return Ok(Some((sink_to(out, format)?, Tail::default())));
    }
    if resume && path.exists() {
        return reopen(path, format);
    }
    let mut new = OpenOptions::new();
    let file = new
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(
            |error| match error.kind() == std::io::ErrorKind::AlreadyExists {
                true => anyhow::anyhow!(
                    "{} exists: name a new file, or continue this one with --resume",
                    path.display()
                ),
                false => anyhow::anyhow!("cannot create {}: {error}", path.display()),
            },
        )?;
    let sink = sink_to(Durable::new(file), format)?;
    Ok(Some((sink, Tail::default())))
}

/// Cuts off what is not whole, and goes on behind it.
fn reopen(path: &Path, format: Format) -> Result<Option<Opened>> {
    let cannot = || format!("cannot read {}", path.display());
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .with_context(cannot)?;
    let found = records::format_of(&file).with_context(cannot)?;
    if found.is_some_and(|found| found != format) {
        bail!(
            "{} has another format: name it with --format",
            path.display()
        );
    }
    let tail = match format {
        Format::Jsonl => lines_tail(&mut file),
        Format::Binary => binary_tail(&mut file),
    };
    let tail = tail.with_context(cannot)?;
    if tail.complete {
        return Ok(None);
    }
    file.set_len(tail.end)?;
    file.seek(SeekFrom::Start(tail.end))?;
    let out = Durable::new(file);
    let sink: Box<dyn Sink> = match format {
        Format::Binary if tail.end > 0 => {
            Box::new(BinarySink::resume(out, tail.end, tail.messages))
        }
        Format::Binary | Format::Jsonl => sink_to(out, format)?,
    };
    Ok(Some((sink, tail)))
}

fn sink_to(out: impl Write + 'static, format: Format) -> Result<Box<dyn Sink>> {
    Ok(match format {
        Format::Jsonl => Box::new(LineSink::new(out)),
        Format::Binary => Box::new(BinarySink::new(out, quintet_host::wall_ms())?),
    })
}

/// A file that is on the disk when it was flushed.
struct Durable(BufWriter<File>);

impl Durable {
    fn new(file: File) -> Self {
        Self(BufWriter::with_capacity(1 << 18, file))
    }
}

impl Write for Durable {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()?;
        self.0.get_ref().sync_all()
    }
}

/// The whole messages at the beginning of a file.
#[derive(Default)]
pub(super) struct Tail {
    /// Where they end, bytes.
    end: u64,
    pub(super) last: Option<Head>,
    /// How many there are; unknown, 0, for lines.
    pub(super) messages: u64,
    complete: bool,
}

/// Of lines only the last is read: those before it were written before it.
fn lines_tail(file: &mut File) -> Result<Tail> {
    let end = line_end(file, file.metadata()?.len())?;
    let mut tail = Tail {
        end,
        ..Tail::default()
    };
    if let Some(before) = end.checked_sub(1) {
        let begin = line_end(file, before)?;
        file.seek(SeekFrom::Start(begin))?;
        let line = std::io::BufReader::new(file.take(end - begin));
        let mut source = LineSource::new(line);
        tail.last = source.next()?.map(|entry| entry.head);
        source.pieces(&mut sink())?;
    }
    Ok(tail)
}

/// Where the last line that ends before `limit` ends.
fn line_end(file: &mut File, limit: u64) -> Result<u64> {
    let mut bytes = [0; 1 << 16];
    let mut end = limit;
    while end > 0 {
        let begin = end.saturating_sub(bytes.len() as u64);
        let len = usize::try_from(end - begin).expect("as long as the buffer at most");
        let piece = &mut bytes[..len];
        file.seek(SeekFrom::Start(begin))?;
        file.read_exact(piece)?;
        if let Some(at) = piece.iter().rposition(|&byte| byte == b'\n') {
            return Ok(begin + at as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}

fn binary_tail(file: &mut File) -> Result<Tail> {
    let mut tail = Tail::default();
    file.seek(SeekFrom::Start(0))?;
    let mut source = match BinarySource::new(std::io::BufReader::with_capacity(1 << 18, file)) {
        Ok(source) => source,
        // Not even its head was written.
        Err(error) if error.is::<records::BadInput>() => return Ok(tail),
        Err(error) => return Err(error),
    };
    tail.end = source.offset;
    loop {
        let step = source.next().and_then(|entry| {
            source.pieces(&mut sink())?;
            Ok(entry)
        });
        match step {
            Ok(Some(entry)) => {
                if source.is_between_groups() {
                    tail.last = Some(entry.head);
                    (tail.end, tail.messages) = (source.offset, source.messages);
                }
            }
            Ok(None) => {
                tail.complete = true;
                return Ok(tail);
            }
            // What an interrupted export leaves; anything else is damage.
            Err(_) if source.cut => return Ok(tail),
            Err(error) => return Err(error),
        }
    }
}
