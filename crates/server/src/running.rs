//! Listeners of HTTP, or of a protocol over it, being served.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use quintet_config::{Address, Listen, Places, Reach};
use quintet_edge::{Dispatchers, Edge, HttpCounts, HttpGate};
use quintet_http::{Forwarding, Serve, Settings, Socket, Task, User, Web};
use quintet_process::{Bound, bind};
use quintet_tls::Secure;

/// An open listener, and how it is served.
pub(crate) struct Open {
    pub(crate) bound: Bound,
    pub(crate) settings: Settings,
    /// The listener's own.
    pub(crate) users: Vec<User>,
    /// The user of a client that does not log in; empty: nobody in particular.
    user: String,
}

impl Open {
    /// Opens a listener with these settings, for as many connections at once as there are places,
    /// or fewer. The idle time of the settings counts where the listener sets none.
    ///
    /// # Errors
    /// The address is in use, or open to others without a login.
    pub(crate) fn new(
        listen: &Listen,
        places: &Places,
        tls: Option<Secure>,
        (reach, users): (Reach, Vec<(String, String)>),
        settings: Settings,
    ) -> Result<Self> {
        let mut settings = Settings {
            allowed_ips: reach.allowed_ips,
            trusted_proxies: reach.trusted_proxies,
            hosts: reach.hosts,
            tls,
            ..settings
        };
        let limits = &mut settings.limits;
        let number = |many| usize::try_from(many).unwrap_or(usize::MAX);
        let most = number(places.http);
        limits.streams_max = limits.streams_max.min(most / 2);
        let most = most - limits.streams_max;
        limits.connections_max = limits.connections_max.min(most.max(1));
        limits.apart_max = limits.connections_max.min(number(places.apart));
        if listen.idle_ms > 0 {
            limits.idle = Duration::from_millis(listen.idle_ms);
        }
        let user = |(name, password)| User { name, password };
        Ok(Self {
            bound: bind(listen.served.name(), &listen.address)?,
            settings,
            users: users.into_iter().map(user).collect(),
            user: listen.user.clone(),
        })
    }

    /// With the state that it shares with all others, and the counters of its replies.
    pub(crate) fn shared(self, edge: &Edge, counts: &Arc<HttpCounts>) -> (Bound, Settings) {
        let gate = HttpGate::of_listener(&edge.security, self.user, self.users);
        let settings = Settings {
            gate: Some(gate),
            memory: Some(Arc::clone(&edge.connection_memory)),
            stream_counts: Arc::clone(&counts.streams),
            clients: Arc::clone(&counts.clients),
            address: self.bound.address.to_string().into(),
            replied: Some(counts.teller()),
            ..self.settings
        };
        (self.bound, settings)
    }
}

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
