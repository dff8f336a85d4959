//! The connections of HTTP there are, and what each of them does.

use std::any::Any;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Waker;
use std::time::Instant;

use hyper::Method;
use quintet_client::Did;
use quintet_types::{ClientId, Operation, Principal, locked};
use tokio::sync::{Notify, watch};

use crate::attempts::Attempts;
use crate::consumers::{Consumer, Consumers, WORKER_MAX};
use crate::cookie::Session;
use crate::gate::Gate;
use crate::never::or_never;
use crate::watched::FarEnd;

quintet_types::defaults! {
    /// All listeners' connections, by number.
    pub struct Clients {
        started: Instant = Instant::now(),
        there: Mutex<There> = Mutex::default(),
        stops: watch::Sender<bool> = watch::Sender::new(false),
        /// Connections that were refused since their address had too many.
        crowded: AtomicU64 = AtomicU64::new(0),
        /// The minute in which the log last said so, from 1.
        crowded_reported: AtomicU64 = AtomicU64::new(0),
        /// The consumers of the newest requests.
        pub consumers: Consumers = Consumers::default(),
        /// The takes that wait under tokens.
        pub attempts: Attempts = Attempts::default(),
    }
}

/// The connected clients.
#[derive(Default)]
struct There {
    /// The last number given.
    last: u64,
    clients: BTreeMap<u64, Arc<Client>>,
}

/// Numbers go round from here on; there are never as many connections.
const NUMBERS: u64 = (1 << 21) - 1;

/// Bytes of an address that a list of connections shows at most.
const PATH_MAX: usize = 255;

/// A connection as a list shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientNow {
    /// Its number as long as it is there, 1 to 2^21 - 1.
    pub id: u64,
    pub protocol: &'static str,
    /// The address of its listener.
    pub listener: Arc<str>,
    /// Where its client is; `None`: on this machine, by a unix socket.
    pub peer: Option<SocketAddr>,
    /// The user of the last request, as far as it is known.
    pub user: Option<Arc<str>>,
    pub tls: bool,
    /// Since it last sent or took something, ms.
    pub idle_ms: u64,
    /// Bytes of a reply that its client does not take.
    pub unread_bytes: u64,
    /// The present request, without its query: `GET /q`; of its address 255 bytes at most.
    pub asks: Option<String>,
    /// The client in the shards that waits for it.
    pub client_id: Option<ClientId>,
}

/// A connection with its counters, for lists of clients and to close it.
pub struct Client {
    id: u64,
    protocol: &'static str,
    listener: Arc<str>,
    peer: Option<SocketAddr>,
    tls: bool,
    started: Instant,
    /// When it last sent or took something, ms since `started`.
    active: AtomicU64,
    /// Bytes of a reply that wait for its client.
    unread: AtomicU64,
    client_id: AtomicU64,
    last: Mutex<Last>,
    cut: Notify,
    /// True once the client has ended its side of the connection, or reset it, while a request
    /// of it was being answered.
    ended: watch::Sender<bool>,
    /// Closed once the client has done so, also behind bytes that nobody reads yet.
    far_end: OnceLock<FarEnd>,
    /// The server waits for more of a request's body.
    body_waits: AtomicBool,
    /// The server does not wait for the rest of a body: it waits for too many others.
    refused: AtomicBool,
    /// The server stops.
    stops: watch::Receiver<bool>,
    /// State that its protocol keeps for it.
    own: OnceLock<Box<dyn Any + Send + Sync>>,
}

/// The last request, and whose it was.
#[derive(Default)]
struct Last {
    method: Option<Method>,
    /// Of its address, without the query: [`PATH_MAX`] bytes at most. Nothing else of a head is
    /// kept, which may be long.
    path: String,
    /// The request is not answered yet.
    busy: bool,
    /// The task that reads on once it is. Under the same lock as `busy`: a reply that ends wakes
    /// every reader that has seen `busy`.
    reader: Option<Waker>,
    who: Option<(Principal, Arc<dyn Gate>)>,
    /// The number of the login, for [`Gate::counts`].
    proof: u64,
    /// The session that it came with.
    session: Option<Weak<Session>>,
}

/// A connection that is there until this is dropped.
pub struct Present {
    clients: Arc<Clients>,
    client: Arc<Client>,
}

/// Waits until it is true, or nobody is left who could say so.
async fn signalled(of: &watch::Sender<bool>) {
    let mut of = of.subscribe();
    let _gone = of.wait_for(|listed| *listed).await;
}

fn ms_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl Clients {
    /// A request of another protocol took messages, under leases that name this client. `agent` is
    /// its `User-Agent`.
    pub fn took(
        &self,
        client_id: ClientId,
        protocol: &'static str,
        user: Option<&str>,
        agent: Option<&str>,
    ) {
        let agent = agent.filter(|agent| (1..=WORKER_MAX).contains(&agent.len()));
        let consumer = Consumer {
            protocol,
            user: user.map(Arc::from),
            worker: agent.map(Box::from),
        };
        self.consumers.note(client_id, consumer);
    }

    /// The connected clients of higher numbers than `after`, `max` of them at most.
    pub fn list(&self, after: u64, max: usize) -> Vec<ClientNow> {
        let there: Vec<Arc<Client>> = {
            let there = locked(&self.there);
            let behind = there.clients.range((Excluded(after), Unbounded));
            behind
                .take(max)
                .map(|(_, client)| Arc::clone(client))
                .collect()
        };
        there.iter().map(|client| client.now()).collect()
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        locked(&self.there).clients.len() as u64
    }

    /// Closes a connection, in the middle of what it asks for too; false: there
    /// is none of this number.
    pub fn close(&self, id: u64) -> bool {
        let client = locked(&self.there).clients.get(&id).cloned();
        client.inspect(|client| client.cut.notify_one()).is_some()
    }

    /// Closes the connections whose last request came with a session that has ended by `now`, and
    /// if `logins` may have ended those of a login that counts no more.
    pub fn close_logged_out(&self, now: Instant, logins: bool) {
        let there: Vec<Arc<Client>> = locked(&self.there).clients.values().cloned().collect();
        for client in there {
            let logged_out = {
                let last = locked(&client.last);
                let who = last.who.as_ref();
                let ended = who.filter(|(who, gate)| {
                    last.session.as_ref().is_some_and(|session| {
                        !session.upgrade().is_some_and(|session| session.lasts(now))
                    }) || logins && !gate.counts(*who, last.proof)
                });
                ended.cloned()
            };
            if let Some((who, gate)) = logged_out {
                let peer = client.peer.map(|peer| peer.ip().to_canonical());
                let act = (Operation::LoginEnded, Operation::LoginEnded.name());
                gate.note(who, peer, act, (401, Did::default()));
                client.cut.notify_one();
            }
        }
    }

    /// Connections that were refused since their address had too many.
    pub fn crowded(&self) -> u64 {
        self.crowded.load(Ordering::Relaxed)
    }

    /// Counts a connection that is refused since its address has too many. True once a minute:
    /// the log is to say so.
    pub(crate) fn crowds(&self) -> bool {
        self.crowded.fetch_add(1, Ordering::Relaxed);
        let now = 1 + self.started.elapsed().as_secs() / 60;
        self.crowded_reported.swap(now, Ordering::Relaxed) != now
    }

    /// The server stops: every wait of a connection ends.
    pub(crate) fn stop(&self) {
        self.stops.send_replace(true);
    }

    /// Returns when the server stops.
    pub(crate) async fn is_stopped(&self) {
        signalled(&self.stops).await;
    }

    /// Counts a connection until the value returned is dropped.
    pub fn come(
        self: &Arc<Self>,
        protocol: &'static str,
        listener: &Arc<str>,
        peer: Option<SocketAddr>,
        tls: bool,
    ) -> Present {
        let mut there = locked(&self.there);
        loop {
            there.last = there.last % NUMBERS + 1;
            if !there.clients.contains_key(&there.last) {
                break;
            }
        }
        let client = Arc::new(Client {
            id: there.last,
            protocol,
            listener: Arc::clone(listener),
            peer,
            tls,
            started: self.started,
            active: AtomicU64::new(ms_since(self.started)),
            unread: AtomicU64::new(0),
            client_id: AtomicU64::new(0),
            last: Mutex::default(),
            cut: Notify::new(),
            ended: watch::Sender::new(false),
            far_end: OnceLock::new(),
            body_waits: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            stops: self.stops.subscribe(),
            own: OnceLock::new(),
        });
        there.clients.insert(client.id, Arc::clone(&client));
        Present {
            clients: Arc::clone(self),
            client,
        }
    }
}

impl Present {
    /// The listed connection, which leaves the list when this is dropped.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Returns when somebody closes it.
    pub(crate) async fn is_closed(&self) {
        self.client.cut.notified().await;
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        let mut there = locked(&self.clients.there);
        there.clients.remove(&self.client.id);
    }
}

impl Client {
    /// The head of a request is there.
    pub(crate) fn asks(&self, method: &Method, path: &str) {
        let mut ends = (0..=path.len().min(PATH_MAX)).rev();
        let end = ends.find(|&end| path.is_char_boundary(end));
        let mut last = locked(&self.last);
        last.method = Some(method.clone());
        last.path.clear();
        last.path.push_str(&path[..end.unwrap_or(0)]);
        last.busy = true;
    }

    /// The reply is on its way, or given up.
    pub(crate) fn asks_no_more(&self) {
        let reader = {
            let mut last = locked(&self.last);
            last.busy = false;
            last.reader.take()
        };
        reader.into_iter().for_each(Waker::wake);
    }

    /// The client sends nothing more. True while a request of it is being answered: the
    /// connection goes on, and the end of the reply wakes `reader`.
    pub(crate) fn ends(&self, reader: &Waker) -> bool {
        {
            let mut last = locked(&self.last);
            if !last.busy {
                return false;
            }
            last.reader = Some(reader.clone());
        }
        self.ended
            .send_if_modified(|ended| !std::mem::replace(ended, true));
        true
    }

    /// Its connection is a socket with this other end.
    pub(crate) fn is_at(&self, far_end: FarEnd) {
        // Nobody else has set it.
        let _new = self.far_end.set(far_end);
    }

    /// True once the client sends nothing more. Bytes that came before may be unread.
    pub fn has_ended(&self) -> bool {
        *self.ended.borrow() || self.far_end.get().is_some_and(FarEnd::has_closed)
    }

    /// Returns when waits for this client have to end: the client sends nothing more, also if
    /// bytes that came before are unread, or the server stops.
    pub async fn is_let_go(&self) {
        let far_end = or_never(self.far_end.get().map(FarEnd::is_closed));
        tokio::select! {
            () = far_end => {}
            () = self.reads_no_more() => {}
        }
    }

    /// Returns when the rest of a request cannot come: the client has ended its side of the
    /// connection and all before that was read, or the server stops.
    pub(crate) async fn reads_no_more(&self) {
        tokio::select! {
            () = signalled(&self.ended) => {}
            () = self.is_stopped() => {}
        }
    }

    /// Returns when the server stops.
    pub async fn is_stopped(&self) {
        let mut stops = self.stops.clone();
        let _gone = stops.wait_for(|stops| *stops).await;
    }

    /// The server waits for more of a request's body, or no longer does.
    pub(crate) fn waits_for_body(&self, waits: bool) {
        self.body_waits.store(waits, Ordering::Relaxed);
    }

    /// The server does not wait for the rest of the body: too many others have not arrived.
    pub(crate) fn refuse_body(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// Why the server did not wait for the whole request, if it did not. Nothing of such a request
    /// was done.
    pub fn is_cut_off(&self) -> Option<&'static str> {
        if self.refused.load(Ordering::Relaxed) {
            return Some("too many requests arrive in pieces");
        }
        let stops = *self.stops.borrow() && self.body_waits.load(Ordering::Relaxed);
        stops.then_some("the server is stopping")
    }

    /// State that a protocol keeps for as long as the connection is there, made when it is first
    /// asked for. `None`: another type is kept.
    pub fn own<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        self.own.get_or_init(|| Box::new(make())).downcast_ref()
    }

    /// Notes the user of the latest request, and the number of the login for [`Gate::counts`].
    pub fn is_of(&self, who: Option<&(Principal, Arc<dyn Gate>)>, proof: u64) {
        let mut last = locked(&self.last);
        (last.who, last.proof, last.session) = (who.cloned(), proof, None);
    }

    /// Notes the session of the latest request. The connection ends with it.
    pub fn is_in(&self, session: Weak<Session>) {
        locked(&self.last).session = Some(session);
    }

    /// Sets the client that asks the shards for it now.
    pub fn waits_as(&self, client_id: Option<ClientId>) {
        let client_id = client_id.map_or(0, |client_id| client_id.0);
        self.client_id.store(client_id, Ordering::Relaxed);
    }

    /// Bytes came, or went.
    pub(crate) fn moves(&self) {
        self.active.store(ms_since(self.started), Ordering::Relaxed);
    }

    /// So many bytes of a reply wait for its client.
    pub fn set_unread(&self, bytes: usize) {
        self.unread.store(bytes as u64, Ordering::Relaxed);
    }

    /// A part of a reply waits for its client.
    pub(crate) fn is_blocked(&self) -> bool {
        self.unread.load(Ordering::Relaxed) > 0
    }

    fn now(&self) -> ClientNow {
        let last = locked(&self.last);
        let method = last.method.as_ref().filter(|_| last.busy);
        let who = last.who.as_ref();
        let client_id = self.client_id.load(Ordering::Relaxed);
        ClientNow {
            id: self.id,
            protocol: self.protocol,
            listener: Arc::clone(&self.listener),
            peer: self.peer,
            user: who.and_then(|(who, gate)| gate.name_of(*who)),
            tls: self.tls,
            idle_ms: ms_since(self.started).saturating_sub(self.active.load(Ordering::Relaxed)),
            unread_bytes: self.unread.load(Ordering::Relaxed),
            asks: method.map(|method| format!("{method} {}", last.path)),
            client_id: (client_id > 0).then_some(ClientId(client_id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that has to wait for the end of a reply is woken by it, however the two
    /// threads meet.
    #[test]
    fn the_end_of_a_reply_wakes_the_reader_that_waits_for_it() {
        struct Woken(AtomicBool);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let clients = Arc::new(Clients::default());
        let present = clients.come("http", &"here".into(), None, false);
        let client = present.client();
        for _ in 0..5_000 {
            client.asks(&Method::GET, "/");
            let woken = Arc::new(Woken(AtomicBool::new(false)));
            let waker = Waker::from(Arc::clone(&woken));
            let turn = AtomicU64::new(0);
            let meets = || {
                turn.fetch_add(1, Ordering::SeqCst);
                while turn.load(Ordering::SeqCst) < 2 {
                    std::thread::yield_now();
                }
            };
            let waits = std::thread::scope(|scope| {
                let reads = scope.spawn(|| {
                    meets();
                    client.ends(&waker)
                });
                meets();
                client.asks_no_more();
                reads.join().expect("it reads")
            });
            assert!(!waits || woken.0.load(Ordering::SeqCst), "nobody wakes it");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn connected_clients_are_listed_and_closed() {
        let clients = Arc::new(Clients::default());
        let listener: Arc<str> = "127.0.0.1:1".into();
        let peer = Some(SocketAddr::from(([192, 0, 2, 1], 5)));
        let first = clients.come("http", &listener, peer, true);
        let second = clients.come("http", &listener, None, false);
        let listed = clients.list(0, 9);
        assert_eq!((listed[0].id, listed[1].id, listed.len()), (1, 2, 2));
        assert_eq!((listed[0].peer, listed[0].tls), (peer, true));
        assert_eq!((&listed[0].asks, listed[0].client_id), (&None, None));
        let client = first.client();
        client.asks(&Method::GET, &format!("/{}", "\u{e9}".repeat(4_000)));
        let listed = clients.list(0, 9).swap_remove(0);
        let path = format!("GET /{}", "\u{e9}".repeat(127));
        assert_eq!(listed.asks, Some(path), "the start of its address");
        client.asks(&Method::GET, "/q/a");
        client.waits_as(Some(ClientId(7)));
        client.set_unread(9);
        let listed = clients.list(0, 9).swap_remove(0);
        assert_eq!(listed.asks.as_deref(), Some("GET /q/a"));
        assert_eq!(
            (listed.client_id, listed.unread_bytes),
            (Some(ClientId(7)), 9)
        );
        client.waits_as(None);
        client.asks_no_more();
        let listed = clients.list(0, 9).swap_remove(0);
        assert_eq!((listed.asks, listed.client_id), (None, None));
        drop(first);
        assert!(!clients.close(1) && clients.close(2));
        second.is_closed().await;
        // Numbers go round, past those that are taken.
        locked(&clients.there).last = NUMBERS - 1;
        let last = clients.come("http", &listener, None, false);
        let again = clients.come("http", &listener, None, false);
        let next = clients.come("http", &listener, None, false);
        let numbers = [&last, &again, &next].map(|present| present.client().id);
        assert_eq!(numbers, [NUMBERS, 1, 3]);
        drop((second, last, again, next));
        assert_eq!(clients.list(0, 9), []);
    }
}
