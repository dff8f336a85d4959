//! Connections and workers, listed; closing a connection.

use std::collections::HashMap;
use std::sync::Arc;

use quintet_client::{Did, TellPage};
use quintet_host::ClientKey;
use quintet_types::{ClientId, ClientStats};
use quintet_wire::{ServerResponse, WorkerSeen, WorkerState};
use serde_json::json;

use super::conn::{Conn, DueReply, Secrecy};
use super::mail::Mail;
use super::operations::result_of;
use super::thread::IoThread;
use crate::clients::{Census, Client, Listing, Place, shown};
use crate::edge::Edge;

/// Bytes of a page, but for the last row.
const PAGE_BYTES: usize = 1 << 20;

/// A page of connections in JSON.
struct ConnectionsPage {
    list: String,
    last: Option<u64>,
    /// Others follow.
    more: bool,
    notify: TellPage,
}

impl Listing for ConnectionsPage {
    fn add(&mut self, client: Client) -> bool {
        self.more = self.list.len() >= PAGE_BYTES;
        if self.more {
            return false;
        }
        self.list.push(if self.last.is_some() { ',' } else { '[' });
        // Nothing in it is no JSON.
        let listed = serde_json::to_string(&client).unwrap_or_default();
        self.list.push_str(&listed);
        self.last = Some(client.id);
        true
    }

    fn end(self: Box<Self>) {
        let mut page = *self;
        page.list
            .push_str(if page.last.is_some() { "]" } else { "[]" });
        let next = page.last.filter(|_| page.more).map(|id| id.to_string());
        (page.notify)(page.list, next);
    }
}

/// A page of workers in JSON, each with the jobs that its connections hold.
struct WorkersPage {
    /// By their names, those of the page first.
    workers: Vec<WorkerSeen>,
    /// Jobs of each of them.
    jobs: Vec<u64>,
    notify: TellPage,
}

impl Listing for WorkersPage {
    fn add(&mut self, client: Client) -> bool {
        let wid = client.worker.as_deref().unwrap_or_default();
        let at = self
            .workers
            .binary_search_by(|worker| (*worker.joins.wid).cmp(wid));
        if let Ok(at) = at {
            self.jobs[at] += client.leases;
        }
        true
    }

    fn end(self: Box<Self>) {
        let page = *self;
        let (mut list, mut last) = (String::from("["), None);
        for (worker, jobs) in page.workers.iter().zip(&page.jobs) {
            if list.len() >= PAGE_BYTES {
                return (page.notify)(list + "]", last);
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
                "jobs": jobs,
                "connections": worker.connections,
                "rss_kb": worker.rss_kb,
                "age_ms": worker.age_ms,
                "silent_ms": worker.silent_ms,
            });
            list.push_str(&listed.to_string());
            last = Some(worker.joins.wid.to_string());
        }
        (page.notify)(list + "]", None);
    }
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

/// Clients that are listed in one slice.
const AT_ONCE: usize = 256;

impl Edge {
    /// Lists the connections behind the one of this number, as a page in JSON: those of the I/O
    /// threads one after the other, then those of HTTP.
    pub fn list_clients(&self, after: Option<u64>, notify: TellPage) {
        let page = ConnectionsPage {
            list: String::new(),
            last: None,
            more: false,
            notify,
        };
        let (thread, place) = match after.map(ClientId) {
            None => (0, Place::Slot(0)),
            Some(last) => match (http_id(last), ClientKey::of(last)) {
                (Some(id), _) => (0, Place::Http(id)),
                (None, key) if key.thread < self.threads.len() => {
                    (key.thread, Place::Slot(key.slot + 1))
                }
                (None, _) => (0, Place::Http(0)),
            },
        };
        self.list(thread, place, Box::new(page));
    }

    /// Has this thread list its connections from this place on.
    fn list(&self, thread: usize, place: Place, listing: Box<dyn Listing>) {
        self.mail[thread].leave(Mail::Census(Box::new(Census { place, listing })));
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
    pub fn list_workers(&self, after: Option<String>, notify: TellPage) {
        let now = self.core.clock.now();
        let mut workers = self.guests.workers(|workers| workers.list(now));
        if let Some(after) = after {
            workers.retain(|worker| *worker.joins.wid > *after);
        }
        let page = WorkersPage {
            jobs: vec![0; workers.len()],
            workers,
            notify,
        };
        self.list(0, Place::Slot(0), Box::new(page));
    }

    /// Asks a worker for this, unless it was asked for more; false: it is not known.
    pub fn steer_worker(&self, state: WorkerState, wid: &str) -> bool {
        let now = self.core.clock.now();
        self.guests
            .workers(|workers| workers.raise(wid, state, now))
    }

    /// A slice of the connections of HTTP behind this number.
    fn http_clients(&self, after: u64) -> Vec<Client> {
        let listed = self.http.clients.list(after, AT_ONCE);
        let waiting: Vec<ClientId> = listed
            .iter()
            .filter_map(|client| client.client_id)
            .collect();
        let known = self.core.client_stats(&waiting);
        let waiting: HashMap<ClientId, ClientStats> = waiting.into_iter().zip(known).collect();
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
                ..Client::default()
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
        Client {
            id: conn.caller.client_id.0,
            protocol: listener.protocol,
            voice: listener.protocol,
            listener: listener.address.clone(),
            peer: conn.peer().map(|peer| peer.to_string()),
            user: self.client_of(conn),
            tls: conn.secrecy == Secrecy::Secret,
            idle_ms,
            unread_bytes: conn.out.unsent() as u64,
            worker: conn.session.worker().map(str::to_owned),
            ..Client::default()
        }
    }
}

impl IoThread {
    /// Tells a list of a slice of the connections, and hands it on.
    pub(super) fn count(&mut self, census: Census) {
        let Census { place, mut listing } = census;
        let (edge, index) = (Arc::clone(&self.shared.edge), self.shared.index);
        let (clients, next) = match place {
            Place::Slot(first) => self.clients_from(first, &edge),
            Place::Http(after) => {
                let clients = edge.http_clients(after);
                // A short slice is the last one, however fast others connect.
                let last = clients.get(AT_ONCE - 1);
                let last = last.and_then(|last| http_id(last.client_id()));
                (clients, last.map(|id| (index, Place::Http(id))))
            }
        };
        let all = clients.into_iter().all(|client| listing.add(client));
        match next.filter(|_| all) {
            Some((thread, place)) => edge.list(thread, place, listing),
            None => listing.end(),
        }
    }

    /// A slice of this thread's connections, and where the list goes on.
    fn clients_from(&mut self, first: u32, edge: &Edge) -> (Vec<Client>, Option<(usize, Place)>) {
        let (index, slots) = (self.shared.index, self.conns.slots());
        let behind = &slots[slots.partition_point(|slot| *slot < first)..];
        let mut clients = Vec::new();
        for &slot in behind.iter().take(AT_ONCE) {
            if let Some(conn) = self.conns.get_mut(slot) {
                let idle = self.turn.instant.saturating_duration_since(conn.active);
                let idle_ms = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
                clients.push(edge.client(conn, idle_ms));
            }
        }
        let client_ids: Vec<ClientId> = clients.iter().map(Client::client_id).collect();
        for (client, known) in clients.iter_mut().zip(edge.core.client_stats(&client_ids)) {
            client.set_held(known.leases, &known.waits_on);
        }
        let next = match behind.get(AT_ONCE) {
            Some(slot) => (index, Place::Slot(*slot)),
            None if index + 1 < edge.threads.len() => (index + 1, Place::Slot(0)),
            None => (0, Place::Http(0)),
        };
        (clients, Some(next))
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
        self.end_wait(client_id, |conn, edge| {
            let response = ServerResponse::Host(text);
            if let Some(act) = conn.unfinished.take() {
                edge.audit(conn, &act, result_of(&response), Did::default());
            }
            DueReply::at_once(response)
        });
    }
}
