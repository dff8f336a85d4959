//! Another running Quintet, queue by queue, over its JSON API (docs/api.md).
//!
//! Ready messages are reserved, under leases of time alone, and finished when they are stored here.
//! Delayed and buried ones, and the ready ones of a paused queue, are listed and read, and deleted
//! there if they still are what was read: so one that is not stored stays what it was.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result, anyhow, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use quintet_control::{Head, Standing, Text};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use ureq::http::Response;
use ureq::{Agent, Body};

use super::http::{ANSWER_MAX, again, agent, each};
use super::line::Line;
use super::peer::{Peer, PeerState, first};
use crate::import::count::Counts;
use crate::records::{BadInput, Entry, PIECES_OVER, Source};

/// Messages asked for at once: as many as the API gives.
const AT_ONCE: u32 = 100;
/// How long they are held there, ms, unless they are stored before: what is held when this process
/// dies is ready again then.
const LEASE_MS: u64 = 120_000;

/// Where another Quintet is, and who asks.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::import) struct Site {
    /// SCHEME://HOST:PORT.
    pub(super) url: String,
    /// `user:password`, or `user` alone.
    pub(super) login: Option<String>,
    /// All without one.
    pub(super) queue: Option<String>,
}

/// Without the login.
impl std::fmt::Debug for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.url, self.queue)
    }
}

/// Where the token, or the secret of a user without one, is.
pub(super) const TOKEN: &str = "QUINTET_FROM_TOKEN";

impl Site {
    /// For people.
    pub(in crate::import) fn shown(&self) -> &str {
        self.url.split_once("//").map_or(&self.url, |(_, at)| at)
    }

    /// The header that logs in, if there is anything to log in with.
    fn authorization(&self) -> Result<Option<String>> {
        let secret = std::env::var(TOKEN).ok();
        let login = match (&self.login, secret) {
            (None, None) => return Ok(None),
            (None, Some(token)) => return Ok(Some(format!("Bearer {}", token.trim()))),
            (Some(login), _) if login.contains(':') => login.clone(),
            (Some(user), Some(secret)) => format!("{user}:{}", secret.trim()),
            (Some(user), None) => bail!("{user} needs a password: {TOKEN}, or USER:PASSWORD@"),
        };
        Ok(Some(format!("Basic {}", BASE64_STANDARD.encode(login))))
    }
}

/// A message as the API shows it.
#[derive(Deserialize)]
struct ApiMessage {
    id: u64,
    queue: String,
    priority: Option<u32>,
    /// The name of `priority` in older servers.
    rank: Option<u32>,
    created_ms: u64,
    due_ms: Option<u64>,
    expires_ms: Option<u64>,
    ttr_ms: Option<u64>,
    key: Option<String>,
    headers: std::collections::BTreeMap<String, String>,
    status: String,
    attempts: u32,
    bytes: u64,
    body: Option<String>,
    body_base64: Option<String>,
    version: String,
    lease: Option<String>,
}

#[derive(Deserialize)]
struct Page {
    messages: Vec<ApiMessage>,
    cursor: Option<String>,
}

/// How a message is held there.
struct HeldMessage {
    id: u64,
    /// Leases it had when it was read, this one included.
    attempts: u32,
    how: How,
}

enum How {
    /// Under a lease with this token.
    Lease(String),
    /// Not at all: it was seen in this version.
    Seen(String),
}

/// The next kind of message to take from a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// By `reserve`.
    Ready,
    /// By listing those of a state.
    Listed(Standing),
}

/// A request: method, path, body, and the version that the message has to have.
type Ask<'a> = (&'a str, &'a str, Option<&'a Value>, Option<&'a str>);

/// A queue in hand.
struct Queue {
    name: String,
    paused: bool,
    /// Some of its ready messages are not for consumers.
    not_selectable: bool,
}

/// The source.
pub(super) struct Quintet {
    agent: Agent,
    site: Site,
    login: Option<String>,
    state: PeerState,
    /// Asks nothing: see [`Peer::local`].
    seen: Option<Line>,
    /// Still to be gone through; the first is the one in hand.
    queues: VecDeque<Queue>,
    stage: Stage,
    /// Where its list goes on.
    cursor: Option<String>,
    /// Something was found since the queues were listed.
    found: bool,
    /// Read and not given out.
    taken: VecDeque<(ApiMessage, Standing)>,
    /// Given out and not stored.
    delivered: VecDeque<HeldMessage>,
    /// Of the one given last, if its body comes in pieces.
    large: (u64, u64),
}

impl Quintet {
    /// Asks for its queues.
    ///
    /// # Errors
    /// Nobody is there, it is no Quintet, or it does not let us in.
    pub(super) fn connect(site: &Site, ca: Option<&Path>, stop: Arc<AtomicBool>) -> Result<Self> {
        let mut all = Self {
            agent: agent(ca, false)?,
            login: site.authorization()?,
            site: site.clone(),
            state: PeerState::new(stop, format!("the Quintet at {}", site.shown())),
            seen: None,
            queues: VecDeque::new(),
            stage: Stage::Ready,
            cursor: None,
            found: false,
            taken: VecDeque::new(),
            delivered: VecDeque::new(),
            large: (0, 0),
        };
        all.list()?;
        all.state.through = all.queues.is_empty();
        Ok(all)
    }

    /// Asks, whatever it answers.
    fn send(&self, (method, path, body, version): Ask<'_>) -> Result<Response<Body>> {
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("{}/api/v1{path}", self.site.url));
        if let Some(login) = &self.login {
            request = request.header("authorization", login);
        }
        if let Some(version) = version {
            request = request.header("if-match", format!("\"{version}\""));
        }
        let request = request.header("content-type", "application/json");
        let request = request.body(body.map(Value::to_string).unwrap_or_default())?;
        let at = self.site.shown();
        // What is done twice is refused the second time, or held for some minutes.
        again(|| self.agent.run(request.clone())).map_err(|error| anyhow!("{at}: {error}"))
    }

    /// Its status and document; null where there is none.
    fn ask(&self, ask: Ask<'_>) -> Result<(u16, Value)> {
        let mut response = self.send(ask)?;
        let status = response.status().as_u16();
        let limited = response.body_mut().with_config().limit(ANSWER_MAX);
        let read = limited.read_to_vec();
        let at = self.site.shown();
        let read = read.map_err(|error| anyhow!("{at}: {error}"))?;
        let value = match serde_json::from_slice(&read) {
            Ok(value) => value,
            Err(_) if read.is_empty() => Value::Null,
            Err(_) => Value::String(String::from_utf8_lossy(&read).into_owned()),
        };
        Ok((status, value))
    }

    /// The same; another status than one of these is an error.
    fn expect(&self, known: &[u16], ask: Ask<'_>) -> Result<(u16, Value)> {
        let (status, value) = self.ask(ask)?;
        match known.contains(&status) {
            true => Ok((status, value)),
            false => Err(self.refused(status, &value)),
        }
    }

    fn refused(&self, status: u16, answer: &Value) -> anyhow::Error {
        let at = self.site.shown();
        if status == 401 {
            return anyhow!("{at} rejected the login: give USER:PASSWORD@, or a token in {TOKEN}");
        }
        if let (Some(_), Some(detail)) = (answer["code"].as_str(), answer["detail"].as_str()) {
            return anyhow!("{at}: {detail}");
        }
        let reply: String = answer.to_string().chars().take(80).collect();
        anyhow!("{at} answered {status} {reply}, which the API of a Quintet does not")
    }

    fn page(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Page> {
        let (_, answer) = self.expect(&[200], (method, path, body, None))?;
        let at = self.site.shown();
        serde_json::from_value(answer)
            .with_context(|| format!("cannot read the messages of {at}: it has another version"))
    }

    /// Lists all its queues, or the one that was requested.
    fn fetch_queues(&self) -> Result<Vec<Map<String, Value>>> {
        let mut all = Vec::new();
        if let Some(only) = &self.site.queue {
            match self.ask(("GET", &of_queue(only), None, None))? {
                (200, Value::Object(queue)) => all.push(queue),
                (404, answer) if answer["code"].is_string() => {
                    bail!("{} has no queue {only}", self.site.shown())
                }
                (status, answer) => return Err(self.refused(status, &answer)),
            }
            return Ok(all);
        }
        let mut path = "/queues".to_owned();
        loop {
            let (_, page) = self.expect(&[200], ("GET", &path, None, None))?;
            let Some(queues) = page["queues"].as_array() else {
                return Err(self.refused(200, &page));
            };
            let queues = queues.iter().filter_map(|queue| queue.as_object().cloned());
            all.extend(queues);
            match page["cursor"].as_str() {
                Some(cursor) => path = format!("/queues?cursor={}", coded(cursor)),
                None => return Ok(all),
            }
        }
    }

    /// Begins with the queues there are.
    fn list(&mut self) -> Result<()> {
        let queues = self.fetch_queues()?.into_iter().filter_map(|queue| {
            let holds = ["ready", "delayed", "buried"].map(|state| number(&queue, state));
            (holds.iter().sum::<u64>() > 0).then(|| Queue {
                name: queue["name"].as_str().unwrap_or_default().to_owned(),
                paused: queue.get("paused").is_some_and(|paused| paused == true),
                not_selectable: ["not_selectable", "held_back"]
                    .iter()
                    .any(|name| number(&queue, name) > 0),
            })
        });
        self.queues = queues.collect();
        self.enter();
        Ok(())
    }

    /// Begins with the first of the queues.
    fn enter(&mut self) {
        self.cursor = None;
        let paused = self.queues.front().is_some_and(|queue| queue.paused);
        self.stage = match paused {
            true => Stage::Listed(Standing::Ready),
            false => Stage::Ready,
        };
    }

    /// Nothing more of this stage.
    fn turn(&mut self) {
        self.cursor = None;
        self.stage = match self.stage {
            Stage::Ready | Stage::Listed(Standing::Ready) => Stage::Listed(Standing::Delayed),
            Stage::Listed(Standing::Delayed) => Stage::Listed(Standing::Buried),
            Stage::Listed(_) => {
                self.queues.pop_front();
                return self.enter();
            }
        };
    }

    /// Reads what is next of this stage.
    fn read(&mut self) -> Result<()> {
        let Some(queue) = self.queues.front() else {
            return Ok(());
        };
        let path = of_queue(&queue.name);
        let state = match self.stage {
            Stage::Ready => {
                let requested = json!({ "max": AT_ONCE, "lease_ms": LEASE_MS });
                let page = self.page("POST", &format!("{path}/reserve"), Some(&requested))?;
                if page.messages.is_empty() {
                    self.turn();
                }
                let messages = page.messages.into_iter();
                self.taken
                    .extend(messages.map(|shown| (shown, Standing::Ready)));
                return Ok(());
            }
            // The API does not tell which of them are not for consumers.
            Stage::Listed(Standing::Ready) if queue.not_selectable => {
                self.turn();
                return Ok(());
            }
            Stage::Listed(state) => state,
        };
        let word = state.word();
        let mut path = format!("{path}/messages?state={word}&max={AT_ONCE}");
        if let Some(cursor) = &self.cursor {
            path = format!("{path}&cursor={}", coded(cursor));
        }
        let page = self.page("GET", &path, None)?;
        let messages = page.messages.into_iter();
        self.taken.extend(messages.map(|shown| (shown, state)));
        match page.cursor {
            None => self.turn(),
            cursor => self.cursor = cursor,
        }
        Ok(())
    }

    /// Gives one out; `None`: it is gone meanwhile.
    fn give(&mut self, mut shown: ApiMessage, state: Standing) -> Result<Option<Entry>> {
        self.state.place = format!(
            "message {} of {} at {}",
            shown.id,
            shown.queue,
            self.site.shown()
        );
        let (id, bytes) = (shown.id, shown.bytes);
        let ours = u32::from(shown.lease.is_some());
        let lease = shown.lease.take();
        let held = HeldMessage {
            id,
            attempts: shown.attempts,
            how: match lease {
                Some(token) => How::Lease(token),
                None => How::Seen(shown.version),
            },
        };
        let body = match (shown.body, shown.body_base64) {
            (Some(text), _) => Some(text.into_bytes()),
            (None, Some(coded)) => {
                let body = BASE64_STANDARD.decode(coded);
                Some(body.with_context(|| self.state.place.clone())?)
            }
            (None, None) if bytes > PIECES_OVER => None,
            (None, None) => match self.body(id, bytes)? {
                Some(body) => Some(body),
                None => return Ok(None),
            },
        };
        if body.as_ref().is_some_and(|body| body.len() as u64 != bytes) {
            bail!("{}: its body is not {bytes} bytes long", self.state.place);
        }
        self.large = (id, bytes);
        let pairs = shown.headers.into_iter();
        let head = Head {
            queue: shown.queue,
            state,
            priority: shown.priority.or(shown.rank),
            created_ms: Some(shown.created_ms),
            due_ms: shown.due_ms.filter(|_| state == Standing::Delayed),
            expires_ms: shown.expires_ms,
            ttr_ms: shown.ttr_ms,
            key: shown.key.map(|key| Text(key.into_bytes())),
            attrs: pairs
                .map(|(name, value)| (Text(name.into_bytes()), Text(value.into_bytes())))
                .collect(),
            status: Text(shown.status.into_bytes()),
            reserves: shown.attempts.saturating_sub(ours),
            bytes,
            ..Head::default()
        };
        self.delivered.push_back(held);
        self.state.passed += 1;
        Ok(Some(Entry { head, body }))
    }

    /// A body that did not come with its message; `None`: the message is gone.
    fn stream(&self, id: u64) -> Result<Option<impl Read>> {
        let response = self.send(("GET", &format!("/messages/{id}/body"), None, None))?;
        match response.status().as_u16() {
            200 => Ok(Some(response.into_body().into_reader())),
            404 => Ok(None),
            status => bail!("{}: cannot read its body: {status}", self.state.place),
        }
    }

    fn body(&self, id: u64, bytes: u64) -> Result<Option<Vec<u8>>> {
        let Some(stream) = self.stream(id)? else {
            return Ok(None);
        };
        let mut body = Vec::new();
        let read = stream.take(bytes + 1).read_to_end(&mut body);
        read.with_context(|| self.state.place.clone())?;
        Ok(Some(body))
    }

    /// Removes one that is stored here; false: somebody else may have taken it meanwhile.
    fn remove(&self, held: &HeldMessage) -> Result<bool> {
        let path = match &held.how {
            How::Seen(version) => return self.delete(held.id, version),
            How::Lease(token) => format!("/leases/{token}/finish"),
        };
        if self.expect(&[204, 409], ("POST", &path, None, None))?.0 == 204 {
            return Ok(true);
        }
        // The lease is over. Nobody had it since, if it was given no other.
        let path = format!("/messages/{}", held.id);
        match self.expect(&[200, 404], ("GET", &path, None, None))? {
            (200, shown) if shown["attempts"] == held.attempts => {
                let version = shown["version"].as_str().unwrap_or_default();
                self.delete(held.id, version)
            }
            _ => Ok(false),
        }
    }

    fn delete(&self, id: u64, version: &str) -> Result<bool> {
        let (path, known) = (format!("/messages/{id}"), [204, 404, 412]);
        let (status, _) = self.expect(&known, ("DELETE", &path, None, Some(version)))?;
        Ok(status == 204)
    }
}

fn coded(text: &str) -> impl std::fmt::Display + '_ {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

fn of_queue(name: &str) -> String {
    format!("/queues/{}", coded(name))
}

fn number(queue: &Map<String, Value>, name: &str) -> u64 {
    queue.get(name).and_then(Value::as_u64).unwrap_or(0)
}

impl Source for Quintet {
    fn next(&mut self) -> Result<Option<Entry>> {
        loop {
            if self.state.is_over() {
                return Ok(None);
            }
            if let Some((shown, state)) = self.taken.pop_front() {
                self.found = true;
                match self.give(shown, state)? {
                    None => continue,
                    entry => return Ok(entry),
                }
            }
            if !self.queues.is_empty() {
                self.read()?;
            } else if !self.delivered.is_empty() {
                // Those that were listed are there until they are stored here.
                return Ok(None);
            } else if std::mem::take(&mut self.found) {
                // What was put, given back or became due meanwhile.
                self.list()?;
            } else {
                self.state.through = true;
            }
        }
    }

    fn pieces(&mut self, into: &mut dyn Write) -> Result<()> {
        let (id, bytes) = self.large;
        let bad = |why: &str| BadInput::error(self.state.place.clone(), why);
        let stream = self.stream(id).map_err(|error| bad(&error.to_string()))?;
        let mut stream = stream.ok_or_else(|| bad("it is gone"))?;
        let (mut left, mut piece) = (bytes, vec![0; 64 << 10]);
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
            let read = stream.read(&mut piece[..want]);
            let read = read.map_err(|error| bad(&error.to_string()))?;
            if read == 0 {
                return Err(bad("its body ends before its end"));
            }
            into.write_all(&piece[..read])?;
            left -= read as u64;
        }
        Ok(())
    }

    of_fields!(place);

    fn stored(&mut self, messages: u64) -> Result<()> {
        let gone = first(&mut self.delivered, messages);
        let ours = each(&gone, |held| self.remove(held))?;
        self.state.twice += gone.len() as u64 - ours;
        Ok(())
    }
}

impl Peer for Quintet {
    fn counts(&mut self) -> Result<Counts> {
        let mut counts = Counts::default();
        for queue in self.fetch_queues()? {
            let name = queue["name"].as_str().unwrap_or_default();
            for state in ["ready", "delayed", "buried", "reserved"] {
                counts.add(name, state, number(&queue, state));
            }
        }
        Ok(counts)
    }

    fn state(&self) -> &PeerState {
        &self.state
    }

    fn give_back(&mut self) -> Result<u64> {
        self.state.through = true;
        let taken = self.taken.drain(..).filter_map(|(shown, _)| shown.lease);
        let delivered = self.delivered.drain(..).filter_map(|held| match held.how {
            How::Lease(token) => Some(token),
            How::Seen(_) => None,
        });
        let tokens: Vec<String> = delivered.chain(taken).collect();
        each(&tokens, |token| {
            let path = format!("/leases/{token}/release");
            let released = self.expect(&[204, 409], ("POST", &path, Some(&json!({})), None))?;
            Ok(released.0 == 204)
        })
    }

    /// Requests go over connections that others keep; this one is only there to be seen.
    fn local(&mut self) -> Option<SocketAddr> {
        let mut seen = Line::connect(self.site.url.strip_prefix("http://")?).ok()?;
        let request = b"HEAD / HTTP/1.1\r\nhost: localhost\r\n\r\n";
        seen.send(request).ok()?;
        // A server that answers has accepted it.
        seen.line().ok()?;
        self.seen.insert(seen).local()
    }
}
