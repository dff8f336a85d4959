//! Engine time for a running server, made of the machine's two clocks.
//!
//! Time inside begins at the larger of the wall clock and the newest frame's
//! time; at a takeover, where the owner's time is that this machine has
//! followed. It goes on with the machine's monotonic clock, which counts
//! suspension and cannot be set. The wall clock is read when something is
//! due, no sooner than a second after the last reading: to know how far it is
//! ahead ([`WallAhead`], for times that clients give by it), to tell when
//! somebody has set it, and to come back to it by one millisecond for each
//! second that passed. So no wait, lease or delay stands still or ends early
//! because a clock was set, and a small error heals.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use quintet_types::{Ms, WallAhead};
use rustix::time::{ClockId, clock_gettime};

use crate::system::wall_ms;

/// Shortest time between two readings of the wall clock, ms.
const READ_MS: u64 = 1000;
/// A change of the distance between the clocks of more than this is a step:
/// somebody has set the wall clock.
pub(crate) const STEP_MS: u64 = 1000;
/// Longest a reading of both clocks may take to count, ms. A thread may lose
/// its processor between the two.
const APART_MS: u64 = 50;
/// So much of the distance to the wall clock is made up for in a second, ms.
const SLEW_MS: u64 = 1;

/// Difference of two clocks by rounding alone, ms.
const ROUNDING_MS: i64 = 1;

/// Where the readings come from.
enum Source {
    Machine,
    #[cfg(test)]
    ByHand(std::sync::Arc<ByHand>),
}

/// A machine's clocks in a test.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct ByHand {
    pub(crate) steady: AtomicU64,
    pub(crate) wall: AtomicU64,
}

impl Source {
    /// The monotonic clock, ms. Counts while the machine is suspended.
    fn steady(&self) -> u64 {
        match self {
            Source::Machine => {
                let time = clock_gettime(ClockId::Boottime);
                let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
                seconds * 1000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
            }
            #[cfg(test)]
            Source::ByHand(hand) => hand.steady.load(Ordering::SeqCst),
        }
    }

    /// The wall clock, Unix ms; 0 for a time before 1970.
    fn wall(&self) -> u64 {
        match self {
            Source::Machine => wall_ms(),
            #[cfg(test)]
            Source::ByHand(hand) => hand.wall.load(Ordering::SeqCst),
        }
    }
}

/// The server's time.
pub struct Clock {
    source: Source,
    /// Engine time less the monotonic clock's, ms.
    lead: AtomicI64,
    /// The newest time given: time does not go back where `lead` does.
    newest: AtomicU64,
    /// How far the wall clock was ahead at the last reading, ms.
    ahead: AtomicI64,
    /// When that was, by the monotonic clock.
    read_at: AtomicU64,
    /// How often the wall clock was set since the start.
    steps: AtomicU64,
}

/// A reading of the wall clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reading {
    pub(crate) ahead: WallAhead,
    /// By how many ms the wall clock was set, if it was.
    pub(crate) step: Option<i64>,
}

impl Clock {
    /// The machine's; gives no time before `floor`, the newest in the log.
    /// `lead`: the time that goes on less the monotonic clock's, ms, where that
    /// is known; the wall clock has no say then.
    pub(crate) fn new(floor: Ms, lead: Option<i64>) -> Self {
        Self::of(Source::Machine, floor, lead)
    }

    #[cfg(test)]
    pub(crate) fn by_hand(hand: std::sync::Arc<ByHand>, floor: Ms, lead: Option<i64>) -> Self {
        Self::of(Source::ByHand(hand), floor, lead)
    }

    fn of(source: Source, floor: Ms, lead: Option<i64>) -> Self {
        let (steady, wall) = (source.steady(), source.wall());
        let begin = lead.map_or(wall, |lead| steady.saturating_add_signed(lead));
        let begin = begin.max(floor.0);
        Self {
            source,
            lead: AtomicI64::new(difference(begin, steady)),
            newest: AtomicU64::new(begin),
            ahead: AtomicI64::new(difference(wall, begin)),
            read_at: AtomicU64::new(steady),
            steps: AtomicU64::new(0),
        }
    }

    /// Engine time now.
    pub fn now(&self) -> Ms {
        let lead = self.lead.load(Ordering::Acquire);
        let now = self.source.steady().saturating_add_signed(lead);
        Ms(self.newest.fetch_max(now, Ordering::AcqRel).max(now))
    }

    /// How far the wall clock was ahead when it was last read.
    pub fn ahead(&self) -> WallAhead {
        WallAhead(self.ahead.load(Ordering::Acquire))
    }

    /// The wall clock's time.
    pub fn wall(&self) -> Ms {
        Ms(self.source.wall())
    }

    /// How often the wall clock was set since the start.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Reads the wall clock, if that was not done within the last second.
    /// For one thread.
    pub(crate) fn read_wall(&self) -> Option<Reading> {
        let steady = self.source.steady();
        let since = steady.saturating_sub(self.read_at.load(Ordering::Relaxed));
        if since < READ_MS {
            return None;
        }
        let wall = self.source.wall();
        if self.source.steady().saturating_sub(steady) > APART_MS {
            // Not readings of one moment; the next reading is as good.
            return None;
        }
        self.read_at.store(steady, Ordering::Relaxed);
        let lead = self.lead.load(Ordering::Relaxed);
        let engine = steady.saturating_add_signed(lead);
        let ahead = difference(wall, engine);
        let change = ahead.saturating_sub(self.ahead.load(Ordering::Relaxed));
        let step = (change.unsigned_abs() > STEP_MS).then_some(change);
        if step.is_some() {
            self.steps.fetch_add(1, Ordering::Relaxed);
        }
        let most = i64::try_from(since / READ_MS * SLEW_MS).unwrap_or(i64::MAX);
        // Both readings are cut to whole milliseconds, so one is no distance:
        // to run after it would make a second shorter than a second.
        let slew = match ahead {
            ..0 => ahead.max(-most),
            0..=ROUNDING_MS => 0,
            _ => ahead.min(most),
        };
        self.lead.store(lead + slew, Ordering::Release);
        let ahead = ahead - slew;
        self.ahead.store(ahead, Ordering::Release);
        Some(Reading {
            ahead: WallAhead(ahead),
            step,
        })
    }
}

/// `a - b`, for times of any size.
fn difference(a: u64, b: u64) -> i64 {
    WallAhead::between(Ms(b), Ms(a)).0
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const NOON: u64 = 1_800_000_000_000;
    const YEAR: u64 = 365 * 86_400_000;

    fn clock(wall: u64, floor: u64) -> (Arc<ByHand>, Clock) {
        let hand = Arc::new(ByHand::default());
        hand.steady.store(5_000_000, Ordering::SeqCst);
        hand.wall.store(wall, Ordering::SeqCst);
        let clock = Clock::by_hand(Arc::clone(&hand), Ms(floor), None);
        (hand, clock)
    }

    fn pass(hand: &ByHand, clock: &Clock, ms: u64) -> Option<i64> {
        let mut step = None;
        for _ in 0..ms / 500 {
            hand.steady.fetch_add(500, Ordering::SeqCst);
            hand.wall.fetch_add(500, Ordering::SeqCst);
            step = step.or(clock.read_wall().and_then(|reading| reading.step));
        }
        step
    }

    #[test]
    fn the_machine_s_time_goes_on() {
        let ahead = Ms(u64::MAX / 4);
        assert!(Clock::new(ahead, None).now() >= ahead);
        let clock = Clock::new(Ms(0), None);
        let first = clock.now();
        assert!(first > Ms(NOON / 2) && clock.now() >= first);
        let wall = clock.wall();
        assert!(wall.since(first) < 60_000 && first.since(wall) < 60_000);
    }

    #[test]
    fn a_clock_set_back_does_not_stop_time() {
        let (hand, clock) = clock(NOON, 0);
        hand.wall.fetch_sub(30_000, Ordering::SeqCst);
        assert_eq!(pass(&hand, &clock, 10_000), Some(-30_000));
        let passed = clock.now().since(Ms(NOON));
        assert!((9_980..=10_000).contains(&passed), "{passed}");
        assert_eq!(clock.steps(), 1);
    }

    #[test]
    fn a_year_ahead_for_a_moment_is_nothing() {
        let (hand, clock) = clock(NOON, 0);
        hand.wall.fetch_add(YEAR, Ordering::SeqCst);
        assert_eq!(pass(&hand, &clock, 2_000), Some(YEAR as i64));
        hand.wall.fetch_sub(YEAR, Ordering::SeqCst);
        assert!(pass(&hand, &clock, 2_000).is_some());
        let passed = clock.now().since(Ms(NOON));
        assert!((4_000..=4_010).contains(&passed), "{passed}");
        assert_eq!(clock.steps(), 2);
    }

    #[test]
    fn a_log_from_the_future_does_not_stop_time_either() {
        let (hand, clock) = clock(NOON, NOON + YEAR);
        assert_eq!(clock.now(), Ms(NOON + YEAR));
        assert_eq!(clock.ahead(), WallAhead(-(YEAR as i64)));
        assert_eq!(pass(&hand, &clock, 10_000), None);
        let passed = clock.now().since(Ms(NOON + YEAR));
        assert!((9_980..=10_000).contains(&passed), "{passed}");
        // A time by the wall clock comes when the wall clock shows it.
        let soon = Ms(hand.wall.load(Ordering::SeqCst) + 1000);
        assert_eq!(clock.ahead().engine_at(soon).since(clock.now()), 1000);
    }

    #[test]
    fn a_small_error_heals() {
        let (hand, clock) = clock(NOON, NOON + 5);
        assert_eq!(clock.ahead(), WallAhead(-5));
        pass(&hand, &clock, 20_000);
        assert_eq!(clock.ahead(), WallAhead(0));
        assert_eq!(clock.now(), Ms(NOON + 20_000));
        assert_eq!(clock.steps(), 0);
    }

    #[test]
    fn rounded_clocks_shorten_no_second() {
        let (hand, clock) = clock(NOON, 0);
        let begun = clock.now();
        for second in 1..=20 {
            // The wall clock's milliseconds begin a little before the other's.
            let rounded = u64::from(second % 2 == 1);
            hand.steady.fetch_add(1000, Ordering::SeqCst);
            hand.wall
                .store(NOON + 1000 * second + rounded, Ordering::SeqCst);
            assert!(clock.read_wall().is_some());
            assert_eq!(clock.now().since(begun), 1000 * second);
        }
        assert_eq!(clock.steps(), 0);
    }

    /// For any behaviour of the wall clock, over restarts too: time never goes back, goes on at its
    /// own speed, and ends up where the wall clock is if that keeps still.
    #[test]
    fn random_lives_of_a_wall_clock() {
        for seed in 0..2_000_u64 {
            let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            let (hand, mut clock) = clock(chance.below(2 * NOON), chance.below(2 * NOON));
            let mut newest = clock.now();
            for _ in 0..100 {
                match chance.below(8) {
                    0 => hand.wall.store(chance.below(4 * NOON), Ordering::SeqCst),
                    1 => {
                        let back = chance.below(100_000);
                        let wall = hand.wall.load(Ordering::SeqCst).saturating_sub(back);
                        hand.wall.store(wall, Ordering::SeqCst);
                    }
                    2 => {
                        hand.wall.fetch_add(chance.below(100_000), Ordering::SeqCst);
                    }
                    3 => {
                        // A restart; the newest frame is a little old.
                        let floor = newest - chance.below(10);
                        clock = Clock::by_hand(Arc::clone(&hand), floor, None);
                        assert!(clock.now() >= floor);
                        newest = clock.now();
                    }
                    _ => {
                        let ms = chance.below(20) * 500;
                        let before = clock.now();
                        pass(&hand, &clock, ms);
                        let passed = clock.now().since(before);
                        let slew = ms / 1000 + 2;
                        assert!(
                            passed + slew >= ms && passed <= ms + slew,
                            "{passed} of {ms}"
                        );
                    }
                }
                let now = clock.now();
                assert!(now >= newest, "seed {seed}: {now:?} after {newest:?}");
                newest = now;
                let wall = Ms(hand.wall.load(Ordering::SeqCst) + 2_000_000);
                hand.steady.fetch_add(1000, Ordering::SeqCst);
                hand.wall.fetch_add(1000, Ordering::SeqCst);
                if let Some(reading) = clock.read_wall() {
                    let left = reading.ahead.engine_at(wall).since(clock.now());
                    let really = wall.since(Ms(hand.wall.load(Ordering::SeqCst)));
                    assert!(
                        left.abs_diff(really) <= 2,
                        "seed {seed}: {left} of {really}"
                    );
                    newest = clock.now();
                }
            }
        }
    }

    struct Chance(u64);

    impl Chance {
        fn below(&mut self, end: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % end
        }
    }
}
