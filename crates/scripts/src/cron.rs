//! Times by the calendar, as cron(8) has them, in local time.

use std::str::FromStr;

use chrono::{DateTime, Local, TimeZone};
use croner::Cron;
use quintet_types::Ms;

/// Reads the five fields of cron, or a word such as `@daily`.
pub(crate) fn parse(cron: &str) -> Result<Cron, String> {
    if cron.split_whitespace().count() != 5 && !cron.starts_with('@') {
        return Err("not five fields".to_owned());
    }
    Cron::from_str(cron).map_err(|error| error.to_string())
}

/// The next time behind `after`; `None` if there is none.
pub(crate) fn next(cron: &Cron, after: Ms) -> Option<Ms> {
    // In whole seconds: what is left of one would be found in the answer too.
    let after = Local
        .timestamp_opt(i64::try_from(after.0 / 1000).ok()?, 0)
        .single()?;
    let next: DateTime<Local> = cron.find_next_occurrence(&after, false).ok()?;
    u64::try_from(next.timestamp_millis()).ok().map(Ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let cron = parse("*/10 * * * *").expect("cron");
        let ten = 600_000;
        assert_eq!(next(&cron, Ms(1)), Some(Ms(ten)));
        assert_eq!(next(&cron, Ms(ten)), Some(Ms(2 * ten)));
        for bad in ["", "* * * *", "61 * * * *", "x * * * *", "* * * * * *"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        // The thirtieth of February.
        let never = parse("0 0 30 2 *").expect("cron");
        assert_eq!(next(&never, Ms(1)), None);
    }
}
