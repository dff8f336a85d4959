//! The maintenance thread: spare segments, and old segments out of the way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quintet_engine::{Engine, Space};
use quintet_log::{FrameBuf, FrameKind, SegmentNumber, SpareState, Spares};
use quintet_types::{ChunkPlace, LargeBody, SegmentRef};

use super::bodies::chunk_place;
use super::commit::{Committed, Ending};
use super::{Core, Work, locked};

/// Pause between two slices of background writing. In tests nobody else
/// writes.
const PACE: Duration = Duration::from_millis(if cfg!(test) { 0 } else { 2 });
/// Pause between two looks when there is nothing to do.
const IDLE: Duration = Duration::from_secs(1);
/// The same while the disk is full.
const FULL: Duration = Duration::from_millis(100);
/// How long the log may be longer than it should, though not twice as long.
const GRACE: Duration = Duration::from_secs(1);
/// A log that others keep is so many times as long as it should be at most: what lives in its
/// oldest segments cannot leave, as where runs are kept there is no room, or it takes too long.
const OVERGROWN: u64 = 8;
/// Bytes of a segment from which on also a few messages in it are worth a run.
const WORTH: u64 = 256 << 10;
/// Slots of messages looked at in one hold of a shard's lock.
const SLOTS: u32 = 512;

impl Core {
    /// Runs until `stop`. `log_bytes` is read anew each time.
    pub fn run_upkeep(
        &self,
        spares: Option<&Spares>,
        log_bytes: &dyn Fn() -> u64,
        stop: &AtomicBool,
    ) {
        let mut reported = Space::Enough;
        let mut pause = Duration::ZERO;
        let mut over = None;
        loop {
            self.upkeep.wait_for(pause);
            if stop.load(Ordering::SeqCst) {
                return;
            }
            let stuck = self.write_stuck();
            if let Some(spares) = spares {
                self.room.grow(spares);
            }
            let began = Instant::now();
            let state = match spares {
                // A segment that was not made ahead still grows: spares would take its room, and
                // then nothing could be taken either.
                Some(_) if self.room.is_short() && !self.is_whole() => SpareState::Low,
                Some(spares) => match spares.fill_slice() {
                    Ok(state) => state,
                    Err(error) => return self.fail(&error),
                },
                None => SpareState::Ready,
            };
            pause = match state {
                _ if stuck => FULL,
                // A slow disk has the more to do for others.
                SpareState::Filling => PACE.max(began.elapsed() * 2),
                SpareState::Ready => IDLE,
                SpareState::Low => FULL,
            };
            let ready = state == SpareState::Ready;
            self.room.spares_ready.store(ready, Ordering::Relaxed);
            let whole = stuck || self.go_on_whole(spares);
            let space = match stuck {
                true => Space::NoTakes,
                false if !whole && self.room.is_short() => Space::NoPuts,
                false => self.space(spares, log_bytes()),
            };
            self.go_by_space(space, &mut reported, spares, log_bytes());
            if self.retire_one(log_bytes(), &mut over, stop) {
                pause = PACE;
            }
        }
    }

    /// The free space, where the log can be written.
    fn space(&self, spares: Option<&Spares>, log_bytes: u64) -> Space {
        let low = spares.is_some_and(Spares::low) || self.room.is_tight();
        match low || self.is_overgrown(log_bytes) {
            true => Space::NoPuts,
            false => Space::Enough,
        }
    }

    /// There is `space`: commands go by it, and where others were `reported` the log says so.
    fn go_by_space(
        &self,
        space: Space,
        reported: &mut Space,
        spares: Option<&Spares>,
        log_bytes: u64,
    ) {
        if space != *reported || self.is_full() != (space != Space::Enough) {
            self.set_space(space);
        }
        if (space == Space::Enough) != (*reported == Space::Enough) {
            let why = match self.is_overgrown(log_bytes) {
                true => self.why_overgrown(),
                false => spares.map(Spares::why).unwrap_or_default(),
            };
            report(space, &why);
        }
        *reported = space;
    }

    /// Sees to what an overgrown log has room for, as [`Core::run_upkeep`] does.
    #[cfg(test)]
    pub(super) fn see_to_overgrown(&self, reported: &mut Space, log_bytes: u64) {
        self.go_by_space(self.space(None, log_bytes), reported, None, log_bytes);
    }

    /// Whether the log is far longer than it should be. Nothing else bounds one whose disks are
    /// others': a disk of its own gets full.
    pub(super) fn is_overgrown(&self, log_bytes: u64) -> bool {
        let most = log_bytes.saturating_mul(OVERGROWN);
        self.is_shared() && self.counts.log_bytes.load(Ordering::Relaxed) > most
    }

    fn why_overgrown(&self) -> String {
        format!(
            "the log has {} MiB, as messages in its oldest segments cannot be stored as runs, or \
             not as fast as others come",
            self.counts.log_bytes.load(Ordering::Relaxed) >> 20
        )
    }

    /// True if the segment that is written has all its room on the disk.
    fn is_whole(&self) -> bool {
        locked(&self.committer).log.is_whole()
    }

    /// Leaves a segment that was not made ahead as soon as there is one that
    /// was: a full disk would keep it from growing. False: there is none yet,
    /// or it has to wait: what the next one begins with is long, and paid for
    /// by as much that is requested while the disk has room.
    fn go_on_whole(&self, spares: Option<&Spares>) -> bool {
        {
            let mut committer = locked(&self.committer);
            if committer.log.is_whole() {
                return true;
            }
            if !spares.is_some_and(Spares::any) {
                return false;
            }
            if !self.room.begins_small() && !committer.pays_for_next(self) && !self.room.is_short()
            {
                return false;
            }
            match committer.commit(self, Ending::Now) {
                Committed::Written | Committed::Nothing => {}
                Committed::Full | Committed::Failed => return false,
            }
        }
        self.notify_written();
        self.write_now() && locked(&self.committer).log.is_whole()
    }

    /// Writes what found the disk full before. True if it still is.
    fn write_stuck(&self) -> bool {
        let committed = {
            let mut committer = locked(&self.committer);
            if !committer.is_stuck() {
                return false;
            }
            committer.commit(self, Ending::IfFull)
        };
        match committed {
            Committed::Full | Committed::Failed => return true,
            Committed::Nothing | Committed::Written => {}
        }
        self.notify_written();
        // The log thread syncs it and goes on.
        self.log_work.raise();
        false
    }

    /// Writes on at what the newest segment begins with. When that is whole, or the log is far too
    /// long, as [`Core::retire_oldest`]. True if it did something.
    pub(super) fn retire_one(
        &self,
        log_bytes: u64,
        over: &mut Option<Instant>,
        stop: &AtomicBool,
    ) -> bool {
        let begins = self.restate();
        if begins {
            self.write_now();
            let segments = locked(&self.committer).log.segments();
            let total: u64 = segments.iter().map(|segment| segment.bytes).sum();
            // The rest would be written without a pause.
            if total <= log_bytes.saturating_mul(2) {
                return true;
            }
        }
        self.retire_oldest(log_bytes, over, stop) || begins
    }

    /// Retires the oldest segment if nothing lives in it or the log is too
    /// long; `over` is since when. True if it did.
    fn retire_oldest(&self, log_bytes: u64, over: &mut Option<Instant>, stop: &AtomicBool) -> bool {
        let segments = locked(&self.committer).log.segments();
        let total: u64 = segments.iter().map(|segment| segment.bytes).sum();
        self.counts.log_bytes.store(total, Ordering::Relaxed);
        let [oldest, _, ..] = segments[..] else {
            return false;
        };
        let number = oldest.number.0;
        let keep = self.events_keep.load(Ordering::Relaxed);
        let is_kept = total - oldest.bytes < keep && total <= log_bytes && !self.is_full();
        if !is_kept && !self.lives_in(number) {
            self.retire(oldest.number, stop);
            return true;
        }
        if total <= log_bytes {
            *over = None;
            return false;
        }
        // What is put and taken at once dies by itself: large bodies need not
        // be moved away under their consumers' noses.
        let since = over.get_or_insert_with(Instant::now).elapsed();
        if since < GRACE && total <= 2 * log_bytes {
            return false;
        }
        // What must stay in the log, as leases do, is written again for as much
        // as is requested, and no more: else a log of which more than half
        // lives would be copied for ever.
        let counts = &self.counts;
        let copied = counts.log_copied.load(Ordering::Relaxed);
        let copies = copied <= counts.log_requested() + log_bytes;
        // What waits in it leaves for a run, also a few long messages once they
        // were copied enough; the few that are reserved, and what a run cannot
        // hold, go to the end of the log.
        let spills = self.lives_much_in(number) || !copies && oldest.bytes >= WORTH;
        if spills && !self.spill_segment_ref(SegmentRef(number), stop) {
            return false;
        }
        if !copies && self.lives_in(number) {
            return false;
        }
        if !self.copy_bodies(number, stop)
            || !self.copy_messages(number, stop)
            || self.lives_in(number)
        {
            // What could not be copied now (a body that came meanwhile, a
            // lease on a message of a dropped queue) is looked at again later.
            return false;
        }
        self.retire(oldest.number, stop);
        true
    }

    /// True if so much lives in the segment that a run is worth a file.
    fn lives_much_in(&self, segment: u32) -> bool {
        const FEW: u64 = 64;
        let messages: u64 = self.live_in(segment).sum();
        messages > FEW || !self.bodies.with_chunks_through(segment).is_empty()
    }

    /// True if something in the segment must still be remembered.
    fn lives_in(&self, segment: u32) -> bool {
        self.live_in(segment).any(|live| live > 0)
            || !self.bodies.with_chunks_through(segment).is_empty()
    }

    /// How many messages of each shard live in the segment.
    fn live_in(&self, segment: u32) -> impl Iterator<Item = u64> {
        let shards = 0..self.shards.len();
        shards.map(move |shard| {
            let live = |engine: &mut Engine| engine.segment_refs_live(SegmentRef(segment));
            self.in_engine(shard, Work::Retire, live)
        })
    }

    /// True if there is room for copies. The disks of a shared log are others', and what makes it
    /// shorter goes on.
    fn may_copy(&self) -> bool {
        locked(&self.committer).may_copy(self.is_full() && !self.is_shared())
    }

    /// Writes the messages of a segment again. False if the disk is full.
    fn copy_messages(&self, segment: u32, stop: &AtomicBool) -> bool {
        for shard in &self.shards {
            let mut from = Some(0);
            while let Some(cursor) = from {
                if !self.may_copy() {
                    return false;
                }
                let mut guard = shard.lock_last(Work::Retire);
                let super::Shard { engine, batch, .. } = &mut *guard;
                let before = batch.records.len() - batch.snapshot;
                let copied = engine.copy_out(SegmentRef(segment), cursor, SLOTS, batch);
                batch.copied += batch.records.len() - batch.snapshot - before;
                from = copied.next;
                drop(guard);
                self.counts
                    .copied
                    .fetch_add(copied.images, Ordering::Relaxed);
                if stop.load(Ordering::SeqCst) {
                    return false;
                }
                if copied.images > 0 {
                    if !self.write_now() {
                        return false;
                    }
                    std::thread::sleep(PACE);
                }
            }
        }
        true
    }

    /// Writes the chunks of a segment's large bodies again. False if the disk
    /// is full or a chunk cannot be read.
    fn copy_bodies(&self, segment: u32, stop: &AtomicBool) -> bool {
        let mut frame = FrameBuf::new(FrameKind::Body);
        for body in self.bodies.with_chunks_through(segment) {
            for (index, position) in body.places().into_iter().enumerate() {
                if position.segment <= segment {
                    if stop.load(Ordering::SeqCst)
                        || !self.may_copy()
                        || !self.copy_chunk(&body, index, position, &mut frame)
                    {
                        return false;
                    }
                    std::thread::sleep(PACE);
                }
            }
        }
        true
    }

    fn copy_chunk(
        &self,
        body: &LargeBody,
        index: usize,
        position: ChunkPlace,
        frame: &mut FrameBuf,
    ) -> bool {
        let at = SegmentNumber(position.segment);
        let payload = match self
            .reader
            .read_frame_payload(at, position.offset, position.frame_len)
        {
            Ok(payload) => payload,
            Err(error) => {
                tracing::error!("cannot move a large body out of an old segment: {error}");
                return false;
            }
        };
        frame.clear();
        frame.count = 1;
        frame.payload_mut().extend_from_slice(&payload);
        let mut committer = locked(&self.committer);
        let placed = match committer.append_chunk(self, frame, true) {
            Ok(placed) => placed,
            Err(_) => return false,
        };
        // An upload may have added places since; both happen under this lock.
        let mut places = body.places();
        places[index] = chunk_place(placed, position.len as usize);
        let segments = places.iter().map(|position| position.segment);
        let segment_ref = segments.min().unwrap_or(0);
        body.set_places(places, segment_ref);
        true
    }

    /// Writes the open batch. False if the disk is full.
    pub(super) fn write_now(&self) -> bool {
        // What found the disk full before is an earlier batch.
        if self.write_stuck() {
            return false;
        }
        let committed = locked(&self.committer).commit(self, Ending::IfFull);
        match committed {
            Committed::Nothing => true,
            Committed::Written => {
                self.notify_written();
                if self.waits_for_disk() {
                    self.log_work.raise();
                }
                true
            }
            Committed::Full | Committed::Failed => false,
        }
    }

    /// Writes on, a slice in each shard, at what the newest segment begins with. False: it is
    /// whole.
    pub(super) fn restate(&self) -> bool {
        let mut more = false;
        for shard in &self.shards {
            more |= shard.lock_last(Work::Segment).restate();
        }
        more
    }

    /// Gives a segment up that nothing lives in any more. First everything
    /// decided so far is made durable: the copies, and all that the next
    /// segment begins with. A stop does not wait for that.
    pub(crate) fn retire(&self, segment: SegmentNumber, stop: &AtomicBool) {
        while self.restate() {
            if stop.load(Ordering::SeqCst) || !self.write_now() {
                return;
            }
        }
        if !self.write_now() || !self.sync() {
            return;
        }
        self.notify_durable();
        // The lock is not held while the disk works.
        let begun = locked(&self.committer).log.begin_retire(segment);
        match begun.and_then(quintet_log::Retiring::run) {
            Ok(bytes) => {
                self.counts.retired.fetch_add(1, Ordering::Relaxed);
                tracing::debug!("retired segment {segment}, {bytes} bytes");
            }
            Err(error) => self.fail(&error),
        }
    }
}

fn report(space: Space, why: &str) {
    if space == Space::Enough {
        tracing::info!("there is space on the disk again: puts are accepted");
    } else {
        tracing::error!(
            "the disk is full: puts are refused until there is space again; {}",
            if why.is_empty() {
                "less is free than two files of the log"
            } else {
                why
            }
        );
    }
}
