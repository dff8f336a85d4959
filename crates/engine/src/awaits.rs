//! Clients that wait for the results of messages. All of it is volatile: a restart forgets it.

use std::collections::{BTreeMap, BTreeSet};

use quintet_types::{ClientId, MessageId, MessageResult, Ms, Outcome, Principal, QueueId};

/// A client that waits for one message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientWait<M> {
    pub(crate) principal: Principal,
    pub(crate) id: MessageId,
    /// When the client gives up.
    pub(crate) until: Ms,
    pub(crate) more: M,
}

/// Clients that each wait for one message at a time.
#[derive(Debug)]
pub(crate) struct ClientWaits<M> {
    clients: BTreeMap<ClientId, ClientWait<M>>,
    /// An index over `clients`.
    pub(crate) of: BTreeSet<(MessageId, ClientId)>,
    /// When each gives up. An index over `clients`.
    deadlines: BTreeSet<(Ms, ClientId)>,
}

impl<M> Default for ClientWaits<M> {
    fn default() -> Self {
        Self {
            clients: BTreeMap::new(),
            of: BTreeSet::new(),
            deadlines: BTreeSet::new(),
        }
    }
}

impl<M: Copy> ClientWaits<M> {
    pub(crate) fn len(&self) -> usize {
        self.clients.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Enters a client, in place of an earlier wait of the same client.
    pub(crate) fn add(&mut self, client_id: ClientId, wait: ClientWait<M>) {
        self.remove(client_id);
        self.of.insert((wait.id, client_id));
        self.deadlines.insert((wait.until, client_id));
        self.clients.insert(client_id, wait);
    }

    /// Takes a client out; `None`: it does not wait.
    pub(crate) fn remove(&mut self, client_id: ClientId) -> Option<ClientWait<M>> {
        let wait = self.clients.remove(&client_id)?;
        self.of.remove(&(wait.id, client_id));
        self.deadlines.remove(&(wait.until, client_id));
        Some(wait)
    }

    /// Clients that wait for this message, with their waits.
    pub(crate) fn of(&self, id: MessageId) -> Vec<(ClientId, ClientWait<M>)> {
        let own = (id, ClientId(0))..=(id, ClientId(u64::MAX));
        let own = self.of.range(own);
        own.map(|(_, client)| (*client, self.clients[client]))
            .collect()
    }

    pub(crate) fn has(&self, id: MessageId) -> bool {
        let own = (id, ClientId(0))..=(id, ClientId(u64::MAX));
        self.of.range(own).next().is_some()
    }

    /// A client whose time is over by now.
    pub(crate) fn due(&self, now: Ms) -> Option<ClientId> {
        let (at, client_id) = self.deadlines.first()?;
        (*at <= now).then_some(*client_id)
    }

    /// When the first gives up.
    pub(crate) fn next_deadline(&self) -> Option<Ms> {
        self.deadlines.first().map(|(at, _)| *at)
    }
}

/// Clients that wait for results, with the queue where each one's message is.
#[derive(Debug, Default)]
pub(crate) struct Awaits {
    pub(crate) waits: ClientWaits<QueueId>,
    /// Outcomes that are delivered at the end of the step.
    notifications: Vec<(ClientId, Principal, Outcome)>,
}

impl Awaits {
    /// The messages that clients wait for, each once, with the queue of each.
    pub(crate) fn messages(&self) -> impl Iterator<Item = (MessageId, QueueId)> {
        let mut last = None;
        let ClientWaits { of, clients, .. } = &self.waits;
        let all = of.iter();
        let all = all.map(move |(id, client)| (*id, clients[client].more));
        all.filter(move |(id, _)| last.replace(*id) != Some(*id))
    }

    /// The message is in another queue, or has another id.
    pub(crate) fn renamed(&mut self, id: MessageId, is_now: MessageId, queue: Option<QueueId>) {
        for (client_id, mut wait) in self.waits.of(id) {
            (wait.id, wait.more) = (is_now, queue.unwrap_or(wait.more));
            self.waits.add(client_id, wait);
        }
    }

    /// The message has ended.
    pub(crate) fn ended(&mut self, result: &MessageResult) {
        for (client_id, _) in self.waits.of(result.id) {
            self.notify(client_id, Outcome::Result(Box::new(result.clone())));
        }
    }

    /// The wait of a client is over.
    pub(crate) fn notify(&mut self, client_id: ClientId, outcome: Outcome) {
        if let Some(wait) = self.waits.remove(client_id) {
            self.notifications
                .push((client_id, wait.principal, outcome));
        }
    }

    /// When the next step is needed.
    pub(crate) fn next_deadline(&self) -> Option<Ms> {
        match self.notifications.is_empty() {
            true => self.waits.next_deadline(),
            false => Some(Ms(0)),
        }
    }

    pub(crate) fn has_notifications(&self) -> bool {
        !self.notifications.is_empty()
    }

    pub(crate) fn take_notifications(&mut self) -> Vec<(ClientId, Principal, Outcome)> {
        std::mem::take(&mut self.notifications)
    }
}
