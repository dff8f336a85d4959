//! One connection: lines and messages in, replies out.

use std::sync::Arc;

use memchr::memchr;
use quintet_types::{Body, Command, CommandError, LargeBody, Put, Take};

use super::reply::{CRLF, LineupReply, error, push_error};
use super::request::{INVALID, Request, parse};
use super::{Count, Shared};
use crate::bodies::{IncomingBody, ParseResult, drop_some, skip};
use crate::foreign::First;
use crate::lines::{Line, Lines};
use crate::login::{Logins, auth_line};
use crate::output::Output;
use crate::owed::Owed;
use crate::session::{ClientRequest, Env, HookReply, Next, ServerResponse, Session, Step};

/// A message over this many times the limit is not read to its end.
const SWALLOW_TIMES: u64 = 16;

/// Protocol state of one connection.
pub(super) struct LineupSession {
    shared: Arc<Shared>,
    first: First,
    lines: Lines,
    state: LineupState,
    owed: Owed<LineupReply>,
}

/// State of the decoder at the front of the input.
enum LineupState {
    /// A command line.
    Line,
    /// The rest of a line that was too long.
    LongLine,
    /// The message of a push with this priority.
    Message(IncomingBody<u32>),
    /// The message of a push that was refused, if it comes: its header may
    /// also have been all there is.
    Doubtful { len: u64 },
    /// So many bytes that nobody wants.
    Unwanted { left: u64 },
    /// Nothing more: the connection is closing.
    Over,
}

impl LineupSession {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            first: First::new(),
            lines: Lines::default(),
            state: LineupState::Line,
            owed: Owed::new(),
        }
    }

    fn own(&mut self, used: usize, reply: LineupReply, env: &Env<'_>) -> Step {
        if matches!(reply, LineupReply::Error(_) | LineupReply::Last(_)) {
            env.tally.bump(Count::Fault as usize);
        }
        if matches!(reply, LineupReply::Last(_) | LineupReply::End) {
            self.state = LineupState::Over;
            return self.owed.close(used, reply);
        }
        self.owed.own(used, reply)
    }

    fn tls(&mut self, env: &Env<'_>) -> Step {
        env.tally.bump(Count::Fault as usize);
        self.state = LineupState::Over;
        self.owed.tls()
    }

    fn command(&mut self, input: &[u8], line: &[u8], env: &Env<'_>) -> Step {
        let used = line.len();
        if env.logins != Logins::Off
            && let Some(login) = auth_line(line.trim_ascii_end())
        {
            let ask = ClientRequest::Login(login);
            return self.owed.ask(used, ask, LineupReply::LoggedIn);
        }
        match parse(line) {
            Request::Push { priority, len } => self.announce(input, used, (priority, len), env),
            Request::BadPush { error, len } => {
                // Answered at once: a client that sent only the header waits
                // for nothing else.
                self.state = LineupState::Doubtful { len };
                self.own(used, LineupReply::Error(error), env)
            }
            Request::Pop => {
                env.tally.bump(Count::Pop as usize);
                let take = Take {
                    queues: [self.shared.queue.clone()].into(),
                    ..Take::default()
                };
                self.owed
                    .engine(used, Command::Take(take), LineupReply::Popped)
            }
            Request::Ping => {
                env.tally.bump(Count::Ping as usize);
                self.own(used, LineupReply::Pong, env)
            }
            Request::Exit => self.own(used, LineupReply::End, env),
            Request::Error(INVALID) => {
                env.tally.bump(Count::Fault as usize);
                let ask = ClientRequest::Unknown(line.trim_ascii_end().into());
                self.owed.ask(used, ask, LineupReply::Error(INVALID))
            }
            Request::Error(error) => self.own(used, LineupReply::Error(error), env),
        }
    }

    fn announce(
        &mut self,
        input: &[u8],
        used: usize,
        (priority, len): (u32, u64),
        env: &Env<'_>,
    ) -> Step {
        let max = self.shared.message_max;
        if len > max.saturating_mul(SWALLOW_TIMES) {
            return self.own(used, LineupReply::Last("MESSAGE_TOO_LARGE"), env);
        }
        if len > max {
            self.state = LineupState::Unwanted {
                left: len + CRLF.len() as u64,
            };
            return self.own(used, LineupReply::Error("MESSAGE_TOO_LARGE"), env);
        }
        self.message(IncomingBody::new(priority, used, len), input, env)
    }

    /// Stores a message once its end is seen to be right.
    fn push(&mut self, used: usize, priority: u32, body: Body, env: &Env<'_>) -> Step {
        env.tally.bump(Count::Push as usize);
        let queue = self.shared.queue.clone();
        let put = Put {
            priority: Some(priority),
            ..Put::new(queue, body)
        };
        self.owed
            .engine(used, Command::Put(put), LineupReply::Pushed)
    }

    fn message(&mut self, coming: IncomingBody<u32>, input: &[u8], env: &Env<'_>) -> Step {
        match coming.read(input, CRLF, |_| self.shared.queue.clone()) {
            ParseResult::Part(coming, step) => {
                self.state = LineupState::Message(coming);
                step
            }
            ParseResult::Whole(found) if !found.ended => {
                self.own(found.used, LineupReply::Last("EXPECTED_TERMINATOR"), env)
            }
            ParseResult::Whole(found) => match found.body {
                Ok(body) => self.push(found.used, found.head, body, env),
                Err(command_error) => self.own(
                    found.used,
                    LineupReply::Error(push_error(command_error)),
                    env,
                ),
            },
        }
    }

    /// After a push with a bad priority: its message is dropped if one comes,
    /// which its CR LF at the right place tells; else the bytes are commands.
    /// Bytes with the message's length that are a bare command are a command: a
    /// client that sent nothing else waits for its reply.
    fn doubtful(&mut self, input: &[u8], len: u64, env: &Env<'_>) -> Step {
        // More than a line: it is not held to be looked at as a whole.
        if len > self.shared.line_max as u64 {
            self.state = LineupState::Unwanted {
                left: len.saturating_add(CRLF.len() as u64),
            };
            return self.decode(input, env);
        }
        let at = usize::try_from(len).unwrap_or(usize::MAX);
        let message = &input[..input.len().min(at)];
        let bare = matches!(
            message,
            b"POP\r\n" | b"TAKE\r\n" | b"PING\r\n" | b"EXIT\r\n"
        );
        let end = input.get(at..).unwrap_or_default();
        let end = &end[..end.len().min(CRLF.len())];
        if !CRLF.starts_with(end) || (bare && message.len() == at) {
            return self.decode(input, env);
        }
        if end == CRLF {
            return Step::Skip {
                used: at + CRLF.len(),
            };
        }
        self.state = LineupState::Doubtful { len };
        Step::More
    }

    fn unwanted(&mut self, input: &[u8], mut left: u64) -> Step {
        let used = drop_some(&mut left, input);
        if left > 0 {
            self.state = LineupState::Unwanted { left };
        }
        skip(used)
    }
}

impl Session for LineupSession {
    fn decode(&mut self, input: &[u8], env: &Env<'_>) -> Step {
        if self.first.is_tls(input) {
            return self.tls(env);
        }
        match std::mem::replace(&mut self.state, LineupState::Line) {
            LineupState::Line => match self.lines.first(input, self.shared.line_max) {
                Line::Whole(line) => self.command(input, line, env),
                Line::Part => Step::More,
                Line::TooLong => {
                    self.state = LineupState::LongLine;
                    self.own(
                        self.shared.line_max,
                        LineupReply::Error("LINE_TOO_LONG"),
                        env,
                    )
                }
            },
            LineupState::LongLine => match (memchr(b'\n', input), input.len()) {
                (Some(end), _) => Step::Skip { used: end + 1 },
                (None, seen) => {
                    self.state = LineupState::LongLine;
                    skip(seen)
                }
            },
            LineupState::Message(coming) => self.message(coming, input, env),
            LineupState::Doubtful { len } if input.is_empty() => {
                self.state = LineupState::Doubtful { len };
                Step::More
            }
            LineupState::Doubtful { len } => self.doubtful(input, len, env),
            LineupState::Unwanted { left } => self.unwanted(input, left),
            LineupState::Over => {
                self.state = LineupState::Over;
                skip(input.len())
            }
        }
    }

    fn encode(&mut self, response: &ServerResponse, env: &Env<'_>, output: &mut Output) -> Next {
        let reply = self.owed.pop_or_alert(output);
        reply.map_or(Next::Close, |reply| reply.write(response, env, output))
    }

    fn says_no(&self, reply: &[u8]) -> bool {
        reply.starts_with(b"-")
    }

    fn say(&mut self, hook_reply: HookReply<'_>, output: &mut Output) -> Next {
        let _instead = self.owed.pop();
        match hook_reply {
            HookReply::Line(text) => {
                output.put(b"+");
                output.line(text.as_bytes());
            }
            HookReply::Message(bytes) => {
                output.put(b"$");
                output.block_of(bytes);
            }
            HookReply::Refused(text) | HookReply::Limited(text) => error(output, text),
        }
        Next::Done
    }

    fn streamed(&mut self, body: Result<LargeBody, CommandError>) {
        if let LineupState::Message(coming) = &mut self.state {
            coming.streamed(body);
        }
    }

    fn is_as_opened(&self) -> bool {
        let Self {
            shared: _,
            // No command begins as TLS does, and a line is looked for anew.
            first: _,
            lines: _,
            state,
            owed,
        } = self;
        matches!(state, LineupState::Line) && owed.is_empty()
    }
}
