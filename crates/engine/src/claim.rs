//! The right to serve a take that waits in the lines of several shards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Shared by the entries of one take in the lines of several shards. A shard that
/// takes it ends the wait, once; to the others the entry is dead.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claim(Arc<AtomicBool>);

impl Claim {
    /// True for one caller, the first.
    pub(crate) fn take(&self) -> bool {
        // Nothing else is handed over through it: each shard has its lock.
        !self.0.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
