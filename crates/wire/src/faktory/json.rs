//! JSON as far as jobs need it: every value is checked once, without recursion,
//! and kept as its own text, so that numbers and escapes of a job's arguments
//! leave as they came.

use std::borrow::Cow;

/// Deepest nesting of a value.
const DEPTH_MAX: usize = 1000;

/// Why bytes are no JSON, and which byte is the first that is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bad {
    at: usize,
    what: &'static str,
}

impl Bad {
    pub(super) fn text(&self) -> String {
        format!("{} at byte {}", self.what, self.at)
    }
}

/// Kind of a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Bool,
    Number,
    Text,
    Array,
    Object,
}

/// A value that was checked, as its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value<'a> {
    pub(super) kind: Kind,
    text: &'a str,
}

/// Bytes as text: what is no UTF-8 becomes U+FFFD.
pub(super) fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Reads the only value of a text.
pub(super) fn whole(text: &str) -> Result<Value<'_>, Bad> {
    let mut reader = Reader { text, at: 0 };
    let value = reader.value()?;
    reader.blanks();
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(reader.bad("something follows the value")),
    }
}

/// The object that is the whole text.
pub(super) fn object(text: &str) -> Option<Value<'_>> {
    let value = whole(text).ok();
    value.filter(|value| value.kind == Kind::Object)
}

impl<'a> Value<'a> {
    pub(super) fn is_true(self) -> bool {
        self.text == "true"
    }

    /// The members of an object, in order; none of another value.
    pub(super) fn members(self) -> impl Iterator<Item = (Cow<'a, str>, Value<'a>)> {
        let mut parts = self.parts(Kind::Object);
        std::iter::from_fn(move || {
            let name = parts.next_value()?;
            parts.blanks();
            parts.at += 1;
            Some((name.string().unwrap_or_default(), parts.value().ok()?))
        })
    }

    /// The members that are not `null`: one that is counts as absent.
    pub(super) fn given(self) -> impl Iterator<Item = (Cow<'a, str>, Value<'a>)> {
        self.members().filter(|(_, value)| value.kind != Kind::Null)
    }

    /// The elements of an array, in order; none of another value.
    pub(super) fn elements(self) -> impl Iterator<Item = Value<'a>> {
        let mut parts = self.parts(Kind::Array);
        std::iter::from_fn(move || parts.next_value())
    }

    /// The text between the brackets of an array; none of another value.
    pub(super) fn inside(self) -> &'a str {
        self.parts(Kind::Array).text
    }

    fn parts(self, kind: Kind) -> Reader<'a> {
        let text = match self.kind == kind {
            // Without its brackets.
            true => &self.text[1..self.text.len() - 1],
            false => "",
        };
        Reader { text, at: 0 }
    }

    /// The text of a JSON string.
    pub(super) fn string(self) -> Option<Cow<'a, str>> {
        if self.kind != Kind::Text {
            return None;
        }
        let inner = &self.text[1..self.text.len() - 1];
        match inner.contains('\\') {
            false => Some(Cow::Borrowed(inner)),
            true => Some(Cow::Owned(unescaped(inner))),
        }
    }

    /// A whole number that is written as one.
    pub(super) fn whole_number(self) -> Option<i64> {
        (self.kind == Kind::Number)
            .then(|| self.text.parse().ok())
            .flatten()
    }

    /// Appends it without the blanks between its tokens.
    pub(super) fn compact(self, out: &mut String) {
        let mut rest = self.text;
        while !rest.is_empty() {
            // Where a string begins, or blanks do.
            let end = rest.find(['"', ' ', '\t', '\r', '\n']);
            let end = end.unwrap_or(rest.len());
            out.push_str(&rest[..end]);
            rest = &rest[end..];
            if rest.starts_with('"') {
                let len = string_len(rest);
                out.push_str(&rest[..len]);
                rest = &rest[len..];
            } else {
                rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
            }
        }
    }
}

/// The element at or behind this byte of the inside of a checked array, and its end.
pub(super) fn element(inside: &str, at: usize) -> Option<(Value<'_>, usize)> {
    let mut reader = Reader { text: inside, at };
    let value = reader.next_value()?;
    Some((value, reader.at))
}

/// Appends a string's JSON.
pub(super) fn quote(text: &str, out: &mut String) {
    out.push('"');
    let mut from = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape: &str = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0..=0x1f => "",
            _ => continue,
        };
        out.push_str(&text[from..at]);
        out.push_str(escape);
        if escape.is_empty() {
            out.push_str(&format!("\\u{byte:04x}"));
        }
        from = at + 1;
    }
    out.push_str(&text[from..]);
    out.push('"');
}

/// The length of the checked string that a text begins with.
fn string_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while let Some(found) = memchr::memchr2(b'"', b'\\', &bytes[at..]) {
        at += found;
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}

/// Unescapes the inside of a checked string.
fn unescaped(inner: &str) -> String {
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = rest.as_bytes()[at + 1];
        rest = &rest[at + 2..];
        match escape {
            b'b' => out.push('\u{8}'),
            b'f' => out.push('\u{c}'),
            b'n' => out.push('\n'),
            b'r' => out.push('\r'),
            b't' => out.push('\t'),
            b'u' => {
                let (char, used) = unit(rest);
                out.push(char);
                rest = &rest[used..];
            }
            other => out.push(char::from(other)),
        }
    }
    out.push_str(rest);
    out
}

/// The letter of the hex digits behind `\u`, and of a second half behind them;
/// how many bytes that was.
fn unit(text: &str) -> (char, usize) {
    let hex = |text: &str| {
        let digits = text.get(..4)?;
        u32::from_str_radix(digits, 16).ok()
    };
    let first = hex(text).unwrap_or(0xfffd);
    let second = text
        .get(4..)
        .and_then(|rest| hex(rest.strip_prefix("\\u")?));
    if let (0xd800..0xdc00, Some(second @ 0xdc00..0xe000)) = (first, second) {
        let both = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        return (char::from_u32(both).unwrap_or('\u{fffd}'), 10);
    }
    // Half of a pair is no letter.
    (char::from_u32(first).unwrap_or('\u{fffd}'), 4)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Goes past this byte if it is next; whether it was.
    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn bad(&self, what: &'static str) -> Bad {
        Bad { at: self.at, what }
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    /// The next of several checked values, past the comma before it.
    fn next_value(&mut self) -> Option<Value<'a>> {
        self.blanks();
        self.eat(b',');
        self.value().ok()
    }

    /// Checks a value, with all that is in it.
    fn value(&mut self) -> Result<Value<'a>, Bad> {
        self.blanks();
        let start = self.at;
        let kind = match self.peek() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::Text,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'n') => Kind::Null,
            _ => Kind::Number,
        };
        // Whether what is open is an object, from the outside in.
        let mut open: Vec<bool> = Vec::new();
        loop {
            self.blanks();
            match self.peek() {
                Some(begin @ (b'{' | b'[')) => {
                    if open.len() == DEPTH_MAX {
                        return Err(self.bad("nested too deeply"));
                    }
                    self.at += 1;
                    self.blanks();
                    let object = begin == b'{';
                    if !self.eat(if object { b'}' } else { b']' }) {
                        open.push(object);
                        if object {
                            self.name()?;
                        }
                        continue;
                    }
                }
                _ => self.scalar()?,
            }
            // A value has ended; so may what it is in.
            loop {
                let Some(&object) = open.last() else {
                    let text = &self.text[start..self.at];
                    return Ok(Value { kind, text });
                };
                self.blanks();
                match self.peek() {
                    Some(b',') => {
                        self.at += 1;
                        if object {
                            self.name()?;
                        }
                        break;
                    }
                    Some(b'}') if object => self.at += 1,
                    Some(b']') if !object => self.at += 1,
                    _ => return Err(self.bad("a comma or an end is missing")),
                }
                open.pop();
            }
        }
    }

    /// A member's name and the colon behind it.
    fn name(&mut self) -> Result<(), Bad> {
        self.blanks();
        if self.peek() != Some(b'"') {
            return Err(self.bad("a name is missing"));
        }
        self.scalar()?;
        self.blanks();
        match self.eat(b':') {
            true => Ok(()),
            false => Err(self.bad("a colon is missing")),
        }
    }

    fn scalar(&mut self) -> Result<(), Bad> {
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => {
                let rest = &self.text.as_bytes()[self.at..];
                let words: [&[u8]; 3] = [b"true", b"false", b"null"];
                let word = words.into_iter().find(|word| rest.starts_with(word));
                self.at += word.ok_or_else(|| self.bad("no value"))?.len();
                Ok(())
            }
            None => Err(self.bad("a value is missing")),
        }
    }

    fn string(&mut self) -> Result<(), Bad> {
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {}
                        Some(b'u') => {
                            for _ in 0..4 {
                                self.at += 1;
                                if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                                    return Err(self.bad("a hex digit is missing"));
                                }
                            }
                        }
                        _ => return Err(self.bad("no escape")),
                    }
                    self.at += 1;
                }
                Some(0..=0x1f) => return Err(self.bad("a control character in a string")),
                Some(_) => self.at += 1,
                None => return Err(self.bad("a string does not end")),
            }
        }
    }

    fn number(&mut self) -> Result<(), Bad> {
        self.eat(b'-');
        if !self.eat(b'0') {
            self.digits()?;
        }
        if self.eat(b'.') {
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            let _sign = self.eat(b'+') || self.eat(b'-');
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Bad> {
        let from = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        match self.at > from {
            true => Ok(()),
            false => Err(self.bad("a digit is missing")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compacted(text: &str) -> String {
        let mut out = String::new();
        whole(text).expect("JSON").compact(&mut out);
        out
    }

    #[test]
    fn values_keep_their_text_without_blanks() {
        for (text, expected) in [
            ("[1.0, 12345678901234567890]", "[1.0,12345678901234567890]"),
            (" { \"a b\" : [ ] , \"c\" : { } } ", r#"{"a b":[],"c":{}}"#),
            (r#"["a \" b", "\\", "<&>"]"#, r#"["a \" b","\\","<&>"]"#),
            ("\t-0.5E+7\r\n", "-0.5E+7"),
            ("[true ,false, null]", "[true,false,null]"),
        ] {
            assert_eq!(compacted(text), expected);
        }
    }

    #[test]
    fn invalid_json_is_an_error() {
        for (text, why) in [
            ("", "a value is missing at byte 0"),
            ("{", "a name is missing at byte 1"),
            ("{\"a\"", "a colon is missing at byte 4"),
            ("{\"a\":1", "a comma or an end is missing at byte 6"),
            ("{\"a\":1,}", "a name is missing at byte 7"),
            ("[1,]", "no value at byte 3"),
            ("[1}", "a comma or an end is missing at byte 2"),
            ("{} x", "something follows the value at byte 3"),
            ("01", "something follows the value at byte 1"),
            ("1.", "a digit is missing at byte 2"),
            ("-", "a digit is missing at byte 1"),
            ("nul", "no value at byte 0"),
            ("\"a\nb\"", "a control character in a string at byte 2"),
            ("\"\\x\"", "no escape at byte 2"),
            ("\"\\u12g4\"", "a hex digit is missing at byte 5"),
            ("\"abc", "a string does not end at byte 4"),
        ] {
            assert_eq!(whole(text).unwrap_err().text(), why, "{text}");
        }
    }

    #[test]
    fn depth_has_a_bound_and_needs_no_stack() {
        let deep = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert!(whole(&deep(DEPTH_MAX)).is_ok());
        assert!(whole(&deep(DEPTH_MAX + 1)).is_err());
        assert!(whole(&"[".repeat(1_000_000)).is_err());
    }

    #[test]
    fn members_and_elements() {
        let object = whole(r#"{"a": [1, "x"], "\u0062" :{}, "a":null}"#).unwrap();
        let members: Vec<_> = object.members().collect();
        let names: Vec<_> = members.iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(names, ["a", "b", "a"]);
        let kinds: Vec<_> = members[0].1.elements().map(|value| value.kind).collect();
        assert_eq!(kinds, [Kind::Number, Kind::Text]);
        assert_eq!(members[2].1.kind, Kind::Null);
        assert_eq!(object.elements().count(), 0);
        assert_eq!(members[1].1.members().count(), 0);
    }

    #[test]
    fn strings_and_numbers() {
        let string = |text| whole(text).unwrap().string().map(Cow::into_owned);
        assert_eq!(
            string(r#""\u03b1\n\"\/\ud83d\ude00""#).unwrap(),
            "\u{3b1}\n\"/\u{1f600}"
        );
        assert_eq!(string(r#""\ud83d""#).unwrap(), "\u{fffd}");
        assert_eq!(string(r#""\ud83d\u0041""#).unwrap(), "\u{fffd}A");
        assert_eq!(string("5"), None);
        let number = |text| whole(text).unwrap().whole_number();
        assert_eq!(number("-25"), Some(-25));
        for text in ["1e2", "2.0", "99999999999999999999", "\"3\"", "true"] {
            assert_eq!(number(text), None, "{text}");
        }
        let mut out = String::new();
        quote("a\"\\\n\u{1}\u{1f600}<", &mut out);
        assert_eq!(out, "\"a\\\"\\\\\\n\\u0001\u{1f600}<\"");
        assert_eq!(string(&out).unwrap(), "a\"\\\n\u{1}\u{1f600}<");
    }
}
