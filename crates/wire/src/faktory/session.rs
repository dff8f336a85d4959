//! One connection: lines in, replies out.

use std::sync::Arc;

use quintet_types::{
    BackTo, Body, By, Command, CommandError, How, LargeBody, LeaseOwner, LeaseRequest, LeaseTime,
    Ms, Name, NamedAction, Operation, Outcome, PRIORITY_DEFAULT, Pattern, Pick, Put, PutMore, Take,
    Wait, When,
};

use super::ent::{self, BatchReply, Tracking, Wishes};
use super::failure::{self, FAILURE};
use super::hello::{self, Challenge};
use super::info::Info;
use super::job::{self, Job, RETRY};
use super::mutate::Mutating;
use super::queues::Each;
use super::reply::{self, Bulk, Cancels, FaktoryReply};
use super::request::{Beat, Request, parse};
use super::{Count, Shared};
use crate::bodies::skip;
use crate::foreign::First;
use crate::lines::{Line, Lines};
use crate::login::LoginRefused;
use crate::output::Output;
use crate::owed::Owed;
use crate::session::ClientRequest::{Engine, EngineAlone, Host, Own, Unknown};
use crate::session::{
    ClientRequest, Env, HalfClose, HookReply, HostRequest, Next, ServerResponse, Session, Step,
    page,
};
use crate::workers::{WID_MAX, Worker, WorkerRequest, WorkerState};

/// Longest first line, its end included.
const HELLO_MAX: usize = 64 << 10;
/// How long a worker has a job that does not say.
const RESERVE_MS: u64 = 1_800_000;

/// The lease of FETCH: anybody who can name a job may settle it until its time is over; then it
/// goes behind the jobs that have come since.
const LEASE: LeaseRequest = LeaseRequest {
    owner: LeaseOwner::Time,
    time: LeaseTime::TtrElse(RESERVE_MS),
    back_to: BackTo::Tail,
    held_max: 0,
};

/// Protocol state of one connection.
pub(super) struct FaktorySession {
    shared: Arc<Shared>,
    challenge: Option<Challenge>,
    state: FaktoryState,
    first: First,
    lines: Lines,
    /// The client knows the password.
    proved: bool,
    /// The worker whose connection it is.
    worker: Option<(String, Arc<Worker>)>,
    /// The name a worker has just said.
    joining: String,
    /// It wants to hear which of its jobs are cancelled.
    hears_cancels: bool,
    /// Bytes of memory that its worker takes in the table.
    hello_bytes: usize,
    owed: Owed<FaktoryReply>,
}

/// State of the decoder at the front of the input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FaktoryState {
    /// Nothing: the server speaks first.
    Begin,
    /// The first line.
    Hello,
    Line,
    /// The rest of a line that was too long.
    LongLine,
    /// Nothing more: the connection is closing.
    Over,
}

impl FaktorySession {
    pub(super) fn new(shared: Arc<Shared>, challenge: Option<Challenge>) -> Self {
        Self {
            shared,
            challenge,
            state: FaktoryState::Begin,
            first: First::new(),
            lines: Lines::default(),
            proved: false,
            worker: None,
            joining: String::new(),
            hears_cancels: false,
            hello_bytes: 0,
            owed: Owed::new(),
        }
    }

    fn own(&mut self, used: usize, reply: FaktoryReply) -> Step {
        self.owed.own(used, reply)
    }

    fn close(&mut self, used: usize, reply: FaktoryReply) -> Step {
        self.state = FaktoryState::Over;
        self.owed.close(used, reply)
    }

    fn hello(&mut self, input: &[u8], env: &Env<'_>) -> Step {
        if self.first.is_tls(input) {
            env.tally.bump(Count::Fault as usize);
            self.state = FaktoryState::Over;
            return self.owed.tls();
        }
        // What begins as no handshake is not waited for.
        const WORD: &[u8] = b"HELLO ";
        let head = &input[..input.len().min(WORD.len())];
        let line = match self.lines.first(input, HELLO_MAX) {
            _ if !WORD.starts_with(head) => return self.no_hello(input.len(), env),
            Line::Part => return Step::More,
            Line::TooLong => return self.no_hello(input.len(), env),
            Line::Whole(line) => line,
        };
        let used = line.len();
        let Some(hello) = hello::read(without_end(line)) else {
            return self.no_hello(used, env);
        };
        if let Some(challenge) = self.challenge
            && !self.proved
        {
            // The line is read again when the server has said that it may be.
            let met = challenge.is_met(&self.shared.password, hello.pwdhash.as_deref());
            return self
                .owed
                .ask(0, ClientRequest::Proof(met), FaktoryReply::Proved);
        }
        env.tally.bump(Count::Hello as usize);
        if hello.joins.wid.len() > WID_MAX {
            let text = format!("a wid has {WID_MAX} bytes at most");
            return self.close(used, FaktoryReply::Fault(text.into()));
        }
        self.state = FaktoryState::Line;
        if hello.joins.wid.is_empty() {
            return self.own(used, FaktoryReply::Done);
        }
        self.joining = hello.joins.wid.to_string();
        self.hears_cancels = hello.cancelled;
        self.hello_bytes = hello.joins.bytes();
        let ask = ClientRequest::Worker(WorkerRequest::Join(Box::new(hello.joins)));
        self.owed.ask(used, ask, FaktoryReply::Joined)
    }

    fn no_hello(&mut self, used: usize, env: &Env<'_>) -> Step {
        env.tally.bump(Count::Fault as usize);
        self.close(used, FaktoryReply::Fault("expected HELLO".into()))
    }

    fn line(&mut self, input: &[u8], env: &Env<'_>) -> Step {
        match self.lines.first(input, self.shared.line_max) {
            Line::Part => Step::More,
            Line::TooLong => {
                env.tally.bump(Count::Fault as usize);
                self.state = FaktoryState::LongLine;
                let text = format!("line too long, max is {} bytes", self.shared.line_max);
                self.own(self.shared.line_max, FaktoryReply::Fault(text.into()))
            }
            Line::Whole(line) => {
                if let Some((_, worker)) = &self.worker {
                    worker.is_seen(env.now);
                }
                self.command(without_end(line), line.len(), env)
            }
        }
    }

    fn long_line(&mut self, input: &[u8]) -> Step {
        match memchr::memchr(b'\n', input) {
            Some(at) => {
                self.state = FaktoryState::Line;
                skip(at + 1)
            }
            None => skip(input.len()),
        }
    }

    /// The request in a line, to which `used` bytes belong.
    fn command(&mut self, line: &[u8], used: usize, env: &Env<'_>) -> Step {
        let (count, request) = parse(line, self.shared.ent);
        env.tally.bump(count as usize);
        let (ask, reply) = match request {
            Request::Push(job) => match self.put(*job, env.now) {
                Ok(put) => (Engine(Command::Put(put)), FaktoryReply::Done),
                Err(why) => (Own, FaktoryReply::Fault(why.into())),
            },
            Request::PushBulk(jobs) => self.push_bulk(jobs, env.now),
            Request::Fetch(queues) => (Engine(self.fetch(queues)), FaktoryReply::Job),
            Request::Ack(jid) => {
                let ack = ent::of_job(&jid, NamedAction::Settle(How::Finish));
                match job::of_foreign_jid(&jid) {
                    Some(id) => {
                        let reply = FaktoryReply::Ack(jid.into(), id);
                        (EngineAlone(ack), reply)
                    }
                    None if jid.is_empty() => (Own, FaktoryReply::Done),
                    None => (Engine(ack), FaktoryReply::DoneOrGone(jid.into())),
                }
            }
            Request::Fail(jid, report) => {
                let note = report.note(env.now).into_bytes().into();
                let how = How::Fail {
                    error: report.text().into_bytes().into(),
                    note: vec![(FAILURE.into(), Some(note))],
                };
                let fail = ent::of_job(&jid, NamedAction::Settle(how.clone()));
                match job::of_foreign_jid(&jid) {
                    Some(id) => {
                        let reply = FaktoryReply::FailOrId(jid.into(), id, how);
                        (EngineAlone(fail), reply)
                    }
                    None => (Engine(fail), FaktoryReply::Fail(jid.into())),
                }
            }
            Request::Beat(beat) => self.beat(beat, env.now),
            Request::Info => (Host(HostRequest::Stats), FaktoryReply::InfoFirst),
            Request::Flush if !self.shared.flush => {
                (Own, FaktoryReply::Fault("FLUSH is disabled".into()))
            }
            Request::Flush => (EngineAlone(drop_all((0, 0))), FaktoryReply::Flush),
            Request::End => return self.close(used, FaktoryReply::Silent),
            Request::Queue(sub, names) => {
                let (each, first) = Each::begin(sub, names);
                let ask = first.map_or(Own, EngineAlone);
                (ask, FaktoryReply::Each(Box::new(each)))
            }
            Request::Mutate(mutate) => {
                let what = mutate.shown().into_boxed_str();
                let reply = FaktoryReply::Mutate(Box::new(Mutating::new(mutate)));
                (Host(HostRequest::Noted(Operation::Mutate, what)), reply)
            }
            Request::Batch(batches) => {
                let (command, batch_reply) = batches.ask(env.now, self.shared.dead_ttl_ms);
                (Engine(command), FaktoryReply::Batch(batch_reply))
            }
            Request::Track(track) => track_ask(track),
            Request::Fault(text) => (Own, FaktoryReply::Fault(text)),
            Request::Unknown => {
                let verb = line.split(|&byte| byte == b' ').next().unwrap_or_default();
                let verb = String::from_utf8_lossy(verb);
                let text = format!("unknown command {verb}");
                (Unknown(line.into()), FaktoryReply::Fault(text.into()))
            }
        };
        self.owed.ask(used, ask, reply)
    }

    /// The put of a job.
    ///
    /// # Errors
    /// The text after `-ERR `.
    fn put(&self, job: Job, now: Ms) -> Result<Put, String> {
        let body = job.body(now);
        let wishes = match self.shared.ent {
            true => ent::wishes(&job, now)?,
            false => Wishes::default(),
        };
        let mut more = PutMore {
            batch: wishes.batch,
            tracked: wishes.tracked,
            dedupe: wishes.dedupe,
            name: Some(job.jid.as_bytes().into()),
            retry: Some(failure::retry(
                job.retry.unwrap_or(RETRY),
                job.failed,
                self.shared.dead_ttl_ms,
            )),
            ..PutMore::default()
        };
        if let Some(failure) = &job.failure {
            more.attrs = vec![(FAILURE.into(), failure.as_bytes().into())];
        }
        let priority = job
            .priority
            .filter(|priority| self.shared.priority && (1..=9).contains(priority));
        Ok(Put {
            expires: wishes.expires,
            priority: priority.and_then(|priority| {
                u32::try_from(i64::from(PRIORITY_DEFAULT) + 5 - priority).ok()
            }),
            due: job
                .at
                .as_ref()
                .map_or(When::Default, |(_, at)| When::At(*at)),
            ttr_ms: job.ttr_ms(),
            more: Some(Box::new(more)),
            ..Put::new(Name::from(&*job.queue), Body::new(body.as_bytes()))
        })
    }

    fn push_bulk(&self, jobs: Box<str>, now: Ms) -> (ClientRequest, FaktoryReply) {
        let mut bulk = Bulk::new(jobs, now);
        let ask = bulk
            .next(|job, now| self.put(job, now))
            .map_or(Own, EngineAlone);
        (ask, FaktoryReply::Bulk(Box::new(bulk)))
    }

    fn fetch(&self, queues: Vec<Name>) -> Command {
        let state = self.worker.as_ref().map(|(_, worker)| worker.state());
        let takes = state.unwrap_or_default() == WorkerState::Running;
        Command::Take(Take {
            // One that is quiet waits for nothing.
            queues: if takes {
                queues.into()
            } else {
                Vec::new().into()
            },
            pick: Pick::InOrder,
            lease: Some(LEASE),
            wait: match self.shared.fetch_wait_ms {
                0 => Wait::No,
                ms => Wait::For(ms),
            },
            messages_max: 1,
            ..Take::default()
        })
    }

    fn beat(&self, beat: Beat, now: Ms) -> (ClientRequest, FaktoryReply) {
        if let Some((wid, worker)) = &self.worker
            && *wid == beat.wid
            && !worker.is_gone(now)
        {
            worker.beats(now, beat.rss_kb, beat.state);
            if !self.hears_cancels {
                return (Own, FaktoryReply::State(worker.state()));
            }
            let (found, mut left) = (worker.jobs(true), worker.jobs(false));
            left.reverse();
            let requested = left.pop();
            let ask = requested.as_deref().map(is_cancelled);
            let cancels = Cancels {
                requested: requested.unwrap_or_default(),
                left,
                found,
            };
            let ask = ask.map_or(Own, EngineAlone);
            return (ask, FaktoryReply::Cancels(Box::new(cancels)));
        }
        let ask = ClientRequest::Worker(WorkerRequest::Beat {
            wid: (&*beat.wid).into(),
            rss_kb: beat.rss_kb,
            state: beat.state,
        });
        (ask, FaktoryReply::Beat(beat.wid))
    }

    /// The worker, if it wants to hear of cancels.
    fn hearing(&self) -> Option<&Worker> {
        let worker = self.worker.as_ref().filter(|_| self.hears_cancels);
        worker.map(|(_, worker)| &**worker)
    }

    /// The worker has this job no longer, unless its ACK or FAIL was refused.
    fn job_ends(&self, jid: &str, settled: &Outcome) {
        if !fails(settled)
            && let Some(worker) = self.hearing()
        {
            worker.ends(jid);
        }
    }

    /// Goes on with the jobs of a worker.
    fn next_cancel(
        &mut self,
        mut cancels: Box<Cancels>,
        of: &Outcome,
        output: &mut Output,
    ) -> Next {
        let Some((_, worker)) = &self.worker else {
            return Next::Close;
        };
        let requested = std::mem::take(&mut cancels.requested);
        if *of == Outcome::Cancelled {
            worker.hears(&requested);
            cancels.found.push(requested);
        } else if matches!(of, Outcome::Refused(_)) {
            // The worker has it no longer.
            worker.ends(&requested);
        }
        match cancels.left.pop() {
            Some(next) => {
                let ask = is_cancelled(&next);
                cancels.requested = next;
                self.owed.again(FaktoryReply::Cancels(cancels), ask)
            }
            None => {
                reply::cancelled(worker.state(), &cancels.found, output);
                Next::Done
            }
        }
    }

    /// Writes a reply, or asks for more of what it is made of.
    fn write(
        &mut self,
        owed: FaktoryReply,
        response: &ServerResponse,
        now: Ms,
        output: &mut Output,
    ) -> Next {
        let outcome = response.outcome_or_done();
        let missing = matches!(outcome, Outcome::Refused(CommandError::NotFound));
        match owed {
            FaktoryReply::Silent => {}
            FaktoryReply::Greeting(text) => output.line(text.as_bytes()),
            FaktoryReply::Proved => match response.login() {
                Some(Ok(())) => self.proved = true,
                Some(Err(throttled @ LoginRefused::Throttled)) => {
                    reply::error(throttled.text(), output);
                    return Next::Close;
                }
                Some(Err(_)) | None => {
                    reply::error("Invalid password", output);
                    return Next::Close;
                }
            },
            FaktoryReply::Joined => {
                let ServerResponse::Worker(Some(worker)) = response else {
                    reply::error("too many workers", output);
                    return Next::Close;
                };
                worker.connects();
                let wid = std::mem::take(&mut self.joining);
                self.worker = Some((wid, Arc::clone(worker)));
                output.put(reply::OK);
            }
            FaktoryReply::Fault(text) => reply::error(&text, output),
            FaktoryReply::State(state) => reply::state(state, output),
            FaktoryReply::Beat(wid) => {
                if let ServerResponse::Worker(Some(worker)) = response {
                    reply::state(worker.state(), output);
                } else {
                    reply::error(&format!("unknown worker {wid}"), output);
                }
            }
            FaktoryReply::Job => {
                if let (Some(worker), Outcome::Messages(handed)) = (self.hearing(), outcome) {
                    let names = handed.iter().filter_map(|message| message.name());
                    names.for_each(|jid| worker.begins(jid));
                }
                reply::fetched(response, &self.shared.foreign_jobtype, now, output);
            }
            FaktoryReply::Cancels(cancels) => return self.next_cancel(cancels, outcome, output),
            FaktoryReply::Ack(jid, id) if missing => {
                let (by, how) = (By::Bearer, How::Finish);
                let by_id = Command::Settle { id, by, how };
                return self.owed.again(FaktoryReply::DoneOrGone(jid), by_id);
            }
            FaktoryReply::DoneOrGone(jid) | FaktoryReply::Ack(jid, _) => {
                self.job_ends(&jid, outcome);
                if response.refused().is_some() && !fails(outcome) {
                    output.put(reply::OK);
                } else {
                    reply::done(outcome, output);
                }
            }
            FaktoryReply::FailOrId(jid, id, how) if missing => {
                let by = By::Bearer;
                let by_id = Command::Settle { id, by, how };
                return self.owed.again(FaktoryReply::Fail(jid), by_id);
            }
            FaktoryReply::Fail(jid) | FaktoryReply::FailOrId(jid, ..) => {
                self.job_ends(&jid, outcome);
                if missing {
                    reply::error(&format!("Job not found {jid}"), output);
                } else {
                    reply::done(outcome, output);
                }
            }
            FaktoryReply::Bulk(mut bulk) => {
                if let Some(puts) = bulk.go_on(outcome, |job, now| self.put(job, now)) {
                    return self.owed.again(FaktoryReply::Bulk(bulk), puts);
                }
                reply::bulk(&bulk.text(), output);
            }
            FaktoryReply::Batch(batch_reply) => match (batch_reply, outcome) {
                (BatchReply::Bid, Outcome::Batch(batch)) => {
                    reply::bulk(&batch.id.to_string(), output)
                }
                (BatchReply::Status, Outcome::Batch(batch)) => {
                    reply::bulk(&ent::status(batch), output)
                }
                (BatchReply::Bid | BatchReply::Status | BatchReply::Ok, outcome) => {
                    reply::done(outcome, output);
                }
            },
            FaktoryReply::Track(jid, true) if missing => {
                let peek = ent::of_job(&jid, NamedAction::Peek);
                return self.owed.again(FaktoryReply::Track(jid, false), peek);
            }
            FaktoryReply::Track(jid, _)
                if missing || matches!(outcome, Outcome::Tracked(..) | Outcome::Messages(_)) =>
            {
                reply::bulk(&ent::tracked(&jid, outcome), output);
            }
            FaktoryReply::TrackThen(next) if matches!(outcome, Outcome::Done) => {
                return self.owed.again(FaktoryReply::Done, *next);
            }
            FaktoryReply::Done | FaktoryReply::Track(..) | FaktoryReply::TrackThen(_) => {
                reply::done(outcome, output);
            }
            FaktoryReply::InfoFirst => {
                // Who may not see the server's numbers sees those of its queues.
                let mut server = Box::default();
                if let ServerResponse::Server(response) = response {
                    server = response.clone();
                }
                let info = Box::new(Info::new(server));
                return self.owed.again(FaktoryReply::Info(info), page((0, 0)));
            }
            FaktoryReply::Info(mut info) => match info.go_on(outcome) {
                Some(next) => return self.owed.again(FaktoryReply::Info(info), next),
                None => reply::bulk(&info.text(&self.shared, now), output),
            },
            FaktoryReply::Flush => {
                if let Outcome::Dropped(dropped) = outcome
                    && let Some(from) = dropped.next
                {
                    return self.owed.again(FaktoryReply::Flush, drop_all(from));
                }
                reply::done(outcome, output);
            }
            FaktoryReply::Each(mut each) => {
                if fails(outcome) {
                    reply::done(outcome, output);
                } else if let Some(next) = each.go_on(outcome) {
                    return self.owed.again(FaktoryReply::Each(each), next);
                } else {
                    match each.answer() {
                        Some(text) => reply::bulk(&text, output),
                        None => output.put(reply::OK),
                    }
                }
            }
            FaktoryReply::Mutate(mutating) if matches!(response, ServerResponse::Host(_)) => {
                return self
                    .owed
                    .again(FaktoryReply::Mutate(mutating), page((0, 0)));
            }
            FaktoryReply::Mutate(mut mutating) => {
                if fails(outcome) {
                    reply::done(outcome, output);
                } else if let Some(next) =
                    mutating.go_on(outcome, &self.shared.foreign_jobtype, now)
                {
                    return self.owed.again(FaktoryReply::Mutate(mutating), next);
                } else {
                    output.put(reply::OK);
                }
                let (what, jobs) = mutating.done();
                let error = response.refused().filter(|_| fails(outcome));
                let result = error.map_or("done", CommandError::code);
                return Next::Noted(Operation::Mutate, what.into(), result, jobs);
            }
        }
        Next::Done
    }
}

/// True for an error that is sent. A queue or job that is gone by now is none.
fn fails(outcome: &Outcome) -> bool {
    let gone = CommandError::QueueNotFound;
    matches!(outcome, Outcome::Refused(why) if ![gone, CommandError::NotFound].contains(why))
}

/// The request of a TRACK, and its pending reply.
fn track_ask(track: Tracking) -> (ClientRequest, FaktoryReply) {
    match track {
        Tracking::Get(jid) => {
            let ask = ent::of_job(&jid, NamedAction::Track);
            (EngineAlone(ask), FaktoryReply::Track(jid.into(), true))
        }
        Tracking::Set {
            jid,
            percent,
            text,
            until,
        } => {
            let text = text.map(|text| text.into_bytes().into());
            let says = ent::of_job(&jid, NamedAction::Progress(percent, text));
            let reply = match until {
                None => FaktoryReply::Done,
                Some(until) => {
                    let extend = ent::of_job(&jid, NamedAction::Until(until));
                    FaktoryReply::TrackThen(Box::new(extend))
                }
            };
            (EngineAlone(says), reply)
        }
    }
}

/// A line without its LF, and without the CR before it.
fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Asks whether a job that a worker has is cancelled: it reports nothing.
fn is_cancelled(jid: &str) -> Command {
    ent::of_job(jid, NamedAction::Progress(None, None))
}

fn drop_all(from: (u8, u32)) -> Command {
    Command::DropQueues {
        pattern: Pattern::new("*"),
        messages: true,
        dry_run: false,
        from,
    }
}

impl Session for FaktorySession {
    fn decode(&mut self, input: &[u8], env: &Env<'_>) -> Step {
        match self.state {
            FaktoryState::Begin => {
                self.state = FaktoryState::Hello;
                let greeting = hello::greeting(self.challenge);
                self.own(0, FaktoryReply::Greeting(greeting))
            }
            _ if input.is_empty() => Step::More,
            FaktoryState::Hello => self.hello(input, env),
            FaktoryState::Line => self.line(input, env),
            FaktoryState::LongLine => self.long_line(input),
            FaktoryState::Over => skip(input.len()),
        }
    }

    fn encode(&mut self, response: &ServerResponse, env: &Env<'_>, output: &mut Output) -> Next {
        match self.owed.pop_or_alert(output) {
            Some(owed) => self.write(owed, response, env.now, output),
            None => Next::Close,
        }
    }

    fn says_no(&self, reply: &[u8]) -> bool {
        reply.starts_with(b"-")
    }

    fn say(&mut self, hook_reply: HookReply<'_>, output: &mut Output) -> Next {
        match (self.owed.pop(), hook_reply) {
            (Some(FaktoryReply::Silent), _) => {}
            (_, HookReply::Line(text)) => {
                output.put(b"+");
                output.line(text.as_bytes());
            }
            (_, HookReply::Message(bytes)) => {
                output.put(b"$");
                output.block_of(bytes);
            }
            (_, HookReply::Refused(text) | HookReply::Limited(text)) => reply::error(text, output),
        }
        Next::Done
    }

    fn streamed(&mut self, _: Result<LargeBody, CommandError>) {}

    fn half_closed(&mut self) -> HalfClose {
        HalfClose::StopWaiting
    }

    fn is_overdue(&self, now: Ms) -> bool {
        let worker = self.worker.as_ref();
        worker.is_some_and(|(_, worker)| worker.is_gone(now))
    }

    fn worker(&self) -> Option<&str> {
        self.worker.as_ref().map(|(wid, _)| wid.as_str())
    }

    /// The server spoke first, and the client has said who it is.
    fn is_as_opened(&self) -> bool {
        false
    }

    fn held_bytes(&self) -> usize {
        // One that is in its middle is the oldest.
        let reply = match self.owed.oldest() {
            Some(FaktoryReply::Info(info)) => info.capacity(),
            Some(FaktoryReply::Bulk(bulk)) => bulk.bytes(),
            Some(FaktoryReply::Each(each)) => each.capacity(),
            Some(FaktoryReply::Mutate(mutating)) => mutating.capacity(),
            Some(_) | None => 0,
        };
        reply + self.hello_bytes
    }
}

impl Drop for FaktorySession {
    fn drop(&mut self) {
        if let Some((_, worker)) = &self.worker {
            worker.disconnects();
        }
    }
}
