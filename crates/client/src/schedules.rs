//! Schedules: how they are made, steered and shown.

use quintet_policy::Timing;
use quintet_types::{CommandError, MessageId};
use serde::Serialize;
use utoipa::ToSchema;

use super::shown::plain;
use super::spec::{BadSpec, ScheduleSpec};

/// A page of schedules, and the name of its last one if more follow.
pub type SchedulePage = (Vec<ScheduleSeen>, Option<String>);

/// Receives a page of schedules, or why there is none.
pub type TellSchedules = Box<dyn FnOnce(Result<SchedulePage, CommandError>) + Send>;

/// Told what came of steering one.
pub type TellSteered = Box<dyn FnOnce(Result<Steered, NotSteered>) + Send>;

/// The schedules that a list contains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WhichSchedules {
    /// So many behind this name, in the order of names.
    Page { after: Option<String>, max: usize },
    /// Those of the configuration, in the order of names.
    OfFile,
    /// The one of this name, with its definition, its times and its last runs.
    One(String),
    /// So many of those that are due next, the first one first, with their times.
    Soonest(usize),
}

/// An operation of a user on a schedule; its reply comes when the change is durable. Its variants
/// carry data, so an [`Operation`](quintet_types::Operation) cannot replace it.
#[derive(Clone, PartialEq, Debug)]
pub enum ScheduleAct {
    /// It puts nothing by itself until it is resumed.
    Pause,
    /// It puts again; nothing is made up for.
    Resume,
    /// It puts its message once, now, paused or not. Its due times stay.
    Run,
    /// It is made, or defined anew if it is of the version that was `seen`.
    Define {
        spec: Box<ScheduleSpec>,
        /// The user who defines it; empty: nobody is known.
        by: String,
        seen: Option<u64>,
        /// There is no due time from now on.
        never: bool,
    },
    /// It is removed, with its pause and runs, if it is of the version that was `seen`.
    Remove { seen: Option<u64> },
}

/// Result of steering.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Steered {
    /// False: it was so already.
    pub changed: bool,
    /// It was not there before.
    pub made: bool,
    /// The message that was put.
    pub message: Option<MessageId>,
    /// The version of its definition.
    pub version: Option<u64>,
}

/// Why it was not done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotSteered {
    /// There is no schedule of this name.
    #[error("there is no schedule {}{}", plain(.name.as_bytes()), nearest_of(.nearest.as_deref()))]
    None {
        name: String,
        /// The most similar name, if one is similar.
        nearest: Option<String>,
    },
    /// Its definition is in the file.
    #[error("the configuration defines the schedule {}: change the file, then reload", plain(.0.as_bytes()))]
    OfFile(String),
    /// It is another than the client has seen.
    #[error("the schedule has changed: get it again")]
    Changed,
    #[error("schedules_max = {0}: there are as many schedules")]
    TooMany(u64),
    /// It would never put anything.
    #[error("{}", .0.why)]
    Bad(BadSpec),
    /// The engine's no.
    #[error("{}", .0.text())]
    Refused(CommandError),
}

fn nearest_of(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| {
        format!("; did you mean {}?", plain(name.as_bytes()))
    })
}

/// A schedule, as the API and the command line tell it.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
#[schema(as = Schedule)]
pub struct ScheduleView {
    pub name: String,
    /// `file`: a `[[cron]]` table of the configuration; `api`: created at run time.
    pub source: &'static str,
    /// Its times: minute, hour, day, month and weekday, or words such as `every 5m`.
    pub schedule: String,
    /// The name of its time zone.
    pub zone: String,
    pub queue: String,
    /// Handling of missed runs: `skip`, `once` or `all`.
    pub missed: &'static str,
    /// Handling of due times while the message of an earlier run is not done: `allow`, `skip` or
    /// `replace`.
    pub overlap: &'static str,
    pub paused: bool,
    /// It will never be due again.
    pub ended: bool,
    /// When it is due next; null while it is paused, and when it has ended.
    pub next_ms: Option<u64>,
    /// When it put last; null: never.
    pub last_ms: Option<u64>,
    /// Message that it put then; null: none, or it is not known.
    pub message: Option<u64>,
    /// How it went last: `none` (it never was due), `put`, `skipped` (an earlier run was not done),
    /// `missed`, `refused`, or `invalid` (its definition cannot be read).
    pub outcome: &'static str,
    /// Why it was refused, or is invalid.
    pub error: Option<String>,
    /// When it was noticed last that due times were missed.
    pub missed_ms: Option<u64>,
    /// Due times that were missed, ever.
    pub missed_runs: u64,
    /// Puts by its times since these were defined.
    pub runs: u64,
    /// A schedule of this name that was created at run time has no effect.
    pub shadows: bool,
}

/// A schedule, as those who operate the server see it.
#[derive(Clone, Debug, Default)]
pub struct ScheduleSeen {
    pub view: ScheduleView,
    /// The version of its definition; `None`: it is in the file.
    pub version: Option<u64>,
    /// The user who defined it; empty: the file, or nobody is known.
    pub by: String,
    /// When, by the wall clock.
    pub defined_ms: Option<u64>,
    /// Its definition, where it is requested and is not in the file.
    pub spec: Option<Box<ScheduleSpec>>,
    /// Its due times, where they are requested.
    pub timing: Option<Timing>,
    /// Its last runs, newest first, where they are requested.
    pub runs: Vec<RunSeen>,
}

/// A past due time of a schedule and its outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[schema(as = LastRunShown)]
pub struct RunSeen {
    /// When it was due, ms since 1970; of several missed times the first.
    pub due_ms: u64,
    /// When the server put or skipped it or noticed the miss, ms since 1970.
    pub at_ms: u64,
    /// `put`, `by_hand`, `skipped` (an earlier run was not done) or `missed`.
    pub outcome: &'static str,
    /// Number of due times that this run stands for.
    pub times: u64,
    /// The id of the message that it put; null: none, or not known.
    pub message: Option<u64>,
    /// State of the message (`ready`, `reserved`, ...), or how it ended
    /// (`finished`, `failed`, ...); null: that is not known, or you may not see it.
    pub became: Option<&'static str>,
}
