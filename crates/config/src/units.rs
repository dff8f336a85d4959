//! Sizes and durations as people write them.

use quintet_client::words::{TIMES, in_units, with_unit};
use quintet_types::Rate;

/// Reads a number of bytes: `4096`, `"64MiB"`, `"1GB"`.
///
/// # Errors
/// A sentence that says what is taken.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    const UNITS: &[(&str, u64)] = &[
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("kB", 1000),
        ("KB", 1000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("K", 1 << 10),
        ("M", 1 << 20),
        ("G", 1 << 30),
        ("B", 1),
        ("", 1),
    ];
    with_unit(text, UNITS)
        .ok_or_else(|| format!("\"{text}\" is not a size; write a number of bytes or \"64MiB\""))
}

/// Reads a duration in milliseconds: `"50ms"`, `"10s"`, `"1h"`, `"7d"`; a bare number is seconds.
///
/// # Errors
/// A sentence that says what is taken.
pub fn parse_duration_ms(text: &str) -> Result<u64, String> {
    const OTHERS: [(&str, u64); 3] = [("ms", 1), ("min", 60_000), ("", 1000)];
    let units = [&TIMES[..], &OTHERS].concat();
    with_unit(text, &units).ok_or_else(|| {
        format!(
            "\"{text}\" is not a duration; write \"50ms\", \"10s\", \"5m\", \"1h\", \"7d\" or a number \
             of seconds"
        )
    })
}

/// The shortest exact form of a number of bytes.
pub(crate) fn show_bytes(bytes: u64) -> String {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    in_units(bytes, &units).unwrap_or_else(|| bytes.to_string())
}

/// The shortest exact form of a duration.
pub fn show_duration(ms: u64) -> String {
    in_units(ms, &TIMES).unwrap_or_else(|| match ms {
        0 => "0".to_owned(),
        ms => format!("{ms}ms"),
    })
}

/// Reads so many in a time: `100/s`, also by minute, hour and day; `0`: no limit.
pub(crate) fn parse_rate(text: &str) -> Option<Rate> {
    let text = text.trim();
    if text == "0" {
        return Some(Rate::default());
    }
    let (count, unit) = text.split_once('/')?;
    let count = count.trim().parse().ok().filter(|&count: &u32| count > 0)?;
    let (_, per_ms) = TIMES.iter().find(|(known, _)| *known == unit.trim())?;
    Some(Rate {
        count,
        per_ms: *per_ms,
    })
}

/// The form that [`parse_rate`] reads.
pub(crate) fn show_rate(rate: Rate) -> String {
    let unit = TIMES.iter().find(|(_, per_ms)| *per_ms == rate.per_ms);
    match unit {
        Some((unit, _)) if rate.count > 0 => format!("{}/{unit}", rate.count),
        _ => "0".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_survive_a_round_trip() {
        for bytes in [0, 1, 1000, 1024, 1536, 64 << 20, 1 << 30, (1 << 30) + 1] {
            assert_eq!(parse_bytes(&show_bytes(bytes)), Ok(bytes));
        }
        for ms in [0, 1, 50, 1000, 1500, 60_000, 3_600_000, 86_400_000 * 7] {
            assert_eq!(parse_duration_ms(&show_duration(ms)), Ok(ms));
        }
    }

    #[test]
    fn rates_survive_a_round_trip() {
        for text in ["0", "100/s", "5/m", "1000/h", "4294967295/d"] {
            assert_eq!(parse_rate(text).map(show_rate).as_deref(), Some(text));
        }
        for text in [
            "",
            "5",
            "0/s",
            "-1/s",
            "5/w",
            "/s",
            "5/",
            "1.5/s",
            "4294967296/s",
        ] {
            assert!(parse_rate(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_bare_number_is_seconds() {
        assert_eq!(parse_duration_ms("5"), Ok(5000));
        assert_eq!(parse_duration_ms("0"), Ok(0));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "MiB",
            "-1",
            "1.5MiB",
            "12 parsecs",
            "99999999999999999999",
            "18014398509481984KiB",
        ] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        for text in ["", "ms", "-5", "5 years"] {
            assert!(parse_duration_ms(text).is_err(), "{text}");
        }
    }
}
