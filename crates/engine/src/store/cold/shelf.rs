//! A queue's stored blocks by order, and its counts of what is in them.

use std::collections::BTreeSet;

use crate::cold::{Block, BlockAt, Lane, Order};
use crate::message::MessageId;

/// The part of a queue that is in runs and not in memory. An index over the
/// runs' tables.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueCold {
    /// Stored blocks by their first message, for each lane.
    lanes: [BTreeSet<(Order, BlockAt)>; 5],
    /// Those of the ready lane by their last message.
    by_last: BTreeSet<(Order, BlockAt)>,
    /// Those of the ready lane with more than one rank, by their first message.
    spans: BTreeSet<(Order, BlockAt)>,
    /// Stored messages, by lane.
    counts: [u64; 5],
    pub(crate) urgent: u64,
    pub(crate) done: u64,
    pub(crate) bytes: u64,
    pub(crate) waiting_bytes: u64,
    /// Stored blocks with keys.
    pub(crate) keyed: u64,
    /// Loaded blocks.
    pub(crate) loaded: BTreeSet<BlockAt>,
}

impl QueueCold {
    /// Stored messages of a lane.
    pub(crate) fn count(&self, lane: Lane) -> u64 {
        self.counts[lane as usize]
    }

    /// Stored messages that wait.
    pub(crate) fn waiting(&self) -> u64 {
        [Lane::Ready, Lane::HeldBack, Lane::Delayed]
            .into_iter()
            .map(|lane| self.count(lane))
            .sum()
    }

    /// Nothing of it is in a run.
    pub(crate) fn is_empty(&self) -> bool {
        self.loaded.is_empty() && self.lanes.iter().all(BTreeSet::is_empty)
    }

    /// Enters a stored block.
    pub(crate) fn enter(&mut self, at: BlockAt, row: &Block) {
        self.lanes[row.lane as usize].insert((row.first, at));
        if row.lane == Lane::Ready {
            self.by_last.insert((row.last, at));
            if row.first.0 != row.last.0 {
                self.spans.insert((row.first, at));
            }
        }
        self.counts[row.lane as usize] += u64::from(row.live);
        self.urgent += u64::from(row.urgent);
        self.done += u64::from(row.done);
        self.bytes += row.bytes;
        if row.lane.is_waiting() {
            self.waiting_bytes += row.bytes;
        }
        self.keyed += u64::from(row.keyed);
    }

    /// Takes a stored block out.
    pub(crate) fn leave(&mut self, at: BlockAt, row: &Block) {
        self.lanes[row.lane as usize].remove(&(row.first, at));
        if row.lane == Lane::Ready {
            self.by_last.remove(&(row.last, at));
            self.spans.remove(&(row.first, at));
        }
        self.counts[row.lane as usize] -= u64::from(row.live);
        self.urgent -= u64::from(row.urgent);
        self.done -= u64::from(row.done);
        self.bytes -= row.bytes;
        if row.lane.is_waiting() {
            self.waiting_bytes -= row.bytes;
        }
        self.keyed -= u64::from(row.keyed);
    }

    /// One message of a stored block has left.
    pub(crate) fn thin(&mut self, lane: Lane, bytes: u64, urgent: bool, done: bool) {
        self.counts[lane as usize] -= 1;
        self.urgent -= u64::from(urgent);
        self.done -= u64::from(done);
        self.bytes -= bytes;
        if lane.is_waiting() {
            self.waiting_bytes -= bytes;
        }
    }

    /// The stored block of a lane that begins first.
    pub(crate) fn first(&self, lane: Lane) -> Option<(Order, BlockAt)> {
        self.lanes[lane as usize].first().copied()
    }

    /// All stored blocks of a lane, by their first message.
    pub(crate) fn blocks(&self, lane: Lane) -> impl Iterator<Item = &(Order, BlockAt)> {
        self.lanes[lane as usize].iter()
    }

    /// The stored block that may hold the newest ready message of a rank, and
    /// what stands in it at most.
    pub(crate) fn newest_of(&self, rank: u32) -> Option<(Order, BlockAt)> {
        let top = (rank, i64::MAX, MessageId(u64::MAX));
        let bottom = (rank, i64::MIN, MessageId(0));
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

    /// The highest rank that ready messages of stored blocks have.
    pub(crate) fn last_rank(&self) -> Option<u32> {
        self.by_last.last().map(|&((rank, ..), _)| rank)
    }
}

const LOWEST: BlockAt = BlockAt {
    run: crate::cold::RunId(0),
    ordinal: 0,
};
const HIGHEST: BlockAt = BlockAt {
    run: crate::cold::RunId(u32::MAX),
    ordinal: u32::MAX,
};
