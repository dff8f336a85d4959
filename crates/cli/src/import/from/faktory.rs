//! A running Faktory, queue by queue.
//!
//! Jobs are fetched, and acknowledged when they are stored here. What is
//! scheduled, waits for a retry or is dead the protocol does not show.

use std::collections::VecDeque;
use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail};
use quintet_control::{Head, Text};
use quintet_types::{MESSAGE_NAME_BYTES_MAX, Name};
use quintet_wire::faktory_pwdhash;
use serde_json::{Value, json};

use super::Remote;
use super::line::Line;
use super::peer::{Hold, Number, Server};

/// Jobs that are fetched there and not stored here, at most.
const AHEAD_JOBS: usize = 1000;
/// Bytes of them at most.
const AHEAD_BYTES: u64 = 8 << 20;
/// Rounds of hashing that a server may ask for.
const ROUNDS_MAX: u32 = 1_000_000;

/// The source.
pub(in crate::import) struct Faktory {
    line: Line,
    only: Option<String>,
}

impl Faktory {
    /// Connects.
    ///
    /// # Errors
    /// Nobody is there, it is something else, or the password is wrong.
    pub(in crate::import) fn connect(at: &Remote) -> Result<Self> {
        let address = &at.address;
        let mut line = Line::connect(address, "Faktory does not")?;
        let hello = line.line()?;
        let nonce = hello
            .strip_prefix("+HI ")
            .and_then(|rest| serde_json::from_str(rest).ok());
        let Some(nonce): Option<Value> = nonce else {
            bail!(line.strange(&hello));
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
        let only = at.queue.clone();
        Ok(Self { line, only })
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
                Err(_) => bail!(self.line.strange(&head)),
            },
        }
    }

    /// INFO's report of queues and sets.
    fn info(&mut self) -> Result<Value> {
        self.line.send(b"INFO\r\n")?;
        let text = self.reply()?.unwrap_or_default();
        let mut info: Value = serde_json::from_slice(&text).with_context(|| {
            let text = String::from_utf8_lossy(&text);
            self.line.strange(&text)
        })?;
        Ok(info["faktory"].take())
    }

    /// Says something of fetched jobs, several at once.
    fn report(&mut self, jids: &[String], verb: &str, more: &str) -> Result<()> {
        for some in jids.chunks(100) {
            let mut text = String::new();
            for jid in some {
                let jid = json!(jid);
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

impl Server for Faktory {
    type Part = String;
    /// A job's jid.
    type Held = String;
    const AGAIN: bool = false;
    const AHEAD: (usize, u64) = (AHEAD_JOBS, AHEAD_BYTES);

    fn parts(&mut self) -> Result<VecDeque<String>> {
        let numbers = self.numbers()?.into_iter();
        let full = numbers.filter(|(.., count)| *count > 0);
        Ok(full.map(|(name, ..)| name).collect())
    }

    fn take(&mut self, queue: &mut String, hold: &mut Hold<String>) -> Result<bool> {
        self.line.send(format!("FETCH {queue}\r\n").as_bytes())?;
        let Some(body) = self.reply()? else {
            // It waited two seconds for one: nothing more in this queue.
            return Ok(false);
        };
        let job: Value = serde_json::from_slice(&body).with_context(|| {
            let text = String::from_utf8_lossy(&body);
            self.line.strange(&text)
        })?;
        let Some(jid) = job["jid"].as_str() else {
            bail!("{}: a job without a jid", self.line.address());
        };
        let failure = Some(&job["failure"]).filter(|failure| failure.is_object());
        let head = Head {
            queue: Name::of_shown(queue).to_string(),
            bytes: body.len() as u64,
            ttr_ms: job["reserve_for"].as_u64().map(|seconds| seconds * 1000),
            // Its clients settle it by its jid here, too.
            name: Some(Text(jid.into()))
                .filter(|_| (1..=MESSAGE_NAME_BYTES_MAX).contains(&jid.len())),
            // As the protocol keeps it here, which shows it to workers.
            attrs: failure
                .map(|failure| (Text("f.failure".into()), Text(failure.to_string().into())))
                .into_iter()
                .collect(),
            ..Head::default()
        };
        let place = format!("a job of {queue} at {}", self.line.address());
        hold.push(jid.to_owned(), place, Ok((head, Some(body))));
        Ok(true)
    }

    fn delete(&mut self, stored: &[String]) -> Result<u64> {
        self.report(stored, "ACK", "")?;
        Ok(0)
    }

    /// A job that is not acknowledged comes back when its reservation ends; one
    /// that failed comes back sooner, with its failures counted one too many.
    fn give_back(&mut self, held: Vec<String>) -> Result<u64> {
        let why = ",\"errtype\":\"ImportStopped\",\"message\":\"quintet import was stopped\"";
        self.report(&held, "FAIL", why)?;
        Ok(held.len() as u64)
    }

    fn numbers(&mut self) -> Result<Vec<Number>> {
        let info = self.info()?;
        let queues = info["queues"].as_object().into_iter().flatten();
        let only = self.only.as_ref();
        let wanted = queues.filter(|(name, _)| only.is_none_or(|only| only == *name));
        let number = |count: &Value| count.as_u64().unwrap_or(0);
        Ok(wanted
            .map(|(name, count)| (name.clone(), "ready", number(count)))
            .collect())
    }

    fn local(&mut self) -> Option<SocketAddr> {
        self.line.local()
    }
}
