//! From the shards' open batches to one frame of the log.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use quintet_engine::{Home, Space, varint};
use quintet_log::{Epoch, FrameBuf, FrameKind, Log, LogError, Placed, Stamp};
use smallvec::SmallVec;

use super::shard::{Batch, Shard};
use super::{Core, Mailbox, locked, stop_for};

/// The log and what is on its way into it. One mutex guards it; whoever holds
/// that writes frames.
pub(crate) struct Committer {
    pub(crate) log: Box<dyn Log>,
    frame: FrameBuf,
    /// The shards' batches as taken; swapped, so that their memory is reused.
    taken: Vec<Batch>,
    /// The frame is filled for this ticket and not yet written (disk full).
    pending: Option<u64>,
    /// A segment ends with the pending frame.
    rotate: bool,
    /// A segment was begun that has no frame yet.
    fresh: bool,
    epoch: Epoch,
    /// A segment with less room than this is ended.
    reserve: u64,
    /// Bytes written since the last sync began.
    pub(crate) unsynced: u64,
}

/// What a commit did.
#[derive(Debug)]
pub(crate) enum Committed {
    /// There was nothing to write.
    Nothing,
    /// Everything decided before is with the operating system.
    Written,
    /// The disk is full. The frame is kept and written before any other.
    Full,
    /// What the disk holds is unknown.
    Failed(LogError),
}

impl Committer {
    pub(crate) fn new(log: Box<dyn Log>, epoch: Epoch, shards: usize, segment_bytes: u64) -> Self {
        Self {
            log,
            frame: FrameBuf::new(FrameKind::Facts),
            taken: (0..shards).map(|_| Batch::default()).collect(),
            pending: None,
            rotate: false,
            fresh: false,
            epoch,
            reserve: (segment_bytes / 8).min(4 << 20),
            unsynced: 0,
        }
    }

    /// Writes the open batch. `end_segment`: the next frame begins a new
    /// segment, also if there is room.
    pub(crate) fn commit(&mut self, core: &Core, end_segment: bool) -> Committed {
        if self.pending.is_none() && !self.take(core, end_segment) {
            return Committed::Nothing;
        }
        let Some(ticket) = self.pending else {
            return Committed::Nothing;
        };
        let stamp = Stamp {
            epoch: self.epoch,
            time_ms: core.clock.now().0,
        };
        let expected = self.log.end();
        match self.log.append(expected, stamp, &mut self.frame) {
            Ok(_) => {}
            Err(LogError::NoSpace { .. }) => return Committed::Full,
            Err(error) => return Committed::Failed(error),
        }
        self.fresh = false;
        self.unsynced += self.frame.len() as u64;
        let records = u64::from(self.frame.count);
        core.counts.records.fetch_add(records, Ordering::Relaxed);
        self.frame.clear();
        self.frame.payload_mut().shrink_to(1 << 20);
        self.pending = None;
        if std::mem::take(&mut self.rotate) {
            self.begin_segment(core);
        }
        core.progress.set_written(ticket);
        Committed::Written
    }

    /// Closes the open batch and makes it the pending frame. False if there
    /// was nothing in it.
    fn take(&mut self, core: &Core, end_segment: bool) -> bool {
        let mut shards: SmallVec<[MutexGuard<'_, Shard>; 4]> =
            core.shards.iter().map(locked).collect();
        if shards.iter().all(|shard| shard.batch.is_empty()) {
            if end_segment && !self.fresh {
                let home = self.home_after();
                begin_segment(core, &mut shards, home);
                self.begin_segment(core);
            }
            return false;
        }
        let ticket = core.progress.take();
        let mut bytes = 0;
        for (shard, taken) in shards.iter_mut().zip(&mut self.taken) {
            std::mem::swap(&mut shard.batch, taken);
            bytes += taken.records.len() as u64 + 16;
            core.runs.watch(shard.engine.memory_bytes());
            let last_id = shard.engine.last_id().0;
            if core.waits_for_disk() {
                shard.ring.push(ticket, last_id, core.progress.durable());
            }
        }
        let left = self.log.segment_bytes_left().saturating_sub(bytes);
        if end_segment || left < self.reserve {
            // What is decided from here on lands in the next segment, and the
            // state as it is now, between the two batches, goes before it.
            let home = self.home_after();
            begin_segment(core, &mut shards, home);
            self.rotate = true;
        }
        drop(shards);
        self.frame.clear();
        self.frame.set_kind(FrameKind::Facts);
        self.frame.count = fill(self.frame.payload_mut(), &mut self.taken);
        self.pending = Some(ticket);
        true
    }

    /// True if a frame waits for space on the disk.
    pub(crate) fn is_stuck(&self) -> bool {
        self.pending.is_some()
    }

    /// The segment after the one the next frame lands in.
    fn home_after(&self) -> Home {
        Home(self.log.segment().0 + 1 + u32::from(self.fresh))
    }

    fn begin_segment(&mut self, core: &Core) {
        self.log.begin_segment();
        self.fresh = true;
        core.counts.rotations.fetch_add(1, Ordering::Relaxed);
        core.upkeep.raise();
        // A full segment is synced soon under every policy.
        core.log_work.raise();
    }

    /// Writes a body's chunk between two batches.
    pub(crate) fn append_chunk(
        &mut self,
        core: &Core,
        frame: &mut FrameBuf,
    ) -> Result<Placed, Committed> {
        let needed = frame.len() as u64 + self.reserve;
        if self.pending.is_some() || self.log.segment_bytes_left() < needed {
            match self.commit(core, self.pending.is_none()) {
                Committed::Nothing => {}
                Committed::Written => core.tell_written(),
                stuck => return Err(stuck),
            }
        }
        let stamp = Stamp {
            epoch: self.epoch,
            time_ms: core.clock.now().0,
        };
        let expected = self.log.end();
        match self.log.append(expected, stamp, frame) {
            Ok(placed) => {
                self.fresh = false;
                self.unsynced += frame.len() as u64;
                Ok(placed)
            }
            Err(LogError::NoSpace { .. }) => Err(Committed::Full),
            Err(error) => Err(Committed::Failed(error)),
        }
    }
}

/// Puts the shards' state at the front of the segment `home`. If that may be
/// the last one the disk has room for, it takes no puts.
fn begin_segment(core: &Core, shards: &mut [MutexGuard<'_, Shard>], home: Home) {
    let tight = core.room.is_tight();
    if tight {
        core.room.full.store(true, Ordering::Relaxed);
    }
    for shard in shards {
        shard.begin_segment(home);
        if tight {
            shard.engine.set_space(Space::NoPuts);
        }
    }
}

/// Joins the shards' records: for each shard that has any its number, their
/// length and the records. Returns how many records there are.
pub(crate) fn fill(payload: &mut Vec<u8>, batches: &mut [Batch]) -> u32 {
    let mut count = 0;
    for (number, batch) in batches.iter_mut().enumerate() {
        if !batch.is_empty() {
            varint::put(payload, number as u64);
            varint::put(payload, batch.records.len() as u64);
            payload.extend_from_slice(&batch.records);
            count += batch.count;
        }
        batch.clear();
    }
    count
}

impl Core {
    /// Sees to it that the batch `ticket` gets written: at once, or, if replies
    /// wait for the disk anyway, by the log thread.
    pub(crate) fn write(&self, ticket: u64) {
        if self.progress.written() >= ticket {
            return;
        }
        if self.waits_for_disk() {
            self.log_work.raise();
            return;
        }
        self.write_here(ticket);
    }

    /// Writes the batch `ticket`, if nobody has yet. On a full disk the log
    /// thread, where there is one, tries again.
    pub(crate) fn write_here(&self, ticket: u64) {
        let mut committer = locked(&self.committer);
        // Whoever had the lock before may have written it.
        if self.progress.written() >= ticket {
            return;
        }
        let committed = committer.commit(self, false);
        drop(committer);
        match committed {
            Committed::Nothing => {}
            Committed::Written => self.tell_written(),
            Committed::Full => {
                self.upkeep.raise();
                if self.waits_for_disk() {
                    self.log_work.raise();
                }
            }
            Committed::Failed(error) => stop_for(&error),
        }
    }

    /// Wakes the I/O threads that hold replies for what is now written.
    pub(crate) fn tell_written(&self) {
        self.mail.iter().for_each(Mailbox::tell_written);
    }
}
