//! One connection: lines and jobs in, replies out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memchr::{memchr, memmem};
use quintet_engine::{
    BackTo, Body, By, Command, How, LargeBody, LeaseAsk, LeaseOwner, LeaseTime, MessageId, Name,
    Outcome, Peek, Put, QueueStats, Refusal, StatsOf, StatsReply, Take, Wait, When,
};

use super::request::{Announced, LINE_MAX, Request, parse};
use super::{Count, Shared, stats};
use crate::output::Output;
use crate::session::{Ask, Env, Given, HalfClose, HostAsk, Next, STREAM_OVER, Session, Step};

const CRLF: &[u8] = b"\r\n";

/// A reserve is answered with DEADLINE_SOON when a job of the client has less
/// time left than this.
const MARGIN_MS: u64 = 1000;

const BAD_FORMAT: &[u8] = b"BAD_FORMAT\r\n";
const UNKNOWN_COMMAND: &[u8] = b"UNKNOWN_COMMAND\r\n";
const EXPECTED_CRLF: &[u8] = b"EXPECTED_CRLF\r\n";
const JOB_TOO_BIG: &[u8] = b"JOB_TOO_BIG\r\n";
const OUT_OF_MEMORY: &[u8] = b"OUT_OF_MEMORY\r\n";
const INTERNAL_ERROR: &[u8] = b"INTERNAL_ERROR\r\n";
const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";

/// Protocol state of one connection.
pub(super) struct BeanstalkSession {
    shared: Arc<Shared>,
    state: State,
    used: Name,
    /// What a reserve asks for; its queues are the watched tubes.
    reserve: Take,
    /// The engine knows which tubes this connection refers to.
    known: bool,
    is_producer: bool,
    is_worker: bool,
    /// The rest of a request that becomes two commands.
    part: Option<(Command, Reply)>,
    replies: VecDeque<Reply>,
}

/// What the input's front is.
enum State {
    /// A command line.
    Line,
    /// The rest of a line that was too long.
    LongLine,
    /// A job held in the input until it is whole.
    Small(Announced),
    /// A job to be streamed.
    Large(Announced),
    /// A job on its way to the log.
    Streaming(Announced),
    /// The end of a job that was streamed.
    Streamed(Announced, Result<LargeBody, Refusal>),
    /// So many bytes of a job that is too long.
    TooBig(u64),
    /// Nothing more: the connection is closing.
    Over,
}

/// What a request is owed.
enum Reply {
    /// Nothing.
    Silent,
    /// This, if all went well.
    Line(&'static [u8]),
    Using(Name),
    Watching(usize),
    /// The same, and the tube is forgotten if it cannot be watched.
    NowWatching(usize, Name),
    Inserted,
    ReservedId,
    /// With the word before the id.
    Job(&'static [u8]),
    Kicked,
    StatsJob,
    StatsTube(Name),
    Stats,
    Tubes,
    Watched(Vec<Name>),
}

impl BeanstalkSession {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let default = Name::new(stats::DEFAULT);
        Self {
            shared,
            state: State::Line,
            used: default.clone(),
            reserve: Take {
                queues: [default].into(),
                lease: Some(LEASE),
                deadline_soon_ms: Some(MARGIN_MS),
                ..Take::default()
            },
            known: false,
            is_producer: false,
            is_worker: false,
            part: None,
            replies: VecDeque::new(),
        }
    }

    fn ask(&mut self, used: usize, ask: Ask, reply: Reply) -> Step {
        self.replies.push_back(reply);
        Step::Ask { used, ask }
    }

    fn engine(&mut self, used: usize, command: Command, reply: Reply) -> Step {
        self.ask(used, Ask::Engine(command), reply)
    }

    fn own(&mut self, used: usize, reply: Reply) -> Step {
        self.ask(used, Ask::Own, reply)
    }

    fn fault(&mut self, used: usize, line: &'static [u8], env: &Env<'_>) -> Step {
        env.tally.bump(Count::Fault as usize);
        self.own(used, Reply::Line(line))
    }

    fn line(&mut self, input: &[u8], env: &Env<'_>) -> Step {
        if !self.known && !input.is_empty() {
            self.known = true;
            let default = refer(self.used.clone(), Some(true), Some(true));
            return self.engine(0, default, Reply::Silent);
        }
        // So short a window may be looked at again with each byte that comes.
        let window = &input[..input.len().min(LINE_MAX)];
        match line_end(window) {
            Some(end) => self.command(input, end, env),
            None if window.len() < LINE_MAX => Step::More,
            None => {
                self.state = State::LongLine;
                self.fault(before_cr(window), BAD_FORMAT, env)
            }
        }
    }

    /// The request in the line that ends at `end`.
    fn command(&mut self, input: &[u8], end: usize, env: &Env<'_>) -> Step {
        let request = parse(&input[..end - CRLF.len()]);
        if let Some(count) = counter(&request) {
            env.tally.bump(count as usize);
        }
        let done = |line| Reply::Line(line);
        let (command, reply) = match request {
            Request::Put(put) => return self.announced(input, end, put, env),
            Request::Reserve(wait) => {
                count_once(&mut self.is_worker, &self.shared.workers);
                let mut take = self.reserve.clone();
                take.wait = wait.map_or(Wait::Forever, |seconds| Wait::For(seconds * 1000));
                (Command::Take(take), Reply::Job(b"RESERVED "))
            }
            Request::ReserveJob(id) => {
                let (id, lease) = (MessageId(id), LEASE);
                (Command::ReserveId { id, lease }, Reply::ReservedId)
            }
            Request::Delete(id) => {
                let (id, by) = (MessageId(id), By::OwnerOrFree);
                (Command::Delete { id, by }, done(b"DELETED\r\n"))
            }
            Request::Release(id, rank, delay_s) => {
                let how = How::Release {
                    rank: Some(rank),
                    due: when(delay_s),
                    back_to: Some(BackTo::Place),
                };
                (settle(id, how), done(b"RELEASED\r\n"))
            }
            Request::Bury(id, rank) => {
                let how = How::Bury {
                    rank: Some(rank),
                    reason: Box::default(),
                };
                (settle(id, how), done(b"BURIED\r\n"))
            }
            Request::Touch(id) => (Command::Touch(MessageId(id)), done(b"TOUCHED\r\n")),
            Request::Peek(id) => found(Peek::Id(MessageId(id))),
            Request::PeekReady => found(Peek::Ready(self.used.clone())),
            Request::PeekDelayed => found(Peek::Delayed(self.used.clone())),
            Request::PeekBuried => found(Peek::Buried(self.used.clone())),
            Request::Kick(max) => {
                let queue = self.used.clone();
                (Command::Kick { queue, max }, Reply::Kicked)
            }
            Request::KickJob(id) => (Command::KickId(MessageId(id)), done(b"KICKED\r\n")),
            Request::PauseTube(name, seconds) => {
                let pause = Command::Pause {
                    queue: Name::new(name),
                    for_ms: Some(u64::from(seconds) * 1000),
                };
                (pause, done(b"PAUSED\r\n"))
            }
            Request::StatsJob(id) => {
                let of = StatsOf::Message(MessageId(id));
                (Command::Stats(of), Reply::StatsJob)
            }
            Request::StatsTube(name) => {
                let name = Name::new(name);
                let of = StatsOf::Queue(name.clone());
                (Command::Stats(of), Reply::StatsTube(name))
            }
            Request::ListTubes => (Command::Stats(StatsOf::Queues), Reply::Tubes),
            Request::Stats => {
                let host = Ask::Host(HostAsk::StatsWithQueues);
                return self.ask(end, host, Reply::Stats);
            }
            Request::ListTubeUsed => return self.own(end, Reply::Using(self.used.clone())),
            Request::ListTubesWatched => {
                let watched = self.reserve.queues.to_vec();
                return self.own(end, Reply::Watched(watched));
            }
            Request::Use(name) => return self.use_tube(end, Name::new(name)),
            Request::Watch(name) => return self.watch(end, Name::new(name)),
            Request::Ignore(name) => return self.ignore(end, name),
            Request::Quit => {
                self.state = State::Over;
                return self.ask(end, Ask::Close, Reply::Silent);
            }
            Request::BadFormat => return self.fault(end, BAD_FORMAT, env),
            Request::Unknown => return self.fault(end, UNKNOWN_COMMAND, env),
        };
        self.engine(end, command, reply)
    }

    fn use_tube(&mut self, used: usize, name: Name) -> Step {
        if name == self.used {
            return self.own(used, Reply::Using(name));
        }
        let before = std::mem::replace(&mut self.used, name.clone());
        self.part = Some((refer(before, Some(false), None), Reply::Silent));
        let command = refer(name.clone(), Some(true), None);
        self.engine(used, command, Reply::Using(name))
    }

    fn watch(&mut self, used: usize, name: Name) -> Step {
        let watched = &mut self.reserve.queues;
        if watched.contains(&name) {
            let count = watched.len();
            return self.own(used, Reply::Watching(count));
        }
        if watched.len() >= self.shared.watched_max {
            return self.own(used, Reply::Line(OUT_OF_MEMORY));
        }
        watched.push(name.clone());
        let count = watched.len();
        let command = refer(name.clone(), None, Some(true));
        self.engine(used, command, Reply::NowWatching(count, name))
    }

    fn ignore(&mut self, used: usize, name: &[u8]) -> Step {
        let watched = &mut self.reserve.queues;
        match watched.iter().position(|other| other.as_bytes() == name) {
            Some(_) if watched.len() == 1 => self.own(used, Reply::Line(b"NOT_IGNORED\r\n")),
            Some(at) => {
                let gone = watched.swap_remove(at);
                let count = watched.len();
                let command = refer(gone, None, Some(false));
                self.engine(used, command, Reply::Watching(count))
            }
            None => {
                let count = watched.len();
                self.own(used, Reply::Watching(count))
            }
        }
    }

    /// What a put is announced with decides how its job is read.
    fn announced(&mut self, input: &[u8], end: usize, put: Announced, env: &Env<'_>) -> Step {
        count_once(&mut self.is_producer, &self.shared.producers);
        let len = u64::from(put.len);
        if len > self.shared.job_max {
            self.state = State::TooBig(len + CRLF.len() as u64);
        } else if len > STREAM_OVER {
            self.state = State::Large(put);
        } else if let Some(step) = self.job(input, end, put, env) {
            return step;
        } else {
            self.state = State::Small(put);
        }
        Step::Skip { used: end }
    }

    /// The job at offset `at`, if all of it and its CR LF are there.
    fn job(&mut self, input: &[u8], at: usize, put: Announced, env: &Env<'_>) -> Option<Step> {
        // So short a length fits `usize`.
        let end = at + put.len as usize;
        let tail = input.get(end..end + CRLF.len())?;
        Some(match tail == CRLF {
            true => self.put(end + CRLF.len(), put, Body::new(&input[at..end])),
            false => self.not_ended(end + CRLF.len(), env),
        })
    }

    fn put(&mut self, used: usize, announced: Announced, body: Body) -> Step {
        let put = Put {
            queue: self.used.clone(),
            body,
            rank: Some(announced.rank),
            due: when(announced.delay_s),
            ttr_ms: Some(u64::from(announced.ttr_s.max(1)) * 1000),
            ..Put::default()
        };
        self.engine(used, Command::Put(put), Reply::Inserted)
    }

    /// A job that does not end where it should has used up its id.
    fn not_ended(&mut self, used: usize, env: &Env<'_>) -> Step {
        env.tally.bump(Count::Fault as usize);
        self.engine(used, Command::BurnId, Reply::Line(EXPECTED_CRLF))
    }

    fn job_end(
        &mut self,
        input: &[u8],
        put: Announced,
        body: Result<LargeBody, Refusal>,
        env: &Env<'_>,
    ) -> Step {
        let Some(tail) = input.get(..CRLF.len()) else {
            self.state = State::Streamed(put, body);
            return Step::More;
        };
        match body {
            _ if tail != CRLF => self.not_ended(CRLF.len(), env),
            Ok(body) => self.put(CRLF.len(), put, Body::Large(body)),
            Err(refusal) => self.own(CRLF.len(), Reply::Line(refused(refusal))),
        }
    }

    fn too_big(&mut self, input: &[u8], left: u64, env: &Env<'_>) -> Step {
        let come = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        let left = left - come as u64;
        if left == 0 {
            return self.fault(come, JOB_TOO_BIG, env);
        }
        self.state = State::TooBig(left);
        skip(come)
    }

    fn long_line(&mut self, input: &[u8]) -> Step {
        match memmem::find(input, CRLF) {
            Some(at) => Step::Skip {
                used: at + CRLF.len(),
            },
            None => {
                self.state = State::LongLine;
                skip(before_cr(input))
            }
        }
    }
}

/// What a reserve does: a job is its connection's until its time is over.
const LEASE: LeaseAsk = LeaseAsk {
    owner: LeaseOwner::Connection,
    time: LeaseTime::TtrOrDefault,
    back_to: BackTo::Place,
    held_max: 0,
};

fn refer(queue: Name, uses: Option<bool>, watches: Option<bool>) -> Command {
    Command::Refer {
        queue,
        uses,
        watches,
    }
}

fn settle(id: u64, how: How) -> Command {
    let (id, by) = (MessageId(id), By::Owner);
    Command::Settle { id, by, how }
}

fn found(peek: Peek) -> (Command, Reply) {
    (Command::Peek(peek), Reply::Job(b"FOUND "))
}

fn when(delay_s: u32) -> When {
    match delay_s {
        0 => When::Now,
        seconds => When::In(u64::from(seconds) * 1000),
    }
}

/// Counts a connection that does something for the first time.
fn count_once(done: &mut bool, count: &AtomicU64) {
    if !*done {
        *done = true;
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// The offset behind the first CR LF.
fn line_end(window: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + memchr(b'\n', &window[from..])?;
        if at > 0 && window[at - 1] == b'\r' {
            return Some(at + 1);
        }
        from = at + 1;
    }
}

/// The length without a CR at the end, which may be half of a line's end.
fn before_cr(bytes: &[u8]) -> usize {
    bytes.len() - usize::from(bytes.last() == Some(&b'\r'))
}

fn skip(used: usize) -> Step {
    match used {
        0 => Step::More,
        used => Step::Skip { used },
    }
}

fn counter(request: &Request<'_>) -> Option<Count> {
    Some(match request {
        Request::Put(_) => Count::Put,
        Request::Peek(_) => Count::Peek,
        Request::PeekReady => Count::PeekReady,
        Request::PeekDelayed => Count::PeekDelayed,
        Request::PeekBuried => Count::PeekBuried,
        Request::Reserve(None) => Count::Reserve,
        Request::Reserve(Some(_)) => Count::ReserveWithTimeout,
        Request::Delete(_) => Count::Delete,
        Request::Release(..) => Count::Release,
        Request::Use(_) => Count::Use,
        Request::Watch(_) => Count::Watch,
        Request::Ignore(_) => Count::Ignore,
        Request::Bury(..) => Count::Bury,
        Request::Kick(_) => Count::Kick,
        Request::Touch(_) => Count::Touch,
        Request::Stats => Count::Stats,
        Request::StatsJob(_) => Count::StatsJob,
        Request::StatsTube(_) => Count::StatsTube,
        Request::ListTubes => Count::ListTubes,
        Request::ListTubeUsed => Count::ListTubeUsed,
        Request::ListTubesWatched => Count::ListTubesWatched,
        Request::PauseTube(..) => Count::PauseTube,
        // beanstalkd counts these in no key either.
        Request::ReserveJob(_)
        | Request::KickJob(_)
        | Request::Quit
        | Request::BadFormat
        | Request::Unknown => return None,
    })
}

/// How a refusal is told.
fn refused(refusal: Refusal) -> &'static [u8] {
    match refusal {
        Refusal::NotFound | Refusal::QueueNotFound => NOT_FOUND,
        Refusal::MessageTooLarge => JOB_TOO_BIG,
        Refusal::Draining => b"DRAINING\r\n",
        Refusal::QueueFull
        | Refusal::NoSpace
        | Refusal::NoMemory
        | Refusal::TooManyQueues
        | Refusal::TooManyWaiters => OUT_OF_MEMORY,
        Refusal::HeldLimit
        | Refusal::Duplicate(_)
        | Refusal::QueueDown
        | Refusal::BadName
        | Refusal::NotPermitted => INTERNAL_ERROR,
    }
}

fn write_job(word: &[u8], handed: &quintet_engine::Handed, output: &mut Output) {
    for message in handed {
        output.put(word);
        output.number(message.id.0);
        output.put(b" ");
        output.number(message.body.len());
        output.put(CRLF);
        output.body(&message.body);
        output.put(CRLF);
    }
}

fn write_count(word: &[u8], count: u64, output: &mut Output) {
    output.put(word);
    output.number(count);
    output.put(CRLF);
}

fn write_stats_tube(name: &Name, given: &Given, env: &Env<'_>, output: &mut Output) {
    let nothing = QueueStats::default();
    let queue = match given {
        Given::Engine(Outcome::Stats(reply), _) => match &**reply {
            StatsReply::Queue(queue) if stats::is_shown(queue) => Some(queue),
            _ => None,
        },
        _ => None,
    };
    match queue {
        Some(queue) => stats::tube(name, queue, env.now, output),
        None if name.as_bytes() == stats::DEFAULT => stats::tube(name, &nothing, env.now, output),
        None => output.put(NOT_FOUND),
    }
}

impl Session for BeanstalkSession {
    fn decode(&mut self, input: &[u8], env: &Env<'_>) -> Step {
        if let Some((command, reply)) = self.part.take() {
            return self.engine(0, command, reply);
        }
        match std::mem::replace(&mut self.state, State::Line) {
            State::Line => self.line(input, env),
            State::LongLine => self.long_line(input),
            State::Small(put) => match self.job(input, 0, put, env) {
                Some(step) => step,
                None => {
                    self.state = State::Small(put);
                    Step::More
                }
            },
            State::Large(put) => {
                self.state = State::Streaming(put);
                Step::Stream {
                    used: 0,
                    len: u64::from(put.len),
                    queue: self.used.clone(),
                }
            }
            State::Streaming(put) => {
                self.state = State::Streaming(put);
                Step::More
            }
            State::Streamed(put, body) => self.job_end(input, put, body, env),
            State::TooBig(left) => self.too_big(input, left, env),
            State::Over => {
                self.state = State::Over;
                skip(input.len())
            }
        }
    }

    fn encode(&mut self, given: &Given, env: &Env<'_>, output: &mut Output) -> Next {
        let Some(reply) = self.replies.pop_front() else {
            return Next::Close;
        };
        match (reply, given) {
            (Reply::Silent, _) => {}
            (Reply::StatsTube(name), given) => write_stats_tube(&name, given, env, output),
            (reply, Given::Engine(Outcome::Refused(refusal), _)) => {
                output.put(refused(*refusal));
                if let Reply::NowWatching(_, name) = reply
                    && self.reserve.queues.len() > 1
                {
                    self.reserve.queues.retain(|other| *other != name);
                }
            }
            (Reply::Line(line), _) => output.put(line),
            (Reply::Job(word), Given::Engine(Outcome::Messages(handed), _)) => {
                write_job(word, handed, output);
            }
            (Reply::ReservedId, Given::Engine(Outcome::Messages(handed), _)) => {
                count_once(&mut self.is_worker, &self.shared.workers);
                write_job(b"RESERVED ", handed, output);
            }
            (Reply::Job(_), Given::Engine(Outcome::Empty, _)) => output.put(b"TIMED_OUT\r\n"),
            (Reply::Job(_), Given::Engine(Outcome::DeadlineSoon, _)) => {
                output.put(b"DEADLINE_SOON\r\n");
            }
            (Reply::Inserted, Given::Engine(Outcome::Put { id, .. }, _)) => {
                write_count(b"INSERTED ", id.0, output);
            }
            (Reply::Kicked, Given::Engine(Outcome::Count(count), _)) => {
                write_count(b"KICKED ", *count, output);
            }
            (Reply::Watching(count) | Reply::NowWatching(count, _), _) => {
                write_count(b"WATCHING ", count as u64, output);
            }
            (Reply::Using(name), _) => {
                output.put(b"USING ");
                output.put(name.as_bytes());
                output.put(CRLF);
            }
            (Reply::Watched(names), _) => {
                stats::list(names.iter().map(Name::as_bytes), output);
            }
            (Reply::Stats, Given::Server(server)) => stats::server(server, &self.shared, output),
            (Reply::StatsJob | Reply::Tubes, Given::Engine(Outcome::Stats(reply), _)) => {
                match &**reply {
                    StatsReply::Message(message) => stats::job(message, output),
                    StatsReply::Queues(_, queues) => stats::list(stats::tubes(queues), output),
                    StatsReply::Shard(_) | StatsReply::Queue(_) => output.put(INTERNAL_ERROR),
                }
            }
            (
                Reply::Job(_)
                | Reply::ReservedId
                | Reply::Inserted
                | Reply::Kicked
                | Reply::Stats
                | Reply::StatsJob
                | Reply::Tubes,
                _,
            ) => output.put(INTERNAL_ERROR),
        }
        Next::Done
    }

    fn streamed(&mut self, body: Result<LargeBody, Refusal>) {
        self.state = match std::mem::replace(&mut self.state, State::Line) {
            State::Streaming(put) => State::Streamed(put, body),
            other => other,
        };
    }

    fn half_closed(&mut self) -> HalfClose {
        HalfClose::StopWaiting
    }
}

impl Drop for BeanstalkSession {
    fn drop(&mut self) {
        for (counted, count) in [
            (self.is_producer, &self.shared.producers),
            (self.is_worker, &self.shared.workers),
        ] {
            count.fetch_sub(u64::from(counted), Ordering::Relaxed);
        }
    }
}
