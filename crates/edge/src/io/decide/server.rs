//! Requests to the server around the engine.

use std::sync::Arc;

use quintet_wire::{HostRequest, Login, ServerResponse, WorkerRequest};

use super::{Deciding, Then};
use crate::io::conn::{DueReply, Wait};
use crate::io::hooked;
use crate::io::mail::Mail;
use crate::io::operations::Administers;

/// The reason may quote lines of the file, and so what is secret.
const NOT_RELOADED: &str =
    "not reloaded, the old settings stay: see the server's log for the reason";

impl Deciding<'_> {
    pub(super) fn reply(&mut self, reply: DueReply) -> Then {
        self.replies.push(reply);
        Then::Next
    }

    /// The session's last reply, behind which the connection closes.
    pub(super) fn close(&mut self) -> Then {
        self.replies.push(DueReply {
            closes: true,
            ..DueReply::own()
        });
        Then::Close
    }

    /// A line that the protocol does not know, and perhaps a hook.
    pub(super) fn unknown(&mut self, line: &[u8]) -> Then {
        let reply = match &mut *self.hooks {
            Some(runner) => {
                let (conn, access) = (&mut *self.conn, &mut self.access);
                hooked::added(runner, conn, &self.shared.edge, line, access)
            }
            None => DueReply::own(),
        };
        self.reply(reply)
    }

    /// A request to the table of workers.
    pub(super) fn worker(&mut self, ask: WorkerRequest) -> Then {
        let state = self.shared.edge.guests.worker(ask, self.now);
        self.reply(DueReply::at_once(ServerResponse::Worker(state)))
    }

    /// The client has shown whether it knows its listener's password.
    pub(super) fn prove(&mut self, met: bool) -> Then {
        let met = self.shared.edge.prove(self.conn, met);
        self.reply(DueReply::at_once(ServerResponse::Login(met)))
    }

    /// The client says who it is.
    pub(super) fn log_in(&mut self, login: &Login) -> Then {
        let (edge, thread) = (&self.shared.edge, self.shared.index);
        match edge.log_in_conn(thread, self.conn, login) {
            Some(reply) => self.reply(reply),
            None => Then::Wait(Wait::default()),
        }
    }

    /// A request to the server, answered when its reply is written; a reload that is permitted is
    /// answered when it is over.
    pub(super) fn host(&mut self, ask: HostRequest) -> Then {
        let principal = self.conn.caller.principal;
        if ask == HostRequest::Reload && self.shared.edge.may_ask(&ask, principal) {
            return self.reload(&ask);
        }
        self.reply(DueReply {
            host: Some(ask),
            ..DueReply::own()
        })
    }

    fn reload(&mut self, ask: &HostRequest) -> Then {
        // Written down when it is known what came of it.
        self.conn.unfinished = Some(Box::new(Administers::of_host(ask)));
        let client_id = self.conn.caller.client_id;
        let mailbox = Arc::clone(self.shared.mailbox());
        let notify = move |came: Result<Vec<String>, String>| {
            let text = came
                .map(|_| String::new())
                .map_err(|_| NOT_RELOADED.to_owned());
            mailbox.leave(Mail::Answer(client_id, text));
        };
        let by = Some(self.conn.caller.principal);
        self.shared.operator.reload(by, Box::new(notify));
        Then::Wait(Wait::default())
    }
}
