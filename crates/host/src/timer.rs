//! The timer thread: what is due without anybody asking.

use std::time::Duration;

use quintet_types::WallAhead;

use super::{Core, Work};

/// A change of the distance between the clocks up to this, ms, is not worth
/// locking the shards for: what clients give by the wall clock is in seconds.
const AHEAD_FINE_MS: u64 = 10;

impl Core {
    /// Runs until [`Timer::stop`].
    pub fn run_timer(&self) {
        let mut reported = self.clock.ahead();
        loop {
            self.timer_turn(&mut reported);
            if !self.timer.sleep(|| self.clock.now()) {
                return;
            }
        }
    }

    /// Does what is due. `reported` is how far the wall clock was ahead when the
    /// shards last heard of it.
    pub(crate) fn timer_turn(&self, reported: &mut WallAhead) {
        self.read_wall_clock(reported);
        self.timer.begin_turn();
        for shard in 0..self.shards.len() {
            self.tick(shard);
        }
    }

    /// Tells the shards and the operator when the wall clock was set. `reported` is
    /// what the shards know.
    fn read_wall_clock(&self, reported: &mut WallAhead) {
        let Some(reading) = self.clock.read_wall() else {
            return;
        };
        if let Some(step) = reading.step {
            let how = if step > 0 { "forward" } else { "back" };
            let seconds = Duration::from_millis(step.unsigned_abs()).as_secs_f64();
            tracing::warn!(
                step_ms = step,
                ahead_ms = reading.ahead.0,
                "the wall clock was set {how} by {seconds} s; waits, delays and leases go on at \
                 their own speed"
            );
        }
        if reading.ahead.0.abs_diff(reported.0) > AHEAD_FINE_MS {
            *reported = reading.ahead;
            for shard in 0..self.shards.len() {
                self.lock(shard, Work::Timer)
                    .engine
                    .set_wall_ahead(reading.ahead);
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
        self.with_access_for(Work::Timer, |access| {
            access.step(shard, |at| {
                if at.engine.next_deadline() <= at.now {
                    at.engine.tick(at.now, at.journal, at.deliveries);
                }
            });
        });
    }
}
