//! A running Kestrel, Darner, or another memcache server with reliable reads, queue by queue.
//!
//! A connection has one open read, so there are several. Items are requested one after the other,
//! which keeps their order, and closed when they are stored here.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use anyhow::{Result, bail};
use quintet_control::Head;
use quintet_types::Name;

use super::Remote;
use super::line::Line;
use super::peer::{Hold, Number, Server};

/// Connections with an open read at most: so many messages are stored at once.
const CONNECTIONS: usize = 64;
/// See [`Line::strange`].
const DOES_NOT: &str = "Kestrel and Darner do not";
/// Bodies that are held there and not stored here, bytes.
const AHEAD_BYTES: u64 = 8 << 20;

/// An item that is held there.
pub(in crate::import) struct OpenItem {
    /// The connection with the open read.
    connection: usize,
    queue: String,
}

/// The source.
pub(in crate::import) struct Kestrel {
    /// For statistics.
    line: Line,
    only: Option<String>,
    connections: Vec<Line>,
    /// Those without an open read.
    free: Vec<usize>,
}

impl Kestrel {
    /// Connects.
    ///
    /// # Errors
    /// Nobody is there, or it has no queues.
    pub(in crate::import) fn connect(at: &Remote) -> Result<Self> {
        let mut all = Self {
            line: Line::connect(&at.address, DOES_NOT)?,
            only: at.queue.clone(),
            connections: Vec::new(),
            free: Vec::new(),
        };
        if let Some(only) = &at.queue
            && all.numbers()?.is_empty()
        {
            bail!("{} has no queue {only}", at.address);
        }
        Ok(all)
    }

    /// The report of `stats` about queues: name, statistic, number.
    fn stats(&mut self) -> Result<Vec<Number>> {
        self.line.send(b"stats\r\n")?;
        let mut all = Vec::new();
        loop {
            let line = self.line.line()?;
            if line == "END" {
                return Ok(all);
            }
            let Some(rest) = line.strip_prefix("STAT ") else {
                bail!(self.line.strange(&line));
            };
            let Some((name, value)) = rest.split_once(' ') else {
                continue;
            };
            let Some(name) = name.strip_prefix("queue_") else {
                continue;
            };
            // `mem_items` and others end alike.
            let found = [("_open_transactions", "reserved"), ("_items", "ready")]
                .into_iter()
                .find_map(|(end, state)| Some((name.strip_suffix(end)?, state)));
            if let (Some((queue, state)), Ok(count)) = (found, value.trim().parse()) {
                all.push((queue.to_owned(), state, count));
            }
        }
    }

    /// A connection without an open read.
    fn connection(&mut self) -> Result<usize> {
        if let Some(connection) = self.free.pop() {
            return Ok(connection);
        }
        let line = Line::connect(self.line.address(), DOES_NOT)?;
        self.connections.push(line);
        Ok(self.connections.len() - 1)
    }

    /// Opens a read on a connection; `None`: the queue is empty.
    fn open(&mut self, connection: usize, queue: &str) -> Result<Option<(u32, Vec<u8>)>> {
        let line = &mut self.connections[connection];
        line.send(format!("get {queue}/open\r\n").as_bytes())?;
        let reply = line.line()?;
        if reply == "END" {
            return Ok(None);
        }
        let words: Vec<&str> = reply.split(' ').collect();
        if let ["VALUE", _, flags, bytes, ..] = words[..]
            && let (Ok(flags), Ok(bytes)) = (flags.parse(), bytes.trim().parse())
        {
            let body = line.counted(bytes)?;
            let end = line.line()?;
            if end == "END" {
                return Ok(Some((flags, body)));
            }
            bail!(line.strange(&end));
        }
        bail!(line.strange(&reply));
    }

    /// Ends the open reads of these items with this option.
    fn end(&mut self, items: &[OpenItem], option: &str) -> Result<()> {
        for held in items {
            let text = format!("get {}/{option}\r\n", held.queue);
            self.connections[held.connection].send(text.as_bytes())?;
        }
        for held in items {
            let line = &mut self.connections[held.connection];
            let reply = line.line()?;
            if reply != "END" {
                bail!(line.strange(&reply));
            }
            self.free.push(held.connection);
        }
        Ok(())
    }
}

impl Server for Kestrel {
    type Part = String;
    type Held = OpenItem;
    const AHEAD: (usize, u64) = (CONNECTIONS, AHEAD_BYTES);

    /// The queues with something in them.
    fn parts(&mut self) -> Result<VecDeque<String>> {
        let numbers = self.numbers()?.into_iter();
        let full = numbers.filter(|(_, state, count)| *state == "ready" && *count > 0);
        Ok(full.map(|(queue, ..)| queue).collect())
    }

    fn take(&mut self, queue: &mut String, hold: &mut Hold<OpenItem>) -> Result<bool> {
        let connection = self.connection()?;
        let Some((flags, body)) = self.open(connection, queue)? else {
            self.free.push(connection);
            return Ok(false);
        };
        let head = Head {
            queue: Name::of_shown(queue).to_string(),
            flags,
            bytes: body.len() as u64,
            ..Head::default()
        };
        let place = format!("an item of {queue} at {}", self.line.address());
        let queue = queue.clone();
        hold.push(
            OpenItem { connection, queue },
            place,
            Ok((head, Some(body))),
        );
        Ok(true)
    }

    fn delete(&mut self, stored: &[OpenItem]) -> Result<u64> {
        self.end(stored, "close")?;
        Ok(0)
    }

    /// Each goes to the head of its queue: the last one first.
    fn give_back(&mut self, held: Vec<OpenItem>) -> Result<u64> {
        for item in held.iter().rev() {
            self.end(std::slice::from_ref(item), "abort")?;
        }
        Ok(held.len() as u64)
    }

    /// `stats`, of queues alone. `queue_a_mem_items` may be of a queue `a_mem`, or not: every queue
    /// says how many reads of it are open, and before that how many items it has.
    fn numbers(&mut self) -> Result<Vec<Number>> {
        let mut ready = HashMap::new();
        let mut all = Vec::new();
        for (queue, state, count) in self.stats()? {
            if state == "ready" {
                ready.insert(queue, count);
            } else if self.only.as_ref().is_none_or(|only| *only == queue) {
                let items = ready.get(&queue).copied().unwrap_or(0);
                all.push((queue.clone(), "ready", items));
                all.push((queue, state, count));
            }
        }
        Ok(all)
    }

    fn local(&mut self) -> Option<SocketAddr> {
        self.line.local()
    }
}
