//! Pending replies to requests, and how they are written.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use quintet_types::{Command, CommandError, How, MessageId, Ms, Outcome, Put};

use super::ent::BatchReply;
use super::info::Info;
use super::json;
use super::mutate::Mutating;
use super::queues::Each;
use super::shown::job_shown;
use crate::output::Output;
use crate::session::ServerResponse;
use crate::workers::WorkerState;

pub(super) const OK: &[u8] = b"+OK\r\n";
const NOTHING: &[u8] = b"$-1\r\n";

/// The pending reply to one request.
#[derive(Debug, PartialEq)]
pub(super) enum FaktoryReply {
    /// Nothing.
    Silent,
    /// The server's first line.
    Greeting(String),
    /// Nothing, if the client knows the password.
    Proved,
    /// `+OK`, once the worker is known.
    Joined,
    /// `+OK`, if all went well.
    Done,
    /// `+OK`, also if there was nothing to do it to.
    DoneOrGone(Box<str>),
    /// The same; the message of this id is tried if there is none of the name.
    Ack(Box<str>, MessageId),
    /// The text behind `-ERR `.
    Fault(Cow<'static, str>),
    /// A job, or nothing.
    Job,
    /// The answer to a BEAT of this worker.
    Beat(String),
    /// The same, of the connection's own worker.
    State(WorkerState),
    /// The same to a worker that hears of cancels.
    Cancels(Box<Cancels>),
    /// To a FAIL of this job.
    Fail(Box<str>),
    /// The same, if the message of this id is tried where there is none of the name.
    FailOrId(Box<str>, MessageId, How),
    Bulk(Box<Bulk>),
    InfoFirst,
    Info(Box<Info>),
    Flush,
    Each(Box<Each>),
    Mutate(Box<Mutating>),
    Batch(BatchReply),
    /// To a TRACK GET of this job; true: of one that is not tracked it is looked whether a worker
    /// has it.
    Track(Box<str>, bool),
    /// To a TRACK SET, after which this is done.
    TrackThen(Box<Command>),
    /// To a client that speaks TLS, then the connection closes.
    Tls,
}

/// A search for cancelled jobs of a worker in its middle.
#[derive(Debug, PartialEq)]
pub(super) struct Cancels {
    /// The job that is asked about.
    pub(super) requested: Box<str>,
    pub(super) left: Vec<Box<str>>,
    pub(super) found: Vec<Box<str>>,
}

/// Writes the reply to a BEAT of a worker of which these jobs are cancelled.
pub(super) fn cancelled(worker_state: WorkerState, jids: &[Box<str>], output: &mut Output) {
    if jids.is_empty() {
        return state(worker_state, output);
    }
    let mut text = format!("{{\"state\":\"{}\",\"cancelled\":[", worker_state.word());
    for (at, jid) in jids.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        json::quote(jid, &mut text);
    }
    text.push_str("]}");
    bulk(&text, output);
}

/// Jobs of a PUSHB that are put in one step.
const AT_ONCE: usize = 1000;

/// A PUSHB in its middle.
#[derive(Debug, PartialEq, Default)]
pub(super) struct Bulk {
    /// Why jobs were refused, by their ids.
    refused: BTreeMap<String, String>,
    /// The puts, with the jobs' ids.
    puts: VecDeque<(String, Put)>,
    /// How many of them are being put.
    requested: usize,
    /// How many were refused together, and are put one by one.
    singly: usize,
}

impl Bulk {
    pub(super) fn new(refused: BTreeMap<String, String>, puts: VecDeque<(String, Put)>) -> Self {
        Self {
            refused,
            puts,
            requested: 0,
            singly: 0,
        }
    }

    /// Puts the next of them, if there are any.
    pub(super) fn next(&mut self) -> Option<Command> {
        let most = if self.singly > 0 { 1 } else { AT_ONCE };
        self.requested = self.puts.len().min(most);
        let mut puts = self
            .puts
            .iter()
            .take(self.requested)
            .map(|(_, put)| put.clone());
        match self.requested {
            0 => None,
            1 => puts.next().map(Command::Put),
            _ => Some(Command::PutMany(puts.collect())),
        }
    }

    /// Takes the outcome of a step and returns the next step, if there is one.
    pub(super) fn go_on(&mut self, outcome: &Outcome) -> Option<Command> {
        // Of what may have been done nothing is tried again.
        let unknown = matches!(outcome, Outcome::Refused(CommandError::Unknown));
        match why_not(outcome) {
            Some(_) if self.requested > 1 && !unknown => self.singly = self.requested,
            refused => {
                self.singly = self.singly.saturating_sub(self.requested);
                let requested = self.puts.drain(..self.requested.min(self.puts.len()));
                self.refused
                    .extend(requested.filter_map(|(jid, _)| Some((jid, refused.clone()?))));
            }
        }
        self.next()
    }

    /// Bytes it holds, about.
    pub(super) fn bytes(&self) -> usize {
        let bodies: u64 = self.puts.iter().map(|(_, put)| put.body.len()).sum();
        self.puts.capacity() * size_of::<(String, Put)>() + usize::try_from(bodies).unwrap_or(0)
    }

    pub(super) fn text(&self) -> String {
        let mut out = "{".to_owned();
        for (jid, why) in &self.refused {
            if out.len() > 1 {
                out.push(',');
            }
            json::quote(jid, &mut out);
            out.push(':');
            json::quote(why, &mut out);
        }
        out.push('}');
        out
    }
}

/// Why it was refused, if it was, without `ERR `.
fn why_not(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Refused(CommandError::Duplicate(_)) => Some("Job not unique".to_owned()),
        // Clients look for these words.
        Outcome::Refused(CommandError::BatchNotFound) => Some("No such batch".to_owned()),
        Outcome::Refused(command_error) => Some(command_error.text().to_owned()),
        Outcome::Denied(text) => Some(text.to_string()),
        Outcome::Cancelled => Some("Job is cancelled".to_owned()),
        Outcome::Done
        | Outcome::Put { .. }
        | Outcome::PutMany(_)
        | Outcome::Messages(_)
        | Outcome::Empty
        | Outcome::DeadlineSoon
        | Outcome::Count(_)
        | Outcome::Transaction { .. }
        | Outcome::Entries(_)
        | Outcome::Batch(_)
        | Outcome::Batches(..)
        | Outcome::Tracked(..)
        | Outcome::Result(_)
        | Outcome::Lease(_)
        | Outcome::Dropped(_)
        | Outcome::BulkDone(_)
        | Outcome::Stats(_) => None,
    }
}

pub(super) fn error(text: &str, output: &mut Output) {
    output.put(b"-ERR ");
    // No text may end the line.
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    output.line(text.as_bytes());
}

pub(super) fn bulk(text: &str, output: &mut Output) {
    output.put(b"$");
    output.block_of(text.as_bytes());
}

pub(super) fn state(state: WorkerState, output: &mut Output) {
    match state {
        WorkerState::Running => output.put(OK),
        WorkerState::Quiet | WorkerState::Terminate => {
            bulk(&format!("{{\"state\":\"{}\"}}", state.word()), output);
        }
    }
}

/// Writes the reply to an engine's outcome, where no more is to be said.
pub(super) fn done(outcome: &Outcome, output: &mut Output) {
    if let Outcome::Refused(CommandError::Duplicate(_)) = outcome {
        return output.put(b"-NOTUNIQUE Job not unique\r\n");
    }
    match why_not(outcome) {
        Some(text) => error(&text, output),
        None => output.put(OK),
    }
}

/// Writes what FETCH answers.
pub(super) fn fetched(response: &ServerResponse, jobtype: &str, now: Ms, output: &mut Output) {
    let ServerResponse::Engine(outcome, queue) = response else {
        return output.put(NOTHING);
    };
    match (outcome, why_not(outcome)) {
        (Outcome::Messages(handed), _) if !handed.is_empty() => {
            bulk(&job_shown(&handed[0], queue, jobtype, now), output);
        }
        (_, Some(text)) => error(&text, output),
        (_, None) => output.put(NOTHING),
    }
}

#[cfg(test)]
mod tests {
    use quintet_types::Body;

    use super::*;

    #[test]
    fn many_jobs_are_put_in_steps_and_those_of_a_refused_step_one_by_one() {
        let put = |at: usize| (at.to_string(), Put::new("q".into(), Body::new(b"{}")));
        let mut bulk = Bulk::new(BTreeMap::new(), (0..2500).map(put).collect());
        let mut next = bulk.next();
        let mut sizes = Vec::new();
        while let Some(command) = next {
            let size = if let Command::PutMany(puts) = &command {
                puts.len()
            } else {
                assert!(matches!(command, Command::Put(_)));
                1
            };
            let refused = sizes.len() == 1 || sizes.len() == 2 + 7;
            sizes.push(size);
            next = bulk.go_on(&match refused {
                true => Outcome::Refused(CommandError::QueueFull),
                false => Outcome::Done,
            });
        }
        let mut wanted = vec![1; 2 + 1000 + 1];
        (wanted[0], wanted[1], wanted[2 + 1000]) = (1000, 1000, 500);
        assert_eq!(sizes, wanted);
        assert_eq!(bulk.text(), "{\"1007\":\"queue full\"}");
    }

    #[test]
    fn jobs_that_may_have_been_put_are_not_put_again() {
        let put = |at: usize| (at.to_string(), Put::new("q".into(), Body::new(b"{}")));
        let mut bulk = Bulk::new(BTreeMap::new(), (0..2).map(put).collect());
        assert!(matches!(bulk.next(), Some(Command::PutMany(_))));
        assert_eq!(bulk.go_on(&Outcome::Refused(CommandError::Unknown)), None);
        let unknown = CommandError::Unknown.text();
        assert_eq!(
            bulk.text(),
            format!("{{\"0\":\"{unknown}\",\"1\":\"{unknown}\"}}")
        );
    }
}
