//! An I/O thread: one poll, the connections that were given to it, and the
//! turns in which it serves them.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::{Events, Poll, Token};
use quintet_client::Operator;
use quintet_host::Access;
use quintet_process::Bound;
use quintet_types::{Caller, Message};

use super::conn::Secrecy;
use super::conns::{Due, LARGE_AT_ONCE, Slab};
use super::decisions::Decisions;
use super::mail::{Mail, WAKE};
use super::shared::Shared;
use super::sockets::{Sockets, key_of};
use super::turn::Turn;
use super::waiting::{TIGHT_LOOK, Waiting};
use crate::edge::Edge;
use crate::hooks::ThreadHooks;

/// Handshakes that are gone on with before all others are served again: the
/// step that agrees on keys takes some 100 us, with RSA 1 ms.
const HANDSHAKES_AT_ONCE: usize = 2;
/// At a stop it is looked so often who takes nothing.
const LOOK_AT_STOP: Duration = Duration::from_millis(200);

/// One I/O thread. Each part can be borrowed on its own.
pub struct IoThread {
    /// Its number, and the state of all threads.
    pub(super) shared: Shared,
    /// The poll, and listeners to accept from.
    pub(super) sockets: Sockets,
    pub(super) conns: Slab,
    /// Those of them that are served, sent to or released without an event.
    pub(super) due: Due,
    /// The time, and the buffers that are used again.
    pub(super) turn: Turn,
    /// Outcomes for others, and batches to write and sync.
    pub(super) decisions: Decisions,
    /// Connections that a limit makes wait.
    pub(super) waiting: Waiting,
    pub(super) hooks: ThreadHooks,
}

impl IoThread {
    /// A thread that polls `poll` and accepts for `listeners`.
    ///
    /// # Errors
    /// A listener cannot be polled.
    pub fn new(
        index: usize,
        edge: Arc<Edge>,
        operator: Arc<dyn Operator>,
        poll: Poll,
        listeners: Vec<(usize, Bound)>,
    ) -> std::io::Result<Self> {
        Ok(Self {
            sockets: Sockets::new(poll, listeners)?,
            conns: Slab::default(),
            due: Due::default(),
            turn: Turn::new(edge.core.clock.now()),
            decisions: Decisions::default(),
            waiting: Waiting::default(),
            hooks: ThreadHooks::default(),
            shared: Shared {
                index,
                edge,
                operator,
            },
        })
    }

    /// Serves until told to stop. A turn serves the connections that have an event, mail or more to
    /// do, and decides their requests. Then it has the decisions written, and sends replies. Last
    /// it ends connections that hold too much, say nothing or are late.
    pub fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        loop {
            if let Err(error) = self.sockets.poll.poll(&mut events, self.timeout())
                && error.kind() != ErrorKind::Interrupted
            {
                // The poll itself is broken; nothing can be served any more.
                tracing::error!("cannot wait for connections: {error}");
                std::process::exit(1);
            }
            let edge = &self.shared.edge;
            self.turn.now = edge.core.clock.now();
            self.turn.instant = Instant::now();
            self.waiting.choked = edge.core.is_choked();
            self.hooks.renew(&edge.security.hooks, &edge.core);
            let idle = events.is_empty() && !self.due.is_any();
            for event in &events {
                match event.token() {
                    WAKE => {}
                    Token(token) => match self.sockets.listener_of(token) {
                        Some(listener) => self.sockets.accept_again.push(listener),
                        None => self.on_event(token, event),
                    },
                }
            }
            self.accept_all();
            self.collect_mail();
            self.wake_slowed();
            self.serve_again();
            self.deliver_local();
            let (shared, conns, now) = (&self.shared, &mut self.conns, self.turn.instant);
            self.decisions.write(shared, &self.due, conns, now);
            self.decisions.see_to_disk(shared, now, idle);
            self.part_from_the_gone();
            self.flush();
            self.keep_memory();
            self.keep_quotas();
            self.see_to_unacked();
            self.close_idle();
            self.end_late_handshakes();
            if self.is_stopped() {
                return;
            }
        }
    }

    fn timeout(&self) -> Option<Duration> {
        if self.due.is_any() || self.decisions.is_any() {
            return Some(Duration::ZERO);
        }
        let until = |at: Instant| at.saturating_duration_since(Instant::now());
        let idle = self.shared.edge.idle_used && !self.conns.is_empty();
        let waits = [
            self.sockets.accept_at.map(until),
            self.turn.stop_at.map(|at| until(at).min(LOOK_AT_STOP)),
            idle.then_some(Duration::from_secs(1)),
            self.waiting.tight_since.map(|_| TIGHT_LOOK),
            self.next_check_of_unacked(),
            self.due.handshakes.front().map(|(at, _)| until(*at)),
            self.next_limited(),
        ];
        waits.into_iter().flatten().min()
    }

    /// Serves those that have more to do; of those with large bodies a few, so
    /// that the others wait for a few.
    fn serve_again(&mut self) {
        let large = self.due.again_large.len().min(LARGE_AT_ONCE);
        let handshakes = self.due.again_handshake.len().min(HANDSHAKES_AT_ONCE);
        self.serve_first(self.due.again.len(), |due| &mut due.again);
        self.serve_first(large, |due| &mut due.again_large);
        self.serve_first(handshakes, |due| &mut due.again_handshake);
    }

    fn serve_first(&mut self, count: usize, of: impl Fn(&mut Due) -> &mut VecDeque<u32>) {
        for _ in 0..count {
            if let Some(slot) = of(&mut self.due).pop_front()
                && let Some(conn) = self.conns.get_mut(slot)
            {
                conn.listed.again = false;
                self.serve(slot);
            }
        }
    }

    /// Something happened to a connection.
    fn on_event(&mut self, token: usize, event: &Event) {
        let Some((slot, conn)) = self.conns.find(key_of(self.shared.index, token)) else {
            return;
        };
        let closed = event.is_read_closed();
        conn.active = self.turn.instant;
        conn.inbox.feed.wake(closed);
        if event.is_error() || (closed && event.is_write_closed()) {
            // Reset, or closed both ways: no reply can arrive.
            self.close(slot);
            return;
        }
        let later = conn.inbox.upload.is_some() || conn.secrecy == Secrecy::Handshake;
        if event.is_writable() {
            self.due.mark_dirty(slot, conn);
        }
        if later {
            self.due.mark_again(slot, conn);
        } else {
            self.serve(slot);
        }
    }

    fn collect_mail(&mut self) {
        let mut mail = std::mem::take(&mut self.turn.mail);
        self.shared.mailbox().collect(&mut mail);
        for item in mail.drain(..) {
            match item {
                Mail::Delivery(delivery, required) => self.deliver(delivery, required),
                Mail::Socket(arrival) => self.open(arrival),
                Mail::Login(client_id, result) => self.logged_in(client_id, result),
                Mail::Logins => self.close_logged_out(),
                Mail::Census(census) => self.count(*census),
                Mail::Close(client_id, notify) => notify(self.close_connection(client_id)),
                Mail::Answer(client_id, text) => self.deliver_answer(client_id, text),
                Mail::Refuse => self.sockets.listeners.clear(),
                Mail::Stop => self.begin_stop(),
            }
        }
        self.turn.mail = mail;
    }

    /// Takes steps in the shards. What they leave is seen to at the end of the
    /// turn.
    pub(super) fn with_access<T>(&mut self, work: impl FnOnce(&mut Access<'_>) -> T) -> T {
        let (core, trail) = (&self.shared.edge.core, &mut self.decisions.trail);
        work(&mut Access::new(core, self.turn.now, trail))
    }

    pub(super) fn restore(&mut self, caller: Caller, messages: Vec<Message>) {
        if !messages.is_empty() {
            self.with_access(|access| access.restore(caller, messages));
        }
    }
}
