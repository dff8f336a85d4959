//! Acts on stored messages and on queues.

use quintet_types::{
    BulkAction, BulkDone, BulkOp, By, ClientId, CommandError, Cursor, Dropped, Edit, How,
    ListState, Message, MessageId, Name, Outcome, Overrides, Pattern, QueueId, Scope, State,
    Transfer,
};

use super::put::due;
use super::{Item, Model, Queue, Waiter};

impl Model {
    pub(super) fn kick(&mut self, name: &Name, state: ListState, max: u64) -> Outcome {
        let kicks = matches!(state, ListState::Buried | ListState::Delayed);
        let Some(queue) = self.find(name).filter(|_| kicks) else {
            return Outcome::Count(0);
        };
        let mut ids = self.list(queue, state);
        ids.truncate(max as usize);
        for &id in &ids {
            self.kick_one(id);
        }
        Outcome::Count(ids.len() as u64)
    }

    pub(super) fn kick_id(&mut self, id: MessageId) -> Result<Outcome, CommandError> {
        let message = self.message(id)?;
        if message.state != State::Buried && !message.is_delayed(self.now) {
            return Err(CommandError::NotFound);
        }
        self.kick_one(id);
        Ok(Outcome::Done)
    }

    fn kick_one(&mut self, id: MessageId) {
        let item = self.item_mut(id);
        item.message.state = State::Ready;
        let extra = item.message.extra_mut();
        extra.due = None;
        extra.kicks += 1;
        let queue = item.message.queue;
        self.totals(queue).kicks += 1;
    }

    pub(super) fn move_one(&mut self, id: MessageId, to: &Name) -> Result<Outcome, CommandError> {
        if self.message(id)?.state == State::Reserved {
            return Err(CommandError::NotFound);
        }
        let to = self.find_or_make(to)?;
        self.transfer(id, to, Transfer::Command);
        Ok(Outcome::Done)
    }

    pub(super) fn redrive_one(&mut self, id: MessageId) -> Result<Outcome, CommandError> {
        let message = self.message(id)?.clone();
        if matches!(message.state, State::Reserved | State::Prepared) {
            return Err(CommandError::NotFound);
        }
        let extra = message.extra.unwrap_or_default();
        let mut attrs = extra.attrs.iter();
        let name = attrs.find(|(name, _)| **name == *b"dead_letter_queue");
        let name = Name::new(&name.ok_or(CommandError::NotFound)?.1);
        let to = self
            .find_or_make(&name)
            .map_err(|_| CommandError::NotFound)?;
        if to == message.queue {
            return Err(CommandError::NotFound);
        }
        self.transfer(id, to, Transfer::Redriven);
        Ok(Outcome::Done)
    }

    /// All of it at once; where a slice ends is the engine's to know.
    pub(super) fn bulk_op(&mut self, bulk_op: BulkOp) -> Result<Outcome, CommandError> {
        let from = self
            .find(&bulk_op.queue)
            .ok_or(CommandError::QueueNotFound)?;
        let mut done = BulkDone::default();
        let reserved = bulk_op.state == ListState::Reserved;
        let fits_state = match bulk_op.action {
            BulkAction::Show | BulkAction::Count => true,
            BulkAction::ShowBack => {
                matches!(bulk_op.state, ListState::Ready | ListState::Buried)
            }
            BulkAction::Delete | BulkAction::Purge => !reserved,
            BulkAction::Cancel(_) | BulkAction::CountToCancel => {
                bulk_op.state != ListState::Archived
            }
            BulkAction::Kick => matches!(bulk_op.state, ListState::Buried | ListState::Delayed),
            BulkAction::Move(_) | BulkAction::Redrive { .. } | BulkAction::RedriveInto(_) => {
                !reserved && bulk_op.state != ListState::Prepared
            }
        };
        if !fits_state {
            return Ok(Outcome::BulkDone(Box::new(done)));
        }
        if bulk_op.action == BulkAction::ShowBack {
            return Ok(Outcome::BulkDone(Box::new(self.show_back(from, &bulk_op))));
        }
        let to = match &bulk_op.action {
            BulkAction::Move(to) | BulkAction::Redrive { to: Some(to) } => {
                Some(self.find_or_make(to)?)
            }
            BulkAction::RedriveInto(to) => Some(self.find(to).ok_or(CommandError::QueueNotFound)?),
            _ => None,
        };
        if to == Some(from) {
            return Ok(Outcome::BulkDone(Box::new(done)));
        }
        for id in self.list(from, bulk_op.state) {
            done.examined += 1;
            let Some(message) = self.item(id).map(|item| item.message.clone()) else {
                continue;
            };
            if !bulk_op.filter.fits(&message, self.now) {
                continue;
            }
            match (&bulk_op.action, to) {
                (BulkAction::Delete | BulkAction::Purge, _) => {
                    self.settle(ClientId(0), id, By::Anyone, How::Finish)?;
                }
                (BulkAction::Cancel(cancel), _) if self.cancel(id, cancel).is_err() => continue,
                (BulkAction::CountToCancel, _) if self.may_cancel(id).is_err() => continue,
                (BulkAction::Show, _) => done.messages.push(message),
                (BulkAction::Kick, _) => self.kick_one(id),
                (BulkAction::Move(_), Some(to)) => self.transfer(id, to, Transfer::Command),
                (BulkAction::Redrive { .. } | BulkAction::RedriveInto(_), Some(to)) => {
                    self.transfer(id, to, Transfer::Redriven);
                }
                (BulkAction::Redrive { .. }, None) if self.redrive_one(id).is_err() => continue,
                _ => {}
            }
            done.matched += 1;
        }
        if bulk_op.action == BulkAction::Purge {
            self.forget_repeats(from);
        }
        Ok(Outcome::BulkDone(Box::new(done)))
    }

    /// The last ones, as many as the engine looks at in one slice.
    fn show_back(&self, queue: QueueId, bulk_op: &BulkOp) -> BulkDone {
        let max = bulk_op.max as usize;
        let limit = match bulk_op.filter.picks() {
            true => max.clamp(64, 1024),
            false => max.min(1024),
        };
        let buried = bulk_op.state == ListState::Buried;
        let selectable = !bulk_op.after.is_some_and(|after| after.not_selectable);
        let listed = self.list(queue, bulk_op.state).into_iter().rev();
        let items = listed.filter_map(|id| self.item(id));
        let mut items: Vec<&Item> = items
            .filter(|item| buried || item.message.selectable == selectable)
            .collect();
        let mut all = items.len() < limit;
        items.truncate(limit);
        let mut done = BulkDone::default();
        for item in items {
            if done.matched >= u64::from(bulk_op.max) {
                all = false;
                break;
            }
            done.examined += 1;
            done.next = Some(Cursor {
                not_selectable: !buried && !selectable,
                order: (0, 0, item.message.id),
            });
            if bulk_op.filter.fits(&item.message, self.now) {
                done.matched += 1;
                done.messages.push(item.message.clone());
            }
        }
        done.next = done.next.filter(|_| !all);
        done
    }

    fn forget_repeats(&mut self, queue: QueueId) {
        self.dedupe_records.retain(|dedupe_record| {
            dedupe_record.queue != queue || dedupe_record.scope != Scope::Window
        });
    }

    pub(super) fn commit(&mut self, id: MessageId) -> Result<Outcome, CommandError> {
        if self.message(id)?.state != State::Prepared {
            return Err(CommandError::NotFound);
        }
        self.item_mut(id).message.state = State::Ready;
        Ok(Outcome::Done)
    }

    pub(super) fn edit(&mut self, id: MessageId, edit: Edit) -> Result<Outcome, CommandError> {
        let reserved = self.message(id)?.state == State::Reserved;
        if reserved && (edit.priority.is_some() || edit.due.is_some()) {
            return Err(CommandError::NotFound);
        }
        let now = self.now;
        let message = &mut self.item_mut(id).message;
        message.priority = edit.priority.unwrap_or(message.priority);
        let extra = message.extra_mut();
        extra.changed = now;
        if let Some(when) = edit.due {
            extra.due = due(when, now);
            extra.delay_ms = extra.due.map_or(0, |due| due.since(now));
        }
        if let Some(status) = edit.status {
            extra.status = status;
        }
        for (name, value) in edit.attrs {
            extra.attrs.retain(|(other, _)| *other != name);
            extra.attrs.extend(value.map(|value| (name, value)));
        }
        extra.attrs.sort();
        Ok(Outcome::Done)
    }

    pub(super) fn pause(
        &mut self,
        name: &Name,
        for_ms: Option<u64>,
    ) -> Result<Outcome, CommandError> {
        let number = self.find(name).ok_or(CommandError::QueueNotFound)?;
        if self.settings_of(number).locked & Overrides::bit("paused") != 0 {
            return Err(CommandError::Locked);
        }
        let now = self.now;
        let queue = self.queue_mut(number);
        queue.made = true;
        queue.pause = match for_ms {
            Some(0) => None,
            Some(ms) => Some(Some(now + ms)),
            None => Some(None),
        };
        Ok(Outcome::Done)
    }

    /// The queue of this name, if it is more than what somebody waits on.
    pub(super) fn there(&self, name: &Name) -> Result<QueueId, CommandError> {
        let there = self.find(name).filter(|&queue| self.queue(queue).made);
        there.ok_or(CommandError::QueueNotFound)
    }

    pub(super) fn create(
        &mut self,
        name: &Name,
        overrides: Box<Overrides>,
    ) -> Result<Outcome, CommandError> {
        match self.there(name) {
            Ok(_) => Err(CommandError::QueueExists),
            Err(_) => self.configure(name, Some(overrides)),
        }
    }

    pub(super) fn configure(
        &mut self,
        name: &Name,
        overrides: Option<Box<Overrides>>,
    ) -> Result<Outcome, CommandError> {
        let number = self.find_or_make(name)?;
        let mut all = self.queue(number).overrides.clone();
        match overrides {
            Some(newer) => all.merge(&newer),
            None => all = Overrides::default(),
        }
        self.settle_own(number, all)
    }

    pub(super) fn settle_own(
        &mut self,
        number: QueueId,
        all: Overrides,
    ) -> Result<Outcome, CommandError> {
        let settings = self.settings_of(number);
        let (locked, speed) = (settings.locked, (settings.take_rate, settings.take_burst));
        let queue = self.queue_mut(number);
        queue.overrides.may_become(&all, locked)?;
        (queue.made, queue.overrides) = (true, all);
        self.change_speed(number, speed);
        Ok(Outcome::Done)
    }

    /// A child has one parent: the first one.
    pub(super) fn join(&mut self, parent: &Name, child: &Name) -> Result<Outcome, CommandError> {
        if parent == child {
            return Err(CommandError::BadName);
        }
        if self
            .find(child)
            .is_some_and(|child| self.queue(child).parent.is_some())
        {
            return Ok(Outcome::Done);
        }
        let parent = self.find_or_make(parent)?;
        let child = self.find_or_make(child)?;
        let above = self.queue_mut(parent);
        above.made = true;
        above.children.push(child);
        let below = self.queue_mut(child);
        (below.made, below.parent) = (true, Some(parent));
        Ok(Outcome::Count(1))
    }

    pub(super) fn flush(&mut self, name: &Name, reserved: bool) -> Outcome {
        let Some(queue) = self.find(name) else {
            return Outcome::Count(0);
        };
        let ids = self.ids(queue, |message| match message.state {
            State::Reserved => reserved,
            state => state == State::Ready,
        });
        self.forget_repeats(queue);
        for &id in &ids {
            self.remove(id);
        }
        if self.queue(queue).made {
            let totals = self.totals(queue);
            totals.flushes += 1;
            totals.flushed += ids.len() as u64;
        }
        Outcome::Count(ids.len() as u64)
    }

    pub(super) fn flush_all(&mut self) -> Outcome {
        let there = self.queues.iter().filter(|queue| !queue.dropped);
        let waits = |queue: &&Queue| {
            !self
                .ids(queue.number, |m| m.state == State::Ready)
                .is_empty()
        };
        let names: Vec<Name> = there
            .filter(waits)
            .map(|queue| queue.name.clone())
            .collect();
        self.dedupe_records
            .retain(|dedupe_record| dedupe_record.scope != Scope::Window);
        let mut count = 0;
        for name in names {
            if let Outcome::Count(some) = self.flush(&name, false) {
                count += some;
            }
        }
        Outcome::Count(count)
    }

    /// Reserved messages vanish when they are released; waiting takes wait for
    /// the name, not for the queue.
    pub(super) fn drop_queue(&mut self, name: &Name) -> Outcome {
        let Some(number) = self.find(name).filter(|&queue| self.queue(queue).made) else {
            return Outcome::Count(0);
        };
        let count = self.ids(number, |_| true).len() as u64;
        self.items
            .retain(|item| item.message.queue != number || item.message.state == State::Reserved);
        for item in &mut self.items {
            item.message.doomed |= item.message.queue == number;
        }
        self.dedupe_records
            .retain(|dedupe_record| dedupe_record.queue != number);
        for queue in &mut self.queues {
            queue.children.retain(|&child| child != number);
            queue.parent = queue.parent.filter(|&parent| parent != number);
        }
        let queue = self.queue_mut(number);
        (queue.dropped, queue.pause) = (true, None);
        (queue.parent, queue.children) = (None, Vec::new());
        let must = |waiter: &Waiter| {
            let take = &waiter.take;
            take.must_exist && !waiter.standing && take.queues.contains(name)
        };
        for waiter in self.waiters.extract_if(.., |waiter| must(waiter)) {
            let outcome = Outcome::Refused(CommandError::QueueNotFound);
            self.deliveries.push((waiter.client_id, false, outcome));
        }
        Outcome::Count(count)
    }

    /// All that match, in one go: there are few.
    pub(super) fn drop_queues(
        &mut self,
        pattern: &Pattern,
        messages: bool,
        dry_run: bool,
    ) -> Outcome {
        let mut done = Dropped::default();
        let there = self.queues.iter().filter(|queue| queue.made);
        let there = there.filter(|queue| !queue.dropped);
        let names: Vec<Name> = there.map(|queue| queue.name.clone()).collect();
        for name in names {
            let Some(queue) = self.find(&name) else {
                continue;
            };
            if !pattern.matches(name.as_bytes()) {
                continue;
            }
            let held = self.ids(queue, |_| true).len() as u64;
            if held > 0 && !messages {
                done.passed += 1;
                continue;
            }
            done.queues += 1;
            done.messages += held;
            if !dry_run {
                self.drop_queue(&name);
            }
        }
        Outcome::Dropped(done)
    }

    pub(super) fn restore(&mut self, messages: Vec<Message>) -> Outcome {
        let mut count = 0;
        for mut message in messages {
            let there = |queue: QueueId| {
                self.queues
                    .iter()
                    .any(|other| other.number == queue && !other.dropped)
            };
            if !there(message.queue) || self.item(message.id).is_some() {
                continue;
            }
            message.state = State::Ready;
            self.stands_by_the_clock(&mut message);
            if !message.is_expired(self.now) {
                let totals = self.totals(message.queue);
                totals.restored += 1;
                self.items.push(Item {
                    message,
                    lease: None,
                    turn: 0,
                });
                count += 1;
            }
        }
        Outcome::Count(count)
    }
}
