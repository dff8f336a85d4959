//! Every link of a cluster, through a proxy that can cut it.

use anyhow::Result;

use super::COUNT;
use super::proxy::{Cut, Proxy};

/// How a process is cut off from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Off {
    /// Its connections end, and it gets no new ones.
    Broken,
    /// Nothing gets through, and no side gets an error.
    Silent,
    /// Its output is lost, and its input arrives.
    Mute,
    /// It is heard, and hears nothing.
    Deaf,
}

impl Off {
    /// Of connections that the process makes itself, or that others make to it.
    fn cut(self, own: bool) -> Cut {
        let (sends, hears) = match self {
            Self::Broken => return Cut::Broken,
            Self::Silent => (true, true),
            Self::Mute => (true, false),
            Self::Deaf => (false, true),
        };
        match own {
            true => Cut::Silent {
                there: sends,
                back: hears,
            },
            false => Cut::Silent {
                there: hears,
                back: sends,
            },
        }
    }
}

/// Between nodes, servers, and both.
pub(super) struct Links {
    /// From each node to each server.
    to_servers: Vec<Vec<Proxy>>,
    /// From each server to each; what leads to itself is not used.
    routes: Vec<Vec<Proxy>>,
    /// From other nodes to each.
    to_nodes: Vec<Proxy>,
}

impl Links {
    /// To the ports on which servers take clients and routes, and nodes each other's clients.
    pub(super) fn start(clients: &[u16], routes: &[u16], nodes: &[u16]) -> Result<Self> {
        let row = |ports: &[u16]| -> Result<Vec<Proxy>> {
            ports.iter().map(|port| Proxy::start(*port)).collect()
        };
        let rows = |ports: &[u16]| (0..COUNT).map(|_| row(ports)).collect::<Result<_>>();
        Ok(Self {
            to_servers: rows(clients)?,
            routes: rows(routes)?,
            to_nodes: row(nodes)?,
        })
    }

    /// Where a node finds the servers, another one of them first for each.
    pub(super) fn servers_of(&self, node: usize) -> Vec<u16> {
        let found = (0..COUNT).map(|more| self.to_servers[node][(node + more) % COUNT].port());
        found.collect()
    }

    /// Where a server finds the others.
    pub(super) fn routes_of(&self, server: usize) -> Vec<u16> {
        let others = (0..COUNT).filter(|other| *other != server);
        others
            .map(|other| self.routes[server][other].port())
            .collect()
    }

    /// Where others find a node.
    pub(super) fn of_node(&self, node: usize) -> u16 {
        self.to_nodes[node].port()
    }

    /// Cuts a node off from NATS.
    pub(super) fn cut_node(&self, node: usize, off: Off) {
        for proxy in &self.to_servers[node] {
            proxy.cut(off.cut(true));
        }
    }

    /// Cuts a server off from the others, and not from the nodes.
    pub(super) fn cut_routes(&self, server: usize, off: Off) {
        for other in (0..COUNT).filter(|other| *other != server) {
            self.routes[server][other].cut(off.cut(true));
            self.routes[other][server].cut(off.cut(false));
        }
    }

    /// Cuts what other nodes bring to this one.
    pub(super) fn cut_link(&self, node: usize, off: Off) {
        self.to_nodes[node].cut(off.cut(false));
    }

    /// Cuts a machine with this node and this server off from all others, in silence.
    pub(super) fn cut_machine(&self, node: usize, server: usize) {
        self.cut_node(node, Off::Silent);
        self.cut_link(node, Off::Silent);
        self.cut_routes(server, Off::Silent);
        for proxies in &self.to_servers {
            proxies[server].cut(Off::Silent.cut(false));
        }
    }

    /// Mends all; see [`Proxy::mend`].
    pub(super) fn mend(&self, late: bool) {
        let rows = self.to_servers.iter().chain(&self.routes);
        for proxy in rows.flatten().chain(&self.to_nodes) {
            proxy.mend(late);
        }
    }
}
