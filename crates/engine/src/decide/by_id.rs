//! Leases of messages by their ids.

use smallvec::SmallVec;

use super::Cold;
use super::lease::is_over;
use quintet_types::{Answer, Hold, LeaseAsk, MessageId, Outcome, Party, Refusal, State};

use crate::engine::{Engine, Space};
use crate::fact::Journal;
use crate::step::Cx;
use crate::store::Safe;

impl Engine {
    pub(crate) fn reserve_id<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        party: Party,
        id: MessageId,
        ask: LeaseAsk,
    ) -> Result<Answer, Cold> {
        let refused = |refusal| Ok(Answer::Now(Outcome::Refused(refusal), Hold::Durable));
        if self.space == Space::NoTakes {
            return refused(Refusal::NoSpace);
        }
        let Some(slot) = self.look_up(id)? else {
            return refused(Refusal::NotFound);
        };
        let message = self.store.messages.at(slot);
        if message.is_expired(self.now) {
            self.expire(cx, id);
            return refused(Refusal::NotFound);
        }
        if !matches!(message.state, State::Ready | State::Buried) {
            return refused(Refusal::NotFound);
        }
        if !self.may_lease_by_id(cx, slot)? {
            return refused(Refusal::NotFound);
        }
        let message = self.store.messages.at(slot);
        if let Some(queue) = self.store.queue(message.queue) {
            if queue.live.settings.down {
                return refused(Refusal::QueueDown);
            }
            let max = ask.held_max as usize;
            if max > 0 && self.held_in(party, &queue.name).count() >= max {
                return refused(Refusal::HeldLimit);
            }
        }
        let message = self.hand(cx, party, slot, Some(&ask));
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
            (true, Safe::Ask) => Err(self.ask_for_group(slot)),
        }
    }
}
