//! The bytes of a transcript's line, written so that a person can read them.

use std::collections::BTreeMap;

/// Meaning of a transcript's names at the moment of use.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Unix time in seconds.
    pub(super) now_s: u64,
    /// Numbers the server has given.
    ids: BTreeMap<String, Vec<u8>>,
}

impl Names {
    /// No number is known yet.
    pub(super) fn at(now_s: u64) -> Self {
        Self {
            now_s,
            ids: BTreeMap::new(),
        }
    }
}

/// A piece of what is sent or expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Bytes(Vec<u8>),
    /// Unix time in seconds at the moment of use, plus so many.
    Now(i64),
    /// The number of this name.
    Id(String),
    /// Anything up to the end of the line; only in what is expected.
    Any,
    /// The moment of use, plus so many seconds, as RFC 3339 writes it.
    At(i64),
    /// Any time that looks so, any digit being 0; only in what is expected.
    Time(&'static [u8]),
}

/// Reads the text of one line. CR LF is added unless it ends in a backslash.
pub(super) fn parse(text: &str) -> Result<Vec<Part>, String> {
    let (text, end) = match text.strip_suffix('\\') {
        // An escaped backslash is not a continuation.
        Some(_) if text.ends_with("\\\\") => (text, "\r\n"),
        Some(rest) => (rest, ""),
        None => (text, "\r\n"),
    };
    let mut parts = Vec::new();
    pieces(text, &mut parts)?;
    bytes_of(&mut parts).extend_from_slice(end.as_bytes());
    Ok(parts)
}

fn pieces(mut text: &str, parts: &mut Vec<Part>) -> Result<(), String> {
    while let Some(first) = text.chars().next() {
        if first == '\\' {
            let (byte, rest) = escape(text)?;
            bytes_of(parts).push(byte);
            text = rest;
        } else if let Some((macro_, rest)) = braces(text) {
            expand(macro_, parts)?;
            text = rest;
        } else {
            let (head, rest) = text.split_at(first.len_utf8());
            bytes_of(parts).extend_from_slice(head.as_bytes());
            text = rest;
        }
    }
    Ok(())
}

/// `\xNN`, `\0`, `\r`, `\n`, `\\`: the byte, and what follows.
fn escape(text: &str) -> Result<(u8, &str), String> {
    let bad = || format!("bad escape at \"{text}\"");
    let simple = |byte| text.get(2..).map(|rest| (byte, rest)).ok_or_else(bad);
    match text.as_bytes().get(1) {
        Some(b'0') => simple(0),
        Some(b'r') => simple(b'\r'),
        Some(b'n') => simple(b'\n'),
        Some(b'\\') => simple(b'\\'),
        Some(b'x') => {
            let digits = text.get(2..4).ok_or_else(bad)?;
            let byte = u8::from_str_radix(digits, 16).map_err(|_| bad())?;
            Ok((byte, &text[4..]))
        }
        _ => Err(bad()),
    }
}

/// `{word ...}` in front of `text`, for the words that mean something.
fn braces(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('{')?;
    let known = [
        "repeat ", "now", "any}", "bytes}", "le32 ", "le64 ", "id ", "at ", "time}", "clock}",
    ];
    if !known.iter().any(|word| inner.starts_with(word)) {
        return None;
    }
    inner.split_once('}')
}

fn expand(macro_: &str, parts: &mut Vec<Part>) -> Result<(), String> {
    if macro_ == "any" {
        parts.push(Part::Any);
    } else if macro_ == "time" {
        parts.push(Part::Time(b"0000-00-00T00:00:00.000Z"));
    } else if macro_ == "clock" {
        parts.push(Part::Time(b"00:00:00"));
    } else if let Some(offset) = macro_.strip_prefix("at ") {
        let offset = offset.parse().map_err(|_| bad_number(offset))?;
        parts.push(Part::At(offset));
    } else if let Some(name) = macro_.strip_prefix("id ") {
        parts.push(Part::Id(name.to_owned()));
    } else if macro_ == "bytes" {
        bytes_of(parts).extend(0..=u8::MAX);
    } else if let Some(number) = macro_.strip_prefix("le32 ") {
        let number: u32 = number.parse().map_err(|_| bad_number(number))?;
        bytes_of(parts).extend(number.to_le_bytes());
    } else if let Some(number) = macro_.strip_prefix("le64 ") {
        let number: u64 = number.parse().map_err(|_| bad_number(number))?;
        bytes_of(parts).extend(number.to_le_bytes());
    } else if let Some(offset) = macro_.strip_prefix("now") {
        let offset = match offset {
            "" => 0,
            _ => offset.parse().map_err(|_| format!("bad time {offset}"))?,
        };
        parts.push(Part::Now(offset));
    } else {
        let (count, what) = macro_
            .strip_prefix("repeat ")
            .and_then(|rest| rest.split_once(' '))
            .ok_or_else(|| format!("{{repeat COUNT TEXT}}, not {{{macro_}}}"))?;
        let count: usize = count.parse().map_err(|_| format!("bad count {count}"))?;
        let mut inner = Vec::new();
        pieces(what, &mut inner)?;
        match inner.as_slice() {
            [Part::Bytes(bytes)] => bytes_of(parts).extend(bytes.repeat(count)),
            _ => return Err("only bytes can be repeated".to_owned()),
        }
    }
    Ok(())
}

/// A Unix time in UTC, with whole seconds.
fn rfc3339(unix_s: u64) -> String {
    let (mut day, second) = (unix_s / 86_400, unix_s % 86_400);
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!(
        "{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z",
        day + 1
    )
}

fn bad_number(text: &str) -> String {
    format!("bad number {text}")
}

/// The bytes at the end of `parts`, begun if there are none.
fn bytes_of(parts: &mut Vec<Part>) -> &mut Vec<u8> {
    if !matches!(parts.last(), Some(Part::Bytes(_))) {
        parts.push(Part::Bytes(Vec::new()));
    }
    match parts.last_mut() {
        Some(Part::Bytes(bytes)) => bytes,
        _ => unreachable!("bytes were just pushed"),
    }
}

/// The bytes to send.
pub(super) fn bytes(parts: &[Part], names: &Names) -> Vec<u8> {
    let mut all = Vec::new();
    for part in parts {
        match part {
            Part::Bytes(bytes) => all.extend_from_slice(bytes),
            Part::Now(offset) => {
                let at = names.now_s.saturating_add_signed(*offset);
                all.extend_from_slice(at.to_string().as_bytes());
            }
            // Nobody has given it: any number will do.
            Part::Id(name) => all.extend_from_slice(names.ids.get(name).map_or(b"1", |id| id)),
            Part::At(offset) => {
                let at = names.now_s.saturating_add_signed(*offset);
                all.extend_from_slice(rfc3339(at).as_bytes());
            }
            Part::Any | Part::Time(_) => {}
        }
    }
    all
}

/// How bytes compare with what is expected.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// The first so many are what is expected.
    Yes(usize),
    /// So far they are, but more must come.
    More,
    /// They differ.
    No,
}

/// Compares the front of `actual` with what is expected.
pub(super) fn compare(parts: &[Part], actual: &[u8], names: &mut Names) -> Match {
    let mut at = 0;
    let mut granted = Vec::new();
    for part in parts {
        let rest = &actual[at..];
        let expected = match part {
            Part::Any => {
                match rest.iter().position(|&byte| byte == b'\r' || byte == b'\n') {
                    Some(end) => at += end,
                    None => return Match::More,
                }
                continue;
            }
            Part::Id(name) if !names.ids.contains_key(name) => {
                match rest.iter().position(|byte| !byte.is_ascii_digit()) {
                    Some(0) => return Match::No,
                    Some(end) => {
                        granted.push((name.clone(), rest[..end].to_vec()));
                        at += end;
                    }
                    None => return Match::More,
                }
                continue;
            }
            Part::Time(shape) => {
                let fits = |(&byte, &shape): (&u8, &u8)| match shape {
                    b'0' => byte.is_ascii_digit(),
                    shape => byte == shape,
                };
                if !rest.iter().zip(*shape).all(fits) {
                    return Match::No;
                }
                if rest.len() < shape.len() {
                    return Match::More;
                }
                at += shape.len();
                continue;
            }
            Part::Bytes(_) | Part::Now(_) | Part::Id(_) | Part::At(_) => {
                bytes(std::slice::from_ref(part), names)
            }
        };
        if rest.len() < expected.len() {
            return if expected.starts_with(rest) {
                Match::More
            } else {
                Match::No
            };
        }
        if !rest.starts_with(&expected) {
            return Match::No;
        }
        at += expected.len();
    }
    names.ids.extend(granted);
    Match::Yes(at)
}

/// Writes bytes as lines that [`parse`] reads back.
pub(super) fn lines(actual: &[u8]) -> Vec<String> {
    actual
        .split_inclusive(|&byte| byte == b'\n')
        .map(line)
        .collect()
}

/// Shortest run of one byte that is written as a repeat.
const RUN_MIN: usize = 40;

fn line(bytes: &[u8]) -> String {
    let (body, end) = match bytes.strip_suffix(b"\r\n") {
        Some(body) => (body, ""),
        None => (bytes, "\\"),
    };
    let mut text = String::new();
    for run in body.chunk_by(|a, b| a == b) {
        let one = match run[0] {
            b'\\' => "\\\\".to_owned(),
            b'\n' => "\\n".to_owned(),
            b'\r' => "\\r".to_owned(),
            byte @ 0x20..=0x7e => char::from(byte).to_string(),
            byte => format!("\\x{byte:02x}"),
        };
        if run.len() >= RUN_MIN {
            text.push_str(&format!("{{repeat {} {one}}}", run.len()));
        } else {
            text.push_str(&one.repeat(run.len()));
        }
    }
    text + end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_text_reads_back() {
        for actual in [
            &b"VALUE w 0 5\r\n"[..],
            b"",
            b"no end",
            b"bare\n",
            b"\x00\xff\\{}\r\n",
            &[b'x'; 100],
            b"queue 'w' {\r\n",
        ] {
            let text = line(actual);
            let names = Names::default();
            assert_eq!(bytes(&parse(&text).unwrap(), &names), actual, "{text}");
        }
    }

    #[test]
    fn expectations() {
        let mut names = Names::at(100);
        let mut compare =
            |text, actual: &str| compare(&parse(text).unwrap(), actual.as_bytes(), &mut names);
        assert_eq!(compare("END", "END\r\nx"), Match::Yes(5));
        assert_eq!(compare("END", "EN"), Match::More);
        assert_eq!(compare("END", "EX"), Match::No);
        assert_eq!(compare("STAT pid {any}", "STAT pid 12\r\n"), Match::Yes(13));
        assert_eq!(compare("STAT pid {any}", "STAT pid 12"), Match::More);
        assert_eq!(compare("{now-5}", "95\r\n"), Match::Yes(4));
        assert_eq!(compare("{repeat 3 ab}\\", "ababab"), Match::Yes(6));
        assert_eq!(compare("DONE {id a}", "DONE 1"), Match::More);
        assert_eq!(compare("DONE {id a}", "DONE x\r\n"), Match::No);
        assert_eq!(compare("DONE {id a}", "DONE 12\r\n"), Match::Yes(9));
        assert_eq!(compare("DONE {id a}", "DONE 13\r\n"), Match::No);
        assert_eq!(compare("DONE {id a}", "DONE 12\r\n"), Match::Yes(9));
    }

    #[test]
    fn mistakes_have_their_line() {
        for bad in ["\\q", "\\x1", "{repeat x y}", "{now!}", "{repeat 2 }"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
