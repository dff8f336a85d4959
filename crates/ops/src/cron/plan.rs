//! The due times of a table: its schedule, its stored mark, and the wall clock. Pure: knows no
//! clock, thread or queue.

use chrono_tz::Tz;
use quintet_client::CronAct;
use quintet_hooks::Cron;
use quintet_types::Ms;
use serde::{Deserialize, Serialize};

/// A run that is later than this, ms, was missed: the server was down, the
/// clock was set, or the put was refused for as long.
pub(crate) const LATE_MS: u64 = 60_000;
/// Missed due times of one gap are counted up to here.
const COUNTED_MAX: u64 = 1000;

/// The mark of a table in the log, stored in the same step as its put.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Mark {
    /// The schedule and zone that `done` is of.
    pub(crate) policy: String,
    /// Due times up to this one, by the wall clock, are dealt with.
    pub(crate) done: u64,
    /// When it was put last, by the wall clock; `None`: never.
    pub(crate) last_run: Option<u64>,
    /// The message of that put; `None`: it is not known, as the server ended
    /// in that moment.
    pub(crate) last_id: Option<u64>,
    /// Nothing is put by itself until it is resumed.
    pub(crate) paused: bool,
    /// Due times that were missed, ever.
    pub(crate) missed: u64,
    /// When it was noticed last that there were such, by the wall clock.
    pub(crate) last_missed: Option<u64>,
}

impl Mark {
    /// The mark when this has been done to the table. That of [`CronAct::Run`]
    /// is remembered with the put.
    pub(crate) fn after(&self, act: CronAct, now: Ms) -> Self {
        let mark = self.clone();
        match act {
            CronAct::Pause => Self {
                paused: true,
                ..mark
            },
            // What was due meanwhile is let go.
            CronAct::Resume if mark.paused => Self {
                paused: false,
                done: mark.done.max(now.0),
                ..mark
            },
            CronAct::Resume => mark,
            CronAct::Run => Self {
                last_run: Some(now.0),
                last_id: None,
                ..mark
            },
        }
    }
}

/// When a table runs.
pub(crate) struct When<'a> {
    pub(crate) cron: &'a Cron,
    pub(crate) zone: Tz,
    pub(crate) policy: &'a str,
    /// Runs that were missed are made up for by one.
    pub(crate) once: bool,
}

/// The next step of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing yet.
    Rest,
    /// This is to be remembered, then looked at again.
    Note { mark: Mark, missed: u64 },
    /// A message is to be put for `due`, the first missed time where it makes up for some, and this
    /// remembered with it.
    Put { mark: Mark, missed: u64, due: Ms },
}

impl When<'_> {
    /// The next step when the wall clock shows `now`. Of several due times that have passed at most
    /// one is put.
    pub(crate) fn look(&self, mark: &Mark, now: Ms) -> Look {
        if mark.policy != self.policy {
            // Due times before this was the schedule are not its own.
            let mark = Mark {
                policy: self.policy.to_owned(),
                done: now.0,
                ..mark.clone()
            };
            return Look::Note { mark, missed: 0 };
        }
        let next = self.next(Ms(mark.done));
        if mark.paused || next > now {
            return Look::Rest;
        }
        // Of the last minute there are two due times at most.
        let late = Ms(now.0.saturating_sub(LATE_MS));
        let missed = self.count(Ms(mark.done), late);
        let mut fresh = None;
        let mut passed = 0;
        let mut due = self.next(Ms(mark.done.max(late.0)));
        while due <= now {
            fresh = Some(due);
            passed += 1;
            due = self.next(due);
        }
        let run = fresh.is_some() || self.once;
        let missed = missed + u64::saturating_sub(passed, 1);
        let mark = Mark {
            done: fresh.unwrap_or(now).0,
            last_run: if run { Some(now.0) } else { mark.last_run },
            last_id: if run { None } else { mark.last_id },
            missed: mark.missed.saturating_add(missed),
            last_missed: (missed > 0).then_some(now.0).or(mark.last_missed),
            ..mark.clone()
        };
        match run {
            true => Look::Put {
                mark,
                missed,
                due: fresh.unwrap_or(next),
            },
            false => Look::Note { mark, missed },
        }
    }

    /// The first due time behind this.
    pub(crate) fn next(&self, after: Ms) -> Ms {
        self.cron.after_in(after, &self.zone)
    }

    /// How many due times there are behind `from` and up to `to`.
    fn count(&self, from: Ms, to: Ms) -> u64 {
        let (mut count, mut due) = (0, self.next(from));
        while due <= to && count < COUNTED_MAX {
            count += 1;
            due = self.next(due);
        }
        count
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
