//! The threads that see the log to the disk.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::commit::Committed;
use super::{Core, Mailbox, locked, stop_for};

/// How long a frame that found the disk full waits before it is tried again.
const FULL_RETRY: Duration = Duration::from_millis(100);

impl Core {
    /// Makes all that is written durable, and says up to which ticket.
    pub(crate) fn sync(&self) -> u64 {
        let _turn = locked(&self.sync_turn);
        let (point, ticket) = {
            let mut committer = locked(&self.committer);
            (committer.log.sync_point(), self.progress.written())
        };
        if let Err(error) = point.wait() {
            stop_for(&error);
        }
        locked(&self.committer).log.synced(point);
        self.counts.syncs.fetch_add(1, Ordering::Relaxed);
        self.progress.set_durable(ticket);
        ticket
    }

    /// The log thread of `sync = "always"`: writes the open batch, syncs, and
    /// lets the replies go; meanwhile the next batch fills.
    pub(crate) fn run_log(&self, stop: &AtomicBool) {
        loop {
            self.log_work.wait();
            if stop.load(Ordering::SeqCst) {
                return;
            }
            self.commit_until_durable(stop);
        }
    }

    fn commit_until_durable(&self, stop: &AtomicBool) {
        loop {
            let committed = locked(&self.committer).commit(self, false);
            match committed {
                Committed::Written => self.tell_written(),
                // Somebody else may have written for a body's sake.
                Committed::Nothing if self.progress.durable() < self.progress.written() => {}
                Committed::Nothing => return,
                Committed::Full => {
                    self.upkeep.raise();
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    std::thread::sleep(FULL_RETRY);
                    continue;
                }
                Committed::Failed(error) => stop_for(&error),
            }
            self.sync();
            self.mail.iter().for_each(Mailbox::tell_durable);
        }
    }

    /// The sync thread of the policies that do not wait for the disk: syncs at
    /// the interval, if there is one, when a reply asks for it, and when a
    /// segment is full, so that a restart never has much to make sure of.
    pub(crate) fn run_sync(&self, interval: Option<Duration>, stop: &AtomicBool) {
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
            if behind {
                self.sync();
                self.mail.iter().for_each(Mailbox::tell_durable);
            }
        }
    }

    /// Writes and syncs all that was decided; for the end of the server.
    /// False if the disk is full and something could not be written.
    pub(crate) fn finish(&self) -> bool {
        loop {
            let committed = locked(&self.committer).commit(self, false);
            match committed {
                Committed::Nothing => break,
                Committed::Written => {}
                Committed::Full => return false,
                Committed::Failed(error) => stop_for(&error),
            }
        }
        self.sync();
        true
    }
}
