//! Keeping message groups in step with their queue, for those queues that have them.

use std::ops::Bound as Edge;
use std::sync::Arc;

use super::Durable;
use super::cold::{Shelf, is_copy_of};
use super::key_groups::{Building, KeyGroups, Rules, Standing, Survey};
use super::queue::Queue;
use quintet_types::{Message, MessageId, Ms, QueueId, StateIndex};

use crate::cold::BlockAt;

/// Memory of a key of a queue, bytes: its place among the keys, and the first node of the map of
/// its messages.
pub(super) const KEY: u64 = 380;

/// State of all keys and message groups together.
#[derive(Debug, Default)]
pub(crate) struct Keyed {
    /// Estimate of the memory that they take, bytes.
    pub(super) bytes: u64,
    /// Queues in which something may go that might not before.
    freed: Vec<QueueId>,
}

impl Keyed {
    /// Changes the groups of a queue, if it has them.
    #[inline]
    pub(super) fn change(&mut self, queue: &mut Queue, change: impl FnOnce(&mut KeyGroups)) {
        if let Some(groups) = &mut queue.groups {
            self.change_groups(queue.id, groups, change);
        }
    }

    #[inline(never)]
    fn change_groups(
        &mut self,
        id: QueueId,
        groups: &mut KeyGroups,
        change: impl FnOnce(&mut KeyGroups),
    ) {
        let before = groups.bytes();
        change(groups);
        self.bytes = self.bytes - before + groups.bytes();
        if groups.take_freed() && !std::mem::replace(&mut groups.noted, true) {
            self.freed.push(id);
        }
    }

    /// True if [`Durable::take_freed`] would answer some.
    #[inline]
    pub(crate) fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }
}

impl Durable {
    /// Queues in which something may go that might not when this was last
    /// asked.
    pub(crate) fn take_freed(&mut self) -> Vec<QueueId> {
        let freed = std::mem::take(&mut self.keyed.freed);
        for &id in &freed {
            if let Some(groups) = self.queue_mut(id).and_then(|queue| queue.groups.as_mut()) {
                groups.noted = false;
            }
        }
        freed
    }

    /// A queue's settings give its keys this meaning from now on.
    pub(crate) fn set_groups(&mut self, id: QueueId, rules: Option<Rules>) {
        // The log may set up a queue that is gone.
        let Some(queue) = self.queue(id) else { return };
        let rules = rules.filter(|_| !queue.live.dropped);
        if queue.groups.as_ref().map(|groups| groups.rules()) != rules {
            self.group_anew(id, rules);
        }
    }

    /// Forgets a queue's groups and, by these rules, begins to build them anew.
    pub(super) fn group_anew(&mut self, id: QueueId, rules: Option<Rules>) {
        let Some(queue) = self.queue_mut(id) else {
            // The queue went with what was flushed.
            return;
        };
        let cold = queue.cold.as_ref().is_none_or(|cold| cold.is_empty());
        let empty = queue.waiting_in_memory() == 0 && queue.reserved.is_empty() && cold;
        let mut groups = rules.map(|rules| Box::new(KeyGroups::new(rules, empty)));
        if let (Some(groups), Some(held)) = (&mut groups, &queue.held_keys) {
            for held in held.iter() {
                groups.hold(&held.key, Some(held.until), held.since);
            }
        }
        let bytes = groups.as_ref().map_or(0, |groups| groups.bytes());
        let old = std::mem::replace(&mut queue.groups, groups);
        self.keyed.bytes += bytes;
        if let Some(old) = old {
            self.keyed.bytes -= old.bytes();
            self.tombstones.groups(old);
        }
        self.rearm(id);
    }

    /// Goes on building a queue's groups with as many messages and blocks as are
    /// `left`; true if they are built.
    pub(crate) fn build_groups(&mut self, id: QueueId, left: &mut usize) -> bool {
        loop {
            let groups = self.expect_queue(id).groups.as_ref();
            let groups = groups.expect("groups that are not built stay until they are");
            if groups.is_built() {
                return true;
            }
            if *left == 0 {
                return false;
            }
            *left -= self.build_step(id, *left).clamp(1, *left);
        }
    }

    fn build_step(&mut self, id: QueueId, max: usize) -> usize {
        let Self {
            queues,
            messages,
            cold,
            keyed,
            ..
        } = self;
        let queue = queues.get_mut(id.0 as usize);
        let queue = queue.expect("groups are built in a queue that is there");
        let groups = queue.groups.take();
        let mut groups = groups.expect("groups that are there are built");
        let enter = |groups: &mut KeyGroups, slots: &[u32], standing| {
            for &slot in slots {
                groups.enter(messages.at(slot), slot, standing);
            }
            slots.len()
        };
        let mut steps = 0;
        keyed.change_groups(id, &mut groups, |groups| match groups.building {
            Building::Blocks(state_index, last) => {
                let shelf = queue.cold.as_ref();
                let blocks: Vec<_> = shelf.map_or(Vec::new(), |shelf| {
                    shelf.blocks_behind(state_index, last).take(max).collect()
                });
                steps = blocks.len();
                match blocks.last() {
                    Some(&last) => groups.building = Building::Blocks(state_index, Some(last)),
                    None => {
                        groups.building = match state_index {
                            StateIndex::Ready => Building::Blocks(StateIndex::Delayed, None),
                            StateIndex::NotSelectable
                            | StateIndex::Delayed
                            | StateIndex::Buried
                            | StateIndex::Archived => Building::Reserved(None),
                        }
                    }
                }
                for (_, at) in blocks {
                    if let Some(block) = cold.block(at) {
                        groups.shelve(at, &block.row, None);
                    }
                }
            }
            Building::Reserved(last) => {
                let some = queue.reserved.range(behind(last)).take(max);
                let slots = go_on(groups, some, Building::Reserved, Building::Delayed(None));
                steps = enter(groups, &slots, Standing::Reserved);
            }
            Building::Delayed(last) => {
                let some = queue.delayed.range(behind(last)).take(max);
                let some = some.map(|(&due, slot)| (due, slot));
                let slots = go_on(
                    groups,
                    some,
                    Building::Delayed,
                    Building::NotSelectable(None),
                );
                steps = enter(groups, &slots, Standing::Delayed);
            }
            Building::NotSelectable(last) => {
                let some = queue.not_selectable.range(behind(last)).take(max);
                let slots = go_on(groups, some, Building::NotSelectable, Building::Ready(None));
                steps = enter(groups, &slots, Standing::NotSelectable);
            }
            Building::Ready(last) => {
                let some = queue.ready.range(behind(last)).take(max);
                let slots = go_on(groups, some, Building::Ready, Building::Done);
                steps = enter(groups, &slots, Standing::Ready);
            }
            Building::Done => {}
        });
        queue.groups = Some(groups);
        steps
    }

    /// Lets those groups of a queue go whose time has come.
    pub(crate) fn ring_groups(&mut self, id: QueueId, now: Ms) {
        let Self { queues, keyed, .. } = self;
        let queue = queues.get_mut(id.0 as usize);
        if let Some(queue) = queue
            && let Some(groups) = &queue.groups
            && groups.alarm().is_some_and(|at| at <= now)
        {
            keyed.change(queue, |groups| groups.ring(now));
            self.rearm(id);
        }
    }

    /// A message of a queue with groups is handed out.
    pub(crate) fn handed_of_key(&mut self, id: QueueId, key: Option<&Arc<[u8]>>, now: Ms) {
        let Self { queues, keyed, .. } = self;
        let queue = queues.get_mut(id.0 as usize);
        if let Some(queue) = queue {
            keyed.change(queue, |groups| groups.handed(key, now));
            self.rearm(id);
        }
    }

    /// Where messages of a key were found.
    pub(crate) fn looked_up(&mut self, id: QueueId, key: &Arc<[u8]>, blocks: &[BlockAt]) {
        if let Some(groups) = self.queue_mut(id).and_then(|queue| queue.groups.as_mut()) {
            groups.looked_up(key, blocks.iter().copied());
        }
    }

    /// The survey of a block whose messages, these, are about to leave memory for a run; `from`:
    /// they are copies of those in this block, but for such as have left it. `None`: its queue has
    /// no groups, or not all are here.
    pub(super) fn survey(
        &self,
        id: QueueId,
        ids: impl Iterator<Item = MessageId>,
        from: Option<BlockAt>,
    ) -> Option<Survey> {
        let groups = self.queue(id)?.groups.as_ref()?;
        let mut messages: Vec<&Message> = Vec::new();
        for id in ids {
            let message = self.message(id);
            match from {
                None => messages.push(message.filter(|m| !m.segment_ref.is_run())?),
                Some(at) => messages.extend(message.filter(|m| is_copy_of(m, at))),
            }
        }
        Some(groups.survey(messages.into_iter(), from.is_some()))
    }

    fn survey_loaded(&self, at: BlockAt) -> Option<Survey> {
        let block = self.cold.block(at);
        let block = block.expect("a block that a queue has loaded is in force");
        let ids = match &block.shelf {
            Shelf::Loaded(_, ids) => Some(ids),
            Shelf::Stored | Shelf::Wanted | Shelf::Damaged => None,
        };
        let ids = ids.expect("a block that a queue has loaded is in memory");
        self.survey(block.row.queue, ids.iter().copied(), Some(at))
            .filter(|_| block.row.state_index == StateIndex::Ready)
    }

    /// Drops copies of blocks in which nothing may go now, if more than `keep`
    /// of the queue's are in memory: consumers that wait behind what may not go
    /// do not bring all of it into memory.
    pub(crate) fn shed(&mut self, id: QueueId, keep: usize) {
        // The queue went with the last message that was taken out of it.
        let Some(queue) = self.queue(id) else { return };
        let (Some(groups), Some(cold)) = (&queue.groups, &queue.cold) else {
            // Its keys mean nothing, or nothing of it is in runs.
            return;
        };
        if cold.loaded.len() <= keep || groups.knows_enough() {
            // Clients have had few blocks loaded, or what is known of others is enough.
            return;
        }
        let mut left = cold.loaded.len() - keep;
        let loaded: Vec<BlockAt> = cold.loaded.iter().copied().collect();
        for at in loaded {
            if left == 0 {
                // As many have gone as were to go.
                return;
            }
            let Some(survey) = self.survey_loaded(at) else {
                // Its messages are not ready.
                continue;
            };
            if survey.is_stuck() {
                self.unload(at);
                left -= 1;
            }
        }
    }

    /// # Errors
    /// Groups are not what the queue's messages and blocks come to.
    pub(super) fn verify_groups(&self) -> Result<(), String> {
        let mut bytes = 0;
        for queue in self.queues.iter() {
            bytes += queue.keys.len() as u64 * KEY;
            let rules = Rules::of(&queue.live.settings).filter(|_| !queue.live.dropped);
            let found = queue.groups.as_ref().map(|groups| groups.rules());
            if found != rules {
                return Err(format!("{}: groups {found:?}, not {rules:?}", queue.name));
            }
            let Some(groups) = &queue.groups else {
                // By the settings its keys mean nothing.
                continue;
            };
            bytes += groups.bytes();
            if !groups.is_built() {
                continue;
            }
            let mut slow = KeyGroups::new(groups.rules(), true);
            let maps = [
                (Standing::Ready, slots(queue.ready.values())),
                (
                    Standing::NotSelectable,
                    slots(queue.not_selectable.values()),
                ),
                (Standing::Delayed, slots(queue.delayed.values())),
                (Standing::Reserved, slots(queue.reserved.values())),
            ];
            for (standing, slots) in maps {
                for slot in slots {
                    slow.enter(self.messages.at(slot), slot, standing);
                }
            }
            groups
                .verify(&slow)
                .map_err(|text| format!("{}: {text}", queue.name))?;
            let tables = self.cold.runs.iter();
            let blocks = tables.flat_map(|(&run, table)| {
                let at = move |ordinal: u32| BlockAt { run, ordinal };
                table
                    .blocks
                    .iter()
                    .map(move |(&ordinal, block)| (at(ordinal), block))
            });
            for (at, block) in blocks.filter(|(_, block)| block.row.queue == queue.id) {
                if block.is_stored() && !groups.has_block(at, &block.row) {
                    return Err(format!("{}: {at:?} is in no group", queue.name));
                }
            }
        }
        if bytes != self.keyed.bytes {
            return Err(format!("{bytes} bytes of groups, not {}", self.keyed.bytes));
        }
        Ok(())
    }
}

fn behind<K>(last: Option<K>) -> (Edge<K>, Edge<K>) {
    (
        last.map_or(Edge::Unbounded, Edge::Excluded),
        Edge::Unbounded,
    )
}

/// The slots of these. The building of groups goes on behind them, or with `next` if there are
/// none.
fn go_on<'a, K: Copy>(
    groups: &mut KeyGroups,
    some: impl Iterator<Item = (K, &'a u32)>,
    here: fn(Option<K>) -> Building,
    next: Building,
) -> Vec<u32> {
    let mut last = None;
    let slots = some.map(|(key, &slot)| {
        last = Some(key);
        slot
    });
    let slots = slots.collect();
    groups.building = match last {
        Some(_) => here(last),
        None => next,
    };
    slots
}

fn slots<'a>(slots: impl Iterator<Item = &'a u32>) -> Vec<u32> {
    slots.copied().collect()
}
