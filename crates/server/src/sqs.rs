//! The `sqs` listener: its options, and how it starts.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use quintet_door::{Door, Visit};
use quintet_host::locked;
use quintet_http::{Gate, Limits, Links, Serve, Settings, Socket, User, Web};
use quintet_sqs::{FileSettings, Keys, Secrets, Shown, Sqs};
use quintet_tls::Secure;
use quintet_types::{Command, Compound, Effect, Guard, Name, Outcome, Refusal, TableAsk};
use quintet_wire::{OptionSpec, Options, Value};
use ring::rand::SecureRandom as _;

use crate::config::{Address, Listen, Places, parse_duration_ms};
use crate::http_counts::HttpCounts;
use crate::io::Bound;
use crate::server::Server;
use crate::sockets::bind;
use crate::trust::HttpGate;

/// Its name in the configuration.
pub(crate) const NAME: &str = "sqs";
/// As ElasticMQ has it.
pub(crate) const PORT: u16 = 9324;
pub(crate) const ABOUT: &str =
    "Amazon SQS, both protocols (JSON 1.0 and Query): AWS's SDKs as they are.";

/// The durable table with what receipt handles and ids of messages are made with.
const TABLE: &[u8] = b"quintet.sqs";
const SECRETS: &[u8] = b"secrets";

/// A connection that says nothing may stay so long where no `idle` is set.
const EVER: Duration = Duration::from_secs(24 * 3600);

pub(crate) const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "account",
        default: Value::Text("000000000000"),
        help: "account in URLs and ARNs of queues, twelve digits; queues of other accounts are the same ones",
    },
    OptionSpec {
        name: "region",
        default: Value::Text("us-east-1"),
        help: "region in ARNs of queues; those of other regions are the same ones",
    },
    OptionSpec {
        name: "url",
        default: Value::Text(""),
        help: "what URLs of queues begin with, such as \"https://queues.example\"; empty: http:// (with TLS https://) and the host that was asked",
    },
    OptionSpec {
        name: "users",
        default: Value::Text(""),
        help: "access keys that requests have to be signed with: KEYID:SECRET pairs separated by spaces; empty: any signature is taken, and none",
    },
    OptionSpec {
        name: "allowed_ips",
        default: Value::Text(""),
        help: "addresses and networks that may ask, such as \"10.0.0.0/8 ::1\"; empty: all",
    },
    OptionSpec {
        name: "trusted_proxies",
        default: Value::Text(""),
        help: "addresses and networks that bring the connections of many clients, such as a load balancer: they may take all of max_connections; any other address but this machine's gets three quarters",
    },
    OptionSpec {
        name: "hosts",
        default: Value::Text(""),
        help: "names this server is called by, beside addresses, localhost, names without a dot and the machine's own; \"*\": any",
    },
    OptionSpec {
        name: "auto_create",
        default: Value::Bool(false),
        help: "queues are made by their first use, as with other voices; AWS asks for CreateQueue",
    },
    OptionSpec {
        name: "limits",
        default: Value::Text("aws"),
        help: "\"aws\": the bounds AWS has; \"open\": delays, visibility and retention as long as one likes, waits of an hour, batches of 1000, names of 1024 characters",
    },
    OptionSpec {
        name: "max_message_size",
        default: Value::Bytes(1 << 20),
        help: "longest message with its attributes, 1KiB to 64MiB, whatever its queue says; longer ones of other voices are passed over",
    },
    OptionSpec {
        name: "max_request",
        default: Value::Bytes(8 << 20),
        help: "longest body of a request, 64KiB to 512MiB; 413 beyond",
    },
    OptionSpec {
        name: "retry_window",
        default: Value::Text("2m"),
        help: "so long the answer to a send is kept for the same call of an SDK that comes again, 0 to 1h; 65,536 calls at most",
    },
    OptionSpec {
        name: "purge_interval",
        default: Value::Text("0"),
        help: "least time between two PurgeQueue of a queue, 0 to 1h; AWS has 60s",
    },
    OptionSpec {
        name: "recreate_after",
        default: Value::Text("0"),
        help: "so long a queue that was deleted cannot be made again, 0 to 1h; AWS has 60s",
    },
    OptionSpec {
        name: "max_connections",
        default: Value::Number(5000),
        help: "connections of this listener at once, 1 to 100000; polls and unfinished bodies are counted apart; more wait, then 503",
    },
    OptionSpec {
        name: "timeout",
        default: Value::Text("30s"),
        help: "in this time a request's body has to arrive, and a piece of a reply to be taken",
    },
];

fn time(options: &Options, name: &str, most: u64) -> Result<Duration, String> {
    let ms = parse_duration_ms(options.text(name)).map_err(|why| format!("{name} {why}"))?;
    match ms <= most {
        true => Ok(Duration::from_millis(ms)),
        false => Err(format!("{name} takes {} s at most", most / 1000)),
    }
}

const HOUR_MS: u64 = 3_600_000;

/// The options, as the voice wants them. `idle_ms` is how long a connection may wait between
/// requests; 0: as long as it likes.
///
/// # Errors
/// A sentence that names the option and what it takes.
pub(crate) fn settings(
    options: &Options,
    idle_ms: u64,
) -> Result<(Settings, quintet_sqs::Options), String> {
    let account = options.text("account");
    if account.len() != 12 || !account.bytes().all(|b| b.is_ascii_digit()) {
        return Err("account takes twelve digits".to_owned());
    }
    let region = options.text("region");
    let is_region = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    if region.is_empty() || !region.bytes().all(is_region) {
        return Err("region takes letters, digits and -".to_owned());
    }
    let url = options.text("url");
    if !url.is_empty() && !url.starts_with("http://") && !url.starts_with("https://") {
        return Err("url begins with http:// or https://".to_owned());
    }
    let users = quintet_http::users(options.text("users"))?;
    let keys = users.into_iter().map(|user| (user.name, user.password));
    let own = quintet_sqs::Options {
        account: account.to_owned(),
        region: region.to_owned(),
        url: url.to_owned(),
        keys: Keys::new(keys),
        auto_create: options.flag("auto_create"),
        open: match options.text("limits") {
            "aws" => false,
            "open" => true,
            _ => return Err("limits takes \"aws\" or \"open\"".to_owned()),
        },
        message_bytes_max: options.within("max_message_size", 1 << 10, 64 << 20)?,
        retry_window: time(options, "retry_window", HOUR_MS)?,
        purge_interval: time(options, "purge_interval", HOUR_MS)?,
        recreate_after: time(options, "recreate_after", HOUR_MS)?,
    };
    let of_http = Settings {
        allowed_ips: quintet_http::networks(options.text("allowed_ips"))?,
        trusted_proxies: quintet_http::networks(options.text("trusted_proxies"))?,
        hosts: quintet_http::words(options.text("hosts"))
            .map(str::to_owned)
            .collect(),
        limits: Limits {
            form_bytes_max: options.within("max_request", 64 << 10, 512 << 20)?,
            connections_max: options.within("max_connections", 1, 100_000)?,
            timeout: time(options, "timeout", u64::MAX)?.max(Duration::from_millis(1)),
            idle: match idle_ms {
                0 => EVER,
                ms => Duration::from_millis(ms),
            },
            ..Limits::default()
        },
        ..Settings::default()
    };
    Ok((of_http, own))
}

/// An open listener and what it serves.
pub(crate) struct Open {
    bound: Bound,
    settings: Settings,
    options: quintet_sqs::Options,
    users: Vec<User>,
    /// Whoever comes here is this one; empty: nobody in particular.
    user: String,
}

impl Open {
    /// Opens a listener, for as many connections at once as there are places.
    ///
    /// # Errors
    /// The address is in use.
    pub(crate) fn new(listen: &Listen, places: &Places, tls: Option<Secure>) -> Result<Self> {
        let read = settings(&listen.options, listen.idle_ms);
        let (mut settings, options) = read.map_err(|why| anyhow!(why))?;
        settings.tls = tls;
        let number = |many| usize::try_from(many).unwrap_or(usize::MAX);
        let limits = &mut settings.limits;
        limits.connections_max = limits.connections_max.min(number(places.http).max(1));
        limits.apart_max = limits.connections_max.min(number(places.apart));
        let users = quintet_http::users(listen.options.text("users"));
        Ok(Self {
            bound: bind(NAME, &listen.address)?,
            settings,
            options,
            users: users.map_err(|why| anyhow!(why))?,
            user: listen.user.clone(),
        })
    }

    /// Where it really listens.
    pub(crate) fn address(&self) -> &Address {
        &self.bound.address
    }

    /// Adds it to what the console tells of.
    pub(crate) fn tell(&self, shown: &mut Shown) {
        let host = match &self.bound.address {
            Address::Tcp(at) if at.ip().is_unspecified() => {
                let name = rustix::system::uname();
                Some(format!(
                    "{}:{}",
                    name.nodename().to_string_lossy(),
                    at.port()
                ))
            }
            Address::Tcp(at) => Some(at.to_string()),
            Address::Unix(_) => None,
        };
        shown.add(&self.options, host, self.settings.tls.is_some());
    }

    /// Its socket.
    pub(crate) fn bound(&self) -> &Bound {
        &self.bound
    }
}

/// Listeners being served.
pub(crate) struct Running {
    web: Web,
    /// They remove their socket files when they go.
    _bound: Vec<Bound>,
}

impl Running {
    /// Starts serving.
    ///
    /// # Errors
    /// The system has no thread or file to give, or the log cannot keep what handles are made
    /// with.
    pub(crate) fn start(
        open: Vec<Open>,
        server: &Arc<Server>,
        door: &Arc<dyn Door>,
    ) -> Result<Self> {
        let secrets = secrets(&**door)?;
        let counts: &Arc<HttpCounts> = &server.sqs;
        let mut sites = Vec::new();
        let mut kept = Vec::new();
        for one in open {
            let Open {
                bound,
                mut settings,
                options,
                users,
                user,
            } = one;
            let gate: Arc<dyn Gate> = HttpGate::of_listener(server, user, users);
            settings.gate = Some(gate);
            settings.memory = Some(Arc::clone(&server.connection_memory));
            settings.clients = Arc::clone(&counts.clients);
            settings.address = bound.address.to_string().into();
            settings.replied = Some(counts.teller());
            let socket = match &bound.address {
                Address::Tcp(_) => Socket::Tcp(bound.duplicate()?.into()),
                Address::Unix(_) => Socket::Unix(bound.duplicate()?.into()),
            };
            let file = file_settings(server);
            let door = Arc::clone(door);
            let site: Arc<dyn Serve> = Sqs::new(settings, options, secrets.clone(), file, door);
            sites.push((socket, site));
            kept.push(bound);
        }
        let threads = locked(&server.config).http_threads();
        let web = Web::start(NAME, threads, sites).context("cannot serve sqs")?;
        Ok(Self { web, _bound: kept })
    }

    /// The way in for clients that come through other nodes.
    pub(crate) fn links(&self) -> Links {
        self.web.links()
    }

    /// Lets requests under way end within `grace`. False if its thread had failed.
    pub(crate) fn stop(self, grace: Duration) -> bool {
        self.web.stop(grace)
    }
}

/// What the configuration says of a queue.
fn file_settings(server: &Arc<Server>) -> FileSettings {
    let server = Arc::downgrade(server);
    Arc::new(move |name| match server.upgrade() {
        Some(server) => locked(&server.config)
            .engine_settings()
            .resolve(name.as_bytes()),
        None => Default::default(),
    })
}

/// What handles and ids are made with: the same for as long as the log, in a
/// backup too and on every node.
fn secrets(door: &dyn Door) -> Result<Secrets> {
    let visit = Visit::new(door);
    let table = Name::new(TABLE);
    let get = || {
        Command::Table(TableAsk::Get {
            table: table.clone(),
            key: SECRETS.into(),
        })
    };
    let kept = |outcome: Outcome| {
        if let Outcome::Refused(refusal) = outcome {
            bail!("sqs: {}", refusal.text());
        }
        let Outcome::Entries(entries) = outcome else {
            bail!("sqs: the tables do not answer");
        };
        let bytes = entries.first().map(|entry| entry.value.clone());
        Ok(bytes.and_then(|bytes| <[u8; Secrets::BYTES]>::try_from(&*bytes).ok()))
    };
    if let Some(bytes) = kept(visit.ask(get()))? {
        return Ok(Secrets::new(&bytes));
    }
    let mut bytes = [0; Secrets::BYTES];
    ring::rand::SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| anyhow!("sqs: the system gives no random numbers"))?;
    let set = Compound {
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
    let Outcome::Refused(refusal) = visit.ask(Command::Compound(Box::new(set))) else {
        return Ok(Secrets::new(&bytes));
    };
    if refusal != Refusal::Conflict {
        bail!("sqs: cannot keep its secrets: {}", refusal.text());
    }
    // Somebody else was first.
    match kept(visit.ask(get()))? {
        Some(bytes) => Ok(Secrets::new(&bytes)),
        None => bail!("sqs: its secrets are not kept"),
    }
}
