//! The thread of a proxy: its listeners for clients, and the listener for peer connections.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use quintet_tls::Secure;
use tokio::sync::{Semaphore, oneshot, watch};

use crate::counts::count;
use crate::line::Tunnel;
use crate::shared::{Intake, Node, Settings, Shared};
use crate::socket::{Listener, Socket};
use crate::{Counts, Owners, peer_connection, secure, tunnel};

/// Peer connections that have not stated their purpose, at most; more wait to be accepted.
const UNSAID_MAX: usize = 1024;
/// Pause after the system had no file or memory for a connection.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

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
}

/// A proxy and its node's end of peer connections, running in a thread of its own. Dropped, all of
/// its connections end.
pub struct Proxy {
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts. `peer_sockets` are where other nodes and tools ask: the address that is advertised,
    /// and the node's own socket.
    ///
    /// # Errors
    /// The system has no thread or no event queue to give.
    pub fn start(
        proxy_listeners: Vec<ProxyListener>,
        peer_sockets: Vec<Socket>,
        owners: watch::Receiver<Owners>,
        node: Arc<dyn Node>,
        settings: Settings,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(8)
            .thread_name("proxy-work")
            .build()?;
        let connections = Arc::new(Semaphore::new(
            settings.connections_max.min(Semaphore::MAX_PERMITS),
        ));
        let shared = Arc::new(Shared {
            settings,
            owners,
            intake: OnceLock::new(),
            closed: AtomicBool::new(false),
            node,
            counts: Counts::default(),
        });
        {
            // Sockets become part of the runtime they are made in.
            let _inside = runtime.enter();
            for proxy_listener in proxy_listeners {
                let listener = Listener::new(proxy_listener.socket)?;
                let tunnel = Tunnel {
                    protocol: proxy_listener.protocol,
                    nth: proxy_listener.nth,
                    peer: None,
                    principal: String::new(),
                };
                let connections = Arc::clone(&connections);
                let entrance = Entrance {
                    tunnel,
                    tls: proxy_listener.tls,
                };
                runtime.spawn(clients(
                    Arc::clone(&shared),
                    listener,
                    entrance,
                    connections,
                ));
            }
            for socket in peer_sockets {
                runtime.spawn(nodes(Arc::clone(&shared), Listener::new(socket)?));
            }
        }
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("proxy".to_owned());
        let thread = thread.spawn(move || {
            // Dropped without a word says the same.
            runtime.block_on(stopped).ok();
            runtime.shutdown_background();
        })?;
        Ok(Self {
            shared,
            stop: Some(stop),
            thread: Some(thread),
        })
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

    /// Counters of connections, for metrics; they go on while the proxy runs.
    pub fn counts(&self) -> &Counts {
        &self.shared.counts
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // A thread that is gone needs no telling.
        self.stop.take().map(|stop| stop.send(()));
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
}

/// Accepts clients while another node owns, or nobody does.
async fn clients(
    shared: Arc<Shared>,
    listener: Listener,
    proxy_listener: Entrance,
    connections: Arc<Semaphore>,
) {
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
            Ok((stream, peer)) => {
                let Ok(place) = Arc::clone(&connections).try_acquire_owned() else {
                    let turned_away = count(&shared.counts.turned_away);
                    // Once per power of two: enough to notice, too little to fill a disk.
                    if turned_away.is_power_of_two() {
                        tracing::warn!(
                            "{turned_away} connections closed: connections_max is reached"
                        );
                    }
                    continue;
                };
                let counted = match peer {
                    None => None,
                    Some(peer) => match shared.node.arrive(peer) {
                        Some(counted) => Some(counted),
                        // The owner's protocol would have to say why.
                        None => continue,
                    },
                };
                let tunnel = Tunnel {
                    peer,
                    ..proxy_listener.tunnel.clone()
                };
                let (shared, tls) = (Arc::clone(&shared), proxy_listener.tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => {
                            drop(counted);
                            tunnel::run(shared, stream, tunnel).await;
                        }
                        Some(tls) => secure::run(shared, stream, tunnel, tls, counted).await,
                    }
                    drop(place);
                });
            }
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
