//! Pending replies to requests, and how they are written.

use quintet_types::{
    Class, CommandError, Handed, ListState, Name, Outcome, QueueStats, ServerStats, StatsReply,
};

use super::names;
use super::stats::{self, Tubes};
use crate::output::Output;
use crate::session::ServerResponse;

pub(super) const CRLF: &[u8] = b"\r\n";
pub(super) const BAD_FORMAT: &[u8] = b"BAD_FORMAT\r\n";
pub(super) const UNKNOWN_COMMAND: &[u8] = b"UNKNOWN_COMMAND\r\n";
pub(super) const EXPECTED_CRLF: &[u8] = b"EXPECTED_CRLF\r\n";
pub(super) const JOB_TOO_BIG: &[u8] = b"JOB_TOO_BIG\r\n";
pub(super) const OUT_OF_MEMORY: &[u8] = b"OUT_OF_MEMORY\r\n";
pub(super) const INTERNAL_ERROR: &[u8] = b"INTERNAL_ERROR\r\n";
/// Before the id of the job that is repeated; an addition to the protocol.
pub(super) const DUPLICATE: &[u8] = b"DUPLICATE ";
const NOT_PERMITTED: &[u8] = b"NOT_PERMITTED\r\n";
const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";

/// The pending reply to one request.
#[derive(Debug, PartialEq)]
pub(super) enum BeanstalkReply {
    /// Nothing.
    Silent,
    /// This, if all went well.
    Line(&'static [u8]),
    /// To `auth`.
    LoggedIn,
    Using(Name),
    /// The same, and from then on it is so.
    NowUsing(Name),
    Watching(usize),
    NowWatching(Name),
    Inserted,
    /// The same, or which one it repeats.
    InsertedUnique,
    ReservedId,
    /// With the word before the id.
    Job(&'static [u8]),
    /// Several jobs, their number before them.
    Batch,
    /// How many jobs a tube lost.
    Cleared,
    /// With the state of those that are kicked just now, how many were, and
    /// how many more may be.
    Kicked(ListState, u64, u64),
    StatsJob,
    /// The id of the batch that was made.
    NewBatch,
    StatsBatch,
    StatsTrack,
    StatsTube(Name),
    Stats,
    /// The same, with the tubes found so far.
    Counted(Box<ServerStats>, usize),
    /// The names found so far.
    Tubes(Tubes),
    Watched(Vec<Name>),
}

impl BeanstalkReply {
    /// Writes it, but for what only the session knows.
    pub(super) fn write(self, response: &ServerResponse, output: &mut Output) {
        match (self, response.outcome_or_done()) {
            (BeanstalkReply::Silent, _) => {}
            (BeanstalkReply::LoggedIn, _) => output.put(match response.login() {
                Some(Ok(())) => b"OK\r\n",
                Some(Err(refused)) => refused.line(),
                None => INTERNAL_ERROR,
            }),
            (BeanstalkReply::StatsTube(_), Outcome::Refused(CommandError::NotPermitted)) => {
                output.put(NOT_PERMITTED);
            }
            // Not that there is no such tube: nobody has looked.
            (_, Outcome::Refused(CommandError::Unavailable)) => output.put(INTERNAL_ERROR),
            (BeanstalkReply::StatsTube(name), outcome) => stats_tube(&name, outcome, output),
            (BeanstalkReply::InsertedUnique, Outcome::Refused(CommandError::Duplicate(first))) => {
                count(DUPLICATE, first.0, output);
            }
            (_, Outcome::Refused(command_error)) => output.put(refused(*command_error)),
            (BeanstalkReply::Line(line), _) => output.put(line),
            (BeanstalkReply::Job(word), Outcome::Messages(handed)) => jobs(word, handed, output),
            (BeanstalkReply::ReservedId, Outcome::Messages(handed)) => {
                jobs(b"RESERVED ", handed, output)
            }
            (BeanstalkReply::Batch, Outcome::Messages(handed)) => {
                count(b"RESERVED_BATCH ", handed.len() as u64, output);
                jobs(b"RESERVED ", handed, output);
            }
            (BeanstalkReply::Job(_) | BeanstalkReply::Batch, Outcome::Empty) => {
                output.put(b"TIMED_OUT\r\n");
            }
            (BeanstalkReply::Job(_) | BeanstalkReply::Batch, Outcome::DeadlineSoon) => {
                output.put(b"DEADLINE_SOON\r\n");
            }
            (BeanstalkReply::Cleared, Outcome::Count(cleared)) => {
                count(b"CLEARED ", *cleared, output);
            }
            (
                BeanstalkReply::Inserted | BeanstalkReply::InsertedUnique,
                Outcome::Put { id, .. },
            ) => count(b"INSERTED ", id.0, output),
            (BeanstalkReply::NewBatch, Outcome::Batch(batch)) => {
                output.put(b"BATCH ");
                output.line(batch.id.to_string().as_bytes());
            }
            (BeanstalkReply::Kicked(_, kicked, _), _) => count(b"KICKED ", kicked, output),
            (BeanstalkReply::Watching(watched), _) => count(b"WATCHING ", watched as u64, output),
            (BeanstalkReply::Using(name), _) => {
                output.put(b"USING ");
                output.line(name.as_bytes());
            }
            (BeanstalkReply::Watched(names), _) => {
                stats::list(names.iter().map(Name::as_bytes), output)
            }
            (BeanstalkReply::StatsJob, Outcome::Stats(reply)) => {
                if let StatsReply::Message(message) = &**reply {
                    stats::job(message, output);
                } else {
                    output.put(INTERNAL_ERROR);
                }
            }
            (
                BeanstalkReply::Job(_)
                | BeanstalkReply::Batch
                | BeanstalkReply::Cleared
                | BeanstalkReply::ReservedId
                | BeanstalkReply::Inserted
                | BeanstalkReply::InsertedUnique
                | BeanstalkReply::StatsJob
                | BeanstalkReply::NewBatch
                | BeanstalkReply::StatsBatch
                | BeanstalkReply::StatsTrack
                | BeanstalkReply::NowUsing(_)
                | BeanstalkReply::NowWatching(_)
                | BeanstalkReply::Stats
                | BeanstalkReply::Counted(..)
                | BeanstalkReply::Tubes(_),
                _,
            ) => output.put(INTERNAL_ERROR),
        }
    }
}

fn jobs(word: &[u8], handed: &Handed, output: &mut Output) {
    for message in handed {
        output.put(word);
        output.number(message.id.0);
        output.put(b" ");
        output.block(&message.body);
    }
}

fn count(word: &[u8], count: u64, output: &mut Output) {
    output.put(word);
    output.number(count);
    output.put(CRLF);
}

fn stats_tube(name: &Name, outcome: &Outcome, output: &mut Output) {
    if let Outcome::Stats(reply) = outcome
        && let StatsReply::Queue(queue) = &**reply
        && stats::is_shown(queue)
    {
        stats::tube(name, queue, output);
    } else if name.as_bytes() == names::DEFAULT {
        stats::tube(name, &QueueStats::default(), output);
    } else {
        output.put(NOT_FOUND);
    }
}

/// Writes an error.
pub(super) fn refused(command_error: CommandError) -> &'static [u8] {
    match (command_error, command_error.class()) {
        (CommandError::BatchClosed, _) => b"BATCH_CLOSED\r\n",
        (CommandError::Draining, _) => b"DRAINING\r\n",
        (CommandError::LeaseOver, _) => NOT_FOUND,
        (CommandError::MessageTooLarge | CommandError::BatchTooLarge, _) => JOB_TOO_BIG,
        (_, Class::Full) => OUT_OF_MEMORY,
        (_, Class::Absent) => NOT_FOUND,
        (_, Class::NotPermitted) => NOT_PERMITTED,
        (_, Class::Busy | Class::Unavailable | Class::Malformed | Class::Unknown) => INTERNAL_ERROR,
    }
}
