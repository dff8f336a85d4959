//! Sending what may leave, at the end of a turn.

use std::sync::atomic::Ordering;
use std::time::Instant;

use quintet_host::ClientKey;

use super::conn::{Conn, Pause};
use super::counts::Read;
use super::outbox::Flushed;
use super::sockets::token_of;
use super::thread::IoThread;

impl IoThread {
    /// Sends what may leave.
    pub(super) fn flush(&mut self) {
        loop {
            let completed = self.shared.edge.core.completed();
            if completed != self.decisions.completed {
                self.decisions.completed = completed;
                self.due.send_held(&mut self.conns);
            }
            let (mut dirty, later) = self.due.take_dirty(&mut self.conns);
            let now = Read::at(Instant::now(), self.turn.start);
            for slot in dirty.drain(..) {
                self.flush_conn(slot, now);
            }
            // Flushing may close connections, which marks no others.
            self.due.give_back(dirty, later);
            if self.due.held.is_empty() {
                break;
            }
            let held_for_writing = self.held_for_writing();
            let mailbox = self.shared.mailbox();
            mailbox.wants_durable.store(true, Ordering::SeqCst);
            if held_for_writing {
                mailbox.wants_written.store(true, Ordering::SeqCst);
            }
            // What was reached before the flags were up rang no bell.
            if self.shared.edge.core.completed() == self.decisions.completed {
                break;
            }
        }
        if self.decisions.trail.recorded > 0 {
            let (shared, conns, now) = (&self.shared, &mut self.conns, self.turn.instant);
            self.decisions.write(shared, &self.due, conns, now);
        }
    }

    /// True if a reply waits only for its batch to be written.
    fn held_for_writing(&mut self) -> bool {
        let (conns, completed) = (&mut self.conns, self.decisions.completed);
        let waits = |conn: &mut Conn| conn.out.waits_for_write(completed);
        let waits = |&slot: &u32| conns.get_mut(slot).is_some_and(waits);
        !self.shared.edge.core.waits_for_disk() || self.due.held.iter().any(waits)
    }

    fn flush_conn(&mut self, slot: u32, now: Read) {
        let Some(conn) = self.conns.get_mut(slot) else {
            return;
        };
        let (edge, turn) = (&self.shared.edge, &mut self.turn);
        let registry = self.sockets.poll.registry();
        conn.listed.dirty = false;
        let protocol = self.shared.protocol(conn.listener);
        let completed = self.decisions.completed;
        let waits = conn.out.release(completed, turn.instant, now, protocol);
        let (bodies, mut written) = (edge.core.body_source(), 0);
        let (stream, records) = (&mut conn.stream, &mut turn.records);
        let flushed = conn.out.flush(stream, records, &bodies, &mut written);
        if written > 0 {
            conn.active = turn.instant;
            let counter = &self.shared.counts().bytes_written;
            counter.store(counter.load(Ordering::Relaxed) + written, Ordering::Relaxed);
        }
        let blocked = flushed == Flushed::Blocked;
        let token = token_of(ClientKey::of(conn.caller.client_id));
        let finished = conn.phase.closes() && conn.out.is_empty() && !blocked;
        if finished && flushed != Flushed::Dead {
            let listening = &edge.listeners[conn.listener];
            if !(conn.goes_on && conn.hand_on(listening, registry)) {
                conn.stream.finish(&mut turn.scratch, &mut turn.records);
            }
        }
        let ends = finished || flushed == Flushed::Dead;
        let watch = |conn: &mut Conn| conn.stream.watch_writable(registry, token, blocked);
        if ends || (blocked != conn.blocked && watch(conn).is_err()) {
            self.close(slot);
            return;
        }
        conn.blocked = blocked;
        conn.charge(&edge.connection_memory);
        if waits {
            self.due.mark_held(slot, conn);
        }
        if conn.pause == Pause::Stalled && conn.may_go_on(edge.limits.output_bytes_max) {
            conn.pause = Pause::No;
            self.due.mark_again(slot, conn);
        }
        if flushed == Flushed::More {
            // In the next turn, which then does not wait.
            self.due.mark_dirty(slot, conn);
        }
    }
}
