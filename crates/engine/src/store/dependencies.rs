//! Messages that are held until others have ended, by both.
//!
//! The record of a held message lies in a segment of the log, as the message does, and is written
//! again when that segment goes. All else follows from the records: who waits for whom, and which
//! messages go on. A message for which others wait never leaves memory for a run, so its end is
//! seen wherever it comes from.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::ops::RangeInclusive;

use super::{Ascending, Durable};
use quintet_types::{After, At, Message, MessageId, ParentState, SHARD_SHIFT, SegmentRef};

use crate::fact::Fact;

/// Memory of a held message's record beside its parents: its place, and the allocation of the list.
const RECORD: u64 = 80;
/// The same of each parent: its place in the list and in the tree of edges.
const PARENT: u64 = 50;
/// The record of a message of another shard that has ended.
const OWED: u64 = 24;
/// Memory of an edge to a child of another shard.
const REMOTE: u64 = 48;
/// Records that are written again in one step at most.
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
    /// Parents of this shard and children of others, as `edges`; recorded.
    remote: BTreeMap<(MessageId, MessageId), SegmentRef>,
    /// Parents that have ended and whose children do not all know; true: it has succeeded.
    ended: BTreeMap<MessageId, bool>,
    /// Of these, those with children of this shard. An index.
    ended_here: BTreeSet<MessageId>,
    /// Of these, those with children of other shards. An index.
    ended_away: BTreeSet<MessageId>,
    /// Parents that went to another shard, which tells of their ends.
    away: BTreeSet<MessageId>,
    /// Messages of other shards that came here and have ended, which their shards do not know.
    owed: BTreeMap<MessageId, bool>,
    /// A message was here since the start for whose end others wait under another id.
    stands_in: bool,
    /// Held messages that may go on, or fail. With `asleep` an index over `waits`.
    decided: BTreeSet<MessageId>,
    /// The same, and something is read for them from a run first. Volatile.
    asleep: BTreeSet<MessageId>,
    /// Parents and held messages that are gone, and of which no fact tells: of a flush, a drop, a
    /// restart. Volatile.
    lost: BTreeSet<MessageId>,
    /// Parents in the records together.
    parents: u64,
    /// The segment whose records are being written again, and the last one that was.
    copied: Option<(SegmentRef, Copied)>,
}

/// A record that is written again.
#[derive(Clone, Copy, Debug)]
enum Copied {
    Waits(MessageId),
    Remote((MessageId, MessageId)),
}

impl Dependencies {
    pub(crate) fn is_empty(&self) -> bool {
        self.waits.is_empty() && self.remote.is_empty() && self.owed.is_empty() && !self.stands_in
    }

    /// Held messages.
    pub(crate) fn len(&self) -> usize {
        self.waits.len()
    }

    /// The parents of a held message.
    pub(crate) fn of(&self, child: MessageId) -> Option<&After> {
        self.waits.get(&child).map(|waits| &waits.after)
    }

    /// True if others wait for the end of the message of this id, or are to be told of it.
    pub(crate) fn is_parent(&self, id: MessageId) -> bool {
        self.first_child(id).is_some() || self.first_remote(id).is_some()
    }

    /// The same, and it has not ended.
    pub(crate) fn is_awaited(&self, id: MessageId) -> bool {
        self.is_parent(id) && !self.ended.contains_key(&id)
    }

    /// The first of this shard that waits for it.
    fn first_child(&self, parent: MessageId) -> Option<MessageId> {
        let mut edges = self.edges.range(edges_of(parent));
        edges.next().map(|&(_, child)| child)
    }

    /// The first of another shard.
    fn first_remote(&self, parent: MessageId) -> Option<MessageId> {
        let mut edges = self.remote.range(edges_of(parent));
        edges.next().map(|(&(_, child), _)| child)
    }

    /// True if there is something to do that nobody asks for.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !(self.lost.is_empty() && self.ended_here.is_empty() && self.decided.is_empty())
    }

    /// The first that is gone without a fact.
    pub(crate) fn first_lost(&self) -> Option<MessageId> {
        self.lost.first().copied()
    }

    /// A child that does not know that its parent has ended, its parent, and how that ended.
    pub(crate) fn first_to_tell(&self) -> Option<(MessageId, MessageId, bool)> {
        let &parent = self.ended_here.first()?;
        let child = self.first_child(parent);
        let child = child.expect("an ended parent goes with the last child that is told");
        Some((child, parent, *self.ended.get(&parent)?))
    }

    /// The same of a child of another shard.
    pub(crate) fn first_to_send(&self) -> Option<(MessageId, MessageId, bool)> {
        let &parent = self.ended_away.first()?;
        let child = self.first_remote(parent);
        let child = child.expect("an ended parent goes with the last child that is told");
        Some((child, parent, *self.ended.get(&parent)?))
    }

    /// A message of another shard whose end that shard does not know, and how it ended.
    pub(crate) fn first_owed(&self) -> Option<(MessageId, bool)> {
        let (&parent, &succeeded) = self.owed.first_key_value()?;
        Some((parent, succeeded))
    }

    /// Bytes that they take in a snapshot at most.
    pub(super) fn told_bytes(&self) -> u64 {
        self.owed.len() as u64 * OWED
    }

    /// What no segment keeps.
    pub(super) fn snapshot(&self, record: &mut dyn FnMut(&Fact)) {
        for (&parent, &succeeded) in &self.owed {
            record(&Fact::ParentEnded { parent, succeeded });
        }
    }

    /// The first message that may go on or fails, and for which nothing is being read.
    pub(crate) fn first_decided(&self) -> Option<MessageId> {
        self.decided.first().copied()
    }

    /// Something is read for it: others come first.
    pub(super) fn sleep(&mut self, child: MessageId) {
        if self.decided.remove(&child) {
            self.asleep.insert(child);
        }
    }

    /// What was read is here.
    pub(super) fn wake(&mut self) {
        self.decided.append(&mut self.asleep);
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

    /// Parents that have not ended and are in this shard, some of them more than once.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = MessageId> + '_ {
        let edges = self.edges.iter().chain(self.remote.keys());
        let mut last = None;
        let parents = edges.map(|&(parent, _)| parent);
        let parents = parents.filter(move |&parent| last.replace(parent) != Some(parent));
        parents.filter(|parent| !self.ended.contains_key(parent) && !self.away.contains(parent))
    }

    /// Held messages.
    pub(crate) fn held(&self) -> impl Iterator<Item = MessageId> + '_ {
        self.waits.keys()
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let remote = self.remote.len() as u64 * REMOTE;
        self.waits.len() as u64 * RECORD + self.parents * PARENT + remote
    }

    fn decide(&mut self, child: MessageId) {
        let waits = self.waits.get(&child);
        match waits.and_then(|waits| waits.after.verdict()) {
            Some(_) if self.asleep.contains(&child) => {}
            Some(_) => _ = self.decided.insert(child),
            None => {
                self.decided.remove(&child);
                self.asleep.remove(&child);
            }
        }
    }

    fn forget_edge(&mut self, parent: MessageId, child: MessageId) {
        self.edges.remove(&(parent, child));
        let (here, away) = (self.first_child(parent), self.first_remote(parent));
        if here.is_none() {
            self.ended_here.remove(&parent);
        }
        if away.is_none() {
            self.ended_away.remove(&parent);
        }
        if here.is_none() && away.is_none() {
            self.ended.remove(&parent);
            self.away.remove(&parent);
            self.lost.remove(&parent);
        }
    }

    fn tell(&mut self, child: MessageId, parent: MessageId, succeeded: bool) {
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
            self.tell_of(child, &waits.after, record);
        }
        for &(parent, child) in self.remote.keys() {
            self.tell_of_remote(parent, child, record);
        }
    }

    fn tell_of_remote(&self, parent: MessageId, child: MessageId, record: &mut dyn FnMut(&Fact)) {
        let waits = true;
        record(&Fact::Dependant {
            parent,
            child,
            waits,
        });
        self.tell_of_parent(parent, record);
    }

    fn tell_of_parent(&self, parent: MessageId, record: &mut dyn FnMut(&Fact)) {
        if let Some(&succeeded) = self.ended.get(&parent) {
            record(&Fact::ParentEnded { parent, succeeded });
        }
        if self.away.contains(&parent) {
            record(&Fact::ParentAway { parent });
        }
    }

    /// A record, and which of its parents have ended.
    fn tell_of(&self, child: MessageId, after: &After, record: &mut dyn FnMut(&Fact)) {
        record(&Fact::Awaits {
            child,
            after: Some(Box::new(after.clone())),
        });
        // Where replay begins with this record nothing else tells of them.
        for &parent in after.parents.iter().map(|parent| &parent.id) {
            if self.edges.contains(&(parent, child)) {
                self.tell_of_parent(parent, record);
            }
        }
    }

    /// # Errors
    /// An index or a sum is not what it is made from.
    pub(super) fn verify(&self, is_ours: impl Fn(MessageId) -> bool) -> Result<(), String> {
        let (mut edges, mut parents, mut decided) = (0, 0, 0);
        for (child, waits) in self.waits.iter() {
            parents += waits.after.parents.len() as u64;
            for parent in &waits.after.parents {
                let awaited = parent.state == ParentState::Waiting && is_ours(parent.id);
                edges += usize::from(awaited);
                if self.edges.contains(&(parent.id, child)) != awaited {
                    return Err(format!("the edge from {:?} to {child:?}", parent.id));
                }
            }
            let is_decided = waits.after.verdict().is_some();
            decided += usize::from(is_decided);
            let indexed = self.decided.contains(&child) || self.asleep.contains(&child);
            if indexed != is_decided {
                return Err(format!("{child:?} is decided: {is_decided}"));
            }
        }
        let mut ended = self.ended.keys().chain(&self.away);
        if let Some(parent) = ended.find(|parent| !self.is_parent(**parent)) {
            return Err(format!("{parent:?} has ended, and nobody waits"));
        }
        for parent in self.ended.keys() {
            let here = self.ended_here.contains(parent) == self.first_child(*parent).is_some();
            let away = self.ended_away.contains(parent) == self.first_remote(*parent).is_some();
            if !here || !away {
                return Err(format!("children of {parent:?} are not told of its end"));
            }
        }
        let indexed = self.decided.len() + self.asleep.len();
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
    /// True if the id was given by this shard.
    fn is_id_of_ours(&self, id: MessageId) -> bool {
        id.0 >> SHARD_SHIFT == self.id_bits >> SHARD_SHIFT
    }

    /// True if others wait for the end of this message.
    pub(crate) fn is_awaited(&self, message: &Message) -> bool {
        (!self.dependencies.is_empty() && self.dependencies.is_awaited(message.id))
            || message.awaited().iter().any(|&id| self.is_awaited_as(id))
    }

    /// The ids of a message under which others wait for its end.
    pub(crate) fn awaited_as(&self, message: &Message) -> Vec<MessageId> {
        let ids = message.awaited().iter().copied().chain([message.id]);
        ids.filter(|&id| self.is_awaited_as(id)).collect()
    }

    /// Others wait under this id of a message. Of another shard's id that shard knows.
    fn is_awaited_as(&self, id: MessageId) -> bool {
        !self.is_id_of_ours(id) || self.dependencies.is_awaited(id)
    }

    /// A message is here for whose end others may wait under another id.
    pub(super) fn note_stand_in(&mut self, message: &Message) {
        if !message.awaited().is_empty() {
            (self.followed, self.dependencies.stands_in) = (true, true);
        }
    }

    /// A message goes to another shard; those who wait for it wait for it there.
    pub(super) fn send_awaited(&mut self, message: &mut Message) {
        if self.dependencies.is_empty() {
            return;
        }
        let awaited = self.awaited_as(message);
        for &id in &awaited {
            if self.is_id_of_ours(id) {
                self.dependencies.away.insert(id);
            }
        }
        if !awaited.is_empty() {
            message.extra_mut().awaited = Some(awaited.into());
        }
    }

    pub(super) fn parent_away(&mut self, parent: MessageId) {
        if self.dependencies.is_parent(parent) {
            self.dependencies.away.insert(parent);
        }
    }

    /// A child of another shard waits for a message of this one, or does so no more.
    pub(super) fn set_dependant(
        &mut self,
        parent: MessageId,
        child: MessageId,
        waits: bool,
        segment_ref: SegmentRef,
    ) {
        let edge = (parent, child);
        let old = match waits {
            true => {
                self.followed = true;
                self.count_segment_ref(segment_ref);
                self.stay(parent);
                let old = self.dependencies.remote.insert(edge, segment_ref);
                if self.dependencies.ended.contains_key(&parent) {
                    self.dependencies.ended_away.insert(parent);
                }
                old
            }
            false => self.dependencies.remote.remove(&edge),
        };
        if let Some(old) = old {
            self.uncount_segment_ref(old);
        }
        if !waits {
            self.dependencies.forget_edge(parent, child);
        }
    }

    /// A parent may have been chosen to leave memory.
    fn stay(&mut self, parent: MessageId) {
        if let Some(slot) = self.slot(parent) {
            self.messages.at_mut(slot).unpick();
        }
    }

    pub(super) fn set_awaits(
        &mut self,
        child: MessageId,
        after: Option<Box<After>>,
        segment_ref: SegmentRef,
    ) {
        if let Some(old) = self.dependencies.waits.remove(&child) {
            self.uncount_segment_ref(old.segment_ref);
            let dependencies = &mut self.dependencies;
            dependencies.parents -= old.after.parents.len() as u64;
            for parent in &old.after.parents {
                dependencies.forget_edge(parent.id, child);
            }
        }
        if let Some(after) = after {
            self.followed = true;
            self.count_segment_ref(segment_ref);
            self.dependencies.parents += after.parents.len() as u64;
            for parent in &after.parents {
                if parent.state == ParentState::Waiting && self.is_id_of_ours(parent.id) {
                    self.dependencies.edges.insert((parent.id, child));
                    if self.dependencies.ended.contains_key(&parent.id) {
                        self.dependencies.ended_here.insert(parent.id);
                    }
                    self.stay(parent.id);
                }
            }
            let waits = Waits {
                after: *after,
                segment_ref,
            };
            self.dependencies.waits.insert(child, waits);
        } else {
            self.dependencies.lost.remove(&child);
        }
        self.dependencies.decide(child);
    }

    pub(super) fn parent_ended(&mut self, parent: MessageId, succeeded: bool) {
        let is_ours = self.is_id_of_ours(parent);
        let dependencies = &mut self.dependencies;
        dependencies.lost.remove(&parent);
        if !is_ours {
            dependencies.owed.insert(parent, succeeded);
            return;
        }
        let here = dependencies.first_child(parent).is_some();
        let away = dependencies.first_remote(parent).is_some();
        if here || away {
            dependencies.ended.insert(parent, succeeded);
        }
        if here {
            dependencies.ended_here.insert(parent);
        }
        if away {
            dependencies.ended_away.insert(parent);
        }
    }

    /// Child 0: it is the parent's shard that knows.
    pub(super) fn parent_told(&mut self, child: MessageId, parent: MessageId, succeeded: bool) {
        match child {
            MessageId(0) => _ = self.dependencies.owed.remove(&parent),
            child => self.dependencies.tell(child, parent, succeeded),
        }
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
    pub(super) fn lose_dependent(&mut self, message: &Message) {
        if !self.dependencies.is_empty() {
            for &id in message.awaited().iter().chain([&message.id]) {
                match self.is_id_of_ours(id) {
                    true => self.dependencies.lose(id),
                    false => _ = self.dependencies.lost.insert(id),
                }
            }
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
        let copied = self.dependencies.copied.take();
        let copied = copied.filter(|(segment, _)| *segment == segment_ref);
        let (waits_from, remote_from) = match copied.map(|(_, copied)| copied) {
            None => (Some(Unbounded), Unbounded),
            Some(Copied::Waits(last)) => (Some(Excluded(last)), Unbounded),
            Some(Copied::Remote(last)) => (None, Excluded(last)),
        };
        if let Some(from) = waits_from {
            let slice = self.dependencies.waits.range((from, Unbounded));
            let slice: Vec<_> = slice.take(COPIED).collect();
            let last = slice.last().map(|(child, _)| *child);
            let last = last.filter(|_| slice.len() == COPIED);
            let lie_in = |(_, waits): &(_, &Waits)| waits.segment_ref == segment_ref;
            let here: Vec<MessageId> = slice.into_iter().filter(lie_in).map(|(c, _)| c).collect();
            for child in here {
                if let Some(waits) = self.dependencies.waits.remove(&child) {
                    self.dependencies.tell_of(child, &waits.after, &mut logged);
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
            if let Some(last) = last {
                self.dependencies.copied = Some((segment_ref, Copied::Waits(last)));
                return true;
            }
        }
        let slice = self.dependencies.remote.range((remote_from, Unbounded));
        let slice: Vec<_> = slice
            .take(COPIED)
            .map(|(&edge, &lies)| (edge, lies))
            .collect();
        for &(edge, _) in slice.iter().filter(|(_, lies)| *lies == segment_ref) {
            self.dependencies
                .tell_of_remote(edge.0, edge.1, &mut logged);
            self.dependencies.remote.insert(edge, into);
            self.uncount_segment_ref(segment_ref);
            self.count_segment_ref(into);
        }
        let last = slice.last().filter(|_| slice.len() == COPIED);
        self.dependencies.copied = last.map(|&(edge, _)| (segment_ref, Copied::Remote(edge)));
        last.is_some()
    }

    /// Segments of the records, for who counts them anew.
    pub(super) fn segments_of_dependencies(&self) -> impl Iterator<Item = SegmentRef> + '_ {
        let waits = self.dependencies.waits.values();
        let remote = self.dependencies.remote.values().copied();
        waits.map(|waits| waits.segment_ref).chain(remote)
    }

    /// # Errors
    /// An index or a sum is not what it is made from.
    pub(super) fn verify_dependencies(&self) -> Result<(), String> {
        self.dependencies.verify(|id| self.is_id_of_ours(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::damaged::fires;

    #[test]
    fn an_ended_parent_without_children_is_noticed() {
        let mut dependencies = Dependencies::default();
        dependencies.ended_here.insert(MessageId(1));
        fires(
            "an ended parent goes with the last child that is told",
            || assert!(dependencies.first_to_tell().is_none()),
        );
    }
}
