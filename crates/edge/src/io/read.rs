//! Input of a connection: read, and decoded to requests or taken for a large body.

use std::io::{self, ErrorKind};
use std::sync::atomic::Ordering;

use quintet_host::Required;
use quintet_tls::Scratch;
use quintet_types::{CommandError, Name, Principal, Verb};
use quintet_wire::{ClientRequest, Env, Foreign, Http, Step};

use super::conn::{Conn, Pause, Secrecy};
use super::inbox::Feed;
use super::outbox::FREE_BYTES;
use super::shared::Shared;
use super::thread::IoThread;
use super::turn::Turn;
use super::upload::Upload;
use crate::edge::Edge;
use crate::hooks::ThreadHooks;

/// Requests of one connection in one turn.
pub(super) const REQUESTS: usize = 64;
/// Reads of one connection in one turn.
const READS: usize = 4;

/// Why serving a connection ended.
pub(super) enum Stop {
    /// It has nothing more to do until an event comes.
    Quiet,
    /// It has more to do, and others get a turn first.
    Again,
    /// It is gone.
    Dead,
    /// The input is no TLS, or is broken.
    Broken(io::Error),
}

/// The last input of a connection, and the progress of its turn.
pub(super) struct Input<'a> {
    /// Input that was not consumed is `scratch[from..to]`, or, if there was a rest from before, in
    /// the connection's own buffer.
    scratch: &'a mut [u8],
    from: usize,
    to: usize,
    /// For what TLS makes of it.
    records: &'a mut Scratch,
    pub(super) requests: usize,
    reads: usize,
    /// Decoding the same bytes again would find nothing more.
    dry: bool,
    /// Memory is short, for all connections or for those of this one's address or user.
    is_short: bool,
}

impl<'a> Input<'a> {
    /// No input yet.
    pub(super) fn new(scratch: &'a mut [u8], records: &'a mut Scratch) -> Self {
        Self {
            scratch,
            records,
            from: 0,
            to: 0,
            requests: 0,
            reads: 0,
            dry: false,
            is_short: false,
        }
    }

    fn rest(&self) -> &[u8] {
        &self.scratch[self.from..self.to]
    }

    /// Input that was not consumed; `own`: the connection's own buffer.
    fn unread<'b>(&'b self, own: &'b [u8]) -> &'b [u8] {
        match own.is_empty() {
            true => self.rest(),
            false => own,
        }
    }

    /// Drops what was used from the front of the input.
    fn consume(&mut self, own: &mut Vec<u8>, used: usize) {
        if own.is_empty() {
            self.from += used;
        } else if used == own.len() {
            own.clear();
        } else {
            own.drain(..used);
        }
    }

    /// Moves a rest in the scratch to the connection.
    pub(super) fn leave(&mut self, own: &mut Vec<u8>) {
        own.extend_from_slice(self.rest());
        (self.from, self.to) = (0, 0);
    }
}

impl IoThread {
    /// Decodes what was read of a connection into `self.turn.asks`, or takes it for a large body.
    /// True: more has to be read.
    ///
    /// # Errors
    /// Why nothing more is decoded now.
    #[inline]
    pub(super) fn take_in(&mut self, slot: u32, input: &mut Input<'_>) -> Result<bool, Stop> {
        let Some(conn) = self.conns.get_mut(slot) else {
            return Err(Stop::Dead);
        };
        let (edge, now) = (&*self.shared.edge, self.turn.instant);
        if self.turn.stop_at.is_some() && conn.phase.is_open() {
            // What it waited for was answered.
            conn.close_after_flush();
        }
        let Some(is_short) = self.waiting.check(conn, slot, edge, now) else {
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
        let is_empty = input.unread(&conn.inbox.bytes).is_empty();
        // Nothing is said in the clear, not even by who speaks first.
        let dry = input.dry || conn.secrecy == Secrecy::Handshake;
        let mut room = REQUESTS - input.requests;
        let fresh = conn.inbox.pending.is_empty() && conn.inbox.upload.is_none();
        if fresh && !dry && !is_empty {
            let quotas = &edge.security.quotas;
            room = conn.meter.room(|| quotas.now_ns(now), room);
            if room == 0 {
                self.waiting.slow(conn, quotas.now_ns(now), edge);
                return Err(Stop::Quiet);
            }
            if conn.pause == Pause::Slowed {
                conn.pause = Pause::No;
            }
        }
        if !conn.inbox.pending.is_empty() {
            self.turn.asks.extend(conn.inbox.pending.drain(..));
        } else if conn.inbox.upload.is_some() {
            return feed(conn, edge, input, dry);
        } else if conn.inbox.is_new && !is_empty {
            return meet(conn, edge, input, dry);
        } else if !dry {
            let (shared, turn) = (&self.shared, &mut self.turn);
            return Ok(decode(conn, input, room, shared, &self.hooks, turn));
        }
        Ok(dry)
    }

    /// Reads more of a connection.
    ///
    /// # Errors
    /// There is nothing to be read now.
    #[inline]
    pub(super) fn read_more(&mut self, slot: u32, input: &mut Input<'_>) -> Result<(), Stop> {
        let Some(conn) = self.conns.get_mut(slot) else {
            return Err(Stop::Dead);
        };
        let edge = &self.shared.edge;
        if !conn.inbox.feed.may_bring() {
            return Err(Stop::Quiet);
        }
        // A body on its way in is long: others are to have a turn.
        let most = conn.inbox.upload.as_ref().map_or(READS, |_| 1);
        if input.reads >= most {
            return Err(Stop::Again);
        }
        input.reads += 1;
        input.dry = false;
        // A rest in the scratch moves to the connection before the next read.
        input.leave(&mut conn.inbox.bytes);
        // Where memory is short nobody begins to hold much of it.
        let room = match input.is_short {
            true => FREE_BYTES / 2,
            false => input.scratch.len(),
        };
        let read = match speaks_http(conn, edge) {
            Ok(false) => conn.stream.read(input.scratch, room, input.records),
            Ok(true) => {
                if let Some(control) = edge.control.get() {
                    let (who, registry) = (conn.caller.principal, self.sockets.poll.registry());
                    control.hand_on(&edge.security, &mut conn.stream, who, registry);
                }
                return Err(Stop::Dead);
            }
            Err(error) => Err(error),
        };
        let got = match read {
            Ok(got) => got,
            Err(error) => return not_read(conn, error),
        };
        if got.ended {
            conn.inbox.feed = Feed::Ended;
            if got.bytes == 0 {
                // What began like HTTP will not become HTTP any more.
                let goes_on = conn.inbox.is_new && !conn.inbox.bytes.is_empty();
                return goes_on.then_some(()).ok_or(Stop::Quiet);
            }
        } else if got.drained {
            conn.inbox.feed.drained();
        }
        let counter = &self.shared.counts().bytes_read;
        let before = counter.load(Ordering::Relaxed);
        counter.store(before + got.bytes as u64, Ordering::Relaxed);
        input.to = got.bytes;
        if !conn.inbox.bytes.is_empty() {
            input.leave(&mut conn.inbox.bytes);
        }
        if conn.secrecy != Secrecy::Plain {
            if conn.stream.is_pending() {
                self.due.mark_dirty(slot, conn);
            }
            self.go_on_with_handshake(slot);
        }
        Ok(())
    }
}

/// Takes input for the large body that is coming in. True: more has to be read.
///
/// # Errors
/// A chunk was written: others get a turn first.
fn feed(conn: &mut Conn, edge: &Edge, input: &mut Input<'_>, dry: bool) -> Result<bool, Stop> {
    let inbox = &mut conn.inbox;
    let Some(upload) = &mut inbox.upload else {
        return Ok(dry);
    };
    let bytes = input.unread(&inbox.bytes);
    let (used, wrote) = upload.feed(&edge.core, edge.limits.chunk_bytes, bytes);
    input.consume(&mut inbox.bytes, used);
    if let Some(upload) = inbox.upload.take_if(|upload| upload.is_complete()) {
        conn.session.streamed(upload.finish());
        return Ok(dry);
    }
    match wrote {
        true => Err(Stop::Again),
        false => Ok(true),
    }
}

/// Whether a new connection's first line is HTTP's is known before a session
/// sees a byte: what follows such a line is no command. True: more has to be read.
///
/// # Errors
/// It is, and is answered.
fn meet(conn: &mut Conn, edge: &Edge, input: &Input<'_>, dry: bool) -> Result<bool, Stop> {
    match Http::of(input.unread(&conn.inbox.bytes)) {
        Http::Maybe if conn.inbox.feed != Feed::Ended => return Ok(true),
        Http::Yes => {
            refuse_http(conn, edge);
            return Err(Stop::Quiet);
        }
        Http::No | Http::Maybe => conn.inbox.is_new = false,
    }
    Ok(dry)
}

/// Decodes up to `room` requests of a connection. True: more has to be read.
#[inline]
fn decode(
    conn: &mut Conn,
    input: &mut Input<'_>,
    room: usize,
    shared: &Shared,
    hooks: &ThreadHooks,
    turn: &mut Turn,
) -> bool {
    let (edge, principal) = (&shared.edge, conn.caller.principal);
    let env = Env {
        now: turn.now,
        tally: &shared.protocol(conn.listener).tally,
        logins: edge.logins_of(principal, hooks.runner.as_ref()),
    };
    let bytes = input.unread(&conn.inbox.bytes);
    // `dry`: no complete request is left. `body`: a large one begins here, of this length.
    let (mut at, mut dry, mut body) = (0, false, None);
    while turn.asks.len() < room {
        match conn.session.decode(&bytes[at..], &env) {
            Step::More => {
                dry = true;
                break;
            }
            Step::Skip { used } => at += used,
            Step::Stream { used, len, queue } => {
                at += used;
                body = Some((len, queue));
                break;
            }
            Step::ClientRequest { used, ask } => {
                at += used;
                let last = ends_batch(&ask);
                turn.asks.push(ask);
                if last {
                    break;
                }
            }
        }
    }
    let (count, quotas) = (turn.asks.len(), &edge.security.quotas);
    conn.meter.charge(|| quotas.now_ns(turn.instant), count);
    conn.inbox.pending_bytes = at;
    input.dry = dry;
    input.consume(&mut conn.inbox.bytes, at);
    if let Some((len, queue)) = body {
        let refused = edge.refuses_body(principal, &queue, len);
        conn.inbox.upload = Some(Upload::new(&edge.core, &edge.uploads, len, refused));
    }
    dry
}

/// True if a new connection of the control socket speaks HTTP, which begins with a letter.
///
/// # Errors
/// Its first byte cannot be read.
fn speaks_http(conn: &mut Conn, edge: &Edge) -> io::Result<bool> {
    let asks = conn.inbox.is_new && edge.listeners[conn.listener].api;
    if asks {
        conn.inbox.is_new = conn.stream.first()?.is_ascii_alphabetic();
    }
    Ok(asks && conn.inbox.is_new)
}

/// Nothing could be read of a connection; `Ok`: because of an interruption.
///
/// # Errors
/// Why it is not read again now.
#[expect(clippy::wildcard_enum_match_arm, reason = "any other error ends it")]
fn not_read(conn: &mut Conn, error: io::Error) -> Result<(), Stop> {
    match error.kind() {
        ErrorKind::WouldBlock => {
            if conn.inbox.feed == Feed::Ready {
                conn.inbox.feed = Feed::Quiet;
            }
            Err(Stop::Quiet)
        }
        ErrorKind::Interrupted => Ok(()),
        ErrorKind::InvalidData => Err(Stop::Broken(error)),
        _ => Err(Stop::Dead),
    }
}

/// Answers a client that speaks HTTP, counts it, and closes.
fn refuse_http(conn: &mut Conn, edge: &Edge) {
    edge.spoke_http.fetch_add(1, Ordering::Relaxed);
    edge.listeners[conn.listener].report_foreign(Foreign::Http);
    let start = conn.out.output.len();
    conn.out.output.put(Foreign::Http.answer());
    conn.end_with(start, Required::default());
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
    pub fn refuses_body(&self, who: Principal, queue: &Name, len: u64) -> Option<CommandError> {
        if !self.security.auth.may(who, Verb::Put, queue) {
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
