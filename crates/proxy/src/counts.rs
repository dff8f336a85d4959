//! Counters of a proxy.

use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of a proxy and of its node's peer connections, for statistics.
#[derive(Debug, Default)]
pub struct Counts {
    /// Clients' connections that are tunneled to an owner now.
    pub tunneled: AtomicU64,
    /// Clients that wait for an owner.
    pub waiting: AtomicU64,
    /// Peer connections of other proxies, and of this one to itself, that this node handed on as
    /// clients' connections.
    pub peer_connections: AtomicU64,
    /// Connections closed since start because there was no owner for too long.
    pub given_up: AtomicU64,
    /// Connections closed since start because there were too many.
    pub turned_away: AtomicU64,
    /// Peer connections refused since start: another cluster's, no peer at all, or without a
    /// certificate.
    pub refused: AtomicU64,
    /// Clients that the owner had no listener for.
    pub misfits: AtomicU64,
}

/// Adds one; answers how many there are then.
pub(crate) fn count(of: &AtomicU64) -> u64 {
    of.fetch_add(1, Ordering::Relaxed) + 1
}

/// Counts one for as long as it lives.
pub(crate) struct CountGuard<'a>(&'a AtomicU64);

impl<'a> CountGuard<'a> {
    pub(crate) fn new(of: &'a AtomicU64) -> Self {
        count(of);
        Self(of)
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
