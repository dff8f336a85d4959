//! Batches: making them, counting their members, saying what has happened.

use super::Stop;
use quintet_types::{
    BATCH, BATCH_EVENT, Batch, BatchId, BatchRequest, Body, Callback, CallbackState, Caller,
    CommandError, Effect, Event, FOLDER, NewBatch, Outcome, Principal, Progress, Put, PutMore,
    Removal, Return, Role, Tally, Tie, Verb, shard_of_id,
};

use crate::engine::{Cx, Engine, Space};
use crate::fact::{Fact, Journal};
use crate::step::Call;
use crate::store::Batches;

/// How often it is tried to put a callback that found no room, ms.
const AGAIN_MS: u64 = 1000;
/// How soon at the latest, if something has to be read from a run first, ms.
const COLD_MS: u64 = 50;
/// Callbacks that are put in one step, and batches that go in one tick.
const STEPS: usize = 64;
/// Batches shown at once.
const LIST_MAX: usize = 1000;
/// Bytes of descriptions and callbacks of a page, but for the last batch.
const LIST_BYTES: u64 = 1 << 20;

impl Engine {
    pub(crate) fn batch<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        ask: &mut BatchRequest,
    ) -> Result<Outcome, CommandError> {
        let Caller { principal, .. } = cx.call().caller;
        match ask {
            BatchRequest::New(new) => self.make_batch(cx, std::mem::take(new)),
            BatchRequest::Number { .. } => {
                let id = BatchId(self.next_id(cx, false).0);
                Ok(Outcome::Batch(Box::new(Batch {
                    id,
                    ..Batch::default()
                })))
            }
            BatchRequest::Open(id) => {
                let mut progress = self.batch_of(principal, *id)?.progress;
                let until = self.after(self.settings.batch_open_ms);
                progress.open = true;
                progress.until = match progress.success {
                    CallbackState::No => until,
                    // It is looked at for as long as it would have been.
                    CallbackState::Put | CallbackState::Done => until.max(progress.until),
                };
                Ok(self.go_on_with(cx, *id, progress))
            }
            BatchRequest::Commit(id) => {
                let progress = self.batch_of(principal, *id)?.progress;
                Ok(self.commit_batch(cx, *id, progress))
            }
            BatchRequest::Show(id) => {
                let batch = self.batch_of(principal, *id)?.clone();
                Ok(Outcome::Batch(Box::new(batch)))
            }
            BatchRequest::Forget(id) => {
                let batch = self.batch_of(principal, *id)?.clone();
                self.end_batch(cx, *id);
                Ok(Outcome::Batch(Box::new(batch)))
            }
            BatchRequest::List { after, max, .. } => {
                let (after, max) = (*after, (*max as usize).min(LIST_MAX));
                let (mut found, mut bytes, mut whole): (Vec<Batch>, u64, _) = (Vec::new(), 0, true);
                for batch in self.store.batches.after(after) {
                    if found.len() >= max.max(1) || bytes >= LIST_BYTES {
                        whole = false;
                        break;
                    }
                    bytes += batch.made.bytes();
                    found.push(batch.clone());
                }
                let last = found.last().filter(|_| !whole);
                let others = self.shard + 1 < self.shards;
                let next = last
                    .map(|last| (self.shard, last.id))
                    .or_else(|| others.then(|| (self.shard + 1, BatchId(0))));
                found.retain(|batch| self.may_see(principal, &batch.made));
                Ok(Outcome::Batches(found, next))
            }
        }
    }

    /// True if somebody may put all callbacks of a batch: who may not has
    /// nothing to do with it.
    fn may_see(&mut self, principal: Principal, made: &NewBatch) -> bool {
        made.callbacks()
            .all(|callback| self.may(principal, Verb::Put, &callback.queue))
    }

    /// A batch that is here and may be seen.
    fn batch_of(&mut self, principal: Principal, id: BatchId) -> Result<&Batch, CommandError> {
        let batch = self.store.batches.get(id);
        let batch = batch.ok_or(CommandError::BatchNotFound)?;
        if self.permits.is_some() {
            let made = batch.made.clone();
            if !self.may_see(principal, &made) {
                return Err(CommandError::NotPermitted);
            }
        }
        self.store
            .batches
            .get(id)
            .ok_or(CommandError::BatchNotFound)
    }

    /// Whether a member may be added to a batch of this shard.
    ///
    /// # Errors
    /// Why not.
    pub fn may_join(&mut self, principal: Principal, id: BatchId) -> Result<(), CommandError> {
        match self.batch_of(principal, id)?.progress.takes_members() {
            true => Ok(()),
            false => Err(CommandError::BatchClosed),
        }
    }

    /// Whether the requester may see the batches that these are put into: those who may not have
    /// nothing to do with them. That they take members is asked elsewhere ([`Engine::is_open`]).
    ///
    /// # Errors
    /// One may not be seen.
    pub(crate) fn may_tie<'a>(
        &mut self,
        call: Call,
        puts: impl IntoIterator<Item = &'a Put>,
    ) -> Result<(), CommandError> {
        if self.permits.is_none() || call.vouched {
            return Ok(());
        }
        for put in puts {
            let tie = put.more.as_ref().and_then(|more| more.batch);
            if let Some(tie) = tie.filter(|tie| self.store.batches.get(tie.batch).is_some()) {
                self.batch_of(call.caller.principal, tie.batch)?;
            }
        }
        Ok(())
    }

    /// [`Engine::may_join`] of a put whose rights were looked at; `making`: batches that its step
    /// makes.
    ///
    /// # Errors
    /// Its batch takes no members, or is not one of this shard.
    pub(crate) fn is_open(&self, making: &[BatchId], tie: Tie) -> Result<(), CommandError> {
        if !self.is_our_batch(tie.batch) {
            // The router of puts locks the batch's shard too, and vouches for it.
            return Err(CommandError::Conflict);
        }
        if making.contains(&tie.batch) && tie.is_member() {
            return Ok(());
        }
        let batch = self.store.batches.get(tie.batch);
        let batch = batch.filter(|_| tie.is_member());
        let progress = batch.ok_or(CommandError::BatchNotFound)?.progress;
        match progress.takes_members() {
            true => Ok(()),
            false => Err(CommandError::BatchClosed),
        }
    }

    /// Whether the batches that a step makes can be made, and those that it commits are there. Its
    /// puts may join them from then on, as they will be there ([`Engine::is_open`]). Answers those
    /// that it makes.
    pub(super) fn may_batch(&mut self, effects: &[Effect]) -> Result<Vec<BatchId>, CommandError> {
        const WHO: Principal = Principal::SERVER;
        let (mut making, mut restated) = (Vec::new(), 0);
        for effect in effects {
            if let Effect::MakeBatch { id, new } = effect {
                // Its id was given here, in this epoch, and to nothing else.
                let supplied = self.is_our_batch(*id)
                    && (id.0 ^ self.store.id_bits) < self.store.next_id
                    && self.store.batches.get(*id).is_none();
                if !supplied || making.contains(id) {
                    return Err(CommandError::Conflict);
                }
                self.may_make(WHO, new, (making.len(), restated))?;
                if let Some(parent) = new.parent.filter(|parent| !making.contains(parent)) {
                    self.may_join(WHO, parent)?;
                }
                restated += Batches::restated_size_of(new.bytes());
                making.push(*id);
            }
        }
        for effect in effects {
            if let Effect::CommitBatch(id) = effect
                && !making.contains(id)
            {
                self.batch_of(WHO, *id)?;
            }
        }
        Ok(making)
    }

    /// Makes the batches that a step makes, which were found good, and takes them out of it.
    pub(super) fn make_batches<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        effects: &mut Vec<Effect>,
    ) {
        let is_made = |effect: &Effect| matches!(effect, Effect::MakeBatch { .. });
        if !effects.iter().any(is_made) {
            // The client makes none, as in nearly all steps.
            return;
        }
        for effect in std::mem::take(effects) {
            if let Effect::MakeBatch { id, new } = effect {
                self.make_good(cx, id, new);
            } else {
                effects.push(effect);
            }
        }
    }

    pub(super) fn commit_known<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: BatchId) {
        if let Some(batch) = self.store.batches.get(id) {
            let progress = batch.progress;
            self.commit_batch(cx, id, progress);
        }
    }

    fn commit_batch<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        id: BatchId,
        mut progress: Progress,
    ) -> Outcome {
        if progress.open {
            progress.open = false;
            progress.until = self.after(match progress.success {
                CallbackState::No => self.settings.batch_ttl_ms,
                CallbackState::Put | CallbackState::Done => self.settings.batch_keep_ms,
            });
        }
        self.go_on_with(cx, id, progress)
    }

    fn make_batch<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        new: Box<NewBatch>,
    ) -> Result<Outcome, CommandError> {
        let Caller { principal, .. } = cx.call().caller;
        self.may_make(principal, &new, (0, 0))?;
        if let Some(parent) = new.parent {
            self.may_join(principal, parent)?;
        }
        let id = BatchId(self.next_id(cx, false).0);
        Ok(Outcome::Batch(Box::new(self.make_good(cx, id, new))))
    }

    /// Whether a batch can be made, but for its parent, beside so many others of the same step
    /// that take so many bytes of a snapshot.
    fn may_make(
        &mut self,
        principal: Principal,
        new: &NewBatch,
        (others, restated): (usize, u64),
    ) -> Result<(), CommandError> {
        if new.callbacks().next().is_none() {
            return Err(CommandError::BatchWithoutCallback);
        }
        for callback in new.callbacks() {
            if !callback.queue.is_possible() {
                return Err(CommandError::BadName);
            }
            if !self.may(principal, Verb::Put, &callback.queue) {
                return Err(CommandError::NotPermitted);
            }
        }
        if new.bytes() > self.settings.batch_bytes_max {
            return Err(CommandError::BatchTooLarge);
        }
        if self.draining {
            return Err(CommandError::Draining);
        }
        if self.space != Space::Enough {
            return Err(CommandError::NoSpace);
        }
        if self.store.batches.len() + others >= self.settings.batches_max as usize {
            return Err(CommandError::TooManyBatches);
        }
        self.may_restate(restated + Batches::restated_size_of(new.bytes()))
    }

    /// Makes a batch that was found good.
    fn make_good<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        id: BatchId,
        mut new: Box<NewBatch>,
    ) -> Batch {
        let is_server = cx.call().caller.principal == Principal::SERVER;
        for callback in new.complete.iter_mut().chain(&mut new.success) {
            callback
                .attrs
                .retain(|(name, _)| !is_ours(name) && (is_server || **name != *FOLDER.as_bytes()));
            callback.attrs.sort_by(|a, b| a.0.cmp(&b.0));
            callback.attrs.dedup_by(|later, first| later.0 == first.0);
        }
        let parent = new.parent;
        let batch = Batch {
            id,
            created: self.now,
            made: *new,
            progress: Progress {
                open: true,
                until: self.after(self.settings.batch_open_ms),
                ..Progress::default()
            },
        };
        self.fact(cx, Fact::BatchMade(Box::new(batch.clone())));
        self.notify_parent(cx, parent, |progress| {
            progress.children_running += 1;
            progress.children_pending += 1;
        });
        batch
    }

    fn notify_parent<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        parent: Option<BatchId>,
        change: impl FnOnce(&mut Progress),
    ) {
        if let Some(parent) = parent
            && let Some(batch) = self.store.batches.get(parent)
        {
            let mut progress = batch.progress;
            change(&mut progress);
            let batch = parent;
            self.fact(cx, Fact::BatchProgress { batch, progress });
        }
    }

    fn go_on_with<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        batch: BatchId,
        progress: Progress,
    ) -> Outcome {
        self.fact(cx, Fact::BatchProgress { batch, progress });
        let batch = self.store.batches.get(batch).cloned();
        let batch = batch.expect("a batch that was found stays when it goes on");
        Outcome::Batch(Box::new(batch))
    }

    /// A batch is gone. Its parent waits for it no more, and never succeeds if
    /// this one did not.
    fn end_batch<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: BatchId) {
        let batch = self.store.batches.get(id);
        let batch = batch.expect("a batch that ends was just found");
        let (parent, ran) = (
            batch.made.parent,
            batch.progress.complete != CallbackState::No,
        );
        self.fact(cx, Fact::BatchGone(id));
        if !ran {
            self.notify_parent(cx, parent, |progress| {
                progress.children_running = progress.children_running.saturating_sub(1);
            });
        }
    }

    /// The change to a batch's member in a fact that is about to be applied.
    #[cold]
    pub(crate) fn of_member(&self, fact: &Fact) -> Option<(BatchId, Tally)> {
        enum Came {
            Succeeded,
            Failed,
            Lost,
            Cancelled,
            Replaced,
        }
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "all others say nothing of how a member fares"
        )]
        let (id, came) = match fact {
            Fact::Removed { at, why } => match (why.succeeded()?, why) {
                (true, _) => (at.id, Came::Succeeded),
                (false, Removal::Replaced) => (at.id, Came::Replaced),
                (false, Removal::Cancelled) => (at.id, Came::Cancelled),
                (false, _) => (at.id, Came::Lost),
            },
            Fact::Archived { at, .. } => (at.id, Came::Succeeded),
            Fact::Buried { at, .. } => (at.id, Came::Failed),
            Fact::Released {
                at, why, failed, ..
            } if failed.is_some() || *why == Return::Timeout => (at.id, Came::Failed),
            Fact::Moved { at, why, .. } | Fact::Sent { at, why, .. } if why.is_dead_letter() => {
                (at.id, Came::Failed)
            }
            Fact::Restored(message) => {
                let tie = message.tie()?;
                let failed = i64::from(tie.role == Role::Failed);
                let back = tie.is_member().then_some(Tally::of(0, 1, failed))?;
                return Some((tie.batch, back));
            }
            _ => return None,
        };
        let Tie { batch, role } = self.store.tie(id)?;
        let ran = i64::from(role == Role::Failed);
        let tally = match (role, came) {
            (Role::Complete, Came::Succeeded) => Tally::done(Event::Complete),
            (Role::Success, Came::Succeeded) => Tally::done(Event::Success),
            (Role::Complete | Role::Success, _) => return None,
            (Role::Member | Role::Failed, Came::Succeeded) => Tally::of(0, -1, -ran),
            (Role::Member | Role::Failed, Came::Replaced) => Tally::of(-1, -1, -ran),
            (Role::Member | Role::Failed, Came::Cancelled) => Tally {
                cancelled: 1,
                ..Tally::of(0, 0, 1 - ran)
            },
            (Role::Member, Came::Failed | Came::Lost) => Tally::of(0, 0, 1),
            (Role::Failed, Came::Failed | Came::Lost) => return None,
        };
        Some((batch, tally))
    }

    /// True if a batch is one of this shard.
    pub(crate) fn is_our_batch(&self, id: BatchId) -> bool {
        shard_of_id(id.as_id(), self.shards.into()) == usize::from(self.shard)
    }

    /// Counts what happened to a member: here, or as owed to the batch's shard.
    #[cold]
    pub(crate) fn count_member<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        batch: BatchId,
        tally: Tally,
    ) {
        if !self.is_our_batch(batch) {
            let mut owed = self.store.batches.owed().get(&batch).copied();
            let owed = owed.get_or_insert_default();
            owed.add(&tally);
            let owed = *owed;
            self.fact(cx, Fact::BatchOwed { batch, owed });
        } else if let Some(known) = self.store.batches.get(batch) {
            let mut progress = known.progress;
            tally.count_in(&mut progress, known.made.cancelled);
            self.fact(cx, Fact::BatchProgress { batch, progress });
        }
    }

    /// Says what has happened to batches, where it can be said.
    #[inline]
    pub(crate) fn call_back<J: Journal>(&mut self, cx: &mut Cx<'_, J>) {
        if let Some(at) = self.store.batches.first_due()
            && at <= self.now
        {
            self.call_back_due(cx);
        }
    }

    #[cold]
    fn call_back_due<J: Journal>(&mut self, cx: &mut Cx<'_, J>) {
        // Whatever was decided, this follows by itself.
        let began = cx.step.began;
        for _ in 0..STEPS {
            let Some((id, event)) = self.call_here() else {
                // None is due that can be said here.
                break;
            };
            let batch = self.store.batches.get(id);
            let put = batch.and_then(|batch| put_of(batch, event));
            match put.map(|put| self.put_callback(cx, put)) {
                None | Some(Ok(())) => self.has_said(cx, id, event),
                Some(Err(stop)) => self.put_off(id, &stop),
            }
        }
        cx.step.began = began;
    }

    /// The first event that can be said here: what goes to a queue of another
    /// shard is carried there.
    fn call_here(&self) -> Option<(BatchId, Event)> {
        self.store.batches.due(self.now).find_map(|batch| {
            let event = batch.progress.next()?;
            let callback = batch.callback(event);
            let here = callback.is_none_or(|callback| !self.belongs_elsewhere(&callback.queue));
            here.then_some((batch.id, event))
        })
    }

    /// Stores a callback; the limits of its queue hold as for any put.
    pub(crate) fn put_callback<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        mut put: Put,
    ) -> Result<(), Stop> {
        let call = Call {
            vouched: true,
            ..Call::SERVER
        };
        self.put(&mut cx.by(call), &mut put).map(|_| ())
    }

    /// It is tried again later.
    pub(crate) fn put_off(&mut self, id: BatchId, stop: &Stop) {
        let ms = match stop {
            Stop::Refused(_) => AGAIN_MS,
            Stop::Cold(_) => {
                self.reading.callbacks.push(id);
                COLD_MS
            }
        };
        let until = self.now + ms;
        self.store.put_off_batch(id, until);
    }

    /// Records that an event was reported, with the callback's put in the same step.
    pub(crate) fn has_said<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: BatchId, event: Event) {
        let batch = self.store.batches.get(id);
        let batch = batch.expect("a batch with a due callback stays until it is put");
        let (mut progress, parent) = (batch.progress, batch.made.parent);
        *progress.callback_state_mut(event) = match batch.callback(event) {
            Some(_) => CallbackState::Put,
            None => CallbackState::Done,
        };
        if event == Event::Success {
            progress.until = self.after(self.settings.batch_keep_ms);
        }
        let fact = Fact::BatchProgress {
            batch: id,
            progress,
        };
        self.fact(cx, fact);
        self.notify_parent(cx, parent, |progress| {
            let left = match event {
                Event::Complete => &mut progress.children_running,
                Event::Success => &mut progress.children_pending,
            };
            *left = left.saturating_sub(1);
        });
    }

    /// The first callback that is due and goes to a queue of another shard.
    pub(crate) fn call_elsewhere(&self) -> Option<(&Batch, Event, &Callback)> {
        self.store.batches.due(self.now).find_map(|batch| {
            let event = batch.progress.next()?;
            let callback = batch.callback(event)?;
            let elsewhere = self.belongs_elsewhere(&callback.queue);
            elsewhere.then_some((batch, event, callback))
        })
    }

    /// Batches whose time is over go.
    pub(crate) fn end_batches<J: Journal>(&mut self, cx: &mut Cx<'_, J>) {
        for _ in 0..STEPS {
            match self.store.batches.first_end() {
                Some((at, id)) if at <= self.now => self.end_batch(cx, id),
                Some(_) | None => return,
            }
        }
    }
}

/// True for attributes that a callback has from its batch.
fn is_ours(name: &[u8]) -> bool {
    name == BATCH || name == BATCH_EVENT
}

/// The put of a callback, if there is one.
pub(crate) fn put_of(batch: &Batch, event: Event) -> Option<Put> {
    let callback = batch.callback(event)?;
    let mut attrs = callback.attrs.clone();
    attrs.push((BATCH.into(), batch.id.to_string().into_bytes().into()));
    attrs.push((BATCH_EVENT.into(), event.word().as_bytes().into()));
    Some(Put {
        priority: callback.priority,
        ttr_ms: callback.ttr_ms,
        more: Some(Box::new(PutMore {
            attrs,
            name: callback.name.clone(),
            retry: callback.retry,
            batch: Some(event.tie(batch.id)),
            ..PutMore::default()
        })),
        ..Put::new(callback.queue.clone(), Body::Small(callback.body.clone()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::damaged::fires;
    use quintet_types::Settings;

    #[test]
    fn a_batch_that_is_gone_too_soon_is_noticed() {
        type Act = fn(&mut Engine, &mut Cx<'_, Vec<Fact>>);
        let rows: [(&str, Act); 3] = [
            ("a batch that ends was just found", |engine, cx| {
                engine.end_batch(cx, BatchId(1));
            }),
            (
                "a batch with a due callback stays until it is put",
                |engine, cx| engine.has_said(cx, BatchId(1), Event::Complete),
            ),
            (
                "a batch that was found stays when it goes on",
                |engine, cx| {
                    engine.go_on_with(cx, BatchId(1), Progress::default());
                },
            ),
        ];
        for (reason, act) in rows {
            let mut engine = Engine::new(0, 1, Settings::default());
            let (mut facts, mut deliveries, mut step) = Default::default();
            let mut cx: Cx<'_, Vec<Fact>> = Cx::new(&mut facts, &mut deliveries, &mut step);
            fires(reason, || act(&mut engine, &mut cx));
        }
    }
}
