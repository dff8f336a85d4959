//! Room for puts: limits of a queue, and who makes way in a full one.

use std::collections::BTreeMap;
use std::ops::{Bound as Edge, ControlFlow};

use super::cold::{Cold, MANY};
use quintet_types::{
    CommandError, Message, MessageId, Ms, Order, Put, QueueId, Removal, StateIndex, WhenFull,
};

use crate::cold::BlockAt;
use crate::engine::{Cx, Engine};
use crate::fact::{Fact, Journal};
use crate::store::Queue;

/// The message that makes way for a put.
enum Victim {
    Nobody,
    Here(MessageId),
    /// Perhaps one in this block of a run.
    Cold(BlockAt),
}

impl Victim {
    fn first(here: Option<Order>, cold: Option<(Order, BlockAt)>) -> Self {
        match (here, cold) {
            (here, Some((bound, block))) if here.is_none_or(|here| bound < here) => {
                Victim::Cold(block)
            }
            (Some((_, _, id)), _) => Victim::Here(id),
            (None, _) => Victim::Nobody,
        }
    }
}

/// How much of a full queue must go.
struct Excess {
    count: u64,
    bytes: u64,
    /// Messages that may still be examined.
    budget: usize,
}

impl Excess {
    /// The limit that `count` more messages with `bytes` bytes would exceed.
    fn of(queue: &Queue, count: u64, bytes: u64) -> Self {
        let settings = &queue.live.settings;
        let over = |max: u64, sum: u64| match max {
            0 => 0,
            max => sum.saturating_sub(max),
        };
        Self {
            count: over(settings.messages_max, queue.waiting() + count),
            bytes: over(settings.bytes_max, queue.all_waiting_bytes() + bytes),
            budget: MANY,
        }
    }

    fn is_over(&self) -> bool {
        self.count == 0 && self.bytes == 0 || self.budget == 0
    }

    /// Lets those in memory go, in the order in which they make way, each with
    /// its bytes. Broken off: nothing has to be read, or this
    /// block, as one in it may go before the next one here.
    fn walk(
        &mut self,
        here: impl Iterator<Item = (Order, u64)>,
        stored: Option<(Order, BlockAt)>,
        goes_before: impl Fn(Order, Order) -> bool,
    ) -> ControlFlow<Option<BlockAt>> {
        for (order, bytes) in here {
            if self.is_over() {
                return ControlFlow::Break(None);
            }
            if let Some((bound, block)) = stored
                && goes_before(bound, order)
            {
                return ControlFlow::Break(Some(block));
            }
            self.less(bytes);
        }
        match stored {
            _ if self.is_over() => ControlFlow::Break(None),
            Some((_, block)) => ControlFlow::Break(Some(block)),
            None => ControlFlow::Continue(()),
        }
    }

    /// A body of so many bytes goes.
    fn less(&mut self, bytes: u64) {
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        assert!(self.budget > 0, "no more make way than a step may remove");
        self.budget -= 1;
    }
}

impl Engine {
    pub(super) fn is_fanout_only(&self, queue: QueueId) -> bool {
        self.store
            .queue(queue)
            .is_some_and(|queue| queue.live.settings.fanout_only)
    }

    /// True if `count` more messages with `bytes` bytes are within the limits.
    pub(super) fn fits(&self, id: QueueId, count: u64, bytes: u64) -> bool {
        let queue = self.store.expect_queue(id);
        let settings = &queue.live.settings;
        (settings.messages_max == 0 || queue.waiting() + count <= settings.messages_max)
            && (settings.bytes_max == 0 || queue.all_waiting_bytes() + bytes <= settings.bytes_max)
    }

    /// True if older messages of a full queue make way for one of `bytes`.
    pub(super) fn may_drop_for(&self, queue: QueueId, bytes: u64) -> bool {
        self.store.queue(queue).is_some_and(|queue| {
            let settings = &queue.live.settings;
            // Where messages age, the oldest are no longer those that stand last.
            settings.when_full == WhenFull::DropOldest
                && !queue.ages()
                && (settings.bytes_max == 0 || bytes <= settings.bytes_max)
        })
    }

    /// Drops older messages of a full queue that may do so, [`quintet_types::MESSAGES_PER_STEP`] at
    /// most in one step: a queue that is far over its limit takes the put and shrinks.
    ///
    /// # Errors
    /// The message does not fit.
    pub(super) fn make_room<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        id: QueueId,
        bytes: u64,
    ) -> Result<(), CommandError> {
        if self.fits(id, 1, bytes) {
            return Ok(());
        }
        if !self.may_drop_for(id, bytes) {
            return Err(CommandError::QueueFull);
        }
        // What is due counts as ready.
        self.store.promote(id, self.now);
        let mut dropped = false;
        while !self.fits(id, 1, bytes) {
            // Of several puts in a step each drops one at least, so that the queue does not grow.
            if cx.step.drops_left == 0 && dropped {
                return Ok(());
            }
            let message = match self.victim(id) {
                Victim::Here(oldest) => self.store.message(oldest),
                Victim::Nobody => return Err(CommandError::QueueFull),
                // The put waited for the first `MANY`. Those behind them go
                // with the next put: until then the queue is over its limit.
                Victim::Cold(block) => {
                    self.want(block);
                    None
                }
            };
            let Some(at) = message.map(Message::at) else {
                // It is in a run.
                break;
            };
            dropped = true;
            cx.step.drops_left = cx.step.drops_left.saturating_sub(1);
            let why = Removal::Discarded;
            self.fact(cx, Fact::Removed { at, why });
        }
        Ok(())
    }

    /// The message that makes way in a full queue: the oldest message of the least urgent priority;
    /// in a FIFO, its head. When nothing is ready, the first one that is not selectable, then the
    /// delayed one that is due last.
    fn victim(&self, id: QueueId) -> Victim {
        let queue = self.store.expect_queue(id);
        let hot = queue.ready.last_key().map(|(priority, ..)| priority);
        let cold = queue.cold.as_ref().and_then(|cold| cold.last_priority());
        if let Some(priority) = hot.max(cold) {
            let from = (priority, i64::MIN, MessageId(0));
            let here = queue.ready.range((Edge::Included(from), Edge::Unbounded));
            let here = here.map(|(order, _)| order).next();
            let cold = self.store.next_cold(id, StateIndex::Ready, Some(from));
            return Victim::first(here, cold);
        }
        let here = queue
            .not_selectable
            .first_key_value()
            .map(|(order, _)| order);
        let cold = self.store.next_cold(id, StateIndex::NotSelectable, None);
        if here.is_some() || cold.is_some() {
            return Victim::first(here, cold);
        }
        let here = queue.delayed.last_key_value().map(|(&due, _)| by_due(due));
        match (here, self.store.last_delayed(id)) {
            (here, Some((last, block))) if here.is_none_or(|here| here < last) => {
                Victim::Cold(block)
            }
            (Some((_, _, id)), _) => Victim::Here(id),
            (None, _) => Victim::Nobody,
        }
    }

    /// Whether those who make way for these puts are in memory, of many the
    /// first [`MANY`].
    #[inline]
    pub(super) fn room_is_here<'a>(
        &mut self,
        puts: impl IntoIterator<Item = &'a Put> + Clone,
    ) -> Result<(), Cold> {
        match self.store.cold.is_empty() {
            true => Ok(()),
            false => self.ask_for_room(puts),
        }
    }

    #[cold]
    fn ask_for_room<'a>(
        &mut self,
        puts: impl IntoIterator<Item = &'a Put> + Clone,
    ) -> Result<(), Cold> {
        self.replaced_are_here(puts.clone())?;
        let mut requested: BTreeMap<QueueId, (u64, u64)> = BTreeMap::new();
        for put in puts {
            let Some(queue) = self.store.find(&put.queue) else {
                // The put makes it.
                continue;
            };
            let queue = self.store.expect_queue(queue);
            for id in queue.children.iter().copied().chain([queue.id]) {
                let bytes = put.size();
                if self.may_drop_for(id, bytes) {
                    let requested = requested.entry(id).or_default();
                    *requested = (requested.0 + 1, requested.1 + bytes);
                }
            }
        }
        let mut here = Ok(());
        for (id, (count, bytes)) in requested {
            if self.fits(id, count, bytes) {
                continue;
            }
            self.store.promote(id, self.now);
            if let Some(block) = self.first_cold_victim(id, count, bytes) {
                here = Err(self.ask_block(block));
            }
        }
        here
    }

    /// The block that must be read before enough messages have made way for
    /// `count` more with `bytes` bytes.
    fn first_cold_victim(&self, id: QueueId, count: u64, bytes: u64) -> Option<BlockAt> {
        let queue = self.store.queue(id)?;
        let excess = Excess::of(queue, count, bytes);
        self.walk_victims(queue, excess).break_value().flatten()
    }

    /// Goes along those who make way, as [`Engine::victim`] finds them one
    /// after the other.
    fn walk_victims(&self, queue: &Queue, mut excess: Excess) -> ControlFlow<Option<BlockAt>> {
        let Some(cold) = queue.cold.as_ref() else {
            // Nothing of it is in runs.
            return ControlFlow::Break(None);
        };
        let sized = |order: Order, slot: u32| (order, self.store.messages.at(slot).size());

        // Priority by priority, the least urgent first, and in each the oldest first.
        // In what was passed nothing is in a run.
        let mut below = (u32::MAX, i64::MAX, MessageId(u64::MAX));
        loop {
            let up_to = Edge::Excluded(below);
            let hot = queue.ready.range_back((Edge::Unbounded, up_to));
            let hot = hot.map(|((priority, ..), _)| priority).next();
            let Some(priority) = hot.max(cold.last_priority()) else {
                // Nothing more is ready.
                break;
            };
            let from = (priority, i64::MIN, MessageId(0));
            let here = queue.ready.range((Edge::Included(from), up_to));
            let stored = self
                .store
                .next_cold(queue.id, StateIndex::Ready, Some(from));
            let here = here.map(|(order, &slot)| sized(order, slot));
            excess.walk(here, stored, |bound, order| bound < order)?;
            below = from;
        }

        let here = queue.not_selectable.iter();
        let stored = self
            .store
            .next_cold(queue.id, StateIndex::NotSelectable, None);
        let here = here.map(|(order, &slot)| sized(order, slot));
        excess.walk(here, stored, |bound, order| bound < order)?;

        let here = queue.delayed.iter().rev();
        let stored = self.store.last_delayed(queue.id);
        let here = here.map(|(&due, &slot)| sized(by_due(due), slot));
        excess.walk(here, stored, |bound, order| bound > order)
    }
}

/// Where a delayed message stands among the delayed ones.
fn by_due((due, id): (Ms, MessageId)) -> Order {
    // Times in ms stay far below 2^63.
    (0, due.0 as i64, id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::damaged::fires;

    #[test]
    fn a_step_that_goes_beyond_its_budget_is_noticed() {
        let (count, bytes, budget) = (1, 1, 0);
        let mut excess = Excess {
            count,
            bytes,
            budget,
        };
        fires("no more make way than a step may remove", || excess.less(1));
    }
}
