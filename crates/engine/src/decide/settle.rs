//! Ending leases, by their holder or by themselves.

use super::Stop;
use super::admin::merged;
use quintet_types::{
    BackTo, Bound, By, ClientId, CommandError, DeadLetter, ERROR_BYTES_MAX, How, Lease, Message,
    MessageId, Ms, Name, Outcome, PendingDecisionKind, QueueId, Removal, Retry, Return, State,
    Transfer, When, cut,
};

use crate::engine::{Cx, Engine};
use crate::fact::{Change, Fact, Journal};
use crate::store::Maker;

/// How a message goes back.
struct Back<'a> {
    priority: u32,
    /// Not taken before.
    due: Option<Ms>,
    /// Where in its priority; `None`: as the lease says.
    to: Option<BackTo>,
    /// Whether its try failed; `None`: nothing was tried, or it has a delay of its own.
    failed: Option<Failed<'a>>,
}

/// The source of a failed try's report.
#[derive(Clone, Copy)]
enum Failed<'a> {
    /// Its holder, and why.
    Error(&'a [u8]),
    /// The queue's policy, if it counts the reason.
    ByPolicy,
}

/// The error that is kept of a failure without a report; empty: the last report stays.
fn words_of(why: Return) -> &'static [u8] {
    match why {
        Return::Timeout => b"its lease ran out",
        Return::Lost => b"its connection was lost",
        Return::Released | Return::Pending | Return::Unheard => b"",
    }
}

impl Back<'_> {
    fn at(priority: u32) -> Self {
        Self {
            priority,
            due: None,
            to: None,
            failed: None,
        }
    }
}

/// Why a message in this state goes by a command: if it is archived it was counted as finished.
pub(super) fn deleted_by(state: State, why: Removal) -> Removal {
    match state {
        State::Done | State::Relayed if why == Removal::Purged => Removal::PurgedDone,
        State::Done | State::Relayed => Removal::DeletedDone,
        State::Prepared | State::Ready | State::Reserved | State::Buried => why,
    }
}

impl Engine {
    pub(crate) fn settle<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        client_id: ClientId,
        id: MessageId,
        by: By,
        how: &How,
    ) -> Result<Outcome, Stop> {
        let slot = self.found(id)?;
        self.may_settle(client_id, id, by)?;
        let message = self.store.messages.at(slot);
        if message.is_expired(self.now) && by == By::Anyone {
            self.expire(cx, id);
            return Err(CommandError::NotFound.into());
        }
        // Giving back makes sense only for what was taken.
        if message.state != State::Reserved && how.gives_back() {
            return Err(match by {
                By::Lease(_) => CommandError::LeaseOver.into(),
                By::Owner | By::OwnerOrFree | By::Anyone | By::Bearer => {
                    CommandError::NotFound.into()
                }
            });
        }
        let queue = message.queue;
        self.settle_one(cx, id, how);
        cx.wake(queue);
        Ok(Outcome::Done)
    }

    pub(crate) fn settle_held<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        client_id: ClientId,
        queue: Option<&Name>,
        how: &How,
        max: u32,
    ) -> Result<Outcome, CommandError> {
        let Some(held) = self.store.held.get(&client_id) else {
            // The client holds nothing.
            return Ok(Outcome::Count(0));
        };
        let mut ids: Vec<MessageId> = match queue {
            None => {
                let held = held.iter().copied();
                held.filter(|&id| self.store.slot(id).is_some()).collect()
            }
            // By name: the queue may have been dropped since, and made again.
            Some(name) => self.held_in(client_id, name).collect(),
        };
        ids.truncate(max as usize);
        let count = ids.len() as u64;
        let mut queues: Vec<QueueId> = ids
            .iter()
            .filter_map(|&id| self.store.message(id).map(|m| m.queue))
            .collect();
        queues.dedup();
        // Those going to the head go newest first, so that they keep their order.
        if how.gives_back() {
            ids.reverse();
        }
        for id in ids {
            self.settle_one(cx, id, how);
        }
        for queue in queues {
            cx.wake(queue);
        }
        Ok(Outcome::Count(count))
    }

    /// Whether `client_id` may act on the message, and why not.
    pub(crate) fn may_settle(
        &self,
        client_id: ClientId,
        id: MessageId,
        by: By,
    ) -> Result<(), CommandError> {
        let slot = self.store.slot(id).ok_or(CommandError::NotFound)?;
        let allows = match (by, self.store.leases.get(&slot)) {
            (By::Anyone, _) | (By::OwnerOrFree, None) => true,
            (By::Owner | By::OwnerOrFree, Some(lease)) => {
                lease.client_id == client_id && client_id != ClientId(0)
            }
            (By::Bearer, Some(lease)) => lease.bound == Bound::Time,
            (By::Owner | By::Bearer, None) => false,
            (By::Lease(shown), lease) => {
                let message = self.store.messages.at(slot);
                let there = message.position == shown.position
                    && matches!(message.state, State::Ready | State::Reserved)
                    && !message.is_expired(self.now);
                let holds = lease.is_some_and(|lease| {
                    message.reserves == shown.number && lease.epoch == shown.epoch
                });
                if there && !holds && !shown.over {
                    return Err(CommandError::LeaseOver);
                }
                there
            }
        };
        allows.then_some(()).ok_or(CommandError::NotFound)
    }

    /// True if `client_id` may act on the message.
    pub(crate) fn allows(&self, client_id: ClientId, id: MessageId, by: By) -> bool {
        self.may_settle(client_id, id, by).is_ok()
    }

    pub(crate) fn settle_one<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: MessageId, how: &How) {
        let now = self.now;
        if matches!(how, How::Bury { .. }) && self.end_cancelled(cx, id) {
            // A client has cancelled it: it is removed, not buried.
            return;
        }
        let Some(message) = self.store.message(id) else {
            // An effect of the same step may have removed it.
            return;
        };
        let (at, state, doomed) = (message.at(), message.state, message.doomed);
        match how {
            How::Finish => {
                let reserved = state == State::Reserved;
                let why = match reserved {
                    true => Removal::Finished,
                    false => deleted_by(state, Removal::Deleted),
                };
                self.fact(cx, Fact::Removed { at, why });
            }
            How::Archive { .. } | How::Bury { .. } if doomed => {
                let why = Removal::Doomed;
                self.fact(cx, Fact::Removed { at, why });
            }
            How::Archive { relayed, status } => {
                let (relayed, status) = (*relayed, status.clone());
                let fact = Fact::Archived {
                    at,
                    relayed,
                    now,
                    status,
                };
                self.fact(cx, fact);
            }
            How::Release {
                priority,
                due,
                back_to,
            } => {
                let due = self.due(*due);
                let back = Back {
                    priority: priority.unwrap_or(at.priority),
                    due,
                    to: *back_to,
                    failed: due.is_none().then_some(Failed::ByPolicy),
                };
                self.give_back_as(cx, id, Return::Released, back);
            }
            How::Fail { error, note } => {
                if !note.is_empty() && !doomed {
                    let attrs = Some(merged(message, note.clone()));
                    let change = Box::new(Change {
                        now,
                        attrs,
                        ..Change::default()
                    });
                    self.fact(cx, Fact::Edited { at, change });
                }
                let back = Back {
                    failed: Some(Failed::Error(error)),
                    ..Back::at(at.priority)
                };
                self.give_back_as(cx, id, Return::Released, back);
            }
            How::Bury { priority, reason } => {
                let priority = priority.unwrap_or(at.priority);
                let reason = cut(reason, ERROR_BYTES_MAX).into();
                let fact = Fact::Buried {
                    at,
                    priority,
                    now,
                    dead: false,
                    reason,
                    until: self.buried_until(id),
                    by_time: true,
                };
                self.fact(cx, fact);
            }
        }
    }

    /// A lease ended by itself.
    pub(crate) fn give_back<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: MessageId, why: Return) {
        let Some(message) = self.store.message(id) else {
            // A flush forgot it before its lease ended.
            return;
        };
        let back = Back {
            failed: Some(Failed::ByPolicy),
            ..Back::at(message.priority)
        };
        self.give_back_as(cx, id, why, back);
    }

    /// Its holder never heard of its lease, so nothing was tried.
    pub(crate) fn give_back_unheard<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: MessageId) {
        if let Some(message) = self.store.message(id) {
            let back = Back::at(message.priority);
            self.give_back_as(cx, id, Return::Unheard, back);
        }
    }

    /// Back into the queue, unless its queue or its time is gone or it has
    /// been tried too often.
    fn give_back_as<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        id: MessageId,
        why: Return,
        back: Back<'_>,
    ) {
        let slot = self.store.slot(id);
        let slot = slot.expect("a message is given back that is there");
        if self.end_cancelled(cx, id) {
            // A client has cancelled it: it is removed, and does not come back.
            return;
        }
        let message = self.store.messages.at(slot);
        let at = message.at();
        if message.doomed {
            let why = Removal::Doomed;
            self.fact(cx, Fact::Removed { at, why });
            // A client has dropped its queue while it was reserved.
            return;
        }
        if message.expires().is_some_and(|expires| expires <= self.now) {
            self.expire(cx, id);
            // Its time ran out while a client had it.
            return;
        }
        let own = self.store.messages.at(slot).retry();
        let settings = &self.store.expect_queue(at.queue).live.settings;
        let failed: Option<Box<[u8]>> = match back.failed {
            Some(Failed::Error(error)) => Some(cut(error, ERROR_BYTES_MAX).into()),
            Some(Failed::ByPolicy)
                if own.map_or_else(|| settings.fails_by(why), |own| own.fails_by(why)) =>
            {
                Some(words_of(why).into())
            }
            Some(Failed::ByPolicy) | None => None,
        };
        let spent = why != Return::Unheard && self.is_spent(id);
        // Why it failed the last time is worth knowing of a dead letter.
        if spent && failed.as_deref().is_none_or(<[u8]>::is_empty) {
            self.dead_letter(cx, id);
            // Clients have taken it as often as the settings allow.
            return;
        }
        let position = self.position_back(cx, slot, back.to);
        let settings = &self.store.expect_queue(at.queue).live.settings;
        let (mut due, mut enough) = (back.due, false);
        if failed.is_some() && !spent {
            let failures = self.store.messages.at(slot).failures().saturating_add(1);
            let rest;
            (enough, rest) = match own {
                Some(own) => (
                    own.failed_enough(failures),
                    own.backoff.after_ms(id, failures),
                ),
                None => (
                    settings.failed_enough(failures),
                    settings.retry_after_ms(id, failures),
                ),
            };
            due = self.due(When::In(rest));
        }
        let fact = Fact::Released {
            at,
            priority: back.priority,
            position,
            due,
            delay_ms: due.map_or(0, |due| self.left(due)),
            why,
            failed,
        };
        self.fact(cx, fact);
        match own {
            _ if spent => self.dead_letter(cx, id),
            Some(Retry { max: 0, .. }) if enough => self.discard_failed(cx, id),
            _ if enough => self.dead_letter(cx, id),
            _ => {}
        }
    }

    /// The position to which a message comes back.
    fn position_back<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        slot: u32,
        to: Option<BackTo>,
    ) -> i64 {
        let message = self.store.messages.at(slot);
        let (at, lease) = (message.at(), self.store.leases.get(&slot));
        let lease_says = lease.map_or(BackTo::Position, |lease| lease.back_to);
        // In an ordered queue a message keeps its place, however it comes back; a
        // lease that was given there says so itself.
        let queue = self.store.expect_queue(at.queue);
        let ordered = queue.groups.as_ref().is_some_and(|g| g.is_ordered());
        let requested = match to {
            Some(_) if ordered && message.key().is_some() => BackTo::Position,
            requested => requested.unwrap_or(lease_says),
        };
        match requested {
            BackTo::Position => at.position,
            BackTo::Head => queue.head.min(0) - 1,
            BackTo::Tail => self.tail_position(cx, at.queue),
        }
    }

    /// A place behind all that is in the queue: an id that no message will have. What comes back
    /// in one step shares it, as long as no other id was given.
    fn tail_position<J: Journal>(&mut self, cx: &mut Cx<'_, J>, queue: QueueId) -> i64 {
        if let Some(position) = cx.step.tail
            && self.store.last_id().0 as i64 == position
        {
            return position;
        }
        let logged = !self.store.expect_queue(queue).live.settings.memory;
        let position = self.next_id(cx, logged).0 as i64;
        (cx.step.tail, self.reading.tail) = (Some(position), Some(position));
        position
    }

    /// It is not tried again, nor kept.
    fn discard_failed<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: MessageId) {
        if let Some(at) = self.store.message(id).map(Message::at) {
            let why = Removal::Failed;
            self.fact(cx, Fact::Removed { at, why });
        }
    }

    fn is_spent(&self, id: MessageId) -> bool {
        let Some(message) = self.store.message(id) else {
            // It went with its queue, or by an effect before this one.
            return false;
        };
        let queue = self.store.expect_queue(message.queue);
        let max = queue.live.settings.attempts_max;
        max > 0 && message.reserves >= max
    }

    /// After a restart: a message that was tried too often is not tried again.
    pub(crate) fn bury_if_spent<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: MessageId) {
        if self.is_spent(id) {
            self.dead_letter(cx, id);
        }
    }

    pub(super) fn dead_letter<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: MessageId) {
        if !self.withholds(cx, id, PendingDecisionKind::DeadLetter) {
            self.dead_letter_now(cx, id);
        }
    }

    /// Which limit a message that goes by the dead-letter rule has reached.
    pub(crate) fn why_dead(&self, id: MessageId) -> Transfer {
        let failed = self
            .store
            .message(id)
            .is_some_and(|message| message.failures() > 0);
        match failed && !self.is_spent(id) {
            true => Transfer::Failures,
            false => Transfer::DeadLetter,
        }
    }

    /// Why a message is a dead letter: the error of its last failure, if it has failed, and the
    /// limit that it has reached.
    fn dead_reason(&self, id: MessageId, why: Transfer) -> Vec<u8> {
        let message = self.store.message(id);
        let message = message.expect("a message is there until it is a dead letter");
        let (did, count, without) = match why {
            Transfer::Failures => ("failed", message.failures(), ""),
            Transfer::DeadLetter | Transfer::Command | Transfer::Expired | Transfer::Redriven => {
                ("reserved", message.reserves, " without finish")
            }
        };
        let times = if count == 1 { "time" } else { "times" };
        let limit = format!("{did} {count} {times}{without}");
        let failed = message.extra.as_deref().filter(|_| message.failures() > 0);
        match failed.map(|extra| extra.status.trim_ascii_end()) {
            Some(error) if !error.is_empty() => [error, format!(" ({limit})").as_bytes()].concat(),
            Some(_) | None => limit.into_bytes(),
        }
    }

    /// When a message that is buried now is gone.
    pub(super) fn buried_until(&self, id: MessageId) -> Option<Ms> {
        let message = self.store.message(id)?;
        self.buried_until_by(message.retry(), message.queue)
    }

    /// The same of one that says this of itself.
    pub(super) fn buried_until_by(&self, own: Option<Retry>, queue: QueueId) -> Option<Ms> {
        let own = own.map_or(0, |own| own.buried_ttl_ms);
        let ttl_ms = match own {
            0 => self.store.queue(queue)?.live.settings.buried_ttl_ms,
            own => own,
        };
        (ttl_ms > 0).then(|| self.after(ttl_ms))
    }

    /// Applies the dead-letter rule.
    pub(crate) fn dead_letter_now<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: MessageId) {
        let Some(message) = self.store.message(id) else {
            // A flush may have taken it while it waited for a decision.
            return;
        };
        let at = message.at();
        let queue = self.store.expect_queue(at.queue);
        let rule = queue.live.settings.dead_letter.clone();
        let now = self.now;
        let why = self.why_dead(id);
        if let DeadLetter::To(name) = &rule
            && self.belongs_elsewhere(name)
        {
            self.send(cx, id, name.clone(), why);
            // The settings name a queue of another shard.
            return;
        }
        if let DeadLetter::To(name) = rule
            && let Ok(to) = self.find_or_make_ours(&name)
            && to != at.queue
        {
            self.transfer(cx, id, to, why);
            // The settings name a queue of this shard.
            return;
        }
        let reason = self.dead_reason(id, why).into_boxed_slice();
        let fact = Fact::Buried {
            at,
            priority: at.priority,
            now,
            dead: true,
            reason,
            until: self.buried_until(id),
            by_time: true,
        };
        self.fact(cx, fact);
    }

    /// Moves a message to the tail of its priority in another queue.
    pub(crate) fn transfer<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        id: MessageId,
        to: QueueId,
        why: Transfer,
    ) {
        let Some(message) = self.store.message(id) else {
            // An effect of the same step may have removed it.
            return;
        };
        let (at, now) = (message.at(), self.now);
        self.record_queue(cx, to);
        // An id of its own as the place: behind all that is there, before all
        // that will come.
        let logged = !self.store.expect_queue(to).live.settings.memory;
        if self.store.expect_queue(to).ages() {
            self.follow_aging(cx, to);
        }
        let position = self.next_id(cx, logged).0 as i64;
        let fact = Fact::Moved {
            at,
            to,
            position,
            why,
            now,
        };
        self.fact(cx, fact);
        if why.lives_anew()
            && let Some(expires) = self.expiry_in(to)
            && let Some(at) = self.store.message(id).map(Message::at)
        {
            let change = Box::new(Change {
                now,
                expires: Some(Some(expires)),
                ..Change::default()
            });
            self.fact(cx, Fact::Edited { at, change });
        }
        cx.wake(to);
    }

    /// When a message that begins to live in this queue now is gone.
    pub(crate) fn expiry_in(&self, queue: QueueId) -> Option<Ms> {
        let settings = &self.store.expect_queue(queue).live.settings;
        let spans = [settings.ttl_ms, settings.ttl_max_ms];
        let least = spans.into_iter().filter(|&ms| ms > 0).min();
        least.map(|ms| self.after(ms))
    }

    pub(crate) fn touch<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        client_id: ClientId,
        id: MessageId,
    ) -> Result<Outcome, CommandError> {
        if !self.allows(client_id, id, By::Owner) {
            return Err(CommandError::NotFound);
        }
        let slot = self.store.slot(id).ok_or(CommandError::NotFound)?;
        let message = self.store.messages.at(slot);
        let lease = self.store.leases.get(&slot);
        let span = lease.map_or(0, |lease| lease.span_ms);
        if message.cancelled().is_some() {
            return Err(CommandError::NotFound);
        }
        let at = message.at();
        if span > 0 {
            let until = self.after(span);
            self.fact(cx, Fact::Touched { at, until });
        }
        Ok(Outcome::Done)
    }

    pub(crate) fn extend<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        client_id: ClientId,
        (id, by): (MessageId, By),
        ms: Option<u64>,
    ) -> Result<Outcome, Stop> {
        let slot = match by {
            // One that waits may be in a run.
            By::Lease(_) => self.found(id)?,
            By::Owner | By::OwnerOrFree | By::Anyone | By::Bearer => {
                self.store.slot(id).ok_or(CommandError::NotFound)?
            }
        };
        self.may_settle(client_id, id, by)?;
        let Some(lease) = self.store.leases.get(&slot) else {
            return match by {
                // Of a group in order only the first may be reserved.
                By::Lease(_) if !self.may_lease_by_id(cx, slot)? => {
                    Err(CommandError::NotFound.into())
                }
                By::Lease(_) => Ok(self.hold_again(cx, slot, ms.unwrap_or(0))),
                By::Owner | By::OwnerOrFree | By::Anyone | By::Bearer => {
                    Err(CommandError::NotFound.into())
                }
            };
        };
        if let Some((ends, ms)) = lease.until.map(|ends| (ends, ms.unwrap_or(lease.span_ms))) {
            let message = self.store.messages.at(slot);
            let (at, mut until) = (message.at(), self.after(ms));
            if let Some(cancelled) = message.cancelled() {
                until = until.min(cancelled.until).max(ends);
            }
            self.fact(cx, Fact::Touched { at, until });
        }
        Ok(self.done_to_held(id))
    }

    /// A message that waits is reserved again, as if its last lease had lasted.
    fn hold_again<J: Journal>(&mut self, cx: &mut Cx<'_, J>, slot: u32, ms: u64) -> Outcome {
        let at = self.store.messages.at(slot).at();
        if ms > 0 {
            let lease = Lease {
                client_id: ClientId(0),
                bound: Bound::Time,
                until: Some(self.after(ms)),
                span_ms: ms,
                back_to: BackTo::Position,
                epoch: 0,
                since: Ms(0),
            };
            self.fact(cx, Fact::Reheld { at, lease });
        }
        Outcome::Done
    }

    pub(crate) fn delete<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        client_id: ClientId,
        id: MessageId,
        by: By,
    ) -> Result<Outcome, Stop> {
        let slot = self.found(id)?;
        let message = self.store.messages.at(slot);
        let (queue, expired) = (message.queue, message.is_expired(self.now));
        if expired {
            self.expire(cx, id);
            return Err(CommandError::NotFound.into());
        }
        self.may_settle(client_id, id, by)?;
        self.count_live(queue, |totals| totals.delete_commands += 1);
        match by {
            // The requester may not be its worker, and has not done its work.
            By::Anyone => {
                let message = self.store.messages.at(slot);
                let (at, why) = (message.at(), deleted_by(message.state, Removal::Deleted));
                self.fact(cx, Fact::Removed { at, why });
            }
            By::Owner | By::OwnerOrFree | By::Bearer | By::Lease(_) => {
                self.settle_one(cx, id, &How::Finish);
            }
        }
        // It may have been one lease too many for others.
        cx.wake(queue);
        Ok(Outcome::Done)
    }

    /// Removes a message whose time ran out.
    ///
    /// That it can no longer be taken is a predicate on time; that it went, or
    /// where to, is a fact: else a queue that learns later where expired
    /// messages go would get those again, after a restart, that went long ago.
    pub(crate) fn expire<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: MessageId) {
        // Whatever is being decided, this happens by itself.
        let began = cx.step.began;
        cx.step.expired += 1;
        let buried = self.store.message(id);
        if let Some(message) = buried.filter(|message| message.state == State::Buried) {
            let (at, why) = (message.at(), Removal::Expired);
            self.fact(cx, Fact::Removed { at, why });
            cx.step.began = began;
            // It is buried: no hook decides what time alone does to it.
            return;
        }
        if !self.withholds(cx, id, PendingDecisionKind::Expire) {
            self.expire_now(cx, id);
        }
        cx.step.began = began;
    }

    /// Applies the queue's settings for messages that expire.
    pub(crate) fn expire_now<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: MessageId) {
        let Some(message) = self.store.message(id) else {
            // A flush forgot it before its time was over.
            return;
        };
        let at = message.at();
        if let Some(name) = self.expiry_queue(at.queue)
            && self.belongs_elsewhere(&name)
        {
            self.send(cx, id, name, Transfer::Expired);
            // The settings name a queue of another shard.
            return;
        }
        // Made also beyond the limits: the message has to go somewhere, and
        // only settings name such a queue.
        let to = self.expiry_queue(at.queue);
        let to = to.filter(Name::is_possible).map(|name| {
            let found = self.store.find(&name);
            found.unwrap_or_else(|| self.make(&name, Maker::default()))
        });
        match to {
            Some(to) if to != at.queue => self.transfer(cx, id, to, Transfer::Expired),
            _ => {
                let why = Removal::Expired;
                self.fact(cx, Fact::Removed { at, why });
            }
        }
    }

    pub(crate) fn expiry_queue(&self, queue: QueueId) -> Option<Name> {
        let queue = self.store.queue(queue)?;
        let to = queue.live.settings.expire_to.clone();
        to.filter(|name| *name != queue.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::damaged::fires;
    use quintet_types::Settings;

    #[test]
    fn a_dead_letter_that_is_gone_too_soon_is_noticed() {
        let engine = Engine::new(0, 1, Settings::default());
        fires("a message is there until it is a dead letter", || {
            drop(engine.dead_reason(MessageId(1), Transfer::DeadLetter));
        });
    }
}
