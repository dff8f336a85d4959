//! Operations on stored messages and on queues.

use quintet_types::{
    At, Attr, AttrChange, Body, Bound, ClientId, CommandError, Dropped, Edit, ListState, Message,
    MessageId, Ms, Name, Order, Outcome, Overrides, Pattern, QueueId, Removal, State, StateIndex,
    TAGS_BYTES_MAX, Transfer,
};

use crate::engine::{Cx, Engine, Space};
use crate::fact::{Change, Fact, Journal};
use crate::store::{Ascending, Maker, Queue, queue_weight};

use std::collections::BTreeMap;
use std::ops::Bound as Edge;

use super::cold::{MANY, Stop};

/// Queues that get copies of another's puts, at most: each put costs as many.
const CHILDREN_MAX: usize = 1024;

impl Engine {
    pub(crate) fn kick<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        queue: &Name,
        state: ListState,
        max: u64,
    ) -> Result<Outcome, Stop> {
        let (Some(id), Some(state_index)) = (self.store.find(queue), kicked_state_index(state))
        else {
            // No such queue, or a state that no kick ends.
            return Ok(Outcome::Count(0));
        };
        self.store.promote(id, self.now);
        let max = usize::try_from(max).unwrap_or(MANY).min(MANY);
        let slots = self.state_index(id, state_index, None, max)?;
        for &slot in &slots {
            let at = self.store.messages.at(slot).at();
            self.fact(cx, Fact::Kicked { at });
        }
        cx.wake(id);
        Ok(Outcome::Count(slots.len() as u64))
    }

    pub(crate) fn kick_id<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        id: MessageId,
    ) -> Result<Outcome, Stop> {
        let slot = self.found(id)?;
        let message = self.store.messages.at(slot);
        let at = message.at();
        if message.state != State::Buried && !message.is_delayed(self.now) {
            return Err(CommandError::NotFound.into());
        }
        self.fact(cx, Fact::Kicked { at });
        cx.wake(at.queue);
        Ok(Outcome::Done)
    }

    pub(crate) fn move_one<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        id: MessageId,
        to: &Name,
    ) -> Result<Outcome, Stop> {
        let slot = self.found(id)?;
        let message = self.store.messages.at(slot);
        if message.state == State::Reserved || message.is_expired(self.now) {
            return Err(CommandError::NotFound.into());
        }
        if self.belongs_elsewhere(to) {
            self.send(cx, id, to.clone(), Transfer::Command);
            return Ok(Outcome::Done);
        }
        let to = self.find_or_make_ours(to)?;
        self.transfer(cx, id, to, Transfer::Command);
        Ok(Outcome::Done)
    }

    /// Slots of the first `max` messages of a state index behind `after`, as far as
    /// they are in memory and no message in a run comes between.
    pub(super) fn state_index_slots(
        &self,
        id: QueueId,
        state_index: StateIndex,
        after: Option<Order>,
        max: usize,
    ) -> Vec<u32> {
        let queue = self.store.expect_queue(id);
        let end = self
            .store
            .next_cold(id, state_index, after)
            .map(|(bound, _)| bound);
        let from = after.map_or(Edge::Unbounded, Edge::Excluded);
        let timed = |map: &BTreeMap<(Ms, MessageId), u32>| {
            let from = match after {
                None => Edge::Unbounded,
                Some((_, at, id)) => Edge::Excluded((Ms(at.max(0) as u64), id)),
            };
            let slots = map.range((from, Edge::Unbounded));
            let orders = slots.map(|(&(at, id), &slot)| ((0, at.0 as i64, id), slot));
            first_slots(orders, end, max)
        };
        let ordered = |map: &Ascending<Order, u32>| {
            let slots = map.range((from, Edge::Unbounded));
            first_slots(slots.map(|(order, &slot)| (order, slot)), end, max)
        };
        match state_index {
            StateIndex::Ready => ordered(&queue.ready),
            StateIndex::NotSelectable => ordered(&queue.not_selectable),
            StateIndex::Delayed => timed(&queue.delayed),
            StateIndex::Archived => timed(&queue.archived),
            StateIndex::Buried => {
                let from = after.map_or(0, |(_, turn, _)| turn as u64 + 1);
                let slots = queue.buried.range(from..);
                let slots = slots.map(|(&turn, &slot)| (turn as i64, slot));
                first_slots(slots, end.map(|(_, first, _)| first), max)
            }
        }
    }

    pub(crate) fn commit<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        id: MessageId,
    ) -> Result<Outcome, CommandError> {
        let message = self.store.message(id).ok_or(CommandError::NotFound)?;
        if message.state != State::Prepared || message.is_expired(self.now) {
            return Err(CommandError::NotFound);
        }
        let at = message.at();
        self.fact(cx, Fact::Committed { at });
        cx.wake(at.queue);
        Ok(Outcome::Done)
    }

    pub(crate) fn edit<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        id: MessageId,
        edit: &mut Edit,
    ) -> Result<Outcome, Stop> {
        let slot = self.found(id)?;
        let message = self.store.messages.at(slot);
        let at = message.at();
        // A consumer must not find the order changed under its lease.
        if message.state == State::Reserved && (edit.priority.is_some() || edit.due.is_some()) {
            return Err(CommandError::NotFound.into());
        }
        let mut edit = std::mem::take(edit);
        let (at, outcome) = match edit.body.take() {
            None => (at, Outcome::Done),
            Some(body) => {
                let at = self.put_anew(cx, slot, body)?;
                let id = at.id;
                (at, Outcome::Put { id, fresh: true })
            }
        };
        if edit == Edit::default() && at.id != id {
            cx.wake(at.queue);
            return Ok(outcome);
        }
        let mut due = edit.due.map(|due| self.due(due));
        if let Some(later) = due
            && self.is_due_later(cx, at.id, later)
        {
            due = None;
        }
        let message = self.store.message(at.id).ok_or(CommandError::NotFound)?;
        let attrs = (!edit.attrs.is_empty()).then(|| merged(message, edit.attrs));
        let change = Change {
            now: self.now,
            priority: edit.priority,
            due,
            status: edit.status,
            attrs,
            attachments: edit.attachments,
            ..Change::default()
        };
        let fact = Fact::Edited {
            at,
            change: Box::new(change),
        };
        self.fact(cx, fact);
        cx.wake(at.queue);
        Ok(outcome)
    }

    /// Puts another message in this one's place, with another body. Refuses
    /// before the first fact.
    fn put_anew<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        slot: u32,
        body: Body,
    ) -> Result<At, CommandError> {
        let old = self.store.messages.at(slot);
        let (at, grown) = (old.at(), body.len().saturating_sub(old.body.len()));
        if old.state == State::Reserved || old.is_expired(self.now) {
            return Err(CommandError::NotFound);
        }
        // They know it by its id.
        if self.store.dependencies.is_awaited(at.id) {
            return Err(CommandError::Awaited);
        }
        let mut message = old.clone();
        let old = message.id;
        let settings = &self.store.expect_queue(at.queue).live.settings;
        if body.len() > settings.message_bytes_max {
            return Err(CommandError::MessageTooLarge);
        }
        let logged = !settings.memory;
        if self.space != Space::Enough && logged {
            return Err(CommandError::NoSpace);
        }
        let limit = self.settings.memory_max;
        if limit > 0 && self.store.memory_bytes() + grown > limit {
            return Err(CommandError::NoMemory);
        }
        (message.id, message.body) = (self.next_id(cx, logged), body);
        let why = Removal::Deleted;
        // Its batch counts the one that takes its place.
        self.fact_alone(cx, Fact::Removed { at, why });
        // Nothing has become of it, and of the one that takes its place that it waits.
        self.forget_track(cx, at.id);
        self.awaits.renamed(at.id, message.id, None);
        message.segment_ref = self.segment_ref;
        (message.ordinal, message.generation) = (0, 0);
        let at = message.at();
        let new = message.id;
        self.fact(cx, Fact::Put(message));
        self.inherit(cx, old, new);
        Ok(at)
    }

    pub(crate) fn create<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        queue: &Name,
        overrides: &Overrides,
    ) -> Result<Outcome, CommandError> {
        if self.there(queue).is_ok() {
            return Err(CommandError::QueueExists);
        }
        if *overrides != Overrides::default() {
            return self.configure_queue(cx, queue, Some(overrides));
        }
        let id = self.find_or_make(cx.call(), queue)?;
        self.record_queue(cx, id);
        Ok(Outcome::Done)
    }

    pub(crate) fn configure_queue<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        queue: &Name,
        overrides: Option<&Overrides>,
    ) -> Result<Outcome, CommandError> {
        let id = self.find_or_make(cx.call(), queue)?;
        let mut all = self.store.expect_queue(id).own().clone();
        match overrides {
            None => all = Overrides::default(),
            Some(newer) => all.merge(newer),
        }
        self.settle_own(cx, id, all)
    }

    /// Replaces a queue's own settings, if they are `from` still.
    pub(crate) fn reconfigure<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        queue: &Name,
        from: &Overrides,
        to: &Overrides,
    ) -> Result<Outcome, CommandError> {
        let id = self.existing(queue)?;
        match self.store.expect_queue(id).own() == from {
            true => {
                // Tags that are taken away are gone.
                let mut all = Overrides::default();
                all.merge(to);
                self.settle_own(cx, id, all)
            }
            false => Err(CommandError::Conflict),
        }
    }

    pub(super) fn settle_own<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        id: QueueId,
        mut all: Overrides,
    ) -> Result<Outcome, CommandError> {
        // Only the file decides what is logged, and what is locked.
        (all.memory, all.locked) = (None, 0);
        let there = self.store.expect_queue(id);
        let (before, child) = (there.restated_bytes, there.parent.is_some());
        let tags = all.tags.as_ref();
        let may = match tags.is_some_and(|tags| tags.bytes() > TAGS_BYTES_MAX) {
            true => Err(CommandError::TagsFull),
            false => {
                let locked = there.live.settings.locked;
                there.own().may_become(&all, locked)
            }
        };
        if let Err(command_error) = may {
            self.forget_unused(id);
            return Err(command_error);
        }
        let after = queue_weight(&there.name, child, &all, there.maker.as_deref())
            + there.restated_size_of_aging();
        if after > before
            && let Err(command_error) = self.may_restate(after - before)
        {
            self.forget_unused(id);
            return Err(command_error);
        }
        self.record_queue(cx, id);
        let fact = Fact::QueueConfigured {
            queue: id,
            overrides: Box::new(all),
        };
        self.fact(cx, fact);
        self.resettle(id);
        cx.wake(id);
        Ok(Outcome::Done)
    }

    pub(crate) fn join<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        parent: &Name,
        child: &Name,
    ) -> Result<Outcome, CommandError> {
        if parent == child {
            return Err(CommandError::BadName);
        }
        if let Some(id) = self.store.find(child)
            && self
                .store
                .queue(id)
                .is_some_and(|queue| queue.parent.is_some())
        {
            return Ok(Outcome::Done);
        }
        let parent = self.find_or_make(cx.call(), parent)?;
        let child = match self.find_or_make(cx.call(), child) {
            Ok(child) => child,
            Err(command_error) => {
                self.forget_unused(parent);
                return Err(command_error);
            }
        };
        let queue = self.store.expect_queue(child);
        let restated = queue_weight(&queue.name, true, queue.own(), queue.maker.as_deref());
        let more = restated + queue.restated_size_of_aging() - queue.restated_bytes;
        let siblings = self.store.queue(parent).map_or(0, |p| p.children.len());
        let may = match siblings < CHILDREN_MAX {
            true => self.may_restate(more),
            false => Err(CommandError::TooManyQueues),
        };
        if let Err(command_error) = may {
            self.forget_unused(parent);
            self.forget_unused(child);
            return Err(command_error);
        }
        self.record_queue(cx, parent);
        let queue = self.store.expect_queue(child);
        let fact = Fact::QueueMade {
            queue: child,
            name: queue.name.clone(),
            parent: Some(parent),
            created: queue.created,
        };
        self.fact(cx, fact);
        self.record_maker(cx, child);
        Ok(Outcome::Count(1))
    }

    /// True if the queue is there and gets copies of another's puts.
    pub fn is_child(&self, name: &Name) -> bool {
        let queue = self.store.find(name).and_then(|id| self.store.queue(id));
        queue.is_some_and(|queue| queue.parent.is_some())
    }

    pub(crate) fn flush<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        queue: &Name,
        reserved: bool,
    ) -> Result<Outcome, CommandError> {
        let Some(id) = self.store.find(queue) else {
            // The client names a queue that is not there.
            return Ok(Outcome::Count(0));
        };
        Ok(Outcome::Count(self.flush_queue(cx, id, reserved)))
    }

    pub(crate) fn flush_all<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
    ) -> Result<Outcome, CommandError> {
        let sum = self.store.gauges();
        let remembers = !self.store.dedupe_records.is_empty();
        if sum.ready + sum.not_selectable + sum.delayed == 0 && !remembers {
            return Ok(Outcome::Count(0));
        }
        // Of those in which nothing waits nothing is recorded: there may be many,
        // and the command is short.
        let restated = |queue: &&Queue| queue.waiting() > 0 || queue.timed_dedupe > 0;
        let queues = self.store.live_queues().filter(restated);
        let queues: Vec<_> = queues
            .map(|queue| (queue.id, queue.waiting() > 0))
            .collect();
        let mut count = 0;
        for (queue, waits) in queues {
            match waits {
                true => count += self.flush_queue(cx, queue, false),
                false => self.forget_repeats(cx, queue),
            }
        }
        Ok(Outcome::Count(count))
    }

    /// From now on no put into the queue repeats an earlier one, unless the message of that one
    /// still says so.
    pub(super) fn forget_repeats<J: Journal>(&mut self, cx: &mut Cx<'_, J>, queue: QueueId) {
        if self.store.expect_queue(queue).timed_dedupe > 0 {
            self.fact(cx, Fact::DedupeForgotten { queue });
        }
    }

    fn flush_queue<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: QueueId, reserved: bool) -> u64 {
        let there = self.store.expect_queue(id);
        let held = if reserved { there.reserved.len() } else { 0 };
        let (count, through) = (there.waiting() + held as u64, self.store.last_id());
        let (queue, recorded) = (id, there.live.recorded);
        self.forget_repeats(cx, id);
        match (recorded, held) {
            (false, _) => {}
            (true, 0) => {
                let fact = Fact::QueueFlushed {
                    queue,
                    through,
                    count,
                };
                self.fact(cx, fact);
            }
            (true, _) => {
                let fact = Fact::QueuePurged {
                    queue,
                    through,
                    count,
                };
                self.fact(cx, fact);
                self.forget_pending();
            }
        }
        count
    }

    pub(crate) fn drop_queue<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        name: &Name,
    ) -> Result<Outcome, CommandError> {
        let Some(id) = self.store.find(name) else {
            // The client names a queue that is not there.
            return Ok(Outcome::Count(0));
        };
        let queue = self.store.expect_queue(id);
        if !queue.live.recorded {
            return Ok(Outcome::Count(0));
        }
        let count = queue.messages();
        // Those who wait go on waiting for the queue's name, unless it must exist, and those who
        // refer to it mean what has that name.
        let again = Maker::of(queue);
        self.end_waits_for_queue(cx, id);
        let named = self.store.expect_queue(id).live.is_named();
        let line = self.store.recount(id, |live| {
            let peeks = (
                std::mem::take(&mut live.waiting_peeks),
                std::mem::take(&mut live.not_taking),
            );
            (std::mem::take(&mut live.line), peeks)
        });
        let (line, peeks) = line.unwrap_or_default();
        let through = self.store.last_id();
        let fact = Fact::QueueDropped {
            queue: id,
            through,
            idle: false,
        };
        self.fact(cx, fact);
        if named {
            // Also beyond the limits: they were there before.
            again.take_in();
            let again = self.make(name, again);
            self.waiters.requeue(&line, id, again);
            self.move_references(id, again);
            self.store.recount(again, |live| {
                live.line = line;
                (live.waiting_peeks, live.not_taking) = peeks;
            });
        }
        Ok(Outcome::Count(count))
    }

    /// A slice of [`quintet_types::Command::DropQueues`]: no more is looked at than one
    /// step may take, and messages are only detached.
    pub(crate) fn drop_queues<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        pattern: &Pattern,
        messages: bool,
        dry_run: bool,
        from: (u8, u32),
    ) -> Dropped {
        const LOOKS: usize = 1024;
        const DROPS: u64 = 128;
        let mut done = Dropped::default();
        let mut at = usize::try_from(from.1).unwrap_or(usize::MAX);
        let all = self.store.queues.len();
        let end = all.min(at.saturating_add(LOOKS));
        while at < end && done.queues < DROPS {
            let queue = self.store.queues.get(at);
            at += 1;
            // A free number.
            let Some(queue) = queue else { continue };
            // One that is only waited on is not there to be dropped.
            if queue.live.dropped || !queue.live.recorded || !pattern.matches(queue.name.as_bytes())
            {
                continue;
            }
            if !messages && !queue.is_empty() {
                done.passed += 1;
                continue;
            }
            done.queues += 1;
            done.messages += queue.messages();
            if !dry_run {
                let name = queue.name.clone();
                // What it can refuse was looked at.
                self.drop_queue(cx, &name).ok();
            }
        }
        done.next = match at < all {
            true => Some((from.0, QueueId::at(at).0)),
            false if self.shard + 1 < self.shards => Some((self.shard + 1, 0)),
            false => None,
        };
        done
    }

    pub(crate) fn burn_id<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
    ) -> Result<Outcome, CommandError> {
        let id = self.next_id(cx, true);
        self.fact(cx, Fact::IdMark(self.store.next_id));
        Ok(Outcome::Put { id, fresh: false })
    }

    pub(crate) fn restore<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        client_id: ClientId,
        messages: Vec<Message>,
    ) -> Result<Outcome, CommandError> {
        let mut count = 0;
        for mut message in messages {
            if message.state == State::Reserved {
                count += u64::from(self.undo_lease(cx, client_id, message.id));
                continue;
            }
            let queue = message.queue;
            let gone = self
                .store
                .queue(queue)
                .is_none_or(|queue| queue.live.dropped);
            if gone || self.store.message(message.id).is_some() || message.doomed {
                continue;
            }
            message.state = State::Ready;
            if message.is_expired(self.now) {
                continue;
            }
            if let Some(extra) = &mut message.extra {
                // Its reply was sent as it was taken.
                extra.reply = None;
                // The clock may have been dropped meanwhile.
                let clock = self.store.expect_queue(queue).aging.as_deref();
                let stands_at = clock.map_or(0, |clock| clock.at(self.now));
                extra.aged_from = extra.aged_from.min(stands_at);
            }
            self.fact(cx, Fact::Restored(message));
            cx.wake(queue);
            count += 1;
        }
        Ok(Outcome::Count(count))
    }

    /// Ends a lease of time alone whose holder never heard of it.
    fn undo_lease<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        client_id: ClientId,
        id: MessageId,
    ) -> bool {
        let slot = self.store.slot(id);
        let lease = slot.and_then(|slot| self.store.leases.get(&slot));
        let heard_of = lease.is_none_or(|l| l.client_id != client_id || l.bound != Bound::Time);
        let Some(message) = self.store.message(id) else {
            // It was settled meanwhile.
            return false;
        };
        let (queue, number) = (message.queue, message.reserves);
        if heard_of || self.take_tokens.is_repeated(id, number) {
            return false;
        }
        self.give_back_unheard(cx, id);
        cx.wake(queue);
        true
    }
}

/// The first `max` of these slots, up to what does not stand before `end`.
fn first_slots<O: Ord>(
    slots: impl Iterator<Item = (O, u32)>,
    end: Option<O>,
    max: usize,
) -> Vec<u32> {
    let before = |(order, _): &(O, u32)| end.as_ref().is_none_or(|end| order < end);
    let slots = slots.take_while(before).take(max);
    slots.map(|(_, slot)| slot).collect()
}

/// The state index a kick of messages in this state goes through.
fn kicked_state_index(state: ListState) -> Option<StateIndex> {
    match state {
        ListState::Buried => Some(StateIndex::Buried),
        ListState::Delayed => Some(StateIndex::Delayed),
        ListState::Ready | ListState::Archived | ListState::Reserved | ListState::Prepared => None,
    }
}

/// The message's attributes with the changes in place, sorted.
pub(super) fn merged(message: &Message, changes: Vec<AttrChange>) -> Vec<Attr> {
    let extra = message.extra.as_ref();
    let mut attrs = extra.map_or_else(Vec::new, |extra| extra.attrs.clone());
    for (name, value) in changes {
        let at = attrs.binary_search_by(|(other, _)| other.cmp(&name));
        match (at, value) {
            (Ok(at), Some(value)) => attrs[at].1 = value,
            (Err(at), Some(value)) => attrs.insert(at, (name, value)),
            (Ok(at), None) => {
                attrs.remove(at);
            }
            (Err(_), None) => {}
        }
    }
    attrs
}
