//! Messages that are held until others have ended: which they are, and what becomes of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Stop;
use super::put::Repeat;
use quintet_types::{
    AFTER_ALL_MAX, AFTER_MAX, After, CommandError, Dependant, DependantPage, Ended, HELD,
    ListState, Message, MessageId, Ms, Name, Parent, ParentState, Principal, Put, PutAfter,
    PutMore, Return, State, TrackState, Transfer, Verb, Verdict, shard_of_id,
};

use crate::engine::{Cx, Engine};
use crate::fact::{Fact, Journal};
use crate::step::Call;

use smallvec::SmallVec;

/// Of these, messages that may be in runs: so many stay in memory for the command that waits for
/// them, however little there is of it.
const IN_RUNS_MAX: usize = 16;
/// Tracked messages of one name that are looked at to find a parent.
const NAMESAKES_MAX: usize = 16;
/// Parents of a held message that goes on which weigh as much as one step more.
const PARENTS_PER_STEP: usize = 16;

/// The messages for which puts ask to be held.
#[derive(Default)]
pub(super) struct Awaited {
    ids: BTreeSet<MessageId>,
    /// Those of puts that were stored before, or are stored in other shards.
    of_repeats: BTreeSet<MessageId>,
    /// Answers of other shards.
    afar: BTreeMap<MessageId, Result<ParentState, CommandError>>,
    /// The ids of names.
    names: BTreeMap<Arc<[u8]>, MessageId>,
}

impl Awaited {
    /// Messages of this shard, for puts of others.
    pub(super) fn from_afar(ids: BTreeSet<MessageId>) -> Self {
        Self {
            of_repeats: ids,
            ..Self::default()
        }
    }
}

fn waits_of(put: &Put) -> Option<(&PutMore, &PutAfter)> {
    let more = put.more.as_deref()?;
    Some((more, more.after.as_deref()?))
}

impl Engine {
    /// Whether the messages that these puts wait for are known, here, and may be seen. Asked before
    /// the first fact; a message that is in a run is read first. From then on the puts name these
    /// messages by id; a repeat, which may wait for messages that are forgotten by now, names those
    /// that were found.
    ///
    /// # Errors
    /// One is not, or there are too many.
    pub(crate) fn may_wait_for<'a>(
        &mut self,
        call: Call,
        puts: impl IntoIterator<Item = &'a mut Put>,
    ) -> Result<(), Stop> {
        let waits = |put: &&mut Put| waits_of(put).is_some();
        let puts: SmallVec<[&mut Put; 1]> = puts.into_iter().filter(waits).collect();
        if puts.is_empty() {
            return Ok(());
        }
        let (mut awaited, mut left) = (Awaited::default(), AFTER_ALL_MAX);
        for put in &puts {
            let asks = waits_of(put);
            let (more, after) = asks.expect("only puts that are to wait are left");
            let queue = self.store.find(&put.queue);
            let copies = queue.map_or(0, |queue| self.copies_of(queue, put).len());
            let all = after.count().saturating_mul(1 + copies);
            if after.count() > AFTER_MAX || all > left {
                return Err(CommandError::AfterTooMany.into());
            }
            left -= all;
            let is_repeat = self.is_repeat(put);
            let own = more.name.as_ref().filter(|_| !is_repeat);
            if own.is_some_and(|own| after.names.contains(own)) {
                return Err(CommandError::AfterItself.into());
            }
            awaited.afar.extend(&after.afar);
            let mut ids = after.ids.clone();
            for name in &after.names {
                if !awaited.names.contains_key(name)
                    && let Some(id) = self.tracked_parent(call.caller.principal, name)
                {
                    awaited.names.insert(Arc::clone(name), id);
                }
                match awaited.names.get(name) {
                    Some(id) => ids.push(*id),
                    None if is_repeat => {}
                    None => return Err(CommandError::AfterNotFound(MessageId(0)).into()),
                }
            }
            match is_repeat {
                true => awaited.of_repeats.extend(ids),
                false => awaited.ids.extend(ids),
            }
        }
        let bad = self.may_wait_for_these(call.caller.principal, &awaited)?;
        for put in puts {
            let more = put.more.as_deref_mut();
            let after = more.and_then(|more| more.after.as_deref_mut());
            let after = after.expect("a put that is to wait waits until it is stored");
            let names = std::mem::take(&mut after.names).into_iter();
            let ids = names.filter_map(|name| awaited.names.get(&name).copied());
            after.ids.extend(ids);
            after.ids.retain(|id| !bad.contains_key(id));
        }
        Ok(())
    }

    /// The same for a command that is decided; after a hook's effects that was asked before them.
    pub(super) fn may_be_held<'a, J>(
        &mut self,
        cx: &Cx<'_, J>,
        puts: impl IntoIterator<Item = &'a mut Put>,
    ) -> Result<(), Stop> {
        match cx.step.began {
            true => Ok(()),
            false => self.may_wait_for(cx.call(), puts),
        }
    }

    /// Those of the awaited messages for which no put may wait; of repeats alone.
    pub(super) fn may_wait_for_these(
        &mut self,
        requester: Principal,
        awaited: &Awaited,
    ) -> Result<BTreeMap<MessageId, CommandError>, Stop> {
        let all: BTreeSet<MessageId> = awaited.ids.union(&awaited.of_repeats).copied().collect();
        let gone = all.iter().filter(|id| self.store.slot(**id).is_none());
        let gone: BTreeSet<MessageId> = gone.copied().collect();
        // The record of ends before the runs, and once for all.
        let ends = self.store.ends_of(&gone);
        let (mut ended, mut bad) = (BTreeMap::new(), BTreeMap::new());
        let (mut in_runs, mut found) = (0, Ok(()));
        for id in all {
            let not_found = CommandError::AfterNotFound(id);
            if !self.is_of_our_shard(id) {
                // The router of puts locks that shard too, and asks it.
                let answer = awaited.afar.get(&id).copied();
                if let Err(command_error) = answer.unwrap_or(Err(CommandError::Conflict)) {
                    bad.insert(id, command_error);
                }
                continue;
            }
            let end = ends.get(&id);
            let queue = if let Some(message) = self.store.message(id) {
                Some(self.store.name_of(message.queue))
            } else {
                let state = match end {
                    Some((why, _)) => end_of(*why),
                    None => self.end_of_tracked(id),
                };
                if let Some(state) = state {
                    ended.insert(id, state);
                    let queue = end.and_then(|(_, queue)| queue.clone());
                    queue.or_else(|| self.store.tracks.of(id).map(|track| track.queue.clone()))
                } else if end.is_some() || !self.may_be_in_a_run(id) {
                    bad.insert(id, not_found);
                    continue;
                } else if in_runs == IN_RUNS_MAX {
                    bad.insert(id, CommandError::AfterTooMany);
                    continue;
                } else {
                    in_runs += 1;
                    found = found.and(self.look_up(id).map(drop));
                    continue;
                }
            };
            if !self.may_see_parent(requester, queue.as_ref()) {
                // The reply is the same as for one that is not known.
                bad.insert(id, not_found);
            }
        }
        if let Some((_, command_error)) = bad.iter().find(|(id, _)| awaited.ids.contains(id)) {
            return Err((*command_error).into());
        }
        found?;
        if self.ended_parents.len() > AFTER_ALL_MAX {
            self.ended_parents.clear();
        }
        self.ended_parents.append(&mut ended);
        Ok(bad)
    }

    /// True if a message of this queue may be seen; `None`: its queue is gone.
    fn may_see_parent(&mut self, requester: Principal, queue: Option<&Name>) -> bool {
        match queue {
            Some(queue) => self.may(requester, Verb::Peek, queue),
            None => self.permits.is_none() || requester == Principal::SERVER,
        }
    }

    /// True if a put repeats one that was stored.
    fn is_repeat(&self, put: &Put) -> bool {
        let queue = self.store.find(&put.queue);
        queue.is_some_and(|queue| {
            matches!(
                self.repeat_of(queue, put),
                Ok(Repeat::Of(_)) | Err(CommandError::Duplicate(_) | CommandError::TokenUsed(_))
            )
        })
    }

    /// True if the id is one of this shard's.
    pub(crate) fn is_of_our_shard(&self, id: MessageId) -> bool {
        shard_of_id(id, self.shards.into()) == usize::from(self.shard)
    }

    /// The tracked message of this name that was put last, and that `requester` may see.
    pub(super) fn tracked_parent(
        &mut self,
        requester: Principal,
        name: &[u8],
    ) -> Option<MessageId> {
        let now = self.now;
        let found = self.store.tracks.named(name).take(NAMESAKES_MAX);
        let found = found.filter(|(_, track)| track.until > now);
        let found: Vec<_> = found.map(|(id, track)| (id, track.queue.clone())).collect();
        let mut found = found.into_iter();
        let found = found.find(|(_, queue)| self.may(requester, Verb::Peek, queue));
        found.map(|(id, _)| id)
    }

    /// How a tracked message that is gone has ended.
    fn end_of_tracked(&self, id: MessageId) -> Option<ParentState> {
        match self.store.tracks.of(id)?.state {
            TrackState::Done => Some(ParentState::Done),
            TrackState::Gone | TrackState::Cancelled => Some(ParentState::Failed),
            // It failed for good, unless it is in a run.
            TrackState::Failed | TrackState::Buried => {
                (!self.may_be_in_a_run(id)).then_some(ParentState::Failed)
            }
            TrackState::Waiting | TrackState::Reserved => None,
        }
    }

    /// How a message that was found good stands.
    pub(super) fn parent_now(&self, id: MessageId) -> Parent {
        let state = match self.store.message(id) {
            Some(message) => {
                // Those who waited before it lived on may still learn of its end.
                let ended = self.store.dependencies.end_of(id);
                ended.unwrap_or_else(|| self.state_of_parent(message))
            }
            None => {
                let ended = self.ended_parents.get(&id).copied();
                let ended = ended.or_else(|| end_of(self.store.end_of(id)?.why));
                let ended = ended.or_else(|| self.end_of_tracked(id));
                // An earlier part of the same step has removed it.
                ended.unwrap_or(ParentState::Failed)
            }
        };
        Parent { id, state }
    }

    fn state_of_parent(&self, message: &Message) -> ParentState {
        match message.state {
            State::Done | State::Relayed => ParentState::Done,
            State::Buried => ParentState::Failed,
            _ if message.doomed || message.is_expired(self.now) => ParentState::Failed,
            State::Prepared | State::Ready | State::Reserved => ParentState::Waiting,
        }
    }

    /// The messages that a put found good waits for, as they are now.
    pub(super) fn parents_of<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        put: PutAfter,
    ) -> Box<After> {
        let mut ids = put.ids;
        ids.sort_unstable();
        ids.dedup();
        let now = |id: MessageId| match put.afar.get(&id) {
            Some(Ok(state)) => {
                // As those know it who still wait for it here.
                let state = self.store.dependencies.end_of(id).unwrap_or(*state);
                Parent { id, state }
            }
            Some(Err(_)) | None => self.parent_now(id),
        };
        let parents: Box<[Parent]> = ids.into_iter().map(now).collect();
        for parent in &parents {
            if parent.state == ParentState::Waiting {
                // It stays in memory from now on.
                self.load_one(parent.id, true, cx.journal);
            }
        }
        Box::new(After {
            parents,
            on: put.on,
            if_failed: put.if_failed,
            due: None,
        })
    }

    /// Whether a message for which others wait comes to its end, and succeeds, in a fact that is
    /// about to be applied.
    #[cold]
    pub(crate) fn of_parent(&self, fact: &Fact) -> Option<(MessageId, bool)> {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "all others say nothing of a message's end"
        )]
        let (id, succeeded) = match fact {
            Fact::Removed { at, why } => (at.id, why.succeeded()?),
            Fact::Archived { at, .. } => (at.id, true),
            // It has another id in another shard.
            Fact::Buried { at, .. } | Fact::Sent { at, .. } => (at.id, false),
            Fact::Moved { at, why, .. } if why.is_dead_letter() || *why == Transfer::Expired => {
                (at.id, false)
            }
            _ => return None,
        };
        self.store
            .dependencies
            .is_awaited(id)
            .then_some((id, succeeded))
    }

    /// The held message that a fact is about, if it is about one.
    #[cold]
    pub(crate) fn of_held(&self, fact: &Fact) -> Option<MessageId> {
        let at = fact.at()?;
        self.store.dependencies.of(at.id).map(|_| at.id)
    }

    /// Notes that a parent has ended.
    #[cold]
    pub(crate) fn note_end<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        parent: MessageId,
        succeeded: bool,
    ) {
        self.fact_alone(cx, Fact::ParentEnded { parent, succeeded });
    }

    /// Something has happened to a held message: it is so no more if somebody made it ready, or it
    /// is gone.
    #[cold]
    pub(crate) fn note_held<J: Journal>(&mut self, cx: &mut Cx<'_, J>, child: MessageId) {
        let is_held = |message: &Message| {
            matches!(message.state, State::Ready | State::Prepared) && message.due() == Some(HELD)
        };
        if self.store.dependencies.of(child).is_none() {
            // The fact itself ended the wait, as one that frees the message does.
            return;
        }
        match self.store.message(child).is_some_and(is_held) {
            true => self.store.resume_held(child),
            false => _ = self.fact_alone(cx, Fact::Awaits { child, after: None }),
        }
    }

    /// A held message is due at another time, once it is held no more; true: it is held.
    pub(super) fn is_due_later<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        child: MessageId,
        due: Option<Ms>,
    ) -> bool {
        let Some(after) = self.store.dependencies.of(child) else {
            // Nothing holds it.
            return false;
        };
        let after = After {
            due,
            ..after.clone()
        };
        self.await_anew(cx, child, after);
        true
    }

    /// Records the parents of a held message in place of an older record.
    fn await_anew<J: Journal>(&mut self, cx: &mut Cx<'_, J>, child: MessageId, after: After) {
        let waits = |parent: &&Parent| parent.state == ParentState::Waiting;
        let awaited = after.parents.iter().filter(waits).map(|parent| parent.id);
        let dependencies = &self.store.dependencies;
        let ends = awaited.filter_map(|id| Some((id, dependencies.end_of(id)?)));
        let ends: Vec<(MessageId, ParentState)> = ends.collect();
        let after = Some(Box::new(after));
        self.fact_alone(cx, Fact::Awaits { child, after });
        // Where replay begins with this record nothing else records them.
        for (parent, state) in ends {
            let succeeded = state == ParentState::Done;
            self.fact_alone(cx, Fact::ParentEnded { parent, succeeded });
        }
    }

    /// A message as it is shown: while it is held the shard knows its parents.
    pub(super) fn shown(&self, message: &Message) -> Message {
        let mut shown = message.clone();
        if !self.store.dependencies.is_empty()
            && let Some(after) = self.store.dependencies.of(message.id)
        {
            shown.extra_mut().after = Some(Box::new(after.clone()));
        }
        shown
    }

    /// Messages of this shard that wait for `parent`: those that `requester` may see.
    pub(super) fn dependants(
        &mut self,
        requester: Principal,
        parent: MessageId,
        (shard, after): (u8, MessageId),
        max: u32,
    ) -> DependantPage {
        const LOOKS: usize = 1024;
        /// Bytes of queue names that end a page.
        const NAMES: usize = 128 << 10;
        let limit = usize::try_from(max).unwrap_or(LOOKS).clamp(1, LOOKS);
        let children = self.store.dependencies.children_after(parent, after);
        let children: Vec<MessageId> = children.take(limit).collect();
        let mut page = DependantPage {
            next: match children.last().filter(|_| children.len() == limit) {
                Some(last) => Some((shard, *last)),
                None if self.shard + 1 < self.shards => Some((self.shard + 1, MessageId(0))),
                None => None,
            },
            ..DependantPage::default()
        };
        let (mut names, mut last) = (0, after);
        for id in children {
            if names >= NAMES {
                page.next = Some((shard, last));
                break;
            }
            last = id;
            let message = self.store.message(id);
            let Some(message) = message.filter(|message| !message.is_expired(self.now)) else {
                // A flush took it, or its time is over.
                continue;
            };
            let state = ListState::of(message, self.now);
            let queue = self.store.name_of(message.queue);
            if self.may(requester, Verb::Peek, &queue) {
                names += queue.as_bytes().len();
                page.dependants.push(Dependant { id, queue, state });
            }
        }
        page
    }

    /// A held message has another id from now on.
    pub(super) fn inherit<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        old: MessageId,
        new: MessageId,
    ) {
        if let Some(after) = self.store.dependencies.of(old) {
            let after = after.clone();
            self.await_anew(cx, new, after);
            let (child, after) = (old, None);
            self.fact_alone(cx, Fact::Awaits { child, after });
        }
    }

    /// Goes on with what follows from the ends of messages, `max` steps of it.
    #[inline]
    pub(crate) fn go_on_after<J: Journal>(&mut self, cx: &mut Cx<'_, J>, max: usize) {
        if self.store.dependencies.has_work() {
            self.go_on_after_ends(cx, max);
        }
    }

    #[cold]
    fn go_on_after_ends<J: Journal>(&mut self, cx: &mut Cx<'_, J>, max: usize) {
        // Whatever was decided, this follows by itself.
        let began = cx.step.began;
        let mut done = 0;
        while done < max {
            done += 1;
            let dependencies = &self.store.dependencies;
            if let Some(id) = dependencies.first_lost() {
                self.note_lost(cx, id);
            } else if let Some((child, parent, succeeded)) = dependencies.first_to_notify() {
                let reported = Fact::ParentTold {
                    child,
                    parent,
                    succeeded,
                };
                self.fact_alone(cx, reported);
            } else if let Some(child) = dependencies.first_decided() {
                done += self.end_hold(cx, child) / PARENTS_PER_STEP;
            } else {
                break;
            }
        }
        cx.step.began = began;
    }

    /// A message is gone of which no fact told.
    fn note_lost<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: MessageId) {
        if self.store.dependencies.is_awaited(id) {
            self.note_end(cx, id, false);
        }
        if self.store.dependencies.of(id).is_some() {
            let (child, after) = (id, None);
            self.fact_alone(cx, Fact::Awaits { child, after });
        }
        self.store.found_lost(id);
    }

    /// A held message goes on, or fails. How many parents it has.
    fn end_hold<J: Journal>(&mut self, cx: &mut Cx<'_, J>, child: MessageId) -> usize {
        let after = self.store.dependencies.of(child);
        let decided = after.and_then(|after| Some((after.clone(), after.verdict()?)));
        let (after, verdict) = decided.expect("a decided message has a record that decides it");
        let count = after.parents.len();
        let Some(message) = self.store.message(child) else {
            // A flush took it.
            let after = None;
            self.fact_alone(cx, Fact::Awaits { child, after });
            return count;
        };
        if message.state == State::Prepared {
            self.store.put_off_held(child);
            return count;
        }
        let at = message.at();
        if self.is_memory(at.queue) {
            // The log has its record, and not of what becomes of it.
            let after = None;
            self.fact_alone(cx, Fact::Awaits { child, after });
        }
        let after = Box::new(after);
        self.fact(cx, Fact::Freed { at, after });
        if let Verdict::Fail(parent) = verdict {
            self.fail_held(cx, child, parent);
        }
        cx.wake(at.queue);
        count
    }

    /// A message fails as one that it was to come after has failed. No hook is asked: it would be
    /// ready if the process ended meanwhile.
    fn fail_held<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: MessageId, parent: MessageId) {
        let at = self.store.message(id).map(Message::at);
        let at = at.expect("a message that was freed is there until it fails");
        let error = format!(
            "message {} failed, and this one waited for its success",
            parent.0
        );
        let fact = Fact::Released {
            at,
            priority: at.priority,
            position: at.position,
            due: None,
            delay_ms: 0,
            why: Return::Pending,
            failed: Some(error.into_bytes().into()),
        };
        self.fact(cx, fact);
        self.dead_letter_now(cx, id);
    }

    /// After a start: parents that are not there have ended, and held messages that are not there
    /// are held no more. Both stay in memory.
    pub(crate) fn find_lost(&mut self) {
        let dependencies = &self.store.dependencies;
        let all = dependencies.held().chain(dependencies.awaited());
        let lost = all.filter(|&id| self.store.message(id).is_none());
        for id in lost.collect::<Vec<_>>() {
            self.store.lose(id);
        }
    }
}

/// How one has ended that is gone; `None`: it has another id now.
fn end_of(why: Ended) -> Option<ParentState> {
    match why {
        Ended::Taken | Ended::Finished | Ended::Forgotten => Some(ParentState::Done),
        Ended::Deleted
        | Ended::Expired
        | Ended::Dropped
        | Ended::Purged
        | Ended::QueueDeleted
        | Ended::Failed
        | Ended::Cancelled => Some(ParentState::Failed),
        Ended::Replaced | Ended::Edited | Ended::Moved | Ended::Sent => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::damaged::fires;
    use quintet_types::Settings;

    #[test]
    fn a_freed_message_that_is_gone_too_soon_is_noticed() {
        let mut engine = Engine::new(0, 1, Settings::default());
        let (mut facts, mut deliveries, mut step) = Default::default();
        let mut cx: Cx<'_, Vec<Fact>> = Cx::new(&mut facts, &mut deliveries, &mut step);
        fires("a message that was freed is there until it fails", || {
            engine.fail_held(&mut cx, MessageId(1), MessageId(2));
        });
        fires("a decided message has a record that decides it", || {
            _ = engine.end_hold(&mut cx, MessageId(1));
        });
    }
}
