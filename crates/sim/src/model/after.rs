//! Held messages: a line for each, with its parents as they are known to be.

use quintet_types::{
    After, CommandError, HELD, Message, MessageId, Parent, ParentState, Put, PutAfter, State,
    Verdict,
};

use super::Model;
use super::batch::Fares;

impl Model {
    /// Whether all messages that a put waits for are there: no end is known here.
    pub(super) fn may_wait_for(&self, put: &Put) -> Result<(), CommandError> {
        let after = put.more.as_ref().and_then(|more| more.after.as_ref());
        for parent in after.iter().flat_map(|after| &after.parents) {
            self.message(parent.id)
                .map_err(|_| CommandError::AfterNotFound(parent.id))?;
        }
        Ok(())
    }

    /// The parents of a put, as they are.
    pub(super) fn parents_of(&self, after: PutAfter) -> After {
        let parents = after.parents.iter();
        let mut parents: Vec<Parent> = parents
            .map(|parent| Parent {
                id: parent.id,
                state: self.state_of_parent(parent.id),
            })
            .collect();
        parents.sort();
        parents.dedup();
        After {
            parents: parents.into(),
            on: after.on,
            if_failed: after.if_failed,
            due: None,
        }
    }

    fn state_of_parent(&self, id: MessageId) -> ParentState {
        // Perhaps another one took its place.
        let goes_by = |message: &&Message| message.id == id || message.awaited().contains(&id);
        let messages = self.items.iter().map(|item| &item.message);
        let Some(message) = messages.rev().find(goes_by) else {
            return match self.succeeded.contains(&id) {
                true => ParentState::Done,
                false => ParentState::Failed,
            };
        };
        let extra = message.extra.clone().unwrap_or_default();
        let mut attrs = extra.attrs.iter().map(|(name, _)| &**name);
        let is_dead = attrs.any(|name| name == b"dead_letter_reason");
        match message.state {
            State::Done | State::Relayed => ParentState::Done,
            State::Buried => ParentState::Failed,
            _ if is_dead || message.is_doomed() => ParentState::Failed,
            _ if message.is_expired(self.now) => ParentState::Failed,
            State::Prepared | State::Ready | State::Reserved => ParentState::Waiting,
        }
    }

    /// A message as it is shown.
    pub(super) fn seen(&self, message: &Message) -> Message {
        let mut shown = message.clone();
        let mut held = self.held.iter();
        if let Some((_, after)) = held.find(|(id, _)| *id == message.id) {
            shown.extra_mut().after = Some(Box::new(after.clone()));
        }
        shown
    }

    /// Ids of a message under which others wait for its end.
    pub(super) fn awaited_as(&self, message: &Message) -> Vec<MessageId> {
        let ids = message.awaited().iter().copied().chain([message.id]);
        let waits = |id: &MessageId| {
            let mut parents = self.held.iter().flat_map(|(_, after)| &after.parents);
            parents.any(|parent| parent.id == *id && parent.state == ParentState::Waiting)
        };
        ids.filter(waits).collect()
    }

    /// Whatever has ended is known to have. Who was made ready by somebody is held no more.
    pub(super) fn note_ends(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        held.retain(|(id, _)| {
            self.item(*id).is_some_and(|item| {
                let waits = matches!(item.message.state, State::Ready | State::Prepared);
                waits && item.message.due() == Some(HELD)
            })
        });
        for (_, after) in &mut held {
            for parent in &mut after.parents {
                // What was removed and lives again has ended all the same.
                if parent.state == ParentState::Waiting {
                    parent.state = self.state_of_parent(parent.id);
                }
            }
        }
        self.held = held;
    }

    /// Held messages go on, or fail, and others with them.
    pub(super) fn follow(&mut self) {
        loop {
            self.note_ends();
            let decided = self.held.iter().filter_map(|(id, after)| {
                let verdict = after.verdict()?;
                Some((*id, verdict))
            });
            let Some((id, verdict)) = decided.min_by_key(|(id, _)| *id) else {
                return;
            };
            let at = self.held.iter().position(|(other, _)| *other == id);
            let (_, after) = self.held.remove(at.expect("it was found just now"));
            let extra = self.item_mut(id).message.extra_mut();
            extra.due = after.due;
            extra.after = Some(Box::new(after));
            if let Verdict::Fail(parent) = verdict {
                self.fail_held(id, parent);
            }
        }
    }

    fn fail_held(&mut self, id: MessageId, parent: MessageId) {
        let error = format!("message {} failed, which it was to come after", parent.0);
        let message = &mut self.item_mut(id).message;
        message.state = State::Ready;
        let extra = message.extra_mut();
        extra.due = None;
        extra.failures += 1;
        extra.status = error.into_bytes().into();
        let queue = message.queue;
        self.totals(queue).failures += 1;
        self.fares(id, Fares::Failed);
        self.tell(id);
        self.dead_letter(id);
    }

    /// A new message is held, unless all it waits for has ended.
    pub(super) fn hold_after(&mut self, message: &mut Message, after: PutAfter) {
        let mut after = self.parents_of(after);
        let extra = message.extra_mut();
        if after.verdict() == Some(Verdict::Run) {
            extra.after = Some(Box::new(after));
        } else {
            after.due = extra.due.replace(HELD);
            extra.delay_ms = 0;
            self.held.push((message.id, after));
        }
    }
}
