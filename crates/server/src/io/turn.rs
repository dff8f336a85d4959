//! Serving one connection: read, decode, decide, encode.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quintet_hooks::Decided as Hooked;
use quintet_host::Need;
use quintet_tls::Scratch;
use quintet_types::{
    Command, Delivery, LeaseOwner, Name, Outcome, Principal, Refusal, State, Take, Verb,
};
use quintet_wire::{Ask, Env, Foreign, Given, HalfClose, Http, Logins, Next, Session, Step};

use super::acts::{changes_server, did_of, result_of, subject_of};
use super::conn::{Conn, DueReply, Pause, Secrecy};
use super::counts::{Family, Replies};
use super::hooked::reply;
use super::inbox::Feed;
use super::outbox::FREE_BYTES;
use super::stream::Got;
use super::thread::IoThread;
use super::upload::Upload;
use crate::server::Server;

/// Requests of one connection in one turn.
const REQUESTS: usize = 64;
/// Reads of one connection in one turn.
const READS: usize = 4;

/// What decoding came to.
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
    /// What came is no TLS, or is broken.
    Broken(std::io::Error),
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
            Stop::Again => self.mark_again(slot),
            Stop::Dead => self.close(slot),
            Stop::Broken(error) => match self.fail(slot, &error) {
                true => self.after_quiet(slot),
                false => self.close(slot),
            },
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "any other error ends it")]
    fn serve_with(&mut self, slot: u32, scratch: &mut [u8], records: &mut Scratch) -> Stop {
        let server = Arc::clone(&self.server);
        let instant = self.instant;
        // What was read last and not consumed is scratch[from..to], or, if
        // there was a rest from before, in the connection's own buffer.
        let (mut from, mut to) = (0, 0);
        let mut requests = 0;
        let mut reads = 0;
        // Decoding the same bytes again would find nothing more.
        let mut known_dry = false;
        let stop = loop {
            let Some(conn) = self.conns.get_mut(slot) else {
                return Stop::Dead;
            };
            if self.stop_at.is_some() && conn.phase.is_open() {
                // What it waited for was answered.
                conn.close_after_flush();
            }
            if !conn.may_go_on(server.limits.output_bytes_max) {
                if conn.phase.is_open() {
                    conn.pause = Pause::Stalled;
                } else if conn.pause == Pause::Stalled {
                    conn.pause = Pause::No;
                }
                break Stop::Quiet;
            }
            if self.choked && !server.is_operator(conn.listener) {
                if conn.pause != Pause::Unacked {
                    conn.pause = Pause::Unacked;
                    self.unread.push(slot);
                }
                break Stop::Quiet;
            }
            let tight = server.connection_memory.is_tight();
            let crowded = conn.meter.is_tight().is_some();
            if (tight || crowded) && conn.charged > 0 && !server.is_operator(conn.listener) {
                if !tight {
                    self.waiting.crowd(conn, instant);
                } else if conn.pause != Pause::Starved {
                    conn.pause = Pause::Starved;
                    self.starved.push(slot);
                }
                break Stop::Quiet;
            }
            if requests >= REQUESTS {
                break Stop::Again;
            }
            let own = !conn.inbox.bytes.is_empty();
            let input = if own {
                &conn.inbox.bytes[..]
            } else {
                &scratch[from..to]
            };
            // Nothing is said in the clear, not even by who speaks first.
            let mut dry = known_dry || conn.secrecy == Secrecy::Handshake;
            let mut used = 0;
            let mut room = REQUESTS - requests;
            let fresh = conn.inbox.pending.is_empty() && conn.inbox.upload.is_none();
            if fresh && !dry && !input.is_empty() {
                room = conn.meter.room(|| server.quotas.now_ns(instant), room);
                if room == 0 {
                    let now_ns = server.quotas.now_ns(instant);
                    self.waiting.slow(conn, now_ns, &server);
                    break Stop::Quiet;
                }
                if conn.pause == Pause::Slowed {
                    conn.pause = Pause::No;
                }
            }
            if !conn.inbox.pending.is_empty() {
                self.asks.extend(conn.inbox.pending.drain(..));
            } else if let Some(upload) = &mut conn.inbox.upload {
                let (taken, wrote) = upload.feed(&server.core, server.limits.chunk_bytes, input);
                used = taken;
                if upload.is_complete() {
                    if let Some(upload) = conn.inbox.upload.take() {
                        conn.session.streamed(upload.finish());
                    }
                } else if wrote {
                    consume(conn, own, used, &mut from);
                    break Stop::Again;
                } else {
                    dry = true;
                }
            } else if conn.inbox.is_new && !input.is_empty() {
                // Whether its first line is HTTP's is known before a session
                // sees a byte: what follows such a line is no command.
                match Http::of(input) {
                    Http::Maybe if conn.inbox.feed != Feed::Ended => dry = true,
                    Http::Yes => {
                        self.refuse_http(slot, &server);
                        break Stop::Quiet;
                    }
                    Http::No | Http::Maybe => conn.inbox.is_new = false,
                }
            } else if !dry {
                let listener = &server.listeners[conn.listener];
                let tally = &server.threads[self.index].voices[listener.tally].tally;
                let principal = conn.caller.principal;
                let env = Env {
                    now: self.now,
                    tally,
                    logins: server.logins_of(principal, self.hooks.as_ref()),
                };
                let decoded = decode(&mut *conn.session, input, room, &env, &mut self.asks);
                let count = self.asks.len();
                conn.meter.charge(|| server.quotas.now_ns(instant), count);
                used = decoded.used;
                dry = decoded.dry;
                known_dry = dry;
                if let Some((len, queue)) = decoded.body {
                    let refused = server.refuses_body(principal, &queue, len);
                    conn.inbox.upload =
                        Some(Upload::new(&server.core, &server.uploads, len, refused));
                }
            }
            consume(conn, own, used, &mut from);
            if !self.asks.is_empty() {
                requests += self.asks.len();
                self.decide(slot, &server);
                if self.goes_on(slot) {
                    // Pages of a long reply: others get a turn in between.
                    requests += REQUESTS / 4;
                }
                continue;
            }
            if !dry {
                continue;
            }
            if !conn.inbox.feed.may_bring() {
                break Stop::Quiet;
            }
            // A body on its way in is long: others are to have a turn.
            let most = if conn.inbox.upload.is_some() {
                1
            } else {
                READS
            };
            if reads >= most {
                break Stop::Again;
            }
            reads += 1;
            known_dry = false;
            // A rest in the scratch moves to the connection before the next read.
            conn.inbox.bytes.extend_from_slice(&scratch[from..to]);
            (from, to) = (0, 0);
            // Where memory is short nobody begins to hold much of it.
            let room = match tight || crowded {
                true => FREE_BYTES / 2,
                false => scratch.len(),
            };
            let mut read = Ok(());
            if conn.inbox.is_new && server.listeners[conn.listener].api {
                // HTTP begins with a letter, a request of the control channel does not.
                read = conn.stream.first().map(|first| {
                    conn.inbox.is_new = first.is_ascii_alphabetic();
                });
                if read.is_ok() && conn.inbox.is_new {
                    let who = conn.caller.principal;
                    server.hand_to_api(&mut conn.stream, who, self.poll.registry());
                    return Stop::Dead;
                }
            }
            match read.and_then(|()| conn.stream.read(scratch, room, records)) {
                Ok(Got {
                    bytes: 0,
                    ended: true,
                    ..
                }) => {
                    conn.inbox.feed = Feed::Ended;
                    if conn.inbox.is_new && !conn.inbox.bytes.is_empty() {
                        // It will not become HTTP any more.
                        continue;
                    }
                    break Stop::Quiet;
                }
                Ok(Got {
                    bytes: n,
                    drained,
                    ended,
                }) => {
                    let counter = &server.threads[self.index].bytes_read;
                    counter.store(
                        counter.load(Ordering::Relaxed) + n as u64,
                        Ordering::Relaxed,
                    );
                    if drained {
                        conn.inbox.feed.drained();
                    }
                    if ended {
                        conn.inbox.feed = Feed::Ended;
                    }
                    if conn.inbox.bytes.is_empty() {
                        to = n;
                    } else {
                        conn.inbox.bytes.extend_from_slice(&scratch[..n]);
                    }
                    if conn.secrecy != Secrecy::Plain {
                        if conn.stream.is_pending() {
                            self.mark_dirty(slot);
                        }
                        self.go_on_with_handshake(slot);
                    }
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => {
                        if conn.inbox.feed == Feed::Ready {
                            conn.inbox.feed = Feed::Quiet;
                        }
                        break Stop::Quiet;
                    }
                    ErrorKind::Interrupted => {}
                    ErrorKind::InvalidData => return Stop::Broken(error),
                    _ => return Stop::Dead,
                },
            }
        };
        if let Some(conn) = self.conns.get_mut(slot)
            && !conn.phase.closes()
        {
            conn.inbox.bytes.extend_from_slice(&scratch[from..to]);
            if conn.inbox.bytes.is_empty() && conn.inbox.bytes.capacity() > FREE_BYTES / 2 {
                // A connection that rests owns no buffer.
                conn.inbox.bytes = Vec::new();
            }
        }
        stop
    }

    /// Answers a client that speaks HTTP, counts it, and closes.
    fn refuse_http(&mut self, slot: u32, server: &Server) {
        let Some(conn) = self.conns.get_mut(slot) else {
            return;
        };
        server.spoke_http.fetch_add(1, Ordering::Relaxed);
        server.listeners[conn.listener].tell_foreign(Foreign::Http);
        let start = conn.out.output.len();
        conn.out.output.put(Foreign::Http.answer());
        conn.out
            .end_reply(start, Need::default(), None, Replies::none());
        conn.close_after_flush();
    }

    /// True if the last reply of a connection is in its middle.
    fn goes_on(&mut self, slot: u32) -> bool {
        let conn = self.conns.get_mut(slot);
        conn.is_some_and(|conn| matches!(conn.inbox.pending.front(), Some(Ask::EngineAlone(_))))
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
                HalfClose::Finish | HalfClose::LastWord => {}
            }
            return;
        }
        if conn.inbox.feed == Feed::Ended && conn.pause == Pause::No {
            // No complete request is left. What was decided is still answered.
            if conn.half_close.is_none() {
                let answer = conn.session.half_closed();
                conn.half_close = Some(answer);
                if answer == HalfClose::LastWord {
                    conn.inbox.pending.push_back(Ask::Close);
                    self.mark_again(slot);
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
            self.visit(|access| access.submit(caller, Command::StopWaiting));
        }
    }

    /// Writes the replies in `self.replies` to the connection's outbox.
    pub(super) fn encode(&mut self, slot: u32, server: &Server) {
        let read = self.read_at();
        let Some(conn) = self.conns.get_mut(slot) else {
            return;
        };
        let listener = &server.listeners[conn.listener];
        let env = Env {
            now: self.now,
            tally: &server.threads[self.index].voices[listener.tally].tally,
            logins: Logins::Off,
        };
        let voice = &server.threads[self.index].voices[listener.tally];
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
                let (name, changes, what) = (ask.name(), changes_server(&ask), subject_of(&ask));
                reply.given = server.answer(ask, listener, conn.caller.principal);
                if changes {
                    server.audit_conn(conn, name, &what, result_of(&reply.given));
                }
            }
            if let Given::Engine(Outcome::Refused(refusal), _) = &reply.given {
                voice.refused(*refusal);
            }
            let start = conn.out.output.len();
            let mut closes = reply.closes;
            let output = &mut conn.out.output;
            let next = match &reply.said {
                Some(said) => conn.session.say(said.as_said(), output),
                None => conn.session.encode(&reply.given, &env, output),
            };
            match next {
                Next::Done => {}
                Next::Again(command) => conn.inbox.pending.push_front(Ask::EngineAlone(*command)),
                Next::Close => closes = true,
            }
            if tracing::enabled!(tracing::Level::DEBUG) {
                conn.tell_refused(listener.voice, start);
            }
            let undone = reply.take_undone();
            let replies = Replies::one(read, reply.family);
            conn.out.end_reply(start, reply.need, undone, replies);
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
    pub(super) fn answer_wait(&mut self, slot: u32, delivery: Delivery, need: Need) {
        let server = Arc::clone(&self.server);
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
        match self.arrived(slot, delivery, need) {
            Some((Hooked::Later, _)) => {
                if let Some(conn) = self.conns.get_mut(slot) {
                    conn.phase.wait(wait);
                }
            }
            Some((decided, need)) => {
                let reply = DueReply {
                    family: wait.family,
                    ..reply(decided, need, wait.undone)
                };
                if let Some(conn) = self.conns.get_mut(slot)
                    && let Some(act) = conn.unfinished.take()
                {
                    server.audit_act(conn, &act, result_of(&reply.given), did_of(&reply.given));
                }
                self.replies.push(reply);
                self.encode(slot, &server);
            }
            None => {}
        }
    }

    /// Messages for a connection's standing take.
    pub(super) fn push(&mut self, slot: u32, delivery: Delivery, need: Need) {
        let read = self.read_at();
        let server = Arc::clone(&self.server);
        let Some(conn) = self.conns.get_mut(slot) else {
            return;
        };
        let standing = conn.standing.take();
        if conn.phase.closes() {
            self.give_back(delivery);
            return;
        }
        let leased = standing.is_some_and(|standing| standing.leased);
        let (delivery, need) = match self.arrived(slot, delivery, need) {
            Some((Hooked::Now(outcome @ Outcome::Messages(_), queue), need)) => {
                ((outcome, queue), need)
            }
            // The hooks have kept them, and stand in line again for it.
            _ => {
                if let Some(conn) = self.conns.get_mut(slot) {
                    conn.standing = standing;
                }
                return;
            }
        };
        let Some(conn) = self.conns.get_mut(slot) else {
            return;
        };
        let listener = &server.listeners[conn.listener];
        let env = Env {
            now: self.now,
            tally: &server.threads[self.index].voices[listener.tally].tally,
            logins: Logins::Off,
        };
        let start = conn.out.output.len();
        let (outcome, queue) = delivery;
        let mut reply = DueReply {
            undone: !leased || is_removed(&outcome),
            given: Given::Engine(outcome, queue),
            need,
            ..DueReply::own()
        };
        let output = &mut conn.out.output;
        let next = conn.session.deliver(&reply.given, &env, output);
        let pushed = Replies::one(read, Family::Take);
        conn.out.end_reply(start, need, reply.take_undone(), pushed);
        match next {
            Next::Done => {}
            Next::Again(command) => conn.inbox.pending.push_back(Ask::Engine(*command)),
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
    !take.look
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
    let small = messages
        .iter()
        .filter_map(|message| message.body.as_small());
    small.map(<[u8]>::len).sum()
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
fn decode(
    session: &mut dyn Session,
    input: &[u8],
    room: usize,
    env: &Env<'_>,
    asks: &mut Vec<Ask>,
) -> Decoded {
    let mut decoded = Decoded {
        used: 0,
        dry: false,
        body: None,
    };
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
            Step::Ask { used, ask } => {
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
fn ends_batch(ask: &Ask) -> bool {
    match ask {
        Ask::EngineAlone(_)
        | Ask::Unknown(_)
        | Ask::Login(_)
        | Ask::Worker(_)
        | Ask::Proof(_)
        | Ask::Close
        // Numbers are gathered when the reply is written: what comes after
        // should not be in them.
        | Ask::Host(_) => true,
        Ask::Engine(_) | Ask::EngineOrClose(_) | Ask::EngineSynced(_) | Ask::Own => false,
    }
}

impl Server {
    /// Why a large body for `queue` should not even be stored.
    pub(crate) fn refuses_body(
        &self,
        principal: Principal,
        queue: &Name,
        len: u64,
    ) -> Option<Refusal> {
        if !self.trust.may(principal, Verb::Put, queue) {
            return Some(Refusal::NotPermitted);
        }
        if self.draining.load(Ordering::Relaxed) {
            return Some(Refusal::Draining);
        }
        if self.core.is_full() {
            return Some(Refusal::NoSpace);
        }
        let settings = quintet_host::locked(&self.settings).resolve(queue.as_bytes());
        (len > settings.message_bytes_max).then_some(Refusal::MessageTooLarge)
    }
}
