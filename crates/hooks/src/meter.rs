//! The budget of the call that runs.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use quintet_policy::Limits;

/// Instructions between two looks at the budget. Small enough that a few slow
/// library calls in between do not matter, large enough that looking costs
/// little.
pub(crate) const EVERY: u32 = 100;

/// Time a call may take before its processor time is looked at, ns: asking
/// for that is a system call.
const GRACE_NS: u64 = 10_000_000;

/// Why a call was stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    Instructions,
    Time,
}

impl Stop {
    pub(crate) fn text(self, limits: &Limits) -> String {
        match self {
            Stop::Instructions => format!(
                "used up its budget of {} instructions",
                limits.instructions_max
            ),
            Stop::Time => format!("ran longer than {} ms", limits.time_ms_max),
        }
    }
}

/// Counts what a call uses. One for each state; of one thread at a time.
pub struct Meter {
    base: Instant,
    limits: Limits,
    left: AtomicU64,
    began_ns: AtomicU64,
    /// Processor time from which the call's is counted, ns; 0: not yet.
    cpu_from_ns: AtomicU64,
    /// 0: not stopped; else a [`Stop`].
    stopped: AtomicU8,
    running: AtomicBool,
}

impl Meter {
    /// For calls with these limits.
    pub fn new(limits: Limits) -> Self {
        Self {
            base: Instant::now(),
            limits,
            left: AtomicU64::new(0),
            began_ns: AtomicU64::new(0),
            cpu_from_ns: AtomicU64::new(0),
            stopped: AtomicU8::new(0),
            running: AtomicBool::new(false),
        }
    }

    /// Nanoseconds since the meter was made.
    pub fn elapsed_ns(&self) -> u64 {
        u64::try_from(self.base.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A call begins, at [`Meter::elapsed_ns`] `now_ns`.
    pub fn begin(&self, now_ns: u64) {
        self.left.store(self.limits.instructions_max, Relaxed);
        self.began_ns.store(now_ns, Relaxed);
        self.cpu_from_ns.store(0, Relaxed);
        self.stopped.store(0, Relaxed);
        self.running.store(true, Relaxed);
    }

    /// It is over; answers whether it was stopped, whatever it made of that.
    pub(crate) fn end(&self) -> Option<Stop> {
        self.running.store(false, Relaxed);
        self.stopped()
    }

    /// Whether the call was stopped.
    pub(crate) fn stopped(&self) -> Option<Stop> {
        match self.stopped.load(Relaxed) {
            0 => None,
            1 => Some(Stop::Instructions),
            _ => Some(Stop::Time),
        }
    }

    /// The remaining instructions.
    pub(crate) fn left(&self) -> u64 {
        self.left.load(Relaxed)
    }

    /// Takes from the budget.
    ///
    /// # Errors
    /// It is used up; then every further charge of the call fails too.
    pub(crate) fn charge(&self, instructions: u64) -> Result<(), Stop> {
        if let Some(stop) = self.stopped() {
            return Err(stop);
        }
        if !self.running.load(Relaxed) {
            return Ok(());
        }
        match self.left().checked_sub(instructions) {
            Some(left) => {
                self.left.store(left, Relaxed);
                Ok(())
            }
            None => {
                self.left.store(0, Relaxed);
                self.stopped.store(1, Relaxed);
                Err(Stop::Instructions)
            }
        }
    }

    /// [`EVERY`] instructions have passed.
    ///
    /// # Errors
    /// As [`Meter::charge`], or the time is over.
    pub(crate) fn tick(&self) -> Result<(), Stop> {
        self.charge(u64::from(EVERY))?;
        if !self.running.load(Relaxed) {
            return Ok(());
        }
        if self.elapsed_ns() - self.began_ns.load(Relaxed) < GRACE_NS {
            return Ok(());
        }
        // The machine may have given the time to others.
        let cpu = cpu_ns();
        match self.cpu_from_ns.load(Relaxed) {
            0 => self.cpu_from_ns.store(cpu, Relaxed),
            from if cpu - from >= self.limits.time_ms_max * 1_000_000 => {
                self.stopped.store(2, Relaxed);
                return Err(Stop::Time);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Processor time of this thread, ns; never 0.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    (seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)).max(1)
}
