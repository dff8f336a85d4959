//! How large numbers were, for statistics.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

/// The values of a metric's labels, and the number.
pub type Point = (Vec<Cow<'static, str>>, f64);

/// The values of a metric's labels, and what was counted.
pub type Spread = (Vec<Cow<'static, str>>, Distribution);

/// Ends of the steps of times, microseconds: what a cache, a disk, a network and a
/// person notice.
pub const TIMES: &[u64] = &[
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// Ends of the steps of amounts.
pub const AMOUNTS: &[u64] = &[
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000,
];

/// Counts numbers by steps. Any thread adds; who reads while others add may miss what they just
/// added.
#[derive(Debug)]
pub struct Histogram {
    ends: &'static [u64],
    /// One more than there are ends.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// Of steps that end with these numbers, which rise; a last one has no end.
    pub fn new(ends: &'static [u64]) -> Self {
        Self {
            ends,
            counts: (0..=ends.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    /// Counts a number so many times.
    pub fn add(&self, number: u64, times: u64) {
        let step = self.ends.partition_point(|&end| end < number);
        self.counts[step].fetch_add(times, Ordering::Relaxed);
        let sum = number.saturating_mul(times);
        self.sum.fetch_add(sum, Ordering::Relaxed);
    }

    /// Adds what it counted to `sum`, which is of the same steps.
    pub fn add_to(&self, sum: &mut Distribution) {
        assert_eq!(self.ends, sum.ends, "sums are of the same steps");
        for (sum, count) in sum.counts.iter_mut().zip(&self.counts) {
            *sum += count.load(Ordering::Relaxed);
        }
        sum.sum = sum.sum.wrapping_add(self.sum.load(Ordering::Relaxed));
    }

    /// Reads its counters.
    pub fn read(&self) -> Distribution {
        let mut sum = Distribution::of(self.ends);
        self.add_to(&mut sum);
        sum
    }
}

/// Counters of histograms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Distribution {
    ends: &'static [u64],
    counts: Vec<u64>,
    sum: u64,
}

impl Distribution {
    /// Nothing, by these steps.
    pub fn of(ends: &'static [u64]) -> Self {
        Self {
            ends,
            counts: vec![0; ends.len() + 1],
            sum: 0,
        }
    }

    /// Where the steps end, and how many numbers were that large at most.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut below = 0;
        self.ends
            .iter()
            .zip(&self.counts)
            .map(move |(&end, count)| {
                below += count;
                (end, below)
            })
    }

    /// How many numbers there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All of them together.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The end of the step that the number is in which `per_cent` of all are not above; of the last
    /// step, where it begins. `None`: there were none.
    pub fn percentile(&self, per_cent: u32) -> Option<u64> {
        let count = self.count();
        let wanted = (u128::from(count) * u128::from(per_cent)).div_ceil(100);
        let mut steps = self.cumulative();
        let found = steps.find(|&(_, below)| u128::from(below) >= wanted.max(1));
        let end = found.map(|(end, _)| end).or(self.ends.last().copied());
        end.filter(|_| count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_in_the_step_that_ends_with_it_or_above() {
        let histogram = Histogram::new(&[1, 10, 100]);
        for (number, times) in [
            (0, 1),
            (1, 1),
            (2, 3),
            (10, 1),
            (11, 2),
            (101, 1),
            (5000, 1),
        ] {
            histogram.add(number, times);
        }
        let read = histogram.read();
        let steps: Vec<_> = read.cumulative().collect();
        assert_eq!(steps, [(1, 2), (10, 6), (100, 8)]);
        assert_eq!((read.count(), read.sum()), (10, 5140));
    }

    #[test]
    fn percentiles_are_ends_of_steps() {
        let histogram = Histogram::new(&[1, 10, 100]);
        assert_eq!(histogram.read().percentile(50), None);
        histogram.add(1, 50);
        histogram.add(7, 49);
        histogram.add(700, 1);
        let read = histogram.read();
        let percentiles = [0, 50, 51, 99, 100].map(|per_cent| read.percentile(per_cent));
        assert_eq!(
            percentiles,
            [Some(1), Some(1), Some(10), Some(10), Some(100)]
        );
    }

    #[test]
    fn sums_of_several() {
        let (one, other) = (Histogram::new(AMOUNTS), Histogram::new(AMOUNTS));
        one.add(3, 2);
        other.add(4, 1);
        let mut sum = one.read();
        other.add_to(&mut sum);
        assert_eq!((sum.count(), sum.sum()), (3, 10));
    }
}
