//! Checks that every index agrees with the messages. For tests: it looks at
//! everything.

use super::Store;
use crate::message::{Message, State};

macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(format!($($text)*));
        }
    };
}

impl Store {
    /// # Errors
    /// The first disagreement found.
    pub(crate) fn verify(&self) -> Result<(), String> {
        let mut alive = 0u64;
        let mut homes = std::collections::BTreeMap::new();
        let mut body_bytes = 0;
        for slot in 0..self.messages.bound() {
            let Some(message) = self.messages.get(slot) else {
                continue;
            };
            ensure!(
                self.ids.get(message.id.0) == Some(slot),
                "{:?} not in ids",
                message.id
            );
            *homes.entry(message.home).or_insert(0u64) += 1;
            body_bytes += Self::held_bytes(message);
            if self.is_alive(message) {
                alive += 1;
                self.verify_message(slot, message)?;
            }
        }
        for sent in &self.outbox {
            *homes.entry(sent.message.home).or_insert(0) += 1;
            body_bytes += Self::held_bytes(&sent.message);
            ensure!(
                self.ids.get(sent.message.id.0).is_none(),
                "{:?} is sent and still here",
                sent.message.id
            );
        }
        for memory in self.marks.values() {
            *homes.entry(memory.home).or_insert(0) += 1;
        }
        ensure!(
            homes == self.homes,
            "homes {homes:?} counted as {:?}",
            self.homes
        );
        ensure!(
            body_bytes == self.body_bytes,
            "body bytes {body_bytes} {}",
            self.body_bytes
        );
        ensure!(
            self.marks.len() == self.mark_ends.len(),
            "marks and their ends differ"
        );
        self.verify_queues(alive)
    }

    fn verify_message(&self, slot: u32, message: &Message) -> Result<(), String> {
        let id = message.id;
        let queue = self
            .queue(message.queue)
            .ok_or(format!("{id:?} in no queue"))?;
        let order = (message.rank, message.place, id);
        let lease = self.leases.get(&slot);
        ensure!(
            lease.is_some() == (message.state == State::Reserved),
            "{id:?} lease {lease:?}"
        );
        let found = match message.state {
            State::Ready => {
                let delayed = message
                    .due()
                    .is_some_and(|due| queue.delayed.get(&(due, id)) == Some(&slot));
                let map = if message.selectable {
                    &queue.ready
                } else {
                    &queue.held_back
                };
                delayed != (map.get(&order) == Some(&slot))
            }
            State::Prepared => queue.prepared.get(&id) == Some(&slot),
            State::Reserved => queue.reserved.get(&id) == Some(&slot),
            State::Buried => queue.buried.values().any(|&other| other == slot),
            State::Done | State::Relayed => queue.archived.values().any(|&other| other == slot),
        };
        ensure!(found, "{id:?} is not where its state says: {message:?}");
        if let Some(lease) = lease {
            if let Some(until) = lease.until {
                ensure!(
                    self.lease_ends.contains(&(until, id)),
                    "{id:?} has no lease end"
                );
            }
            if lease.party.0 != 0 {
                // A lease bound to time alone outlives its party.
                let held = self
                    .held
                    .get(&lease.party)
                    .is_some_and(|held| held.contains(&id));
                let free = lease.bound == crate::fact::Bound::Time;
                ensure!(held || free, "{id:?} is not among its party's");
            }
        }
        if matches!(message.state, State::Ready | State::Prepared)
            && let Some(at) = message.expires()
        {
            ensure!(self.expiries.contains(&(at, id)), "{id:?} has no expiry");
        }
        Ok(())
    }

    fn verify_queues(&self, alive: u64) -> Result<(), String> {
        let mut counted = 0;
        for queue in self.queues.iter().flatten() {
            let name = &queue.name;
            let lists = [
                queue.reserved.len(),
                queue.buried.len(),
                queue.prepared.len(),
                queue.archived.len(),
            ];
            counted += queue.waiting() + lists.iter().sum::<usize>() as u64;
            let slots = queue.ready.values().chain(queue.held_back.values());
            let len = |slot: &u32| self.messages.get(*slot).map_or(0, |m| m.body.len());
            let waiting: u64 = slots.chain(queue.delayed.values()).map(len).sum();
            ensure!(
                waiting == queue.waiting_bytes,
                "{name}: waiting bytes {waiting}"
            );
            let urgent = queue.ready.keys().filter(|(rank, ..)| *rank < 1024).count() as u64;
            ensure!(
                urgent == queue.urgent,
                "{name}: urgent {urgent} not {}",
                queue.urgent
            );
            let keyed = |slot: &&u32| self.messages.get(**slot).is_some_and(|m| m.key().is_some());
            let with_key = queue
                .ready
                .values()
                .chain(queue.held_back.values())
                .filter(keyed)
                .count();
            let grouped: usize = queue.keys.values().map(|group| group.len()).sum();
            ensure!(
                with_key == grouped,
                "{name}: {with_key} have keys, {grouped} in groups"
            );
            let found = self.names.get(name) == Some(&queue.id);
            ensure!(found != queue.live.dropped, "{name}: wrong under its name");
            if queue.live.alarm != queue.next_alarm() {
                return Err(format!("{name}: alarm {:?}", queue.live.alarm));
            }
        }
        ensure!(counted == alive, "{counted} in maps, {alive} alive");
        Ok(())
    }
}
