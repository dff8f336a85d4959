//! The one way to change what is durable.
//!
//! Everybody reads a [`Store`]; nobody outside this folder has [`Durable`] to
//! change. What happens to messages and queues is a fact, and goes through
//! [`Engine::fact`] or [`Engine::note`], which record it, or
//! [`Engine::replay`], which read it. What else may change is listed under
//! `impl Store`: it is forgotten at a restart, or follows from the facts and the
//! time alone.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;

use super::ends::PurgedBlock;
use super::image::COPIED_BYTES;
use super::queue::{Live, WaitsTo};
use super::{CopiedOut, Durable, Queue, Rules};
use quintet_types::{
    Account, BatchId, Caller, ClientId, Message, MessageId, Ms, Name, QueueId, QueueTotals, RunId,
    SegmentRef,
};

use crate::cold::BlockAt;
use crate::engine::{COLLECT_PER_FACT, Cx, Engine};
use crate::fact::{Fact, Journal};

/// The durable state of a shard, as others than this folder have it.
#[derive(Debug)]
pub(crate) struct Store(Durable);

impl Deref for Store {
    type Target = Durable;

    fn deref(&self) -> &Durable {
        &self.0
    }
}

impl Engine {
    /// Records a fact and applies it. Facts about queues that are only in
    /// memory are not recorded; a message that crosses over to the log is
    /// recorded whole.
    #[inline]
    pub(crate) fn fact<J: Journal>(&mut self, cx: &mut Cx<'_, J>, fact: Fact) -> Option<Message> {
        match self.store.followed {
            true => self.fact_followed(cx, fact),
            false => self.fact_alone(cx, fact),
        }
    }

    /// The same where a message may belong to a batch, be tracked or held, or a client or other
    /// messages wait for its end.
    #[cold]
    fn fact_followed<J: Journal>(&mut self, cx: &mut Cx<'_, J>, fact: Fact) -> Option<Message> {
        let (member, tells) = (self.of_member(&fact), self.of_tracked(&fact));
        let reply = self.reply_in(&fact);
        let fate = match self.awaits.waits.is_empty() {
            true => None,
            false => self.fate_in(&fact),
        };
        if !self.lease_waits.waits.is_empty() {
            self.wake_lease(&fact);
        }
        let (mut ended, mut held) = (None, None);
        if !self.store.dependencies.is_empty() {
            (ended, held) = (self.of_parent(&fact), self.of_held(&fact));
        }
        let removed = self.fact_alone(cx, fact);
        if let Some((parent, succeeded)) = ended {
            self.note_end(cx, parent, succeeded);
        }
        if let Some(child) = held {
            self.note_held(cx, child);
        }
        if let Some((batch, tally)) = member {
            self.count_member(cx, batch, tally);
        }
        if let Some(tells) = tells {
            self.note_track(cx, tells);
        }
        if let Some(fate) = fate {
            self.notify_outcome(fate);
        }
        if let Some(reply) = reply {
            self.send_reply(cx, *reply);
        }
        removed
    }

    /// From now on it is looked whom facts tell something, as a message is coming that is tracked.
    pub(crate) fn follow(&mut self) {
        self.store.0.followed = true;
    }

    /// [`Engine::fact`] of one that no batch hears of, and that nobody tracks.
    pub(crate) fn fact_alone<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        fact: Fact,
    ) -> Option<Message> {
        cx.step.began = true;
        if !self.store.cold.loaded.is_empty() {
            self.load_named(cx, &fact);
        }
        if self.store.is_restating() {
            self.restate_for(cx.journal, &fact);
        }
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "other facts are recorded unchanged"
        )]
        match &fact {
            Fact::Moved { at, to, .. } if self.is_memory(at.queue) && !self.is_memory(*to) => {
                let (at, to) = (*at, *to);
                cx.journal.pass(&fact, || self.store.name_of(at.queue));
                let removed = self.store.apply(cx.call().caller, fact, self.segment_ref);
                let store = &mut self.store.0;
                store.rehome(at.id, self.segment_ref);
                if let Some(message) = store.message(at.id) {
                    cx.journal.record(&Fact::Image(message.clone(), None));
                }
                cx.journal.record(&Fact::IdMark(store.next_id));
                if let Some(counted) = store.counted(to) {
                    cx.journal.record(&counted);
                }
                return removed;
            }
            // A queue's children outlive it, if it is one of those that do not
            // survive a restart.
            Fact::QueueMade {
                queue,
                name,
                parent: Some(parent),
                created,
            } if self.is_memory(*parent) && !self.is_memory(*queue) => {
                cx.journal.record(&Fact::QueueMade {
                    queue: *queue,
                    name: name.clone(),
                    parent: None,
                    created: *created,
                });
            }
            _ if fact.queue().is_some_and(|queue| self.is_memory(queue)) => {
                let name = || {
                    fact.queue()
                        .map_or_else(Name::default, |of| self.store.name_of(of))
                };
                cx.journal.pass(&fact, name);
            }
            _ => cx.journal.record(&fact),
        }
        self.store.apply(cx.call().caller, fact, self.segment_ref)
    }

    pub(crate) fn is_memory(&self, queue: QueueId) -> bool {
        self.store
            .queue(queue)
            .is_some_and(|queue| queue.live.settings.memory)
    }

    /// [`Engine::fact`] for one that is recorded whatever it is about.
    pub(crate) fn note<J: Journal>(&mut self, journal: &mut J, fact: Fact) {
        if self.store.is_restating() {
            self.restate_for(journal, &fact);
        }
        journal.record(&fact);
        self.store.apply(Caller::default(), fact, self.segment_ref);
    }

    /// The segment that is written gets the queues of a fact before it.
    #[cold]
    fn restate_for<J: Journal>(&mut self, journal: &mut J, fact: &Fact) {
        let store = &mut self.store.0;
        store.restate_for(fact, &mut |fact| journal.restate(fact));
    }

    /// Facts land in this segment from now on: its beginning begins. It is whole, so that replay
    /// may begin there, when [`Engine::restate`] has said so; that of the segment before is.
    pub fn begin_segment<J: Journal>(&mut self, segment_ref: SegmentRef, journal: &mut J) {
        self.segment_ref = segment_ref;
        let store = &mut self.store.0;
        store.begin_restating(&mut |fact| journal.restate(fact));
    }

    /// Others follow the log, and compare what segments begin with.
    pub fn set_shared(&mut self, is_shared: bool) {
        self.store.0.is_shared = is_shared;
    }

    /// Writes on at the segment's beginning, about so many bytes. False: it is whole.
    pub fn restate<J: Journal>(&mut self, bytes: u64, journal: &mut J) -> bool {
        let store = &mut self.store.0;
        store.go_on_restating(bytes, &mut |fact| journal.restate(fact))
    }

    /// False if the beginning of the segment is whole.
    pub fn is_restating(&self) -> bool {
        self.store.is_restating()
    }

    /// Writes images of what lives in `segment_ref`, a slice of `max` slots from
    /// `from` on, so that the segment can be retired when they are durable. The beginning of the
    /// segment that is written goes first.
    pub fn copy_out<J: Journal>(
        &mut self,
        segment_ref: SegmentRef,
        from: u32,
        max: u32,
        journal: &mut J,
    ) -> CopiedOut {
        if self.is_restating() {
            self.restate(COPIED_BYTES, journal);
            return CopiedOut {
                next: Some(from),
                ..CopiedOut::default()
            };
        }
        let (into, store) = (self.segment_ref, &mut self.store.0);
        store.copy_out(segment_ref, into, from, max, &mut |fact, memory| {
            if !memory {
                journal.record(fact);
            }
        })
    }

    /// Applies one fact found in the log, in segment `segment_ref`.
    pub fn replay(&mut self, fact: Fact, segment_ref: SegmentRef) {
        let mut configure = None;
        if let Fact::QueueMade { queue, .. } | Fact::QueueConfigured { queue, .. } = &fact {
            configure = Some(*queue);
        }
        self.store.apply(Caller::default(), fact, segment_ref);
        if let Some(queue) = configure {
            self.resettle(queue);
        }
        if !self.store.tombstones.is_empty() {
            self.store.collect(COLLECT_PER_FACT);
        }
    }

    /// A message's next id. Ids of messages that are not logged are covered by
    /// a mark, so that no id is seen twice after a restart.
    pub(crate) fn next_id<J: Journal>(&mut self, cx: &mut Cx<'_, J>, logged: bool) -> MessageId {
        const BLOCK: u64 = 1024;
        let store = &mut self.store.0;
        let number = store.next_id;
        if !logged && number >= store.marked {
            cx.step.began = true;
            let fact = Fact::IdMark(number + 1);
            cx.journal.record(&Fact::IdMark(number + BLOCK));
            store.apply(fact, self.segment_ref);
            store.marked = number + BLOCK;
        }
        store.next_id = number + 1;
        MessageId(number | store.id_bits)
    }
}

/// Changes without a fact.
impl Store {
    /// Facts that are applied from now on happen at this time.
    #[inline]
    pub(crate) fn happen(&mut self, now: Ms) {
        self.0.ends.happen(now);
    }

    /// Applies a fact that this caller caused.
    #[inline]
    fn apply(&mut self, by: Caller, fact: Fact, segment_ref: SegmentRef) -> Option<Message> {
        self.0.ends.are_found_by(by);
        self.0.apply(fact, segment_ref)
    }

    pub(crate) fn keep_ends(&mut self, max: usize) {
        self.0.ends.set_max(max);
        self.0.attempts.set_max(max);
    }

    pub(crate) fn new(shard: u8, shards: u8) -> Self {
        Self(Durable::new(shard, shards))
    }

    /// Sets the epoch in which the facts replayed from now on were written.
    pub(crate) fn replays_epoch(&mut self, epoch: u64) {
        self.0.epoch = self.0.epoch.max(epoch);
    }

    /// The part of a queue that is forgotten at a restart.
    pub(crate) fn live_mut(&mut self, id: QueueId) -> Option<&mut Live> {
        self.0.queue_mut(id).map(|queue| &mut queue.live)
    }

    /// The same, where numbers of it change that are summed up.
    pub(crate) fn recount<T>(
        &mut self,
        id: QueueId,
        change: impl FnOnce(&mut Live) -> T,
    ) -> Option<T> {
        self.0.recount(id, |queue| change(&mut queue.live))
    }

    /// Counts in a queue's totals what is no fact.
    pub(crate) fn count_live(&mut self, queue: QueueId, add: impl Fn(&mut QueueTotals)) {
        self.0.count_in(queue, add);
    }

    pub(crate) fn enter_line(&mut self, queue: QueueId, number: u64, what_for: WaitsTo) {
        self.0.enter_line(queue, number, what_for);
    }

    pub(crate) fn leave_line(&mut self, queue: QueueId, number: u64, what_for: WaitsTo) {
        self.0.leave_line(queue, number, what_for);
    }

    /// A number for a queue that is made.
    pub(crate) fn free_number(&mut self) -> QueueId {
        self.0
            .free_queues
            .pop()
            .unwrap_or_else(|| QueueId::at(self.0.queues.len()))
    }

    /// A queue exists in memory; the log knows of it when it is recorded.
    pub(crate) fn insert_queue(&mut self, queue: Queue) {
        self.0.insert_queue(queue);
    }

    /// Counts queues with those of the users that made them.
    pub(crate) fn count_makers(&mut self, of: &mut dyn FnMut(&[u8]) -> Option<Arc<Account>>) {
        self.0.count_makers(of);
    }

    /// It does not any more, and was never recorded.
    pub(crate) fn remove_queue(&mut self, id: QueueId) {
        self.0.remove_queue(id);
    }

    pub(crate) fn rearm(&mut self, id: QueueId) {
        self.0.rearm(id);
    }

    pub(crate) fn recheck(&mut self, id: QueueId) {
        self.0.recheck(id);
    }

    /// Applies a queue's settings about keys.
    pub(crate) fn set_groups(&mut self, id: QueueId, rules: Option<Rules>) {
        self.0.set_groups(id, rules);
    }

    pub(crate) fn build_groups(&mut self, id: QueueId, left: &mut usize) -> bool {
        self.0.build_groups(id, left)
    }

    pub(crate) fn ring_groups(&mut self, id: QueueId, now: Ms) {
        self.0.ring_groups(id, now);
    }

    pub(crate) fn handed_of_key(&mut self, id: QueueId, key: Option<&Arc<[u8]>>, now: Ms) {
        self.0.handed_of_key(id, key, now);
    }

    pub(crate) fn looked_up(&mut self, id: QueueId, key: &Arc<[u8]>, blocks: &[BlockAt]) {
        self.0.looked_up(id, key, blocks);
    }

    pub(crate) fn take_owed_removals(&mut self) -> Vec<MessageId> {
        std::mem::take(&mut self.0.owed_removals)
    }

    pub(crate) fn take_freed(&mut self) -> Vec<QueueId> {
        self.0.take_freed()
    }

    pub(crate) fn shed(&mut self, id: QueueId, keep: usize) {
        self.0.shed(id, keep);
    }

    pub(crate) fn promote(&mut self, id: QueueId, now: Ms) -> usize {
        self.0.promote(id, now)
    }

    pub(crate) fn end_holds(&mut self, id: QueueId, now: Ms) {
        self.0.end_holds(id, now);
    }

    /// That a pause is over is a predicate on time and needs no fact.
    pub(crate) fn end_pause(&mut self, id: QueueId, now: Ms) {
        if let Some(queue) = self.0.queue_mut(id)
            && queue
                .pause
                .and_then(|pause| pause.until)
                .is_some_and(|until| until <= now)
        {
            queue.pause = None;
        }
    }

    pub(crate) fn forget_dedupe(&mut self, now: Ms, max: usize) {
        self.0.forget_dedupe(now, max);
    }

    pub(crate) fn free_dedupe(&mut self, max: usize) {
        self.0.free_dedupe(max);
    }

    /// A batch's callback found no room.
    pub(crate) fn put_off_batch(&mut self, id: BatchId, until: Ms) {
        self.0.batches.put_off(id, until);
    }

    /// A held message that may go on is not committed.
    pub(crate) fn put_off_held(&mut self, child: MessageId) {
        self.0.dependencies.put_off(child);
    }

    /// It may be committed by now.
    pub(crate) fn resume_held(&mut self, child: MessageId) {
        self.0.dependencies.resume(child);
    }

    /// A parent or a held message is gone, and no fact records it.
    pub(crate) fn lose(&mut self, id: MessageId) {
        self.0.dependencies.lose(id);
    }

    /// Facts record it now.
    pub(crate) fn found_lost(&mut self, id: MessageId) {
        self.0.dependencies.found(id);
    }

    pub(crate) fn expire_tables(&mut self, now: Ms) {
        self.0.tables.drop_expired(now);
    }

    pub(crate) fn collect(&mut self, max: usize) -> bool {
        self.0.collect(max)
    }

    /// An entry of the index of leases' ends has been heard.
    pub(crate) fn forget_lease_end(&mut self, at: Ms, id: MessageId) {
        self.0.lease_ends.remove(&(at, id));
    }

    /// The same of what expires: messages that a flush has forgotten are in the
    /// index until they are freed.
    pub(crate) fn forget_expiry(&mut self, at: Ms, id: MessageId) {
        self.0.expiries.remove(&(at, id));
    }

    /// The newest lease of a client that is gone is dealt with.
    pub(crate) fn pass_held(&mut self, client_id: ClientId, id: MessageId) {
        if let Some(held) = self.0.held.get_mut(&client_id)
            && held.last() == Some(&id)
        {
            held.pop();
        }
    }

    pub(crate) fn forget_client(&mut self, client_id: ClientId) {
        self.0.held.remove(&client_id);
    }

    /// When a queue was last used is not remembered: its rest begins anew.
    pub(crate) fn rest_anew(&mut self, now: Ms) {
        for queue in self.0.queues.iter_mut() {
            queue.live.used = now;
        }
    }

    /// A message is chosen to leave memory, under this number.
    pub(crate) fn pick(&mut self, slot: u32, number: u32) {
        self.0.messages.at_mut(slot).ordinal = number;
    }

    /// It stays after all.
    pub(crate) fn unpick(&mut self, id: MessageId) {
        if let Some(slot) = self.0.slot(id) {
            self.0.messages.at_mut(slot).unpick();
        }
    }

    pub(crate) fn load(&mut self, at: BlockAt, messages: Vec<(u32, Message)>) -> bool {
        self.0.load(at, messages)
    }

    pub(crate) fn unload(&mut self, at: BlockAt) {
        self.0.unload(at);
    }

    pub(crate) fn give_up(&mut self, at: BlockAt) {
        self.0.give_up(at);
    }

    pub(crate) fn ask_for(&mut self, at: BlockAt) -> Option<u32> {
        self.0.ask_for(at)
    }

    /// The first block in which something has expired by now, once.
    pub(crate) fn next_ring(&mut self, now: Ms) -> Option<BlockAt> {
        let cold = &mut self.0.cold;
        let &(at, block) = cold.rings.first()?;
        if at > now {
            return None;
        }
        cold.rings.pop_first();
        if let Some(block) = cold.block_mut(block) {
            block.rings = None;
        }
        Some(block)
    }

    /// Runs in which nothing lives any more.
    pub(crate) fn take_dead_runs(&mut self) -> Vec<RunId> {
        let cold = &mut self.0.cold;
        let mut gone = std::mem::take(&mut cold.gone);
        gone.retain(|run| !cold.runs.contains_key(run) && !cold.bodies.contains_key(run));
        gone
    }

    /// Blocks of runs that were removed with their messages, each once.
    pub(crate) fn take_purged_blocks(&mut self) -> VecDeque<PurgedBlock> {
        self.0.ends.take_blocks()
    }

    /// Records the ends of messages of such a block.
    pub(crate) fn add_purged(&mut self, of: &PurgedBlock, ids: &[MessageId]) {
        self.0.ends.add_purged(of, ids);
    }

    /// Places in lines that were entered or left since this was last asked.
    #[cfg(test)]
    pub(crate) fn take_line_steps(&mut self) -> u64 {
        std::mem::take(&mut self.0.line_steps)
    }
}
