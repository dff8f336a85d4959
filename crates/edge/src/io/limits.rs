//! Connections that a limit of their address or user makes wait, or turns away.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use quintet_host::{ClientKey, Required};
use quintet_types::ClientId;
use quintet_wire::{HookReply, Output};

use super::conn::Pause;
use super::mail::{Arrival, Way};
use super::thread::{IoThread, TIGHT_MAX};
use crate::edge::Edge;
use crate::quotas::{Limited, Of};

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
        let now_ns = self.edge.security.quotas.now_ns(Instant::now());
        self.waiting.next(now_ns)
    }

    /// Goes on with those whose time has come.
    pub(super) fn wake_slowed(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let now_ns = self.edge.security.quotas.now_ns(self.instant);
        while let Some(Reverse((at, client_id))) = self.waiting.slowed.peek().copied()
            && at <= now_ns
        {
            self.waiting.slowed.pop();
            if let Some(slot) = self.conns.slot_of(ClientKey::of(ClientId(client_id))) {
                self.mark_dirty_again(slot);
            }
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
                    self.mark_dirty_again(slot);
                    continue;
                }
                Some(_) if self.instant.duration_since(since) < TIGHT_MAX => {}
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
        let quota = self
            .conns
            .get_mut(crowded)
            .and_then(|conn| conn.meter.tight());
        for slot in self.conns.slots() {
            if let (Some(conn), Some(quota)) = (self.conns.get_mut(slot), &quota)
                && conn.charged > largest.0
                && conn.meter.counts_in(quota)
            {
                largest = (conn.charged, slot);
            }
        }
        self.edge.security.quotas.refuse(Limited::BytesInFlight, of);
        if let Some(quota) = quota {
            quota.holds_back(self.edge.security.quotas.now_ns(Instant::now()));
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
        self.mark_dirty(slot);
        true
    }
}
