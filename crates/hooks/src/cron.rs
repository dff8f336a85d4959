//! Times by the calendar, as crontab(5) has them, in UTC.

use quintet_engine::Ms;

use crate::calendar::{Date, days_from, days_in_month};

/// `minute hour day month weekday`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Both days and weekdays are named: either will do.
    either: bool,
}

impl Cron {
    /// Reads five fields of numbers, `a-b`, `*`, `/step` and lists of them.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            return Err(format!(
                "five fields expected (minute hour day month weekday), got {}",
                fields.len()
            ));
        };
        let mut weekdays = field("weekday", weekday, 0, 7)?;
        // Sunday is 0 and 7.
        if weekdays & 1 << 7 != 0 {
            weekdays |= 1;
        }
        Ok(Self {
            minutes: field("minute", minute, 0, 59)?,
            hours: field("hour", hour, 0, 23)?,
            days: field("day", day, 1, 31)?,
            months: field("month", month, 1, 12)?,
            weekdays,
            either: !day.starts_with('*') && !weekday.starts_with('*'),
        })
    }

    /// The first such time after `now`; [`Ms::NEVER`] if there is none in the
    /// next eight years (30 February).
    pub(crate) fn after(&self, now: Ms) -> Ms {
        let minute = now.0 / 60_000 + 1;
        let first = Date::of_day(minute / 1440);
        let (mut year, mut month, mut day) = (first.year, first.month, first.day);
        let mut from = minute % 1440;
        for _ in 0..8 * 366 {
            let number = days_from(year, month, day);
            let weekday = (number + 4) % 7;
            if has(self.months, month) && self.is_day(day, weekday) {
                let found =
                    (from..1440).find(|at| has(self.hours, at / 60) && has(self.minutes, at % 60));
                if let Some(at) = found {
                    return Ms((number * 1440 + at) * 60_000);
                }
            }
            from = 0;
            day += 1;
            if day > days_in_month(year, month) {
                (day, month) = (1, month + 1);
                if month > 12 {
                    (month, year) = (1, year + 1);
                }
            }
        }
        Ms::NEVER
    }

    fn is_day(&self, day: u64, weekday: u64) -> bool {
        let (day, weekday) = (has(self.days, day), has(self.weekdays, weekday));
        if self.either {
            day || weekday
        } else {
            day && weekday
        }
    }
}

fn has(set: u64, number: u64) -> bool {
    set & 1 << number != 0
}

fn field(name: &str, text: &str, least: u64, most: u64) -> Result<u64, String> {
    let mut set = 0;
    for part in text.split(',') {
        let bad = || format!("{name}: {part:?} is not a number, range or step");
        let number = |text: &str| text.parse::<u64>().map_err(|_| bad());
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, number(step)?),
            None => (part, 1),
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (least, most),
            Some((from, to)) => (number(from)?, number(to)?),
            // `5/10` is 5, 15, ...
            None if part.contains('/') => (number(range)?, most),
            None => (number(range)?, number(range)?),
        };
        if from < least || to > most || from > to || step == 0 {
            return Err(format!("{name}: {part:?} is not within {least} to {most}"));
        }
        let mut at = from;
        while at <= to {
            set |= 1 << at;
            at = at.saturating_add(step);
        }
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::iso;

    #[track_caller]
    fn next(cron: &str, after: u64, wanted: &str) {
        assert_eq!(iso(Cron::parse(cron).unwrap().after(Ms(after))), wanted);
    }

    #[test]
    fn times_are_found() {
        // 2026-11-21 is a Saturday.
        let now = 1_795_273_262_500;
        assert_eq!(iso(Ms(now)), "2026-11-21T15:01:02.500Z");
        next("* * * * *", now, "2026-11-21T15:02:00.000Z");
        next("*/15 * * * *", now, "2026-11-21T15:15:00.000Z");
        next("0 9-17 * * 1-5", now, "2026-11-23T09:00:00.000Z");
        next("30 4 1,15 * *", now, "2026-12-01T04:30:00.000Z");
        next("0 0 29 2 *", now, "2028-02-29T00:00:00.000Z");
        next("0 0 13 * 5", now, "2026-11-27T00:00:00.000Z");
        next("1 0 * * 7", now, "2026-11-22T00:01:00.000Z");
        next("5/20 0 * * *", now, "2026-11-22T00:05:00.000Z");
        assert_eq!(Cron::parse("0 0 30 2 *").unwrap().after(Ms(now)), Ms::NEVER);
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "* * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 8",
            "a * * * *",
            "5-1 * * * *",
            "*/0 * * * *",
            "1,,2 * * * *",
        ] {
            assert!(Cron::parse(text).is_err(), "{text}");
        }
    }
}
