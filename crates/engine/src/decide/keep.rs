//! Operations for the compactor: choose messages that leave memory, put blocks in
//! force, write runs again, drop copies.

use std::collections::VecDeque;
use std::ops::Bound as Edge;

use quintet_types::{Delivery, HELD, MessageId, Ms, Order, QueueId, RunId, SegmentRef, StateIndex};

use crate::cold::{Block, BlockAt, EntryFacts, Picked, Rewritten, Written};
use crate::engine::{Cx, Engine, PurgedBlock};
use crate::fact::{Fact, Journal};
use crate::step::Step;
use crate::store::cold::{Shelf, state_index_of};

/// A choice of messages that leave memory, made a slice at a time.
#[derive(Debug, Default)]
pub struct Spill {
    plan: VecDeque<Share>,
    /// State indexes whose messages wait to be taken; they follow when all queues were looked at.
    waiting: Vec<(u64, QueueId, StateIndex)>,
    /// Bytes that nothing is planned for yet.
    left: u64,
    /// The queue that is looked at next.
    next: usize,
}

impl Spill {
    /// To free so many bytes of memory; nothing is planned yet.
    pub fn of(bytes: u64) -> Self {
        Self {
            left: bytes,
            ..Self::default()
        }
    }

    /// Plans for what waits, as all queues were looked at.
    pub fn planned(mut self) -> Self {
        // The longest give the most; a quarter of each stays.
        self.waiting
            .sort_unstable_by_key(|(all, ..)| std::cmp::Reverse(*all));
        for (all, queue, state_index) in std::mem::take(&mut self.waiting) {
            if self.left == 0 {
                break;
            }
            let share = (all - all / 4).min(self.left);
            self.left -= share;
            self.plan.push_back(Share::new(queue, state_index, share));
        }
        self.plan.retain(|share| share.bytes > 0);
        self
    }
}

/// How much of a state index goes.
#[derive(Debug)]
struct Share {
    queue: QueueId,
    state_index: StateIndex,
    /// Bytes of memory to give up yet.
    bytes: u64,
    /// Messages behind this one were checked.
    before: Option<Order>,
}

impl Engine {
    /// Plans which messages leave: looks at up to `max` more queues; false: all were looked at, and
    /// the plan is made. What is buried and archived goes first, then the tails of the longest
    /// queues. The head of each queue stays. State indexes of fewer than `state_index_min` messages
    /// are left alone, as each would be a block of its own.
    pub fn plan_spill(&self, spill: &mut Spill, max: usize, state_index_min: usize) -> bool {
        let per_message = |queue: &crate::store::Queue| {
            let count =
                queue.waiting_in_memory() + (queue.buried.len() + queue.archived.len()) as u64;
            180 + queue.bytes / count.max(1)
        };
        // What others of a state index take beside their content is taken to be as much as its last
        // does.
        let beside = |queue, state_index| {
            let last = self.tail(queue, state_index, None, 1).first().copied();
            last.map_or(0, |slot| {
                let message = self.store.messages.at(slot);
                let content = message.size() - message.body.len();
                message.extra_bytes().saturating_sub(content)
            })
        };
        let Spill {
            plan,
            waiting,
            left,
            next,
        } = spill;
        let end = self.store.queues.len().min(next.saturating_add(max));
        let numbers = std::mem::replace(next, end)..end;
        for queue in numbers.filter_map(|at| self.store.queues.get(at)) {
            if queue.live.dropped || queue.live.settings.memory || !queue.live.recorded {
                continue;
            }
            let each = per_message(queue);
            let mut idle = |state_index: StateIndex, len: usize| {
                if len >= state_index_min {
                    let share = (len as u64 * (each + beside(queue.id, state_index))).min(*left);
                    *left -= share;
                    plan.push_back(Share::new(queue.id, state_index, share));
                }
            };
            idle(StateIndex::Buried, queue.buried.len());
            idle(StateIndex::Archived, queue.archived.len());
            let delayed = queue.delayed.len() - queue.held;
            let state_indexes = [
                (StateIndex::Delayed, delayed),
                (StateIndex::NotSelectable, queue.not_selectable.len()),
                (StateIndex::Ready, queue.ready.len()),
            ];
            for (state_index, len) in state_indexes {
                if len >= state_index_min {
                    let all = len as u64 * (each + beside(queue.id, state_index));
                    waiting.push((all, queue.id, state_index));
                }
            }
        }
        end < self.store.queues.len()
    }

    /// Chooses up to `max` more; false: the plan is done. A chosen message
    /// that is touched before its block is in force stays.
    pub fn pick(&mut self, spill: &mut Spill, max: usize, out: &mut Vec<Picked>) -> bool {
        let mut left = max;
        while let Some(share) = spill.plan.front_mut() {
            if left == 0 {
                return true;
            }
            let slots = self.tail(share.queue, share.state_index, share.before, left);
            let seen = slots.len();
            assert!(seen <= left, "a slice looks at no more than it may");
            left -= seen;
            for slot in slots {
                let message = self.store.messages.at(slot);
                share.before = Some(share.state_index.order(message));
                if share.bytes == 0 {
                    break;
                }
                let stays = message.pick() != 0 || self.store.stays_for_others(message);
                if message.segment_ref.is_run() || stays {
                    continue;
                }
                let body = message.body.as_small().map_or(128, <[u8]>::len) as u64;
                let bytes = body + message.extra_bytes();
                share.bytes = share.bytes.saturating_sub(180 + bytes);
                let pick = next_pick(&mut self.picks);
                self.store.pick(slot, pick);
                out.push(Picked {
                    state_index: share.state_index,
                    pick,
                    message: self.store.messages.at(slot).clone(),
                });
            }
            if seen == 0 || share.bytes == 0 {
                spill.plan.pop_front();
            }
        }
        false
    }

    /// Slots of a state index from its end on, those behind `before` left out.
    pub(super) fn tail(
        &self,
        id: QueueId,
        state_index: StateIndex,
        before: Option<Order>,
        max: usize,
    ) -> Vec<u32> {
        let Some(queue) = self.store.queue(id) else {
            // It was dropped since the plan.
            return Vec::new();
        };
        let order = before.unwrap_or((u32::MAX, i64::MAX, MessageId(u64::MAX)));
        let time = (Ms(order.1.max(0) as u64), order.2);
        let up_to = (Edge::Unbounded, Edge::Excluded(order));
        match state_index {
            StateIndex::Ready => slots(queue.ready.range_back(up_to), max),
            StateIndex::NotSelectable => slots(queue.not_selectable.range_back(up_to), max),
            // Held messages stay.
            StateIndex::Delayed => {
                let end = time.min((HELD, MessageId(0)));
                slots(queue.delayed.range(..end).rev(), max)
            }
            StateIndex::Archived => slots(queue.archived.range(..time).rev(), max),
            StateIndex::Buried => {
                let turn = order.1.max(0) as u64;
                // Of another queue there may be one of the same turn.
                let id = |slot: u32| self.store.messages.at(slot).id;
                let all = queue.buried.range(..=turn).rev();
                let before = all.skip_while(|&(at, &slot)| *at == turn && id(slot) >= order.2);
                slots(before, max)
            }
        }
    }

    /// Chooses what lives in a segment of the log, so that it can go: looks at
    /// up to `max` slots from `from` on, and answers where to go on.
    pub fn pick_segment_ref(
        &mut self,
        segment_ref: SegmentRef,
        from: u32,
        max: u32,
        out: &mut Vec<Picked>,
    ) -> Option<u32> {
        let end = self.store.messages.bound().min(from.saturating_add(max));
        for slot in from..end {
            let Some(message) = self.store.messages.get(slot) else {
                // A free slot.
                continue;
            };
            if message.segment_ref != segment_ref
                || message.pick() != 0
                || self.store.stays_for_others(message)
                || !self.store.is_alive(message)
            {
                continue;
            }
            let queue = self.store.expect_queue(message.queue);
            if queue.live.settings.memory || queue.live.dropped {
                continue;
            }
            let delayed = message
                .due()
                .is_some_and(|due| queue.delayed.contains_key(&(due, message.id)));
            let Some(state_index) = state_index_of(message, delayed) else {
                // Reserved or prepared: it stays.
                continue;
            };
            let pick = next_pick(&mut self.picks);
            self.store.pick(slot, pick);
            out.push(Picked {
                state_index,
                pick,
                message: self.store.messages.at(slot).clone(),
            });
        }
        (end < self.store.messages.bound()).then_some(end)
    }

    /// They stay after all.
    pub fn unpick(&mut self, ids: &[MessageId]) {
        for &id in ids {
            self.store.unpick(id);
        }
    }

    /// Puts a written block in force: those of its messages that nothing
    /// happened to since they were chosen leave memory. Answers how many.
    pub fn evict<J: Journal>(&mut self, run: RunId, written: &Written, journal: &mut J) -> u32 {
        let (block, ids) = living_in(written, |&(id, pick)| {
            let message = self.store.message(id).filter(|m| m.pick() == pick)?;
            Some(EntryFacts::of(message, written.state_index))
        });
        self.note_evicted(journal, run, block, ids)
    }

    /// Puts a block in force, if anything is in it. Answers how much.
    fn note_evicted<J: Journal>(
        &mut self,
        journal: &mut J,
        run: RunId,
        block: Block,
        ids: Vec<MessageId>,
    ) -> u32 {
        let live = block.live;
        if live > 0 {
            let block = Box::new(block);
            self.note(journal, Fact::Evicted { run, block, ids });
        }
        live
    }

    /// Puts the blocks of a new run in force in place of all that is left of
    /// the old ones, in one step.
    pub fn replace_runs<J: Journal>(
        &mut self,
        now: Ms,
        old: &[RunId],
        run: RunId,
        blocks: &[Rewritten],
        journal: &mut J,
        deliveries: &mut Vec<Delivery>,
    ) {
        self.advance(now);
        for &run in old {
            self.unload_run(run);
        }
        for rewritten in blocks {
            let (block, ids) = living_in(rewritten, |&(entry, from, at)| {
                self.is_alive_in(from, at).then_some(entry)
            });
            self.note_evicted(journal, run, block, ids);
        }
        for &run in old {
            let fact = Fact::RunGone(run);
            self.note(journal, fact);
        }
        // What was requested lay in the old ones: it is requested anew.
        self.supply(now, Vec::new(), journal, deliveries);
        let waiting: Vec<QueueId> = self
            .store
            .live_queues()
            .filter(|queue| !queue.live.line.is_empty() && queue.cold.is_some())
            .map(|queue| queue.id)
            .collect();
        let mut step = Step::default();
        let mut cx = Cx::new(journal, deliveries, &mut step);
        waiting.into_iter().for_each(|queue| cx.wake(queue));
        self.serve(&mut cx);
    }

    /// True if the entry is in force and has not left.
    pub fn is_alive_in(&self, run: RunId, ordinal: u32) -> bool {
        let table = self.store.cold.runs.get(&run);
        table
            .and_then(|table| table.block_of(ordinal))
            .is_some_and(|(_, block)| block.is_alive(ordinal))
    }

    /// The blocks of a run that are in force, in file order.
    pub fn blocks_of(&self, run: RunId) -> Vec<Block> {
        let table = self.store.cold.runs.get(&run);
        table.map_or(Vec::new(), |table| {
            table.blocks.values().map(|block| block.row).collect()
        })
    }

    /// A queue of which more living messages are counted than are known, runs included; in words.
    /// It means something only to who has read the log to its end.
    pub fn lacks(&self) -> Option<String> {
        self.store.lacks()
    }

    /// True if the messages of a block are in memory as well.
    pub fn is_loaded(&self, at: BlockAt) -> bool {
        let block = self.store.cold.block(at);
        block.is_some_and(|block| matches!(block.shelf, Shelf::Loaded(..)))
    }

    fn unload_run(&mut self, run: RunId) {
        let Some(table) = self.store.cold.runs.get(&run) else {
            // It went when nothing was left in it.
            return;
        };
        let loaded = table
            .blocks
            .iter()
            .filter(|(_, block)| matches!(block.shelf, Shelf::Loaded(..)));
        let ordinals: Vec<u32> = loaded.map(|(&ordinal, _)| ordinal).collect();
        for ordinal in ordinals {
            self.store.unload(BlockAt { run, ordinal });
        }
    }

    /// Drops the copies of the block that was loaded longest ago, if more than
    /// `keep` blocks are loaded. True if it did. Delayed messages whose time
    /// has come leave their run for good: there they would be read again at
    /// once.
    pub fn unload_oldest<J: Journal>(&mut self, keep: usize, journal: &mut J) -> bool {
        if self.store.cold.loaded.len() <= keep {
            return false;
        }
        let first = self.store.cold.loaded.first_key_value();
        let (_, &at) = first.expect("more blocks are loaded than are kept");
        for id in self.store.due_copies(at, self.now) {
            self.load_one(id, true, journal);
        }
        self.store.unload(at);
        true
    }

    /// Runs in force with what lives in each and how many entries their blocks
    /// have.
    pub fn runs(&self) -> Vec<(RunId, u64, u64)> {
        let runs = self.store.cold.runs.iter();
        runs.map(|(&run, table)| (run, table.live, table.entries))
            .collect()
    }

    /// Runs nothing lives in any more, nor any body of a message in memory.
    /// Their files can go when all that was recorded so far is durable.
    pub fn take_dead_runs(&mut self) -> Vec<RunId> {
        let mut gone = self.store.take_dead_runs();
        gone.sort_unstable();
        gone.dedup();
        gone
    }

    /// Blocks of runs that a purge, or the end of their queue, has removed; each is reported once.
    /// The record of ends has their messages when [`Engine::add_purged`] says their ids, for which
    /// the files of the runs are needed.
    pub fn take_purged_blocks(&mut self) -> VecDeque<PurgedBlock> {
        self.store.take_purged_blocks()
    }

    /// Records the ends of messages of a removed block; no ids: they cannot be read.
    pub fn add_purged(&mut self, of: &PurgedBlock, ids: &[MessageId]) {
        self.store.add_purged(of, ids);
    }

    /// True if the file of a run is needed.
    pub fn needs_run(&self, run: RunId) -> bool {
        self.store.cold.runs.contains_key(&run) || self.store.cold.bodies.contains_key(&run)
    }

    /// Every run whose file is needed.
    pub fn needed_runs(&self) -> Vec<RunId> {
        let cold = &self.store.cold;
        let runs = cold.runs.keys().chain(cold.bodies.keys());
        let mut runs: Vec<RunId> = runs.copied().collect();
        runs.sort_unstable();
        runs.dedup();
        runs
    }

    /// The part of [`Engine::memory_bytes`] that queues, tables and what is
    /// known of runs take, and that no spilling makes less.
    pub fn fixed_bytes(&self) -> u64 {
        self.store.fixed_bytes()
    }

    /// Bytes the beginning of a segment of the log takes at most, if it is
    /// made now.
    pub fn snapshot_bytes(&self) -> u64 {
        self.store.snapshot_bytes()
    }

    /// Bytes of memory that messages, queues and what is known of runs take.
    pub fn memory_bytes(&self) -> u64 {
        self.store.memory_bytes()
    }
}

/// The next choice's number: never 0, and not used again for a long time.
fn next_pick(picks: &mut u32) -> u32 {
    *picks = picks.checked_add(1).unwrap_or(1);
    *picks
}

fn slots<'a, K>(entries: impl Iterator<Item = (K, &'a u32)>, max: usize) -> Vec<u32> {
    entries.take(max).map(|(_, &slot)| slot).collect()
}

impl Share {
    fn new(queue: QueueId, state_index: StateIndex, bytes: u64) -> Self {
        Self {
            queue,
            state_index,
            bytes,
            before: None,
        }
    }
}

/// A block with those of its entries that live, and the ids of all entries: 0 for the others.
fn living_in<E>(
    written: &Written<E>,
    living: impl Fn(&E) -> Option<EntryFacts>,
) -> (Block, Vec<MessageId>) {
    let Written {
        number,
        ordinal,
        queue,
        state_index,
        entries,
    } = written;
    let mut block = Block::new(*number, *ordinal, *queue, *state_index);
    block.count = u32::try_from(entries.len()).expect("blocks count their entries in 32 bits");
    let mut ids = Vec::with_capacity(entries.len());
    for entry in entries {
        let living = living(entry);
        ids.push(living.map_or(MessageId(0), |living| living.id));
        if let Some(living) = living {
            block.count_in(&living);
        }
    }
    assert!(
        block.live <= block.count,
        "no more lives in a block than it has entries"
    );
    (block, ids)
}
