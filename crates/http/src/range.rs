//! Byte ranges (RFC 9110, section 14). Of a file one range is served; several
//! at once, or anything that is no range, are answered with the whole.

/// The part of something `len` bytes long that a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Whole,
    /// From the first byte up to, not including, the second.
    Bytes(u64, u64),
    /// Nothing there is in the range: 416.
    None,
}

/// Reads a `Range` header.
pub(crate) fn part(header: Option<&str>, len: u64) -> Part {
    match header.and_then(parse) {
        None => Part::Whole,
        Some((Some(first), _)) if first >= len => Part::None,
        Some((Some(first), last)) => {
            let end = last.map_or(len, |last| last.saturating_add(1).min(len));
            Part::Bytes(first, end)
        }
        Some((None, Some(0))) => Part::None,
        Some((None, Some(_))) if len == 0 => Part::None,
        Some((None, Some(count))) => Part::Bytes(len.saturating_sub(count), len),
        Some((None, None)) => Part::Whole,
    }
}

/// First and last byte as written; a suffix has no first.
fn parse(header: &str) -> Option<(Option<u64>, Option<u64>)> {
    let (unit, spec) = header.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") || spec.contains(',') {
        return None;
    }
    let (first, last) = spec.trim().split_once('-')?;
    let number = |text: &str| match text.trim() {
        "" => Some(None),
        digits if digits.bytes().all(|b| b.is_ascii_digit()) => {
            // Beyond any file is beyond this one.
            Some(Some(digits.parse().unwrap_or(u64::MAX)))
        }
        _ => None,
    };
    let (first, last) = (number(first)?, number(last)?);
    match (first, last) {
        (Some(first), Some(last)) if last < first => None,
        (None, None) => None,
        both => Some(both),
    }
}

#[cfg(test)]
mod tests {
    use super::Part::{self, Bytes, None as Nothing, Whole};
    use super::part;

    #[test]
    fn ranges_of_ten_bytes() {
        let cases: &[(&str, Part)] = &[
            ("bytes=5-", Bytes(5, 10)),
            ("bytes=0-", Bytes(0, 10)),
            ("bytes=0-0", Bytes(0, 1)),
            ("bytes=2-4", Bytes(2, 5)),
            ("bytes=2-400", Bytes(2, 10)),
            ("bytes=-3", Bytes(7, 10)),
            ("bytes=-30", Bytes(0, 10)),
            ("Bytes = 1-1", Bytes(1, 2)),
            ("bytes=10-", Nothing),
            ("bytes=99999999999999999999999-", Nothing),
            ("bytes=-0", Nothing),
            ("bytes=0-18446744073709551615", Bytes(0, 10)),
            ("bytes=4-2", Whole),
            ("bytes=1-2,4-5", Whole),
            ("bytes=-", Whole),
            ("bytes=a-b", Whole),
            ("lines=1-2", Whole),
            ("rubbish", Whole),
        ];
        for (header, expected) in cases {
            assert_eq!(part(Some(header), 10), *expected, "{header}");
        }
        assert_eq!(part(None, 10), Whole);
        assert_eq!(part(Some("bytes=-5"), 0), Nothing);
        assert_eq!(part(Some("bytes=0-"), 0), Nothing);
    }

    proptest::proptest! {
        #[test]
        fn a_part_is_inside(header in "(bytes)?=?[-0-9, a]{0,24}", len in 0u64..40) {
            if let Bytes(from, to) = part(Some(&header), len) {
                proptest::prop_assert!(from < to && to <= len, "{header} of {len}: {from} {to}");
            }
        }
    }
}
