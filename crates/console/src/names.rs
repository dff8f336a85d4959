//! Names and bodies, which are bytes, in addresses and on pages.

use quintet_types::Name;

/// A part of what is shown: text, or bytes that are shown as `\xNN`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) text: String,
    /// Stands for bytes that are no letters.
    pub(super) escaped: bool,
}

/// Bytes as a page shows them: letters of UTF-8 as letters; a backslash as `\\`;
/// controls, what steers the direction of text and what cannot be seen as
/// `\xNN`.
pub(super) fn pieces(bytes: &[u8]) -> Vec<Piece> {
    let mut all = Pieces::default();
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' => all.add("\\\\", true),
                _ if is_hidden(letter) => {
                    let mut utf8 = [0; 4];
                    all.add_hex(letter.encode_utf8(&mut utf8).as_bytes());
                }
                _ => all.add(letter.encode_utf8(&mut [0; 4]), false),
            }
        }
        all.add_hex(chunk.invalid());
    }
    all.0
}

#[derive(Default)]
struct Pieces(Vec<Piece>);

impl Pieces {
    fn add(&mut self, text: &str, escaped: bool) {
        match self.0.last_mut() {
            Some(last) if last.escaped == escaped => last.text.push_str(text),
            _ => self.0.push(Piece {
                text: text.to_owned(),
                escaped,
            }),
        }
    }

    fn add_hex(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.add(&format!("\\x{byte:02x}"), true);
        }
    }
}

/// True for what a reader would not see, or would be misled by.
fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || (letter.is_whitespace() && letter != ' ')
        || matches!(letter,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Bytes as text in one line that cannot mislead its reader: letters of UTF-8 are kept; a backslash
/// is `\\\\`; controls, invisible letters and marks of direction are `\xNN`.
pub fn plain(bytes: &[u8]) -> String {
    pieces(bytes).into_iter().map(|piece| piece.text).collect()
}

/// The first line of a body, of its first 200 bytes.
pub(super) fn first_line(body: &[u8]) -> Vec<Piece> {
    let head = &body[..body.len().min(200)];
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    pieces(line.strip_suffix(b"\r").unwrap_or(line))
}

/// A name as a part of an address: plain ones as they are, every other as `~`
/// and its bytes in hex. Browsers resolve `%2e%2e` and proxies decode `%2F`, so
/// escapes of addresses would not do.
pub(super) fn in_address(name: &Name) -> String {
    let bytes = name.as_bytes();
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"_.:@,+-".contains(b);
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.iter().all(plain) && text != "." && text != ".." => text.to_owned(),
        _ => bytes.iter().fold("~".to_owned(), |mut hex, byte| {
            hex.push_str(&format!("{byte:02x}"));
            hex
        }),
    }
}

/// The name of such a part; `None`: no name is written so.
pub(super) fn of_address(part: &str) -> Option<Name> {
    let name = match part.strip_prefix('~') {
        None => Name::from(part),
        Some(hex) => {
            let digits = hex.as_bytes().chunks(2);
            let byte = |pair: &[u8]| {
                let pair = std::str::from_utf8(pair).ok().filter(|pair| {
                    pair.len() == 2 && pair.bytes().all(|digit| digit.is_ascii_hexdigit())
                })?;
                u8::from_str_radix(pair, 16).ok()
            };
            let bytes: Option<Vec<u8>> = digits.map(byte).collect();
            Name::new(&bytes?)
        }
    };
    name.is_possible().then_some(name)
}

/// A name on a page: how it is written and where its page is.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) pieces: Vec<Piece>,
    /// Its part of an address.
    pub(super) part: String,
    /// In one piece, for titles and labels.
    pub(super) plain: String,
    /// As forms take it.
    pub(super) typed: String,
}

impl Named {
    pub(super) fn new(name: &Name) -> Self {
        Self {
            pieces: pieces(name.as_bytes()),
            part: in_address(name),
            plain: plain(name.as_bytes()),
            typed: name.to_string(),
        }
    }
}

/// Text that may have what nobody sees; names in it are in their notation already, so a backslash
/// stays one.
pub(super) fn seen(text: &str) -> String {
    plain(text.as_bytes()).replace("\\\\", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(bytes: &[u8]) -> String {
        let pieces = pieces(bytes).into_iter();
        let mark = |piece: Piece| match piece.escaped {
            true => format!("[{}]", piece.text),
            false => piece.text,
        };
        pieces.map(mark).collect()
    }

    #[test]
    fn what_is_shown_is_what_is_there() {
        for (bytes, shown) in [
            (&b"mail.outbound"[..], "mail.outbound"),
            (b"a b", "a b"),
            ("Платёж-é".as_bytes(), "Платёж-é"),
            (b"a\\x00", "a[\\\\]x00"),
            (b"\x89PNG\r\n", "[\\x89]PNG[\\x0d\\x0a]"),
            (
                "a\u{202e}b\u{200b}".as_bytes(),
                "a[\\xe2\\x80\\xae]b[\\xe2\\x80\\x8b]",
            ),
            (b"<script>", "<script>"),
        ] {
            assert_eq!(marked(bytes), shown);
            assert_eq!(Name::of_shown(&plain(bytes)), Name::new(bytes));
        }
    }

    #[test]
    fn every_name_has_an_address_that_nobody_changes_on_the_way() {
        for (name, part) in [
            (&b"mail.outbound"[..], "mail.outbound"),
            (b"a:b@c,d+e-f_G", "a:b@c,d+e-f_G"),
            (b".", "~2e"),
            (b"..", "~2e2e"),
            (b"../../etc", "~2e2e2f2e2e2f657463"),
            (b"~a", "~7e61"),
            (b"\xff\x00", "~ff00"),
            (b"a b", "~612062"),
        ] {
            assert_eq!(in_address(&Name::new(name)), part);
            assert_eq!(of_address(part), Some(Name::new(name)));
        }
        for part in ["", "~", "~2", "~2g", "~+1", "~é"] {
            assert_eq!(of_address(part), None, "{part}");
        }
    }

    #[test]
    fn a_first_line_ends() {
        assert_eq!(first_line(b"one\r\ntwo")[0].text, "one");
        assert_eq!(first_line(&[b'a'; 4096])[0].text.len(), 200);
        assert!(first_line(b"").is_empty());
    }
}
