//! One connection: lines and data blocks in, replies out.

use std::collections::VecDeque;
use std::sync::Arc;

use quintet_engine::{
    Body, Command, Expiry, LargeBody, LeaseAsk, LeaseOwner, LeaseTime, Name, Outcome, Put, Refusal,
    StatsOf, StatsReply, Take, Wait, When,
};

use super::reply::{Fault, Listing, MemcacheReply, Monitor, not_stored, refused, server_error};
use super::{Count, Shared, stats};
use crate::bodies::{Coming, Found, drop_some, skip};
use crate::foreign::{self, Foreign};
use crate::lines::{Line, Lines};
use crate::output::Output;
use crate::session::{Ask, Env, Given, HalfClose, HostAsk, Next, Said, ServerStats, Session, Step};

/// What follows every data block.
const CRLF: &[u8] = b"\r\n";

/// Protocol state of one connection.
pub(super) struct MemcacheSession {
    pub(super) shared: Arc<Shared>,
    pub(super) state: MemcacheState,
    lines: Lines,
    /// Further commands of the request last read, each with the bytes it
    /// consumes: all but the last consume none, so that the host comes back.
    pub(super) parts: VecDeque<(usize, Ask, MemcacheReply)>,
    /// What the requests not yet answered are owed.
    replies: VecDeque<MemcacheReply>,
}

/// What the input's front is.
pub(super) enum MemcacheState {
    /// A command line.
    Line,
    /// A set's data block; its line is in the input until it is dealt with.
    Data(Coming<Set>),
    /// A data block nobody wants; the bytes of it still to come, its end
    /// included.
    Unwanted { left: u64, then: Unwanted },
    /// Nothing more: the connection is closing.
    Over,
}

impl MemcacheState {
    /// A data block of `len` bytes to be dropped.
    pub(super) fn unwanted(len: u64, then: Unwanted) -> Self {
        Self::Unwanted {
            left: len.saturating_add(CRLF.len() as u64),
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
    pub(super) noreply: bool,
    /// `/sync` on the name: the reply waits for the disk.
    pub(super) sync: bool,
}

/// Why a data block is unwanted.
#[derive(Clone, Copy)]
pub(super) enum Unwanted {
    /// Longer than the listener allows.
    TooLarge { noreply: bool },
    /// It belongs to a storage command that queues do not have.
    NotACache,
}

impl MemcacheSession {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            state: MemcacheState::Line,
            lines: Lines::default(),
            parts: VecDeque::new(),
            replies: VecDeque::new(),
        }
    }

    /// Hands a command out and remembers its reply.
    pub(super) fn ask(&mut self, used: usize, ask: Ask, reply: MemcacheReply) -> Step {
        self.replies.push_back(reply);
        Step::Ask { used, ask }
    }

    /// Hands out the last command of a request, behind its other parts.
    pub(super) fn last(&mut self, used: usize, ask: Ask, reply: MemcacheReply) -> Option<Step> {
        if self.parts.is_empty() {
            Some(self.ask(used, ask, reply))
        } else {
            self.parts.push_back((used, ask, reply));
            None
        }
    }

    /// Answers an error and closes.
    fn fault(&mut self, used: usize, fault: Fault, env: &Env<'_>) -> Step {
        env.tally.bump(Count::Fault as usize);
        self.state = MemcacheState::Over;
        self.parts.clear();
        self.ask(used, Ask::Close, MemcacheReply::Fault(fault))
    }

    /// Tells the host of another protocol, and closes.
    fn foreign(&mut self, foreign: Foreign, env: &Env<'_>) -> Step {
        env.tally.bump(Count::Fault as usize);
        self.state = MemcacheState::Over;
        let ask = Ask::Host(HostAsk::Foreign(foreign));
        self.ask(0, ask, MemcacheReply::Foreign(foreign))
    }

    /// Goes on with a data block.
    fn data(&mut self, input: &[u8], env: &Env<'_>) -> Step {
        match std::mem::replace(&mut self.state, MemcacheState::Line) {
            MemcacheState::Line => Step::More,
            MemcacheState::Data(coming) => self.block(coming, input, env),
            MemcacheState::Unwanted { left, then } => self.unwanted(left, then, input, env),
            MemcacheState::Over => {
                self.state = MemcacheState::Over;
                skip(input.len())
            }
        }
    }

    fn block(&mut self, coming: Coming<Set>, input: &[u8], env: &Env<'_>) -> Step {
        match coming.read(input, CRLF, |set| set.queue.clone()) {
            Found::Part(coming, step) => {
                self.state = MemcacheState::Data(coming);
                step
            }
            Found::Whole(found) if !found.ended => self.fault(found.used, Fault::BAD_DATA, env),
            Found::Whole(found) => match found.body {
                Ok(body) => self.store(found.used, found.head, body),
                Err(refusal) if not_stored(refusal) => {
                    let reply = MemcacheReply::not_stored(found.head.noreply);
                    self.ask(found.used, Ask::Own, reply)
                }
                Err(refusal) => {
                    self.state = MemcacheState::Over;
                    self.ask(found.used, Ask::Close, MemcacheReply::Refused(refusal))
                }
            },
        }
    }

    /// Drops what has come of a data block, and checks its end.
    fn unwanted(&mut self, left: u64, then: Unwanted, input: &[u8], env: &Env<'_>) -> Step {
        let end = CRLF.len() as u64;
        if left > end {
            let mut body = left - end;
            let used = drop_some(&mut body, input);
            self.state = MemcacheState::Unwanted {
                left: body + end,
                then,
            };
            return skip(used);
        }
        let Some(after) = input.get(..CRLF.len()) else {
            self.state = MemcacheState::Unwanted { left, then };
            return Step::More;
        };
        match then {
            Unwanted::NotACache => self.fault(CRLF.len(), Fault::NOT_A_CACHE, env),
            Unwanted::TooLarge { .. } if after != CRLF => {
                self.fault(CRLF.len(), Fault::BAD_DATA, env)
            }
            Unwanted::TooLarge { noreply } => {
                self.ask(CRLF.len(), Ask::Own, MemcacheReply::not_stored(noreply))
            }
        }
    }

    fn store(&mut self, used: usize, set: Set, body: Body) -> Step {
        let put = Put {
            queue: set.queue,
            body,
            rank: None,
            flags: set.flags,
            due: When::Now,
            expires: set.expires,
            ttr_ms: None,
            more: None,
        };
        let reply = MemcacheReply::Stored {
            noreply: set.noreply,
        };
        let command = Command::Put(put);
        let ask = if set.sync {
            Ask::EngineSynced(command)
        } else {
            Ask::Engine(command)
        };
        self.ask(used, ask, reply)
    }

    /// What a set is announced with decides how its data is read.
    pub(super) fn announced(&self, line: usize, set: Set) -> MemcacheState {
        if set.len > self.shared.item_max {
            let noreply = set.noreply;
            MemcacheState::unwanted(set.len, Unwanted::TooLarge { noreply })
        } else {
            let len = set.len;
            MemcacheState::Data(Coming::new(set, line, len))
        }
    }

    /// The lease of an open read.
    pub(super) fn open_read(&self) -> LeaseAsk {
        LeaseAsk {
            owner: LeaseOwner::Connection,
            time: LeaseTime::OwnTtr,
            back_to: quintet_engine::BackTo::Head,
            held_max: if self.shared.single_open_read {
                1
            } else {
                self.shared.open_reads_max
            },
        }
    }

    /// The next take of a monitor.
    pub(super) fn monitor_take(&self, monitor: &Monitor) -> Command {
        Command::Take(Take {
            queues: [monitor.queue.clone()].into(),
            lease: Some(self.open_read()),
            held_anywhere: self.shared.single_open_read,
            wait: Wait::Until(monitor.until),
            messages_max: 1,
            ..Take::default()
        })
    }

    fn write_messages(&self, outcome: &quintet_engine::Handed, queue: &Name, output: &mut Output) {
        for message in outcome {
            output.put(b"VALUE ");
            output.put(queue.as_bytes());
            output.put(b" ");
            output.number(if self.shared.keep_flags {
                u64::from(message.flags)
            } else {
                0
            });
            output.put(b" ");
            output.number(message.body.len());
            output.put(CRLF);
            output.body(&message.body);
            output.put(CRLF);
        }
        output.put(b"END\r\n");
    }

    /// The connection ends after what has just been written.
    fn close(&mut self) -> Next {
        self.state = MemcacheState::Over;
        Next::Close
    }

    fn monitored(
        &mut self,
        mut monitor: Box<Monitor>,
        given: &Given,
        env: &Env<'_>,
        output: &mut Output,
    ) -> Next {
        match given {
            Given::Engine(Outcome::Messages(messages), queue) => {
                self.write_messages(messages, queue, output);
                monitor.left = monitor.left.saturating_sub(1);
                if monitor.left > 0 && env.now < monitor.until {
                    let take = self.monitor_take(&monitor);
                    self.replies.push_front(MemcacheReply::Monitor(monitor));
                    return Next::Again(Box::new(take));
                }
            }
            Given::Engine(Outcome::Empty, _) => {}
            // As many are open as may be: the client is to confirm some.
            Given::Engine(Outcome::Refused(Refusal::HeldLimit), _) => {}
            Given::Engine(..) | Given::Server(_) | Given::Host(_) | Given::Own => {
                return self.unexpected(given, output);
            }
        }
        output.put(b"END\r\n");
        Next::Done
    }

    /// Goes on with the numbers of queues.
    fn list(&mut self, dump: Option<Box<[Name]>>, server: &ServerStats) -> Next {
        let log = (server.number("log_retired"), server.number("log_rotations"));
        let listing = Box::new(Listing { dump, log });
        self.replies.push_front(MemcacheReply::Queues(listing));
        let from = (0, 0);
        Next::Again(Box::new(Command::Stats(StatsOf::Queues { from })))
    }

    fn listed(&mut self, listing: Box<Listing>, page: &StatsReply, output: &mut Output) -> Next {
        if let StatsReply::Queues(page) = page {
            stats::write_queues(&page.queues, &listing, output);
            if let Some(from) = page.next {
                self.replies.push_front(MemcacheReply::Queues(listing));
                return Next::Again(Box::new(Command::Stats(StatsOf::Queues { from })));
            }
        }
        output.put(b"END\r\n");
        Next::Done
    }

    /// A refusal, or an answer that does not fit the question.
    fn unexpected(&mut self, given: &Given, output: &mut Output) -> Next {
        match given {
            Given::Engine(Outcome::Refused(refusal), _) => refused(*refusal, output),
            Given::Host(Err(text)) => server_error(text, output),
            Given::Engine(..) | Given::Server(_) | Given::Host(Ok(_)) | Given::Own => {
                server_error("unexpected answer", output);
            }
        }
        self.close()
    }
}

/// To a queue that does not exist nothing can be done, and nothing need be.
fn no_queue_no_matter(given: &Given) -> &Given {
    static NOTHING_DONE: std::sync::LazyLock<Given> =
        std::sync::LazyLock::new(|| Given::Engine(Outcome::Count(0), Name::default()));
    match given {
        Given::Engine(Outcome::Refused(Refusal::QueueNotFound), _) => &NOTHING_DONE,
        Given::Engine(..) | Given::Server(_) | Given::Host(_) | Given::Own => given,
    }
}

impl Session for MemcacheSession {
    fn decode(&mut self, input: &[u8], env: &Env<'_>) -> Step {
        if matches!(self.state, MemcacheState::Line) && self.parts.is_empty() {
            // No command begins so.
            match input.first() {
                Some(&foreign::TLS) => return self.foreign(Foreign::Tls, env),
                Some(&foreign::BINARY) => return self.foreign(Foreign::MemcacheBinary, env),
                _ => {}
            }
            let line = match self.lines.first(input, self.shared.line_max) {
                Line::Whole(line) => line,
                Line::Part => return Step::More,
                Line::TooLong => return self.fault(input.len(), Fault::LONG_LINE, env),
            };
            match self.request(line, env) {
                Ok(Some(step)) => return step,
                Ok(None) => {}
                Err(fault) => return self.fault(line.len(), fault, env),
            }
        }
        if let Some((used, ask, reply)) = self.parts.pop_front() {
            return self.ask(used, ask, reply);
        }
        self.data(input, env)
    }

    fn encode(&mut self, given: &Given, env: &Env<'_>, output: &mut Output) -> Next {
        let Some(reply) = self.replies.pop_front() else {
            return Next::Close;
        };
        let given = no_queue_no_matter(given);
        match (reply, given) {
            (MemcacheReply::Stored { noreply }, Given::Engine(Outcome::Put { .. }, _)) => {
                if !noreply {
                    output.put(b"STORED\r\n");
                }
            }
            (MemcacheReply::Stored { noreply }, Given::Engine(Outcome::Refused(refusal), _))
                if not_stored(*refusal) =>
            {
                if !noreply {
                    output.put(b"NOT_STORED\r\n");
                }
            }
            (MemcacheReply::Value { peek }, Given::Engine(Outcome::Messages(messages), queue)) => {
                if !peek {
                    env.tally.bump(Count::Hit as usize);
                }
                self.write_messages(messages, queue, output);
            }
            (MemcacheReply::Value { peek }, Given::Engine(Outcome::Empty, _)) => {
                if !peek {
                    env.tally.bump(Count::Miss as usize);
                }
                output.put(b"END\r\n");
            }
            (MemcacheReply::Monitor(monitor), given) => {
                return self.monitored(monitor, given, env, output);
            }
            (MemcacheReply::Line(line), Given::Own) => output.put(line.as_bytes()),
            (
                MemcacheReply::Silent | MemcacheReply::Line(_),
                given @ Given::Engine(Outcome::Refused(_), _),
            ) => {
                return self.unexpected(given, output);
            }
            (MemcacheReply::Silent, _) => {}
            (MemcacheReply::Line(line), Given::Engine(..)) => output.put(line.as_bytes()),
            (MemcacheReply::Foreign(foreign), _) => {
                output.put(foreign.answer());
                return self.close();
            }
            (MemcacheReply::Fault(fault), _) => {
                output.put(fault.0.as_bytes());
                return self.close();
            }
            (MemcacheReply::Refused(refusal), _) => {
                refused(refusal, output);
                return self.close();
            }
            (MemcacheReply::Confirmed, Given::Engine(Outcome::Count(count), _)) => {
                output.put(if *count > 0 { b"END\r\n" } else { b"ERROR\r\n" });
            }
            (MemcacheReply::Count, Given::Engine(Outcome::Count(count), _)) => {
                output.number(*count);
                output.put(CRLF);
            }
            (MemcacheReply::Version, _) => {
                output.put(b"VERSION ");
                output.put(self.shared.version.as_bytes());
                output.put(CRLF);
            }
            (MemcacheReply::Stats, Given::Server(server)) => {
                stats::write_server(server, &self.shared.version, output);
                return self.list(None, server);
            }
            (MemcacheReply::DumpStats(only), Given::Server(server)) => {
                return self.list(Some(only), server);
            }
            (MemcacheReply::Queues(listing), Given::Engine(Outcome::Stats(page), _)) => {
                return self.listed(listing, page, output);
            }
            (MemcacheReply::Config, Given::Host(Ok(text))) => {
                for line in text.lines() {
                    output.put(line.as_bytes());
                    output.put(CRLF);
                }
                output.put(b"END\r\n");
            }
            (MemcacheReply::Reloaded, Given::Host(Ok(_))) => output.put(b"Reloaded config.\r\n"),
            (MemcacheReply::Goodbye, Given::Host(Err(text))) => {
                server_error(text, output);
                return self.close();
            }
            (MemcacheReply::Goodbye, _) => return self.close(),
            (
                MemcacheReply::Stored { .. }
                | MemcacheReply::Value { .. }
                | MemcacheReply::Line(_)
                | MemcacheReply::Confirmed
                | MemcacheReply::Count
                | MemcacheReply::Stats
                | MemcacheReply::DumpStats(_)
                | MemcacheReply::Queues(_)
                | MemcacheReply::Config
                | MemcacheReply::Reloaded,
                given,
            ) => return self.unexpected(given, output),
        }
        Next::Done
    }

    fn say(&mut self, said: Said<'_>, output: &mut Output) -> Next {
        match (self.replies.pop_front(), said) {
            (Some(MemcacheReply::Stored { noreply: true }), _) => {}
            (_, Said::Line(text)) => {
                output.put(text.as_bytes());
                output.put(CRLF);
            }
            (_, Said::Message(bytes)) => {
                output.put(b"VALUE hook 0 ");
                output.number(bytes.len() as u64);
                output.put(CRLF);
                output.put(bytes);
                output.put(b"\r\nEND\r\n");
            }
            (_, Said::Refused(text)) => server_error(text, output),
        }
        Next::Done
    }

    fn streamed(&mut self, body: Result<LargeBody, Refusal>) {
        if let MemcacheState::Data(coming) = &mut self.state {
            coming.streamed(body);
        }
    }

    fn half_closed(&mut self) -> HalfClose {
        HalfClose::StopWaiting
    }
}
