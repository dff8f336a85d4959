//! Which message a take gets from a queue whose keys mean something.

use std::ops::Bound as Edge;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Cold;
use super::choose::{Best, Candidate, EXPIRED_PER_STEP, Walking};
use quintet_types::{End, GroupLimit, MessageId, Order, QueueId, StateIndex, Take};

use crate::cold::BlockAt;
use crate::engine::{Cx, Engine};
use crate::fact::Journal;
use crate::store::{Head, KeyGroups, Safe, Walk};

/// Blocks of a queue that are read ahead for messages of keys under their share.
const QUIET_BLOCKS: usize = 8;
/// Blocks of a queue that stay in memory though nothing in them may go.
const STUCK_BLOCKS: usize = 32;
/// Messages of keys at their limits that a look ahead passes over.
const PASSED_AT_ONCE: usize = 4096;

/// The first message of a take from this end.
fn first_from(end: End) -> Order {
    match end {
        End::Oldest => (0, i64::MIN, MessageId(0)),
        End::Newest => (0, i64::MAX, MessageId(u64::MAX)),
    }
}

/// The message found in memory, and the block of a run that must be read to know better.
type GroupCandidate = Option<(Order, Head)>;

impl Engine {
    /// The message of a queue with groups that this take would get.
    #[inline(never)]
    pub(super) fn candidate_of_groups<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        take: &Take,
        id: QueueId,
        after: Option<MessageId>,
        walking: Walking<'_>,
    ) -> Best {
        if !self.groups_are_built(cx, id) {
            return Best::Expired(first_from(take.end));
        }
        self.store.ring_groups(id, self.now);
        let ordered = self.groups(id).is_some_and(KeyGroups::is_ordered);
        if take.peek && !ordered {
            return self.candidate_in_order(cx, take, id, after);
        }
        let walk = walking.filter(|(queue, _)| *queue == id);
        let walk = walk.map(|(_, walk)| walk);
        loop {
            if self.is_closed(take, id) {
                return Best::Nothing;
            }
            if let Some(block) = self.due_block(id) {
                return Best::Cold(first_from(take.end), id, block);
            }
            let mut skipped = 0;
            let found = self.head(take, id, walk, &mut skipped);
            if skipped > 0 {
                self.count_live(id, |totals| totals.skipped += skipped);
            }
            match self.judged(cx, take.end, id, found) {
                Some(best) => return best,
                None => continue,
            }
        }
    }

    /// The next message of the group with which a take of several began.
    #[inline(never)]
    pub(super) fn next_of_group<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        take: &Take,
        id: QueueId,
        walk: &Walk,
    ) -> Best {
        if !self.groups(id).is_some_and(KeyGroups::is_ordered) {
            return Best::Nothing;
        }
        loop {
            if self.is_closed(take, id) {
                return Best::Nothing;
            }
            if let Some(block) = self.due_block(id) {
                return Best::Cold(first_from(take.end), id, block);
            }
            let groups = self.groups(id);
            let groups = groups.expect("a queue keeps its groups while one is followed");
            let next = groups.next_of_group(walk, take.peek, take.lease.is_some(), self.now);
            let Some((order, head)) = next else {
                // No other of the group may go.
                return Best::Nothing;
            };
            match head {
                // It follows the group as far as that is in memory: what comes
                // next of a key may lie far away in runs, a block for each.
                Head::Cold(_) => return Best::Nothing,
                Head::Here(slot) if !self.fits_consumer(slot, take) => return Best::Nothing,
                Head::Here(_) => {}
            }
            match self.judged(cx, take.end, id, (Some((order, head)), None)) {
                Some(best) => return best,
                None => continue,
            }
        }
    }

    pub(super) fn groups(&self, id: QueueId) -> Option<&KeyGroups> {
        self.store.queue(id)?.groups.as_deref()
    }

    /// True if they are; builds a slice of them.
    pub(super) fn groups_are_built<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: QueueId) -> bool {
        let built = self.groups(id).is_none_or(KeyGroups::is_built);
        built || self.store.build_groups(id, &mut cx.step.grouping_left)
    }

    /// True if nothing is handed out of a queue, whatever is in it.
    pub(super) fn is_closed(&self, take: &Take, id: QueueId) -> bool {
        let queue = self.store.expect_queue(id);
        let limited = !take.peek && queue.is_limited(self.now);
        queue.live.settings.down || limited || queue.is_paused(self.now)
    }

    /// The stored block in which something delayed is due by now.
    fn due_block(&self, id: QueueId) -> Option<BlockAt> {
        let cold = self.store.queue(id)?.cold.as_ref()?;
        let ((_, due, _), block) = cold.first(StateIndex::Delayed)?;
        (due <= i64::try_from(self.now.0).unwrap_or(i64::MAX)).then_some(block)
    }

    /// The first that may go of what is in memory and in known blocks, and an
    /// open block that may hold something better.
    fn head(
        &self,
        take: &Take,
        id: QueueId,
        walk: Option<&Walk>,
        skipped: &mut u64,
    ) -> (GroupCandidate, Option<(Order, BlockAt)>) {
        let Some(groups) = self.groups(id) else {
            // By the settings its keys mean nothing.
            return (None, None);
        };
        let ahead = walk.and_then(KeyGroups::passed);
        if let Some(walk) = walk
            && ahead.is_some()
            && !groups.is_ordered()
        {
            let found = self.head_ahead(take, id, groups, walk);
            return (found, rival(groups, found));
        }
        let mut fits = |head| {
            let fits = match head {
                Head::Here(slot) => self.fits_consumer(slot, take),
                Head::Cold(_) => true,
            };
            *skipped += u64::from(!fits);
            fits
        };
        if groups.is_ordered() {
            let found = groups.head(walk, take.peek, fits);
            return (found, rival(groups, found));
        }
        // Where order is no promise what the consumer cannot frame is passed over.
        let mut quiet = groups.head(None, false, |_| true);
        if quiet.is_some_and(|(_, head)| !fits(head)) {
            quiet = self.quiet_that_fits(groups, &mut fits);
        }
        let over_share = match groups.is_fair() {
            true => groups.noisy_that_fits(&mut fits),
            false => None,
        };
        let Some((over_share, its_turn)) = over_share else {
            // No key is over its share, or none that fits.
            return (quiet, rival(groups, quiet));
        };
        if its_turn {
            return (Some(over_share), None);
        }
        let loaded = self.store.queue(id).and_then(|queue| queue.cold.as_ref());
        let near = loaded.is_none_or(|cold| cold.loaded.len() < QUIET_BLOCKS);
        match rival(groups, quiet).filter(|_| near) {
            Some(block) => (quiet, Some(block)),
            None => (quiet.or(Some(over_share)), None),
        }
    }

    /// The first message of a key under its share that may go and fits, of a queue that is
    /// not ordered.
    fn quiet_that_fits(
        &self,
        groups: &KeyGroups,
        fits: &mut impl FnMut(Head) -> bool,
    ) -> GroupCandidate {
        let mut best: GroupCandidate = None;
        for (order, head) in groups.free_heads() {
            if best.is_some_and(|(best, _)| best < order) {
                break;
            }
            let key = match head {
                _ if fits(head) => {
                    return Some((order, head))
                        .into_iter()
                        .chain(best)
                        .min_by_key(|f| f.0);
                }
                Head::Here(slot) => self.store.messages.at(slot).key(),
                Head::Cold(_) => None,
            };
            let mut members = key.into_iter().flat_map(|key| groups.members(key)).skip(1);
            let found = members.find(|&(_, head)| fits(head));
            best = found
                .into_iter()
                .chain(best)
                .min_by_key(|&(order, _)| order);
        }
        best
    }

    /// The next message of a take of several in a queue that is not ordered. Those of keys over
    /// their share count as others.
    fn head_ahead(
        &self,
        take: &Take,
        id: QueueId,
        groups: &KeyGroups,
        walk: &Walk,
    ) -> GroupCandidate {
        let from = KeyGroups::passed(walk).map_or(Edge::Unbounded, Edge::Excluded);
        let queue = self.store.expect_queue(id);
        let ready = queue.ready.range((from, Edge::Unbounded));
        let leased = take.lease.is_some();
        let mut ready = ready.take(PASSED_AT_ONCE);
        let found = ready.find(|&(_, &slot)| {
            let key = self.store.messages.at(slot).key();
            let limited = key.is_some_and(|key| groups.is_limited(walk, key, leased, self.now));
            !limited && self.fits_consumer(slot, take)
        });
        let found = found.map(|(order, &slot)| (order, Head::Here(slot)));
        let known = groups.known_ahead(walk, leased, self.now);
        found
            .into_iter()
            .chain(known)
            .min_by_key(|&(order, _)| order)
    }

    /// Judges a found message; `None`: it had expired and is gone.
    fn judged<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        end: End,
        id: QueueId,
        (found, rival): (GroupCandidate, Option<(Order, BlockAt)>),
    ) -> Option<Best> {
        // What it turns out to be stands no nearer to the head, so to a take of
        // the newest over several queues it may be better than this.
        let at_best = |order: Order| match end {
            End::Oldest => order,
            End::Newest => first_from(end),
        };
        if let Some((order, block)) = rival {
            return Some(Best::Cold(at_best(order), id, block));
        }
        let Some((order, head)) = found else {
            // Nothing may go.
            return Some(Best::Nothing);
        };
        let slot = match head {
            Head::Here(slot) => slot,
            Head::Cold(block) => return Some(Best::Cold(at_best(order), id, block)),
        };
        let message = self.store.messages.at(slot);
        match self
            .groups(id)
            .map_or(Safe::Yes, |groups| groups.is_safe(message))
        {
            Safe::Yes => {}
            Safe::Read(block) => return Some(Best::Cold(at_best(order), id, block)),
            Safe::LookUp => return Some(Best::LookUp(at_best(order), slot)),
        }
        if !message.is_expired(self.now) {
            return Some(Best::Here(Candidate {
                queue: id,
                slot,
                order,
            }));
        }
        if cx.step.expired >= EXPIRED_PER_STEP {
            self.store.recheck(id);
            return Some(Best::Expired(at_best(order)));
        }
        let message = message.id;
        self.expire(cx, message);
        None
    }

    /// Companions of a message of an ordered queue leave in the order of their
    /// places, up to the first that may not go, or that the consumer cannot frame.
    pub(super) fn ordered_companions(
        &self,
        groups: &KeyGroups,
        mut slots: SmallVec<[u32; 1]>,
        limit: GroupLimit,
        take: &Take,
    ) -> SmallVec<[u32; 1]> {
        let best = self.store.messages.at(slots[0]);
        let key = best.key().map_or(0, |key| key.len() as u64);
        let mut bytes = best.body.len() + key;
        for slot in groups.companions(best) {
            if slots.len() as u64 >= u64::from(limit.messages_max) {
                break;
            }
            let other = self.store.messages.at(slot);
            if other.is_expired(self.now) {
                continue;
            }
            bytes += other.body.len() + key;
            if bytes > limit.bytes_max || !self.fits_consumer(slot, take) {
                break;
            }
            slots.push(slot);
        }
        slots.sort_by_key(|&slot| {
            let message = self.store.messages.at(slot);
            (message.position, message.id)
        });
        slots
    }

    /// A take of several got this message, for good or as one that only looks.
    pub(super) fn walk_on(&self, walk: &mut Option<Box<(QueueId, Walk)>>, slot: u32, got: bool) {
        let message = self.store.messages.at(slot);
        let queue = message.queue;
        let Some(groups) = &self.store.expect_queue(queue).groups else {
            *walk = None;
            // By the settings the keys of this queue mean nothing.
            return;
        };
        if !groups.is_ordered() {
            // By the settings its keys have shares or limits, and no order.
            return;
        }
        if walk.as_ref().is_none_or(|on| on.0 != queue) {
            *walk = Some(Box::new((queue, Walk::default())));
        }
        let walk = walk.as_deref_mut();
        let (_, walk) = walk.expect("the walk along this queue has begun");
        match got {
            true => walk.got(message),
            false => walk.pass(message, true),
        }
    }

    /// Asks for the block that a take needs of a queue.
    pub(super) fn ask_for_consumer(&mut self, queue: QueueId, block: BlockAt) -> Cold {
        let Some(groups) = self.groups(queue) else {
            // By the settings its keys mean nothing.
            return self.ask_ahead(queue, StateIndex::Ready, block);
        };
        match groups.is_known(block) {
            true => self.ask_block(block),
            false => {
                self.store.shed(queue, STUCK_BLOCKS);
                self.want_open_ahead(queue);
                self.ask_block(block)
            }
        }
    }

    /// Asks where messages of this one's group are.
    pub(super) fn ask_for_group(&mut self, slot: u32) -> Cold {
        let message = self.store.messages.at(slot);
        let (queue, key) = (message.queue, message.key().cloned());
        self.ask_for_key(queue, key.unwrap_or_else(|| Arc::from([])))
    }
}

/// An open block that may hold something that stands before what was found.
/// Where too much is known of blocks in which nothing may go, others are left
/// alone until something of those is gone.
fn rival(groups: &KeyGroups, found: GroupCandidate) -> Option<(Order, BlockAt)> {
    let (first, block) = groups.first_open().filter(|_| !groups.knows_enough())?;
    let before = found.is_none_or(|(order, _)| first < order);
    before.then_some((first, block))
}
