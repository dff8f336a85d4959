//! Queues as facts change them: made, flushed and dropped.

use super::ends::EndStep;
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
        self.detach(id, step, |queue, tombstones| {
            let keys = Self::detach_waiting(queue, tombstones);
            if reserved {
                Self::detach_reserved(queue, tombstones);
            }
            keys
        });
        self.flush_cold(id, Ended::Purged, false);
        if rules.is_some() {
            self.group_anew(id, rules);
        }
        self.rearm(id);
    }

    /// Detaches a part of a queue, if it exists. `part` answers the bytes that its keys took.
    fn detach(
        &mut self,
        id: QueueId,
        step: EndStep,
        part: impl FnOnce(&mut Queue, &mut Tombstones) -> u64,
    ) {
        let mut tombstones = std::mem::take(&mut self.tombstones);
        tombstones.happen(step);
        let keys = self.recount(id, |queue| part(queue, &mut tombstones));
        self.tombstones = tombstones;
        self.bury_dedupe(id);
        self.keyed.bytes -= keys.unwrap_or_default();
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
        let step = self.ends.step().all_go(Ended::QueueDeleted);
        let drops = self.queue(id).is_some_and(|queue| !queue.live.dropped);
        if drops {
            self.flush_cold(id, Ended::QueueDeleted, true);
        }
        self.leave_account(id);
        self.detach(id, step, |queue, tombstones| {
            if !drops {
                return 0;
            }
            let keys = Self::detach_waiting(queue, tombstones);
            tombstones.by_turn(std::mem::take(&mut queue.buried));
            tombstones.by_id(std::mem::take(&mut queue.prepared));
            tombstones.timed(std::mem::take(&mut queue.archived));
            queue.done = 0;
            queue.live.dropped = true;
            queue.pause = None;
            keys
        });
        self.drop_holds(id);
        if !drops {
            // The log may drop a queue twice, or one that it did not make.
            return;
        }
        self.ghosts.insert(id);
        self.unlink_queue(id, idle);
        self.rearm(id);
        self.weigh(id);
        self.forget_empty_ghost(id);
    }

    /// Takes a dropped queue from the names, from its parent and its children, and counts it. Its
    /// reserved messages go with their leases.
    fn unlink_queue(&mut self, id: QueueId, idle: bool) {
        let queue = self.queues.get_mut(id.0 as usize);
        let queue = queue.expect("a queue that is dropped loses its links before it goes");
        if let Some(groups) = queue.groups.take() {
            self.keyed.bytes -= groups.bytes();
            self.tombstones.groups(groups);
        }
        let counts = match queue.live.settings.memory {
            true => &mut self.memory_counts,
            false => &mut self.counts,
        };
        if idle {
            counts.expired += 1;
        } else {
            counts.dropped += 1;
        }
        if self.names.get(&queue.name) == Some(&id) {
            self.names.remove(&queue.name);
            self.sorted.remove(&queue.name);
        }
        let mut doomed = Vec::new();
        for &slot in queue.reserved.values() {
            if let Some(message) = self.messages.get_mut(slot) {
                message.doomed = true;
                if !self.dependencies.is_empty() {
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
    }
}
