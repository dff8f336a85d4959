//! Clients that hear of what happens to a lease. All of it is volatile: a restart forgets it.

use std::collections::{BTreeMap, BTreeSet};

use quintet_types::{AwaitLease, Cancelled, ClientId, MessageId, Ms, Principal, ResultState};

/// A client that waits for news of a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseWait {
    pub(crate) principal: Principal,
    pub(crate) ask: AwaitLease,
    /// When the client gives up.
    pub(crate) until: Ms,
}

/// The part of the news that the state after the step does not tell.
#[derive(Debug, Default)]
pub(crate) struct Woken {
    /// The message was cancelled in the step.
    pub(crate) cancelled: Option<Box<Cancelled>>,
    /// It ended in the step.
    pub(crate) ended: Option<ResultState>,
}

/// All of them. A client waits for one lease at a time.
#[derive(Debug, Default)]
pub(crate) struct LeaseWaits {
    clients: BTreeMap<ClientId, LeaseWait>,
    /// An index over `clients`.
    of: BTreeSet<(MessageId, ClientId)>,
    /// When each gives up. An index over `clients`.
    deadlines: BTreeSet<(Ms, ClientId)>,
    /// Messages that something happened to in this step.
    woken: BTreeMap<MessageId, Woken>,
}

impl LeaseWaits {
    pub(crate) fn len(&self) -> usize {
        self.clients.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Enters a client, in place of an earlier wait of the same client.
    pub(crate) fn add(&mut self, client_id: ClientId, wait: LeaseWait) {
        self.remove(client_id);
        self.of.insert((wait.ask.id, client_id));
        self.deadlines.insert((wait.until, client_id));
        self.clients.insert(client_id, wait);
    }

    /// Takes a client out; `None`: it does not wait.
    pub(crate) fn remove(&mut self, client_id: ClientId) -> Option<LeaseWait> {
        let wait = self.clients.remove(&client_id)?;
        self.of.remove(&(wait.ask.id, client_id));
        self.deadlines.remove(&(wait.until, client_id));
        Some(wait)
    }

    /// Clients that wait for news of this message, with their waits.
    pub(crate) fn of(&self, id: MessageId) -> Vec<(ClientId, LeaseWait)> {
        let own = (id, ClientId(0))..=(id, ClientId(u64::MAX));
        let own = self.of.range(own);
        own.map(|(_, client)| (*client, self.clients[client]))
            .collect()
    }

    pub(crate) fn has(&self, id: MessageId) -> bool {
        let own = (id, ClientId(0))..=(id, ClientId(u64::MAX));
        self.of.range(own).next().is_some()
    }

    /// Something happens to a message; `None`: nobody waits for news of it.
    pub(crate) fn wake(&mut self, id: MessageId) -> Option<&mut Woken> {
        self.has(id).then(|| self.woken.entry(id).or_default())
    }

    /// Something may happen to every message.
    pub(crate) fn wake_all(&mut self) {
        for (id, _) in &self.of {
            self.woken.entry(*id).or_default();
        }
    }

    pub(crate) fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }

    pub(crate) fn take_woken(&mut self) -> BTreeMap<MessageId, Woken> {
        std::mem::take(&mut self.woken)
    }

    /// A client whose time is over by now.
    pub(crate) fn due(&self, now: Ms) -> Option<ClientId> {
        let (at, client_id) = self.deadlines.first()?;
        (*at <= now).then_some(*client_id)
    }

    /// When the next step is needed.
    pub(crate) fn next_deadline(&self) -> Option<Ms> {
        self.deadlines.first().map(|(at, _)| *at)
    }
}
