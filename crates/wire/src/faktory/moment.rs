//! Times as RFC 3339 writes them.

use std::fmt::Write as _;

use quintet_types::Ms;

const DAY_MS: i64 = 86_400_000;

/// Reads a time. Upper case only, with an offset; a leap second and a day that
/// its month does not have are none. One before 1970 counts as its beginning.
pub(super) fn read(text: &str) -> Result<Ms, &'static str> {
    let mut rest = text;
    let year = digits(&mut rest, 4)?;
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
            let hours = digits(&mut rest, 2)?;
            sign(&mut rest, ':')?;
            let minutes = digits(&mut rest, 2)?;
            if !rest.is_empty() || hours > 23 || minutes > 59 {
                return Err("no such offset");
            }
            (hours * 60 + minutes) * if west { -1 } else { 1 }
        }
    };
    if !(1..=12).contains(&month) || !(1..=days_in(year, month)).contains(&day) {
        return Err("no such day");
    }
    if hour > 23 || minute > 59 || second > 59 {
        return Err("no such time of day");
    }
    let minutes = (days_before(year, month, day) * 24 + hour) * 60 + minute - offset;
    let ms = (minutes * 60 + second) * 1000 + ms;
    Ok(Ms(u64::try_from(ms).unwrap_or(0)))
}

/// So many digits.
fn digits(rest: &mut &str, count: usize) -> Result<i64, &'static str> {
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

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to this one, by years that begin in March, so that the
/// day a leap year has more is its last.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Writes a time with milliseconds, in UTC.
pub(super) fn write(time: Ms, out: &mut String) {
    let ms = i64::try_from(time.0).unwrap_or(i64::MAX);
    let (days, ms) = (ms.div_euclid(DAY_MS) + 719_468, ms.rem_euclid(DAY_MS));
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let (second, ms) = (ms / 1000, ms % 1000);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    write!(
        out,
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z"
    )
    .expect("strings take all");
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
