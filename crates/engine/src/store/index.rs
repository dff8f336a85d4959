//! Keeping the queue's maps in step with a message's state.

use std::cmp::Reverse;

use super::Durable;
use super::cold::run_of_body;
use super::key_groups::Standing;
use super::keyed::{KEY, Keyed};
use super::named;
use super::queue::GroupOrder;
use quintet_types::{
    Body, HELD, Lease, Message, MessageId, Ms, QueueGauges, QueueId, SegmentRef, State, StateIndex,
};

use crate::cold::URGENT_BELOW;

/// Messages of a queue that become ready in one step.
const PROMOTED_AT_ONCE: usize = 128;

fn group_order(message: &Message) -> GroupOrder {
    (
        !message.selectable,
        message.order().0,
        Reverse(message.position),
        Reverse(message.id),
    )
}

fn ready_as(message: &Message) -> Standing {
    match message.selectable {
        true => Standing::Ready,
        false => Standing::NotSelectable,
    }
}

impl Durable {
    /// Bytes of memory a message's parts of variable length use.
    pub(super) fn held_bytes(message: &Message) -> u64 {
        let body = match &message.body {
            // The reference counts and the allocator's rounding.
            Body::Small(bytes) => bytes.len() as u64 + 24,
            Body::Large(_) => 128,
        };
        body + message.extra_bytes()
    }

    /// Adds a message that is in no map yet.
    pub(super) fn add(
        &mut self,
        mut message: Message,
        lease: Option<Lease>,
        segment_ref: SegmentRef,
    ) {
        let body_run = run_of_body(&message);
        message.segment_ref = match &message.body {
            Body::Large(large) if body_run.is_none() => {
                SegmentRef(segment_ref.0.min(large.segment_ref()))
            }
            Body::Large(_) | Body::Small(_) => segment_ref,
        };
        message.ordinal = 0;
        self.count_segment_ref(message.segment_ref);
        self.count_body(body_run);
        self.body_bytes += Self::held_bytes(&message);
        self.next_id = self.next_id.max((message.id.0 & !self.id_bits) + 1);
        self.marked = self.marked.max(self.next_id);
        self.note_followed(&message);
        let id = message.id;
        let slot = self.messages.insert(message);
        self.ids.insert(id.0, slot);
        if let Some(lease) = lease {
            self.lease_in(slot, id, lease);
        }
        self.index_in(slot);
    }

    /// Takes a message out of everything.
    pub(super) fn take_out(&mut self, slot: u32) -> Message {
        self.index_out(slot);
        let message = self.messages.remove(slot);
        let message = message.expect("a message is there until it is taken out");
        self.lease_out(slot, message.id);
        self.ids.remove(message.id.0);
        if !message.segment_ref.is_run() {
            self.uncount_segment_ref(message.segment_ref);
            self.uncount_body(run_of_body(&message));
        }
        self.body_bytes -= Self::held_bytes(&message);
        self.forget_empty_ghost(message.queue);
        message
    }

    pub(super) fn lease_in(&mut self, slot: u32, id: MessageId, lease: Lease) {
        if let Some(until) = lease.until {
            self.lease_ends.insert((until, id));
        }
        if lease.client_id.0 != 0 {
            self.held.entry(lease.client_id).or_default().push(id);
        }
        self.leases.insert(slot, lease);
    }

    pub(super) fn lease_out(&mut self, slot: u32, id: MessageId) -> Option<Lease> {
        let lease = self.leases.remove(&slot)?;
        if let Some(until) = lease.until {
            self.lease_ends.remove(&(until, id));
        }
        if let Some(held) = self.held.get_mut(&lease.client_id) {
            // Mostly the oldest is settled first; a connection's end begins
            // with the newest.
            if held.last() == Some(&id) {
                held.pop();
            } else if let Some(at) = held.iter().position(|&other| other == id) {
                held.remove(at);
            }
            if held.is_empty() {
                self.held.remove(&lease.client_id);
            }
        }
        Some(lease)
    }

    /// Enters a message into the map of its state.
    #[inline]
    pub(super) fn index_in(&mut self, slot: u32) {
        self.enter(slot, false);
    }

    /// Enters a message that came from this state index of a run. It may be ready
    /// since its due time came, so the due time alone does not tell.
    pub(super) fn index_loaded(&mut self, slot: u32, state_index: StateIndex) {
        let was_ready = matches!(state_index, StateIndex::Ready | StateIndex::NotSelectable);
        self.enter(slot, was_ready);
    }

    /// `was_ready`: its due time is over, whatever it is.
    fn enter(&mut self, slot: u32, was_ready: bool) {
        let (sums, keyed) = (&mut self.sums.gauges, &mut self.keyed);
        let message = self.messages.at_mut(slot);
        let queue = self.queues.get_mut(message.queue.0 as usize);
        let queue = queue.expect("a message that goes into the maps has a queue");
        let (id, len) = (message.id, message.size());
        // Of a dropped queue nothing counts, though some may be reserved yet.
        let one = u64::from(!queue.live.dropped);
        queue.grow(len);
        sums.bytes += len * one;
        let mut alarm = false;
        match message.state {
            State::Ready => {
                message.generation = queue.generation;
                queue.waiting_bytes += len;
                sums.waiting_bytes += len * one;
                match message.due().filter(|_| !was_ready) {
                    Some(due) => {
                        Self::delayed_in(queue, sums, keyed, message, slot, due, one);
                        alarm = queue.live.alarm.is_none_or(|at| due < at);
                    }
                    None => Self::ready_in(queue, sums, keyed, message, slot),
                }
            }
            State::Prepared => {
                queue.prepared.insert(id, slot);
                sums.prepared += one;
            }
            State::Reserved => {
                message.generation = queue.held_generation;
                queue.reserved_bytes += len;
                queue.reserved.insert(id, slot);
                sums.reserved += one;
                keyed.change(queue, |groups| {
                    groups.enter(message, slot, Standing::Reserved);
                });
                if message.extra.is_some() {
                    named::enter(&mut self.named, message, self.leases.get(&slot));
                }
            }
            State::Buried => {
                let order = message.extra.as_ref().map_or(0, |extra| extra.bury_order);
                queue.buried.insert(order, slot);
                sums.buried += one;
            }
            State::Done | State::Relayed => {
                if message.state == State::Done {
                    queue.done += 1;
                    sums.done += one;
                } else {
                    sums.relayed += one;
                }
                let changed = message.extra.as_ref().map_or(Ms(0), |extra| extra.changed);
                queue.archived.insert((changed, id), slot);
                alarm = true;
            }
        }
        if message.extra.is_some()
            && let Some(at) = message.ends()
        {
            self.expiries.insert((at, id));
        }
        if alarm {
            let queue = message.queue;
            self.rearm(queue);
        }
    }

    /// `one`: 0 for a message of a dropped queue, which counts nowhere; else 1.
    fn delayed_in(
        queue: &mut super::Queue,
        sums: &mut QueueGauges,
        keyed: &mut Keyed,
        message: &Message,
        slot: u32,
        due: Ms,
        one: u64,
    ) {
        queue.delayed.insert((due, message.id), slot);
        queue.held += usize::from(due >= HELD);
        sums.delayed += one;
        let failed = u64::from(message.failures() > 0);
        queue.retrying += failed;
        sums.retrying += failed * one;
        keyed.change(queue, |groups| {
            groups.enter(message, slot, Standing::Delayed);
        });
    }

    /// Counts out a message that is no longer in the queue's map of delayed ones.
    fn delayed_out(
        queue: &mut super::Queue,
        sums: &mut QueueGauges,
        keyed: &mut Keyed,
        message: &Message,
        due: Ms,
        one: u64,
    ) {
        queue.held -= usize::from(due >= HELD);
        sums.delayed -= one;
        let failed = u64::from(message.failures() > 0);
        queue.retrying -= failed;
        sums.retrying -= failed * one;
        keyed.change(queue, |groups| groups.leave(message, Standing::Delayed));
    }

    fn ready_in(
        queue: &mut super::Queue,
        sums: &mut QueueGauges,
        keyed: &mut Keyed,
        message: &Message,
        slot: u32,
    ) {
        let order = message.order();
        if message.selectable {
            let urgent = u64::from(message.priority < URGENT_BELOW);
            queue.ready.insert(order, slot);
            queue.urgent += urgent;
            sums.ready += 1;
            sums.urgent += urgent;
        } else {
            queue.not_selectable.insert(order, slot);
            sums.not_selectable += 1;
        }
        if let Some(key) = message.key() {
            let of_key = queue.keys.entry(key.clone()).or_default();
            if of_key.insert(group_order(message), slot).is_none() && of_key.len() == 1 {
                keyed.bytes += KEY;
            }
        }
        keyed.change(queue, |groups| {
            groups.enter(message, slot, ready_as(message));
        });
    }

    fn ready_out(
        queue: &mut super::Queue,
        sums: &mut QueueGauges,
        keyed: &mut Keyed,
        message: &Message,
        one: u64,
    ) {
        let order = message.order();
        if message.selectable {
            let urgent = u64::from(message.priority < URGENT_BELOW);
            let was = queue.ready.remove(&order);
            assert!(was.is_some(), "a ready message is in its queue's order");
            queue.urgent -= urgent;
            sums.ready -= one;
            sums.urgent -= urgent * one;
        } else {
            let was = queue.not_selectable.remove(&order);
            assert!(was.is_some(), "one not selectable is in its queue's order");
            sums.not_selectable -= one;
        }
        if let Some(key) = message.key() {
            let group = queue.keys.get_mut(key);
            let group = group.expect("a key is known while a message of it is ready");
            let was = group.remove(&group_order(message));
            assert!(was.is_some(), "a ready message is in its key's list");
            if group.is_empty() {
                queue.keys.remove(key);
                keyed.bytes -= KEY;
            }
        }
        keyed.change(queue, |groups| groups.leave(message, ready_as(message)));
    }

    /// Takes a message out of the map of its state.
    pub(super) fn index_out(&mut self, slot: u32) {
        let (sums, keyed) = (&mut self.sums.gauges, &mut self.keyed);
        let message = self.messages.at_mut(slot);
        // It may be about to change.
        message.unpick();
        let queue = self.queues.get_mut(message.queue.0 as usize);
        let Some(queue) = queue else {
            // A log that buries two messages in the same turn leaves one of them behind.
            return;
        };
        let (id, len) = (message.id, message.size());
        let one = u64::from(!queue.live.dropped);
        queue.shrink(len);
        sums.bytes -= len * one;
        let mut alarm = false;
        match message.state {
            State::Ready => {
                queue.waiting_bytes -= len;
                sums.waiting_bytes -= len * one;
                let due = message.due();
                let was_delayed = due.filter(|&due| queue.delayed.remove(&(due, id)).is_some());
                alarm = was_delayed.is_some();
                match was_delayed {
                    Some(due) => Self::delayed_out(queue, sums, keyed, message, due, one),
                    None => Self::ready_out(queue, sums, keyed, message, one),
                }
            }
            State::Prepared => {
                let was = queue.prepared.remove(&id);
                assert!(was.is_some(), "a prepared message is in its queue");
                sums.prepared -= one;
            }
            State::Reserved => {
                let was = queue.reserved.remove(&id);
                assert!(was.is_some(), "a reserved message is in its queue");
                queue.reserved_bytes -= len;
                sums.reserved -= one;
                keyed.change(queue, |groups| groups.leave(message, Standing::Reserved));
                if message.extra.is_some() {
                    named::leave(&mut self.named, message, self.leases.get(&slot));
                }
            }
            State::Buried => {
                let order = message.extra.as_ref().map_or(0, |extra| extra.bury_order);
                queue.buried.remove(&order);
                sums.buried -= one;
            }
            State::Done | State::Relayed => {
                if message.state == State::Done {
                    queue.done -= 1;
                    sums.done -= one;
                } else {
                    sums.relayed -= one;
                }
                let changed = message.extra.as_ref().map_or(Ms(0), |extra| extra.changed);
                let was = queue.archived.remove(&(changed, id));
                assert!(was.is_some(), "an archived message is listed by its time");
                alarm = true;
            }
        }
        if message.extra.is_some()
            && let Some(at) = message.ends()
        {
            self.expiries.remove(&(at, id));
        }
        if alarm {
            let queue = message.queue;
            self.rearm(queue);
        }
    }

    /// Moves what has become due into the queue's order, of much as much as one
    /// step bears; the queue's alarm rings for the rest. Answers how many. Not a
    /// fact: due is a predicate on time, and this only updates the indexes for it.
    pub(crate) fn promote(&mut self, id: QueueId, now: Ms) -> usize {
        let (sums, keyed) = (&mut self.sums.gauges, &mut self.keyed);
        let queue = self.queues.get_mut(id.0 as usize);
        let Some(queue) = queue else {
            // A free number.
            return 0;
        };
        let mut moved = 0;
        while let Some(entry) = queue.delayed.first_entry() {
            let due = entry.key().0;
            if due > now || moved >= PROMOTED_AT_ONCE {
                break;
            }
            let slot = entry.remove();
            moved += 1;
            let message = self.messages.at_mut(slot);
            let is_ready = message.state == State::Ready;
            assert!(is_ready, "a delayed message becomes ready");
            // Chosen where it stood before.
            message.unpick();
            Self::delayed_out(queue, sums, keyed, message, due, 1);
            Self::ready_in(queue, sums, keyed, message, slot);
        }
        if moved > 0 {
            queue.live.came_due += moved as u64;
            self.rearm(id);
        }
        moved
    }

    /// Somebody gave up looking into a queue: its alarm rings at once.
    pub(crate) fn recheck(&mut self, id: QueueId) {
        if let Some(queue) = self.queue_mut(id) {
            queue.live.more = true;
        }
        self.rearm(id);
    }

    /// Forgets a dropped queue once nothing of it is reserved any more.
    pub(super) fn forget_empty_ghost(&mut self, id: QueueId) {
        if let Some(queue) = self.queue(id)
            && queue.live.dropped
            && queue.reserved.is_empty()
        {
            let (totals, memory) = (queue.totals, queue.live.settings.memory);
            self.counts_of(memory).gone.add(&totals);
            self.sums.totals.add(&totals);
            self.remove_queue(id);
        }
    }
}
