//! Cancelling messages, also those that somebody works on.

use super::Stop;
use quintet_types::{
    ByName, Cancel, Cancelled, CommandError, ERROR_BYTES_MAX, Message, MessageId, Outcome, Removal,
    State, TrackState, cut,
};

use crate::engine::{Cx, Engine};
use crate::fact::{Change, Fact, Journal};

impl Engine {
    pub(crate) fn cancel<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        id: MessageId,
        cancel: &Cancel,
    ) -> Result<Outcome, Stop> {
        let slot = self.found(id)?;
        let message = self.store.messages.at(slot);
        let queue = message.queue;
        if message.is_expired(self.now) {
            self.expire(cx, id);
            return Err(CommandError::NotFound.into());
        }
        self.may_cancel(message)?;
        self.cancel_one(cx, id, cancel);
        cx.wake(queue);
        Ok(Outcome::Done)
    }

    /// The tracked message of this name that was put last, which nobody holds.
    pub(super) fn cancel_tracked<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        by_name: &ByName,
        cancel: &Cancel,
    ) -> Result<Outcome, Stop> {
        let requester = cx.call().caller.principal;
        let (id, track) = self.track_named(requester, by_name, by_name.action.verb())?;
        match (self.look_up(id)?, track.state) {
            (Some(_), _) => self.cancel(cx, id, cancel),
            (None, TrackState::Cancelled) => Err(CommandError::AlreadyCancelled.into()),
            (None, TrackState::Done) => Err(CommandError::AlreadyDone.into()),
            (None, _) => Err(CommandError::NotFound.into()),
        }
    }

    pub(super) fn may_cancel(&self, message: &Message) -> Result<(), CommandError> {
        match message.state {
            State::Done | State::Relayed => Err(CommandError::AlreadyDone),
            _ if message.cancelled().is_some() => Err(CommandError::AlreadyCancelled),
            State::Prepared | State::Ready | State::Reserved | State::Buried => Ok(()),
        }
    }

    /// Cancels a message that may be.
    pub(super) fn cancel_one<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        id: MessageId,
        cancel: &Cancel,
    ) {
        let message = self.store.message(id);
        let message = message.expect("a message that may be cancelled is there");
        let (at, now) = (message.at(), self.now);
        // Nobody works on a message that waits for a hook.
        let works = message.state == State::Reserved && !self.pending.contains_key(&id);
        let waits = works && cancel.grace_ms > 0;
        // Clients that are notified get the reason from the message.
        let notifies = message.is_tracked() || message.reply_to().is_some();
        if waits || notifies || self.awaits.waits.has(id) || self.lease_waits.waits.has(id) {
            let reason = &cancel.reason;
            let cancelled = Some(Box::new(Cancelled {
                until: self.after(cancel.grace_ms),
                reason: cut(reason, ERROR_BYTES_MAX).into(),
            }));
            let change = Box::new(Change {
                now,
                cancelled,
                ..Change::default()
            });
            self.fact(cx, Fact::Edited { at, change });
        }
        if !waits {
            let why = Removal::Cancelled;
            self.fact(cx, Fact::Removed { at, why });
        }
    }

    /// The lease of a message ends. True: the message is cancelled, so it is gone.
    pub(crate) fn end_cancelled<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: MessageId) -> bool {
        let message = self.store.message(id);
        let Some(message) = message.filter(|message| message.cancelled().is_some()) else {
            // Nobody cancelled it, or it is gone.
            return false;
        };
        let (at, why) = (message.at(), Removal::Cancelled);
        self.fact(cx, Fact::Removed { at, why });
        true
    }

    /// The answer to the holder of a lease.
    pub(super) fn done_to_held(&self, id: MessageId) -> Outcome {
        match self.store.message(id).and_then(Message::cancelled) {
            Some(_) => Outcome::Cancelled,
            None => Outcome::Done,
        }
    }
}
