//! The proxy of a node: clients that come while another node owns the queues are brought there, and
//! other nodes bring theirs here.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use quintet_cluster::ClusterId;
use quintet_config::{Address, Cluster, Config};
use quintet_host::locked;
use quintet_nodes::NODE_SOCKET;
use quintet_process::{Bound, again, bind, restrict};
use quintet_proxy::tls::{Files, PeerTls};
use quintet_proxy::{
    Intake, Node as ProxyNode, Owners, Proxy, ProxyListener, Settings, Socket, watch,
};

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

/// The proxy, until the server stops.
#[derive(Default)]
pub(super) struct ProxyListeners(Mutex<Option<Open>>);

struct Open {
    proxy: Proxy,
    _bound: Vec<Bound>,
}

impl ProxyListeners {
    /// From now on clients come in, and `node` answers every request.
    pub(super) fn open(
        &self,
        proxy_listeners: Vec<ProxyListener>,
        peer_listener: PeerListener,
        settings: Settings,
        owners: watch::Receiver<Owners>,
        node: Arc<dyn ProxyNode>,
    ) -> Result<()> {
        let proxy = Proxy::start(
            proxy_listeners,
            peer_listener.sockets,
            owners,
            node,
            settings,
        );
        *locked(&self.0) = Some(Open {
            proxy: proxy.context("cannot start the proxy")?,
            _bound: peer_listener.bound,
        });
        Ok(())
    }

    /// Clients that are brought to the owner, and those that wait for one.
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

    /// Nobody is brought any more.
    pub(super) fn close(&self) {
        let open = locked(&self.0).take();
        drop(open);
    }
}
