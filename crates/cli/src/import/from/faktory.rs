//! A running Faktory, queue by queue.
//!
//! Jobs are fetched, and acknowledged when they are stored here. What is
//! scheduled, waits for a retry or is dead the protocol does not show.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result, bail};
use quintet_control::{Head, Text};
use quintet_types::{MESSAGE_NAME_BYTES_MAX, Name};
use quintet_wire::faktory_pwdhash;
use serde_json::{Value, json};

use super::Remote;
use super::line::Line;
use super::peer::{Peer, PeerState, first};
use crate::import::count::Counts;
use crate::records::{Entry, Source};

/// Jobs that are fetched there and not stored here, at most.
const AHEAD: usize = 1000;
/// Bytes of them at most.
const AHEAD_BYTES: usize = 8 << 20;
/// Rounds of hashing that a server may ask for.
const ROUNDS_MAX: u32 = 1_000_000;

struct FetchedJob {
    jid: String,
    bytes: usize,
}

/// The source.
pub(super) struct Faktory {
    line: Line,
    state: PeerState,
    only: Option<String>,
    /// Still to be gone through; the first is the one in hand.
    queues: VecDeque<String>,
    delivered: VecDeque<FetchedJob>,
}

impl Faktory {
    /// Connects.
    ///
    /// # Errors
    /// Nobody is there, it is something else, or the password is wrong.
    pub(super) fn connect(at: &Remote, stop: Arc<AtomicBool>) -> Result<Self> {
        let address = &at.address;
        let mut line = Line::connect(address)?;
        let hello = line.line()?;
        let nonce = hello
            .strip_prefix("+HI ")
            .and_then(|rest| serde_json::from_str(rest).ok());
        let Some(nonce): Option<Value> = nonce else {
            bail!(strange(&line, &hello));
        };
        let mut says = json!({ "v": 2 });
        if let Some(salt) = nonce["s"].as_str() {
            let password = (at.password.as_ref())
                .with_context(|| format!("{address} needs a password: faktory://:PASSWORD@..."))?;
            let rounds = u32::try_from(nonce["i"].as_u64().unwrap_or(1)).unwrap_or(u32::MAX);
            if rounds > ROUNDS_MAX {
                bail!(
                    "{address} asks for {rounds} rounds of password hashing; {ROUNDS_MAX} are allowed"
                );
            }
            says["pwdhash"] = faktory_pwdhash(password, salt, rounds).into();
        }
        line.send(format!("HELLO {says}\r\n").as_bytes())?;
        let reply = line.line()?;
        if reply != "+OK" {
            bail!("{address}: {}", reply.trim_start_matches("-ERR "));
        }
        let mut all = Self {
            line,
            state: PeerState::new(stop, format!("the Faktory at {address}")),
            only: at.queue.clone(),
            queues: VecDeque::new(),
            delivered: VecDeque::new(),
        };
        all.queues = all.list()?;
        all.state.through = all.queues.is_empty();
        Ok(all)
    }

    /// A reply: a line, or the bytes it announces; `None`: null.
    fn reply(&mut self) -> Result<Option<Vec<u8>>> {
        let head = self.line.line()?;
        if let Some(why) = head.strip_prefix('-') {
            let why: String = why.chars().take(200).collect();
            bail!("{}: {why}", self.line.address());
        }
        match head.strip_prefix('$') {
            None => Ok(Some(head.into_bytes())),
            Some("-1") => Ok(None),
            Some(digits) => match digits.parse() {
                Ok(bytes) => Ok(Some(self.line.counted(bytes)?)),
                Err(_) => bail!(strange(&self.line, &head)),
            },
        }
    }

    /// INFO's report of queues and sets.
    fn info(&mut self) -> Result<Value> {
        self.line.send(b"INFO\r\n")?;
        let text = self.reply()?.unwrap_or_default();
        let mut info: Value = serde_json::from_slice(&text).with_context(|| {
            let text = String::from_utf8_lossy(&text);
            strange(&self.line, &text)
        })?;
        Ok(info["faktory"].take())
    }

    /// The queues with something in them.
    fn list(&mut self) -> Result<VecDeque<String>> {
        let info = self.info()?;
        let queues = info["queues"].as_object().into_iter().flatten();
        let full = queues.filter(|(_, count)| count.as_u64() != Some(0));
        let names = full.map(|(name, _)| name.clone());
        let wanted = names.filter(|name| self.only.as_ref().is_none_or(|only| only == name));
        Ok(wanted.collect())
    }

    fn is_full(&self) -> bool {
        let bytes: usize = self.delivered.iter().map(|held| held.bytes).sum();
        self.delivered.len() >= AHEAD || bytes >= AHEAD_BYTES
    }

    /// Says something of fetched jobs, several at once.
    fn report(&mut self, items: &[FetchedJob], verb: &str, more: &str) -> Result<()> {
        for some in items.chunks(100) {
            let mut text = String::new();
            for held in some {
                let jid = json!(held.jid);
                text.push_str(&format!("{verb} {{\"jid\":{jid}{more}}}\r\n"));
            }
            self.line.send(text.as_bytes())?;
            for _ in some {
                self.reply()?;
            }
        }
        Ok(())
    }
}

fn strange(line: &Line, reply: &str) -> String {
    line.strange(reply, "Faktory does not")
}

impl Source for Faktory {
    fn next(&mut self) -> Result<Option<Entry>> {
        loop {
            let over = self.state.is_over();
            let Some(queue) = self.queues.front().filter(|_| !over).cloned() else {
                return Ok(None);
            };
            if self.is_full() {
                return Ok(None);
            }
            self.line.send(format!("FETCH {queue}\r\n").as_bytes())?;
            let Some(body) = self.reply()? else {
                // It waited two seconds for one: nothing more in this queue.
                self.queues.pop_front();
                self.state.through = self.queues.is_empty();
                continue;
            };
            let job: Value = serde_json::from_slice(&body).with_context(|| {
                let text = String::from_utf8_lossy(&body);
                strange(&self.line, &text)
            })?;
            let Some(jid) = job["jid"].as_str() else {
                bail!("{}: a job without a jid", self.line.address());
            };
            self.state.place = format!("a job of {queue} at {}", self.line.address());
            let text = |text: &str| Text(text.as_bytes().to_vec());
            let failure = Some(&job["failure"]).filter(|failure| failure.is_object());
            let head = Head {
                queue: Name::of_shown(&queue).to_string(),
                bytes: body.len() as u64,
                ttr_ms: job["reserve_for"].as_u64().map(|seconds| seconds * 1000),
                // Its clients settle it by its jid here, too.
                name: Some(text(jid)).filter(|_| (1..=MESSAGE_NAME_BYTES_MAX).contains(&jid.len())),
                // As the protocol keeps it here, which shows it to workers.
                attrs: failure
                    .map(|failure| (text("f.failure"), text(&failure.to_string())))
                    .into_iter()
                    .collect(),
                ..Head::default()
            };
            let (jid, bytes) = (jid.to_owned(), body.len());
            self.delivered.push_back(FetchedJob { jid, bytes });
            return Ok(Some(self.state.entry(head, body)));
        }
    }

    of_fields!(peer);

    fn stored(&mut self, messages: u64) -> Result<()> {
        let items = first(&mut self.delivered, messages);
        self.report(&items, "ACK", "")
    }
}

impl Peer for Faktory {
    fn counts(&mut self) -> Result<Counts> {
        let mut counts = Counts::default();
        let info = self.info()?;
        for (queue, count) in info["queues"].as_object().into_iter().flatten() {
            if self.only.as_ref().is_none_or(|only| only == queue) {
                counts.add(queue, "ready", count.as_u64().unwrap_or(0));
            }
        }
        Ok(counts)
    }

    fn state(&self) -> &PeerState {
        &self.state
    }

    /// A job that is not acknowledged comes back when its reservation ends; one
    /// that failed comes back sooner, with its failures counted one too many.
    fn give_back(&mut self) -> Result<u64> {
        self.state.through = true;
        let items: Vec<FetchedJob> = self.delivered.drain(..).collect();
        let why = ",\"errtype\":\"ImportStopped\",\"message\":\"quintet import was stopped\"";
        self.report(&items, "FAIL", why)?;
        Ok(items.len() as u64)
    }

    fn local(&mut self) -> Option<SocketAddr> {
        self.line.local()
    }
}
