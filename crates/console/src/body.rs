//! A message's body, as text, JSON and bytes.

use quintet_types::Verb;

use super::names::{self, Piece};
use super::{Answer, PageRequest};
use quintet_api::{Path, Problem};
use quintet_http::download;

/// Bytes of a body that a page shows at once.
pub(super) const SHOWN: usize = 64 << 10;
/// Bytes of it in hex.
const HEX: usize = 4 << 10;
/// Bytes of a body that a page shows if it is asked for the whole.
pub(super) const WHOLE: usize = 4 << 20;
/// Lines of JSON that can be folded.
const NODES: usize = 20_000;
/// Of more lines only the outer ones are unfolded.
const OPEN: usize = 500;
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
pub(crate) fn text(bytes: &[u8]) -> Vec<Piece> {
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

/// A line of JSON that is set out as a tree.
pub(super) enum Node {
    /// An object or an array begins, which can be folded.
    Open {
        key: String,
        bracket: char,
        /// Its members.
        count: usize,
        open: bool,
    },
    /// It ends.
    Close { text: String },
    Leaf {
        key: String,
        /// The class of its colour.
        kind: &'static str,
        text: String,
        end: &'static str,
    },
}

/// The text of an object or array in JSON.
fn json_text(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?.trim();
    let json = || serde_json::from_str::<serde::de::IgnoredAny>(text);
    (text.starts_with(['{', '[']) && json().is_ok()).then_some(text)
}

/// JSON as a tree, with every word of it as it was written. `None`: it is none, or deeper or more
/// than a page can fold.
pub(super) fn tree(bytes: &[u8]) -> Option<Vec<Node>> {
    let text = json_text(bytes)?;
    let mut nodes: Vec<Node> = Vec::new();
    // Where each that is not over begins, and what it has so far.
    let mut stack: Vec<(usize, usize)> = Vec::new();
    let mut key = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (word, behind) = rest.split_at(word_len(rest, first));
        rest = behind.trim_start();
        if let Some(behind) = rest.strip_prefix(':') {
            key = names::seen(word) + ": ";
            rest = behind.trim_start();
            continue;
        }
        match first {
            ',' => {
                if let Some(Node::Leaf { end, .. }) = nodes.last_mut() {
                    *end = ",";
                } else if let Some(Node::Close { text }) = nodes.last_mut() {
                    text.push(',');
                }
                continue;
            }
            '}' | ']' => {
                let (begin, has) = stack.pop()?;
                if let Node::Open { count, .. } = &mut nodes[begin] {
                    *count = has;
                }
                nodes.push(Node::Close {
                    text: first.to_string(),
                });
                continue;
            }
            _ => {}
        }
        if let Some((_, has)) = stack.last_mut() {
            *has += 1;
        }
        let key = std::mem::take(&mut key);
        if word.len() == 1 && matches!(first, '{' | '[') {
            stack.push((nodes.len(), 0));
            nodes.push(Node::Open {
                key,
                bracket: first,
                count: 0,
                open: true,
            });
        } else {
            let kind = match first {
                '"' => "s",
                '{' | '[' => "",
                't' | 'f' | 'n' => "l",
                _ => "n",
            };
            let text = match first {
                '{' => "{}".to_owned(),
                '[' => "[]".to_owned(),
                _ => names::seen(word),
            };
            nodes.push(Node::Leaf {
                key,
                kind,
                text,
                end: "",
            });
        }
        if stack.len() > DEPTH || nodes.len() > NODES {
            return None;
        }
    }
    if nodes.len() > OPEN {
        fold(&mut nodes);
    }
    Some(nodes)
}

/// Length of the word that `text` begins with; an object or array of nothing is one.
fn word_len(text: &str, first: char) -> usize {
    match first {
        '"' => string_len(text),
        '{' | '[' if text[1..].trim_start().starts_with(['}', ']']) => {
            text.len() - text[1..].trim_start().len() + 1
        }
        '{' | '[' | '}' | ']' | ',' => 1,
        _ => text
            .find([',', '}', ']', ' ', '\t', '\r', '\n'])
            .unwrap_or(text.len()),
    }
}

/// Folds all but the outer ones.
fn fold(nodes: &mut [Node]) {
    let mut depth = 0;
    for node in nodes {
        match node {
            Node::Open { open, .. } => {
                *open = depth < 2;
                depth += 1;
            }
            Node::Close { .. } => depth -= 1,
            Node::Leaf { .. } => {}
        }
    }
}

/// Length of the string that `text` begins with, its quotes included.
fn string_len(text: &str) -> usize {
    let mut escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |end| end + 2)
}

/// True if bytes are no text that people read; `cut`: there are more of them.
pub(super) fn is_binary(bytes: &[u8], cut: bool) -> bool {
    let control = |byte: &u8| (*byte < 0x20 && !b"\t\n\r\x1b".contains(byte)) || *byte == 0x7f;
    match std::str::from_utf8(bytes) {
        // A letter may be cut in two at the end.
        Err(error) if error.error_len().is_some() || !cut => true,
        _ => bytes.iter().any(control),
    }
}

/// JSON, set out over lines with every word of it as it was written. `None`: it
/// is none, or deeper than anybody reads.
pub(crate) fn json(bytes: &[u8]) -> Option<String> {
    let text = json_text(bytes)?;
    let mut out = String::with_capacity(text.len() * 2);
    let (mut depth, mut rest) = (0, text);
    while let Some(first) = rest.chars().next() {
        let (word, behind) = rest.split_at(word_len(rest, first));
        rest = behind.trim_start();
        match first {
            '{' | '[' if depth == DEPTH => return None,
            // One of nothing may have spaces in it.
            '{' | '[' => out.extend(word.split_whitespace()),
            '}' | ']' => {
                depth -= 1;
                new_line(&mut out, depth);
                out.push(first);
            }
            _ => out.push_str(word),
        }
        depth += usize::from(matches!(word, "{" | "["));
        if matches!(word, "{" | "[" | ",") {
            new_line(&mut out, depth);
        } else if let Some(behind) = rest.strip_prefix(':') {
            out.push_str(": ");
            rest = behind.trim_start();
        }
    }
    Some(out)
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.push_str(&"  ".repeat(depth));
}

/// `/messages/ID/body`: its bytes, to be kept and never shown.
pub(super) async fn download(context: PageRequest, Path(id): Path<String>) -> Answer {
    let (message, queue) = context.message(&id).await?;
    if !context.requester.may_to(Verb::Peek, &queue) {
        return Err(Problem::not_found());
    }
    let client_api = context.client_api();
    Ok(download::response(
        client_api,
        message.id,
        message.body.clone(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_has_the_usual_form() {
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
    fn json_is_a_tree_that_loses_no_word() {
        let drawn = |text: &str| {
            let nodes = tree(text.as_bytes())?;
            let lines = nodes.iter().map(|node| match node {
                Node::Open {
                    key,
                    bracket,
                    count,
                    ..
                } => format!("{key}{bracket}{count}"),
                Node::Close { text } => text.clone(),
                Node::Leaf {
                    key,
                    kind,
                    text,
                    end,
                } => format!("{key}{text}{end}{kind}"),
            });
            Some(lines.collect::<Vec<_>>())
        };
        let shown = drawn(
            r#" {"z" :[1.50, 99999999999999999999999 ],"a":{ },"s:\"":"a\"},{:","t":[true,null,[]]} "#,
        );
        let lines = [
            "{4",
            "\"z\": [2",
            "1.50,n",
            "99999999999999999999999n",
            "],",
            "\"a\": {},",
            "\"s:\\\"\": \"a\\\"},{:\",s",
            "\"t\": [3",
            "true,l",
            "null,l",
            "[]",
            "]",
            "}",
        ];
        assert_eq!(shown.expect("JSON"), lines);
        assert_eq!(
            drawn("[\"\u{202e}x\"]").expect("JSON")[1],
            "\"\\xe2\\x80\\xaex\"s"
        );
        for none in ["", "7", "{", "{\"a\":1} x"] {
            assert!(tree(none.as_bytes()).is_none(), "{none}");
        }
        let nested = |n| "[".repeat(n) + &"]".repeat(n);
        assert!(tree(nested(64).as_bytes()).is_some());
        assert!(tree(nested(66).as_bytes()).is_none());
        let many = format!("[{}0]", "0,".repeat(NODES));
        assert!(tree(many.as_bytes()).is_none());
    }

    #[test]
    fn a_body_that_is_no_text_is_binary() {
        assert!(!is_binary("line\n\ttab ü".as_bytes(), false));
        assert!(is_binary(b"\x00\x01", false) && is_binary(b"\xff\xfe", true));
        // The first half of a letter.
        assert!(!is_binary(b"a\xc3", true) && is_binary(b"a\xc3", false));
    }

    #[test]
    fn text_keeps_its_lines() {
        let all = text(b"a\n\tb\x07\n");
        let joined: String = all.iter().map(|piece| piece.text.as_str()).collect();
        assert_eq!(joined, "a\n\tb\\x07\n");
    }
}
