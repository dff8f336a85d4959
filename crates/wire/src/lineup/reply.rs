//! Pending replies to requests, and how they are written.

use quintet_types::{Class, CommandError, Outcome};

use super::Count;
use super::request::INVALID;
use crate::output::Output;
use crate::session::{Env, Next, ServerResponse};

pub(super) const CRLF: &[u8] = b"\r\n";

/// The pending reply to one request.
pub(super) enum LineupReply {
    Pushed,
    Popped,
    Pong,
    /// To `AUTH`.
    LoggedIn,
    Error(&'static str),
    /// An error, then the end.
    Last(&'static str),
    /// The end without a word.
    End,
}

impl LineupReply {
    pub(super) fn write(
        self,
        response: &ServerResponse,
        env: &Env<'_>,
        output: &mut Output,
    ) -> Next {
        match (self, response.outcome()) {
            (Self::Pushed, Some(Outcome::Put { .. })) => output.put(b"+OK\r\n"),
            (Self::Pushed, Some(Outcome::Refused(command_error))) => {
                error(output, push_error(*command_error));
            }
            (Self::Popped, Some(Outcome::Messages(messages))) => {
                env.tally.bump(Count::Hit as usize);
                for message in messages {
                    output.put(b"$");
                    output.block(&message.body);
                }
            }
            (Self::Popped, Some(Outcome::Empty)) => {
                env.tally.bump(Count::Miss as usize);
                error(output, "NO_MESSAGES");
            }
            (Self::Popped, Some(Outcome::Refused(command_error))) => {
                error(output, pop_error(*command_error));
            }
            (Self::LoggedIn, _) => match response.login() {
                Some(Ok(())) => output.put(b"+OK\r\n"),
                Some(Err(refused)) => {
                    output.put(b"-");
                    output.put(refused.line());
                }
                None => error(output, INVALID),
            },
            (Self::Pong, _) => output.put(b"+PONG\r\n"),
            (Self::Error(text), _) => error(output, text),
            (Self::Last(text), _) => {
                error(output, text);
                return Next::Close;
            }
            (Self::End, _) => return Next::Close,
            (Self::Pushed | Self::Popped, _) => error(output, INVALID),
        }
        Next::Done
    }
}

/// The reply to a refused put.
pub(super) fn push_error(command_error: CommandError) -> &'static str {
    if command_error == CommandError::MessageTooLarge {
        return "MESSAGE_TOO_LARGE";
    }
    if command_error == CommandError::Draining {
        return "SERVER_DRAINING";
    }
    error_of(command_error, "MESSAGE_NOT_PUSHED")
}

/// The reply to a refused take.
fn pop_error(command_error: CommandError) -> &'static str {
    match command_error == CommandError::QueueDown {
        true => "QUEUE_DOWN",
        false => error_of(command_error, "MESSAGE_NOT_POPPED"),
    }
}

/// The reply to an error of puts and takes; else `other`.
fn error_of(command_error: CommandError, other: &'static str) -> &'static str {
    match (command_error, command_error.class()) {
        (CommandError::NoMemory, _) => "Out of memory",
        // Too few machines can be reached to keep what would be done.
        (CommandError::Unavailable, _) => "no quorum",
        (_, Class::NotPermitted) => "NOT_PERMITTED",
        (_, Class::Unknown) => "outcome not known",
        (_, Class::Full | Class::Absent | Class::Busy | Class::Unavailable | Class::Malformed) => {
            other
        }
    }
}

/// Writes an error.
pub(super) fn error(output: &mut Output, text: &str) {
    output.put(b"-");
    output.line(text.as_bytes());
}
