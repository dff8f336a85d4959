//! How many acknowledged errors a queue has, as far as that was counted.

use std::collections::BTreeMap;
use std::sync::Mutex;

use quintet_types::{Ms, QueueStats};

/// Queues whose count is kept; beyond that all are counted anew.
pub(crate) const COUNTS_MAX: usize = 100_000;

/// The acknowledged errors.
#[derive(Default)]
pub(crate) struct Errack {
    /// One at a time acknowledges.
    pub(crate) turn: Mutex<()>,
    /// How many there are, by queue.
    pub(crate) counts: Mutex<BTreeMap<String, Count>>,
}

pub(crate) struct Count {
    pub(crate) as_of: AsOf,
    pub(crate) number: u64,
}

/// Version that changes whenever a message leaves a queue's buried ones, or one is acknowledged.
/// Not when one is buried: that comes last and is not acknowledged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct AsOf {
    created: Ms,
    left: u64,
    kicks: u64,
    deleted: u64,
    moved_out: u64,
    moved_in: u64,
}

impl AsOf {
    pub(crate) fn new(stats: &QueueStats) -> Self {
        let totals = &stats.totals;
        Self {
            created: stats.created,
            left: totals.buries.wrapping_sub(stats.gauges.buried),
            kicks: totals.kicks,
            deleted: totals.deleted,
            moved_out: totals.moved_out,
            moved_in: totals.moved_in,
        }
    }
}
