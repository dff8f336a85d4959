//! The supervisor: a thread for all work that nothing else wakes, as long as there is any.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use quintet_types::locked;

use crate::rules::RulesState;
use crate::scandir::Scandir;
use crate::schedule::Schedules;
use crate::service::Rq;
use crate::timers::Timers;

/// A thing to do again and again.
struct Every {
    time: Duration,
    next: Instant,
}

impl Every {
    fn new(time: Duration) -> Self {
        let next = Instant::now();
        Self { time, next }
    }

    fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let due = self.next <= now;
        if due {
            self.next = now + self.time;
        }
        due
    }
}

impl Rq {
    /// Runs until the service stops, or there is nothing to look after.
    pub(crate) fn keep(self: &Arc<Self>) {
        let limits = &self.options.limits;
        let mut cleanup = Every::new(limits.cleanup_every);
        let mut scan_timers = Every::new(limits.timers_every);
        let mut scan_links = Every::new(limits.scandir_every);
        let mut first = true;
        let mut schedules = Schedules::default();
        let mut timers = Timers::default();
        let mut links = Scandir::default();
        while !self.stopping.load(Ordering::SeqCst) {
            self.read_folders();
            self.check_rules();
            let rescan = self.supervisor.rescan.swap(false, Ordering::SeqCst);
            if scan_links.is_due() || rescan {
                links.scan(self);
            }
            for queue in self.all_scripted() {
                self.read_admin(&queue.name);
            }
            schedules.check(self);
            if scan_timers.is_due() || rescan {
                timers.scan(self);
            }
            timers.check(self);
            if cleanup.is_due() {
                self.clean_up(first);
                first = false;
            }
            if !self.needs_supervisor() {
                break;
            }
            self.wait_for(limits.look_every);
        }
        self.supervisor.runs.store(false, Ordering::SeqCst);
    }

    /// False without queues with scripts, rules, links, folders and other storage of messages.
    pub(crate) fn needs_supervisor(&self) -> bool {
        let has_entries =
            |folder: &Path| folder.read_dir().is_ok_and(|mut all| all.next().is_some());
        let paths = &self.paths;
        let folders = [paths.queues(), paths.scandir(), paths.timers()];
        self.options.blobs.is_some()
            || !locked(&self.queues).is_empty()
            || self.rules() != RulesState::None
            || folders.iter().any(|folder| has_entries(folder))
    }

    fn wait_for(&self, at_most: Duration) {
        let requested = locked(&self.supervisor.requested);
        let (mut requested, _timeout) = self
            .supervisor
            .changed
            .wait_timeout_while(requested, at_most, |requested| !*requested)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *requested = false;
    }
}
