//! A client's side of each protocol, one request at a time.
//!
//! An error is: no reply, or not a whole one. What a reply refuses is no error.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::ledger::{VOICES, Wishes};

pub(crate) const MEMCACHE: usize = 0;
pub(crate) const LINEUP: usize = 1;
pub(crate) const JOBQUEUE: usize = 2;
pub(crate) const PINPRIQ: usize = 3;
pub(crate) const BEANSTALK: usize = 4;
pub(crate) const CONTROL: usize = 5;
pub(crate) const HTTP: usize = 6;

/// The queue of lineup's listener.
pub(crate) const LINEUP_QUEUE: &str = "default";
/// Time to run of leases that have one, seconds.
pub(crate) const LEASE_S: u64 = 2;
/// The longest wait for a reply.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Where a server listens.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    /// By voice; those without a listener are empty.
    pub(crate) of: [String; VOICES.len()],
    pub(crate) binary: PathBuf,
    pub(crate) data: PathBuf,
}

/// What was taken, and by which word it is finished.
pub(crate) struct Taken {
    pub(crate) body: Vec<u8>,
    lease: u64,
}

/// A connection.
pub(crate) struct Client {
    voice: usize,
    addresses: Addresses,
    stream: Option<BufReader<TcpStream>>,
    used: String,
    watched: String,
    /// The last take was told, in so many words, that there is nothing.
    empty: bool,
}

fn wrong(text: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(text);
    io::Error::other(format!("a reply of another kind: {text:?}"))
}

impl Client {
    pub(crate) fn open(addresses: &Addresses, voice: usize) -> io::Result<Self> {
        let stream = match voice {
            CONTROL => None,
            _ => {
                let stream = TcpStream::connect(&addresses.of[voice])?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Some(BufReader::new(stream))
            }
        };
        Ok(Self {
            voice,
            addresses: addresses.clone(),
            stream,
            used: "default".into(),
            watched: "default".into(),
            empty: false,
        })
    }

    fn stream(&mut self) -> io::Result<&mut BufReader<TcpStream>> {
        let none = || io::Error::other("no connection");
        self.stream.as_mut().ok_or_else(none)
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream()?.get_mut().write_all(bytes)
    }

    /// A line without its end.
    fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        self.stream()?.read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(line)
    }

    fn exact(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.stream()?.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn word(&mut self) -> io::Result<Vec<u8>> {
        let mut word = Vec::new();
        self.stream()?.read_until(0, &mut word)?;
        if word.pop() != Some(0) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(word)
    }

    /// A body of `len` bytes and what ends it.
    fn body(&mut self, len: &str, end: &[u8]) -> io::Result<Vec<u8>> {
        let len: usize = len.parse().map_err(|_| wrong(len.as_bytes()))?;
        let body = self.exact(len)?;
        let tail = self.exact(end.len())?;
        if tail != end {
            return Err(wrong(&tail));
        }
        Ok(body)
    }

    /// Puts; false: refused. Only beanstalk knows delays, only memcache times
    /// to live.
    pub(crate) fn put(
        &mut self,
        queue: &str,
        body: &[u8],
        rank: u32,
        wishes: Wishes,
    ) -> io::Result<bool> {
        let len = body.len();
        let Wishes { delay_s, ttl_s, .. } = wishes;
        match self.voice {
            MEMCACHE => {
                self.send(&framed(&format!("set {queue} 0 {ttl_s} {len}\r\n"), body))?;
                self.verdict(b"STORED", &[b"NOT_STORED", b"SERVER_ERROR"])
            }
            LINEUP => {
                self.send(&framed(&format!("PUSH {rank} {len}\r\n"), body))?;
                self.verdict(b"+OK", &[b"-"])
            }
            BEANSTALK => {
                self.use_tube(queue)?;
                let head = format!("put {rank} {delay_s} {LEASE_S} {len}\r\n");
                self.send(&framed(&head, body))?;
                let refusals: &[&[u8]] = &[b"OUT_OF_MEMORY", b"DRAINING", b"INTERNAL_ERROR"];
                self.verdict(b"INSERTED ", refusals)
            }
            JOBQUEUE => {
                let mut put = [b"ADD\0", queue.as_bytes(), b"\0"].concat();
                for number in [rank, LEASE_S as u32, len as u32] {
                    put.extend_from_slice(&number.to_le_bytes());
                }
                put.extend_from_slice(body);
                self.send(&put)?;
                match self.word()?.as_slice() {
                    b"ADDED" => self.exact(8).map(|_| true),
                    b"ERROR" => self.word().map(|_| false),
                    other => Err(wrong(other)),
                }
            }
            PINPRIQ => {
                // The key is the body's own head, so groups are of one.
                let key = &body[..17];
                let mut put = vec![0x70];
                put.extend_from_slice(&(queue.len() as u16).to_be_bytes());
                put.extend_from_slice(&[0, 0, 1 + (rank % 200) as u8]);
                put.extend_from_slice(&(key.len() as u16).to_be_bytes());
                put.extend_from_slice(&(len as u16).to_be_bytes());
                put.extend_from_slice(key);
                put.extend_from_slice(body);
                put.extend_from_slice(queue.as_bytes());
                // A refused push closes; this is answered when it is stored.
                put.extend_from_slice(&[0x50, 0, 0]);
                self.send(&put)?;
                match self.exact(2)?.as_slice() {
                    [0, 0] => Ok(true),
                    other => Err(wrong(other)),
                }
            }
            CONTROL => {
                let mut command = self.command(&["put", queue]);
                let mut child = command
                    .stdin(Stdio::piped())
                    .stdout(Stdio::null())
                    .spawn()?;
                if let Some(mut input) = child.stdin.take() {
                    // It reads all, or its exit status tells.
                    input.write_all(body).ok();
                }
                match child.wait()?.success() {
                    true => Ok(true),
                    false => Err(io::Error::other("quintet put")),
                }
            }
            _ => {
                let text = String::from_utf8_lossy(&body[..17]).into_owned();
                let body = format!("{{\"param1\": \"{text}\"}}");
                let reply = self.ask(&format!("POST /q/{queue}/new_message"), &body)?;
                match reply {
                    text if text.contains("[\"ok\",") => Ok(true),
                    text if text.contains("[\"fail\",") => Ok(false),
                    other => Err(wrong(other.as_bytes())),
                }
            }
        }
    }

    /// A page by HTTP on this connection, which ends with it.
    pub(crate) fn ask(&mut self, what: &str, body: &str) -> io::Result<String> {
        let request = format!(
            "{what} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.send(request.as_bytes())?;
        let mut reply = Vec::new();
        self.stream()?.read_to_end(&mut reply)?;
        self.stream = None;
        Ok(String::from_utf8_lossy(&reply).into_owned())
    }

    fn verdict(&mut self, yes: &[u8], no: &[&[u8]]) -> io::Result<bool> {
        let line = self.line()?;
        if line.starts_with(yes) {
            return Ok(true);
        }
        match no.iter().any(|no| line.starts_with(no)) {
            true => Ok(false),
            false => Err(wrong(&line)),
        }
    }

    /// Takes the next message; `removes`, where the protocol has the choice.
    pub(crate) fn take(&mut self, queue: &str, removes: bool) -> io::Result<Option<Taken>> {
        self.empty = false;
        let plain = |body| Some(Taken { body, lease: 0 });
        match self.voice {
            MEMCACHE => {
                let open = if removes { "" } else { "/open" };
                self.send(format!("get {queue}{open}\r\n").as_bytes())?;
                let line = self.line()?;
                let text = String::from_utf8_lossy(&line).into_owned();
                if text == "END" {
                    self.empty = true;
                    return Ok(None);
                }
                match text
                    .strip_prefix("VALUE ")
                    .and_then(|t| t.split(' ').nth(2))
                {
                    Some(len) => self.body(len, b"\r\nEND\r\n").map(plain),
                    None => refused(&line, b"SERVER_ERROR"),
                }
            }
            LINEUP => {
                self.send(b"POP\r\n")?;
                let line = self.line()?;
                let text = String::from_utf8_lossy(&line).into_owned();
                match text.strip_prefix('$') {
                    Some(len) => self.body(len, b"\r\n").map(plain),
                    None => refused(&line, b"-"),
                }
            }
            BEANSTALK => {
                self.watch_tube(queue)?;
                self.send(b"reserve-with-timeout 0\r\n")?;
                let line = self.line()?;
                let text = String::from_utf8_lossy(&line).into_owned();
                let Some(rest) = text.strip_prefix("RESERVED ") else {
                    self.empty = text == "TIMED_OUT";
                    return match text.as_str() {
                        "DEADLINE_SOON" => Ok(None),
                        "TIMED_OUT" | "OUT_OF_MEMORY" | "INTERNAL_ERROR" => Ok(None),
                        _ => Err(wrong(&line)),
                    };
                };
                let (id, len) = rest.split_once(' ').ok_or_else(|| wrong(&line))?;
                let lease = id.parse().map_err(|_| wrong(&line))?;
                let body = self.body(len, b"\r\n")?;
                Ok(Some(Taken { body, lease }))
            }
            JOBQUEUE => {
                let mut take = [b"RESERVE\0", queue.as_bytes(), b"\0"].concat();
                take.extend_from_slice(&1_u32.to_le_bytes());
                self.send(&take)?;
                match self.word()?.as_slice() {
                    b"TIMEOUT" => {
                        self.empty = true;
                        Ok(None)
                    }
                    b"ERROR" => self.word().map(|_| None),
                    b"RESERVED" => {
                        let id = self.exact(8)?;
                        self.exact(8)?;
                        self.word()?;
                        let len = self.exact(4)?;
                        let id = id.try_into().map_err(|_| wrong(b"id"))?;
                        let len = len.try_into().map_err(|_| wrong(b"length"))?;
                        let body = self.exact(u32::from_le_bytes(len) as usize)?;
                        let lease = u64::from_le_bytes(id);
                        Ok(Some(Taken { body, lease }))
                    }
                    other => Err(wrong(other)),
                }
            }
            PINPRIQ => {
                let mut take = vec![0x50];
                take.extend_from_slice(&(queue.len() as u16).to_be_bytes());
                take.extend_from_slice(queue.as_bytes());
                self.send(&take)?;
                self.group()
            }
            CONTROL => {
                let output = self.command(&["take", queue]).output()?;
                match output.status.code() {
                    Some(0) => Ok(plain(output.stdout)),
                    Some(4) => Ok(None),
                    _ => Err(io::Error::other("quintet take")),
                }
            }
            _ => Ok(None),
        }
    }

    /// Whether the last take was answered with nothing, and not refused.
    pub(crate) fn told_empty(&self) -> bool {
        self.empty
    }

    /// Finishes what was taken under a lease; false: it was no longer ours.
    pub(crate) fn finish(&mut self, queue: &str, taken: &Taken) -> io::Result<bool> {
        match self.voice {
            MEMCACHE => {
                self.send(format!("get {queue}/close\r\n").as_bytes())?;
                self.verdict(b"END", &[b"SERVER_ERROR"])
            }
            BEANSTALK => {
                self.send(format!("delete {}\r\n", taken.lease).as_bytes())?;
                self.verdict(
                    b"DELETED",
                    &[b"NOT_FOUND", b"OUT_OF_MEMORY", b"INTERNAL_ERROR"],
                )
            }
            JOBQUEUE => {
                self.send(&[b"DELETE\0".as_slice(), &taken.lease.to_le_bytes()].concat())?;
                match self.word()?.as_slice() {
                    b"OK" => Ok(true),
                    b"ERROR" => self.word().map(|_| false),
                    other => Err(wrong(other)),
                }
            }
            _ => Ok(false),
        }
    }

    /// Sets aside what was taken under a lease; false: it was no longer ours.
    pub(crate) fn bury(&mut self, taken: &Taken) -> io::Result<bool> {
        self.send(format!("bury {} 5\r\n", taken.lease).as_bytes())?;
        self.verdict(
            b"BURIED",
            &[b"NOT_FOUND", b"OUT_OF_MEMORY", b"INTERNAL_ERROR"],
        )
    }

    /// Back to ready; false: it was not buried.
    pub(crate) fn kick(&mut self, taken: &Taken) -> io::Result<bool> {
        self.send(format!("kick-job {}\r\n", taken.lease).as_bytes())?;
        self.verdict(
            b"KICKED",
            &[b"NOT_FOUND", b"OUT_OF_MEMORY", b"INTERNAL_ERROR"],
        )
    }

    /// All that is buried or delayed in `queue`.
    pub(crate) fn kick_all(&mut self, queue: &str) -> io::Result<()> {
        self.use_tube(queue)?;
        loop {
            self.send(b"kick 1000000\r\n")?;
            let line = self.line()?;
            match line.strip_prefix(b"KICKED ") {
                Some(b"0") => return Ok(()),
                Some(_) => {}
                None => return Err(wrong(&line)),
            }
        }
    }

    /// Its time to run begins anew.
    pub(crate) fn touch(&mut self, taken: &Taken) -> io::Result<()> {
        self.send(format!("touch {}\r\n", taken.lease).as_bytes())?;
        self.line().map(drop)
    }

    /// Subscribes to `queue` and says it is ready for one. None: nothing came
    /// in `patience`; what comes later may be lost with the connection.
    pub(crate) fn subscribe(
        &mut self,
        queue: &str,
        patience: Duration,
    ) -> io::Result<Option<Taken>> {
        let mut ask = vec![0x73];
        ask.extend_from_slice(&(queue.len() as u16).to_be_bytes());
        ask.extend_from_slice(queue.as_bytes());
        ask.push(0x41);
        self.send(&ask)?;
        let stream = self.stream()?;
        stream.get_ref().set_read_timeout(Some(patience))?;
        let began = stream.fill_buf().map(<[u8]>::is_empty);
        stream.get_ref().set_read_timeout(Some(PATIENCE))?;
        match began {
            Ok(true) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(false) => self.group(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// pinpriq's group, of one message or none.
    fn group(&mut self) -> io::Result<Option<Taken>> {
        match self.exact(2)?.as_slice() {
            [0, 0] => Ok(None),
            [0, 1] => {
                let head = self.exact(4)?;
                let key = usize::from(u16::from_be_bytes([head[0], head[1]]));
                let len = usize::from(u16::from_be_bytes([head[2], head[3]]));
                self.exact(key)?;
                let body = self.exact(len)?;
                Ok(Some(Taken { body, lease: 0 }))
            }
            other => Err(wrong(other)),
        }
    }

    /// Gives it back, after a delay where the protocol has one.
    pub(crate) fn release(&mut self, queue: &str, taken: &Taken, delay_s: u32) -> io::Result<()> {
        match self.voice {
            MEMCACHE => {
                self.send(format!("get {queue}/abort\r\n").as_bytes())?;
                self.line().map(drop)
            }
            BEANSTALK => {
                self.send(format!("release {} 7 {delay_s}\r\n", taken.lease).as_bytes())?;
                self.line().map(drop)
            }
            // Its lease ends.
            _ => Ok(()),
        }
    }

    fn use_tube(&mut self, queue: &str) -> io::Result<()> {
        if self.used != queue {
            self.send(format!("use {queue}\r\n").as_bytes())?;
            if !self.verdict(b"USING ", &[b"OUT_OF_MEMORY", b"INTERNAL_ERROR"])? {
                return Err(io::Error::other("use was refused"));
            }
            self.used = queue.into();
        }
        Ok(())
    }

    fn watch_tube(&mut self, queue: &str) -> io::Result<()> {
        if self.watched != queue {
            let old = std::mem::replace(&mut self.watched, queue.into());
            self.send(format!("watch {queue}\r\n").as_bytes())?;
            let watching = self.verdict(b"WATCHING ", &[b"OUT_OF_MEMORY", b"INTERNAL_ERROR"])?;
            self.send(format!("ignore {old}\r\n").as_bytes())?;
            let alone = self.verdict(b"WATCHING 1", &[b"NOT_IGNORED", b"WATCHING "])?;
            if !watching || !alone {
                return Err(io::Error::other("watch was refused"));
            }
        }
        Ok(())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.addresses.binary);
        command.args(args).arg("--data").arg(&self.addresses.data);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// A head, a body and CR LF.
fn framed(head: &str, body: &[u8]) -> Vec<u8> {
    [head.as_bytes(), body, b"\r\n"].concat()
}

fn refused(line: &[u8], start: &[u8]) -> io::Result<Option<Taken>> {
    match line.starts_with(start) {
        true => Ok(None),
        false => Err(wrong(line)),
    }
}
