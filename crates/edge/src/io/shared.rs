//! The number of an I/O thread, and the state that it shares with others.

use std::sync::Arc;

use quintet_client::Operator;

use super::counts::{ProtocolCounts, ThreadCounts};
use super::mail::Mailbox;
use crate::edge::Edge;

/// The number of an I/O thread, and the state that it shares with others.
pub(super) struct Shared {
    pub(super) index: usize,
    pub(super) edge: Arc<Edge>,
    pub(super) operator: Arc<dyn Operator>,
}

impl Shared {
    /// The thread's own counters.
    #[inline]
    pub(super) fn counts(&self) -> &ThreadCounts {
        &self.edge.threads[self.index]
    }

    /// Those of the protocol of a listener.
    #[inline]
    pub(super) fn protocol(&self, listener: usize) -> &ProtocolCounts {
        &self.counts().protocols[self.edge.listeners[listener].tally]
    }

    /// The thread's own mailbox.
    pub(super) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.edge.mail[self.index]
    }
}
