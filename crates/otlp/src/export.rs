//! The thread that sends spans to a collector.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use ureq::Agent;
use ureq::tls::{Certificate, TlsConfig};

use crate::encode;
use crate::span::{Counts, Span, Spans};

/// Spans of one request at most.
const BATCH: usize = 512;
/// How long the first of a batch waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// How often it is looked whether the server stops.
const LOOK: Duration = Duration::from_millis(100);
/// Time limit of a request.
const PATIENCE: Duration = Duration::from_secs(5);
/// Rests before another try, while the collector cannot; then they are given up.
const RESTS: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];
/// How long the server's stop waits for what is left.
const HANDOFF: Duration = Duration::from_secs(2);

/// Where spans go.
#[derive(Clone, Debug, Default)]
pub struct Collector {
    /// `http://HOST:4318`; `/v1/traces` is added.
    pub endpoint: String,
    /// File of the authorities trusted; empty: those that browsers trust.
    pub ca: PathBuf,
    /// File of headers, `NAME: VALUE` a line, such as a token; empty: none.
    pub headers: PathBuf,
    pub service: String,
    /// Which process it is.
    pub instance: String,
}

/// The thread, being run.
#[derive(Debug)]
pub struct Exporter {
    stops: Arc<AtomicBool>,
    ended: Receiver<()>,
}

/// Result of a request.
enum Sent {
    Taken,
    /// Not now; perhaps later.
    Later(String),
    Refused(String),
}

struct Way {
    agent: Agent,
    url: String,
    headers: Vec<(String, String)>,
    to: Collector,
    counts: Arc<Counts>,
    stops: Arc<AtomicBool>,
    /// The last request failed.
    fails: bool,
}

impl Collector {
    /// Reads the files and settings as a start does.
    ///
    /// # Errors
    /// A sentence that names the setting.
    pub fn check(self) -> Result<(), String> {
        self.way(Arc::default(), Arc::default()).map(drop)
    }

    /// Reads what the files say.
    ///
    /// # Errors
    /// A sentence that names the setting.
    fn way(self, counts: Arc<Counts>, stops: Arc<AtomicBool>) -> Result<Way, String> {
        let endpoint = self.endpoint.trim_end_matches('/');
        let uri: ureq::http::Uri = endpoint
            .parse()
            .map_err(|error| format!("otlp_endpoint is no address: {error}"))?;
        if uri.authority().is_some_and(|to| to.as_str().contains('@')) {
            return Err("otlp_endpoint takes no login: write it into otlp_headers_file".to_owned());
        }
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() {
            return Err(format!(
                "otlp_endpoint takes an address such as http://localhost:4318; not {endpoint:?}"
            ));
        }
        let mut tls = TlsConfig::builder();
        if !self.ca.as_os_str().is_empty() {
            let all = quintet_tls::certificates(&self.ca)
                .map_err(|error| format!("otlp_ca {}: {error}", self.ca.display()))?;
            let all = all.iter().map(|one| Certificate::from_der(one).to_owned());
            tls = tls.root_certs(all.into());
        }
        let mut headers = Vec::new();
        if !self.headers.as_os_str().is_empty() {
            let shown = self.headers.display();
            let text = fs::read_to_string(&self.headers)
                .map_err(|error| format!("otlp_headers_file {shown}: {error}"))?;
            for line in text.lines().filter(|line| !line.trim().is_empty()) {
                // What it says may be a secret.
                let (name, value) = line
                    .split_once(':')
                    .ok_or_else(|| format!("otlp_headers_file {shown}: NAME: VALUE a line"))?;
                headers.push((name.trim().to_owned(), value.trim().to_owned()));
            }
        }
        let config = Agent::config_builder()
            .tls_config(tls.build())
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_global(Some(PATIENCE))
            .build();
        Ok(Way {
            agent: config.into(),
            url: format!("{endpoint}/v1/traces"),
            headers,
            to: self,
            counts,
            stops,
            fails: false,
        })
    }
}

impl Exporter {
    /// Starts the thread.
    ///
    /// # Errors
    /// The collector's settings are wrong: a sentence that names one; or there
    /// is no thread to be had.
    pub fn start(to: Collector, spans: &Spans, ended: Receiver<Span>) -> Result<Self, String> {
        let stops = Arc::new(AtomicBool::new(false));
        let mut way = to.way(Arc::clone(&spans.counts), Arc::clone(&stops))?;
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("otlp".to_owned());
        let thread = thread.spawn(move || {
            way.run(&ended);
            // Nobody may wait any more.
            let _delivered = sender.send(());
        });
        thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Self {
            stops,
            ended: receiver,
        })
    }

    /// Sends what is left, for two seconds at most.
    pub fn stop(self) {
        self.stops.store(true, Ordering::Relaxed);
        // What a collector does not take in this time is lost.
        let _in_time = self.ended.recv_timeout(HANDOFF);
    }
}

impl Way {
    fn run(&mut self, ended: &Receiver<Span>) {
        let mut batch = Vec::new();
        let mut began = Instant::now();
        loop {
            let stops = self.stops.load(Ordering::Relaxed);
            match ended.recv_timeout(LOOK) {
                Ok(span) => {
                    if batch.is_empty() {
                        began = Instant::now();
                    }
                    batch.push(span);
                    if batch.len() < BATCH && began.elapsed() < GATHER {
                        continue;
                    }
                }
                Err(RecvTimeoutError::Timeout) if !stops && began.elapsed() < GATHER => continue,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.send(&batch);
                    return;
                }
            }
            self.send(&batch);
            // Nothing came for a while, and it was looked after the flag.
            if stops && batch.len() < BATCH {
                return;
            }
            batch.clear();
        }
    }

    /// Sends some spans, again and again if need be, and counts them.
    fn send(&mut self, batch: &[Span]) {
        if batch.is_empty() {
            return;
        }
        let count = batch.len() as u64;
        let request = encode::request(&self.to.service, &self.to.instance, batch);
        let body = request.to_string();
        let mut rests = RESTS.iter();
        loop {
            let why = match self.post(&body) {
                Sent::Taken => {
                    self.counts.sent.fetch_add(count, Ordering::Relaxed);
                    if std::mem::take(&mut self.fails) {
                        tracing::info!("the collector at {} takes spans again", self.url);
                    }
                    return;
                }
                Sent::Later(why) => match rests.next() {
                    Some(rest) if self.rests(*rest) => continue,
                    Some(_) | None => why,
                },
                Sent::Refused(why) => why,
            };
            self.counts.failed.fetch_add(count, Ordering::Relaxed);
            // Once, however long it lasts.
            if !std::mem::replace(&mut self.fails, true) {
                tracing::warn!("the collector at {} takes no spans: {why}", self.url);
            }
            return;
        }
    }

    fn post(&self, body: &str) -> Sent {
        let mut request = self.agent.post(&self.url);
        request = request.header("content-type", "application/json");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        match request.send(body) {
            Ok(reply) => match reply.status().as_u16() {
                200..=299 => Sent::Taken,
                // Those that the protocol says may be tried again.
                status @ (429 | 502 | 503 | 504) => Sent::Later(format!("status {status}")),
                status => Sent::Refused(format!("status {status}")),
            },
            Err(error) => Sent::Later(error.to_string()),
        }
    }

    /// False: the server stops.
    fn rests(&self, time: Duration) -> bool {
        let began = Instant::now();
        while began.elapsed() < time {
            if self.stops.load(Ordering::Relaxed) {
                return false;
            }
            std::thread::sleep(LOOK.min(time));
        }
        true
    }
}
