//! A line of JSON for each message.

use std::cell::Cell;
use std::io::{BufRead as _, BufReader, ErrorKind, Read, Write};
use std::rc::Rc;

use anyhow::Result;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use quintet_control::{Head, plain};
use serde_json::{Value, json};

use super::{BadInput, Entry, PIECES_OVER, Sink, Source, in_pieces, read_body};

/// Lines up to this length are read at once. A small message's line is
/// shorter: six times its body, if every byte is escaped, and its head.
const LINE_MAX: usize = 2 << 20;
/// Bytes of a large body encoded at once; a multiple of three.
const PIECE: usize = 48 << 10;
/// Begins the last field of the line of a large message. Inside a JSON text
/// it cannot stand: quotes are escaped there.
const CODED_BODY: &[u8] = b",\"body_base64\":\"";

/// Writes lines.
pub(crate) struct LineSink<W: Write> {
    out: W,
    coded: String,
}

impl<W: Write> LineSink<W> {
    pub(crate) fn new(out: W) -> Self {
        let coded = String::new();
        Self { out, coded }
    }
}

impl<W: Write> Sink for LineSink<W> {
    fn message(&mut self, head: &Head, body: &mut dyn Read) -> Result<()> {
        let text = serde_json::to_string(head)?;
        // The body goes last, so that a long one can be read in pieces.
        let open = text.strip_suffix('}').unwrap_or(&text);
        self.out.write_all(open.as_bytes())?;
        let (out, coded) = (&mut self.out, &mut self.coded);
        let mut code = |out: &mut W, piece: &[u8]| -> Result<()> {
            coded.clear();
            BASE64_STANDARD.encode_string(piece, coded);
            Ok(out.write_all(coded.as_bytes())?)
        };
        if head.bytes > PIECES_OVER {
            out.write_all(CODED_BODY)?;
            in_pieces(body, head.bytes, PIECE, |piece| code(out, piece))?;
            return Ok(out.write_all(b"\"}\n")?);
        }
        let body = read_body(body, head.bytes)?;
        match std::str::from_utf8(&body) {
            Ok(text) => {
                out.write_all(b",\"body\":")?;
                serde_json::to_writer(&mut *out, text)?;
                out.write_all(b"}\n")?;
            }
            Err(_) => {
                out.write_all(CODED_BODY)?;
                code(out, &body)?;
                out.write_all(b"\"}\n")?;
            }
        }
        Ok(())
    }

    fn batch(&mut self, batch: &Value) -> Result<()> {
        serde_json::to_writer(&mut self.out, &json!({ "batch": batch }))?;
        Ok(self.out.write_all(b"\n")?)
    }

    fn finish(&mut self) -> Result<()> {
        Ok(self.out.flush()?)
    }
}

/// Reads lines.
pub(crate) struct LineSource<R: Read> {
    pub(crate) from: BufReader<R>,
    line: u64,
    /// Bytes that were read of the file.
    read: Rc<Cell<u64>>,
    /// Of a large body: what was read of its text, and its length.
    large: Option<(Vec<u8>, u64)>,
}

impl<R: Read> LineSource<R> {
    pub(crate) fn new(from: BufReader<R>, read: Rc<Cell<u64>>) -> Self {
        Self {
            from,
            line: 0,
            read,
            large: None,
        }
    }

    fn bad(&self, why: impl Into<String>) -> anyhow::Error {
        BadInput::error(self.place(), why)
    }

    /// The file cannot be read, or what gzip made of it.
    fn unread(&self, error: std::io::Error) -> anyhow::Error {
        use ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        let is_damaged = [InvalidData, InvalidInput, UnexpectedEof].contains(&error.kind());
        let (place, error) = (self.place(), anyhow::Error::new(error));
        let why = "the compressed lines behind it are cut short or damaged".to_owned();
        match is_damaged {
            true => error.context(BadInput { place, why }),
            false => error.context("cannot read the file"),
        }
    }

    /// A line that is read whole; `None`: it is a batch.
    fn whole(&self, line: &[u8]) -> Result<Option<Entry>> {
        let mut value: Value = serde_json::from_slice(line).map_err(|error| {
            let why = match error.is_eof() {
                true => "the line is cut short".to_owned(),
                false => format!("this is not JSON as export writes it: {error}"),
            };
            self.bad(why)
        })?;
        let map = value
            .as_object_mut()
            .ok_or_else(|| self.bad("the line is not a JSON object"))?;
        if map.len() == 1 && map.get("batch").is_some_and(Value::is_object) {
            return Ok(None);
        }
        let body = match (map.remove("body"), map.remove("body_base64")) {
            (Some(Value::String(text)), None) => text.into_bytes(),
            (None, Some(Value::String(text))) => BASE64_STANDARD
                .decode(text)
                .map_err(|_| self.bad("body_base64 is not base64"))?,
            _ => {
                return Err(self
                    .bad("a message needs one of body and body_base64, and its value is a text"));
            }
        };
        let mut head: Head = serde_path_to_error::deserialize(value).map_err(|error| {
            let (field, why) = (error.path().to_string(), plain(&error.inner().to_string()));
            self.bad(match why.starts_with("takes ") {
                true => format!("{field} {why}"),
                false => why,
            })
        })?;
        if head.queue.is_empty() {
            return Err(self.bad("queue takes the name of a queue; it is empty"));
        }
        let bytes = body.len() as u64;
        if head.bytes != 0 && head.bytes != bytes {
            let why = format!("the body has {bytes} bytes, not {}", head.bytes);
            return Err(self.bad(why));
        }
        head.bytes = bytes;
        let body = Some(body);
        Ok(Some(Entry { head, body }))
    }

    /// A line of which only the beginning is read.
    fn begun(&mut self, line: &[u8]) -> Result<Entry> {
        let at = line
            .windows(CODED_BODY.len())
            .position(|part| part == CODED_BODY)
            .ok_or_else(|| {
                self.bad("a line over 2 MiB ends with the field body_base64, as export writes it")
            })?;
        let mut text = line[..at].to_vec();
        text.push(b'}');
        let head: Head =
            serde_json::from_slice(&text).map_err(|error| self.bad(plain(&error.to_string())))?;
        if head.bytes <= PIECES_OVER || head.id == 0 || head.created_ms.is_none() {
            return Err(self.bad("a line over 2 MiB needs id, created_ms and bytes"));
        }
        let rest = line[at + CODED_BODY.len()..].to_vec();
        self.large = Some((rest, head.bytes));
        Ok(Entry { head, body: None })
    }
}

impl<R: Read> Source for LineSource<R> {
    fn next(&mut self) -> Result<Option<Entry>> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut from = (&mut self.from).take(LINE_MAX as u64);
            let read = from.read_until(b'\n', &mut line);
            if read.map_err(|error| self.unread(error))? == 0 {
                return Ok(None);
            }
            self.line += 1;
            if line.len() == LINE_MAX && !line.ends_with(b"\n") {
                return self.begun(&line).map(Some);
            }
            if !line.trim_ascii().is_empty()
                && let Some(entry) = self.whole(&line)?
            {
                return Ok(Some(entry));
            }
        }
    }

    fn pieces(&mut self, into: &mut dyn Write) -> Result<()> {
        let Some((mut text, bytes)) = self.large.take() else {
            return Ok(());
        };
        let mut body = Vec::new();
        let mut left = bytes;
        loop {
            let end = text.iter().position(|&byte| byte == b'"');
            let groups = end.unwrap_or(text.len() / 4 * 4);
            body.clear();
            if BASE64_STANDARD
                .decode_vec(&text[..groups], &mut body)
                .is_err()
            {
                return Err(self.bad("body_base64 is not base64"));
            }
            left = match left.checked_sub(body.len() as u64) {
                Some(left) if left == 0 || end.is_none() => left,
                _ => return Err(self.bad(format!("the body does not have {bytes} bytes"))),
            };
            into.write_all(&body)?;
            text.drain(..groups);
            if end.is_some() {
                break;
            }
            let more = match self.from.fill_buf() {
                Ok(more) => more,
                Err(error) => return Err(self.unread(error)),
            };
            if more.is_empty() {
                return Err(self.bad("the line is cut short"));
            }
            // Never into the next line.
            let some = more.iter().position(|&byte| byte == b'\n');
            let some = some.map_or(more.len(), |at| at + 1);
            text.extend_from_slice(&more[..some]);
            self.from.consume(some);
        }
        if !text.ends_with(b"\n") {
            let mut from = (&mut self.from).take(4);
            let read = from.read_until(b'\n', &mut text);
            read.map_err(|error| self.unread(error))?;
        }
        match text.trim_ascii_end() {
            b"\"}" => Ok(()),
            _ => Err(self.bad("body_base64 is not the last field")),
        }
    }

    fn place(&self) -> String {
        format!("line {}", self.line)
    }

    fn position(&self) -> u64 {
        self.read.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: Vec<u8>) -> LineSource<std::io::Cursor<Vec<u8>>> {
        let text = BufReader::with_capacity(7, std::io::Cursor::new(text));
        LineSource::new(text, Rc::default())
    }

    fn head(bytes: u64) -> Head {
        Head {
            queue: "q".to_owned(),
            id: 1,
            created_ms: Some(1),
            bytes,
            ..Head::default()
        }
    }

    #[test]
    fn bodies_of_every_kind_come_back_one_after_the_other() {
        let bodies: Vec<Vec<u8>> = [0, 5, 200, 65_536, 65_537, 1_600_000, 3_000_001]
            .iter()
            .flat_map(|&len| [vec![b'\n'; len], vec![0xff; len]])
            .collect();
        let mut sink = LineSink::new(Vec::new());
        for body in &bodies {
            sink.message(&head(body.len() as u64), &mut &body[..])
                .unwrap();
        }
        let mut source = source(sink.out);
        for body in &bodies {
            let entry = source.next().unwrap().unwrap();
            assert_eq!(entry.head, head(body.len() as u64));
            let read = entry.body.unwrap_or_else(|| {
                let mut read = Vec::new();
                source.pieces(&mut read).unwrap();
                read
            });
            assert!(read == *body, "a body of {} bytes", body.len());
        }
        assert!(source.next().unwrap().is_none());
    }

    #[test]
    fn a_batch_is_no_message() {
        let text =
            "{\"batch\":{\"id\":\"b\"}}\n{\"queue\":\"q\",\"body\":\"x\"}\n{\"batch\":\"b\"}";
        let mut source = source(text.into());
        assert_eq!(source.next().unwrap().unwrap().head.queue, "q");
        assert_eq!(source.place(), "line 2");
        assert!(source.next().is_err(), "a batch is an object");
    }

    #[test]
    fn an_error_has_its_line() {
        for (line, why) in [
            ("{\"queue\":\"q\",\"body\":\"x\"", "cut short"),
            ("nonsense", "expected"),
            ("[]", "object"),
            ("{\"queue\":\"q\"}", "body"),
            (
                "{\"queue\":\"q\",\"body\":\"x\",\"body_base64\":\"\"}",
                "body",
            ),
            ("{\"queue\":\"q\",\"body_base64\":\"!\"}", "base64"),
            ("{\"queue\":\"q\",\"bytes\":2,\"body\":\"x\"}", "1 bytes"),
            ("{\"body\":\"x\"}", "queue"),
        ] {
            let text = format!("{{\"queue\":\"q\",\"body\":\"x\"}}\n\n{line}");
            let mut source = source(text.into_bytes());
            source.next().unwrap();
            let error = source.next().err().expect(line).to_string();
            assert!(
                error.starts_with("line 3: ") && error.contains(why),
                "{error}"
            );
        }
    }

    #[test]
    fn a_long_line_that_was_cut_or_changed_is_no_message() {
        let mut sink = LineSink::new(Vec::new());
        let body = vec![0; 3_000_000];
        sink.message(&head(3_000_000), &mut &body[..]).unwrap();
        let good = sink.out;
        let cut = |len: usize| good[..len].to_vec();
        let with = |at: usize, byte: u8| {
            let mut text = good.clone();
            text[at] = byte;
            text
        };
        let end = good.len();
        for text in [
            cut(end - 4),
            cut(end - 2),
            cut(2_500_000),
            with(3_000_000, b'!'),
            with(3_000_000, b'"'),
            with(end - 2, b','),
        ] {
            let mut source = source(text);
            let entry = source.next().unwrap().unwrap();
            assert!(entry.body.is_none());
            let error = source.pieces(&mut std::io::sink()).unwrap_err();
            assert!(error.is::<BadInput>(), "{error}");
        }
    }
}
