//! The `sqs` listener: its options, and how it starts.

use std::sync::{Arc, Mutex};

use anyhow::{Result, anyhow, bail};
use quintet_client::{ClientApi, ScopedClient};
use quintet_config::sqs::{self as config, NAME};
use quintet_config::{Config, Listen, Places};
use quintet_edge::{Dispatchers, Edge};
use quintet_host::locked;
use quintet_http::{Serve, Settings};
use quintet_sqs::{FileSettings, Keys, Options, Secrets, Sqs};
use quintet_tls::Secure;
use quintet_types::{
    Command, CommandError, Effect, Guard, Name, Outcome, TableRequest, Transaction,
};

use crate::running::{Open, Running};

/// The durable table with what receipt handles and ids of messages are made with.
const TABLE: &[u8] = b"quintet.sqs";
const SECRETS: &[u8] = b"secrets";

/// Opens a listener.
///
/// # Errors
/// An option is wrong, or as [`Open::new`].
pub(crate) fn open(
    listen: &Listen,
    places: &Places,
    tls: Option<Secure>,
) -> Result<(Open, Options)> {
    let read = config::Sqs::of(&listen.options).map_err(|why| anyhow!(why))?;
    let settings = Settings {
        limits: read.limits,
        ..Settings::default()
    };
    let who = (read.reach, read.users.clone());
    let open = Open::new(listen, places, tls, who, settings)?;
    let options = Options {
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
    };
    Ok((open, options))
}

/// Starts serving.
///
/// # Errors
/// The system has no thread or file to give, or the log cannot keep what handles are made
/// with.
pub(crate) fn serve(
    open: Vec<(Open, Options)>,
    edge: &Edge,
    config: &Arc<Mutex<Config>>,
    client_api: &Arc<dyn ClientApi>,
    dispatchers: &Arc<Dispatchers>,
) -> Result<Running> {
    let secrets = secrets(&**client_api)?;
    let sites = open.into_iter().map(|(open, options)| {
        let (bound, settings) = open.shared(edge, &edge.sqs);
        let (file, client_api) = (file_settings(config), Arc::clone(client_api));
        let site: Arc<dyn Serve> = Sqs::new(settings, options, secrets.clone(), file, client_api);
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
