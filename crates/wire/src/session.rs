//! The interface of every protocol: bytes in, commands out; outcomes in, bytes out.

use std::sync::Arc;

use quintet_types::{Command, CommandError, LargeBody, Ms, Name, Operation, Outcome, ServerStats};

use crate::foreign::Foreign;
use crate::login::{Login, LoginRefused, Logins};
use crate::output::Output;
use crate::tally::Tally;
use crate::workers::{Worker, WorkerRequest};

/// One connection's protocol state. Pure: no socket, clock, lock or engine.
///
/// The host calls [`Session::decode`] until it answers [`Step::More`] and asks
/// the engine; then, **in the order of the requests**, [`Session::encode`] with
/// each outcome. Several requests may be decoded before the first is encoded,
/// so a session keeps what it needs for a reply in a queue of its own. While a
/// request waits (a blocking take), the host decodes nothing more of the
/// connection unless it must notice a half-close.
pub trait Session: Send {
    /// Reads at most one request from the front of `input`. Called with no bytes
    /// when the connection opens: a protocol whose server speaks first answers then.
    ///
    /// `input` holds all unconsumed bytes. The host drops the `used` bytes of
    /// the answer before the next call. May be called again with `used = 0`
    /// answers in between (one request that becomes two commands).
    fn decode(&mut self, input: &[u8], env: &Env<'_>) -> Step;

    /// Writes the reply to the oldest unanswered request.
    ///
    /// `outcome` is what the engine said; [`ServerResponse::Own`] for [`ClientRequest::Own`] and
    /// [`ClientRequest::Close`], whose reply the session already knows.
    fn encode(&mut self, response: &ServerResponse, env: &Env<'_>, output: &mut Output) -> Next;

    /// Writes a delivery of the subscription ([`Command::Watch`]). Only protocols with
    /// subscriptions need it.
    fn deliver(&mut self, response: &ServerResponse, env: &Env<'_>, output: &mut Output) -> Next {
        let _ = (response, env, output);
        Next::Done
    }

    /// Writes, in place of the reply to the oldest unanswered request, what a
    /// hook said to it, in the protocol's own forms; with no request unanswered
    /// (a connection that is refused) what has a form for it. Text comes
    /// without line breaks or other control characters, 400 bytes at most.
    fn say(&mut self, hook_reply: HookReply<'_>, output: &mut Output) -> Next;

    /// True if a reply it has written tells its client no: bad input, or what
    /// was refused. That there is nothing is no error.
    fn says_no(&self, reply: &[u8]) -> bool;

    /// A large body announced by [`Step::Stream`] has been stored (`Ok`), or
    /// could not be (`Err`: its bytes were read and dropped). The next
    /// `decode` sees the bytes behind it.
    fn streamed(&mut self, body: Result<LargeBody, CommandError>);

    /// The client has closed its sending side and no complete request is left.
    /// Answers what becomes of a take that waits and of the connection.
    fn half_closed(&mut self) -> HalfClose {
        HalfClose::Close
    }

    /// True if its client was silent for too long: the connection closes.
    fn is_overdue(&self, now: Ms) -> bool {
        let _ = now;
        false
    }

    /// The worker whose connection it is, by its name, if its client says one.
    fn worker(&self) -> Option<&str> {
        None
    }

    /// True if a session that begins now would treat what comes next in the same way, without a
    /// greeting: nothing is half read, no reply is owed, and the client has set up nothing. A node
    /// that steps down then hands the connection on as a new one. In doubt, false.
    fn is_as_opened(&self) -> bool;

    /// Bytes of memory held beside input and output: for a reply that cannot be written before all
    /// of it is known, and for what its client has told it.
    fn held_bytes(&self) -> usize {
        0
    }
}

/// The facts about the server that a session may use.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// Engine time when this turn began.
    pub now: Ms,
    /// Counts the protocol's commands and errors on this thread.
    pub tally: &'a Tally,
    /// Whether this client may say who it is.
    pub logins: Logins,
}

/// A hook's reply in place of the server's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HookReply<'a> {
    Line(&'a str),
    Message(&'a [u8]),
    /// No, and why. A protocol whose errors have no free text uses its most
    /// general one.
    Refused(&'a str),
    /// No, as a limit is reached, and which. A protocol without free text says
    /// what it says when it has no room.
    Limited(&'a str),
}

/// Result of [`Session::decode`].
#[derive(Debug)]
pub enum Step {
    /// No complete request; more bytes are needed. The host promises to call
    /// again only when there are more bytes. Bounded: a session that would
    /// need more than its limits allow answers with a fault instead.
    More,
    /// A request. `used` bytes of the input belong to it.
    ClientRequest {
        /// Bytes consumed.
        used: usize,
        ask: ClientRequest,
    },
    /// Bytes to drop that are part of no request (the body of a refused put,
    /// read and thrown away).
    Skip {
        /// Bytes consumed.
        used: usize,
    },
    /// A body of `len` bytes follows the `used` ones that is too large to pass
    /// through memory: the host stores it and then calls
    /// [`Session::streamed`].
    Stream {
        /// Bytes consumed before the body.
        used: usize,
        /// Length of the body in bytes.
        len: u64,
        /// Queue it is meant for (for limits and shards).
        queue: Name,
    },
}

/// One decoded request.
#[derive(Debug)]
pub enum ClientRequest {
    Engine(Command),
    /// Ask the engine; if it refuses, the connection closes after the reply
    /// and no later request of it is decided.
    EngineOrClose(Command),
    /// Ask the engine, and decode nothing more of the connection until the
    /// request is answered: `encode` may ask to go on ([`Next::Again`]).
    EngineAlone(Command),
    /// Ask the engine, and send the reply only when what it says has been
    /// synced to the disk, whatever the server's sync policy (Darner `/sync`).
    EngineSynced(Command),
    Host(HostRequest),
    /// The client says who it is. Decode nothing more of the connection until
    /// it is answered: what follows is then its.
    Login(Login),
    /// The client has shown whether it knows the listener's password (true: it does). Answered with
    /// [`ServerResponse::Login`]: who failed too often is not listened to for a while. Decode
    /// nothing more of the connection until it is answered.
    Proof(bool),
    /// Ask the table of workers ([`ServerResponse::Worker`]). Decode nothing more of the
    /// connection until it is answered.
    Worker(WorkerRequest),
    /// A line, without its end, whose command the protocol does not know. Decode
    /// nothing more of the connection until it is answered: with
    /// [`Session::say`] if a hook knows it, else with [`ServerResponse::Own`].
    Unknown(Box<[u8]>),
    /// The session answers by itself when it is its turn.
    Own,
    /// The same, then the connection closes (a broken protocol, `quit`).
    Close,
}

/// Requests of a session to the server around the engine. Each that has an effect or a reply of its
/// own is one call of the server's `Operator`, but for [`HostRequest::Foreign`], which is counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostRequest {
    /// Numbers of the server ([`ServerResponse::Server`]).
    Stats,
    /// Reload hooks and settings (Kestrel `reload`, as SIGHUP).
    Reload,
    /// The effective configuration as text (Kestrel `dump_config`).
    Config,
    /// Note that the client speaks something else; the connection closes with
    /// the reply.
    Foreign(Foreign),
    /// Whether the client may change how its listener serves everybody.
    Listener,
    /// Stop the server (Kestrel `shutdown`; refused unless a setting allows it).
    Shutdown,
    /// Write down that this is done, and to what, where it is done by many commands that are each
    /// everyday work.
    Noted(Operation, Box<str>),
}

impl HostRequest {
    /// The operation that it is.
    pub fn operation(&self) -> Operation {
        match self {
            Self::Stats => Operation::Look,
            Self::Reload => Operation::Reload,
            Self::Config => Operation::Config,
            Self::Foreign(_) => Operation::Work,
            Self::Listener => Operation::Listener,
            Self::Shutdown => Operation::Shutdown,
            Self::Noted(operation, _) => *operation,
        }
    }
}

/// The input of a reply.
#[derive(Debug)]
pub enum ServerResponse {
    /// The engine's outcome; the name is the queue the first message came
    /// from, if there is one (empty otherwise).
    Engine(Outcome, Name),
    Server(Box<ServerStats>),
    /// Text from the host, or why not.
    Host(Result<String, String>),
    /// Whether the client is who it said.
    Login(Result<(), LoginRefused>),
    /// The worker that was asked about, if it is known.
    Worker(Option<Arc<Worker>>),
    /// Nothing: the session knows.
    Own,
}

impl ServerResponse {
    /// The engine's outcome, if it was asked.
    pub fn outcome(&self) -> Option<&Outcome> {
        if let Self::Engine(outcome, _) = self {
            Some(outcome)
        } else {
            None
        }
    }

    /// The engine's error, if it said one.
    pub(crate) fn refused(&self) -> Option<CommandError> {
        if let Some(Outcome::Refused(command_error)) = self.outcome() {
            Some(*command_error)
        } else {
            None
        }
    }

    /// Whether the client is who it said, if that was checked.
    pub(crate) fn login(&self) -> Option<&Result<(), LoginRefused>> {
        if let Self::Login(login) = self {
            Some(login)
        } else {
            None
        }
    }

    /// The engine's outcome; `Done` where it was not asked.
    pub(crate) fn outcome_or_done(&self) -> &Outcome {
        static DONE: Outcome = Outcome::Done;
        self.outcome().unwrap_or(&DONE)
    }
}

/// The step that follows a reply.
#[derive(Debug)]
pub enum Next {
    /// The request is answered.
    Done,
    /// The request goes on with this command before later ones are looked at;
    /// `encode` is called again with its outcome (Kestrel `monitor`, pages of
    /// numbers). Only after [`ClientRequest::EngineAlone`] and [`HostRequest::Stats`].
    Again(Box<Command>),
    /// The request is answered; the audit gets the operation, its subject, the result and how many
    /// messages it changed.
    Noted(Operation, Box<str>, &'static str, u64),
    /// The reply ends the connection.
    Close,
}

/// Handling of a half-closed connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HalfClose {
    /// It closes now; a waiting take is dropped.
    Close,
    /// A waiting take ends with `Empty`, its reply is sent, then it closes.
    StopWaiting,
    /// The request that came in part gets a last reply, as after
    /// [`ClientRequest::Close`]. Only if no take waits.
    LastWord,
}

/// Bodies over this many bytes are announced with [`Step::Stream`] instead of
/// being held in the connection's input.
pub const STREAM_OVER: u64 = 64 * 1024;

/// Asks for a page of queues.
pub(crate) fn page(from: (u8, u32)) -> Command {
    Command::Stats(quintet_types::StatsOf::Queues { from })
}

/// The page, if that is what came.
pub(crate) fn page_of(outcome: &Outcome) -> Option<&quintet_types::QueuePage> {
    if let Outcome::Stats(reply) = outcome
        && let quintet_types::StatsReply::Queues(page) = &**reply
    {
        return Some(page);
    }
    None
}
