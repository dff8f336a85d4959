//! Looking without taking, and numbers.

use quintet_types::{
    CommandError, ListState, Message, MessageId, MessageResult, Outcome, Peek, QueueGauges,
    QueueId, State,
};

use super::{Model, Reference};

impl Model {
    pub(super) fn peek(&self, peek: Peek) -> Result<Outcome, CommandError> {
        let one = |message: &Message| Outcome::Messages([message.clone()].into_iter().collect());
        let (name, state) = match peek {
            Peek::Id(id) => return self.message(id).map(one),
            Peek::Ready(name) => (name, ListState::Ready),
            Peek::Delayed(name) => (name, ListState::Delayed),
            Peek::Buried(name) => (name, ListState::Buried),
        };
        let queue = self.find(&name).ok_or(CommandError::NotFound)?;
        let first = self
            .list(queue, state)
            .first()
            .copied()
            .ok_or(CommandError::NotFound)?;
        let message = self.message(first)?;
        // A FIFO consumer never gets a message that is not selectable.
        if state == ListState::Ready && !message.selectable {
            return Err(CommandError::NotFound);
        }
        Ok(one(message))
    }

    /// The result of a message that is there; the waits for one have tests of their own.
    pub(super) fn result(&self, id: MessageId) -> Result<Outcome, CommandError> {
        let message = self.message(id)?;
        let Some((state, text)) = message.result() else {
            return Ok(Outcome::Empty);
        };
        let queue = self.queue(message.queue).name.clone();
        Ok(Outcome::Result(Box::new(MessageResult {
            id,
            queue,
            state,
            text,
        })))
    }

    /// Messages of one state in the order an operator sees them.
    pub fn list(&self, queue: QueueId, state: ListState) -> Vec<MessageId> {
        let mut items: Vec<_> = self
            .items
            .iter()
            .filter(|item| item.message.queue == queue)
            .filter(|item| {
                let message = &item.message;
                match state {
                    ListState::Ready => self.is_ready(message),
                    ListState::Delayed => message.is_delayed(self.now),
                    ListState::Reserved => message.state == State::Reserved,
                    ListState::Buried => message.state == State::Buried,
                    ListState::Prepared => message.state == State::Prepared,
                    ListState::Archived => matches!(message.state, State::Done | State::Relayed),
                }
            })
            .collect();
        items.sort_by_key(|item| {
            let m = &item.message;
            let extra = m.extra.as_deref();
            let (a, b) = match state {
                ListState::Ready => (u64::from(!m.selectable), u64::from(m.order().0)),
                ListState::Delayed => (extra.and_then(|e| e.due).map_or(0, |at| at.0), 0),
                ListState::Buried => (item.turn, 0),
                ListState::Archived => (extra.map_or(0, |e| e.changed.0), 0),
                ListState::Reserved | ListState::Prepared => (0, 0),
            };
            let position = if state == ListState::Ready {
                m.position
            } else {
                0
            };
            (a, b, position, m.id)
        });
        items.iter().map(|item| item.message.id).collect()
    }

    /// The queue's content.
    pub fn gauges(&self, queue: QueueId) -> QueueGauges {
        let count = |which: &dyn Fn(&Message) -> bool| self.ids(queue, which).len() as u64;
        let bytes = |which: &dyn Fn(&Message) -> bool| -> u64 {
            let ids = self.ids(queue, which);
            ids.iter()
                .filter_map(|&id| self.item(id))
                .map(|item| super::put::size(&item.message))
                .sum()
        };
        let name = &self.queue(queue).name;
        let referred = |how: &dyn Fn(&Reference) -> bool| {
            let here = self.references.iter().filter(|other| other.name == *name);
            here.filter(|other| how(other)).count() as u64
        };
        QueueGauges {
            ready: count(&|m| self.is_ready(m) && m.selectable),
            urgent: count(&|m| self.is_ready(m) && m.selectable && m.priority < 1024),
            not_selectable: count(&|m| self.is_ready(m) && !m.selectable),
            delayed: count(&|m| m.is_delayed(self.now)),
            retrying: count(&|m| m.is_delayed(self.now) && m.failures() > 0),
            reserved: count(&|m| m.state == State::Reserved),
            buried: count(&|m| m.state == State::Buried),
            prepared: count(&|m| m.state == State::Prepared),
            done: count(&|m| m.state == State::Done),
            relayed: count(&|m| m.state == State::Relayed),
            waiting_bytes: bytes(&|m| m.state == State::Ready),
            cold: 0,
            bytes: bytes(&|_| true),
            waiters: self.waiting_on(&self.queue(queue).name),
            waiting_peeks: self.looking_at(&self.queue(queue).name),
            users: referred(&|reference| reference.uses),
            watchers: referred(&|reference| reference.watches),
        }
    }
}
