//! How names and bodies, which are bytes, are written for people, and in JSON.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// The bytes in base64, or `None` if they are text.
pub fn base64_unless_text(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes);
    text.is_err().then(|| BASE64_STANDARD.encode(bytes))
}

/// A part of what is shown: text, or bytes that are shown as `\xNN`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// As it is written.
    pub text: String,
    /// Stands for bytes that are no letters.
    pub escaped: bool,
}

/// Bytes as a page shows them: letters of UTF-8 as letters; a backslash as `\\`;
/// controls, what steers the direction of text and what cannot be seen as
/// `\xNN`.
pub fn pieces(bytes: &[u8]) -> Vec<Piece> {
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

#[cfg(test)]
mod tests {
    use quintet_types::Name;

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
    fn shown_text_reads_back_as_the_bytes() {
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
}
