//! One connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use quintet_client::ByteBudget;
use quintet_hooks::Who;
use quintet_host::Required;
use quintet_tls::Identity;
use quintet_types::{Caller, Handed, Outcome};
use quintet_wire::{HalfClose, HookReply, HostRequest, ServerResponse, Session};

use super::Stream;
use super::counts::{Family, Replies};
use super::guests::Origin;
use super::inbox::Inbox;
use super::mail::{Arrival, Way};
use super::operations::Administers;
use super::outbox::{FREE_BYTES, Outbox};
use crate::quotas::Meter;

/// How far a connection is with TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Secrecy {
    /// It has none.
    Plain,
    /// Keys are being agreed on; no request has been seen.
    Handshake,
    /// Its request is secret.
    Secret,
    /// It came to nothing, and that was counted.
    Failed,
}

/// Bytes of an error that are shown in the log.
const ERROR_SHOWN: usize = 100;

/// Why a connection's requests are not decided although they are there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pause {
    No,
    /// Its client does not read its replies.
    Stalled,
    /// Too much that was decided waits to be acknowledged.
    Unacked,
    /// All connections together hold too much memory, and this one holds some
    /// of it.
    Starved,
    /// The same of those of its address or user.
    Crowded,
    /// Its address or user sends more requests than it may.
    Slowed,
}

/// State of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Its requests are decided as they come.
    Open,
    /// A take of it waits in line, its later requests behind it.
    Waits(Wait),
    /// Nothing more is decided; it closes when its output has left. A wait that
    /// has not ended yet has nobody to answer.
    Closes(Option<Wait>),
}

/// A take that waits in line; the default is for what the shards do not answer.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Wait {
    /// Its messages go back if the reply never leaves.
    pub(super) undone: bool,
    pub(super) family: Family,
    /// The shards end it on request.
    pub(super) in_line: bool,
    /// Its memory in the shards.
    pub(super) bytes: u64,
}

impl Phase {
    /// A take begins to wait, or goes on waiting.
    pub(super) fn wait(&mut self, wait: Wait) {
        *self = match self {
            Phase::Open | Phase::Waits(_) => Phase::Waits(wait),
            Phase::Closes(_) => Phase::Closes(Some(wait)),
        };
    }

    /// The take that waits has come to an end. `None`: there is none.
    pub(super) fn end_wait(&mut self) -> Option<Wait> {
        match self {
            Phase::Open => None,
            Phase::Waits(wait) => {
                let wait = *wait;
                *self = Phase::Open;
                Some(wait)
            }
            Phase::Closes(wait) => wait.take(),
        }
    }

    /// Nothing more is decided.
    fn close(&mut self) {
        *self = match self {
            Phase::Open => Phase::Closes(None),
            Phase::Waits(wait) => Phase::Closes(Some(*wait)),
            Phase::Closes(wait) => Phase::Closes(*wait),
        };
    }

    pub(super) fn is_open(self) -> bool {
        self == Phase::Open
    }

    pub(super) fn waits(self) -> bool {
        matches!(self, Phase::Waits(_) | Phase::Closes(Some(_)))
    }

    pub(super) fn closes(self) -> bool {
        matches!(self, Phase::Closes(_))
    }
}

/// Which of its thread's lists a connection is in, once at most in each.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Listed {
    /// Its output may have something that can leave.
    pub(super) dirty: bool,
    /// Its output waits for the log.
    pub(super) held: bool,
    /// It has a turn coming.
    pub(super) again: bool,
}

/// A take that stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Standing {
    /// It asks for a lease.
    pub(super) leased: bool,
    /// Its memory in the shards.
    pub(super) bytes: u64,
}

/// The thread's state of a connection.
pub(super) struct Conn {
    /// As log lines name it.
    pub(super) number: u64,
    pub(super) stream: Stream,
    pub(super) way: Way,
    pub(super) secrecy: Secrecy,
    /// Its client's identity by a certificate that was checked, here or by the node it came
    /// through.
    pub(super) identity: Option<Arc<Identity>>,
    pub(super) origin: Origin,
    pub(super) session: Box<dyn Session>,
    pub(super) caller: Caller,
    /// The name it logged in with.
    pub(super) user: Option<Arc<str>>,
    /// The number of the password, secret or token it logged in with, or 0.
    pub(super) proof: u64,
    /// Number of the listener it came by.
    pub(super) listener: usize,
    pub(super) inbox: Inbox,
    pub(super) out: Outbox,
    pub(super) phase: Phase,
    /// It has a subscription, or a delivery of one is on the way.
    pub(super) standing: Option<Standing>,
    /// As hooks are shown it; made when one is.
    pub(super) who: Option<Arc<Who>>,
    /// The session's answer to its client having closed its side, once asked.
    pub(super) half_close: Option<HalfClose>,
    /// An act that is written down when what came of it is known.
    pub(super) unfinished: Option<Box<Administers>>,
    pub(super) pause: Pause,
    /// Its share of the limits of its address and user.
    pub(super) meter: Meter,
    /// Its memory, as the budget of all connections knows it, bytes.
    pub(super) charged: u64,
    /// The socket took no more; room is watched for.
    pub(super) blocked: bool,
    /// When its output has left it is handed on to the next owner instead of closing.
    pub(super) goes_on: bool,
    pub(super) listed: Listed,
    pub(super) active: Instant,
}

/// A request that was decided, in order, before its reply is written.
pub(super) struct DueReply {
    /// Input of the session.
    pub(super) response: ServerResponse,
    /// The hook's reply instead.
    pub(super) hook_reply: Option<Box<Spoken>>,
    /// The condition for sending the reply.
    pub(super) required: Required,
    /// The messages in it go back if it never begins to leave: they were
    /// removed, or leased beyond the connection's life.
    pub(super) undone: bool,
    /// Asked of the host when the reply is written.
    pub(super) host: Option<HostRequest>,
    /// The connection closes after it.
    pub(super) closes: bool,
    pub(super) family: Family,
}

/// A hook's text in place of a reply.
pub(super) enum Spoken {
    /// A line of text.
    Line(String),
    /// Bytes that are none.
    Message(Vec<u8>),
    /// No, and why.
    Refused(String),
}

/// Longer texts are not told: the PHP client of lineup reads lines of 512.
const TEXT_MAX: usize = 400;

impl Spoken {
    /// A line, if it can be one.
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) if text.len() <= TEXT_MAX && !text.contains(char::is_control) => {
                Self::Line(text)
            }
            Ok(text) => Self::Message(text.into_bytes()),
            Err(error) => Self::Message(error.into_bytes()),
        }
    }

    /// An error whose text is fit for any protocol.
    pub(super) fn refused(text: &str) -> Self {
        let mut text: String = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let end = (0..=TEXT_MAX.min(text.len()))
            .rev()
            .find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or(0));
        Self::Refused(text)
    }

    pub(super) fn as_hook_reply(&self) -> HookReply<'_> {
        match self {
            Self::Line(text) => HookReply::Line(text),
            Self::Message(bytes) => HookReply::Message(bytes),
            Self::Refused(text) => HookReply::Refused(text),
        }
    }
}

impl Conn {
    pub(super) fn new(arrival: Arrival, session: Box<dyn Session>, caller: Caller) -> Self {
        Self {
            number: arrival.number,
            secrecy: match arrival.stream.is_handshaking() {
                true => Secrecy::Handshake,
                false => Secrecy::Plain,
            },
            stream: arrival.stream,
            way: arrival.way,
            identity: arrival.identity,
            origin: arrival.origin,
            session,
            caller,
            user: arrival.user.map(Arc::from),
            proof: 0,
            listener: arrival.listener,
            inbox: Inbox::default(),
            out: Outbox::default(),
            phase: Phase::Open,
            standing: None,
            who: None,
            half_close: None,
            unfinished: None,
            pause: Pause::No,
            meter: arrival.meter,
            charged: 0,
            blocked: false,
            goes_on: false,
            listed: Listed::default(),
            active: Instant::now(),
        }
    }

    /// Where its client is; a unix socket has no address.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.way.peer(&self.stream)
    }

    /// The same, as log lines show it.
    pub(super) fn peer_text(&self) -> Option<String> {
        self.peer().map(|peer| peer.to_string())
    }

    /// Says in the log that its client got an error, in the error's own words:
    /// the reply that begins at `start`.
    pub(super) fn report_refused(&self, protocol: &str, start: usize) {
        let reply = self.out.output.bytes().get(start..).unwrap_or_default();
        if self.session.says_no(reply) {
            let words = reply[..reply.len().min(ERROR_SHOWN)].trim_ascii_end();
            let (conn, peer) = (self.number, self.peer_text());
            tracing::debug!(conn, peer, protocol, reason = %words.escape_ascii(), "refused");
        }
    }

    /// True if more requests may be decided now.
    pub(super) fn may_go_on(&self, output_bytes_max: usize) -> bool {
        self.phase.is_open() && self.out.unsent() < output_bytes_max
    }

    /// True if a connection that waits is read nevertheless, up to some bytes. Under TLS a record
    /// says that its client has ended its side.
    pub(super) fn reads_ahead(&self) -> bool {
        let is_read = matches!(self.phase, Phase::Waits(_)) && self.secrecy != Secrecy::Plain;
        is_read && self.inbox.bytes.len() < FREE_BYTES / 2
    }

    /// Its memory, bytes; 0 for as much as any connection may hold.
    pub(super) fn footprint(&self) -> u64 {
        let held = self.session.held_bytes();
        let tls = self.stream.footprint();
        let own = self.inbox.footprint() + self.out.footprint() + held + tls;
        let waits = match self.phase {
            Phase::Waits(wait) | Phase::Closes(Some(wait)) => wait.bytes,
            Phase::Open | Phase::Closes(None) => 0,
        };
        let stands = self.standing.as_ref().map_or(0, |standing| standing.bytes);
        let all = own as u64 + waits + stands;
        if all > FREE_BYTES as u64 { all } else { 0 }
    }

    /// Tells the budget of all connections what it holds now.
    pub(super) fn charge(&mut self, budget: &ByteBudget) {
        let holds = self.footprint();
        if holds != self.charged {
            budget.change(self.charged, holds);
            self.meter.hold(holds);
            self.charged = holds;
        }
    }

    /// Nothing more is decided.
    pub(super) fn close_after_flush(&mut self) {
        self.phase.close();
        self.inbox.clear();
    }

    /// Ends the last reply, which begins at `start`: the connection closes behind it.
    pub(super) fn end_with(&mut self, start: usize, required: Required) {
        self.out.end_reply(start, required, None, Replies::none());
        self.close_after_flush();
    }
}

impl DueReply {
    /// One that rests on nothing.
    pub(super) fn at_once(response: ServerResponse) -> Self {
        Self::of(response, Required::default(), false)
    }

    /// The reply of a hook.
    pub(super) fn said(spoken: Spoken, required: Required) -> Self {
        Self {
            hook_reply: Some(Box::new(spoken)),
            required,
            ..Self::own()
        }
    }

    /// A reply that the session knows.
    pub(super) fn own() -> Self {
        Self::at_once(ServerResponse::Own)
    }

    /// One that leaves once `required` is done.
    #[inline]
    pub(super) fn of(response: ServerResponse, required: Required, undone: bool) -> Self {
        Self {
            response,
            hook_reply: None,
            required,
            undone,
            host: None,
            closes: false,
            family: Family::Other,
        }
    }

    /// It says no.
    pub(super) fn is_command_error(&self) -> bool {
        self.hook_reply.is_some()
            || matches!(
                self.response,
                ServerResponse::Engine(Outcome::Refused(_), _)
            )
    }

    /// The messages that go back to their queue if the reply never leaves.
    pub(super) fn take_undone(&mut self) -> Option<Handed> {
        if let ServerResponse::Engine(Outcome::Messages(messages), _) = &mut self.response
            && self.undone
        {
            return Some(std::mem::take(messages));
        }
        None
    }
}
