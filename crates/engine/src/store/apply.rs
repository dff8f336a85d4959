//! The one function that changes durable state.
//!
//! Infallible, and blind to configuration, clock and disk. A fact about a
//! message that is not here is no error: replay may begin after the segment
//! with the put, and the message's later image brings it in.

use super::departure::{depart, fail};
use super::{Durable, Memory};
use quintet_types::{
    At, AttemptEnd, BackTo, Bound, ClientId, Ended, Lease, Message, MessageId, Ms, Name, Overrides,
    QueueId, QueueTotals, Removal, Return, SegmentRef, State, Transfer,
};

use crate::fact::{Change, DedupeId, Fact};

impl Durable {
    /// Applies one fact. `segment_ref` is the segment of the log that holds it.
    /// Answers the message a removal took out.
    pub(super) fn apply(&mut self, fact: Fact, segment_ref: SegmentRef) -> Option<Message> {
        match fact {
            Fact::Put(message) => {
                let bytes = message.body.len();
                // One that is imported as archived has left its queue as others have.
                let is_done = matches!(message.state, State::Done | State::Relayed);
                self.count_in(message.queue, |totals| {
                    totals.puts += 1;
                    totals.put_bytes += bytes;
                    totals.finished += u64::from(is_done);
                });
                self.ends.put(&message);
                self.replace(message, None, segment_ref);
            }
            Fact::Removed { at, why } => return self.remove(at, why),
            Fact::Leased { at, lease } => self.lease(at, lease),
            Fact::Reheld { at, lease } => self.rehold(at, lease),
            Fact::Released {
                at,
                priority,
                position,
                due,
                delay_ms,
                why,
                failed,
            } => {
                if position > 0 && position != at.position {
                    self.use_up(position);
                }
                self.release(at, priority, position, (due, delay_ms), why, failed);
            }
            Fact::Touched { at, until } => self.touch(at.id, until),
            Fact::Buried {
                at,
                priority,
                now,
                dead,
                reason,
                until,
                by_time,
            } => {
                self.bury(at, priority, (now, until), (dead, by_time), reason);
            }
            Fact::Archived {
                at,
                relayed,
                now,
                status,
            } => {
                self.count(at.queue, |totals| totals.finished += 1);
                self.untie(at.id);
                self.restate(at.id, |message, since| {
                    message.state = if relayed { State::Relayed } else { State::Done };
                    let extra = message.extra_mut();
                    extra.changed = now;
                    extra.status = status;
                    extra.was_leased(since);
                    // It has succeeded, and does not so again.
                    (extra.batch, extra.cancelled, extra.reply) = (None, None, None);
                });
            }
            Fact::Kicked { at } => {
                self.count(at.queue, |totals| totals.kicks += 1);
                self.restate(at.id, |message, _| {
                    message.state = State::Ready;
                    let extra = message.extra_mut();
                    extra.due = None;
                    extra.kicks += 1;
                });
            }
            Fact::Moved {
                at,
                to,
                position,
                why,
                now,
            } => self.transfer(at, to, position, why, now),
            Fact::Sent { at, to, why, now } => {
                self.ends.add(at.id, at.queue, Ended::Sent);
                self.send(at, to, why, now);
            }
            Fact::SentImage(message, to) => self.sent(message, to, segment_ref),
            Fact::Carried(id) => self.carried(id),
            Fact::Arrived { message, from } => {
                self.ends.moved(from, &message);
                self.count(message.queue, |totals| totals.moved_in += 1);
                self.replace(message, None, segment_ref);
            }
            Fact::Committed { at } => {
                self.restate(at.id, |message, _| message.state = State::Ready)
            }
            Fact::Edited { at, change } => self.edit(at.id, *change),
            Fact::Image(message, lease) => {
                self.replace(message, lease.map(|lease| *lease), segment_ref)
            }
            Fact::Restored(message) => {
                self.count(message.queue, |totals| totals.restored += 1);
                self.replace(message, None, segment_ref);
            }
            Fact::Pending { at, client_id } => self.withhold(at, client_id),
            Fact::TableSet {
                table,
                key,
                value,
                until,
                version,
            } => self.tables.set(table, key, value, until, version),
            Fact::TableDropped(table) => self.tables.drop_table(&table),
            Fact::BatchMade(batch) => self.batches.set(*batch),
            Fact::BatchProgress { batch, progress } => self.batches.progress(batch, progress),
            Fact::BatchGone(batch) => self.batches.remove(batch),
            Fact::Tracked { id, track } => match track {
                Some(track) => self.tracks.set(id, track),
                None => self.tracks.remove(id),
            },
            Fact::Awaits { child, after } => self.set_awaits(child, after, segment_ref),
            Fact::ParentEnded { parent, succeeded } => self.parent_ended(parent, succeeded),
            Fact::ParentTold {
                child,
                parent,
                succeeded,
            } => self.note_parent_end(child, parent, succeeded),
            Fact::Freed { at, after } => self.freed(at, after),
            Fact::Watched {
                parent,
                shard,
                state,
            } => self.set_watched(parent, shard, state, segment_ref),
            Fact::BatchOwed { batch, owed } => self.batches.owe(batch, owed),
            Fact::Remembered {
                queue,
                kind,
                dedupe_record,
                id,
                until,
                scope,
                sum,
            } => {
                let generation = self
                    .queue(queue)
                    .map_or(0, |queue| queue.generation_of(scope));
                let memory = Memory {
                    id,
                    until,
                    segment_ref,
                    scope,
                    sum,
                    generation,
                };
                let dedupe_record = match dedupe_record {
                    DedupeId::Whole(id) => self.dedupe_id(id),
                    DedupeId::Hash(_) => dedupe_record,
                };
                self.remember((queue, kind, dedupe_record), memory);
            }
            Fact::HashKey(key) => self.hash_dedupe(key),
            Fact::IdMark(next) => {
                self.next_id = self.next_id.max(next);
                self.marked = self.marked.max(next);
            }
            Fact::Epoch { epoch, now } => self.begin_epoch(epoch, now),
            Fact::QueueMade {
                queue,
                name,
                parent,
                created,
            } => {
                self.queue_made(queue, name, parent, created);
            }
            Fact::QueueMaker { queue, maker } => {
                if let Some(queue) = self.queue_mut(queue) {
                    queue.maker = Some(maker);
                }
                self.weigh(queue);
            }
            Fact::QueueConfigured { queue, overrides } => {
                if let Some(queue) = self.queue_mut(queue) {
                    queue.overrides = (*overrides != Overrides::default()).then_some(overrides);
                }
                self.weigh(queue);
            }
            Fact::QueuePaused { queue: id, pause } => {
                if let Some(queue) = self.queue_mut(id) {
                    queue.pause = pause;
                }
                self.rearm(id);
            }
            Fact::KeyHeld {
                queue,
                key,
                now,
                until,
            } => self.hold_key(queue, &key, now, until),
            Fact::AgingSet { queue: id, clock } => {
                if let Some(queue) = self.queue_mut(id) {
                    queue.aging = clock.map(Box::new);
                }
                self.weigh(id);
            }
            Fact::QueueFlushed {
                queue,
                through: _,
                count,
            } => self.flush(queue, count, false),
            Fact::QueuePurged {
                queue,
                through: _,
                count,
            } => self.flush(queue, count, true),
            Fact::DedupeForgotten { queue } => {
                if let Some(queue) = self.queue_mut(queue) {
                    queue.dedupe_generation = queue.dedupe_generation.wrapping_add(1);
                    queue.forgotten_dedupe += std::mem::take(&mut queue.timed_dedupe);
                }
                self.bury_dedupe(queue);
            }
            Fact::QueueDropped {
                queue,
                through: _,
                idle,
            } => self.drop_queue(queue, idle),
            Fact::QueueCounted {
                queue,
                totals,
                head,
                bury_order,
            } => {
                let Self { queues, sums, .. } = self;
                if let Some(queue) = queues.get_mut(queue.0 as usize) {
                    Self::replace_totals(&mut sums.totals, &mut queue.totals, *totals);
                    queue.head = queue.head.min(head);
                    queue.bury_order = queue.bury_order.max(bury_order);
                }
            }
            Fact::Evicted { run, block, ids } => self.apply_evicted(run, *block, &ids),
            Fact::Loaded {
                run,
                ordinal,
                at,
                bytes,
                apart,
            } => self.apply_loaded(run, ordinal, at, bytes, apart, segment_ref),
            Fact::RunImage { run, block, dead } => self.run_image(run, *block, dead),
            Fact::RunGone(run) => self.run_gone(run),
            Fact::ShardCounted(counts) => {
                let sum = &mut self.sums.totals;
                Self::replace_totals(sum, &mut self.counts.gone, counts.gone);
                self.counts = *counts;
                // They are counted as gone by now.
                let queues = self.queues.iter_mut();
                for queue in queues.filter(|queue| queue.live.dropped) {
                    Self::replace_totals(sum, &mut queue.totals, QueueTotals::default());
                }
            }
        }
        None
    }

    fn count(&mut self, queue: QueueId, add: impl Fn(&mut QueueTotals)) {
        if !self.count_in(queue, &add) {
            // Dropped before the log that is left began.
            add(&mut self.counts.gone);
            add(&mut self.sums.totals);
        }
    }

    /// Takes a message out of its map, changes it, ends its lease unless it is
    /// still reserved, and enters it again. `change` gets the time since when it is
    /// reserved, 0 if that is not known.
    ///
    /// Here and below, replay may not have seen the put of a message.
    pub(super) fn restate(&mut self, id: MessageId, change: impl FnOnce(&mut Message, Ms)) {
        // Replay may begin behind its put, or a flush has forgotten it.
        let Some(slot) = self.slot(id) else { return };
        self.index_out(slot);
        let since = self.leases.get(&slot).map_or(Ms(0), |lease| lease.since);
        let message = self.messages.at_mut(slot);
        let before = message.extra_bytes();
        change(message, since);
        self.body_bytes = self.body_bytes + message.extra_bytes() - before;
        let reserved = message.state == State::Reserved;
        if !reserved {
            self.lease_out(slot, id);
        }
        self.index_in(slot);
    }

    fn replace(&mut self, mut message: Message, lease: Option<Lease>, segment_ref: SegmentRef) {
        // A message of a queue that is gone has nobody left to ask for it.
        if self.queue(message.queue).is_none() {
            return;
        }
        // No log that was written here has one without the other.
        let lease = lease.filter(|_| message.state == State::Reserved);
        if lease.is_none() && message.state == State::Reserved {
            message.state = State::Ready;
        }
        if let Some(slot) = self.ids.get(message.id.0)
            && !self.is_alive(self.messages.at(slot))
        {
            // No log that was written here records one that was flushed. Its
            // id is free when it is freed.
            while self.collect(1 << 16) {}
        }
        if let Some(slot) = self.ids.get(message.id.0) {
            self.take_out(slot);
            if self.queue(message.queue).is_none() {
                // It was dropped, and this was the last message reserved in it.
                return;
            }
        }
        if let Some(queue) = self.queue_mut(message.queue) {
            queue.head = queue.head.min(message.position);
            if let (State::Buried, Some(extra)) = (message.state, &message.extra) {
                queue.bury_order = queue.bury_order.max(extra.bury_order);
            }
        }
        self.add(message, lease, segment_ref);
    }

    fn remove(&mut self, at: At, why: Removal) -> Option<Message> {
        self.count(at.queue, |totals| match why {
            Removal::Taken => totals.taken += 1,
            Removal::Finished => totals.finished += 1,
            Removal::Deleted | Removal::Purged => totals.deleted += 1,
            Removal::Expired => totals.expired += 1,
            Removal::Discarded => totals.discarded += 1,
            Removal::Replaced => {
                totals.discarded += 1;
                totals.replaced += 1;
            }
            Removal::Failed => {
                totals.discarded += 1;
                totals.failed += 1;
            }
            Removal::Cancelled => totals.cancelled += 1,
            Removal::Doomed | Removal::Retention | Removal::DeletedDone | Removal::PurgedDone => {}
        });
        self.ends.remove(at, why.into());
        self.untie(at.id);
        let slot = self.slot(at.id)?;
        Some(self.take_out(slot))
    }

    fn lease(&mut self, at: At, lease: Lease) {
        self.count(at.queue, |totals| totals.leases += 1);
        self.untie_started(at.id);
        // Replay may begin behind its put, or a flush has forgotten it.
        let Some(slot) = self.slot(at.id) else { return };
        self.index_out(slot);
        self.messages.at_mut(slot).reserves += 1;
        self.reserve(slot, at.id, lease);
    }

    fn rehold(&mut self, at: At, lease: Lease) {
        // Replay may begin behind its put, or a flush has forgotten it.
        let Some(slot) = self.slot(at.id) else { return };
        self.index_out(slot);
        self.lease_out(slot, at.id);
        self.reserve(slot, at.id, lease);
    }

    /// Enters a message, which is in no map, as a reserved one.
    fn reserve(&mut self, slot: u32, id: MessageId, lease: Lease) {
        let message = self.messages.at_mut(slot);
        message.state = State::Reserved;
        if let Some(extra) = &mut message.extra {
            extra.due = None;
        }
        let since = lease.until.map_or(0, |until| until.0);
        let lease = Lease {
            epoch: self.epoch,
            since: Ms(since.saturating_sub(lease.span_ms)),
            ..lease
        };
        self.lease_in(slot, id, lease);
        self.index_in(slot);
    }

    fn withhold(&mut self, at: At, client_id: ClientId) {
        // Replay may begin behind its put, or a flush has forgotten it.
        let Some(slot) = self.slot(at.id) else { return };
        self.end_attempt(at.id, AttemptEnd::Decided, b"");
        self.index_out(slot);
        self.lease_out(slot, at.id);
        self.messages.at_mut(slot).state = State::Reserved;
        let lease = Lease {
            client_id,
            bound: Bound::Connection,
            until: None,
            span_ms: 0,
            back_to: BackTo::Position,
            epoch: 0,
            since: Ms(0),
        };
        self.lease_in(slot, at.id, lease);
        self.index_in(slot);
    }

    fn edit(&mut self, id: MessageId, change: Change) {
        let cancelled = change.cancelled.as_ref().map(|cancelled| cancelled.until);
        self.restate(id, |message, _| edit(message, change));
        let lease = self.slot(id).and_then(|slot| self.leases.get(&slot));
        if let (Some(until), Some(lease)) = (cancelled, lease) {
            let until = lease.until.map_or(until, |own| own.min(until));
            self.touch(id, until);
        }
    }

    fn touch(&mut self, id: MessageId, until: Ms) {
        // Replay may begin behind its put, or a flush has forgotten it.
        let Some(slot) = self.slot(id) else { return };
        let Some(lease) = self.leases.get_mut(&slot) else {
            // A log may touch what it did not reserve.
            return;
        };
        let before = *lease;
        if let Some(old) = lease.until.replace(until) {
            self.lease_ends.remove(&(old, id));
        }
        self.lease_ends.insert((until, id));
        self.named_anew(slot, before);
    }

    fn release(
        &mut self,
        at: At,
        priority: u32,
        position: i64,
        wait: (Option<Ms>, u64),
        why: Return,
        failed: Option<Box<[u8]>>,
    ) {
        self.end_attempt_by(at.id, why, failed.as_deref());
        self.count(at.queue, |totals| {
            match why {
                Return::Released => totals.releases += 1,
                Return::Timeout => totals.timeouts += 1,
                Return::Lost | Return::Unheard => totals.cancels += 1,
                Return::Pending => {}
            }
            totals.failures += u64::from(failed.is_some());
        });
        if let Some(queue) = self.queue_mut(at.queue) {
            queue.head = queue.head.min(position);
        }
        self.restate(at.id, |message, since| {
            message.state = State::Ready;
            message.priority = priority;
            message.position = position;
            if why == Return::Unheard {
                message.reserves = message.reserves.saturating_sub(1);
            }
            let (due, delay_ms) = wait;
            // A disconnect is nobody's decision, so no counter of the message
            // tells of it (beanstalkd shows the same).
            let is_reported = matches!(why, Return::Released | Return::Timeout);
            if due.is_some() || message.extra.is_some() || is_reported || failed.is_some() {
                let extra = message.extra_mut();
                extra.due = due;
                if why == Return::Released {
                    extra.releases += 1;
                    extra.delay_ms = delay_ms;
                }
                extra.timeouts += u32::from(why == Return::Timeout);
                if is_reported {
                    extra.was_leased(since);
                }
                if failed.is_some() || why == Return::Timeout {
                    fail(extra);
                }
                if let Some(error) = failed {
                    extra.failures = extra.failures.saturating_add(1);
                    if !error.is_empty() {
                        extra.status = error;
                    }
                }
            }
        });
    }

    fn bury(
        &mut self,
        at: At,
        priority: u32,
        (now, until): (Ms, Option<Ms>),
        (dead, by_time): (bool, bool),
        reason: Box<[u8]>,
    ) {
        self.end_attempt(at.id, AttemptEnd::Buried, &reason);
        self.count_in(at.queue, |totals| {
            totals.buries += 1;
            totals.dead_letters += u64::from(dead);
        });
        self.untie(at.id);
        let Some(queue) = self.queue_mut(at.queue) else {
            // Replay may begin behind the end of the queue.
            return;
        };
        queue.bury_order = match by_time {
            true => queue.next_turn(now),
            false => queue.bury_order + 1,
        };
        let order = queue.bury_order;
        self.restate(at.id, |message, since| {
            message.state = State::Buried;
            message.priority = priority;
            let extra = message.extra_mut();
            extra.due = None;
            fail(extra);
            extra.bury_order = order;
            extra.buries += 1;
            extra.changed = now;
            extra.reply = None;
            extra.buried_until = until;
            extra.was_leased(since);
            if !reason.is_empty() {
                extra.status = reason;
            }
        });
    }

    /// Counts a message that leaves for another queue; answers this one's name.
    pub(super) fn count_out(&mut self, queue: QueueId, why: Transfer) -> Option<Name> {
        self.count_in(queue, |totals| {
            let (dead, expired) = (why.is_dead_letter(), why == Transfer::Expired);
            totals.moved_out += 1;
            totals.dead_letters += u64::from(dead);
            totals.dead_moved += u64::from(dead);
            totals.expired += u64::from(expired);
            totals.expired_moved += u64::from(expired);
        });
        self.queue(queue).map(|queue| queue.name.clone())
    }

    fn transfer(&mut self, at: At, to: QueueId, position: i64, why: Transfer, now: Ms) {
        if why.is_dead_letter() {
            self.end_attempt(at.id, AttemptEnd::DeadLetter, b"");
        }
        let from = self.count_out(at.queue, why);
        if to != at.queue {
            self.untie(at.id);
        }
        self.count_in(to, |totals| totals.moved_in += 1);
        // The place is an id that no message will have.
        self.use_up(position);
        // Replay may begin behind its put, or a flush has forgotten it.
        let Some(slot) = self.slot(at.id) else { return };
        let Some(queue) = self.queue(to) else {
            self.take_out(slot);
            // Replay may begin behind the end of the queue.
            return;
        };
        let aged_from = queue.aging.as_ref().map_or(0, |clock| clock.at(now));
        self.restate(at.id, |message, since| {
            depart(message, from.as_ref(), why, now);
            let extra = message.extra_mut();
            extra.was_leased(since);
            extra.aged_from = aged_from;
            message.queue = to;
            message.position = position;
        });
        self.forget_empty_ghost(at.queue);
    }

    /// An id that serves as a place is no message's.
    pub(super) fn use_up(&mut self, position: i64) {
        self.next_id = self.next_id.max((position as u64 & !self.id_bits) + 1);
        self.marked = self.marked.max(self.next_id);
    }

    fn begin_epoch(&mut self, epoch: u64, _now: Ms) {
        self.epoch = self.epoch.max(epoch);
        // Descending, so that those going to the head end in their own order.
        let mut lost: Vec<MessageId> = Vec::new();
        let mut kept: Vec<u32> = Vec::new();
        for (&slot, lease) in &self.leases {
            match (lease.bound, self.messages.get(slot)) {
                (Bound::Connection | Bound::Process, Some(message)) => lost.push(message.id),
                _ => kept.push(slot),
            }
        }
        lost.sort_unstable_by(|a, b| b.cmp(a));
        for id in lost {
            self.end_lost(id);
        }
        // Clients of an older process mean nobody now.
        for slot in kept {
            if let Some(lease) = self.leases.get_mut(&slot) {
                lease.client_id = ClientId(0);
            }
        }
        self.held.clear();
        self.attempts.forget_clients();
    }

    fn end_lost(&mut self, id: MessageId) {
        // A purge or drop has forgotten it, and its lease is not freed yet.
        let Some(slot) = self.slot(id) else { return };
        let message = self.messages.at(slot);
        let (at, doomed) = (message.at(), message.doomed);
        if doomed {
            self.remove(at, Removal::Doomed);
            // A client has dropped its queue while it was reserved.
            return;
        }
        if self.messages.at(slot).cancelled().is_some() {
            // Its removal is a fact of its own, and may be missing where a process ended between.
            self.owed_removals.push(id);
        }
        let back_to = self
            .leases
            .get(&slot)
            .map_or(BackTo::Position, |lease| lease.back_to);
        let head = self.queue(at.queue).map_or(0, |queue| queue.head);
        let position = match back_to {
            BackTo::Head => head.min(0) - 1,
            // Behind all there are, and as no id is used up here also where replay begins
            // later and sees fewer of them: they keep their own order by their ids.
            BackTo::Tail => (self.next_id | self.id_bits) as i64,
            BackTo::Position => at.position,
        };
        self.release(at, at.priority, position, (None, 0), Return::Lost, None);
    }
}

fn edit(message: &mut Message, change: Change) {
    if let Some(priority) = change.priority {
        message.priority = priority;
    }
    let extra = message.extra_mut();
    extra.changed = change.now;
    if let Some(due) = change.due {
        extra.due = due;
        extra.delay_ms = due.map_or(0, |due| due.since(change.now));
    }
    if let Some(status) = change.status {
        extra.status = status;
    }
    if let Some(attrs) = change.attrs {
        extra.attrs = attrs;
    }
    if let Some(attachments) = change.attachments {
        extra.attachments = attachments;
    }
    if let Some(expires) = change.expires {
        extra.expires = expires;
    }
    if change.cancelled.is_some() {
        extra.cancelled = change.cancelled;
    }
}
