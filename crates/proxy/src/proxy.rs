//! The thread of a proxy: its listeners for clients, and the listener for peer connections.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use quintet_tls::Secure;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::timeout;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

use crate::counts::{CountGuard, count};
use crate::line::Tunnel;
use crate::shared::{Intake, Node, Settings, Shared, Stream};
use crate::socket::{Listener, Plain, Socket, plain, readable};
use crate::{Counts, Owners, peer_connection, secure, tunnel};

/// Peer connections that have not stated their purpose, at most; more wait to be accepted.
const UNSAID_MAX: usize = 1024;
/// Pause after the system had no file or memory for a connection.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Orders that are answered at a time.
const ORDERS: u32 = 8;

/// Connections that an earlier process had accepted, and whose clients say nothing, are brought to
/// the owner so far apart, not all at once.
const APART: Duration = Duration::from_millis(2);

/// A listener of clients, which is this proxy's for as long as the node does not own.
#[derive(Debug)]
pub struct ProxyListener {
    /// Its protocol, by its name in the configuration.
    pub protocol: String,
    /// Which of those that speak it, from 0.
    pub nth: u16,
    /// Its socket, duplicated: the node's own threads accept from it when it owns.
    pub socket: Socket,
    /// TLS of its TCP connections, which ends here; `None`: they are plain.
    pub tls: Option<Secure>,
    /// Connections that came here while an earlier process of this node served the queues. They are
    /// as just accepted, and their clients begin.
    pub earlier: Vec<Stream>,
}

/// A proxy and its node's end of peer connections, running in a thread of its own. Dropped, all of
/// its connections end.
pub struct Proxy {
    shared: Arc<Shared>,
    runtime: Handle,
    stop: Option<oneshot::Sender<Duration>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts, for clients; other nodes and tools wait for [`Proxy::listen`].
    ///
    /// # Errors
    /// The system has no thread or no event queue to give.
    pub fn start(
        proxy_listeners: Vec<ProxyListener>,
        owners: watch::Receiver<Owners>,
        node: Arc<dyn Node>,
        settings: Settings,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let connections = Arc::new(Semaphore::new(
            settings.connections_max.min(Semaphore::MAX_PERMITS),
        ));
        let shared = Arc::new(Shared {
            settings,
            owners,
            intake: OnceLock::new(),
            accepts: CancellationToken::new(),
            closed: AtomicBool::new(false),
            node,
            orders: Semaphore::new(ORDERS as usize),
            counts: Counts::default(),
        });
        {
            // Sockets become part of the runtime they are made in.
            let _inside = runtime.enter();
            let mut rests = Duration::ZERO;
            for proxy_listener in proxy_listeners {
                let listener = Listener::new(proxy_listener.socket)?;
                let tunnel = Tunnel {
                    protocol: proxy_listener.protocol,
                    nth: proxy_listener.nth,
                    peer: None,
                    principal: String::new(),
                };
                let entrance = Entrance {
                    tunnel,
                    tls: proxy_listener.tls,
                    connections: Arc::clone(&connections),
                };
                for stream in proxy_listener.earlier {
                    rests += APART;
                    if let Err(error) = entrance.resume(&shared, stream, rests) {
                        tracing::debug!("cannot take a connection over: {error}");
                    }
                }
                let accepts = clients(Arc::clone(&shared), listener, entrance);
                runtime.spawn(shared.accepts.clone().run_until_cancelled_owned(accepts));
            }
        }
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("proxy".to_owned());
        let ours = Arc::clone(&shared);
        let thread = thread.spawn(move || {
            runtime.block_on(async {
                if let Ok(within) = stopped.await {
                    ours.accepts.cancel();
                    // It may be by an order that the proxy ends.
                    let orders = ours.orders.acquire_many(ORDERS);
                    timeout(within, orders).await.ok();
                }
            });
            runtime.shutdown_background();
        })?;
        Ok(Self {
            shared,
            runtime: handle,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Other nodes and tools are answered from now on, at `peer_sockets`: the address that is
    /// advertised, and the node's own socket.
    ///
    /// # Errors
    /// A socket cannot be polled.
    pub fn listen(&self, peer_sockets: Vec<Socket>) -> io::Result<()> {
        let _inside = self.runtime.enter();
        for socket in peer_sockets {
            let listener = Listener::new(socket)?;
            let accepts = nodes(Arc::clone(&self.shared), listener);
            let ends = self.shared.accepts.clone();
            self.runtime.spawn(ends.run_until_cancelled_owned(accepts));
        }
        Ok(())
    }

    /// From now on this takes clients, while this node owns. Once.
    pub fn serve_by(&self, intake: Arc<dyn Intake>) {
        if self.shared.intake.set(intake).is_err() {
            tracing::error!("this node serves the queues already");
        }
    }

    /// From now on a client that is brought here waits for another owner. Connections that were
    /// handed on before stay.
    pub fn serve_no_more(&self) {
        self.shared.closed.store(true, Ordering::SeqCst);
    }

    /// Ends it. Orders get their answers first, `within` this time; nobody is accepted meanwhile.
    pub fn end(mut self, within: Duration) {
        // A thread that is gone needs no telling.
        self.stop.take().map(|stop| stop.send(within));
    }

    /// Counters of connections, for metrics; they go on while the proxy runs.
    pub fn counts(&self) -> &Counts {
        &self.shared.counts
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the proxy's thread had ended before its time");
        }
    }
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Front").finish_non_exhaustive()
    }
}

/// State that the clients of a [`ProxyListener`] share.
struct Entrance {
    tunnel: Tunnel,
    tls: Option<Secure>,
    /// Places for all clients of the proxy.
    connections: Arc<Semaphore>,
}

impl Entrance {
    /// Sees to a client that came here, if there is a place for it. `rests`: it is brought to the
    /// owner when it says something, or after this.
    fn admit(
        &self,
        shared: &Arc<Shared>,
        stream: Plain,
        peer: Option<SocketAddr>,
        rests: Option<Duration>,
    ) {
        let Ok(place) = Arc::clone(&self.connections).try_acquire_owned() else {
            let turned_away = count(&shared.counts.turned_away);
            // Once per power of two: enough to notice, too little to fill a disk.
            if turned_away.is_power_of_two() {
                tracing::warn!("{turned_away} connections closed: connections_max is reached");
            }
            return;
        };
        let counted = match peer {
            None => None,
            Some(peer) => match shared.node.arrive(peer) {
                Some(counted) => Some(counted),
                // The owner's protocol would have to say why.
                None => return,
            },
        };
        let tunnel = Tunnel {
            peer,
            ..self.tunnel.clone()
        };
        let (shared, tls) = (Arc::clone(shared), self.tls.clone());
        tokio::spawn(async move {
            match tls {
                None => {
                    drop(counted);
                    if let Some(rests) = rests {
                        let _waits = CountGuard::new(&shared.counts.waiting);
                        // However it ends: what is wrong with it shows when it is read.
                        timeout(rests, readable(&stream)).await.ok();
                    }
                    tunnel::run(shared, Either::Left(stream), tunnel).await;
                }
                Some(tls) => secure::run(shared, stream, tunnel, tls, counted).await,
            }
            drop(place);
        });
    }

    /// Goes on with a client's connection that an earlier process had accepted here.
    ///
    /// # Errors
    /// It is broken.
    fn resume(&self, shared: &Arc<Shared>, stream: Stream, rests: Duration) -> io::Result<()> {
        let (stream, peer) = plain(stream)?;
        // TLS is spoken only since it came: its client would not begin a handshake.
        if self.tls.is_none() || peer.is_none() {
            self.admit(shared, stream, peer, Some(rests));
        }
        Ok(())
    }
}

/// Accepts clients while another node owns, or nobody does.
async fn clients(shared: Arc<Shared>, listener: Listener, entrance: Entrance) {
    let mut owners = shared.owners.clone();
    loop {
        if owners.wait_for(|owners| !owners.is_us()).await.is_err() {
            return;
        }
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            owns = owners.wait_for(Owners::is_us) => match owns {
                Ok(_) => continue,
                Err(_) => return,
            },
        };
        match accepted {
            Ok((stream, peer)) => entrance.admit(&shared, stream, peer, None),
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// Accepts peer connections.
async fn nodes(shared: Arc<Shared>, listener: Listener) {
    let places = Arc::new(Semaphore::new(UNSAID_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, peer)) => {
                tokio::spawn(peer_connection::serve(
                    Arc::clone(&shared),
                    stream,
                    peer,
                    place,
                ));
            }
            Err(error) => {
                tracing::warn!("cannot accept a peer connection: {error}");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}
