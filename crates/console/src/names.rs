//! Names and bodies, which are bytes, in addresses and on pages.

use md5::{Digest as _, Md5};
pub(super) use quintet_client::shown::{Piece, pieces, plain};
use quintet_types::{Name, hex, unhex};

/// Letters of a name in a label, and bytes of it in a mark, at most.
const SHORT: usize = 64;

/// Bytes of names, bodies and reasons on a page, about: it ends behind them.
pub(super) const PAGE_BYTES: usize = 48 << 10;

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
        _ => format!("~{}", hex(bytes)),
    }
}

/// The name of such a part; `None`: no name is written so.
pub(super) fn of_address(part: &str) -> Option<Name> {
    let name = match part.strip_prefix('~') {
        None => Name::from(part),
        Some(hex) => Name::new(&unhex(hex)?),
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

    /// Its beginning, for labels beside the whole name.
    pub(super) fn short(&self) -> String {
        match self.plain.char_indices().nth(SHORT) {
            Some((end, _)) => format!("{}…", &self.plain[..end]),
            None => self.plain.clone(),
        }
    }

    /// By what a row is known when a page is fetched again: the part of its address, or its hash.
    pub(super) fn mark(&self) -> String {
        if self.part.len() <= SHORT {
            return self.part.clone();
        }
        format!("#{:x}", Md5::digest(self.part.as_bytes()))
    }

    /// About so many bytes of a page: the name, and its address twice.
    pub(super) fn weight(&self) -> usize {
        html_len(&self.pieces) + 2 * self.part.len()
    }
}

/// Bytes of pieces on a page.
pub(super) fn html_len(pieces: &[Piece]) -> usize {
    let len = |piece: &Piece| {
        let written = |byte: u8| if b"<>&'\"".contains(&byte) { 5 } else { 1 };
        let span = if piece.escaped { 25 } else { 0 };
        piece.text.bytes().map(written).sum::<usize>() + span
    };
    pieces.iter().map(len).sum()
}

/// How many of these weights have room, from the first on, which always has.
pub(super) fn fitting(weights: impl Iterator<Item = usize>, room: usize) -> usize {
    let mut used = 0_usize;
    let fits = weights.take_while(|weight| {
        used += weight;
        used <= room || used == *weight
    });
    fits.count()
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
    fn every_name_has_an_address_that_stays_unchanged_on_the_way() {
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
    fn long_names_have_short_labels_and_hashes_of_their_own() {
        let named = |text: String| Named::new(&Name::from(text.as_str()));
        let plain = named("a".repeat(64));
        assert_eq!(
            (plain.short(), plain.mark()),
            (plain.plain.clone(), plain.part.clone())
        );
        let [one, other] = ["b", "c"].map(|end| named("é".repeat(100) + end));
        assert_eq!(one.short(), "é".repeat(64) + "…");
        assert!(one.mark().len() == 33 && one.mark() != other.mark());
        // Two bytes for each é; four hex digits in its address.
        assert_eq!(one.weight(), 201 + 2 * 403);
        assert_eq!(named("<\u{1}".to_owned()).weight(), 5 + 4 + 25 + 2 * 5);
    }

    #[test]
    fn the_first_fits_always() {
        for (weights, count) in [
            ([9, 1, 1], 1),
            ([2, 2, 1], 2),
            ([1, 1, 1], 3),
            ([0, 9, 1], 2),
        ] {
            assert_eq!(fitting(weights.into_iter(), 4), count, "{weights:?}");
        }
    }

    #[test]
    fn a_first_line_ends() {
        assert_eq!(first_line(b"one\r\ntwo")[0].text, "one");
        assert_eq!(first_line(&[b'a'; 4096])[0].text.len(), 200);
        assert!(first_line(b"").is_empty());
    }
}
