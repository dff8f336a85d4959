//! Messages that a flush or a drop has detached, freed a slice at a time: a flush of ten million
//! messages answers at once and stops nobody.

use std::collections::BTreeMap;

use super::cold::run_of_body;
use super::ends::EndStep;
use super::{Ascending, DedupeKey, Durable, KeyGroups, Order};
use quintet_types::{MessageId, Ms, QueueId, State};

#[derive(Debug)]
enum Tombstone {
    Ordered(Ascending<Order, u32>),
    Timed(BTreeMap<(Ms, MessageId), u32>),
    ById(Ascending<MessageId, u32>),
    ByTurn(BTreeMap<u64, u32>),
    /// Reserved ones: their leases are over, and still in the indexes of leases.
    Held(Ascending<MessageId, u32>),
}

/// Detached maps whose messages are forgotten but still use memory.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "as their queues had them")]
pub(crate) struct Tombstones {
    list: Vec<(EndStep, Tombstone)>,
    /// The step whose maps are entered.
    step: EndStep,
    groups: Vec<Box<KeyGroups>>,
    /// Queues whose deduplication records are to be looked through, each behind this one or from
    /// its first.
    dedupe_records: BTreeMap<QueueId, Option<DedupeKey>>,
    /// Messages among them that were reserved.
    held: usize,
}

impl Tombstones {
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty() && self.groups.is_empty() && self.dedupe_records.is_empty()
    }

    /// The maps that are entered from now on were detached in this step.
    pub(super) fn happen(&mut self, step: EndStep) {
        self.step = step;
    }

    fn push(&mut self, tombstone: Tombstone) {
        self.list.push((self.step, tombstone));
    }

    pub(super) fn groups(&mut self, groups: Box<KeyGroups>) {
        self.groups.push(groups);
    }

    /// Frees up to `max` entries of groups.
    fn dismantle(&mut self, max: usize) {
        if let Some(groups) = self.groups.last_mut()
            && !groups.dismantle(max)
        {
            self.groups.pop();
        }
    }

    pub(super) fn ordered(&mut self, map: Ascending<Order, u32>) {
        if !map.is_empty() {
            self.push(Tombstone::Ordered(map));
        }
    }

    pub(super) fn timed(&mut self, map: BTreeMap<(Ms, MessageId), u32>) {
        if !map.is_empty() {
            self.push(Tombstone::Timed(map));
        }
    }

    pub(super) fn by_id(&mut self, map: Ascending<MessageId, u32>) {
        if !map.is_empty() {
            self.push(Tombstone::ById(map));
        }
    }

    pub(super) fn by_turn(&mut self, map: BTreeMap<u64, u32>) {
        if !map.is_empty() {
            self.push(Tombstone::ByTurn(map));
        }
    }

    pub(super) fn held(&mut self, map: Ascending<MessageId, u32>) {
        self.held += map.len();
        if !map.is_empty() {
            self.push(Tombstone::Held(map));
        }
    }

    pub(super) fn dedupe_records(&mut self, queue: QueueId, after: Option<DedupeKey>) {
        self.dedupe_records.insert(queue, after);
    }

    /// The next queue whose deduplication records are to be looked through.
    pub(super) fn take_dedupe(&mut self) -> Option<(QueueId, Option<DedupeKey>)> {
        self.dedupe_records.pop_last()
    }

    /// True if there are leases whose messages are gone.
    pub(crate) fn hold_leases(&self) -> bool {
        self.held > 0
    }

    /// A slot, and the step that detached it.
    fn pop(&mut self) -> Option<(EndStep, u32)> {
        while let Some((step, tombstone)) = self.list.last_mut() {
            let step = *step;
            let slot = match tombstone {
                Tombstone::Ordered(map) => map.pop_first().map(|(_, slot)| slot),
                Tombstone::Timed(map) => map.pop_first().map(|(_, slot)| slot),
                Tombstone::ById(map) => map.pop_first().map(|(_, slot)| slot),
                Tombstone::ByTurn(map) => map.pop_first().map(|(_, slot)| slot),
                Tombstone::Held(map) => {
                    let slot = map.pop_first().map(|(_, slot)| slot);
                    let counted = slot.is_none() || self.held > 0;
                    assert!(counted, "a purged message is counted until its lease ends");
                    self.held -= usize::from(slot.is_some());
                    slot
                }
            };
            if let Some(slot) = slot {
                return Some((step, slot));
            }
            self.list.pop();
        }
        None
    }
}

impl Durable {
    /// Frees up to `max` forgotten messages, then as much room of such as are
    /// gone; true if some is left.
    pub(crate) fn collect(&mut self, max: usize) -> bool {
        self.tombstones.dismantle(max);
        self.free_dedupe(max);
        for _ in 0..max {
            let Some((step, slot)) = self.tombstones.pop() else {
                // All that was forgotten is freed.
                return self.messages.give_back(max) || !self.tombstones.is_empty();
            };
            let message = self.messages.remove(slot);
            let message = message.expect("what a flush has forgotten stays until it is freed");
            if message.state == State::Reserved {
                self.unname(slot, &message);
                self.lease_out(slot, message.id);
            }
            self.ids.remove(message.id.0);
            self.ends.add_with_queue(step, message.id, message.queue);
            self.untie(message.id);
            self.lose_dependent(message.id);
            if !message.segment_ref.is_run() {
                self.uncount_segment_ref(message.segment_ref);
                self.uncount_body(run_of_body(&message));
            }
            self.body_bytes -= Self::held_bytes(&message);
            if let Some(at) = message.ends() {
                self.expiries.remove(&(at, message.id));
            }
        }
        !self.tombstones.is_empty() || self.messages.has_old()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purged_lease_that_is_not_counted_is_noticed() {
        let mut tombstones = Tombstones::default();
        let mut map = Ascending::default();
        map.insert(MessageId(1), 7);
        tombstones.held(map);
        tombstones.held = 0;
        let reason = "a purged message is counted until its lease ends";
        crate::store::damaged::fires(reason, || assert!(tombstones.pop().is_none()));
    }

    #[test]
    fn forgotten_dedupe_records_block_no_message_and_their_queue_is_listed_once() {
        let mut tombstones = Tombstones::default();
        tombstones.timed(BTreeMap::from([((Ms(1), MessageId(1)), 7)]));
        for _ in 0..3 {
            tombstones.dedupe_records(QueueId(1), None);
        }
        assert_eq!(tombstones.pop().map(|(_, slot)| slot), Some(7));
        assert!(tombstones.pop().is_none());
        assert!(!tombstones.is_empty());
        assert_eq!(tombstones.take_dedupe(), Some((QueueId(1), None)));
        assert_eq!(tombstones.take_dedupe(), None);
        assert!(tombstones.is_empty());
    }
}
