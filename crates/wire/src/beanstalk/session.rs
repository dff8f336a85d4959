//! One connection: lines and jobs in, replies out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memchr::{memchr, memmem};
use quintet_types::{
    BatchRequest, Body, Callback, Command, CommandError, Dedupe, Event, LargeBody, ListState,
    NewBatch, Outcome, Put, Tie,
};

use super::reply::{self, BeanstalkReply, CRLF};
use super::request::{Announced, Beside, Callbacks, LINE_MAX, Request, parse};
use super::steps::go_on;
use super::tubes::Referred;
use super::{Count, Shared, stats};
use crate::bodies::{IncomingBody, ParseResult, drop_some, skip};
use crate::foreign;
use crate::login::{Logins, auth_line};
use crate::output::Output;
use crate::owed::Owed;
use crate::session::{
    ClientRequest, Env, HalfClose, HookReply, HostRequest, Next, STREAM_OVER, ServerResponse,
    Session, Step, page,
};

/// Protocol state of one connection.
pub(super) struct BeanstalkSession {
    shared: Arc<Shared>,
    state: BeanstalkState,
    tubes: Referred,
    /// The engine knows which tubes this connection refers to.
    known: bool,
    is_producer: bool,
    is_worker: bool,
    /// Extras of the announced job, if it has any.
    beside: Option<Beside>,
    owed: Owed<BeanstalkReply>,
}

/// State of the decoder at the front of the input.
enum BeanstalkState {
    /// A command line.
    Line,
    /// The rest of a line that was too long.
    LongLine,
    Job(IncomingBody<Announced>),
    /// The bodies of a batch's callbacks, as one, with what ends the first.
    Callbacks(IncomingBody<Box<Callbacks>>),
    /// So many bytes of a job that is too long.
    TooBig(u64),
    /// Nothing more: the connection is closing.
    Over,
}

impl BeanstalkSession {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            state: BeanstalkState::Line,
            tubes: Referred::new(),
            known: false,
            is_producer: false,
            is_worker: false,
            beside: None,
            owed: Owed::new(),
        }
    }

    fn own(&mut self, used: usize, reply: BeanstalkReply) -> Step {
        self.owed.own(used, reply)
    }

    fn fault(&mut self, used: usize, line: &'static [u8], env: &Env<'_>) -> Step {
        env.tally.bump(Count::Fault as usize);
        self.own(used, BeanstalkReply::Line(line))
    }

    fn line(&mut self, input: &[u8], env: &Env<'_>) -> Step {
        if !self.known && !input.is_empty() {
            if input[0] == foreign::TLS {
                env.tally.bump(Count::Fault as usize);
                self.state = BeanstalkState::Over;
                return self.owed.tls();
            }
            // A client that has yet to log in refers to nothing.
            if env.logins == Logins::Off || !may_be_auth(input) && env.logins == Logins::Open {
                self.known = true;
                let default = self.tubes.first();
                return self.owed.engine(0, default, BeanstalkReply::Silent);
            }
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
        let line = &input[..end - CRLF.len()];
        if env.logins != Logins::Off
            && let Some(login) = auth_line(line)
        {
            env.tally.bump(Count::Other as usize);
            let ask = ClientRequest::Login(login);
            return self.owed.ask(end, ask, BeanstalkReply::LoggedIn);
        }
        let (count, request) = parse(line, self.tubes.used());
        env.tally.bump(count as usize);
        let (ask, reply) = match request {
            // These are what workers do all day.
            Request::Engine(command, reply) => {
                return self.owed.engine(end, command, reply);
            }
            Request::Put(put, beside) => {
                self.beside = beside;
                return self.announced(input, end, put, env);
            }
            Request::NewBatch(callbacks) => return self.batch(input, end, callbacks, env),
            Request::Reserve(wait) => {
                count_once(&mut self.is_worker, &self.shared.workers);
                let take = self.tubes.reserve(1, wait);
                let reply = BeanstalkReply::Job(b"RESERVED ");
                return self.owed.engine(end, take, reply);
            }
            Request::ReserveBatch(most, wait) => {
                count_once(&mut self.is_worker, &self.shared.workers);
                let take = ClientRequest::Engine(self.tubes.reserve(most, wait));
                (take, BeanstalkReply::Batch)
            }
            Request::Use(name) => self.tubes.use_one(name),
            Request::Watch(name) => self.tubes.watch(name, self.shared.watched_max),
            Request::Ignore(name) => self.tubes.ignore(name),
            Request::Kick(max) => {
                let buried = ListState::Buried;
                let kick = ClientRequest::EngineAlone(self.tubes.kick(buried, max));
                (kick, BeanstalkReply::Kicked(buried, 0, max))
            }
            Request::Stats => {
                let stats = ClientRequest::Host(HostRequest::Stats);
                (stats, BeanstalkReply::Stats)
            }
            Request::ListTubes => {
                let first = ClientRequest::EngineAlone(page((0, 0)));
                (first, BeanstalkReply::Tubes(stats::Tubes::new()))
            }
            Request::ListTubeUsed => {
                let used = self.tubes.used().clone();
                (ClientRequest::Own, BeanstalkReply::Using(used))
            }
            Request::ListTubesWatched => {
                let watched = self.tubes.watched().to_vec();
                (ClientRequest::Own, BeanstalkReply::Watched(watched))
            }
            Request::Quit => {
                self.state = BeanstalkState::Over;
                (ClientRequest::Close, BeanstalkReply::Silent)
            }
            Request::Fault(fault @ reply::UNKNOWN_COMMAND) => (
                ClientRequest::Unknown(line.into()),
                BeanstalkReply::Line(fault),
            ),
            Request::Fault(fault) => (ClientRequest::Own, BeanstalkReply::Line(fault)),
        };
        self.owed.ask(end, ask, reply)
    }

    /// Chooses how a job is read from the announcement of its put.
    fn announced(&mut self, input: &[u8], end: usize, put: Announced, env: &Env<'_>) -> Step {
        count_once(&mut self.is_producer, &self.shared.producers);
        let len = u64::from(put.len);
        if len > self.shared.job_max {
            self.state = BeanstalkState::TooBig(len + CRLF.len() as u64);
            return Step::Skip { used: end };
        }
        self.job(IncomingBody::new(put, end, len), input, env)
    }

    fn job(&mut self, coming: IncomingBody<Announced>, input: &[u8], env: &Env<'_>) -> Step {
        match coming.read(input, CRLF, |_| self.tubes.used().clone()) {
            ParseResult::Part(coming, step) => {
                self.state = BeanstalkState::Job(coming);
                step
            }
            ParseResult::Whole(found) if !found.ended => self.not_ended(found.used, env),
            ParseResult::Whole(found) => match found.body {
                Ok(body) => self.put(found.used, found.head, body),
                Err(command_error) => self.own(
                    found.used,
                    BeanstalkReply::Line(reply::refused(command_error)),
                ),
            },
        }
    }

    /// A batch's callbacks are held until all are there: their bodies are short.
    fn batch(&mut self, input: &[u8], end: usize, of: Callbacks, env: &Env<'_>) -> Step {
        let lens = || of.all().map(|callback| u64::from(callback.len));
        // What ends the last one is read behind it.
        let len = lens().sum::<u64>() + CRLF.len() as u64 * (of.all().count() as u64 - 1);
        if lens().any(|len| len > self.shared.job_max) || len > STREAM_OVER {
            self.state = BeanstalkState::TooBig(len + CRLF.len() as u64);
            return Step::Skip { used: end };
        }
        self.callbacks(IncomingBody::new(Box::new(of), end, len), input, env)
    }

    fn callbacks(
        &mut self,
        coming: IncomingBody<Box<Callbacks>>,
        input: &[u8],
        env: &Env<'_>,
    ) -> Step {
        // None is so long that it goes to the log, and to a queue's limits.
        let found = match coming.read(input, CRLF, |of| of.first.tube.clone()) {
            ParseResult::Part(coming, step) => {
                self.state = BeanstalkState::Callbacks(coming);
                return step;
            }
            ParseResult::Whole(found) => found,
        };
        let bodies = found.body.as_ref().ok().and_then(Body::as_small);
        let new = bodies.filter(|_| found.ended);
        match new.and_then(|bodies| new_batch(&found.head, bodies)) {
            Some(new) => {
                let new = Command::Batch(BatchRequest::New(Box::new(new)));
                self.owed.engine(found.used, new, BeanstalkReply::NewBatch)
            }
            None => self.fault(found.used, reply::EXPECTED_CRLF, env),
        }
    }

    fn put(&mut self, used: usize, announced: Announced, body: Body) -> Step {
        let mut put = Put {
            priority: Some(announced.priority),
            due: announced.due,
            ttr_ms: Some(announced.ttr_ms),
            ..Put::new(self.tubes.used().clone(), body)
        };
        let mut reply = BeanstalkReply::Inserted;
        match self.beside.take() {
            None => {}
            Some(Beside::Unique(id)) => {
                // The queue's settings say the rest.
                put.more.get_or_insert_default().dedupe = Some(Dedupe {
                    id,
                    window_ms: None,
                    scope: None,
                    on_repeat: None,
                });
                reply = BeanstalkReply::InsertedUnique;
            }
            Some(Beside::Batch(batch)) => {
                put.more.get_or_insert_default().batch = Some(Tie::member(batch));
            }
            Some(Beside::Tracked(name)) => {
                let more = put.more.get_or_insert_default();
                (more.name, more.tracked) = (Some(name), true);
            }
        }
        self.owed.engine(used, Command::Put(put), reply)
    }

    /// A job that does not end where it should has used up its id.
    fn not_ended(&mut self, used: usize, env: &Env<'_>) -> Step {
        env.tally.bump(Count::Fault as usize);
        let reply = BeanstalkReply::Line(reply::EXPECTED_CRLF);
        self.owed.engine(used, Command::BurnId, reply)
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

/// A batch of these callbacks; `None`: the first body does not end where it should.
fn new_batch(of: &Callbacks, bodies: &[u8]) -> Option<NewBatch> {
    let mut new = NewBatch {
        description: of.description.clone(),
        parent: of.parent,
        ..NewBatch::default()
    };
    let mut rest = bodies;
    for (at, of) in of.all().enumerate() {
        if at > 0 {
            rest = rest.strip_prefix(CRLF)?;
        }
        let (body, behind) = rest.split_at_checked(of.len as usize)?;
        let callback = Callback {
            queue: of.tube.clone(),
            body: body.into(),
            ..Callback::default()
        };
        match of.event {
            Event::Complete => new.complete = Some(callback),
            Event::Success => new.success = Some(callback),
        }
        rest = behind;
    }
    Some(new)
}

/// True if a line that begins so may say who the client is.
fn may_be_auth(input: &[u8]) -> bool {
    const WORD: &[u8] = b"auth ";
    let head = &input[..input.len().min(WORD.len())];
    head.eq_ignore_ascii_case(&WORD[..head.len()])
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
            BeanstalkState::Callbacks(coming) => self.callbacks(coming, input, env),
            BeanstalkState::TooBig(left) => self.too_big(input, left, env),
            BeanstalkState::Over => {
                self.state = BeanstalkState::Over;
                skip(input.len())
            }
        }
    }

    fn encode(&mut self, response: &ServerResponse, env: &Env<'_>, output: &mut Output) -> Next {
        let done = matches!(
            response,
            ServerResponse::Engine(Outcome::Done | Outcome::Messages(_), _)
        );
        match self.owed.pop_or_alert(output) {
            None => Next::Close,
            Some(BeanstalkReply::NowUsing(name)) if done => {
                BeanstalkReply::Using(name.clone()).write(response, output);
                let before = self.tubes.now_using(name);
                self.owed.again(BeanstalkReply::Silent, before)
            }
            Some(BeanstalkReply::NowWatching(name)) if done => {
                let watched = self.tubes.now_watching(name);
                BeanstalkReply::Watching(watched).write(response, output);
                Next::Done
            }
            Some(reply) => {
                if done && matches!(reply, BeanstalkReply::ReservedId) {
                    count_once(&mut self.is_worker, &self.shared.workers);
                }
                let about = (&*self.shared, &self.tubes, env.now);
                go_on(reply, response, about, &mut self.owed, output)
            }
        }
    }

    fn says_no(&self, reply: &[u8]) -> bool {
        let words: [&[u8]; 10] = [
            reply::BAD_FORMAT,
            reply::OUT_OF_MEMORY,
            reply::INTERNAL_ERROR,
            reply::JOB_TOO_BIG,
            b"UNKNOWN_COMMAND",
            b"EXPECTED_CRLF",
            b"DRAINING",
            b"NOT_PERMITTED",
            b"TOO_MANY_",
            reply::DUPLICATE,
        ];
        words.iter().any(|word| reply.starts_with(word))
    }

    fn say(&mut self, hook_reply: HookReply<'_>, output: &mut Output) -> Next {
        match (self.owed.pop(), hook_reply) {
            (Some(BeanstalkReply::Silent), _) => {}
            (_, HookReply::Line(text)) => {
                output.line(text.as_bytes());
            }
            (_, HookReply::Message(bytes)) => {
                output.put(b"OK ");
                output.block_of(bytes);
            }
            // Errors have no text here.
            (_, HookReply::Refused(_)) => output.put(reply::INTERNAL_ERROR),
            (_, HookReply::Limited(_)) => output.put(reply::OUT_OF_MEMORY),
        }
        Next::Done
    }

    fn streamed(&mut self, body: Result<LargeBody, CommandError>) {
        if let BeanstalkState::Job(coming) = &mut self.state {
            coming.streamed(body);
        }
    }

    fn half_closed(&mut self) -> HalfClose {
        HalfClose::StopWaiting
    }

    fn is_as_opened(&self) -> bool {
        let Self {
            shared: _,
            state,
            tubes,
            // A session that begins counts and refers again.
            known: _,
            is_producer: _,
            is_worker: _,
            beside,
            owed,
        } = self;
        let between = matches!(state, BeanstalkState::Line);
        between && tubes.are_as_opened() && beside.is_none() && owed.is_empty()
    }

    fn held_bytes(&self) -> usize {
        // One that is in its middle is the oldest.
        let reply = match self.owed.oldest() {
            Some(BeanstalkReply::Tubes(tubes)) => tubes.capacity(),
            _ => 0,
        };
        // A reserve, or a list, that waits behind another request has all watched tubes.
        let behind = self.owed.behind().filter(|reply| {
            matches!(
                reply,
                BeanstalkReply::Job(_) | BeanstalkReply::Batch | BeanstalkReply::Watched(_)
            )
        });
        reply + self.tubes.bytes() * (1 + behind.count())
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
