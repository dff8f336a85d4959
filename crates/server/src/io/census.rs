//! Telling of connections, and closing one, on behalf of an operator.

use std::sync::Arc;

use quintet_engine::{Party, Principal};
use quintet_host::PartyKey;
use quintet_wire::{Given, HostAsk};

use super::conn::{Conn, DueReply};
use super::mail::Mail;
use super::secure::Secrecy;
use super::thread::IoThread;
use crate::clients::{Census, Client, TellClients};
use crate::server::Server;

/// Parties that are asked for under one lock.
const AT_ONCE: usize = 256;

impl Server {
    /// Has every I/O thread tell of its connections.
    pub(crate) fn list_clients(&self, tell: TellClients) {
        let clients = Vec::new();
        self.mail[0].leave(Mail::Census(Box::new(Census { clients, tell })));
    }

    /// Closes a connection; told whether there was one of this number.
    pub(crate) fn close_client(&self, id: u64, tell: Box<dyn FnOnce(bool) + Send>) {
        let party = Party(id);
        let thread = PartyKey::of(party).thread;
        match thread < self.threads.len() {
            true => self.mail[thread].leave(Mail::Close(party, tell)),
            false => tell(false),
        }
    }

    /// Asks what only the threads know, for a connection of one of them, whose
    /// thread will be told.
    pub(super) fn ask_threads(&self, thread: usize, party: Party, ask: HostAsk) {
        let mailbox = Arc::clone(&self.mail[thread]);
        if let HostAsk::CloseClient(id) = ask {
            let tell = move |there| {
                let text = match there {
                    true => Ok(String::new()),
                    false => Err(format!("there is no connection {id}")),
                };
                mailbox.leave(Mail::Told(party, text));
            };
            return self.close_client(id, Box::new(tell));
        }
        self.list_clients(Box::new(move |clients| {
            let text = serde_json::to_string(&clients).map_err(|error| error.to_string());
            mailbox.leave(Mail::Told(party, text));
        }));
    }

    fn client(&self, conn: &Conn, idle_ms: u64) -> Client {
        let listener = &self.listeners[conn.listener];
        let user = match (&conn.user, conn.caller.principal) {
            (Some(user), _) => user.to_string(),
            (None, Principal::SERVER) => {
                let account = conn.stream.account();
                account.map_or_else(String::new, |uid| format!("uid {uid}"))
            }
            (None, principal) => {
                let name = self.trust.table().name_of(principal);
                name.map_or_else(String::new, |name| name.to_string())
            }
        };
        Client {
            id: conn.caller.party.0,
            voice: listener.voice,
            listener: listener.address.clone(),
            peer: conn.peer().map(|peer| peer.to_string()),
            user,
            tls: conn.secrecy == Secrecy::Secret,
            idle_ms,
            unread_bytes: conn.out.unsent() as u64,
            waits_on: Vec::new(),
            leases: 0,
        }
    }
}

impl IoThread {
    /// Adds this thread's connections to a list, and hands it on.
    pub(super) fn count(&mut self, mut census: Census) {
        let server = Arc::clone(&self.server);
        let first = census.clients.len();
        for slot in self.conns.slots() {
            if let Some(conn) = self.conns.get_mut(slot) {
                let idle = self.instant.saturating_duration_since(conn.active);
                let idle_ms = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
                census.clients.push(server.client(conn, idle_ms));
            }
        }
        for clients in census.clients[first..].chunks_mut(AT_ONCE) {
            let parties: Vec<Party> = clients.iter().map(Client::party).collect();
            for (client, known) in clients.iter_mut().zip(server.core.parties(&parties)) {
                client.set_held(known.leases, &known.waits_on);
            }
        }
        let next = self.index + 1;
        match next < server.threads.len() {
            true => server.mail[next].leave(Mail::Census(Box::new(census))),
            false => (census.tell)(census.clients),
        }
    }

    /// Closes a party's connection; false: it is gone.
    pub(super) fn close_party(&mut self, party: Party) -> bool {
        let slot = self.conns.slot_of(PartyKey::of(party));
        if let Some(slot) = slot {
            self.close(slot);
        }
        slot.is_some()
    }

    /// What a connection waited for has come from elsewhere.
    pub(super) fn told(&mut self, party: Party, text: Result<String, String>) {
        let Some(slot) = self.conns.slot_of(PartyKey::of(party)) else {
            return;
        };
        let server = Arc::clone(&self.server);
        let Some(conn) = self.conns.get_mut(slot) else {
            return;
        };
        if conn.phase.end_wait().is_none() {
            return;
        }
        conn.half_close = None;
        self.replies.push(DueReply {
            given: Given::Host(text),
            ..DueReply::own()
        });
        self.encode(slot, &server);
        self.serve(slot);
    }
}
