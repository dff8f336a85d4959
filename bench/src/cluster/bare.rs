//! JetStream alone: conditional publishes as an owner's, and nothing above them. Spoken here, as
//! all protocols of a load are, so that no figure depends on whose client is the leaner.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, BufWriter, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::common::sheet::Spread;

/// A reply may take this long.
const SILENCE: Duration = Duration::from_secs(60);
/// Where replies go, to the stream's connection.
const INBOX: &str = "_INBOX.bench";
/// The number of all publishes, whose replies come in order.
const PUBLISHED: u64 = 0;

/// A connection to a server.
pub(crate) struct Bare {
    from: BufReader<TcpStream>,
    to: BufWriter<TcpStream>,
    /// The stream's last sequence.
    last: u64,
    /// Questions so far: each has a subject of its own for its reply, as there may be two.
    requested: u64,
    stream: &'static str,
}

/// The published messages.
#[derive(Default)]
pub(crate) struct Published {
    pub(crate) entries: u64,
    /// Of an entry, bytes.
    pub(crate) size: usize,
    pub(crate) seconds: f64,
    /// Of half of them at most, microseconds.
    pub(crate) p50_us: f64,
}

impl Published {
    /// Entries a second.
    pub(crate) fn rate(&self) -> f64 {
        self.entries as f64 / self.seconds
    }

    /// Their bytes a second.
    pub(crate) fn bytes(&self) -> f64 {
        self.rate() * self.size as f64
    }
}

impl Bare {
    /// Connects to the server at this port; the stream need not be there.
    pub(crate) fn connect(port: u16, stream: &'static str) -> Result<Self> {
        let socket = TcpStream::connect(("127.0.0.1", port)).context("cannot reach NATS")?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(SILENCE))?;
        let mut bare = Self {
            from: BufReader::new(socket.try_clone()?),
            to: BufWriter::new(socket),
            last: 0,
            requested: 0,
            stream,
        };
        let hello = json!({ "verbose": false, "headers": true, "no_responders": true });
        write!(bare.to, "CONNECT {hello}\r\nSUB {INBOX}.{stream}.* 1\r\n")?;
        Ok(bare)
    }

    /// Makes a stream as a log's, on three servers.
    pub(crate) fn create(&mut self) -> Result<()> {
        let stream = self.stream;
        self.ask(
            "STREAM.CREATE",
            &json!({
                "name": stream,
                "subjects": [format!("{stream}.log")],
                "retention": "limits",
                "storage": "file",
                "discard": "new",
                "num_replicas": 3,
                "max_msg_size": 1 << 20,
                "duplicate_window": 100_000_000,
                "deny_delete": true,
                "allow_direct": true,
                "republish": { "src": format!("{stream}.log"), "dest": format!("{stream}.tail") },
            }),
        )
        .map(drop)
    }

    /// The servers' report of the stream.
    pub(crate) fn info(&mut self) -> Result<Value> {
        self.ask("STREAM.INFO", &json!({}))
    }

    /// Has the stream led by this server.
    pub(crate) fn lead_by(&mut self, server: &str) -> Result<()> {
        let began = Instant::now();
        while self.info()?["cluster"]["leader"] != server {
            ensure!(
                began.elapsed() < SILENCE,
                "{server} does not lead the stream"
            );
            let order = json!({ "placement": { "preferred": server } });
            // One that leads already, or was just chosen, says no.
            self.ask("STREAM.LEADER.STEPDOWN", &order).ok();
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    /// Empties the stream.
    pub(crate) fn purge(&mut self) -> Result<()> {
        self.ask("STREAM.PURGE", &json!({})).map(drop)
    }

    /// Publishes entries of this size, so many on their way at once.
    pub(crate) fn publish(
        &mut self,
        window: usize,
        size: usize,
        time: Duration,
    ) -> Result<Published> {
        let entry = vec![b'x'; size];
        let mut sent: VecDeque<Instant> = VecDeque::new();
        let mut took = Vec::new();
        let began = Instant::now();
        loop {
            while sent.len() < window && began.elapsed() < time {
                let expected = self.last + sent.len() as u64;
                self.send(expected, &entry)?;
                sent.push_back(Instant::now());
            }
            self.to.flush()?;
            let Some(at) = sent.pop_front() else {
                break;
            };
            let ack = self.reply(PUBLISHED)?;
            self.last += 1;
            ensure!(ack["seq"] == self.last, "a publish was refused: {ack}");
            took.push(at.elapsed().as_secs_f64() * 1e6);
        }
        Ok(Published {
            entries: took.len() as u64,
            size,
            seconds: began.elapsed().as_secs_f64(),
            p50_us: Spread::of(took).median,
        })
    }

    fn send(&mut self, expected: u64, entry: &[u8]) -> Result<()> {
        let stream = self.stream;
        let head = format!(
            "NATS/1.0\r\nNats-Expected-Stream: {stream}\r\n\
             Nats-Expected-Last-Sequence: {expected}\r\n\r\n"
        );
        let (len, all) = (head.len(), head.len() + entry.len());
        write!(
            self.to,
            "HPUB {stream}.log {INBOX}.{stream}.{PUBLISHED} {len} {all}\r\n{head}"
        )?;
        self.to.write_all(entry)?;
        Ok(self.to.write_all(b"\r\n")?)
    }

    /// Asks about the stream.
    fn ask(&mut self, what: &str, body: &Value) -> Result<Value> {
        let (body, stream) = (body.to_string(), self.stream);
        self.requested += 1;
        let (len, requested) = (body.len(), self.requested);
        write!(
            self.to,
            "PUB $JS.API.{what}.{stream} {INBOX}.{stream}.{requested} {len}\r\n{body}\r\n"
        )?;
        self.to.flush()?;
        let reply = self.reply(requested)?;
        ensure!(reply.get("error").is_none(), "{what}: {}", reply["error"]);
        if let Some(last) = reply["state"]["last_seq"].as_u64() {
            self.last = last;
        }
        Ok(reply)
    }

    /// The next reply to this.
    fn reply(&mut self, requested: u64) -> Result<Value> {
        loop {
            let mut line = String::new();
            ensure!(
                self.from.read_line(&mut line)? > 0,
                "NATS closed a connection"
            );
            let words: Vec<&str> = line.split_whitespace().collect();
            let head = match words[..] {
                ["MSG", ..] => 0,
                ["HMSG", .., head, _] => head.parse::<usize>()?,
                ["PING"] => {
                    self.to.write_all(b"PONG\r\n")?;
                    self.to.flush()?;
                    continue;
                }
                ["-ERR", ..] => bail!("NATS says {line}"),
                _ => continue,
            };
            let len: usize = words.last().copied().unwrap_or_default().parse()?;
            let mut bytes = vec![0; len + 2];
            self.from.read_exact(&mut bytes)?;
            if words[1] != format!("{INBOX}.{}.{requested}", self.stream) {
                continue;
            }
            if head == len {
                bail!("JetStream does not answer");
            }
            return Ok(serde_json::from_slice(&bytes[head..len])?);
        }
    }
}
