//! The replies of memcached's binary protocol, one by one.

use quintet_types::{Body, CommandError, Outcome, StatsReply};

use super::answer::count_get;
use super::binary_reply::{BinaryReply, Head, Status, What};
use super::reply::{Listing, MemcacheReply, not_stored};
use super::{Count, Shared, stats};
use crate::output::Output;
use crate::owed::Owed;
use crate::session::{Env, HookReply, Next, ServerResponse, page};

impl BinaryReply {
    /// Writes it, or the first part of it.
    pub(super) fn write(
        self,
        response: &ServerResponse,
        (shared, env): (&Shared, &Env<'_>),
        owed: &mut Owed<MemcacheReply>,
        output: &mut Output,
    ) -> Next {
        let Self { head, what } = self;
        let refused = response.refused();
        match (what, response) {
            (What::Error(status, text), _) => head.say(status, text.as_bytes(), output),
            (What::Fault(status, text), _) => {
                head.say(status, text.as_bytes(), output);
                return Next::Close;
            }
            (What::Refused(command_error), _) => refuse(head, command_error, output),
            (What::Quit, _) => {
                done(head, output);
                return Next::Close;
            }
            // What comes behind it in the same request would rest on it.
            (What::Part, _) => {
                if let Some(command_error) = refused {
                    refuse(head, command_error, output);
                    return Next::Close;
                }
            }
            (What::Set, ServerResponse::Own) => {
                head.say(Status::TooLarge, b"item too large", output)
            }
            (_, _) if refused.is_some() => {
                refuse(head, refused.unwrap_or(CommandError::Unavailable), output);
                if head.errors_close() {
                    return Next::Close;
                }
            }
            (What::Get { peek, key }, ServerResponse::Engine(Outcome::Messages(messages), _)) => {
                count_get(peek, Count::Hit, env);
                let key = key.unwrap_or_default();
                for message in messages {
                    let flags = if shared.keep_flags { message.flags } else { 0 };
                    if !head.item(flags, &key, &message.body, output) {
                        head.say(Status::TooLarge, b"too long for this protocol", output);
                        return Next::Close;
                    }
                }
            }
            // What settles an open read fetches nothing.
            (What::Get { peek, .. }, ServerResponse::Engine(outcome, _)) => {
                count_get(peek || !matches!(outcome, Outcome::Empty), Count::Miss, env);
                if !head.is_quiet() {
                    head.say(Status::NotFound, b"Not found", output);
                }
            }
            (What::Set | What::Done, _) => done(head, output),
            (What::Version, _) => head.say(Status::Done, shared.version.as_bytes(), output),
            // The blank ends the name: libmemcached 1.0.18 reads on to the next zero byte, into
            // what its stack held before.
            (What::Mechanisms, _) => head.say(Status::Done, b"PLAIN ", output),
            (What::Login, ServerResponse::Login(Ok(()))) => {
                head.say(Status::Done, b"Authenticated", output);
            }
            (What::Login, ServerResponse::Login(Err(refused))) => {
                head.say(Status::Auth, refused.text().as_bytes(), output);
            }
            (What::Stats, ServerResponse::Server(server)) => {
                let mut lines = Output::new();
                stats::write_server(server, &shared.version, &mut lines);
                pairs(head, &lines, output);
                let log = (server.number("log_retired"), server.number("log_rotations"));
                return go_on(head, log, (0, 0), owed);
            }
            (What::Queues(log), ServerResponse::Engine(Outcome::Stats(page), _)) => {
                if let StatsReply::Queues(page) = &**page {
                    let listing = Listing { dump: None, log };
                    let mut lines = Output::new();
                    stats::write_queues(&page.queues, &listing, &mut lines);
                    pairs(head, &lines, output);
                    if let Some(from) = page.next {
                        return go_on(head, log, from, owed);
                    }
                }
                head.say(Status::Done, b"", output);
            }
            (What::Get { .. } | What::Login | What::Stats | What::Queues(_), response) => {
                let text = if let ServerResponse::Host(Err(text)) = response {
                    text.as_str()
                } else {
                    "unexpected answer"
                };
                head.say(Status::Temporary, text.as_bytes(), output);
                return Next::Close;
            }
        }
        Next::Done
    }

    /// Writes what a hook said in its place.
    pub(super) fn say(&self, hook_reply: HookReply<'_>, output: &mut Output) {
        let bytes = match hook_reply {
            HookReply::Line(text) => text.as_bytes(),
            HookReply::Message(bytes) => bytes,
            HookReply::Refused(text) | HookReply::Limited(text) => {
                return self.head.say(Status::Temporary, text.as_bytes(), output);
            }
        };
        if let What::Get { key, .. } = &self.what {
            let key = key.as_deref().unwrap_or_default();
            self.head.item(0, key, &Body::new(bytes), output);
        } else if !self.head.is_quiet() {
            self.head.say(Status::Done, bytes, output);
        }
    }
}

/// True if a reply tells its client no.
pub(super) fn is_no(reply: &[u8]) -> bool {
    let status = reply.get(6..8).unwrap_or_default();
    !matches!(status, [0, 0 | 1])
}

fn done(head: Head, output: &mut Output) {
    if !head.is_quiet() {
        head.say(Status::Done, b"", output);
    }
}

fn refuse(head: Head, command_error: CommandError, output: &mut Output) {
    let status = match (command_error, not_stored(command_error)) {
        (CommandError::HeldLimit, _) => Status::Invalid,
        (CommandError::NotPermitted, _) => Status::Auth,
        (CommandError::MessageTooLarge, _) => Status::TooLarge,
        (_, true) => Status::NotStored,
        (CommandError::NoMemory | CommandError::NoSpace, _) => Status::NoMemory,
        (_, false) => Status::Temporary,
    };
    head.say(status, command_error.text().as_bytes(), output);
}

fn go_on(head: Head, log: (u64, u64), from: (u8, u32), owed: &mut Owed<MemcacheReply>) -> Next {
    let what = What::Queues(log);
    let reply = MemcacheReply::binary_of(head, what);
    owed.again(reply, page(from))
}

/// Writes lines `STAT KEY VALUE`, each as a reply of its own.
fn pairs(head: Head, lines: &Output, output: &mut Output) {
    for line in lines.bytes().split(|byte| *byte == b'\n') {
        let line = line.trim_ascii_end();
        let Some(line) = line.strip_prefix(b"STAT ") else {
            continue;
        };
        let at = memchr::memchr(b' ', line).unwrap_or(line.len());
        let value = line.get(at + 1..).unwrap_or_default();
        head.pair(Status::Done, &line[..at], value, output);
    }
}
