//! Requests to the server around the engine.

use std::sync::Arc;

use quintet_hooks::HookReply;
use quintet_wire::{HostRequest, Login, ServerResponse, WorkerRequest};

use super::{Deciding, Then};
use crate::auth::{Begun, Comes};
use crate::io::conn::{DueReply, Spoken, Wait};
use crate::io::hooked::who;
use crate::io::login::address;
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
        let Some(runner) = &mut self.hooks.runner else {
            return self.reply(DueReply::own());
        };
        let who = who(self.conn, &self.shared.edge);
        self.access.release();
        let hook_reply = runner.state.added(&who, line);
        let did = runner.take_did();
        self.access.join(did.trail);
        let spoken = match hook_reply {
            None => return self.reply(DueReply::own()),
            Some(HookReply::Done) => Spoken::Line("OK".to_owned()),
            Some(HookReply::Text(bytes)) => Spoken::of(bytes),
            Some(HookReply::Refused(text)) => Spoken::refused(&text),
        };
        self.reply(DueReply::said(spoken, did.required))
    }

    /// A request to the table of workers.
    pub(super) fn worker(&mut self, ask: WorkerRequest) -> Then {
        let state = self.shared.edge.guests.worker(ask, self.now);
        self.reply(DueReply::at_once(ServerResponse::Worker(state)))
    }

    /// The client has shown whether it knows its listener's password.
    pub(super) fn prove(&mut self, met: bool) -> Then {
        let edge = &self.shared.edge;
        let protocol = edge.listeners[self.conn.listener].protocol;
        let met = edge.security.proved(protocol, address(self.conn), met);
        self.reply(DueReply::at_once(ServerResponse::Login(met)))
    }

    /// The client says who it is.
    pub(super) fn log_in(&mut self, login: &Login) -> Then {
        let (edge, client_id) = (&self.shared.edge, self.conn.caller.client_id);
        let mailbox = Arc::clone(self.shared.mailbox());
        let notify = move |login_result| mailbox.leave(Mail::Login(client_id, login_result));
        let comes = Comes {
            name: &login.name,
            secret: &login.secret,
            address: address(self.conn),
            ..Comes::default()
        };
        match edge.security.begin_login(&comes, notify) {
            Begun::Now(login_result) => {
                let reply = self.conn.becomes(login_result, edge);
                self.reply(reply)
            }
            Begun::Later => Then::Wait(Wait::default()),
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
        let (caller, mailbox) = (self.conn.caller, Arc::clone(self.shared.mailbox()));
        let notify = move |came: Result<Vec<String>, String>| {
            let text = came
                .map(|_| String::new())
                .map_err(|_| NOT_RELOADED.to_owned());
            mailbox.leave(Mail::Answer(caller.client_id, text));
        };
        let by = Some(caller.principal);
        self.shared.operator.reload(by, Box::new(notify));
        Then::Wait(Wait::default())
    }
}
