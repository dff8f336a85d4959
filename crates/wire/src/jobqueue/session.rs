//! One connection: requests in, replies out.

use std::sync::Arc;

use quintet_types::{
    BackTo, Body, By, Command, CommandError, How, LargeBody, LeaseOwner, LeaseRequest, LeaseTime,
    MessageId, Name, Put, Take, Wait,
};

use super::frame::{NameAt, NameEnd, Verb, Word, id, number, word};
use super::reply::{JobqueueReply, TOO_LARGE, error, text};
use super::{Count, Shared};
use crate::bodies::{IncomingBody, ParseResult, drop_some, skip};
use crate::foreign::First;
use crate::output::Output;
use crate::owed::Owed;
use crate::session::{Env, HalfClose, HookReply, Next, ServerResponse, Session, Step};

/// Priority, ttp and the length of the data.
const NUMBERS: usize = 12;
const ID: usize = 8;
const TIMEOUT: usize = 4;

/// Ends with the ttp of the client that is connected, or, without one, with the
/// connection, so that a crash cannot lose the job.
const LEASE: LeaseRequest = LeaseRequest {
    owner: LeaseOwner::TimeElseConnection,
    time: LeaseTime::TtrOrDefault,
    back_to: BackTo::Position,
    held_max: 0,
};

const DATA_MISSING: &str = "Malformed ADD command: failed to parse job data";

/// Protocol state of one connection.
pub(super) struct JobqueueSession {
    shared: Arc<Shared>,
    first: First,
    name_end: NameEnd,
    state: JobqueueState,
    owed: Owed<JobqueueReply>,
}

/// A queue's name, or why a request with it is refused.
type Queue = Result<Name, &'static str>;

/// A job whose data are still to come.
#[derive(Clone)]
struct Job {
    queue: Name,
    priority: u32,
    ttp: u32,
}

/// State of the decoder at the front of the input.
enum JobqueueState {
    /// A command word.
    Word,
    /// The name of a queue.
    Name(Verb),
    /// The numbers of an ADD; so many of their bytes were there last time.
    Numbers {
        queue: Queue,
        seen: usize,
    },
    /// The timeout of a RESERVE.
    Timeout(Queue),
    /// The id of a DELETE.
    Id,
    Data(IncomingBody<Job>),
    /// So many bytes of data of a job that is refused.
    Refused {
        error: &'static str,
        left: u64,
    },
    /// Nothing more: the connection is closing.
    Over,
}

impl JobqueueSession {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            first: First::new(),
            name_end: NameEnd::default(),
            state: JobqueueState::Word,
            owed: Owed::new(),
        }
    }

    fn own(&mut self, used: usize, reply: JobqueueReply, env: &Env<'_>) -> Step {
        let closes = matches!(
            reply,
            JobqueueReply::Last(_) | JobqueueReply::Unknown(_) | JobqueueReply::End
        );
        if closes {
            self.state = JobqueueState::Over;
        }
        if closes || matches!(reply, JobqueueReply::Error(_)) {
            env.tally.bump(Count::Fault as usize);
        }
        if closes {
            return self.owed.close(used, reply);
        }
        self.owed.own(used, reply)
    }

    fn tls(&mut self, env: &Env<'_>) -> Step {
        env.tally.bump(Count::Fault as usize);
        self.state = JobqueueState::Over;
        self.owed.tls()
    }

    fn word(&mut self, input: &[u8], env: &Env<'_>) -> Step {
        let (verb, used) = match word(input) {
            Word::Known(verb, used) => (verb, used),
            Word::Part => return Step::More,
            // What follows an unknown word has no known length.
            Word::Unknown(word) => {
                return self.own(word.len() + 1, JobqueueReply::Unknown(word.into()), env);
            }
            Word::TooLong => return self.own(0, JobqueueReply::Last("Command too long"), env),
            Word::Alien => return self.own(0, JobqueueReply::End, env),
        };
        self.state = match verb {
            Verb::Connect => {
                env.tally.bump(Count::Connect as usize);
                return self.own(used, JobqueueReply::Connected, env);
            }
            Verb::Add | Verb::Reserve => JobqueueState::Name(verb),
            Verb::Delete => JobqueueState::Id,
        };
        Step::Skip { used }
    }

    fn name(&mut self, input: &[u8], verb: Verb, env: &Env<'_>) -> Step {
        let name = match self.name_end.find(input, self.shared.name_max) {
            NameAt::Whole(name) => name,
            NameAt::Part => {
                self.state = JobqueueState::Name(verb);
                return Step::More;
            }
            NameAt::TooLong => return self.own(0, JobqueueReply::Last("Queue name too long"), env),
        };
        let text = std::str::from_utf8(name);
        self.state = match verb {
            Verb::Reserve => JobqueueState::Timeout(match text {
                Ok("") => Err("Error reserving job from queue "),
                Ok(text) => Ok(Name::from(text)),
                Err(_) => Err("Malformed RESERVE command: queue name is not UTF-8"),
            }),
            Verb::Add | Verb::Connect | Verb::Delete => JobqueueState::Numbers {
                queue: match text {
                    Ok("") => Err("Error adding new job to queue "),
                    Ok(text) => Ok(Name::from(text)),
                    Err(_) => Err("Malformed ADD command: queue name is not UTF-8"),
                },
                seen: 0,
            },
        };
        Step::Skip {
            used: name.len() + 1,
        }
    }

    fn numbers(&mut self, input: &[u8], queue: Queue, env: &Env<'_>) -> Step {
        let numbers = (number(input, 0), number(input, 4), number(input, 8));
        let (Some(priority), Some(ttp), Some(len)) = numbers else {
            let seen = input.len();
            self.state = JobqueueState::Numbers { queue, seen };
            return Step::More;
        };
        let len = u64::from(len);
        if len > self.shared.job_max {
            return self.own(NUMBERS, JobqueueReply::Last(TOO_LARGE), env);
        }
        match queue {
            Err(error) => {
                self.state = JobqueueState::Refused { error, left: len };
                Step::Skip { used: NUMBERS }
            }
            Ok(queue) => {
                let job = Job {
                    queue,
                    priority,
                    ttp,
                };
                self.data(IncomingBody::new(job, NUMBERS, len), input, env)
            }
        }
    }

    fn data(&mut self, coming: IncomingBody<Job>, input: &[u8], env: &Env<'_>) -> Step {
        match coming.read(input, b"", |job| job.queue.clone()) {
            ParseResult::Part(coming, step) => {
                self.state = JobqueueState::Data(coming);
                step
            }
            ParseResult::Whole(found) => match found.body {
                Ok(body) => self.add(found.used, found.head, body, env),
                Err(command_error) => {
                    self.own(found.used, JobqueueReply::Error(text(command_error)), env)
                }
            },
        }
    }

    fn add(&mut self, used: usize, job: Job, body: Body, env: &Env<'_>) -> Step {
        env.tally.bump(Count::Add as usize);
        let put = Put {
            priority: Some(job.priority),
            ttr_ms: Some(u64::from(job.ttp) * 1000),
            ..Put::new(job.queue, body)
        };
        let put = Command::Put(put);
        self.owed.engine(used, put, JobqueueReply::Added)
    }

    fn refused(&mut self, input: &[u8], error: &'static str, mut left: u64, env: &Env<'_>) -> Step {
        let used = drop_some(&mut left, input);
        if left == 0 {
            return self.own(used, JobqueueReply::Error(error.into()), env);
        }
        self.state = JobqueueState::Refused { error, left };
        skip(used)
    }

    fn reserve(&mut self, input: &[u8], queue: Queue, env: &Env<'_>) -> Step {
        let Some(timeout) = number(input, 0) else {
            self.state = JobqueueState::Timeout(queue);
            return Step::More;
        };
        let queue = match queue {
            Ok(queue) => queue,
            Err(error) => return self.own(TIMEOUT, JobqueueReply::Error(error.into()), env),
        };
        env.tally.bump(Count::Reserve as usize);
        let take = Take {
            queues: [queue].into(),
            lease: Some(LEASE),
            wait: match timeout {
                0 => Wait::Forever,
                seconds => Wait::For(u64::from(seconds) * 1000),
            },
            // What the length cannot say is left to other protocols.
            body_max: Some(u32::MAX.into()),
            ..Take::default()
        };
        let reply = JobqueueReply::Reserved(timeout == 0);
        self.owed.engine(TIMEOUT, Command::Take(take), reply)
    }

    fn delete(&mut self, input: &[u8], env: &Env<'_>) -> Step {
        let Some(id) = id(input) else {
            self.state = JobqueueState::Id;
            return Step::More;
        };
        env.tally.bump(Count::Delete as usize);
        // A worker finishes its job so, perhaps on another connection than it was reserved on.
        let command = Command::Settle {
            id: MessageId(id),
            by: By::Anyone,
            how: How::Finish,
        };
        self.owed.engine(ID, command, JobqueueReply::Deleted(id))
    }

    /// The missing part of a request whose client sends no more.
    fn missing(&self) -> Option<&'static str> {
        match &self.state {
            JobqueueState::Word | JobqueueState::Over => None,
            JobqueueState::Name(Verb::Reserve) => {
                Some("Malformed RESERVE command: failed to parse queue name")
            }
            JobqueueState::Name(_) => Some("Malformed ADD command: failed to parse queue name"),
            JobqueueState::Numbers { seen: 0..4, .. } => {
                Some("Malformed ADD command: failed to parse priority")
            }
            JobqueueState::Numbers { seen: 4..8, .. } => {
                Some("Malformed ADD command: failed to parse ttp")
            }
            JobqueueState::Timeout(_) => Some("Malformed RESERVE command: failed to parse timeout"),
            JobqueueState::Id => Some("Malformed DELETE command: failed to parse job ID"),
            JobqueueState::Numbers { .. }
            | JobqueueState::Data(_)
            | JobqueueState::Refused { .. } => Some(DATA_MISSING),
        }
    }
}

impl Session for JobqueueSession {
    fn decode(&mut self, input: &[u8], env: &Env<'_>) -> Step {
        if self.first.is_tls(input) {
            return self.tls(env);
        }
        match std::mem::replace(&mut self.state, JobqueueState::Word) {
            JobqueueState::Word => self.word(input, env),
            JobqueueState::Name(verb) => self.name(input, verb, env),
            JobqueueState::Numbers { queue, .. } => self.numbers(input, queue, env),
            JobqueueState::Timeout(queue) => self.reserve(input, queue, env),
            JobqueueState::Id => self.delete(input, env),
            JobqueueState::Data(coming) => self.data(coming, input, env),
            JobqueueState::Refused { error, left } => self.refused(input, error, left, env),
            JobqueueState::Over => {
                self.state = JobqueueState::Over;
                skip(input.len())
            }
        }
    }

    fn encode(&mut self, response: &ServerResponse, env: &Env<'_>, output: &mut Output) -> Next {
        let reply = self.owed.pop_or_alert(output);
        reply.map_or(Next::Close, |reply| reply.write(response, env, output))
    }

    fn says_no(&self, reply: &[u8]) -> bool {
        reply.starts_with(b"ERROR\0")
    }

    fn say(&mut self, hook_reply: HookReply<'_>, output: &mut Output) -> Next {
        let _instead = self.owed.pop();
        match hook_reply {
            // No reply of this protocol has a text or a body of its own.
            HookReply::Line(_) | HookReply::Message(_) => output.put(b"OK\0"),
            HookReply::Refused(text) | HookReply::Limited(text) => error(output, text.as_bytes()),
        }
        Next::Done
    }

    fn streamed(&mut self, body: Result<LargeBody, CommandError>) {
        if let JobqueueState::Data(coming) = &mut self.state {
            coming.streamed(body);
        }
    }

    fn is_as_opened(&self) -> bool {
        let Self {
            shared: _,
            // No word begins as TLS does, and a name is looked for anew.
            first: _,
            name_end: _,
            state,
            owed,
        } = self;
        matches!(state, JobqueueState::Word) && owed.is_empty()
    }

    fn half_closed(&mut self) -> HalfClose {
        match self.owed.oldest() {
            // It would wait for ever, for a client that may be gone.
            Some(JobqueueReply::Reserved(true)) => HalfClose::Close,
            Some(_) => HalfClose::StopWaiting,
            None => match self.missing() {
                Some(text) => {
                    self.state = JobqueueState::Over;
                    self.owed.last_word(JobqueueReply::Last(text));
                    HalfClose::LastWord
                }
                None => HalfClose::Close,
            },
        }
    }
}
