//! Decides the requests of a connection in order.

use std::sync::Arc;

use quintet_host::{Access, Decided};
use quintet_types::{Command, Name};
use quintet_wire::{ClientRequest, HostRequest, ServerResponse};

use super::conn::{DueReply, Standing, Wait};
use super::counts::Family;
use super::hooked;
use super::mail::Mail;
use super::operations::{Administers, administers, did_of, result_of};
use super::thread::IoThread;
use super::turn::{bytes_in, is_undone};
use crate::edge::Edge;
use crate::hooks::not_loaded;

/// The reason may quote lines of the file, and so what is secret.
const NOT_RELOADED: &str =
    "not reloaded, the old settings stay: see the server's log for the reason";

impl IoThread {
    /// Decides `self.asks` in order, with the events of hooks around each where
    /// there are any, then writes their replies.
    pub(super) fn decide(&mut self, slot: u32, edge: &Arc<Edge>) {
        // What was read in this turn may have been sent since it began.
        self.now = edge.core.clock.now();
        let lacks_hooks = self.lacks_hooks();
        let Some(conn) = self.conns.get_mut(slot) else {
            return;
        };
        let hooks = &mut self.hooks;
        let protocol = &edge.threads[self.index].protocols[edge.listeners[conn.listener].tally];
        let mut access = Access::new(&edge.core, self.now, &mut self.trail);
        let mut bytes = 0;
        let mut asks = self.asks.drain(..);
        while let Some(ask) = asks.as_slice().first() {
            let or_close = matches!(ask, ClientRequest::EngineOrClose(_));
            let synced = matches!(ask, ClientRequest::EngineSynced(_));
            let mut family = Family::Other;
            let mut wait = None;
            // Each arm writes its reply where it stays: requests and replies are long, and moved
            // at a cost.
            match asks.next().expect("it is the first") {
                ClientRequest::Engine(command)
                | ClientRequest::EngineOrClose(command)
                | ClientRequest::EngineAlone(command)
                | ClientRequest::EngineSynced(command) => {
                    let (mut undone, mut in_line) = (false, 0);
                    if let Command::Take(take) = &command {
                        (undone, in_line) = (is_undone(take), take.bytes_in_line());
                    } else if let Command::Watch(take) = &command {
                        conn.standing = take.as_ref().map(|take| Standing {
                            leased: take.lease.is_some(),
                            bytes: take.bytes_in_line(),
                        });
                    }
                    let what = command.about();
                    let act = administers(&command, what);
                    let verb = what.verb;
                    protocol.command(verb);
                    access.is_for(verb);
                    family = Family::of(verb);
                    let before = self.replies.len();
                    match hooks {
                        Some(runner) if !runner.state.ignores(&command) => {
                            let reply =
                                hooked::submit(runner, conn, edge, command, undone, &mut access);
                            self.replies.extend(reply);
                        }
                        _ if lacks_hooks => self.replies.push(DueReply {
                            response: ServerResponse::Engine(not_loaded(), Name::default()),
                            ..DueReply::own()
                        }),
                        _ => {
                            if let Decided::Now(outcome, queue, required) =
                                access.submit(conn.caller, command)
                            {
                                let response = ServerResponse::Engine(outcome, queue);
                                self.replies.push(DueReply::of(response, required, undone));
                            }
                        }
                    }
                    let later = self.replies.len() == before;
                    match (act, self.replies.last().filter(|_| !later)) {
                        (Some(act), Some(reply)) if act.is_nothing(&reply.response) => {}
                        (Some(act), Some(reply)) => {
                            let did = did_of(&act, &reply.response);
                            edge.audit(conn, &act, result_of(&reply.response), did);
                        }
                        (Some(act), None) => conn.unfinished = Some(Box::new(act)),
                        (None, _) => {}
                    }
                    wait = later.then_some(Wait {
                        undone,
                        family,
                        in_line: true,
                        bytes: in_line,
                    });
                }
                ClientRequest::Login(login) => match edge.log_in_conn(self.index, conn, &login) {
                    Some(reply) => self.replies.push(reply),
                    None => wait = Some(Wait::default()),
                },
                ClientRequest::Host(ask @ HostRequest::Reload)
                    if edge.may_ask(&ask, conn.caller.principal) =>
                {
                    // Written down when it is known what came of it.
                    conn.unfinished = Some(Box::new(Administers::of_host(&ask)));
                    let client_id = conn.caller.client_id;
                    let mailbox = Arc::clone(&edge.mail[self.index]);
                    let notify = move |came: Result<Vec<String>, String>| {
                        let text = came
                            .map(|_| String::new())
                            .map_err(|_| NOT_RELOADED.to_owned());
                        mailbox.leave(Mail::Answer(client_id, text));
                    };
                    let by = Some(conn.caller.principal);
                    self.operator.reload(by, Box::new(notify));
                    wait = Some(Wait::default());
                }
                ClientRequest::Host(host) => self.replies.push(DueReply {
                    host: Some(host),
                    ..DueReply::own()
                }),
                ClientRequest::Proof(met) => {
                    let met = edge.prove(conn, met);
                    self.replies
                        .push(DueReply::at_once(ServerResponse::Login(met)));
                }
                ClientRequest::Worker(ask) => {
                    let state = edge.guests.worker(ask, self.now);
                    self.replies
                        .push(DueReply::at_once(ServerResponse::Worker(state)));
                }
                ClientRequest::Own => self.replies.push(DueReply::own()),
                ClientRequest::Unknown(line) => self.replies.push(match hooks {
                    Some(runner) => hooked::added(runner, conn, edge, &line, &mut access),
                    None => DueReply::own(),
                }),
                ClientRequest::Close => self.replies.push(DueReply {
                    closes: true,
                    ..DueReply::own()
                }),
            }
            if let Some(wait) = wait {
                conn.phase.wait(wait);
                conn.inbox.pending.extend(asks.by_ref());
                break;
            }
            let reply = self
                .replies
                .last_mut()
                .expect("each ask that does not wait has one");
            if synced {
                reply.required.durable = reply.required.written;
                self.wants_sync = true;
            }
            reply.family = family;
            reply.closes |= or_close && reply.is_command_error();
            if let ServerResponse::Engine(outcome, _) = &reply.response {
                bytes += bytes_in(outcome);
            }
            if reply.closes {
                break;
            }
            if bytes > edge.limits.output_bytes_max {
                conn.inbox.pending.extend(asks.by_ref());
                break;
            }
        }
        drop(asks);
        drop(access);
        self.encode(slot, edge);
    }
}
