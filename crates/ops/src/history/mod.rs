//! History of each queue's numbers: a thread reads them once a minute.

mod rings;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quintet_client::{ClientApi, History, Rates, Recent, ScopedClient, Series};
use quintet_config::Config;
use quintet_host::{Core, locked};
use quintet_types::{Command, Ms, Name, Outcome, QueueStats, StatsOf, StatsReply};

use crate::audit::Audit;

use rings::{Histories, MINUTE, kept};

/// The file's name in the data directory.
const FILE: &str = "history";
/// Written at the end, and after so many minutes.
const SAVED: u64 = 5;

/// Between two pages of queues others have the shards and the processor for so many times as long
/// as the page took.
const REST: u32 = 9;
/// And this much at most.
const REST_MAX: Duration = Duration::from_millis(20);
/// The minute may be longer than time of the machine: the histories are sampled again by then.
const SAMPLE_MAX: Duration = Duration::from_secs(60);

/// The history of all queues, and the bell that ends its thread.
#[derive(Default)]
pub struct HistoryRecorder {
    inside: Mutex<Histories>,
    stops: Mutex<bool>,
    bell: Condvar,
}

impl HistoryRecorder {
    /// The last hour and day of a queue; `None`: it has no history.
    pub fn of(&self, queue: &Name) -> Option<History> {
        locked(&self.inside).of(queue)
    }

    /// Adds a queue's last hour to that of others.
    pub fn add_hour(&self, queue: &Name, sum: &mut Option<Series>) {
        locked(&self.inside).add_hour(queue, sum);
    }

    /// How fast it moved in the last minute.
    pub fn rates(&self, queue: &Name) -> Option<Rates> {
        locked(&self.inside).rates(queue)
    }

    /// The newest counts of a queue with these numbers.
    pub fn recent(&self, queue: &QueueStats, now: Ms) -> Option<Recent> {
        locked(&self.inside).recent(queue, now)
    }

    /// Queues that have one, and those that moved and have none.
    pub fn counts(&self) -> (u64, u64) {
        locked(&self.inside).counts()
    }

    /// Its thread ends.
    pub fn stop(&self) {
        *locked(&self.stops) = true;
        self.bell.notify_all();
    }

    /// Waits; true: it is to end.
    pub fn rest(&self, for_long: Duration) -> bool {
        let stops = locked(&self.stops);
        let waited = self
            .bell
            .wait_timeout_while(stops, for_long, |stops| !*stops);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The thread of histories at work.
struct HistoryThread<'a> {
    recorder: &'a HistoryRecorder,
    surroundings: &'a Surroundings<'a>,
}

/// The parts of the server that the thread of histories needs.
pub struct Surroundings<'a> {
    pub core: &'a Core,
    pub client_api: &'a dyn ClientApi,
    pub config: &'a Mutex<Config>,
    pub audit: &'a Audit,
}

impl HistoryRecorder {
    /// The thread of histories: runs until `stop`.
    pub fn run(&self, surroundings: &Surroundings<'_>, stop: &AtomicBool) {
        let runner = HistoryThread {
            recorder: self,
            surroundings,
        };
        runner.run(stop);
    }
}

impl HistoryThread<'_> {
    fn run(&self, stop: &AtomicBool) {
        let path = locked(self.surroundings.config).data.join(FILE);
        let loaded = kept::load(
            &self.recorder.inside,
            &path,
            self.now(),
            self.histories_max(),
        );
        match loaded {
            Err(error) if error.kind() != io::ErrorKind::NotFound => tracing::warn!(
                "cannot use the history of queues in {}: {error}",
                path.display()
            ),
            _ => {}
        }
        self.follow_history(stop, &path);
        self.save_history(&path);
    }

    fn histories_max(&self) -> usize {
        usize::try_from(locked(self.surroundings.config).history_queues).unwrap_or(usize::MAX)
    }

    fn save_history(&self, path: &Path) {
        // The last room is for the log.
        if self.surroundings.core.is_full() {
            return;
        }
        if let Err(error) = kept::save(&self.recorder.inside, path) {
            let path = path.display();
            tracing::warn!("cannot write the history of queues to {path}: {error}");
        }
    }

    fn now(&self) -> Ms {
        self.surroundings.core.clock.now()
    }

    fn follow_history(&self, stop: &AtomicBool, path: &Path) {
        // From where counters rise until the first minute is over.
        if !self.observe_queues() {
            return;
        }
        loop {
            let minute = self.now().0 / MINUTE;
            let next = Ms((minute + 1) * MINUTE);
            while self.now() < next {
                let left = Duration::from_millis(next.since(self.now()));
                if self.recorder.rest(left.min(SAMPLE_MAX)) || stop.load(Ordering::SeqCst) {
                    return;
                }
            }
            self.surroundings.audit.report_steps();
            if !self.observe_queues() {
                return;
            }
            if (next.0 / MINUTE).is_multiple_of(SAVED) {
                self.save_history(path);
            }
        }
    }

    /// Samples all queues once, page by page. False: it is to end.
    fn observe_queues(&self) -> bool {
        let client = ScopedClient::new(self.surroundings.client_api);
        let most = self.histories_max();
        locked(&self.recorder.inside).begin(self.now());
        let mut next = Some((0, 0));
        while let Some(from) = next.take() {
            let began = Instant::now();
            let Outcome::Stats(stats) = client.ask(Command::Stats(StatsOf::Queues { from })) else {
                // It is stopping, or of no node that owns: an unfinished pass forgets nothing.
                return !self.recorder.rest(Duration::ZERO);
            };
            if let StatsReply::Queues(page) = *stats {
                locked(&self.recorder.inside).sample(self.now(), &page.queues, most);
                next = page.next;
            }
            let rest = (began.elapsed() * REST).min(REST_MAX);
            if next.is_some() && self.recorder.rest(rest) {
                return false;
            }
        }
        locked(&self.recorder.inside).end(self.now());
        true
    }
}
