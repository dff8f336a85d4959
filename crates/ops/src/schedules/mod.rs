//! Schedules: messages that are put by the clock.
//!
//! Those of the configuration and those that are defined at run time are one kind. The definitions
//! of the latter are entries of a durable table, so they are replicated and backed up with the log.
//! [`plan`] decides which runs are due. A thread of its own looks at the schedules in the order in
//! which they are due, and puts: the message and the cursor that says so are one step of the
//! shards, and the cursor has to be as it was read. So no due time is put twice, whatever
//! ends the server, and in a cluster nobody but the owner puts.

mod book;
pub(crate) mod load;
mod operations;
mod plan;
mod run;
mod show;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use anyhow::{Result, anyhow};
use quintet_client::{ScheduleAct, TellSchedules, TellSteered, WhichSchedules};
use quintet_config::Config;
use quintet_host::{Point, Signal, locked};
use quintet_policy::Schedule;
use quintet_types::Ms;

use book::Book;
pub use book::{Item, Sums};

/// Puts a message for each due time of each schedule.
pub struct Schedules {
    inside: Mutex<Inside>,
    /// Raised when there is something new to look at.
    work: Signal,
}

#[derive(Default)]
struct Inside {
    /// Those of the configuration.
    files: Vec<Arc<Schedule>>,
    book: Book,
    /// Schedules that are defined at run time at most.
    most: u64,
    /// Rises with each change of the configuration.
    version: u64,
    /// The version whose cursors were read; 0: none.
    read: u64,
    /// Requests to the thread, oldest first.
    requests: VecDeque<Request>,
    /// The thread has ended: no request gets a reply any more.
    closed: bool,
}

/// A request to the thread.
enum Request {
    /// Of the schedules, when their cursors have been read.
    List(WhichSchedules, TellSchedules),
    Steer(ScheduleAct, String, TellSteered),
}

impl Schedules {
    /// Those of a configuration.
    ///
    /// # Errors
    /// A table is invalid; the text says why.
    pub fn new(config: &Config) -> Result<Self> {
        let files = config.schedules().map_err(|why| anyhow!(why))?;
        Ok(Self {
            inside: Mutex::new(Inside {
                files,
                most: config.schedules_max,
                version: 1,
                ..Inside::default()
            }),
            work: Signal::default(),
        })
    }

    /// Goes by these tables of the configuration from now on, and lets `most` schedules be defined
    /// at run time. Answers the names of tables that are none any more and were paused.
    pub fn configure(&self, files: Vec<Arc<Schedule>>, most: u64) -> Vec<String> {
        let mut inside = locked(&self.inside);
        let goes = |file: &&Arc<Schedule>| {
            let item = inside.book.get(&file.name);
            item.is_some_and(|item| item.is_paused() && !item.shadows)
                && !files.iter().any(|one| one.name == file.name)
        };
        let gone = inside.files.iter().filter(goes);
        let gone = gone.map(|file| file.name.clone()).collect();
        inside.files = files;
        inside.most = most;
        inside.version += 1;
        drop(inside);
        self.work.raise();
        gone
    }

    /// Has the thread look whether it is to end.
    pub fn stop(&self) {
        self.work.raise();
    }

    /// A number of each table of the configuration that was looked at.
    pub fn points(&self, of: fn(&Item) -> u64) -> Vec<Point> {
        self.moments(|item| Some(of(item)))
    }

    /// A moment of each table of the configuration that has one, ms since 1970.
    pub fn moments(&self, of: impl Fn(&Item) -> Option<u64>) -> Vec<Point> {
        let inside = locked(&self.inside);
        let points = inside.files.iter().filter_map(|file| {
            let item = inside.book.get(&file.name).filter(|item| item.checked)?;
            Some((vec![file.name.clone().into()], of(item)? as f64))
        });
        points.collect()
    }

    /// Numbers of all schedules.
    pub fn sums(&self) -> Sums {
        locked(&self.inside).book.sums()
    }
}

/// The note about a paused table that is in the configuration no more.
pub fn forgotten(name: &str) -> String {
    format!(
        "[[cron]] {name} was paused and is no longer in the configuration: the server forgets the \
         pause. If you add the table again, it runs"
    )
}

/// When an item is due next; `None`: it is paused, has ended, or was not looked at.
pub fn next_ms(item: &Item) -> Option<u64> {
    let is_moment = item.due != Ms::NEVER && item.due != Ms(0);
    is_moment.then_some(item.due.0)
}
