//! Spans of what becomes of messages, where a collector is set.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use quintet_config::Config;
use quintet_host::Core;
use quintet_otlp::{Collector, Counts, Exporter, Follower, Source, Spans};

/// Spans being made and sent.
pub struct Tracing {
    spans: Arc<Spans>,
    exporter: Exporter,
    messages: usize,
}

impl Tracing {
    /// Reads what a start reads, and starts nothing.
    ///
    /// # Errors
    /// The collector's settings are wrong.
    pub fn check(config: &Config) -> Result<()> {
        let checked = collector(config).map_or(Ok(()), Collector::check);
        checked.map_err(|why| anyhow!(why))
    }

    /// Starts the thread that sends. `None`: nobody is to get any.
    ///
    /// # Errors
    /// The collector's settings are wrong.
    pub fn start(config: &Config, counts: &Arc<Counts>) -> Result<Option<Self>> {
        let Some(to) = collector(config) else {
            return Ok(None);
        };
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let (spans, ended) = Spans::new(size(config.otlp_spans_max), Arc::clone(counts));
        let exporter = Exporter::start(to, &spans, ended).map_err(|why| anyhow!(why))?;
        Ok(Some(Self {
            spans,
            exporter,
            messages: size(config.otlp_messages_max),
        }))
    }

    /// From now on follows what is decided.
    pub fn follow(&self, core: &Core) {
        let source = Source::of_system();
        let spans = Arc::clone(&self.spans);
        core.observe(
            || {
                Box::new(Follower::new(
                    Arc::clone(&self.spans),
                    source,
                    self.messages,
                ))
            },
            Box::new(move |batch| spans.settled(batch, (source.now_ns)())),
        );
    }

    /// Sends what is left, as far as that can be done soon.
    pub fn stop(self) {
        self.exporter.stop();
    }
}

/// The collector of a configuration; `None`: it has none.
fn collector(config: &Config) -> Option<Collector> {
    if config.otlp_endpoint.is_empty() {
        return None;
    }
    let name = rustix::system::uname();
    let host = name.nodename().to_string_lossy();
    Some(Collector {
        endpoint: config.otlp_endpoint.clone(),
        ca: config.otlp_ca.clone().into(),
        headers: config.otlp_headers_file.clone().into(),
        service: config.otlp_service_name.clone(),
        instance: format!("{host}:{}", std::process::id()),
    })
}
