//! The deadline that the timer thread sleeps for.

use std::time::Duration;

use quintet_types::Ms;

use super::primitives::{AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, PoisonError};

/// The next deadline over all shards, and how to make it earlier.
pub(crate) struct Timer {
    /// As far as the timer thread knows. Only lowered by others.
    next: AtomicU64,
    /// True while the thread sleeps: an earlier deadline need not ring while it is awake.
    asleep: AtomicBool,
    stopped: Mutex<bool>,
    changed: Condvar,
}

/// Longest sleep: the machine may have been suspended, which a sleep does not count. A thread that
/// only woke for that does not look at the wall clock.
const SLEEP_MAX_MS: u64 = 1000;

impl Timer {
    pub(crate) fn new() -> Self {
        Self {
            next: AtomicU64::new(Ms::NEVER.0),
            asleep: AtomicBool::new(false),
            stopped: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    /// Wakes the timer thread if `deadline` is before what it sleeps for.
    pub(crate) fn notify(&self, deadline: Ms) {
        if deadline.0 < self.next.load(Ordering::SeqCst)
            && deadline.0 < self.next.fetch_min(deadline.0, Ordering::SeqCst)
            && self.asleep.load(Ordering::SeqCst)
        {
            drop(self.stopped());
            self.changed.notify_one();
        }
    }

    /// Longest sleep of the timer thread.
    #[cfg(test)]
    pub(crate) fn next(&self) -> Ms {
        Ms(self.next.load(Ordering::SeqCst))
    }

    /// Ends the timer thread.
    pub(crate) fn stop(&self) {
        *self.stopped() = true;
        self.changed.notify_one();
    }

    /// A turn begins: those who have an earlier deadline from now on lower it again.
    pub(crate) fn begin_turn(&self) {
        self.next.store(Ms::NEVER.0, Ordering::SeqCst);
    }

    /// Sleeps until the next deadline. False: the thread is to end.
    pub(crate) fn sleep(&self, now: impl Fn() -> Ms) -> bool {
        let mut stopped = self.stopped();
        // Before the next deadline is read: either it is seen, or this is.
        self.asleep.store(true, Ordering::SeqCst);
        loop {
            if *stopped {
                return false;
            }
            let now = now().0;
            let next = self.next.load(Ordering::SeqCst);
            if next <= now {
                self.asleep.store(false, Ordering::SeqCst);
                return true;
            }
            let sleep = Duration::from_millis((next - now).min(SLEEP_MAX_MS));
            let woken = self.changed.wait_timeout(stopped, sleep);
            stopped = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn stopped(&self) -> MutexGuard<'_, bool> {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
