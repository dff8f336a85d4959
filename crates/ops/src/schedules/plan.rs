//! The next step of a schedule: its times, its stored cursor, and the wall clock. Pure: knows no
//! clock, thread or queue.

use quintet_policy::{Missed, Schedule};
use quintet_types::Ms;
use serde::{Deserialize, Serialize};

/// A run that is later than this, ms, was missed: the server was down, the
/// clock was set, or the put was refused for as long.
const LATE_MS: u64 = 60_000;
/// Missed due times of one gap are counted up to here.
const COUNTED_MAX: u64 = 1000;
/// Late runs in a row that are made up for one by one; the rest of their gap is missed.
const ALL_MAX: u64 = 1000;
/// Runs that are remembered.
const RUNS_MAX: usize = 10;

/// Bytes of an entry with ten runs, without its policy.
const ENTRY: usize = 800;

/// The cursor of a schedule in the log, stored in the same step as its put.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Cursor {
    /// The times that `done` and `puts` are of.
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
    /// When it was not put last, as an earlier one was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_skipped: Option<u64>,
    /// Puts by its times.
    pub(crate) puts: u64,
    /// Late runs that were just made up for one by one.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) late: u64,
    /// The last runs, oldest first.
    pub(crate) runs: Vec<Run>,
    /// Room for what later runs add to the entry, so that none of them lacks it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) room: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A run: when it was due and dealt with, its message (0: none, or not known), what came of it, and
/// the due times that it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run(
    pub(crate) u64,
    pub(crate) u64,
    pub(crate) u64,
    pub(crate) How,
    pub(crate) u64,
);

quintet_types::named! {
    /// The outcome of a run.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(from = "u8", into = "u8")]
    pub(crate) enum How, word {
        Put = "put",
        ByHand = "by_hand",
        Skipped = "skipped",
        Missed = "missed",
    }
}

impl From<u8> for How {
    fn from(number: u8) -> Self {
        let how = Self::ALL.get(usize::from(number));
        how.copied().unwrap_or(Self::Put)
    }
}

impl From<How> for u8 {
    fn from(how: How) -> Self {
        how as Self
    }
}

/// The next step of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Nothing yet.
    Rest,
    /// This is to be remembered, then looked at again.
    Note { cursor: Cursor, missed: u64 },
    /// A message is to be put for `due`, the first missed time where it makes up for some, and this
    /// remembered with it.
    Put {
        cursor: Cursor,
        missed: u64,
        due: Ms,
    },
}

impl Cursor {
    /// The cursor when the schedule was paused.
    pub(crate) fn paused(&self) -> Self {
        Self {
            paused: true,
            ..self.clone()
        }
    }

    /// The cursor when it was resumed: due times of the pause are let go.
    pub(crate) fn resumed(&self, now: Ms) -> Self {
        match self.paused {
            true => Self {
                paused: false,
                done: self.done.max(now.0),
                ..self.clone()
            },
            false => self.clone(),
        }
    }

    /// The cursor when it was put by hand.
    pub(crate) fn by_hand(&self, now: Ms) -> Self {
        let mut cursor = self.clone();
        cursor.last_run = Some(now.0);
        cursor.last_id = None;
        cursor.add(Run(now.0, now.0, 0, How::ByHand, 1));
        cursor
    }

    /// The cursor of a schedule whose times are these from now on: earlier due times are not its
    /// own.
    pub(crate) fn of_policy(&self, policy: &str, now: Ms) -> Self {
        Self {
            policy: policy.to_owned(),
            done: now.0,
            puts: 0,
            late: 0,
            ..self.clone()
        }
    }

    /// The cursor `after` a put, if that put stored nothing, as an earlier run is not done.
    pub(crate) fn skipped(&self, after: &Cursor, now: Ms) -> Self {
        let mut cursor = Self {
            last_run: self.last_run,
            last_id: self.last_id,
            puts: self.puts,
            last_skipped: Some(now.0),
            ..after.clone()
        };
        if let Some(run) = cursor.runs.last_mut() {
            run.3 = How::Skipped;
        }
        cursor
    }

    /// The cursor when the message of its last put is known.
    pub(crate) fn with_message(&self, id: u64) -> Self {
        let mut cursor = self.clone();
        cursor.last_id = Some(id);
        if let Some(run) = cursor.runs.last_mut() {
            run.2 = id;
        }
        cursor
    }

    /// As an entry of its table: with room up to [`ENTRY`] bytes, or, where the tables are `full`,
    /// without the runs.
    pub(crate) fn entry(&self, full: bool) -> Self {
        let mut cursor = self.clone();
        cursor.room.clear();
        if full {
            cursor.runs.clear();
            return cursor;
        }
        let bytes = serde_json::to_vec(&cursor).map_or(0, |json| json.len());
        cursor.room = " ".repeat(ENTRY.saturating_sub(bytes - cursor.policy.len()));
        cursor
    }

    fn add(&mut self, run: Run) {
        self.runs.push(run);
        let more = self.runs.len().saturating_sub(RUNS_MAX);
        self.runs.drain(..more);
    }
}

/// True once a schedule has put as often as it may.
pub(crate) fn has_ended(schedule: &Schedule, cursor: &Cursor) -> bool {
    schedule
        .timing
        .count
        .is_some_and(|count| cursor.puts >= count)
}

/// When a schedule is to be looked at next, by the wall clock; [`Ms::NEVER`]: it is paused or has
/// ended.
pub(crate) fn next_check(schedule: &Schedule, cursor: &Cursor) -> Ms {
    if cursor.policy != schedule.policy {
        return Ms(0);
    }
    match cursor.paused || has_ended(schedule, cursor) {
        true => Ms::NEVER,
        false => schedule.timing.next(Ms(cursor.done)),
    }
}

/// The next step when the wall clock shows `now`. At most one message is put in it.
pub(crate) fn next_step(schedule: &Schedule, cursor: &Cursor, now: Ms) -> NextStep {
    if cursor.policy != schedule.policy {
        let cursor = cursor.of_policy(&schedule.policy, now);
        return NextStep::Note { cursor, missed: 0 };
    }
    let due = next_check(schedule, cursor);
    if due > now {
        return NextStep::Rest;
    }
    let late = late_at(now);
    if due > late || (schedule.missed == Missed::All && cursor.late < ALL_MAX) {
        let late = if due > late { 0 } else { cursor.late + 1 };
        let cursor = put(cursor, due, due, now);
        return NextStep::Put {
            cursor: Cursor { late, ..cursor },
            missed: 0,
            due,
        };
    }
    // Those of the last minute are put afterwards, each.
    let missed = count(schedule, Ms(cursor.done), late);
    let mut after = Cursor {
        done: late.0,
        late: 0,
        missed: cursor.missed.saturating_add(missed),
        last_missed: Some(now.0),
        ..cursor.clone()
    };
    // One message for all of them, unless one is about to be put.
    if schedule.missed == Missed::Once && schedule.timing.next(late) > now {
        let mut cursor = put(&after, due, now, now);
        if let Some(run) = cursor.runs.last_mut() {
            run.4 = missed;
        }
        return NextStep::Put {
            cursor,
            missed,
            due,
        };
    }
    after.add(Run(due.0, now.0, 0, How::Missed, missed));
    NextStep::Note {
        cursor: after,
        missed,
    }
}

/// Due times up to this one that are not done at `now` were missed.
pub(crate) fn late_at(now: Ms) -> Ms {
    Ms(now.0.saturating_sub(LATE_MS))
}

/// The cursor after a put for `due`, with due times up to `done` settled.
fn put(cursor: &Cursor, due: Ms, done: Ms, now: Ms) -> Cursor {
    let mut cursor = Cursor {
        done: done.0,
        last_run: Some(now.0),
        last_id: None,
        puts: cursor.puts.saturating_add(1),
        ..cursor.clone()
    };
    cursor.add(Run(due.0, now.0, 0, How::Put, 1));
    cursor
}

/// How many due times there are behind `from` and up to `to`, [`COUNTED_MAX`] at most.
fn count(schedule: &Schedule, from: Ms, to: Ms) -> u64 {
    let (mut count, mut due) = (0, schedule.timing.next(from));
    while due <= to && count < COUNTED_MAX {
        count += 1;
        due = schedule.timing.next(due);
    }
    count
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
