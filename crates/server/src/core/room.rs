//! Whether the disk has room for more.
//!
//! Puts are refused while there is still room for what empties queues: a take
//! or a delete is a record too.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quintet_engine::Space;

use super::{Core, locked};

/// What is known of the disk.
pub(crate) struct Room {
    dir: PathBuf,
    segment_bytes: u64,
    /// Puts are refused.
    pub(super) full: AtomicBool,
    /// Every spare segment is there.
    pub(super) spares_ready: AtomicBool,
    /// Bytes a segment begins with.
    pub(super) snapshot: AtomicU64,
}

impl Room {
    pub(crate) fn new(dir: PathBuf, segment_bytes: u64) -> Self {
        Self {
            dir,
            segment_bytes,
            full: AtomicBool::new(false),
            spares_ready: AtomicBool::new(false),
            snapshot: AtomicU64::new(0),
        }
    }

    /// True if a segment that begins now might not be followed by another:
    /// spares are missing, or its snapshot takes much of one, and there is not
    /// room for two more on the disk.
    pub(super) fn is_tight(&self) -> bool {
        let snapshot = self.snapshot.load(Ordering::Relaxed);
        let fits = snapshot <= self.segment_bytes / 8;
        if fits && self.spares_ready.load(Ordering::Relaxed) {
            return false;
        }
        let wanted = 2 * self.segment_bytes.saturating_add(snapshot);
        match rustix::fs::statvfs(&self.dir) {
            Ok(disk) => disk.f_bavail.saturating_mul(disk.f_frsize) < wanted,
            // A file system that does not say is found full by writing to it.
            Err(_) => false,
        }
    }
}

impl Core {
    /// Tells the engine how much room there is.
    pub(super) fn set_space(&self, space: Space) {
        self.room
            .full
            .store(space != Space::Enough, Ordering::Relaxed);
        for shard in &self.shards {
            locked(shard).engine.set_space(space);
        }
    }
}
