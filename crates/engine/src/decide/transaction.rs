//! Several things in one step, tables, and what waits for a hook's decision.

use super::{Cold, Stop};
use quintet_types::{
    Answer, By, Caller, ClientId, Command, CommandError, Delivery, Effect, Guard, Hold, How,
    MessageId, MessageVersion, Name, Outcome, PendingDecision, PendingDecisionKind,
    PendingDecisions, Put, Return, State, TableRequest, Transaction, Transfer,
};

use crate::engine::{Cx, Engine, Space};
use crate::fact::{Fact, Journal};
use crate::step::{Call, Step};
use crate::store::{table_cost, table_restated_size};

/// The longest key of a table.
const TABLE_KEY_MAX: usize = 65_535;
/// Messages that wait for a hook at most; others have what happens by itself.
const PENDING_MAX: usize = 4096;

fn stored(effect: &Effect) -> Option<&Put> {
    if let Effect::Put(put) = effect {
        Some(put)
    } else {
        None
    }
}

impl Engine {
    pub(crate) fn transaction<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        transaction: &mut Transaction,
    ) -> Result<Answer, Cold> {
        let no = |command_error| Ok(Answer::Now(Outcome::Refused(command_error), Hold::Durable));
        match self.is_possible(cx.call(), transaction) {
            Ok(()) => {}
            Err(Stop::Refused(command_error)) => return no(command_error),
            Err(Stop::Cold(cold)) => return Err(cold),
        }
        let Transaction { effects, then, .. } = transaction;
        let quiet = effects.is_empty();
        // A take sees what the effects did.
        let after = match then.as_deref() {
            Some(Command::Transaction(_)) => return no(CommandError::NotPermitted),
            Some(
                Command::Take(_)
                | Command::Watch(_)
                | Command::Rewatch(_)
                | Command::WatchQueue { .. },
            ) => true,
            _ => false,
        };
        if let Some(Command::Put(_) | Command::PutMany(_)) = then.as_deref() {
            // It was found good, and may be a member of one.
            self.make_batches(cx, effects);
        }
        let mut answered = None;
        if let Some(command) = then.as_deref_mut()
            && !after
        {
            let answer = self.decide(cx, command)?;
            if matches!(answer, Answer::Now(Outcome::Refused(_), _)) {
                return Ok(answer);
            }
            answered = Some(answer);
        }
        let call = Call {
            found_good: true,
            ..cx.call()
        };
        let ids = self.bring_about(&mut cx.by(call), std::mem::take(effects));
        if let Some(command) = then.take()
            && after
        {
            // The effects stand: if it has to wait for a run, it does so alone.
            answered = Some(self.decide_or_park(cx, *command));
        }
        let (then, hold) = match answered {
            None => (None, Hold::Durable),
            Some(Answer::Later) => return Ok(Answer::Later),
            Some(Answer::Now(then, hold)) if quiet => (Some(Box::new(then)), hold),
            Some(Answer::Now(then, _)) => (Some(Box::new(then)), Hold::Durable),
        };
        Ok(Answer::Now(Outcome::Transaction { ids, then }, hold))
    }

    /// Whether [`Command::Transaction`] would be refused, for one that goes on in
    /// other shards; its `then` is not looked at, but for puts.
    ///
    /// That batches take members is asked apart ([`Engine::may_join`]).
    ///
    /// # Errors
    /// Why; nothing changed but what time alone changes. [`CommandError::Conflict`]
    /// also if something first has to be read from a run, which is requested.
    pub fn may_transaction<J: Journal>(
        &mut self,
        now: quintet_types::Ms,
        caller: Caller,
        transaction: &mut Transaction,
        journal: &mut J,
        deliveries: &mut Vec<Delivery>,
    ) -> Result<(), CommandError> {
        self.advance(now);
        let mut step = Step::default();
        let mut cx = Cx::new(journal, deliveries, &mut step);
        self.remove_expired(&mut cx);
        self.serve(&mut cx);
        let call = Call {
            vouched: true,
            ..Call::of(caller)
        };
        self.is_possible(call, transaction).map_err(Stop::at_once)
    }

    /// Finds every error but those of the command itself, and what has to be
    /// read for its guards and effects, all at once.
    fn is_possible(&mut self, call: Call, transaction: &mut Transaction) -> Result<(), Stop> {
        let guarded = transaction.guards.iter().filter_map(|guard| match guard {
            Guard::Message { id, .. } => Some(*id),
            Guard::Table { .. } => None,
        });
        let changed = transaction.effects.iter().filter_map(Effect::message);
        let mut found = Ok(());
        for id in guarded.chain(changed) {
            found = found.and(self.look_up(id).map(drop));
        }
        found.and(self.room_is_here(transaction.effects.iter().filter_map(stored)))?;
        if !transaction.guards.iter().all(|guard| self.holds(guard)) {
            return Err(CommandError::Conflict.into());
        }
        for effect in &transaction.effects {
            if let Some(id) = effect.message()
                && !self.may_act(call.caller.client_id, id, effect)
            {
                return Err(CommandError::Conflict.into());
            }
            self.may_bring_about(effect)?;
        }
        self.have_room(&transaction.effects)?;
        let making = self.may_batch(&transaction.effects)?;
        let Transaction { effects, then, .. } = transaction;
        let requested: &mut [Put] = match then.as_deref_mut() {
            Some(Command::Put(put)) => std::slice::from_mut(put),
            Some(Command::PutMany(puts)) => puts,
            _ => &mut [],
        };
        self.may_tie(call, &*requested)?;
        self.may_wait_for(Call::of(call.caller), &mut *requested)?;
        let puts = effects.iter_mut().filter_map(|effect| {
            if let Effect::Put(put) = effect {
                Some(put)
            } else {
                None
            }
        });
        self.may_wait_for(Call::SERVER, puts)?;
        let requested = &*requested;
        if call.vouched || !making.is_empty() {
            // When others have done their part, or what it is put into is made, it must not have
            // to wait.
            self.room_is_here(requested)?;
        }
        let made = self.find_good(
            call,
            &making,
            requested.iter().chain(effects.iter().filter_map(stored)),
        )?;
        for queue in made {
            self.forget_unused(queue);
        }
        Ok(())
    }

    /// Whether the queue or table that an effect names can have it.
    fn may_bring_about(&mut self, effect: &Effect) -> Result<(), CommandError> {
        match effect {
            Effect::Move { to, .. }
                if !self.belongs_elsewhere(to) && self.store.find(to).is_none() =>
            {
                let made = self.find_or_make_ours(to)?;
                self.forget_unused(made);
            }
            Effect::Move { to, .. } if !to.is_possible() => {
                return Err(CommandError::BadName);
            }
            Effect::Set { table, key, .. } if !table.is_possible() || key.len() > TABLE_KEY_MAX => {
                return Err(CommandError::BadName);
            }
            Effect::Hold { queue, key, for_ms } => {
                self.may_hold_for(queue, key.as_deref(), *for_ms)?;
            }
            Effect::Put(_)
            | Effect::Settle { .. }
            | Effect::Delete(_)
            | Effect::Cancel(..)
            | Effect::Move { .. }
            | Effect::Kick(_)
            | Effect::Edit(..)
            | Effect::Conclude(_)
            | Effect::MakeBatch { .. }
            | Effect::CommitBatch(_)
            | Effect::Set { .. } => {}
        }
        Ok(())
    }

    /// Whether the tables can take what is to be set.
    fn have_room(&mut self, effects: &[Effect]) -> Result<(), CommandError> {
        let is_set = |effect: &Effect| matches!(effect, Effect::Set { value: Some(_), .. });
        if !effects.iter().any(is_set) {
            return Ok(());
        }
        if self.space != Space::Enough {
            return Err(CommandError::NoSpace);
        }
        let most = self.settings.tables_bytes_max;
        if self.table_bytes_after(effects) > most {
            self.store.expire_tables(self.now);
            if self.table_bytes_after(effects) > most {
                return Err(CommandError::TablesFull);
            }
        }
        if self.may_restate_tables(effects).is_err() {
            self.store.expire_tables(self.now);
            return self.may_restate_tables(effects);
        }
        Ok(())
    }

    /// Whether a snapshot can take what is to be set.
    fn may_restate_tables(&self, effects: &[Effect]) -> Result<(), CommandError> {
        let tables = &self.store.tables;
        let (mut more, mut less) = (0, 0);
        for effect in effects {
            if let Effect::Set {
                table, key, value, ..
            } = effect
            {
                less += tables.restated_size_of(table, key);
                let restated = |value: &[u8]| table_restated_size(table, key, value);
                more += value.as_deref().map_or(0, restated);
            }
        }
        match more > less {
            true => self.may_restate(more - less),
            false => Ok(()),
        }
    }

    /// Bytes of the tables after these, or more if one is set twice.
    fn table_bytes_after(&self, effects: &[Effect]) -> u64 {
        let tables = &self.store.tables;
        let (mut more, mut less) = (tables.bytes, 0);
        for effect in effects {
            if let Effect::Set {
                table, key, value, ..
            } = effect
            {
                less += tables.cost_of(table, key);
                more += value.as_ref().map_or(0, |value| table_cost(key, value));
            }
        }
        more.saturating_sub(less.min(tables.bytes))
    }

    fn holds(&self, guard: &Guard) -> bool {
        match guard {
            Guard::Message { id, seen } => self.store.message(*id).map(MessageVersion::of) == *seen,
            Guard::Table {
                table,
                key,
                version,
            } => self.store.tables.version_of(table, key, self.now) == *version,
        }
    }

    /// True if an effect can be brought about on a message.
    fn may_act(&self, client_id: ClientId, id: MessageId, effect: &Effect) -> bool {
        let Some(message) = self.store.message(id) else {
            // It ended while this was decided.
            return false;
        };
        let pending = self.pending.contains_key(&id);
        let reserved = message.state == State::Reserved;
        // Its holder is notified, and keeps it for the grace.
        let cancels = matches!(effect, Effect::Cancel(..));
        if reserved && !pending && !cancels && !self.allows(client_id, id, By::Owner) {
            return false;
        }
        match effect {
            Effect::Conclude(_) => pending,
            Effect::Settle {
                how: How::Release { .. } | How::Fail { .. },
                ..
            } => reserved,
            Effect::Edit(_, edit) => !reserved || edit.priority.is_none() && edit.due.is_none(),
            Effect::Put(_)
            | Effect::Settle { .. }
            | Effect::Delete(_)
            | Effect::Cancel(..)
            | Effect::Move { .. }
            | Effect::Kick(_)
            | Effect::Hold { .. }
            | Effect::MakeBatch { .. }
            | Effect::CommitBatch(_)
            | Effect::Set { .. } => true,
        }
    }

    /// Brings the effects about; answers the ids of what was put.
    fn bring_about<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        mut effects: Vec<Effect>,
    ) -> Vec<MessageId> {
        self.make_batches(cx, &mut effects);
        let (mut ids, mut commits) = (Vec::new(), Vec::new());
        for effect in effects {
            match effect {
                Effect::MakeBatch { .. } => {
                    unreachable!("batches that a step makes were taken out of it")
                }
                // What is put behind it is a member still.
                Effect::CommitBatch(id) => commits.push(id),
                Effect::Put(put) => {
                    // Found good; one that an earlier part made a repeat, or
                    // whose name cannot be made any more, is id 0.
                    let Ok(queue) = self.find_or_make(cx.call(), &put.queue) else {
                        ids.push(MessageId(0));
                        continue;
                    };
                    ids.push(self.store_good(cx, queue, put));
                }
                Effect::Settle { id, how } => self.settle_decided(cx, id, &how),
                Effect::Delete(id) => {
                    self.pending.remove(&id);
                    self.settle_one(cx, id, &How::Finish);
                }
                Effect::Cancel(id, cancel) => {
                    if let Some(message) = self.store.message(id)
                        && self.may_cancel(message).is_ok()
                    {
                        let queue = message.queue;
                        self.cancel_one(cx, id, &cancel);
                        cx.wake(queue);
                    }
                }
                Effect::Move { id, to } => self.move_decided(cx, id, to),
                Effect::Kick(id) => {
                    if let Some(message) = self.store.message(id)
                        && (message.state == State::Buried || message.is_delayed(self.now))
                    {
                        let at = message.at();
                        self.fact(cx, Fact::Kicked { at });
                        cx.wake(at.queue);
                    }
                }
                Effect::Hold { queue, key, for_ms } => {
                    // An earlier part may have used up the room for it.
                    let _held = self.hold_for(cx, &queue, key.as_deref(), for_ms);
                }
                Effect::Edit(id, mut edit) => {
                    // Found possible before the first effect.
                    let _edited = self.edit(cx, id, &mut edit);
                }
                Effect::Conclude(id) => self.conclude(cx, id),
                Effect::Set {
                    table,
                    key,
                    value,
                    ttl_ms,
                } => {
                    let until = ttl_ms.map(|ms| self.after(ms));
                    let version = self.store.tables.version + 1;
                    let fact = Fact::TableSet {
                        table,
                        key,
                        value,
                        until,
                        version,
                    };
                    self.fact(cx, fact);
                }
            }
        }
        for id in commits {
            self.commit_known(cx, id);
        }
        ids
    }

    /// Settles a message, which may wait for this decision.
    fn settle_decided<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: MessageId, how: &How) {
        let kind = self.pending.remove(&id);
        let queue = self.store.message(id).map(|message| message.queue);
        let plain = matches!(
            how,
            How::Release {
                priority: None,
                due: quintet_types::When::Now,
                ..
            }
        );
        match plain && kind.is_some() {
            // As it would have been, had no hook been asked.
            true => self.put_back(cx, id),
            false => self.settle_one(cx, id, how),
        }
        if let Some(queue) = queue {
            cx.wake(queue);
        }
    }

    /// Moves a message, which may wait for this decision.
    fn move_decided<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: MessageId, to: Name) {
        if self.end_cancelled(cx, id) {
            // A client cancelled it meanwhile.
            return;
        }
        let why = match self.pending.remove(&id) {
            Some(PendingDecisionKind::Expire) => Transfer::Expired,
            Some(PendingDecisionKind::DeadLetter) => self.why_dead(id),
            Some(PendingDecisionKind::LeaseEnd) | None => Transfer::Command,
        };
        if self.belongs_elsewhere(&to) {
            self.send(cx, id, to, why);
        } else if let Ok(to) = self.find_or_make_ours(&to) {
            self.transfer(cx, id, to, why);
        }
    }

    pub(crate) fn table<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        ask: &TableRequest,
    ) -> Result<Outcome, CommandError> {
        let tables = &self.store.tables;
        Ok(match ask {
            TableRequest::Get { table, key } => {
                let found = tables.get(table, key, self.now);
                Outcome::Entries(found.into_iter().collect())
            }
            TableRequest::List { table, after, max } => Outcome::Entries(tables.list(
                table,
                after.as_deref(),
                usize::try_from(*max).unwrap_or(usize::MAX),
                self.now,
            )),
            TableRequest::Drop(table) => {
                if tables.exists(table) {
                    self.fact(cx, Fact::TableDropped(table.clone()));
                }
                Outcome::Done
            }
        })
    }
}

impl Engine {
    /// Says which decisions hooks want. Messages that wait for a kind that is no
    /// longer wanted have what happens by itself.
    pub fn set_pending_decisions<J: Journal>(
        &mut self,
        now: quintet_types::Ms,
        pending_decisions: PendingDecisions,
        journal: &mut J,
        deliveries: &mut Vec<Delivery>,
    ) {
        self.advance(now);
        self.pending_decisions = pending_decisions;
        #[expect(clippy::disallowed_methods, reason = "they are sorted")]
        let pending = self.pending.iter();
        let over = pending.filter(|&(_, &kind)| !pending_decisions.wants(kind));
        let mut over: Vec<MessageId> = over.map(|(&id, _)| id).collect();
        // In the same order each time.
        over.sort_unstable();
        let mut step = Step::default();
        let mut cx = Cx::new(journal, deliveries, &mut step);
        for id in over {
            self.conclude(&mut cx, id);
        }
        self.serve(&mut cx);
    }

    /// The messages that wait for a decision, each returned once: [`Engine::pending_decision`].
    pub fn take_requested_decisions(&mut self) -> Vec<MessageId> {
        std::mem::take(&mut self.requested_decisions)
    }

    /// The event of a message that waits for a decision still, with a copy of the message.
    pub fn pending_decision(&self, id: MessageId) -> Option<PendingDecision> {
        let kind = *self.pending.get(&id)?;
        let message = self.store.message(id)?.clone();
        let queue = self.store.name_of(message.queue);
        Some(PendingDecision {
            kind,
            message,
            queue,
        })
    }

    /// The events that wait for a decision, each returned once.
    pub fn take_pending_decisions(&mut self) -> Vec<PendingDecision> {
        let ids = self.take_requested_decisions().into_iter();
        ids.filter_map(|id| self.pending_decision(id)).collect()
    }

    /// True if [`Engine::take_wants`] or [`Engine::take_pending_decisions`] would answer
    /// something.
    pub fn asks(&self) -> bool {
        self.has_wants() || !self.requested_decisions.is_empty()
    }

    /// True if [`Engine::take_pending_decisions`] would answer something.
    pub fn has_pending_decisions(&self) -> bool {
        !self.requested_decisions.is_empty()
    }

    /// Sets a message aside for a decision, if that is wanted. False: what
    /// happens by itself is to happen.
    pub(crate) fn withholds<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        id: MessageId,
        kind: PendingDecisionKind,
    ) -> bool {
        if !self.pending_decisions.wants(kind) || self.pending.len() >= PENDING_MAX {
            return false;
        }
        let Some(message) = self.store.message(id) else {
            // A flush forgot it.
            return false;
        };
        // Being decided already, or its queue is gone.
        if self.pending.contains_key(&id) || message.doomed {
            return false;
        }
        let at = message.at();
        let client_id = self.pending_decisions.client_id;
        self.fact(cx, Fact::Pending { at, client_id });
        let other = self.pending.insert(id, kind);
        assert!(
            other.is_none(),
            "a message waits for one decision at a time"
        );
        self.requested_decisions.push(id);
        true
    }

    /// Applies the default to a message that waits for a decision.
    pub(crate) fn conclude<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: MessageId) {
        match self.pending.remove(&id) {
            Some(PendingDecisionKind::Expire) => self.expire_now(cx, id),
            Some(PendingDecisionKind::DeadLetter) => self.dead_letter_now(cx, id),
            Some(PendingDecisionKind::LeaseEnd) => self.put_back(cx, id),
            None => {}
        }
    }

    /// A message that waited for a decision is ready at its place again.
    fn put_back<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: MessageId) {
        let Some(message) = self.store.message(id) else {
            // A flush may have taken it while it waited for a decision.
            return;
        };
        if message.expires().is_some_and(|expires| expires <= self.now) {
            // Also if that is just what was being decided.
            self.expire_now(cx, id);
            return;
        }
        let at = message.at();
        // One that failed rests on.
        let due = message.due().filter(|due| *due > self.now);
        let fact = Fact::Released {
            at,
            priority: at.priority,
            position: at.position,
            due,
            delay_ms: 0,
            why: Return::Pending,
            failed: None,
        };
        self.fact(cx, fact);
        cx.wake(at.queue);
    }

    /// Pending messages of queues that are gone, or that are gone themselves,
    /// are decided.
    pub(crate) fn forget_pending(&mut self) {
        if self.pending.is_empty() {
            // Without hooks nothing waits for a decision.
            return;
        }
        let Self { pending, store, .. } = self;
        pending.retain(|&id, _| {
            let message = store.message(id);
            message.is_some_and(|message| message.state == State::Reserved)
        });
    }
}
