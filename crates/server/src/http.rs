//! The `http` listener: its options, and how it starts.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use quintet_client::ClientApi;
use quintet_config::http::{self as config, NAME, PORT};
use quintet_config::{Address, Listen, Places};
use quintet_edge::{Dispatchers, Edge};
use quintet_http::{Logins, Serve, Settings};
use quintet_scripts::Rq;
use quintet_tls::Secure;
use quintet_web::Site;

use crate::running::{Open, Running, host_of};

/// Opens a listener.
///
/// # Errors
/// An option is wrong, or as [`Open::new`].
pub(crate) fn open(listen: &Listen, places: &Places, tls: Option<Secure>) -> Result<Open> {
    let read = config::Http::of(&listen.options).map_err(|why| anyhow!(why))?;
    let settings = Settings {
        relative_root: read.relative_root,
        realm: read.realm,
        allow_new_queue: read.allow_new_queue,
        limits: read.limits,
        ..Settings::default()
    };
    let mut open = Open::new(listen, places, tls, (read.reach, read.users), settings)?;
    open.settings.users.clone_from(&open.users);
    Ok(open)
}

impl Open {
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
        let (bound, mut settings) = one.shared(edge, &edge.http);
        settings.logins = Some(logins.clone());
        let site: Arc<dyn Serve> =
            Site::new(settings, Some(Arc::clone(rq)), Arc::clone(client_api));
        (bound, site)
    });
    Running::start(NAME, threads, sites.collect(), dispatchers)
}
