//! How numbers, times and sizes are written on a page.

use quintet_client::words::{TIMES, date, with_unit};
pub(super) use quintet_client::words::{count, duration, of};

/// Stands where there is nothing to tell.
pub(super) const NONE: &str = "–";

/// The query of an address, of the pairs that have a value.
pub(super) fn query(pairs: &[(&str, &str)]) -> String {
    let given = pairs.iter().filter(|(_, value)| !value.is_empty());
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(given).finish()
}

/// A count in a table: from a million on with three digits, `1.24 M`.
pub(super) fn short_count(number: u64) -> String {
    const STEPS: [(u64, &str); 4] = [
        (1_000_000_000_000_000, "P"),
        (1_000_000_000_000, "T"),
        (1_000_000_000, "G"),
        (1_000_000, "M"),
    ];
    let step = STEPS.iter().find(|(unit, _)| number >= *unit);
    match step {
        None => count(number),
        Some((unit, letter)) => format!("{} {letter}", three_digits(number, *unit)),
    }
}

/// `number / unit` with three digits, cut and never rounded up: 999,999 of
/// 1,000 is `999`.
fn three_digits(number: u64, unit: u64) -> String {
    let whole = number / unit;
    let rest = u128::from(number % unit) * 100 / u128::from(unit);
    match whole {
        0..=9 => format!("{whole}.{rest:02}"),
        10..=99 => format!("{whole}.{}", rest / 10),
        _ => count(whole),
    }
}

/// A rate by its tenths, each second: `61.2`, `4,812`, `0`.
pub(super) fn rate(tenths: u64) -> String {
    match tenths {
        0 => "0".to_owned(),
        1..=999 => format!("{}.{}", tenths / 10, tenths % 10),
        _ => count(tenths / 10),
    }
}

/// A size with three digits: `0 B`, `1.90 KiB`, `92.1 MiB`.
pub(super) fn bytes(number: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if number < 1024 {
        return format!("{number} B");
    }
    let mut unit = 1024_u64;
    let mut name = 0;
    while name + 1 < UNITS.len() && number / unit >= 1000 {
        unit <<= 10;
        name += 1;
    }
    // 1,000 to 1,023 of a unit are 0.97 of the next.
    format!("{} {}", three_digits(number, unit), UNITS[name])
}

/// A moment of the wall clock: `2026-11-22 03:12:09 UTC`.
pub(super) fn moment(ms: u64) -> String {
    written(ms, "%Y-%m-%d %H:%M:%S UTC")
}

/// Its time of day: `03:12:09 UTC`.
pub(super) fn time_of_day(ms: u64) -> String {
    written(ms, "%H:%M:%S UTC")
}

/// The same without seconds: `03:12`.
pub(super) fn hour_and_minute(ms: u64) -> String {
    written(ms, "%H:%M")
}

fn written(ms: u64, format: &str) -> String {
    match date(ms) {
        Some(moment) => moment.format(format).to_string(),
        None => "after the year 262142".to_owned(),
    }
}

/// A duration as people type it: `10s`, `5m`, `2h`, `7d`, `250ms`; a bare number
/// is seconds. In ms.
///
/// # Errors
/// The text tells the user which form to write.
pub(super) fn typed_duration(text: &str) -> Result<u64, &'static str> {
    let units = [&TIMES[..], &[("ms", 1), ("", 1000)]].concat();
    with_unit(text, &units).ok_or("Not a duration. Write 10s, 5m, 2h or 7d.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        for (number, full, short) in [
            (0, "0", "0"),
            (999, "999", "999"),
            (48_210, "48,210", "48,210"),
            (999_999, "999,999", "999,999"),
            (1_240_188, "1,240,188", "1.24 M"),
            (12_400_000, "12,400,000", "12.4 M"),
            (999_999_999, "999,999,999", "999 M"),
            (1_000_000_000, "1,000,000,000", "1.00 G"),
            (u64::MAX, "18,446,744,073,709,551,615", "18,446 P"),
        ] {
            assert_eq!(count(number), full);
            assert_eq!(short_count(number), short);
        }
    }

    #[test]
    fn rates() {
        for (tenths, text) in [
            (0, "0"),
            (1, "0.1"),
            (612, "61.2"),
            (1000, "100"),
            (48_123, "4,812"),
        ] {
            assert_eq!(rate(tenths), text);
        }
    }

    #[test]
    fn durations() {
        for (ms, text) in [
            (0, "0.0s"),
            (349, "0.3s"),
            (9_999, "9.9s"),
            (16_400, "16s"),
            (2_832_000, "47m 12s"),
            (3_630_000, "1h"),
            (8_040_000, "2h 14m"),
            (273_600_000, "3d 4h"),
            (u64::MAX, "213,503,982,334d 14h"),
        ] {
            assert_eq!(duration(ms), text);
        }
    }

    #[test]
    fn sizes() {
        for (number, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1946, "1.90 KiB"),
            (96_573_849, "92.0 MiB"),
            (1_073_741_823, "0.99 GiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
    }

    #[test]
    fn moments() {
        assert_eq!(moment(1_795_317_129_000), "2026-11-22 03:12:09 UTC");
        assert_eq!(time_of_day(1_795_317_129_000), "03:12:09 UTC");
        assert_eq!(moment(u64::MAX), "after the year 262142");
    }

    #[test]
    fn durations_as_they_are_typed() {
        for (text, ms) in [
            ("10s", 10_000),
            ("5 m", 300_000),
            ("7", 7000),
            ("250ms", 250),
        ] {
            assert_eq!(typed_duration(text), Ok(ms));
        }
        for text in [
            "",
            "3 weeks",
            "-1s",
            "s",
            "99999999999999999999",
            "18446744073709551615d",
        ] {
            assert!(typed_duration(text).is_err(), "{text}");
        }
    }
}
