//! Times by the calendar, as crontab(5) has them. Schedules, hooks' timers and the schedules of
//! queue scripts read them here.

use chrono::{DateTime, LocalResult, Offset, SecondsFormat, TimeDelta, TimeZone, Utc};
use croner::parser::CronParser;
use quintet_types::Ms;

/// `minute hour day month weekday`.
#[derive(Clone, Debug)]
pub struct Cron {
    cron: Box<croner::Cron>,
    /// Its hours begin with a star: it comes in every hour there is, also in
    /// one that clocks show twice.
    every_hour: bool,
}

impl Cron {
    /// Reads five fields, or a word such as `@daily`. Day and weekday are both necessary where one
    /// begins with a star.
    ///
    /// # Errors
    /// The text is no such expression; the error says why.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::read(text, |field| field.starts_with('*'))
    }

    /// Reads the same for a queue script: there only a plain star makes both necessary.
    ///
    /// # Errors
    /// As of [`Self::parse`].
    pub fn of_script(text: &str) -> Result<Self, String> {
        Self::read(text, |field| field == "*")
    }

    fn read(text: &str, is_star: fn(&str) -> bool) -> Result<Self, String> {
        let upper = text.trim().to_uppercase();
        let fields = match upper.as_str() {
            "@HOURLY" => "0 * * * *",
            "@DAILY" | "@MIDNIGHT" => "0 0 * * *",
            "@WEEKLY" => "0 0 * * 0",
            "@MONTHLY" => "0 0 1 * *",
            "@YEARLY" | "@ANNUALLY" => "0 0 1 1 *",
            fields => fields,
        };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            return Err(format!(
                "takes five fields (minute hour day month weekday), or @hourly, @daily, @weekly, \
                 @monthly or @yearly; {text:?} has {}",
                fields.len()
            ));
        };
        // The library would look for such a time to the year 5000, by the hour.
        if fields
            .iter()
            .any(|field| field.trim_matches(',').is_empty())
        {
            return Err(format!("{text:?}: a list is empty"));
        }
        let both = is_star(day) || is_star(weekday);
        let parser = CronParser::builder().dom_and_dow(both).build();
        // Of the last Sunday of a month the library knows weekday 0 alone.
        let weekday = weekday.replace("7L", "0L");
        let cron = parser.parse(&format!("{minute} {hour} {day} {month} {weekday}"));
        let cron = cron.map(|cron| Self {
            cron: Box::new(cron),
            every_hour: hour.starts_with('*'),
        });
        cron.map_err(|error| {
            format!(
                "{text:?} is not possible: a minute is 0 to 59, an hour 0 to 23, a day 1 to 31, a \
                 month 1 to 12, a weekday 0 to 7 ({error})"
            )
        })
    }

    /// The first such time after `now` in UTC; [`Ms::NEVER`] if there is none
    /// (30 February).
    pub fn after(&self, now: Ms) -> Ms {
        self.after_in(now, &Utc)
    }

    /// The first such time after `now` by the clocks of `zone`; `now` and the
    /// answer are of the wall clock. [`Ms::NEVER`] if there is none.
    ///
    /// Where clocks are set: of what they show twice the first counts, and both
    /// if the hours begin with a star; what they never show comes when they have
    /// been set forward, and not at all if the hours begin with a star.
    pub fn after_in<Z: TimeZone>(&self, now: Ms, zone: &Z) -> Ms {
        // In whole minutes: what is left of one would be found in the answer.
        let minute = Some(now.0 - now.0 % 60_000).filter(|minute| *minute <= MOMENT_MAX);
        let minute = minute.and_then(|minute| i64::try_from(minute).ok());
        let after = minute.and_then(DateTime::<Utc>::from_timestamp_millis);
        let next = after.and_then(|after| self.next_in(after, zone));
        next.and_then(|next| u64::try_from(next.timestamp_millis()).ok())
            .map_or(Ms::NEVER, Ms)
    }

    fn next_in<Z: TimeZone>(&self, after: DateTime<Utc>, zone: &Z) -> Option<DateTime<Utc>> {
        let offset = |at: DateTime<Utc>| seconds(zone.offset_from_utc_datetime(&at.naive_utc()));
        let before = offset(after);
        let mut shown = after + before;
        let mut found = None;
        for _ in 0..TRIES {
            // What clocks show, as if it was UTC.
            shown = self.cron.find_next_occurrence(&shown, false).ok()?;
            let at = match zone.offset_from_local_datetime(&shown.naive_utc()) {
                LocalResult::Single(there) => Some(shown - seconds(there)),
                LocalResult::Ambiguous(first, second) => {
                    let first = shown - seconds(first);
                    let second = self.every_hour.then(|| shown - seconds(second));
                    Some(first).filter(|first| *first > after).or(second)
                }
                LocalResult::None if self.every_hour => None,
                LocalResult::None => set_forward(shown, zone),
            };
            found = at.filter(|at| *at > after);
            if found.is_some() {
                break;
            }
        }
        let found = found?;
        let later = offset(found);
        if self.every_hour && later < before {
            // In between clocks were set back: what they show a second time.
            let again = self.cron.find_next_occurrence(&(after + later), false);
            let again = again.ok()? - later;
            if again < found && offset(again) == later {
                return Some(again);
            }
        }
        Some(found)
    }
}

/// The end of the year 9999, ms: later moments are refused, and never come.
pub const MOMENT_MAX: u64 = 253_402_300_799_999;

/// Times that are looked at for one that clocks show: as many minutes as a zone
/// has ever left out, a day of them, and more.
const TRIES: usize = 2000;

fn seconds(offset: impl Offset) -> TimeDelta {
    TimeDelta::seconds(offset.fix().local_minus_utc().into())
}

/// When clocks have been set forward over what they never show.
fn set_forward<Z: TimeZone>(shown: DateTime<Utc>, zone: &Z) -> Option<DateTime<Utc>> {
    let mut minutes = (1..TRIES).filter_map(|minutes| {
        let shown = shown + TimeDelta::minutes(i64::try_from(minutes).ok()?);
        let there = zone.offset_from_local_datetime(&shown.naive_utc());
        Some(shown - seconds(there.earliest()?))
    });
    minutes.next()
}

/// A time with milliseconds, as RFC 3339 writes it in UTC: `2026-11-21T15:01:02.500Z`.
pub fn iso(at: Ms) -> String {
    let ms = i64::try_from(at.0).unwrap_or(i64::MAX);
    let time = DateTime::from_timestamp_millis(ms).unwrap_or(DateTime::<Utc>::MAX_UTC);
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_due_behind_the_last_moment() {
        let cron = Cron::parse("* * * * *").unwrap();
        let tokyo = chrono_tz::Asia::Tokyo;
        for after in [MOMENT_MAX + 1, 8_210_266_876_790_000, u64::MAX] {
            assert_eq!(cron.after_in(Ms(after), &tokyo), Ms::NEVER);
        }
        // In the year 4000; the library looks no further than 5000.
        assert_ne!(cron.after_in(Ms(64_060_588_800_000), &tokyo), Ms::NEVER);
    }

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
        // A star with a step still leaves the day to the weekday alone.
        next("0 0 */2 * 1", now, "2026-11-23T00:00:00.000Z");
        next("0 0 1 JAN MON-FRI", now, "2027-01-01T00:00:00.000Z");
        for sunday in ["7L", "0L", "SUNL", "6L,7L"] {
            let last = format!("0 0 * * {sunday}");
            next(&last, now + 7 * 86_400_000, "2026-11-29T00:00:00.000Z");
        }
        assert_eq!(Cron::parse("0 0 30 2 *").unwrap().after(Ms(now)), Ms::NEVER);
    }

    /// The next three times by the clocks of Berlin, as `2026-11-21T15:02`.
    fn three(cron: &Cron, after: &str) -> [String; 3] {
        let after = format!("{after}:02Z").parse::<DateTime<Utc>>().unwrap();
        let mut at = Ms(after.timestamp_millis().cast_unsigned());
        [(); 3].map(|()| {
            at = cron.after_in(at, &chrono_tz::Europe::Berlin);
            iso(at)[..16].to_owned()
        })
    }

    /// A text, a moment, and the three times behind it.
    type Row<'a> = (&'a str, &'a str, [&'a str; 3]);

    #[test]
    fn schedules_and_queue_scripts_read_the_same_texts() {
        // A Saturday in winter: midnight of Berlin is 23:00 of the day before.
        let now = "2026-11-21T15:01";
        let table: &[Row<'_>] = &[
            (
                "1,,31 * * * *",
                now,
                ["2026-11-21T15:31", "2026-11-21T16:01", "2026-11-21T16:31"],
            ),
            (
                "0 0 13 * 5",
                now,
                ["2026-11-26T23:00", "2026-12-03T23:00", "2026-12-10T23:00"],
            ),
            (
                "0 9 1-7 * +1",
                now,
                ["2026-12-07T08:00", "2027-01-04T08:00", "2027-02-01T08:00"],
            ),
            (
                "0 0 1 jan mon-fri",
                now,
                ["2026-12-31T23:00", "2027-01-03T23:00", "2027-01-04T23:00"],
            ),
            (
                "0 0 * * 7l",
                now,
                ["2026-11-28T23:00", "2026-12-26T23:00", "2027-01-30T23:00"],
            ),
            (
                "0 0 L * ?",
                now,
                ["2026-11-29T23:00", "2026-12-30T23:00", "2027-01-30T23:00"],
            ),
            (
                "0 0 15W * *",
                now,
                ["2026-12-14T23:00", "2027-01-14T23:00", "2027-02-14T23:00"],
            ),
            (
                "0 0 * * 5#2",
                now,
                ["2026-12-10T23:00", "2027-01-07T23:00", "2027-02-11T23:00"],
            ),
            (
                "@weekly",
                now,
                ["2026-11-21T23:00", "2026-11-28T23:00", "2026-12-05T23:00"],
            ),
            (
                "@monthly",
                now,
                ["2026-11-30T23:00", "2026-12-31T23:00", "2027-01-31T23:00"],
            ),
            (
                "@Yearly",
                now,
                ["2026-12-31T23:00", "2027-12-31T23:00", "2028-12-31T23:00"],
            ),
            (
                " @annually ",
                now,
                ["2026-12-31T23:00", "2027-12-31T23:00", "2028-12-31T23:00"],
            ),
            // Clocks go from 02:00 to 03:00 at 01:00Z.
            (
                "30 2 * * *",
                "2026-03-28T12:00",
                ["2026-03-29T01:00", "2026-03-30T00:30", "2026-03-31T00:30"],
            ),
            (
                "0,30 2 * * *",
                "2026-03-28T12:00",
                ["2026-03-29T01:00", "2026-03-30T00:00", "2026-03-30T00:30"],
            ),
            (
                "30 * * * *",
                "2026-03-29T00:00",
                ["2026-03-29T00:30", "2026-03-29T01:30", "2026-03-29T02:30"],
            ),
            // And from 03:00 back to 02:00 at 01:00Z.
            (
                "30 2 * * *",
                "2026-10-24T12:00",
                ["2026-10-25T00:30", "2026-10-26T01:30", "2026-10-27T01:30"],
            ),
            (
                "*/20 * * * *",
                "2026-10-25T00:30",
                ["2026-10-25T00:40", "2026-10-25T01:00", "2026-10-25T01:20"],
            ),
            (
                "@hourly",
                "2026-10-24T23:30",
                ["2026-10-25T00:00", "2026-10-25T01:00", "2026-10-25T02:00"],
            ),
            (
                "@daily",
                "2026-10-24T12:00",
                ["2026-10-24T22:00", "2026-10-25T23:00", "2026-10-26T23:00"],
            ),
            (
                "@midnight",
                "2026-10-24T12:00",
                ["2026-10-24T22:00", "2026-10-25T23:00", "2026-10-26T23:00"],
            ),
        ];
        for &(text, after, wanted) in table {
            for cron in [Cron::parse(text), Cron::of_script(text)] {
                assert_eq!(three(&cron.expect(text), after), wanted, "{text}");
            }
        }
    }

    #[test]
    fn only_a_plain_star_makes_day_and_weekday_necessary_for_a_script() {
        let (text, now) = ("0 0 */2 * 1", "2026-11-21T15:01");
        assert_eq!(
            three(&Cron::parse(text).unwrap(), now),
            ["2026-11-22T23:00", "2026-12-06T23:00", "2026-12-20T23:00"]
        );
        assert_eq!(
            three(&Cron::of_script(text).unwrap(), now),
            ["2026-11-22T23:00", "2026-11-24T23:00", "2026-11-26T23:00"]
        );
    }

    #[test]
    fn an_invalid_time_is_refused() {
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
            ", * * * *",
            "* * * * * *",
            "@never",
        ] {
            for cron in [Cron::parse(text), Cron::of_script(text)] {
                assert!(cron.is_err(), "{text}");
            }
        }
    }
}
