//! Messages in runs: which blocks are in force, what has left them, and which
//! are in memory as well.
//!
//! Durable: the blocks and their dead bits, a function of the facts. Volatile:
//! whether a block's messages are loaded. A loaded message is an ordinary one
//! of the slab whose segment reference is its run; it can be unloaded at any time, and
//! whatever is to happen to it makes it leave the run first
//! ([`Fact::Loaded`]).

mod run;
mod shelf;

pub(crate) use run::{ColdBlock, ColdRuns, Shelf};
pub(crate) use shelf::{QueueCold, Shelved};

use super::Durable;
use quintet_types::{
    At, Body, ColdStats, Ended, Message, MessageId, Ms, Order, QueueId, RunId, SegmentRef, State,
    StateIndex,
};

use crate::cold::{Block, BlockAt, URGENT_BELOW};
use crate::fact::Fact;
use crate::store::key_groups::Survey;

impl Durable {
    /// A block of a run is in force: its messages leave memory.
    pub(super) fn apply_evicted(&mut self, run: RunId, row: Block, ids: &[MessageId]) {
        // A log that puts it in force twice must not leave two of it in the indexes.
        let block = BlockAt::of(run, row.ordinal);
        self.unload(block);
        self.forget_block(block);
        let alive = ids.iter().copied().filter(|id| id.0 != 0);
        let survey = self.survey(row.queue, alive, None);
        let mut dead: Option<Box<[u64]>> = None;
        for (at, &id) in ids.iter().enumerate() {
            if id.0 == 0 {
                let words = ids.len().div_ceil(64);
                let dead = dead.get_or_insert_with(|| vec![0; words].into_boxed_slice());
                dead[at / 64] |= 1 << (at % 64);
                continue;
            }
            // Replay may not have seen its put; a message that is only on its
            // way from one run to another is not here either.
            if let Some(slot) = self.slot(id)
                && self
                    .messages
                    .get(slot)
                    .is_some_and(|m| !m.segment_ref.is_run())
            {
                self.take_out(slot);
            }
        }
        self.keep_tied(row.queue, ids);
        self.put_in_force(run, row, dead, survey);
    }

    /// The block as a snapshot has it: no effect if it is known.
    pub(super) fn run_image(&mut self, run: RunId, row: Block, dead: Option<Box<[u64]>>) {
        let known = self.cold.block(BlockAt::of(run, row.ordinal));
        if known.is_none() {
            self.put_in_force(run, row, dead, None);
        }
    }

    fn put_in_force(
        &mut self,
        run: RunId,
        row: Block,
        dead: Option<Box<[u64]>>,
        survey: Option<Survey>,
    ) {
        if row.live == 0 || self.queue(row.queue).is_none_or(|queue| queue.live.dropped) {
            // All of it has left since it was written, or a client has dropped its queue.
            return;
        }
        let at = BlockAt::of(run, row.ordinal);
        let table = self.cold.runs.entry(run).or_default();
        table.live += u64::from(row.live);
        table.entries += u64::from(row.count);
        self.cold.blocks += 1;
        self.cold.epoch += 1;
        self.cold.dead_bytes += dead.as_ref().map_or(0, |dead| dead.len() as u64 * 8);
        table
            .blocks
            .insert(row.ordinal, Box::new(ColdBlock::new(row, dead)));
        self.shelve(at, &row, survey);
        if let Some(queue) = self.queue_mut(row.queue) {
            if row.state_index == StateIndex::Ready || row.state_index == StateIndex::NotSelectable
            {
                queue.head = queue.head.min(row.first.1);
            }
            if row.state_index == StateIndex::Buried {
                queue.bury_order = queue.bury_order.max(row.last.1 as u64);
            }
        }
        if let Some(rings) = row.expires {
            self.cold.rings.insert((rings, at));
        }
        self.next_id = self
            .next_id
            .max((row.last.2.0 & !self.id_bits) + 1)
            .max((row.first.2.0 & !self.id_bits) + 1);
        self.marked = self.marked.max(self.next_id);
        self.rearm(row.queue);
    }

    /// A message leaves its run: the next fact says what happens to it.
    pub(super) fn apply_loaded(
        &mut self,
        run: RunId,
        ordinal: u32,
        at: At,
        bytes: u64,
        apart: bool,
        segment_ref: SegmentRef,
    ) {
        let Some(table) = self.cold.runs.get_mut(&run) else {
            // Replay may begin behind the end of the run.
            return;
        };
        let Some((first, block)) = table.block_of(ordinal) else {
            // The same of the block.
            return;
        };
        if !block.is_alive(ordinal) {
            // Replay may begin with an image in which it has left.
            return;
        }
        let block = table.blocks.get_mut(&first);
        let block = block.expect("the block was found by its first entry");
        let had = block.dead.is_some();
        block.mark_dead(ordinal);
        if !had {
            self.cold.dead_bytes += block.row.count.div_ceil(64) as u64 * 8;
        }
        let row = block.row;
        let urgent = row.state_index == StateIndex::Ready && at.priority < URGENT_BELOW;
        block.row.live -= 1;
        // Blocks of older versions counted bodies only.
        let bytes = bytes.min(row.bytes);
        block.row.bytes -= bytes;
        block.row.urgent = block.row.urgent.saturating_sub(u32::from(urgent));
        // Those that were delayed were not counted apart at first.
        let apart = match row.state_index {
            StateIndex::Delayed | StateIndex::Archived => apart && row.apart > 0,
            StateIndex::Ready | StateIndex::NotSelectable | StateIndex::Buried => false,
        };
        block.row.apart -= u32::from(apart);
        table.live -= 1;
        let (stored, empty) = (block.is_stored(), block.row.live == 0);
        if stored {
            let at = BlockAt::of(run, first);
            self.thin(at, &row, bytes, urgent, apart);
        }
        if empty {
            self.forget_block(BlockAt::of(run, first));
        }
        // From here on it lives in the log again, if it lives.
        if let Some(slot) = self.slot(at.id)
            && let Some(message) = self.messages.get_mut(slot)
            && message.segment_ref.is_run()
        {
            let body_run = run_of_body(message);
            message.ordinal = 0;
            message.segment_ref = match &message.body {
                Body::Large(large) if body_run.is_none() => {
                    SegmentRef(segment_ref.0.min(large.segment_ref()))
                }
                Body::Large(_) | Body::Small(_) => segment_ref,
            };
            let segment_ref = message.segment_ref;
            self.count_segment_ref(segment_ref);
            self.count_body(body_run);
        }
    }

    /// Takes a block out of everything, whatever is left in it.
    pub(crate) fn forget_block(&mut self, at: BlockAt) -> Option<Box<ColdBlock>> {
        let table = self.cold.runs.get_mut(&at.run)?;
        let block = table.blocks.remove(&at.ordinal)?;
        table.live -= u64::from(block.row.live);
        table.entries -= u64::from(block.row.count);
        let empty = table.blocks.is_empty();
        self.cold.blocks -= 1;
        let words = block.dead.as_ref().map_or(0, |dead| dead.len() as u64);
        self.cold.dead_bytes -= words * 8;
        let rang = block
            .rings
            .is_none_or(|rings| self.cold.rings.remove(&(rings, at)));
        assert!(rang, "a block that is forgotten rings no more");
        match block.shelf {
            Shelf::Stored | Shelf::Wanted => {
                self.unshelve(at, &block.row);
                self.rearm(block.row.queue);
            }
            Shelf::Loaded(turn, _) => {
                let was = self.cold.loaded.remove(&turn);
                assert!(
                    was == Some(at),
                    "a block that is in memory is among the loaded ones"
                );
                if let Some(queue) = self.queue_mut(block.row.queue) {
                    queue.cold_mut().loaded.remove(&at);
                }
            }
            Shelf::Damaged => self.cold.damaged -= u64::from(block.row.live),
        }
        if empty {
            self.cold.runs.remove(&at.run);
            self.cold.gone.push(at.run);
        }
        Some(block)
    }

    /// Forgets the rest of a run: it was written again elsewhere.
    pub(super) fn run_gone(&mut self, run: RunId) {
        let Some(table) = self.cold.runs.get(&run) else {
            // Nothing of it was in force.
            return;
        };
        let ordinals: Vec<u32> = table.blocks.keys().copied().collect();
        for ordinal in ordinals {
            let at = BlockAt { run, ordinal };
            self.unload(at);
            self.forget_block(at);
        }
    }

    /// Applies a flush (or, with `all`, a drop) of a queue, told as `why`, to its blocks. Loaded
    /// messages of them are in the queue's maps and go with those.
    pub(super) fn flush_cold(&mut self, id: QueueId, why: Ended, all: bool) {
        let step = self.ends.step().all_go(why);
        let goes = |state_index: StateIndex| all || state_index.is_waiting();
        let mut blocks: Vec<BlockAt> = Vec::new();
        if let Some(cold) = self.queue(id).and_then(|queue| queue.cold.as_ref()) {
            for &state_index in StateIndex::ALL {
                if goes(state_index) {
                    blocks.extend(cold.blocks(state_index).map(|&(_, at)| at));
                }
            }
            blocks.extend(cold.loaded.iter().filter(|&&at| {
                let block = self.cold.block(at);
                block.is_some_and(|block| goes(block.row.state_index))
            }));
        }
        if self.cold.damaged > 0 {
            // The queue has those in no map. A start, which has read none, takes them as well.
            for (&run, table) in &self.cold.runs {
                for (&ordinal, block) in &table.blocks {
                    let is_lost = matches!(block.shelf, Shelf::Damaged);
                    if is_lost && block.row.queue == id && goes(block.row.state_index) {
                        blocks.push(BlockAt { run, ordinal });
                    }
                }
            }
        }
        let newest = self.last_id();
        for at in blocks {
            let removed = self.forget_block(at);
            if let Some(block) = removed.filter(|block| !matches!(block.shelf, Shelf::Loaded(..))) {
                self.ends.add_block(step, at, *block, newest);
            }
        }
    }

    /// Brings a block's messages into memory; those that have left are passed
    /// over. False if the block is not in force or is loaded.
    pub(crate) fn load(&mut self, at: BlockAt, messages: Vec<(u32, Message)>) -> bool {
        let Some(block) = self.cold.block_mut(at) else {
            // Its run went while it was read.
            return false;
        };
        if !block.is_stored() {
            // Another read of it was supplied first.
            return false;
        }
        let row = block.row;
        let alive: Vec<(u32, Message)> = messages
            .into_iter()
            .filter(|(ordinal, _)| *ordinal >= at.ordinal && block.is_alive(*ordinal))
            .collect();
        let ids: Box<[MessageId]> = alive.iter().map(|(_, message)| message.id).collect();
        let turn = self.cold.turn + 1;
        let block = self.cold.block_mut(at);
        let block = block.expect("a block is in force while it is loaded");
        block.shelf = Shelf::Loaded(turn, ids);
        let rings = block.rings.take();
        let rang = rings.is_none_or(|rings| self.cold.rings.remove(&(rings, at)));
        assert!(rang, "a stored block in which something expires rings");
        self.cold.turn = turn;
        let other = self.cold.loaded.insert(turn, at);
        assert!(other.is_none(), "each turn loads one block");
        self.unshelve(at, &row);
        if let Some(queue) = self.queue_mut(row.queue) {
            queue.cold_mut().loaded.insert(at);
        }
        for (ordinal, mut message) in alive {
            message.segment_ref = SegmentRef::of_run(at.run);
            message.ordinal = ordinal;
            message.queue = row.queue;
            self.body_bytes += Self::held_bytes(&message);
            self.note_followed(&message);
            let id = message.id;
            let slot = self.messages.insert(message);
            self.ids.insert(id.0, slot);
            self.index_loaded(slot, row.state_index);
        }
        self.rearm(row.queue);
        true
    }

    /// A block's messages leave memory again. Nothing happens to them.
    pub(crate) fn unload(&mut self, at: BlockAt) {
        let Some(block) = self.cold.block_mut(at) else {
            // Its run was replaced, or nothing was left in the block.
            return;
        };
        // One that is not loaded keeps its place: taken for stored, an unreadable
        // one would leave counts it is not in.
        let Shelf::Loaded(turn, ids) = &mut block.shelf else {
            return;
        };
        let (turn, ids) = (*turn, std::mem::take(ids));
        block.shelf = Shelf::Stored;
        let queue = block.row.queue;
        let survey = self.survey(queue, ids.iter().copied(), Some(at));
        let was = self.cold.loaded.remove(&turn);
        assert!(
            was == Some(at),
            "a block that leaves memory is among the loaded ones"
        );
        self.cold.epoch += 1;
        let mut expires: Option<Ms> = None;
        for &id in &ids {
            let Some(slot) = self.ids.get(id.0) else {
                // It was removed since.
                continue;
            };
            let message = self.messages.get(slot);
            if !message.is_some_and(|message| is_copy_of(message, at)) {
                continue;
            }
            self.index_out(slot);
            let message = self.messages.remove(slot);
            let message = message.expect("a copy is there until its block leaves memory");
            self.ids.remove(id.0);
            self.body_bytes -= Self::held_bytes(&message);
            expires = match (expires, message.ends()) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        let block = self.cold.block_mut(at);
        let block = block.expect("a block stays in force when its copies go");
        // What expired first may be gone; the block need not be read for it.
        block.rings = expires;
        let (row, rings) = (block.row, block.rings);
        if let Some(rings) = rings {
            self.cold.rings.insert((rings, at));
        }
        if let Some(queue) = self.queue_mut(queue) {
            queue.cold_mut().loaded.remove(&at);
        }
        self.shelve(at, &row, survey);
        self.rearm(queue);
    }

    /// Copies of delayed messages of a block that are due by now.
    pub(crate) fn due_copies(&self, at: BlockAt, now: Ms) -> Vec<MessageId> {
        let block = self.cold.block(at);
        let block = block.expect("a block among the loaded ones is in force");
        let Shelf::Loaded(_, ids) = &block.shelf else {
            unreachable!("a block among the loaded ones is in memory");
        };
        if block.row.state_index != StateIndex::Delayed {
            return Vec::new();
        }
        let due = |id: &&MessageId| {
            let message = self.message(**id);
            message.is_some_and(|m| {
                m.segment_ref == SegmentRef::of_run(at.run) && m.due().is_some_and(|due| due <= now)
            })
        };
        ids.iter().filter(due).copied().collect()
    }

    /// A block turned out to be unreadable: what is in it is out of reach, and
    /// the rest goes on without it.
    pub(crate) fn give_up(&mut self, at: BlockAt) {
        let Some(block) = self.cold.block_mut(at) else {
            // Its run was replaced while it was read.
            return;
        };
        if !block.is_stored() {
            // Another read of it was supplied first.
            return;
        }
        block.shelf = Shelf::Damaged;
        let (row, rings) = (block.row, block.rings.take());
        let rang = rings.is_none_or(|rings| self.cold.rings.remove(&(rings, at)));
        assert!(rang, "a block rings until it is given up");
        self.cold.damaged += u64::from(row.live);
        self.unshelve(at, &row);
        self.rearm(row.queue);
    }

    /// Asks for a block: true if nobody has yet.
    pub(crate) fn ask_for(&mut self, at: BlockAt) -> Option<u32> {
        let block = self.cold.block_mut(at)?;
        if !matches!(block.shelf, Shelf::Stored) {
            return None;
        }
        block.shelf = Shelf::Wanted;
        let row = block.row;
        // Its alarm has been heard.
        self.rearm(row.queue);
        Some(row.number)
    }

    /// The stored block of a state index that may hold what stands next behind
    /// `after`, and where that may be at the earliest.
    pub(crate) fn next_cold(
        &self,
        id: QueueId,
        state_index: StateIndex,
        after: Option<Order>,
    ) -> Option<(Order, BlockAt)> {
        self.queue(id)?.cold.as_ref()?.next(state_index, after)
    }

    /// The stored block of a state index that may hold what stands next before `before`, and where
    /// that may be at the latest.
    pub(crate) fn previous_cold(
        &self,
        id: QueueId,
        state_index: StateIndex,
        before: Option<Order>,
    ) -> Option<(Order, BlockAt)> {
        self.queue(id)?.cold.as_ref()?.previous(state_index, before)
    }

    /// The stored block with the delayed message that is due last, and where
    /// that stands at most.
    pub(crate) fn last_delayed(&self, id: QueueId) -> Option<(Order, BlockAt)> {
        self.previous_cold(id, StateIndex::Delayed, None)
    }

    /// True if a message of this id may be in a run and not in memory.
    pub(crate) fn may_be_cold(&self, id: MessageId) -> bool {
        id.0 != 0 && !self.cold.is_empty() && self.ids.get(id.0).is_none() && id <= self.last_id()
    }

    /// The facts that tell a new segment of what is in force.
    pub(super) fn snapshot_runs(&self, record: &mut dyn FnMut(&Fact)) {
        for (&run, table) in &self.cold.runs {
            for block in table.blocks.values() {
                record(&block.image(run));
            }
        }
    }

    pub(crate) fn cold_stats(&self) -> ColdStats {
        let cold = &self.cold;
        ColdStats {
            runs: cold.runs.len() as u64,
            blocks: cold.blocks,
            loaded: cold.loaded.len() as u64,
            messages: cold.runs.values().map(|run| run.live).sum(),
            damaged: cold.damaged,
        }
    }

    /// One more message in memory has its body in a run.
    pub(super) fn count_body(&mut self, run: Option<RunId>) {
        if let Some(run) = run {
            *self.cold.bodies.entry(run).or_insert(0) += 1;
        }
    }

    pub(super) fn uncount_body(&mut self, run: Option<RunId>) {
        if let Some(run) = run {
            let count = self.cold.bodies.get_mut(&run);
            let count = count.expect("a body in a run is counted while its message is here");
            *count -= 1;
            if *count == 0 {
                self.cold.bodies.remove(&run);
                if !self.cold.runs.contains_key(&run) {
                    self.cold.gone.push(run);
                }
            }
        }
    }
}

/// True if it is a copy of one in this block of a run, or of one behind it.
pub(super) fn is_copy_of(message: &Message, at: BlockAt) -> bool {
    message.segment_ref == SegmentRef::of_run(at.run) && message.ordinal >= at.ordinal
}

/// The run a message's large body lies in, if the message itself does not.
pub(super) fn run_of_body(message: &Message) -> Option<RunId> {
    match &message.body {
        Body::Large(large) => SegmentRef(large.segment_ref()).run(),
        Body::Small(_) => None,
    }
}

/// The state index of a message that may leave memory; `None`: it may not.
pub(crate) fn state_index_of(message: &Message, delayed: bool) -> Option<StateIndex> {
    match message.state {
        State::Ready if delayed => Some(StateIndex::Delayed),
        State::Ready if message.selectable => Some(StateIndex::Ready),
        State::Ready => Some(StateIndex::NotSelectable),
        State::Buried => Some(StateIndex::Buried),
        State::Done | State::Relayed => Some(StateIndex::Archived),
        State::Reserved | State::Prepared => None,
    }
}
