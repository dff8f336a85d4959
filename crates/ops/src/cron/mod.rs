//! `[[cron]]`: messages that are put by the calendar.
//!
//! What is due is decided in [`plan`]. A thread of its own looks at it, and
//! puts: the message and the mark that says so are one step of the shards, and
//! the mark has to be as it was read. So no due time is put twice, whatever
//! ends the server, and in a cluster nobody but the owner puts.

mod operations;
mod plan;
mod run;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use anyhow::{Result, anyhow};
use quintet_client::{CronAct, CronSeen, LastRun, TellCron, TellCrons};
use quintet_config::{Config, CronJob};
use quintet_host::{Point, Signal, locked};
use quintet_types::Ms;

use plan::{Mark, When};

/// The tables in force.
pub struct Crons {
    inside: Mutex<Inside>,
    /// Raised when there is something new to look at.
    work: Signal,
}

struct Inside {
    jobs: Vec<Arc<CronJob>>,
    known: HashMap<String, Known>,
    /// Rises with each change of the tables.
    version: u64,
    /// The version whose marks were read; 0: none.
    read: u64,
    /// Orders to the thread, oldest first.
    orders: VecDeque<Order>,
    /// The thread has ended: nobody is told anything any more.
    closed: bool,
}

/// An order to the thread.
enum Order {
    /// Of the tables, when their marks have been read.
    List(TellCrons),
    Steer(CronAct, String, TellCron),
}

/// State of a table.
#[derive(Default)]
pub struct Known {
    mark: Mark,
    /// Of the mark's entry; `None`: there is none.
    version: Option<u64>,
    /// The due times at its reading have been handled, or tried.
    looked: bool,
    /// Since the server's start, as the two below.
    pub runs: u64,
    pub missed: u64,
    pub failures: u64,
    /// Why the last put was refused; empty: it was not.
    error: String,
}

impl Known {
    /// Its marks say that nothing is put.
    pub fn is_paused(&self) -> bool {
        self.mark.paused
    }
}

impl Crons {
    /// Those of a configuration.
    ///
    /// # Errors
    /// What is wrong with a table.
    pub fn new(config: &Config) -> Result<Self> {
        let jobs = config.cron_jobs().map_err(|why| anyhow!(why))?;
        Ok(Self {
            inside: Mutex::new(Inside {
                jobs,
                known: HashMap::new(),
                version: 1,
                read: 0,
                orders: VecDeque::new(),
                closed: false,
            }),
            work: Signal::default(),
        })
    }

    /// Goes by these tables from now on. Answers the names of those that are none of them any
    /// more and were paused.
    pub fn configure(&self, jobs: Vec<Arc<CronJob>>) -> Vec<String> {
        let mut inside = locked(&self.inside);
        let goes = |job: &&Arc<CronJob>| {
            let known = inside.known.get(&job.name);
            known.is_some_and(Known::is_paused) && !jobs.iter().any(|one| one.name == job.name)
        };
        let gone = inside.jobs.iter().filter(goes);
        let gone = gone.map(|job| job.name.clone()).collect();
        inside.jobs = jobs;
        inside.version += 1;
        drop(inside);
        self.work.raise();
        gone
    }

    /// Has the thread look whether it is to end.
    pub fn stop(&self) {
        self.work.raise();
    }

    /// The next due time of all, by the wall clock.
    fn next(&self, now: Ms) -> Ms {
        let inside = locked(&self.inside);
        let next = inside.jobs.iter().filter_map(|job| inside.next(job, now));
        next.min().unwrap_or(Ms::NEVER)
    }

    /// A number of each table that was looked at.
    pub fn points(&self, of: fn(&Known) -> u64) -> Vec<Point> {
        let inside = locked(&self.inside);
        let points = inside.jobs.iter().filter_map(|job| {
            let known = inside.known.get(&job.name).filter(|known| known.looked)?;
            Some((vec![job.name.clone().into()], of(known) as f64))
        });
        points.collect()
    }

    /// A moment of each table that has one, ms since 1970.
    pub fn moments(&self, now: Ms, of: fn(&CronSeen) -> Option<u64>) -> Vec<Point> {
        let inside = locked(&self.inside);
        let looked = |job: &&Arc<CronJob>| {
            let known = inside.known.get(&job.name);
            known.is_some_and(|known| known.looked)
        };
        let points = inside.jobs.iter().filter(looked).filter_map(|job| {
            let at = of(&inside.seen(job, now))?;
            Some((vec![job.name.clone().into()], at as f64))
        });
        points.collect()
    }
}

impl Inside {
    /// When a table is due next; `None`: it is paused.
    fn next(&self, job: &CronJob, now: Ms) -> Option<Ms> {
        let mark = self.known.get(&job.name).map(|one| &one.mark);
        if mark.is_some_and(|mark| mark.paused) {
            return None;
        }
        let policy = job.policy();
        // Due times before another schedule's mark are not its own.
        let of_ours = mark.filter(|mark| mark.policy == policy);
        let done = of_ours.map_or(0, |mark| mark.done);
        Some(when(job, &policy).next(Ms(done.max(now.0))))
    }

    /// A table as operators see it.
    fn seen(&self, job: &CronJob, now: Ms) -> CronSeen {
        let nothing = Known::default();
        let known = self.known.get(&job.name).unwrap_or(&nothing);
        let mark = &known.mark;
        CronSeen {
            name: job.name.clone(),
            schedule: job.schedule.clone(),
            zone: job.zone.name().to_owned(),
            queue: job.put.queue.to_string(),
            once: job.once,
            paused: mark.paused,
            next_ms: self.next(job, now).map(|next| next.0),
            last: LastRun {
                put_ms: mark.last_run,
                message: mark.last_id,
                missed_ms: mark.last_missed,
            },
            error: Some(known.error.clone()).filter(|error| !error.is_empty()),
            missed: mark.missed,
        }
    }

    fn all_seen(&self, now: Ms) -> Vec<CronSeen> {
        self.jobs.iter().map(|job| self.seen(job, now)).collect()
    }
}

/// The note about a paused table that is in the configuration no more.
pub fn forgotten(name: &str) -> String {
    format!(
        "[[cron]] {name} was paused and is no longer in the configuration: the server forgets the \
         pause. If you add the table again, it runs"
    )
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
