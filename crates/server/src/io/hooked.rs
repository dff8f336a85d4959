//! Serving connections while there are hooks: the same turns, with each
//! request's events around it. Apart from the plain way, so that this costs
//! nothing where there are none.

use std::net::SocketAddr;
use std::sync::Arc;

use quintet_engine::{Command, Delivery, Outcome};
use quintet_hooks::{Decided as Hooked, Event, Reply as Said, Who};
use quintet_wire::{Ask, Given};

use super::conn::{Conn, Reply, Spoken};
use super::thread::IoThread;
use super::turn::{bytes_in, is_undone};
use crate::core::{Access, Decided, Need};
use crate::server::Server;

impl IoThread {
    /// Takes up hooks that have changed.
    #[inline]
    pub(super) fn renew_hooks(&mut self) {
        if self.server.hooks.version() != self.hooks_seen {
            self.renew_hooks_now();
        }
    }

    #[cold]
    fn renew_hooks_now(&mut self) {
        self.hooks_seen = self.server.hooks.version();
        let server = Arc::downgrade(&self.server);
        self.server.hooks.renew(&mut self.hooks, &server);
    }

    /// Decides `self.asks` in order, with hooks, and puts their replies into
    /// `self.replies`.
    pub(super) fn decide_hooked(&mut self, slot: u32, server: &Server) {
        let asks: Vec<Ask> = self.asks.drain(..).collect();
        let mut asks = asks.into_iter();
        let mut bytes = 0;
        while let Some(ask) = asks.next() {
            let or_close = matches!(ask, Ask::EngineOrClose(_));
            let synced = matches!(ask, Ask::EngineSynced(_));
            let mut reply = match ask {
                Ask::Engine(command)
                | Ask::EngineOrClose(command)
                | Ask::EngineAlone(command)
                | Ask::EngineSynced(command) => match self.submit_hooked(slot, command) {
                    Some(reply) => reply,
                    None => {
                        if let Some(conn) = self.conns.get_mut(slot) {
                            conn.pending.extend(asks);
                        }
                        return;
                    }
                },
                Ask::Unknown(line) => self.added(slot, &line),
                Ask::Host(host) => Reply {
                    host: Some(host),
                    ..Reply::own()
                },
                Ask::Own => Reply::own(),
                Ask::Close => Reply {
                    closes: true,
                    ..Reply::own()
                },
            };
            if synced {
                reply.need.durable = reply.need.written;
                self.wants_sync = true;
            }
            let refused = matches!(
                (&reply.given, &reply.said),
                (Given::Engine(Outcome::Refused(_), _), _) | (_, Some(_))
            );
            reply.closes |= or_close && refused;
            if let Given::Engine(outcome, _) = &reply.given {
                bytes += bytes_in(outcome);
            }
            let ends = reply.closes;
            self.replies.push(reply);
            if ends {
                return;
            }
            if bytes > server.limits.output_bytes_max {
                if let Some(conn) = self.conns.get_mut(slot) {
                    conn.pending.extend(asks);
                }
                return;
            }
        }
    }

    /// One command; `None`: it waits.
    fn submit_hooked(&mut self, slot: u32, command: Command) -> Option<Reply> {
        let conn = self.conns.get_mut(slot)?;
        let undone = matches!(&command, Command::Take(take) if is_undone(take));
        if let Command::Watch(take) = &command {
            conn.watching = take.is_some();
            conn.watch_leased = take.as_ref().is_some_and(|take| take.lease.is_some());
        }
        let (decided, need) = match &mut self.hooks {
            Some(runner) if !runner.state.ignores(&command) => {
                let who = who(conn, &self.server);
                let decided = runner.state.submit(&who, command);
                let did = runner.take_did();
                self.recorded = self.recorded.max(did.recorded);
                self.outgoing.extend(did.out);
                (decided, did.need)
            }
            _ => {
                let mut access = Access::new(
                    &self.server.core,
                    self.now,
                    &mut self.scratch_deliveries,
                    &mut self.outgoing,
                );
                let decided = access.submit(conn.caller, command);
                self.recorded = self.recorded.max(access.finish());
                match decided {
                    Decided::Now(outcome, name, need) => (Hooked::Now(outcome, name), need),
                    Decided::Later => (Hooked::Later, Need::default()),
                }
            }
        };
        if matches!(decided, Hooked::Later) {
            conn.waiting = Some(undone);
            return None;
        }
        Some(reply(decided, need, undone))
    }

    /// A line that no voice knows.
    fn added(&mut self, slot: u32, line: &[u8]) -> Reply {
        let (Some(runner), Some(conn)) = (&mut self.hooks, self.conns.get_mut(slot)) else {
            return Reply::own();
        };
        let who = who(conn, &self.server);
        let said = runner.state.added(&who, line);
        let did = runner.take_did();
        self.recorded = self.recorded.max(did.recorded);
        self.outgoing.extend(did.out);
        let Some(said) = said else {
            return Reply::own();
        };
        Reply {
            said: Some(Box::new(match said {
                Said::Done => Spoken::Line("OK".to_owned()),
                Said::Text(bytes) => Spoken::of(bytes),
                Said::Refused(text) => Spoken::refused(&text),
            })),
            need: did.need,
            ..Reply::own()
        }
    }

    /// What a waiting or standing take brought, after the hooks have seen it.
    /// `None`: nothing is to be told, or it waits again.
    pub(super) fn arrived(
        &mut self,
        slot: u32,
        delivery: Delivery,
        need: Need,
    ) -> Option<(Hooked, Need)> {
        let conn = self.conns.get_mut(slot)?;
        let outcome = delivery.outcome.of_command();
        let Some(runner) = &mut self.hooks else {
            return Some((Hooked::Now(outcome, delivery.queue), need));
        };
        if !runner.state.awaits(delivery.to, delivery.standing) {
            return Some((Hooked::Now(outcome, delivery.queue), need));
        }
        let who = who(conn, &self.server);
        let decided = runner
            .state
            .arrived(&who, delivery.standing, outcome, delivery.queue);
        let did = runner.take_did();
        self.recorded = self.recorded.max(did.recorded);
        self.outgoing.extend(did.out);
        Some((decided, need.and(did.need)))
    }

    /// `connect`: with what text a new connection is refused.
    pub(super) fn greet(&mut self, slot: u32) {
        let (Some(runner), Some(conn)) = (&mut self.hooks, self.conns.get_mut(slot)) else {
            return;
        };
        if !runner.state.events().has(Event::Connect) {
            return;
        }
        let who = who(conn, &self.server);
        let refused = runner.state.connect(&who);
        let did = runner.take_did();
        self.recorded = self.recorded.max(did.recorded);
        self.outgoing.extend(did.out);
        if let Some(text) = refused {
            let said = Spoken::refused(&text);
            conn.session.say(said.as_said(), &mut conn.out.output);
            conn.out.end_reply(0, did.need, None);
            conn.close_after_flush();
            self.mark_dirty(slot);
        }
    }

    /// `disconnect`.
    pub(super) fn part(&mut self, conn: &mut Conn) {
        let Some(runner) = &mut self.hooks else {
            return;
        };
        runner.state.forget(conn.caller.party);
        if runner.state.events().has(Event::Disconnect) {
            let who = who(conn, &self.server);
            runner.state.notify(&who, Event::Disconnect);
            let did = runner.take_did();
            self.recorded = self.recorded.max(did.recorded);
            self.outgoing.extend(did.out);
        }
    }
}

/// A reply with what was decided.
pub(super) fn reply(decided: Hooked, need: Need, undone: bool) -> Reply {
    match decided {
        Hooked::Now(outcome, name) => Reply {
            given: Given::Engine(outcome, name),
            need,
            undone,
            ..Reply::own()
        },
        Hooked::Denied(text) => Reply {
            said: Some(Box::new(Spoken::refused(&text))),
            need,
            ..Reply::own()
        },
        Hooked::Answer(bytes) => Reply {
            said: Some(Box::new(Spoken::of(bytes))),
            need,
            ..Reply::own()
        },
        // Asked for only where nothing waits.
        Hooked::Later => Reply::own(),
    }
}

/// Who is behind a connection, made on first use.
fn who(conn: &mut Conn, server: &Server) -> Arc<Who> {
    let who = conn.who.get_or_insert_with(|| {
        let peer = conn.stream.peer();
        Arc::new(Who {
            caller: conn.caller,
            connection: conn.caller.party.0,
            voice: server.listeners[conn.listener].voice,
            peer: peer
                .as_ref()
                .map_or_else(String::new, SocketAddr::to_string)
                .into(),
            user: Default::default(),
        })
    });
    Arc::clone(who)
}
