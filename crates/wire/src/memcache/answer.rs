//! The replies, one by one.

use quintet_types::{CommandError, Handed, Name, Outcome, ServerStats, StatsReply};

use super::meta_reply::{MetaReply, MetaTo};
use super::reply::{Listing, MemcacheReply, Monitor, not_stored, refused, server_error};
use super::{Count, Shared, stats};
use crate::output::Output;
use crate::owed::Owed;
use crate::session::{Env, Next, ServerResponse, page};

pub(super) const END: &[u8] = b"END\r\n";

impl MemcacheReply {
    /// Writes it, or the first part of it.
    pub(super) fn write(
        self,
        response: &ServerResponse,
        (shared, env): (&Shared, &Env<'_>),
        owed: &mut Owed<Self>,
        output: &mut Output,
    ) -> Next {
        let response = no_queue_no_matter(response);
        match (self, response) {
            (MemcacheReply::Stored { noreply }, ServerResponse::Engine(Outcome::Put { .. }, _)) => {
                if !noreply {
                    output.put(b"STORED\r\n");
                }
            }
            (MemcacheReply::Stored { noreply }, response) if dropped(response) => {
                if !noreply {
                    output.put(b"NOT_STORED\r\n");
                }
            }
            (MemcacheReply::Binary(reply), response) => {
                return reply.write(response, (shared, env), owed, output);
            }
            (MemcacheReply::Meta(meta), response) => {
                return answer_meta(*meta, response, (shared, env), output);
            }
            (
                MemcacheReply::Value { peek },
                ServerResponse::Engine(Outcome::Messages(messages), queue),
            ) => {
                count_get(peek, Count::Hit, env);
                messages_of(messages, queue, shared, output);
            }
            (MemcacheReply::Value { peek }, ServerResponse::Engine(Outcome::Empty, _)) => {
                count_get(peek, Count::Miss, env);
                output.put(END);
            }
            (MemcacheReply::Monitor(monitor), response) => {
                return monitored(monitor, response, (shared, env), owed, output);
            }
            (MemcacheReply::Line(line), ServerResponse::Own) => output.put(line.as_bytes()),
            (
                MemcacheReply::Silent | MemcacheReply::Line(_),
                response @ ServerResponse::Engine(Outcome::Refused(_), _),
            ) => {
                return unexpected(response, output);
            }
            (MemcacheReply::Silent, _) => {}
            (MemcacheReply::Line(line), ServerResponse::Engine(..)) => output.put(line.as_bytes()),
            (MemcacheReply::Fault(fault), _) => {
                output.put(fault.0.as_bytes());
                return Next::Close;
            }
            (MemcacheReply::Refused(command_error), _) => {
                refused(command_error, output);
                return Next::Close;
            }
            (MemcacheReply::Confirmed, ServerResponse::Engine(Outcome::Count(count), _)) => {
                output.put(if *count > 0 { END } else { b"ERROR\r\n" });
            }
            (MemcacheReply::Count, ServerResponse::Engine(Outcome::Count(count), _)) => {
                output.number(*count);
                output.put(b"\r\n");
            }
            (MemcacheReply::Version, _) => {
                output.put(b"VERSION ");
                output.line(shared.version.as_bytes());
            }
            (MemcacheReply::Stats, ServerResponse::Server(server)) => {
                stats::write_server(server, &shared.version, output);
                return list(None, server, owed);
            }
            (MemcacheReply::DumpStats(only), ServerResponse::Server(server)) => {
                return list(Some(only), server, owed);
            }
            (MemcacheReply::Queues(listing), ServerResponse::Engine(Outcome::Stats(page), _)) => {
                return listed(listing, page, owed, output);
            }
            (MemcacheReply::Config, ServerResponse::Host(Ok(text))) => {
                for line in text.lines() {
                    output.line(line.as_bytes());
                }
                output.put(END);
            }
            (MemcacheReply::LoggedIn, ServerResponse::Login(Ok(()))) => output.put(b"STORED\r\n"),
            (MemcacheReply::LoggedIn, ServerResponse::Login(Err(refused))) => {
                output.put(b"CLIENT_ERROR ");
                output.line(refused.text().as_bytes());
            }
            (MemcacheReply::Become(status), ServerResponse::Host(Ok(_))) => {
                shared.set_status(status);
                output.put(END);
            }
            (MemcacheReply::Reloaded, ServerResponse::Host(Ok(_))) => {
                output.put(b"Reloaded config.\r\n")
            }
            (MemcacheReply::Goodbye, ServerResponse::Host(Err(text))) => {
                server_error(text, output);
                return Next::Close;
            }
            (MemcacheReply::Goodbye, _) => return Next::Close,
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
                | MemcacheReply::LoggedIn
                | MemcacheReply::Become(_)
                | MemcacheReply::Reloaded,
                response,
            ) => return unexpected(response, output),
        }
        Next::Done
    }
}

/// Counts a get that was answered; what only looks is none.
pub(super) fn count_get(peek: bool, count: Count, env: &Env<'_>) {
    if !peek {
        env.tally.bump(count as usize);
    }
}

/// True if an item was not stored for its own sake: what it is answered with
/// leaves the connection open.
fn dropped(response: &ServerResponse) -> bool {
    matches!(response, ServerResponse::Worker(_) | ServerResponse::Own)
        || response.refused().is_some_and(not_stored)
}

/// The reply to a meta command.
fn answer_meta(
    meta: MetaReply,
    response: &ServerResponse,
    (shared, env): (&Shared, &Env<'_>),
    output: &mut Output,
) -> Next {
    match (&meta.to, response) {
        (MetaTo::Get { peek, value }, ServerResponse::Engine(Outcome::Messages(messages), _)) => {
            count_get(*peek, Count::Hit, env);
            for message in messages {
                let flags = if shared.keep_flags { message.flags } else { 0 };
                if *value {
                    meta.value(flags, message.body.len(), output);
                    output.body(&message.body);
                    output.put(b"\r\n");
                } else {
                    meta.head("HD", Some((flags, message.body.len())), output);
                }
            }
        }
        (MetaTo::Get { peek, .. }, ServerResponse::Engine(Outcome::Empty, _)) => {
            count_get(*peek, Count::Miss, env);
            meta.unless_quiet("EN", None, output);
        }
        // What settles an open read fetches nothing.
        (MetaTo::Get { .. }, ServerResponse::Engine(Outcome::Count(_), _)) => {
            meta.unless_quiet("EN", None, output);
        }
        (MetaTo::Set { flags, len }, ServerResponse::Engine(Outcome::Put { .. }, _)) => {
            meta.unless_quiet("HD", Some((*flags, *len)), output);
        }
        (MetaTo::Set { .. }, response) if dropped(response) => meta.head("NS", None, output),
        (MetaTo::Delete, ServerResponse::Engine(Outcome::Done | Outcome::Count(_), _)) => {
            meta.unless_quiet("HD", None, output);
        }
        (MetaTo::Describe(key), ServerResponse::Engine(Outcome::Stats(stats), _)) => {
            let StatsReply::Queue(queue) = &**stats else {
                return unexpected(response, output);
            };
            output.put(b"ME ");
            output.put(key);
            stats::write_described(queue, output);
        }
        (MetaTo::Describe(_), ServerResponse::Engine(Outcome::Count(_), _)) => {
            output.put(b"EN\r\n")
        }
        (MetaTo::Login, ServerResponse::Login(Ok(()))) => meta.unless_quiet("HD", None, output),
        (MetaTo::Login, ServerResponse::Login(Err(refused))) => {
            output.put(b"CLIENT_ERROR ");
            output.line(refused.text().as_bytes());
        }
        (
            MetaTo::Get { .. }
            | MetaTo::Set { .. }
            | MetaTo::Delete
            | MetaTo::Describe(_)
            | MetaTo::Login,
            response,
        ) => return unexpected(response, output),
    }
    Next::Done
}

fn messages_of(handed: &Handed, queue: &Name, shared: &Shared, output: &mut Output) {
    for message in handed {
        output.put(b"VALUE ");
        output.put(queue.as_bytes());
        output.put(b" ");
        let flags = if shared.keep_flags { message.flags } else { 0 };
        output.number(u64::from(flags));
        output.put(b" ");
        output.block(&message.body);
    }
    output.put(END);
}

fn monitored(
    mut monitor: Box<Monitor>,
    response: &ServerResponse,
    (shared, env): (&Shared, &Env<'_>),
    owed: &mut Owed<MemcacheReply>,
    output: &mut Output,
) -> Next {
    if let ServerResponse::Engine(Outcome::Messages(messages), queue) = response {
        messages_of(messages, queue, shared, output);
        monitor.left = monitor.left.saturating_sub(1);
        if monitor.left > 0 && env.now < monitor.until {
            let take = monitor.take(shared);
            return owed.again(MemcacheReply::Monitor(monitor), take);
        }
    } else if !matches!(
        response.outcome(),
        // As many are open as may be: the client is to confirm some.
        Some(Outcome::Empty | Outcome::Refused(CommandError::HeldLimit))
    ) {
        return unexpected(response, output);
    }
    output.put(END);
    Next::Done
}

/// Goes on with the numbers of queues.
fn list(dump: Option<Box<[Name]>>, server: &ServerStats, owed: &mut Owed<MemcacheReply>) -> Next {
    let log = (server.number("log_retired"), server.number("log_rotations"));
    let listing = Box::new(Listing { dump, log });
    owed.again(MemcacheReply::Queues(listing), page((0, 0)))
}

fn listed(
    listing: Box<Listing>,
    reply: &StatsReply,
    owed: &mut Owed<MemcacheReply>,
    output: &mut Output,
) -> Next {
    if let StatsReply::Queues(found) = reply {
        stats::write_queues(&found.queues, &listing, output);
        if let Some(from) = found.next {
            return owed.again(MemcacheReply::Queues(listing), page(from));
        }
    }
    output.put(END);
    Next::Done
}

/// An error, or an answer that does not fit the question.
fn unexpected(response: &ServerResponse, output: &mut Output) -> Next {
    if let Some(command_error) = response.refused() {
        refused(command_error, output);
    } else if let ServerResponse::Host(Err(text)) = response {
        server_error(text, output);
    } else {
        server_error("unexpected answer", output);
    }
    Next::Close
}

/// To a queue that does not exist nothing can be done, and nothing need be.
fn no_queue_no_matter(response: &ServerResponse) -> &ServerResponse {
    static NOTHING_DONE: std::sync::LazyLock<ServerResponse> =
        std::sync::LazyLock::new(|| ServerResponse::Engine(Outcome::Count(0), Name::default()));
    match response.refused() {
        Some(CommandError::QueueNotFound) => &NOTHING_DONE,
        Some(_) | None => response,
    }
}
