//! How often something may happen: a bucket that fills at a rate up to what may
//! come at once, and that many threads take from without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;

/// How fast a bucket fills, and how much it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// Time in which one comes, ns, 1 at least.
    each_ns: u64,
    /// Time in which an empty bucket is full, ns.
    full_ns: u64,
}

impl Rate {
    /// So many in `per_ms`, `burst` at once; both count as 1 at least.
    pub fn new(count: u64, per_ms: u64, burst: u64) -> Self {
        let per_ns = per_ms.max(1).saturating_mul(1_000_000);
        let each_ns = (per_ns / count.max(1)).max(1);
        Self {
            each_ns,
            full_ns: each_ns.saturating_mul(burst.max(1)),
        }
    }

    /// So many in a second.
    pub fn per_second(count: u64, burst: u64) -> Self {
        Self::new(count, SECOND_NS / 1_000_000, burst)
    }
}

/// Content of a bucket, as the time at which it will be full again, ns of a clock that never goes
/// back. A new one is full.
#[derive(Debug, Default)]
pub struct Bucket {
    full_at: AtomicU64,
}

impl Bucket {
    /// How many may be taken at `now_ns`.
    pub fn room(&self, rate: Rate, now_ns: u64) -> u64 {
        let missing = self.full_at.load(Ordering::Relaxed).saturating_sub(now_ns);
        rate.full_ns.saturating_sub(missing) / rate.each_ns
    }

    /// Takes `count` at `now_ns`, also more than there are.
    pub fn take(&self, rate: Rate, now_ns: u64, count: u64) {
        self.push(now_ns, rate.each_ns.saturating_mul(count));
    }

    /// Takes one that is not there yet; answers when it will be, ns. Who comes
    /// later gets a later one.
    pub fn reserve(&self, rate: Rate, now_ns: u64) -> u64 {
        let full_at = self.push(now_ns, rate.each_ns);
        full_at.saturating_sub(rate.full_ns).max(now_ns)
    }

    /// Returns a reserved token that is not needed.
    pub fn give_back(&self, rate: Rate) {
        let less = |at: u64| Some(at.saturating_sub(rate.each_ns));
        // It always succeeds, as there is always a new value.
        let _before = self
            .full_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// True if nothing is missing at `now_ns`: it is as good as a new one.
    pub fn is_full(&self, now_ns: u64) -> bool {
        self.full_at.load(Ordering::Relaxed) <= now_ns
    }

    fn push(&self, now_ns: u64, by_ns: u64) -> u64 {
        let later = |at: u64| Some(at.max(now_ns).saturating_add(by_ns));
        let before = self
            .full_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
        let before = before.unwrap_or_else(|at| at);
        before.max(now_ns).saturating_add(by_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn it_gives_its_burst_at_once_and_then_its_rate() {
        let (bucket, rate) = (Bucket::default(), Rate::per_second(1000, 5));
        let start = 77 * MS;
        assert_eq!(bucket.room(rate, start), 5);
        bucket.take(rate, start, 5);
        assert_eq!(bucket.room(rate, start), 0);
        assert_eq!(bucket.room(rate, start + MS - 1), 0);
        assert_eq!(bucket.room(rate, start + MS), 1);
        assert_eq!(bucket.room(rate, start + 3 * MS), 3);
        // It never holds more than its burst.
        assert!(!bucket.is_full(start + 5 * MS - 1));
        assert!(bucket.is_full(start + 5 * MS));
        assert_eq!(bucket.room(rate, start + 500 * MS), 5);
    }

    #[test]
    fn reservations_get_tokens_in_turn() {
        let (bucket, rate) = (Bucket::default(), Rate::per_second(100, 2));
        bucket.take(rate, 0, 2);
        let turns: Vec<u64> = (0..4).map(|_| bucket.reserve(rate, 0) / MS).collect();
        assert_eq!(turns, [10, 20, 30, 40]);
        bucket.give_back(rate);
        assert_eq!(bucket.reserve(rate, 0) / MS, 40);
        // What is there needs no waiting.
        let new = Bucket::default();
        assert_eq!(new.reserve(rate, 3 * MS), 3 * MS);
    }

    #[test]
    fn rates_beyond_sense_neither_divide_by_nothing_nor_overflow() {
        let (bucket, none) = (Bucket::default(), Rate::per_second(0, 0));
        assert_eq!(bucket.room(none, 0), 1);
        let (bucket, most) = (Bucket::default(), Rate::new(u64::MAX, u64::MAX, u64::MAX));
        bucket.take(most, u64::MAX - 1, u64::MAX);
        assert_eq!(bucket.reserve(most, u64::MAX - 1), u64::MAX - 1);
        bucket.give_back(most);
        bucket.give_back(Rate::per_second(1, 1));
    }
}
