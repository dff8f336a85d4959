//! The `sqs` listener: its options, and how it starts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use quintet_client::{ClientApi, ScopedClient};
use quintet_config::sqs::{self as config, NAME};
use quintet_config::{Config, Listen, Places};
use quintet_edge::{Dispatchers, Edge, HttpGate};
use quintet_host::locked;
use quintet_http::{Limits, Serve, Settings, User};
use quintet_process::{Bound, bind};
use quintet_sqs::{FileSettings, Keys, ListenerInfo, Secrets, Sqs};
use quintet_tls::Secure;
use quintet_types::{
    Command, CommandError, Effect, Guard, Name, Outcome, TableRequest, Transaction,
};

use crate::http::users;
use crate::running::{Running, host_of, share};

/// The durable table with what receipt handles and ids of messages are made with.
const TABLE: &[u8] = b"quintet.sqs";
const SECRETS: &[u8] = b"secrets";

/// A connection that says nothing may stay so long where no `idle` is set.
const EVER: Duration = Duration::from_secs(24 * 3600);

/// The options as `quintet-http` wants them. `idle_ms` is how long a connection may wait between
/// requests; 0: as long as it likes.
fn settings(read: &config::Sqs, idle_ms: u64) -> Settings {
    Settings {
        allowed_ips: read.reach.allowed_ips.clone(),
        trusted_proxies: read.reach.trusted_proxies.clone(),
        hosts: read.reach.hosts.clone(),
        limits: Limits {
            form_bytes_max: read.form_bytes_max,
            connections_max: read.connections_max,
            timeout: read.timeout,
            idle: match idle_ms {
                0 => EVER,
                ms => Duration::from_millis(ms),
            },
            ..Limits::default()
        },
        ..Settings::default()
    }
}

/// The options, as the protocol wants them.
fn own(read: config::Sqs) -> quintet_sqs::Options {
    quintet_sqs::Options {
        account: read.account,
        region: read.region,
        url: read.url,
        keys: Keys::new(read.users),
        auto_create: read.auto_create,
        open: read.open,
        message_bytes_max: read.message_bytes_max,
        retry_window: read.retry_window,
        purge_interval: read.purge_interval,
        recreate_after: read.recreate_after,
    }
}

/// An open listener and what it serves.
pub(crate) struct Open {
    pub(crate) bound: Bound,
    settings: Settings,
    options: quintet_sqs::Options,
    users: Vec<User>,
    /// The user of a client that does not log in; empty: nobody in particular.
    user: String,
}

impl Open {
    /// Opens a listener, for as many connections at once as there are places.
    ///
    /// # Errors
    /// The address is in use.
    pub(crate) fn new(listen: &Listen, places: &Places, tls: Option<Secure>) -> Result<Self> {
        let read = config::Sqs::of(&listen.options).map_err(|why| anyhow!(why))?;
        let mut settings = settings(&read, listen.idle_ms);
        settings.tls = tls;
        let number = |many| usize::try_from(many).unwrap_or(usize::MAX);
        let limits = &mut settings.limits;
        limits.connections_max = limits.connections_max.min(number(places.http).max(1));
        limits.apart_max = limits.connections_max.min(number(places.apart));
        Ok(Self {
            bound: bind(NAME, &listen.address)?,
            settings,
            users: users(read.users.clone()),
            options: own(read),
            user: listen.user.clone(),
        })
    }

    /// Adds it to the console's list.
    pub(crate) fn fill_info(&self, shown: &mut ListenerInfo) {
        let host = host_of(&self.bound.address);
        shown.add(&self.options, host, self.settings.tls.is_some());
    }
}

/// Starts serving.
///
/// # Errors
/// The system has no thread or file to give, or the log cannot keep what handles are made
/// with.
pub(crate) fn serve(
    open: Vec<Open>,
    edge: &Edge,
    config: &Arc<Mutex<Config>>,
    client_api: &Arc<dyn ClientApi>,
    dispatchers: &Arc<Dispatchers>,
) -> Result<Running> {
    let secrets = secrets(&**client_api)?;
    let sites = open.into_iter().map(|one| {
        let (bound, mut settings) = (one.bound, one.settings);
        settings.gate = Some(HttpGate::of_listener(&edge.security, one.user, one.users));
        share(&mut settings, &bound, edge, &edge.sqs);
        let (file, client_api) = (file_settings(config), Arc::clone(client_api));
        let site: Arc<dyn Serve> =
            Sqs::new(settings, one.options, secrets.clone(), file, client_api);
        (bound, site)
    });
    let sites = sites.collect();
    Running::start(NAME, locked(config).http_threads(), sites, dispatchers)
}

/// The configuration's settings of a queue.
fn file_settings(config: &Arc<Mutex<Config>>) -> FileSettings {
    let config = Arc::clone(config);
    Arc::new(move |name| {
        let settings = locked(&config).engine_settings();
        settings.resolve(name.as_bytes())
    })
}

/// Secrets of handles and ids: the same for as long as the log, in a backup too and on every node.
fn secrets(client_api: &dyn ClientApi) -> Result<Secrets> {
    let client = ScopedClient::new(client_api);
    let table = Name::new(TABLE);
    let get = || {
        Command::Table(TableRequest::Get {
            table: table.clone(),
            key: SECRETS.into(),
        })
    };
    let kept = |outcome: Outcome| {
        if let Outcome::Refused(command_error) = outcome {
            bail!("sqs: {}", command_error.text());
        }
        let Outcome::Entries(entries) = outcome else {
            bail!("sqs: cannot read its secrets");
        };
        let bytes = entries.first().map(|entry| entry.value.clone());
        Ok(bytes.and_then(|bytes| <[u8; Secrets::BYTES]>::try_from(&*bytes).ok()))
    };
    if let Some(bytes) = kept(client.ask(get()))? {
        return Ok(Secrets::new(&bytes));
    }
    let bytes = quintet_host::random::<{ Secrets::BYTES }>()
        .map_err(|_| anyhow!("sqs: the system provides no random numbers"))?;
    let set = Transaction {
        guards: vec![Guard::Table {
            table: table.clone(),
            key: SECRETS.into(),
            version: None,
        }],
        effects: vec![Effect::Set {
            table: table.clone(),
            key: SECRETS.into(),
            value: Some(bytes.into()),
            ttl_ms: None,
        }],
        then: None,
    };
    let Outcome::Refused(command_error) = client.ask(Command::Transaction(Box::new(set))) else {
        return Ok(Secrets::new(&bytes));
    };
    if command_error != CommandError::Conflict {
        bail!("sqs: cannot store its secrets: {}", command_error.text());
    }
    // Somebody else was first.
    match kept(client.ask(get()))? {
        Some(bytes) => Ok(Secrets::new(&bytes)),
        None => bail!("sqs: its secrets are not stored"),
    }
}
