//! A queue's stored blocks by order, and its counts of what is in them.

use std::collections::BTreeSet;
use std::ops::Bound as Edge;

use quintet_types::{MessageId, Order, StateIndex};

use crate::cold::{Block, BlockAt};
use crate::store::Durable;
use crate::store::key_groups::Survey;

/// The part of a queue that is in runs and not in memory. An index over the
/// runs' tables.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueCold {
    /// Stored blocks by their first message, for each state index.
    state_indexes: [BTreeSet<(Order, BlockAt)>; 5],
    /// Those of the ready state index by their last message.
    by_last: BTreeSet<(Order, BlockAt)>,
    /// Those of the ready state index with more than one priority, by their first message.
    spans: BTreeSet<(Order, BlockAt)>,
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
    /// Counts a stored block among its queue's. `survey`: what its message groups
    /// are to remember of it.
    pub(super) fn shelve(&mut self, at: BlockAt, row: &Block, survey: Option<Survey>) {
        let Self {
            queues,
            sums,
            keyed,
            ..
        } = self;
        let queue = queues.get_mut(row.queue.0 as usize);
        if let Some(queue) = queue.and_then(Option::as_deref_mut) {
            queue.cold_mut().enter(at, row);
            queue.count_bytes(row.bytes, 0);
            sums.shelved.enter(row);
            keyed.change(queue, |groups| groups.shelve(at, row, survey));
        }
    }

    /// Takes it out again.
    pub(super) fn unshelve(&mut self, at: BlockAt, row: &Block) {
        let Self {
            queues,
            sums,
            keyed,
            ..
        } = self;
        let queue = queues.get_mut(row.queue.0 as usize);
        if let Some(queue) = queue.and_then(Option::as_deref_mut) {
            queue.cold_mut().leave(at, row);
            queue.count_bytes(0, row.bytes);
            sums.shelved.leave(row);
            keyed.change(queue, |groups| groups.unshelve(at, row));
        }
    }

    /// One message of a stored block has left.
    pub(super) fn thin(&mut self, at: BlockAt, row: &Block, bytes: u64, urgent: bool, apart: bool) {
        let Self {
            queues,
            sums,
            keyed,
            ..
        } = self;
        let queue = queues.get_mut(row.queue.0 as usize);
        if let Some(queue) = queue.and_then(Option::as_deref_mut) {
            let cold = queue.cold_mut();
            cold.sums.thin(row.state_index, bytes, urgent, apart);
            queue.count_bytes(0, bytes);
            sums.shelved.thin(row.state_index, bytes, urgent, apart);
            keyed.change(queue, |groups| groups.thin(at, row));
        }
    }
}

impl QueueCold {
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
        self.loaded.is_empty() && self.state_indexes.iter().all(BTreeSet::is_empty)
    }

    /// Enters a stored block.
    pub(crate) fn enter(&mut self, at: BlockAt, row: &Block) {
        self.state_indexes[row.state_index as usize].insert((row.first, at));
        if row.state_index == StateIndex::Ready {
            self.by_last.insert((row.last, at));
            if row.first.0 != row.last.0 {
                self.spans.insert((row.first, at));
            }
        }
        self.sums.enter(row);
    }

    /// Takes a stored block out.
    fn leave(&mut self, at: BlockAt, row: &Block) {
        let was = self.state_indexes[row.state_index as usize].remove(&(row.first, at));
        assert!(
            was,
            "a stored block is in its state index by its first message"
        );
        if row.state_index == StateIndex::Ready {
            let was = self.by_last.remove(&(row.last, at));
            assert!(
                was,
                "a stored block is in its state index by its last message"
            );
            self.spans.remove(&(row.first, at));
        }
        self.sums.leave(row);
    }

    /// The stored block of a state index that begins first.
    pub(crate) fn first(&self, state_index: StateIndex) -> Option<(Order, BlockAt)> {
        self.state_indexes[state_index as usize].first().copied()
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
            .copied()
    }

    /// All stored blocks of a state index, by their first message.
    pub(crate) fn blocks(
        &self,
        state_index: StateIndex,
    ) -> impl Iterator<Item = &(Order, BlockAt)> {
        self.state_indexes[state_index as usize].iter()
    }

    /// The stored block that may hold the newest ready message of a priority, and
    /// what stands in it at most.
    pub(crate) fn newest_of(&self, priority: u32) -> Option<(Order, BlockAt)> {
        let top = (priority, i64::MAX, MessageId(u64::MAX));
        let bottom = (priority, i64::MIN, MessageId(0));
        let spanning = self
            .spans
            .range((bottom, LOWEST)..=(top, HIGHEST))
            .next_back()
            .map(|&(_, at)| (top, at));
        spanning.or_else(|| {
            self.by_last
                .range((bottom, LOWEST)..=(top, HIGHEST))
                .next_back()
                .copied()
        })
    }

    /// The highest priority that ready messages of stored blocks have.
    pub(crate) fn last_priority(&self) -> Option<u32> {
        self.by_last.last().map(|&((priority, ..), _)| priority)
    }
}

const LOWEST: BlockAt = BlockAt {
    run: quintet_types::RunId(0),
    ordinal: 0,
};
const HIGHEST: BlockAt = BlockAt {
    run: quintet_types::RunId(u32::MAX),
    ordinal: u32::MAX,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::damaged::fires;

    #[test]
    fn a_damaged_order_of_last_messages_is_noticed() {
        let row = Block::new(0, 0, quintet_types::QueueId(0), StateIndex::Ready);
        let mut cold = QueueCold::default();
        cold.enter(LOWEST, &row);
        cold.by_last.clear();
        fires(
            "a stored block is in its state index by its last message",
            || {
                cold.leave(LOWEST, &row);
            },
        );
    }
}
