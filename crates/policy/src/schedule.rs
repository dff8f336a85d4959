//! Schedules: when messages are put by the clock, and which ones.

use chrono_tz::Tz;
use quintet_types::{Dedupe, Ms, Name, OnRepeat, Put, Scope};

use super::Cron;

/// Shortest interval, ms.
pub const EVERY_MS_MIN: u64 = 1000;
/// Longest interval, ms: ten years.
pub const EVERY_MS_MAX: u64 = 10 * 366 * 86_400_000;
/// Moments of a list at most.
pub const MOMENTS_MAX: usize = 1000;
/// Begins the deduplication id of the runs of a schedule that must not overlap.
const OVERLAP_ID: &str = "quintet.schedule ";

/// The rule by which a schedule repeats.
#[derive(Clone, Debug)]
pub enum Recurrence {
    /// Times by the clocks of a zone.
    Cron(Cron, Tz),
    /// Every so many ms since 1970, and the phase after that.
    Every { ms: u64, phase_ms: u64 },
    /// These moments, in their order.
    At(Box<[Ms]>),
}

/// When a schedule is due, by the wall clock.
#[derive(Clone, Debug)]
pub struct Timing {
    pub recurrence: Recurrence,
    /// The first moment that may be due.
    pub start: Ms,
    /// The last one; [`Ms::NEVER`]: there is none.
    pub end: Ms,
    /// Runs at most; `None`: any number.
    pub count: Option<u64>,
}

impl Timing {
    /// Times of a cron expression, without start, end or count.
    pub fn cron(cron: Cron, zone: Tz) -> Self {
        Self {
            recurrence: Recurrence::Cron(cron, zone),
            start: Ms(0),
            end: Ms::NEVER,
            count: None,
        }
    }

    /// The first due time after `after`; [`Ms::NEVER`] if there is none.
    pub fn next(&self, after: Ms) -> Ms {
        if after == Ms::NEVER {
            return after;
        }
        let after = Ms(after.0.max(self.start.0.saturating_sub(1)));
        let next = match &self.recurrence {
            Recurrence::Cron(cron, zone) => cron.after_in(after, zone),
            Recurrence::Every { ms, phase_ms } => {
                let ms = (*ms).max(1);
                let past = (after.0 + 1).saturating_sub(*phase_ms);
                let next = past.div_ceil(ms).checked_mul(ms);
                next.and_then(|next| next.checked_add(*phase_ms))
                    .map_or(Ms::NEVER, Ms)
            }
            Recurrence::At(moments) => {
                let at = moments.partition_point(|moment| *moment <= after);
                moments.get(at).copied().unwrap_or(Ms::NEVER)
            }
        };
        match next <= self.end {
            true => next,
            false => Ms::NEVER,
        }
    }

    /// The due times after `after`, `most` of them at most.
    pub fn nexts(&self, after: Ms, most: usize) -> Vec<Ms> {
        let step = |after: &Ms| Some(self.next(*after));
        let due = std::iter::successors(step(&after), step);
        due.take_while(|due| *due != Ms::NEVER).take(most).collect()
    }
}

quintet_types::named! {
    /// Handling of runs that were missed: nothing was put within a minute of the due time.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Missed, word {
        /// Nothing is put for them.
        #[default]
        Skip = "skip",
        /// One message for all of them.
        Once = "once",
        /// A message for each, up to a bound.
        All = "all",
    }
}

quintet_types::named! {
    /// Handling of a due time while the message of an earlier run is not done.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Overlap, word {
        /// It is put.
        #[default]
        Allow = "allow",
        /// It is not.
        Skip = "skip",
        /// It takes the place of the earlier one if that waits; it is not put while a consumer holds it.
        Replace = "replace",
    }
}

/// A message that is put by the clock.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub name: String,
    pub timing: Timing,
    /// The times in the words of their author: due times of another text are not its own.
    pub policy: String,
    pub missed: Missed,
    pub overlap: Overlap,
    pub put: Put,
}

impl Schedule {
    /// Has the engine tell whether the message of an earlier run is not done: its put repeats that
    /// one until then. Without effect where runs may overlap.
    #[must_use]
    pub fn guarded(mut self) -> Self {
        let on_repeat = match self.overlap {
            Overlap::Allow => return self,
            Overlap::Skip => OnRepeat::Refuse,
            Overlap::Replace => OnRepeat::Replace,
        };
        let more = self.put.more.get_or_insert_default();
        more.dedupe = Some(Dedupe {
            id: format!("{OVERLAP_ID}{}", self.name).into_bytes().into(),
            window_ms: Some(0),
            scope: Some(Scope::Done),
            on_repeat: Some(on_repeat),
        });
        self
    }

    /// The queue it puts into.
    pub fn queue(&self) -> &Name {
        &self.put.queue
    }

    /// The name of its time zone.
    pub fn zone(&self) -> &'static str {
        match &self.timing.recurrence {
            Recurrence::Cron(_, zone) => zone.name(),
            Recurrence::Every { .. } | Recurrence::At(_) => Tz::UTC.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(recurrence: Recurrence) -> Timing {
        Timing {
            recurrence,
            start: Ms(0),
            end: Ms::NEVER,
            count: None,
        }
    }

    fn every(ms: u64, phase_ms: u64) -> Timing {
        timing(Recurrence::Every { ms, phase_ms })
    }

    #[test]
    fn intervals_have_a_phase() {
        for (ms, phase_ms, after, due) in [
            (10, 0, 0, 10),
            (10, 3, 0, 3),
            (10, 3, 2, 3),
            (10, 3, 3, 13),
            (10, 0, 9, 10),
            (10, 0, 10, 20),
        ] {
            let next = every(ms, phase_ms).next(Ms(after));
            assert_eq!(next, Ms(due), "{ms} {phase_ms} {after}");
        }
        // Where numbers end there is no due time.
        assert_eq!(every(1000, 0).next(Ms(u64::MAX - 5)), Ms::NEVER);
        assert_eq!(every(u64::MAX, 7).next(Ms(8)), Ms::NEVER);
    }

    #[test]
    fn moments_come_once_and_bounds_hold() {
        let mut timing = timing(Recurrence::At([Ms(5), Ms(9), Ms(20)].into()));
        assert_eq!(timing.nexts(Ms(0), 10), [Ms(5), Ms(9), Ms(20)]);
        timing.start = Ms(9);
        timing.end = Ms(19);
        assert_eq!(timing.nexts(Ms(0), 10), [Ms(9)], "start and end are within");
        let mut seconds = every(1000, 0);
        seconds.end = Ms(3000);
        assert_eq!(seconds.nexts(Ms(0), 10).len(), 3);
        assert_eq!(every(1000, 0).nexts(Ms(0), 2), [Ms(1000), Ms(2000)]);
    }

    #[test]
    fn runs_that_must_not_overlap_repeat_the_last_until_it_is_done() {
        let schedule = Schedule {
            name: "a".to_owned(),
            timing: every(1000, 0),
            policy: String::new(),
            missed: Missed::Skip,
            overlap: Overlap::Replace,
            put: Put::new(Name::from("w"), quintet_types::Body::new(b"")),
        };
        let dedupe = schedule
            .clone()
            .guarded()
            .put
            .more
            .and_then(|more| more.dedupe);
        let dedupe = dedupe.expect("an id");
        assert_eq!(&*dedupe.id, b"quintet.schedule a");
        assert_eq!(dedupe.on_repeat, Some(OnRepeat::Replace));
        assert_eq!(
            (dedupe.window_ms, dedupe.scope),
            (Some(0), Some(Scope::Done))
        );
        let overlap = Overlap::Allow;
        assert!(
            Schedule {
                overlap,
                ..schedule
            }
            .guarded()
            .put
            .more
            .is_none()
        );
    }
}
