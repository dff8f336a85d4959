//! Connections that a limit makes wait, turns away or closes: of their address or user, of memory,
//! or of replies that others should acknowledge.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quintet_host::{ClientKey, Required};
use quintet_types::ClientId;
use quintet_wire::{HookReply, Output};

use super::conn::Pause;
use super::mail::{Arrival, Way};
use super::thread::IoThread;
use crate::edge::Edge;
use crate::quotas::{Limited, Of};

/// Connections that hold memory are closed, the largest first, when it was
/// short for so long.
const TIGHT_MAX: Duration = Duration::from_secs(1);

/// While clients are not read from it is looked so often whether they may be.
const LOOK: Duration = Duration::from_millis(20);
/// Between two looks whose replies are given up.
const UNANSWERED_LOOK: Duration = Duration::from_secs(1);

impl Edge {
    /// Tells a new connection why it is closed, in its protocol's form; one that
    /// speaks TLS has not come so far that a reason could be sent.
    pub fn turn_away(&self, mut arrival: Arrival, limited: Limited, of: Of) {
        let listening = &self.listeners[arrival.listener];
        if listening.tls.is_some() && arrival.way == Way::Direct {
            return;
        }
        let mut output = Output::new();
        let hook_reply = HookReply::Limited(limited.text(of));
        listening.opener.open().say(hook_reply, &mut output);
        arrival.stream.last_word(output.bytes());
    }
}

impl IoThread {
    /// In what time one that waits may go on, if any waits.
    pub(super) fn next_limited(&self) -> Option<Duration> {
        if self.waiting.is_empty() {
            return None;
        }
        let now_ns = self.shared.edge.security.quotas.now_ns(Instant::now());
        self.waiting.next(now_ns)
    }

    /// Goes on with those whose time has come.
    pub(super) fn wake_slowed(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let now_ns = self.shared.edge.security.quotas.now_ns(self.turn.instant);
        while let Some(Reverse((at, client_id))) = self.waiting.slowed.peek().copied()
            && at <= now_ns
        {
            self.waiting.slowed.pop();
            if let Some((slot, conn)) = self.conns.find(ClientKey::of(ClientId(client_id))) {
                self.due.mark_again(slot, conn);
            }
        }
    }

    /// Sees to it that connections keep to the memory they may have together:
    /// who holds some is read no further while it is short; then the largest
    /// are closed. When there is room again, they go on.
    pub(super) fn keep_memory(&mut self) {
        let edge = Arc::clone(&self.shared.edge);
        let budget = &edge.connection_memory;
        if !budget.is_tight() {
            self.waiting.tight_since = None;
            for slot in std::mem::take(&mut self.waiting.starved) {
                if let Some(conn) = self.conns.get_mut(slot) {
                    conn.pause = Pause::No;
                    self.due.mark_again(slot, conn);
                }
            }
            return;
        }
        let since = *self.waiting.tight_since.get_or_insert(self.turn.instant);
        if !budget.is_over() && self.turn.instant.duration_since(since) < TIGHT_MAX {
            return;
        }
        let average = budget.average();
        let mut largest = Vec::new();
        for slot in self.conns.slots() {
            if let Some(conn) = self.conns.get_mut(slot)
                && conn.charged >= average.max(1)
                && !edge.is_operator(conn.listener)
            {
                largest.push((conn.charged, slot));
            }
        }
        largest.sort_unstable_by(|a, b| b.cmp(a));
        let enough = budget.limit() / 4 * 3;
        for (bytes, slot) in largest {
            if budget.used() <= enough {
                break;
            }
            let closed = budget.turn_away();
            if closed.is_power_of_two() {
                let conn = self.conns.get_mut(slot);
                tracing::warn!(
                    bytes,
                    conn = conn.as_ref().map(|conn| conn.number),
                    peer = conn.and_then(|conn| conn.peer_text()),
                    "connection closed, {closed} so far: connection_memory is used up, and this \
                     connection used most of it"
                );
            }
            self.close(slot);
        }
    }

    /// Sees to it that connections of one address or user keep to the memory
    /// they may have together: who holds some is read no further while it is
    /// short; then the largest is closed. When there is room, they go on.
    pub(super) fn keep_quotas(&mut self) {
        let mut overdue = None;
        for (client_id, since) in std::mem::take(&mut self.waiting.crowded) {
            let Some((slot, conn)) = self.conns.find(ClientKey::of(client_id)) else {
                continue;
            };
            if conn.pause != Pause::Crowded {
                continue;
            }
            match conn.meter.is_tight() {
                None => {
                    conn.pause = Pause::No;
                    self.due.mark_again(slot, conn);
                    continue;
                }
                Some(_) if self.turn.instant.duration_since(since) < TIGHT_MAX => {}
                Some(of) => overdue = Some((slot, of)),
            }
            self.waiting.crowded.push((client_id, since));
        }
        if let Some((slot, of)) = overdue {
            self.close_largest(slot, of);
        }
    }

    /// Of those that share a limit with this connection, the one that holds
    /// most.
    fn close_largest(&mut self, crowded: u32, of: Of) {
        let mut largest = (0, crowded);
        let conn = self.conns.get_mut(crowded);
        let quota = conn.and_then(|conn| conn.meter.tight());
        for slot in self.conns.slots() {
            if let (Some(conn), Some(quota)) = (self.conns.get_mut(slot), &quota)
                && conn.charged > largest.0
                && conn.meter.counts_in(quota)
            {
                largest = (conn.charged, slot);
            }
        }
        let quotas = &self.shared.edge.security.quotas;
        quotas.refuse(Limited::BytesInFlight, of);
        if let Some(quota) = quota {
            quota.holds_back(quotas.now_ns(Instant::now()));
        }
        let (bytes, slot) = largest;
        if let Some(conn) = self.conns.get_mut(slot) {
            let peer = conn.peer_text();
            tracing::debug!(
                bytes,
                conn = conn.number,
                peer,
                "connection closed: {}",
                Limited::BytesInFlight.text(of)
            );
        }
        if !self.say_limited(slot, Limited::BytesInFlight, of) {
            self.close(slot);
        }
    }

    /// Tells a connection's client that a limit is reached, behind which it
    /// closes. False: it does not read the replies before.
    pub(super) fn say_limited(&mut self, slot: u32, limited: Limited, of: Of) -> bool {
        let Some(conn) = self.conns.get_mut(slot) else {
            return true;
        };
        if !conn.out.is_empty() {
            return false;
        }
        let start = conn.out.output.len();
        let hook_reply = HookReply::Limited(limited.text(of));
        conn.session.say(hook_reply, &mut conn.out.output);
        conn.end_with(start, Required::default());
        self.due.mark_dirty(slot, conn);
        true
    }

    /// When there is something to see to without an event.
    pub(super) fn next_check_of_unacked(&self) -> Option<Duration> {
        let held = !self.due.held.is_empty() && self.shared.edge.core.is_shared();
        let unread = (!self.waiting.unread.is_empty()).then_some(LOOK);
        unread.or(held.then_some(UNANSWERED_LOOK))
    }

    /// Lets those go on that were not read from, and closes those whose replies are given up.
    pub(super) fn see_to_unacked(&mut self) {
        if !self.waiting.choked {
            for slot in std::mem::take(&mut self.waiting.unread) {
                if let Some(conn) = self.conns.get_mut(slot) {
                    conn.pause = Pause::No;
                    self.due.mark_again(slot, conn);
                }
            }
        }
        let now = self.turn.instant;
        if now.duration_since(self.waiting.unanswered_checked) < UNANSWERED_LOOK {
            return;
        }
        self.waiting.unanswered_checked = now;
        for slot in self.due.held.clone() {
            let waited = self.conns.get_mut(slot).map(|conn| conn.out.waited(now));
            if waited.is_some_and(|waited| self.shared.edge.core.gives_up(waited)) {
                self.close(slot);
            }
        }
    }
}
