//! The ends of leases.

use quintet_types::{
    AttrChange, BackTo, Bound, By, ByName, ClientId, CommandError, DeadLetter, How, Message,
    MessageId, Ms, Name, NamedAction, Outcome, QueueId, Retry, RetryOn, Return, State, Transfer,
};

use super::put::due;
use super::{Item, Model, ModelLease};

impl Model {
    pub(super) fn settle(
        &mut self,
        client_id: ClientId,
        id: MessageId,
        by: By,
        how: How,
    ) -> Result<Outcome, CommandError> {
        let reserved = self.message(id)?.state == State::Reserved;
        let releases = matches!(how, How::Release { .. } | How::Fail { .. });
        self.may_settle(client_id, id, by)?;
        if releases && !reserved {
            return Err(match by {
                By::Lease(_) => CommandError::LeaseOver,
                _ => CommandError::NotFound,
            });
        }
        self.settle_one(id, how);
        Ok(Outcome::Done)
    }

    /// The holder's, oldest first; those released at once keep their order.
    pub(super) fn settle_held(
        &mut self,
        client_id: ClientId,
        queue: Option<Name>,
        how: How,
        max: u32,
    ) -> Outcome {
        let mut ids = self.held(client_id);
        ids.retain(|&id| queue.as_ref().is_none_or(|name| self.name_of(id) == *name));
        ids.truncate(max as usize);
        if matches!(how, How::Release { .. } | How::Fail { .. }) {
            ids.reverse();
        }
        for &id in &ids {
            self.settle_one(id, how.clone());
        }
        Outcome::Count(ids.len() as u64)
    }

    pub(super) fn delete(
        &mut self,
        client_id: ClientId,
        id: MessageId,
        by: By,
    ) -> Result<Outcome, CommandError> {
        if by == By::Anyone && self.message(id)?.state == State::Reserved {
            let queue = self.remove(id).queue;
            self.totals(queue).deleted += 1;
            return Ok(Outcome::Done);
        }
        self.settle(client_id, id, by, How::Finish)
    }

    /// Of several the one whose lease has run longest; a cancel means one that is cancelled only if
    /// there is no other.
    pub(super) fn by_name(
        &mut self,
        client_id: ClientId,
        by_name: ByName,
    ) -> Result<Outcome, CommandError> {
        let queue = by_name.queue.as_ref().map(|name| self.find(name));
        let since = |item: &Item| {
            let lease = item.lease.as_ref()?;
            Some(
                lease
                    .until
                    .map_or(0, |until| until.0.saturating_sub(lease.span_ms)),
            )
        };
        let found = self.items.iter().filter(|item| {
            let message = &item.message;
            message.name().is_some_and(|name| **name == *by_name.name)
                && queue.is_none_or(|queue| Some(message.queue) == queue)
                && message.state == State::Reserved
                && self.allows(client_id, message.id, by_name.by)
        });
        let cancels = matches!(by_name.action, NamedAction::Cancel(_));
        let first = found.min_by_key(|item| {
            let again = cancels && item.message.cancelled().is_some();
            (again, since(item), item.message.id)
        });
        let message = first.ok_or(CommandError::NotFound)?.message.clone();
        match by_name.action {
            NamedAction::Track => Err(CommandError::NotFound),
            NamedAction::Peek => Ok(Outcome::Messages([message].into_iter().collect())),
            NamedAction::Settle(how) => self.settle(client_id, message.id, by_name.by, how),
            NamedAction::SettleHolding(how, hold) => {
                self.settle_holding((client_id, by_name.by), message.id, how, hold)
            }
            NamedAction::Extend(ms) => self.extend((client_id, By::Anyone), message.id, ms),
            NamedAction::Until(at) => {
                let lease = self.item(message.id).and_then(|item| item.lease.as_ref());
                let ends = lease.and_then(|lease| lease.until);
                if ends.is_some_and(|ends| ends < at) {
                    let ms = Some(at.since(self.now).max(1));
                    return self.extend((client_id, By::Anyone), message.id, ms);
                }
                Ok(Outcome::Done)
            }
            NamedAction::Cancel(cancel) => self.cancel(message.id, &cancel),
            NamedAction::Progress(percent, text) => {
                self.progress((client_id, by_name.by), message.id, percent, text)
            }
        }
    }

    /// A place behind all that is there; what comes back in one step shares it.
    fn tail_position(&mut self, queue: QueueId) -> i64 {
        let next = self.next_id;
        let position = match self.tail {
            Some(position) if next <= position + 1 => position,
            _ => {
                let logged = !self.settings_of(queue).memory;
                self.new_id(logged).0
            }
        };
        self.tail = Some(position);
        position as i64
    }

    pub(super) fn extend(
        &mut self,
        (client_id, by): (ClientId, By),
        id: MessageId,
        ms: Option<u64>,
    ) -> Result<Outcome, CommandError> {
        let (now, epoch) = (self.now, self.epoch);
        self.may_settle(client_id, id, by)?;
        if let (By::Lease(_), State::Ready, Some(ms)) = (by, self.message(id)?.state, ms) {
            let turn = self.turn();
            let item = self.item_mut(id);
            item.message.state = State::Reserved;
            item.message.extra_mut().due = None;
            item.lease = Some(ModelLease {
                client_id: ClientId(0),
                bound: Bound::Time,
                until: Some(now + ms),
                span_ms: ms,
                back_to: BackTo::Position,
                turn,
                epoch,
                since: now,
            });
            return Ok(Outcome::Done);
        }
        if let (By::Lease(_), State::Ready) = (by, self.message(id)?.state) {
            return Ok(Outcome::Done);
        }
        let item = self.items.iter_mut().find(|item| item.message.id == id);
        let item = item.ok_or(CommandError::NotFound)?;
        let cancelled = item.message.cancelled().map(|cancelled| cancelled.until);
        let lease = item.lease.as_mut().ok_or(CommandError::NotFound)?;
        let requested = now + ms.unwrap_or(lease.span_ms);
        match (lease.until, cancelled) {
            (None, _) => {}
            (Some(_), None) => lease.until = Some(requested),
            // The grace is the most, and nobody makes it shorter.
            (Some(until), Some(end)) => lease.until = Some(until.max(requested.min(end))),
        }
        Ok(match cancelled {
            Some(_) => Outcome::Cancelled,
            None => Outcome::Done,
        })
    }

    pub(super) fn progress(
        &mut self,
        (client_id, by): (ClientId, By),
        id: MessageId,
        percent: Option<u8>,
        text: Option<Box<[u8]>>,
    ) -> Result<Outcome, CommandError> {
        if self.message(id)?.state != State::Reserved || !self.allows(client_id, id, by) {
            return Err(CommandError::NotFound);
        }
        self.note_progress(id, percent, text);
        Ok(match self.message(id)?.cancelled() {
            Some(_) => Outcome::Cancelled,
            None => Outcome::Done,
        })
    }

    pub(super) fn note_progress(
        &mut self,
        id: MessageId,
        percent: Option<u8>,
        text: Option<Box<[u8]>>,
    ) {
        let now = self.now;
        if percent.is_none() && text.is_none() {
            return;
        }
        let extra = self.item_mut(id).message.extra_mut();
        extra.changed = now;
        if let Some(percent) = percent {
            let value = percent.to_string().into_bytes();
            extra.attrs.retain(|(name, _)| **name != *b"progress");
            extra
                .attrs
                .push((Box::from(&b"progress"[..]), value.into()));
            extra.attrs.sort();
        }
        extra.status = text.unwrap_or(std::mem::take(&mut extra.status));
    }

    pub(super) fn touch(
        &mut self,
        client_id: ClientId,
        id: MessageId,
    ) -> Result<Outcome, CommandError> {
        self.message(id)?;
        if !self.allows(client_id, id, By::Owner) || self.message(id)?.cancelled().is_some() {
            return Err(CommandError::NotFound);
        }
        let now = self.now;
        if let Some(lease) = &mut self.item_mut(id).lease
            && lease.span_ms > 0
        {
            lease.until = Some(now + lease.span_ms);
        }
        Ok(Outcome::Done)
    }

    fn allows(&self, client_id: ClientId, id: MessageId, by: By) -> bool {
        self.may_settle(client_id, id, by).is_ok()
    }

    fn may_settle(&self, client_id: ClientId, id: MessageId, by: By) -> Result<(), CommandError> {
        let item = self.item(id).ok_or(CommandError::NotFound)?;
        let (lease, message) = (item.lease.as_ref(), &item.message);
        let allows = match (by, lease) {
            (By::Lease(shown), _) => {
                let waits = matches!(message.state, State::Ready | State::Reserved);
                let holds = lease.is_some_and(|lease| lease.epoch == shown.epoch)
                    && message.reserves == shown.number;
                if !waits || message.position != shown.position || message.is_expired(self.now) {
                    return Err(CommandError::NotFound);
                }
                if !holds && !shown.over {
                    return Err(CommandError::LeaseOver);
                }
                true
            }
            (By::Anyone, _) | (By::OwnerOrFree, None) => true,
            (By::Bearer, Some(lease)) => lease.bound == Bound::Time,
            (By::Owner | By::Bearer, None) => false,
            (By::Owner | By::OwnerOrFree, Some(lease)) => lease.client_id == client_id,
        };
        allows.then_some(()).ok_or(CommandError::NotFound)
    }

    pub(super) fn name_of(&self, id: MessageId) -> Name {
        let item = self.item(id).expect("the message exists");
        self.queue(item.message.queue).name.clone()
    }

    fn settle_one(&mut self, id: MessageId, how: How) {
        let now = self.now;
        let item = self.item_mut(id);
        let (queue, doomed) = (item.message.queue, item.message.doomed);
        let state = item.message.state;
        if matches!(how, How::Bury { .. }) && item.message.cancelled().is_some() {
            return self.end_cancelled(id);
        }
        match how {
            How::Finish => {
                self.remove(id);
                let totals = self.totals(queue);
                match state {
                    State::Reserved => totals.finished += 1,
                    // It was counted when it was archived.
                    State::Done | State::Relayed => {}
                    State::Ready | State::Prepared | State::Buried => totals.deleted += 1,
                }
            }
            How::Archive { .. } | How::Bury { .. } if doomed => {
                self.remove(id);
            }
            How::Archive { relayed, status } => {
                item.message.state = if relayed { State::Relayed } else { State::Done };
                let extra = item.message.extra_mut();
                (extra.changed, extra.status) = (now, status);
                extra.cancelled = None;
                item.end_lease();
                self.totals(queue).finished += 1;
            }
            How::Release {
                priority,
                due: when,
                back_to,
            } => {
                let priority = priority.unwrap_or(item.message.priority);
                let due = due(when, now);
                let failed = self.fails(id, Return::Released, due);
                self.give_back_as(id, Return::Released, (priority, due), back_to, failed);
            }
            How::Fail { error, note } => {
                if !doomed {
                    note_down(&mut item.message, note);
                }
                let priority = item.message.priority;
                self.give_back_as(id, Return::Released, (priority, None), None, Some(error));
            }
            How::Bury { priority, reason } => {
                let priority = priority.unwrap_or(item.message.priority);
                self.bury(id, priority, reason);
            }
        }
    }

    /// As the message says, else as its queue does.
    pub(super) fn buried_until(&self, id: MessageId) -> Option<Ms> {
        self.buried_until_of(&self.item(id)?.message)
    }

    pub(super) fn buried_until_of(&self, message: &Message) -> Option<Ms> {
        let own = message.retry().map_or(0, |retry| retry.buried_ttl_ms);
        let queues = self.settings_of(message.queue).buried_ttl_ms;
        let ttl_ms = if own > 0 { own } else { queues };
        (ttl_ms > 0).then(|| self.now + ttl_ms)
    }

    fn bury(&mut self, id: MessageId, priority: u32, reason: Box<[u8]>) {
        let (turn, now, until) = (self.turn(), self.now, self.buried_until(id));
        let item = self.item_mut(id);
        let queue = item.message.queue;
        item.message.state = State::Buried;
        item.message.priority = priority;
        let extra = item.message.extra_mut();
        extra.due = None;
        extra.buries += 1;
        extra.changed = now;
        extra.buried_until = until;
        if !reason.is_empty() {
            extra.status = reason;
        }
        item.end_lease();
        item.turn = turn;
        self.totals(queue).buries += 1;
    }

    pub(super) fn give_back(&mut self, id: MessageId, why: Return) {
        let priority = self.item_mut(id).message.priority;
        let failed = self.fails(id, why, None);
        self.give_back_as(id, why, (priority, None), None, failed);
    }

    /// The error of a failure that is kept, if the queue counts it as one.
    fn fails(&self, id: MessageId, why: Return, due: Option<Ms>) -> Option<Box<[u8]>> {
        let message = &self.item(id).expect("it is there").message;
        let settings = self.settings_of(message.queue);
        let policy = settings.retry_delay_ms > 0 || settings.retry_max > 0;
        let own = message.retry();
        let (cause, words) = match why {
            Return::Released => (RetryOn::RELEASE, ""),
            Return::Timeout => (RetryOn::TIMEOUT, "its lease ran out"),
            Return::Lost => (RetryOn::LOST, "its connection was lost"),
            Return::Pending | Return::Unheard => return None,
        };
        let counts = policy && due.is_none() && settings.retry_on.has(cause);
        let own_counts = |retry: Retry| {
            due.is_none() && retry.on_timeout && matches!(why, Return::Timeout | Return::Lost)
        };
        let counts = own.map_or(counts, own_counts);
        counts.then(|| words.as_bytes().into())
    }

    /// Counts a failure; answers until when it rests, and whether it failed often enough.
    fn failed(&mut self, id: MessageId, error: Box<[u8]>) -> (Option<Ms>, bool) {
        let now = self.now;
        let queue = self.item_mut(id).message.queue;
        let settings = self.settings_of(queue);
        self.totals(queue).failures += 1;
        let extra = self.item_mut(id).message.extra_mut();
        extra.failures += 1;
        if !error.is_empty() {
            extra.status = error;
        }
        let failures = extra.failures;
        if let Some(retry) = extra.retry.as_deref() {
            let (c, backoff) = (u64::from(failures) - 1, retry.backoff);
            let rest = backoff.base_ms + backoff.factor_ms * c.pow(u32::from(backoff.power));
            let enough = retry.max <= 0 || i64::from(failures) > retry.max;
            return ((rest > 0).then(|| now + rest), enough);
        }
        // With no jitter, which the engine's own tests look at.
        let mut rest = settings.retry_delay_ms.min(settings.retry_delay_max_ms);
        for _ in 1..failures {
            let longer = rest * u64::from(settings.retry_factor);
            rest = longer.min(settings.retry_delay_max_ms);
        }
        let enough = settings.retry_max > 0 && failures > settings.retry_max;
        ((rest > 0).then(|| now + rest), enough)
    }

    fn give_back_as(
        &mut self,
        id: MessageId,
        why: Return,
        (priority, due): (u32, Option<Ms>),
        back_to: Option<BackTo>,
        failed: Option<Box<[u8]>>,
    ) {
        let now = self.now;
        let message = self.item_mut(id).message.clone();
        if message.cancelled().is_some() {
            self.end_cancelled(id);
        } else if message.doomed {
            self.remove(id);
        } else if message.expires().is_some_and(|at| at <= now) {
            self.expire(id);
        } else if self.is_spent(id) {
            if let Some(error) = failed.filter(|error| !error.is_empty()) {
                self.failed(id, error);
                self.release(id, why, priority, None, back_to);
            }
            self.dead_letter(id);
        } else if let Some(error) = failed {
            let (due, enough) = self.failed(id, error);
            self.release(id, why, priority, due, back_to);
            let own = message.retry();
            if enough && own.is_some_and(|retry| retry.max == 0) {
                let message = self.remove(id);
                let totals = self.totals(message.queue);
                totals.discarded += 1;
                totals.failed += 1;
            } else if enough {
                self.dead_letter(id);
            }
        } else {
            self.release(id, why, priority, due, back_to);
        }
    }

    fn release(
        &mut self,
        id: MessageId,
        why: Return,
        priority: u32,
        due: Option<Ms>,
        back_to: Option<BackTo>,
    ) {
        let now = self.now;
        let item = self.item_mut(id);
        let queue = item.message.queue;
        let says = item
            .lease
            .as_ref()
            .map_or(BackTo::Position, |lease| lease.back_to);
        match why {
            Return::Released | Return::Timeout => item.end_lease(),
            Return::Lost | Return::Pending | Return::Unheard => item.lease = None,
        }
        item.message.state = State::Ready;
        item.message.priority = priority;
        let extra = item.message.extra_mut();
        extra.due = due;
        if why == Return::Released {
            extra.delay_ms = due.map_or(0, |due| due.since(now));
        }
        extra.releases += u32::from(why == Return::Released);
        extra.timeouts += u32::from(why == Return::Timeout);
        let position = match back_to.unwrap_or(says) {
            BackTo::Position => None,
            BackTo::Head => {
                let head = self.queue_mut(queue);
                head.head -= 1;
                Some(head.head)
            }
            BackTo::Tail => Some(self.tail_position(queue)),
        };
        if let Some(position) = position {
            self.item_mut(id).message.position = position;
        }
        let totals = self.totals(queue);
        *match why {
            Return::Released => &mut totals.releases,
            Return::Timeout => &mut totals.timeouts,
            Return::Lost | Return::Unheard => &mut totals.cancels,
            // The model has no hooks.
            Return::Pending => return,
        } += 1;
    }

    /// A lease ended by a restart: attempts are looked at afterwards.
    pub(super) fn end_lost(&mut self, id: MessageId) {
        let message = &self.item_mut(id).message;
        let (doomed, priority) = (message.doomed, message.priority);
        if doomed {
            self.remove(id);
        } else {
            self.release(id, Return::Lost, priority, None, None);
        }
    }

    pub(super) fn is_spent(&self, id: MessageId) -> bool {
        self.item(id).is_some_and(|item| {
            let max = self.settings_of(item.message.queue).attempts_max;
            max > 0 && item.message.reserves >= max
        })
    }

    pub(super) fn dead_letter(&mut self, id: MessageId) {
        let message = self.item_mut(id).message.clone();
        if let DeadLetter::To(name) = self.settings_of(message.queue).dead_letter
            && let Ok(to) = self.find_or_make(&name)
            && to != message.queue
        {
            let why = match message.failures() > 0 && !self.is_spent(id) {
                true => Transfer::Failures,
                false => Transfer::DeadLetter,
            };
            self.transfer(id, to, why);
            return;
        }
        let extra = message.extra.as_deref();
        let status = extra.map(|extra| extra.status.clone()).unwrap_or_default();
        let times = |count: u32| if count == 1 { "time" } else { "times" };
        let reserves = message.reserves;
        let mut reason = format!("reserved {reserves} {} without finish", times(reserves));
        let failures = message.failures();
        if failures > 0 && !self.is_spent(id) {
            reason = format!("failed {failures} {}", times(failures));
        }
        let error = String::from_utf8_lossy(status.trim_ascii_end());
        if failures > 0 && !error.is_empty() {
            reason = format!("{error} ({reason})");
        }
        self.bury(id, message.priority, reason.into_bytes().into());
        self.totals(message.queue).dead_letters += 1;
    }

    /// To the tail of its priority in a queue. Whatever it was, it is ready there.
    pub(super) fn transfer(&mut self, id: MessageId, to: QueueId, why: Transfer) {
        let position = self.new_id(!self.settings_of(to).memory).0 as i64;
        self.queue_mut(to).made = true;
        let aged_from = self.begins_to_age(to);
        let from = self.item_mut(id).message.queue;
        let from_name = self.queue(from).name.clone();
        let item = self.item_mut(id);
        item.end_lease();
        item.message.state = State::Ready;
        item.message.queue = to;
        item.message.position = position;
        let reserves = item.message.reserves;
        let extra = item.message.extra_mut();
        (extra.due, extra.delay_ms) = (None, 0);
        extra.aged_from = aged_from;
        if why == Transfer::Redriven {
            (extra.failures, extra.expires) = (0, None);
            extra
                .attrs
                .retain(|(name, _)| !name.starts_with(b"dead_letter_"));
            item.message.reserves = 0;
        } else if why != Transfer::Command {
            let reason = match why {
                Transfer::DeadLetter => "attempts",
                Transfer::Failures => "failures",
                Transfer::Expired | Transfer::Command | Transfer::Redriven => "expired",
            };
            extra.expires = None;
            extra
                .attrs
                .retain(|(name, _)| !name.starts_with(b"dead_letter_"));
            let failures = std::mem::take(&mut extra.failures).to_string();
            let error = match failures.as_str() {
                "0" => Box::default(),
                _ => std::mem::take(&mut extra.status),
            };
            for (name, value) in [
                ("attempts", reserves.to_string().as_bytes()),
                ("error", &error),
                ("failures", failures.as_bytes()),
                ("queue", from_name.as_bytes()),
                ("reason", reason.as_bytes()),
            ] {
                let none = name == "error" && error.is_empty();
                if none || name == "failures" && failures == "0" {
                    continue;
                }
                let name = format!("dead_letter_{name}").into_bytes().into();
                extra.attrs.push((name, value.into()));
            }
            extra.attrs.sort();
            item.message.reserves = 0;
        }
        if why.is_dead_letter() || why == Transfer::Redriven {
            let (settings, now) = (self.settings_of(to), self.now);
            let spans = [settings.ttl_ms, settings.ttl_max_ms];
            let least = spans.into_iter().filter(|&ms| ms > 0).min();
            self.item_mut(id).message.extra_mut().expires = least.map(|ms| now + ms);
        }
        let totals = self.totals(from);
        totals.moved_out += 1;
        totals.dead_letters += u64::from(why.is_dead_letter());
        totals.dead_moved += u64::from(why.is_dead_letter());
        totals.expired += u64::from(why == Transfer::Expired);
        totals.expired_moved += u64::from(why == Transfer::Expired);
        self.totals(to).moved_in += 1;
    }
}

/// Sets attributes, and removes them.
fn note_down(message: &mut Message, note: Vec<AttrChange>) {
    for (name, value) in note {
        let attrs = &mut message.extra_mut().attrs;
        attrs.retain(|(other, _)| *other != name);
        attrs.extend(value.map(|value| (name, value)));
        attrs.sort();
    }
}
