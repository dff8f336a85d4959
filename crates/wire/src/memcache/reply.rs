//! The part of a request that is kept until its reply is written, and the texts of errors.

use quintet_types::{Command, CommandError, Ms, Name, Take, Wait};

use super::binary_reply::{BinaryReply, Head, What};
use super::meta_reply::MetaReply;
use super::{Shared, Status};
use crate::output::Output;
use crate::session::ClientRequest;

/// A protocol error's reply line. All of them close the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault(pub(super) &'static str);

impl Fault {
    /// Unknown verb, empty line, wrong number of words, bad number.
    pub(super) const SYNTAX: Self = Self("ERROR\r\n");
    pub(super) const NO_NAME: Self = Self("CLIENT_ERROR\r\n");
    pub(super) const BAD_NAME: Self = Self("CLIENT_ERROR bad queue name\r\n");
    pub(super) const BAD_OPTION: Self = Self("CLIENT_ERROR bad option\r\n");
    pub(super) const ABORT_ALONE: Self = Self("CLIENT_ERROR abort must be by itself\r\n");
    pub(super) const OPEN_AND_PEEK: Self = Self("CLIENT_ERROR cannot open and peek\r\n");
    pub(super) const CLOSE_AND_PEEK: Self = Self("CLIENT_ERROR cannot close and peek\r\n");
    pub(super) const BAD_DATA: Self = Self("CLIENT_ERROR bad data chunk\r\n");
    pub(super) const LONG_LINE: Self = Self("CLIENT_ERROR line too long\r\n");
    /// A meta command without a key, an empty word, a bad length.
    pub(super) const BAD_LINE: Self = Self("CLIENT_ERROR bad command line format\r\n");
    /// A meta flag that there is not, or one with a token that takes none.
    pub(super) const BAD_FLAG: Self = Self("CLIENT_ERROR invalid flag\r\n");
    pub(super) const TWICE: Self = Self("CLIENT_ERROR duplicate flag\r\n");
    /// A meta flag's token that is not what it takes.
    pub(super) const BAD_TOKEN: Self = Self("CLIENT_ERROR bad token in command line format\r\n");
    pub(super) const LONG_OPAQUE: Self = Self("CLIENT_ERROR opaque token too long\r\n");
    pub(super) const BAD_KEY: Self = Self("CLIENT_ERROR error decoding key\r\n");
    /// A reliable read whose message nobody would see.
    pub(super) const OPEN_UNSEEN: Self = Self("CLIENT_ERROR open takes the flag v\r\n");
    pub(super) const NOT_A_CACHE: Self = Self("CLIENT_ERROR not supported by a queue server\r\n");
    pub(super) const FAR_TOO_LARGE: Self = Self("SERVER_ERROR item too large\r\n");
    pub(super) const READ_ONLY: Self = Self("SERVER_ERROR server is read-only\r\n");
    pub(super) const QUIESCENT: Self = Self("SERVER_ERROR server is quiescent\r\n");
}

impl std::fmt::Debug for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.trim_end())
    }
}

/// The reply a request is owed.
#[derive(Debug)]
pub(super) enum MemcacheReply {
    /// None: the first of a request's commands.
    Silent,
    /// A fixed line, if the engine does not refuse.
    Line(&'static str),
    /// An error, then the connection closes.
    Fault(Fault),
    /// The host's error about a data block; the connection closes behind it.
    Refused(CommandError),
    /// To the set with which a client logs in.
    LoggedIn,
    /// To a set; without an answer of the engine, that its item was dropped.
    Stored { noreply: bool },
    /// To a meta command.
    Meta(Box<MetaReply>),
    /// To a request of the binary protocol.
    Binary(Box<BinaryReply>),
    /// To a get that fetches.
    Value { peek: bool },
    /// To a confirm.
    Confirmed,
    /// So many.
    Count,
    /// `VERSION`.
    Version,
    /// `STAT` lines.
    Stats,
    /// Kestrel's statistics, of these queues or of all.
    DumpStats(Box<[Name]>),
    /// More of either.
    Queues(Box<Listing>),
    /// The effective configuration.
    Config,
    /// To a `status` that sets it.
    Become(Status),
    /// `Reloaded config.`
    Reloaded,
    /// A monitor that goes on.
    Monitor(Box<Monitor>),
    /// Nothing, and the connection closes.
    Goodbye,
}

impl MemcacheReply {
    /// The pending reply to the first of this request's commands.
    pub(super) fn part(&self) -> Self {
        match self.binary() {
            Some(head) => Self::binary_of(head, What::Part),
            None => Self::Silent,
        }
    }

    /// False for requests whose errors leave the connection open.
    pub(super) fn errors_close(&self) -> bool {
        self.binary().is_none_or(Head::errors_close)
    }

    /// How a set is answered whose item the host refused.
    pub(super) fn of_refused(self, command_error: CommandError) -> (ClientRequest, Self) {
        match self.binary() {
            Some(head) => (
                ClientRequest::Own,
                Self::binary_of(head, What::Refused(command_error)),
            ),
            None if not_stored(command_error) => (ClientRequest::Own, self),
            None => (ClientRequest::Close, Self::Refused(command_error)),
        }
    }

    /// The reply to a binary request.
    pub(super) fn binary_of(head: Head, what: What) -> Self {
        Self::Binary(Box::new(BinaryReply { head, what }))
    }

    fn binary(&self) -> Option<Head> {
        if let Self::Binary(reply) = self {
            Some(reply.head)
        } else {
            None
        }
    }
}

/// Numbers of queues, which come page by page.
#[derive(Debug)]
pub(super) struct Listing {
    /// `dump_stats`: of these queues or, if there are none, of all.
    pub(super) dump: Option<Box<[Name]>>,
    /// Segments retired and begun, shown with every queue.
    pub(super) log: (u64, u64),
}

/// A Kestrel monitor.
#[derive(Debug)]
pub(super) struct Monitor {
    pub(super) queue: Name,
    /// When it ends.
    pub(super) until: Ms,
    /// Items it may still fetch.
    pub(super) left: u64,
}

impl Monitor {
    /// Its next take.
    pub(super) fn take(&self, shared: &Shared) -> Command {
        Command::Take(Take {
            queues: [self.queue.clone()].into(),
            lease: Some(shared.open_read()),
            held_anywhere: shared.single_open_read,
            wait: Wait::Until(self.until),
            messages_max: 1,
            ..Take::default()
        })
    }
}

/// Writes an error of the server's side: `SERVER_ERROR text`, with line breaks
/// in the text made spaces.
pub(super) fn server_error(text: &str, output: &mut Output) {
    error(b"SERVER_ERROR ", text, output);
}

fn error(whose: &[u8], text: &str, output: &mut Output) {
    output.put(whose);
    for byte in text.bytes() {
        let byte = if byte.is_ascii_control() { b' ' } else { byte };
        output.put(&[byte]);
    }
    output.put(b"\r\n");
}

/// Writes the reply to a refused command, other than a full queue's to a set.
pub(super) fn refused(command_error: CommandError, output: &mut Output) {
    let of_clients = [CommandError::HeldLimit, CommandError::NotPermitted];
    let whose: &[u8] = match of_clients.contains(&command_error) {
        true => b"CLIENT_ERROR ",
        false => b"SERVER_ERROR ",
    };
    error(whose, command_error.text(), output);
}

/// True for what a set answers with `NOT_STORED`: the item is the trouble, not
/// the server.
pub(super) fn not_stored(command_error: CommandError) -> bool {
    matches!(
        command_error,
        CommandError::QueueFull
            | CommandError::MessageTooLarge
            | CommandError::Duplicate(_)
            | CommandError::TokenUsed(_)
    )
}
