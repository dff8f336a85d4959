//! Pending replies to requests, and how they are written.

use std::borrow::Cow;

use quintet_types::{CommandError, Message, Outcome};

use super::Count;
use crate::output::Output;
use crate::session::{Env, Next, ServerResponse};

pub(super) const TOO_LARGE: &str = "Job data too large";

/// The pending reply to one request.
pub(super) enum JobqueueReply {
    Connected,
    Added,
    /// True: it waits without limit.
    Reserved(bool),
    Deleted(u64),
    Error(Cow<'static, str>),
    /// An error, then the end.
    Last(&'static str),
    Unknown(Box<[u8]>),
    /// The end without a word.
    End,
}

impl JobqueueReply {
    pub(super) fn write(
        self,
        response: &ServerResponse,
        env: &Env<'_>,
        output: &mut Output,
    ) -> Next {
        match (self, response.outcome()) {
            (JobqueueReply::Connected, _) | (JobqueueReply::Deleted(_), Some(Outcome::Done)) => {
                output.put(b"OK\0");
            }
            (JobqueueReply::Added, Some(Outcome::Put { id, .. })) => {
                output.put(b"ADDED\0");
                output.put(&id.0.to_le_bytes());
            }
            (JobqueueReply::Reserved(_), Some(Outcome::Messages(messages))) => {
                env.tally.bump(Count::Hit as usize);
                for message in messages {
                    reserved(output, message);
                }
            }
            (JobqueueReply::Reserved(_), Some(Outcome::Empty)) => {
                env.tally.bump(Count::Timeout as usize);
                output.put(b"TIMEOUT\0");
            }
            (JobqueueReply::Deleted(id), Some(Outcome::Refused(CommandError::NotFound))) => {
                output.put(b"ERROR\0Job ");
                output.number(id);
                output.put(b" already deleted\0");
            }
            (_, Some(Outcome::Refused(command_error))) => {
                error(output, text(*command_error).as_bytes())
            }
            (JobqueueReply::Error(text), _) => error(output, text.as_bytes()),
            (JobqueueReply::Last(text), _) => {
                error(output, text.as_bytes());
                return Next::Close;
            }
            (JobqueueReply::Unknown(word), _) => {
                error(output, &[b"Unknown Command ", &*word].concat());
                return Next::Close;
            }
            (JobqueueReply::End, _) => return Next::Close,
            (JobqueueReply::Added | JobqueueReply::Reserved(_) | JobqueueReply::Deleted(_), _) => {
                error(output, b"Unexpected outcome");
            }
        }
        Next::Done
    }
}

/// The text of an error: the word of the engine with a capital letter, but for those that clients
/// of this protocol have words for.
pub(super) fn text(command_error: CommandError) -> Cow<'static, str> {
    let own = match (command_error, command_error.text()) {
        (CommandError::MessageTooLarge, _) => TOO_LARGE,
        (CommandError::NotFound, _) => "Job not found",
        (CommandError::LeaseOver, _) => "Reservation is over",
        (CommandError::HeldLimit, _) => "Too many reserved jobs",
        (CommandError::Unavailable, _) => "no quorum",
        (CommandError::Unknown, _) => "outcome not known",
        (CommandError::Duplicate(_), _) => "Duplicate job",
        (CommandError::TokenUsed(_), _) => "Token used before",
        (_, text) => {
            let mut text = text.to_owned();
            if let Some(first) = text.get_mut(..1) {
                first.make_ascii_uppercase();
            }
            return text.into();
        }
    };
    own.into()
}

/// Writes an error.
pub(super) fn error(output: &mut Output, text: &[u8]) {
    output.put(b"ERROR\0");
    output.put(text);
    output.put(b"\0");
}

/// Seconds of a time to run, rounded up: a second is never less.
fn seconds(ttr_ms: Option<u64>) -> u32 {
    u32::try_from(ttr_ms.unwrap_or(0).div_ceil(1000)).unwrap_or(u32::MAX)
}

fn reserved(output: &mut Output, message: &Message) {
    output.put(b"RESERVED\0");
    output.put(&message.id.0.to_le_bytes());
    output.put(&message.priority.to_le_bytes());
    output.put(&seconds(message.ttr_ms).to_le_bytes());
    output.put(b"reserved\0");
    // The take asked for no longer ones.
    let len = u32::try_from(message.body.len()).unwrap_or(u32::MAX);
    output.put(&len.to_le_bytes());
    output.body(&message.body);
}
