//! The beginning of a segment, written in slices, so that nobody waits for all of it.
//!
//! Replay may begin at a segment whose beginning is whole. In between, commands are decided. The
//! records of a queue stand before the first fact of the segment about it, as
//! [`Durable::restate_for`] puts them there. Records of tables, batches and tracks are absolute:
//! earlier facts about them may have had no effect on a replay.

use smallvec::SmallVec;

use super::{Durable, image};
use quintet_types::{BatchId, MessageId, Name, QueueId};

use crate::fact::Fact;

/// A number of the table of queues that no queue has, in bytes of a slice.
const EMPTY: u64 = 16;

/// The place from which the beginning goes on.
#[derive(Debug)]
pub(super) enum Restating {
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

    /// Begins the beginning of a segment: with runs, which standbys compare, up to the shard's
    /// counters. [`Durable::go_on_restating`] goes on.
    pub(super) fn begin_restating(&mut self, record: &mut dyn FnMut(&Fact)) {
        self.restate_round = self.restate_round.wrapping_add(1);
        self.restating = Some(Restating::Queues(0));
        self.restate_ids(record);
        // A block is in force in a queue that is there.
        for queue in self.queues_in_runs() {
            self.restate_queue(queue, record);
        }
        self.snapshot_runs(record);
        record(&self.shard_counted());
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
            Restating::Queues(at) => {
                let Some(queue) = self.queues.get(at) else {
                    return Some(Restating::Tables(None));
                };
                let size = queue.as_ref().map_or(0, |queue| queue.restated_bytes);
                *left = left.saturating_sub(size.max(EMPTY));
                self.restate_queue(QueueId::at(at), record);
                Restating::Queues(at + 1)
            }
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
        for queue in [fact.queue(), fact.other_queue()].into_iter().flatten() {
            self.restate_queue(queue, record);
        }
    }

    /// A queue, unless the segment has it already, with its children, whose order it knows.
    fn restate_queue(&mut self, id: QueueId, record: &mut dyn FnMut(&Fact)) {
        let round = self.restate_round;
        let (mut count, mut parents) = (Fact::IdMark(0), Vec::new());
        let mut open = SmallVec::<[QueueId; 4]>::from_elem(id, 1);
        while let Some(id) = open.pop() {
            let Some(queue) = self.queue_mut(id) else {
                continue;
            };
            let before = std::mem::replace(&mut queue.live.restated, round);
            // Of one that no record has yet, facts of this segment make all.
            if before == round || !queue.is_restated() {
                continue;
            }
            image::restate(queue, &mut count, record);
            if !queue.children.is_empty() {
                open.extend_from_slice(&queue.children);
                parents.push(id);
            }
        }
        for parent in parents.into_iter().filter_map(|id| self.queue(id)) {
            self.restate_children(parent, record);
        }
    }
}
