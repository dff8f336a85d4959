//! Dates of the Gregorian calendar, in UTC.

use quintet_types::Ms;

/// A day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Date {
    pub(crate) year: u64,
    /// 1 to 12.
    pub(crate) month: u64,
    /// 1 to 31.
    pub(crate) day: u64,
}

impl Date {
    /// The day so many days after 1970-01-01. Years are counted from March in
    /// eras of 400, so that leap days stand at the end of a year.
    pub(crate) fn of_day(days: u64) -> Self {
        let days = days + 719_468;
        let era = days / 146_097;
        let in_era = days % 146_097;
        let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
        let in_year = in_era - (365 * year + year / 4 - year / 100);
        let month = (5 * in_year + 2) / 153;
        let day = in_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        Self {
            year: year + era * 400 + u64::from(month <= 2),
            month,
            day,
        }
    }
}

/// `2026-11-21T15:01:02.500Z`.
pub(crate) fn iso(at: Ms) -> String {
    // Past the year 200,000 nobody reads it.
    let ms = at.0.min(6_000_000_000_000_000);
    let date = Date::of_day(ms / 86_400_000);
    let rest = ms % 86_400_000;
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        date.year,
        date.month,
        date.day,
        rest / 3_600_000,
        rest / 60_000 % 60,
        rest / 1000 % 60,
        rest % 1000
    )
}
