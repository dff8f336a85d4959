//! `[[cron]]`: messages that are put by the calendar.
//!
//! What is due is decided in [`plan`]. A thread of its own looks at it, and
//! puts: the message and the mark that says so are one step of the shards, and
//! the mark has to be as it was read. So no due time is put twice, whatever
//! ends the server, and in a cluster nobody but the owner puts.

mod plan;
mod run;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use anyhow::{Result, anyhow};
use quintet_engine::Ms;
use quintet_host::{Signal, locked};

use crate::config::{Config, CronJob};
use crate::metrics::Point;
use plan::{Mark, When};

/// The tables in force.
pub(crate) struct Crons {
    inside: Mutex<Inside>,
    /// Raised when there is something new to look at.
    work: Signal,
}

struct Inside {
    jobs: Vec<Arc<CronJob>>,
    known: HashMap<String, Known>,
    /// Rises with each change of the tables.
    version: u64,
}

/// What is known of a table.
#[derive(Default)]
pub(crate) struct Known {
    mark: Mark,
    /// Of the mark's entry; `None`: there is none.
    version: Option<u64>,
    /// What was due when it was read has been seen to, or tried.
    looked: bool,
    /// Since the server's start, as the two below.
    pub(crate) runs: u64,
    pub(crate) missed: u64,
    pub(crate) failures: u64,
    /// Why the last put was refused; empty: it was not.
    error: String,
}

impl Crons {
    /// Those of a configuration.
    ///
    /// # Errors
    /// What is wrong with a table.
    pub(crate) fn new(config: &Config) -> Result<Self> {
        let jobs = config.cron_jobs().map_err(|why| anyhow!(why))?;
        Ok(Self {
            inside: Mutex::new(Inside {
                jobs,
                known: HashMap::new(),
                version: 1,
            }),
            work: Signal::default(),
        })
    }

    /// Goes by these tables from now on.
    pub(crate) fn configure(&self, jobs: Vec<Arc<CronJob>>) {
        let mut inside = locked(&self.inside);
        inside.jobs = jobs;
        inside.version += 1;
        drop(inside);
        self.work.raise();
    }

    /// Has the thread look whether it is to end.
    pub(crate) fn stop(&self) {
        self.work.raise();
    }

    /// The next due time of all, by the wall clock.
    fn next(&self, now: Ms) -> Ms {
        let inside = locked(&self.inside);
        let next = inside.jobs.iter().map(|job| {
            let done = inside.known.get(&job.name).map_or(0, |one| one.mark.done);
            when(job, &job.policy()).next(Ms(done.max(now.0)))
        });
        next.min().unwrap_or(Ms::NEVER)
    }

    /// A number of each table that was looked at.
    pub(crate) fn points(&self, of: fn(&Known) -> u64) -> Vec<Point> {
        let inside = locked(&self.inside);
        let points = inside.jobs.iter().filter_map(|job| {
            let known = inside.known.get(&job.name).filter(|known| known.looked)?;
            Some((vec![job.name.clone().into()], of(known) as f64))
        });
        points.collect()
    }
}

/// When a table runs.
fn when<'a>(job: &'a CronJob, policy: &'a str) -> When<'a> {
    When {
        cron: &job.cron,
        zone: job.zone,
        policy,
        once: job.once,
    }
}
