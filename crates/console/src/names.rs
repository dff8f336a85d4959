//! Names and bodies, which are bytes, in addresses and on pages.

pub(super) use quintet_client::shown::{Piece, pieces, plain};
use quintet_types::Name;

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
