//! Whether the disk has room for more.
//!
//! Puts are refused while there is still room for what empties queues: a take
//! or a delete is a record too.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quintet_engine::Space;

use super::{Core, Work, locked};

/// What is known of the disk.
pub struct Room {
    dir: PathBuf,
    segment_bytes: u64,
    /// Puts are refused.
    pub(super) full: AtomicBool,
    /// Every spare segment is there.
    pub(super) spares_ready: AtomicBool,
    /// What is decided cannot be written.
    pub(super) stuck: AtomicBool,
    /// Bytes a segment begins with.
    pub(super) snapshot: AtomicU64,
}

impl Room {
    /// Of a log in `dir`, whose segments are of so many bytes.
    pub fn new(dir: PathBuf, segment_bytes: u64) -> Self {
        Self {
            dir,
            segment_bytes,
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
        self.snapshot.load(Ordering::Relaxed) <= self.segment_bytes / 8
    }

    /// True if there is not room for two more segments on the disk.
    pub(super) fn is_short(&self) -> bool {
        let snapshot = self.snapshot.load(Ordering::Relaxed);
        let wanted = 2 * self.segment_bytes.saturating_add(snapshot);
        // A file system that does not say is found full by writing to it.
        self.free().is_some_and(|free| free < wanted)
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
    pub fn look_at_room(&self) {
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
