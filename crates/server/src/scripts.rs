//! Queue scripts and HTTP in the server: when they start, and how they end.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use quintet_client::ClientApi;
use quintet_config::http::PORT;
use quintet_config::{Config, Served};
use quintet_edge::{ForwardingByProtocol, Security};
use quintet_host::locked;
use quintet_http::{Elsewhere, Logins};
use quintet_scripts::{Limits, Options, QueueConfig, ROUTER, Rq};
use quintet_sqs::ListenerInfo;

use crate::running::{Open, Running, host_of};
use crate::server::Server;
use crate::{http, sqs};

/// The hidden subcommand that becomes a script.
pub(crate) const CHILD: &str = "__child";

/// The hidden subcommand that is a built-in script.
pub(crate) const BUILT_IN: &str = "__script";

/// Runs of a built-in script at once: they mostly wait for other servers.
const BUILT_IN_WORKERS: u32 = 10;

/// The queues with a built-in script, and the hosts that each may send to.
fn built_in(config: &Config) -> [(&'static str, &str); 2] {
    [
        ("relay", config.relay_hosts.as_str()),
        ("webhook", config.webhook_hosts.as_str()),
    ]
}

/// Scripts and HTTP, as far as they run.
pub(crate) struct Scripts {
    client_api: Arc<dyn ClientApi>,
    rq: Option<Arc<Rq>>,
    http: Option<Running>,
    sqs: Option<Running>,
    options: Options,
}

/// The hooks' decision about a login.
fn logins(security: &Arc<Security>) -> Logins {
    let security = Arc::clone(security);
    Logins(Arc::new(move |user, secret| {
        security.may_log_in(user, secret)
    }))
}

impl Scripts {
    /// Starts HTTP and SQS if there are listeners, and scripts if there is HTTP, a
    /// queue with one, or a directory of an earlier start.
    ///
    /// # Errors
    /// The directory of scripts cannot be made, or the system has no threads.
    pub(crate) fn start(
        server: &Arc<Server>,
        mut open: Vec<Open>,
        sqs: Vec<(Open, quintet_sqs::Options)>,
    ) -> Result<Self> {
        let (edge, dispatchers) = (&*server.edge, &server.dispatchers);
        let config = &server.operations.config;
        let mut options = options(&locked(config), &open);
        options.blobs = server.node.as_ref().map(|node| node.blobs());
        options.audit = Some(Arc::clone(&edge.security.audit));
        let mut scripts = Self {
            client_api: Arc::<Server>::clone(server),
            rq: None,
            http: None,
            sqs: None,
            options,
        };
        let mut shown = ListenerInfo::default();
        for (open, options) in &sqs {
            let (address, secure) = (&open.bound.address, open.settings.tls.is_some());
            shown.add(options, host_of(address), secure);
        }
        if !sqs.is_empty() {
            scripts.sqs = Some(sqs::serve(
                sqs,
                edge,
                config,
                &scripts.client_api,
                dispatchers,
            )?);
        }
        let config = locked(config).clone();
        if open.is_empty() && config.scripts.is_empty() && !scripts.options.root.exists() {
            return Ok(scripts);
        }
        let rq = scripts.start_rq(&config)?;
        if !open.is_empty() {
            let logins = logins(&edge.security);
            let client_api = &scripts.client_api;
            let elsewhere: Arc<dyn Elsewhere> = Arc::new(shown);
            for one in &mut open {
                one.settings.elsewhere = Some(Arc::clone(&elsewhere));
            }
            let threads = config.http_threads();
            let running = http::serve(open, edge, threads, &rq, client_api, &logins, dispatchers)?;
            scripts.http = Some(running);
        }
        Ok(scripts)
    }

    fn start_rq(&mut self, config: &Config) -> Result<Arc<Rq>> {
        let queues = queues(config, self.options.allow_new_queue);
        let root = self.options.root.display();
        let rq = Rq::start(Arc::clone(&self.client_api), self.options.clone(), queues)
            .with_context(|| format!("cannot start scripts in {root}"))?;
        self.rq = Some(Arc::clone(&rq));
        Ok(rq)
    }

    /// The way in for clients of HTTP that come through other nodes.
    pub(crate) fn forwarding(&self) -> ForwardingByProtocol {
        let http = self
            .http
            .as_ref()
            .map(|http| (Served::Http.name(), http.forwarding()));
        let sqs = self
            .sqs
            .as_ref()
            .map(|sqs| (Served::Sqs.name(), sqs.forwarding()));
        http.into_iter().chain(sqs).collect()
    }

    /// Goes by what the configuration and the folders of queues say now.
    pub(crate) fn configure(&mut self, config: &Config) {
        match &self.rq {
            Some(rq) => {
                rq.configure(queues(config, self.options.allow_new_queue));
                rq.reload();
            }
            None if config.scripts.is_empty() => {}
            None => {
                if let Err(error) = self.start_rq(config) {
                    tracing::error!("{error:#}");
                }
            }
        }
    }

    /// Ends requests within `grace`, then scripts. False if HTTP or SQS had failed.
    pub(crate) fn stop(self, grace: Duration) -> bool {
        // Together, as neither is to accept while the other ends.
        let (sqs, http) = (self.sqs, self.http);
        let whole = std::thread::scope(|scope| {
            let sqs = scope.spawn(|| sqs.is_none_or(|sqs| sqs.stop(grace)));
            http.is_none_or(|http| http.stop(grace)) & sqs.join().unwrap_or(false)
        });
        if let Some(rq) = self.rq {
            rq.stop();
        }
        whole
    }
}

/// The queues with scripts, those that are built in last unless the
/// configuration has its own. A built-in queue needs hosts to send to, or a
/// server with scripts: elsewhere its name is as any other.
fn queues(config: &Config, allow_new_queue: bool) -> Vec<QueueConfig> {
    let mut queues = config.scripts.clone();
    let has_scripts = !queues.is_empty() || !config.script_root.is_empty() || allow_new_queue;
    for (name, hosts) in built_in(config) {
        let is_used = has_scripts || !hosts.is_empty();
        if is_used && !queues.iter().any(|queue| queue.name == name) {
            queues.push(QueueConfig {
                name: name.to_owned(),
                script: format!("builtin:{name}"),
                num_workers: BUILT_IN_WORKERS,
                ..QueueConfig::default()
            });
        }
    }
    queues
}

/// Looks at the settings of scripts, and for messages RQ itself has left in
/// their directory.
///
/// # Errors
/// A setting makes no sense; or there are such messages, and nobody said that
/// they are to be left alone; names them.
pub(crate) fn check(config: &Config) -> Result<()> {
    for (name, hosts) in built_in(config) {
        quintet_rq::builtin::Hosts::read(hosts).map_err(|why| anyhow!("{name}_hosts {why}"))?;
    }
    let root = config.scripts_dir();
    let unread = quintet_scripts::unread(&root);
    let Some((last, more)) = unread.split_last() else {
        return Ok(());
    };
    let all: u64 = unread.iter().map(|unread| unread.count).sum();
    let mut list: String = more
        .iter()
        .take(NAMED)
        .map(|one| format!("{one}, "))
        .collect();
    match more.len().saturating_sub(NAMED) {
        0 => list.push_str(&last.to_string()),
        rest => list.push_str(&format!("and {} more", rest + 1)),
    }
    let found = format!(
        "{} holds {all} messages of RQ, which this server does not read: {list}",
        root.display()
    );
    if config.ignore_rq_messages {
        tracing::warn!("{found}; they stay where they are");
        return Ok(());
    }
    bail!(
        "{found}. Let RQ finish them first, or set ignore_rq_messages = true to go on without \
         them; they stay where they are"
    )
}

/// Queues and states that a message about them names.
const NAMED: usize = 20;

fn options(config: &Config, open: &[Open]) -> Options {
    let first = open.first();
    let root = config.scripts_dir();
    let host = match config.script_host.as_str() {
        "" => first.map_or_else(|| format!("http://localhost:{}/", PORT), Open::host),
        host => format!("{}/", host.trim_end_matches('/')),
    };
    // By this name the kernel finds this very program, even if an update has
    // put another in its place.
    let program = || OsString::from("/proc/self/exe");
    let mut options = Options::new(root, host, vec![program(), CHILD.into()]);
    let hosts = built_in(config).map(|(script, hosts)| (script, hosts.to_owned()));
    // Scripts run in folders of their own.
    let ca = match config.relay_ca.as_str() {
        "" => PathBuf::new(),
        ca => std::path::absolute(ca).unwrap_or_else(|_| PathBuf::from(ca)),
    };
    options.builtin = Arc::new(move |name| {
        let asks = hosts.iter().find(|(script, _)| *script == name);
        // The router's queue is there only while it has rules.
        let known = asks.is_some() || name == ROUTER;
        let hosts = asks.map_or("", |(_, hosts)| hosts.as_str());
        known.then(|| {
            let words = [
                BUILT_IN.into(),
                name.into(),
                hosts.into(),
                ca.clone().into(),
            ];
            [program()].into_iter().chain(words).collect()
        })
    });
    options.env.clone_from(&config.script_env);
    options.port = first.map_or(PORT, Open::port);
    options.allow_new_queue = open.iter().any(|one| one.settings.allow_new_queue);
    options.limits = Limits {
        run_time: Duration::from_millis(config.script_time_ms),
        grace: Duration::from_millis(config.script_grace_ms),
        umask: quintet_process::modes::initial_umask(),
        ..config.script_limits.clone()
    };
    options
}
