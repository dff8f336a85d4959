//! The timer thread: what is due without anybody asking.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use quintet_engine::{Ms, WallAhead};

use super::{Core, Work, locked};

/// The next deadline over all shards, and how to make it earlier.
pub(crate) struct Timer {
    /// As far as the timer thread knows. Only lowered by others.
    next: AtomicU64,
    /// Whoever makes it earlier need not ring while the thread is awake.
    asleep: AtomicBool,
    stopped: Mutex<bool>,
    changed: Condvar,
}

/// Longest sleep: the machine may have been suspended, which a sleep does not count. Whoever only
/// woke for that does not look at the wall clock.
const SLEEP_MAX_MS: u64 = 1000;
/// A change of the distance between the clocks up to this, ms, is not worth
/// locking the shards for: what clients give by the wall clock is in seconds.
const AHEAD_FINE_MS: u64 = 10;

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
            drop(locked(&self.stopped));
            self.changed.notify_one();
        }
    }

    /// What the timer thread sleeps for at most.
    #[cfg(test)]
    pub(super) fn next(&self) -> Ms {
        Ms(self.next.load(Ordering::SeqCst))
    }

    /// Ends the timer thread.
    pub(crate) fn stop(&self) {
        *locked(&self.stopped) = true;
        self.changed.notify_one();
    }
}

impl Core {
    /// Runs until [`Timer::stop`].
    pub fn run_timer(&self) {
        let mut told = self.clock.ahead();
        loop {
            self.timer_turn(&mut told);
            let mut stopped = locked(&self.timer.stopped);
            // Before the next deadline is read: either it is seen, or this is.
            self.timer.asleep.store(true, Ordering::SeqCst);
            loop {
                if *stopped {
                    return;
                }
                let now = self.clock.now().0;
                let next = self.timer.next.load(Ordering::SeqCst);
                if next <= now {
                    self.timer.asleep.store(false, Ordering::SeqCst);
                    break;
                }
                let sleep = Duration::from_millis((next - now).min(SLEEP_MAX_MS));
                stopped = self
                    .timer
                    .changed
                    .wait_timeout(stopped, sleep)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
        }
    }

    /// Does what is due. `told` is how far the wall clock was ahead when the
    /// shards were told last.
    pub(crate) fn timer_turn(&self, told: &mut WallAhead) {
        self.look_at_wall_clock(told);
        // Lowered again by whoever has an earlier one from now on.
        self.timer.next.store(Ms::NEVER.0, Ordering::SeqCst);
        for shard in 0..self.shards.len() {
            self.tick(shard);
        }
    }

    /// Tells the shards and the operator when the wall clock was set. `told` is
    /// what the shards know.
    fn look_at_wall_clock(&self, told: &mut WallAhead) {
        let Some(look) = self.clock.look() else {
            return;
        };
        if let Some(step) = look.step {
            let how = if step > 0 { "forward" } else { "back" };
            let seconds = Duration::from_millis(step.unsigned_abs()).as_secs_f64();
            tracing::warn!(
                step_ms = step,
                ahead_ms = look.ahead.0,
                "the wall clock was set {how} by {seconds} s; waits, delays and leases go on at \
                 their own speed"
            );
        }
        if look.ahead.0.abs_diff(told.0) > AHEAD_FINE_MS {
            *told = look.ahead;
            for shard in 0..self.shards.len() {
                self.lock(shard, Work::Timer)
                    .engine
                    .set_wall_ahead(look.ahead);
            }
        }
    }

    /// Does what became due while no server ran, so that the first client finds
    /// it done.
    pub fn catch_up(&self) {
        let now = self.clock.now();
        for shard in 0..self.shards.len() {
            while self.lock(shard, Work::Timer).engine.next_deadline() <= now {
                self.tick(shard);
            }
        }
    }

    /// Does what is due in one shard.
    fn tick(&self, shard: usize) {
        self.shards[shard].give_way();
        self.visit_for(Work::Timer, |access| {
            access.step(shard, |at| {
                if at.engine.next_deadline() <= at.now {
                    at.engine.tick(at.now, at.journal, at.deliveries);
                }
            });
        });
    }
}
