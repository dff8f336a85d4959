//! One client of every protocol, one request at a time.
//!
//! An error is no reply, half of one, or one of another kind. A reply that refuses is no error.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::client::Client;
use crate::connection::{Connection, wrong};
use crate::http;
use crate::jobs::{JobClient, Took};
use crate::kind::{Protocol, TakenMessage};

/// Where a server listens, and what its command line needs.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// By protocol, in the order of [`Protocol::ALL`]; empty if the server has no such listener.
    pub of: [String; Protocol::ALL.len()],
    pub binary: PathBuf,
    pub data: PathBuf,
}

impl Addresses {
    /// A server without listeners.
    pub fn new(binary: &Path, data: &Path) -> Self {
        Self {
            of: Default::default(),
            binary: binary.to_owned(),
            data: data.to_owned(),
        }
    }

    /// Sets the address of a listener.
    pub fn set(&mut self, protocol: Protocol, address: &str) {
        address.clone_into(&mut self.of[protocol as usize]);
    }
}

/// Options of a put, as far as the protocol has them.
#[derive(Clone, Copy, Default)]
pub struct Put<'a> {
    /// None: the one a put without it has; of pinpriq, which always says one, 200.
    pub priority: Option<u32>,
    /// Only beanstalk.
    pub delay_s: u32,
    /// Time to run; jobqueue and beanstalk.
    pub lease_s: u32,
    /// Seconds of memcache, milliseconds of pinpriq.
    pub ttl: u32,
    /// Only pinpriq, which groups messages by it.
    pub key: &'a [u8],
}

/// Leases of SQS and the API, seconds.
const JOB_LEASE_S: u32 = 2;
/// The replies of beanstalk to a request that is refused.
const REFUSED: [&str; 3] = ["OUT_OF_MEMORY", "INTERNAL_ERROR", "DRAINING"];
const ABSENT: [&str; 3] = ["NOT_FOUND", "OUT_OF_MEMORY", "INTERNAL_ERROR"];

/// A client that puts, takes and finishes by one protocol.
pub struct QueueClient {
    protocol: Protocol,
    addresses: Addresses,
    patience: Duration,
    /// None on the command line.
    client: Option<Client>,
    /// In its place, of SQS, Faktory and the API.
    jobs: Option<JobClient>,
    /// A command that takes.
    child: Option<Child>,
    used: String,
    watched: String,
    reported_empty: bool,
}

impl QueueClient {
    /// # Errors
    /// Nobody listens.
    pub fn open(addresses: &Addresses, protocol: Protocol, patience: Duration) -> io::Result<Self> {
        let listener = match protocol {
            Protocol::Api => Protocol::Http,
            other => other,
        };
        let jobs = match protocol {
            Protocol::Sqs | Protocol::Faktory | Protocol::Api => {
                let address = &addresses.of[listener as usize];
                Some(JobClient::open(protocol, address, patience)?)
            }
            _ => None,
        };
        let client = match protocol {
            Protocol::CommandLine | Protocol::Sqs | Protocol::Faktory | Protocol::Api => None,
            _ => Some(Connection::tcp(&addresses.of[protocol as usize], patience)?.into()),
        };
        Ok(Self {
            protocol,
            addresses: addresses.clone(),
            patience,
            client,
            jobs,
            child: None,
            used: "default".into(),
            watched: "default".into(),
            reported_empty: false,
        })
    }

    /// The one that it was opened with.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Its connection, for requests of a test's own.
    ///
    /// # Panics
    /// On the command line.
    pub fn client(&mut self) -> &mut Client {
        self.client.as_mut().expect("a connection")
    }

    fn connection(&mut self) -> io::Result<&mut Connection> {
        let client = self.client.as_deref_mut();
        client.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// The only queue that this client puts into and takes from; beanstalk gets its commands for
    /// this now.
    ///
    /// # Errors
    /// It is refused.
    pub fn choose(&mut self, queue: &str) -> io::Result<()> {
        match self.protocol {
            Protocol::Beanstalk => self.use_tube(queue).and_then(|()| self.watch_tube(queue)),
            _ => Ok(()),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.connection()?.send(bytes)
    }

    fn exact<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let bytes = self.connection()?.exact(N)?;
        Ok(bytes.try_into().expect("as many"))
    }

    fn number32(&mut self) -> io::Result<u32> {
        self.exact().map(u32::from_le_bytes)
    }

    /// A word of jobqueue.
    fn word(&mut self) -> io::Result<String> {
        let word = self.connection()?.before(b"\0")?;
        Ok(crate::text(&word))
    }

    /// Sends a request whose reply is a line that begins with `yes` or one of `no`; answers what
    /// follows `yes`.
    fn ask(&mut self, request: &[u8], yes: &str, no: &[&str]) -> io::Result<Option<String>> {
        self.send(request)?;
        let line = self.connection()?.line()?;
        match line.strip_prefix(yes) {
            Some(rest) if rest.is_empty() || yes.ends_with(' ') => Ok(Some(rest.to_owned())),
            _ if no.iter().any(|no| line.starts_with(no)) => Ok(None),
            _ => Err(wrong(&line)),
        }
    }

    /// Puts a message, by HTTP for RQ's script; answers its id, which is 0 where the protocol tells
    /// none. None: refused.
    ///
    /// # Errors
    /// No reply that is one.
    pub fn put(&mut self, queue: &str, body: &[u8], put: Put<'_>) -> io::Result<Option<u64>> {
        let len = body.len();
        let Put {
            delay_s,
            lease_s,
            ttl,
            ..
        } = put;
        if let Some(jobs) = &mut self.jobs {
            let stored = jobs.put(queue, &crate::text(body), put.priority)?;
            return Ok(stored.then_some(0));
        }
        let priority = put.priority.unwrap_or(1024);
        let framed = |head: String| [head.as_bytes(), body, b"\r\n"].concat();
        let id = match self.protocol {
            Protocol::Memcache => {
                let request = framed(format!("set {queue} 0 {ttl} {len}\r\n"));
                self.ask(&request, "STORED", &["NOT_STORED", "SERVER_ERROR"])?
            }
            Protocol::Lineup => {
                let request = framed(format!("PUSH {priority} {len}\r\n"));
                self.ask(&request, "+OK", &["-"])?
            }
            Protocol::Beanstalk => {
                self.use_tube(queue)?;
                let request = framed(format!("put {priority} {delay_s} {lease_s} {len}\r\n"));
                self.ask(&request, "INSERTED ", &REFUSED)?
            }
            Protocol::Jobqueue => {
                let mut request = [b"ADD\0", queue.as_bytes(), b"\0"].concat();
                for number in [priority, lease_s, len as u32] {
                    request.extend_from_slice(&number.to_le_bytes());
                }
                self.send(&[&request, body].concat())?;
                match self.word()?.as_str() {
                    "ADDED" => return self.exact().map(u64::from_le_bytes).map(Some),
                    "ERROR" => self.word().map(|_| None)?,
                    other => return Err(wrong(other)),
                }
            }
            Protocol::Pinpriq => {
                let priority = put.priority.unwrap_or(200) as u8;
                let mut request = named(0x70, queue);
                let name = request.split_off(3);
                request.extend_from_slice(&(ttl as u16).to_be_bytes());
                request.push(priority);
                for len in [put.key.len(), len] {
                    request.extend_from_slice(&(len as u16).to_be_bytes());
                }
                // A push has no reply. That of a pop comes when the push is decided.
                let all = [&request, put.key, body, &name, &named(0x50, "")].concat();
                self.send(&all)?;
                match self.group()?.as_slice() {
                    [] => Some(String::new()),
                    _ => return Err(wrong("a group")),
                }
            }
            Protocol::CommandLine => {
                let priority = put.priority.map(|priority| priority.to_string());
                let mut args = vec!["put", queue];
                args.extend(
                    priority
                        .iter()
                        .flat_map(|priority| ["--priority", priority]),
                );
                let mut child = self.command(&args).stdin(Stdio::piped()).spawn()?;
                if let Some(mut input) = child.stdin.take() {
                    // It reads all, or its exit status tells.
                    input.write_all(body).ok();
                }
                let output = child.wait_with_output()?;
                match output.status.success() {
                    true => Some(String::new()),
                    false => return Err(failed(&output)),
                }
            }
            Protocol::Http => {
                let body = serde_json::json!({ "param1": crate::text(body) }).to_string();
                let reply = self.page(&format!("POST /q/{queue}/new_message"), &body)?;
                match reply {
                    text if text.contains("[\"ok\",") => Some(String::new()),
                    text if text.contains("[\"fail\",") => None,
                    other => return Err(wrong(&other)),
                }
            }
            Protocol::Sqs | Protocol::Faktory | Protocol::Api => None,
        };
        match id {
            Some(id) if id.is_empty() => Ok(Some(0)),
            Some(id) => id.parse().map(Some).map_err(|_| wrong(&id)),
            None => Ok(None),
        }
    }

    /// A document by HTTP on this connection, which ends with it.
    ///
    /// # Errors
    /// No reply, or half a one.
    pub fn page(&mut self, what: &str, body: &str) -> io::Result<String> {
        let client = self.client.take().ok_or(io::ErrorKind::NotConnected)?;
        let reply = http::ask(client.into(), what, http::JSON, body.as_bytes())?;
        Ok(reply.body)
    }

    /// Takes the next message; `removes`, where the protocol has the choice. Jobqueue waits for a
    /// second.
    ///
    /// # Errors
    /// No reply that is one.
    pub fn take(&mut self, queue: &str, removes: bool) -> io::Result<Option<TakenMessage>> {
        if let Some(jobs) = &mut self.jobs {
            self.reported_empty = false;
            return match jobs.take(queue, JOB_LEASE_S)? {
                Took::Message(taken) => Ok(Some(taken)),
                Took::Refused => Ok(None),
                Took::Empty => {
                    self.reported_empty = true;
                    Ok(None)
                }
            };
        }
        let request = match self.protocol {
            Protocol::Memcache if removes => format!("get {queue}\r\n").into(),
            Protocol::Memcache => format!("get {queue}/open\r\n").into(),
            Protocol::Lineup => b"POP\r\n".to_vec(),
            Protocol::Beanstalk => {
                self.watch_tube(queue)?;
                b"reserve-with-timeout 0\r\n".to_vec()
            }
            Protocol::Jobqueue => reserve(queue, 1),
            Protocol::Pinpriq => named(0x50, queue),
            Protocol::CommandLine => {
                self.child = Some(self.command(&["take", queue]).spawn()?);
                return self.taken();
            }
            Protocol::Http | Protocol::Sqs | Protocol::Faktory | Protocol::Api => return Ok(None),
        };
        self.send(&request)?;
        self.taken()
    }

    /// Asks for the next message and waits for it, two minutes at least. [`QueueClient::taken`]
    /// reads the reply.
    ///
    /// # Errors
    /// The connection is closed; or the protocol knows no waiting.
    pub fn wait(&mut self, queue: &str) -> io::Result<()> {
        let request = match self.protocol {
            Protocol::Memcache => format!("get {queue}/t=120000\r\n").into(),
            Protocol::Beanstalk => {
                self.watch_tube(queue)?;
                b"reserve\r\n".to_vec()
            }
            Protocol::Jobqueue => reserve(queue, 0),
            // Ready for one message.
            Protocol::Pinpriq => [named(0x73, queue), vec![0x41]].concat(),
            Protocol::CommandLine => {
                let child = self.command(&["take", queue, "--wait", "2m"]).spawn();
                self.child = Some(child?);
                return Ok(());
            }
            Protocol::Lineup
            | Protocol::Http
            | Protocol::Sqs
            | Protocol::Faktory
            | Protocol::Api => return Err(io::ErrorKind::Unsupported.into()),
        };
        self.send(&request)
    }

    /// The reply to a request for a message.
    ///
    /// # Errors
    /// No reply that is one.
    pub fn taken(&mut self) -> io::Result<Option<TakenMessage>> {
        self.reported_empty = false;
        let plain = |body| TakenMessage {
            body,
            lease: 0,
            ttp: 0,
        };
        let refused = |line: &str, start: &str| match line.starts_with(start) {
            true => Ok(None),
            false => Err(wrong(line)),
        };
        match self.protocol {
            Protocol::Memcache => {
                let connection = self.connection()?;
                let line = connection.line()?;
                if line.starts_with("VALUE ") {
                    let len = line.rsplit(' ').next().unwrap_or_default();
                    return Ok(Some(plain(connection.body(len, b"\r\nEND\r\n")?)));
                }
                self.reported_empty = line == "END";
                match self.reported_empty {
                    true => Ok(None),
                    false => refused(&line, "SERVER_ERROR"),
                }
            }
            Protocol::Lineup => {
                let line = self.connection()?.line()?;
                match line.strip_prefix('$') {
                    Some(len) => self.connection()?.body(len, b"\r\n").map(plain).map(Some),
                    None => refused(&line, "-"),
                }
            }
            Protocol::Beanstalk => {
                let line = self.connection()?.line()?;
                let Some(numbers) = line.strip_prefix("RESERVED ") else {
                    self.reported_empty = line == "TIMED_OUT";
                    return match line.as_str() {
                        "DEADLINE_SOON" | "TIMED_OUT" | "OUT_OF_MEMORY" | "INTERNAL_ERROR" => {
                            Ok(None)
                        }
                        _ => Err(wrong(&line)),
                    };
                };
                let (id, len) = numbers.split_once(' ').ok_or_else(|| wrong(&line))?;
                Ok(Some(TakenMessage {
                    lease: id.parse().map_err(|_| wrong(&line))?,
                    ..plain(self.connection()?.body(len, b"\r\n")?)
                }))
            }
            Protocol::Jobqueue => match self.word()?.as_str() {
                "TIMEOUT" => {
                    self.reported_empty = true;
                    Ok(None)
                }
                "ERROR" => self.word().map(|_| None),
                "RESERVED" => {
                    let lease = self.exact().map(u64::from_le_bytes)?;
                    let (_priority, ttp) = (self.number32()?, self.number32()?);
                    let reserved = self.word()?;
                    if reserved != "reserved" {
                        return Err(wrong(&reserved));
                    }
                    let len = self.number32()? as usize;
                    let body = self.connection()?.exact(len)?;
                    Ok(Some(TakenMessage { body, lease, ttp }))
                }
                other => Err(wrong(other)),
            },
            Protocol::Pinpriq => {
                let mut group = self.group()?;
                match group.len() {
                    0 | 1 => Ok(group.pop().map(|(_, body)| plain(body))),
                    _ => Err(wrong("a group of several")),
                }
            }
            Protocol::CommandLine => {
                let child = self.child.take().ok_or(io::ErrorKind::NotConnected)?;
                let output = child.wait_with_output()?;
                match output.status.code() {
                    Some(0) => Ok(Some(plain(output.stdout))),
                    Some(4) => Ok(None),
                    _ => Err(failed(&output)),
                }
            }
            Protocol::Http | Protocol::Sqs | Protocol::Faktory | Protocol::Api => Ok(None),
        }
    }

    /// Pinpriq: keys and bodies of a group.
    ///
    /// # Errors
    /// It does not come.
    pub fn group(&mut self) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let count: [u8; 2] = self.exact()?;
        let mut group = Vec::new();
        for _ in 0..u16::from_be_bytes(count) {
            let [key, len] = [self.exact()?, self.exact()?].map(u16::from_be_bytes);
            let connection = self.connection()?;
            let key = connection.exact(key.into())?;
            group.push((key, connection.exact(len.into())?));
        }
        Ok(group)
    }

    /// Waits for a message no longer than `patience`; what comes later may be lost with the
    /// connection.
    ///
    /// # Errors
    /// No reply that is one.
    pub fn subscribe(
        &mut self,
        queue: &str,
        patience: Duration,
    ) -> io::Result<Option<TakenMessage>> {
        self.wait(queue)?;
        let usual = self.patience;
        let connection = self.connection()?;
        if connection.unread() == 0 {
            connection.set_patience(patience)?;
            let began = connection.more();
            connection.set_patience(usual)?;
            match began {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        self.taken()
    }

    /// Whether the reply to the last take said that there is nothing, and was no error; known of
    /// memcache, beanstalk, jobqueue, SQS, Faktory and the API.
    pub fn reported_empty(&self) -> bool {
        self.reported_empty
    }

    /// Finishes a message that was taken under a lease; false: it was no longer ours.
    ///
    /// # Errors
    /// No reply that is one.
    pub fn finish(&mut self, queue: &str, taken: &TakenMessage) -> io::Result<bool> {
        if let Some(jobs) = &mut self.jobs {
            return jobs.finish(queue);
        }
        match self.protocol {
            Protocol::Memcache => {
                let request = format!("get {queue}/close\r\n");
                let done = self.ask(request.as_bytes(), "END", &["SERVER_ERROR"])?;
                Ok(done.is_some())
            }
            Protocol::Beanstalk => self.of_job("delete", taken, "", "DELETED"),
            Protocol::Jobqueue => {
                self.send(&[&b"DELETE\0"[..], &taken.lease.to_le_bytes()].concat())?;
                match self.word()?.as_str() {
                    "OK" => Ok(true),
                    "ERROR" => self.word().map(|_| false),
                    other => Err(wrong(other)),
                }
            }
            _ => Ok(false),
        }
    }

    fn of_job(
        &mut self,
        verb: &str,
        taken: &TakenMessage,
        more: &str,
        done: &str,
    ) -> io::Result<bool> {
        let request = format!("{verb} {}{more}\r\n", taken.lease);
        Ok(self.ask(request.as_bytes(), done, &ABSENT)?.is_some())
    }

    /// Beanstalk: buries a message that was taken; false: it was no longer ours.
    ///
    /// # Errors
    /// No reply that is one.
    pub fn bury(&mut self, taken: &TakenMessage) -> io::Result<bool> {
        self.of_job("bury", taken, " 5", "BURIED")
    }

    /// Beanstalk: back to ready; false: it was not buried.
    ///
    /// # Errors
    /// No reply that is one.
    pub fn kick(&mut self, taken: &TakenMessage) -> io::Result<bool> {
        self.of_job("kick-job", taken, "", "KICKED")
    }

    /// Beanstalk: kicks all that is buried or delayed in `queue`.
    ///
    /// # Errors
    /// No reply that is one.
    pub fn kick_all(&mut self, queue: &str) -> io::Result<()> {
        self.use_tube(queue)?;
        loop {
            let kicked = self.ask(b"kick 1000000\r\n", "KICKED ", &[])?;
            if kicked.as_deref() == Some("0") {
                return Ok(());
            }
        }
    }

    /// Beanstalk: its time to run begins anew.
    ///
    /// # Errors
    /// No reply that is one.
    pub fn touch(&mut self, taken: &TakenMessage) -> io::Result<()> {
        self.send(format!("touch {}\r\n", taken.lease).as_bytes())?;
        self.connection()?.line().map(drop)
    }

    /// Gives a message back, after a delay where the protocol has one. Jobqueue lets the lease end.
    ///
    /// # Errors
    /// No reply that is one.
    pub fn release(&mut self, queue: &str, taken: &TakenMessage, delay_s: u32) -> io::Result<()> {
        if let Some(jobs) = &mut self.jobs {
            return jobs.release();
        }
        let request = match self.protocol {
            Protocol::Memcache => format!("get {queue}/abort\r\n"),
            Protocol::Beanstalk => format!("release {} 7 {delay_s}\r\n", taken.lease),
            _ => return Ok(()),
        };
        self.send(request.as_bytes())?;
        self.connection()?.line().map(drop)
    }

    /// The API: gives back all of a queue that is leased.
    ///
    /// # Errors
    /// No reply that is one; another protocol.
    pub fn release_all(&mut self, queue: &str) -> io::Result<()> {
        let jobs = self.jobs.as_mut().ok_or(io::ErrorKind::Unsupported)?;
        jobs.release_all(queue)
    }

    fn use_tube(&mut self, queue: &str) -> io::Result<()> {
        if self.used != queue {
            let request = format!("use {queue}\r\n");
            self.ask(request.as_bytes(), "USING ", &REFUSED)?
                .ok_or_else(|| io::Error::other("use was refused"))?;
            self.used = queue.into();
        }
        Ok(())
    }

    fn watch_tube(&mut self, queue: &str) -> io::Result<()> {
        if self.watched != queue {
            let old = std::mem::replace(&mut self.watched, queue.into());
            let watch = format!("watch {queue}\r\n");
            let watching = self.ask(watch.as_bytes(), "WATCHING ", &REFUSED)?;
            let ignore = format!("ignore {old}\r\n");
            let alone = self.ask(
                ignore.as_bytes(),
                "WATCHING 1",
                &["NOT_IGNORED", "WATCHING "],
            )?;
            if watching.is_none() || alone.is_none() {
                return Err(io::Error::other("watch was refused"));
            }
        }
        Ok(())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.addresses.binary);
        command.args(args).arg("--data").arg(&self.addresses.data);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        command
    }
}

impl Drop for QueueClient {
    /// Hangs up, on the command line too. Errors: it has ended already.
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

fn failed(output: &Output) -> io::Error {
    io::Error::other(format!(
        "{}: {}",
        output.status,
        crate::text(&output.stderr)
    ))
}

/// Jobqueue's RESERVE; a timeout of 0 seconds is none.
pub fn reserve(queue: &str, timeout_s: u32) -> Vec<u8> {
    let timeout = &timeout_s.to_le_bytes()[..];
    [b"RESERVE\0", queue.as_bytes(), b"\0", timeout].concat()
}

/// A pinpriq request about a queue.
pub fn named(opcode: u8, queue: &str) -> Vec<u8> {
    let len = (queue.len() as u16).to_be_bytes();
    [&[opcode], &len[..], queue.as_bytes()].concat()
}
