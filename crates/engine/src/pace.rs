//! How fast messages of a queue are handed out.
//!
//! The virtual scheduling algorithm of ITU-T I.371 (GCRA): of all that was handed out only the
//! moment is kept at which the last of it would have been, had each waited for its turn.

use quintet_types::{Ms, QueueSettings, Rate};

/// Engine time counts milliseconds: what is due within one may go at its beginning, or what
/// is left of each would be lost, and no queue could hand out more than a thousand a second.
const GRAIN_NS: u64 = 1_000_000;

/// How fast, and how many at once after a rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Speed {
    pub(crate) rate: Rate,
    pub(crate) burst: u32,
}

impl Speed {
    /// Of all that the queue hands out.
    pub(crate) fn of_takes(settings: &QueueSettings) -> Self {
        Self {
            rate: settings.take_rate,
            burst: settings.take_burst,
        }
    }

    /// Of what it hands out of one key.
    pub(crate) fn of_keys(settings: &QueueSettings) -> Self {
        Self {
            rate: settings.key_take_rate,
            burst: settings.key_take_burst,
        }
    }
}

/// Recent deliveries of a queue, or of one of its message groups.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// When the next one would be due, nanoseconds of engine time.
    due_ns: u64,
    /// When takes that wait are to be looked at again.
    rings: Option<Ms>,
}

fn ns(at: Ms) -> u64 {
    at.0.saturating_mul(1_000_000)
}

/// How much earlier than it is due one may go.
fn early_ns(speed: Speed, interval: u64) -> u64 {
    let burst = u64::from(speed.burst.max(1)) - 1;
    burst.saturating_mul(interval).saturating_add(GRAIN_NS - 1)
}

impl Pace {
    /// When the next message may be handed out, if not at `now`.
    pub(crate) fn next(self, speed: Speed, now: Ms) -> Option<Ms> {
        let interval = speed.rate.interval_ns()?;
        let next = self.due_ns.saturating_sub(early_ns(speed, interval));
        (next > ns(now)).then(|| Ms(next.div_ceil(1_000_000)))
    }

    /// One was handed out.
    pub(crate) fn handed(&mut self, speed: Speed, now: Ms) {
        if let Some(interval) = speed.rate.interval_ns() {
            self.due_ns = self.due_ns.max(ns(now)).saturating_add(interval);
            self.settle(speed, now);
        }
    }

    /// As it will be when so many more were handed out at `now`.
    pub(crate) fn after(self, speed: Speed, now: Ms, more: u64) -> Self {
        let Some(interval) = speed.rate.interval_ns().filter(|_| more > 0) else {
            return self;
        };
        let all = interval.saturating_mul(more);
        let due_ns = self.due_ns.max(ns(now)).saturating_add(all);
        Self { due_ns, ..self }
    }

    /// Another speed begins: nothing waits longer than behind a burst of it.
    pub(crate) fn change(&mut self, speed: Speed, now: Ms) {
        if let Some(interval) = speed.rate.interval_ns() {
            let burst = early_ns(speed, interval).saturating_add(interval);
            self.due_ns = self.due_ns.min(ns(now).saturating_add(burst));
        }
    }

    /// The settings have changed, or the time has come.
    pub(crate) fn settle(&mut self, speed: Speed, now: Ms) {
        self.rings = self.next(speed, now);
    }

    /// When takes that wait are to be looked at again, if something was handed out.
    pub(crate) fn rings(self) -> Option<Ms> {
        self.rings
    }

    /// From when on it is as if nothing had ever been handed out.
    pub(crate) fn rested(self) -> Ms {
        Ms(self.due_ns.div_ceil(1_000_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many are handed out at each of these moments, if as many are requested as there may be.
    fn handed(count: u32, per_ms: u64, burst: u32, moments: &[u64]) -> Vec<u32> {
        let speed = Speed {
            rate: Rate { count, per_ms },
            burst,
        };
        let mut pace = Pace::default();
        let at = |&moment: &u64| {
            let mut count = 0;
            while pace.next(speed, Ms(moment)).is_none() && count < 10_000 {
                pace.handed(speed, Ms(moment));
                count += 1;
            }
            count
        };
        moments.iter().map(at).collect()
    }

    #[test]
    fn one_after_the_other_and_a_rest_saves_no_more_than_the_burst() {
        let start = 1_000_000;
        let at = |ms: u64| start + ms;
        let moments = [at(0), at(99), at(100), at(1000), at(1100)];
        assert_eq!(handed(10, 1000, 1, &moments), [1, 0, 1, 1, 1]);
        assert_eq!(handed(10, 1000, 3, &moments), [3, 0, 1, 3, 1]);
        // Two in a minute.
        let moments = [at(0), at(29_999), at(30_000), at(60_000)];
        assert_eq!(handed(2, 60_000, 1, &moments), [1, 0, 1, 1]);
    }

    #[test]
    fn a_higher_rate_begins_at_once() {
        let speed = |count, burst| Speed {
            rate: Rate {
                count,
                per_ms: 3_600_000,
            },
            burst,
        };
        let mut pace = Pace::default();
        pace.handed(speed(1, 1), Ms(5000));
        assert_eq!(pace.next(speed(1, 1), Ms(6000)), Some(Ms(3_605_000)));
        pace.change(speed(3600, 1), Ms(6000));
        let next = pace.next(speed(3600, 1), Ms(6000)).expect("it waits");
        assert!(next <= Ms(7000), "{next:?}");
        // A lower rate does not begin with a burst.
        pace.change(speed(1, 5), Ms(6000));
        assert!(pace.next(speed(1, 5), Ms(6000)).is_none());
    }

    #[test]
    fn more_than_one_a_millisecond() {
        let moments: Vec<u64> = (5000..6000).collect();
        let all: u32 = handed(7000, 1000, 1, &moments).iter().sum();
        assert!((7000..=7007).contains(&all), "{all}");
    }

    #[test]
    fn a_blocked_message_may_go_at_the_returned_moment() {
        let speed = Speed {
            rate: Rate {
                count: 3,
                per_ms: 1000,
            },
            burst: 1,
        };
        let (mut pace, mut now) = (Pace::default(), Ms(77));
        for _ in 0..100 {
            pace.handed(speed, now);
            let next = pace.next(speed, now).expect("it waits");
            assert!(pace.next(speed, Ms(next.0 - 1)).is_some());
            assert_eq!(pace.next(speed, next), None);
            now = next;
        }
        // 100 thirds of a second.
        assert!((33_333..=33_334).contains(&(now.0 - 77)), "{}", now.0);
    }

    #[test]
    fn no_rate_is_no_limit() {
        assert_eq!(handed(0, 1000, 1, &[1, 2]), [10_000, 10_000]);
        assert_eq!(handed(5, 0, 1, &[1]), [10_000]);
    }
}
