//! Command lines.

/// One request line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// A message of `len` bytes and a CR LF follow.
    Push {
        priority: u32,
        len: u64,
    },
    /// A message probably follows, but it cannot be stored.
    BadPush {
        error: &'static str,
        len: u64,
    },
    Pop,
    Ping,
    Exit,
    /// Answered with this error; the next line is a command.
    Error(&'static str),
}

pub(super) const EXPECTED_PRIORITY: &str = "EXPECTED_PRIORITY";
pub(super) const EXPECTED_LENGTH: &str = "EXPECTED_MESSAGE_LENGTH";
pub(super) const INVALID: &str = "INVALID_COMMAND";

/// Reads a line, with or without its end. Fields are separated by exactly one
/// space; CR LF or LF ends the line.
pub(super) fn parse(line: &[u8]) -> Request {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut fields = line.split(|&byte| byte == b' ');
    match fields.next() {
        Some(b"POP" | b"TAKE") if fields.next().is_none() => Request::Pop,
        Some(b"PING") if fields.next().is_none() => Request::Ping,
        Some(b"EXIT") if fields.next().is_none() => Request::Exit,
        Some(b"PUSH" | b"GIVE") => push(fields.next(), fields.next(), fields.next().is_some()),
        _ => Request::Error(INVALID),
    }
}

fn push(priority: Option<&[u8]>, length: Option<&[u8]>, more: bool) -> Request {
    let priority = priority
        .and_then(number)
        .and_then(|priority| u32::try_from(priority).ok());
    let usable = length.and_then(number);
    match (priority, usable) {
        // A missing priority comes first, as the original looks for it first.
        (None, None) => Request::Error(EXPECTED_PRIORITY),
        (Some(_), None) => Request::Error(EXPECTED_LENGTH),
        (None, Some(len)) => Request::BadPush {
            error: EXPECTED_PRIORITY,
            len,
        },
        (Some(_), Some(len)) if more => Request::BadPush {
            error: EXPECTED_LENGTH,
            len,
        },
        (Some(priority), Some(len)) => Request::Push { priority, len },
    }
}

/// Decimal digits only, leading zeros allowed; too large a number is the
/// largest, which every limit refuses.
fn number(field: &[u8]) -> Option<u64> {
    if field.is_empty() || !field.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(field.iter().fold(0u64, |value, digit| {
        value
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let bad = |error, len| Request::BadPush { error, len };
        for (line, expected) in [
            (
                "PUSH 5 16\r\n",
                Request::Push {
                    priority: 5,
                    len: 16,
                },
            ),
            (
                "GIVE 0005 0\n",
                Request::Push {
                    priority: 5,
                    len: 0,
                },
            ),
            (
                "PUSH 4294967295 1",
                Request::Push {
                    priority: u32::MAX,
                    len: 1,
                },
            ),
            ("PUSH 4294967296 1", bad(EXPECTED_PRIORITY, 1)),
            ("PUSH -1 1", bad(EXPECTED_PRIORITY, 1)),
            ("PUSH  1 1", bad(EXPECTED_PRIORITY, 1)),
            ("PUSH 1 1 x", bad(EXPECTED_LENGTH, 1)),
            ("PUSH 1", Request::Error(EXPECTED_LENGTH)),
            ("PUSH 1 +1", Request::Error(EXPECTED_LENGTH)),
            ("PUSH", Request::Error(EXPECTED_PRIORITY)),
            (
                "PUSH 1 99999999999999999999",
                Request::Push {
                    priority: 1,
                    len: u64::MAX,
                },
            ),
            ("POP", Request::Pop),
            ("TAKE\r\n", Request::Pop),
            ("POP ", Request::Error(INVALID)),
            ("pop", Request::Error(INVALID)),
            ("", Request::Error(INVALID)),
            ("\r\n", Request::Error(INVALID)),
            ("PING", Request::Ping),
            ("EXIT", Request::Exit),
        ] {
            assert_eq!(parse(line.as_bytes()), expected, "{line:?}");
        }
    }
}
