//! The `http` listener: its options, and how it starts.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use quintet_client::ClientApi;
use quintet_config::http::{self as config, NAME, PORT};
use quintet_config::{Address, Listen, Places};
use quintet_edge::{Dispatchers, Edge, HttpGate};
use quintet_http::{Limits, Logins, Serve, Settings, User};
use quintet_process::{Bound, bind};
use quintet_scripts::Rq;
use quintet_tls::Secure;
use quintet_web::Site;

use crate::running::{Running, host_of, share};

/// The options as `quintet-http` wants them. `idle_ms` is how long a connection
/// may wait between requests; 0: as long as `timeout`.
fn settings(read: config::Http, idle_ms: u64) -> Settings {
    Settings {
        relative_root: read.relative_root,
        realm: read.realm,
        users: users(read.users),
        allowed_ips: read.reach.allowed_ips,
        trusted_proxies: read.reach.trusted_proxies,
        hosts: read.reach.hosts,
        allow_new_queue: read.allow_new_queue,
        address: "".into(),
        limits: Limits {
            header_bytes_max: read.header_bytes_max,
            form_bytes_max: read.form_bytes_max,
            fields_max: read.fields_max,
            attachment_bytes_max: read.attachment_bytes_max,
            connections_max: read.connections_max,
            streams_max: read.streams_max,
            sessions_max: read.sessions_max,
            session_time: read.session_time,
            uploads_max: read.uploads_max,
            timeout: read.timeout,
            idle: match idle_ms {
                0 => read.timeout,
                ms => Duration::from_millis(ms),
            },
            ..Limits::default()
        },
        ..Settings::default()
    }
}

/// Names and passwords of a listener's own users.
pub(crate) fn users(pairs: Vec<(String, String)>) -> Vec<User> {
    let user = |(name, password)| User { name, password };
    pairs.into_iter().map(user).collect()
}

/// An open listener and what it serves.
pub(crate) struct Open {
    pub(crate) bound: Bound,
    pub(crate) settings: Settings,
    /// The user of a client that does not log in; empty: nobody in particular.
    user: String,
}

impl Open {
    /// Opens a listener, for `most` connections at once or fewer.
    ///
    /// # Errors
    /// The address is in use, or open to others without a login.
    pub(crate) fn new(listen: &Listen, places: &Places, tls: Option<Secure>) -> Result<Self> {
        let read = config::Http::of(&listen.options).map_err(|why| anyhow!(why))?;
        let mut settings = settings(read, listen.idle_ms);
        settings.tls = tls;
        let limits = &mut settings.limits;
        let number = |many| usize::try_from(many).unwrap_or(usize::MAX);
        let most = number(places.http);
        limits.streams_max = limits.streams_max.min(most / 2);
        let most = most - limits.streams_max;
        limits.connections_max = limits.connections_max.min(most.max(1));
        limits.apart_max = limits.connections_max.min(number(places.apart));
        let bound = bind(NAME, &listen.address)?;
        Ok(Self {
            bound,
            settings,
            user: listen.user.clone(),
        })
    }

    /// How it is called from elsewhere, with the relative root and a slash at
    /// the end.
    pub(crate) fn host(&self) -> String {
        let root = &self.settings.relative_root;
        match (host_of(&self.bound.address), &self.settings.tls) {
            (Some(host), Some(_)) => format!("https://{host}{root}"),
            (Some(host), None) => format!("http://{host}{root}"),
            (None, _) => format!("http://localhost:{PORT}{root}"),
        }
    }

    /// Its port; that of RQ for a unix socket.
    pub(crate) fn port(&self) -> u16 {
        match &self.bound.address {
            Address::Tcp(at) => at.port(),
            Address::Unix(_) => PORT,
        }
    }
}

/// Starts serving with so many threads.
///
/// # Errors
/// The system has no thread or file to give.
pub(crate) fn serve(
    open: Vec<Open>,
    edge: &Edge,
    threads: usize,
    rq: &Arc<Rq>,
    client_api: &Arc<dyn ClientApi>,
    logins: &Logins,
    dispatchers: &Arc<Dispatchers>,
) -> Result<Running> {
    let sites = open.into_iter().map(|one| {
        let (bound, mut settings) = (one.bound, one.settings);
        let users = settings.users.clone();
        settings.gate = Some(HttpGate::of_listener(&edge.security, one.user, users));
        settings.logins = Some(logins.clone());
        share(&mut settings, &bound, edge, &edge.http);
        let site: Arc<dyn Serve> =
            Site::new(settings, Some(Arc::clone(rq)), Arc::clone(client_api));
        (bound, site)
    });
    Running::start(NAME, threads, sites.collect(), dispatchers)
}
