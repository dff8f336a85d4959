//! How numbers and times are written for people.

use chrono::{DateTime, Utc};

/// A count in full: `48,210`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A duration in its two largest units: `0.3s`, `16s`, `47m 12s`, `2h`, `3d 4h`.
pub fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let (first, second, unit) = match seconds {
        0..=9 => (format!("{seconds}.{}s", ms % 1000 / 100), 0, ""),
        10..=59 => (format!("{seconds}s"), 0, ""),
        60..=3599 => (format!("{minutes}m"), seconds % 60, "s"),
        3600..=86_399 => (format!("{hours}h"), minutes % 60, "m"),
        _ => (format!("{}d", count(days)), hours % 24, "h"),
    };
    match second {
        0 => first,
        _ => format!("{first} {second}{unit}"),
    }
}

/// A moment in UTC, cut to seconds: `2027-01-01T00:00:00Z`. `ms` is since 1970.
pub fn utc(ms: u64) -> String {
    let at = date(ms).unwrap_or(DateTime::<Utc>::MAX_UTC);
    at.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The moment so many ms after 1970; `None`: no calendar has it.
pub fn date(ms: u64) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp_millis(i64::try_from(ms).ok()?)
}

/// A moment as RFC 3339 has it, in ms since 1970.
pub fn moment(text: &str) -> Option<u64> {
    let at = DateTime::parse_from_rfc3339(text).ok()?;
    u64::try_from(at.timestamp_millis()).ok()
}

/// Units of times, and their milliseconds.
pub const TIMES: [(&str, u64); 4] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
];

/// A number with one of these units; `None`: it has another one, or is too large.
pub fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let unit = unit.trim_start();
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*factor)
}

/// So many of the first unit that fits, if one does.
pub fn in_units(value: u64, units: &[(&str, u64)]) -> Option<String> {
    let fits = |(_, size): &&(&str, u64)| value != 0 && value.is_multiple_of(*size);
    let (unit, size) = units.iter().find(fits)?;
    Some(format!("{}{unit}", value / size))
}

/// `1 message`, `2 messages`.
pub fn of(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}
