//! One shard: its engine and its part of the open batch.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use quintet_engine::format::put_group;
use quintet_engine::{Engine, Fact, Journal};
use quintet_types::{Hold, Name, SegmentRef};

use super::commit_numbers::{Progress, Required, Ring};
use super::holders::{Holders, Work};
use super::locked;
use super::observe::Observer;

/// Facts of one shard, encoded, not yet with the log.
#[derive(Default)]
pub(crate) struct Batch {
    /// The records, one after the other.
    pub(crate) records: Vec<u8>,
    /// How many.
    pub(crate) count: u32,
    /// Bytes of what the segment begins with.
    pub(crate) snapshot: usize,
    /// Bytes of images that replace older ones.
    pub(crate) copied: usize,
    /// Where the snapshot may be cut into frames, rising: bytes, and records
    /// up to there.
    cuts: Vec<(usize, u32)>,
    /// As much of it is in frames already.
    done: (usize, u32),
    /// Receives each fact; only of the batch that is open.
    pub(crate) observers: Vec<Box<dyn Observer>>,
}

/// A snapshot goes into frames of so many bytes: one frame has a limit, and a
/// start holds each in memory. Small in tests, so that they cut.
const CUT_BYTES: usize = if cfg!(test) { 512 } else { 64 << 20 };
/// Bytes of what a segment begins with that are written in one hold of a shard's lock, at most as
/// they are counted beforehand.
pub(crate) const SLICE_BYTES: u64 = if cfg!(test) { 4 << 10 } else { 256 << 10 };

impl Journal for Batch {
    fn record(&mut self, fact: &Fact) {
        fact.encode(&mut self.records);
        self.count += 1;
        for observer in &mut self.observers {
            observer.decided(fact);
        }
    }

    /// Each of these records may come twice, so they need not be in one frame, as what a command
    /// decided must.
    fn restate(&mut self, fact: &Fact) {
        let before = self.records.len();
        self.record(fact);
        self.snapshot += self.records.len() - before;
        let last = self.cuts.last().map_or(0, |cut| cut.0);
        if self.snapshot == self.records.len() && self.snapshot - last >= CUT_BYTES {
            self.cuts.push((self.snapshot, self.count));
        }
    }

    fn pass(&mut self, fact: &Fact, name: impl FnOnce() -> Name) {
        if !self.observers.is_empty() {
            let name = name();
            for observer in &mut self.observers {
                observer.passed(fact, &name);
            }
        }
    }
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Empties it and keeps its memory, unless that grew far beyond the usual.
    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.records.shrink_to(1 << 20);
        self.cuts.clear();
        (self.count, self.snapshot, self.copied, self.done) = (0, 0, 0, (0, 0));
    }

    /// Begins with the shard's whole snapshot.
    pub(crate) fn begin(&mut self, engine: &Engine) {
        // Of the bytes it may take at most, a quarter is usual.
        let usual = usize::try_from(engine.snapshot_bytes() / 4).unwrap_or(0);
        self.records.reserve(usual);
        engine.snapshot(&mut |fact| self.restate(fact));
    }
}

/// Moves what goes into the next frame to its payload: for each shard that has
/// any its number, their length and the records. Answers how many records, and
/// whether it was the last of the batches, which are empty then.
pub(crate) fn fill(payload: &mut Vec<u8>, batches: &mut [Batch]) -> (u32, bool) {
    for (number, batch) in batches.iter_mut().enumerate() {
        let (from, counted) = batch.done;
        let next = batch.cuts.iter().find(|(end, _)| *end > from);
        if let Some(&(end, count)) = next {
            put_group(payload, number, &batch.records[from..end]);
            batch.done = (end, count);
            let last = batches.iter().all(|b| b.done.0 == b.records.len());
            if last {
                batches.iter_mut().for_each(Batch::clear);
            }
            return (count - counted, last);
        }
    }
    let mut count = 0;
    for (number, batch) in batches.iter_mut().enumerate() {
        put_group(payload, number, &batch.records[batch.done.0..]);
        count += batch.count - batch.done.1;
        batch.clear();
    }
    (count, true)
}

/// A shard behind its lock.
pub(crate) struct ShardLock {
    shard: Mutex<Shard>,
    /// Threads that have found it taken.
    waiting: AtomicU32,
    pub(crate) holders: Holders,
    /// How often it was locked.
    #[cfg(test)]
    locks: std::sync::atomic::AtomicU64,
}

/// A shard, locked. Notes what kept others waiting before it unlocks.
pub(crate) struct Locked<'a> {
    shard: MutexGuard<'a, Shard>,
    lock: &'a ShardLock,
    pub(crate) work: Work,
}

impl Deref for Locked<'_> {
    type Target = Shard;

    #[inline]
    fn deref(&self) -> &Shard {
        &self.shard
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.lock.waiting.load(Ordering::Relaxed) != 0 {
            self.lock.holders.unlock(self.work);
        }
    }
}

/// How often, and for how long each time, a thread with much to do gives way
/// to those who wait before it goes on all the same.
const WAY: (u32, Duration) = (20, Duration::from_micros(50));

impl ShardLock {
    pub(crate) fn new(shard: Shard) -> Self {
        Self {
            shard: Mutex::new(shard),
            waiting: AtomicU32::new(0),
            holders: Holders::new(),
            #[cfg(test)]
            locks: Default::default(),
        }
    }

    /// How often it was locked.
    #[cfg(test)]
    pub(crate) fn locked(&self) -> u64 {
        self.locks.load(Ordering::Relaxed)
    }

    /// Waits for the lock of the shard.
    #[inline]
    pub(crate) fn lock(&self, work: Work) -> Locked<'_> {
        #[cfg(test)]
        self.locks.fetch_add(1, Ordering::Relaxed);
        let shard = match self.shard.try_lock() {
            Ok(shard) => shard,
            Err(_) => self.wait(),
        };
        Locked {
            shard,
            lock: self,
            work,
        }
    }

    #[cold]
    fn wait(&self) -> MutexGuard<'_, Shard> {
        self.holders.wait_begins();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let shard = locked(&self.shard);
        let before = self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.holders.wait_ends(before > 1);
        shard
    }

    /// Locks it for one of many slices of work that nobody waits for. Those who
    /// wait go first: the lock would go to the thread that has just let go of it and is
    /// awake, slice after slice, rather than to one who is being woken.
    pub(crate) fn lock_last(&self, work: Work) -> Locked<'_> {
        self.give_way();
        self.lock(work)
    }

    /// Lets those pass who wait for it; for a thread that holds none.
    pub(crate) fn give_way(&self) {
        for _ in 0..WAY.0 {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                return;
            }
            std::thread::sleep(WAY.1);
        }
    }
}

/// The data that one lock guards.
pub(crate) struct Shard {
    pub(crate) engine: Engine,
    pub(crate) batch: Batch,
    pub(crate) ring: Ring,
}

impl Shard {
    pub(crate) fn new(engine: Engine) -> Self {
        Self {
            engine,
            batch: Batch::default(),
            ring: Ring::default(),
        }
    }

    /// The condition for sending a reply decided now. `waits_for_disk`: durable means synced; else
    /// it means written.
    pub(crate) fn required(
        &mut self,
        hold: Hold,
        progress: &Progress,
        waits_for_disk: bool,
    ) -> Required {
        let open = progress.open();
        let last = if self.batch.is_empty() {
            open - 1
        } else {
            open
        };
        let required = match hold {
            Hold::Turn => Required {
                lease: true,
                ..Required::default()
            },
            Hold::Durable => Required {
                written: last,
                durable: last,
                lease: true,
            },
            Hold::Written(id) => {
                let durable = self.ring.commit_number_of(id, last, progress.durable());
                Required {
                    written: last,
                    durable,
                    lease: true,
                }
            }
        };
        if waits_for_disk {
            required
        } else {
            Required {
                durable: 0,
                ..required
            }
        }
    }

    /// The open batch is the first of the segment `segment_ref`.
    pub(crate) fn begin_segment(&mut self, segment_ref: SegmentRef) {
        let Self { engine, batch, .. } = self;
        engine.begin_segment(segment_ref, batch);
    }

    /// Puts a slice of what the segment begins with into the open batch. True if there is more.
    pub(crate) fn restate(&mut self) -> bool {
        let Self { engine, batch, .. } = self;
        engine.restate(SLICE_BYTES, batch)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use quintet_types::Settings;

    use super::*;

    #[test]
    fn waiting_threads_are_counted_and_go_first() {
        const PATIENCE: Duration = Duration::from_secs(120);
        let lock = ShardLock::new(Shard::new(Engine::new(0, 1, Settings::default())));
        let waiting = || lock.waiting.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            let held = lock.lock(Work::Server);
            scope.spawn(|| drop(lock.lock(Work::Server)));
            let begun = Instant::now();
            while waiting() == 0 {
                assert!(begun.elapsed() < PATIENCE, "nobody is counted");
                std::thread::yield_now();
            }
            // No sleep is shorter than it should be.
            let begun = Instant::now();
            lock.give_way();
            assert!(begun.elapsed() >= WAY.1 * WAY.0);
            drop(held);
        });
        assert_eq!(waiting(), 0);
        drop(lock.lock_last(Work::Server));
    }

    #[test]
    fn work_that_keeps_others_waiting_is_noted_and_no_other() {
        const PATIENCE: Duration = Duration::from_secs(120);
        const HELD: Duration = Duration::from_millis(3);
        let lock = ShardLock::new(Shard::new(Engine::new(0, 1, Settings::default())));
        let noted = || crate::holders::sum(std::iter::once(&lock.holders));
        let spend = || {
            let begun = Instant::now();
            while begun.elapsed() < HELD {
                std::hint::spin_loop();
            }
        };
        let held = lock.lock(Work::Timer);
        spend();
        drop(held);
        assert_eq!(noted(), [], "nobody waited");

        std::thread::scope(|scope| {
            let mut held = lock.lock(Work::Commit);
            scope.spawn(|| drop(lock.lock(Work::Server)));
            let begun = Instant::now();
            while lock.waiting.load(Ordering::Relaxed) == 0 {
                assert!(begun.elapsed() < PATIENCE, "nobody is counted");
                std::thread::yield_now();
            }
            spend();
            held.work = Work::Segment;
            drop(held);
        });
        let all = noted();
        let segment = all.iter().find(|holder| holder.name == "segment").unwrap();
        assert_eq!(segment.times, 1);
        assert!(segment.longest_us >= 3000, "{segment:?}");
        assert!(segment.total_us >= segment.longest_us, "{segment:?}");
        assert!(!all.iter().any(|holder| holder.name == "commit"), "{all:?}");

        // Nobody waits any more: what was held then is over.
        let held = lock.lock(Work::Timer);
        spend();
        drop(held);
        assert_eq!(noted(), all);
    }
}
