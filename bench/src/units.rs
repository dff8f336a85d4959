//! Numbers as people write and read them.

use std::time::Duration;

use indicatif::HumanCount;

/// `1234567.8` as `1,234,568`.
pub(crate) fn thousands(value: f64) -> String {
    HumanCount(value.round() as u64).to_string()
}

/// Microseconds with the unit that suits them.
pub fn micros(value: f64) -> String {
    match value {
        v if v < 1e3 => format!("{v:.0} us"),
        v if v < 1e6 => format!("{:.2} ms", v / 1e3),
        v => format!("{:.2} s", v / 1e6),
    }
}

/// Nanoseconds, as many as there can be.
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A number with one of some units.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// Bytes.
///
/// # Errors
/// Says how a size is written.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let units = [
        ("", 1),
        ("B", 1),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
    ];
    with_unit(text, &units)
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or_else(|| format!("\"{text}\" is not a size; write a number of bytes or \"8MiB\""))
}

/// # Errors
/// Says how a time is written.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];
    with_unit(text, &units)
        .map(Duration::from_millis)
        .ok_or_else(|| format!("\"{text}\" is not a time; write \"500ms\", \"10s\" or \"2m\""))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{micros, size, thousands, time};

    #[test]
    fn numbers_for_people() {
        for (value, text) in [
            (0.0, "0"),
            (999.4, "999"),
            (1000.0, "1,000"),
            (1234567.8, "1,234,568"),
        ] {
            assert_eq!(thousands(value), text);
        }
        for (value, text) in [(12.3, "12 us"), (1234.0, "1.23 ms"), (2.5e6, "2.50 s")] {
            assert_eq!(micros(value), text);
        }
    }

    #[test]
    fn sizes_and_times() {
        assert_eq!((size("64"), size("8MiB")), (Ok(64), Ok(8 << 20)));
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("2m"), Ok(Duration::from_secs(120)));
        for text in ["", "x", "8 parsecs", "-1", "99999999999999999999"] {
            assert!(size(text).is_err() && time(text).is_err(), "{text}");
        }
        assert!(time("10").is_err(), "a time needs its unit");
    }
}
