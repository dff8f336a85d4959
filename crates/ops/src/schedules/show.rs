//! Showing schedules. A cursor is shown only when it was read and is durable.

use std::sync::Arc;

use quintet_client::{RunSeen, ScheduleSeen, ScheduleSpec, ScheduleView, WhichSchedules};
use quintet_host::locked;
use quintet_policy::Recurrence;

use super::load::Loaded;
use super::next_ms;
use super::plan::{Cursor, Run};
use super::run::Runner;

/// Schedules that are shown at once: others wait as long.
const SHOWN_MAX: usize = 100;
/// Schedules that are read at once: a definition has some 64 KiB at most.
const AT_ONCE: usize = 64;

impl Runner<'_> {
    /// The schedules that are requested, and the name of the last one if more follow. `None`: the
    /// tables cannot be read.
    pub(super) fn show(
        &self,
        which: &WhichSchedules,
    ) -> Option<(Vec<ScheduleSeen>, Option<String>)> {
        let inside = locked(&self.schedules.inside);
        let book = &inside.book;
        let (names, full) = match which {
            WhichSchedules::Page { after, max } => {
                let max = (*max).min(SHOWN_MAX);
                let behind = book.behind(after.as_deref()).map(|(name, _)| name);
                let mut names: Vec<Arc<str>> = behind.take(max + 1).cloned().collect();
                let more = names.len() > max;
                names.truncate(max);
                let last = names.last().filter(|_| more).map(|name| name.to_string());
                (names, last)
            }
            WhichSchedules::OfFile => {
                let files = book.behind(None).filter(|(_, item)| item.of_file.is_some());
                (files.map(|(name, _)| Arc::clone(name)).collect(), None)
            }
            WhichSchedules::One(name) => {
                let found = book.get(name).map(|_| name.as_str().into());
                (found.into_iter().collect(), None)
            }
            WhichSchedules::Soonest(max) => (book.soonest((*max).min(SHOWN_MAX)), None),
        };
        drop(inside);
        let mut all = Vec::with_capacity(names.len());
        for names in names.chunks(AT_ONCE) {
            self.show_these(names, which, &mut all)?;
        }
        Some((all, full))
    }

    fn show_these(
        &self,
        names: &[Arc<str>],
        which: &WhichSchedules,
        all: &mut Vec<ScheduleSeen>,
    ) -> Option<()> {
        let all_loaded = self.load_all(names);
        let inside = locked(&self.schedules.inside);
        for loaded in all_loaded {
            let loaded = loaded?;
            let Some(item) = inside.book.get(&loaded.name) else {
                continue;
            };
            let mut seen = of_tables(&loaded);
            let view = &mut seen.view;
            view.shadows = item.shadows;
            view.next_ms = next_ms(item);
            let invalid = loaded.schedule.as_ref().err().map(String::as_str);
            let refused = item.error.as_deref();
            view.ended = view.next_ms.is_none() && !view.paused && invalid.is_none();
            view.outcome = match (invalid, refused) {
                (Some(_), _) => "invalid",
                (None, Some(_)) => "refused",
                (None, None) => outcome(&loaded.cursor),
            };
            view.error = invalid.or(refused).map(str::to_owned);
            if matches!(which, WhichSchedules::One(_) | WhichSchedules::Soonest(_))
                && let Ok(schedule) = &loaded.schedule
            {
                seen.timing = Some(schedule.timing.clone());
            }
            if let WhichSchedules::One(_) = which {
                let runs = loaded.cursor.runs.iter().rev();
                seen.runs = runs.map(run_seen).collect();
                let stored = loaded.stored.filter(|_| loaded.of_file.is_none());
                seen.spec = stored.map(|(stored, _)| Box::new(stored.spec));
            }
            all.push(seen);
        }
        Some(())
    }
}

fn run_seen(run: &Run) -> RunSeen {
    let Run(due_ms, at_ms, id, how, times) = *run;
    RunSeen {
        due_ms,
        at_ms,
        outcome: how.word(),
        times,
        message: (id > 0).then_some(id),
        became: None,
    }
}

/// The word for the last thing that happened to it.
fn outcome(cursor: &Cursor) -> &'static str {
    // One message may make up for what was missed.
    let mut last = (cursor.last_run, "put");
    for other in [
        (cursor.last_missed, "missed"),
        (cursor.last_skipped, "skipped"),
    ] {
        if other.0 > last.0 {
            last = other;
        }
    }
    last.0.map_or("none", |_| last.1)
}

/// The contents of the tables about a schedule.
fn of_tables(loaded: &Loaded) -> ScheduleSeen {
    let cursor = &loaded.cursor;
    let of_file = loaded.of_file.is_some();
    let stored = loaded.stored.as_ref().filter(|_| !of_file);
    let mut seen = ScheduleSeen {
        view: ScheduleView {
            name: loaded.name.to_string(),
            source: if of_file { "file" } else { "api" },
            missed: "skip",
            overlap: "allow",
            paused: cursor.paused,
            last_ms: cursor.last_run,
            message: cursor.last_id,
            missed_ms: cursor.last_missed,
            missed_runs: cursor.missed,
            runs: cursor.puts,
            ..ScheduleView::default()
        },
        version: loaded.version(),
        ..ScheduleSeen::default()
    };
    let view = &mut seen.view;
    if let Ok(schedule) = &loaded.schedule {
        schedule.zone().clone_into(&mut view.zone);
        view.queue = schedule.queue().to_string();
        view.missed = schedule.missed.word();
        view.overlap = schedule.overlap.word();
        view.schedule = match &schedule.timing.recurrence {
            Recurrence::Cron(_, zone) => {
                // The policy of a table begins with its schedule and its zone.
                let text = schedule.policy.split_once(zone.name());
                let text = text.map_or("", |(text, _)| text);
                text.trim_end().to_owned()
            }
            Recurrence::Every { ms, phase_ms } => ScheduleSpec {
                every_ms: Some(*ms),
                phase_ms: Some(*phase_ms),
                ..ScheduleSpec::default()
            }
            .words(),
            Recurrence::At(moments) => ScheduleSpec {
                at_ms: Some(moments.iter().map(|at| at.0).collect()),
                ..ScheduleSpec::default()
            }
            .words(),
        };
    }
    if let Some((stored, _)) = stored {
        view.schedule = stored.spec.words();
        stored.by.clone_into(&mut seen.by);
        seen.defined_ms = Some(stored.at);
        stored.spec.queue.clone_into(&mut view.queue);
        let zone = stored.spec.zone.as_deref().unwrap_or("UTC");
        zone.clone_into(&mut view.zone);
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_thing_that_happened_is_the_outcome() {
        let outcome = |last_run, last_missed, last_skipped| {
            outcome(&Cursor {
                last_run,
                last_missed,
                last_skipped,
                ..Cursor::default()
            })
        };
        assert_eq!(outcome(None, None, None), "none");
        assert_eq!(outcome(Some(7), None, None), "put");
        assert_eq!(outcome(Some(7), Some(7), None), "put", "one for all missed");
        assert_eq!(outcome(Some(7), Some(8), None), "missed");
        assert_eq!(outcome(None, Some(8), None), "missed");
        assert_eq!(outcome(Some(9), Some(8), None), "put");
        assert_eq!(outcome(Some(9), Some(8), Some(10)), "skipped");
    }
}
