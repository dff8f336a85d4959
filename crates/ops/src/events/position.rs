//! Positions of events, as clients keep them.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use quintet_host::LogPlace;

/// The form of positions that this program writes, and the only one that it reads.
const VERSION: u8 = 1;
/// Bytes before the checksum.
const SAID: usize = 17;

/// A position: 28 letters of base64url, which a checksum guards against mistakes.
pub(super) fn write(log: u32, at: LogPlace) -> String {
    let mut bytes = Vec::with_capacity(SAID + 4);
    bytes.push(VERSION);
    bytes.extend(log.to_be_bytes());
    bytes.extend(at.frame.to_be_bytes());
    bytes.extend(at.facts.to_be_bytes());
    bytes.extend(crc32c::crc32c(&bytes).to_be_bytes());
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// The log and the place in it; `None`: the text is none of [`write`]'s.
pub(super) fn read(text: &str) -> Option<(u32, LogPlace)> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
    let (payload, sum) = bytes.split_at_checked(SAID)?;
    if sum != crc32c::crc32c(payload).to_be_bytes() {
        return None;
    }
    let (&version, rest) = payload.split_first()?;
    let (log, rest) = rest.split_first_chunk()?;
    let (frame, rest) = rest.split_first_chunk()?;
    let (facts, _) = rest.split_first_chunk()?;
    let at = LogPlace {
        frame: u64::from_be_bytes(*frame),
        facts: u32::from_be_bytes(*facts),
    };
    (version == VERSION).then_some((u32::from_be_bytes(*log), at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_and_no_other_text_is() {
        let at = LogPlace {
            frame: 1 << 40,
            facts: 7,
        };
        let text = write(0xFEED, at);
        assert_eq!((text.len(), read(&text)), (28, Some((0xFEED, at))));
        for index in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[index] = if other[index] == b'A' { b'B' } else { b'A' };
            assert_eq!(read(&String::from_utf8(other).expect("ASCII")), None);
            assert_eq!(read(&text[..index]), None);
        }
        assert_eq!(read("now"), None);
        assert_eq!(read(&format!("{text}AA")), None);
    }
}
