//! Connections as hooks see them: those that come and go, and the outcomes of their waits.

use std::sync::Arc;

use quintet_hooks::{Decided as Hooked, Event, Who};
use quintet_host::Required;
use quintet_types::Delivery;
use quintet_wire::ServerResponse;

use super::conn::{Conn, DueReply, Spoken};
use super::thread::IoThread;
use crate::edge::Edge;
use crate::hooks::Runner;

impl IoThread {
    /// The outcome of a waiting take or a subscription, after the hooks have seen it. `None`: there
    /// is no reply, or it waits again.
    pub(super) fn arrived(
        &mut self,
        slot: u32,
        delivery: Delivery,
        required: Required,
    ) -> Option<(Hooked, Required)> {
        let conn = self.conns.get_mut(slot)?;
        let outcome = delivery.outcome.of_command();
        let runner = self.hooks.runner.as_mut();
        let awaits = |runner: &&mut Runner| runner.state.awaits(delivery.to, delivery.standing);
        let Some(runner) = runner.filter(awaits) else {
            return Some((Hooked::Now(outcome, delivery.queue), required));
        };
        let who = who(conn, &self.shared.edge);
        let decided = runner
            .state
            .arrived(&who, delivery.standing, outcome, delivery.queue);
        let did = runner.take_did();
        self.decisions.trail.join(did.trail);
        Some((decided, required.and(did.required)))
    }

    /// `connect`: with what text a new connection is refused. It closes where hooks could not be
    /// loaded, unless it is an operator's.
    pub(super) fn greet(&mut self, slot: u32) {
        let Some(conn) = self.conns.get_mut(slot) else {
            return;
        };
        if self.hooks.are_lacking() && !self.shared.edge.is_operator(conn.listener) {
            conn.close_after_flush();
            self.due.mark_dirty(slot, conn);
            return;
        }
        let Some(runner) = &mut self.hooks.runner else {
            return;
        };
        if !runner.state.events().has(Event::Connect) {
            return;
        }
        let who = who(conn, &self.shared.edge);
        let refused = runner.state.connect(&who);
        let did = runner.take_did();
        self.decisions.trail.join(did.trail);
        if let Some(text) = refused {
            let hook_reply = Spoken::refused(&text);
            conn.session
                .say(hook_reply.as_hook_reply(), &mut conn.out.output);
            conn.end_with(0, did.required);
            self.due.mark_dirty(slot, conn);
        }
    }

    /// `disconnect`.
    pub(super) fn part(&mut self, conn: &mut Conn) {
        let Some(runner) = &mut self.hooks.runner else {
            return;
        };
        runner.state.forget(conn.caller.client_id);
        if runner.state.events().has(Event::Disconnect) {
            let who = who(conn, &self.shared.edge);
            runner.state.notify(&who, Event::Disconnect);
            self.decisions.trail.join(runner.take_did().trail);
        }
    }
}

/// A reply with what was decided.
pub(super) fn reply(decided: Hooked, required: Required, undone: bool) -> DueReply {
    match decided {
        Hooked::Now(outcome, name) => {
            DueReply::of(ServerResponse::Engine(outcome, name), required, undone)
        }
        Hooked::Denied(text) => DueReply::said(Spoken::refused(&text), required),
        Hooked::Answer(bytes) => DueReply::said(Spoken::of(bytes), required),
        // Asked for only where nothing waits.
        Hooked::Later => DueReply::own(),
    }
}

/// The client behind a connection, made on first use.
pub(super) fn who(conn: &mut Conn, edge: &Edge) -> Arc<Who> {
    let who = conn.who.get_or_insert_with(|| {
        let peer = conn.way.peer(&conn.stream).map(|peer| peer.to_string());
        Arc::new(Who {
            caller: conn.caller,
            connection: conn.caller.client_id.0,
            protocol: edge.listeners[conn.listener].protocol,
            peer: peer.unwrap_or_default().into(),
            user: conn.user.as_deref().unwrap_or_default().into(),
        })
    });
    Arc::clone(who)
}
