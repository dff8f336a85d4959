//! Decides the requests of a connection in order.

mod commands;
mod server;

use quintet_host::Access;
use quintet_types::Ms;
use quintet_wire::ClientRequest;

use super::conn::{Conn, DueReply, Wait};
use super::counts::ProtocolCounts;
use super::shared::Shared;
use super::thread::IoThread;
use crate::hooks::Runner;

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
    hooks: &'a mut Option<Runner>,
    /// There are hooks, and this thread could not load them.
    lacks_hooks: bool,
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
            lacks_hooks: self.hooks.are_lacking(),
            hooks: &mut self.hooks.runner,
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
