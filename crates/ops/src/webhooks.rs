//! Webhooks: addresses that get events of messages, at least once.
//!
//! Each has a thread of its own, so one that hangs stops no other. The position up to which a
//! receiver has accepted events is an entry of a durable table: after a restart, and on the next
//! owner of a cluster, it goes on there.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use quintet_client::{
    ClientApi, Event, EventKind, EventsPage, EventsRequest, MessageEvent, News, NoEvents,
    ScopedClient, Since,
};
use quintet_config::{Config, Webhook};
use quintet_host::{Core, Point, Signal, locked};
use quintet_types::{Outcome, Principal, hex};
use ring::hmac;
use serde::{Deserialize, Serialize};
use serde_json::json;
use ureq::Agent;
use ureq::tls::{Certificate, TlsConfig};

use crate::events::{apart, behind};
use crate::schedules::load::{free_step, get, set};

/// The durable table of positions, a key each.
const POSITIONS: &str = "quintet.webhooks";
/// Events of a request at most.
const BATCH: u32 = 100;
/// Time limit of a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Rest after the first failure; it doubles with each, up to the second of these.
const RESTS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(60)];
/// It is looked for events this often at least.
const LOOK: Duration = Duration::from_secs(1);
/// A log that goes on is read this often at most.
const GATHER: Duration = Duration::from_millis(20);
/// A position behind which there was no event is stored after so many bytes of the log.
const KEEP: u64 = 256 << 10;

/// Sends events of the log to the webhooks of the configuration.
pub struct Webhooks {
    rows: Vec<Arc<WebhookRow>>,
    agent: Agent,
    stops: AtomicBool,
}

/// A webhook with its counters since the start of the server.
#[derive(Default)]
pub struct WebhookRow {
    webhook: Webhook,
    /// Events that were accepted.
    pub sent: AtomicU64,
    /// Requests that failed.
    pub failures: AtomicU64,
    /// Times that the log had gone past the position, or had lost a part.
    pub gaps: AtomicU64,
    /// Bytes of the log that were retired before it got them.
    pub gap_bytes: AtomicU64,
    /// Up to there events were accepted.
    position: Mutex<String>,
    work: Arc<Signal>,
}

impl WebhookRow {
    /// Bytes of the log behind the position; `None` before that is known.
    pub fn lag(&self, core: &Core) -> Option<u64> {
        let position = locked(&self.position).clone();
        (!position.is_empty()).then(|| behind(core, &position))
    }
}

/// A position in its table.
#[derive(Serialize, Deserialize)]
struct StoredPosition {
    v: u32,
    position: String,
}

impl Webhooks {
    /// Those of a configuration.
    ///
    /// # Errors
    /// The fault of a table, or of `relay_ca`.
    pub fn new(config: &Config) -> Result<Self> {
        let rows = config.receivers().map_err(|why| anyhow!(why.to_string()))?;
        for row in &rows {
            let uri: Result<ureq::http::Uri, _> = row.url.parse();
            uri.map_err(|error| anyhow!("[[webhook]] {}: url: {error}", row.name))?;
        }
        let mut tls = TlsConfig::builder();
        if !rows.is_empty() && !config.relay_ca.is_empty() {
            let all = quintet_tls::certificates(Path::new(&config.relay_ca))
                .map_err(|error| anyhow!("relay_ca {}: {error}", config.relay_ca))?;
            let all = all.iter().map(|one| Certificate::from_der(one).to_owned());
            tls = tls.root_certs(all.into());
        }
        let agent = Agent::config_builder()
            .tls_config(tls.build())
            .http_status_as_error(false)
            .max_redirects(0)
            // One kept open may be dead by its next use.
            .max_idle_connections(0)
            .timeout_global(Some(PATIENCE))
            .build();
        let row = |webhook| {
            Arc::new(WebhookRow {
                webhook,
                ..WebhookRow::default()
            })
        };
        Ok(Self {
            rows: rows.into_iter().map(row).collect(),
            agent: agent.into(),
            stops: AtomicBool::new(false),
        })
    }

    /// A number of each that has it.
    pub fn points(&self, of: impl Fn(&WebhookRow) -> Option<u64>) -> Vec<Point> {
        let point =
            |row: &Arc<WebhookRow>| Some((vec![row.webhook.name.clone().into()], of(row)? as f64));
        self.rows.iter().filter_map(point).collect()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// The thread of one of them: runs until [`Webhooks::stop`].
    pub fn run(&self, index: usize, client_api: &dyn ClientApi) {
        if let Some(row) = self.rows.get(index) {
            let client = ScopedClient::new(client_api);
            let news: Arc<Signal> = Arc::clone(&row.work);
            let news: News = Arc::new(move || news.raise());
            Sender {
                hooks: self,
                row,
                client_api,
                client,
                news,
                kept: String::new(),
                refused: false,
                pause: Duration::ZERO,
            }
            .run();
        }
    }

    /// Has the threads end.
    pub fn stop(&self) {
        self.stops.store(true, Ordering::SeqCst);
        self.rows.iter().for_each(|row| row.work.raise());
    }
}

struct Sender<'a> {
    hooks: &'a Webhooks,
    row: &'a WebhookRow,
    client_api: &'a dyn ClientApi,
    client: ScopedClient<'a>,
    news: News,
    /// The position that was stored last.
    kept: String,
    /// The last one was not, which was logged.
    refused: bool,
    /// Rest after the log could not be read; zero: it could.
    pause: Duration,
}

impl Sender<'_> {
    fn run(&mut self) {
        let Some(mut since) = self.begin() else {
            return;
        };
        while !self.stops() {
            let Some(page) = self.page(&since) else {
                self.rest(self.pause);
                continue;
            };
            if page.events.is_empty() {
                since = Since::Position(page.next.clone());
                *locked(&self.row.position) = page.next.clone();
                if apart(&self.kept, &page.next) >= KEEP {
                    self.keep(&page.next);
                }
                if !page.more {
                    if !self.client_api.await_events(&page.next, &self.news) {
                        self.row.work.wait_for(LOOK);
                    }
                    self.rest(GATHER);
                }
                continue;
            }
            if !self.deliver(&page) {
                return;
            }
            self.row
                .sent
                .fetch_add(page.events.len() as u64, Ordering::Relaxed);
            self.keep(&page.next);
            since = Since::Position(page.next);
        }
    }

    fn stops(&self) -> bool {
        self.hooks.stops.load(Ordering::SeqCst)
    }

    /// Rests, unless all end.
    fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.stops() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            // News only shorten a wait for news.
            self.row.work.wait_for(left);
        }
    }

    /// Where it goes on; the first time at the end of the log. `None`: the server stops.
    fn begin(&mut self) -> Option<Since> {
        loop {
            let get = get(POSITIONS, &self.row.webhook.name);
            if let Outcome::Entries(entries) = self.client.ask(get) {
                if let Some(entry) = entries.first() {
                    let Some(position) = position(&entry.value) else {
                        let name = &self.row.webhook.name;
                        tracing::warn!(
                            "[[webhook]] {name} goes on at the oldest event: \
                             its position cannot be read"
                        );
                        self.row.gaps.fetch_add(1, Ordering::Relaxed);
                        return Some(Since::Oldest);
                    };
                    locked(&self.row.position).clone_from(&position);
                    self.kept.clone_from(&position);
                    return Some(Since::Position(position));
                }
                let page = self.page(&Since::Now);
                if let Some(page) = page.filter(|page| self.keep(&page.next)) {
                    return Some(Since::Position(page.next));
                }
            }
            if self.stops() {
                return None;
            }
            self.rest(LOOK);
        }
    }

    /// The next events. Where the log has gone past the position that is counted, and it goes on
    /// with the oldest. `None`: not now.
    fn page(&mut self, since: &Since) -> Option<EventsPage> {
        let mut request = EventsRequest {
            since: since.clone(),
            queues: self.row.webhook.queues.clone(),
            kinds: self.row.webhook.kinds.clone(),
            max: BATCH,
            bytes: usize::MAX,
            principal: Principal::SERVER,
        };
        let name = &self.row.webhook.name;
        let mut read = self.client_api.events(&request);
        let gone = match &read {
            Err(no @ (NoEvents::Gone { .. } | NoEvents::Malformed)) => Some(no.clone()),
            Err(NoEvents::Failed(_)) | Ok(_) => None,
        };
        if let Some(no) = gone {
            request.since = Since::Oldest;
            read = self.client_api.events(&request);
            if read.is_ok() {
                // Positions of another log cannot be compared.
                if let Since::Position(from) = since
                    && let NoEvents::Gone { oldest, retired } = &no
                    && *retired
                {
                    let bytes = apart(from, oldest);
                    self.row.gap_bytes.fetch_add(bytes, Ordering::Relaxed);
                }
                self.row.gaps.fetch_add(1, Ordering::Relaxed);
                tracing::warn!("[[webhook]] {name} goes on at the oldest event: {no}");
            }
        }
        match read {
            Ok(page) => {
                let is_lost = |event: &&MessageEvent| event.kind == EventKind::Lost;
                let lost = page.events.iter().filter(is_lost).count();
                if lost > 0 {
                    tracing::warn!("[[webhook]] {name}: the log has lost events in {lost} places");
                    self.row.gaps.fetch_add(lost as u64, Ordering::Relaxed);
                }
                self.pause = Duration::ZERO;
                Some(page)
            }
            Err(no) => {
                // Once, however long it lasts.
                if self.pause.is_zero() {
                    tracing::error!("[[webhook]] {name} cannot go on: {no}");
                }
                self.pause = (self.pause * 2).clamp(RESTS[0], RESTS[1]);
                None
            }
        }
    }

    /// Sends events until they are accepted. False: the server stops.
    fn deliver(&self, page: &EventsPage) -> bool {
        let name = &self.row.webhook.name;
        let events: Vec<Event> = page.events.iter().map(Event::from).collect();
        let body = json!({ "webhook": name, "events": events, "next": page.next }).to_string();
        let mut rest = RESTS[0];
        loop {
            match self.post(&body) {
                Ok(()) => {
                    if rest > RESTS[0] {
                        tracing::info!("[[webhook]] {name} accepts events again");
                    }
                    return true;
                }
                Err(_) if self.stops() => return false,
                Err(why) => {
                    self.row.failures.fetch_add(1, Ordering::Relaxed);
                    // Once, however long it lasts.
                    if rest == RESTS[0] {
                        tracing::warn!("[[webhook]] {name} accepts no events: {why}");
                    }
                }
            }
            self.rest(rest);
            if self.stops() {
                return false;
            }
            rest = (rest * 2).min(RESTS[1]);
        }
    }

    /// Posts in a thread of its own, for which nobody waits once all end.
    fn post(&self, body: &str) -> Result<(), String> {
        let webhook = &self.row.webhook;
        let secret = webhook.secret.as_ref();
        let signed = secret.map(|secret| signature(secret, body));
        let (agent, url) = (self.hooks.agent.clone(), webhook.url.clone());
        let (body, work) = (body.to_owned(), Arc::clone(&self.row.work));
        let (sender, answered) = channel();
        let posts = move || {
            let mut request = agent.post(&url);
            request = request.header("content-type", "application/json");
            if let Some(signed) = signed {
                request = request.header("quintet-signature", signed);
            }
            let status = request.send(&*body).map(|reply| reply.status().as_u16());
            let status = status.map_err(|error| error.to_string());
            sender.send(status).unwrap_or_default();
            work.raise();
        };
        let thread = std::thread::Builder::new().name("webhook-post".to_owned());
        thread.spawn(posts).map_err(|error| error.to_string())?;
        loop {
            match answered.try_recv() {
                Ok(Ok(200..=299)) => return Ok(()),
                Ok(Ok(status)) => return Err(format!("status {status}")),
                Ok(Err(why)) => return Err(why),
                Err(TryRecvError::Empty) if !self.stops() => {
                    self.row.work.wait_for(PATIENCE);
                }
                Err(_) => return Err("no reply in time".to_owned()),
            }
        }
    }

    /// Stores a position. False: not now; it is stored with the next one.
    fn keep(&mut self, position: &str) -> bool {
        let stored = StoredPosition {
            v: 1,
            position: position.to_owned(),
        };
        // Numbers and texts have JSON.
        let set = set(POSITIONS, &self.row.webhook.name, Some(&stored));
        position.clone_into(&mut self.kept);
        let outcome = self.client.ask(free_step(set));
        position.clone_into(&mut locked(&self.row.position));
        let is_kept = !matches!(outcome, Outcome::Refused(_));
        if !is_kept && !self.refused {
            let name = &self.row.webhook.name;
            tracing::warn!("[[webhook]] {name}: its position cannot be stored: {outcome:?}");
        }
        self.refused = !is_kept;
        is_kept
    }
}

/// The position of an entry; `None`: it is none that this program stored.
fn position(value: &[u8]) -> Option<String> {
    let stored: StoredPosition = serde_json::from_slice(value).ok()?;
    (stored.v == 1).then_some(stored.position)
}

/// HMAC-SHA256 of a body, in hexadecimal digits.
fn signature(secret: &[u8], body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let tag = hmac::sign(&key, body.as_bytes());
    format!("sha256={}", hex(tag.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::signature;

    /// RFC 4231, case 2.
    #[test]
    fn a_signature_is_the_known_one() {
        let expected = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        let signed = signature(b"Jefe", "what do ya want for nothing?");
        assert_eq!(signed, expected);
    }
}
