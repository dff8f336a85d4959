//! A closed loop over many connections in one thread: each connection sends
//! `depth` requests in one write, waits for all replies, and goes on.
//!
//! Every connection has a queue of its own, so the length of every reply is
//! known and counting bytes is enough; a check of the first round's content
//! keeps that honest.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

pub(crate) struct Load {
    pub(crate) connections: usize,
    pub(crate) depth: usize,
    pub(crate) size: usize,
    pub(crate) time: Duration,
}

struct Connection {
    stream: TcpStream,
    /// The two rounds that alternate, and what they must be answered with.
    rounds: [(Vec<u8>, Vec<u8>); 2],
    round: usize,
    received: usize,
    first: Vec<u8>,
    checked: u8,
}

impl Load {
    /// Runs the load against `address`; answers requests per second.
    ///
    /// # Errors
    /// If the server cannot be reached, ends a connection, or answers wrongly.
    pub(crate) fn run(&self, address: SocketAddr) -> Result<f64> {
        if !address.ip().is_loopback() {
            bail!("{address} is not on this machine");
        }
        let mut poll = Poll::new()?;
        let mut all = Vec::with_capacity(self.connections);
        for number in 0..self.connections {
            let stream = std::net::TcpStream::connect(address).context("connect")?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry()
                .register(&mut stream, Token(number), Interest::READABLE)?;
            let rounds = self.rounds(number);
            let (first, checked) = (Vec::new(), 0);
            all.push(Connection {
                stream,
                rounds,
                round: 0,
                received: 0,
                first,
                checked,
            });
        }
        let start = Instant::now();
        for connection in &mut all {
            connection.send()?;
        }
        let mut events = Events::with_capacity(1024);
        let mut done = 0u64;
        let mut buffer = vec![0; 256 * 1024];
        while start.elapsed() < self.time {
            poll.poll(&mut events, Some(Duration::from_secs(10)))?;
            if events.is_empty() {
                bail!("no reply within 10 s");
            }
            for event in &events {
                let connection = &mut all[event.token().0];
                if connection.receive(&mut buffer)? {
                    done += self.depth as u64;
                    connection.send()?;
                }
            }
        }
        Ok(done as f64 / start.elapsed().as_secs_f64())
    }

    /// Depth 1 alternates a put and a get; deeper rounds hold both in turn.
    fn rounds(&self, number: usize) -> [(Vec<u8>, Vec<u8>); 2] {
        let body = vec![b'x'; self.size];
        let mut put = format!("set bench{number:04} 0 0 {}\r\n", self.size).into_bytes();
        put.extend_from_slice(&body);
        put.extend_from_slice(b"\r\n");
        let get = format!("get bench{number:04}\r\n").into_bytes();
        let stored = b"STORED\r\n".to_vec();
        let mut value = format!("VALUE bench{number:04} 0 {}\r\n", self.size).into_bytes();
        value.extend_from_slice(&body);
        value.extend_from_slice(b"\r\nEND\r\n");
        if self.depth == 1 {
            return [(put, stored), (get, value)];
        }
        let half = self.depth / 2;
        let sent = [put.repeat(half), get.repeat(self.depth - half)].concat();
        let back = [stored.repeat(half), value.repeat(self.depth - half)].concat();
        [(sent.clone(), back.clone()), (sent, back)]
    }
}

impl Connection {
    fn send(&mut self) -> Result<()> {
        self.received = 0;
        // A round is small against the socket's buffer: it goes in one write.
        self.stream
            .write_all(&self.rounds[self.round].0)
            .context("send")
    }

    /// True when the round is answered.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<bool> {
        let expected = self.rounds[self.round].1.len();
        loop {
            match self.stream.read(buffer) {
                Ok(0) => bail!("the server closed a connection"),
                Ok(count) => {
                    self.received += count;
                    if self.checked < 2 {
                        self.first.extend_from_slice(&buffer[..count]);
                    }
                    if self.received >= expected {
                        break;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error).context("receive"),
            }
        }
        if self.checked < 2 {
            if self.first != self.rounds[self.round].1 {
                bail!("wrong reply: {:?}", String::from_utf8_lossy(&self.first));
            }
            self.first.clear();
            self.checked += 1;
        }
        self.round = 1 - self.round;
        Ok(true)
    }
}
