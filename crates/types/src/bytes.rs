//! A number and a text of bytes.

/// The bytes as hexadecimal digits, two of each.
pub fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let digits = digits.filter_map(|digit| char::from_digit(digit.into(), 16));
    digits.collect()
}

/// The bytes of such digits; `None`: they are others, or an odd number.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let byte = |pair: &[u8]| match *pair {
        [high, low] => u8::try_from(digit(high)? * 16 + digit(low)?).ok(),
        _ => None,
    };
    text.as_bytes().chunks(2).map(byte).collect()
}

/// A number of these bytes that every version computes alike: FNV-1a, 64 bits.
pub fn fnv<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> u64 {
    let begin = 0xcbf2_9ce4_8422_2325;
    bytes.into_iter().fold(begin, |hash: u64, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_lower_case_and_two_of_each_byte() {
        assert_eq!(hex(&[0x00, 0x0a, 0xff]), "000aff");
        assert_eq!(hex(b""), "");
    }

    #[test]
    fn digits_are_read_as_they_are_written_and_others_are_none() {
        assert_eq!(unhex("000aFf").as_deref(), Some(&[0x00, 0x0a, 0xff][..]));
        assert_eq!(unhex("").as_deref(), Some(&[][..]));
        for text in ["0", "000", "0g", "+f", " 0", "\u{fc}"] {
            assert_eq!(unhex(text), None, "{text}");
        }
    }

    #[test]
    fn fnv_gives_the_numbers_of_its_authors() {
        assert_eq!(fnv(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
