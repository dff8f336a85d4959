//! Replies, outcomes of takes that waited and messages of subscriptions, on their way to the
//! outboxes of their connections.

use quintet_client::Did;
use quintet_hooks::Decided as Hooked;
use quintet_host::{ClientKey, Required};
use quintet_types::{Caller, Delivery, Message, Outcome, State};
use quintet_wire::{ClientRequest, Next, ServerResponse};

use super::conn::DueReply;
use super::counts::{Family, Read, Replies};
use super::hooked::reply;
use super::mail::Mail;
use super::operations::{Administers, did_of, result_of};
use super::thread::IoThread;
use crate::edge::Edge;

/// Deliveries to own connections in one turn.
const LOCAL_DELIVERIES: usize = 1024;

impl IoThread {
    /// Writes the replies in `self.turn.replies` to the connection's outbox.
    pub(super) fn encode(&mut self, slot: u32) {
        let Some(conn) = self.conns.get_mut(slot) else {
            return;
        };
        let read = Read::at(self.turn.instant, self.turn.start);
        let edge = &self.shared.edge;
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

    /// Delivers what this thread's own decisions have brought to its own connections.
    pub(super) fn deliver_local(&mut self) {
        for _ in 0..LOCAL_DELIVERIES {
            let Some((delivery, required)) = self.decisions.next_local(self.shared.index) else {
                return;
            };
            self.deliver(delivery, required);
        }
    }

    /// A take that waited has come to an end.
    pub(super) fn deliver(&mut self, delivery: Delivery, required: Required) {
        let Some(slot) = self.conns.slot_of(ClientKey::of(delivery.to)) else {
            self.give_back(delivery);
            return;
        };
        if delivery.claimed {
            // A wait over several shards stands in line nowhere any more.
            self.with_access(|access| access.leave_lines(delivery.to));
        }
        if !self.may_be_handed(slot, &delivery) {
            self.give_back(delivery);
            self.close(slot);
        } else if delivery.standing {
            self.push(slot, delivery, required);
        } else {
            self.answer_wait(slot, delivery, required);
            self.serve(slot);
        }
    }

    fn give_back(&mut self, delivery: Delivery) {
        if let Some((caller, messages)) = late(delivery) {
            self.restore(caller, messages);
        }
    }

    /// The take a connection waited for has an outcome.
    fn answer_wait(&mut self, slot: u32, delivery: Delivery, required: Required) {
        let Some(conn) = self.conns.get_mut(slot) else {
            return;
        };
        let Some(wait) = conn.phase.end_wait() else {
            // A step of a hook's that was put off, and nobody waits for.
            self.give_back(delivery);
            return;
        };
        // It was not idle while it waited.
        conn.active = self.turn.instant;
        // What became of this wait says nothing about the next one.
        conn.half_close = None;
        match self.arrived(slot, delivery, required) {
            Some((Hooked::Later, _)) => {
                if let Some(conn) = self.conns.get_mut(slot) {
                    conn.phase.wait(wait);
                }
            }
            Some((decided, required)) => {
                let reply = DueReply {
                    family: wait.family,
                    ..reply(decided, required, wait.undone)
                };
                if let Some(conn) = self.conns.get_mut(slot)
                    && let Some(act) = conn.unfinished.take()
                {
                    let did = did_of(&act, &reply.response);
                    self.shared
                        .edge
                        .audit(conn, &act, result_of(&reply.response), did);
                }
                self.turn.replies.push(reply);
                self.encode(slot);
            }
            None => {}
        }
    }

    /// Messages for a connection's subscription.
    fn push(&mut self, slot: u32, delivery: Delivery, required: Required) {
        let Some(conn) = self.conns.get_mut(slot) else {
            return;
        };
        let standing = conn.standing.take();
        if conn.phase.closes() {
            self.give_back(delivery);
            return;
        }
        let leased = standing.is_some_and(|standing| standing.leased);
        let arrived = self.arrived(slot, delivery, required);
        let Some((Hooked::Now(outcome @ Outcome::Messages(_), queue), required)) = arrived else {
            // The hooks have kept them, and stand in line again for it.
            if let Some(conn) = self.conns.get_mut(slot) {
                conn.standing = standing;
            }
            return;
        };
        let Some(conn) = self.conns.get_mut(slot) else {
            return;
        };
        let env = self.shared.protocol(conn.listener).env(self.turn.now);
        let start = conn.out.output.len();
        let undone = !leased || is_removed(&outcome);
        let response = ServerResponse::Engine(outcome, queue);
        let mut reply = DueReply::of(response, required, undone);
        let output = &mut conn.out.output;
        let next = conn.session.deliver(&reply.response, &env, output);
        let read = Read::at(self.turn.instant, self.turn.start);
        let pushed = Replies::one(read, Family::Take);
        conn.out
            .end_reply(start, required, reply.take_undone(), pushed);
        match next {
            Next::Done => {}
            Next::Again(command) => conn
                .inbox
                .pending
                .push_back(ClientRequest::Engine(*command)),
            Next::Noted(operation, what, result, messages) => {
                let act = Administers::new(operation, what.into());
                self.shared
                    .edge
                    .audit(conn, &act, result, Did::to(messages));
            }
            Next::Close => conn.close_after_flush(),
        }
        self.due.mark_dirty(slot, conn);
        self.serve(slot);
    }
}

impl Edge {
    /// Gives back what came for I/O threads that have ended meanwhile.
    pub fn give_back_late(&self) {
        let mut mail = Vec::new();
        for mailbox in &self.mail {
            mailbox.collect(&mut mail);
            for item in mail.drain(..) {
                if let Mail::Delivery(delivery, _) = item
                    && let Some((caller, messages)) = late(delivery)
                {
                    self.core
                        .with_access(|access| access.restore(caller, messages));
                }
            }
        }
    }
}

/// The client and the messages of a delivery that came too late: leases of the connection end with
/// it, the rest is undone.
fn late(delivery: Delivery) -> Option<(Caller, Vec<Message>)> {
    let Outcome::Messages(messages) = delivery.outcome else {
        return None;
    };
    let caller = Caller {
        client_id: delivery.to,
        ..Caller::default()
    };
    (!delivery.peeked).then(|| (caller, messages.into_vec()))
}

/// True if the outcome's messages are no longer in the engine: a lease leaves
/// them there.
fn is_removed(outcome: &Outcome) -> bool {
    let Outcome::Messages(messages) = outcome else {
        return false;
    };
    messages.iter().all(|m| m.state != State::Reserved)
}
