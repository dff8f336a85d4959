//! The timer thread: what is due without anybody asking.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use quintet_engine::{Delivery, Ms, WallAhead};

use super::{Core, Need, locked};

/// The next deadline over all shards, and how to make it earlier.
pub(crate) struct Timer {
    /// As far as the timer thread knows. Only lowered by others.
    next: AtomicU64,
    stopped: Mutex<bool>,
    changed: Condvar,
}

/// Longest sleep: the wall clock may have been set, or the machine suspended.
const SLEEP_MAX_MS: u64 = 1000;
/// A change of the distance between the clocks up to this, ms, is not worth
/// locking the shards for: what clients give by the wall clock is in seconds.
const AHEAD_FINE_MS: u64 = 10;

impl Timer {
    pub(crate) fn new() -> Self {
        Self {
            next: AtomicU64::new(Ms::NEVER.0),
            stopped: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    /// Wakes the timer thread if `deadline` is before what it sleeps for.
    pub(crate) fn notify(&self, deadline: Ms) {
        if deadline.0 < self.next.load(Ordering::SeqCst)
            && deadline.0 < self.next.fetch_min(deadline.0, Ordering::SeqCst)
        {
            drop(locked(&self.stopped));
            self.changed.notify_one();
        }
    }

    /// Ends the timer thread.
    pub(crate) fn stop(&self) {
        *locked(&self.stopped) = true;
        self.changed.notify_one();
    }
}

impl Core {
    /// Runs until [`Timer::stop`].
    pub(crate) fn run_timer(&self) {
        let mut deliveries = Vec::new();
        let mut told = self.clock.ahead();
        loop {
            self.look_at_wall_clock(&mut told);
            // Lowered again by whoever has an earlier one from now on.
            self.timer.next.store(Ms::NEVER.0, Ordering::SeqCst);
            let mut next = Ms::NEVER;
            for shard in 0..self.shards.len() {
                next = next.min(self.tick(shard, &mut deliveries));
            }
            self.timer.notify(next);
            let mut stopped = locked(&self.timer.stopped);
            loop {
                if *stopped {
                    return;
                }
                let now = self.clock.now().0;
                let next = self.timer.next.load(Ordering::SeqCst);
                if next <= now {
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
                self.lock(shard).engine.set_wall_ahead(look.ahead);
            }
        }
    }

    /// Does what became due while no server ran, so that the first client finds
    /// it done.
    pub(crate) fn catch_up(&self) {
        let now = self.clock.now();
        let mut deliveries = Vec::new();
        for shard in 0..self.shards.len() {
            while self.tick(shard, &mut deliveries) <= now {}
        }
    }

    /// Does what is due in one shard; answers its next deadline.
    fn tick(&self, number: usize, deliveries: &mut Vec<Delivery>) -> Ms {
        let now = self.clock.now();
        let mut shard = self.lock(number);
        if shard.engine.next_deadline() > now {
            return shard.engine.next_deadline();
        }
        let super::Shard { engine, batch, .. } = &mut *shard;
        engine.tick(now, batch, deliveries);
        let mut next = engine.next_deadline();
        let sends = self.shards.len() > 1 && engine.sends_to().is_some();
        let mut mail = Vec::new();
        self.collect(&mut shard, deliveries, &mut mail);
        let mut ticket = if shard.batch.is_empty() {
            0
        } else {
            self.progress.open()
        };
        drop(shard);
        if sends {
            ticket = ticket.max(self.carry_all(number, now, deliveries, &mut mail));
            next = self.lock(number).engine.next_deadline();
        }
        self.write(ticket);
        self.post(mail);
        next
    }

    /// Leaves outcomes for takes that waited with the threads they belong to.
    pub(crate) fn post(&self, mail: Vec<(Delivery, Need)>) {
        for (delivery, need) in mail {
            self.hand(delivery, need);
        }
    }
}
