//! Messages that are held until others have ended: which they are, and what becomes of them.

use std::collections::BTreeSet;

use super::Stop;
use super::put::Repeat;
use quintet_types::{
    AFTER_MAX, After, Caller, CommandError, Ended, HELD, Message, MessageId, Ms, Name, Parent,
    ParentState, Principal, Put, PutAfter, QueueId, Removal, Return, State, TrackState, Transfer,
    Verb, Verdict, shard_of_id,
};

use crate::engine::{Cx, Engine};
use crate::fact::{Fact, Journal};
use crate::step::Call;

/// Tracked messages of one name that are looked at to find a parent.
const NAMESAKES_MAX: usize = 256;
/// Messages that took the place of one another, which are followed to find a parent.
const REPLACED_MAX: usize = 64;
/// Name of the attribute of a dead letter that says why it is one.
const DEAD_LETTER_REASON: &[u8] = b"dead_letter_reason";

impl Engine {
    /// Whether all messages that these puts wait for are known. Those of other shards are looked
    /// for by the router, which vouches for them.
    ///
    /// # Errors
    /// One is not, or the caller may not see it; there are too many.
    pub(crate) fn may_wait_for<'a>(
        &mut self,
        call: Call,
        puts: impl IntoIterator<Item = &'a Put>,
    ) -> Result<(), Stop> {
        for put in puts {
            match self.may_wait_for_all(call, put) {
                // What it waited for may be forgotten by now.
                Err(Stop::Refused(CommandError::AfterNotFound(_))) if self.is_repeat(put) => {}
                found => found?,
            }
        }
        Ok(())
    }

    /// True if a put repeats one that was stored.
    pub fn is_repeat(&self, put: &Put) -> bool {
        let queue = self.store.find(&put.queue);
        queue.is_some_and(|queue| {
            matches!(
                self.repeat_of(queue, put),
                Ok(Repeat::Of(_)) | Err(CommandError::Duplicate(_) | CommandError::TokenUsed(_))
            )
        })
    }

    fn may_wait_for_all(&mut self, call: Call, put: &Put) -> Result<(), Stop> {
        let more = put.more.as_deref();
        let Some((more, after)) = more.and_then(|more| Some((more, more.after.as_deref()?))) else {
            return Ok(());
        };
        if after.count() > AFTER_MAX {
            return Err(CommandError::AfterTooMany.into());
        }
        if after
            .names
            .iter()
            .any(|name| more.name.as_ref() == Some(name))
        {
            return Err(CommandError::AfterItself.into());
        }
        let Caller { principal, .. } = call.caller;
        for name in &after.names {
            let found = self.tracked_parent(principal, name);
            found.ok_or(CommandError::AfterNotFound(MessageId(0)))?;
        }
        for parent in &after.parents {
            match self.is_of_our_shard(parent.id) {
                true => self.may_wait_for_one(call, parent.id)?,
                false if call.vouched => {}
                false => return Err(CommandError::AfterNotFound(parent.id).into()),
            }
        }
        Ok(())
    }

    fn may_wait_for_one(&mut self, call: Call, id: MessageId) -> Result<(), Stop> {
        self.look_up(id)?;
        let none = CommandError::AfterNotFound(id);
        let (found, _) = self.parent_now(id).ok_or(none)?;
        // What took its place may be in a run.
        self.look_up(found)?;
        let (found, _) = self.parent_now(id).ok_or(none)?;
        if self.permits.is_none() || call.vouched {
            return Ok(());
        }
        let queue = self.queue_of_parent(found).ok_or(none)?;
        match self.may(call.caller.principal, Verb::Peek, &queue) {
            true => Ok(()),
            false => Err(CommandError::NotPermitted.into()),
        }
    }

    /// The queue in which a message is, or came to its end.
    fn queue_of_parent(&self, id: MessageId) -> Option<Name> {
        if let Some(message) = self.store.message(id) {
            return Some(self.store.name_of(message.queue));
        }
        let ending = self.store.end_of(id).and_then(|ending| ending.queue);
        ending.or_else(|| self.store.tracks.of(id).map(|track| track.queue.clone()))
    }

    /// True if the id is one of this shard's.
    pub(crate) fn is_of_our_shard(&self, id: MessageId) -> bool {
        shard_of_id(id, self.shards.into()) == usize::from(self.shard)
    }

    /// The tracked message of this name that was put last, and that `asker` may see.
    fn tracked_parent(&mut self, asker: Principal, name: &[u8]) -> Option<MessageId> {
        let now = self.now;
        let found = self.store.tracks.named(name).take(NAMESAKES_MAX);
        let found = found.filter(|(_, track)| track.until > now);
        let found: Vec<_> = found.map(|(id, track)| (id, track.queue.clone())).collect();
        let mut found = found.into_iter();
        let found = found.find(|(_, queue)| self.may(asker, Verb::Peek, queue));
        found.map(|(id, _)| id)
    }

    /// How a message of this shard stands, by the id that it has now; `None`: that is not known.
    fn parent_now(&self, mut id: MessageId) -> Option<(MessageId, ParentState)> {
        for _ in 0..REPLACED_MAX {
            if let Some(message) = self.store.message(id) {
                return Some((id, self.state_of_parent(message)));
            }
            let Some(ending) = self.store.end_of(id) else {
                break;
            };
            let state = match ending.why {
                Ended::Taken | Ended::Finished | Ended::Forgotten => ParentState::Done,
                Ended::Deleted
                | Ended::Expired
                | Ended::Dropped
                | Ended::Purged
                | Ended::Failed
                | Ended::Cancelled => ParentState::Failed,
                Ended::Replaced | Ended::Edited => {
                    id = ending.is_now?;
                    continue;
                }
                // It lives on under an id of another shard.
                Ended::Moved | Ended::Sent => return None,
            };
            return Some((id, state));
        }
        let state = match self.store.tracks.of(id)?.state {
            TrackState::Done => ParentState::Done,
            TrackState::Failed | TrackState::Gone | TrackState::Cancelled => ParentState::Failed,
            TrackState::Waiting | TrackState::Reserved | TrackState::Buried => return None,
        };
        Some((id, state))
    }

    fn state_of_parent(&self, message: &Message) -> ParentState {
        let attrs = message.extra.iter().flat_map(|extra| &extra.attrs);
        let mut attrs = attrs.map(|(name, _)| &**name);
        match message.state {
            State::Done | State::Relayed => ParentState::Done,
            State::Buried => ParentState::Failed,
            _ if message.doomed || message.is_expired(self.now) => ParentState::Failed,
            _ if attrs.any(|name| name == DEAD_LETTER_REASON) => ParentState::Failed,
            State::Prepared | State::Ready | State::Reserved => ParentState::Waiting,
        }
    }

    /// The messages that a put found good waits for, as they are now.
    pub(super) fn parents_of<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        put: &PutAfter,
    ) -> Box<After> {
        let asker = cx.call().caller.principal;
        let mut parents = put.parents.clone();
        for name in &put.names {
            let id = self.tracked_parent(asker, name);
            parents.extend(id.map(|id| Parent {
                id,
                state: ParentState::Waiting,
            }));
        }
        for parent in &mut parents {
            if self.is_of_our_shard(parent.id) {
                let found = self.parent_now(parent.id);
                // What an earlier part of the same step has removed has an end that is known,
                // unless none is kept.
                let (id, state) = found.unwrap_or((parent.id, ParentState::Failed));
                *parent = Parent { id, state };
            }
            if parent.state == ParentState::Waiting {
                // It stays in memory from now on.
                self.load_one(parent.id, true, cx.journal);
            }
        }
        parents.sort_unstable();
        parents.dedup_by_key(|parent| parent.id);
        Box::new(After {
            parents: parents.into(),
            on: put.on,
            if_failed: put.if_failed,
            due: None,
        })
    }

    /// Under which ids others wait for the end of a message, and whether it succeeds, in a fact
    /// that is about to be applied.
    #[cold]
    pub(crate) fn of_parent(&self, fact: &Fact) -> Option<(Vec<MessageId>, bool)> {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "all others say nothing of a message's end"
        )]
        let (id, succeeded) = match fact {
            Fact::Removed { at, why } => match why {
                Removal::Taken | Removal::Finished => (at.id, true),
                Removal::Deleted
                | Removal::Expired
                | Removal::Discarded
                | Removal::Doomed
                | Removal::Failed
                | Removal::Cancelled => (at.id, false),
                // The message that takes its place inherits, or it was done before.
                Removal::Replaced | Removal::Retention => return None,
            },
            Fact::Archived { at, .. } => (at.id, true),
            Fact::Buried { at, .. } => (at.id, false),
            Fact::Moved { at, why, .. } | Fact::Sent { at, why, .. }
                if why.is_dead_letter() || *why == Transfer::Expired =>
            {
                (at.id, false)
            }
            _ => return None,
        };
        let ids = self.store.awaited_as(self.store.message(id)?);
        (!ids.is_empty()).then_some((ids, succeeded))
    }

    /// The held message that a fact is about, if it is about one.
    #[cold]
    pub(crate) fn of_held(&self, fact: &Fact) -> Option<MessageId> {
        let at = fact.at()?;
        self.store.dependencies.of(at.id).map(|_| at.id)
    }

    /// Notes that parents have ended.
    #[cold]
    pub(crate) fn note_ends<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        parents: Vec<MessageId>,
        succeeded: bool,
    ) {
        for parent in parents {
            self.fact_alone(cx, Fact::ParentEnded { parent, succeeded });
        }
    }

    /// Something has happened to a held message: it is so no more if somebody made it ready, or it
    /// is gone.
    #[cold]
    pub(crate) fn note_held<J: Journal>(&mut self, cx: &mut Cx<'_, J>, child: MessageId) {
        let is_held = |message: &Message| {
            matches!(message.state, State::Ready | State::Prepared) && message.due() == Some(HELD)
        };
        if self.store.dependencies.of(child).is_some()
            && !self.store.message(child).is_some_and(is_held)
        {
            self.fact_alone(cx, Fact::Awaits { child, after: None });
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

    /// True if a message is held for one of another shard.
    pub(super) fn waits_for_other_shards(&self, id: MessageId) -> bool {
        let after = self.store.dependencies.of(id);
        let mut parents = after.into_iter().flat_map(|after| &after.parents);
        parents
            .any(|parent| parent.state == ParentState::Waiting && !self.is_of_our_shard(parent.id))
    }

    /// Those who wait for the old one wait for the new one, which takes its place.
    pub(super) fn inherit<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        old: MessageId,
        new: MessageId,
    ) {
        if let Some(after) = self.store.dependencies.of(old) {
            let after = Some(Box::new(after.clone()));
            self.fact_alone(cx, Fact::Awaits { child: new, after });
            let (child, after) = (old, None);
            self.fact_alone(cx, Fact::Awaits { child, after });
        }
    }

    /// Those who wait for a message that makes way for a put are to wait for the new one.
    pub(super) fn leave_waiting<J>(&mut self, cx: &mut Cx<'_, J>, id: MessageId) {
        if let Some(message) = self.store.message(id) {
            let (queue, awaited) = (message.queue, self.store.awaited_as(message));
            let inherited = awaited.into_iter().map(|id| (queue, id));
            cx.step.inherited.extend(inherited);
        }
    }

    /// A new message takes the place of those that made way for it.
    #[inline]
    pub(super) fn take_over<J>(&mut self, cx: &mut Cx<'_, J>, message: &mut Message) {
        if cx.step.inherited.is_empty() {
            return;
        }
        let of = message.queue;
        let inherited = cx.step.inherited.extract_if(.., |(queue, _)| *queue == of);
        let awaited: Box<[MessageId]> = inherited.map(|(_, id)| id).collect();
        if !awaited.is_empty() {
            message.extra_mut().awaited = Some(awaited);
        }
    }

    /// Nothing took the place of messages that made way in this queue.
    pub(super) fn disinherit<J: Journal>(&mut self, cx: &mut Cx<'_, J>, queue: QueueId) {
        let lost = cx.step.inherited.extract_if(.., |(of, _)| *of == queue);
        let lost: Vec<MessageId> = lost.map(|(_, id)| id).collect();
        self.note_ends(cx, lost, false);
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
        for _ in 0..max {
            let dependencies = &self.store.dependencies;
            if let Some(id) = dependencies.first_lost() {
                self.note_lost(cx, id);
            } else if let Some((child, parent, succeeded)) = dependencies.first_to_tell() {
                let told = Fact::ParentTold {
                    child,
                    parent,
                    succeeded,
                };
                self.fact_alone(cx, told);
            } else if let Some(child) = dependencies.first_decided() {
                self.end_hold(cx, child);
            } else {
                break;
            }
        }
        cx.step.began = began;
    }

    /// How a message of this shard stands, for a put into another one.
    ///
    /// # Errors
    /// It is not known, may not be seen, or is being read: asked again it is there.
    pub fn parent_of_another(
        &mut self,
        now: Ms,
        caller: Caller,
        id: MessageId,
    ) -> Result<Parent, CommandError> {
        self.advance(now);
        match self.may_wait_for_one(Call::of(caller), id) {
            Ok(()) => {}
            Err(Stop::Refused(command_error)) => return Err(command_error),
            Err(Stop::Cold(_)) => return Err(CommandError::Conflict),
        }
        let found = self.parent_now(id);
        let (id, state) = found.ok_or(CommandError::AfterNotFound(id))?;
        Ok(Parent { id, state })
    }

    /// The tracked message of this name that was put last and the caller may see, and when it last
    /// changed.
    pub fn parent_named(&mut self, caller: Caller, name: &[u8]) -> Option<(Ms, MessageId)> {
        let id = self.tracked_parent(caller.principal, name)?;
        let track = self.store.tracks.of(id)?;
        Some((track.changed, id))
    }

    /// Their shards are to be told that a message is held for them.
    pub(super) fn note_remote_parents(&mut self, child: MessageId, after: &After) {
        for parent in &after.parents {
            if parent.state == ParentState::Waiting && !self.is_of_our_shard(parent.id) {
                self.remote_parents.push((parent.id, child));
            }
        }
    }

    /// Messages of other shards for which some are held since this was last asked: parent and
    /// child. Their shards are to be told in the same step.
    pub fn take_remote_parents(&mut self) -> Vec<(MessageId, MessageId)> {
        std::mem::take(&mut self.remote_parents)
    }

    /// A message of another shard is held for one of this.
    pub fn add_dependant<J: Journal>(
        &mut self,
        parent: MessageId,
        child: MessageId,
        journal: &mut J,
    ) {
        self.load_one(parent, true, journal);
        let waits = true;
        self.note(
            journal,
            Fact::Dependant {
                parent,
                child,
                waits,
            },
        );
    }

    /// Another shard tells of the end of a message that went there.
    pub(crate) fn ended_elsewhere<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        parent: MessageId,
        succeeded: bool,
    ) {
        if self.store.dependencies.is_awaited(parent) {
            self.note_ends(cx, vec![parent], succeeded);
        }
    }

    /// A message is gone of which no fact told.
    fn note_lost<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: MessageId) {
        if self.store.dependencies.is_awaited(id) || !self.is_of_our_shard(id) {
            self.note_ends(cx, vec![id], false);
        }
        if self.store.dependencies.of(id).is_some() {
            let (child, after) = (id, None);
            self.fact_alone(cx, Fact::Awaits { child, after });
        }
        self.store.found_lost(id);
    }

    /// A held message goes on, or fails.
    fn end_hold<J: Journal>(&mut self, cx: &mut Cx<'_, J>, child: MessageId) {
        let after = self.store.dependencies.of(child);
        let (after, verdict) = (after.cloned(), after.and_then(After::verdict));
        let (Some(after), Some(verdict)) = (after, verdict) else {
            return;
        };
        let at = match self.look_up(child) {
            Ok(Some(slot)) => self.store.messages.at(slot).at(),
            // It may be there again when the run can be read.
            Ok(None) if self.store.cold.damaged == 0 => {
                let after = None;
                self.fact_alone(cx, Fact::Awaits { child, after });
                return;
            }
            Ok(None) | Err(_) => return self.store.sleep_held(child),
        };
        if self.is_memory(at.queue) {
            // The log is told of its record, and not of what becomes of it.
            let after = None;
            self.fact_alone(cx, Fact::Awaits { child, after });
        }
        let after = Box::new(after);
        self.fact(cx, Fact::Freed { at, after });
        if let Verdict::Fail(parent) = verdict {
            self.fail_held(cx, child, parent);
        }
        cx.wake(at.queue);
    }

    /// A message fails as one that it was to come after has failed.
    fn fail_held<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: MessageId, parent: MessageId) {
        let Some(at) = self.store.message(id).map(Message::at) else {
            return;
        };
        let error = format!("message {} failed, which it was to come after", parent.0);
        self.fact(
            cx,
            Fact::Released {
                at,
                priority: at.priority,
                position: at.position,
                due: None,
                delay_ms: 0,
                why: Return::Pending,
                failed: Some(error.into_bytes().into()),
            },
        );
        self.dead_letter(cx, id);
    }

    /// After a start: parents that are not there have ended, and held messages that are not there
    /// are held no more.
    pub(crate) fn find_lost(&mut self) {
        if self.store.dependencies.is_empty() {
            return;
        }
        let is_here = |id: MessageId| self.store.message(id).is_some();
        let gone = |ids: Vec<MessageId>| ids.into_iter().filter(|&id| !is_here(id));
        let held: Vec<MessageId> = gone(self.store.dependencies.held().collect())
            .filter(|&id| !self.store.may_be_cold(id))
            .collect();
        let mut parents: BTreeSet<MessageId> =
            gone(self.store.dependencies.awaited().collect()).collect();
        if !parents.is_empty() {
            // Others may have taken their places.
            let messages = &self.store.messages;
            for slot in 0..messages.bound() {
                if let Some(message) = messages.get(slot)
                    && self.store.is_alive(message)
                {
                    for id in message.awaited() {
                        parents.remove(id);
                    }
                }
            }
        }
        for id in held.into_iter().chain(parents) {
            self.store.lose(id);
        }
    }
}
