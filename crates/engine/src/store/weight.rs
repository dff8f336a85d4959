//! Size of queues, tables and blocks of runs in a snapshot, the records each segment of the log
//! begins with.
//!
//! Kept as a sum, so that what would make it too long is refused before it is
//! there. Everything counts for the most its records can take, and a queue from
//! the moment it has a name: one that somebody only waits on is recorded with
//! its first message, which must not fail.

use super::{Durable, Queue};
use quintet_types::{Name, Overrides, QueueId};

use crate::fact::Fact;

/// The records of a queue without its name and its settings: that it was made
/// (21), is paused (26), and its counters (18 totals, 27 beside them), at ten
/// bytes for each number of 64 bits and five for one of 32.
const QUEUE: u64 = 256;
/// The record that it gets copies of another one's puts, without its name.
const CHILD: u64 = 32;
/// The record of who made it, without the name.
const MAKER: u64 = 16;
/// The record of its clock of aging.
const AGING: u64 = 48;
/// A block of a run, without the bits of those that left it.
pub(super) const BLOCK: u64 = 160;
/// The id mark and the shard's own counters.
const SHARD: u64 = 512;

/// Memory of a queue beside its name, about: itself, its place in the tables, the first nodes of
/// its maps.
const IN_MEMORY: u64 = 1408;

/// Sums over all queues, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weights {
    /// In a snapshot, at most.
    pub(crate) restated: u64,
    /// In memory, about.
    pub(crate) memory: u64,
}

/// Memory of a queue of this name, about: its name is there twice.
pub(super) fn in_memory(name: &Name) -> u64 {
    IN_MEMORY + 2 * name.as_bytes().len() as u64
}

/// Size of a queue in a snapshot at most.
pub(crate) fn of_queue(
    name: &Name,
    has_parent: bool,
    overrides: &Overrides,
    maker: Option<&[u8]>,
) -> u64 {
    let maker = maker.map_or(0, |maker| MAKER + maker.len() as u64);
    let name = name.as_bytes().len() as u64;
    let as_child = if has_parent { CHILD + name } else { 0 };
    QUEUE + name + as_child + maker + of_overrides(overrides)
}

/// The same of one that is there.
fn of_queue_here(queue: &Queue) -> u64 {
    let maker = queue.maker.as_deref();
    of_queue(&queue.name, queue.parent.is_some(), queue.own(), maker)
        + queue.restated_size_of_aging()
}

impl Queue {
    /// Size of its clock of aging in a snapshot at most.
    pub(crate) fn restated_size_of_aging(&self) -> u64 {
        self.aging.as_ref().map_or(0, |_| AGING)
    }
}

fn of_overrides(overrides: &Overrides) -> u64 {
    if *overrides == Overrides::default() {
        return 0;
    }
    let mut bytes = Vec::new();
    let fact = Fact::QueueConfigured {
        queue: QueueId(u32::MAX),
        overrides: Box::new(overrides.clone()),
    };
    fact.encode(&mut bytes);
    bytes.len() as u64
}

impl Durable {
    /// Bytes a snapshot takes at most, if it is made now.
    pub(crate) fn snapshot_bytes(&self) -> u64 {
        SHARD
            + self.queue_weights.restated
            + self.held_keys_bytes
            + self.tables.restated_bytes
            + self.batches.restated_bytes()
            + self.tracks.restated_bytes()
            + self.cold.blocks * BLOCK
            + self.cold.dead_bytes
    }

    /// Counts a queue anew after its settings, its parent, or that it is there
    /// at all have changed.
    pub(super) fn weigh(&mut self, id: QueueId) {
        let Some(queue) = self.queue_mut(id) else {
            // The log may name a queue that is gone.
            return;
        };
        let restated = match queue.live.dropped {
            // No snapshot has it any more.
            true => 0,
            false => of_queue_here(queue),
        };
        let before = std::mem::replace(&mut queue.restated_bytes, restated);
        self.queue_weights.restated = self.queue_weights.restated - before + restated;
    }

    /// # Errors
    /// A sum is not what is there.
    pub(super) fn verify_weights(&self) -> Result<(), String> {
        let mut sums = Weights::default();
        let mut dedupe_records = hashbrown::HashMap::<QueueId, u32>::new();
        for key in self.dedupe_records.keys() {
            *dedupe_records.entry(key.0).or_default() += 1;
        }
        for queue in self.queues.iter() {
            sums.memory += in_memory(&queue.name);
            sums.restated += queue.restated_bytes;
            let restated = match queue.live.dropped {
                true => 0,
                false => of_queue_here(queue),
            };
            if restated != queue.restated_bytes {
                return Err(format!("{}: {restated} bytes told", queue.name));
            }
            if queue.live.dropped != self.ghosts.contains(&queue.id) {
                return Err(format!("{} is dropped or not", queue.name));
            }
            let left = dedupe_records.get(&queue.id).copied().unwrap_or(0);
            if left != queue.dedupe_records {
                return Err(format!(
                    "{}: {left} marks, not {}",
                    queue.name, queue.dedupe_records
                ));
            }
        }
        if sums != self.queue_weights {
            return Err(format!("{sums:?} counted as {:?}", self.queue_weights));
        }
        self.verify_holds()?;
        let mut bytes = Vec::new();
        self.snapshot(&mut |fact| fact.encode(&mut bytes));
        if bytes.len() as u64 > self.snapshot_bytes() {
            let most = self.snapshot_bytes();
            return Err(format!("a snapshot of {} bytes, not {most}", bytes.len()));
        }
        Ok(())
    }
}
