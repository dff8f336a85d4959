//! The ends of messages that are gone: the newest, in memory.
//!
//! Follows from the facts, so what the log still tells is here again after a start; who did it is
//! not in the log.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Durable;
use super::cold::ColdBlock;
use crate::cold::BlockAt;
use quintet_types::{
    At, Caller, ClientId, Ended, Ending, Message, MessageId, Ms, Name, Principal, QueueId,
    SHARD_SHIFT,
};

/// An end without its id.
#[derive(Clone, Copy, Debug, Default)]
struct Rest {
    at: Ms,
    /// The id that the message has from then on, or who did it.
    more: u64,
    queue: QueueId,
    principal: Principal,
    why: Ended,
}

/// Bytes of memory that one takes.
const BYTES: usize = size_of::<u64>() + size_of::<Rest>();

/// Purges at most of which some ends are forgotten.
const PURGES_MAX: usize = 100;
/// Parts of one purge are at most so many ms apart.
const PURGE_MS: u64 = 10_000;

/// A purge, or the end of a queue, of which the ends of some messages are forgotten.
#[derive(Clone, Copy, Debug)]
struct Purge {
    /// The lowest and the highest id that may be one of these.
    ids: (u64, u64),
    rest: Rest,
}

/// A message that may have another id with the next put.
#[derive(Clone, Copy, Debug)]
struct Waits {
    /// Its record.
    at: usize,
    from: At,
    /// One in its queue takes its place; else one at the very same place does.
    replaced: bool,
}

/// The time and the client of a step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EndStep {
    now: Ms,
    caller: Caller,
    /// Why the messages of a whole queue go in it.
    all_go: Ended,
}

impl EndStep {
    /// This step, in which the messages of a queue go together.
    pub(super) fn all_go(self, why: Ended) -> Self {
        Self {
            all_go: why,
            ..self
        }
    }

    #[inline]
    fn rest(self, queue: QueueId, why: Ended) -> Rest {
        Rest {
            at: self.now,
            more: self.caller.client_id.0,
            queue,
            principal: self.caller.principal,
            why,
        }
    }
}

/// A block of a run that a purge, or the end of its queue, has removed. The ids of its messages
/// are in the run's file.
#[derive(Debug)]
pub struct PurgedBlock {
    /// Its run, and the ordinal of its first entry.
    pub at: BlockAt,
    block: ColdBlock,
    step: EndStep,
    /// Id of the newest message at that time.
    newest: MessageId,
}

impl PurgedBlock {
    /// True if the entry of this ordinal was removed with the block.
    pub fn has(&self, ordinal: u32) -> bool {
        ordinal >= self.at.ordinal && self.block.is_alive(ordinal)
    }
}

/// The newest ends of a shard.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    max: usize,
    ids: Vec<u64>,
    rest: Vec<Rest>,
    /// Where the next one goes.
    next: usize,
    waits: Option<Waits>,
    /// When what is applied happens, and who asks for it.
    step: EndStep,
    /// Removed blocks whose ids the host has not read, oldest first.
    blocks: VecDeque<PurgedBlock>,
    /// Messages in them.
    in_blocks: usize,
    /// Purges with forgotten ends, the newest at the end.
    purges: VecDeque<Purge>,
}

impl Ends {
    /// Facts that are applied from now on happen at this time.
    #[inline]
    pub(super) fn happen(&mut self, now: Ms) {
        self.step.now = now;
    }

    /// That time.
    pub(super) fn now(&self) -> Ms {
        self.step.now
    }

    /// They happen on behalf of this caller; client 0: of nobody's own.
    #[inline]
    pub(super) fn are_found_by(&mut self, caller: Caller) {
        self.step.caller = caller;
    }

    /// Keeps so many from now on.
    pub(super) fn set_max(&mut self, max: usize) {
        if max == self.max {
            // The settings say what they did before.
            return;
        }
        self.max = max;
        self.waits = None;
        if max == 0 {
            self.purges.clear();
        }
        self.shorten_blocks();
        // Oldest first.
        if self.next < self.ids.len() {
            self.ids.rotate_left(self.next);
            self.rest.rotate_left(self.next);
        }
        let old = self.ids.len().saturating_sub(max);
        let forgotten = self.ids.drain(..old).zip(self.rest.drain(..old));
        for (id, rest) in forgotten.collect::<Vec<_>>() {
            self.forget((id, id), rest);
        }
        self.ids.shrink_to(max);
        self.rest.shrink_to(max);
        // Room that nothing was written to takes no memory. Vectors that grow leave their old room
        // to the allocator, which keeps it for seconds.
        let more = max - self.ids.len();
        self.ids.reserve_exact(more);
        self.rest.reserve_exact(more);
        self.next = if self.ids.len() < max {
            self.ids.len()
        } else {
            0
        };
    }

    /// A message of a queue has come to its end.
    #[inline]
    pub(super) fn add(&mut self, id: MessageId, queue: QueueId, why: Ended) {
        self.add_of(self.step, id, queue, why);
    }

    /// A message went with the others of its queue, in an earlier step.
    pub(super) fn add_with_queue(&mut self, step: EndStep, id: MessageId, queue: QueueId) {
        self.add_of(step, id, queue, step.all_go);
    }

    #[inline]
    fn add_of(&mut self, step: EndStep, id: MessageId, queue: QueueId, why: Ended) {
        self.push(id, step.rest(queue, why));
    }

    /// The step whose facts are applied.
    pub(super) fn step(&self) -> EndStep {
        self.step
    }

    /// A block of a run was removed with all its messages, whose ids the engine does not know.
    pub(super) fn add_block(
        &mut self,
        step: EndStep,
        at: BlockAt,
        block: ColdBlock,
        newest: MessageId,
    ) {
        self.in_blocks += block.row.live as usize;
        self.blocks.push_back(PurgedBlock {
            at,
            block,
            step,
            newest,
        });
        self.shorten_blocks();
    }

    /// Forgets the oldest blocks: the ends of the others fill half of the record. They are added
    /// late, in place of ends that are newer.
    fn shorten_blocks(&mut self) {
        while let Some(oldest) = self.blocks.front() {
            let live = oldest.block.row.live as usize;
            if self.max > 0 && self.in_blocks - live < self.max.div_ceil(2) {
                // The settings leave room for it beside newer ends.
                return;
            }
            self.in_blocks -= live;
            if let Some(oldest) = self.blocks.pop_front() {
                self.forget_block(&oldest);
            }
        }
    }

    /// The removed blocks, once; oldest first.
    pub(super) fn take_blocks(&mut self) -> VecDeque<PurgedBlock> {
        self.in_blocks = 0;
        std::mem::take(&mut self.blocks)
    }

    /// Messages of a removed block; none: nobody knows which were in it.
    pub(super) fn add_purged(&mut self, of: &PurgedBlock, ids: &[MessageId]) {
        if ids.is_empty() {
            self.forget_block(of);
        }
        for id in ids {
            self.add_with_queue(of.step, *id, of.block.row.queue);
        }
    }

    /// Any message of the shard up to the newest one may have been in it.
    fn forget_block(&mut self, of: &PurgedBlock) {
        let newest = of.newest.0;
        let ids = ((newest >> SHARD_SHIFT) << SHARD_SHIFT, newest);
        let rest = of.step.rest(of.block.row.queue, of.step.all_go);
        self.forget(ids, rest);
    }

    /// Keeps a purge if the end of one of its messages is forgotten.
    fn forget(&mut self, (low, high): (u64, u64), of: Rest) {
        if self.max == 0 || !of.why.is_purge() {
            // By the settings no ends are kept, or no purge has removed it.
            return;
        }
        let is_same = |purge: &&mut Purge| {
            let old = &purge.rest;
            (old.queue, old.why, old.principal) == (of.queue, of.why, of.principal)
                && old.at.0.abs_diff(of.at.0) < PURGE_MS
        };
        if let Some(purge) = self.purges.iter_mut().rev().find(is_same) {
            purge.ids = (purge.ids.0.min(low), purge.ids.1.max(high));
            // A client has purged in several steps: this one is added to the others.
            return;
        }
        if self.purges.len() == PURGES_MAX {
            self.purges.pop_front();
        }
        let (ids, rest) = ((low, high), of);
        self.purges.push_back(Purge { ids, rest });
    }

    #[inline]
    fn push(&mut self, id: MessageId, rest: Rest) {
        if self.ids.len() < self.max {
            self.ids.push(id.0);
            self.rest.push(rest);
        } else if let (Some(old), Some(of)) =
            (self.ids.get_mut(self.next), self.rest.get_mut(self.next))
        {
            let forgotten = std::mem::replace(old, id.0);
            let of = std::mem::replace(of, rest);
            if of.why.is_purge() {
                self.forget((forgotten, forgotten), of);
            }
        } else {
            // By the settings no ends are kept.
            return;
        }
        self.next = if self.next + 1 < self.max {
            self.next + 1
        } else {
            0
        };
    }

    /// The same by a fact that removes it.
    #[inline]
    pub(super) fn remove(&mut self, at: At, why: Ended) {
        let position = self.next;
        let mut step = self.step;
        if why == Ended::QueueDeleted {
            // The end of its lease removes it now; another client has deleted the queue.
            step.caller = Caller::default();
        }
        self.add_of(step, at.id, at.queue, why);
        if matches!(why, Ended::Deleted | Ended::Replaced) && self.max > 0 {
            self.waits = Some(Waits {
                at: position,
                from: at,
                replaced: why == Ended::Replaced,
            });
        }
    }

    /// It went to another queue, where it has another id.
    pub(super) fn moved(&mut self, id: MessageId, to: &Message) {
        let rest = Rest {
            at: self.step.now,
            more: to.id.0,
            queue: to.queue,
            principal: Principal::SERVER,
            why: Ended::Moved,
        };
        self.push(id, rest);
    }

    /// A message was put: perhaps in the place of the one that was just removed.
    #[inline]
    pub(super) fn put(&mut self, message: &Message) {
        if self.waits.is_some() {
            self.put_instead(message);
        }
    }

    #[cold]
    fn put_instead(&mut self, message: &Message) {
        let waits = self.waits.take();
        let waits = waits.expect("a removal that waits for a put was just seen");
        let Waits { at, from, replaced } = waits;
        let instead =
            message.queue == from.queue && (replaced || message.position == from.position);
        if instead && let Some(rest) = self.rest.get_mut(at) {
            rest.more = message.id.0;
            if !replaced {
                rest.why = Ended::Edited;
            }
        }
    }

    /// The newest end of a message of this id.
    fn find(&self, id: MessageId) -> Option<&Rest> {
        let (newer, older) = self.ids.split_at(self.next.min(self.ids.len()));
        let is = |other: &u64| *other == id.0;
        let at = newer.iter().rposition(is);
        let at = at.or_else(|| Some(newer.len() + older.iter().rposition(is)?))?;
        self.rest.get(at)
    }

    /// The id of a message in the shard from which it came to this one, where it has this id.
    fn before(&self, id: MessageId) -> Option<MessageId> {
        let is = |rest: &Rest| rest.why == Ended::Moved && rest.more == id.0;
        let at = self.rest.iter().position(is)?;
        self.ids.get(at).copied().map(MessageId)
    }

    /// The newest purge with forgotten ends to which a message of this id may belong.
    fn find_purge(&self, id: MessageId) -> Option<&Rest> {
        let may = |purge: &&Purge| (purge.ids.0..=purge.ids.1).contains(&id.0);
        Some(&self.purges.iter().rev().find(may)?.rest)
    }

    /// The newest ends of those of these messages that have one, in one pass that stops when all
    /// are found.
    fn find_all(&self, ids: &BTreeSet<MessageId>) -> BTreeMap<MessageId, &Rest> {
        let (newer, older) = self.ids.split_at(self.next.min(self.ids.len()));
        let mut newest_first = newer.iter().rev().chain(older.iter().rev());
        let mut rest = {
            let (newer, older) = self.rest.split_at(newer.len().min(self.rest.len()));
            newer.iter().rev().chain(older.iter().rev())
        };
        let mut known = BTreeMap::new();
        while known.len() < ids.len()
            && let (Some(&id), Some(end)) = (newest_first.next(), rest.next())
        {
            let id = MessageId(id);
            if ids.contains(&id) {
                known.entry(id).or_insert(end);
            }
        }
        known
    }

    /// Bytes of memory that they take.
    pub(super) fn bytes(&self) -> u64 {
        let blocks = self.blocks.len() * size_of::<PurgedBlock>();
        let purges = self.purges.len() * size_of::<Purge>();
        (self.ids.len() * BYTES + blocks + purges) as u64
    }
}

impl Durable {
    /// How those of these messages ended of which that is known, and their queues if these are
    /// there.
    pub(crate) fn ends_of(
        &self,
        ids: &BTreeSet<MessageId>,
    ) -> BTreeMap<MessageId, (Ended, Option<Name>)> {
        let found = self.ends.find_all(ids).into_iter();
        let found = found.map(|(id, rest)| {
            let queue = self.queue(rest.queue).map(|queue| queue.name.clone());
            (id, (rest.why, queue))
        });
        found.collect()
    }

    /// The end of a message that is gone; `None`: it is not known.
    pub(crate) fn end_of(&self, id: MessageId) -> Option<Ending> {
        self.ends.find(id).map(|rest| self.ending(rest))
    }

    /// The id that a message had before it came to this shard.
    pub(crate) fn id_before(&self, id: MessageId) -> Option<MessageId> {
        self.ends.before(id)
    }

    /// The newest purge to which a message belongs perhaps whose end is not known any more.
    pub(crate) fn purge_of(&self, id: MessageId) -> Option<Ending> {
        self.ends.find_purge(id).map(|rest| self.ending(rest))
    }

    fn ending(&self, rest: &Rest) -> Ending {
        let renamed = rest.why.renames() && rest.more != 0;
        let by = (!rest.why.renames() && rest.more != 0).then_some(Caller {
            client_id: ClientId(rest.more),
            principal: rest.principal,
        });
        Ending {
            queue: self.queue(rest.queue).map(|queue| queue.name.clone()),
            why: rest.why,
            at: rest.at,
            by,
            is_now: renamed.then_some(MessageId(rest.more)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::damaged::fires;
    use quintet_types::Body;

    #[test]
    fn a_put_in_the_place_of_nothing_is_noticed() {
        let at = At {
            queue: QueueId(1),
            priority: 1,
            position: 1,
            id: MessageId(1),
        };
        let message = Message::new(at, Ms(1), Body::new(b"body"));
        let mut ends = Ends::default();
        fires("a removal that waits for a put was just seen", || {
            ends.put_instead(&message);
        });
    }

    fn ids(ends: &Ends) -> Vec<u64> {
        (1..100)
            .filter(|id| ends.find(MessageId(*id)).is_some())
            .collect()
    }

    #[test]
    fn the_newest_are_kept_in_forty_bytes_each() {
        assert_eq!(BYTES, 40);
        let mut ends = Ends::default();
        let add = |ends: &mut Ends, id: u64| ends.add(MessageId(id), QueueId(1), Ended::Finished);
        add(&mut ends, 1);
        assert!(ids(&ends).is_empty(), "none are kept");
        ends.set_max(4);
        (1..=3).for_each(|id| add(&mut ends, id));
        assert_eq!(ids(&ends), [1, 2, 3]);
        (4..=6).for_each(|id| add(&mut ends, id));
        assert_eq!((ids(&ends), ends.bytes()), (vec![3, 4, 5, 6], 160));
        let requested = [1, 4, 6].map(MessageId).into();
        let found: Vec<u64> = ends.find_all(&requested).keys().map(|id| id.0).collect();
        assert_eq!(found, [4, 6]);
        ends.set_max(6);
        (7..=9).for_each(|id| add(&mut ends, id));
        assert_eq!(ids(&ends), [4, 5, 6, 7, 8, 9]);
        ends.set_max(2);
        assert_eq!(ids(&ends), [8, 9]);
        add(&mut ends, 10);
        assert_eq!(ids(&ends), [9, 10]);
        ends.set_max(0);
        add(&mut ends, 11);
        assert_eq!((ids(&ends), ends.bytes()), (vec![], 0));
    }

    #[test]
    fn a_purge_of_more_than_are_kept_is_known_by_the_ids_of_those_that_are_not() {
        let mut ends = Ends::default();
        ends.set_max(3);
        let add = |ends: &mut Ends, id: u64, queue: u32, why: Ended| {
            ends.add(MessageId(id), QueueId(queue), why);
        };
        let queue = |ends: &Ends, id: u64| ends.find_purge(MessageId(id)).map(|rest| rest.queue);
        (10..14).for_each(|id| add(&mut ends, id, 1, Ended::Purged));
        assert_eq!(
            [9, 10, 11].map(|id| queue(&ends, id)),
            [None, Some(QueueId(1)), None]
        );
        // These are forgotten as well.
        (20..26).for_each(|id| add(&mut ends, id, 2, Ended::Finished));
        let known = [9, 10, 13, 14, 20].map(|id| queue(&ends, id).is_some());
        assert_eq!(known, [false, true, true, false, false]);
        assert_eq!(ends.purges.len(), 1);
        // Another purge of the same queue, later.
        ends.happen(Ms(PURGE_MS));
        (12..18).for_each(|id| add(&mut ends, id, 1, Ended::Purged));
        assert_eq!(ends.purges.len(), 2);
        let at = |ends: &Ends, id: u64| ends.find_purge(MessageId(id)).map(|rest| rest.at);
        let all = [11, 12, 14, 15].map(|id| at(&ends, id));
        assert_eq!(
            all,
            [Some(Ms(0)), Some(Ms(PURGE_MS)), Some(Ms(PURGE_MS)), None]
        );
        ends.set_max(1);
        assert_eq!(at(&ends, 16), Some(Ms(PURGE_MS)));
        // The newest purges are kept.
        let queues = 3..=u32::try_from(PURGES_MAX).expect("few") + 3;
        queues.for_each(|queue| {
            add(
                &mut ends,
                1000 + u64::from(queue),
                queue,
                Ended::QueueDeleted,
            )
        });
        assert_eq!(ends.purges.len(), PURGES_MAX);
        let known = [10, 16, 1003, 1004].map(|id| queue(&ends, id).is_some());
        assert_eq!(known, [false, false, true, true]);
        ends.set_max(0);
        assert_eq!((queue(&ends, 1004), ends.bytes()), (None, 0));
    }
}
