//! Pending replies to requests, and how they are written.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use quintet_types::{Command, CommandError, How, MessageId, Ms, Outcome, Put, PutMore};

use super::ent::BatchReply;
use super::info::Info;
use super::job::{Job, Refused};
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

/// Jobs of a PUSHB that are read, and put in one step.
const AT_ONCE: usize = 1000;

/// A PUSHB in its middle.
#[derive(Debug, PartialEq, Default)]
pub(super) struct Bulk {
    /// The inside of its JSON array, and how far the jobs in it were read.
    jobs: Box<str>,
    at: usize,
    came: Ms,
    refused: Refusals,
    /// Puts of the jobs that were read last, with their ids.
    puts: VecDeque<(String, Put)>,
    /// How many of them are being put.
    requested: usize,
    /// How many were refused together, and are put one by one.
    singly: usize,
}

/// Why jobs were refused, by their ids.
#[derive(Debug, PartialEq, Default)]
struct Refusals {
    texts: BTreeMap<String, String>,
    bytes: usize,
}

impl Refusals {
    fn add(&mut self, jid: String, why: String) {
        self.bytes += why.len();
        let jid_bytes = jid.len() + 2 * size_of::<String>();
        match self.texts.insert(jid, why) {
            Some(before) => self.bytes -= before.len(),
            None => self.bytes += jid_bytes,
        }
    }
}

impl Bulk {
    /// Of the inside of a JSON array, all of whose jobs can be read.
    pub(super) fn new(jobs: Box<str>, came: Ms) -> Self {
        Self {
            jobs,
            came,
            ..Self::default()
        }
    }

    /// Puts the next of them, if there are any. `put` makes the put of a job.
    pub(super) fn next(&mut self, put: impl Fn(Job, Ms) -> Result<Put, String>) -> Option<Command> {
        if self.puts.is_empty() {
            self.read(put);
        }
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

    fn read(&mut self, put: impl Fn(Job, Ms) -> Result<Put, String>) {
        while self.puts.len() < AT_ONCE
            && let Some((job, end)) = json::element(&self.jobs, self.at)
        {
            let read = Job::read(job, true);
            self.at = end;
            match read {
                Ok(job) => {
                    let jid = job.jid.clone();
                    match put(job, self.came) {
                        Ok(put) => self.puts.push_back((jid, put)),
                        Err(why) => self.refused.add(jid, why),
                    }
                }
                Err(Refused::Job(jid, why)) => self.refused.add(jid, why),
                // Nothing of a list with such a job is put.
                Err(Refused::Json(_)) => {}
            }
        }
    }

    /// Takes the outcome of a step and returns the next step, if there is one.
    pub(super) fn go_on(
        &mut self,
        outcome: &Outcome,
        put: impl Fn(Job, Ms) -> Result<Put, String>,
    ) -> Option<Command> {
        // Of what may have been done nothing is tried again.
        let unknown = matches!(outcome, Outcome::Refused(CommandError::Unknown));
        match why_not(outcome) {
            Some(_) if self.requested > 1 && !unknown => self.singly = self.requested,
            refused => {
                self.singly = self.singly.saturating_sub(self.requested);
                for (jid, _) in self.puts.drain(..self.requested.min(self.puts.len())) {
                    if let Some(why) = &refused {
                        self.refused.add(jid, why.clone());
                    }
                }
            }
        }
        self.next(put)
    }

    /// Bytes it holds, about.
    pub(super) fn bytes(&self) -> usize {
        let bodies: u64 = self.puts.iter().map(|(_, put)| put.body.len()).sum();
        self.jobs.len()
            + self.refused.bytes
            + self.puts.capacity() * size_of::<(String, Put)>()
            + self.puts.len() * size_of::<PutMore>()
            + usize::try_from(bodies).unwrap_or(0)
    }

    pub(super) fn text(&self) -> String {
        let mut out = "{".to_owned();
        for (jid, why) in &self.refused.texts {
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

    fn bulk(jobs: usize) -> Bulk {
        let job = |at| format!("{{\"jid\":\"{at:08}\",\"jobtype\":\"T\",\"args\":[]}}");
        let jobs: Vec<String> = (0..jobs).map(job).collect();
        Bulk::new(jobs.join(" , ").into(), Ms(7))
    }

    fn put(_: Job, came: Ms) -> Result<Put, String> {
        assert_eq!(came, Ms(7));
        Ok(Put::new("q".into(), Body::new(b"{}")))
    }

    #[test]
    fn many_jobs_are_put_in_steps_and_those_of_a_refused_step_one_by_one() {
        let mut bulk = bulk(2500);
        let mut next = bulk.next(put);
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
            let outcome = match refused {
                true => Outcome::Refused(CommandError::QueueFull),
                false => Outcome::Done,
            };
            next = bulk.go_on(&outcome, put);
        }
        let mut wanted = vec![1; 2 + 1000 + 1];
        (wanted[0], wanted[1], wanted[2 + 1000]) = (1000, 1000, 500);
        assert_eq!(sizes, wanted);
        assert_eq!(bulk.text(), "{\"00001007\":\"queue full\"}");
    }

    #[test]
    fn jobs_that_may_have_been_put_are_not_put_again() {
        let mut bulk = bulk(2);
        assert!(matches!(bulk.next(put), Some(Command::PutMany(_))));
        let unknown = Outcome::Refused(CommandError::Unknown);
        assert_eq!(bulk.go_on(&unknown, put), None);
        let unknown = CommandError::Unknown.text();
        assert_eq!(
            bulk.text(),
            format!("{{\"00000000\":\"{unknown}\",\"00000001\":\"{unknown}\"}}")
        );
    }

    #[test]
    fn refused_jobs_are_counted_once_for_each_id() {
        let mut bulk = Bulk::new("{},{\"jid\":\"1\"},{},{}".into(), Ms(7));
        assert_eq!(bulk.next(put), None);
        let why = "jobs must have a reasonable jid parameter";
        assert_eq!(bulk.text(), format!("{{\"\":\"{why}\",\"1\":\"{why}\"}}"));
        let texts = 2 * (2 * size_of::<String>() + why.len()) + 1;
        assert_eq!(bulk.refused.bytes, texts);
    }
}
