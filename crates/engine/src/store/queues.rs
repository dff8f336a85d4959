//! Queues as facts change them: made, flushed and dropped.

use super::keyed::KEY;
use super::{Durable, Queue, Tombstones};
use quintet_types::{Ended, Ms, Name, QueueId};

impl Durable {
    pub(super) fn queue_made(
        &mut self,
        id: QueueId,
        name: Name,
        parent: Option<QueueId>,
        created: Ms,
    ) {
        self.vacate(id);
        match self.queue_mut(id) {
            Some(queue) => {
                let known = std::mem::replace(&mut queue.live.recorded, true);
                queue.parent = queue.parent.or(parent);
                let memory = queue.live.settings.memory;
                self.counts_of(memory).made += u64::from(!known);
            }
            None => {
                self.counts.made += 1;
                self.insert_queue(Queue {
                    id,
                    name,
                    parent,
                    created,
                    ..Queue::default()
                });
                if let Some(queue) = self.queue_mut(id) {
                    queue.live.recorded = true;
                }
            }
        }
        self.weigh(id);
        if let Some(parent) = parent
            && let Some(parent) = self.queue_mut(parent)
            && !parent.children.contains(&id)
        {
            parent.children.push(id);
        }
    }

    /// Frees what is left of a dropped queue whose number comes again.
    ///
    /// A snapshot does not name dropped queues, so an owner that began from a later snapshot than
    /// this node may give their numbers to new queues.
    fn vacate(&mut self, id: QueueId) {
        let known = (id.0 as usize) < self.queues.len();
        if !known || self.queue(id).is_some_and(|queue| !queue.live.dropped) {
            // The number is new, or the log makes a queue again that is there.
            return;
        }
        let queue = self.queue(id);
        let reserved = queue.map(|queue| queue.reserved.values().copied().collect());
        let reserved: Vec<u32> = reserved.unwrap_or_default();
        for slot in reserved {
            self.take_out(slot);
        }
        while self.collect(1 << 16) {}
        assert!(
            self.queue(id).is_none(),
            "a dropped queue goes with its last reserved message"
        );
    }

    pub(super) fn flush(&mut self, id: QueueId, count: u64, reserved: bool) {
        let known = self.count_in(id, |totals| {
            totals.flushes += 1;
            totals.flushed += count;
        });
        if !known {
            // The log may flush a queue that is gone.
            return;
        }
        let goes = self
            .queue(id)
            .filter(|queue| queue.waiting() > 0 || reserved);
        let rules = goes.and_then(|queue| Some(queue.groups.as_ref()?.rules()));
        let step = self.ends.step().all_go(Ended::Purged);
        let mut tombstones = std::mem::take(&mut self.tombstones);
        tombstones.happen(step);
        let mut keys = 0;
        self.recount(id, |queue| {
            keys = Self::detach_waiting(queue, &mut tombstones);
            if reserved {
                Self::detach_reserved(queue, &mut tombstones);
            }
        });
        self.tombstones = tombstones;
        self.bury_dedupe(id);
        self.keyed.bytes -= keys;
        self.flush_cold(id, Ended::Purged, false);
        if rules.is_some() {
            self.group_anew(id, rules);
        }
        self.rearm(id);
    }

    /// Answers what its keys took.
    fn detach_waiting(queue: &mut Queue, tombstones: &mut Tombstones) -> u64 {
        if queue.waiting_in_memory() == 0 && queue.cold.is_none() {
            // No new generation for nothing.
            return 0;
        }
        queue.generation = queue.generation.wrapping_add(1);
        queue.shrink(queue.waiting_bytes);
        queue.waiting_bytes = 0;
        (queue.urgent, queue.retrying, queue.held) = (0, 0, 0);
        tombstones.ordered(std::mem::take(&mut queue.ready));
        tombstones.ordered(std::mem::take(&mut queue.not_selectable));
        tombstones.timed(std::mem::take(&mut queue.delayed));
        std::mem::take(&mut queue.keys).len() as u64 * KEY
    }

    /// Nothing waits any more.
    fn detach_reserved(queue: &mut Queue, tombstones: &mut Tombstones) {
        queue.held_generation = queue.held_generation.wrapping_add(1);
        // Deduplication records that end with what was reserved are over as well.
        queue.generation = queue.generation.wrapping_add(1);
        queue.shrink(queue.reserved_bytes);
        queue.reserved_bytes = 0;
        tombstones.held(std::mem::take(&mut queue.reserved));
    }

    pub(super) fn drop_queue(&mut self, id: QueueId, idle: bool) {
        let has_dependencies = !self.dependencies.is_empty();
        let step = self.ends.step().all_go(Ended::QueueDeleted);
        if self.queue(id).is_some_and(|queue| !queue.live.dropped) {
            self.flush_cold(id, Ended::QueueDeleted, true);
        }
        self.leave_account(id);
        let mut tombstones = std::mem::take(&mut self.tombstones);
        tombstones.happen(step);
        let mut keys = 0;
        let dropped = self.recount(id, |queue| {
            if queue.live.dropped {
                return false;
            }
            keys = Self::detach_waiting(queue, &mut tombstones);
            tombstones.by_turn(std::mem::take(&mut queue.buried));
            tombstones.by_id(std::mem::take(&mut queue.prepared));
            tombstones.timed(std::mem::take(&mut queue.archived));
            queue.done = 0;
            queue.live.dropped = true;
            queue.pause = None;
            true
        });
        if dropped == Some(true) {
            self.ghosts.insert(id);
        }
        self.drop_holds(id);
        self.tombstones = tombstones;
        self.bury_dedupe(id);
        self.keyed.bytes -= keys;
        let Self {
            queues,
            messages,
            names,
            sorted,
            counts,
            memory_counts,
            keyed,
            tombstones,
            ..
        } = self;
        let Some(queue) = queues.get_mut(id.0 as usize).and_then(Option::as_deref_mut) else {
            // The log may drop a queue that it did not make.
            return;
        };
        if dropped != Some(true) {
            // The log may drop a queue twice.
            return;
        }
        if let Some(groups) = queue.groups.take() {
            keyed.bytes -= groups.bytes();
            tombstones.groups(groups);
        }
        let memory = queue.live.settings.memory;
        let counts = if memory { memory_counts } else { counts };
        if idle {
            counts.expired += 1;
        } else {
            counts.dropped += 1;
        }
        if names.get(&queue.name) == Some(&id) {
            names.remove(&queue.name);
            sorted.remove(&queue.name);
        }
        let mut doomed = Vec::new();
        for &slot in queue.reserved.values() {
            if let Some(message) = messages.get_mut(slot) {
                message.doomed = true;
                if has_dependencies {
                    doomed.push(message.id);
                }
            }
        }
        let (parent, children) = (queue.parent, std::mem::take(&mut queue.children));
        for child in children {
            if let Some(queue) = self.queue_mut(child) {
                queue.parent = None;
            }
            self.weigh(child);
        }
        if let Some(parent) = parent.and_then(|parent| self.queue_mut(parent)) {
            parent.children.retain(|&child| child != id);
        }
        // Waits for one of these end, whatever its holder does.
        for id in doomed {
            self.lose_dependent(id);
        }
        self.rearm(id);
        self.weigh(id);
        self.forget_empty_ghost(id);
    }
}
