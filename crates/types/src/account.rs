//! Counters of the queues that one user made.

use std::sync::atomic::{AtomicU64, Ordering};

/// A user's queues and their bytes, over all shards, and how much that may be. Shared by all that
/// count in it: what they add they take back.
#[derive(Debug, Default)]
pub struct Account {
    queues: AtomicU64,
    bytes: AtomicU64,
    queues_max: AtomicU64,
    bytes_max: AtomicU64,
}

impl Account {
    /// From now on there may be so many queues, with so many bytes of bodies; 0: as many as there
    /// may be. What there is stays.
    pub fn limit(&self, queues_max: u64, bytes_max: u64) {
        self.queues_max.store(queues_max, Ordering::Relaxed);
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Number of queues, those without messages included.
    pub fn queues(&self) -> u64 {
        self.queues.load(Ordering::Relaxed)
    }

    /// Bytes of the bodies in them, those in runs included.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Counts a queue more, if there may be one, or `anyhow`.
    pub fn enter(&self, anyhow: bool) -> bool {
        let max = self.queues_max.load(Ordering::Relaxed);
        let entered = self
            .queues
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |queues| {
                (anyhow || max == 0 || queues < max).then_some(queues + 1)
            });
        entered.is_ok()
    }

    /// Counts a queue with so many bytes, whatever there may be.
    pub fn take_in(&self, bytes: u64) {
        self.queues.fetch_add(1, Ordering::Relaxed);
        self.grow(bytes);
    }

    /// Counts a queue with so many bytes no more.
    pub fn leave(&self, bytes: u64) {
        let before = self.queues.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "what leaves an account was counted in it");
        self.shrink(bytes);
    }

    /// True if so many bytes more may be stored. What is stored in several shards at the same
    /// moment may pass the limit together.
    pub fn has_room(&self, bytes: u64) -> bool {
        match self.bytes_max.load(Ordering::Relaxed) {
            0 => true,
            max => self.bytes().saturating_add(bytes) <= max,
        }
    }

    /// Counts so many bytes more.
    pub fn grow(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts so many bytes less.
    pub fn shrink(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
