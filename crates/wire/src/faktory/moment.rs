//! Times as RFC 3339 writes them.

use std::str::FromStr;

use chrono::{DateTime, NaiveDate, SecondsFormat, Utc};
use quintet_types::Ms;

/// Reads a time. Upper case only, with an offset; a leap second and a day that
/// its month does not have are none. One before 1970 counts as its beginning.
pub(super) fn read(text: &str) -> Result<Ms, &'static str> {
    let mut rest = text;
    let year = digits::<i32>(&mut rest, 4)?;
    sign(&mut rest, '-')?;
    let month = digits(&mut rest, 2)?;
    sign(&mut rest, '-')?;
    let day = digits(&mut rest, 2)?;
    sign(&mut rest, 'T')?;
    let hour = digits(&mut rest, 2)?;
    sign(&mut rest, ':')?;
    let minute = digits(&mut rest, 2)?;
    sign(&mut rest, ':')?;
    let second = digits(&mut rest, 2)?;
    let mut ms = 0;
    if let Some(fraction) = rest.strip_prefix(['.', ',']) {
        let count = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if count == 0 {
            return Err("a digit is missing");
        }
        let three = fraction[..count].bytes().chain([b'0'; 3]).take(3);
        ms = three.fold(0, |ms, digit| ms * 10 + i64::from(digit - b'0'));
        rest = &fraction[count..];
    }
    let offset = match rest {
        "Z" => 0,
        _ => {
            let west = rest.starts_with('-');
            let Some(mut rest) = rest.strip_prefix(['+', '-']) else {
                return Err("an offset is missing");
            };
            let hours: i64 = digits(&mut rest, 2)?;
            sign(&mut rest, ':')?;
            let minutes: i64 = digits(&mut rest, 2)?;
            if !rest.is_empty() || hours > 23 || minutes > 59 {
                return Err("no such offset");
            }
            (hours * 60 + minutes) * if west { -60 } else { 60 }
        }
    };
    let day = NaiveDate::from_ymd_opt(year, month, day).ok_or("no such day")?;
    let time = day.and_hms_opt(hour, minute, second);
    let seconds = time.ok_or("no such time of day")?.and_utc().timestamp();
    Ok(Ms(
        u64::try_from((seconds - offset) * 1000 + ms).unwrap_or(0)
    ))
}

/// So many digits.
fn digits<T: FromStr>(rest: &mut &str, count: usize) -> Result<T, &'static str> {
    let found = rest.get(..count).ok_or("it is too short")?;
    if !found.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("a digit is missing");
    }
    *rest = &rest[count..];
    found.parse().map_err(|_| "a digit is missing")
}

fn sign(rest: &mut &str, sign: char) -> Result<(), &'static str> {
    *rest = rest.strip_prefix(sign).ok_or("a sign is missing")?;
    Ok(())
}

/// Writes a time with milliseconds, in UTC.
pub(super) fn write(time: Ms, out: &mut String) {
    let ms = i64::try_from(time.0).unwrap_or(i64::MAX);
    let time = DateTime::from_timestamp_millis(ms).unwrap_or(DateTime::<Utc>::MAX_UTC);
    out.push_str(&time.to_rfc3339_opts(SecondsFormat::Millis, true));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2030-01-01T00:00:00+02:00", 1_893_448_800_000),
            ("2030-01-01T00:00:00.123456789Z", 1_893_456_000_123),
            ("2030-01-01T00:00:00,5-01:30", 1_893_461_400_500),
            ("2024-02-29T23:59:59Z", 1_709_251_199_000),
            ("2000-02-29T00:00:00Z", 951_782_400_000),
            ("1969-01-01T00:00:00Z", 0),
            ("0000-01-01T00:00:00+23:59", 0),
            ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ] {
            assert_eq!(read(text), Ok(Ms(ms)), "{text}");
        }
        let mut out = String::new();
        write(Ms(1_709_251_199_042), &mut out);
        assert_eq!(out, "2024-02-29T23:59:59.042Z");
    }

    #[test]
    fn written_moments_are_read() {
        for day in 0..60_000 {
            let time = Ms(day * 86_400_000 + day);
            let mut out = String::new();
            write(time, &mut out);
            assert_eq!(read(&out), Ok(time), "{out}");
        }
    }

    #[test]
    fn an_invalid_moment_is_an_error() {
        for text in [
            "",
            "x",
            "2030-01-01",
            "2030-01-01T00:00:00",
            "2030-01-01 00:00:00Z",
            "2030-01-01t00:00:00Z",
            "2030-01-01T00:00:00z",
            "2030-02-30T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2030-13-01T00:00:00Z",
            "2030-00-01T00:00:00Z",
            "2030-01-00T00:00:00Z",
            "2030-01-01T24:00:00Z",
            "2030-01-01T00:00:60Z",
            "2030-01-01T00:00:00.Z",
            "2030-01-01T00:00:00+24:00",
            "2030-01-01T00:00:00+0200",
            "2030-01-01T00:00:00Zx",
            "2030-01-01T00:00:00+02:00x",
            "+030-01-01T00:00:00Z",
            "2030-01-01T00:0\u{e9}:00Z",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
