//! The front of a node: clients that come while another node owns the queues are brought there, and
//! other nodes bring theirs here.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use quintet_cluster::ClusterId;
use quintet_front::tls::{Files, LinkTls};
use quintet_front::{Door, Front, Node as Asked, Settings, Socket};
use quintet_host::locked;
use quintet_web::Links;

use super::Node;
use crate::again;
use crate::config::{Address, Cluster};
use crate::io::Bound;
use crate::linked::Linking;
use crate::server::{Server, bind};

/// A client waits for an owner so long, its bytes unread.
const WAIT: Duration = Duration::from_secs(15);

/// Where other nodes bring their clients, open.
pub(super) struct Link {
    socket: Socket,
    /// Where it really listens.
    pub(super) address: String,
}

/// Opens it.
///
/// # Errors
/// The address is none, or in use.
pub(super) fn open_link(cluster: &Cluster) -> Result<Link> {
    let wrong = |why: String| anyhow!("cluster.listen = {:?}: {why}", cluster.listen);
    let address = Address::parse(&cluster.listen).map_err(wrong)?;
    let bound = bind("other nodes (cluster.listen)", &address)?;
    again::keep(address.to_string(), bound.duplicate()?);
    let address = match cluster.advertise.as_str() {
        "" => bound.address.to_string(),
        advertise => advertise.to_owned(),
    };
    Ok(Link {
        socket: socket(&bound)?,
        address,
    })
}

/// A listener's socket once more.
///
/// # Errors
/// The system has no file to give.
pub(crate) fn socket(bound: &Bound) -> std::io::Result<Socket> {
    let socket = bound.duplicate()?;
    Ok(match &bound.address {
        Address::Tcp(_) => Socket::Tcp(socket.into()),
        Address::Unix(_) => Socket::Unix(socket.into()),
    })
}

/// What protects links, if anything.
///
/// # Errors
/// What is wrong with the files.
pub(super) fn tls(cluster: &Cluster) -> Result<Option<LinkTls>> {
    if cluster.link_tls_ca.is_empty() {
        return Ok(None);
    }
    let files = Files {
        ca: PathBuf::from(&cluster.link_tls_ca),
        cert: PathBuf::from(&cluster.link_tls_cert),
        key: PathBuf::from(&cluster.link_tls_key),
    };
    let tls = LinkTls::load(&files).context("cannot protect links")?;
    Ok(Some(tls))
}

/// What a front needs to know; `connections`: clients at once.
pub(super) fn settings(cluster: ClusterId, tls: Option<LinkTls>, connections: u64) -> Settings {
    Settings {
        cluster: cluster.0,
        wait: WAIT,
        connections_max: usize::try_from(connections).unwrap_or(usize::MAX),
        tls,
    }
}

/// The front, until the server stops.
#[derive(Default)]
pub(super) struct Doors(Mutex<Option<Front>>);

impl Doors {
    /// From now on clients come in.
    pub(super) fn open(
        &self,
        doors: Vec<Door>,
        link: Link,
        settings: Settings,
        node: &Arc<Node>,
    ) -> Result<()> {
        let owners = node.told.owners.subscribe();
        let answers = Arc::new(Answers(Arc::clone(node)));
        let front = Front::start(doors, vec![link.socket], owners, answers, settings);
        *locked(&self.0) = Some(front.context("cannot start a front")?);
        Ok(())
    }

    /// This node serves clients that others bring.
    pub(super) fn serve_by(&self, server: &Arc<Server>, http: Option<Links>) {
        if let Some(front) = &*locked(&self.0) {
            front.serve_by(Arc::new(Linking::new(Arc::clone(server), http)));
        }
    }

    /// Nobody is brought any more.
    pub(super) fn close(&self) {
        let front = locked(&self.0).take();
        drop(front);
    }
}

/// What this node answers to others.
struct Answers(Arc<Node>);

impl Asked for Answers {
    fn status(&self) -> String {
        self.0.role()
    }

    fn order(&self, words: &[String]) -> String {
        format!("this node takes no orders yet: {}", words.join(" "))
    }
}
