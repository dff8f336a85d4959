//! Connections without state, which outlive their process: a node that steps down hands them on to
//! its next process, and that brings them to the new owner.

use std::os::fd::OwnedFd;

use mio::Registry;
use quintet_http::Connected;
use quintet_process::again;

use super::conn::{Conn, Secrecy};
use super::mail::Way;
use super::thread::IoThread;
use crate::edge::Listening;

impl IoThread {
    /// Whether the next process could go on with this connection as if it had just accepted it.
    /// Nothing more is decided for it from here on.
    pub(super) fn may_go_on_elsewhere(&mut self, slot: u32) -> bool {
        let edge = &self.edge;
        let conn = self.conns.get_mut(slot);
        let fresh = conn.filter(|conn| conn.is_as_accepted() && !edge.is_operator(conn.listener));
        let Some(client_id) = fresh.map(|conn| conn.caller.client_id) else {
            return false;
        };
        !self.with_access(|access| access.holds_leases(client_id))
    }
}

impl Conn {
    /// True if it has no state but replies that are still to leave.
    fn is_as_accepted(&self) -> bool {
        let Self {
            number: _,
            stream: _,
            way,
            secrecy,
            identity,
            origin: _,
            session,
            caller: _,
            user,
            proof,
            listener: _,
            inbox,
            out: _,
            phase,
            standing,
            who,
            half_close,
            unfinished,
            pause: _,
            meter: _,
            charged: _,
            blocked: _,
            goes_on: _,
            listed: _,
            active: _,
        } = self;
        let anonymous = identity.is_none() && user.is_none() && *proof == 0;
        // No hook has been shown it.
        let unseen = who.is_none() && unfinished.is_none();
        let rests = phase.is_open() && standing.is_none() && half_close.is_none();
        *way == Way::Direct
            && *secrecy == Secrecy::Plain
            && anonymous
            && unseen
            && rests
            && inbox.is_empty()
            && session.is_as_opened()
    }

    /// Hands its socket on to the next process. False: it cannot, and the connection closes.
    pub(super) fn hand_on(&mut self, listening: &Listening, registry: &Registry) -> bool {
        let socket: OwnedFd = match self.stream.hand_on(registry) {
            Ok(Connected::Tcp(stream)) => stream.into(),
            Ok(Connected::Unix(stream)) => stream.into(),
            Err(error) => {
                tracing::debug!(conn = self.number, "cannot hand on a connection: {error}");
                return false;
            }
        };
        again::keep_connection(listening.protocol, &listening.address, socket)
    }
}
