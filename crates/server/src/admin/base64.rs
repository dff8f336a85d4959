//! RFC 4648 section 4, with padding.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends the text of `bytes`. A text may be made in pieces: all but the last
/// have a multiple of three bytes.
pub(crate) fn encode_into(bytes: &[u8], out: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let word = group
            .iter()
            .fold(0u32, |word, &byte| word << 8 | u32::from(byte));
        let word = word << (8 * (3 - group.len()));
        for digit in 0..4 {
            if digit <= group.len() {
                out.push(DIGITS[(word >> (18 - 6 * digit) & 63) as usize]);
            } else {
                out.push(b'=');
            }
        }
    }
}

/// The text of `bytes`.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    encode_into(bytes, &mut out);
    // It is ASCII.
    String::from_utf8(out).unwrap_or_default()
}

/// Appends the bytes of a text, or of a piece of one whose length is a
/// multiple of four; false if it is not base64.
pub(crate) fn decode_into(text: &[u8], out: &mut Vec<u8>) -> bool {
    let (groups, rest) = text.as_chunks::<4>();
    if !rest.is_empty() {
        return false;
    }
    for (at, group) in groups.iter().enumerate() {
        let pad = group
            .iter()
            .rev()
            .take_while(|&&digit| digit == b'=')
            .count();
        if pad > 2 || pad > 0 && at + 1 < groups.len() {
            return false;
        }
        let mut word = 0u32;
        for &digit in &group[..4 - pad] {
            let Some(value) = value_of(digit) else {
                return false;
            };
            word = word << 6 | value;
        }
        word <<= 6 * pad;
        let [_, bytes @ ..] = word.to_be_bytes();
        // Bits that stand for nothing are zero: one text for one content.
        if bytes[3 - pad..].iter().any(|&byte| byte != 0) {
            return false;
        }
        out.extend_from_slice(&bytes[..3 - pad]);
    }
    true
}

/// The bytes of a text; `None` if it is not base64.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    decode_into(text, &mut out).then_some(out)
}

fn value_of(digit: u8) -> Option<u32> {
    Some(u32::from(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_in_rfc_4648_section_10() {
        for (text, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(text.as_bytes()), coded);
            assert_eq!(decode(coded.as_bytes()).as_deref(), Some(text.as_bytes()));
        }
    }

    #[test]
    fn every_byte_comes_back_and_nonsense_does_not() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(encode(&bytes).as_bytes()), Some(bytes));
        for text in [
            "Z", "Zg", "Zg=", "Z===", "====", "Zg==Zg==", "Zh==", "Zm9=", "Zm-v",
        ] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }
}
