//! Engine time for a running server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use quintet_engine::Ms;

/// The larger of the wall clock and every time it gave before, so that time
/// never goes back, not even over a restart.
pub(crate) struct Clock(AtomicU64);

impl Clock {
    /// A clock that gives no time before `floor`, the newest in the log.
    pub(crate) fn new(floor: Ms) -> Self {
        Self(AtomicU64::new(floor.0))
    }

    /// Engine time now.
    pub(crate) fn now(&self) -> Ms {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| {
                u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
            });
        Ms(self.0.fetch_max(wall, Ordering::AcqRel).max(wall))
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, Ms};

    #[test]
    fn time_never_goes_back() {
        let ahead = Ms(u64::MAX - 1);
        assert_eq!(Clock::new(ahead).now(), ahead);
        let clock = Clock::new(Ms(0));
        let first = clock.now();
        assert!(first > Ms(0) && clock.now() >= first);
    }
}
