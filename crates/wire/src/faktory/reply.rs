//! What requests are owed, and how it is written.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use quintet_engine::{How, MessageId, Ms, Outcome, Put, Refusal};

use super::info::Info;
use super::json;
use super::mutate::Mutating;
use super::queues::Each;
use super::shown::job_shown;
use crate::output::Output;
use crate::session::Given;
use crate::workers::WorkerState;

pub(super) const OK: &[u8] = b"+OK\r\n";
const NOTHING: &[u8] = b"$-1\r\n";

/// What a request is owed.
#[derive(Debug, PartialEq)]
pub(super) enum FaktoryReply {
    /// Nothing.
    Silent,
    /// The server's first line.
    Greeting(String),
    /// `+OK`, once the worker is known.
    Joined,
    /// `+OK`, if all went well.
    Done,
    /// `+OK`, also if there was nothing to do it to.
    DoneOrGone,
    /// The same; the message of this id is tried if there is none of the name.
    Ack(MessageId),
    /// What stands behind `-ERR `.
    Fault(Cow<'static, str>),
    /// A job, or nothing.
    Job,
    /// The answer to a BEAT of this worker.
    Beat(String),
    /// The same, of the connection's own worker.
    State(WorkerState),
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
    /// To a client that speaks TLS, then the connection closes.
    Tls,
}

/// A PUSHB in its middle.
#[derive(Debug, PartialEq, Default)]
pub(super) struct Bulk {
    /// Why jobs were refused, by their ids.
    pub(super) refused: BTreeMap<String, String>,
    /// What is put, with the jobs' ids.
    pub(super) puts: VecDeque<(String, Put)>,
    /// They were refused together, and are put one by one.
    pub(super) singly: bool,
}

impl Bulk {
    /// What came of a step; the next put, if there is one.
    pub(super) fn go_on(&mut self, outcome: &Outcome) -> Option<Put> {
        if let Some(refused) = why_not(outcome) {
            if !self.singly && self.puts.len() > 1 {
                self.singly = true;
                return self.puts.front().map(|(_, put)| put.clone());
            }
            if let Some((jid, _)) = self.puts.pop_front() {
                self.refused.insert(jid, refused);
            }
        } else if self.singly {
            self.puts.pop_front();
        } else {
            self.puts.clear();
        }
        self.puts.front().map(|(_, put)| put.clone())
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
        Outcome::Refused(Refusal::Duplicate(_)) => Some("Job not unique".to_owned()),
        Outcome::Refused(refusal) => Some(refusal.text().to_owned()),
        Outcome::Denied(text) => Some(text.to_string()),
        Outcome::Done
        | Outcome::Put { .. }
        | Outcome::PutMany(_)
        | Outcome::Messages(_)
        | Outcome::Empty
        | Outcome::DeadlineSoon
        | Outcome::Count(_)
        | Outcome::Compound { .. }
        | Outcome::Entries(_)
        | Outcome::Dropped(_)
        | Outcome::Swept(_)
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

/// Writes what an engine's outcome is told as, where no more is to be said.
pub(super) fn outcome(reply: &FaktoryReply, outcome: &Outcome, output: &mut Output) {
    let gone = matches!(
        outcome,
        Outcome::Refused(Refusal::NotFound | Refusal::QueueNotFound)
    );
    if gone && matches!(reply, FaktoryReply::DoneOrGone | FaktoryReply::Ack(_)) {
        return output.put(OK);
    }
    if let Outcome::Refused(Refusal::Duplicate(_)) = outcome {
        return output.put(b"-NOTUNIQUE Job not unique\r\n");
    }
    match why_not(outcome) {
        Some(text) => error(&text, output),
        None => output.put(OK),
    }
}

/// Writes what FETCH answers.
pub(super) fn fetched(given: &Given, jobtype: &str, now: Ms, output: &mut Output) {
    let (outcome, queue) = match given {
        Given::Engine(outcome, queue) => (outcome, queue),
        Given::Server(_) | Given::Host(_) | Given::Login(_) | Given::Worker(_) | Given::Own => {
            return output.put(NOTHING);
        }
    };
    match (outcome, why_not(outcome)) {
        (Outcome::Messages(handed), _) if !handed.is_empty() => {
            bulk(&job_shown(&handed[0], queue, jobtype, now), output);
        }
        (_, Some(text)) => error(&text, output),
        (_, None) => output.put(NOTHING),
    }
}
