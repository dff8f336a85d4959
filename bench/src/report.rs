//! Result of a load.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Latencies, in nanoseconds with three significant digits.
pub struct Recorder(Histogram<u64>);

/// The finest step recorded, nanoseconds.
const LOWEST: u64 = 1_000;
/// Longer ones are recorded as this long: ten minutes.
const HIGHEST: u64 = 600_000_000_000;

impl Default for Recorder {
    fn default() -> Self {
        // The arguments are constants that the library takes.
        Self(Histogram::new_with_bounds(LOWEST, HIGHEST, 3).expect("bounds"))
    }
}

impl Recorder {
    /// Records a latency, nanoseconds.
    pub fn record(&mut self, nanoseconds: u64) {
        self.0.saturating_record(nanoseconds);
    }

    /// Adds everything `other` recorded.
    pub(crate) fn add(&mut self, other: &Self) {
        // Both have the same bounds, so nothing is left out.
        let added = self.0.add(&other.0);
        debug_assert!(added.is_ok(), "{added:?}");
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.0.reset();
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    #[cfg(test)]
    pub(crate) fn count_over(&self, nanoseconds: u64) -> u64 {
        self.0.count_between(nanoseconds, HIGHEST)
    }

    /// The latencies so far.
    pub fn latency(&self) -> Latency {
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / 1e3;
        Latency {
            mean_us: self.0.mean() / 1e3,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            p9999_us: at(0.9999),
            max_us: self.0.max() as f64 / 1e3,
        }
    }
}

/// Latencies of all requests, microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Half of the requests took no longer.
    pub p50_us: f64,
    /// 90 % took no longer.
    pub p90_us: f64,
    /// 99 % took no longer.
    pub p99_us: f64,
    /// 99.9 % took no longer.
    pub p999_us: f64,
    /// 99.99 % took no longer.
    pub p9999_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// Result of a load.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Report {
    /// Requests answered: `puts` and `takes`.
    pub requests: u64,
    /// Puts answered.
    pub puts: u64,
    /// Takes answered, with a message or without.
    pub takes: u64,
    /// Takes that found nothing.
    pub empty: u64,
    /// Requests without an answer when the load gave up; their time until
    /// then is in the latencies.
    pub unanswered: u64,
    /// From the first request to the last reply.
    pub seconds: f64,
    /// Requests a second.
    pub rate: f64,
    /// From the reply back to the sending or, at a fixed rate, to the moment
    /// the request was due.
    pub latency: Latency,
    /// Of connections that were opened beside the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub openings: Option<Openings>,
}

/// Connections that were opened and closed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Openings {
    /// Of them, a second.
    pub rate: f64,
    /// From the beginning to the end of the handshake.
    pub latency: Latency,
}

/// A load under way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Live {
    /// Seconds since the start.
    pub seconds: f64,
    /// Requests answered.
    pub requests: u64,
    /// Requests a second since the last look.
    pub rate: f64,
    /// 99th percentile of the latency since the last look, microseconds.
    pub p99_us: f64,
}
