//! Settings of a proxy, its requests to its node, and the state that its tasks share.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::line::Tunnel;
use crate::tls::PeerTls;
use crate::{Counts, Owners};

/// A client's connection as it is handed to the node that serves the queues.
#[derive(Debug)]
pub struct Client {
    /// The bytes, both ways. Not blocking.
    pub stream: Stream,
    /// Description of their client.
    pub tunnel: Tunnel,
}

/// The carrier of its bytes.
#[derive(Debug)]
pub enum Stream {
    /// The peer connection itself.
    Tcp(std::net::TcpStream),
    /// One end of a pair; the other end decrypts the peer connection.
    Unix(std::os::unix::net::UnixStream),
}

/// The service for the queues, on the node that owns them.
pub trait Intake: Send + Sync {
    /// Whether the listener of this client takes it now. False: it has ended, and the client waits
    /// for the next owner.
    ///
    /// # Errors
    /// There is no such listener, in words for the other node's log.
    fn admits(&self, tunnel: &Tunnel) -> Result<bool, String>;

    /// Takes a connection that was admitted.
    fn take(&self, client: Client);

    /// The same, of one that came to this node's own listener, as if that had accepted it now.
    fn adopt(&self, client: Client) {
        self.take(client);
    }
}

/// Limits and protection of client connections that a node passes on.
#[derive(Clone, Debug)]
pub struct Settings {
    pub cluster: u64,
    /// A client waits for an owner so long, its bytes unread; then it is closed.
    pub wait: Duration,
    /// Clients at once, waiting or tunneled; more are closed.
    pub connections_max: usize,
    /// How peer connections are protected; `None`: not at all.
    pub tls: Option<PeerTls>,
}

/// Replies of a node to other nodes and tools. Called from threads that may wait.
pub trait Node: Send + Sync {
    /// Its view of itself and the cluster: a line, without its end.
    fn status(&self) -> String;

    /// Does what is asked by a verb and its words, and says how it went: a line, without its end.
    fn order(&self, words: &[String]) -> String;

    /// A client comes from there by TCP. What counts it for as long as it is held, which is until
    /// its handshake is over: from then on the owner counts it. `None`: it is to be closed. Must
    /// not wait.
    fn arrive(&self, _peer: SocketAddr) -> Option<DropGuard> {
        Some(Box::new(()))
    }

    /// A client's handshake has failed. Must not wait.
    fn handshake_failed(&self, _peer: SocketAddr) {}
}

/// A guard whose drop has an effect.
pub type DropGuard = Box<dyn Any + Send>;

/// State that all tasks share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) owners: watch::Receiver<Owners>,
    pub(crate) intake: OnceLock<Arc<dyn Intake>>,
    /// Cancelled, no listener accepts any more.
    pub(crate) accepts: CancellationToken,
    /// The intake takes nobody any more.
    pub(crate) closed: AtomicBool,
    pub(crate) node: Arc<dyn Node>,
    /// A permit for each order that is being answered.
    pub(crate) orders: Semaphore,
    pub(crate) counts: Counts,
}
