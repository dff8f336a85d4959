//! Serving one connection: read, decode, decide, encode.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quintet_client::Did;
use quintet_hooks::Decided as Hooked;
use quintet_host::Required;
use quintet_tls::Scratch;
use quintet_types::{
    Command, CommandError, Delivery, LeaseOwner, Name, Outcome, Principal, State, Take, Verb,
};
use quintet_wire::{
    ClientRequest, Env, Foreign, HalfClose, Http, Next, ServerResponse, Session, Step,
};

use super::conn::{Conn, DueReply, Pause, Secrecy};
use super::counts::{Family, Replies};
use super::hooked::reply;
use super::inbox::Feed;
use super::operations::{Administers, did_of, result_of};
use super::outbox::{FREE_BYTES, small_bytes};
use super::thread::IoThread;
use super::upload::Upload;
use crate::edge::Edge;

/// Requests of one connection in one turn.
const REQUESTS: usize = 64;
/// Reads of one connection in one turn.
const READS: usize = 4;

/// Result of decoding.
#[derive(Default)]
struct Decoded {
    used: usize,
    /// No complete request is left.
    dry: bool,
    /// A large body begins here: its length and queue.
    body: Option<(u64, Name)>,
}

/// Why serving a connection ended.
enum Stop {
    /// It has nothing more to do until an event comes.
    Quiet,
    /// It has more to do, and others get a turn first.
    Again,
    /// It is gone.
    Dead,
    /// The input is no TLS, or is broken.
    Broken(std::io::Error),
}

/// The last input of a connection, and the progress of its turn.
struct Input<'a> {
    /// Input that was not consumed is `scratch[from..to]`, or, if there was a rest from before, in
    /// the connection's own buffer.
    scratch: &'a mut [u8],
    from: usize,
    to: usize,
    /// For what TLS makes of it.
    records: &'a mut Scratch,
    requests: usize,
    reads: usize,
    /// Decoding the same bytes again would find nothing more.
    dry: bool,
    /// Memory is short, for all connections or for those of this one's address or user.
    is_short: bool,
}

impl Input<'_> {
    fn rest(&self) -> &[u8] {
        &self.scratch[self.from..self.to]
    }
}

impl IoThread {
    /// Serves a connection as far as its turn goes.
    pub(super) fn serve(&mut self, slot: u32) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut records = std::mem::take(&mut self.records);
        let stop = self.serve_with(slot, &mut scratch, &mut records);
        self.scratch = scratch;
        self.records = records;
        self.charge(slot);
        match stop {
            Stop::Quiet => self.after_quiet(slot),
            Stop::Again => self.mark_dirty_again(slot),
            Stop::Dead => self.close(slot),
            Stop::Broken(error) => match self.fail(slot, &error) {
                true => self.after_quiet(slot),
                false => self.close(slot),
            },
        }
    }

    fn serve_with(&mut self, slot: u32, scratch: &mut [u8], records: &mut Scratch) -> Stop {
        let edge = Arc::clone(&self.edge);
        let mut input = Input {
            scratch,
            records,
            from: 0,
            to: 0,
            requests: 0,
            reads: 0,
            dry: false,
            is_short: false,
        };
        let stop = loop {
            if let Err(stop) = self.step(slot, &edge, &mut input) {
                break stop;
            }
        };
        if let Some(conn) = self.conns.get_mut(slot)
            && !conn.phase.closes()
        {
            conn.inbox.bytes.extend_from_slice(input.rest());
            if conn.inbox.bytes.is_empty() && conn.inbox.bytes.capacity() > FREE_BYTES / 2 {
                // A connection that rests owns no buffer.
                conn.inbox.bytes = Vec::new();
            }
        }
        stop
    }

    /// Decides what was read of a connection, or reads more.
    ///
    /// # Errors
    /// Why nothing more is done for it now.
    #[inline]
    fn step(&mut self, slot: u32, edge: &Arc<Edge>, input: &mut Input<'_>) -> Result<(), Stop> {
        let dry = self.take_in(slot, edge, input)?;
        if !self.asks.is_empty() {
            input.requests += self.asks.len();
            self.decide(slot, edge);
            if self.goes_on(slot) {
                // Pages of a long reply: others get a turn in between.
                input.requests += REQUESTS / 4;
            }
            return Ok(());
        }
        match dry {
            true => self.read_more(slot, edge, input),
            false => Ok(()),
        }
    }

    /// Decodes what was read of a connection into `self.asks`, or takes it for a large body. True:
    /// more has to be read.
    ///
    /// # Errors
    /// Why nothing more is decoded now.
    #[inline]
    fn take_in(&mut self, slot: u32, edge: &Edge, input: &mut Input<'_>) -> Result<bool, Stop> {
        let Some(conn) = self.conns.get_mut(slot) else {
            return Err(Stop::Dead);
        };
        let instant = self.instant;
        if self.stop_at.is_some() && conn.phase.is_open() {
            // What it waited for was answered.
            conn.close_after_flush();
        }
        let Some(is_short) = self.waiting.check(conn, slot, edge, instant) else {
            // However tight memory is: that is little, and nobody reads later.
            if !conn.reads_ahead() {
                return Err(Stop::Quiet);
            }
            input.is_short = true;
            return Ok(true);
        };
        input.is_short = is_short;
        if input.requests >= REQUESTS {
            return Err(Stop::Again);
        }
        let own = !conn.inbox.bytes.is_empty();
        let bytes = match own {
            true => &conn.inbox.bytes[..],
            false => input.rest(),
        };
        // Nothing is said in the clear, not even by who speaks first.
        let mut dry = input.dry || conn.secrecy == Secrecy::Handshake;
        let mut used = 0;
        let mut room = REQUESTS - input.requests;
        let fresh = conn.inbox.pending.is_empty() && conn.inbox.upload.is_none();
        if fresh && !dry && !bytes.is_empty() {
            let quotas = &edge.security.quotas;
            room = conn.meter.room(|| quotas.now_ns(instant), room);
            if room == 0 {
                self.waiting.slow(conn, quotas.now_ns(instant), edge);
                return Err(Stop::Quiet);
            }
            if conn.pause == Pause::Slowed {
                conn.pause = Pause::No;
            }
        }
        if !conn.inbox.pending.is_empty() {
            self.asks.extend(conn.inbox.pending.drain(..));
        } else if let Some(upload) = &mut conn.inbox.upload {
            let (taken, wrote) = upload.feed(&edge.core, edge.limits.chunk_bytes, bytes);
            used = taken;
            if upload.is_complete() {
                if let Some(upload) = conn.inbox.upload.take() {
                    conn.session.streamed(upload.finish());
                }
            } else if wrote {
                consume(conn, own, used, &mut input.from);
                return Err(Stop::Again);
            } else {
                dry = true;
            }
        } else if conn.inbox.is_new && !bytes.is_empty() {
            // Whether its first line is HTTP's is known before a session
            // sees a byte: what follows such a line is no command.
            match Http::of(bytes) {
                Http::Maybe if conn.inbox.feed != Feed::Ended => dry = true,
                Http::Yes => {
                    refuse_http(conn, edge);
                    return Err(Stop::Quiet);
                }
                Http::No | Http::Maybe => conn.inbox.is_new = false,
            }
        } else if !dry {
            let listener = &edge.listeners[conn.listener];
            let principal = conn.caller.principal;
            let env = Env {
                now: self.now,
                tally: &edge.threads[self.index].protocols[listener.tally].tally,
                logins: edge.logins_of(principal, self.hooks.as_ref()),
            };
            let decoded = decode(&mut *conn.session, bytes, room, &env, &mut self.asks);
            let (count, quotas) = (self.asks.len(), &edge.security.quotas);
            conn.meter.charge(|| quotas.now_ns(instant), count);
            used = decoded.used;
            conn.inbox.pending_bytes = used;
            dry = decoded.dry;
            input.dry = dry;
            if let Some((len, queue)) = decoded.body {
                let refused = edge.refuses_body(principal, &queue, len);
                conn.inbox.upload = Some(Upload::new(&edge.core, &edge.uploads, len, refused));
            }
        }
        consume(conn, own, used, &mut input.from);
        Ok(dry)
    }

    /// Reads more of a connection.
    ///
    /// # Errors
    /// There is nothing to be read now.
    #[expect(clippy::wildcard_enum_match_arm, reason = "any other error ends it")]
    #[inline]
    fn read_more(&mut self, slot: u32, edge: &Edge, input: &mut Input<'_>) -> Result<(), Stop> {
        let Some(conn) = self.conns.get_mut(slot) else {
            return Err(Stop::Dead);
        };
        if !conn.inbox.feed.may_bring() {
            return Err(Stop::Quiet);
        }
        // A body on its way in is long: others are to have a turn.
        let most = match conn.inbox.upload {
            Some(_) => 1,
            None => READS,
        };
        if input.reads >= most {
            return Err(Stop::Again);
        }
        input.reads += 1;
        input.dry = false;
        // A rest in the scratch moves to the connection before the next read.
        conn.inbox.bytes.extend_from_slice(input.rest());
        (input.from, input.to) = (0, 0);
        let mut read = Ok(());
        if conn.inbox.is_new && edge.listeners[conn.listener].api {
            // HTTP begins with a letter.
            read = conn.stream.first().map(|first| {
                conn.inbox.is_new = first.is_ascii_alphabetic();
            });
            if read.is_ok() && conn.inbox.is_new {
                if let Some(control) = edge.control.get() {
                    let (who, registry) = (conn.caller.principal, self.poll.registry());
                    control.hand_on(&edge.security, &mut conn.stream, who, registry);
                }
                return Err(Stop::Dead);
            }
        }
        // Where memory is short nobody begins to hold much of it.
        let room = match input.is_short {
            true => FREE_BYTES / 2,
            false => input.scratch.len(),
        };
        let read = read.and_then(|()| conn.stream.read(input.scratch, room, input.records));
        let got = match read {
            Ok(got) => got,
            Err(error) => {
                return match error.kind() {
                    ErrorKind::WouldBlock => {
                        if conn.inbox.feed == Feed::Ready {
                            conn.inbox.feed = Feed::Quiet;
                        }
                        Err(Stop::Quiet)
                    }
                    ErrorKind::Interrupted => Ok(()),
                    ErrorKind::InvalidData => Err(Stop::Broken(error)),
                    _ => Err(Stop::Dead),
                };
            }
        };
        if got.ended {
            conn.inbox.feed = Feed::Ended;
            if got.bytes == 0 {
                // What began like HTTP will not become HTTP any more.
                let goes_on = conn.inbox.is_new && !conn.inbox.bytes.is_empty();
                return match goes_on {
                    true => Ok(()),
                    false => Err(Stop::Quiet),
                };
            }
        } else if got.drained {
            conn.inbox.feed.drained();
        }
        let counter = &edge.threads[self.index].bytes_read;
        let before = counter.load(Ordering::Relaxed);
        counter.store(before + got.bytes as u64, Ordering::Relaxed);
        match conn.inbox.bytes.is_empty() {
            true => input.to = got.bytes,
            false => conn
                .inbox
                .bytes
                .extend_from_slice(&input.scratch[..got.bytes]),
        }
        if conn.secrecy != Secrecy::Plain {
            if conn.stream.is_pending() {
                self.mark_dirty(slot);
            }
            self.go_on_with_handshake(slot);
        }
        Ok(())
    }

    /// True if the last reply of a connection is in its middle.
    fn goes_on(&mut self, slot: u32) -> bool {
        let conn = self.conns.get_mut(slot);
        conn.is_some_and(|conn| {
            matches!(
                conn.inbox.pending.front(),
                Some(ClientRequest::EngineAlone(_))
            )
        })
    }

    /// A connection has nothing more to do; sees to one whose client closed
    /// its side.
    fn after_quiet(&mut self, slot: u32) {
        let Some(conn) = self.conns.get_mut(slot) else {
            return;
        };
        if conn.phase.closes() {
            self.mark_dirty(slot);
            return;
        }
        if conn.phase.waits() {
            if !conn.inbox.feed.is_closed() || conn.half_close.is_some() {
                return;
            }
            let answer = conn.session.half_closed();
            conn.half_close = Some(answer);
            match answer {
                HalfClose::Close if conn.out.is_empty() => self.close(slot),
                HalfClose::Close => {
                    // What was answered before it still leaves.
                    conn.close_after_flush();
                    self.mark_dirty(slot);
                    self.stop_waiting(slot);
                }
                HalfClose::StopWaiting => self.stop_waiting(slot),
                HalfClose::LastWord => {}
            }
            return;
        }
        if conn.inbox.feed == Feed::Ended && conn.pause == Pause::No {
            // No complete request is left. What was decided is still answered.
            if conn.half_close.is_none() {
                let answer = conn.session.half_closed();
                conn.half_close = Some(answer);
                if answer == HalfClose::LastWord {
                    conn.inbox.pending.push_back(ClientRequest::Close);
                    self.mark_dirty_again(slot);
                    return;
                }
            }
            conn.close_after_flush();
            self.mark_dirty(slot);
        }
    }

    pub(super) fn stop_waiting(&mut self, slot: u32) {
        if let Some(conn) = self.conns.get_mut(slot) {
            let caller = conn.caller;
            self.with_access(|access| access.submit(caller, Command::StopWaiting));
        }
    }

    /// Writes the replies in `self.replies` to the connection's outbox.
    pub(super) fn encode(&mut self, slot: u32, edge: &Edge) {
        let read = self.read_at();
        let Some(conn) = self.conns.get_mut(slot) else {
            return;
        };
        let listener = &edge.listeners[conn.listener];
        let protocol = &edge.threads[self.index].protocols[listener.tally];
        let env = protocol.env(self.now);
        let mut lost = Vec::new();
        let mut wrote = false;
        let mut replies = std::mem::take(&mut self.replies);
        for reply in &mut replies {
            if conn.phase.closes() {
                // Decided, but its reply has no place behind one that closes.
                lost.extend(reply.take_undone().into_iter().flatten());
                continue;
            }
            if let Some(ask) = reply.host.take() {
                let act = Administers::of_host(&ask);
                let operator = &*self.operator;
                reply.response = edge.answer(&ask, operator, listener, conn.caller.principal);
                if act.operation.is_recorded() {
                    edge.audit(conn, &act, result_of(&reply.response), Did::default());
                }
            }
            if let ServerResponse::Engine(Outcome::Refused(command_error), _) = &reply.response {
                protocol.refused(*command_error);
            }
            let start = conn.out.output.len();
            let mut closes = reply.closes;
            let output = &mut conn.out.output;
            let next = match &reply.hook_reply {
                Some(hook_reply) => conn.session.say(hook_reply.as_hook_reply(), output),
                None => conn.session.encode(&reply.response, &env, output),
            };
            match next {
                Next::Done => {}
                Next::Again(command) => {
                    // The session counts what it holds for it.
                    conn.inbox.pending_bytes = 0;
                    let command = ClientRequest::EngineAlone(*command);
                    conn.inbox.pending.push_front(command);
                }
                Next::Noted(operation, what, result, messages) => {
                    let act = Administers::new(operation, what.into());
                    edge.audit(conn, &act, result, Did::to(messages));
                }
                Next::Close => closes = true,
            }
            if tracing::enabled!(tracing::Level::DEBUG) {
                conn.report_refused(listener.protocol, start);
            }
            let undone = reply.take_undone();
            let replies = Replies::one(read, reply.family);
            conn.out.end_reply(start, reply.required, undone, replies);
            wrote = true;
            if closes {
                conn.close_after_flush();
            }
        }
        replies.clear();
        self.replies = replies;
        let caller = conn.caller;
        if wrote {
            self.mark_dirty(slot);
        }
        self.restore(caller, lost);
    }

    /// The take a connection waited for has an outcome.
    pub(super) fn answer_wait(&mut self, slot: u32, delivery: Delivery, required: Required) {
        let edge = Arc::clone(&self.edge);
        let Some(conn) = self.conns.get_mut(slot) else {
            return;
        };
        let Some(wait) = conn.phase.end_wait() else {
            // A step of a hook's that was put off, and nobody waits for.
            self.give_back(delivery);
            return;
        };
        // What became of this wait says nothing about the next one.
        conn.half_close = None;
        match self.arrived(slot, delivery, required) {
            Some((Hooked::Later, _)) => {
                if let Some(conn) = self.conns.get_mut(slot) {
                    conn.phase.wait(wait);
                }
            }
            Some((decided, required)) => {
                let reply = DueReply {
                    family: wait.family,
                    ..reply(decided, required, wait.undone)
                };
                if let Some(conn) = self.conns.get_mut(slot)
                    && let Some(act) = conn.unfinished.take()
                {
                    let did = did_of(&act, &reply.response);
                    edge.audit(conn, &act, result_of(&reply.response), did);
                }
                self.replies.push(reply);
                self.encode(slot, &edge);
            }
            None => {}
        }
    }

    /// Messages for a connection's subscription.
    pub(super) fn push(&mut self, slot: u32, delivery: Delivery, required: Required) {
        let read = self.read_at();
        let edge = Arc::clone(&self.edge);
        let Some(conn) = self.conns.get_mut(slot) else {
            return;
        };
        let standing = conn.standing.take();
        if conn.phase.closes() {
            self.give_back(delivery);
            return;
        }
        let leased = standing.is_some_and(|standing| standing.leased);
        let arrived = self.arrived(slot, delivery, required);
        let Some((Hooked::Now(outcome @ Outcome::Messages(_), queue), required)) = arrived else {
            // The hooks have kept them, and stand in line again for it.
            if let Some(conn) = self.conns.get_mut(slot) {
                conn.standing = standing;
            }
            return;
        };
        let Some(conn) = self.conns.get_mut(slot) else {
            return;
        };
        let tally = edge.listeners[conn.listener].tally;
        let env = edge.threads[self.index].protocols[tally].env(self.now);
        let start = conn.out.output.len();
        let undone = !leased || is_removed(&outcome);
        let response = ServerResponse::Engine(outcome, queue);
        let mut reply = DueReply::of(response, required, undone);
        let output = &mut conn.out.output;
        let next = conn.session.deliver(&reply.response, &env, output);
        let pushed = Replies::one(read, Family::Take);
        conn.out
            .end_reply(start, required, reply.take_undone(), pushed);
        match next {
            Next::Done => {}
            Next::Again(command) => conn
                .inbox
                .pending
                .push_back(ClientRequest::Engine(*command)),
            Next::Noted(operation, what, result, messages) => {
                let act = Administers::new(operation, what.into());
                edge.audit(conn, &act, result, Did::to(messages));
            }
            Next::Close => conn.close_after_flush(),
        }
        self.mark_dirty(slot);
        self.serve(slot);
    }
}

/// True if the outcome's messages are no longer in the engine: a lease leaves
/// them there.
fn is_removed(outcome: &Outcome) -> bool {
    let Outcome::Messages(messages) = outcome else {
        return false;
    };
    messages.iter().all(|m| m.state != State::Reserved)
}

/// True if what the take gets goes back when its reply never begins to leave:
/// it was removed, or its lease does not end with the connection.
pub(super) fn is_undone(take: &Take) -> bool {
    !take.peek
        && take.lease.is_none_or(|lease| match lease.owner {
            LeaseOwner::Time | LeaseOwner::TimeElseConnection => true,
            LeaseOwner::Connection | LeaseOwner::Process => false,
        })
}

/// Bytes of the bodies in an outcome that are copied to the output.
pub(super) fn bytes_in(outcome: &Outcome) -> usize {
    let Outcome::Messages(messages) = outcome else {
        return 0;
    };
    small_bytes(messages)
}

/// Answers a client that speaks HTTP, counts it, and closes.
fn refuse_http(conn: &mut Conn, edge: &Edge) {
    edge.spoke_http.fetch_add(1, Ordering::Relaxed);
    edge.listeners[conn.listener].report_foreign(Foreign::Http);
    let start = conn.out.output.len();
    conn.out.output.put(Foreign::Http.answer());
    conn.end_with(start, Required::default());
}

/// Drops what was used from the front of the input.
fn consume(conn: &mut Conn, own: bool, used: usize, from: &mut usize) {
    if !own {
        *from += used;
    } else if used == conn.inbox.bytes.len() {
        conn.inbox.bytes.clear();
    } else {
        conn.inbox.bytes.drain(..used);
    }
}

/// Decodes up to `room` requests.
#[inline(always)]
fn decode(
    session: &mut dyn Session,
    input: &[u8],
    room: usize,
    env: &Env<'_>,
    asks: &mut Vec<ClientRequest>,
) -> Decoded {
    let mut decoded = Decoded::default();
    while asks.len() < room {
        match session.decode(&input[decoded.used..], env) {
            Step::More => {
                decoded.dry = true;
                break;
            }
            Step::Skip { used } => decoded.used += used,
            Step::Stream { used, len, queue } => {
                decoded.used += used;
                decoded.body = Some((len, queue));
                break;
            }
            Step::ClientRequest { used, ask } => {
                decoded.used += used;
                let last = ends_batch(&ask);
                asks.push(ask);
                if last {
                    break;
                }
            }
        }
    }
    decoded
}

/// True if what follows a request is not decoded before it is answered. A take
/// that may wait is none of these: if it does, what follows is kept.
fn ends_batch(ask: &ClientRequest) -> bool {
    match ask {
        ClientRequest::EngineAlone(_)
        | ClientRequest::Unknown(_)
        | ClientRequest::Login(_)
        | ClientRequest::Worker(_)
        | ClientRequest::Proof(_)
        | ClientRequest::Close
        // Numbers are gathered when the reply is written: what comes after
        // should not be in them.
        | ClientRequest::Host(_) => true,
        ClientRequest::Engine(_) | ClientRequest::EngineOrClose(_) | ClientRequest::EngineSynced(_) | ClientRequest::Own => false,
    }
}

impl Edge {
    /// Why a large body for `queue` should not even be stored.
    pub fn refuses_body(
        &self,
        principal: Principal,
        queue: &Name,
        len: u64,
    ) -> Option<CommandError> {
        if !self.security.auth.may(principal, Verb::Put, queue) {
            return Some(CommandError::NotPermitted);
        }
        if self.draining.load(Ordering::Relaxed) {
            return Some(CommandError::Draining);
        }
        if self.core.is_full() {
            return Some(CommandError::NoSpace);
        }
        let settings = quintet_host::locked(&self.settings).resolve(queue.as_bytes());
        (len > settings.message_bytes_max).then_some(CommandError::MessageTooLarge)
    }
}
