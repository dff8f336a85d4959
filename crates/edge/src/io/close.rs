//! The ends of connections: of one, of those that say nothing, and of all at a stop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quintet_client::Did;
use quintet_process::again;
use quintet_tls::Reason;

use super::conn::{Conn, Pause, Phase, Secrecy};
use super::thread::IoThread;

/// At a stop a connection whose client takes nothing for so long is closed.
const UNREAD_AT_STOP: Duration = Duration::from_secs(1);

impl IoThread {
    /// Ends a connection: what was removed for it and not sent goes back, its
    /// waits and leases end.
    pub(super) fn close(&mut self, slot: u32) {
        let Some(mut conn) = self.conns.remove(slot) else {
            return;
        };
        let edge = &self.shared.edge;
        edge.dismiss(self.shared.index, conn.origin);
        if let Some(act) = conn.unfinished.take() {
            // It goes its way, and nobody will hear how it ended.
            edge.audit(&conn, &act, "later", Did::default());
        }
        edge.connection_memory.change(conn.charged, 0);
        match conn.secrecy {
            Secrecy::Plain | Secrecy::Failed => {}
            Secrecy::Handshake => edge.tls.shared.count(Reason::Gone),
            Secrecy::Secret => edge.tls.shared.closed(),
        }
        if matches!(conn.secrecy, Secrecy::Plain | Secrecy::Secret) {
            self.part(&mut conn);
        }
        let unsent = conn.out.take_unsent();
        self.restore(conn.caller, unsent);
        self.with_access(|access| access.disconnect(conn.caller.client_id));
        self.decisions.sort_outgoing(self.shared.index);
    }

    /// While nothing can be written, who has hung up will not hear of what was
    /// removed for it, whenever that is written: it goes back. At other times
    /// closing one side is a way to wait for the last reply.
    pub(super) fn part_from_the_gone(&mut self) {
        if !self.shared.edge.core.is_stuck() {
            return;
        }
        self.close_those(|conn| conn.inbox.feed.is_closed() && conn.out.owes());
    }

    /// Closes the connections that are to end.
    fn close_those(&mut self, ends: impl Fn(&mut Conn) -> bool) {
        for slot in self.conns.slots() {
            if self.conns.get_mut(slot).is_some_and(&ends) {
                self.close(slot);
            }
        }
    }

    /// Closes connections that have been idle for as long as their listeners let them.
    pub(super) fn close_idle(&mut self) {
        let (now, checked) = (self.turn.instant, self.waiting.idle_checked);
        if !self.shared.edge.idle_used || now.duration_since(checked) < Duration::from_secs(1) {
            return;
        }
        self.waiting.idle_checked = now;
        let (edge, now_ms) = (Arc::clone(&self.shared.edge), self.turn.now);
        self.close_those(|conn| {
            let idle_ms = edge.listeners[conn.listener].idle_ms;
            let quiet = now.saturating_duration_since(conn.active);
            // A take that waits is not idle.
            let waits = conn.phase.waits() || conn.standing.is_some();
            let waits = waits || conn.pause == Pause::Slowed;
            let idle = idle_ms > 0 && quiet > Duration::from_millis(idle_ms) && !waits;
            idle || conn.session.is_overdue(now_ms)
        });
    }

    /// Accepts no more and decides no more; what was decided is still sent. A connection without
    /// state goes on to the next owner, if there will be one.
    pub(super) fn begin_stop(&mut self) {
        self.turn.stop_at = Some(self.turn.instant + self.shared.edge.limits.stop_wait());
        self.sockets.listeners.clear();
        let hands_on = again::hands_on();
        for slot in self.conns.slots() {
            let goes_on = hands_on && self.may_go_on_elsewhere(slot);
            let Some(conn) = self.conns.get_mut(slot) else {
                continue;
            };
            // The second time that it has to stop, none is open.
            conn.goes_on |= goes_on;
            conn.active = self.turn.instant;
            if matches!(conn.phase, Phase::Waits(wait) if wait.in_line) {
                // Answered as if its time were over; then it closes.
                self.stop_waiting(slot);
            } else {
                conn.close_after_flush();
                self.due.mark_dirty(slot, conn);
            }
        }
    }

    /// True once all connections are gone at a stop, and others have what they held; closes those
    /// whose time is over.
    pub(super) fn is_stopped(&mut self) -> bool {
        let Some(at) = self.turn.stop_at else {
            return false;
        };
        let now = Instant::now();
        self.close_those(|conn| {
            let unread = conn.blocked && now.duration_since(conn.active) >= UNREAD_AT_STOP;
            unread || now >= at
        });
        self.conns.is_empty() && !self.decisions.has_outcomes()
    }
}
