//! New connections: accepted, given to a thread, and begun with.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quintet_tls::Identity;
use quintet_types::Caller;

use super::Stream;
use super::conn::{Conn, Secrecy};
use super::guests::Origin;
use super::mail::{Arrival, Mail, Way};
use super::sockets::token_of;
use super::thread::IoThread;
use crate::edge::Edge;
use crate::quotas::Of;

/// Connections accepted from one listener before others get a turn.
const ACCEPTS: usize = 64;
/// Pause after the system had no file or memory for a connection.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

impl Edge {
    /// Counts a new connection and chooses its thread: the one with the fewest, `first` if that has
    /// as few. `None`: there are too many, and it is closed.
    fn admit(&self, mut arrival: Arrival, first: Option<usize>) -> Option<(usize, Arrival)> {
        let operator = self.is_operator(arrival.listener);
        if !operator {
            match self.security.quotas.arrive(arrival.address()) {
                Ok(meter) => arrival.meter = meter,
                Err(limited) => {
                    self.turn_away(arrival, limited, Of::Address);
                    return None;
                }
            }
        }
        arrival.number = self.guests.admit(arrival.origin, operator)?;
        let load = |thread: &usize| self.mail[*thread].connections.load(Ordering::Relaxed);
        let others = (0..self.threads.len()).filter(|thread| Some(*thread) != first);
        let thread = first.into_iter().chain(others).min_by_key(load)?;
        self.mail[thread]
            .connections
            .fetch_add(1, Ordering::Relaxed);
        Some((thread, arrival))
    }

    /// Takes a client that another node brings to this listener; `identity`: who it is by the
    /// certificate that it has shown there.
    pub fn bring(
        &self,
        stream: Stream,
        peer: Option<SocketAddr>,
        listener: usize,
        identity: Option<Arc<Identity>>,
    ) {
        let name = identity.as_ref().map(|identity| &identity.common_name);
        self.open(Arrival {
            origin: Origin::new(peer, listener),
            way: Way::Forwarded(peer),
            user: name.filter(|name| !name.is_empty()).cloned(),
            identity,
            ..Arrival::direct(stream, listener)
        });
    }

    /// Takes a client that has come to this listener before it was served.
    pub fn adopt(&self, stream: Stream, listener: usize) {
        self.open(Arrival::direct(stream, listener));
    }

    fn open(&self, arrival: Arrival) {
        if let Some((thread, arrival)) = self.admit(arrival, None) {
            self.mail[thread].leave(Mail::Socket(arrival));
        }
    }

    /// No listener of an I/O thread accepts any more.
    pub fn refuse(&self) {
        self.notify_threads(|| Mail::Refuse);
    }

    /// Connections get what they are owed, and the I/O threads end.
    pub fn stop(&self) {
        self.notify_threads(|| Mail::Stop);
    }

    /// Leaves this for every I/O thread.
    pub(super) fn notify_threads(&self, mail: fn() -> Mail) {
        self.mail.iter().for_each(|mailbox| mailbox.leave(mail()));
    }

    /// An admitted connection of an I/O thread is gone.
    pub(super) fn dismiss(&self, thread: usize, origin: Origin) {
        self.guests.dismiss(origin);
        self.mail[thread]
            .connections
            .fetch_sub(1, Ordering::Relaxed);
    }
}

impl IoThread {
    pub(super) fn accept_all(&mut self) {
        let at = self.sockets.accept_at;
        if at.is_some_and(|at| at > self.turn.instant) {
            return;
        }
        self.sockets.accept_at = None;
        for at in std::mem::take(&mut self.sockets.accept_again) {
            self.accept(at);
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "any other is the system's need"
    )]
    fn accept(&mut self, at: usize) {
        for _ in 0..ACCEPTS {
            let Some((number, bound)) = self.sockets.listeners.get(at) else {
                return;
            };
            let number = *number;
            match bound.accept() {
                Ok(stream) => self.place(stream, number),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                    _ => {
                        let failed = &self.shared.edge.accepts_failed;
                        let failed = failed.fetch_add(1, Ordering::Relaxed) + 1;
                        // It is tried again ten times a second.
                        if failed.is_power_of_two() {
                            tracing::warn!("cannot accept a connection, {failed} times: {error}");
                        }
                        self.sockets.accept_again.push(at);
                        self.sockets.accept_at = Some(self.turn.instant + ACCEPT_RETRY);
                        return;
                    }
                },
            }
        }
        self.sockets.accept_again.push(at);
        self.sockets.accept_at = Some(self.turn.instant);
    }

    /// Gives a new connection to the thread with the fewest.
    fn place(&mut self, stream: Stream, listener: usize) {
        let arrival = Arrival::direct(stream, listener);
        let (edge, index) = (&self.shared.edge, self.shared.index);
        if let Some((thread, arrival)) = edge.admit(arrival, Some(index)) {
            if thread == index {
                self.open(arrival);
            } else {
                edge.mail[thread].leave(Mail::Socket(arrival));
            }
        }
    }

    pub(super) fn open(&mut self, mut arrival: Arrival) {
        let (edge, index) = (&self.shared.edge, self.shared.index);
        let (origin, listener) = (arrival.origin, arrival.listener);
        let Some(key) = self.conns.reserve(index) else {
            edge.dismiss(index, origin);
            return;
        };
        let registry = self.sockets.poll.registry();
        if let Err(error) = arrival.stream.register(registry, token_of(key)) {
            let peer = arrival.address().map(|address| address.to_string());
            tracing::warn!(
                conn = arrival.number,
                peer,
                "cannot register a connection: {error}"
            );
            self.conns.release(key);
            edge.dismiss(index, origin);
            return;
        }
        let caller = Caller {
            client_id: key.client_id(),
            principal: edge.who_comes(&arrival),
        };
        let counted = edge.security.count_as(&mut arrival.meter, caller.principal);
        if let Err(limited) = counted {
            edge.turn_away(arrival, limited, Of::User);
            self.conns.release(key);
            edge.dismiss(index, origin);
            return;
        }
        let listening = &edge.listeners[listener];
        let session = listening.opener.open();
        if let Some(secure) = &listening.tls
            && arrival.way == Way::Direct
        {
            arrival.stream.secure(secure.acceptor.accept());
            let late = self.turn.instant + edge.tls.shared.handshake_time();
            self.due.handshakes.push_back((late, key));
        }
        let mut conn = Conn::new(arrival, session, caller);
        conn.active = self.turn.instant;
        conn.inbox.is_new = listening.api || !edge.is_operator(listener);
        let knows = conn.secrecy == Secrecy::Plain;
        let speaks_first = knows && listening.opener.speaks_first();
        self.conns.insert(key, Box::new(conn));
        if self.turn.stop_at.is_some() {
            self.close(key.slot);
        } else if knows {
            self.greet(key.slot);
        }
        if speaks_first && let Some(conn) = self.conns.get_mut(key.slot) {
            self.due.mark_again(key.slot, conn);
        }
    }
}
