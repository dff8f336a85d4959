//! Connections of a thread that wait for a limit.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use quintet_types::ClientId;

use super::conn::{Conn, Pause};
use crate::edge::Edge;

/// While connections wait for memory it is looked so often whether there is some.
pub(super) const TIGHT_LOOK: Duration = Duration::from_millis(20);

quintet_types::defaults! {
    /// Connections of a thread that wait for a limit, and when limits were looked at.
    pub(super) struct Waiting {
        /// For a request they may make, by the time of it, ns.
        pub(super) slowed: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new(),
        /// For their address or user to hold less, and since when.
        pub(super) crowded: Vec<(ClientId, Instant)> = Vec::new(),
        /// For memory to be no longer short.
        pub(super) starved: Vec<u32> = Vec::new(),
        /// Since when memory is short.
        pub(super) tight_since: Option<Instant> = None,
        /// So much waits to be acknowledged that none is read further.
        pub(super) choked: bool = false,
        /// For that to be over.
        pub(super) unread: Vec<u32> = Vec::new(),
        /// When it was looked last whose replies are given up.
        pub(super) unanswered_checked: Instant = Instant::now(),
        /// When it was looked last who is idle.
        pub(super) idle_checked: Instant = Instant::now(),
    }
}

impl Waiting {
    /// True if nobody waits for a limit of an address or a user.
    pub(super) fn is_empty(&self) -> bool {
        self.slowed.is_empty() && self.crowded.is_empty()
    }

    /// When to look again, after `now_ns`; `None`: nobody waits.
    pub(super) fn next(&self, now_ns: u64) -> Option<Duration> {
        let slowed = self.slowed.peek().map(|Reverse((at, _))| *at);
        let slowed = slowed.map(|at| Duration::from_nanos(at.saturating_sub(now_ns)));
        let crowded = (!self.crowded.is_empty()).then_some(TIGHT_LOOK);
        slowed.into_iter().chain(crowded).min()
    }

    /// Whether memory is short, for all or for those of this connection's address or user. `None`:
    /// the connection is not served further for now.
    #[inline]
    pub(super) fn check(
        &mut self,
        conn: &mut Conn,
        slot: u32,
        edge: &Edge,
        now: Instant,
    ) -> Option<bool> {
        if !conn.may_go_on(edge.limits.output_bytes_max) {
            if conn.phase.is_open() {
                conn.pause = Pause::Stalled;
            } else if conn.pause == Pause::Stalled {
                conn.pause = Pause::No;
            }
            return None;
        }
        if self.choked && !edge.is_operator(conn.listener) {
            if conn.pause != Pause::Unacked {
                conn.pause = Pause::Unacked;
                self.unread.push(slot);
            }
            return None;
        }
        let tight = edge.connection_memory.is_tight();
        let crowded = conn.meter.is_tight().is_some();
        if (tight || crowded) && conn.charged > 0 && !edge.is_operator(conn.listener) {
            if !tight {
                self.crowd(conn, now);
            } else if conn.pause != Pause::Starved {
                conn.pause = Pause::Starved;
                self.starved.push(slot);
            }
            return None;
        }
        Some(tight || crowded)
    }

    /// A connection waits for a request it may make.
    pub(super) fn slow(&mut self, conn: &mut Conn, now_ns: u64, edge: &Edge) {
        let (at, of) = conn.meter.reserve(now_ns);
        conn.pause = Pause::Slowed;
        if let Some(of) = of {
            edge.security.quotas.delay(of);
            self.slowed.push(Reverse((at, conn.caller.client_id.0)));
        }
    }

    /// A connection waits until its address or user holds less.
    fn crowd(&mut self, conn: &mut Conn, since: Instant) {
        if conn.pause != Pause::Crowded {
            conn.pause = Pause::Crowded;
            self.crowded.push((conn.caller.client_id, since));
        }
    }
}
