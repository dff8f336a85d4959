//! Whether the disk has room for more.
//!
//! Puts are refused while there is still room for what empties queues: a take
//! or a delete is a record too.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quintet_engine::Space;
use quintet_log::Spares;

use super::{Core, Work, locked};

/// Files of the log grow while the disk has room for so many of the new length.
const ROOMY: u64 = 8;

/// State of the disk.
pub struct Room {
    dir: PathBuf,
    /// Length of the log's files, bytes.
    segment_bytes: AtomicU64,
    /// A segment was filled, more than half, since the files grew last.
    pub(super) filled: AtomicBool,
    /// Puts are refused.
    pub(super) full: AtomicBool,
    /// Every spare segment is there.
    pub(super) spares_ready: AtomicBool,
    /// Decisions cannot be written.
    pub(super) stuck: AtomicBool,
    /// Bytes a segment begins with.
    pub(super) snapshot: AtomicU64,
}

impl Room {
    /// Of a log in `dir`, whose segments are of so many bytes at most.
    pub fn new(dir: PathBuf, segment_bytes: u64) -> Self {
        Self {
            dir,
            segment_bytes: AtomicU64::new(segment_bytes),
            filled: AtomicBool::new(false),
            full: AtomicBool::new(false),
            spares_ready: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            snapshot: AtomicU64::new(0),
        }
    }

    /// True if a segment that begins now might not be followed by another:
    /// spares are missing, or its snapshot takes much of one, and there is not
    /// room for two more on the disk.
    pub(super) fn is_tight(&self) -> bool {
        let ready = self.spares_ready.load(Ordering::Relaxed);
        !(self.begins_small() && ready) && self.is_short()
    }

    /// True if what a segment begins with is little of it.
    pub(super) fn begins_small(&self) -> bool {
        self.snapshot.load(Ordering::Relaxed) <= self.segment_bytes.load(Ordering::Relaxed) / 8
    }

    /// True if there is not room for two more segments on the disk.
    pub(super) fn is_short(&self) -> bool {
        let snapshot = self.snapshot.load(Ordering::Relaxed);
        let segment = self.segment_bytes.load(Ordering::Relaxed);
        let wanted = 2 * segment.saturating_add(snapshot);
        // A file system that does not say is found full by writing to it.
        self.free().is_some_and(|free| free < wanted)
    }

    /// Makes the log's files longer: twice as long when one was filled, and so long that what each
    /// begins with is little of it; as long as the disk has much more room than they take.
    pub(super) fn grow(&self, spares: &Spares) {
        let bytes = spares.bytes();
        let mut wanted = self.snapshot.load(Ordering::Relaxed).saturating_mul(8);
        if self.filled.swap(false, Ordering::Relaxed) {
            wanted = wanted.max(2 * bytes);
        }
        let wanted = wanted.min(spares.most());
        let roomy = || self.free().is_none_or(|free| free / ROOMY >= wanted);
        if wanted > bytes && roomy() {
            spares.grow(wanted);
        }
        self.segment_bytes.store(spares.bytes(), Ordering::Relaxed);
    }

    /// Bytes the disk has left, if its file system says.
    fn free(&self) -> Option<u64> {
        let disk = rustix::fs::statvfs(&self.dir).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}

impl Core {
    /// Bytes the disk of the data directory has left, if its file system says.
    pub fn disk_free(&self) -> Option<u64> {
        self.room.free()
    }

    /// True while what is decided cannot be written.
    pub fn is_stuck(&self) -> bool {
        self.room.stuck.load(Ordering::Relaxed)
    }

    /// Something could be written, or not. Those who hold replies look who is
    /// still there to get them. No shard is locked.
    pub(super) fn set_stuck(&self, stuck: bool) {
        if self.room.stuck.load(Ordering::Relaxed) == stuck {
            return;
        }
        self.room.stuck.store(stuck, Ordering::Relaxed);
        if stuck {
            self.set_space(Space::NoTakes);
            self.mail.iter().for_each(|post| post.wake());
        } else {
            // The maintenance thread says whether there is more.
            self.set_space(Space::NoPuts);
            self.upkeep.raise();
        }
    }

    /// Before the first client: a log whose segment could not be made ahead
    /// takes no puts yet.
    pub fn check_room(&self) {
        if !locked(&self.committer).log.is_whole() {
            self.set_space(Space::NoPuts);
        }
    }

    /// How it stands, for statistics: 0 there is room, 1 puts are refused, 2
    /// takes too.
    pub fn shortage(&self) -> u64 {
        match (self.is_stuck(), self.is_full()) {
            (true, _) => 2,
            (false, full) => u64::from(full),
        }
    }

    /// Tells the engine how much room there is.
    pub(super) fn set_space(&self, space: Space) {
        self.room
            .full
            .store(space != Space::Enough, Ordering::Relaxed);
        for shard in &self.shards {
            shard.lock(Work::Server).engine.set_space(space);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quintet_log::{LocalLog, Options};
    use quintet_sim::disk::SimDisk;

    use super::*;

    fn spares() -> Spares {
        let options = Options {
            segment_bytes: 64 << 20,
            ..Options::default()
        };
        let log = LocalLog::open(Arc::new(SimDisk::new(1)), options, &mut |_| Ok(()));
        log.expect("it opens").0.spares()
    }

    #[test]
    fn files_grow_as_they_fill_and_with_what_each_begins_with() {
        let (spares, room) = (spares(), Room::new("/".into(), 64 << 20));
        room.grow(&spares);
        assert_eq!(spares.bytes(), 2 << 20, "nothing was filled");
        room.filled.store(true, Ordering::Relaxed);
        room.grow(&spares);
        room.grow(&spares);
        assert_eq!(spares.bytes(), 4 << 20, "once");
        room.snapshot.store(2 << 20, Ordering::Relaxed);
        room.grow(&spares);
        assert_eq!(spares.bytes(), 16 << 20);
        assert!(room.begins_small());
        room.snapshot.store(9 << 20, Ordering::Relaxed);
        room.grow(&spares);
        assert_eq!(spares.bytes(), 64 << 20, "the most there is");
        assert!(!room.begins_small());
    }

    #[test]
    fn files_stay_short_on_a_disk_with_little_room() {
        // A file system that says it has no room at all.
        let (spares, room) = (spares(), Room::new("/proc".into(), 64 << 20));
        room.filled.store(true, Ordering::Relaxed);
        room.grow(&spares);
        assert_eq!(spares.bytes(), 2 << 20);
    }
}
