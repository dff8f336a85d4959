//! Replies on their way to the outbox of their connection.

use quintet_client::Did;
use quintet_types::Outcome;
use quintet_wire::{ClientRequest, Next, ServerResponse};

use super::counts::Replies;
use super::operations::{Administers, result_of};
use super::thread::IoThread;

impl IoThread {
    /// Writes the replies in `self.turn.replies` to the connection's outbox.
    pub(super) fn encode(&mut self, slot: u32) {
        let Some(conn) = self.conns.get_mut(slot) else {
            return;
        };
        let (edge, read) = (&self.shared.edge, self.turn.read_at());
        let listener = &edge.listeners[conn.listener];
        let protocol = self.shared.protocol(conn.listener);
        let env = protocol.env(self.turn.now);
        let mut lost = Vec::new();
        let mut wrote = false;
        for reply in &mut self.turn.replies {
            if conn.phase.closes() {
                // Decided, but its reply has no place behind one that closes.
                lost.extend(reply.take_undone().into_iter().flatten());
                continue;
            }
            if let Some(ask) = reply.host.take() {
                let act = Administers::of_host(&ask);
                let operator = &*self.shared.operator;
                reply.response = edge.answer(&ask, operator, listener, conn.caller.principal);
                if act.operation.is_recorded() {
                    edge.audit(conn, &act, result_of(&reply.response), Did::default());
                }
            }
            if let ServerResponse::Engine(Outcome::Refused(command_error), _) = &reply.response {
                protocol.refused(*command_error);
            }
            let start = conn.out.output.len();
            let mut closes = reply.closes;
            let output = &mut conn.out.output;
            let next = match &reply.hook_reply {
                Some(hook_reply) => conn.session.say(hook_reply.as_hook_reply(), output),
                None => conn.session.encode(&reply.response, &env, output),
            };
            match next {
                Next::Done => {}
                Next::Again(command) => {
                    // The session counts what it holds for it.
                    conn.inbox.pending_bytes = 0;
                    let command = ClientRequest::EngineAlone(*command);
                    conn.inbox.pending.push_front(command);
                }
                Next::Noted(operation, what, result, messages) => {
                    let act = Administers::new(operation, what.into());
                    edge.audit(conn, &act, result, Did::to(messages));
                }
                Next::Close => closes = true,
            }
            if tracing::enabled!(tracing::Level::DEBUG) {
                conn.report_refused(listener.protocol, start);
            }
            let undone = reply.take_undone();
            let replies = Replies::one(read, reply.family);
            conn.out.end_reply(start, reply.required, undone, replies);
            wrote = true;
            if closes {
                conn.close_after_flush();
            }
        }
        self.turn.replies.clear();
        let caller = conn.caller;
        if wrote {
            self.due.mark_dirty(slot, conn);
        }
        self.restore(caller, lost);
    }
}
