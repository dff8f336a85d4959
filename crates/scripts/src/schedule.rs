//! Messages queues put to themselves at times (`schedule` in their config).

use std::str::FromStr;

use chrono::{DateTime, Local};
use croner::Cron;

/// Reads the five fields of cron.
pub(crate) fn parse(cron: &str) -> Result<Cron, String> {
    if cron.split_whitespace().count() != 5 && !cron.starts_with('@') {
        return Err("not five fields".to_owned());
    }
    Cron::from_str(cron).map_err(|error| error.to_string())
}

/// The next time behind `after`; `None` if there is none.
pub(crate) fn next(cron: &Cron, after: DateTime<Local>) -> Option<DateTime<Local>> {
    cron.find_next_occurrence(&after, false).ok()
}
