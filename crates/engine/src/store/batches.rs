//! Batches, and what is owed to those of other shards.
//!
//! Held in memory and told in full at the beginning of each segment, so they
//! are bounded (`batches_max`, `batch_bytes_max`, `snapshot_bytes_max`).

use std::collections::{BTreeMap, BTreeSet};

use super::Durable;
use quintet_types::{Batch, BatchId, Message, MessageId, Ms, NewBatch, Progress, Tally, Tie};

use crate::fact::Fact;

/// Memory of a batch beside its bytes, about.
const IN_MEMORY: u64 = 640;
/// The same of each attribute of a callback: its place in the list, and two allocations.
const ATTR: u64 = 72;
/// The record of a batch without its bytes: eleven numbers, and of each
/// callback the marks and six numbers of its retries.
const TOLD: u64 = 384;
/// The record of what is owed, and about what it takes in memory.
const OWED: u64 = 96;

/// A batch, and what of it is forgotten at a restart.
#[derive(Debug)]
struct BatchEntry {
    batch: Box<Batch>,
    /// When it is next looked whether its callback can be put; `None`: nothing
    /// has happened that is not said.
    due: Option<Ms>,
}

/// Those of a shard.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    entries: BTreeMap<BatchId, BatchEntry>,
    /// When each is gone. An index over `entries`.
    ends: BTreeSet<(Ms, BatchId)>,
    /// Those with something to say. An index over `entries`.
    due: BTreeSet<(Ms, BatchId)>,
    /// Changes here of members of other shards' batches.
    owed: BTreeMap<BatchId, Tally>,
    /// Bytes of descriptions and callbacks.
    bytes: u64,
    /// Attributes of callbacks.
    attrs: u64,
}

fn attrs_of(made: &NewBatch) -> u64 {
    let attrs = made.callbacks().map(|callback| callback.attrs.len());
    attrs.sum::<usize>() as u64
}

impl Batches {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn get(&self, id: BatchId) -> Option<&Batch> {
        self.entries.get(&id).map(|entry| &*entry.batch)
    }

    /// Those made after this one, by age.
    pub(crate) fn after(&self, id: BatchId) -> impl Iterator<Item = &Batch> {
        use std::ops::Bound::{Excluded, Unbounded};
        let entries = self.entries.range((Excluded(id), Unbounded));
        entries.map(|(_, entry)| &*entry.batch)
    }

    pub(crate) fn first_end(&self) -> Option<(Ms, BatchId)> {
        self.ends.first().copied()
    }

    /// When something may next be said.
    pub(crate) fn first_due(&self) -> Option<Ms> {
        self.due.first().map(|&(at, _)| at)
    }

    /// Batches that may be due by now.
    pub(crate) fn due(&self, now: Ms) -> impl Iterator<Item = &Batch> {
        let due = self.due.iter().take_while(move |(at, _)| *at <= now);
        due.filter_map(|&(_, id)| self.get(id))
    }

    /// Batches whose callback waits.
    pub(crate) fn waiting(&self) -> usize {
        self.due.len()
    }

    pub(crate) fn owed(&self) -> &BTreeMap<BatchId, Tally> {
        &self.owed
    }

    /// It is not looked at again before then.
    pub(super) fn put_off(&mut self, id: BatchId, until: Ms) {
        if let Some(entry) = self.entries.get_mut(&id)
            && let Some(due) = &mut entry.due
        {
            let before = std::mem::replace(due, until);
            let was = self.due.remove(&(before, id));
            assert!(
                was,
                "a batch that has something to say is among those that are due"
            );
            self.due.insert((until, id));
        }
    }

    pub(super) fn set(&mut self, batch: Batch) {
        self.remove(batch.id);
        let id = batch.id;
        self.bytes += batch.made.bytes();
        self.attrs += attrs_of(&batch.made);
        let new = self.ends.insert((batch.progress.until, id));
        assert!(
            new,
            "the end of an older batch of this id went with that batch"
        );
        let due = batch.progress.next().map(|_| Ms(0));
        self.due.extend(due.map(|due| (due, id)));
        let batch = Box::new(batch);
        self.entries.insert(id, BatchEntry { batch, due });
    }

    pub(super) fn progress(&mut self, id: BatchId, progress: Progress) {
        let Some(entry) = self.entries.get_mut(&id) else {
            // Replay may begin behind its end.
            return;
        };
        let before = std::mem::replace(&mut entry.batch.progress, progress);
        if before.until != progress.until {
            let was = self.ends.remove(&(before.until, id));
            assert!(was, "a batch is among the ends by its time before");
            self.ends.insert((progress.until, id));
        }
        // What could not be said keeps its turn, unless another event is next.
        let next = progress.next();
        if next != before.next() || next.is_some() != entry.due.is_some() {
            let due = next.map(|_| Ms(0));
            if let Some(old) = std::mem::replace(&mut entry.due, due) {
                let was = self.due.remove(&(old, id));
                assert!(
                    was,
                    "a batch that had something to say was among those that are due"
                );
            }
            self.due.extend(due.map(|due| (due, id)));
        }
    }

    pub(super) fn remove(&mut self, id: BatchId) {
        if let Some(entry) = self.entries.remove(&id) {
            let bytes = entry.batch.made.bytes();
            assert!(
                self.bytes >= bytes,
                "the bytes of a batch were counted with it"
            );
            self.bytes -= bytes;
            self.attrs -= attrs_of(&entry.batch.made);
            let ended = self.ends.remove(&(entry.batch.progress.until, id));
            assert!(ended, "a batch leaves its end with it");
            let was = entry.due.is_none_or(|due| self.due.remove(&(due, id)));
            assert!(was, "a batch that goes leaves those that are due");
        }
    }

    pub(super) fn owe(&mut self, id: BatchId, tally: Tally) {
        if tally == Tally::default() {
            self.owed.remove(&id);
        } else {
            self.owed.insert(id, tally);
        }
    }

    /// Bytes they take in a snapshot at most.
    pub(super) fn restated_bytes(&self) -> u64 {
        self.bytes + self.entries.len() as u64 * TOLD + self.owed.len() as u64 * OWED
    }

    /// The same of one that is to be made.
    pub(crate) fn restated_size_of(bytes: u64) -> u64 {
        bytes + TOLD
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let entries = self.entries.len() as u64 * IN_MEMORY + self.attrs * ATTR;
        self.bytes + entries + self.owed.len() as u64 * OWED
    }

    /// Those behind this one, for the beginning of a segment, until `left` bytes are used up.
    /// Answers the last one then.
    pub(super) fn restate(
        &self,
        after: BatchId,
        left: &mut u64,
        record: &mut dyn FnMut(&Fact),
    ) -> Option<BatchId> {
        for batch in self.after(after) {
            record(&Fact::BatchMade(Box::new(batch.clone())));
            *left = left.saturating_sub(batch.made.bytes() + TOLD);
            if *left == 0 {
                return Some(batch.id);
            }
        }
        None
    }

    /// The same of what is owed to other shards' batches.
    pub(super) fn restate_owed(
        &self,
        after: BatchId,
        left: &mut u64,
        record: &mut dyn FnMut(&Fact),
    ) -> Option<BatchId> {
        use std::ops::Bound::{Excluded, Unbounded};
        for (&batch, &owed) in self.owed.range((Excluded(after), Unbounded)) {
            record(&Fact::BatchOwed { batch, owed });
            *left = left.saturating_sub(OWED);
            if *left == 0 {
                return Some(batch);
            }
        }
        None
    }

    /// # Errors
    /// An index or a sum is not what it is made from.
    pub(super) fn verify(&self) -> Result<(), String> {
        let (mut due, mut bytes, mut attrs) = (0, 0, 0);
        for (&id, entry) in &self.entries {
            bytes += entry.batch.made.bytes();
            attrs += attrs_of(&entry.batch.made);
            if entry.batch.id != id || !self.ends.contains(&(entry.batch.progress.until, id)) {
                return Err(format!("{id} has no end"));
            }
            if entry.due.is_some() != entry.batch.progress.next().is_some() {
                return Err(format!("{id} is due at {:?}", entry.due));
            }
            if let Some(at) = entry.due {
                due += 1;
                if !self.due.contains(&(at, id)) {
                    return Err(format!("{id} is not among those that are due"));
                }
            }
        }
        let counted = (self.bytes, self.attrs, self.due.len(), self.ends.len());
        match (bytes, attrs, due, self.entries.len()) == counted {
            true => Ok(()),
            false => Err(format!(
                "batches: {bytes} bytes, {attrs} attributes, {due} due, not {counted:?}"
            )),
        }
    }
}

impl Durable {
    /// The batch that a message belongs to, if it is here.
    pub(crate) fn tie(&self, id: MessageId) -> Option<Tie> {
        self.message(id)?.tie()
    }

    /// A message is here that may belong to a batch, be tracked, or send a reply.
    #[inline]
    pub(super) fn note_followed(&mut self, message: &Message) {
        if let Some(extra) = message.extra.as_deref()
            && (extra.batch.is_some() || extra.tracked || extra.reply.is_some())
        {
            self.followed = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::damaged::fires;

    /// A batch that has something to say.
    fn one() -> Batches {
        let mut batches = Batches::default();
        batches.set(Batch {
            id: BatchId(1),
            made: quintet_types::NewBatch {
                description: Box::from(*b"a batch"),
                ..quintet_types::NewBatch::default()
            },
            ..Batch::default()
        });
        batches
    }

    fn later() -> Progress {
        let until = Ms(9);
        Progress {
            until,
            open: true,
            ..Progress::default()
        }
    }

    #[test]
    fn each_damaged_index_is_noticed() {
        type Row = (&'static str, fn(&mut Batches), fn(&mut Batches));
        let rows: [Row; 7] = [
            (
                "has something to say is among those that are due",
                |b| b.due.clear(),
                |b| b.put_off(BatchId(1), Ms(5)),
            ),
            (
                "the end of an older batch of this id went with that batch",
                |b| _ = b.ends.insert((Ms(9), BatchId(2))),
                |b| {
                    let (id, progress) = (BatchId(2), later());
                    b.set(Batch {
                        id,
                        progress,
                        ..Batch::default()
                    });
                },
            ),
            (
                "a batch is among the ends by its time before",
                |b| b.ends.clear(),
                |b| b.progress(BatchId(1), later()),
            ),
            (
                "had something to say was among those that are due",
                |b| b.due.clear(),
                |b| b.progress(BatchId(1), later()),
            ),
            (
                "the bytes of a batch were counted with it",
                |b| b.bytes = 0,
                |b| b.remove(BatchId(1)),
            ),
            (
                "a batch leaves its end with it",
                |b| b.ends.clear(),
                |b| b.remove(BatchId(1)),
            ),
            (
                "a batch that goes leaves those that are due",
                |b| b.due.clear(),
                |b| b.remove(BatchId(1)),
            ),
        ];
        for (reason, damage, act) in rows {
            let mut batches = one();
            damage(&mut batches);
            fires(reason, || act(&mut batches));
        }
    }
}
