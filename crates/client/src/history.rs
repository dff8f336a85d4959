//! A queue's numbers over time, for pages and programs.

use quintet_types::{Left, Ms};

/// One step of a queue's history.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// Messages ready: at the end of a minute, at the most of a quarter of an hour.
    pub ready: u32,
    /// Age of the oldest ready message, s; likewise.
    pub oldest_s: u32,
    /// How fast messages came in, and left, over the step.
    pub rates: Rates,
}

impl Sample {
    /// Of two queues together: the age of the older one.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            ready: self.ready.saturating_add(other.ready),
            oldest_s: self.oldest_s.max(other.oldest_s),
            rates: self.rates.plus(other.rates),
        }
    }
}

/// How fast messages come into a queue and leave it, each second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rates {
    /// Put or moved in.
    pub into: f32,
    /// Delayed ones that became due.
    pub due: f32,
    /// By why they left.
    pub left: Left<f32>,
}

impl Rates {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            into: self.into + other.into,
            due: self.due + other.due,
            left: self.left.plus(other.left),
        }
    }

    /// Messages that left, for all reasons.
    pub fn out(&self) -> f32 {
        self.left.values().iter().sum()
    }

    /// Messages that consumers ended: finished, or failed for good.
    pub fn consumed(&self) -> f32 {
        self.left.finished + self.left.failed
    }

    /// In, and out by consumers, to thousandths.
    pub fn rounded(self) -> [f64; 2] {
        [self.into, self.consumed()].map(thousandths)
    }

    /// Of delayed messages that became due, to thousandths.
    pub fn due_rounded(self) -> f64 {
        thousandths(self.due)
    }

    /// Rates of leaving, to thousandths, in the order of [`Left::NAMES`].
    pub fn left_rounded(self) -> [f64; 6] {
        self.left.values().map(thousandths)
    }
}

fn thousandths(rate: f32) -> f64 {
    (f64::from(rate) * 1000.0).round() / 1000.0
}

/// Samples in steps of the same length, oldest first.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// Length of a step, ms.
    pub step_ms: u64,
    /// Engine time when the last step ended.
    pub end: Ms,
    /// `None`: nobody looked, as the server was busy or the queue had not moved yet.
    pub samples: Vec<Option<Sample>>,
}

/// A queue's history.
#[derive(Clone, PartialEq, Debug)]
pub struct History {
    /// The last hour, by the minute.
    pub minutes: Series,
    /// The last day, by quarters of an hour that are over.
    pub quarters: Series,
}

/// The newest counts of a queue, up to now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recent {
    /// The span of the counts, ms: six minutes at most, less since a start.
    pub span_ms: u64,
    /// Messages put or moved in.
    pub came: u64,
    pub left: Left<u64>,
    /// Tries that failed.
    pub failures: u64,
    /// Leases that ran out.
    pub timeouts: u64,
    /// Puts refused, as the queue was full.
    pub refused: u64,
    /// Takes that found nothing, as a limit held messages back.
    pub limited: u64,
    /// Messages that were buried or became dead letters in the last hour.
    pub dead: u64,
    /// So long no lease has ended, ms.
    pub no_end_ms: u64,
    /// So long no consumer has taken a message, as far as counters show it, ms.
    pub idle_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_was_not_consumed() {
        let left = Left {
            finished: 2.0,
            failed: 1.0,
            dropped: 5.0,
            ..Left::default()
        };
        let rates = Rates {
            into: 8.0,
            left,
            ..Rates::default()
        };
        assert_eq!((rates.rounded(), rates.out()), ([8.0, 3.0], 8.0));
    }
}
