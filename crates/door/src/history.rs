//! What became of a queue's numbers over time, as it is handed to who shows it.

use quintet_engine::Ms;

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

/// How fast messages come into a queue and leave it, each second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rates {
    /// Put or moved in.
    pub into: f32,
    /// Taken, finished, deleted, expired, dropped, or moved out.
    pub out: f32,
}

impl Rates {
    /// In and out, to thousandths.
    pub fn rounded(self) -> [f64; 2] {
        [self.into, self.out].map(|rate| (f64::from(rate) * 1000.0).round() / 1000.0)
    }
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

/// A queue's history, since the server started at most.
#[derive(Clone, PartialEq, Debug)]
pub struct History {
    /// The last hour, by the minute.
    pub minutes: Series,
    /// The last day, by quarters of an hour that are over.
    pub quarters: Series,
}
