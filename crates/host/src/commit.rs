//! From the shards' open batches to one frame of the log.

use std::sync::atomic::Ordering;

use quintet_engine::Space;
use quintet_log::{Epoch, FRAME_HEADER_BYTES, FrameBuf, FrameKind, Log, LogError, Placed, Stamp};
use quintet_types::SegmentRef;
use smallvec::SmallVec;

use super::shard::{Batch, Shard, fill};
use super::{Core, Locked, Work, locked};

/// A slice of what is copied is no longer, bytes, where segments are of some MiB.
const COPIED: u64 = 256 << 10;
/// Bytes of what a segment begins with that one commit writes of each shard, if they are late. A
/// frame has a limit.
pub(crate) const LATE_BYTES: u64 = 1 << 20;

/// The log and what is on its way into it. One mutex guards it; the thread that holds
/// that writes frames.
pub(crate) struct Committer {
    pub(crate) log: Box<dyn Log>,
    frame: FrameBuf,
    /// The shards' batches as taken; swapped, so that their memory is reused.
    taken: Vec<Batch>,
    /// The commit number whose facts were taken and not yet written (disk full).
    pending: Option<u64>,
    /// The frame is filled with the last of it.
    last: bool,
    /// A segment ends with the pending frame.
    rotate: bool,
    /// A segment was begun that has no frame yet.
    fresh: bool,
    epoch: Epoch,
    /// Bytes of a segment at most.
    segment_bytes: u64,
    /// Bytes of the segment being written, taken ones included, but for the
    /// snapshot it begins with.
    own: u64,
    /// Bytes of that, as far as they were taken.
    snapshot: u64,
    /// Bytes written since the last sync began.
    pub(crate) unsynced: u64,
}

/// When a commit ends the segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// When it is full.
    IfFull,
    /// With this frame, also if there is room.
    Now,
    /// Not any more: the server stops.
    Never,
}

/// Result of a commit.
#[derive(Debug)]
pub(crate) enum Committed {
    /// There was nothing to write.
    Nothing,
    /// Everything decided before is with the operating system.
    Written,
    /// The disk is full. The frame is kept and written before any other.
    Full,
    /// The log's content is unknown, or not ours any more; its owner was notified.
    Failed,
}

impl Committer {
    pub(crate) fn new(log: Box<dyn Log>, epoch: Epoch, shards: usize, segment_bytes: u64) -> Self {
        let last = log.segments().last().map_or(0, |last| last.bytes);
        Self {
            log,
            frame: FrameBuf::new(FrameKind::Facts),
            taken: (0..shards).map(|_| Batch::default()).collect(),
            pending: None,
            last: false,
            rotate: false,
            fresh: false,
            epoch,
            segment_bytes,
            own: last,
            snapshot: 0,
            unsynced: 0,
        }
    }

    /// Writes the open batch.
    pub(crate) fn commit(&mut self, core: &Core, ending: Ending) -> Committed {
        if core.has_failed() {
            return Committed::Failed;
        }
        if self.pending.is_none() && !self.take(core, ending) {
            return Committed::Nothing;
        }
        let Some(commit_number) = self.pending else {
            return Committed::Nothing;
        };
        loop {
            if self.frame.is_empty() {
                self.frame.set_kind(FrameKind::Facts);
                let payload = self.frame.payload_mut();
                (self.frame.count, self.last) = fill(payload, &mut self.taken);
            }
            let stamp = self.stamp(core);
            if self.frame.count == 0 {
                // Only replies wait for it.
                match self.log.heartbeat(stamp) {
                    Ok(()) => break,
                    Err(LogError::NoSpace { .. }) => {
                        core.set_stuck(true);
                        return Committed::Full;
                    }
                    Err(error) => return core.failed_to_commit(&error),
                }
            }
            let expected = self.log.end();
            match self.log.append(expected, stamp, &mut self.frame) {
                Ok(_) => core.set_stuck(false),
                Err(LogError::NoSpace { .. }) => {
                    core.set_stuck(true);
                    return Committed::Full;
                }
                Err(error) => return core.failed_to_commit(&error),
            }
            self.fresh = false;
            self.unsynced += self.frame.len() as u64;
            core.counts.written(&self.frame);
            self.frame.clear();
            self.frame.payload_mut().shrink_to(1 << 20);
            if self.last {
                break;
            }
        }
        self.pending = None;
        if std::mem::take(&mut self.rotate) {
            self.begin_segment(core);
        }
        core.progress.set_written(commit_number);
        if let Some(acked) = &core.acked {
            acked.sent(self.log.end(), commit_number);
        }
        Committed::Written
    }

    /// Closes the open batch and makes it the pending one. False if there was
    /// nothing in it.
    fn take(&mut self, core: &Core, ending: Ending) -> bool {
        let mut shards: SmallVec<[Locked<'_>; 4]> = (core.shards.iter())
            .map(|shard| shard.lock(Work::Commit))
            .collect();
        let requested = core
            .acked
            .as_ref()
            .is_some_and(|acked| acked.take_requested());
        if !requested && shards.iter().all(|shard| shard.batch.is_empty()) {
            if ending == Ending::Now && !self.fresh && self.may_end(core, &mut shards) {
                let segment_ref = self.segment_ref_after();
                begin_segment(core, &mut shards, segment_ref);
                self.begin_segment(core);
            }
            return false;
        }
        let commit_number = core.progress.take();
        let begins = shards.iter().any(|shard| shard.engine.is_restating());
        let is_late = begins && self.is_late(core);
        for (shard, taken) in shards.iter_mut().zip(&mut self.taken) {
            std::mem::swap(&mut shard.batch, taken);
            let Shard { engine, batch, .. } = &mut **shard;
            if is_late {
                engine.restate(LATE_BYTES, taken);
            }
            batch.observers = std::mem::take(&mut taken.observers);
            batch.observers.retain_mut(|observer| {
                observer.batch_over(engine, commit_number);
                !observer.is_done()
            });
            self.own += (taken.records.len() - taken.snapshot) as u64 + 16;
            self.snapshot += taken.snapshot as u64;
            core.counts.took(taken);
            core.runs.watch(shard.engine.memory_bytes());
            let last_id = shard.engine.last_id().0;
            if core.waits_for_disk() {
                shard
                    .ring
                    .push(commit_number, last_id, core.progress.durable());
            }
        }
        self.own += FRAME_HEADER_BYTES as u64;
        let full = self.room() < self.reserve();
        if (ending == Ending::Now || ending == Ending::IfFull && full)
            && self.may_end(core, &mut shards)
        {
            // What is decided from here on lands in the next segment.
            let segment_ref = self.segment_ref_after();
            begin_segment(core, &mut shards, segment_ref);
            self.rotate = true;
        }
        self.pending = Some(commit_number);
        true
    }

    /// True if the segment has to end, or has long been full: each commit writes much of what it
    /// begins with, which is not whole yet.
    fn is_late(&self, core: &Core) -> bool {
        let usual = self.bytes().max(core.room.snapshot.load(Ordering::Relaxed));
        self.own > 2 * usual || self.room() < self.reserve() && core.room.is_short()
    }

    /// True if another segment can be begun. If not, what this one begins with is not whole, or
    /// the rest of it is for what frees space.
    fn may_end(&self, core: &Core, shards: &mut [Locked<'_>]) -> bool {
        if shards.iter().any(|shard| shard.engine.is_restating()) {
            return false;
        }
        let snapshot = shards.iter().map(|shard| shard.engine.snapshot_bytes());
        let wanted = snapshot.sum::<u64>() + self.reserve();
        let next = self
            .log
            .next_bytes()
            .map(|next| next.min(self.segment_bytes));
        if next.is_some_and(|next| wanted <= next) || !core.room.is_short() {
            return true;
        }
        core.room.full.store(true, Ordering::Relaxed);
        for shard in shards {
            shard.engine.set_space(Space::NoPuts);
        }
        false
    }

    /// Bytes until the segment is full. The snapshot it began with does not
    /// count: one as long as a segment would end each with its first frame, and
    /// be written again and again. A longer one gets as much as it takes
    /// itself, so that snapshots are never more than half of what is written.
    fn room(&self) -> u64 {
        self.bytes().max(self.snapshot).saturating_sub(self.own)
    }

    /// Bytes of the segment being written.
    fn bytes(&self) -> u64 {
        self.log.segment_bytes().unwrap_or(self.segment_bytes)
    }

    /// A segment with less room than this is ended, bytes: one more batch must fit.
    fn reserve(&self) -> u64 {
        let bytes = self.bytes();
        (bytes / 8).max((bytes / 4).min(512 << 10)).min(4 << 20)
    }

    /// True if something can be copied to the end of the log: where the disk is `full`, what is
    /// left for takes must stay.
    pub(crate) fn may_copy(&self, full: bool) -> bool {
        !full || self.room() >= self.reserve() + COPIED.min(self.bytes() / 4)
    }

    /// True if as much was requested in this segment as the next begins with.
    pub(crate) fn pays_for_next(&self, core: &Core) -> bool {
        self.own >= core.room.snapshot.load(Ordering::Relaxed)
    }

    /// True if a frame waits for space on the disk.
    pub(crate) fn is_stuck(&self) -> bool {
        self.pending.is_some()
    }

    /// The segment after the one the next frame lands in.
    fn segment_ref_after(&self) -> SegmentRef {
        SegmentRef(self.log.segment().0 + 1 + u32::from(self.fresh))
    }

    fn begin_segment(&mut self, core: &Core) {
        if self.own + self.snapshot >= self.bytes() / 2 {
            core.room.filled.store(true, Ordering::Relaxed);
        }
        self.log.begin_segment();
        self.fresh = true;
        (self.own, self.snapshot) = (0, 0);
        core.counts.rotations.fetch_add(1, Ordering::Relaxed);
        core.upkeep.raise();
        // A full segment is synced soon under every policy.
        core.log_work.raise();
    }

    /// The stamp of a frame that is appended now.
    fn stamp(&self, core: &Core) -> Stamp {
        Stamp {
            epoch: self.epoch,
            time_ms: core.clock.now().0,
        }
    }

    /// Says that the log's owner lives.
    pub(crate) fn heartbeat(&mut self, core: &Core) -> Result<(), LogError> {
        let stamp = self.stamp(core);
        self.log.heartbeat(stamp)
    }

    /// Says that its owner goes.
    pub(crate) fn handoff(&mut self, core: &Core, to: &str) -> Result<(), LogError> {
        let stamp = self.stamp(core);
        self.log.handoff(stamp, to)
    }

    /// Writes a body's chunk between two batches; `copy`: it is in the log
    /// already, and written again.
    pub(crate) fn append_chunk(
        &mut self,
        core: &Core,
        frame: &mut FrameBuf,
        copy: bool,
    ) -> Result<Placed, Committed> {
        let bytes = (frame.len() + FRAME_HEADER_BYTES) as u64;
        let full = self.own > 0 && self.room() < bytes + self.reserve();
        if self.pending.is_some() || full {
            let ending = match self.pending {
                Some(_) => Ending::IfFull,
                None => Ending::Now,
            };
            match self.commit(core, ending) {
                Committed::Nothing => {}
                Committed::Written => core.notify_written(),
                stuck @ (Committed::Full | Committed::Failed) => return Err(stuck),
            }
        }
        if core.has_failed() {
            return Err(Committed::Failed);
        }
        let stamp = self.stamp(core);
        let expected = self.log.end();
        match self.log.append(expected, stamp, frame) {
            Ok(placed) => {
                self.fresh = false;
                self.unsynced += frame.len() as u64;
                self.own += bytes;
                core.counts.written(frame);
                if copy {
                    core.counts.log_copied.fetch_add(bytes, Ordering::Relaxed);
                }
                Ok(placed)
            }
            Err(LogError::NoSpace { .. }) => Err(Committed::Full),
            Err(error) => Err(core.failed_to_commit(&error)),
        }
    }
}

/// The shards begin the segment `segment_ref`. If that may be the last one the disk has room for,
/// it takes no puts.
fn begin_segment(core: &Core, shards: &mut [Locked<'_>], segment_ref: SegmentRef) {
    let snapshot = shards.iter().map(|shard| shard.engine.snapshot_bytes());
    core.room.snapshot.store(snapshot.sum(), Ordering::Relaxed);
    let tight = core.room.is_tight();
    if tight {
        core.room.full.store(true, Ordering::Relaxed);
    }
    for shard in shards {
        shard.work = Work::Segment;
        shard.begin_segment(segment_ref);
        if tight {
            shard.engine.set_space(Space::NoPuts);
        }
    }
}

impl Core {
    /// Sees to it that the batch `commit_number` gets written: at once, or, if replies
    /// wait for the disk anyway, by the log thread.
    pub fn write(&self, commit_number: u64) {
        if self.progress.written() >= commit_number {
            return;
        }
        if self.waits_for_disk() {
            self.log_work.raise();
            return;
        }
        self.write_here(commit_number);
    }

    /// Writes the batch `commit_number`, if nobody has yet. On a full disk the log
    /// thread, where there is one, tries again.
    pub fn write_here(&self, commit_number: u64) {
        let mut committer = locked(&self.committer);
        // An earlier owner of the lock may have written it.
        if self.progress.written() >= commit_number {
            return;
        }
        let committed = committer.commit(self, Ending::IfFull);
        drop(committer);
        match committed {
            Committed::Nothing => {}
            Committed::Written => self.notify_written(),
            Committed::Full => {
                self.upkeep.raise();
                if self.waits_for_disk() {
                    self.log_work.raise();
                }
            }
            Committed::Failed => {}
        }
    }

    fn failed_to_commit(&self, error: &LogError) -> Committed {
        self.fail(error);
        Committed::Failed
    }

    /// Wakes the threads that hold replies for what is now durable.
    pub(crate) fn notify_durable(&self) {
        self.mail.iter().for_each(|post| post.notify_durable());
    }

    /// Wakes the threads that hold replies for what is now written.
    pub(crate) fn notify_written(&self) {
        self.mail.iter().for_each(|post| post.notify_written());
    }
}
