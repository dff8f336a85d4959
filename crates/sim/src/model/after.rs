//! Held messages: a line for each, with its parents as they are known to be.

use quintet_types::{
    After, CommandError, HELD, Message, MessageId, Ms, Parent, ParentState, Put, PutAfter, State,
    Verdict,
};

use super::Model;
use super::batch::Fares;

impl Model {
    /// Whether all messages that a put waits for are there: no end is known here.
    pub(super) fn may_wait_for(&self, put: &Put) -> Result<(), CommandError> {
        let after = put.more.as_ref().and_then(|more| more.after.as_ref());
        if self.is_repeat(put) {
            return Ok(());
        }
        for &id in after.iter().flat_map(|after| &after.ids) {
            self.message(id)
                .map_err(|_| CommandError::AfterNotFound(id))?;
        }
        Ok(())
    }

    /// The parents of a put, as they are.
    pub(super) fn parents_of(&self, after: PutAfter) -> After {
        let parents = after.ids.iter().map(|&id| Parent {
            id,
            state: self.state_of_parent(id),
        });
        let mut parents: Vec<Parent> = parents.collect();
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
        let Some(message) = self.item(id).map(|item| &item.message) else {
            return match self.succeeded.contains(&id) {
                true => ParentState::Done,
                false => ParentState::Failed,
            };
        };
        match message.state {
            State::Done | State::Relayed => ParentState::Done,
            State::Buried => ParentState::Failed,
            _ if message.is_doomed() || message.is_expired(self.now) => ParentState::Failed,
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

    /// A message that became a dead letter has ended, though it lives on.
    pub(super) fn dies(&mut self, id: MessageId) {
        let parents = self
            .held
            .iter_mut()
            .flat_map(|(_, after)| &mut after.parents);
        for parent in parents.filter(|parent| parent.id == id) {
            if parent.state == ParentState::Waiting {
                parent.state = ParentState::Failed;
            }
        }
    }

    /// A held message is due at another time once it is held no more; true: it is held.
    pub(super) fn is_due_later(&mut self, id: MessageId, due: Option<Ms>) -> bool {
        let held = self.held.iter_mut().find(|(held, _)| *held == id);
        held.map(|(_, after)| after.due = due).is_some()
    }

    /// Ends are known at once. A message that somebody made ready is held no more.
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
                // A prepared one waits for its commit as well.
                let item = self.item(*id)?;
                (item.message.state != State::Prepared).then_some((*id, verdict))
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
        let error = format!(
            "message {} failed, and this one waited for its success",
            parent.0
        );
        let message = &mut self.item_mut(id).message;
        message.state = State::Ready;
        let extra = message.extra_mut();
        extra.due = None;
        extra.failures += 1;
        extra.status = error.into_bytes().into();
        let queue = message.queue;
        self.totals(queue).failures += 1;
        self.fares(id, Fares::Failed);
        self.notify(id);
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
