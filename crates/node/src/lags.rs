//! How soon a standby applies what an owner appends.

use std::collections::VecDeque;
use std::sync::Mutex;

use quintet_host::{locked, wall_ms};

/// Frames that are kept in mind: some seconds of a load.
const KEPT: usize = 1024;

/// Of the newest frames: from their owner's stamp to here, by both nodes' wall clocks.
#[derive(Default)]
pub(super) struct Lags(Mutex<VecDeque<u64>>);

impl Lags {
    /// A frame that was stamped then, Unix milliseconds, is applied.
    pub(super) fn applied(&self, stamped_ms: u64) {
        let now = wall_ms();
        let mut lags = locked(&self.0);
        if lags.len() == KEPT {
            lags.pop_front();
        }
        lags.push_back(now.saturating_sub(stamped_ms));
    }

    /// Within so many milliseconds 99 of 100 were; `None`: there was none.
    pub(super) fn p99_ms(&self) -> Option<u64> {
        let mut lags: Vec<u64> = locked(&self.0).iter().copied().collect();
        lags.sort_unstable();
        let at = (lags.len() * 99).div_ceil(100);
        at.checked_sub(1).map(|at| lags[at])
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT, Lags};

    #[test]
    fn the_newest_count() {
        let lags = Lags::default();
        assert_eq!(lags.p99_ms(), None);
        // Stamped by a clock that is ahead.
        lags.applied(u64::MAX);
        assert_eq!(lags.p99_ms(), Some(0));
        lags.applied(0);
        assert!(lags.p99_ms() > Some(1_000_000));
        for _ in 0..KEPT {
            lags.applied(u64::MAX);
        }
        assert_eq!(lags.p99_ms(), Some(0));
    }
}
