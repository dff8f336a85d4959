//! The proxy of a node: clients that come while another node owns the queues are brought there, and
//! other nodes bring theirs here.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use quintet_client::Arrivals;
use quintet_cluster::ClusterId;
use quintet_config::{Address, Cluster, Config};
use quintet_host::locked;
use quintet_nodes::NODE_SOCKET;
use quintet_process::{Bound, again, bind, restrict};
use quintet_proxy::tls::{Files, PeerTls};
use quintet_proxy::{
    DropGuard, Intake, Node as ProxyNode, Owners, Proxy, ProxyListener, Settings, Socket, Stream,
    watch,
};

use super::teller::Teller;

/// A client waits for an owner so long, its bytes unread.
const WAIT: Duration = Duration::from_secs(15);

/// Where other nodes bring their clients, and where tools on this machine ask, open.
pub(super) struct PeerListener {
    sockets: Vec<Socket>,
    /// Where other nodes reach the first.
    pub(super) address: String,
    /// They remove their socket files when they go.
    bound: Vec<Bound>,
}

/// Opens them.
///
/// # Errors
/// The address is none, or in use.
pub(super) fn open_peer_listener(config: &Config) -> Result<PeerListener> {
    let cluster = &config.cluster;
    let wrong = |why: String| anyhow!("cluster.listen = {:?}: {why}", cluster.listen);
    let address = Address::parse(&cluster.listen).map_err(wrong)?;
    let nodes = bind("other nodes (cluster.listen)", &address)?;
    again::keep(address.to_string(), nodes.duplicate()?);
    let path = config.data.join(NODE_SOCKET);
    let address = Address::Unix(path.clone());
    let tools = bind("tools", &address)?;
    restrict(&path).with_context(|| format!("cannot protect {}", path.display()))?;
    again::keep(address.to_string(), tools.duplicate()?);
    Ok(PeerListener {
        sockets: vec![socket(&nodes)?, socket(&tools)?],
        address: match cluster.advertise.as_str() {
            "" => nodes.address.to_string(),
            advertise => advertise.to_owned(),
        },
        bound: vec![nodes, tools],
    })
}

/// A listener's socket once more.
///
/// # Errors
/// The system has no file to give.
pub fn socket(bound: &Bound) -> std::io::Result<Socket> {
    let socket = bound.duplicate()?;
    Ok(match &bound.address {
        Address::Tcp(_) => Socket::Tcp(socket.into()),
        Address::Unix(_) => Socket::Unix(socket.into()),
    })
}

/// Connections that this node had at a listener when it owned, and left without state.
pub fn earlier(protocol: &str, bound: &Bound) -> Vec<Stream> {
    let sockets = again::connections(protocol, &bound.address.to_string());
    let sockets = sockets.into_iter();
    match &bound.address {
        Address::Tcp(_) => sockets.map(|one| Stream::Tcp(one.into())).collect(),
        Address::Unix(_) => sockets.map(|one| Stream::Unix(one.into())).collect(),
    }
}

/// TLS of peer connections, if there is any.
///
/// # Errors
/// A file cannot be read or used.
pub(super) fn tls(cluster: &Cluster) -> Result<Option<PeerTls>> {
    if cluster.peer_tls_ca.is_empty() {
        return Ok(None);
    }
    let files = Files {
        ca: PathBuf::from(&cluster.peer_tls_ca),
        cert: PathBuf::from(&cluster.peer_tls_cert),
        key: PathBuf::from(&cluster.peer_tls_key),
    };
    let tls =
        PeerTls::load(&files).context("cannot set up TLS for the connections between nodes")?;
    Ok(Some(tls))
}

/// Settings of a proxy; `connections`: clients at once.
pub(super) fn settings(cluster: ClusterId, tls: Option<PeerTls>, connections: u64) -> Settings {
    Settings {
        cluster: cluster.0,
        wait: WAIT,
        connections_max: usize::try_from(connections).unwrap_or(usize::MAX),
        tls,
    }
}

/// The node, as the proxy asks it.
struct Asked {
    /// Limits of clients' addresses, before a node that owns counts them.
    arrivals: Arc<dyn Arrivals>,
    /// Answers other nodes, which come in when it is there.
    teller: OnceLock<Arc<Teller>>,
}

impl ProxyNode for Asked {
    fn status(&self) -> String {
        let teller = self.teller.get();
        teller.map_or_else(String::new, |teller| teller.status())
    }

    fn order(&self, words: &[String]) -> String {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let teller = self.teller.get();
        teller.map_or_else(String::new, |teller| teller.obey(&words))
    }

    fn arrive(&self, peer: SocketAddr) -> Option<DropGuard> {
        self.arrivals.arrive(peer.ip().to_canonical())
    }

    fn handshake_failed(&self, peer: SocketAddr) {
        self.arrivals.failed(peer.ip().to_canonical());
    }
}

/// The proxy, until the server stops.
#[derive(Default)]
pub(super) struct ProxyListeners(Mutex<Option<Open>>);

struct Open {
    proxy: Proxy,
    asked: Arc<Asked>,
    _bound: Vec<Bound>,
}

impl ProxyListeners {
    /// From now on clients come in.
    pub(super) fn begin(
        &self,
        proxy_listeners: Vec<ProxyListener>,
        settings: Settings,
        owners: watch::Receiver<Owners>,
        arrivals: Arc<dyn Arrivals>,
    ) -> Result<()> {
        let asked = Arc::new(Asked {
            arrivals,
            teller: OnceLock::new(),
        });
        let node = Arc::<Asked>::clone(&asked);
        let proxy = Proxy::start(proxy_listeners, owners, node, settings);
        *locked(&self.0) = Some(Open {
            proxy: proxy.context("cannot start the proxy")?,
            asked,
            _bound: Vec::new(),
        });
        Ok(())
    }

    /// Other nodes and tools as well, which `teller` answers.
    pub(super) fn listen(&self, peer_listener: PeerListener, teller: &Arc<Teller>) -> Result<()> {
        if let Some(open) = &mut *locked(&self.0) {
            open.asked.teller.get_or_init(|| Arc::clone(teller));
            let listens = open.proxy.listen(peer_listener.sockets);
            listens.context("cannot start the proxy")?;
            open._bound = peer_listener.bound;
        }
        Ok(())
    }

    /// Clients that are brought to the owner, and those that wait to be.
    pub(super) fn counts(&self) -> (u64, u64) {
        let open = locked(&self.0);
        open.as_ref().map_or((0, 0), |open| {
            let counts = open.proxy.counts();
            [&counts.tunneled, &counts.waiting]
                .map(|count| count.load(Ordering::Relaxed))
                .into()
        })
    }

    /// This node serves clients that others bring.
    pub(super) fn serve_by(&self, intake: Arc<dyn Intake>) {
        if let Some(open) = &*locked(&self.0) {
            open.proxy.serve_by(intake);
        }
    }

    /// The server stops: a client that is brought waits for another owner.
    pub(super) fn serve_no_more(&self) {
        if let Some(open) = &*locked(&self.0) {
            open.proxy.serve_no_more();
        }
    }

    /// Nobody is brought any more. Orders get their answers first, `within` this time.
    pub(super) fn close(&self, within: Duration) {
        let open = locked(&self.0).take();
        if let Some(open) = open {
            open.proxy.end(within);
        }
    }
}
