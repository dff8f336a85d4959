//! Writing durable state again, so that old segments of the log can go.

use super::{DedupeKey, Durable, Memory, Queue};
use quintet_types::{BatchId, Body, LargeBody, MessageId, Name, QueueId, QueueTotals, SegmentRef};

use crate::fact::{Fact, ShardCounts};

/// Bytes of messages that are copied out of a segment in one step, about.
pub(super) const COPIED_BYTES: u64 = 128 << 10;

/// Result of copying out a slice.
#[derive(Debug, Default)]
pub struct CopiedOut {
    /// Start of the next slice; `None`: all was looked at.
    pub next: Option<u32>,
    pub images: u64,
    /// Large bodies with a chunk in the segment: their owner copies the chunks,
    /// sets their places, and copies out again.
    pub large: Vec<LargeBody>,
}

impl Durable {
    /// The facts that every segment begins with: queue table, settings,
    /// pauses, counters and the id mark. Messages are not among them: those
    /// whose segment goes are imaged one by one.
    pub(crate) fn snapshot(&self, record: &mut dyn FnMut(&Fact)) {
        self.restate_ids(record);
        let (mut count, mut left) = (Fact::IdMark(0), u64::MAX);
        // Looked at once: there may be many, and each takes some lines of the processor's cache.
        let mut parents = Vec::new();
        let queues = self.queues.iter();
        for queue in queues.filter(|queue| queue.is_restated()) {
            if !queue.children.is_empty() {
                parents.push(queue);
            }
            restate(queue, &mut count, record);
        }
        // When all are there, as a child may be older than its parent.
        for parent in parents {
            self.restate_children(parent, record);
        }
        self.snapshot_runs(record);
        self.tables.restate(None, &mut left, record);
        self.batches.restate(BatchId(0), &mut left, record);
        self.batches.restate_owed(BatchId(0), &mut left, record);
        self.tracks.restate(MessageId(0), &mut left, record);
        // Last, as making a queue counts it.
        record(&self.shard_counted());
    }

    /// How far ids are used, and the key of hashes.
    pub(super) fn restate_ids(&self, record: &mut dyn FnMut(&Fact)) {
        record(&Fact::IdMark(self.next_id.max(self.marked)));
        if let Some(key) = self.hash_key {
            record(&Fact::HashKey(key));
        }
    }

    /// The children of a queue, which have their own records, in the order they joined, as copies
    /// are made in that order.
    pub(super) fn restate_children(&self, parent: &Queue, record: &mut dyn FnMut(&Fact)) {
        for child in &parent.children {
            if let Some(child) = self.queue(*child)
                && !child.live.settings.memory
            {
                record(&Fact::QueueMade {
                    queue: child.id,
                    name: child.name.clone(),
                    parent: Some(parent.id),
                    created: child.created,
                });
            }
        }
    }

    /// The shard's counters. Dropped queues of which something is still reserved are not written,
    /// so they count as gone.
    pub(super) fn shard_counted(&self) -> Fact {
        let mut gone = self.counts.gone;
        let ghosts = self.ghosts.iter().filter_map(|&id| self.queue(id));
        for ghost in ghosts.filter(|ghost| !ghost.live.settings.memory) {
            gone.add(&ghost.totals);
        }
        Fact::ShardCounted(Box::new(ShardCounts {
            gone: durable(gone),
            ..self.counts
        }))
    }

    /// A queue's totals and counters as the log holds them.
    pub(crate) fn counted(&self, queue: QueueId) -> Option<Fact> {
        self.queue(queue).map(counted)
    }

    /// Images of messages and deduplication records that live in `segment_ref`, into segment
    /// `into`; looks at up to `max` slots from `from` on, and ends behind [`COPIED_BYTES`].
    pub(crate) fn copy_out(
        &mut self,
        segment_ref: SegmentRef,
        into: SegmentRef,
        from: u32,
        max: u32,
        record: &mut dyn FnMut(&Fact, bool),
    ) -> CopiedOut {
        let mut copied = CopiedOut::default();
        let mut bytes = 0;
        let end = self.messages.bound().min(from.saturating_add(max));
        for slot in from..end {
            if bytes >= COPIED_BYTES {
                copied.next = Some(slot);
                return copied;
            }
            let Some(message) = self.messages.get(slot) else {
                // A free slot.
                continue;
            };
            if message.segment_ref != segment_ref || !self.is_alive(message) {
                continue;
            }
            if message.doomed {
                // Nobody will miss it after a restart, and it must not hold
                // the segment until somebody settles it.
                let id = message.id;
                self.rehome(id, into);
                continue;
            }
            if let Body::Large(large) = &message.body
                && large.segment_ref() <= segment_ref.0
            {
                copied.large.push(large.clone());
                continue;
            }
            let memory = self
                .queue(message.queue)
                .is_some_and(|q| q.live.settings.memory);
            let lease = self.leases.get(&slot).copied().map(Box::new);
            record(&Fact::Image(message.clone(), lease), memory);
            copied.images += 1;
            bytes += message.size();
            let id = message.id;
            self.rehome(id, into);
        }
        if end < self.messages.bound() {
            copied.next = Some(end);
        } else {
            if !self.dependencies.is_copying(segment_ref) {
                copied.images += self.copy_outbox(segment_ref, into, record);
                self.copy_dedupe(segment_ref, into, record);
            }
            if self.copy_dependencies(segment_ref, into, record) {
                copied.next = Some(end);
            }
        }
        copied
    }

    fn copy_dedupe(
        &mut self,
        segment_ref: SegmentRef,
        into: SegmentRef,
        record: &mut dyn FnMut(&Fact, bool),
    ) {
        let here = self
            .dedupe_records
            .iter()
            .filter(|(_, memory)| memory.segment_ref == segment_ref);
        let keys: Vec<DedupeKey> = here.map(|(key, _)| key.clone()).collect();
        for key in keys {
            let queue = self.queue(key.0).filter(|queue| !queue.live.dropped);
            let of_memory = queue.map(|queue| queue.live.settings.memory);
            let (Some(of_memory), false) = (of_memory, self.is_flushed(&key)) else {
                // Deduplication records go with their queue. The end of those that a flush took is
                // recorded here.
                self.forget(&key);
                continue;
            };
            if let Some(memory) = self.dedupe_records.get_mut(&key) {
                memory.segment_ref = into;
                record(&remembered(&key, memory), of_memory);
                self.count_segment_ref(into);
                self.uncount_segment_ref(segment_ref);
            }
        }
    }

    /// Durable state as comparable facts, in a fixed order: what a restart
    /// must give again. For tests and `quintet check`.
    pub(crate) fn image(&self) -> Vec<Fact> {
        let mut facts = Vec::new();
        self.snapshot(&mut |fact| facts.push(fact.clone()));
        for (_, slot) in self.ids.after(0) {
            let message = self.messages.at(slot);
            // What is in a run is recorded there.
            if message.segment_ref.is_run() {
                continue;
            }
            if message.doomed || !self.is_alive(message) || !self.is_logged(message.queue) {
                continue;
            }
            let mut message = message.clone();
            message.segment_ref = SegmentRef(0);
            message.generation = 0;
            message.ordinal = 0;
            let lease = self.leases.get(&slot).copied().map(Box::new);
            facts.push(Fact::Image(message, lease));
        }
        for sent in &self.outbox {
            let mut message = sent.message.clone();
            message.segment_ref = SegmentRef(0);
            message.generation = 0;
            message.ordinal = 0;
            facts.push(Fact::SentImage(message, sent.to.clone()));
        }
        let dedupe_records = self.dedupe_records.iter();
        let dedupe_records =
            dedupe_records.filter(|(key, _)| self.is_logged(key.0) && !self.is_flushed(key));
        facts.extend(dedupe_records.map(|(key, memory)| remembered(key, memory)));
        self.dependencies
            .image(&mut |fact| facts.push(fact.clone()));
        facts
    }

    /// True if the queue exists and survives a restart.
    pub(crate) fn is_logged(&self, queue: QueueId) -> bool {
        self.queue(queue)
            .is_some_and(|queue| !queue.live.dropped && !queue.live.settings.memory)
    }

    /// The queue's name for messages about it.
    pub(crate) fn name_of(&self, queue: QueueId) -> Name {
        self.queue(queue)
            .map_or_else(Name::default, |queue| queue.name.clone())
    }
}

/// A queue without its children. `count` is written over.
pub(super) fn restate(of: &Queue, count: &mut Fact, record: &mut dyn FnMut(&Fact)) {
    let (queue, pause) = (of.id, of.pause);
    record(&Fact::QueueMade {
        queue,
        name: of.name.clone(),
        parent: None,
        created: of.created,
    });
    if let Some(maker) = of.maker.clone() {
        record(&Fact::QueueMaker { queue, maker });
    }
    if let Some(overrides) = of.overrides.clone() {
        record(&Fact::QueueConfigured { queue, overrides });
    }
    if pause.is_some() {
        record(&Fact::QueuePaused { queue, pause });
    }
    let clock = of.aging.as_deref().copied();
    if clock.is_some() {
        record(&Fact::AgingSet { queue, clock });
    }
    for held in of.held_keys.iter().flat_map(|held| held.iter()) {
        record(&Fact::KeyHeld {
            queue,
            key: held.key.as_ref().into(),
            now: held.since,
            until: Some(held.until),
        });
    }
    count_into(of, count);
    record(count);
}

fn counted(queue: &Queue) -> Fact {
    Fact::QueueCounted {
        queue: queue.id,
        totals: Box::new(durable(queue.totals)),
        head: queue.head,
        bury_order: queue.bury_order,
    }
}

/// [`counted`] into a fact that is there.
fn count_into(queue: &Queue, fact: &mut Fact) {
    if let Fact::QueueCounted {
        queue: id,
        totals,
        head,
        bury_order,
    } = fact
    {
        (*id, *head, *bury_order) = (queue.id, queue.head, queue.bury_order);
        **totals = durable(queue.totals);
    } else {
        *fact = counted(queue);
    }
}

fn remembered((queue, kind, dedupe_record): &DedupeKey, memory: &Memory) -> Fact {
    Fact::Remembered {
        queue: *queue,
        kind: *kind,
        dedupe_record: dedupe_record.clone(),
        id: memory.id,
        until: memory.until,
        scope: memory.scope,
        sum: memory.sum,
    }
}

/// The totals without those that are not remembered.
fn durable(totals: QueueTotals) -> QueueTotals {
    QueueTotals {
        peeks: 0,
        misses: 0,
        skipped: 0,
        refused_full: 0,
        repeats: 0,
        pauses: 0,
        delete_commands: 0,
        ..totals
    }
}
