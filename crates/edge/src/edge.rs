//! State that listeners and the threads of their connections share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use quintet_client::ByteBudget;
use quintet_config::{Config, Places, Served};
use quintet_host::Core;
use quintet_http::Forwarding;
use quintet_tls::Secure;
use quintet_types::Settings;
use quintet_wire::{Foreign, Listener, PROTOCOLS};

use crate::auth::Security;
use crate::control::Control;
use crate::http_counts::HttpCounts;
use crate::io::{Guests, Mailbox, ThreadCounts};
use crate::tls::Tls;

/// The ways in for clients that come through other nodes, by protocol.
pub type ForwardingByProtocol = Vec<(&'static str, Forwarding)>;

/// Listeners, their connections, and what all of these together may use.
pub struct Edge {
    pub core: Arc<Core>,
    pub security: Arc<Security>,
    /// One per I/O thread.
    pub mail: Vec<Arc<Mailbox>>,
    pub listeners: Vec<Listening>,
    /// By number of the I/O thread.
    pub threads: Vec<ThreadCounts>,
    pub limits: Limits,
    /// As the engine has them.
    pub settings: Mutex<Settings>,
    pub draining: AtomicBool,
    pub guests: Guests,
    /// Times the system had no file or memory for a connection.
    pub accepts_failed: AtomicU64,
    /// Connections that spoke HTTP to a protocol that is none.
    pub spoke_http: AtomicU64,
    /// Connections that spoke TLS where none is spoken.
    pub spoke_tls: AtomicU64,
    pub tls: Arc<Tls>,
    /// Memory that all connections together hold for input, uploads and output.
    pub connection_memory: Arc<ByteBudget>,
    /// Disk that large messages on their way in may take, together.
    pub uploads: Arc<ByteBudget>,
    /// True if a listener closes idle connections.
    pub idle_used: bool,
    /// Counters of HTTP.
    pub http: Arc<HttpCounts>,
    /// The same of SQS, whose connections are among HTTP's.
    pub sqs: Arc<HttpCounts>,
    /// `/api/v1` on the control socket; nothing until it is served.
    pub control: OnceLock<Control>,
}

impl Edge {
    /// With an I/O thread for each of `wakers`, for as many connections as there are `places`.
    pub fn new(
        config: &Config,
        core: Arc<Core>,
        security: Arc<Security>,
        listeners: Vec<Listening>,
        mail: Vec<Arc<Mailbox>>,
        tls: Arc<Tls>,
        places: &Places,
    ) -> Self {
        let http = HttpCounts::new();
        Self {
            core,
            security,
            threads: mail
                .iter()
                .map(|_| ThreadCounts::new(PROTOCOLS.len() + 1))
                .collect(),
            mail,
            idle_used: listeners.iter().any(Listening::ends_idle),
            listeners,
            limits: Limits::of(config),
            settings: Mutex::new(config.engine_settings()),
            draining: AtomicBool::new(false),
            guests: Guests::new(places.connections),
            accepts_failed: AtomicU64::new(0),
            spoke_http: AtomicU64::new(0),
            spoke_tls: AtomicU64::new(0),
            tls,
            connection_memory: ByteBudget::new(config.connection_memory_bytes()),
            uploads: ByteBudget::new(config.upload_bytes_max),
            sqs: HttpCounts::beside(&http, Served::Sqs.name()),
            http,
            control: OnceLock::new(),
        }
    }

    /// True for a connection of the control socket: an operator gets in, and
    /// stays, when nobody else does.
    pub fn is_operator(&self, listener: usize) -> bool {
        self.listeners[listener].operator
    }
}

/// One listener, as its connections know it.
pub struct Listening {
    pub opener: Box<dyn Listener>,
    /// Index of the protocol's counters.
    pub tally: usize,
    /// Name of the protocol.
    pub protocol: &'static str,
    pub idle_ms: u64,
    /// Clients here command the server: a file's mode or certificates keep others out.
    pub operator: bool,
    /// Clients may speak HTTP here, for [`Control`].
    pub api: bool,
    /// The user of a client that does not log in; empty: nobody in particular.
    pub user: String,
    /// Where it listens.
    pub address: String,
    /// How it speaks TLS, if it does.
    pub tls: Option<Secure>,
    /// Foreign protocols that were logged already, by kind.
    pub foreign_reported: [AtomicBool; 3],
}

impl Listening {
    /// True if its connections may have to be closed for saying nothing.
    pub fn ends_idle(&self) -> bool {
        self.idle_ms > 0 || self.opener.ends_silent()
    }

    /// Says once that clients come here who speak something else; how many is
    /// among the counters.
    pub fn report_foreign(&self, foreign: Foreign) {
        if !self.foreign_reported[foreign as usize].swap(true, Ordering::Relaxed) {
            let (protocol, address) = (self.protocol, &self.address);
            tracing::warn!("{protocol} at {address}: {}", foreign.text());
        }
    }
}

/// Limits that connections keep to; some change on reload.
pub struct Limits {
    pub output_bytes_max: usize,
    pub chunk_bytes: usize,
    stop_wait_ms: AtomicU64,
    pub log_bytes: AtomicU64,
    pub allow_shutdown: AtomicBool,
}

impl Limits {
    /// As long as connections may take for their last replies when the server stops.
    pub fn stop_wait(&self) -> Duration {
        Duration::from_millis(self.stop_wait_ms.load(Ordering::Relaxed))
    }

    /// Connections get no time for their last replies.
    pub fn cut(&self) {
        self.stop_wait_ms.store(0, Ordering::Relaxed);
    }

    fn of(config: &Config) -> Self {
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let limits = Self {
            output_bytes_max: bytes(config.output_bytes_max),
            chunk_bytes: bytes(config.chunk_bytes),
            stop_wait_ms: AtomicU64::default(),
            log_bytes: AtomicU64::default(),
            allow_shutdown: AtomicBool::default(),
        };
        limits.reload(config);
        limits
    }

    /// Goes by a newer configuration.
    pub fn reload(&self, config: &Config) {
        self.stop_wait_ms
            .store(config.stop_wait_ms, Ordering::Relaxed);
        self.log_bytes.store(config.log_bytes, Ordering::Relaxed);
        self.allow_shutdown
            .store(config.allow_shutdown, Ordering::Relaxed);
    }
}
