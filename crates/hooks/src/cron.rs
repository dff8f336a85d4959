//! Times by the calendar, as crontab(5) has them, in UTC.

use chrono::{DateTime, Utc};
use croner::parser::CronParser;
use quintet_engine::Ms;

/// `minute hour day month weekday`.
#[derive(Clone, Debug)]
pub(crate) struct Cron(Box<croner::Cron>);

impl Cron {
    /// Reads five fields.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let [_, _, day, _, weekday] = fields[..] else {
            return Err(format!(
                "five fields expected (minute hour day month weekday), got {}",
                fields.len()
            ));
        };
        if text.contains(",,") {
            return Err(format!("{text:?}: a list with nothing in it"));
        }
        // Both days and weekdays are named: either will do.
        let either = !day.starts_with('*') && !weekday.starts_with('*');
        let parser = CronParser::builder().dom_and_dow(!either).build();
        let cron = parser.parse(text).map(|cron| Self(Box::new(cron)));
        cron.map_err(|error| format!("{text:?}: {error}"))
    }

    /// The first such time after `now`; [`Ms::NEVER`] if there is none
    /// (30 February).
    pub(crate) fn after(&self, now: Ms) -> Ms {
        // In whole minutes: what is left of one would be found in the answer.
        let minute = i64::try_from(now.0 - now.0 % 60_000).ok();
        let after = minute.and_then(DateTime::<Utc>::from_timestamp_millis);
        let next = after.and_then(|after| self.0.find_next_occurrence(&after, false).ok());
        next.and_then(|next| u64::try_from(next.timestamp_millis()).ok())
            .map_or(Ms::NEVER, Ms)
    }
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
        // A star with a step still leaves the day to the weekday alone.
        next("0 0 */2 * 1", now, "2026-11-23T00:00:00.000Z");
        next("0 0 1 JAN MON-FRI", now, "2027-01-01T00:00:00.000Z");
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
