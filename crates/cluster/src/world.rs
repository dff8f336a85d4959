//! Time and waiting, so that tests can give a log other ones.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError, Weak},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::time::{ClockId, clock_gettime};

/// Time since some moment that stays the same; never falls.
pub type Moment = Duration;

/// A component with deadlines.
pub trait Ticks: Send + Sync {
    /// When [`Ticks::tick`] should be called next, as far as is known now.
    fn deadline(&self) -> Option<Moment>;
    /// Does the work that is due at `now`; afterwards `deadline` may be another.
    fn tick(&self, now: Moment);
}

/// A clock and a way to wait.
pub trait World: Send + Sync {
    /// The present time.
    fn now(&self) -> Moment;

    /// Sees to the deadlines of `ticks` for as long as it lives.
    fn drive(&self, ticks: Weak<dyn Ticks>);

    /// The wall clock's time, Unix milliseconds.
    fn wall_ms(&self) -> u64;

    /// Returns once `ready` says so, which is asked after each [`World::wake`], or at `until`.
    fn wait(&self, until: Option<Moment>, ready: &mut dyn FnMut() -> bool);

    /// Somebody who waits may be ready.
    fn wake(&self);

    /// The deadline of something driven is sooner than it last said.
    fn remind(&self);
}

/// The real world: the system's clock that cannot be set and goes on while the machine sleeps, and
/// a thread for what is driven.
pub struct Threads(Arc<Shared>);

struct Shared {
    waiters: Bell,
    drivers: Bell,
}

/// Counts what happened, so that nobody sleeps over it.
#[derive(Default)]
struct Bell {
    rung: Mutex<u64>,
    condvar: Condvar,
}

impl Threads {
    /// A world that begins now.
    pub fn new() -> Self {
        Self(Arc::new(Shared {
            waiters: Bell::default(),
            drivers: Bell::default(),
        }))
    }
}

impl Default for Threads {
    fn default() -> Self {
        Self::new()
    }
}

impl Bell {
    /// Waits until it was rung after `seen`, or `until`; returns how often it was rung by then.
    fn after(&self, seen: u64, until: Option<Moment>) -> u64 {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        while *rung == seen {
            let Some(until) = until else {
                let woken = self.condvar.wait(rung);
                rung = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_sub(now());
            if left.is_zero() {
                break;
            }
            let woken = self.condvar.wait_timeout(rung, left);
            rung = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        *rung
    }

    fn ring(&self) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        *rung += 1;
        self.condvar.notify_all();
    }
}

/// Time since the machine was started.
fn now() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

impl World for Threads {
    fn now(&self) -> Moment {
        now()
    }

    fn drive(&self, ticks: Weak<dyn Ticks>) {
        let shared = Arc::clone(&self.0);
        let run = move || {
            let mut seen = 0;
            loop {
                let Some(alive) = ticks.upgrade() else {
                    return;
                };
                alive.tick(now());
                let until = alive.deadline();
                drop(alive);
                seen = shared.drivers.after(seen, until);
            }
        };
        let spawned = std::thread::Builder::new()
            .name("cluster".to_owned())
            .spawn(run);
        spawned.expect("a thread for a log's deadlines");
    }

    fn wall_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
    }

    fn wait(&self, until: Option<Moment>, ready: &mut dyn FnMut() -> bool) {
        let mut seen = 0;
        while !ready() && until.is_none_or(|until| self.now() < until) {
            seen = self.0.waiters.after(seen, until);
        }
    }

    fn wake(&self) {
        self.0.waiters.ring();
    }

    fn remind(&self) {
        self.0.drivers.ring();
    }
}
