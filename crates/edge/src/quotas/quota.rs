//! Usage and limits of one address or one user.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quintet_auth::{Bucket, Limits, Rate};
use quintet_client::ByteBudget;

use super::Limited;

/// Milliseconds of a minute.
const MINUTE_MS: u64 = 60_000;

quintet_types::defaults! {
    /// One address's or user's. Limits of 0 are none.
    pub struct Quota {
        connections: AtomicU64 = AtomicU64::new(0),
        connections_max: AtomicU64 = AtomicU64::new(0),
        pub(super) requests: Bucket = Bucket::default(),
        requests_per_second: AtomicU64 = AtomicU64::new(0),
        requests_burst: AtomicU64 = AtomicU64::new(0),
        failures: Bucket = Bucket::default(),
        failures_per_minute: AtomicU64 = AtomicU64::new(0),
        pub(super) bytes: Arc<ByteBudget> = ByteBudget::new(u64::MAX),
        /// How often one of them held somebody back, and when last, ns.
        throttled: AtomicU64 = AtomicU64::new(0),
        throttled_ns: AtomicU64 = AtomicU64::new(0),
    }
}

impl Quota {
    pub(super) fn new(limits: &Limits) -> Arc<Self> {
        let quota = Self::default();
        quota.set(limits);
        Arc::new(quota)
    }

    /// Other limits from now on.
    pub(super) fn set(&self, limits: &Limits) {
        let set = |at: &AtomicU64, limit: Option<u64>| {
            at.store(limit.unwrap_or(0), Ordering::Relaxed);
        };
        set(&self.connections_max, limits.connections_max);
        set(&self.requests_per_second, limits.requests_per_second);
        set(&self.requests_burst, limits.requests_burst);
        set(&self.failures_per_minute, limits.failures_per_minute);
        let bytes = limits.bytes_in_flight_max.filter(|bytes| *bytes > 0);
        self.bytes.set_limit(bytes.unwrap_or(u64::MAX));
    }

    /// How fast requests may come, if that is limited.
    pub(super) fn rate(&self) -> Option<Rate> {
        let per_second = self.requests_per_second.load(Ordering::Relaxed);
        if per_second == 0 {
            return None;
        }
        let burst = match self.requests_burst.load(Ordering::Relaxed) {
            0 => per_second,
            burst => burst,
        };
        Some(Rate::per_second(per_second, burst))
    }

    fn failure_rate(&self) -> Option<Rate> {
        let most = self.failures_per_minute.load(Ordering::Relaxed);
        (most > 0).then(|| Rate::new(most, MINUTE_MS, most))
    }

    /// Something failed that may fail so often.
    pub(super) fn failed(&self, now_ns: u64) {
        if let Some(rate) = self.failure_rate() {
            self.failures.take(rate, now_ns, 1);
        }
    }

    /// True if more failed than may.
    pub(super) fn fails_too_often(&self, now_ns: u64) -> bool {
        let rate = self.failure_rate();
        rate.is_some_and(|rate| self.failures.room(rate, now_ns) == 0)
    }

    /// True if forgetting it changes nothing.
    pub(super) fn is_idle(&self, now_ns: u64) -> bool {
        !self.has_connections()
            && self.bytes.used() == 0
            && self.requests.is_full(now_ns)
            && self.failures.is_full(now_ns)
    }

    pub(super) fn has_connections(&self) -> bool {
        self.connections.load(Ordering::Relaxed) > 0
    }

    /// One of its limits throttled somebody.
    pub fn holds_back(&self, now_ns: u64) {
        self.throttled.fetch_add(1, Ordering::Relaxed);
        self.throttled_ns.store(now_ns, Ordering::Relaxed);
    }

    /// How often that was, and when last.
    pub(super) fn throttled(&self) -> (u64, u64) {
        let times = self.throttled.load(Ordering::Relaxed);
        (times, self.throttled_ns.load(Ordering::Relaxed))
    }

    /// The limits reached at `now_ns`: of connections, requests, bytes in flight and failures.
    pub(super) fn reached(&self, now_ns: u64) -> impl Iterator<Item = Limited> {
        let most = self.connections_max.load(Ordering::Relaxed);
        let rate = self.rate();
        let is_crowded = most > 0 && self.connections.load(Ordering::Relaxed) >= most;
        let is_fast = rate.is_some_and(|rate| self.requests.room(rate, now_ns) == 0);
        let all = [
            (is_crowded, Limited::Connections),
            (is_fast, Limited::Requests),
            (self.bytes.is_tight(), Limited::BytesInFlight),
            (self.fails_too_often(now_ns), Limited::Failures),
        ];
        let reached = all.into_iter().filter(|(reached, _)| *reached);
        reached.map(|(_, limited)| limited)
    }

    /// One connection more, as long as that may be.
    pub(super) fn enter(self: Arc<Self>) -> Option<Stay> {
        let before = self.connections.fetch_add(1, Ordering::Relaxed);
        let stay = Stay(self);
        let most = stay.0.connections_max.load(Ordering::Relaxed);
        (most == 0 || before < most).then_some(stay)
    }
}

/// A connection that counts in a quota, until this is dropped.
pub struct Stay(pub(super) Arc<Quota>);

impl Drop for Stay {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
