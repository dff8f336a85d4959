//! Numbers in as few bytes as they need: LEB128, and zigzag before it for signed ones.

/// The most bytes a number takes.
pub(super) const VARINT_BYTES_MAX: usize = 10;

#[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes `value - before`, modulo 2^64, as a signed number.
pub(super) fn put_step(out: &mut Vec<u8>, before: u64, value: u64) {
    let step = value.wrapping_sub(before) as i64;
    put(out, ((step << 1) ^ (step >> 63)) as u64);
}

/// Takes a number off the front; `None` when there is none.
#[inline]
pub(super) fn get(bytes: &mut &[u8]) -> Option<u64> {
    // Most numbers here are steps, and take one byte.
    match bytes.split_first() {
        Some((&first, rest)) if first < 0x80 => {
            *bytes = rest;
            Some(u64::from(first))
        }
        _ => get_long(bytes),
    }
}

fn get_long(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().enumerate().take(VARINT_BYTES_MAX) {
        let shift = 7 * index;
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has room for one bit.
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte < 0x80 {
            *bytes = &bytes[index + 1..];
            return Some(value);
        }
    }
    None
}

/// Takes a step off the front and returns what it leads to from `before`.
#[inline]
pub(super) fn get_step(bytes: &mut &[u8], before: u64) -> Option<u64> {
    let zigzag = get(bytes)?;
    let step = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
    Some(before.wrapping_add(step as u64))
}

/// Takes `len` bytes off the front.
pub(super) fn take<'a>(bytes: &mut &'a [u8], len: u64) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_steps_come_back() {
        let edges = [
            0,
            1,
            127,
            128,
            16_383,
            16_384,
            1 << 63,
            u64::MAX - 1,
            u64::MAX,
        ];
        for value in edges {
            let mut out = Vec::new();
            put(&mut out, value);
            assert!(out.len() <= VARINT_BYTES_MAX);
            for before in edges {
                put_step(&mut out, before, value);
            }
            let mut bytes = &out[..];
            assert_eq!(get(&mut bytes), Some(value));
            for before in edges {
                assert_eq!(get_step(&mut bytes, before), Some(value));
            }
            assert!(bytes.is_empty());
        }
    }

    #[test]
    fn an_invalid_number_is_refused() {
        assert_eq!(get(&mut &[][..]), None);
        assert_eq!(get(&mut &[0x80][..]), None);
        assert_eq!(get(&mut &[0xff; 11][..]), None);
        let mut too_large = [0xff; 10];
        too_large[9] = 2;
        assert_eq!(get(&mut &too_large[..]), None);
        too_large[9] = 1;
        assert_eq!(get(&mut &too_large[..]), Some(u64::MAX));
    }
}
