//! Listeners of HTTP, or of a protocol over it, being served.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use quintet_config::Address;
use quintet_edge::{Dispatchers, Edge, HttpCounts};
use quintet_http::{Forwarding, Serve, Settings, Socket, Task, Web};
use quintet_process::Bound;

/// Sites being served.
pub(crate) struct Running {
    web: Web,
    /// They remove their socket files when they go.
    _bound: Vec<Bound>,
}

impl Running {
    /// Serves these sites in so many threads of this name at most.
    ///
    /// # Errors
    /// The system has no thread or file to give.
    pub(crate) fn start(
        name: &'static str,
        threads: usize,
        open: Vec<(Bound, Arc<dyn Serve>)>,
        dispatchers: &Arc<Dispatchers>,
    ) -> Result<Self> {
        let (mut sites, mut kept) = (Vec::new(), Vec::new());
        for (bound, site) in open {
            let socket = match &bound.address {
                Address::Tcp(_) => Socket::Tcp(bound.duplicate()?.into()),
                Address::Unix(_) => Socket::Unix(bound.duplicate()?.into()),
            };
            sites.push((socket, site));
            kept.push(bound);
        }
        let dispatchers = Arc::clone(dispatchers);
        let web = Web::start(name, threads, sites, move || task_of(&dispatchers));
        let web = web.with_context(|| format!("cannot serve {name}"))?;
        Ok(Self { web, _bound: kept })
    }

    /// The way in for clients that come through other nodes.
    pub(crate) fn forwarding(&self) -> Forwarding {
        self.web.forwarding()
    }

    /// Lets requests under way end within `grace`. False if its thread had failed.
    pub(crate) fn stop(self, grace: Duration) -> bool {
        self.web.stop(grace)
    }
}

/// The work of a dispatcher on one thread of HTTP.
pub(crate) fn task_of(dispatchers: &Dispatchers) -> Option<Task> {
    Some(Box::pin(dispatchers.task()?))
}

/// An address as other machines reach it; `None`: a unix socket.
pub(crate) fn host_of(address: &Address) -> Option<String> {
    match address {
        Address::Tcp(at) if at.ip().is_unspecified() => {
            let name = rustix::system::uname();
            let name = name.nodename().to_string_lossy();
            Some(format!("{name}:{}", at.port()))
        }
        Address::Tcp(at) => Some(at.to_string()),
        Address::Unix(_) => None,
    }
}

/// Gives a listener the state that it shares with all others, and the counters of its replies.
pub(crate) fn share(settings: &mut Settings, bound: &Bound, edge: &Edge, counts: &Arc<HttpCounts>) {
    settings.memory = Some(Arc::clone(&edge.connection_memory));
    settings.stream_counts = Arc::clone(&counts.streams);
    settings.clients = Arc::clone(&counts.clients);
    settings.address = bound.address.to_string().into();
    settings.replied = Some(counts.teller());
}
