//! How many event streams there are, and what came of those that are not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of all listeners' event streams.
#[derive(Debug, Default)]
pub struct StreamCounts {
    open: AtomicU64,
    refused: AtomicU64,
    slow: AtomicU64,
}

impl StreamCounts {
    /// Streams open now.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Streams refused, as there were too many or no memory was left.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Streams ended because their client did not read.
    pub fn slow(&self) -> u64 {
        self.slow.load(Ordering::Relaxed)
    }

    /// Counts a stream that was refused.
    pub fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a stream that ended as its client did not read.
    pub fn is_slow(&self) {
        self.slow.fetch_add(1, Ordering::Relaxed);
    }
}

/// A stream that counts as open until it is dropped.
pub struct OpenStream(Arc<StreamCounts>);

impl OpenStream {
    /// Counts a stream as open.
    pub fn new(counts: &Arc<StreamCounts>) -> Self {
        counts.open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(counts))
    }

    /// Where it is counted.
    pub fn counts(&self) -> &StreamCounts {
        &self.0
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
