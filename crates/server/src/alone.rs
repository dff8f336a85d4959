//! In place of `cluster` in a binary without that feature: there are no nodes.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use quintet_client::{Arrivals, AuditLog, ClusterNumbers, ClusterSeen};
use quintet_config::Config;
use quintet_host::{Core, Layout, Opened, Owner};
use quintet_process::Bound;
use quintet_process::{End, MainRequest};
use quintet_scripts::Blobs;
use quintet_tls::Secure;
use quintet_types::Operation;

/// A node: there is none.
pub(crate) struct Node(Infallible);

/// A log that a node has claimed: there is none.
pub(crate) struct Ownership(Infallible);

/// A listener as other nodes know it: there is none.
pub(crate) struct ProxyListener {
    pub(crate) protocol: String,
    pub(crate) nth: u16,
    pub(crate) socket: Infallible,
    pub(crate) tls: Option<Secure>,
    pub(crate) earlier: Vec<Infallible>,
}

/// The service for clients of other nodes: there are none.
pub(crate) struct Intake;

/// The threads of the server.
pub(crate) trait Threads {
    fn connections(&self) -> u64;
    fn end_io(&mut self, by: Instant) -> bool;
    fn end(&mut self, by: Instant) -> bool;
}

const NO_CLUSTER: &str = "[cluster] is configured, but this binary was built without the feature \
                          \"cluster\": use a binary with it, or leave cluster.nats empty";

/// Checks `[cluster]` before a start.
///
/// # Errors
/// It is configured.
pub(crate) fn check(config: &Config) -> Result<()> {
    match config.cluster.is_on() {
        true => bail!(NO_CLUSTER),
        false => Ok(()),
    }
}

/// Says what to do.
///
/// # Errors
/// Always.
pub(crate) fn follow(
    _: &Config,
    _: Vec<ProxyListener>,
    _: u64,
    _: Arc<dyn Arrivals>,
    _: Arc<dyn AuditLog>,
    _: &dyn Fn(),
    _: (&Sender<MainRequest>, &Receiver<MainRequest>),
) -> Result<Option<Ownership>> {
    bail!(NO_CLUSTER)
}

impl Ownership {
    pub(crate) fn take(self, _: &Layout) -> Result<(Opened, Arc<Node>)> {
        match self.0 {}
    }
}

impl Node {
    pub(crate) fn owner(&self) -> Box<dyn Owner> {
        match self.0 {}
    }

    pub(crate) fn role(&self) -> String {
        match self.0 {}
    }

    pub(crate) fn seen(&self) -> Option<ClusterSeen> {
        match self.0 {}
    }

    pub(crate) fn order(&self, _: Operation, _: &str) -> Result<String, String> {
        match self.0 {}
    }

    pub(crate) fn texts(&self) -> Vec<(String, String)> {
        match self.0 {}
    }

    pub(crate) fn blobs(&self) -> Arc<dyn Blobs> {
        match self.0 {}
    }

    pub(crate) fn numbers(&self) -> ClusterNumbers {
        match self.0 {}
    }

    pub(crate) fn serves(&self, _: &Arc<Core>, _: Intake) {
        match self.0 {}
    }

    pub(crate) fn leave(&self, _: &Core, _: Duration, _: &mut dyn Threads, _: End) -> Result<()> {
        match self.0 {}
    }
}

/// A listener's socket once more.
pub(crate) fn socket(_: &Bound) -> Result<Infallible> {
    bail!("this binary was built without the feature \"cluster\"")
}

/// Connections that another process had: there was none.
pub(crate) fn earlier(_: &str, _: &Bound) -> Vec<Infallible> {
    Vec::new()
}
