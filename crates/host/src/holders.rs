//! Which work holds a shard while others wait for its lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quintet_types::Verb;

/// The work that a shard is locked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Commands. The newest one of the turn gives its verb.
    Command(Verb),
    /// Ends of connections and of waits, replies that did not leave.
    Connection,
    Timer,
    /// Messages on their way to another shard.
    Carry,
    /// Takes the open batches for the log.
    Commit,
    /// Records the state that a new segment begins with.
    Segment,
    /// Copies messages out of the oldest segment.
    Retire,
    /// Moves messages from memory to a run.
    Spill,
    /// Brings messages from a run to memory.
    Load,
    /// Replaces runs by one with less in it.
    Rewrite,
    /// Settings, rights, statistics.
    Server,
}

/// The names of all but commands, in the order of the variants.
const OWN: [&str; 10] = [
    "connection",
    "timer",
    "carry",
    "commit",
    "segment",
    "retire",
    "spill",
    "load",
    "rewrite",
    "server",
];

impl Work {
    fn index(self) -> usize {
        match self {
            Work::Command(verb) => OWN.len() + verb as usize,
            Work::Connection => 0,
            Work::Timer => 1,
            Work::Carry => 2,
            Work::Commit => 3,
            Work::Segment => 4,
            Work::Retire => 5,
            Work::Spill => 6,
            Work::Load => 7,
            Work::Rewrite => 8,
            Work::Server => 9,
        }
    }

    fn names() -> impl Iterator<Item = String> {
        let verbs = Verb::ALL
            .iter()
            .map(|verb| format!("command_{}", verb.name()));
        OWN.into_iter().map(str::to_owned).chain(verbs)
    }
}

/// From this time on it counts that a thread held a lock while others waited.
const LONG: Duration = Duration::from_millis(1);

/// How often and how long one kind of work kept others waiting.
#[derive(Default)]
struct Row {
    times: AtomicU64,
    total_us: AtomicU64,
    longest_us: AtomicU64,
}

/// The times of one shard. Only the thread that holds the shard writes.
pub(crate) struct Holders {
    born: Instant,
    /// Since when the present holder has kept somebody waiting, ns since `born`; 0: nobody waits.
    since: AtomicU64,
    rows: Vec<Row>,
}

impl Holders {
    pub(crate) fn new() -> Self {
        let rows = Work::names().map(|_| Row::default()).collect();
        Self {
            born: Instant::now(),
            since: AtomicU64::new(0),
            rows,
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_nanos()).map_or(u64::MAX, |now| now.max(1))
    }

    /// A thread begins to wait. The first one counts.
    pub(crate) fn wait_begins(&self) {
        if self.since.load(Ordering::Relaxed) == 0 {
            let now = self.now();
            let _others = self
                .since
                .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// A thread that has waited holds the lock. `others` still wait.
    pub(crate) fn wait_ends(&self, others: bool) {
        let since = if others { self.now() } else { 0 };
        self.since.store(since, Ordering::Relaxed);
    }

    /// The holder is about to unlock, and somebody waits.
    #[cold]
    pub(crate) fn unlock(&self, work: Work) {
        let now = self.now();
        let since = self.since.swap(now, Ordering::Relaxed);
        let held = Duration::from_nanos(now.saturating_sub(since));
        if since != 0 && held >= LONG {
            self.add(work, held);
        }
    }

    fn add(&self, work: Work, held: Duration) {
        let us = u64::try_from(held.as_micros()).unwrap_or(u64::MAX);
        let row = &self.rows[work.index()];
        row.times.fetch_add(1, Ordering::Relaxed);
        row.total_us.fetch_add(us, Ordering::Relaxed);
        row.longest_us.fetch_max(us, Ordering::Relaxed);
    }
}

/// How one kind of work kept others waiting for more than a millisecond, over all shards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    pub name: String,
    pub times: u64,
    pub total_us: u64,
    pub longest_us: u64,
}

/// Adds up the shards' times, without work that kept nobody.
pub(crate) fn sum<'a>(shards: impl Iterator<Item = &'a Holders>) -> Vec<Holder> {
    let names = Work::names();
    let mut sums: Vec<Holder> = names
        .map(|name| Holder {
            name,
            times: 0,
            total_us: 0,
            longest_us: 0,
        })
        .collect();
    for shard in shards {
        for (sum, row) in sums.iter_mut().zip(&shard.rows) {
            sum.times += row.times.load(Ordering::Relaxed);
            sum.total_us += row.total_us.load(Ordering::Relaxed);
            sum.longest_us = sum.longest_us.max(row.longest_us.load(Ordering::Relaxed));
        }
    }
    sums.retain(|sum| sum.times > 0);
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_work_has_a_name_of_its_own() {
        let names: Vec<String> = Work::names().collect();
        assert_eq!(names.len(), OWN.len() + Verb::ALL.len());
        for (at, verb) in Verb::ALL.iter().enumerate() {
            assert_eq!(Work::Command(*verb).index(), OWN.len() + at);
        }
        assert_eq!(names[Work::Server.index()], "server");
        assert_eq!(names[Work::Segment.index()], "segment");
    }

    /// The time counts from when somebody waits, under the work that ends it.
    #[test]
    fn work_that_kept_others_waiting_is_reported() {
        let mut holders = Holders::new();
        // Born earlier, so that its times are long ones without a wait.
        let ago = Duration::from_secs(60);
        holders.born = holders.born.checked_sub(ago).expect("an earlier time");
        holders.unlock(Work::Spill);
        assert!(sum([&holders].into_iter()).is_empty(), "nobody waited");
        holders.since.store(1, Ordering::Relaxed);
        holders.wait_begins();
        holders.unlock(Work::Spill);
        let told = sum([&holders].into_iter());
        let [one] = &told[..] else {
            panic!("{told:?}");
        };
        assert_eq!((&*one.name, one.times), ("spill", 1));
        assert!(one.longest_us >= 59_000_000 && one.total_us == one.longest_us);
        holders.wait_ends(false);
        holders.unlock(Work::Timer);
        assert_eq!(sum([&holders].into_iter()), told, "nobody waits any more");
    }
}
