//! The file of an export: new, or gone on with.

use std::fs::{File, OpenOptions};
use std::io::{
    BufReader, BufWriter, ErrorKind, IsTerminal as _, Read, Seek as _, SeekFrom, Take, Write, sink,
    stdout,
};
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use quintet_control::Head;

use crate::records::{self, Format, GzipSink, LineSink, LineSource, Members, Sink, Source as _};

/// Bytes of a compressed member are fewer.
const REST: u64 = 2 << 20;
const ONLY_READ: &str = "the binary format is only read: use --format gzip, with a new file";

/// The output, and the whole messages at its beginning.
pub(super) type Opened = (Box<dyn Sink>, Tail);

/// Opens the output. `None`: it is complete.
///
/// # Errors
/// It exists, cannot be made, or cannot be gone on with.
pub(super) fn open(path: &Path, format: Format, resume: bool) -> Result<Option<Opened>> {
    if format == Format::Binary {
        bail!(ONLY_READ);
    }
    if path.as_os_str() == "-" {
        if resume {
            bail!("--resume cannot continue standard output: name a file with --output");
        }
        if format == Format::Gzip && stdout().is_terminal() {
            bail!("cannot write the gzip format to a terminal: name a file with --output");
        }
        let out = BufWriter::with_capacity(1 << 18, stdout());
        return Ok(Some((sink_to(out, format, 0), Tail::default())));
    }
    if resume && path.exists() {
        return reopen(path, format);
    }
    let mut new = OpenOptions::new();
    let file = new
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(|error| match error.kind() == ErrorKind::AlreadyExists {
            true => anyhow::anyhow!(
                "{} exists: name a new file, or continue this one with --resume",
                path.display()
            ),
            false => anyhow::anyhow!("cannot create {}: {error}", path.display()),
        })?;
    let sink = sink_to(Durable::new(file), format, 0);
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
    let (begin, found) = records::begin_of(&file).with_context(cannot)?;
    let shown = path.display();
    match found {
        Some(Format::Binary) => bail!(ONLY_READ),
        Some(Format::Gzip) if !records::is_export(&begin) => {
            bail!("{shown} was not compressed by an export: name a new file")
        }
        Some(found) if found != format => {
            bail!("{shown} has another format: name it with --format")
        }
        Some(_) | None => {}
    }
    let tail = match format {
        Format::Jsonl => lines_tail(&mut file),
        Format::Gzip | Format::Binary => gzip_tail(&mut file),
    };
    let tail = tail.with_context(cannot)?;
    if tail.complete {
        return Ok(None);
    }
    file.set_len(tail.end)?;
    file.seek(SeekFrom::Start(tail.end))?;
    let sink = sink_to(Durable::new(file), format, tail.messages);
    Ok(Some((sink, tail)))
}

/// Writes behind so many compressed lines.
fn sink_to(out: impl Write + 'static, format: Format, messages: u64) -> Box<dyn Sink> {
    match format {
        Format::Jsonl => Box::new(LineSink::new(out)),
        Format::Gzip | Format::Binary => Box::new(GzipSink::new(out, messages)),
    }
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
    /// How many lines they are; unknown, 0, where these are not compressed.
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
        let mut source = lines_of(file, begin, end)?;
        tail.last = source.next()?.map(|entry| entry.head);
        source.pieces(&mut sink())?;
    }
    if tail.last.is_none() {
        if lines_of(file, 0, end)?.next()?.is_some() {
            bail!("it does not end with a message, as an export does");
        }
        // Batches alone are written again.
        tail.end = 0;
    }
    Ok(tail)
}

fn lines_of(file: &mut File, begin: u64, end: u64) -> Result<LineSource<Take<&mut File>>> {
    file.seek(SeekFrom::Start(begin))?;
    let lines = BufReader::new(file.take(end - begin));
    Ok(LineSource::new(lines, Rc::default()))
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

fn gzip_tail(file: &mut File) -> Result<Tail> {
    let mut tail = Tail::default();
    file.seek(SeekFrom::Start(0))?;
    let from = BufReader::with_capacity(1 << 18, file);
    let lines = BufReader::new(Members::new(from));
    let mut source = LineSource::new(lines, Rc::default());
    loop {
        let step = source.next().and_then(|entry| {
            source.pieces(&mut sink())?;
            Ok(entry)
        });
        match step {
            Ok(Some(entry)) => {
                let is_empty = source.from.buffer().is_empty();
                let members = source.from.get_mut();
                if is_empty && members.is_between() {
                    tail.last = Some(entry.head);
                    (tail.end, tail.messages) = (members.from.stream_position()?, members.lines);
                }
            }
            Ok(None) => {
                tail.complete = true;
                return Ok(tail);
            }
            // What an interrupted export leaves; anything else is damage.
            Err(error) => {
                let cause = error.downcast_ref::<std::io::Error>();
                let is_cut = cause.is_some_and(|cause| cause.kind() == ErrorKind::UnexpectedEof);
                if is_cut && !is_followed(&mut source.from.get_mut().from, &tail)? {
                    return Ok(tail);
                }
                return Err(match error.is::<records::BadInput>() {
                    true => error.context("it is damaged: export into a new file"),
                    false => error,
                });
            }
        }
    }
}

/// Whether other members follow the one that cannot be read: then that is damaged, though it may
/// seem to be cut.
fn is_followed(from: &mut BufReader<&mut File>, tail: &Tail) -> Result<bool> {
    from.seek(SeekFrom::Start(tail.end))?;
    let mut members = Members::new(from);
    members.lines = tail.messages;
    let mut end = tail.end;
    while members.more().unwrap_or(false) {
        end = members.from.stream_position()?;
    }
    members.from.seek(SeekFrom::Start(end + 1))?;
    let mut rest = Vec::new();
    members.from.take(REST).read_to_end(&mut rest)?;
    Ok(rest.len() as u64 == REST || records::has_member(&rest))
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn message(id: u64, body: &[u8]) -> Head {
        Head {
            queue: "q".to_owned(),
            id,
            created_ms: Some(1),
            bytes: body.len() as u64,
            ..Head::default()
        }
    }

    #[test]
    fn a_compressed_file_cut_anywhere_is_gone_on_with_and_becomes_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("all");
        let (small, large) = (vec![b'x'; 9_000], vec![0; 1_500_000]);
        let body = |id: u64| if id == 70 { &large } else { &small };
        let write = |sink: &mut dyn Sink, first: u64| {
            for id in first..=140 {
                let body = body(id);
                sink.message(&message(id, body), &mut &body[..]).unwrap();
            }
            sink.finish().unwrap();
        };
        let (mut new, _) = open(&path, Format::Gzip, false).unwrap().unwrap();
        write(&mut *new, 1);
        drop(new);
        assert!(open(&path, Format::Gzip, true).unwrap().is_none(), "whole");
        let good = std::fs::read(&path).unwrap();
        let len = good.len();
        let mut kept = Vec::new();
        for len in (0..len).step_by(len / 20).chain([1, 20, len - 1]) {
            std::fs::write(&path, &good[..len]).unwrap();
            let (mut sink, tail) = open(&path, Format::Gzip, true).unwrap().unwrap();
            let last = tail.last.map_or(0, |head| head.id);
            assert_eq!(tail.messages, last);
            write(&mut *sink, last + 1);
            drop(sink);
            assert!(std::fs::read(&path).unwrap() == good, "cut at {len}");
            kept.push(last);
        }
        assert!(kept.contains(&0) && kept.contains(&140), "{kept:?}");
        assert!(kept.iter().any(|last| (1..140).contains(last)), "{kept:?}");
    }

    #[test]
    fn a_file_of_another_form_or_damaged_is_not_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("all");
        let (mut new, _) = open(&path, Format::Gzip, false).unwrap().unwrap();
        new.message(&message(1, b"x"), &mut &b"x"[..]).unwrap();
        new.finish().unwrap();
        drop(new);
        let good = std::fs::read(&path).unwrap();
        let why = |format| {
            let opened = open(&path, format, true).map(drop);
            format!("{:#}", opened.unwrap_err())
        };
        assert!(why(Format::Jsonl).contains("another format"));
        assert!(why(Format::Binary).contains("use --format gzip"));
        // The checksum of the first of two members.
        let comment = b"quintet export 1";
        let end = good
            .windows(comment.len())
            .rposition(|some| some == comment);
        let mut bad = good.clone();
        bad[end.unwrap() - 10 - 8] ^= 0xff;
        // A longer header, which ends behind the file.
        let mut long = good.clone();
        long[3] |= 4;
        let mut foreign = GzEncoder::new(Vec::new(), Compression::fast());
        foreign.write_all(&[b'x'; 100]).unwrap();
        let foreign = foreign.finish().unwrap();
        let blank = b"{\"queue\":\"q\",\"body\":\"x\"}\n\n".to_vec();
        for (format, file, wanted) in [
            (Format::Gzip, bad, "damaged"),
            (Format::Gzip, long, "damaged"),
            (
                Format::Gzip,
                foreign[..20].to_vec(),
                "not compressed by an export",
            ),
            (Format::Gzip, b"QUINTEXP".to_vec(), "only read"),
            (Format::Jsonl, blank, "does not end with a message"),
        ] {
            std::fs::write(&path, &file).unwrap();
            let why = why(format);
            assert!(why.contains(wanted), "{why}");
            assert!(
                std::fs::read(&path).unwrap() == file,
                "{why}: it is as it was"
            );
        }
    }
}
