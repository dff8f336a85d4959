//! Batches: counted one member after the other.

use quintet_types::{
    BATCH, BATCH_EVENT, Batch, BatchId, BatchRequest, Callback, CallbackState, CancelledAs,
    CommandError, Event, MessageId, Ms, NewBatch, Outcome, Progress, Put, PutMore, Role, Tie,
    TrackState,
};

use super::Model;

/// How often it is tried to put a callback that found no room, ms.
const AGAIN_MS: u64 = 1000;

/// A batch, and until when its next callback is not tried again.
#[derive(Clone, Debug)]
pub struct Kept {
    pub batch: Batch,
    rests: Option<(Event, Ms)>,
}

/// How a member fares.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fares {
    Succeeded,
    Failed,
    Lost,
    Replaced,
    Cancelled,
}

impl Model {
    pub(super) fn batch(&mut self, ask: BatchRequest) -> Result<Outcome, CommandError> {
        let now = self.now;
        match ask {
            BatchRequest::New(new) => return self.new_batch(*new),
            BatchRequest::Number { .. } => {
                let id = BatchId(self.new_id(false).0);
                return Ok(Outcome::Batch(Box::new(Batch {
                    id,
                    ..Batch::default()
                })));
            }
            BatchRequest::List { after, max, .. } => {
                let mut found: Vec<Batch> = self.batches.iter().map(|b| b.batch.clone()).collect();
                found.retain(|batch| batch.id > after);
                found.sort_by_key(|batch| batch.id);
                let more = found.len() > (max as usize).max(1);
                found.truncate((max as usize).max(1));
                let next = found.last().map(|last| (0, last.id)).filter(|_| more);
                return Ok(Outcome::Batches(found, next));
            }
            BatchRequest::Open(id) => {
                let until = now + self.settings.batch_open_ms;
                let progress = self.counts_of(id).ok_or(CommandError::BatchNotFound)?;
                let over = progress.success != CallbackState::No;
                let later = if over { progress.until } else { Ms(0) };
                (progress.open, progress.until) = (true, until.max(later));
            }
            BatchRequest::Commit(id) => {
                let (ttl, keep) = (self.settings.batch_ttl_ms, self.settings.batch_keep_ms);
                let progress = self.counts_of(id).ok_or(CommandError::BatchNotFound)?;
                let over = progress.success != CallbackState::No;
                let until = now + if over { keep } else { ttl };
                if progress.open {
                    (progress.open, progress.until) = (false, until);
                }
            }
            BatchRequest::Show(_) => {}
            BatchRequest::Forget(id) => {
                let found = self.shown(id)?;
                self.end_batch(id);
                return Ok(found);
            }
        }
        self.shown(ask.batch().expect("all others name one"))
    }

    fn shown(&self, id: BatchId) -> Result<Outcome, CommandError> {
        let found = self.batches.iter().find(|kept| kept.batch.id == id);
        let batch = found.ok_or(CommandError::BatchNotFound)?.batch.clone();
        Ok(Outcome::Batch(Box::new(batch)))
    }

    fn counts_of(&mut self, id: BatchId) -> Option<&mut Progress> {
        let mut kept = self.batches.iter_mut();
        let found = kept.find(|kept| kept.batch.id == id)?;
        Some(&mut found.batch.progress)
    }

    fn new_batch(&mut self, new: NewBatch) -> Result<Outcome, CommandError> {
        if new.complete.is_none() && new.success.is_none() {
            return Err(CommandError::BatchWithoutCallback);
        }
        if new.callbacks().any(|callback| callback.queue.is_empty()) {
            return Err(CommandError::BadName);
        }
        if new.bytes() > self.settings.batch_bytes_max {
            return Err(CommandError::BatchTooLarge);
        }
        if self.batches.len() >= self.settings.batches_max as usize {
            return Err(CommandError::TooManyBatches);
        }
        if let Some(parent) = new.parent {
            self.may_join(Tie::member(parent))?;
        }
        let batch = Batch {
            id: BatchId(self.new_id(false).0),
            created: self.now,
            progress: Progress {
                open: true,
                until: self.now + self.settings.batch_open_ms,
                ..Progress::default()
            },
            made: new,
        };
        if let Some(parent) = batch.made.parent.and_then(|id| self.counts_of(id)) {
            parent.children_running += 1;
            parent.children_pending += 1;
        }
        self.batches.push(Kept {
            batch: batch.clone(),
            rests: None,
        });
        Ok(Outcome::Batch(Box::new(batch)))
    }

    /// Whether a put may be a member.
    pub(super) fn may_join(&self, tie: Tie) -> Result<(), CommandError> {
        if self.calling {
            return Ok(());
        }
        let mut kept = self.batches.iter();
        let found = kept.find(|kept| kept.batch.id == tie.batch);
        let progress = found.ok_or(CommandError::BatchNotFound)?.batch.progress;
        match progress.open || progress.complete != CallbackState::No {
            true => Ok(()),
            false => Err(CommandError::BatchClosed),
        }
    }

    /// A member was put, or a taken one came back.
    pub(super) fn joins(&mut self, tie: Option<Tie>, new: bool) {
        if let Some(Tie { batch, role }) = tie
            && matches!(role, Role::Member | Role::Failed)
            && let Some(progress) = self.counts_of(batch)
        {
            progress.total += u64::from(new);
            progress.pending += 1;
            progress.failed += u64::from(role == Role::Failed);
        }
    }

    /// Something becomes of a message: its batch counts it.
    pub(super) fn fares(&mut self, id: MessageId, fares: Fares) {
        match fares {
            Fares::Succeeded => {
                self.succeeded.insert(id);
                self.ends(id, TrackState::Done);
            }
            Fares::Lost | Fares::Replaced => self.ends(id, TrackState::Gone),
            Fares::Cancelled => self.ends(id, TrackState::Cancelled),
            Fares::Failed => {}
        }
        let Some(Tie { batch, role }) = self.item(id).and_then(|item| item.message.tie()) else {
            return;
        };
        let ran = role == Role::Failed;
        if fares == Fares::Failed && role == Role::Member {
            let tie = &mut self.item_mut(id).message.extra_mut().batch;
            *tie = Some(Tie {
                batch,
                role: Role::Failed,
            });
        }
        if fares == Fares::Succeeded && self.item(id).is_some() {
            self.item_mut(id).message.extra_mut().batch = None;
        }
        let mut kept = self.batches.iter_mut();
        let Some(kept) = kept.find(|kept| kept.batch.id == batch) else {
            return;
        };
        let Batch { made, progress, .. } = &mut kept.batch;
        let callback = match role {
            Role::Complete => Some(&mut progress.complete),
            Role::Success => Some(&mut progress.success),
            Role::Member | Role::Failed => None,
        };
        match (callback, fares) {
            (Some(state), Fares::Succeeded) if *state == CallbackState::Put => {
                *state = CallbackState::Done
            }
            (Some(_), _) => {}
            (None, Fares::Cancelled) if made.cancelled == CancelledAs::Failed => {
                progress.failed += u64::from(!ran)
            }
            (None, Fares::Succeeded | Fares::Cancelled) => {
                progress.pending = progress.pending.saturating_sub(1);
                progress.failed = progress.failed.saturating_sub(u64::from(ran));
            }
            (None, Fares::Replaced) => {
                progress.total -= 1;
                progress.pending = progress.pending.saturating_sub(1);
                progress.failed = progress.failed.saturating_sub(u64::from(ran));
            }
            (None, Fares::Failed | Fares::Lost) => progress.failed += u64::from(!ran),
        }
    }

    /// The event of a batch that has happened and was not reported: all have run, then all have
    /// succeeded.
    fn happened(batch: &Batch) -> Option<Event> {
        let p = &batch.progress;
        let ran = p.pending <= p.failed && p.children_running == 0;
        let succeeded = p.pending == 0 && p.children_pending == 0;
        match (p.open, p.complete, p.success) {
            (true, ..) => None,
            (_, CallbackState::No, _) => ran.then_some(Event::Complete),
            (_, CallbackState::Done, CallbackState::No) => succeeded.then_some(Event::Success),
            _ => None,
        }
    }

    /// Puts callbacks of what has happened; one that finds no room rests.
    pub(super) fn call_back(&mut self) {
        loop {
            let now = self.now;
            for kept in &mut self.batches {
                let event = Self::happened(&kept.batch);
                kept.rests = kept.rests.filter(|(resting, _)| Some(*resting) == event);
            }
            let due = self.batches.iter().filter_map(|kept| {
                let event = Self::happened(&kept.batch)?;
                let at = kept.rests.map_or(Ms(0), |(_, until)| until);
                (at <= now).then_some((at, kept.batch.id, event))
            });
            let Some((_, id, event)) = due.min() else {
                return;
            };
            self.say(id, event);
        }
    }

    fn say(&mut self, id: BatchId, event: Event) {
        let (now, keep) = (self.now, self.settings.batch_keep_ms);
        let kept = self.batches.iter_mut().find(|kept| kept.batch.id == id);
        let kept = kept.expect("it was found just now");
        let made = &kept.batch.made;
        let callback = match event {
            Event::Complete => made.complete.clone(),
            Event::Success => made.success.clone(),
        };
        let parent = made.parent;
        let was_put = callback.is_some();
        if let Some(callback) = callback {
            self.calling = true;
            let stored = self.put(put_of(id, event, callback));
            self.calling = false;
            if stored.is_err() {
                let mut all = self.batches.iter_mut();
                let kept = all.find(|kept| kept.batch.id == id);
                kept.expect("it is there").rests = Some((event, now + AGAIN_MS));
                return;
            }
        }
        let state = if was_put {
            CallbackState::Put
        } else {
            CallbackState::Done
        };
        if let Some(progress) = self.counts_of(id) {
            match event {
                Event::Complete => progress.complete = state,
                Event::Success => (progress.success, progress.until) = (state, now + keep),
            }
        }
        if let Some(parent) = parent.and_then(|parent| self.counts_of(parent)) {
            match event {
                Event::Complete => parent.children_running -= 1,
                Event::Success => parent.children_pending -= 1,
            }
        }
    }

    fn end_batch(&mut self, id: BatchId) {
        let at = self.batches.iter().position(|kept| kept.batch.id == id);
        let gone = self.batches.remove(at.expect("it is there")).batch;
        if gone.progress.complete == CallbackState::No
            && let Some(parent) = gone.made.parent.and_then(|parent| self.counts_of(parent))
        {
            parent.children_running -= 1;
        }
    }

    /// Those whose time is over.
    pub(super) fn end_batches(&mut self) {
        let now = self.now;
        let over = self.batches.iter().map(|kept| &kept.batch);
        let over = over.filter(|batch| batch.progress.until <= now);
        let over: Vec<BatchId> = over.map(|batch| batch.id).collect();
        for id in over {
            self.end_batch(id);
        }
    }

    /// A client that begins anew tries at once.
    pub(super) fn rest_no_more(&mut self) {
        for kept in &mut self.batches {
            kept.rests = None;
        }
    }
}

fn put_of(id: BatchId, event: Event, callback: Callback) -> Put {
    let mut attrs = callback.attrs;
    attrs.push((BATCH.into(), id.to_string().into_bytes().into()));
    attrs.push((BATCH_EVENT.into(), event.word().as_bytes().into()));
    let role = match event {
        Event::Complete => Role::Complete,
        Event::Success => Role::Success,
    };
    let more = PutMore {
        attrs,
        name: callback.name,
        retry: callback.retry,
        batch: Some(Tie { batch: id, role }),
        ..PutMore::default()
    };
    Put {
        priority: callback.priority,
        ttr_ms: callback.ttr_ms,
        more: Some(Box::new(more)),
        ..Put::new(
            callback.queue,
            quintet_types::Body::Small(callback.body.clone()),
        )
    }
}
