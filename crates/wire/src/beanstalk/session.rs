//! One connection: lines and jobs in, replies out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memchr::{memchr, memmem};
use quintet_engine::{
    Body, Command, LargeBody, ListState, MESSAGES_PER_STEP, Name, Outcome, Put, Refusal, StatsOf,
    StatsReply, Take,
};

use super::reply::{self, BeanstalkReply, CRLF};
use super::request::{Announced, LEASE, LINE_MAX, Request, parse};
use super::{Count, Shared, stats};
use crate::bodies::{Coming, Found, drop_some, skip};
use crate::foreign::{self, Foreign};
use crate::output::Output;
use crate::session::{Ask, Env, Given, HalfClose, HostAsk, Next, Said, Session, Step};

/// A reserve is answered with DEADLINE_SOON when a job of the client has less
/// time left than this.
const MARGIN_MS: u64 = 1000;

/// Protocol state of one connection.
pub(super) struct BeanstalkSession {
    shared: Arc<Shared>,
    state: BeanstalkState,
    used: Name,
    /// What a reserve asks for; its queues are the watched tubes.
    reserve: Take,
    /// The engine knows which tubes this connection refers to.
    known: bool,
    is_producer: bool,
    is_worker: bool,
    replies: VecDeque<BeanstalkReply>,
}

/// What the input's front is.
enum BeanstalkState {
    /// A command line.
    Line,
    /// The rest of a line that was too long.
    LongLine,
    Job(Coming<Announced>),
    /// So many bytes of a job that is too long.
    TooBig(u64),
    /// Nothing more: the connection is closing.
    Over,
}

impl BeanstalkSession {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let default = Name::new(stats::DEFAULT);
        Self {
            shared,
            state: BeanstalkState::Line,
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
            replies: VecDeque::new(),
        }
    }

    fn ask(&mut self, used: usize, ask: Ask, reply: BeanstalkReply) -> Step {
        self.replies.push_back(reply);
        Step::Ask { used, ask }
    }

    fn own(&mut self, used: usize, reply: BeanstalkReply) -> Step {
        self.ask(used, Ask::Own, reply)
    }

    fn fault(&mut self, used: usize, line: &'static [u8], env: &Env<'_>) -> Step {
        env.tally.bump(Count::Fault as usize);
        self.own(used, BeanstalkReply::Line(line))
    }

    fn line(&mut self, input: &[u8], env: &Env<'_>) -> Step {
        if !self.known && !input.is_empty() {
            self.known = true;
            if input[0] == foreign::TLS {
                env.tally.bump(Count::Fault as usize);
                self.state = BeanstalkState::Over;
                let ask = Ask::Host(HostAsk::Foreign(Foreign::Tls));
                return self.ask(0, ask, BeanstalkReply::Tls);
            }
            let default = refer(self.used.clone(), Some(true), Some(true));
            return self.ask(0, Ask::Engine(default), BeanstalkReply::Silent);
        }
        // So short a window may be looked at again with each byte that comes.
        let window = &input[..input.len().min(LINE_MAX)];
        match line_end(window) {
            Some(end) => self.command(input, end, env),
            None if window.len() < LINE_MAX => Step::More,
            None => {
                self.state = BeanstalkState::LongLine;
                self.fault(before_cr(window), reply::BAD_FORMAT, env)
            }
        }
    }

    /// The request in the line that ends at `end`.
    fn command(&mut self, input: &[u8], end: usize, env: &Env<'_>) -> Step {
        let (count, request) = parse(&input[..end - CRLF.len()], &self.used);
        env.tally.bump(count as usize);
        let watched = &self.reserve.queues;
        match request {
            Request::Engine(command, reply) => self.ask(end, Ask::Engine(command), reply),
            Request::Put(put) => self.announced(input, end, put, env),
            Request::Reserve(wait) => {
                count_once(&mut self.is_worker, &self.shared.workers);
                let mut take = self.reserve.clone();
                take.wait = wait;
                let take = Command::Take(take);
                self.ask(end, Ask::Engine(take), BeanstalkReply::Job(b"RESERVED "))
            }
            Request::Use(name) if name == self.used.as_bytes() => {
                self.own(end, BeanstalkReply::Using(Name::new(name)))
            }
            Request::Use(name) => {
                let name = Name::new(name);
                let refer = refer(name.clone(), Some(true), None);
                self.ask(end, Ask::EngineAlone(refer), BeanstalkReply::NowUsing(name))
            }
            Request::Watch(name) => {
                let name = Name::new(name);
                if watched.contains(&name) {
                    self.own(end, BeanstalkReply::Watching(watched.len()))
                } else if watched.len() >= self.shared.watched_max {
                    self.own(end, BeanstalkReply::Line(reply::OUT_OF_MEMORY))
                } else {
                    let refer = refer(name.clone(), None, Some(true));
                    self.ask(
                        end,
                        Ask::EngineAlone(refer),
                        BeanstalkReply::NowWatching(name),
                    )
                }
            }
            Request::Ignore(name) => {
                let at = watched.iter().position(|other| other.as_bytes() == name);
                match at {
                    None => self.own(end, BeanstalkReply::Watching(watched.len())),
                    Some(_) if watched.len() == 1 => {
                        self.own(end, BeanstalkReply::Line(b"NOT_IGNORED\r\n"))
                    }
                    Some(at) => {
                        let refer = refer(self.reserve.queues.swap_remove(at), None, Some(false));
                        let reply = BeanstalkReply::Watching(self.reserve.queues.len());
                        self.ask(end, Ask::Engine(refer), reply)
                    }
                }
            }
            Request::Kick(max) => {
                let buried = ListState::Buried;
                let kick = Ask::EngineAlone(self.kick(buried, max));
                self.ask(end, kick, BeanstalkReply::Kicked(buried, 0, max))
            }
            Request::Stats => self.ask(end, Ask::Host(HostAsk::Stats), BeanstalkReply::Stats),
            Request::ListTubes => {
                let tubes = Ask::EngineAlone(queues((0, 0)));
                self.ask(end, tubes, BeanstalkReply::Tubes(stats::Tubes::new()))
            }
            Request::ListTubeUsed => self.own(end, BeanstalkReply::Using(self.used.clone())),
            Request::ListTubesWatched => self.own(end, BeanstalkReply::Watched(watched.to_vec())),
            Request::Quit => {
                self.state = BeanstalkState::Over;
                self.ask(end, Ask::Close, BeanstalkReply::Silent)
            }
            Request::Fault(fault @ reply::UNKNOWN_COMMAND) => {
                let line = input[..end - CRLF.len()].into();
                self.ask(end, Ask::Unknown(line), BeanstalkReply::Line(fault))
            }
            Request::Fault(line) => self.own(end, BeanstalkReply::Line(line)),
        }
    }

    /// What a put is announced with decides how its job is read.
    fn announced(&mut self, input: &[u8], end: usize, put: Announced, env: &Env<'_>) -> Step {
        count_once(&mut self.is_producer, &self.shared.producers);
        let len = u64::from(put.len);
        if len > self.shared.job_max {
            self.state = BeanstalkState::TooBig(len + CRLF.len() as u64);
            return Step::Skip { used: end };
        }
        self.job(Coming::new(put, end, len), input, env)
    }

    fn job(&mut self, coming: Coming<Announced>, input: &[u8], env: &Env<'_>) -> Step {
        match coming.read(input, CRLF, |_| self.used.clone()) {
            Found::Part(coming, step) => {
                self.state = BeanstalkState::Job(coming);
                step
            }
            Found::Whole(found) if !found.ended => self.not_ended(found.used, env),
            Found::Whole(found) => match found.body {
                Ok(body) => self.put(found.used, found.head, body),
                Err(refusal) => self.own(found.used, BeanstalkReply::Line(reply::refused(refusal))),
            },
        }
    }

    fn put(&mut self, used: usize, announced: Announced, body: Body) -> Step {
        let put = Put {
            rank: Some(announced.rank),
            due: announced.due,
            ttr_ms: Some(announced.ttr_ms),
            ..Put::new(self.used.clone(), body)
        };
        self.ask(
            used,
            Ask::Engine(Command::Put(put)),
            BeanstalkReply::Inserted,
        )
    }

    /// A job that does not end where it should has used up its id.
    fn not_ended(&mut self, used: usize, env: &Env<'_>) -> Step {
        env.tally.bump(Count::Fault as usize);
        let reply = BeanstalkReply::Line(reply::EXPECTED_CRLF);
        self.ask(used, Ask::Engine(Command::BurnId), reply)
    }

    fn kick(&self, state: ListState, max: u64) -> Command {
        Command::Kick {
            queue: self.used.clone(),
            state,
            max,
        }
    }

    fn too_big(&mut self, input: &[u8], mut left: u64, env: &Env<'_>) -> Step {
        let come = drop_some(&mut left, input);
        if left == 0 {
            return self.fault(come, reply::JOB_TOO_BIG, env);
        }
        self.state = BeanstalkState::TooBig(left);
        skip(come)
    }

    fn long_line(&mut self, input: &[u8]) -> Step {
        match memmem::find(input, CRLF) {
            Some(at) => skip(at + CRLF.len()),
            None => {
                self.state = BeanstalkState::LongLine;
                skip(before_cr(input))
            }
        }
    }
}

fn refer(queue: Name, uses: Option<bool>, watches: Option<bool>) -> Command {
    Command::Refer {
        queue,
        uses,
        watches,
    }
}

/// Asks for a page of queues.
fn queues(from: (u8, u32)) -> Command {
    Command::Stats(StatsOf::Queues { from })
}

/// What a kick goes on with, of which the last step kicked `now`: delayed ones
/// only if no buried one was kicked (`protocols/beanstalkd.md`, section 3).
fn kicks_on(state: ListState, now: u64, kicked: u64, left: u64) -> Option<ListState> {
    if left > 0 && now >= MESSAGES_PER_STEP {
        return Some(state);
    }
    let none = left > 0 && kicked == 0 && state == ListState::Buried;
    none.then_some(ListState::Delayed)
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

impl Session for BeanstalkSession {
    fn decode(&mut self, input: &[u8], env: &Env<'_>) -> Step {
        match std::mem::replace(&mut self.state, BeanstalkState::Line) {
            BeanstalkState::Line => self.line(input, env),
            BeanstalkState::LongLine => self.long_line(input),
            BeanstalkState::Job(coming) => self.job(coming, input, env),
            BeanstalkState::TooBig(left) => self.too_big(input, left, env),
            BeanstalkState::Over => {
                self.state = BeanstalkState::Over;
                skip(input.len())
            }
        }
    }

    fn encode(&mut self, given: &Given, _: &Env<'_>, output: &mut Output) -> Next {
        let done = matches!(
            given,
            Given::Engine(Outcome::Done | Outcome::Messages(_), _)
        );
        match (self.replies.pop_front(), given) {
            (Some(BeanstalkReply::NowUsing(name)), given) if done => {
                BeanstalkReply::Using(name.clone()).write(given, output);
                let before = std::mem::replace(&mut self.used, name);
                self.replies.push_front(BeanstalkReply::Silent);
                return Next::Again(Box::new(refer(before, Some(false), None)));
            }
            (Some(BeanstalkReply::NowWatching(name)), given) if done => {
                self.reserve.queues.push(name);
                BeanstalkReply::Watching(self.reserve.queues.len()).write(given, output);
            }
            (Some(BeanstalkReply::Tls), _) => {
                output.put(Foreign::Tls.answer());
                return Next::Close;
            }
            (Some(BeanstalkReply::Stats), Given::Server(server)) => {
                self.replies
                    .push_front(BeanstalkReply::Counted(server.clone(), 1));
                return Next::Again(Box::new(queues((0, 0))));
            }
            (
                Some(BeanstalkReply::Counted(server, tubes)),
                Given::Engine(Outcome::Stats(page), _),
            ) => {
                let (count, next) = match &**page {
                    StatsReply::Queues(page) => (stats::tubes(&page.queues).count(), page.next),
                    StatsReply::Shard(_) | StatsReply::Queue(_) | StatsReply::Message(_) => {
                        (0, None)
                    }
                };
                let tubes = tubes + count;
                if let Some(from) = next {
                    self.replies
                        .push_front(BeanstalkReply::Counted(server, tubes));
                    return Next::Again(Box::new(queues(from)));
                }
                stats::server(&server, tubes, &self.shared, output);
            }
            (Some(BeanstalkReply::Tubes(mut tubes)), Given::Engine(Outcome::Stats(page), _)) => {
                if let StatsReply::Queues(page) = &**page {
                    stats::tubes(&page.queues).for_each(|name| tubes.add(name));
                    if let Some(from) = page.next {
                        self.replies.push_front(BeanstalkReply::Tubes(tubes));
                        return Next::Again(Box::new(queues(from)));
                    }
                }
                tubes.send(output);
            }
            (
                Some(BeanstalkReply::Kicked(state, kicked, left)),
                Given::Engine(Outcome::Count(now), _),
            ) => {
                let (kicked, left) = (kicked + now, left.saturating_sub(*now));
                if let Some(state) = kicks_on(state, *now, kicked, left) {
                    let reply = BeanstalkReply::Kicked(state, kicked, left);
                    self.replies.push_front(reply);
                    return Next::Again(Box::new(self.kick(state, left)));
                }
                BeanstalkReply::Kicked(state, kicked, left).write(given, output);
            }
            (Some(reply), given) => {
                if done && matches!(reply, BeanstalkReply::ReservedId) {
                    count_once(&mut self.is_worker, &self.shared.workers);
                }
                reply.write(given, output);
            }
            (None, _) => return Next::Close,
        }
        Next::Done
    }

    fn say(&mut self, said: Said<'_>, output: &mut Output) -> Next {
        match (self.replies.pop_front(), said) {
            (Some(BeanstalkReply::Silent), _) => {}
            (_, Said::Line(text)) => {
                output.put(text.as_bytes());
                output.put(CRLF);
            }
            (_, Said::Message(bytes)) => {
                output.put(b"OK ");
                output.number(bytes.len() as u64);
                output.put(CRLF);
                output.put(bytes);
                output.put(CRLF);
            }
            // Errors have no text here.
            (_, Said::Refused(_)) => output.put(reply::INTERNAL_ERROR),
        }
        Next::Done
    }

    fn streamed(&mut self, body: Result<LargeBody, Refusal>) {
        if let BeanstalkState::Job(coming) = &mut self.state {
            coming.streamed(body);
        }
    }

    fn half_closed(&mut self) -> HalfClose {
        HalfClose::StopWaiting
    }

    fn held_bytes(&self) -> usize {
        // One that is in its middle is the oldest.
        match self.replies.front() {
            Some(BeanstalkReply::Tubes(tubes)) => tubes.capacity(),
            _ => 0,
        }
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
