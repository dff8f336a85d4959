//! The durable state of a shard and its indexes. Only [`Durable::apply`] changes
//! what is durable, and only [`gate`] asks it to; replay goes through the same.

mod apply;
mod ascending;
mod attempts;
mod batches;
pub(crate) mod cold;
#[cfg(test)]
pub(crate) mod damaged;
mod dedupe_records;
mod departure;
mod dependencies;
mod ends;
mod gate;
mod held_keys;
mod ids;
mod image;
mod index;
mod key_groups;
mod keyed;
mod makers;
mod named;
mod outbox;
mod queue;
mod queue_table;
mod queues;
mod restate;
mod slab;
mod sums;
mod tables;
mod tombstones;
mod tracks;
mod verify;
mod watches;
mod weight;

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;
use smallvec::SmallVec;

pub(crate) use ascending::Ascending;
pub(crate) use batches::Batches;
pub(crate) use cold::ColdRuns;
pub(crate) use dependencies::Dependencies;
pub(crate) use ends::Ends;
pub use ends::PurgedBlock;
pub(crate) use gate::Store;
pub(crate) use held_keys::restated_size_of_held;
pub(crate) use ids::Ids;
pub use image::CopiedOut;
pub(crate) use key_groups::{Head, KeyGroups, Rules, Safe, Walk};
pub(crate) use makers::Maker;
pub(crate) use outbox::{Outbox, Sent};
pub(crate) use queue::{Order, Queue, WaitsTo};
use queue_table::QueueTable;
pub(crate) use slab::Slab;
use tables::Tables;
pub(crate) use tables::{cost as table_cost, restated_size as table_restated_size};
pub(crate) use tombstones::Tombstones;
pub(crate) use tracks::Tracks;
pub(crate) use weight::of_queue as queue_weight;

use quintet_types::{
    ClientId, Lease, Message, MessageId, Ms, Name, QueueId, SHARD_SHIFT, Scope, SegmentRef, State,
};

use crate::fact::{DedupeId, DedupeKind, ShardCounts};

pub(crate) type Hash = foldhash::fast::RandomState;

/// The record that a put left behind so that a repeat is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) id: MessageId,
    pub(crate) until: Ms,
    pub(crate) segment_ref: SegmentRef,
    pub(crate) scope: Scope,
    /// See [`quintet_types::PutMore::token_sum`].
    pub(crate) sum: u64,
    /// Its queue's when it was remembered ([`Queue::generation_of`]): a flush since then took what
    /// waited, or the record.
    generation: u32,
}

pub(crate) type DedupeKey = (QueueId, DedupeKind, DedupeId);

/// Everything a shard remembers.
#[derive(Debug, Default)]
pub(crate) struct Durable {
    pub(crate) messages: Slab,
    pub(crate) ids: Ids,
    pub(crate) queues: QueueTable,
    pub(crate) names: HashMap<Name, QueueId, Hash>,
    /// The same names in order, for who pages through them.
    pub(crate) sorted: BTreeSet<Name>,
    /// Queues that are dropped, and of which something is still reserved.
    ghosts: BTreeSet<QueueId>,
    /// `None`: the segment that is written has all that it begins with.
    restating: Option<restate::Restating>,
    /// Rises with each segment that begins so; 0: none did.
    restate_round: u32,
    /// Others follow the log, of older versions perhaps.
    is_shared: bool,
    /// Numbers of queues that were never recorded and are free again.
    pub(crate) free_queues: Vec<QueueId>,
    /// Cancelled messages whose leases an epoch ended, and whose removal may not be reported yet.
    pub(crate) owed_removals: Vec<MessageId>,
    pub(crate) leases: HashMap<u32, Lease, Hash>,
    pub(crate) lease_ends: BTreeSet<(Ms, MessageId)>,
    /// Leases by holder, oldest first. An index over `leases`.
    pub(crate) held: HashMap<ClientId, SmallVec<[MessageId; 2]>, Hash>,
    /// Reserved messages by their own names. An index over `leases`.
    named: named::Named,
    /// Prepared and ready messages with an expiry time.
    pub(crate) expiries: BTreeSet<(Ms, MessageId)>,
    pub(crate) dedupe_records: BTreeMap<DedupeKey, Memory>,
    /// The key of their hashes; `None`: whole ids are kept.
    pub(crate) hash_key: Option<[u8; 16]>,
    /// Deduplication records that time ends. An index over `dedupe_records`.
    pub(crate) dedupe_ends: BTreeSet<(Ms, DedupeKey)>,
    /// Deduplication records that end with what becomes of a message, by it. An index over
    /// `dedupe_records`.
    tied: HashMap<MessageId, DedupeKey, Hash>,
    /// Estimate of the memory of deduplication records, bytes.
    dedupe_bytes: u64,
    /// Messages and deduplication records by the segment that holds them.
    pub(crate) segment_refs: BTreeMap<SegmentRef, u64>,
    pub(crate) tombstones: Tombstones,
    /// Messages for queues of other shards, in the order they were sent.
    pub(crate) outbox: Outbox,
    /// The greatest id that was ever in it.
    outbox_most: MessageId,
    /// The messages in runs.
    pub(crate) cold: ColdRuns,
    /// State of all message groups together.
    pub(crate) keyed: keyed::Keyed,
    pub(crate) tables: Tables,
    pub(crate) batches: Batches,
    pub(crate) tracks: Tracks,
    pub(crate) dependencies: Dependencies,
    pub(crate) ends: Ends,
    attempts: attempts::Attempts,
    /// A message that belongs to a batch, is tracked or was held was here since the start. While
    /// there was none nothing has to be looked up.
    pub(crate) followed: bool,
    /// Queues' alarms; each queue has at most one.
    pub(crate) alarms: BTreeSet<(Ms, QueueId)>,
    /// The next message gets this number (without the shard's bits).
    pub(crate) next_id: u64,
    /// Ids below this are known to the log as used.
    pub(crate) marked: u64,
    pub(crate) epoch: u64,
    pub(crate) counts: ShardCounts,
    /// The part of the counts that is not remembered: queues without a log.
    pub(crate) memory_counts: ShardCounts,
    pub(crate) body_bytes: u64,
    pub(crate) sums: sums::Sums,
    /// Places in lines that were entered or left.
    #[cfg(test)]
    pub(crate) line_steps: u64,
    /// Bytes that queues take in a snapshot at most, and in memory about.
    pub(crate) queue_weights: weight::Weights,
    held_keys_count: usize,
    /// Bytes that held keys take in a snapshot at most.
    held_keys_bytes: u64,
    /// The shard's bits, or-ed into every id.
    pub(crate) id_bits: u64,
}

impl Durable {
    pub(crate) fn new(shard: u8, shards: u8) -> Self {
        let id_bits = if shards > 1 {
            u64::from(shard) << SHARD_SHIFT
        } else {
            0
        };
        Self {
            next_id: 1,
            marked: 1,
            id_bits,
            dependencies: Dependencies::new(shard, shards),
            ..Self::default()
        }
    }

    pub(crate) fn queue(&self, id: QueueId) -> Option<&Queue> {
        self.queues.get(id.0 as usize)
    }

    /// A queue that an index, a waiter or a message names: it is there.
    pub(crate) fn expect_queue(&self, id: QueueId) -> &Queue {
        self.queue(id).expect("what names a queue goes before it")
    }

    fn queue_mut(&mut self, id: QueueId) -> Option<&mut Queue> {
        self.queues.get_mut(id.0 as usize)
    }

    pub(crate) fn find(&self, name: &Name) -> Option<QueueId> {
        self.names.get(name).copied()
    }

    /// The slot of a message that exists.
    pub(crate) fn slot(&self, id: MessageId) -> Option<u32> {
        let slot = self.ids.get(id.0)?;
        self.is_alive(self.messages.get(slot)?).then_some(slot)
    }

    pub(crate) fn message(&self, id: MessageId) -> Option<&Message> {
        self.messages.get(self.slot(id)?)
    }

    /// Leases that a client holds.
    pub(crate) fn held_by(&self, client_id: ClientId) -> usize {
        let held = self.held.get(&client_id);
        match self.tombstones.hold_leases() {
            false => held.map_or(0, SmallVec::len),
            true => held.map_or(0, |held| {
                held.iter().filter(|&&id| self.slot(id).is_some()).count()
            }),
        }
    }

    /// False for messages a flush or drop has forgotten but not yet freed.
    pub(crate) fn is_alive(&self, message: &Message) -> bool {
        match self.queue(message.queue) {
            None => false,
            Some(queue) => match message.state {
                State::Reserved => message.generation == queue.held_generation,
                State::Ready => message.generation == queue.generation && !queue.live.dropped,
                State::Prepared | State::Buried | State::Done | State::Relayed => {
                    !queue.live.dropped
                }
            },
        }
    }

    /// Makes room for a queue of this number.
    pub(crate) fn insert_queue(&mut self, queue: Queue) {
        self.names.insert(queue.name.clone(), queue.id);
        self.sorted.insert(queue.name.clone());
        self.queue_weights.memory += weight::in_memory(&queue.name);
        let id = queue.id;
        self.queues.insert(id.0 as usize, queue);
        self.weigh(id);
    }

    /// Forgets a queue that is empty (and, if it was recorded, dropped).
    pub(crate) fn remove_queue(&mut self, id: QueueId) {
        self.leave_account(id);
        self.drop_holds(id);
        let Some(queue) = self.queues.remove(id.0 as usize) else {
            // It went with the last message that was reserved in it.
            return;
        };
        self.ghosts.remove(&id);
        let mut queue = queue;
        if let Some(groups) = queue.groups.take() {
            self.keyed.bytes -= groups.bytes();
            self.tombstones.groups(groups);
        }
        self.queue_weights.memory -= weight::in_memory(&queue.name);
        self.queue_weights.restated -= queue.restated_bytes;
        self.sums.totals.subtract(&queue.totals);
        if let Some(at) = queue.live.alarm {
            let was = self.alarms.remove(&(at, id));
            assert!(was, "the alarm of a queue that goes is among the shard's");
        }
        if self.names.get(&queue.name) == Some(&id) {
            self.names.remove(&queue.name);
            self.sorted.remove(&queue.name);
        }
        if !queue.live.recorded {
            self.free_queues.push(id);
        }
    }

    /// Sets the queue's alarm anew after its maps or its pause changed.
    pub(crate) fn rearm(&mut self, id: QueueId) {
        let Self { queues, cold, .. } = self;
        let Some(queue) = queues.get_mut(id.0 as usize) else {
            // It went with what was taken out of it, or the log records one that is gone.
            return;
        };
        let next = queue.alarm(cold);
        if next != queue.live.alarm {
            if let Some(old) = std::mem::replace(&mut queue.live.alarm, next) {
                let was = self.alarms.remove(&(old, id));
                assert!(was, "a queue's alarm is set and put off here alone");
            }
            if let Some(at) = next {
                self.alarms.insert((at, id));
            }
        }
    }

    /// Queues that exist, in the order they were made.
    pub(crate) fn live_queues(&self) -> impl Iterator<Item = &Queue> + '_ {
        self.queues.iter().filter(|queue| !queue.live.dropped)
    }

    /// Runs are not counted: they know what lives in them.
    pub(crate) fn count_segment_ref(&mut self, segment_ref: SegmentRef) {
        if segment_ref.is_run() {
            // A run knows what lives in it.
            return;
        }
        *self.segment_refs.entry(segment_ref).or_insert(0) += 1;
    }

    pub(crate) fn uncount_segment_ref(&mut self, segment_ref: SegmentRef) {
        if segment_ref.is_run() {
            // A run knows what lives in it.
            return;
        }
        let count = self.segment_refs.get_mut(&segment_ref);
        let count = count.expect("a segment is counted while something lives in it");
        *count -= 1;
        if *count == 0 {
            self.segment_refs.remove(&segment_ref);
        }
    }

    pub(crate) fn counts_of(&mut self, memory: bool) -> &mut ShardCounts {
        if memory {
            &mut self.memory_counts
        } else {
            &mut self.counts
        }
    }

    /// The newest image of a message now lies in `segment_ref`.
    pub(crate) fn rehome(&mut self, id: MessageId, segment_ref: SegmentRef) {
        if let Some(slot) = self.slot(id)
            && let Some(message) = self.messages.get_mut(slot)
        {
            let old = std::mem::replace(&mut message.segment_ref, segment_ref);
            self.uncount_segment_ref(old);
            self.count_segment_ref(segment_ref);
        }
    }

    /// Id of the newest message; 0 if there was none.
    pub(crate) fn last_id(&self) -> MessageId {
        MessageId(if self.next_id == 1 {
            0
        } else {
            (self.next_id - 1) | self.id_bits
        })
    }

    /// Estimate of the memory of messages, queues, tables and deduplication records, bytes:
    /// measured averages of the slab, the id pages and the order map
    /// (docs/performance.md), plus the bodies with the allocator's and the
    /// reference count's share.
    pub(crate) fn memory_bytes(&self) -> u64 {
        const PER_MESSAGE: u64 = 163;
        (self.messages.len() + self.outbox.len()) as u64 * PER_MESSAGE
            + self.body_bytes
            + self.keyed.bytes
            + self.fixed_bytes()
    }

    /// The part of it that does not get less when messages leave memory.
    pub(crate) fn fixed_bytes(&self) -> u64 {
        // Its places in the table of leases, among their ends and with its holder.
        const PER_LEASE: u64 = 120;
        self.queue_weights.memory
            + self.leases.len() as u64 * PER_LEASE
            + self.tables.bytes
            + self.batches.memory_bytes()
            + self.tracks.memory_bytes()
            + self.dependencies.memory_bytes()
            + self.ends.bytes()
            + self.attempts.bytes()
            + self.dedupe_bytes
            + self.held_keys_memory()
            + self.cold.memory_bytes()
    }
}
