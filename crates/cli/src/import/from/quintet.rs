//! Another running Quintet, queue by queue, over its JSON API (docs/api.md).
//!
//! Ready messages are reserved, under leases of time alone, and finished when they are stored here.
//! Delayed and buried ones, and the ready ones of a paused queue, are listed and read, and deleted
//! there if they still are what was read: so one that is not stored stays what it was.
//!
//! The fields of messages come from the records that `quintet export` reads. Bodies, leases and
//! versions come from the requests for clients, and so do the fields of messages of an older server.

use std::collections::{HashMap, VecDeque};
use std::io::{BufReader, Read as _, Write};
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use quintet_control::{Head, Standing};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use ureq::http::Response;
use ureq::{Agent, Body};

use super::http::{ANSWER_MAX, again, agent, document, each};
use super::line::Line;
use super::peer::{Hold, Message, Number, Server};
use crate::api::part as coded;
use crate::records::BadInput;

/// Messages asked for at once: as many as the API gives.
const AT_ONCE: usize = 100;
/// How long they are held there, ms, unless they are stored before: what is held when this process
/// dies is ready again then.
const LEASE_MS: u64 = 120_000;
/// Bytes behind the line of records that are read, so that the connection serves the next request.
const STARTS_MAX: u64 = 64 << 10;
/// Fields of an older server's messages that are fields of a [`Head`]; `attrs` is made of others.
const FIELDS: &str =
    "queue priority rank created_ms due_ms expires_ms ttr_ms key name attrs status";

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

/// A page of a list, of reserved messages, or of records.
#[derive(Deserialize)]
struct Page {
    messages: Vec<Map<String, Value>>,
    cursor: Option<String>,
}

/// A message as the API shows it to clients.
#[derive(Deserialize)]
struct Shown {
    id: u64,
    attempts: u32,
    bytes: u64,
    body: Option<String>,
    body_base64: Option<String>,
    version: String,
    lease: Option<String>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl Shown {
    /// Leases before this one.
    fn reserves(&self) -> u32 {
        let ours = u32::from(self.lease.is_some());
        self.attempts.saturating_sub(ours)
    }
}

/// How a message is held there.
pub(in crate::import) struct HeldMessage {
    id: u64,
    /// Leases it had when it was read, this one included.
    attempts: u32,
    /// Its version when it was read.
    version: String,
    /// The token of its lease, if it has one.
    lease: Option<String>,
}

/// A request: method, path, body, and the version that the message has to have.
type Ask<'a> = (&'a str, &'a str, Option<&'a Value>, Option<&'a str>);

/// The messages of a queue in one state.
pub(in crate::import) struct Part {
    queue: String,
    state: Standing,
    /// By `reserve`, not by listing them.
    reserves: bool,
    /// Some of the queue's ready messages are not for consumers.
    not_selectable: bool,
    /// Where its list goes on.
    cursor: Option<String>,
}

/// The source.
pub(in crate::import) struct Quintet {
    agent: Agent,
    site: Site,
    login: Option<String>,
    /// Asks nothing: see [`Server::local`].
    seen: Option<Line>,
    /// False: it is older than the records.
    has_records: bool,
}

impl Quintet {
    /// A Quintet to which nothing was sent yet.
    ///
    /// # Errors
    /// There is no secret for the user, or `ca` cannot be read.
    pub(in crate::import) fn connect(site: &Site, ca: Option<&Path>) -> Result<Self> {
        Ok(Self {
            agent: agent(ca, false)?,
            login: site.authorization()?,
            site: site.clone(),
            seen: None,
            has_records: true,
        })
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

    /// See [`document`].
    fn read(&self, response: Response<Body>) -> Result<(u16, Value)> {
        let at = self.site.shown();
        document(response).map_err(|error| anyhow!("{at}: {error}"))
    }

    /// Asks; another status than one of these is an error.
    fn ask(&self, known: &[u16], ask: Ask<'_>) -> Result<(u16, Value)> {
        let (status, value) = self.read(self.send(ask)?)?;
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

    fn of_another_version(&self) -> String {
        let at = self.site.shown();
        format!("cannot read the messages of {at}: it has another version")
    }

    /// All its queues, or the one that was requested.
    fn queues(&self) -> Result<Vec<Value>> {
        let only = self.site.queue.as_deref();
        let mut path = only.map_or_else(|| "/queues".to_owned(), of_queue);
        let mut all = Vec::new();
        loop {
            let (status, page) = self.ask(&[200, 404], ("GET", &path, None, None))?;
            match (only, page["queues"].as_array()) {
                (Some(only), _) if status == 404 && page["code"].is_string() => {
                    bail!("{} has no queue {only}", self.site.shown())
                }
                (Some(_), _) if status == 200 && page.is_object() => return Ok(vec![page]),
                (None, Some(queues)) => all.extend(queues.iter().cloned()),
                _ => return Err(self.refused(status, &page)),
            }
            match page["cursor"].as_str() {
                Some(cursor) => path = format!("/queues?cursor={}", coded(cursor)),
                None => return Ok(all),
            }
        }
    }

    /// All fields of the messages that this path has, by id. An older server has none.
    fn records(&mut self, path: &str) -> Result<HashMap<u64, Head>> {
        if !self.has_records {
            return Ok(HashMap::new());
        }
        let response = self.send(("GET", path, None, None))?;
        if response.status().as_u16() != 200 {
            let (status, answer) = self.read(response)?;
            self.has_records = answer["code"] != "no_such_address";
            return match status {
                404 => Ok(HashMap::new()),
                _ => Err(self.refused(status, &answer)),
            };
        }
        let strange = || self.of_another_version();
        let mut from = BufReader::new(response.into_body().into_reader().take(ANSWER_MAX));
        let page = serde_json::Deserializer::from_reader(&mut from)
            .into_iter::<Page>()
            .next();
        let page = page.with_context(strange)?.with_context(strange)?;
        std::io::copy(&mut from.take(STARTS_MAX), &mut std::io::sink()).with_context(strange)?;
        let heads = page.messages.into_iter().map(|mut record| {
            record.retain(|name, _| !["follows", "lease"].contains(&name.as_str()));
            let head: Head = serde_json::from_value(record.into()).with_context(strange)?;
            anyhow::Ok((head.id, head))
        });
        heads.collect()
    }

    /// Head and body of a message as it was before it was reserved. `listed` is the record that was
    /// read before.
    fn message(
        &mut self,
        (state, place): (Standing, &str),
        shown: Shown,
        listed: Option<Head>,
    ) -> Message {
        let (reserves, bytes) = (shown.reserves(), shown.bytes);
        let mut head = listed.filter(|head| head.reserves == reserves);
        if head.is_none() {
            // It was not there yet, or another client has had it since.
            let path = format!("/messages/{}/record", shown.id);
            head = self.records(&path)?.remove(&shown.id);
        }
        let head = match head {
            Some(head) => head,
            None => head_of(shown.rest).with_context(|| self.of_another_version())?,
        };
        let body = match (shown.body, shown.body_base64) {
            (Some(text), _) => Some(text.into_bytes()),
            (None, Some(coded)) => {
                let body = BASE64_STANDARD.decode(coded);
                Some(body.with_context(|| place.to_owned())?)
            }
            (None, None) => None,
        };
        if body.as_ref().is_some_and(|body| body.len() as u64 != bytes) {
            bail!("{place}: its body is not {bytes} bytes long");
        }
        let head = Head {
            state,
            due_ms: head.due_ms.filter(|_| state == Standing::Delayed),
            reserves,
            bytes,
            ..head
        };
        Ok((head, body))
    }

    /// Removes one that is stored here; false: somebody else may have taken it meanwhile.
    fn remove(&self, held: &HeldMessage) -> Result<bool> {
        let path = format!("/messages/{}", held.id);
        let mut version = held.version.clone();
        if let Some(token) = &held.lease {
            let finish = format!("/leases/{token}/finish");
            if self.ask(&[204, 409], ("POST", &finish, None, None))?.0 == 204 {
                return Ok(true);
            }
            // The lease is over. Nobody had it since, if it was given no other.
            let (_, shown) = self.ask(&[200, 404], ("GET", &path, None, None))?;
            if shown["attempts"] != held.attempts {
                return Ok(false);
            }
            version = shown["version"].as_str().unwrap_or_default().to_owned();
        }
        let request = ("DELETE", path.as_str(), None, Some(version.as_str()));
        Ok(self.ask(&[204, 404, 412], request)?.0 == 204)
    }
}

/// The fields that an older server shows.
fn head_of(mut shown: Map<String, Value>) -> serde_json::Result<Head> {
    if let Some(Value::Object(headers)) = shown.remove("headers") {
        let pairs = headers
            .into_iter()
            .map(|(name, value)| json!([name, value]));
        shown.insert("attrs".to_owned(), pairs.collect());
    }
    if shown.contains_key("priority") {
        shown.remove("rank");
    }
    shown.retain(|name, _| FIELDS.split(' ').any(|field| field == name));
    serde_json::from_value(shown.into())
}

fn of_queue(name: &str) -> String {
    format!("/queues/{}", coded(name))
}

fn number(queue: &Value, name: &str) -> u64 {
    queue[name].as_u64().unwrap_or(0)
}

impl Server for Quintet {
    type Part = Part;
    type Held = HeldMessage;

    fn parts(&mut self) -> Result<VecDeque<Part>> {
        let mut parts = VecDeque::new();
        for queue in self.queues()? {
            let states = [Standing::Ready, Standing::Delayed, Standing::Buried];
            if states.iter().all(|state| number(&queue, state.word()) == 0) {
                continue;
            }
            let names = ["not_selectable", "held_back"];
            let not_selectable = names.iter().any(|name| number(&queue, name) > 0);
            for state in states {
                parts.push_back(Part {
                    queue: queue["name"].as_str().unwrap_or_default().to_owned(),
                    state,
                    reserves: state == Standing::Ready && queue["paused"] != true,
                    not_selectable,
                    cursor: None,
                });
            }
        }
        Ok(parts)
    }

    fn take(&mut self, part: &mut Part, hold: &mut Hold<HeldMessage>) -> Result<bool> {
        let queue = of_queue(&part.queue);
        let mut list = format!("state={}&max={AT_ONCE}", part.state.word());
        if let Some(cursor) = &part.cursor {
            list.push_str(&format!("&cursor={}", coded(cursor)));
        }
        let records = format!("{queue}/records?{list}&bodies=start");
        let (mut heads, (_, answer)) = if part.reserves {
            let heads = self.records(&records)?;
            // No more than were listed, as far as any were.
            let max = match heads.len() {
                0 => AT_ONCE,
                listed => listed.min(AT_ONCE),
            };
            let requested = json!({ "max": max, "lease_ms": LEASE_MS });
            let path = format!("{queue}/reserve");
            let answer = self.ask(&[200], ("POST", &path, Some(&requested), None))?;
            (heads, answer)
        } else {
            let path = format!("{queue}/messages?{list}");
            let answer = self.ask(&[200], ("GET", &path, None, None))?;
            // Behind the versions: what is changed between is not deleted.
            let heads = self.records(&records)?;
            if part.state == Standing::Ready && part.not_selectable && !self.has_records {
                // An older server does not tell which of them are not for consumers.
                return Ok(false);
            }
            (heads, answer)
        };
        let page: Page =
            serde_json::from_value(answer).with_context(|| self.of_another_version())?;
        let more = (part.reserves && !page.messages.is_empty()) || page.cursor.is_some();
        part.cursor = page.cursor;
        let mut failed = false;
        for shown in page.messages {
            let shown: Shown =
                serde_json::from_value(shown.into()).with_context(|| self.of_another_version())?;
            let held = HeldMessage {
                id: shown.id,
                attempts: shown.attempts,
                version: shown.version.clone(),
                lease: shown.lease.clone(),
            };
            let (id, at) = (shown.id, self.site.shown());
            let place = format!("message {id} of {} at {at}", part.queue);
            let listed = heads.remove(&id);
            // Behind an error they are only held, to be given back.
            let message = match failed {
                true => Err(anyhow!("{place}: it was not read")),
                false => self.message((part.state, &place), shown, listed),
            };
            failed |= message.is_err();
            if !message.as_ref().is_ok_and(|(head, _)| head.not_selectable) {
                hold.push(held, place, message);
            }
        }
        Ok(more)
    }

    fn pieces(
        &self,
        held: &HeldMessage,
        (bytes, place): (u64, &str),
        into: &mut dyn Write,
    ) -> Result<()> {
        let bad = |why: &str| BadInput::error(place, why);
        let path = format!("/messages/{}/body", held.id);
        let response = self.send(("GET", &path, None, None));
        let response = response.map_err(|error| bad(&error.to_string()))?;
        match response.status().as_u16() {
            200 => {}
            404 => return Err(bad("it is gone")),
            status => return Err(bad(&format!("cannot read its body: {status}"))),
        }
        let mut stream = response.into_body().into_reader();
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

    fn delete(&mut self, stored: &[HeldMessage]) -> Result<u64> {
        let ours = each(stored, |held| self.remove(held))?;
        Ok(stored.len() as u64 - ours)
    }

    fn give_back(&mut self, held: Vec<HeldMessage>) -> Result<u64> {
        let tokens: Vec<String> = held.into_iter().filter_map(|held| held.lease).collect();
        each(&tokens, |token| {
            let path = format!("/leases/{token}/release");
            let released = self.ask(&[204, 409], ("POST", &path, Some(&json!({})), None))?;
            Ok(released.0 == 204)
        })
    }

    fn numbers(&mut self) -> Result<Vec<Number>> {
        let mut all = Vec::new();
        for queue in self.queues()? {
            let name = queue["name"].as_str().unwrap_or_default();
            for state in ["ready", "delayed", "buried", "reserved"] {
                all.push((name.to_owned(), state, number(&queue, state)));
            }
        }
        Ok(all)
    }

    /// Requests go over connections that others keep; this one is only there to be seen.
    fn local(&mut self) -> Option<SocketAddr> {
        let mut seen =
            Line::connect(self.site.url.strip_prefix("http://")?, "HTTP does not").ok()?;
        let request = b"HEAD / HTTP/1.1\r\nhost: localhost\r\n\r\n";
        seen.send(request).ok()?;
        // A server that answers has accepted it.
        seen.line().ok()?;
        self.seen.insert(seen).local()
    }
}

#[cfg(test)]
mod tests {
    use quintet_control::Text;

    use super::*;

    fn text(text: &str) -> Text {
        Text(text.as_bytes().to_vec())
    }

    /// The first message is as commit 8486fd84 shows one, the second with a field of today.
    #[test]
    fn messages_of_an_older_server_keep_what_it_shows() {
        let mut message = json!({
            "id": 7, "queue": "q", "state": "reserved", "rank": 3, "created_ms": 1, "due_ms": null,
            "expires_ms": 2, "ttr_ms": null, "key": "k", "name": "n", "headers": {"a": "b"},
            "status": "why", "progress": null, "attempts": 2, "failures": 1, "bytes": 1,
            "body": "x", "body_base64": null, "version": "1-3-0-2l", "lease": "7.1-3-0-2l"
        });
        for _ in 0..2 {
            let shown: Shown = serde_json::from_value(message.clone()).unwrap();
            assert_eq!((shown.id, shown.reserves()), (7, 1));
            let head = Head {
                queue: "q".to_owned(),
                priority: Some(3),
                created_ms: Some(1),
                expires_ms: Some(2),
                key: Some(text("k")),
                name: Some(text("n")),
                attrs: vec![(text("a"), text("b"))],
                status: text("why"),
                ..Head::default()
            };
            assert_eq!(head_of(shown.rest).unwrap(), head);
            message["priority"] = json!(3);
        }
    }
}
