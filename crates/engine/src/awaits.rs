//! Clients that wait for the results of messages. All of it is volatile: a restart forgets it.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;

use quintet_types::{ClientId, MessageId, MessageResult, Ms, Outcome, Principal, QueueId};

/// A client that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Await {
    pub(crate) principal: Principal,
    /// Where the message is.
    pub(crate) queue: QueueId,
    /// When the client gives up.
    pub(crate) until: Ms,
}

/// All of them. A client waits for one message at a time.
#[derive(Debug, Default)]
pub(crate) struct Awaits {
    of: BTreeMap<(MessageId, ClientId), Await>,
    /// An index over `of`.
    clients: HashMap<ClientId, MessageId, foldhash::fast::RandomState>,
    /// When each gives up. An index over `of`.
    deadlines: BTreeSet<(Ms, ClientId)>,
    /// Outcomes that are delivered at the end of the step.
    notifications: Vec<(ClientId, Principal, Outcome)>,
}

impl Awaits {
    pub(crate) fn len(&self) -> usize {
        self.of.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Enters a client, in place of an earlier wait of the same client.
    pub(crate) fn add(&mut self, client_id: ClientId, id: MessageId, wait: Await) {
        self.remove(client_id);
        self.deadlines.insert((wait.until, client_id));
        self.clients.insert(client_id, id);
        self.of.insert((id, client_id), wait);
    }

    /// Takes a client out; `None`: it does not wait.
    pub(crate) fn remove(&mut self, client_id: ClientId) -> Option<Await> {
        let id = self.clients.remove(&client_id)?;
        let wait = self.of.remove(&(id, client_id));
        let wait = wait.expect("a client that waits for a message is found by the message");
        self.deadlines.remove(&(wait.until, client_id));
        Some(wait)
    }

    /// Clients that wait for this message.
    fn of(&self, id: MessageId) -> Vec<ClientId> {
        let own = (id, ClientId(0))..=(id, ClientId(u64::MAX));
        self.of.range(own).map(|((_, client), _)| *client).collect()
    }

    pub(crate) fn has(&self, id: MessageId) -> bool {
        let own = (id, ClientId(0))..=(id, ClientId(u64::MAX));
        self.of.range(own).next().is_some()
    }

    /// The messages that clients wait for, each once, with the queue of each.
    pub(crate) fn messages(&self) -> impl Iterator<Item = (MessageId, QueueId)> {
        let mut last = None;
        let all = self.of.iter().map(|((id, _), wait)| (*id, wait.queue));
        all.filter(move |(id, _)| last.replace(*id) != Some(*id))
    }

    /// The message is in another queue, or has another id.
    pub(crate) fn renamed(&mut self, id: MessageId, is_now: MessageId, queue: Option<QueueId>) {
        for client_id in self.of(id) {
            if let Some(mut wait) = self.remove(client_id) {
                wait.queue = queue.unwrap_or(wait.queue);
                self.add(client_id, is_now, wait);
            }
        }
    }

    /// The message has ended.
    pub(crate) fn ended(&mut self, result: &MessageResult) {
        for client_id in self.of(result.id) {
            self.notify(client_id, Outcome::Result(Box::new(result.clone())));
        }
    }

    /// The wait of a client is over.
    pub(crate) fn notify(&mut self, client_id: ClientId, outcome: Outcome) {
        if let Some(wait) = self.remove(client_id) {
            self.notifications
                .push((client_id, wait.principal, outcome));
        }
    }

    /// A client whose time is over by now.
    pub(crate) fn due(&self, now: Ms) -> Option<ClientId> {
        let (at, client_id) = self.deadlines.first()?;
        (*at <= now).then_some(*client_id)
    }

    /// When the next step is needed.
    pub(crate) fn next_deadline(&self) -> Option<Ms> {
        match self.notifications.is_empty() {
            true => self.deadlines.first().map(|(at, _)| *at),
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
