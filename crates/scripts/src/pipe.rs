//! The lines of scripts on fd 3: `CMD SPACE TEXT NL` (RQ's mission text, "Queue Script
//! Processing"). Bytes in, lines out; this module does not interpret them.

/// A line, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScriptLine {
    /// How far the script is.
    Run(String),
    /// The same, in percent; the text is the whole of what followed the word.
    Progress { percent: u8, text: String },
    /// It did what it should.
    Done(String),
    /// It failed for good.
    Err(String),
    /// It passed the message on, under this full id.
    Relayed(String),
    /// It failed; again, so many seconds from now. The text is the whole of
    /// what followed the word.
    Resend { due_s: u64, text: String },
    /// A copy of its message is to go elsewhere, so many seconds from now.
    Dup { due_s: u64, dest: String },
    /// A copy, but not one that can be understood.
    BadDup,
    /// A word nobody knows: only its text counts, as a status.
    Other { word: String, text: String },
}

/// Seconds a message can be put off: ten years. More is a mistake, and the sum
/// with the time of day has to stay a time.
const DUE_MAX_S: u64 = 10 * 365 * 24 * 3600;

/// Bytes of a line before the TEXT: the longest word, a space.
const WORD_BYTES_MAX: usize = 32;

/// Said of a TEXT that was too long.
const CUT: &str = " [cut]";

/// Takes what comes through the pipe apart. Keeps at most one line, of bounded
/// length.
pub(crate) struct Parser {
    line: Vec<u8>,
    line_bytes_max: usize,
    cut: bool,
}

impl Parser {
    /// TEXT over `text_bytes_max` is cut.
    pub(crate) fn new(text_bytes_max: usize) -> Self {
        Self {
            line: Vec::new(),
            line_bytes_max: text_bytes_max.saturating_add(WORD_BYTES_MAX),
            cut: false,
        }
    }

    /// Hands each line that `bytes` complete to `on_line`.
    pub(crate) fn feed(&mut self, bytes: &[u8], mut on_line: impl FnMut(ScriptLine)) {
        let mut parts = bytes.split(|&byte| byte == b'\n');
        let mut part = parts.next();
        while let Some(piece) = part {
            let room = self.line_bytes_max - self.line.len();
            self.cut |= piece.len() > room;
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            part = parts.next();
            // What is behind the last line feed is not a line yet.
            if part.is_some() {
                self.end_line(&mut on_line);
            }
        }
    }

    /// The script is gone: what it left without a line feed counts as a line.
    pub(crate) fn finish(&mut self, mut on_line: impl FnMut(ScriptLine)) {
        if !self.line.is_empty() {
            self.end_line(&mut on_line);
        }
    }

    fn end_line(&mut self, on_line: &mut impl FnMut(ScriptLine)) {
        let mut text = printable(&self.line);
        if self.cut {
            text.push_str(CUT);
        }
        self.line.clear();
        self.cut = false;
        if !text.is_empty() {
            on_line(read(&text));
        }
    }
}

/// The text as an operator can be shown it: no control characters, and
/// replacements for what is not UTF-8.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_end_matches('\r');
    text.chars()
        .map(|c| match c {
            '\t' => ' ',
            c if c.is_control() => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .collect()
}

fn read(line: &str) -> ScriptLine {
    let (word, text) = line.split_once(' ').unwrap_or((line, ""));
    let owned = text.to_owned();
    match word {
        "run" => ScriptLine::Run(owned),
        "done" => ScriptLine::Done(owned),
        "err" | "fail" | "fails" => ScriptLine::Err(owned),
        "relayed" => ScriptLine::Relayed(owned),
        "resend" => ScriptLine::Resend {
            due_s: seconds(text.split('-').next().unwrap_or_default()).unwrap_or(0),
            text: owned,
        },
        "dup" => dup(text).unwrap_or(ScriptLine::BadDup),
        "progress" => match percent(text) {
            Some(percent) => ScriptLine::Progress {
                percent,
                text: owned,
            },
            None => other(word, owned),
        },
        _ => other(word, owned),
    }
}

fn other(word: &str, text: String) -> ScriptLine {
    let word = word.to_owned();
    ScriptLine::Other { word, text }
}

/// A number from 0 to 100, alone or before a blank or `%`.
fn percent(text: &str) -> Option<u8> {
    let end = text.find([' ', '%']).unwrap_or(text.len());
    text[..end].parse().ok().filter(|percent| *percent <= 100)
}

/// `DUE-X-DEST`; the destination may have dashes of its own, and what stands
/// for the flag is reserved.
fn dup(text: &str) -> Option<ScriptLine> {
    let mut parts = text.splitn(3, '-');
    let due_s = seconds(parts.next()?)?;
    let _flag = parts.next()?;
    let dest = parts.next()?.trim();
    (!dest.is_empty()).then(|| ScriptLine::Dup {
        due_s,
        dest: dest.to_owned(),
    })
}

fn seconds(text: &str) -> Option<u64> {
    let text = text.trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Only too many digits can be wrong now.
    Some(text.parse().unwrap_or(u64::MAX).min(DUE_MAX_S))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pieces: &[&[u8]]) -> Vec<ScriptLine> {
        let mut parser = Parser::new(16);
        let mut lines = Vec::new();
        for piece in pieces {
            parser.feed(piece, |line| lines.push(line));
        }
        parser.finish(|line| lines.push(line));
        lines
    }

    fn one(line: &str) -> ScriptLine {
        let mut lines = all(&[line.as_bytes(), b"\n"]);
        assert_eq!(lines.len(), 1, "{line:?}");
        lines.remove(0)
    }

    #[test]
    fn each_word() {
        let text = |text: &str| text.to_owned();
        assert_eq!(one("run 5 of 15"), ScriptLine::Run(text("5 of 15")));
        assert_eq!(one("done ok"), ScriptLine::Done(text("ok")));
        assert_eq!(one("done"), ScriptLine::Done(text("")));
        for word in ["err", "fail", "fails"] {
            assert_eq!(one(&format!("{word} bad")), ScriptLine::Err(text("bad")));
        }
        assert_eq!(
            one("relayed http://x/"),
            ScriptLine::Relayed(text("http://x/"))
        );
        for (line, due_s, kept) in [
            ("resend 2", 2, "2"),
            ("resend 300-down", 300, "300-down"),
            ("resend 0-a-b", 0, "0-a-b"),
            ("resend soon", 0, "soon"),
            ("resend -5", 0, "-5"),
            ("resend", 0, ""),
            ("resend 99999999999", DUE_MAX_S, "99999999999"),
        ] {
            let text = kept.to_owned();
            assert_eq!(one(line), ScriptLine::Resend { due_s, text }, "{line}");
        }
        for (kept, percent) in [("5 %", 5), ("100% done", 100), ("0", 0)] {
            let text = text(kept);
            let on_line = one(&format!("progress {kept}"));
            assert_eq!(on_line, ScriptLine::Progress { percent, text });
        }
        for kept in ["", "half", "101 %", "-1", "5.5 %"] {
            let (word, text) = (text("progress"), text(kept));
            let on_line = one(&format!("progress {kept}"));
            assert_eq!(on_line, ScriptLine::Other { word, text }, "{kept}");
        }
    }

    #[test]
    fn copies() {
        for (line, due_s, dest) in [
            ("dup 0-X-nop", 0, "nop"),
            ("dup 5-X-a-b-c", 5, "a-b-c"),
            ("dup 0--nop", 0, "nop"),
        ] {
            let dest = dest.to_owned();
            assert_eq!(one(line), ScriptLine::Dup { due_s, dest }, "{line}");
        }
        for line in ["dup", "dup nop", "dup 0-nop", "dup X-0-nop", "dup 0-X-"] {
            assert_eq!(one(line), ScriptLine::BadDup, "{line}");
        }
    }

    #[test]
    fn pieces_of_lines_and_lines_at_once() {
        let expected = [
            ScriptLine::Run("half".to_owned()),
            ScriptLine::Done("ok".to_owned()),
        ];
        assert_eq!(all(&[b"run ha", b"lf\ndone ok\n"]), expected);
        assert_eq!(all(&[b"run half\ndone ok\n"]), expected);
        assert_eq!(all(&[b"run half\r\ndone ok"]), expected);
        assert_eq!(all(&[b"run half\n\n\ndone ok\n"]), expected);
        let bytes = b"run half\ndone ok\n";
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(all(&single), expected);
    }

    #[test]
    fn long_text_is_cut_and_the_next_line_is_whole() {
        let long = [b"run ".as_slice(), &[b'x'; 1000]].concat();
        let lines = all(&[&long, b"\ndone ok\n"]);
        let ScriptLine::Run(text) = &lines[0] else {
            panic!("{lines:?}");
        };
        assert!(text.len() < 60 && text.ends_with("x [cut]"), "{text}");
        assert_eq!(lines[1], ScriptLine::Done("ok".to_owned()));
    }

    #[test]
    fn rubbish_is_bounded_and_printable() {
        let rubbish: Vec<u8> = (0..100_000u32)
            .map(|n| (n * 7 + n / 256).to_le_bytes()[0])
            .collect();
        let mut parser = Parser::new(16);
        let mut count = 0;
        for piece in rubbish.chunks(777) {
            parser.feed(piece, |on_line| {
                count += 1;
                let shown = format!("{on_line:?}");
                assert!(!shown.contains('\0') && shown.len() < 1000);
            });
            assert!(parser.line.len() <= 16 + WORD_BYTES_MAX);
        }
        assert!(count > 0);
    }
}
