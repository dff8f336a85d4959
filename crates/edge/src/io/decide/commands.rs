//! Commands to the engine.

use quintet_host::Decided;
use quintet_types::{Command, LeaseOwner, Name, Outcome, Take};
use quintet_wire::ServerResponse;

use super::{Deciding, Then};
use crate::hooks::not_loaded;
use crate::io::conn::{DueReply, Standing, Wait};
use crate::io::counts::Family;
use crate::io::hooked;
use crate::io::operations::{administers, did_of, result_of};
use crate::io::outbox::small_bytes;

impl Deciding<'_> {
    /// A command, with the events of hooks around it.
    #[inline]
    pub(super) fn command(&mut self, command: Command) -> Then {
        let (mut undone, mut in_line) = (false, 0);
        if let Command::Take(take) = &command {
            (undone, in_line) = (is_undone(take), take.bytes_in_line());
        } else if let Command::Watch(take) = &command {
            self.conn.standing = take.as_ref().map(|take| Standing {
                leased: take.lease.is_some(),
                bytes: take.bytes_in_line(),
            });
        }
        let edge = &self.shared.edge;
        let what = command.about();
        let act = administers(&command, what);
        let verb = what.verb;
        self.protocol.command(verb);
        self.access.is_for(verb);
        let family = Family::of(verb);
        let before = self.replies.len();
        match &mut *self.hooks {
            Some(runner) if !runner.state.ignores(&command) => {
                let (conn, access) = (&mut *self.conn, &mut self.access);
                let reply = hooked::submit(runner, conn, edge, command, undone, access);
                self.replies.extend(reply);
            }
            _ if self.lacks_hooks => self.replies.push(DueReply {
                response: ServerResponse::Engine(not_loaded(), Name::default()),
                ..DueReply::own()
            }),
            _ => {
                if let Decided::Now(outcome, queue, required) =
                    self.access.submit(self.conn.caller, command)
                {
                    let response = ServerResponse::Engine(outcome, queue);
                    self.replies.push(DueReply::of(response, required, undone));
                }
            }
        }
        let Some(reply) = self.replies.get_mut(before) else {
            if let Some(act) = act {
                self.conn.unfinished = Some(Box::new(act));
            }
            return Then::Wait(Wait {
                undone,
                family,
                in_line: true,
                bytes: in_line,
            });
        };
        reply.family = family;
        if let Some(act) = act
            && !act.is_nothing(&reply.response)
        {
            let did = did_of(&act, &reply.response);
            edge.audit(self.conn, &act, result_of(&reply.response), did);
        }
        if let ServerResponse::Engine(outcome, _) = &reply.response {
            self.bytes += bytes_in(outcome);
        }
        match self.bytes > edge.limits.output_bytes_max {
            true => Then::Later,
            false => Then::Next,
        }
    }

    /// The same; the connection closes if the reply is an error.
    pub(super) fn command_or_close(&mut self, command: Command) -> Then {
        let then = self.command(command);
        if !matches!(then, Then::Wait(_))
            && let Some(reply) = self.replies.last_mut()
            && reply.is_command_error()
        {
            reply.closes = true;
            return Then::Close;
        }
        then
    }

    /// The same; the reply waits for the disk under every sync policy.
    pub(super) fn command_synced(&mut self, command: Command) -> Then {
        let then = self.command(command);
        if !matches!(then, Then::Wait(_))
            && let Some(reply) = self.replies.last_mut()
        {
            reply.required.durable = reply.required.written;
            *self.wants_sync = true;
        }
        then
    }
}

/// True if what the take gets goes back when its reply never begins to leave:
/// it was removed, or its lease does not end with the connection.
fn is_undone(take: &Take) -> bool {
    !take.peek
        && take.lease.is_none_or(|lease| match lease.owner {
            LeaseOwner::Time | LeaseOwner::TimeElseConnection => true,
            LeaseOwner::Connection | LeaseOwner::Process => false,
        })
}

/// Bytes of the bodies in an outcome that are copied to the output.
fn bytes_in(outcome: &Outcome) -> usize {
    let Outcome::Messages(messages) = outcome else {
        return 0;
    };
    small_bytes(messages)
}
