//! A log that others acknowledge and could come to own: how far its batches have come, whether what
//! was decided may be answered, and whether anybody acknowledges at all.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quintet_log::{Log, LogError, Position, Shared};
use quintet_policy::Sharing;
use quintet_types::Hold;

use super::commit_numbers::Progress;
use super::{Core, Post, Required, Shard, Signal, Work, locked};

/// So long nobody acknowledges before commands are refused: longer than the
/// log's servers take to agree on another leader.
const QUORUM_WAIT: Duration = Duration::from_secs(10);
/// While nobody acknowledges, who has waited so long for a reply is given up.
const REPLY_WAIT: Duration = Duration::from_secs(30);
/// An acknowledgement that takes no longer is waited for whatever there is to
/// acknowledge: what comes meanwhile is bounded by it.
const SWIFT: Duration = Duration::from_millis(50);

/// State of the acknowledgements.
pub(crate) struct Acked {
    log: Arc<dyn Shared>,
    progress: Arc<Progress>,
    available: Arc<AtomicBool>,
    mail: Vec<Arc<dyn Post>>,
    /// Where the frames of batches end that are not known to be durable, and
    /// the batches; both rising.
    sent: Mutex<VecDeque<(Position, u64)>>,
    unacked_max: AtomicU64,
    reads_by_log: AtomicBool,
    /// A reply waits for the open batch, though nothing may be recorded in it.
    /// Set and taken under a shard's lock.
    requested: AtomicBool,
    /// Wakes the log thread after an acknowledgement.
    pub(crate) settled: Signal,
}

impl Acked {
    /// Of `log`, if it is such a log.
    pub(crate) fn of(
        log: &dyn Log,
        progress: &Arc<Progress>,
        available: &Arc<AtomicBool>,
        mail: &[Arc<dyn Post>],
    ) -> Option<Arc<Self>> {
        let log = log.shared()?;
        let acked = Arc::new(Self {
            log: Arc::clone(&log),
            progress: Arc::clone(progress),
            available: Arc::clone(available),
            mail: mail.to_vec(),
            sent: Mutex::default(),
            unacked_max: AtomicU64::new(Sharing::default().unacked_max),
            reads_by_log: AtomicBool::new(false),
            requested: AtomicBool::new(false),
            settled: Signal::default(),
        });
        let callback = Arc::downgrade(&acked);
        log.listen(Arc::new(move || {
            if let Some(acked) = callback.upgrade() {
                acked.settle();
            }
        }));
        Some(acked)
    }

    /// The frames of the batch `commit_number` end at `end`, and are on their way.
    pub(crate) fn sent(&self, end: Position, commit_number: u64) {
        locked(&self.sent).push_back((end, commit_number));
        // The acknowledgement may have come before.
        self.settle();
    }

    /// Something was acknowledged, which also renews the lease.
    fn settle(&self) {
        let durable = self.log.durable();
        let mut newest = None;
        {
            let mut sent = locked(&self.sent);
            while sent.front().is_some_and(|(end, _)| *end <= durable) {
                newest = sent.pop_front();
            }
        }
        if let Some((_, commit_number)) = newest {
            self.progress.set_durable(commit_number);
        }
        if !self.available.load(Ordering::Relaxed) && self.log.waits().is_none_or(is_soon) {
            tracing::info!("appends are acknowledged again: commands are accepted");
            self.available.store(true, Ordering::Relaxed);
        }
        self.mail.iter().for_each(|post| post.notify_durable());
        self.settled.raise();
    }

    /// Where the frames of the newest batch that is on its way end, and the batch.
    #[cfg(test)]
    pub(crate) fn newest(&self) -> Option<(Position, u64)> {
        locked(&self.sent).back().copied()
    }

    /// Batches that are on their way.
    pub(crate) fn on_way(&self) -> usize {
        locked(&self.sent).len()
    }

    /// Whether a reply waits for the open batch, which is being taken.
    pub(crate) fn take_requested(&self) -> bool {
        self.requested.swap(false, Ordering::Relaxed)
    }

    /// Everything before this is acknowledged.
    pub(crate) fn durable(&self) -> Position {
        self.log.durable()
    }

    /// Whether everything before `end` is acknowledged.
    pub(crate) fn has(&self, end: Position) -> bool {
        self.log.durable() >= end
    }

    /// Whether nothing more will be acknowledged.
    pub(crate) fn is_over(&self) -> bool {
        self.log.is_over()
    }

    /// Has `callback` called after each acknowledgement, and when none will come any more.
    pub(crate) fn listen(&self, callback: Arc<dyn Fn() + Send + Sync>) {
        self.log.listen(callback);
    }

    /// Whether a frame would be sent at once.
    pub(crate) fn has_room(&self) -> bool {
        self.log.has_room()
    }

    /// Whether what was decided before may be answered.
    pub(crate) fn has_lease(&self) -> bool {
        self.log.has_lease()
    }
}

/// Somebody acknowledges.
fn is_soon(waits: Duration) -> bool {
    waits < QUORUM_WAIT
}

impl Core {
    /// For a log that others could come to own, each time nothing was appended
    /// to it for a while: says that its owner lives, and looks whether anybody
    /// acknowledges.
    pub fn heartbeat(&self) {
        let Some(acked) = &self.acked else {
            return;
        };
        if self.is_available() && !acked.log.waits().is_none_or(is_soon) {
            tracing::error!(
                group = self.group(),
                "nothing was acknowledged for {} s: commands are refused until the log's servers \
                 have a quorum again",
                QUORUM_WAIT.as_secs()
            );
            self.set_available(false);
        }
        // What is on its way already says so when it arrives.
        if self.has_failed() || !acked.log.has_room() {
            return;
        }
        let done = locked(&self.committer).heartbeat(self);
        match done {
            // When it is full others notice by what they append.
            Ok(()) | Err(LogError::NoSpace { .. }) => {}
            Err(error) => self.fail(&error),
        }
    }

    /// Whether others could come to own the log.
    pub fn is_shared(&self) -> bool {
        self.acked.is_some()
    }

    /// How a log is used that others could come to own; of no other it says
    /// anything.
    pub fn share(&self, how: Sharing) {
        if let Some(acked) = &self.acked {
            acked.unacked_max.store(how.unacked_max, Ordering::Relaxed);
            acked
                .reads_by_log
                .store(how.reads_by_log, Ordering::Relaxed);
        }
    }

    /// The condition for sending a reply that was decided in this shard now.
    pub(crate) fn required(&self, shard: &mut Shard, hold: Hold) -> Required {
        let required = shard.required(hold, &self.progress, self.waits_for_disk());
        match &self.acked {
            Some(acked) if acked.reads_by_log.load(Ordering::Relaxed) => {
                self.by_log(acked, required)
            }
            _ => required,
        }
    }

    /// The same, behind a frame that is appended after this.
    fn by_log(&self, acked: &Acked, required: Required) -> Required {
        // A batch is taken with all shards locked, so it was not yet.
        let open = self.progress.open();
        if required.durable < open && !acked.requested.swap(true, Ordering::Relaxed) {
            self.log_work.raise();
        }
        Required {
            written: open,
            durable: open,
            ..required
        }
    }

    /// Whether so much waits to be acknowledged that clients should not be
    /// read from.
    pub fn is_choked(&self) -> bool {
        let Some(acked) = &self.acked else {
            return false;
        };
        if acked.log.waits().is_none_or(|waits| waits < SWIFT) {
            return false;
        }
        let open = self
            .shards
            .iter()
            .map(|shard| shard.lock(Work::Commit).batch.records.len() as u64);
        let waits = acked.log.unacked() + open.sum::<u64>();
        waits > acked.unacked_max.load(Ordering::Relaxed)
    }

    /// Whether a reply that has waited so long is given up: its connection is
    /// closed, and what became of its command is unknown.
    pub fn gives_up(&self, waited: Duration) -> bool {
        self.acked.is_some() && !self.is_available() && waited >= REPLY_WAIT
    }
}
