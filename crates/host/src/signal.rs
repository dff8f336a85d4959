//! A flag one thread sleeps on and any other raises.

use std::time::{Duration, Instant};

use super::primitives::{AtomicBool, Condvar, Mutex, Ordering, PoisonError};

/// Raising twice before it is seen counts once.
#[derive(Default)]
pub struct Signal {
    /// Spares the lock when the signal is up already.
    up: AtomicBool,
    guard: Mutex<()>,
    raised: Condvar,
}

impl Signal {
    /// Wakes the sleeper, or keeps it from going to sleep.
    pub fn raise(&self) {
        if !self.up.swap(true, Ordering::SeqCst) {
            // The lock makes the sleeper either see the flag or hear the bell.
            drop(self.guard.lock().unwrap_or_else(PoisonError::into_inner));
            self.raised.notify_one();
        }
    }

    /// Sleeps until raised, and lowers it.
    pub fn wait(&self) {
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.up.swap(false, Ordering::SeqCst) {
            guard = self
                .raised
                .wait(guard)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sleeps until raised, or for this long. True if it was raised.
    pub fn wait_for(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.up.swap(false, Ordering::SeqCst) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.raised.wait_timeout(guard, left);
            guard = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}
