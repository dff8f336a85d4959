//! Clients that hear of what happens to a lease. All of it is volatile: a restart forgets it.

use std::collections::BTreeMap;

use quintet_types::{AwaitLease, Cancelled, MessageId, ResultState};

use crate::awaits::ClientWaits;

/// The part of the news that the state after the step does not tell.
#[derive(Debug, Default)]
pub(crate) struct Woken {
    /// The message was cancelled in the step.
    pub(crate) cancelled: Option<Box<Cancelled>>,
    /// It ended in the step.
    pub(crate) ended: Option<ResultState>,
}

/// Clients that wait for news of leases, with what each asks.
#[derive(Debug, Default)]
pub(crate) struct LeaseWaits {
    pub(crate) waits: ClientWaits<AwaitLease>,
    /// Messages that something happened to in this step.
    woken: BTreeMap<MessageId, Woken>,
}

impl LeaseWaits {
    /// Something happens to a message; `None`: nobody waits for news of it.
    pub(crate) fn wake(&mut self, id: MessageId) -> Option<&mut Woken> {
        let is_awaited = self.waits.has(id);
        is_awaited.then(|| self.woken.entry(id).or_default())
    }

    /// Something may happen to every message.
    pub(crate) fn wake_all(&mut self) {
        for (id, _) in &self.waits.of {
            self.woken.entry(*id).or_default();
        }
    }

    pub(crate) fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }

    pub(crate) fn take_woken(&mut self) -> BTreeMap<MessageId, Woken> {
        std::mem::take(&mut self.woken)
    }
}
