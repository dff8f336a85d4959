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

/// A duration in two units: `0.3 s`, `16 s`, `47 m 12 s`, `2 h 14 m`,
/// `3 d 04 h`.
pub fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..=9 => format!("{seconds}.{} s", ms % 1000 / 100),
        10..=59 => format!("{seconds} s"),
        60..=3599 => format!("{minutes} m {:02} s", seconds % 60),
        3600..=86_399 => format!("{hours} h {:02} m", minutes % 60),
        _ => format!("{} d {:02} h", count(days), hours % 24),
    }
}

/// A moment in UTC, cut to seconds: `2027-01-01T00:00:00Z`. `ms` is since 1970.
pub fn utc(ms: u64) -> String {
    let at = i64::try_from(ms)
        .ok()
        .and_then(DateTime::<Utc>::from_timestamp_millis);
    at.unwrap_or(DateTime::<Utc>::MAX_UTC)
        .format("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

/// `1 message`, `2 messages`.
pub fn of(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}
