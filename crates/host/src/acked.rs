//! A log that others acknowledge and could come to own: how far its batches have come, whether what
//! was decided may be answered, and whether anybody acknowledges at all.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quintet_log::{Log, LogError, Position, Shared};

use super::tickets::Progress;
use super::{Core, Post, Signal, locked};

/// So long nobody acknowledges before commands are refused: longer than the
/// log's keepers take to agree on another leader.
const QUORUM_WAIT: Duration = Duration::from_secs(10);

/// What is known of the acknowledgements.
pub(crate) struct Acked {
    log: Arc<dyn Shared>,
    progress: Arc<Progress>,
    available: Arc<AtomicBool>,
    mail: Vec<Arc<dyn Post>>,
    /// Where the frames of batches end that are not known to be durable, and
    /// the batches; both rising.
    sent: Mutex<VecDeque<(Position, u64)>>,
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
            settled: Signal::default(),
        });
        let told = Arc::downgrade(&acked);
        log.listen(Arc::new(move || {
            if let Some(acked) = told.upgrade() {
                acked.settle();
            }
        }));
        Some(acked)
    }

    /// The frames of the batch `ticket` end at `end`, and are on their way.
    pub(crate) fn sent(&self, end: Position, ticket: u64) {
        locked(&self.sent).push_back((end, ticket));
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
        if let Some((_, ticket)) = newest {
            self.progress.set_durable(ticket);
        }
        if !self.available.load(Ordering::Relaxed) && self.log.waits().is_none_or(is_soon) {
            tracing::info!("appends are acknowledged again: commands are accepted");
            self.available.store(true, Ordering::Relaxed);
        }
        self.mail.iter().for_each(|post| post.tell_durable());
        self.settled.raise();
    }

    /// Batches that are on their way.
    pub(crate) fn on_way(&self) -> usize {
        locked(&self.sent).len()
    }

    /// Whether everything before `end` is acknowledged.
    pub(crate) fn has(&self, end: Position) -> bool {
        self.log.durable() >= end
    }

    /// Has `told` called after each acknowledgement.
    pub(crate) fn listen(&self, told: Arc<dyn Fn() + Send + Sync>) {
        self.log.listen(told);
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
    pub fn beat(&self) {
        let Some(acked) = &self.acked else {
            return;
        };
        if self.is_available() && !acked.log.waits().is_none_or(is_soon) {
            tracing::error!(
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
        let done = locked(&self.committer).beat(self);
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
}
