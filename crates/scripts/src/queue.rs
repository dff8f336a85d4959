//! A queue with a script: what its consumer and its runs share.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quintet_types::locked;
use rustix::event::EventfdFlags;

use crate::admin::Admin;
use crate::config::QueueConfig;

/// Messages whose end is remembered, so that the newest are found without
/// going through all that are kept.
const ENDED_MAX: usize = 1000;

/// A queue with a script.
pub(crate) struct Queue {
    pub(crate) name: String,
    pub(crate) started: Instant,
    work: Mutex<Work>,
    changed: Condvar,
    /// The last ones: state, number, short id.
    ended: Mutex<VecDeque<(&'static str, u64, String)>>,
}

#[derive(Default)]
struct Work {
    config: Arc<QueueConfig>,
    admin: Admin,
    running: BTreeMap<u64, Arc<Running>>,
    /// Messages that run along with another.
    along: BTreeSet<u64>,
    /// Runs whose script is not there.
    script_errors: usize,
    /// Something happened: look again.
    kicked: bool,
    /// No more runs are started; those there are finish.
    retired: bool,
    /// Its consumer has left and stands in no line any more.
    left: bool,
}

/// A message whose script runs.
pub(crate) struct Running {
    /// The last status of the script.
    pub(crate) status: Mutex<String>,
    /// The parameters no other run may share.
    pub(crate) blocking: Vec<Option<Vec<u8>>>,
    /// The server it asks, of which there may be only so many runs.
    pub(crate) receiver: Option<String>,
    pub(crate) requests: Mutex<RunRequests>,
    /// Becomes readable when `requests` changes.
    pub(crate) wake: rustix::fd::OwnedFd,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunRequests {
    /// An operator ends it.
    pub(crate) destroy: bool,
    /// The server ends.
    pub(crate) stop: bool,
}

impl Running {
    pub(crate) fn new(
        blocking: Vec<Option<Vec<u8>>>,
        receiver: Option<String>,
    ) -> std::io::Result<Self> {
        Ok(Self {
            status: Mutex::default(),
            blocking,
            receiver,
            requests: Mutex::default(),
            wake: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    pub(crate) fn ask(&self, change: impl FnOnce(&mut RunRequests)) {
        change(&mut locked(&self.requests));
        // It is full only if it is readable anyway.
        let _readable = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    pub(crate) fn requests(&self) -> RunRequests {
        *locked(&self.requests)
    }
}

/// The configuration and load that the consumer decides by.
pub(crate) struct ConsumerState {
    pub(crate) config: Arc<QueueConfig>,
    pub(crate) running: usize,
}

impl Queue {
    pub(crate) fn new(config: QueueConfig) -> Self {
        Self {
            name: config.name.clone(),
            started: Instant::now(),
            work: Mutex::new(Work {
                config: Arc::new(config),
                kicked: true,
                ..Work::default()
            }),
            changed: Condvar::new(),
            ended: Mutex::default(),
        }
    }

    /// Takes note of a message that ended in a state.
    pub(crate) fn note_end(&self, state: &'static str, id: u64, short: String) {
        let mut ended = locked(&self.ended);
        ended.push_back((state, id, short));
        if ended.len() > ENDED_MAX {
            ended.pop_front();
        }
    }

    /// Short ids of the last messages that ended in a state, newest message
    /// first. They may be gone or cloned since.
    pub(crate) fn ended(&self, state: &str) -> Vec<String> {
        let ended = locked(&self.ended);
        let of_state = ended.iter().filter(|(at, ..)| *at == state);
        let mut ids: Vec<(u64, String)> = of_state
            .map(|(_, id, short)| (*id, short.clone()))
            .collect();
        drop(ended);
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().rev().map(|(_, short)| short).collect()
    }

    /// Ids of the last messages that ended as errors, the last one first.
    pub(crate) fn failed(&self, most: usize) -> Vec<u64> {
        let mut ids = Vec::new();
        for (_, id, _) in locked(&self.ended)
            .iter()
            .rev()
            .filter(|(at, ..)| *at == "err")
        {
            if ids.len() < most && !ids.contains(id) {
                ids.push(*id);
            }
        }
        ids
    }

    /// Runs that are not over.
    pub(crate) fn running_count(&self) -> usize {
        locked(&self.work).running.len()
    }

    pub(crate) fn config(&self) -> Arc<QueueConfig> {
        Arc::clone(&locked(&self.work).config)
    }

    pub(crate) fn configure(&self, config: QueueConfig) {
        let mut work = locked(&self.work);
        if *work.config != config {
            work.config = Arc::new(config);
        }
        work.kicked = true;
        drop(work);
        self.changed.notify_all();
    }

    /// Something happened: the consumer looks again.
    pub(crate) fn kick(&self) {
        locked(&self.work).kicked = true;
        self.changed.notify_all();
    }

    /// Takes note of what the admin files say; true if it is new.
    pub(crate) fn note_admin(&self, admin: Admin) -> bool {
        let mut work = locked(&self.work);
        let new = work.admin != admin;
        work.admin = admin;
        work.kicked |= new;
        drop(work);
        if new {
            self.changed.notify_all();
        }
        new
    }

    /// No more runs are started; those there are finish.
    pub(crate) fn retire(&self) {
        locked(&self.work).retired = true;
        self.changed.notify_all();
    }

    /// As [`Queue::retire`], and those there are are ended.
    pub(crate) fn stop(&self) {
        self.retire();
        for run in locked(&self.work).running.values() {
            run.ask(|requests| requests.stop = true);
        }
    }

    /// Waits until something happened, or for `at_most`. `None` when the queue
    /// is retired.
    pub(crate) fn next_state(&self, at_most: Duration) -> Option<ConsumerState> {
        let work = locked(&self.work);
        let (mut work, _timeout) = self
            .changed
            .wait_timeout_while(work, at_most, |work| !work.kicked && !work.retired)
            .unwrap_or_else(PoisonError::into_inner);
        if work.retired {
            return None;
        }
        work.kicked = false;
        Some(ConsumerState {
            config: Arc::clone(&work.config),
            running: work.running.len(),
        })
    }

    /// Its consumer has left, or there is none.
    pub(crate) fn note_left(&self) {
        locked(&self.work).left = true;
        self.changed.notify_all();
    }

    /// Waits until the consumer of a retired queue has left.
    pub(crate) fn await_left(&self) {
        self.await_work(|work| work.left);
    }

    /// Waits until the last run of a retired queue is over.
    pub(crate) fn await_runs(&self) {
        self.await_work(|work| work.running.is_empty());
    }

    fn await_work(&self, over: impl Fn(&Work) -> bool) {
        let work = locked(&self.work);
        let _work = self
            .changed
            .wait_while(work, |work| !over(work))
            .unwrap_or_else(PoisonError::into_inner);
    }

    /// True if a run is not over.
    pub(crate) fn runs(&self) -> bool {
        !locked(&self.work).running.is_empty()
    }

    /// A run begins; false if the queue ends.
    pub(crate) fn begin(&self, id: u64, run: &Arc<Running>, along: &[u64]) -> bool {
        let mut work = locked(&self.work);
        if work.retired {
            return false;
        }
        work.running.insert(id, Arc::clone(run));
        work.along.extend(along);
        true
    }

    /// A run is over.
    pub(crate) fn end(&self, id: u64, along: &[u64]) {
        let mut work = locked(&self.work);
        work.running.remove(&id);
        for id in along {
            work.along.remove(id);
        }
        work.kicked = true;
        drop(work);
        self.changed.notify_all();
    }

    pub(crate) fn running(&self, id: u64) -> Option<Arc<Running>> {
        locked(&self.work).running.get(&id).map(Arc::clone)
    }

    /// True if the message waits for the end of another's run.
    pub(crate) fn runs_along(&self, id: u64) -> bool {
        locked(&self.work).along.contains(&id)
    }

    /// True if a running message has these parameters.
    pub(crate) fn is_blocked(&self, params: &[Option<Vec<u8>>]) -> bool {
        let work = locked(&self.work);
        work.running.values().any(|run| run.blocking == params)
    }

    /// Runs that ask this server.
    pub(crate) fn running_to(&self, receiver: &str) -> usize {
        let work = locked(&self.work);
        let runs = work.running.values();
        runs.filter(|run| run.receiver.as_deref() == Some(receiver))
            .count()
    }

    pub(crate) fn has_script_error(&self) -> bool {
        locked(&self.work).script_errors > 0
    }

    pub(crate) fn count_script_error(&self, there: bool) {
        let mut work = locked(&self.work);
        if there {
            work.script_errors += 1;
        } else {
            work.script_errors -= 1;
        }
    }
}
