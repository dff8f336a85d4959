//! State that all Lua states share: counters, metrics, statistics of the hooks.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use quintet_types::{Ms, locked};

use crate::error::HookError;
use crate::repeats::Repeats;
use quintet_policy::Event;

/// Counters that exist at most.
const COUNTERS_MAX: usize = 100_000;
/// Metrics that exist at most.
const METRICS_MAX: usize = 1000;

/// Outlives the programs: a reload goes on with it.
#[derive(Default)]
pub struct Shared {
    /// Counters of `quintet.counter`.
    pub counters: Counters,
    /// Sums of `quintet.metric`.
    pub metrics: Metrics,
    events: [Tally; Event::COUNT],
    repeats: Mutex<Repeats>,
}

/// Numbers of one event.
#[derive(Default)]
struct Tally {
    calls: AtomicU64,
    errors: AtomicU64,
    ns: AtomicU64,
    last: Mutex<Option<HookError>>,
}

/// Statistics of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventStats {
    pub event: Event,
    /// Calls of its functions.
    pub calls: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Time spent in them, ns.
    pub ns: u64,
    pub last: Option<HookError>,
}

impl Shared {
    pub(crate) fn called(&self, event: Event, ns: u64) {
        let tally = &self.events[event as usize];
        tally.calls.fetch_add(1, Relaxed);
        tally.ns.fetch_add(ns, Relaxed);
    }

    /// Counts an error; answers the line for the log, if it is time for one.
    pub(crate) fn failed(&self, event: Event, error: &HookError, now: Ms) -> Option<String> {
        let tally = &self.events[event as usize];
        tally.errors.fetch_add(1, Relaxed);
        *locked(&tally.last) = Some(error.clone());
        let line = format!("hook {}: {error}", event.name());
        // The text may differ each time; where it happens does not.
        let key = match error.line {
            0 => line.clone(),
            at => format!("{} {} {at}", event.name(), error.file),
        };
        locked(&self.repeats).admit(&key, &line, now)
    }

    /// Lines for the log about errors that came again and have not been logged.
    /// To be asked once in a second or so.
    pub fn overdue(&self, now: Ms) -> Vec<String> {
        locked(&self.repeats).overdue(now)
    }

    /// The events that were called for, in their order.
    pub fn stats(&self) -> Vec<EventStats> {
        Event::ALL
            .into_iter()
            .map(|event| {
                let tally = &self.events[event as usize];
                EventStats {
                    event,
                    calls: tally.calls.load(Relaxed),
                    errors: tally.errors.load(Relaxed),
                    ns: tally.ns.load(Relaxed),
                    last: locked(&tally.last).clone(),
                }
            })
            .filter(|stats| stats.calls > 0)
            .collect()
    }
}

/// Numbers by name, each changed in one step; forgotten with the process.
#[derive(Default)]
pub struct Counters(Mutex<HashMap<Box<[u8]>, Counter>>);

#[derive(Clone, Copy)]
struct Counter {
    value: i64,
    /// From then on it does not exist.
    until: Ms,
}

impl Counters {
    /// Adds `by` and answers the sum. A counter that does not exist is 0 first
    /// and lives for `ttl_ms`; one that does keeps its time. `None`: there are
    /// too many.
    pub fn add(&self, name: &[u8], by: i64, ttl_ms: Option<u64>, now: Ms) -> Option<i64> {
        let mut all = locked(&self.0);
        if let Some(counter) = all.get_mut(name)
            && counter.until > now
        {
            counter.value = counter.value.saturating_add(by);
            return Some(counter.value);
        }
        let until = ttl_ms.map_or(Ms::NEVER, |ms| now + ms);
        insert(&mut all, name, Counter { value: by, until }, now).then_some(by)
    }

    /// Its value; 0 if it does not exist.
    pub fn get(&self, name: &[u8], now: Ms) -> i64 {
        locked(&self.0)
            .get(name)
            .filter(|counter| counter.until > now)
            .map_or(0, |counter| counter.value)
    }

    /// Sets it to `new` if it is `old`; answers whether it was. `None`: there
    /// are too many.
    pub fn cas(
        &self,
        name: &[u8],
        old: i64,
        new: i64,
        ttl_ms: Option<u64>,
        now: Ms,
    ) -> Option<bool> {
        let mut all = locked(&self.0);
        let found = all.get(name).copied().filter(|counter| counter.until > now);
        if found.map_or(0, |counter| counter.value) != old {
            return Some(false);
        }
        let until = match ttl_ms {
            Some(ms) => now + ms,
            None => found.map_or(Ms::NEVER, |counter| counter.until),
        };
        insert(&mut all, name, Counter { value: new, until }, now).then_some(true)
    }
}

fn insert(all: &mut HashMap<Box<[u8]>, Counter>, name: &[u8], counter: Counter, now: Ms) -> bool {
    if all.len() >= COUNTERS_MAX && !all.contains_key(name) {
        all.retain(|_, counter| counter.until > now);
        if all.len() >= COUNTERS_MAX {
            return false;
        }
    }
    all.insert(name.into(), counter);
    true
}

/// Sums by name.
#[derive(Default)]
pub struct Metrics(Mutex<BTreeMap<Box<str>, f64>>);

impl Metrics {
    /// Adds to one. False: there are too many.
    pub fn add(&self, name: &str, value: f64) -> bool {
        let mut all = locked(&self.0);
        if let Some(sum) = all.get_mut(name) {
            *sum += value;
            return true;
        }
        if all.len() >= METRICS_MAX {
            return false;
        }
        all.insert(name.into(), value);
        true
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<(Box<str>, f64)> {
        let all = locked(&self.0);
        all.iter()
            .map(|(name, value)| (name.clone(), *value))
            .collect()
    }
}
