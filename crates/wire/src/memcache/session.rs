//! One connection: lines and data blocks in, replies out.

use std::collections::VecDeque;
use std::sync::Arc;

use quintet_types::{Body, Command, CommandError, Expiry, LargeBody, Name, Put};

use super::answer::END;
use super::answer_binary;
use super::binary_reply::{BinaryReply, Head, REQUEST, What};
use super::reply::{Fault, MemcacheReply, server_error};
use super::{Count, Shared};
use crate::bodies::{IncomingBody, ParseResult, drop_some, skip};
use crate::foreign;
use crate::lines::{Line, Lines};
use crate::output::Output;
use crate::owed::Owed;
use crate::session::{
    ClientRequest, Env, HalfClose, HookReply, Next, ServerResponse, Session, Step,
};

/// The end of every data block of the text protocol.
pub(super) const CRLF: &[u8] = b"\r\n";

/// Protocol state of one connection.
pub(super) struct MemcacheSession {
    pub(super) shared: Arc<Shared>,
    pub(super) state: MemcacheState,
    tongue: Tongue,
    lines: Lines,
    /// Further commands of the request last read, each with the bytes it
    /// consumes: all but the last consume none, so that the host comes back.
    pub(super) parts: VecDeque<(usize, ClientRequest, MemcacheReply)>,
    pub(super) owed: Owed<MemcacheReply>,
}

/// Which of the protocols is spoken, as a connection's first byte tells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tongue {
    Unheard,
    Text,
    Binary,
}

/// State of the decoder at the front of the input.
pub(super) enum MemcacheState {
    /// A command line, or a binary header.
    Line,
    /// A set's data block; its line is in the input until it is dealt with.
    Data(IncomingBody<Set>),
    /// A data block nobody wants; the bytes of it still to come, its end
    /// included.
    Unwanted {
        left: u64,
        end: &'static [u8],
        then: Unwanted,
    },
    /// The data block of the set with which a client logs in, so many bytes
    /// without its end, and what it is owed.
    Login(usize, MemcacheReply),
    /// Nothing more: the connection is closing.
    Over,
}

impl MemcacheState {
    /// A data block of `len` bytes, and what ends it, to be dropped.
    pub(super) fn unwanted(len: u64, end: &'static [u8], then: Unwanted) -> Self {
        Self::Unwanted {
            left: len.saturating_add(end.len() as u64),
            end,
            then,
        }
    }
}

/// A set before its data.
pub(super) struct Set {
    pub(super) queue: Name,
    pub(super) flags: u32,
    pub(super) expires: Expiry,
    pub(super) len: u64,
    /// The bytes that follow its data.
    pub(super) end: &'static [u8],
    /// `/sync` on the name: the reply waits for the disk.
    pub(super) sync: bool,
    /// The pending reply. With nothing given that its item was dropped.
    pub(super) reply: MemcacheReply,
}

/// Why a data block is unwanted.
pub(super) enum Unwanted {
    /// The reply to a set longer than the listener allows, or an error.
    Dropped(MemcacheReply),
    /// It belongs to a storage command that queues do not have.
    NotACache,
}

impl MemcacheSession {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            state: MemcacheState::Line,
            tongue: Tongue::Unheard,
            lines: Lines::default(),
            parts: VecDeque::new(),
            owed: Owed::new(),
        }
    }

    /// Hands out the last command of a request, behind its other parts.
    pub(super) fn last(
        &mut self,
        used: usize,
        ask: ClientRequest,
        reply: MemcacheReply,
    ) -> Option<Step> {
        if self.parts.is_empty() {
            Some(self.owed.ask(used, ask, reply))
        } else {
            self.parts.push_back((used, ask, reply));
            None
        }
    }

    /// Answers an error and closes.
    pub(super) fn fault(&mut self, used: usize, fault: Fault, env: &Env<'_>) -> Step {
        env.tally.bump(Count::Fault as usize);
        self.state = MemcacheState::Over;
        self.parts.clear();
        self.owed.close(used, MemcacheReply::Fault(fault))
    }

    /// Begins the request of a line; `None` if it waits in parts or state.
    fn line(&mut self, first: u8, input: &[u8], env: &Env<'_>) -> Option<Step> {
        self.tongue = Tongue::Text;
        // No command begins so.
        if first == foreign::TLS {
            env.tally.bump(Count::Fault as usize);
            self.state = MemcacheState::Over;
            return Some(self.owed.tls());
        }
        if first == REQUEST {
            return Some(self.fault(input.len(), Fault::SYNTAX, env));
        }
        let line = match self.lines.first(input, self.shared.line_max) {
            Line::Whole(line) => line,
            Line::Part => return Some(Step::More),
            Line::TooLong => return Some(self.fault(input.len(), Fault::LONG_LINE, env)),
        };
        match self.request(line, env) {
            Ok(step) => step,
            Err(fault) => Some(self.fault(line.len(), fault, env)),
        }
    }

    /// Goes on with a data block.
    fn data(&mut self, input: &[u8], env: &Env<'_>) -> Step {
        match std::mem::replace(&mut self.state, MemcacheState::Line) {
            MemcacheState::Line => Step::More,
            MemcacheState::Data(coming) => self.block(coming, input, env),
            MemcacheState::Unwanted { left, end, then } => {
                self.unwanted((left, end), then, input, env)
            }
            MemcacheState::Login(len, reply) => self.login((len, reply), input, env),
            MemcacheState::Over => {
                self.state = MemcacheState::Over;
                skip(input.len())
            }
        }
    }

    fn block(&mut self, coming: IncomingBody<Set>, input: &[u8], env: &Env<'_>) -> Step {
        let end = coming.head().end;
        match coming.read(input, end, |set| set.queue.clone()) {
            ParseResult::Part(coming, step) => {
                self.state = MemcacheState::Data(coming);
                step
            }
            ParseResult::Whole(found) if !found.ended => {
                self.fault(found.used, Fault::BAD_DATA, env)
            }
            ParseResult::Whole(found) => match found.body {
                Ok(body) => self.store(found.used, found.head, body),
                Err(command_error) => {
                    let (ask, reply) = found.head.reply.of_refused(command_error);
                    if matches!(ask, ClientRequest::Close) {
                        self.state = MemcacheState::Over;
                    }
                    self.owed.ask(found.used, ask, reply)
                }
            },
        }
    }

    /// Drops what has come of a data block, and checks its end.
    fn unwanted(
        &mut self,
        (left, end): (u64, &'static [u8]),
        then: Unwanted,
        input: &[u8],
        env: &Env<'_>,
    ) -> Step {
        let whole = usize::try_from(left).unwrap_or(usize::MAX);
        let Some(rest) = input.get(..whole) else {
            let mut body = left.saturating_sub(end.len() as u64);
            let used = drop_some(&mut body, input);
            self.state = MemcacheState::Unwanted {
                left: left - used as u64,
                end,
                then,
            };
            return skip(used);
        };
        match then {
            Unwanted::NotACache => self.fault(whole, Fault::NOT_A_CACHE, env),
            Unwanted::Dropped(_) if !rest.ends_with(end) => self.fault(whole, Fault::BAD_DATA, env),
            Unwanted::Dropped(reply) => self.owed.own(whole, reply),
        }
    }

    fn store(&mut self, used: usize, set: Set, body: Body) -> Step {
        let put = Put {
            flags: set.flags,
            expires: set.expires,
            ..Put::new(set.queue, body)
        };
        let command = Command::Put(put);
        let ask = if set.sync {
            ClientRequest::EngineSynced(command)
        } else {
            ClientRequest::Engine(command)
        };
        self.owed.ask(used, ask, set.reply)
    }

    /// Chooses how data is read from the announcement of its set.
    pub(super) fn announced(&self, line: usize, set: Set) -> MemcacheState {
        if set.len > self.shared.item_max {
            MemcacheState::unwanted(set.len, set.end, Unwanted::Dropped(set.reply))
        } else {
            let len = set.len;
            MemcacheState::Data(IncomingBody::new(set, line, len))
        }
    }
}

impl Session for MemcacheSession {
    fn decode(&mut self, input: &[u8], env: &Env<'_>) -> Step {
        if matches!(self.state, MemcacheState::Line) && self.parts.is_empty() {
            let Some(&first) = input.first() else {
                return Step::More;
            };
            if self.tongue == Tongue::Unheard && first == REQUEST {
                self.tongue = Tongue::Binary;
            }
            if self.tongue == Tongue::Binary {
                if let Some(step) = self.binary(input, env) {
                    return step;
                }
            } else if let Some(step) = self.line(first, input, env) {
                return step;
            }
        }
        if let Some((used, ask, reply)) = self.parts.pop_front() {
            return self.owed.ask(used, ask, reply);
        }
        self.data(input, env)
    }

    fn encode(&mut self, response: &ServerResponse, env: &Env<'_>, output: &mut Output) -> Next {
        let Some(reply) = self.owed.pop_or_alert(output) else {
            return Next::Close;
        };
        let next = reply.write(response, (&self.shared, env), &mut self.owed, output);
        if matches!(next, Next::Close) {
            self.state = MemcacheState::Over;
        }
        next
    }

    fn says_no(&self, reply: &[u8]) -> bool {
        if self.tongue == Tongue::Binary {
            return answer_binary::is_no(reply);
        }
        let words: [&[u8]; 5] = [
            b"ERROR",
            b"CLIENT_ERROR",
            b"SERVER_ERROR",
            b"NOT_STORED",
            b"NS",
        ];
        words.iter().any(|word| reply.starts_with(word))
    }

    fn say(&mut self, hook_reply: HookReply<'_>, output: &mut Output) -> Next {
        match (self.owed.pop(), hook_reply) {
            (Some(MemcacheReply::Stored { noreply: true }), _) => {}
            (Some(MemcacheReply::Binary(reply)), hook_reply) => reply.say(hook_reply, output),
            (None, hook_reply) if self.tongue == Tongue::Binary => {
                let head = Head::default();
                let what = What::Done;
                BinaryReply { head, what }.say(hook_reply, output);
            }
            (_, HookReply::Line(text)) => output.line(text.as_bytes()),
            (Some(MemcacheReply::Meta(meta)), HookReply::Message(bytes)) => {
                meta.value(0, bytes.len() as u64, output);
                output.line(bytes);
            }
            (_, HookReply::Message(bytes)) => {
                output.put(b"VALUE hook 0 ");
                output.block_of(bytes);
                output.put(END);
            }
            (_, HookReply::Refused(text) | HookReply::Limited(text)) => server_error(text, output),
        }
        Next::Done
    }

    fn streamed(&mut self, body: Result<LargeBody, CommandError>) {
        if let MemcacheState::Data(coming) = &mut self.state {
            coming.streamed(body);
        }
    }

    fn is_as_opened(&self) -> bool {
        let Self {
            shared: _,
            state,
            tongue,
            // A line is looked for anew.
            lines: _,
            parts,
            owed,
        } = self;
        let between = matches!(state, MemcacheState::Line);
        // A binary request that is damaged would be answered with a line of text.
        between && parts.is_empty() && owed.is_empty() && *tongue != Tongue::Binary
    }

    fn half_closed(&mut self) -> HalfClose {
        HalfClose::StopWaiting
    }
}
