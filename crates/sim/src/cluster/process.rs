//! A process of a node: while it stands still nothing in it happens, and when it is killed nothing
//! in it happens any more, wherever it was.
//!
//! What waits in a process lets the world go on, as there is one thread: others' events happen
//! inside that waiting. A process that was killed while it waited, or ends itself, is unwound from
//! there to where the world entered it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use quintet_cluster::{Moment, Ticks, World};

use super::{Clocks, SimWorld};
use crate::Random;

/// A process. Clones are the same.
#[derive(Clone)]
pub struct Process(Arc<Inner>);

struct Inner {
    world: SimWorld,
    clocks: Clocks,
    state: Mutex<State>,
    driven: Mutex<Vec<Arc<Driven>>>,
}

struct State {
    paused: Moment,
    killed: bool,
    stalls: u64,
    random: Random,
    /// It stands still in the middle of a step, which may hold locks: nobody may enter it, though
    /// its time is over, before that step has gone on.
    stalled: bool,
    /// Events that came meanwhile.
    deferred: Vec<Box<dyn FnOnce() + Send>>,
}

/// The panic payload that ends a process.
struct Ended;

/// Something driven in a process.
struct Driven {
    process: Weak<Inner>,
    ticks: Weak<dyn Ticks>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Process {
    /// A process on the machine of these clocks, which `seed` decides the stalls of.
    pub fn new(world: SimWorld, clocks: Clocks, seed: u64) -> Self {
        let state = State {
            paused: Moment::ZERO,
            killed: false,
            stalls: 0,
            random: Random::new(seed),
            stalled: false,
            deferred: Vec::new(),
        };
        Self(Arc::new(Inner {
            world,
            clocks,
            state: Mutex::new(state),
            driven: Mutex::default(),
        }))
    }

    /// From now on it may stand still at any step, which is whatever it asks of the stream: so
    /// many times in 10,000.
    pub fn stall(&self, times: u64) {
        lock(&self.0.state).stalls = times;
    }

    /// Lets it stand still for so long, from now.
    pub fn pause(&self, time: Duration) {
        let until = self.0.world.now() + time;
        lock(&self.0.state).paused = until;
        // Waits in it check again then.
        self.0.world.plan(time, || {});
    }

    /// Lets it go on.
    pub fn resume(&self) {
        lock(&self.0.state).paused = Moment::ZERO;
        self.0.world.plan(Duration::ZERO, || {});
    }

    /// Whether it stands still.
    pub fn is_paused(&self) -> bool {
        let state = lock(&self.0.state);
        state.stalled || self.0.world.now() < state.paused
    }

    /// Ends it from outside.
    pub fn kill(&self) {
        lock(&self.0.state).killed = true;
        self.0.world.plan(Duration::ZERO, || {});
    }

    /// Ends it from inside; nothing behind this happens.
    pub fn exit(&self) -> ! {
        self.kill();
        resume_unwind(Box::new(Ended))
    }

    /// Whether it was ended.
    pub fn is_killed(&self) -> bool {
        lock(&self.0.state).killed
    }

    /// Its machine's clocks.
    pub fn clocks(&self) -> &Clocks {
        &self.0.clocks
    }

    /// Does it in the process, once that runs; never, if that has ended by then.
    pub fn later(&self, then: impl FnOnce() + Send + 'static) {
        let now = self.0.world.now();
        let until = {
            let mut state = lock(&self.0.state);
            if state.stalled {
                return state.deferred.push(Box::new(then));
            }
            state.paused
        };
        if now >= until {
            return self.run(then);
        }
        let again = self.clone();
        self.0.world.plan(until - now, move || again.later(then));
    }

    /// Does it in the process after a while by its own clock.
    pub fn after(&self, time: Duration, then: impl FnOnce() + Send + 'static) {
        let due = self.0.clocks.when(self.0.clocks.now() + time);
        let process = self.clone();
        let wait = due.saturating_sub(self.0.world.now());
        self.0.world.plan(wait, move || process.later(then));
    }

    /// Enters the process, and comes back if it ends there.
    fn run(&self, work: impl FnOnce()) {
        if self.is_killed() {
            return;
        }
        if let Err(why) = catch_unwind(AssertUnwindSafe(work))
            && !why.is::<Ended>()
        {
            resume_unwind(why);
        }
    }

    /// A step at which it may stand still; whatever happens meanwhile happens inside this.
    pub(super) fn step(&self) {
        let time = {
            let mut state = lock(&self.0.state);
            let times = state.stalls;
            let stalls = times > 0 && state.random.chance(times, 10_000);
            stalls.then(|| Duration::from_micros(state.random.below(6_000_000)))
        };
        if let Some(time) = time {
            self.pause(time);
            lock(&self.0.state).stalled = true;
            self.go_on();
        }
    }

    /// Returns when its time has come.
    fn go_on(&self) {
        self.0.world.wait(None, &mut || {
            let state = lock(&self.0.state);
            state.killed || self.0.world.now() >= state.paused
        });
        let deferred = {
            let mut state = lock(&self.0.state);
            state.stalled = false;
            std::mem::take(&mut state.deferred)
        };
        for then in deferred {
            let process = self.clone();
            let then = move || process.later(then);
            self.0.world.plan(Duration::ZERO, then);
        }
        if self.is_killed() {
            resume_unwind(Box::new(Ended));
        }
    }
}

impl Ticks for Driven {
    fn deadline(&self) -> Option<Moment> {
        let process = self.process.upgrade()?;
        let paused = {
            let state = lock(&process.state);
            if state.killed || state.stalled {
                return None;
            }
            state.paused
        };
        let due = self.ticks.upgrade()?.deadline()?;
        Some(process.clocks.when(due).max(paused))
    }

    fn tick(&self, _now: Moment) {
        let (Some(process), Some(ticks)) = (self.process.upgrade(), self.ticks.upgrade()) else {
            return;
        };
        let process = Process(process);
        process.run(|| ticks.tick(process.now()));
    }
}

impl World for Process {
    fn now(&self) -> Moment {
        self.0.clocks.now()
    }

    fn drive(&self, ticks: Weak<dyn Ticks>) {
        let driven = Arc::new(Driven {
            process: Arc::downgrade(&self.0),
            ticks,
        });
        let weak: Weak<Driven> = Arc::downgrade(&driven);
        let mut all = lock(&self.0.driven);
        all.retain(|one| one.ticks.strong_count() > 0);
        all.push(driven);
        self.0.world.drive(weak);
    }

    fn wall_ms(&self) -> u64 {
        self.0.clocks.wall_ms()
    }

    fn wait(&self, until: Option<Moment>, ready: &mut dyn FnMut() -> bool) {
        let until = until.map(|until| self.0.clocks.when(until));
        self.0.world.wait(until, &mut || {
            self.is_killed() || !self.is_paused() && ready()
        });
        self.go_on();
    }

    fn wake(&self) {}

    fn remind(&self) {}
}
