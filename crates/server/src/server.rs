//! The running server: its five owners. Nothing that they own refers to the server.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::Result;
use quintet_config::{CommandLine, Config};
use quintet_edge::{Dispatchers, Edge, Security};
use quintet_host::Core;
use quintet_ops::audit::Audit;
use quintet_ops::history::HistoryRecorder;
use quintet_ops::schedules::Schedules;
use quintet_ops::webhooks::Webhooks;
use quintet_ops::{EventLog, Tails};
use quintet_otlp::Counts;
use quintet_process::MainRequest;

use crate::cluster::Node;

/// The parts of a server that serves.
pub(crate) struct Server {
    /// The shards and the log.
    pub(crate) core: Arc<Core>,
    pub(crate) edge: Arc<Edge>,
    pub(crate) security: Arc<Security>,
    /// Dispatchers of the client API.
    pub(crate) dispatchers: Arc<Dispatchers>,
    pub(crate) operations: Operations,
    /// The node of a cluster, if the server is one.
    pub(crate) node: Option<Arc<Node>>,
}

/// How the server is operated, and the output for operators.
pub(crate) struct Operations {
    pub(crate) config: Arc<Mutex<Config>>,
    /// The command line, for reading the file again.
    pub(crate) command_line: CommandLine,
    pub(crate) started: Instant,
    /// Random number of this process.
    pub(crate) instance: u64,
    pub(crate) audit: Arc<Audit>,
    pub(crate) schedules: Schedules,
    /// The history of each queue's numbers.
    pub(crate) histories: HistoryRecorder,
    pub(crate) tails: Tails,
    /// The reader of what happened to messages.
    pub(crate) events: Arc<EventLog>,
    pub(crate) webhooks: Webhooks,
    /// Spans that were made for a collector.
    pub(crate) spans: Arc<Counts>,
    requests: Sender<MainRequest>,
}

impl Operations {
    /// Of a server that begins now.
    ///
    /// # Errors
    /// A mistake in a table of `[[cron]]` or `[[webhook]]`.
    pub(crate) fn new(
        config: Config,
        command_line: CommandLine,
        (audit, events): (Arc<Audit>, Arc<EventLog>),
        spans: Arc<Counts>,
        requests: Sender<MainRequest>,
    ) -> Result<Self> {
        Ok(Self {
            schedules: Schedules::new(&config)?,
            webhooks: Webhooks::new(&config)?,
            events,
            config: Arc::new(Mutex::new(config)),
            command_line,
            started: Instant::now(),
            // The standard library's hash keys are random.
            instance: RandomState::new().hash_one(0),
            audit,
            histories: HistoryRecorder::default(),
            tails: Tails::default(),
            spans,
            requests,
        })
    }

    /// Has the main thread do this.
    ///
    /// # Errors
    /// It obeys no request any more.
    pub(crate) fn request(&self, request: MainRequest) -> Result<(), String> {
        let sent = self.requests.send(request);
        sent.map_err(|_| "the server is stopping".to_owned())
    }
}
