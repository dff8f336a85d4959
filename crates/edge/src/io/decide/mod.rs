//! Decides the requests of a connection in order.

mod server;

use quintet_hooks::Decided as Hooked;
use quintet_host::{Access, Decided};
use quintet_types::{Command, LeaseOwner, Ms, Name, Outcome, Take};
use quintet_wire::{ClientRequest, ServerResponse};

use super::conn::{Conn, DueReply, Standing, Wait};
use super::counts::{Family, ProtocolCounts};
use super::hooked::{reply, who};
use super::operations::{administers, did_of, result_of};
use super::outbox::small_bytes;
use super::shared::Shared;
use super::thread::IoThread;
use crate::hooks::{ThreadHooks, not_loaded};

/// How the requests behind one that was decided go on.
enum Then {
    /// They are decided now.
    Next,
    /// They are decided when the replies before have left, which are long.
    Later,
    /// They wait for its reply, which comes later.
    Wait(Wait),
    /// Nothing of them is decided: the connection closes.
    Close,
}

/// The parts of a thread that decide the requests of one connection.
struct Deciding<'a> {
    shared: &'a Shared,
    conn: &'a mut Conn,
    protocol: &'a ProtocolCounts,
    hooks: &'a mut ThreadHooks,
    access: Access<'a>,
    now: Ms,
    replies: &'a mut Vec<DueReply>,
    /// Bytes of bodies in the replies.
    bytes: usize,
    /// A reply waits for the disk under every sync policy.
    wants_sync: &'a mut bool,
}

impl IoThread {
    /// Decides `self.turn.asks` in order, with the events of hooks around each where
    /// there are any, then writes their replies.
    pub(super) fn decide(&mut self, slot: u32) {
        // What was read in this turn may have been sent since it began.
        let now = self.shared.edge.core.clock.now();
        self.turn.now = now;
        let Some(conn) = self.conns.get_mut(slot) else {
            return;
        };
        let shared = &self.shared;
        let mut at = Deciding {
            shared,
            protocol: shared.protocol(conn.listener),
            conn,
            hooks: &mut self.hooks,
            access: Access::new(&shared.edge.core, now, &mut self.decisions.trail),
            now,
            replies: &mut self.turn.replies,
            bytes: 0,
            wants_sync: &mut self.decisions.wants_sync,
        };
        let mut asks = self.turn.asks.drain(..);
        loop {
            // Each arm writes its reply where it stays: requests and replies are long, and moved
            // at a cost.
            let then = match asks.next() {
                Some(ClientRequest::Engine(command) | ClientRequest::EngineAlone(command)) => {
                    at.command(command)
                }
                Some(ClientRequest::EngineOrClose(command)) => at.command_or_close(command),
                Some(ClientRequest::EngineSynced(command)) => at.command_synced(command),
                Some(ClientRequest::Own) => at.reply(DueReply::own()),
                Some(ClientRequest::Close) => at.close(),
                Some(ClientRequest::Unknown(line)) => at.unknown(&line),
                Some(ClientRequest::Worker(ask)) => at.worker(ask),
                Some(ClientRequest::Proof(met)) => at.prove(met),
                Some(ClientRequest::Login(login)) => at.log_in(&login),
                Some(ClientRequest::Host(ask)) => at.host(ask),
                None => break,
            };
            match then {
                Then::Next => continue,
                Then::Later => {}
                Then::Wait(wait) => at.conn.phase.wait(wait),
                Then::Close => break,
            }
            at.conn.inbox.pending.extend(asks.by_ref());
            break;
        }
        drop(asks);
        drop(at);
        self.encode(slot);
    }
}

impl Deciding<'_> {
    /// A command, with the events of hooks around it. As a function of its own it would be moved
    /// once more.
    #[inline(always)]
    fn command(&mut self, command: Command) -> Then {
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
        let lacks_hooks = self.hooks.are_lacking();
        match &mut self.hooks.runner {
            Some(runner) if !runner.state.ignores(&command) => {
                let who = who(self.conn, edge);
                // The hook asks the shards itself.
                self.access.release();
                let decided = runner.state.submit(&who, command);
                let did = runner.take_did();
                self.access.join(did.trail);
                if !matches!(decided, Hooked::Later) {
                    self.replies.push(reply(decided, did.required, undone));
                }
            }
            _ if lacks_hooks => self.replies.push(DueReply {
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
        if let ServerResponse::Engine(Outcome::Messages(messages), _) = &reply.response {
            self.bytes += small_bytes(messages);
        }
        match self.bytes > edge.limits.output_bytes_max {
            true => Then::Later,
            false => Then::Next,
        }
    }

    /// The same; the connection closes if the reply is an error.
    #[inline(never)]
    fn command_or_close(&mut self, command: Command) -> Then {
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
    #[inline(never)]
    fn command_synced(&mut self, command: Command) -> Then {
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
