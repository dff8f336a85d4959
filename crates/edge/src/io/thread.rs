//! An I/O thread: one poll, the connections that were given to it, and the
//! turns in which it serves them.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};
use quintet_client::{Did, Operator};
use quintet_host::{Access, ClientKey, Completed, Required, Trail};
use quintet_process::{Bound, again};
use quintet_tls::{Reason, Scratch};
use quintet_types::{Caller, Delivery, Message, Ms, Outcome};
use quintet_wire::ClientRequest;

use super::conn::{DueReply, Pause, Phase, Secrecy};
use super::counts::Read;
use super::gather::{Gather, Turn};
use super::mail::{Mail, WAKE};
use super::outbox::Flushed;
use super::slab::Slab;
use super::waiting::{TIGHT_LOOK, Waiting};
use crate::edge::Edge;
use crate::hooks::Runner;

/// Tokens of listeners count down from here.
const LISTENERS: usize = usize::MAX - 1;
/// Bytes read at once; also what is decoded without a copy.
const READ_BYTES: usize = 64 << 10;
/// Deliveries to own connections in one turn.
const LOCAL_DELIVERIES: usize = 1024;
/// Connections with a large body on its way that are sent to, and as many that
/// are read from, before all others are served again: each takes about 50 us.
const LARGE_AT_ONCE: usize = 2;
/// Handshakes that are gone on with before all others are served again: the
/// step that agrees on keys takes some 100 us, with RSA 1 ms.
const HANDSHAKES_AT_ONCE: usize = 2;

/// Connections that hold memory are closed, the largest first, when it was
/// short for so long ...
pub(super) const TIGHT_MAX: Duration = Duration::from_secs(1);
/// At a stop a connection whose client takes nothing for so long is closed ...
const UNREAD_AT_STOP: Duration = Duration::from_secs(1);
/// ... and it is looked so often.
const LOOK_AT_STOP: Duration = Duration::from_millis(200);

/// One I/O thread.
pub struct IoThread {
    pub(super) index: usize,
    pub(super) edge: Arc<Edge>,
    pub(super) operator: Arc<dyn Operator>,
    pub(super) poll: Poll,
    /// Listeners that this thread accepts for, by their number.
    pub(super) listeners: Vec<(usize, Bound)>,
    pub(super) conns: Slab,
    /// Engine time of this turn.
    pub(super) now: Ms,
    pub(super) instant: Instant,
    /// Where the clock of [`Read`] begins.
    start: Instant,
    pub(super) scratch: Vec<u8>,
    /// The same, for what TLS makes of it.
    pub(super) records: Scratch,
    pub(super) asks: Vec<ClientRequest>,
    pub(super) replies: Vec<DueReply>,
    /// Connections with something to send.
    dirty: Vec<u32>,
    /// Connections with replies that wait.
    pub(super) held: Vec<u32>,
    /// Connections that have more to do without an event.
    again: VecDeque<u32>,
    /// The same for those in the middle of a large body.
    again_large: VecDeque<u32>,
    /// The same for those in the middle of a handshake.
    again_handshake: VecDeque<u32>,
    /// When handshakes are late; those that are over too.
    pub(super) handshakes: VecDeque<(Instant, ClientKey)>,
    /// Connections that wait for a limit, for memory or for acknowledgements.
    pub(super) waiting: Waiting,
    /// When it was looked last whose replies are given up.
    pub(super) unanswered_checked: Instant,
    /// Since when memory is short.
    tight_since: Option<Instant>,
    mail: Vec<Mail>,
    /// Work that this thread's steps have left: outcomes for others, and the newest batch something
    /// was recorded in.
    pub(super) trail: Trail,
    /// Outcomes for own connections.
    local: VecDeque<(Delivery, Required)>,
    /// A reply of this turn waits for the disk under every sync policy.
    pub(super) wants_sync: bool,
    completed: Completed,
    gather: Gather,
    pub(super) hooks: Option<Runner>,
    /// The version of the hooks it was made from.
    pub(super) hooks_seen: u64,
    /// Listeners to be accepted from again, and when.
    pub(super) accept_again: Vec<usize>,
    pub(super) accept_at: Option<Instant>,
    idle_checked: Instant,
    pub(super) stop_at: Option<Instant>,
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
        mut listeners: Vec<(usize, Bound)>,
    ) -> std::io::Result<Self> {
        for (at, (_, bound)) in listeners.iter_mut().enumerate() {
            bound.register(poll.registry(), Token(LISTENERS - at))?;
        }
        let now = edge.core.clock.now();
        Ok(Self {
            index,
            edge,
            operator,
            poll,
            listeners,
            conns: Slab::default(),
            now,
            instant: Instant::now(),
            start: Instant::now(),
            scratch: vec![0; READ_BYTES],
            records: Scratch::new(READ_BYTES),
            asks: Vec::new(),
            replies: Vec::new(),
            dirty: Vec::new(),
            held: Vec::new(),
            again: VecDeque::new(),
            again_large: VecDeque::new(),
            again_handshake: VecDeque::new(),
            handshakes: VecDeque::new(),
            waiting: Waiting::default(),
            unanswered_checked: Instant::now(),
            tight_since: None,
            mail: Vec::new(),
            trail: Trail::default(),
            local: VecDeque::new(),
            wants_sync: false,
            completed: Completed::default(),
            gather: Gather::default(),
            hooks: None,
            hooks_seen: 0,
            accept_again: Vec::new(),
            accept_at: None,
            idle_checked: Instant::now(),
            stop_at: None,
        })
    }

    /// Serves until told to stop.
    pub fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        loop {
            if let Err(error) = self.poll.poll(&mut events, self.timeout())
                && error.kind() != ErrorKind::Interrupted
            {
                // The poll itself is broken; nothing can be served any more.
                tracing::error!("cannot wait for connections: {error}");
                std::process::exit(1);
            }
            self.now = self.edge.core.clock.now();
            self.instant = Instant::now();
            self.waiting.choked = self.edge.core.is_choked();
            self.renew_hooks();
            let idle = events.is_empty() && !self.has_more();
            for event in &events {
                match event.token() {
                    WAKE => {}
                    Token(token) if token > LISTENERS - self.listeners.len() => {
                        self.accept_again.push(LISTENERS - token);
                    }
                    Token(token) => {
                        let closed = event.is_read_closed();
                        let dead = event.is_error() || (closed && event.is_write_closed());
                        self.on_event(token, closed, dead, event.is_writable());
                    }
                }
            }
            self.accept_all();
            self.collect_mail();
            self.wake_slowed();
            self.serve_again();
            self.deliver_local();
            self.write();
            self.see_to_disk(idle);
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

    /// When what this turn decides was there to be read.
    pub(super) fn read_at(&self) -> Read {
        Read::at(self.instant, self.start)
    }

    fn timeout(&self) -> Option<Duration> {
        if self.has_more() || !self.local.is_empty() || self.gather.is_open() {
            return Some(Duration::ZERO);
        }
        let until = |at: Instant| at.saturating_duration_since(Instant::now());
        let idle =
            (self.edge.idle_used && !self.conns.is_empty()).then_some(Duration::from_secs(1));
        let starved = self.tight_since.map(|_| TIGHT_LOOK);
        let waits = [
            self.accept_at.map(until),
            self.stop_at.map(|at| until(at).min(LOOK_AT_STOP)),
            idle,
            starved,
            self.next_check_of_unacked(),
            self.next_late(),
            self.next_limited(),
        ];
        waits.into_iter().flatten().min()
    }

    /// There is something to do without an event.
    fn has_more(&self) -> bool {
        !self.again.is_empty()
            || !self.again_large.is_empty()
            || !self.again_handshake.is_empty()
            || !self.dirty.is_empty()
    }

    /// Serves those that have more to do; of those with large bodies a few, so
    /// that the others wait for a few.
    fn serve_again(&mut self) {
        let large = self.again_large.len().min(LARGE_AT_ONCE);
        let handshakes = self.again_handshake.len().min(HANDSHAKES_AT_ONCE);
        self.serve_first(self.again.len(), |thread| &mut thread.again);
        self.serve_first(large, |thread| &mut thread.again_large);
        self.serve_first(handshakes, |thread| &mut thread.again_handshake);
    }

    fn serve_first(&mut self, count: usize, of: impl Fn(&mut Self) -> &mut VecDeque<u32>) {
        for _ in 0..count {
            if let Some(slot) = of(self).pop_front()
                && let Some(conn) = self.conns.get_mut(slot)
            {
                conn.listed.again = false;
                self.serve(slot);
            }
        }
    }

    /// Something happened to a connection.
    fn on_event(&mut self, token: usize, closed: bool, dead: bool, writable: bool) {
        let key = ClientKey {
            thread: self.index,
            slot: (token as u64 & 0xff_ffff) as u32,
            generation: (token as u64 >> 24 & 0xffff_ffff) as u32,
        };
        let Some((slot, conn)) = self.conns.find(key) else {
            return;
        };
        conn.active = self.instant;
        conn.inbox.feed.wake(closed);
        if dead {
            // Reset, or closed both ways: no reply can arrive.
            self.close(slot);
            return;
        }
        let later = conn.inbox.upload.is_some() || conn.secrecy == Secrecy::Handshake;
        if writable {
            self.mark_dirty(slot);
        }
        if later {
            self.mark_dirty_again(slot);
        } else {
            self.serve(slot);
        }
    }

    pub(super) fn mark_dirty(&mut self, slot: u32) {
        if let Some(conn) = self.conns.get_mut(slot)
            && !conn.listed.dirty
        {
            conn.listed.dirty = true;
            self.dirty.push(slot);
        }
    }

    /// Comes back to a connection in the next turn.
    pub(super) fn mark_dirty_again(&mut self, slot: u32) {
        if let Some(conn) = self.conns.get_mut(slot)
            && !conn.listed.again
        {
            conn.listed.again = true;
            if conn.secrecy == Secrecy::Handshake {
                self.again_handshake.push_back(slot);
            } else if conn.inbox.upload.is_some() {
                self.again_large.push_back(slot);
            } else {
                self.again.push_back(slot);
            }
        }
    }

    fn collect_mail(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        self.edge.mail[self.index].collect(&mut mail);
        if mail.is_empty() {
            self.mail = mail;
            return;
        }
        for item in mail.drain(..) {
            match item {
                Mail::Delivery(delivery, required) => self.deliver(delivery, required),
                Mail::Socket(arrival) => self.open(arrival),
                Mail::Login(client_id, result) => self.logged_in(client_id, result),
                Mail::Logins => self.close_logged_out(),
                Mail::Census(census) => self.count(*census),
                Mail::Close(client_id, notify) => notify(self.close_connection(client_id)),
                Mail::Answer(client_id, text) => self.deliver_answer(client_id, text),
                Mail::Refuse => self.listeners.clear(),
                Mail::Stop => self.begin_stop(),
            }
        }
        self.mail = mail;
    }

    fn deliver_local(&mut self) {
        self.sort_outgoing();
        for _ in 0..LOCAL_DELIVERIES {
            let Some((delivery, required)) = self.local.pop_front() else {
                return;
            };
            self.deliver(delivery, required);
            self.sort_outgoing();
        }
    }

    /// Keeps own deliveries apart from those of other threads.
    fn sort_outgoing(&mut self) {
        let mut at = 0;
        let mail = &mut self.trail.mail;
        while at < mail.len() {
            if ClientKey::of(mail[at].0.to).thread == self.index {
                self.local.push_back(mail.remove(at));
            } else {
                at += 1;
            }
        }
    }

    /// A take that waited has come to an end.
    fn deliver(&mut self, delivery: Delivery, required: Required) {
        let Some(slot) = self.conns.slot_of(ClientKey::of(delivery.to)) else {
            self.give_back(delivery);
            return;
        };
        if delivery.claimed {
            // A wait over several shards stands in line nowhere any more.
            self.with_access(|access| access.leave_lines(delivery.to));
        }
        if !self.may_be_handed(slot, &delivery) {
            self.give_back(delivery);
            self.close(slot);
        } else if delivery.standing {
            self.push(slot, delivery, required);
        } else {
            self.answer_wait(slot, delivery, required);
            self.serve(slot);
        }
    }

    /// A delivery came too late: leases of the connection end with it, the rest
    /// is undone.
    pub(super) fn give_back(&mut self, delivery: Delivery) {
        if let Outcome::Messages(messages) = delivery.outcome
            && !delivery.peeked
        {
            let caller = Caller {
                client_id: delivery.to,
                ..Caller::default()
            };
            self.restore(caller, messages.into_vec());
        }
    }

    /// Takes steps in the shards. What they leave is seen to at the end of the
    /// turn.
    pub(super) fn with_access<T>(&mut self, work: impl FnOnce(&mut Access<'_>) -> T) -> T {
        work(&mut Access::new(&self.edge.core, self.now, &mut self.trail))
    }

    pub(super) fn restore(&mut self, caller: Caller, messages: Vec<Message>) {
        if !messages.is_empty() {
            self.with_access(|access| access.restore(caller, messages));
        }
    }

    /// Sees to it that the batches this turn's replies wait for get written,
    /// then lets other threads know what they got.
    fn write(&mut self) {
        let core = &self.edge.core;
        let (mut commit_number, mut soon) = (std::mem::take(&mut self.trail.recorded), false);
        let (completed, waits) = (core.completed(), core.waits_for_disk());
        for &slot in &self.dirty {
            if let Some(conn) = self.conns.get_mut(slot) {
                commit_number = commit_number.max(conn.out.needed().written);
                soon |= waits && conn.out.waits_for_write(completed);
            }
        }
        if waits {
            if soon {
                // A lease: its reply does not wait for the disk.
                core.write_here(commit_number);
            }
            self.gather.add(commit_number, core.durable(), self.instant);
        } else {
            core.write(commit_number);
        }
        if std::mem::take(&mut self.wants_sync) {
            self.edge.core.sync_soon();
        }
        self.sort_outgoing();
        for (delivery, required) in self.trail.mail.drain(..) {
            self.edge.core.hand(delivery, required);
        }
    }

    /// Sees to it that what was decided becomes durable, with as much other
    /// work as is ready. `idle`: this turn found none.
    fn see_to_disk(&mut self, idle: bool) {
        if !self.gather.is_open() {
            return;
        }
        let core = &self.edge.core;
        let (durable, usual) = (core.durable(), core.usual_sync());
        let turn = self.gather.turn(self.instant, idle, durable, usual);
        let done = match turn {
            Turn::Nobody => true,
            // Delayed replies leave in this turn, without a bell.
            Turn::Here => core.sync_here(self.index),
            Turn::LogThread => false,
        };
        if !done {
            core.sync_soon();
        }
    }

    /// Sends what may leave.
    fn flush(&mut self) {
        let mailbox = self.index;
        loop {
            let completed = self.edge.core.completed();
            if completed != self.completed {
                self.completed = completed;
                for slot in std::mem::take(&mut self.held) {
                    if let Some(conn) = self.conns.get_mut(slot) {
                        conn.listed.held = false;
                        self.mark_dirty(slot);
                    }
                }
            }
            let mut dirty = std::mem::take(&mut self.dirty);
            // Small replies first: they do not wait for large bodies, of which
            // a few are sent on at a time.
            let conns = &mut self.conns;
            let mut large = |slot: u32| conns.get_mut(slot).is_some_and(|conn| conn.out.is_large());
            let mut later = Vec::new();
            if dirty.iter().any(|&slot| large(slot)) {
                dirty.sort_by_key(|&slot| large(slot));
                let small = dirty.partition_point(|&slot| !large(slot));
                let now = dirty.len().min(small + LARGE_AT_ONCE);
                later = dirty.split_off(now);
            }
            let now = Read::at(Instant::now(), self.start);
            for slot in dirty.drain(..) {
                self.flush_conn(slot, now);
            }
            // Flushing may close connections, which marks no others.
            if self.dirty.is_empty() && later.is_empty() {
                self.dirty = dirty;
            } else {
                // Those whose turn it was come after those who wait for it.
                later.append(&mut self.dirty);
                self.dirty = later;
            }
            if self.held.is_empty() {
                break;
            }
            let held_for_writing = self.held_for_writing();
            let mailbox = &self.edge.mail[mailbox];
            mailbox.wants_durable.store(true, Ordering::SeqCst);
            if held_for_writing {
                mailbox.wants_written.store(true, Ordering::SeqCst);
            }
            // What was reached before the flags were up rang no bell.
            if self.edge.core.completed() == self.completed {
                break;
            }
        }
        if self.trail.recorded > 0 {
            self.write();
        }
    }

    /// True if a reply waits only for its batch to be written.
    fn held_for_writing(&mut self) -> bool {
        if !self.edge.core.waits_for_disk() {
            return true;
        }
        let (conns, completed) = (&mut self.conns, self.completed);
        self.held.iter().any(|&slot| {
            conns
                .get_mut(slot)
                .is_some_and(|conn| conn.out.waits_for_write(completed))
        })
    }

    fn flush_conn(&mut self, slot: u32, now: Read) {
        let edge = Arc::clone(&self.edge);
        let Some(conn) = self.conns.get_mut(slot) else {
            return;
        };
        conn.listed.dirty = false;
        let counts = &edge.threads[self.index];
        let protocol = &counts.protocols[edge.listeners[conn.listener].tally];
        let waits = conn
            .out
            .release(self.completed, self.instant, now, protocol);
        let mut written = 0;
        let flushed = conn.out.flush(
            &mut conn.stream,
            &mut self.records,
            &edge.core.body_source(),
            &mut written,
        );
        if written > 0 {
            conn.active = self.instant;
            let counter = &counts.bytes_written;
            counter.store(counter.load(Ordering::Relaxed) + written, Ordering::Relaxed);
        }
        let blocked = flushed == Flushed::Blocked;
        let token = token_of(conn.caller.client_id);
        let finished = conn.phase.closes() && conn.out.is_empty() && !blocked;
        if finished && flushed != Flushed::Dead {
            let listening = &edge.listeners[conn.listener];
            if !(conn.goes_on && conn.hand_on(listening, self.poll.registry())) {
                conn.stream.finish(&mut self.scratch, &mut self.records);
            }
        }
        if flushed == Flushed::Dead
            || finished
            || (blocked != conn.blocked
                && conn
                    .stream
                    .watch_writable(self.poll.registry(), token, blocked)
                    .is_err())
        {
            self.close(slot);
            return;
        }
        conn.blocked = blocked;
        conn.charge(&edge.connection_memory);
        if waits && !conn.listed.held {
            conn.listed.held = true;
            self.held.push(slot);
        }
        let goes_on = conn.pause == Pause::Stalled && conn.may_go_on(edge.limits.output_bytes_max);
        if goes_on {
            conn.pause = Pause::No;
            self.mark_dirty_again(slot);
        }
        if flushed == Flushed::More {
            // In the next turn, which then does not wait.
            self.mark_dirty(slot);
        }
    }

    /// Ends a connection: what was removed for it and not sent goes back, its
    /// waits and leases end.
    pub(super) fn close(&mut self, slot: u32) {
        let Some(mut conn) = self.conns.remove(slot) else {
            return;
        };
        self.edge.dismiss(self.index, conn.origin);
        if let Some(act) = conn.unfinished.take() {
            // It goes its way, and nobody will hear how it ended.
            self.edge.audit(&conn, &act, "later", Did::default());
        }
        self.edge.connection_memory.change(conn.charged, 0);
        match conn.secrecy {
            Secrecy::Plain | Secrecy::Failed => {}
            Secrecy::Handshake => self.edge.tls.shared.count(Reason::Gone),
            Secrecy::Secret => self.edge.tls.shared.closed(),
        }
        let greeted = matches!(conn.secrecy, Secrecy::Plain | Secrecy::Secret);
        if self.hooks.is_some() && greeted {
            self.part(&mut conn);
        }
        let unsent = conn.out.take_unsent();
        self.restore(conn.caller, unsent);
        self.with_access(|access| access.disconnect(conn.caller.client_id));
        self.sort_outgoing();
    }

    /// Tells the budget of all connections what this one holds now.
    pub(super) fn charge(&mut self, slot: u32) {
        if let Some(conn) = self.conns.get_mut(slot) {
            conn.charge(&self.edge.connection_memory);
        }
    }

    /// Sees to it that connections keep to the memory they may have together:
    /// who holds some is read no further while it is short; then the largest
    /// are closed. When there is room again, they go on.
    fn keep_memory(&mut self) {
        let edge = Arc::clone(&self.edge);
        let budget = &edge.connection_memory;
        if !budget.is_tight() {
            self.tight_since = None;
            for slot in std::mem::take(&mut self.waiting.starved) {
                if let Some(conn) = self.conns.get_mut(slot) {
                    conn.pause = Pause::No;
                    self.mark_dirty_again(slot);
                }
            }
            return;
        }
        let since = *self.tight_since.get_or_insert(self.instant);
        if !budget.is_over() && self.instant.duration_since(since) < TIGHT_MAX {
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

    fn close_idle(&mut self) {
        if !self.edge.idle_used
            || self.instant.duration_since(self.idle_checked) < Duration::from_secs(1)
        {
            return;
        }
        self.idle_checked = self.instant;
        for slot in self.conns.slots() {
            let Some(conn) = self.conns.get_mut(slot) else {
                continue;
            };
            let idle_ms = self.edge.listeners[conn.listener].idle_ms;
            let limit = Duration::from_millis(idle_ms);
            let quiet = self.instant.saturating_duration_since(conn.active);
            // A take that waits is not idle.
            let waits = conn.phase.waits() || conn.standing.is_some();
            let waits = waits || conn.pause == Pause::Slowed;
            let idle = idle_ms > 0 && quiet > limit && !waits;
            if idle || conn.session.is_overdue(self.now) {
                self.close(slot);
            }
        }
    }

    /// Accepts no more and decides no more; what was decided is still sent. A connection without
    /// state goes on to the next owner, if there will be one.
    fn begin_stop(&mut self) {
        self.stop_at = Some(self.instant + self.edge.limits.stop_wait());
        self.listeners.clear();
        let hands_on = again::hands_on();
        for slot in self.conns.slots() {
            let goes_on = hands_on && self.may_go_on_elsewhere(slot);
            let Some(conn) = self.conns.get_mut(slot) else {
                continue;
            };
            // The second time that it has to stop, none is open.
            conn.goes_on |= goes_on;
            conn.active = self.instant;
            if matches!(conn.phase, Phase::Waits(wait) if wait.in_line) {
                // Answered as if its time were over; then it closes.
                self.stop_waiting(slot);
            } else {
                conn.close_after_flush();
                self.mark_dirty(slot);
            }
        }
    }

    fn is_stopped(&mut self) -> bool {
        let Some(at) = self.stop_at else { return false };
        let now = Instant::now();
        for slot in self.conns.slots() {
            let unread = self.conns.get_mut(slot).is_some_and(|conn| {
                conn.blocked && now.duration_since(conn.active) >= UNREAD_AT_STOP
            });
            if unread || now >= at {
                self.close(slot);
            }
        }
        self.conns.is_empty()
    }
}

/// The poll token of a connection.
fn token_of(client_id: quintet_types::ClientId) -> Token {
    let key = ClientKey::of(client_id);
    Token((key.generation as usize) << 24 | key.slot as usize)
}
