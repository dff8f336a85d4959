//! The owner of a log that others could come to own goes in good order.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use quintet_log::LogError;

use super::commit::{Committed, Ending};
use super::{Core, Signal, locked};

/// How a handoff went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handoff {
    /// It stands in the log, behind everything that was decided.
    Stands,
    /// Nobody has acknowledged it so far, and maybe not what was decided before: what of that was
    /// answered to nobody may be gone.
    Unknown,
    /// It could not be said: the log has no room, or is not this host's any more.
    Unsaid,
}

impl Core {
    /// Writes what was decided and behind it the handoff, which wishes the node `to` to take over;
    /// empty: any node that can. What is decided from here on is kept nowhere and answered to
    /// nobody, as with an owner that is deposed. Returns when the handoff stands, after `within` at
    /// most.
    ///
    /// # Panics
    /// If nobody else could own the log.
    pub fn handoff(&self, to: &str, within: Duration) -> Handoff {
        let acked = self.acked.as_ref().expect("others could own the log");
        let by = Instant::now() + within;
        let notified = Arc::new(Signal::default());
        let bell = Arc::clone(&notified);
        acked.listen(Arc::new(move || bell.raise()));
        let end = {
            let mut committer = locked(&self.committer);
            loop {
                match committer.commit(self, Ending::Never) {
                    Committed::Nothing => break,
                    Committed::Written => {}
                    Committed::Full | Committed::Failed => return Handoff::Unsaid,
                }
            }
            self.failed.store(true, Ordering::SeqCst);
            match committer.handoff(self, to) {
                Ok(()) => committer.log.end(),
                Err(error) => {
                    tracing::warn!("the handoff cannot be written to the log: {error}");
                    return Handoff::Unsaid;
                }
            }
        };
        loop {
            // Asked first: nothing is acknowledged after it.
            let is_over = acked.is_over();
            if acked.has(end) {
                return Handoff::Stands;
            }
            if is_over {
                return Handoff::Unsaid;
            }
            let left = by.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Handoff::Unknown;
            }
            notified.wait_for(left);
        }
    }

    /// Makes what is on this machine's disk of the log a log that can be opened by itself. After
    /// everything was acknowledged.
    ///
    /// # Errors
    /// The disk failed.
    pub fn end_in_order(&self) -> Result<(), LogError> {
        locked(&self.committer).log.end_in_order()
    }
}
