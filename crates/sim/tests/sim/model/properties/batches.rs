//! Batches: the counts against the members that there are, and when callbacks are put.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quintet_engine::*;
use quintet_types::*;

use super::{Asked, Properties, Removals, Seen};
use crate::model::world::Checked;

/// Members that have not run yet, and those that failed at least once.
type Members = BTreeMap<BatchId, (u64, u64)>;

/// How often it is tried to put a callback that found no room, ms.
const AGAIN_MS: u64 = 1000;

fn is_member(message: &Message) -> Option<BatchId> {
    let tie = message.tie()?;
    matches!(tie.role, Role::Member | Role::Failed).then_some(tie.batch)
}

fn is_unrun(message: &Message) -> Option<BatchId> {
    let tie = message.tie()?;
    (tie.role == Role::Member).then_some(tie.batch)
}

fn put(fact: &Fact) -> Option<&Message> {
    match fact {
        Fact::Put(message) => Some(message),
        _ => None,
    }
}

/// Makes of a batch what the reply to this request shows.
fn answered(request: &BatchRequest, p: &mut Progress, now: Ms, settings: &Settings) {
    let over = p.success != CallbackState::No;
    if let BatchRequest::Open(_) = request {
        let until = now + settings.batch_open_ms;
        p.open = true;
        p.until = if over { until.max(p.until) } else { until };
    } else if let (BatchRequest::Commit(_), true) = (request, p.open) {
        let (ttl, keep) = (settings.batch_ttl_ms, settings.batch_keep_ms);
        p.open = false;
        p.until = now + if over { keep } else { ttl };
    }
}

impl Properties {
    /// Defects it sees: a member that is not counted, or counted twice; a success or a failure
    /// that is not; a member of a closed batch; a callback put twice, too early or never, or
    /// undone; a child that its parent forgets; a batch that ends early; an id given twice.
    pub(super) fn check_batches(
        &mut self,
        now: Ms,
        asked: Option<Asked<'_>>,
        facts: &[Fact],
        removals: &Removals,
        seen: &Seen,
    ) -> Checked {
        let mut members = Members::new();
        for tie in seen.messages.values().filter_map(Message::tie) {
            let counts = members.entry(tie.batch).or_default();
            counts.0 += u64::from(tie.role == Role::Member);
            counts.1 += u64::from(tie.role == Role::Failed);
        }
        self.note_callbacks(facts)?;
        for batch in seen.batches.values() {
            let before = self.seen.batches.get(&batch.id).map(|old| old.progress);
            if before.is_none() {
                prop_assert!(self.made.insert(batch.id), "{} is there again", batch.id);
            }
            let before = before.unwrap_or_default();
            let (unrun, failed) = members.get(&batch.id).copied().unwrap_or_default();
            self.check_counts(batch, &before, facts, removals)?;
            prop_assert!(
                batch.progress.failed >= failed,
                "{failed} failed: {batch:?}"
            );
            self.check_unrun(batch, unrun, facts, removals, seen)?;
            self.check_events(batch, &before, seen)?;
        }
        let forgets = |id: BatchId| {
            let command = asked.map(|asked| asked.command);
            matches!(command, Some(Command::Batch(BatchRequest::Forget(it))) if *it == id)
        };
        for (id, old) in &self.seen.batches {
            let ends = old.progress.until <= now || forgets(*id);
            prop_assert!(ends || seen.batches.contains_key(id), "{id} ended early");
        }
        Ok(())
    }

    /// Defects it sees: a batch is made, opened, committed or forgotten that may not be, or is
    /// refused for another reason; it is shown otherwise than it is; a list leaves some out.
    pub(super) fn check_answer(
        &self,
        now: Ms,
        settings: &Settings,
        asked: Option<Asked<'_>>,
    ) -> Checked {
        let Some(Asked {
            command: Command::Batch(request),
            outcome: Some(outcome),
            ..
        }) = asked
        else {
            return self.check_join(asked);
        };
        let batches = &self.seen.batches;
        let refused = match outcome {
            Outcome::Refused(error) => Some(*error),
            _ => None,
        };
        let shown = match outcome {
            Outcome::Batch(batch) => Some(&**batch),
            _ => None,
        };
        match request {
            BatchRequest::Number { .. } => {}
            BatchRequest::List { after, max, .. } => {
                let later = batches.values().filter(|batch| batch.id > *after);
                let listed: Vec<&Batch> = later.take((*max as usize).max(1)).collect();
                let shown: Vec<&Batch> = match outcome {
                    Outcome::Batches(batches, _) => batches.iter().collect(),
                    _ => Vec::new(),
                };
                prop_assert_eq!(shown, listed);
            }
            BatchRequest::New(new) => {
                prop_assert_eq!(refused, self.why_not(new, settings), "{:?}", new);
                let made = shown.map(|batch| (&batch.made, batch.created, batch.progress));
                let progress = Progress {
                    open: true,
                    until: now + settings.batch_open_ms,
                    ..Progress::default()
                };
                let expected = refused.is_none().then_some((&**new, now, progress));
                prop_assert_eq!(made, expected);
            }
            BatchRequest::Open(id)
            | BatchRequest::Commit(id)
            | BatchRequest::Show(id)
            | BatchRequest::Forget(id) => {
                let mut expected = batches.get(id).cloned();
                if let Some(batch) = &mut expected {
                    answered(request, &mut batch.progress, now, settings);
                }
                prop_assert_eq!(shown, expected.as_ref());
                let unknown = expected.is_none().then_some(CommandError::BatchNotFound);
                prop_assert_eq!(refused, unknown, "{:?}", request);
            }
        }
        Ok(())
    }

    /// Why a batch may not be made.
    fn why_not(&self, new: &NewBatch, settings: &Settings) -> Option<CommandError> {
        if new.callbacks().next().is_none() {
            return Some(CommandError::BatchWithoutCallback);
        }
        if new.callbacks().any(|callback| callback.queue.is_empty()) {
            return Some(CommandError::BadName);
        }
        if new.bytes() > settings.batch_bytes_max {
            return Some(CommandError::BatchTooLarge);
        }
        if self.seen.batches.len() >= settings.batches_max as usize {
            return Some(CommandError::TooManyBatches);
        }
        let parent = new.parent.map(|parent| self.seen.batches.get(&parent))?;
        match parent.map(|parent| parent.progress.takes_members()) {
            Some(true) => None,
            Some(false) => Some(CommandError::BatchClosed),
            None => Some(CommandError::BatchNotFound),
        }
    }

    /// Defects it sees: an open batch refuses a member, or one joins a batch that is not there.
    fn check_join(&self, asked: Option<Asked<'_>>) -> Checked {
        let Some(Asked {
            command: Command::Put(put),
            outcome: Some(outcome),
            ..
        }) = asked
        else {
            return Ok(());
        };
        let Some(tie) = put.more.as_ref().and_then(|more| more.batch) else {
            return Ok(());
        };
        let batch = self.seen.batches.get(&tie.batch);
        let takes = batch.map(|batch| batch.progress.takes_members());
        let fits = match outcome {
            Outcome::Put { fresh: true, .. } => takes == Some(true),
            Outcome::Refused(CommandError::BatchClosed) => takes == Some(false),
            Outcome::Refused(CommandError::BatchNotFound) => takes.is_none(),
            _ => true,
        };
        prop_assert!(fits, "{outcome:?} of a member of {batch:?}");
        Ok(())
    }

    /// A callback that finds no room is not tried again for a while, even if there is room then.
    pub(super) fn note_refusals(&mut self, now: Ms, settings: &Settings) {
        let (seen, refusals) = (&self.seen, &mut self.refusals);
        let batches = seen.batches.values();
        for callback in batches.flat_map(|batch| batch.made.callbacks()) {
            if seen.may_refuse(&callback.queue, settings) {
                refusals.insert(callback.queue.clone(), now);
            }
        }
    }

    fn note_callbacks(&mut self, facts: &[Fact]) -> Checked {
        for fact in facts {
            let Fact::Put(message) = fact else { continue };
            let Some(tie) = message.tie().filter(|_| is_member(message).is_none()) else {
                continue;
            };
            let of = (tie.batch, tie.role == Role::Success);
            let first = self.callbacks.insert(of, message.id);
            prop_assert!(first.is_none(), "{tie:?} was put as {first:?} before");
        }
        Ok(())
    }

    /// Members that come are counted once, and so are those that make way for another.
    fn check_counts(
        &self,
        batch: &Batch,
        before: &Progress,
        facts: &[Fact],
        removals: &Removals,
    ) -> Checked {
        let p = &batch.progress;
        prop_assert!(p.failed <= p.pending && p.pending <= p.total, "{batch:?}");
        let member = |m: &&Message| is_member(m) == Some(batch.id);
        let put: Vec<&Message> = facts.iter().filter_map(put).filter(member).collect();
        let old = self.seen.messages.values().filter(member);
        let replaced = put.iter().copied().chain(old);
        let replaced = replaced.filter(|m| removals.get(&m.id) == Some(&Removal::Replaced));
        let (joined, left) = (put.len() as u64, replaced.count() as u64);
        let takes = before.open || before.complete != CallbackState::No;
        prop_assert!(joined == 0 || takes, "it was closed: {batch:?}");
        let all = before.total + joined;
        prop_assert_eq!(p.total + left, all, "members of {:?}", batch);
        Ok(())
    }

    /// What is pending and has not failed are the members that have not run; but for those that
    /// went with their queue or were archived when they came, of which nothing is said.
    fn check_unrun(
        &mut self,
        batch: &Batch,
        unrun: u64,
        facts: &[Fact],
        removals: &Removals,
        seen: &Seen,
    ) -> Checked {
        let p = &batch.progress;
        let more = (p.pending - p.failed).checked_sub(unrun);
        let Some(more) = more else {
            let text = format!("{unrun} have not run: {batch:?}");
            return Err(TestCaseError::fail(text));
        };
        let known = self.adrift.get(&batch.id).copied().unwrap_or_default();
        if more > known {
            let old = self
                .seen
                .messages
                .values()
                .chain(facts.iter().filter_map(put));
            let old = old.filter(|m| is_unrun(m) == Some(batch.id));
            let lost = old.filter(|m| {
                let archived = matches!(m.state, State::Done | State::Relayed);
                !seen.messages.contains_key(&m.id) && (archived || !removals.contains_key(&m.id))
            });
            let lost = lost.count() as u64;
            prop_assert!(
                more <= known + lost,
                "{unrun} have not run, {known} and {lost} went: {batch:?}"
            );
        }
        self.adrift.insert(batch.id, more);
        Ok(())
    }

    fn check_events(&self, batch: &Batch, before: &Progress, seen: &Seen) -> Checked {
        let p = &batch.progress;
        let no = CallbackState::No;
        let undone = p.complete < before.complete || p.success < before.success;
        prop_assert!(!undone, "before {before:?}, then {batch:?}");
        let in_order = p.success == no || p.complete == CallbackState::Done;
        prop_assert!(in_order, "success before the end: {batch:?}");
        if before.complete == no && p.complete != no {
            let ran = !p.open && p.pending <= p.failed && p.children_running == 0;
            prop_assert!(ran, "not all have run: {batch:?}");
        }
        if before.success == no && p.success != no {
            let succeeded = !p.open && p.pending == 0 && p.children_pending == 0;
            prop_assert!(succeeded, "not all have succeeded: {batch:?}");
        }
        let callbacks = [
            (false, p.complete, before.complete, &batch.made.complete),
            (true, p.success, before.success, &batch.made.success),
        ];
        for (success, state, old, callback) in callbacks {
            let put = self.callbacks.contains_key(&(batch.id, success));
            prop_assert!(!put || state != no, "put and not noted: {batch:?}");
            let through = callback.as_ref().is_some_and(|callback| {
                let mut queues = seen.queues.values();
                queues.any(|queue| queue.name == callback.queue && queue.settings.fanout_only)
            });
            let must = callback.is_some() && !through && old == no && state != no;
            prop_assert!(put || !must, "noted and not put: {batch:?}");
        }
        let children = || {
            let all = seen.batches.values().map(|child| (child, child.progress));
            all.filter(|(child, _)| child.made.parent == Some(batch.id))
        };
        let running = children().filter(|(_, child)| child.complete == no).count();
        let pending = children().filter(|(_, child)| child.success == no).count();
        let counts = p.children_running == running as u64 && p.children_pending >= pending as u64;
        prop_assert!(counts, "{running} run, {pending} pending: {batch:?}");
        Ok(())
    }

    /// Defects it sees: the end of all members, or of all children, is not noticed; a batch
    /// outlives its time.
    pub(super) fn check_callbacks_are_put(&self, now: Ms) -> Checked {
        for batch in self.seen.batches.values() {
            let p = &batch.progress;
            prop_assert!(p.until > now, "its time is over: {batch:?}");
            let no = CallbackState::No;
            let ran = p.complete == no && p.pending <= p.failed && p.children_running == 0;
            let next = p.complete == CallbackState::Done && p.success == no;
            let succeeded = next && p.pending == 0 && p.children_pending == 0;
            if p.open || !ran && !succeeded {
                continue;
            }
            let callback = match ran {
                true => &batch.made.complete,
                false => &batch.made.success,
            };
            let refused = callback.as_ref();
            let refused = refused.and_then(|callback| self.refusals.get(&callback.queue));
            let rests = refused.is_some_and(|at| now < *at + AGAIN_MS);
            prop_assert!(rests, "it is not said: {batch:?}");
        }
        Ok(())
    }
}
