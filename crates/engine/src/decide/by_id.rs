//! Leases of messages by their ids.

use smallvec::SmallVec;

use super::Cold;
use super::lease::is_over;
use quintet_types::{
    Answer, ClientId, CommandError, Hold, LeaseRequest, MessageId, Outcome, State,
};

use crate::engine::{Engine, Space};
use crate::fact::Journal;
use crate::step::Cx;
use crate::store::Safe;

impl Engine {
    pub(crate) fn reserve_id<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        client_id: ClientId,
        id: MessageId,
        ask: LeaseRequest,
    ) -> Result<Answer, Cold> {
        let refused =
            |command_error| Ok(Answer::Now(Outcome::Refused(command_error), Hold::Durable));
        if self.space == Space::NoTakes {
            return refused(CommandError::NoSpace);
        }
        let Some(slot) = self.look_up(id)? else {
            // It is gone, or the client made up its id.
            return refused(CommandError::NotFound);
        };
        let message = self.store.messages.at(slot);
        if message.is_expired(self.now) {
            self.expire(cx, id);
            return refused(CommandError::NotFound);
        }
        if !matches!(message.state, State::Ready | State::Buried) {
            return refused(CommandError::NotFound);
        }
        if !self.may_lease_by_id(cx, slot)? {
            return refused(CommandError::NotFound);
        }
        let message = self.store.messages.at(slot);
        let queue = self.store.expect_queue(message.queue);
        if queue.live.settings.down {
            return refused(CommandError::QueueDown);
        }
        let max = ask.held_max as usize;
        if max > 0 && self.held_in(client_id, &queue.name).count() >= max {
            return refused(CommandError::HeldLimit);
        }
        let message = self.hand(cx, client_id, slot, Some(&ask));
        if is_over(&ask, message.ttr_ms) {
            self.end_over(cx, &ask, std::slice::from_ref(&message));
        }
        let outcome = Outcome::Messages(SmallVec::from_iter([message]));
        Ok(Answer::Now(outcome, Hold::Written(id)))
    }

    /// True if a lease of this message by its id keeps what its queue promises:
    /// of a group in order only the first may be.
    pub(super) fn may_lease_by_id<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        slot: u32,
    ) -> Result<bool, Cold> {
        let id = self.store.messages.at(slot).queue;
        if !self.groups_are_built(cx, id) {
            return Err(self.ask_again());
        }
        let message = self.store.messages.at(slot);
        let Some(groups) = self.groups(id).filter(|groups| groups.is_ordered()) else {
            // By the settings its group has no order.
            return Ok(true);
        };
        // One that is buried stands in no group.
        if message.state != State::Ready || message.key().is_none() {
            return Ok(true);
        }
        match (groups.is_head(message), groups.is_safe(message)) {
            (false, _) => Ok(false),
            (true, Safe::Yes) => Ok(true),
            (true, Safe::Read(block)) => Err(self.ask_block(block)),
            (true, Safe::LookUp) => Err(self.ask_for_group(slot)),
        }
    }
}
