//! Messages of this shard for whose end messages of other shards wait.
//!
//! There is one record for each message and shard, however many wait there. It lies in a segment of
//! the log and is written again when that segment goes. The other shard is notified once, in one
//! frame with the end of the record ([`crate::carry`]).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use quintet_types::{MessageId, ParentState, SegmentRef};

use crate::fact::Fact;

/// Memory of a record, with its places in two trees.
const RECORD: u64 = 60;
/// Records that one step looks at to write them again.
const COPIED: usize = 4096;

/// A message, and the shard that waits for its end.
type Key = (MessageId, u8);

#[derive(Debug)]
struct Watch {
    state: ParentState,
    segment_ref: SegmentRef,
}

/// Those of a shard.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    of: BTreeMap<Key, Watch>,
    /// Messages that have ended, after the shard that does not know. An index over `of`.
    due: BTreeSet<(u8, MessageId)>,
    /// The segment whose records are being written again, and the last one that was.
    copied: Option<(SegmentRef, Key)>,
}

impl Watches {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    fn of(&self, parent: MessageId) -> impl Iterator<Item = (u8, ParentState)> + '_ {
        let all = self.of.range((parent, 0)..=(parent, u8::MAX));
        all.map(|(&(_, shard), watch)| (shard, watch.state))
    }

    /// True if a shard waits for the end of this message, or does not know of it.
    pub(super) fn has(&self, parent: MessageId) -> bool {
        self.of(parent).next().is_some()
    }

    /// True if a shard waits for the end of this message, and it has not ended.
    pub(super) fn is_awaited(&self, parent: MessageId) -> bool {
        let waits = |(_, state)| state == ParentState::Waiting;
        self.of(parent).any(waits)
    }

    /// How it has ended, if some shard does not know.
    pub(super) fn end_of(&self, parent: MessageId) -> Option<ParentState> {
        let mut states = self.of(parent).map(|(_, state)| state);
        states.find(|state| *state != ParentState::Waiting)
    }

    /// How the message stands as far as this shard has to know.
    pub(crate) fn get(&self, parent: MessageId, shard: u8) -> Option<ParentState> {
        self.of.get(&(parent, shard)).map(|watch| watch.state)
    }

    /// Messages that have not ended.
    pub(super) fn awaited(&self) -> impl Iterator<Item = MessageId> + '_ {
        let waits = |watch: &Watch| watch.state == ParentState::Waiting;
        let all = self.of.iter().filter(move |(_, watch)| waits(watch));
        all.map(|(&(parent, _), _)| parent)
    }

    /// The first shard to be notified of an end.
    #[inline]
    pub(crate) fn first_due(&self) -> Option<u8> {
        self.due.first().map(|(shard, _)| *shard)
    }

    /// An end that this shard is to learn: of which message, and whether it has succeeded.
    pub(crate) fn due_for(&self, shard: u8) -> Option<(MessageId, bool)> {
        let mut due = (self.due).range((shard, MessageId(0))..=(shard, MessageId(u64::MAX)));
        let &(_, parent) = due.next()?;
        let state = self.get(parent, shard);
        Some((parent, state == Some(ParentState::Done)))
    }

    /// The message has ended: the clients that wait get a notification.
    pub(super) fn ended(&mut self, parent: MessageId, succeeded: bool) {
        for (&(_, shard), watch) in self.of.range_mut((parent, 0)..=(parent, u8::MAX)) {
            if watch.state == ParentState::Waiting {
                watch.state = ParentState::ended(succeeded);
                self.due.insert((shard, parent));
            }
        }
    }

    /// Sets a record, or ends it. Answers the segment of the one before.
    pub(super) fn set(
        &mut self,
        (parent, shard): Key,
        state: Option<ParentState>,
        segment_ref: SegmentRef,
    ) -> Option<SegmentRef> {
        match state {
            None | Some(ParentState::Waiting) => self.due.remove(&(shard, parent)),
            Some(ParentState::Done | ParentState::Failed) => self.due.insert((shard, parent)),
        };
        let old = match state {
            Some(state) => self
                .of
                .insert((parent, shard), Watch { state, segment_ref }),
            None => self.of.remove(&(parent, shard)),
        };
        old.map(|old| old.segment_ref)
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.of.len() as u64 * RECORD
    }

    /// All records, as facts.
    pub(super) fn image(&self, record: &mut dyn FnMut(&Fact)) {
        for (key, watch) in &self.of {
            record(&watched(*key, watch.state));
        }
    }

    pub(super) fn segments(&self) -> impl Iterator<Item = SegmentRef> + '_ {
        self.of.values().map(|watch| watch.segment_ref)
    }

    /// True while records of this segment are written again in several steps.
    pub(super) fn is_copying(&self, segment_ref: SegmentRef) -> bool {
        self.copied.is_some_and(|(copied, _)| copied == segment_ref)
    }

    /// Records that lie in `segment_ref`, into segment `into`; how many. [`Watches::is_copying`]:
    /// there may be more.
    pub(super) fn copy(
        &mut self,
        segment_ref: SegmentRef,
        into: SegmentRef,
        record: &mut dyn FnMut(&Fact),
    ) -> usize {
        let copied = self.copied.take();
        let copied = copied.filter(|(segment, _)| *segment == segment_ref);
        let from = copied.map_or(Unbounded, |(_, last)| Excluded(last));
        let (mut count, mut last) = (0, None);
        for (seen, (&key, watch)) in self.of.range_mut((from, Unbounded)).enumerate() {
            if seen >= COPIED {
                self.copied = last.map(|last| (segment_ref, last));
                break;
            }
            if watch.segment_ref == segment_ref {
                record(&watched(key, watch.state));
                watch.segment_ref = into;
                count += 1;
            }
            last = Some(key);
        }
        count
    }

    /// # Errors
    /// The index is not what it is made from.
    pub(super) fn verify(&self) -> Result<(), String> {
        let ended = |watch: &&Watch| watch.state != ParentState::Waiting;
        let ended = self.of.values().filter(ended).count();
        let mut due = self.due.iter();
        let is_due = |state: Option<ParentState>| state.is_some_and(|s| s != ParentState::Waiting);
        match due.find(|(shard, parent)| !is_due(self.get(*parent, *shard))) {
            Some((shard, parent)) => Err(format!("{parent:?} has not ended for shard {shard}")),
            None if ended != self.due.len() => {
                Err(format!("{ended} ends to tell, {} known", self.due.len()))
            }
            None => Ok(()),
        }
    }
}

fn watched((parent, shard): Key, state: ParentState) -> Fact {
    Fact::Watched {
        parent,
        shard,
        state: Some(state),
    }
}
