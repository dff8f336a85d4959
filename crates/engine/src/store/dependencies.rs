//! Messages that are held until others have ended, by both.
//!
//! The record of a held message lies in a segment of the log, as the message does, and is written
//! again when that segment goes. All else follows from the records: who waits for whom, and which
//! messages go on. A held message and one that others wait for never leave memory for a run, so
//! the end of either is seen wherever it comes from.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::ops::RangeInclusive;

use super::watches::Watches;
use super::{Ascending, Durable};
use quintet_types::{After, At, HELD, Message, MessageId, ParentState, SegmentRef, shard_of_id};

use crate::fact::Fact;

/// Memory of a held message's record beside its parents: its place, and the allocation of the list.
const RECORD: u64 = 80;
/// The same of each parent: its place in the list and in the tree of edges.
const PARENT: u64 = 50;
/// Records, and parents in them, that one step looks at to write them again.
const COPIED: usize = 4096;

/// A held message's knowledge of its parents.
#[derive(Debug)]
struct Waits {
    after: After,
    segment_ref: SegmentRef,
}

/// Those of a shard.
#[derive(Debug, Default)]
pub(crate) struct Dependencies {
    waits: Ascending<MessageId, Waits>,
    /// A parent that has not ended or whose child does not know, and the child. An index over
    /// `waits`.
    edges: BTreeSet<(MessageId, MessageId)>,
    /// Parents that have ended and whose children do not all know; true: it has succeeded.
    ended: BTreeMap<MessageId, bool>,
    /// Held messages that may go on, or fail. With `prepared` an index over `waits`.
    decided: BTreeSet<MessageId>,
    /// The same of messages that are not committed: they wait for that. Volatile.
    prepared: BTreeSet<MessageId>,
    /// Parents and held messages that are gone, and which no fact records: of a flush, a drop, a
    /// restart. Volatile.
    lost: BTreeSet<MessageId>,
    /// Parents in the records together.
    parents: u64,
    /// The segment whose records are being written again, and the last one that was.
    copied: Option<(SegmentRef, MessageId)>,
    /// Messages of this shard for which some of other shards wait.
    pub(crate) watches: Watches,
    /// Messages of other shards for which nobody waits here any more: they need not be watched.
    /// Follows from the facts, and is written again when a segment goes.
    unwatched: BTreeSet<MessageId>,
    shard: u8,
    shards: u8,
}

impl Dependencies {
    pub(super) fn new(shard: u8, shards: u8) -> Self {
        Self {
            shard,
            shards,
            ..Self::default()
        }
    }

    /// True if no message is held, and none is waited for.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waits.is_empty() && self.watches.is_empty()
    }

    /// True if the message is one of another shard.
    fn is_afar(&self, id: MessageId) -> bool {
        shard_of_id(id, self.shards.into()) != usize::from(self.shard)
    }

    /// The shard to be notified of an end, or that nobody waits for a message of its any more.
    #[inline]
    pub(crate) fn first_to_carry(&self) -> Option<usize> {
        let due = self.watches.first_due().map(usize::from);
        due.or_else(|| {
            let unwatched = self.unwatched.first()?;
            Some(shard_of_id(*unwatched, self.shards.into()))
        })
    }

    /// A message of this shard for which nobody waits here any more.
    pub(crate) fn first_unwatched(&self, shard: usize) -> Option<MessageId> {
        let mut of = self.unwatched.iter().copied();
        of.find(|id| shard_of_id(*id, self.shards.into()) == shard)
    }

    /// Held messages.
    pub(crate) fn len(&self) -> usize {
        self.waits.len()
    }

    /// The parents of a held message.
    pub(crate) fn of(&self, child: MessageId) -> Option<&After> {
        self.waits.get(&child).map(|waits| &waits.after)
    }

    /// True if others wait for the end of the message of this id, and it has not ended.
    pub(crate) fn is_awaited(&self, id: MessageId) -> bool {
        let here = || self.children(id).next().is_some() && !self.ended.contains_key(&id);
        here() || self.watches.is_awaited(id)
    }

    /// How a parent has ended whose children do not all know.
    pub(crate) fn end_of(&self, id: MessageId) -> Option<ParentState> {
        let here = self.ended.get(&id).copied().map(ParentState::ended);
        here.or_else(|| self.watches.end_of(id))
    }

    /// Messages that wait for it, or do not know of its end.
    pub(crate) fn children(&self, parent: MessageId) -> impl Iterator<Item = MessageId> + '_ {
        let edges = self.edges.range(edges_of(parent));
        edges.map(|&(_, child)| child)
    }

    /// Of these, those of higher ids than `after`.
    pub(crate) fn children_after(
        &self,
        parent: MessageId,
        after: MessageId,
    ) -> impl Iterator<Item = MessageId> + '_ {
        let last = (parent, MessageId(u64::MAX));
        let edges = (self.edges).range((Excluded((parent, after)), Included(last)));
        edges.map(|&(_, child)| child)
    }

    /// True if there is something to do that nobody asks for.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        let idle = || self.lost.is_empty() && self.ended.is_empty() && self.decided.is_empty();
        !(self.is_empty() || idle())
    }

    /// The first that is gone without a fact.
    pub(crate) fn first_lost(&self) -> Option<MessageId> {
        self.lost.first().copied()
    }

    /// A child that does not know that its parent has ended, its parent, and how that ended.
    pub(crate) fn first_to_notify(&self) -> Option<(MessageId, MessageId, bool)> {
        let (&parent, &succeeded) = self.ended.first_key_value()?;
        let child = self.children(parent).next();
        let child = child.expect("an ended parent goes with its last child");
        Some((child, parent, succeeded))
    }

    /// The first message that may go on or fails.
    pub(crate) fn first_decided(&self) -> Option<MessageId> {
        self.decided.first().copied()
    }

    /// It is not committed, and goes on when it is.
    pub(super) fn put_off(&mut self, child: MessageId) {
        if self.decided.remove(&child) {
            self.prepared.insert(child);
        }
    }

    /// It may be committed by now.
    pub(super) fn resume(&mut self, child: MessageId) {
        if self.prepared.remove(&child) {
            self.decided.insert(child);
        }
    }

    /// It is gone, and no fact says so.
    pub(super) fn lose(&mut self, id: MessageId) {
        if self.waits.get(&id).is_some() || self.is_awaited(id) {
            self.lost.insert(id);
        }
    }

    /// It has been dealt with.
    pub(super) fn found(&mut self, id: MessageId) {
        self.lost.remove(&id);
    }

    /// Parents of this shard that have not ended.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = MessageId> + '_ {
        let mut last = None;
        let parents = self.edges.iter().map(|&(parent, _)| parent);
        let parents = parents.filter(move |&parent| last.replace(parent) != Some(parent));
        let parents = parents.filter(|parent| !self.ended.contains_key(parent));
        let parents = parents.filter(|parent| !self.is_afar(*parent));
        parents.chain(self.watches.awaited())
    }

    /// Held messages.
    pub(crate) fn held(&self) -> impl Iterator<Item = MessageId> + '_ {
        self.waits.keys()
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let held = self.waits.len() as u64 * RECORD + self.parents * PARENT;
        held + self.watches.memory_bytes()
    }

    /// True while records of this segment are written again in several steps.
    pub(super) fn is_copying(&self, segment_ref: SegmentRef) -> bool {
        self.is_copying_waits(segment_ref) || self.watches.is_copying(segment_ref)
    }

    fn is_copying_waits(&self, segment_ref: SegmentRef) -> bool {
        self.copied.is_some_and(|(copied, _)| copied == segment_ref)
    }

    fn decide(&mut self, child: MessageId) {
        let waits = self.waits.get(&child);
        match waits.and_then(|waits| waits.after.verdict()) {
            Some(_) if self.prepared.contains(&child) => {}
            Some(_) => _ = self.decided.insert(child),
            None => {
                self.decided.remove(&child);
                self.prepared.remove(&child);
            }
        }
    }

    fn forget_edge(&mut self, parent: MessageId, child: MessageId) {
        if self.edges.remove(&(parent, child)) && self.children(parent).next().is_none() {
            if self.ended.remove(&parent).is_none() && self.is_afar(parent) {
                self.unwatched.insert(parent);
            }
            if self.waits.get(&parent).is_none() && !self.watches.is_awaited(parent) {
                self.lost.remove(&parent);
            }
        }
    }

    /// Forgets the edges of an old record that the present one lacks: the end of a parent goes with
    /// its last edge.
    fn forget_old(&mut self, child: MessageId, old: &After) {
        self.parents -= old.parents.len() as u64;
        for parent in &old.parents {
            let now = self.of(child).map(|now| &now.parents);
            let now = now.and_then(|now| {
                let at = now.binary_search_by_key(&parent.id, |other| other.id);
                now.get(at.ok()?)
            });
            if now.is_none_or(|now| now.state != ParentState::Waiting) {
                self.forget_edge(parent.id, child);
            }
        }
    }

    fn notify(&mut self, child: MessageId, parent: MessageId, succeeded: bool) {
        self.forget_edge(parent, child);
        if let Some(mut waits) = self.waits.remove(&child) {
            let parents = &mut waits.after.parents;
            let found = parents.binary_search_by_key(&parent, |parent| parent.id);
            if let Ok(at) = found {
                parents[at].state = ParentState::ended(succeeded);
            }
            self.waits.insert(child, waits);
            self.decide(child);
        }
    }

    /// All records, as facts.
    pub(super) fn image(&self, record: &mut dyn FnMut(&Fact)) {
        for (child, waits) in self.waits.iter() {
            self.notifies_of(child, &waits.after, record);
        }
        self.watches.image(record);
    }

    /// A record, and which of its parents have ended.
    fn notifies_of(&self, child: MessageId, after: &After, record: &mut dyn FnMut(&Fact)) {
        record(&Fact::Awaits {
            child,
            after: Some(Box::new(after.clone())),
        });
        // Where replay begins with this record nothing else records them.
        for &parent in after.parents.iter().map(|parent| &parent.id) {
            if self.edges.contains(&(parent, child))
                && let Some(&succeeded) = self.ended.get(&parent)
            {
                record(&Fact::ParentEnded { parent, succeeded });
            }
        }
    }

    /// # Errors
    /// An index or a sum is not what it is made from.
    pub(super) fn verify(&self) -> Result<(), String> {
        let (mut edges, mut parents, mut decided) = (0, 0, 0);
        for (child, waits) in self.waits.iter() {
            parents += waits.after.parents.len() as u64;
            for parent in &waits.after.parents {
                let awaited = parent.state == ParentState::Waiting;
                edges += usize::from(awaited);
                if self.edges.contains(&(parent.id, child)) != awaited {
                    return Err(format!("the edge from {:?} to {child:?}", parent.id));
                }
            }
            let is_decided = waits.after.verdict().is_some();
            decided += usize::from(is_decided);
            let indexed = self.decided.contains(&child) || self.prepared.contains(&child);
            if indexed != is_decided {
                return Err(format!("{child:?} is decided: {is_decided}"));
            }
        }
        self.watches.verify()?;
        let mut ended = self.ended.keys();
        if let Some(parent) = ended.find(|parent| self.children(**parent).next().is_none()) {
            return Err(format!("{parent:?} has ended, and nobody waits"));
        }
        let indexed = self.decided.len() + self.prepared.len();
        let counted = (self.edges.len(), self.parents, indexed);
        match (edges, parents, decided) == counted {
            true => Ok(()),
            false => Err(format!(
                "dependencies: {edges} edges, {parents} parents, {decided} decided, not {counted:?}"
            )),
        }
    }
}

/// All edges of a parent.
fn edges_of(parent: MessageId) -> RangeInclusive<(MessageId, MessageId)> {
    (parent, MessageId(0))..=(parent, MessageId(u64::MAX))
}

impl Durable {
    /// True if a message does not leave memory for a run: it is held, or others wait for it.
    pub(crate) fn stays_for_others(&self, message: &Message) -> bool {
        let id = message.id;
        let dependencies = &self.dependencies;
        !dependencies.is_empty()
            && (dependencies.children(id).next().is_some()
                || dependencies.watches.has(id)
                || message.due() == Some(HELD))
    }

    /// A parent or a held message may have been chosen to leave memory.
    fn stay(&mut self, id: MessageId) {
        if let Some(slot) = self.slot(id) {
            self.messages.at_mut(slot).unpick();
        }
    }

    pub(super) fn set_awaits(
        &mut self,
        child: MessageId,
        after: Option<Box<After>>,
        segment_ref: SegmentRef,
    ) {
        let old = self.dependencies.waits.remove(&child);
        if let Some(after) = after {
            self.followed = true;
            self.count_segment_ref(segment_ref);
            self.dependencies.parents += after.parents.len() as u64;
            for parent in &after.parents {
                if parent.state == ParentState::Waiting {
                    self.dependencies.edges.insert((parent.id, child));
                    self.dependencies.unwatched.remove(&parent.id);
                    self.stay(parent.id);
                }
            }
            let waits = Waits {
                after: *after,
                segment_ref,
            };
            self.dependencies.waits.insert(child, waits);
            self.stay(child);
        } else {
            self.dependencies.lost.remove(&child);
        }
        if let Some(old) = old {
            self.uncount_segment_ref(old.segment_ref);
            self.dependencies.forget_old(child, &old.after);
        }
        self.dependencies.decide(child);
    }

    pub(super) fn parent_ended(&mut self, parent: MessageId, succeeded: bool) {
        let dependencies = &mut self.dependencies;
        if dependencies.waits.get(&parent).is_none() {
            dependencies.lost.remove(&parent);
        }
        dependencies.unwatched.remove(&parent);
        if dependencies.children(parent).next().is_some() {
            dependencies.ended.entry(parent).or_insert(succeeded);
        }
        dependencies.watches.ended(parent, succeeded);
    }

    /// Another shard waits for the end of a message, or is to be notified of it; `None`: neither.
    pub(super) fn set_watched(
        &mut self,
        parent: MessageId,
        shard: u8,
        state: Option<ParentState>,
        segment_ref: SegmentRef,
    ) {
        let dependencies = &mut self.dependencies;
        if shard == dependencies.shard {
            if dependencies.is_afar(parent) && dependencies.children(parent).next().is_none() {
                dependencies.unwatched.insert(parent);
            }
            // With its own number the log says that nobody waits here any more.
            return;
        }
        if shard >= dependencies.shards {
            // The log may be that of a server with more shards.
            return;
        }
        if state.is_some() {
            self.followed = true;
            self.count_segment_ref(segment_ref);
            self.stay(parent);
        }
        let watches = &mut self.dependencies.watches;
        if let Some(old) = watches.set((parent, shard), state, segment_ref) {
            self.uncount_segment_ref(old);
        }
    }

    pub(super) fn note_parent_end(&mut self, child: MessageId, parent: MessageId, succeeded: bool) {
        self.dependencies.notify(child, parent, succeeded);
    }

    pub(super) fn freed(&mut self, at: At, after: Box<After>) {
        self.set_awaits(at.id, None, SegmentRef(0));
        self.restate(at.id, |message, _| {
            let extra = message.extra_mut();
            extra.due = after.due;
            extra.after = Some(after);
        });
    }

    /// A message was freed that a flush or a drop had forgotten.
    pub(super) fn lose_dependent(&mut self, id: MessageId) {
        if !self.dependencies.is_empty() {
            self.dependencies.lose(id);
        }
    }

    /// Records that lie in `segment_ref`, into segment `into`; true: there may be more.
    pub(super) fn copy_dependencies(
        &mut self,
        segment_ref: SegmentRef,
        into: SegmentRef,
        record: &mut dyn FnMut(&Fact, bool),
    ) -> bool {
        let mut logged = |fact: &Fact| record(fact, false);
        // One after the other: each begins anew once it has ended.
        if !self.dependencies.watches.is_copying(segment_ref) {
            self.copy_waits(segment_ref, into, &mut logged);
        }
        if !self.dependencies.is_copying_waits(segment_ref) {
            let watches = &mut self.dependencies.watches;
            for _ in 0..watches.copy(segment_ref, into, &mut logged) {
                self.uncount_segment_ref(segment_ref);
                self.count_segment_ref(into);
            }
        }
        let is_copying = self.dependencies.is_copying(segment_ref);
        if !is_copying {
            // The records they follow from may go.
            let shard = self.dependencies.shard;
            for &parent in &self.dependencies.unwatched {
                let state = None;
                logged(&Fact::Watched {
                    parent,
                    shard,
                    state,
                });
            }
        }
        is_copying
    }

    /// As many of the held messages' records as one step may write again.
    fn copy_waits(
        &mut self,
        segment_ref: SegmentRef,
        into: SegmentRef,
        logged: &mut dyn FnMut(&Fact),
    ) {
        let copied = self.dependencies.copied.take();
        let copied = copied.filter(|(segment, _)| *segment == segment_ref);
        let from = copied.map_or(Unbounded, |(_, last)| Excluded(last));
        let (mut here, mut last, mut seen) = (Vec::new(), None, 0);
        for (child, waits) in self.dependencies.waits.range((from, Unbounded)) {
            if seen >= COPIED {
                self.dependencies.copied = last.map(|last| (segment_ref, last));
                break;
            }
            seen += 1;
            if waits.segment_ref == segment_ref {
                seen += waits.after.parents.len();
                here.push(child);
            }
            last = Some(child);
        }
        for child in here {
            if let Some(waits) = self.dependencies.waits.remove(&child) {
                self.dependencies.notifies_of(child, &waits.after, logged);
                let segment_ref = into;
                let waits = Waits {
                    segment_ref,
                    ..waits
                };
                self.dependencies.waits.insert(child, waits);
            }
            self.uncount_segment_ref(segment_ref);
            self.count_segment_ref(into);
        }
    }

    /// Segments of the records, for who counts them anew.
    pub(super) fn segments_of_dependencies(&self) -> impl Iterator<Item = SegmentRef> + '_ {
        let waits = self.dependencies.waits.values();
        let waits = waits.map(|waits| waits.segment_ref);
        waits.chain(self.dependencies.watches.segments())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::damaged::fires;

    #[test]
    fn an_ended_parent_without_children_is_noticed() {
        let mut dependencies = Dependencies::default();
        dependencies.ended.insert(MessageId(1), true);
        fires("an ended parent goes with its last child", || {
            assert!(dependencies.first_to_notify().is_none())
        });
    }
}
