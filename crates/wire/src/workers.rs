//! Workers: processes of clients that say a name of their own for all of their
//! connections, are asked to be quiet or to end, and count as gone when they
//! have been silent for long. Pure: time is an argument.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use quintet_types::{Ms, locked};

/// A worker that says nothing for so long is gone.
pub const WORKER_SILENCE_MS: u64 = 60_000;
/// Longest name of a worker, bytes.
pub(crate) const WID_MAX: usize = 255;
/// Workers known at once at most, each of up to sixteen KiB; more are refused.
const WORKERS_MAX: usize = 10_000;
/// Time between two searches for silent workers, unless the table is full.
const CHECK_MS: u64 = 1000;
/// Jobs of a worker that are remembered to tell it of their cancels: the newest.
const JOBS_MAX: usize = 100;
/// Longest id of such a job, bytes.
const JID_MAX: usize = 64;
/// Longest host name and label kept, bytes.
const TEXT_MAX: usize = 255;
/// Most labels kept.
const LABELS_MAX: usize = 32;

quintet_types::named! {
    /// The state that a worker is asked to take. It only ever rises.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
    pub enum WorkerState, word {
        #[default]
        Running = "running",
        /// It finishes what it has and takes nothing more.
        Quiet = "quiet",
        Terminate = "terminate",
    }
}

impl WorkerState {
    /// The state with this word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }
}

/// State that the connections of one worker share.
#[derive(Debug, Default)]
pub struct Worker {
    state: AtomicU8,
    /// When it last said something.
    seen: AtomicU64,
    rss_kb: AtomicU64,
    connections: AtomicU32,
    /// It was forgotten: its connections close.
    gone: AtomicU8,
    /// Ids of jobs it has, if it wants to hear of cancels; true: it heard that it is cancelled.
    jobs: Mutex<VecDeque<(Box<str>, bool)>>,
}

impl Worker {
    /// The state that the worker is asked to take.
    pub fn state(&self) -> WorkerState {
        match self.state.load(Ordering::Relaxed) {
            0 => WorkerState::Running,
            1 => WorkerState::Quiet,
            _ => WorkerState::Terminate,
        }
    }

    /// It is asked to do this, unless it was asked for more.
    pub fn raise(&self, state: WorkerState) {
        self.state.fetch_max(state as u8, Ordering::Relaxed);
    }

    /// It has said something.
    pub fn is_seen(&self, now: Ms) {
        self.seen.fetch_max(now.0, Ordering::Relaxed);
    }

    /// It has said how it is.
    pub(crate) fn beats(&self, now: Ms, rss_kb: Option<u64>, state: Option<WorkerState>) {
        self.is_seen(now);
        if let Some(rss_kb) = rss_kb {
            self.rss_kb.store(rss_kb, Ordering::Relaxed);
        }
        self.raise(state.unwrap_or_default());
    }

    /// True if it was silent for too long, or was forgotten for that.
    pub fn is_gone(&self, now: Ms) -> bool {
        let silent = now.since(Ms(self.seen.load(Ordering::Relaxed)));
        silent >= WORKER_SILENCE_MS || self.gone.load(Ordering::Relaxed) != 0
    }

    /// It has got this job.
    pub(crate) fn begins(&self, jid: &[u8]) {
        if let Ok(jid) = std::str::from_utf8(jid)
            && jid.len() <= JID_MAX
        {
            let mut jobs = locked(&self.jobs);
            // It may have had the job before.
            jobs.retain(|(job, _)| **job != *jid);
            if jobs.len() >= JOBS_MAX {
                jobs.pop_front();
            }
            jobs.push_back((jid.into(), false));
        }
    }

    /// It has this job no longer.
    pub(crate) fn ends(&self, jid: &str) {
        let mut jobs = locked(&self.jobs);
        jobs.retain(|(job, _)| **job != *jid);
    }

    /// This job is cancelled, and stays so until it ends.
    pub(crate) fn hears(&self, jid: &str) {
        let mut jobs = locked(&self.jobs);
        for (_, cancelled) in jobs.iter_mut().filter(|(job, _)| **job == *jid) {
            *cancelled = true;
        }
    }

    /// Jobs it has, as far as they are remembered: those of whose cancel it has heard, or the
    /// others.
    pub(crate) fn jobs(&self, cancelled: bool) -> Vec<Box<str>> {
        let jobs = locked(&self.jobs);
        let jobs = jobs.iter().filter(|(_, is_told)| *is_told == cancelled);
        jobs.map(|(jid, _)| jid.clone()).collect()
    }

    pub(crate) fn connects(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn disconnects(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Requests of a session to the table of workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorkerRequest {
    /// A connection is this worker's.
    Join(Box<Joins>),
    /// A worker says how it is.
    Beat {
        /// Its name.
        wid: Box<str>,
        rss_kb: Option<u64>,
        state: Option<WorkerState>,
    },
}

/// A worker's description of itself. Two connections of one worker may differ; the last one counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Joins {
    /// Its name.
    pub wid: Box<str>,
    pub host: Box<str>,
    pub pid: i64,
    pub labels: Vec<Box<str>>,
}

impl Joins {
    /// Bytes of memory it takes in the table.
    pub(crate) fn bytes(&self) -> usize {
        let labels = self.labels.iter().take(LABELS_MAX);
        let texts = labels.chain([&self.wid, &self.wid, &self.host]);
        let texts: usize = texts.map(|text| text.len().min(TEXT_MAX) + 32).sum();
        size_of::<WorkerEntry>() + texts
    }
}

/// A worker as operators see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerSeen {
    /// Shared: the list is short beside what workers say of themselves.
    pub joins: Arc<Joins>,
    pub state: WorkerState,
    /// Time since it said something.
    pub silent_ms: u64,
    /// Time since its first connection.
    pub age_ms: u64,
    /// Memory it says it uses; 0: it did not say.
    pub rss_kb: u64,
    pub connections: u32,
}

struct WorkerEntry {
    joins: Arc<Joins>,
    since: Ms,
    worker: Arc<Worker>,
}

impl WorkerEntry {
    /// True if it was silent for too long; it knows it from then on.
    fn is_gone(&self, now: Ms) -> bool {
        let gone = self.worker.is_gone(now);
        if gone {
            self.worker.gone.store(1, Ordering::Relaxed);
        }
        gone
    }
}

/// The processes of Faktory clients, by their `wid`.
#[derive(Default)]
pub struct Workers {
    known: BTreeMap<Box<str>, WorkerEntry>,
    /// When those that are gone were last looked for.
    checked: Ms,
}

impl Workers {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers a session; `None`: nobody has said this name, or that client is gone; to who
    /// joins, that there are too many.
    pub fn answer(&mut self, ask: WorkerRequest, now: Ms) -> Option<Arc<Worker>> {
        if now.since(self.checked) >= CHECK_MS {
            self.forget_gone(now);
        }
        match ask {
            WorkerRequest::Join(joins) => {
                self.forget_if_gone(&joins.wid, now);
                if self.known.len() >= WORKERS_MAX && !self.known.contains_key(&joins.wid) {
                    return None;
                }
                Some(self.join(*joins, now))
            }
            WorkerRequest::Beat { wid, rss_kb, state } => {
                self.forget_if_gone(&wid, now);
                let known = self.known.get(&wid)?;
                known.worker.beats(now, rss_kb, state);
                Some(Arc::clone(&known.worker))
            }
        }
    }

    fn join(&mut self, mut joins: Joins, now: Ms) -> Arc<Worker> {
        joins.labels.truncate(LABELS_MAX);
        for text in joins.labels.iter_mut().chain([&mut joins.host]) {
            *text = cut(text, TEXT_MAX).into();
        }
        let known = self
            .known
            .entry(joins.wid.clone())
            .or_insert_with(|| WorkerEntry {
                joins: Arc::default(),
                since: now,
                worker: Arc::default(),
            });
        known.joins = Arc::new(joins);
        known.worker.is_seen(now);
        Arc::clone(&known.worker)
    }

    /// Forgets those that were silent for too long.
    pub fn forget_gone(&mut self, now: Ms) {
        self.checked = now;
        self.known.retain(|_, known| !known.is_gone(now));
    }

    /// The same of one of them.
    fn forget_if_gone(&mut self, wid: &str, now: Ms) {
        if self.known.get(wid).is_some_and(|known| known.is_gone(now)) {
            self.known.remove(wid);
        }
    }

    /// Asks one for more than it was asked so far; false: it is not known.
    pub fn raise(&mut self, wid: &str, state: WorkerState, now: Ms) -> bool {
        self.forget_gone(now);
        let known = self.known.get(wid);
        known.map(|known| known.worker.raise(state)).is_some()
    }

    /// How many there are.
    pub fn count(&mut self, now: Ms) -> u64 {
        self.forget_gone(now);
        self.known.len() as u64
    }

    /// All of them, by name.
    pub fn list(&mut self, now: Ms) -> Vec<WorkerSeen> {
        self.forget_gone(now);
        let seen = |known: &WorkerEntry| {
            let worker = &known.worker;
            WorkerSeen {
                joins: Arc::clone(&known.joins),
                state: worker.state(),
                silent_ms: now.since(Ms(worker.seen.load(Ordering::Relaxed))),
                age_ms: now.since(known.since),
                rss_kb: worker.rss_kb.load(Ordering::Relaxed),
                connections: worker.connections.load(Ordering::Relaxed),
            }
        };
        self.known.values().map(seen).collect()
    }
}

/// The first so many bytes of a text, at a letter's edge.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(workers: &mut Workers, wid: &str, now: u64) -> Arc<Worker> {
        let joins = Joins {
            wid: wid.into(),
            ..Joins::default()
        };
        let ask = WorkerRequest::Join(Box::new(joins));
        workers.answer(ask, Ms(now)).expect("it is known now")
    }

    fn beat(workers: &mut Workers, wid: &str, now: u64) -> Option<Arc<Worker>> {
        let ask = WorkerRequest::Beat {
            wid: wid.into(),
            rss_kb: None,
            state: None,
        };
        workers.answer(ask, Ms(now))
    }

    #[test]
    fn states_only_rise() {
        let mut workers = Workers::new();
        let worker = join(&mut workers, "w", 0);
        assert!(workers.raise("w", WorkerState::Terminate, Ms(1)));
        assert!(workers.raise("w", WorkerState::Quiet, Ms(1)));
        assert!(!workers.raise("x", WorkerState::Quiet, Ms(1)));
        assert_eq!(worker.state(), WorkerState::Terminate);
        assert!(Arc::ptr_eq(&worker, &join(&mut workers, "w", 2)));
    }

    #[test]
    fn there_are_no_more_than_may_be() {
        let mut workers = Workers::new();
        let ask = |wid: usize| {
            let wid = wid.to_string().into();
            let joins = Joins {
                wid,
                ..Joins::default()
            };
            WorkerRequest::Join(Box::new(joins))
        };
        for wid in 0..WORKERS_MAX {
            assert!(workers.answer(ask(wid), Ms(0)).is_some());
        }
        assert!(workers.answer(ask(WORKERS_MAX), Ms(1)).is_none());
        assert!(workers.answer(ask(7), Ms(2)).is_some(), "it is known");
        // All but that one are gone.
        assert!(workers.answer(ask(WORKERS_MAX), Ms(60_001)).is_some());
        assert_eq!(workers.count(Ms(60_001)), 2);
    }

    #[test]
    fn a_silent_worker_is_forgotten_and_starts_again() {
        let mut workers = Workers::new();
        let worker = join(&mut workers, "w", 0);
        assert!(beat(&mut workers, "w", 59_999).is_some());
        assert_eq!(workers.count(Ms(119_998)), 1);
        assert!(!worker.is_gone(Ms(119_998)));
        assert!(beat(&mut workers, "w", 119_999).is_none());
        worker.is_seen(Ms(119_999));
        assert!(
            worker.is_gone(Ms(119_999)),
            "its connections close all the same"
        );
        let again = join(&mut workers, "w", 120_000);
        assert!(!again.is_gone(Ms(120_000)));
    }
}
