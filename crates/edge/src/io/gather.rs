//! When an I/O thread sees to it that what it decided gets to the disk
//! (`sync = "always"`).
//!
//! A sync costs the processor about 0.1 ms however much it covers, so the
//! requests that are ready are decided first and share one. Nothing waits for
//! the sake of company alone: a thread that has nothing else to do syncs at
//! once, and one that is busy does so after a millisecond, or as long as a
//! sync takes, so that nobody waits much longer than the disk needs anyway.

use std::time::{Duration, Instant};

/// A disk that takes longer than this is waited for by the log thread: the I/O
/// thread has more to do meanwhile than to wake others costs it.
const SHORT: Duration = Duration::from_millis(1);

/// The thread that is to sync now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Duty {
    /// Nobody: nothing is to be synced, or more is ready to share it.
    Nobody,
    /// The I/O thread itself: two threads need not be woken for it.
    Here,
    /// The log thread, while the I/O thread goes on.
    LogThread,
}

/// Decisions of a thread that nobody was asked to sync.
#[derive(Default)]
pub(super) struct Gather {
    /// The newest batch, and since when there has been any.
    open: Option<(u64, Instant)>,
}

impl Gather {
    /// The batches up to `commit_number` have to be durable; `durable` are.
    pub(super) fn add(&mut self, commit_number: u64, durable: u64, now: Instant) {
        if commit_number > durable {
            let (before, since) = self.open.unwrap_or((0, now));
            self.open = Some((before.max(commit_number), since));
        }
    }

    /// There is something to sync.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// At the end of a turn. `idle`: the turn found nothing to do. `durable`:
    /// the newest durable batch. `usual`: what a sync took lately. Empty
    /// afterwards, unless more is to be gathered.
    pub(super) fn turn(&mut self, now: Instant, idle: bool, durable: u64, usual: Duration) -> Duty {
        let Some((commit_number, since)) = self.open else {
            return Duty::Nobody;
        };
        let turn = if durable >= commit_number {
            Duty::Nobody
        } else if idle && usual <= SHORT {
            Duty::Here
        } else if idle || now.saturating_duration_since(since) >= usual.max(SHORT) {
            Duty::LogThread
        } else {
            return Duty::Nobody;
        };
        self.open = None;
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Duration = Duration::from_micros(200);

    fn gather() -> (Gather, Instant) {
        let (mut gather, start) = (Gather::default(), Instant::now());
        gather.add(3, 2, start);
        (gather, start)
    }

    #[test]
    fn an_idle_thread_syncs_at_once_on_a_fast_disk() {
        for (usual, expected) in [
            (USUAL, Duty::Here),
            (SHORT, Duty::Here),
            (SHORT * 2, Duty::LogThread),
        ] {
            let (mut gather, start) = gather();
            assert_eq!(gather.turn(start, true, 2, usual), expected);
            assert!(!gather.is_open());
        }
    }

    #[test]
    fn a_busy_thread_gathers_for_a_millisecond_or_as_long_as_a_sync_takes() {
        for (usual, time) in [(USUAL, SHORT), (SHORT * 5, SHORT * 5)] {
            let (mut gather, start) = gather();
            let soon = start + time / 2;
            assert_eq!(gather.turn(start, false, 2, usual), Duty::Nobody);
            gather.add(4, 2, soon);
            gather.add(0, 2, soon);
            assert_eq!(gather.turn(soon, false, 2, usual), Duty::Nobody);
            assert!(gather.is_open());
            assert_eq!(gather.turn(start + time, false, 3, usual), Duty::LogThread);
            assert!(!gather.is_open());
        }
    }

    #[test]
    fn a_batch_that_was_synced_needs_no_sync() {
        let (mut gather, start) = gather();
        assert_eq!(gather.turn(start, true, 3, USUAL), Duty::Nobody);
        assert!(!gather.is_open());
        gather.add(3, 3, start);
        assert!(!gather.is_open());
        assert_eq!(gather.turn(start, true, 3, USUAL), Duty::Nobody);
    }
}
