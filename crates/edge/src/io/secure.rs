//! Connections under TLS: their handshakes, of which a turn does a few, and
//! how they fail.

use std::io;
use std::sync::Arc;

use quintet_host::Required;
use quintet_tls::Failure;
use quintet_types::Principal;
use quintet_wire::{Foreign, HookReply, Http};

use super::conn::Secrecy;
use super::thread::IoThread;
use crate::quotas::Of;

/// The text in the clear for a client that speaks no TLS.
const SPEAKS_TLS: &str = "this port speaks TLS";

impl IoThread {
    /// Closes connections whose handshakes take too long.
    pub(super) fn end_late_handshakes(&mut self) {
        while let Some(&(at, key)) = self.due.handshakes.front()
            && at <= self.turn.instant
        {
            self.due.handshakes.pop_front();
            if let Some((slot, conn)) = self.conns.find(key)
                && conn.secrecy == Secrecy::Handshake
            {
                let late = io::Error::from(io::ErrorKind::TimedOut);
                self.fail(slot, &late);
                self.close(slot);
            }
        }
    }

    /// Something of a handshake was read.
    pub(super) fn go_on_with_handshake(&mut self, slot: u32) {
        let Some(conn) = self.conns.get_mut(slot) else {
            return;
        };
        if conn.secrecy != Secrecy::Handshake || conn.stream.is_handshaking() {
            return;
        }
        let (edge, mut limited) = (&self.shared.edge, None);
        conn.secrecy = Secrecy::Secret;
        conn.identity = conn.stream.identity().map(Arc::new);
        if let Some(identity) = &conn.identity
            && !edge.is_operator(conn.listener)
        {
            let user = edge.security.auth.user(&identity.common_name);
            if user != Principal::ANONYMOUS {
                conn.caller.principal = user;
                limited = edge.security.count_as(&mut conn.meter, user).err();
            }
        }
        edge.tls.shared.opened();
        if let Some(limited) = limited {
            self.say_limited(slot, limited, Of::User);
            return;
        }
        self.greet(slot);
    }

    /// TLS has failed. True: the connection goes on in the clear, to name the protocol
    /// of this listener, and closes.
    pub(super) fn fail(&mut self, slot: u32, error: &io::Error) -> bool {
        let Some(conn) = self.conns.get_mut(slot) else {
            return false;
        };
        let (edge, turn) = (&self.shared.edge, &mut self.turn);
        match conn.secrecy {
            Secrecy::Secret => edge.tls.shared.closed(),
            Secrecy::Handshake => {
                let address = conn.peer().map(|peer| peer.ip().to_canonical());
                edge.security.quotas.failed(address);
            }
            Secrecy::Plain | Secrecy::Failed => {}
        }
        conn.secrecy = Secrecy::Failed;
        let listener = &edge.listeners[conn.listener];
        let shared = &edge.tls.shared;
        shared.failed(listener.protocol, Some(conn.number), conn.peer(), error);
        if Failure::of(error) != Some(&Failure::Plain) {
            // The alert, if there is one; a client that is gone does not read it.
            if conn.stream.flush().is_ok() {
                conn.stream.finish(&mut turn.scratch, &mut turn.records);
            }
            return false;
        }
        let input = conn.stream.strip();
        let start = conn.out.output.len();
        match Http::of(&input) {
            Http::No => {
                let hook_reply = HookReply::Refused(SPEAKS_TLS);
                conn.session.say(hook_reply, &mut conn.out.output);
            }
            Http::Maybe | Http::Yes => conn.out.output.put(Foreign::Http.answer()),
        }
        conn.end_with(start, Required::default());
        self.due.mark_dirty(slot, conn);
        true
    }
}
