//! The `http` listener: its options, and how it starts.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use quintet_door::Door;
use quintet_host::locked;
use quintet_http::{Elsewhere, Gate, Limits, Links, Logins, Serve, Settings, Socket, User, Web};
use quintet_scripts::Rq;
use quintet_tls::Secure;
use quintet_web::Site;
use quintet_wire::{OptionSpec, Options, Value};

use crate::config::{Address, Listen, Places, parse_duration_ms};
use crate::io::Bound;
use crate::server::Server;
use crate::sockets::bind;

/// Its name in the configuration.
pub(crate) const NAME: &str = "http";
/// RQ's port.
pub(crate) const PORT: u16 = 3333;
pub(crate) const ABOUT: &str = "RQ's HTTP API and plain pages.";

pub(crate) const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "relative_root",
        default: Value::Text("/"),
        help: "path everything lives under, if something in front passes a part of its addresses on",
    },
    OptionSpec {
        name: "users",
        default: Value::Text(""),
        help: "who may log in (basic authentication): NAME:PASSWORD pairs separated by spaces; empty: no login is asked for",
    },
    OptionSpec {
        name: "realm",
        default: Value::Text("RQ"),
        help: "what a browser shows when it asks for a login at an address of RQ; elsewhere the default says \"Quintet\"",
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
        help: "names this server is called by, beside addresses, localhost and the machine's own; \"*\": any. Requests for other hosts are refused: they come from pages that had their name pointed here",
    },
    OptionSpec {
        name: "allow_new_queue",
        default: Value::Bool(false),
        help: "queues with scripts may be made and deleted over HTTP: whoever may ask runs programs of the server's user then",
    },
    OptionSpec {
        name: "max_header",
        default: Value::Bytes(64 << 10),
        help: "longest head of a request, 8KiB to 1MiB; 431 beyond",
    },
    OptionSpec {
        name: "max_form",
        default: Value::Bytes(1 << 20),
        help: "longest form or JSON body, 1KiB to 256MiB, attachments excepted; 413 beyond",
    },
    OptionSpec {
        name: "max_fields",
        default: Value::Number(200),
        help: "fields of a form at most, 10 to 100000; 413 beyond",
    },
    OptionSpec {
        name: "max_attachment",
        default: Value::Bytes(16 << 30),
        help: "longest attachment, 1 byte to 1TiB; 413 beyond",
    },
    OptionSpec {
        name: "max_connections",
        default: Value::Number(2000),
        help: "connections of this listener at once, 1 to 100000; event streams, polls and unfinished bodies are counted apart; more wait, then 503",
    },
    OptionSpec {
        name: "max_streams",
        default: Value::Number(1000),
        help: "event streams (/api/v1/events) of this listener at once, 0 to 100000, each of which counts as 64KiB of connection_memory; 503 beyond",
    },
    OptionSpec {
        name: "max_sessions",
        default: Value::Number(1000),
        help: "logins of browsers at once, 1 to 100000; the oldest ends for one beyond",
    },
    OptionSpec {
        name: "session_time",
        default: Value::Text("12h"),
        help: "how long a browser stays logged in, 1m to 30d; the login also ends when its user goes or logs in otherwise, and with the server",
    },
    OptionSpec {
        name: "max_uploads",
        default: Value::Number(16),
        help: "attachments on their way in at once, 1 to 48; more wait, unread",
    },
    OptionSpec {
        name: "timeout",
        default: Value::Text("30s"),
        help: "in this time a request's head, a form, or a piece of an attachment has to arrive, and a piece of a reply to be taken",
    },
];

/// The ways in for clients that come through other nodes, by voice.
pub(crate) type LinksByVoice = Vec<(&'static str, Links)>;

const MINUTE_MS: u64 = 60_000;

/// The options as `quintet-web` wants them. `idle_ms` is how long a connection
/// may wait between requests; 0: as long as `timeout`.
///
/// # Errors
/// A sentence that names the option and what it takes.
pub(crate) fn settings(options: &Options, idle_ms: u64) -> Result<Settings, String> {
    let timeout = parse_duration_ms(options.text("timeout"))
        .map_err(|why| format!("timeout {why}"))?
        .max(1);
    let timeout = Duration::from_millis(timeout);
    let session = parse_duration_ms(options.text("session_time"))
        .ok()
        .filter(|ms| (MINUTE_MS..=30 * 24 * 60 * MINUTE_MS).contains(ms))
        .ok_or("session_time takes 1m to 30d")?;
    Ok(Settings {
        relative_root: quintet_http::relative_root(options.text("relative_root"))?,
        realm: options.text("realm").to_owned(),
        logins: None,
        gate: None,
        users: quintet_http::users(options.text("users"))?,
        allowed_ips: quintet_http::networks(options.text("allowed_ips"))?,
        trusted_proxies: quintet_http::networks(options.text("trusted_proxies"))?,
        hosts: quintet_http::words(options.text("hosts"))
            .map(str::to_owned)
            .collect(),
        allow_new_queue: options.flag("allow_new_queue"),
        memory: None,
        tls: None,
        replied: None,
        stream_counts: Arc::default(),
        clients: Arc::default(),
        elsewhere: None,
        address: "".into(),
        limits: Limits {
            header_bytes_max: options.within("max_header", 8 << 10, 1 << 20)?,
            form_bytes_max: options.within("max_form", 1 << 10, 256 << 20)?,
            fields_max: options.within("max_fields", 10, 100_000)?,
            attachment_bytes_max: options.within("max_attachment", 1, 1 << 40)?,
            connections_max: options.within("max_connections", 1, 100_000)?,
            streams_max: options.within("max_streams", 0, 100_000)?,
            sessions_max: options.within("max_sessions", 1, 100_000)?,
            session_time: Duration::from_millis(session),
            uploads_max: options.within("max_uploads", 1, 48)?,
            timeout,
            idle: match idle_ms {
                0 => timeout,
                ms => Duration::from_millis(ms),
            },
            ..Limits::default()
        },
    })
}

/// An open listener and what it serves.
pub(crate) struct Open {
    bound: Bound,
    settings: Settings,
    /// Whoever comes here is this one; empty: nobody in particular.
    user: String,
}

impl Open {
    /// Opens a listener, for `most` connections at once or fewer.
    ///
    /// # Errors
    /// The address is in use, or open to others without a login.
    pub(crate) fn new(listen: &Listen, places: &Places, tls: Option<Secure>) -> Result<Self> {
        let mut settings = settings(&listen.options, listen.idle_ms).map_err(|why| anyhow!(why))?;
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

    /// Where it really listens.
    pub(crate) fn address(&self) -> &Address {
        &self.bound.address
    }

    /// Its socket.
    pub(crate) fn bound(&self) -> &Bound {
        &self.bound
    }

    /// How it is called from elsewhere, with the relative root and a slash at
    /// the end.
    pub(crate) fn host(&self) -> String {
        let root = &self.settings.relative_root;
        let scheme = match self.settings.tls {
            Some(_) => "https",
            None => "http",
        };
        match &self.bound.address {
            Address::Tcp(at) if at.ip().is_unspecified() => {
                let name = rustix::system::uname();
                let name = name.nodename().to_string_lossy();
                format!("{scheme}://{name}:{}{root}", at.port())
            }
            Address::Tcp(at) => format!("{scheme}://{at}{root}"),
            Address::Unix(_) => format!("http://localhost:{PORT}{root}"),
        }
    }

    /// Its console tells what another way in calls queues.
    pub(crate) fn knows(&mut self, elsewhere: &Arc<dyn Elsewhere>) {
        self.settings.elsewhere = Some(Arc::clone(elsewhere));
    }

    /// Its port; that of RQ for a unix socket.
    pub(crate) fn port(&self) -> u16 {
        match &self.bound.address {
            Address::Tcp(at) => at.port(),
            Address::Unix(_) => PORT,
        }
    }

    /// True if queues may be made and deleted here.
    pub(crate) fn allow_new_queue(&self) -> bool {
        self.settings.allow_new_queue
    }
}

/// HTTP listeners, being served.
pub(crate) struct Running {
    web: Web,
    /// They remove their socket files when they go.
    _bound: Vec<Bound>,
}

impl Running {
    /// Starts serving.
    ///
    /// # Errors
    /// The system has no thread or file to give.
    pub(crate) fn start(
        open: Vec<Open>,
        server: &Arc<Server>,
        rq: &Arc<Rq>,
        door: &Arc<dyn Door>,
        logins: &Logins,
        gate: impl Fn(String, Vec<User>) -> Arc<dyn Gate>,
    ) -> Result<Self> {
        let counts = &server.http;
        let mut sites = Vec::new();
        let mut kept = Vec::new();
        for Open {
            bound,
            mut settings,
            user,
        } in open
        {
            settings.gate = Some(gate(user, settings.users.clone()));
            settings.logins = Some(logins.clone());
            settings.memory = Some(Arc::clone(&server.connection_memory));
            settings.stream_counts = Arc::clone(&counts.streams);
            settings.clients = Arc::clone(&counts.clients);
            settings.address = bound.address.to_string().into();
            settings.replied = Some(counts.teller());
            let socket = match &bound.address {
                Address::Tcp(_) => Socket::Tcp(bound.duplicate()?.into()),
                Address::Unix(_) => Socket::Unix(bound.duplicate()?.into()),
            };
            let site: Arc<dyn Serve> = Site::new(settings, Arc::clone(rq), Arc::clone(door));
            sites.push((socket, site));
            kept.push(bound);
        }
        let threads = locked(&server.config).http_threads();
        let web = Web::start(NAME, threads, sites).context("cannot serve http")?;
        Ok(Self { web, _bound: kept })
    }

    /// The way in for clients that come through other nodes.
    pub(crate) fn links(&self) -> Links {
        self.web.links()
    }

    /// Lets requests under way end within `grace`. False if its thread had
    /// failed.
    pub(crate) fn stop(self, grace: Duration) -> bool {
        self.web.stop(grace)
    }
}
