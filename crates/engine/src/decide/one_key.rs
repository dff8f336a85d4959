//! Takes of several messages of one key.

use std::cmp::Reverse;
use std::sync::Arc;

use super::choose::{Best, Candidate, EXPIRED_PER_STEP, Walking};
use quintet_types::{End, Keys, MessageId, Ms, QueueId, Take};

use crate::engine::{Cx, Engine};
use crate::fact::Journal;
use crate::store::{KeyGroups, Store, Walk};
use crate::waiters::Waiter;

impl Engine {
    /// True if keys are ordered in one of these queues, so that no more of a key goes to a take
    /// that has not got its first message.
    pub(super) fn waits_in_vain(&self, take: &Take, queues: &[QueueId]) -> bool {
        let ordered = |&id: &QueueId| self.groups(id).is_some_and(KeyGroups::is_ordered);
        matches!(take.keys.as_deref(), Some(Keys::Of(_))) && queues.iter().any(ordered)
    }

    /// The next message of a key: the oldest of the most urgent priority. Nothing, if one in a run
    /// may stand before it.
    #[cold]
    pub(super) fn next_of_key<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        take: &Take,
        (id, key): (QueueId, &Arc<[u8]>),
        walking: Walking<'_>,
    ) -> Best {
        self.store.promote(id, self.now);
        if !self.groups_are_built(cx, id) {
            return Best::Expired((0, i64::MIN, MessageId(0)));
        }
        if self.groups(id).is_some_and(KeyGroups::is_ordered) {
            return match walking.filter(|(queue, _)| *queue == id) {
                Some((_, walk)) => self.next_of_group(cx, take, id, walk),
                None => Best::Nothing,
            };
        }
        self.store.ring_groups(id, self.now);
        loop {
            let (leased, now) = (take.lease.is_some(), self.now);
            let limited = self
                .groups(id)
                .is_some_and(|groups| groups.is_limited(&Walk::default(), key, leased, now));
            if limited || self.is_closed(take, id) {
                return Best::Nothing;
            }
            let Some(slot) = self.oldest_of_key(id, key) else {
                // None of the key may leave.
                return Best::Nothing;
            };
            let message = self.store.messages.at(slot);
            let found = Candidate {
                queue: id,
                slot,
                order: message.order(),
            };
            let behind = self.cold_rival(id, End::Oldest, None, Some(&found));
            if behind.is_some() || !self.fits_consumer(slot, take) {
                return Best::Nothing;
            }
            if !message.is_expired(now) {
                return Best::Here(found);
            }
            if cx.step.expired >= EXPIRED_PER_STEP {
                self.store.recheck(id);
                return Best::Nothing;
            }
            let expired = message.id;
            self.expire(cx, expired);
        }
    }

    /// The first of those of a key that are ready, in memory and may leave alone.
    fn oldest_of_key(&self, id: QueueId, key: &Arc<[u8]>) -> Option<u32> {
        let group = self.store.expect_queue(id).keys.get(key)?;
        let (&(not_selectable, priority, ..), _) = group.first_key_value()?;
        if not_selectable {
            return None;
        }
        let last = (false, priority, Reverse(i64::MIN), Reverse(MessageId(0)));
        let oldest = group.range(..=last).next_back();
        let (_, &slot) = oldest.expect("the first of a key is among those of its priority");
        Some(slot)
    }
}

/// True if a consumer waits for a key of which nothing is ready in memory.
pub(super) fn lacks_key(store: &mut Store, waiter: &Waiter, now: Ms) -> bool {
    let (Some(Keys::Of(key)), [id]) = (waiter.take.keys.as_deref(), &*waiter.queues) else {
        // It waits for other keys, or in several queues.
        return false;
    };
    store.promote(*id, now);
    !store.expect_queue(*id).keys.contains_key(key)
}
