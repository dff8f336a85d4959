//! Connections and who is behind them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quintet_client::{Did, Entry};
use quintet_hooks::Event;
use quintet_host::ClientKey;
use quintet_types::{ClientId, Delivery, Operation, Outcome, Principal, Verb};
use quintet_wire::{LoginRefused, Logins, ServerResponse};

use super::conn::{Conn, DueReply};
use super::mail::{Arrival, Mail, Way};
use super::operations::Administers;
use super::thread::IoThread;
use crate::auth::LoginResult;
use crate::edge::Edge;
use crate::hooks::Runner;
use quintet_host::wall_ms;

/// How often is looked whether logins have ended.
pub const LOGINS_LOOK: Duration = Duration::from_millis(500);

impl Edge {
    /// Ends logins: each call has connections closed whose token is over or revoked, whose
    /// password or secret is another, or whose user is gone, and those of console sessions that
    /// have ended. To be called every [`LOGINS_LOOK`].
    pub fn watch_logins(&self) -> impl FnMut() {
        let mut seen = (self.security.auth.table(), usize::MAX);
        move || {
            let table = self.security.auth.table();
            let live = table.live_tokens(wall_ms());
            let changed = !Arc::ptr_eq(&table, &seen.0) || live != seen.1;
            if changed {
                self.notify_threads(|| Mail::Logins);
            }
            self.http.clients.close_logged_out(Instant::now(), changed);
            seen = (table, live);
        }
    }

    /// The principal of a connection before its first request.
    pub(super) fn who_comes(&self, arrival: &Arrival) -> Principal {
        if self.is_operator(arrival.listener) {
            // Each client that the socket's mode lets in may operate, as long as nobody
            // has said who may do what.
            let own = rustix::process::geteuid().as_raw();
            // Through another node, whose listener may ask for no certificates.
            if matches!(arrival.way, Way::Forwarded(Some(_))) && arrival.identity.is_none() {
                return Principal::ANONYMOUS;
            }
            return match arrival.stream.account() {
                Some(uid) if uid != own && uid != 0 && self.security.auth.is_used() => {
                    Principal::ANONYMOUS
                }
                Some(_) | None => Principal::SERVER,
            };
        }
        // A certificate of another node's client counts if it names a user.
        let certified = arrival
            .user
            .as_deref()
            .map(|user| self.security.auth.user(user));
        match certified {
            Some(user) if user != Principal::ANONYMOUS => user,
            Some(_) | None => match self.listeners[arrival.listener].user.as_str() {
                "" => Principal::ANONYMOUS,
                user => self.security.auth.user(user),
            },
        }
    }

    /// Whether a connection's client may or has to say who it is.
    #[inline]
    pub(super) fn logins_of(&self, principal: Principal, hooks: Option<&Runner>) -> Logins {
        let knows = |runner: &Runner| runner.state.events().has(Event::Auth);
        self.security
            .auth
            .logins(principal, hooks.is_some_and(knows))
    }

    /// A connection's client, as the audit and the list of connections name it.
    pub(super) fn client_of(&self, conn: &Conn) -> String {
        match (&conn.user, conn.caller.principal) {
            (Some(user), _) => user.to_string(),
            (None, Principal::SERVER) => match conn.stream.account() {
                Some(uid) => format!("uid {uid}"),
                None => String::new(),
            },
            (None, principal) => {
                let name = self.security.auth.table().name_of(principal);
                name.map(|name| name.to_string()).unwrap_or_default()
            }
        }
    }

    /// Writes down what a connection's client did.
    pub(super) fn audit(&self, conn: &Conn, act: &Administers, result: &str, did: Did) {
        self.security.audit.write(&Entry {
            who: &self.client_of(conn),
            from: address(conn),
            what: &act.what,
            result,
            did,
            step: act.step,
            ..Entry::of(act.operation)
        });
    }
}

pub(super) fn address(conn: &Conn) -> Option<IpAddr> {
    conn.peer().map(|peer| peer.ip().to_canonical())
}

impl Conn {
    /// Takes note of what came of its login.
    pub(super) fn becomes(&mut self, login_result: LoginResult, edge: &Edge) -> DueReply {
        let login_result = login_result.and_then(|logged_in| {
            // It may have ended while it was checked.
            if !edge
                .security
                .auth
                .counts(logged_in.principal, logged_in.proof)
            {
                return Err(LoginRefused::Wrong);
            }
            let counted = edge.security.count_as(&mut self.meter, logged_in.principal);
            counted.map_err(|_| LoginRefused::TooMany)?;
            self.caller.principal = logged_in.principal;
            self.proof = logged_in.proof;
            self.user = Some(logged_in.name);
            // Hooks are shown somebody else from now on.
            self.who = None;
            Ok(())
        });
        DueReply::at_once(ServerResponse::Login(login_result))
    }
}

impl IoThread {
    /// True if what a wait has brought may still be handed over: its client may
    /// have lost the right meanwhile. Then it goes back, and the connection
    /// ends, and with it whatever it holds.
    pub(super) fn may_be_handed(&mut self, slot: u32, delivery: &Delivery) -> bool {
        let auth = &self.shared.edge.security.auth;
        if !auth.is_used() || !matches!(delivery.outcome, Outcome::Messages(_)) {
            return true;
        }
        let Some(conn) = self.conns.get_mut(slot) else {
            return true;
        };
        let verb = match delivery.peeked {
            true => Verb::Peek,
            false => Verb::Take,
        };
        auth.may(conn.caller.principal, verb, &delivery.queue)
    }

    /// Closes the connections whose logins count no more.
    pub(super) fn close_logged_out(&mut self) {
        let edge = Arc::clone(&self.shared.edge);
        for slot in self.conns.slots() {
            if let Some(conn) = self.conns.get_mut(slot)
                && !edge.security.auth.counts(conn.caller.principal, conn.proof)
            {
                let act = Administers::new(Operation::LoginEnded, String::new());
                edge.audit(conn, &act, "closed", Did::default());
                self.close(slot);
            }
        }
    }

    /// A login that took its time has come to an end.
    pub(super) fn logged_in(&mut self, client_id: ClientId, login_result: LoginResult) {
        self.end_wait(client_id, |conn, edge| conn.becomes(login_result, edge));
    }

    /// Ends the wait of a client for what another thread did, with a reply to it.
    pub(super) fn end_wait(
        &mut self,
        client_id: ClientId,
        reply: impl FnOnce(&mut Conn, &Edge) -> DueReply,
    ) {
        let Some((slot, conn)) = self.conns.find(ClientKey::of(client_id)) else {
            return;
        };
        if conn.phase.end_wait().is_none() {
            return;
        }
        conn.active = self.turn.instant;
        conn.half_close = None;
        let reply = reply(conn, &self.shared.edge);
        self.turn.replies.push(reply);
        self.encode(slot);
        self.serve(slot);
    }
}
