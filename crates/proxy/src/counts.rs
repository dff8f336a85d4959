//! Counters of a proxy.

use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of a proxy and of its node's peer connections, for statistics.
#[derive(Debug, Default)]
pub struct Counts {
    tunneled: AtomicU64,
    waiting: AtomicU64,
    peer_connections: AtomicU64,
    given_up: AtomicU64,
    turned_away: AtomicU64,
    refused: AtomicU64,
    misfits: AtomicU64,
}

impl Counts {
    /// Clients' connections that are tunneled to an owner now.
    pub fn tunneled(&self) -> u64 {
        self.tunneled.load(Ordering::Relaxed)
    }

    /// Clients that wait for an owner.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Peer connections of other proxies, and of this one to itself, that this node handed on as
    /// clients' connections.
    pub fn peer_connections(&self) -> u64 {
        self.peer_connections.load(Ordering::Relaxed)
    }

    /// Connections closed since start because there was no owner for too long.
    pub fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Connections closed since start because there were too many.
    pub fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }

    /// Peer connections refused since start: another cluster's, no peer at all, or without a
    /// certificate.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn gave_up(&self) {
        self.given_up.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn turns_away(&self) -> u64 {
        self.turned_away.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Another client that the owner has no listener for; how many there were.
    pub(crate) fn misfits(&self) -> u64 {
        self.misfits.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn refuses(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn handed(&self) {
        self.peer_connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn waits(&self) -> CountGuard<'_> {
        CountGuard::new(&self.waiting)
    }

    pub(crate) fn tunnels(&self) -> CountGuard<'_> {
        CountGuard::new(&self.tunneled)
    }
}

/// Counts one for as long as it lives.
pub(crate) struct CountGuard<'a>(&'a AtomicU64);

impl<'a> CountGuard<'a> {
    fn new(of: &'a AtomicU64) -> Self {
        of.fetch_add(1, Ordering::Relaxed);
        Self(of)
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
