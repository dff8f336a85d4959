//! `[[cron]]` tables: what is told of them, and how they are steered.

use quintet_types::{CommandError, MessageId};

/// Told of all tables.
pub type TellCrons = Box<dyn FnOnce(Vec<CronSeen>) + Send>;

/// Told what came of steering one.
pub type TellCron = Box<dyn FnOnce(Result<CronDone, CronNo>) + Send>;

/// Operation on a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CronAct {
    /// It puts nothing by itself until it is resumed.
    Pause,
    /// It puts again; nothing is made up for.
    Resume,
    /// It puts its message once, now, paused or not. Its due times stay.
    Run,
}

/// Its result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CronDone {
    /// False: it was so already.
    pub changed: bool,
    /// The message that was put.
    pub message: Option<MessageId>,
}

/// Why it was not done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CronNo {
    /// There is no table of this name.
    #[error("there is no [[cron]] table {}{}", .name.escape_debug(), nearest_of(.nearest.as_deref()))]
    None {
        name: String,
        /// The one that is most alike, if one is alike.
        nearest: Option<String>,
    },
    /// The engine's no.
    #[error("{}", .0.text())]
    Refused(CommandError),
}

fn nearest_of(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| {
        format!("; did you mean {}?", name.escape_debug())
    })
}

/// A table, as those who operate the server see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CronSeen {
    pub name: String,
    pub schedule: String,
    /// The name of its time zone.
    pub zone: String,
    pub queue: String,
    /// Missed runs are made up for by one.
    pub once: bool,
    pub paused: bool,
    /// When it is due next, by the wall clock, ms since 1970; `None`: it is
    /// paused.
    pub next_ms: Option<u64>,
    pub last: LastRun,
    /// Why what is due, or was to be put by hand, was refused last; `None`: what
    /// was tried last was put.
    pub error: Option<String>,
    /// Due times that were missed, ever.
    pub missed: u64,
}

/// How a table's last run went.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LastRun {
    /// When it put last, by the wall clock.
    pub put_ms: Option<u64>,
    /// Message that it put; `None`: that is not known, as the server ended in that moment.
    pub message: Option<u64>,
    /// When it was noticed last that due times were missed.
    pub missed_ms: Option<u64>,
}
