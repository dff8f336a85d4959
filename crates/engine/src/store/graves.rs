//! What flush and drop detached, freed a slice at a time: a flush of ten
//! million messages answers at once and stops nobody.

use std::collections::BTreeMap;

use super::cold::run_of_body;
use super::{Ascending, Durable, KeyGroups, Order};
use crate::message::MessageId;
use crate::time::Ms;

#[derive(Debug)]
enum Grave {
    Ordered(Ascending<Order, u32>),
    Timed(BTreeMap<(Ms, MessageId), u32>),
    ById(Ascending<MessageId, u32>),
    ByTurn(BTreeMap<u64, u32>),
}

/// Detached maps whose messages are forgotten but still use memory.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "as their queues had them")]
pub(crate) struct Graves(Vec<Grave>, Vec<Box<KeyGroups>>);

impl Graves {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty() && self.1.is_empty()
    }

    pub(super) fn groups(&mut self, groups: Box<KeyGroups>) {
        self.1.push(groups);
    }

    /// Frees up to `max` entries of groups.
    fn dismantle(&mut self, max: usize) {
        if let Some(groups) = self.1.last_mut()
            && !groups.dismantle(max)
        {
            self.1.pop();
        }
    }

    pub(super) fn ordered(&mut self, map: Ascending<Order, u32>) {
        if !map.is_empty() {
            self.0.push(Grave::Ordered(map));
        }
    }

    pub(super) fn timed(&mut self, map: BTreeMap<(Ms, MessageId), u32>) {
        if !map.is_empty() {
            self.0.push(Grave::Timed(map));
        }
    }

    pub(super) fn by_id(&mut self, map: Ascending<MessageId, u32>) {
        if !map.is_empty() {
            self.0.push(Grave::ById(map));
        }
    }

    pub(super) fn by_turn(&mut self, map: BTreeMap<u64, u32>) {
        if !map.is_empty() {
            self.0.push(Grave::ByTurn(map));
        }
    }

    fn pop(&mut self) -> Option<u32> {
        while let Some(grave) = self.0.last_mut() {
            let slot = match grave {
                Grave::Ordered(map) => map.pop_first().map(|(_, slot)| slot),
                Grave::Timed(map) => map.pop_first().map(|(_, slot)| slot),
                Grave::ById(map) => map.pop_first().map(|(_, slot)| slot),
                Grave::ByTurn(map) => map.pop_first().map(|(_, slot)| slot),
            };
            if slot.is_some() {
                return slot;
            }
            self.0.pop();
        }
        None
    }
}

impl Durable {
    /// Frees up to `max` forgotten messages, then as much room of such as are
    /// gone; true if some is left.
    pub(crate) fn reap(&mut self, max: usize) -> bool {
        self.graves.dismantle(max);
        for _ in 0..max {
            let Some(slot) = self.graves.pop() else {
                return self.messages.give_back(max) || !self.graves.is_empty();
            };
            if let Some(message) = self.messages.remove(slot) {
                self.ids.remove(message.id.0);
                self.untie(message.id);
                if !message.home.is_run() {
                    self.uncount_home(message.home);
                    self.uncount_body(run_of_body(&message));
                }
                self.body_bytes -= Self::held_bytes(&message);
                if let Some(at) = message.ends() {
                    self.expiries.remove(&(at, message.id));
                }
            }
        }
        !self.graves.is_empty() || self.messages.has_old()
    }
}
