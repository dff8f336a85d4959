//! A queue's stored blocks by order, and its counts of what is in them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound as Edge;

use quintet_types::{MessageId, Order, StateIndex};

use crate::cold::{Block, BlockAt};
use crate::store::key_groups::Survey;
use crate::store::keyed::Keyed;
use crate::store::sums::Sums;
use crate::store::{Durable, Queue};

/// The part of a queue that is in runs and not in memory. An index over the
/// runs' tables.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueCold {
    /// Last messages of stored blocks by the first ones, for each state index.
    state_indexes: [BTreeMap<(Order, BlockAt), Order>; 5],
    /// The blocks among them that end behind all blocks that begin before them: in the order of
    /// their first messages, and so of their last ones too.
    farthest: [VecDeque<((Order, BlockAt), Order)>; 5],
    /// Sums of its stored blocks.
    pub(crate) sums: Shelved,
    pub(crate) loaded: BTreeSet<BlockAt>,
}

/// Numbers of stored messages, of a queue or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shelved {
    /// By state index.
    counts: [u64; 5],
    pub(crate) urgent: u64,
    pub(crate) done: u64,
    /// Delayed ones that have failed.
    pub(crate) retrying: u64,
    pub(crate) bytes: u64,
    pub(crate) waiting_bytes: u64,
    /// Stored blocks with keys.
    pub(crate) keyed: u64,
}

impl Shelved {
    pub(crate) fn count(&self, state_index: StateIndex) -> u64 {
        self.counts[state_index as usize]
    }

    pub(crate) fn all(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum += count;
        }
        self.urgent += other.urgent;
        self.done += other.done;
        self.retrying += other.retrying;
        self.bytes += other.bytes;
        self.waiting_bytes += other.waiting_bytes;
        self.keyed += other.keyed;
    }

    /// The counter of the blocks of a state index that are counted apart ([`Block::apart`]).
    fn apart(&mut self, state_index: StateIndex) -> &mut u64 {
        match state_index {
            StateIndex::Delayed => &mut self.retrying,
            // None is, in the others.
            StateIndex::Ready
            | StateIndex::NotSelectable
            | StateIndex::Buried
            | StateIndex::Archived => &mut self.done,
        }
    }

    fn enter(&mut self, row: &Block) {
        self.counts[row.state_index as usize] += u64::from(row.live);
        self.urgent += u64::from(row.urgent);
        *self.apart(row.state_index) += u64::from(row.apart);
        self.bytes += row.bytes;
        if row.state_index.is_waiting() {
            self.waiting_bytes += row.bytes;
        }
        self.keyed += u64::from(row.keyed);
    }

    fn leave(&mut self, row: &Block) {
        self.counts[row.state_index as usize] -= u64::from(row.live);
        self.urgent -= u64::from(row.urgent);
        *self.apart(row.state_index) -= u64::from(row.apart);
        self.bytes -= row.bytes;
        if row.state_index.is_waiting() {
            self.waiting_bytes -= row.bytes;
        }
        self.keyed -= u64::from(row.keyed);
    }

    /// One message of a stored block has left.
    fn thin(&mut self, state_index: StateIndex, bytes: u64, urgent: bool, apart: bool) {
        self.counts[state_index as usize] -= 1;
        self.urgent -= u64::from(urgent);
        *self.apart(state_index) -= u64::from(apart);
        self.bytes -= bytes;
        if state_index.is_waiting() {
            self.waiting_bytes -= bytes;
        }
    }
}

impl Durable {
    /// The queue of a stored block, the sums over all queues, and the message groups.
    fn shelf(&mut self, row: &Block) -> Option<(&mut Queue, &mut Sums, &mut Keyed)> {
        let queue = self.queues.get_mut(row.queue.0 as usize)?;
        Some((queue, &mut self.sums, &mut self.keyed))
    }

    /// Counts a stored block among its queue's. `survey`: what its message groups
    /// are to remember of it.
    pub(super) fn shelve(&mut self, at: BlockAt, row: &Block, survey: Option<Survey>) {
        if let Some((queue, sums, keyed)) = self.shelf(row) {
            queue.cold_mut().enter(at, row);
            queue.count_bytes(row.bytes, 0);
            sums.shelved.enter(row);
            keyed.change(queue, |groups| groups.shelve(at, row, survey));
        }
    }

    /// Takes it out again.
    pub(super) fn unshelve(&mut self, at: BlockAt, row: &Block) {
        if let Some((queue, sums, keyed)) = self.shelf(row) {
            queue.cold_mut().leave(at, row);
            queue.count_bytes(0, row.bytes);
            sums.shelved.leave(row);
            keyed.change(queue, |groups| groups.unshelve(at, row));
        }
    }

    /// One message of a stored block has left.
    pub(super) fn thin(&mut self, at: BlockAt, row: &Block, bytes: u64, urgent: bool, apart: bool) {
        if let Some((queue, sums, keyed)) = self.shelf(row) {
            let cold = queue.cold_mut();
            cold.sums.thin(row.state_index, bytes, urgent, apart);
            queue.count_bytes(0, bytes);
            sums.shelved.thin(row.state_index, bytes, urgent, apart);
            keyed.change(queue, |groups| groups.thin(at, row));
        }
    }
}

impl QueueCold {
    /// Its blocks, stored and loaded.
    pub(crate) fn block_count(&self) -> usize {
        self.state_indexes.iter().map(BTreeMap::len).sum::<usize>() + self.loaded.len()
    }

    /// Stored messages of a state index.
    pub(crate) fn count(&self, state_index: StateIndex) -> u64 {
        self.sums.count(state_index)
    }

    /// Stored messages that wait.
    pub(crate) fn waiting(&self) -> u64 {
        [
            StateIndex::Ready,
            StateIndex::NotSelectable,
            StateIndex::Delayed,
        ]
        .into_iter()
        .map(|state_index| self.count(state_index))
        .sum()
    }

    /// Nothing of it is in a run.
    pub(crate) fn is_empty(&self) -> bool {
        self.loaded.is_empty() && self.state_indexes.iter().all(BTreeMap::is_empty)
    }

    /// Enters a stored block.
    pub(crate) fn enter(&mut self, at: BlockAt, row: &Block) {
        let (key, of) = ((row.first, at), row.state_index as usize);
        self.state_indexes[of].insert(key, row.last);
        let farthest = &mut self.farthest[of];
        let here = farthest.partition_point(|(other, _)| *other < key);
        let before = here.checked_sub(1).and_then(|before| farthest.get(before));
        if before.is_none_or(|(_, last)| *last < row.last) {
            let behind = farthest.partition_point(|(_, last)| *last <= row.last);
            farthest.drain(here..behind);
            farthest.insert(here, (key, row.last));
        }
        self.sums.enter(row);
    }

    /// Takes a stored block out.
    fn leave(&mut self, at: BlockAt, row: &Block) {
        let (key, of) = ((row.first, at), row.state_index as usize);
        let was = self.state_indexes[of].remove(&key);
        assert!(
            was.is_some(),
            "a stored block is in its state index by its first message"
        );
        let farthest = &mut self.farthest[of];
        if let Ok(mut here) = farthest.binary_search_by_key(&key, |(other, _)| *other) {
            farthest.remove(here);
            let before = here.checked_sub(1).and_then(|before| farthest.get(before));
            let mut most = before.map(|(_, last)| *last);
            let next = farthest.get(here).map(|(next, _)| *next);
            let next = next.map_or(Edge::Unbounded, Edge::Excluded);
            // Those that only this one ended behind.
            for (&key, &last) in self.state_indexes[of].range((Edge::Excluded(key), next)) {
                if most.is_none_or(|most| most < last) {
                    farthest.insert(here, (key, last));
                    (here, most) = (here + 1, Some(last));
                }
            }
        }
        self.sums.leave(row);
    }

    /// The stored block of a state index that begins first.
    pub(crate) fn first(&self, state_index: StateIndex) -> Option<(Order, BlockAt)> {
        let first = self.state_indexes[state_index as usize].first_key_value();
        first.map(|(&key, _)| key)
    }

    /// Stored blocks of a state index that stand behind one of it.
    pub(crate) fn blocks_behind(
        &self,
        state_index: StateIndex,
        last: Option<(Order, BlockAt)>,
    ) -> impl Iterator<Item = (Order, BlockAt)> {
        let from = last.map_or(Edge::Unbounded, Edge::Excluded);
        self.state_indexes[state_index as usize]
            .range((from, Edge::Unbounded))
            .map(|(&key, _)| key)
    }

    /// All stored blocks of a state index, by their first message.
    pub(crate) fn blocks(
        &self,
        state_index: StateIndex,
    ) -> impl Iterator<Item = &(Order, BlockAt)> {
        self.state_indexes[state_index as usize].keys()
    }

    /// The stored block of a state index that may hold what stands next behind `after`, and where
    /// that may be at the earliest.
    pub(crate) fn next(
        &self,
        state_index: StateIndex,
        after: Option<Order>,
    ) -> Option<(Order, BlockAt)> {
        let Some(after) = after else {
            // From the beginning.
            return self.first(state_index);
        };
        let farthest = &self.farthest[state_index as usize];
        let behind = farthest.partition_point(|(_, last)| *last <= after);
        let &((first, at), _) = farthest.get(behind)?;
        Some((first.max(after), at))
    }

    /// The stored block of a state index that may hold what stands next before `before`, and where
    /// that may be at the latest.
    pub(crate) fn previous(
        &self,
        state_index: StateIndex,
        before: Option<Order>,
    ) -> Option<(Order, BlockAt)> {
        let before = before.unwrap_or((u32::MAX, i64::MAX, MessageId(u64::MAX)));
        let farthest = &self.farthest[state_index as usize];
        let begun = farthest.partition_point(|((first, _), _)| *first < before);
        let &((_, at), last) = farthest.get(begun.checked_sub(1)?)?;
        Some((last.min(before), at))
    }

    /// The stored block that may hold the newest ready message of a priority, and
    /// what stands in it at most.
    pub(crate) fn newest_of(&self, priority: u32) -> Option<(Order, BlockAt)> {
        let top = (priority, i64::MAX, MessageId(u64::MAX));
        let newest = self.previous(StateIndex::Ready, Some(top));
        newest.filter(|&((found, ..), _)| found == priority)
    }

    /// The highest priority that ready messages of stored blocks have.
    pub(crate) fn last_priority(&self) -> Option<u32> {
        let last = self.previous(StateIndex::Ready, None);
        last.map(|((priority, ..), _)| priority)
    }
}

#[cfg(test)]
mod tests {
    use quintet_types::{QueueId, RunId};

    use super::*;

    #[test]
    fn neighbours_of_a_place_are_found_among_blocks_that_overlap() {
        let mut seed = 1u64;
        let mut below = |bound: u64| {
            seed = seed.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            (seed >> 33) % bound
        };
        let mut cold = QueueCold::default();
        let mut all: Vec<(BlockAt, Block)> = Vec::new();
        for ordinal in 0..5000 {
            let mut order = |priority: u32, id: u64| {
                let position = i64::try_from(below(100)).expect("small");
                (priority + u32::from(below(4) == 3), position, MessageId(id))
            };
            if all.len() < 5 || (all.len() < 30 && order(0, 0).1 < 50) {
                let mut row = Block::new(0, ordinal, QueueId(0), StateIndex::Ready);
                row.first = order(ordinal % 3, 1);
                row.last = order(row.first.0, 2);
                row.last.1 += row.first.1;
                let run = RunId(1 + ordinal % 4);
                all.push((BlockAt { run, ordinal }, row));
                cold.enter(BlockAt { run, ordinal }, &row);
            } else {
                let (at, row) = all.swap_remove(ordinal as usize % all.len());
                cold.leave(at, &row);
            }
            let mut anew = QueueCold::default();
            all.iter().for_each(|(at, row)| anew.enter(*at, row));
            assert_eq!(anew, cold, "whatever came and left before");

            let place = order(ordinal % 3, 3);
            let behind = all.iter().filter(|(_, row)| row.last > place);
            let next = behind.map(|(at, row)| ((row.first, *at), row.first.max(place)));
            let next = next.min().map(|((_, at), order)| (order, at));
            assert_eq!(cold.next(StateIndex::Ready, Some(place)), next);
            let begun = all.iter().filter(|(_, row)| row.first < place);
            let last = begun.map(|(_, row)| row.last.min(place)).max();
            let found = cold.previous(StateIndex::Ready, Some(place));
            assert_eq!(found.map(|(order, _)| order), last);
            let row = |at: BlockAt| all.iter().find(|(other, _)| *other == at);
            if let Some((order, at)) = found {
                let (_, row) = row(at).expect("it is there");
                assert!(row.first < place && row.last >= order);
            }
            let ends = all.iter().map(|(_, row)| row.last);
            assert_eq!(cold.last_priority(), ends.max().map(|order| order.0));
            let least = all.iter().map(|(_, row)| row.first.0).min();
            let newest = least.and_then(|priority| cold.newest_of(priority));
            assert_eq!(newest.map(|(order, _)| order.0), least);
        }
    }
}
