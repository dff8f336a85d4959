//! The threads that see the log to the disk.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use super::acked::Acked;
use super::commit::{Committed, Ending};
use super::{Core, locked};

/// How long a frame that found the disk full waits before it is tried again.
const FULL_RETRY: Duration = Duration::from_millis(100);
/// How long a batch gathers while others are on their way.
const GATHER: Duration = Duration::from_millis(1);
/// Batches on their way at once: with more each waits for the others, as what
/// bounds their number a second are the syncs of those who keep them.
const BATCHES: usize = 4;
/// Bytes on their way to the disk that an I/O thread waits for itself.
const SMALL: u64 = 256 << 10;

/// Result of a turn of the log thread, where others acknowledge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// There was nothing to write, or nothing is written any more.
    Done,
    /// A batch is on its way, and there may be another.
    Written,
    /// Enough is on its way: to be asked again after this time, or when
    /// something was acknowledged.
    Wait(Duration),
    /// The disk, or the log's servers', is full: again after [`FULL_RETRY`].
    Full,
}

/// Average duration of a sync: each one counts for an eighth of it.
#[derive(Default)]
pub(crate) struct SyncTime(AtomicU64);

impl SyncTime {
    fn add(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // Syncs come one at a time, so nothing is lost between the two.
        let before = self.0.load(Ordering::Relaxed);
        self.0
            .store(before - before / 8 + took / 8, Ordering::Relaxed);
    }

    pub(crate) fn usual(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

impl Core {
    /// Makes all that is written durable. False: that failed, for good.
    pub(crate) fn sync(&self) -> bool {
        self.sync_in_turn(&locked(&self.sync_turn))
    }

    fn sync_in_turn(&self, _turn: &MutexGuard<'_, ()>) -> bool {
        if self.has_failed() {
            return false;
        }
        let (point, commit_number, bytes) = {
            let mut committer = locked(&self.committer);
            let bytes = std::mem::take(&mut committer.unsynced);
            (committer.log.sync_point(), self.progress.written(), bytes)
        };
        let start = Instant::now();
        if let Err(error) = point.wait() {
            self.fail(&error);
            return false;
        }
        if bytes > 0 {
            let took = start.elapsed();
            self.sync_time.add(took);
            let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            self.counts.sync_times.add(micros, 1);
        }
        locked(&self.committer).log.synced(point);
        self.counts.syncs.fetch_add(1, Ordering::Relaxed);
        self.progress.set_durable(commit_number);
        true
    }

    /// Writes the open batch and syncs, in the I/O thread that asks, which
    /// looks for itself afterwards what it may send. False if that is not for
    /// it: somebody else is syncing, there is much to sync, the disk is full,
    /// or others have to acknowledge it.
    pub fn sync_here(&self, thread: usize) -> bool {
        if self.acked.is_some() {
            return false;
        }
        let turn = match self.sync_turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        {
            let mut committer = locked(&self.committer);
            match committer.commit(self, Ending::IfFull) {
                Committed::Nothing => {}
                Committed::Written => self.notify_written(),
                Committed::Full | Committed::Failed => return false,
            }
            if committer.unsynced > SMALL {
                return false;
            }
        }
        if !self.sync_in_turn(&turn) {
            return false;
        }
        drop(turn);
        for (at, mailbox) in self.mail.iter().enumerate() {
            if at != thread {
                mailbox.notify_durable();
            }
        }
        true
    }

    /// The log thread of `sync = "always"`: writes the open batch, syncs, and
    /// lets the replies go; meanwhile the next batch fills.
    pub fn run_log(&self, stop: &AtomicBool) {
        loop {
            self.log_work.wait();
            if stop.load(Ordering::SeqCst) {
                return;
            }
            match &self.acked {
                Some(acked) => self.commit_in_window(acked, stop),
                None => self.commit_until_durable(stop),
            }
        }
    }

    /// The same where others acknowledge, which tells by itself what is
    /// durable: some batches are on their way at once, each as large as what
    /// came in [`GATHER`], or while there was no room.
    fn commit_in_window(&self, acked: &Acked, stop: &AtomicBool) {
        let mut began = Instant::now();
        loop {
            match self.window_turn(acked, began.elapsed()) {
                Turn::Done => return,
                Turn::Wait(time) => {
                    acked.settled.wait_for(time);
                }
                Turn::Written => began = Instant::now(),
                Turn::Full => {
                    std::thread::sleep(FULL_RETRY);
                    began = Instant::now();
                }
            }
            if stop.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    /// One step of that, `gathered` after the batch before it was written, or
    /// after there was something to write.
    pub(crate) fn window_turn(&self, acked: &Acked, gathered: Duration) -> Turn {
        if self.has_failed() {
            return Turn::Done;
        }
        let (on_way, left) = (acked.on_way(), GATHER.saturating_sub(gathered));
        if on_way > 0 && !(left.is_zero() && on_way < BATCHES && acked.has_room()) {
            return Turn::Wait(if left.is_zero() { FULL_RETRY } else { left });
        }
        let committed = locked(&self.committer).commit(self, Ending::IfFull);
        match committed {
            Committed::Written => {
                self.notify_written();
                Turn::Written
            }
            Committed::Nothing | Committed::Failed => Turn::Done,
            Committed::Full => {
                self.upkeep.raise();
                Turn::Full
            }
        }
    }

    fn commit_until_durable(&self, stop: &AtomicBool) {
        loop {
            let committed = locked(&self.committer).commit(self, Ending::IfFull);
            match committed {
                Committed::Written => self.notify_written(),
                // Somebody else may have written for a body's sake.
                Committed::Nothing if self.progress.durable() < self.progress.written() => {}
                Committed::Nothing | Committed::Failed => return,
                Committed::Full => {
                    self.upkeep.raise();
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    std::thread::sleep(FULL_RETRY);
                    continue;
                }
            }
            if !self.sync() {
                return;
            }
            self.notify_durable();
            // Nobody is served any more; the end of the server writes the rest.
            if stop.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    /// The sync thread of the policies that do not wait for the disk: syncs at
    /// the interval, if there is one, when a reply asks for it, and when a
    /// segment is full, so that a restart never has much to make sure of.
    pub fn run_sync(&self, interval: Option<Duration>, stop: &AtomicBool) {
        loop {
            match interval {
                Some(interval) => {
                    self.log_work.wait_for(interval);
                }
                None => self.log_work.wait(),
            }
            if stop.load(Ordering::SeqCst) {
                return;
            }
            let behind = {
                let committer = locked(&self.committer);
                committer.log.durable() < committer.log.end()
            };
            if behind && self.sync() {
                self.notify_durable();
            }
        }
    }

    /// Writes and syncs all that was decided; for the end of the server.
    /// False if the disk is full and something could not be written.
    pub fn finish(&self) -> bool {
        loop {
            let committed = locked(&self.committer).commit(self, Ending::Never);
            match committed {
                Committed::Nothing => break,
                Committed::Written => {}
                Committed::Full | Committed::Failed => return false,
            }
        }
        if !self.sync() {
            return false;
        }
        match locked(&self.committer).log.end_in_order() {
            Ok(()) => true,
            Err(error) => {
                self.fail(&error);
                false
            }
        }
    }
}
