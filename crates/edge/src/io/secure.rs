//! Connections under TLS: their handshakes, of which a turn does a few, and
//! how they fail.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quintet_host::{ClientKey, Required};
use quintet_tls::Failure;
use quintet_types::Principal;
use quintet_wire::{Foreign, HookReply, Http};

use super::conn::Secrecy;
use super::thread::IoThread;
use crate::quotas::Of;

/// The text in the clear for a client that speaks no TLS.
const SPEAKS_TLS: &str = "this port speaks TLS";

impl IoThread {
    /// A new connection begins with a handshake, in a time.
    pub(super) fn begin_handshake(&mut self, key: ClientKey) {
        let limit = self.edge.tls.shared.handshake_time();
        self.handshakes.push_back((self.instant + limit, key));
    }

    /// The next handshake that may be late, in so much time.
    pub(super) fn next_late(&self) -> Option<Duration> {
        let (at, _) = self.handshakes.front()?;
        Some(at.saturating_duration_since(Instant::now()))
    }

    /// Closes connections whose handshakes take too long.
    pub(super) fn end_late_handshakes(&mut self) {
        while let Some(&(at, key)) = self.handshakes.front()
            && at <= self.instant
        {
            self.handshakes.pop_front();
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
        let mut limited = None;
        conn.secrecy = Secrecy::Secret;
        conn.identity = conn.stream.identity().map(Arc::new);
        if let Some(identity) = &conn.identity
            && !self.edge.is_operator(conn.listener)
        {
            let user = self.edge.security.auth.user(&identity.common_name);
            if user != Principal::ANONYMOUS {
                conn.caller.principal = user;
                limited = self.edge.security.count_as(&mut conn.meter, user).err();
            }
        }
        self.edge.tls.shared.opened();
        if let Some(limited) = limited {
            self.say_limited(slot, limited, Of::User);
            return;
        }
        if self.hooks_seen > 0 {
            self.greet(slot);
        }
    }

    /// TLS has failed. True: the connection goes on in the clear, to name the protocol
    /// of this listener, and closes.
    pub(super) fn fail(&mut self, slot: u32, error: &io::Error) -> bool {
        let Some(conn) = self.conns.get_mut(slot) else {
            return false;
        };
        match conn.secrecy {
            Secrecy::Secret => self.edge.tls.shared.closed(),
            Secrecy::Handshake => {
                let address = conn.peer().map(|peer| peer.ip().to_canonical());
                self.edge.security.quotas.failed(address);
            }
            Secrecy::Plain | Secrecy::Failed => {}
        }
        conn.secrecy = Secrecy::Failed;
        let listener = &self.edge.listeners[conn.listener];
        let shared = &self.edge.tls.shared;
        shared.failed(listener.protocol, Some(conn.number), conn.peer(), error);
        if Failure::of(error) != Some(&Failure::Plain) {
            // The alert, if there is one; a client that is gone does not read it.
            if conn.stream.flush().is_ok() {
                conn.stream.finish(&mut self.scratch, &mut self.records);
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
        self.mark_dirty(slot);
        true
    }
}
