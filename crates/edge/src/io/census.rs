//! Connections and workers, listed; closing a connection.

use std::collections::HashMap;
use std::sync::Arc;

use quintet_client::{Did, TellWorkers};
use quintet_host::ClientKey;
use quintet_types::{ClientId, ClientStats, Principal};
use quintet_wire::{ServerResponse, WorkerSeen, WorkerState};
use serde_json::json;

use super::conn::Secrecy;
use super::conn::{Conn, DueReply};
use super::mail::Mail;
use super::operations::result_of;
use super::thread::IoThread;
use crate::clients::{Census, Client, TellClients, shown};
use crate::edge::Edge;

/// Bytes of a page of workers, but for the last.
const PAGE_BYTES: usize = 1 << 20;

/// Workers as a list in JSON, each with the jobs that these connections of its hold: a page of
/// those behind `after`, in the order of their names, and the last of it if more follow.
fn list_thread_workers(
    all: &[WorkerSeen],
    clients: &[Client],
    after: Option<&str>,
) -> (String, Option<String>) {
    let mut jobs: HashMap<&str, u64> = HashMap::new();
    for client in clients {
        if let Some(wid) = &client.worker {
            *jobs.entry(wid).or_default() += client.leases;
        }
    }
    let behind = after.map_or(0, |after| {
        all.partition_point(|worker| *worker.joins.wid <= *after)
    });
    let (mut list, mut last) = (String::from("["), None);
    for worker in &all[behind..] {
        if list.len() >= PAGE_BYTES {
            return (list + "]", last);
        }
        if last.is_some() {
            list.push(',');
        }
        let listed = json!({
            "wid": worker.joins.wid,
            "host": worker.joins.host,
            "pid": worker.joins.pid,
            "labels": worker.joins.labels,
            "state": worker.state.word(),
            "jobs": jobs.get(&*worker.joins.wid).copied().unwrap_or(0),
            "connections": worker.connections,
            "rss_kb": worker.rss_kb,
            "age_ms": worker.age_ms,
            "silent_ms": worker.silent_ms,
        });
        list.push_str(&listed.to_string());
        last = Some(worker.joins.wid.to_string());
    }
    (list + "]", None)
}

/// The number of an HTTP connection among all; `id` from 1. A client's generation is never 0, so
/// that these are no clients' numbers, and below 2^53 they are the same in every JSON.
fn http_client_id(id: u64) -> ClientId {
    ClientId(id << 32)
}

/// The connection of HTTP that is called so.
fn http_id(client_id: ClientId) -> Option<u64> {
    let key = ClientKey::of(client_id);
    (key.thread == 0 && key.generation == 0).then_some(client_id.0 >> 32)
}

/// Clients that are asked for under one lock.
const AT_ONCE: usize = 256;

impl Edge {
    /// Has every I/O thread list its connections.
    pub fn list_clients(&self, notify: TellClients) {
        let clients = Vec::new();
        self.mail[0].leave(Mail::Census(Box::new(Census { clients, notify })));
    }

    /// Closes a connection; told whether there was one of this number.
    pub fn close_client(&self, id: u64, notify: Box<dyn FnOnce(bool) + Send>) {
        let client_id = ClientId(id);
        let thread = ClientKey::of(client_id).thread;
        if let Some(id) = http_id(client_id) {
            return notify(self.http.clients.close(id));
        }
        match thread < self.threads.len() {
            true => self.mail[thread].leave(Mail::Close(client_id, notify)),
            false => notify(false),
        }
    }

    /// Told by an I/O thread when it gets to it: that it lives.
    pub fn ask_thread(&self, thread: usize, notify: Box<dyn FnOnce() + Send>) {
        // Generations begin with 1: nobody has this number.
        let nobody = ClientKey {
            thread,
            slot: 0,
            generation: 0,
        };
        let notify = Box::new(move |_| notify());
        self.mail[thread].leave(Mail::Close(nobody.client_id(), notify));
    }

    /// Lists the workers behind `after`, as a page of a list in JSON: with what their
    /// connections hold, so the threads are asked.
    pub fn list_workers(&self, after: Option<String>, notify: TellWorkers) {
        let now = self.core.clock.now();
        let all = self.guests.workers(|workers| workers.list(now));
        self.list_clients(Box::new(move |clients| {
            let (list, next) = list_thread_workers(&all, &clients, after.as_deref());
            notify(list, next);
        }));
    }

    /// Asks a worker for this, unless it was asked for more; false: it is not known.
    pub fn steer_worker(&self, state: WorkerState, wid: &str) -> bool {
        let now = self.core.clock.now();
        self.guests
            .workers(|workers| workers.raise(wid, state, now))
    }

    /// The connections of HTTP.
    fn http_clients(&self) -> Vec<Client> {
        let listed = self.http.clients.list();
        let waiting: Vec<ClientId> = listed
            .iter()
            .filter_map(|client| client.client_id)
            .collect();
        let waiting = waiting.chunks(AT_ONCE).flat_map(|client_ids| {
            let known = self.core.client_stats(client_ids);
            client_ids.iter().copied().zip(known).collect::<Vec<_>>()
        });
        let waiting: HashMap<ClientId, ClientStats> = waiting.collect();
        let clients = listed.into_iter().map(|listed| {
            let mut client = Client {
                id: http_client_id(listed.id).0,
                protocol: listed.protocol,
                voice: listed.protocol,
                listener: listed.listener.to_string(),
                peer: listed.peer.map(|peer| peer.to_string()),
                user: listed
                    .user
                    .map_or_else(String::new, |user| user.to_string()),
                tls: listed.tls,
                idle_ms: listed.idle_ms,
                unread_bytes: listed.unread_bytes,
                asks: listed.asks.map(shown),
                worker: None,
                waits_on: Vec::new(),
                leases: 0,
            };
            if let Some(known) = listed
                .client_id
                .and_then(|client_id| waiting.get(&client_id))
            {
                client.set_held(known.leases, &known.waits_on);
            }
            client
        });
        clients.collect()
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
                let name = self.security.auth.table().name_of(principal);
                name.map_or_else(String::new, |name| name.to_string())
            }
        };
        Client {
            id: conn.caller.client_id.0,
            protocol: listener.protocol,
            voice: listener.protocol,
            listener: listener.address.clone(),
            peer: conn.peer().map(|peer| peer.to_string()),
            user,
            tls: conn.secrecy == Secrecy::Secret,
            idle_ms,
            unread_bytes: conn.out.unsent() as u64,
            asks: None,
            worker: conn.session.worker().map(str::to_owned),
            waits_on: Vec::new(),
            leases: 0,
        }
    }
}

impl IoThread {
    /// Adds this thread's connections to a list, and hands it on.
    pub(super) fn count(&mut self, mut census: Census) {
        let edge = Arc::clone(&self.edge);
        let first = census.clients.len();
        for slot in self.conns.slots() {
            if let Some(conn) = self.conns.get_mut(slot) {
                let idle = self.instant.saturating_duration_since(conn.active);
                let idle_ms = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
                census.clients.push(edge.client(conn, idle_ms));
            }
        }
        for clients in census.clients[first..].chunks_mut(AT_ONCE) {
            let client_ids: Vec<ClientId> = clients.iter().map(Client::client_id).collect();
            for (client, known) in clients.iter_mut().zip(edge.core.client_stats(&client_ids)) {
                client.set_held(known.leases, &known.waits_on);
            }
        }
        let next = self.index + 1;
        match next < edge.threads.len() {
            true => edge.mail[next].leave(Mail::Census(Box::new(census))),
            false => {
                census.clients.extend(edge.http_clients());
                (census.notify)(census.clients);
            }
        }
    }

    /// Closes a client's connection; false: it is gone.
    pub(super) fn close_connection(&mut self, client_id: ClientId) -> bool {
        let slot = self.conns.slot_of(ClientKey::of(client_id));
        if let Some(slot) = slot {
            self.close(slot);
        }
        slot.is_some()
    }

    /// Delivers an answer from elsewhere that a connection waited for.
    pub(super) fn deliver_answer(&mut self, client_id: ClientId, text: Result<String, String>) {
        let Some(slot) = self.conns.slot_of(ClientKey::of(client_id)) else {
            return;
        };
        let edge = Arc::clone(&self.edge);
        let Some(conn) = self.conns.get_mut(slot) else {
            return;
        };
        if conn.phase.end_wait().is_none() {
            return;
        }
        conn.half_close = None;
        let response = ServerResponse::Host(text);
        if let Some(act) = conn.unfinished.take() {
            edge.audit_act(conn, &act, result_of(&response), Did::default());
        }
        self.replies.push(DueReply {
            response,
            ..DueReply::own()
        });
        self.encode(slot, &edge);
        self.serve(slot);
    }
}
