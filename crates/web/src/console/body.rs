//! A message's body, as text, JSON and bytes.

use axum::response::Response;
use quintet_engine::Verb;

use super::Asked;
use super::names::{self, Piece};
use crate::api::{Path, Problem};
use crate::download;

/// Bytes of a body that a page shows at once.
pub(super) const SHOWN: usize = 64 << 10;
/// Bytes of it in hex.
const HEX: usize = 4 << 10;
/// Arrays and objects in one another.
const DEPTH: usize = 64;

/// A line of hex: place, bytes, letters.
pub(super) fn hex(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (row, bytes) in bytes[..bytes.len().min(HEX)].chunks(16).enumerate() {
        out.push_str(&format!("{:08x} ", row * 16));
        for at in 0..16 {
            if at % 8 == 0 {
                out.push(' ');
            }
            match bytes.get(at) {
                Some(byte) => out.push_str(&format!("{byte:02x} ")),
                None => out.push_str("   "),
            }
        }
        out.push(' ');
        let letter = |byte: &u8| match byte {
            0x20..=0x7e => char::from(*byte),
            _ => '.',
        };
        out.extend(bytes.iter().map(letter));
        out.push('\n');
    }
    if bytes.len() > HEX {
        out.push_str("the first 4 KiB\n");
    }
    out
}

/// Text in pieces, lines and tabs as they are.
pub(super) fn text(bytes: &[u8]) -> Vec<Piece> {
    let mut all: Vec<Piece> = Vec::new();
    for part in bytes.split_inclusive(|b| matches!(b, b'\n' | b'\t')) {
        let (body, end) = match part.split_last() {
            Some((end @ (b'\n' | b'\t'), body)) => (body, Some(*end)),
            _ => (part, None),
        };
        all.extend(names::pieces(body));
        if let Some(end) = end {
            let end = char::from(end).to_string();
            match all.last_mut() {
                Some(last) if !last.escaped => last.text.push_str(&end),
                _ => all.push(Piece {
                    text: end,
                    escaped: false,
                }),
            }
        }
    }
    all
}

/// JSON, set out over lines with every word of it as it was written. `None`: it
/// is none, or deeper than anybody reads.
pub(super) fn json(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?.trim();
    if !text.starts_with(['{', '[']) {
        return None;
    }
    serde_json::from_str::<serde::de::IgnoredAny>(text).ok()?;
    let mut out = String::with_capacity(text.len() * 2);
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if quoted {
            out.push(letter);
            quoted = escaped || letter != '"';
            escaped = letter == '\\' && !escaped;
            continue;
        }
        match letter {
            '{' | '[' => {
                depth += 1;
                if depth > DEPTH {
                    return None;
                }
                out.push(letter);
                while letters.next_if(|next| next.is_ascii_whitespace()).is_some() {}
                match letters.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => {
                        depth -= 1;
                        out.push(end);
                    }
                    None => new_line(&mut out, depth),
                }
            }
            '}' | ']' => {
                depth -= 1;
                new_line(&mut out, depth);
                out.push(letter);
            }
            ',' => {
                out.push(letter);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            '"' => {
                quoted = true;
                out.push(letter);
            }
            _ if letter.is_ascii_whitespace() => {}
            _ => out.push(letter),
        }
    }
    Some(out)
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.push_str(&"  ".repeat(depth));
}

/// `/messages/ID/body`: its bytes, to be kept and never shown.
pub(super) async fn download(asked: Asked, Path(id): Path<String>) -> Result<Response, Problem> {
    let (message, queue) = asked.message(&id).await?;
    if !asked.visitor.may_to(Verb::Peek, &queue) {
        return Err(Problem::not_found());
    }
    let door = asked.console.api.door();
    Ok(download::response(door, message.id, message.body.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_is_as_everybody_writes_it() {
        assert_eq!(
            hex(b"{\"job\":\"thumb\x00ails\""),
            "00000000  7b 22 6a 6f 62 22 3a 22  74 68 75 6d 62 00 61 69  {\"job\":\"thumb.ai\n\
             00000010  6c 73 22                                          ls\"\n"
        );
        assert_eq!(hex(&[0; 5000]).lines().count(), 257);
    }

    #[test]
    fn json_is_set_out_unless_it_is_too_deep() {
        let shown = json(br#" {"z":[1.50, 99999999999999999999999],"a":{},"s":"a\"},{:"} "#);
        let lines = [
            "{",
            "  \"z\": [",
            "    1.50,",
            "    99999999999999999999999",
            "  ],",
            "  \"a\": {},",
            "  \"s\": \"a\\\"},{:\"",
            "}",
        ];
        assert_eq!(shown, Some(lines.join("\n")));
        for none in ["", "7", "hello", "{", "{\"a\":1} x"] {
            assert_eq!(json(none.as_bytes()), None, "{none}");
        }
        let nested = |n| "[".repeat(n) + &"]".repeat(n);
        assert!(json(nested(64).as_bytes()).is_some());
        assert_eq!(json(nested(65).as_bytes()), None);
        assert_eq!(json(nested(100_000).as_bytes()), None);
    }

    #[test]
    fn text_keeps_its_lines() {
        let all = text(b"a\n\tb\x07\n");
        let joined: String = all.iter().map(|piece| piece.text.as_str()).collect();
        assert_eq!(joined, "a\n\tb\\x07\n");
    }
}
