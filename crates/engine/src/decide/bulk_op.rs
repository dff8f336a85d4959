//! Looking through many messages, and what is done to those that fit.

use std::ops::Bound as Edge;

use super::cold::{Cold, Stop};
use super::settle::deleted_by;
use quintet_types::{
    BulkAction, BulkDone, BulkOp, CommandError, Cursor, ListState, Message, MessageId, Name,
    Outcome, QueueId, Removal, State, StateIndex, Transfer, Verb,
};

use crate::engine::{Cx, Engine};
use crate::fact::{Fact, Journal};

/// Messages looked at in one step: some hundred us.
const LOOKS: usize = 1024;
/// Those looked at in one step from the last on, where not all fit: mostly the next one does.
const LOOKS_BACK: usize = 64;
/// Bytes of messages that are searched, or shown, in one step, but for the last.
const BODY_BYTES: u64 = 1 << 20;

impl Engine {
    pub(crate) fn bulk_op<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        bulk_op: &BulkOp,
    ) -> Result<Outcome, Stop> {
        let queue = self.existing(&bulk_op.queue)?;
        self.store.promote(queue, self.now);
        let mut done = BulkDone::default();
        let purges = bulk_op.action == BulkAction::Purge && bulk_op.after.is_none();
        if !bulk_op.action.is_for(bulk_op.state) || (bulk_op.max == 0 && !purges) {
            return Ok(Outcome::BulkDone(Box::new(done)));
        }
        // Where nearly all fit, more than are wanted are not gone through.
        let wanted = usize::try_from(bulk_op.max).unwrap_or(LOOKS);
        let back = bulk_op.action == BulkAction::ShowBack;
        let limit = match bulk_op.filter.picks() {
            true if back => wanted.clamp(LOOKS_BACK, LOOKS),
            true => LOOKS,
            false => LOOKS.min(wanted),
        };
        let slots = match back {
            true => self.slots_before(queue, bulk_op.state, bulk_op.after, limit)?,
            false => self.slots_behind(queue, bulk_op.state, bulk_op.after, limit)?,
        };
        // Where they go is found good before the first goes.
        if let Some(to) = bulk_op.action.goes_to()
            && !self.belongs_elsewhere(to)
        {
            let to = match bulk_op.action.must_exist() {
                true => self.existing(to)?,
                false => self.find_or_make_ours(to)?,
            };
            if to == queue {
                return Ok(Outcome::BulkDone(Box::new(done)));
            }
        }
        if purges {
            self.forget_repeats(cx, queue);
        }
        let ends_here = slots.len() < limit;
        let (mut bytes, mut last, mut whole) = (0, None, true);
        for slot in slots {
            if done.matched >= u64::from(bulk_op.max) || bytes >= BODY_BYTES {
                whole = false;
                break;
            }
            let message = self.store.messages.at(slot);
            last = Some(cursor_of(bulk_op.state, message));
            done.examined += 1;
            if bulk_op.filter.body.is_some() {
                bytes += message.body.as_small().map_or(0, <[u8]>::len) as u64;
            }
            if message.is_expired(self.now) || !bulk_op.filter.fits(message, self.now) {
                continue;
            }
            let id = message.id;
            if matches!(bulk_op.action, BulkAction::Show | BulkAction::ShowBack) {
                bytes += message.body.as_small().map_or(0, <[u8]>::len) as u64;
                bytes += message.extra_bytes();
            }
            if self.bulk_op_one(cx, id, &bulk_op.action, &mut done) {
                done.matched += 1;
            }
        }
        if let Some(to) = bulk_op.action.goes_to()
            && let Some(to) = self.store.find(to)
        {
            self.forget_unused(to);
        }
        let ended = whole && ends_here;
        done.next = last.filter(|_| !ended);
        Ok(Outcome::BulkDone(Box::new(done)))
    }

    /// Does it to one message; false: it is not one of those.
    fn bulk_op_one<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        id: MessageId,
        action: &BulkAction,
        done: &mut BulkDone,
    ) -> bool {
        let Some(message) = self.store.message(id) else {
            // A damaged log may name it twice.
            return false;
        };
        let at = message.at();
        match action {
            BulkAction::Count => {}
            BulkAction::CountToCancel => return self.may_cancel(message).is_ok(),
            BulkAction::Show | BulkAction::ShowBack => {
                let message = self.shown(message);
                let slot = self.store.slot(id);
                let lease = slot.and_then(|slot| self.store.leases.get(&slot).copied());
                done.leases.extend(lease);
                done.messages.push(message);
            }
            BulkAction::Delete | BulkAction::Purge => {
                let why = deleted_by(message.state, Removal::Purged);
                self.fact(cx, Fact::Removed { at, why });
            }
            BulkAction::Cancel(cancel) => {
                if self.may_cancel(message).is_err() {
                    return false;
                }
                self.cancel_one(cx, id, cancel);
                cx.wake(at.queue);
            }
            BulkAction::Kick => {
                self.fact(cx, Fact::Kicked { at });
                cx.wake(at.queue);
            }
            BulkAction::Move(to) if self.belongs_elsewhere(to) => {
                self.send(cx, id, to.clone(), Transfer::Command);
            }
            BulkAction::Move(to) => {
                let to = self.find_or_make_ours(to);
                return to.is_ok_and(|to| {
                    self.transfer(cx, id, to, Transfer::Command);
                    true
                });
            }
            BulkAction::Redrive { .. } | BulkAction::RedriveInto(_) => {
                return self.redrive(cx, id, action.goes_to());
            }
        }
        true
    }

    pub(crate) fn redrive_one<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        id: MessageId,
    ) -> Result<Outcome, Stop> {
        let slot = self.found(id)?;
        let message = self.store.messages.at(slot);
        let stays = matches!(message.state, State::Reserved | State::Prepared);
        if stays || message.is_expired(self.now) || !self.redrive(cx, id, None) {
            return Err(CommandError::NotFound.into());
        }
        Ok(Outcome::Done)
    }

    /// Sends a dead letter back to where it came from, or to `to`.
    fn redrive<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        id: MessageId,
        to: Option<&Name>,
    ) -> bool {
        let message = self.store.message(id);
        let message = message.expect("a dead letter was found before it is sent back");
        let (from, own) = (message.queue, message.came_from());
        let Some(to) = to.cloned().or(own) else {
            // It came from no other queue.
            return false;
        };
        if !to.is_possible() || !self.may(cx.call().caller.principal, Verb::Put, &to) {
            return false;
        }
        if self.belongs_elsewhere(&to) {
            self.send(cx, id, to, Transfer::Redriven);
            return true;
        }
        match self.find_or_make_ours(&to) {
            Ok(to) if to != from => {
                self.transfer(cx, id, to, Transfer::Redriven);
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// Slots of the first `max` messages in one state behind a place.
    fn slots_behind(
        &mut self,
        id: QueueId,
        state: ListState,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<Vec<u32>, Cold> {
        let order = after.map(|after| after.order);
        let state_index = match state {
            ListState::Ready if after.is_some_and(|after| after.not_selectable) => {
                StateIndex::NotSelectable
            }
            ListState::Ready => {
                let mut slots = self.state_index(id, StateIndex::Ready, order, max)?;
                assert!(
                    slots.len() <= max,
                    "no more of a state index is shown than was asked for"
                );
                let left = max - slots.len();
                if left > 0 {
                    slots.extend(self.state_index(id, StateIndex::NotSelectable, None, left)?);
                }
                return Ok(slots);
            }
            ListState::Delayed => StateIndex::Delayed,
            ListState::Buried => StateIndex::Buried,
            ListState::Archived => StateIndex::Archived,
            ListState::Reserved | ListState::Prepared => {
                let queue = self.store.expect_queue(id);
                let map = match state == ListState::Reserved {
                    true => &queue.reserved,
                    false => &queue.prepared,
                };
                let from = order.map_or(Edge::Unbounded, |(_, _, id)| Edge::Excluded(id));
                let slots = map.range((from, Edge::Unbounded)).take(max);
                return Ok(slots.map(|(_, &slot)| slot).collect());
            }
        };
        self.state_index(id, state_index, order, max)
    }

    /// Slots of the last `max` messages in one state before a place, from the last on.
    fn slots_before(
        &mut self,
        id: QueueId,
        state: ListState,
        before: Option<Cursor>,
        max: usize,
    ) -> Result<Vec<u32>, Cold> {
        let not_selectable = before.is_some_and(|before| before.not_selectable);
        let state_index = match state == ListState::Buried {
            true => StateIndex::Buried,
            false if not_selectable => StateIndex::NotSelectable,
            false => StateIndex::Ready,
        };
        let before = before.map(|before| before.order);
        self.state_index_back(id, state_index, before, max)
    }
}

/// Where a message that is listed under `state` stands.
fn cursor_of(state: ListState, message: &Message) -> Cursor {
    let not_selectable = state == ListState::Ready && !message.selectable;
    let order = match state {
        ListState::Ready => StateIndex::Ready.order(message),
        ListState::Delayed => StateIndex::Delayed.order(message),
        ListState::Buried => StateIndex::Buried.order(message),
        ListState::Archived => StateIndex::Archived.order(message),
        ListState::Reserved | ListState::Prepared => (0, 0, message.id),
    };
    Cursor {
        not_selectable,
        order,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::damaged::fires;
    use quintet_types::Settings;

    #[test]
    fn a_dead_letter_that_is_gone_too_soon_is_noticed() {
        let mut engine = Engine::new(0, 1, Settings::default());
        let (mut facts, mut deliveries, mut step) = Default::default();
        let mut cx: Cx<'_, Vec<Fact>> = Cx::new(&mut facts, &mut deliveries, &mut step);
        fires("a dead letter was found before it is sent back", || {
            _ = engine.redrive(&mut cx, MessageId(1), None);
        });
    }
}
