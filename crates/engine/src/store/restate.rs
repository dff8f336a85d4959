//! The beginning of a segment, written in slices, so that nobody waits for all of it.
//!
//! Replay may begin at a segment whose beginning is whole. In between, commands are decided. The
//! records of a queue stand before the first fact of the segment about it, as
//! [`Durable::restate_for`] puts them there. Records of tables, batches and tracks are absolute:
//! earlier facts about them may have had no effect on a replay. So have those about a block of a
//! run before its image, which says what has left the block by then.

use super::{Durable, image, weight};
use quintet_types::{BatchId, MessageId, Name, QueueId};

use crate::cold::BlockAt;
use crate::fact::Fact;

/// A number of the table of queues that no queue has, in bytes of a slice.
const EMPTY: u64 = 16;
/// A queue that the segment has already, in bytes of a slice.
const KNOWN: u64 = 64;
/// The name of a child among its parent's, in bytes of a slice.
const CHILD: u64 = 64;

/// The place from which the beginning goes on.
#[derive(Debug)]
pub(super) enum Restating {
    /// Blocks behind this one. So many were named, if the shard's counters are not written yet.
    Runs(Option<BlockAt>, Option<u64>),
    Queues(usize),
    Tables(Option<(Name, Box<[u8]>)>),
    Batches(BatchId),
    Owed(BatchId),
    Tracks(MessageId),
}

impl Durable {
    pub(crate) fn is_restating(&self) -> bool {
        self.restating.is_some()
    }

    /// Begins the beginning of a segment: with the first block of a run or, if there is none, with
    /// the shard's counters. [`Durable::go_on_restating`] goes on.
    pub(super) fn begin_restating(&mut self, record: &mut dyn FnMut(&Fact)) {
        self.restate_round = self.restate_round.wrapping_add(1);
        self.restate_ids(record);
        self.restating = self.restate_next(Restating::Runs(None, Some(0)), &mut 0, record);
    }

    /// Goes on for about so many bytes. True if there is more.
    pub(super) fn go_on_restating(&mut self, bytes: u64, record: &mut dyn FnMut(&Fact)) -> bool {
        let mut left = bytes;
        while left > 0
            && let Some(next) = self.restating.take()
        {
            self.restating = self.restate_next(next, &mut left, record);
        }
        self.is_restating()
    }

    fn restate_next(
        &mut self,
        next: Restating,
        left: &mut u64,
        record: &mut dyn FnMut(&Fact),
    ) -> Option<Restating> {
        let next = match next {
            Restating::Runs(after, Some(named)) if named >= self.cold.blocks => {
                // Standbys compare how many were named with those in force. Of these some may
                // follow, for each that was named and has ended.
                record(&self.shard_counted());
                Restating::Runs(after, None)
            }
            Restating::Runs(after, named) => match self.cold.next_block(after) {
                Some(at) => {
                    *left = left.saturating_sub(self.restate_block(at, record));
                    Restating::Runs(Some(at), named.map(|named| named + 1))
                }
                // Others came meanwhile where all were named: some are named again.
                None if named.is_some() => Restating::Runs(None, named),
                None => Restating::Queues(0),
            },
            Restating::Queues(at) if at < self.queues.len() => {
                *left = left.saturating_sub(self.restate_queue(QueueId::at(at), record));
                Restating::Queues(at + 1)
            }
            Restating::Queues(_) => Restating::Tables(None),
            Restating::Tables(after) => match self.tables.restate(after, left, record) {
                Some(last) => Restating::Tables(Some(last)),
                None => Restating::Batches(BatchId(0)),
            },
            Restating::Batches(after) => match self.batches.restate(after, left, record) {
                Some(last) => Restating::Batches(last),
                None => Restating::Owed(BatchId(0)),
            },
            Restating::Owed(after) => match self.batches.restate_owed(after, left, record) {
                Some(last) => Restating::Owed(last),
                None => Restating::Tracks(MessageId(0)),
            },
            Restating::Tracks(after) => match self.tracks.restate(after, left, record) {
                Some(last) => Restating::Tracks(last),
                None => {
                    // Last, as making a queue counts it.
                    record(&self.shard_counted());
                    return None;
                }
            },
        };
        Some(next)
    }

    /// The queues that a fact names, before it.
    pub(super) fn restate_for(&mut self, fact: &Fact, record: &mut dyn FnMut(&Fact)) {
        while let Some(Restating::Runs(_, Some(named))) = self.restating
            && self.is_counted_before(named, fact)
        {
            self.go_on_restating(1, record);
        }
        for queue in [fact.queue(), fact.other_queue()].into_iter().flatten() {
            self.restate_queue(queue, record);
        }
    }

    /// True if the shard's counters have to come before this fact. Behind it fewer blocks could be
    /// in force than were named. Or counters come with it that no reader had to know: standbys of
    /// older versions compare all up to the shard's.
    fn is_counted_before(&self, named: u64, fact: &Fact) -> bool {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "others end one block at most, and come with no counters"
        )]
        let ends = match fact {
            Fact::RunGone(run) => self.cold.runs.get(run).map_or(0, |run| run.blocks.len()),
            Fact::QueueFlushed { queue, .. }
            | Fact::QueuePurged { queue, .. }
            | Fact::QueueDropped { queue, .. } => {
                let cold = self.queue(*queue).and_then(|queue| queue.cold.as_ref());
                // In each block that cannot be read there is a message at least.
                let damaged = usize::try_from(self.cold.damaged).unwrap_or(usize::MAX);
                damaged.saturating_add(cold.map_or(0, |cold| cold.block_count()))
            }
            Fact::Moved { at, .. } if self.is_shared => {
                let queue = self.queue(at.queue);
                match queue.is_some_and(|queue| queue.live.settings.memory) {
                    true => usize::MAX,
                    false => 1,
                }
            }
            _ => 1,
        };
        named.saturating_add(ends.max(1) as u64) > self.cold.blocks
    }

    /// Writes a block of a run, behind its queue. Returns its bytes of a slice.
    fn restate_block(&mut self, at: BlockAt, record: &mut dyn FnMut(&Fact)) -> u64 {
        let queue = self.cold.block(at).map(|block| block.row.queue);
        let bytes = queue.map_or(0, |queue| self.restate_queue(queue, record));
        if let Some(block) = self.cold.block(at) {
            record(&block.image(at.run));
        }
        bytes + weight::BLOCK
    }

    /// Writes a queue, unless the segment has it already, and the names of its children, whose
    /// order it knows. Their own records follow. Returns its bytes of a slice.
    fn restate_queue(&mut self, id: QueueId, record: &mut dyn FnMut(&Fact)) -> u64 {
        let round = self.restate_round;
        let Some(queue) = self.queue_mut(id) else {
            // A free number, or one that the next fact makes.
            return EMPTY;
        };
        let before = std::mem::replace(&mut queue.live.restated, round);
        // Of one that no record has yet, facts of this segment make all.
        if before == round || !queue.is_restated() {
            return KNOWN;
        }
        image::restate(queue, &mut Fact::IdMark(0), record);
        let queue = self.expect_queue(id);
        self.restate_children(queue, record);
        queue.restated_bytes + queue.children.len() as u64 * CHILD
    }
}
