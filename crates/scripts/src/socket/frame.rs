//! `rq1 00000005 ping `: how a request and its reply are framed.

use std::io::{self, Read};

const MAGIC: &[u8] = b"rq1 ";
/// Magic, eight digits and a space.
const HEAD: usize = 13;
/// The longest payload that is taken, bytes: more than any message's fields.
pub const PAYLOAD_MAX: usize = 16 << 20;

/// Why a frame is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// It does not begin with `rq1 `, eight digits and a space.
    #[error("not an rq1 packet")]
    Head,
    /// It announces more than [`PAYLOAD_MAX`].
    #[error("packet too long")]
    TooLong,
    /// It ends too early.
    #[error("packet ends too early")]
    Short,
}

/// A head with the length, then the payload.
pub fn frame(payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("rq1 {:08} ", payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

/// The length a head announces.
fn length(head: &[u8]) -> Result<usize, FrameError> {
    let digits = head
        .strip_prefix(MAGIC)
        .and_then(|rest| rest.strip_suffix(b" "))
        .filter(|digits| digits.len() == 8 && digits.iter().all(u8::is_ascii_digit))
        .ok_or(FrameError::Head)?;
    // Eight digits fit.
    let length = digits
        .iter()
        .fold(0, |length, digit| length * 10 + usize::from(digit - b'0'));
    if length > PAYLOAD_MAX {
        return Err(FrameError::TooLong);
    }
    Ok(length)
}

/// The payload of a whole frame.
///
/// # Errors
/// [`FrameError`].
pub fn parse(bytes: &[u8]) -> Result<&[u8], FrameError> {
    let (head, rest) = bytes.split_at_checked(HEAD).ok_or(FrameError::Short)?;
    rest.get(..length(head)?).ok_or(FrameError::Short)
}

/// Reads a frame. The inner error is the client's fault, and can be sent.
pub(super) fn read(source: &mut impl Read) -> io::Result<Result<Vec<u8>, FrameError>> {
    let mut head = [0; HEAD];
    match source.read_exact(&mut head) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Ok(Err(FrameError::Short));
        }
        other => other?,
    }
    let length = match length(&head) {
        Ok(length) => length,
        Err(wrong) => return Ok(Err(wrong)),
    };
    let mut payload = Vec::new();
    // No memory is taken for what never comes.
    source.take(length as u64).read_to_end(&mut payload)?;
    Ok(match payload.len() == length {
        true => Ok(payload),
        false => Err(FrameError::Short),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        assert_eq!(frame(b"ping "), b"rq1 00000005 ping ");
        assert_eq!(frame(b"[\"pong\"]"), b"rq1 00000008 [\"pong\"]");
        assert_eq!(parse(b"rq1 00000005 ping "), Ok(&b"ping "[..]));
        assert_eq!(parse(b"rq1 00000000 "), Ok(&b""[..]));
    }

    #[test]
    fn invalid_frames_are_refused() {
        for (bytes, wrong) in [
            (&b""[..], FrameError::Short),
            (b"rq1 0000000", FrameError::Short),
            (b"rq1 00000005 pin", FrameError::Short),
            (b"rq2 00000005 ping ", FrameError::Head),
            (b"rq1 0000000x ping ", FrameError::Head),
            (b"rq1 +0000005 ping ", FrameError::Head),
            (b"rq1 00000005xping ", FrameError::Head),
            (b"rq1 99999999 ping ", FrameError::TooLong),
            (b"GET / HTTP/1.1\r\n\r\n", FrameError::Head),
        ] {
            assert_eq!(parse(bytes), Err(wrong), "{}", bytes.escape_ascii());
            let mut source = bytes;
            let read = read(&mut source).expect("read");
            assert_eq!(read, Err(wrong), "{}", bytes.escape_ascii());
        }
    }
}
