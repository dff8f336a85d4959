//! Which message a take gets.

use std::ops::Bound as Edge;

use smallvec::SmallVec;

use super::Cold;
use quintet_types::{End, Keys, MessageId, Order, Pick, QueueId, StateIndex, Take};

use crate::cold::BlockAt;
use crate::engine::{Cx, Engine};
use crate::fact::Journal;
use crate::store::Walk;

/// Expired messages one step removes at most, on the way of takes and before
/// and after them. A take behind more of them goes on in the next tick.
pub(super) const EXPIRED_PER_STEP: usize = 1024;

/// True if a take from this end prefers what stands at `a`.
fn is_better(end: End, a: Order, b: Order) -> bool {
    use std::cmp::Reverse;
    match end {
        End::Oldest => a < b,
        End::Newest => (a.0, Reverse((a.1, a.2))) < (b.0, Reverse((b.1, b.2))),
    }
}

/// A message that could be taken.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    pub(super) queue: QueueId,
    pub(super) slot: u32,
    pub(super) order: (u32, i64, MessageId),
}

/// The best a take could get.
pub(super) enum Best {
    Nothing,
    Here(Candidate),
    /// Perhaps something in this block of a run, which must be read to know.
    Cold(Order, QueueId, BlockAt),
    /// Perhaps something behind those that have expired, or in a queue whose
    /// groups are not built yet.
    Expired(Order),
    /// Perhaps one that stands before this one of its group, in an open block.
    LookUp(Order, u32),
}

impl Best {
    fn order(&self) -> Option<Order> {
        match self {
            Best::Nothing => None,
            Best::Here(found) => Some(found.order),
            Best::Cold(order, ..) | Best::Expired(order) | Best::LookUp(order, _) => Some(*order),
        }
    }
}

/// How far a queue was walked along.
pub(super) struct Walked {
    pub(super) queue: QueueId,
    /// The last one that was seen there.
    pub(super) last: MessageId,
    /// Messages that would leave by then.
    pub(super) count: u64,
    /// The same where it has message groups.
    pub(super) walk: Walk,
}

impl Walked {
    /// The beginning of a queue.
    pub(super) fn new(queue: QueueId) -> Self {
        Self {
            queue,
            last: MessageId(0),
            count: 0,
            walk: Walk::default(),
        }
    }
}

/// How far a take of several has come, and in which queue.
pub(super) type Walking<'a> = Option<(QueueId, &'a Walk)>;

impl Engine {
    /// The same without what is not known yet.
    // Into takes: measured.
    #[inline(always)]
    pub(super) fn settled(&mut self, best: Best) -> Result<Option<Candidate>, Cold> {
        match best {
            Best::Nothing => Ok(None),
            Best::Here(found) => Ok(Some(found)),
            Best::Cold(_, queue, block) => Err(self.ask_for_consumer(queue, block)),
            Best::LookUp(_, slot) => Err(self.ask_for_group(slot)),
            Best::Expired(_) => Err(self.ask_again()),
        }
    }

    /// The best message over all the queues.
    #[inline(never)]
    pub(super) fn best<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        take: &Take,
        queues: &[QueueId],
        after: Option<MessageId>,
        walking: Walking<'_>,
    ) -> Best {
        if let Some(Keys::Of(key)) = take.keys.as_deref() {
            return match queues {
                [queue] => self.next_of_key(cx, take, (*queue, key), walking),
                _ => Best::Nothing,
            };
        }
        if let Some((queue, walk)) = walking {
            // What it began with comes first.
            let found = self.next_of_group(cx, take, queue, walk);
            if !matches!(found, Best::Nothing) {
                return found;
            }
        }
        let (mut best, mut first) = (Best::Nothing, None);
        for &queue in queues {
            let found = self.candidate(cx, take, queue, after, walking);
            let Some(order) = found.order() else {
                // Nothing in it for this take.
                continue;
            };
            if let [_] = queues {
                return found;
            }
            let order = self.risen(queue, order);
            if first
                .is_none_or(|first| take.pick == Pick::Best && is_better(take.end, order, first))
            {
                (best, first) = (found, Some(order));
            }
        }
        best
    }

    /// The best message of those that stand behind `seen` in its queue, as if those were handed
    /// out.
    pub(super) fn best_behind<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        take: &Take,
        queues: &[QueueId],
        seen: &[Walked],
    ) -> Best {
        let (mut best, mut first) = (Best::Nothing, None);
        for &queue in queues {
            let walked = seen.iter().find(|walked| walked.queue == queue);
            if let Some(walked) = walked.filter(|_| !take.peek) {
                let (count, leased) = (walked.count, take.lease.is_some());
                let queue = self.store.expect_queue(queue);
                if queue.is_limited_after(self.now, count, leased) {
                    continue;
                }
            }
            let walking = walked.map(|walked| (queue, &walked.walk));
            if let Some((queue, walk)) = walking {
                let found = self.next_of_group(cx, take, queue, walk);
                if !matches!(found, Best::Nothing) {
                    return found;
                }
            }
            let last = walked.map(|walked| walked.last);
            let found = self.candidate(cx, take, queue, last, walking);
            let Some(order) = found.order() else {
                // Nothing more in it for this take.
                continue;
            };
            let order = self.risen(queue, order);
            if first
                .is_none_or(|first| take.pick == Pick::Best && is_better(take.end, order, first))
            {
                (best, first) = (found, Some(order));
            }
        }
        best
    }

    /// The message of one queue that this take would get. Removes expired ones
    /// on the way.
    // Into `best`, which nearly every take calls once: measured.
    #[inline(always)]
    fn candidate<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        take: &Take,
        id: QueueId,
        after: Option<MessageId>,
        walking: Walking<'_>,
    ) -> Best {
        self.store.promote(id, self.now);
        if self.store.expect_queue(id).groups.is_some() {
            return self.candidate_of_groups(cx, take, id, after, walking);
        }
        self.candidate_in_order(cx, take, id, after)
    }

    /// The same where keys mean nothing to this take.
    #[inline(always)]
    pub(super) fn candidate_in_order<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        take: &Take,
        id: QueueId,
        after: Option<MessageId>,
    ) -> Best {
        loop {
            let queue = self.store.expect_queue(id);
            let limited = !take.peek && queue.is_limited(self.now);
            if queue.live.settings.down || limited || queue.is_paused(self.now) {
                return Best::Nothing;
            }
            let mut skipped = 0;
            let found = match take.end {
                End::Oldest => self.oldest(id, take, after, &mut skipped),
                End::Newest => self.newest(id, take, after, &mut skipped),
            };
            if skipped > 0 {
                self.count_live(id, |totals| totals.skipped += skipped);
            }
            let end = take.end;
            if let Some((order, block)) = self.cold_rival(id, end, after, found.as_ref()) {
                return Best::Cold(order, id, block);
            }
            let Some(found) = found else {
                // Nothing in it for this take.
                return Best::Nothing;
            };
            let message = self.store.messages.at(found.slot);
            if !message.is_expired(self.now) {
                return Best::Here(found);
            }
            if cx.step.expired >= EXPIRED_PER_STEP {
                self.store.recheck(id);
                return Best::Expired(found.order);
            }
            let message = message.id;
            self.expire(cx, message);
        }
    }

    /// A block of a run that may hold something better than what was found in
    /// memory.
    pub(super) fn cold_rival(
        &self,
        id: QueueId,
        end: End,
        after: Option<MessageId>,
        found: Option<&Candidate>,
    ) -> Option<(Order, BlockAt)> {
        let queue = self.store.expect_queue(id);
        let cold = queue.cold.as_ref()?;
        // A delayed one that is due by now may be more urgent than all.
        if let Some(((_, due, _), block)) = cold.first(StateIndex::Delayed)
            && due <= i64::try_from(self.now.0).unwrap_or(i64::MAX)
        {
            let most = match end {
                End::Oldest => (0, i64::MIN, MessageId(0)),
                End::Newest => (0, i64::MAX, MessageId(u64::MAX)),
            };
            return Some((most, block));
        }
        let best = found.map(|found| found.order);
        match end {
            End::Oldest => {
                let seen = after.and_then(|after| self.store.message(after));
                let seen = seen.filter(|message| message.queue == id);
                let after = seen.map(|message| StateIndex::Ready.order(message));
                let (order, block) = self.store.next_cold(id, StateIndex::Ready, after)?;
                best.is_none_or(|best| order < best)
                    .then_some((order, block))
            }
            End::Newest => {
                let ((priority, ..), _) = cold.first(StateIndex::Ready)?;
                if best.is_some_and(|(best, ..)| best < priority) {
                    return None;
                }
                let (order, block) = cold.newest_of(priority)?;
                best.is_none_or(|best| is_better(end, order, best))
                    .then_some((order, block))
            }
        }
    }

    fn oldest(
        &self,
        id: QueueId,
        take: &Take,
        after: Option<MessageId>,
        skipped: &mut u64,
    ) -> Option<Candidate> {
        let queue = self.store.expect_queue(id);
        let from = match after.and_then(|after| self.store.message(after)) {
            Some(m) if m.queue == id => Edge::Excluded(m.order()),
            _ => Edge::Unbounded,
        };
        for (order, &slot) in queue.ready.range((from, Edge::Unbounded)) {
            if self.fits_consumer(slot, take) {
                return Some(Candidate {
                    queue: id,
                    slot,
                    order,
                });
            }
            *skipped += 1;
        }
        None
    }

    fn newest(
        &self,
        id: QueueId,
        take: &Take,
        after: Option<MessageId>,
        skipped: &mut u64,
    ) -> Option<Candidate> {
        let queue = self.store.expect_queue(id);
        let mut below = after
            .and_then(|after| self.store.message(after))
            .filter(|m| m.queue == id)
            .map(quintet_types::Message::order);
        let mut from = match below {
            Some((priority, ..)) => Edge::Included((priority, i64::MIN, MessageId(0))),
            None => Edge::Unbounded,
        };
        loop {
            let ((priority, ..), _) = queue.ready.range((from, Edge::Unbounded)).next()?;
            let last = (priority, i64::MAX, MessageId(u64::MAX));
            let end = match below.take() {
                Some(seen) if seen.0 == priority => Edge::Excluded(seen),
                _ => Edge::Included(last),
            };
            let state_index = (Edge::Included((priority, i64::MIN, MessageId(0))), end);
            for (order, &slot) in queue.ready.range_back(state_index) {
                if self.fits_consumer(slot, take) {
                    return Some(Candidate {
                        queue: id,
                        slot,
                        order,
                    });
                }
                *skipped += 1;
            }
            from = Edge::Excluded(last);
        }
    }

    /// True if the consumer's protocol can frame the message.
    pub(super) fn fits_consumer(&self, slot: u32, take: &Take) -> bool {
        take.body_max
            .is_none_or(|max| self.store.messages.at(slot).body.len() <= max)
    }

    /// The message and its companions, in the order they leave.
    pub(super) fn group_of(&self, best: &Candidate, take: &Take) -> SmallVec<[u32; 1]> {
        let mut slots = SmallVec::from_buf([best.slot]);
        let Some(limit) = take.group else {
            // The client takes none with it.
            return slots;
        };
        let message = self.store.messages.at(best.slot);
        let Some(key) = message.key() else {
            // Of no group.
            return slots;
        };
        let queue = self.store.expect_queue(best.queue);
        if let Some(groups) = queue.groups.as_ref().filter(|g| g.is_ordered()) {
            return self.ordered_companions(groups, slots, limit, take);
        }
        let group = queue.keys.get(key);
        let group = group.expect("a ready message with a key is in its group");
        let mut bytes = message.body.len() + key.len() as u64;
        for &slot in group.values() {
            if slots.len() as u64 >= u64::from(limit.messages_max) {
                break;
            }
            let other = self.store.messages.at(slot);
            if slot == best.slot || other.is_expired(self.now) || !self.fits_consumer(slot, take) {
                continue;
            }
            bytes += other.body.len() + key.len() as u64;
            if bytes > limit.bytes_max {
                break;
            }
            slots.push(slot);
        }
        slots
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fact::Fact;
    use crate::store::damaged::fires;
    use quintet_types::{At, Body, Extra, GroupLimit, Message, Ms, Settings, State};

    #[test]
    fn a_message_to_be_taken_that_is_not_ready_is_noticed() {
        let mut engine = Engine::new(0, 1, Settings::default());
        let (id, mut facts) = (MessageId(1), Vec::new());
        let at = At {
            id,
            ..At::default()
        };
        let made = Fact::QueueMade {
            queue: at.queue,
            name: "q".into(),
            parent: None,
            created: Ms(1),
        };
        engine.note(&mut facts, made);
        let mut message = Message::new(at, Ms(1), Body::new(b"body"));
        message.state = State::Buried;
        message.extra = Some(Box::new(Extra {
            key: Some(Arc::from(*b"key")),
            ..Extra::default()
        }));
        engine.note(&mut facts, Fact::Put(message));
        let best = Candidate {
            queue: at.queue,
            slot: engine.store.slot(id).expect("it was put"),
            order: (at.priority, at.position, id),
        };
        let take = Take {
            group: Some(GroupLimit {
                messages_max: 2,
                bytes_max: 100,
            }),
            ..Take::default()
        };
        fires("a ready message with a key is in its group", || {
            drop(engine.group_of(&best, &take));
        });
    }
}
