//! Connections of a thread that wait for a limit.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use quintet_types::Party;

use super::conn::{Conn, Pause};
use crate::edge::Edge;

/// ... and until then it is looked at that often.
pub(super) const TIGHT_LOOK: Duration = Duration::from_millis(20);

/// Connections of a thread that wait for a limit.
#[derive(Default)]
pub(super) struct Waiting {
    /// For a request they may make, by the time of it, ns.
    pub(super) slowed: BinaryHeap<Reverse<(u64, u64)>>,
    /// For their address or user to hold less, and since when.
    pub(super) crowded: Vec<(Party, Instant)>,
}

impl Waiting {
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

    /// A connection waits until its address or user holds less.
    pub(super) fn crowd(&mut self, conn: &mut Conn, since: Instant) {
        if conn.pause != Pause::Crowded {
            conn.pause = Pause::Crowded;
            self.crowded.push((conn.caller.party, since));
        }
    }

    /// A connection waits for a request it may make.
    pub(super) fn slow(&mut self, conn: &mut Conn, now_ns: u64, edge: &Edge) {
        let (at, of) = conn.meter.reserve(now_ns);
        conn.pause = Pause::Slowed;
        if let Some(of) = of {
            edge.security.quotas.delay(of);
            self.slowed.push(Reverse((at, conn.caller.party.0)));
        }
    }
}
