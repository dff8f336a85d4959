//! A machine's clocks, which are not those of other machines.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use quintet_cluster::{Moment, World as _};

use super::SimWorld;

/// Time of a machine's wall clock when its monotonic clock is 0, Unix milliseconds.
const WALL_MS: u64 = 1_700_000_000_000;

/// One machine's: a clock that only goes forward, at its own speed, and one on the wall. Clones are
/// the same machine's.
#[derive(Clone)]
pub struct Clocks {
    world: SimWorld,
    state: Arc<Mutex<State>>,
}

struct State {
    /// Thousandths of true time that pass on it.
    rate: u64,
    /// It showed `base` at this moment of the world's.
    since: Moment,
    base: Moment,
    /// Lead of the wall clock, ms.
    ahead: i64,
}

impl Clocks {
    /// Clocks that show `base` now, of which `rate` thousandths of true time pass; 1,000 is true.
    pub fn new(world: SimWorld, rate: u64, base: Moment) -> Self {
        let since = world.now();
        let state = State {
            rate: rate.max(1),
            since,
            base,
            ahead: 0,
        };
        Self {
            world,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Those that show the world's own time.
    pub fn exact(world: SimWorld) -> Self {
        let now = world.now();
        Self::new(world, 1000, now)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time of the monotonic clock.
    pub fn now(&self) -> Moment {
        self.lock().at(self.world.now())
    }

    /// Time of the wall clock, Unix milliseconds.
    pub fn wall_ms(&self) -> u64 {
        let state = self.lock();
        let own = state.at(self.world.now()).as_millis();
        let own = WALL_MS + u64::try_from(own).unwrap_or(0);
        own.saturating_add_signed(state.ahead)
    }

    /// The world's moment at which the clock will show `at`; now, if it has.
    pub fn when(&self, at: Moment) -> Moment {
        let (state, now) = (self.lock(), self.world.now());
        let left = at.saturating_sub(state.at(now));
        let nanos = (left.as_nanos() * 1000).div_ceil(u128::from(state.rate));
        now + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The clock goes forward at once by so much: the machine was asleep, or its host.
    pub fn jump(&self, by: Duration) {
        let mut state = self.lock();
        state.base += by;
        state.ahead -= i64::try_from(by.as_millis()).unwrap_or(0);
    }

    /// Somebody sets the wall clock: so many ms ahead of the other one.
    pub fn set_wall(&self, ahead_ms: i64) {
        self.lock().ahead = ahead_ms;
    }
}

impl State {
    fn at(&self, now: Moment) -> Moment {
        let passed = now.saturating_sub(self.since).as_nanos() * u128::from(self.rate) / 1000;
        self.base + Duration::from_nanos(u64::try_from(passed).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Clocks, SimWorld};

    #[test]
    fn a_clock_shows_what_it_was_waited_for_at_any_rate() {
        for rate in [1, 333, 850, 1000, 1150, 7919] {
            let world = SimWorld::new();
            let clocks = Clocks::new(world.clone(), rate, Duration::from_secs(17));
            for nanos in [0, 1, 999, 12_345_678] {
                let at = clocks.now() + Duration::from_nanos(nanos);
                let until = clocks.when(at);
                world.pass(until.saturating_sub(quintet_cluster::World::now(&world)));
                assert!(clocks.now() >= at, "rate {rate}, {nanos} ns");
            }
            let (before, wall) = (clocks.now(), clocks.wall_ms());
            clocks.jump(Duration::from_secs(5));
            assert_eq!(clocks.now(), before + Duration::from_secs(5));
            assert_eq!(clocks.wall_ms(), wall, "the wall clock was set by nobody");
        }
    }
}
