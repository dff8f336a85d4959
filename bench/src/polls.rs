//! Long polls that wait by the thousand: what they take of the server's memory, and how soon a
//! send wakes one.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use mio::{Events, Poll, Token};
use quintet_tls::Scratch;
use serde::Serialize;
use serde_json::{Value, json};

use crate::load::{CONNECTIONS_MAX, Load, body, raise_file_limit, within};
use crate::process::Usage;
use crate::protocol::sqs::{self, Got};
use crate::report::{Latency, Live, Recorder};
use crate::stream::Stream;
use crate::worker::SILENCE;

/// Sends at most, and unless told otherwise.
const SENDS_MAX: usize = 1_000_000;
const SENDS: u64 = 100;
/// How long all polls rest before their memory is looked at, and before the first send.
const REST: Duration = Duration::from_secs(1);
/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// So many polls at once over so many queues, and messages that are sent one at a time.
#[derive(Clone, Debug)]
pub(crate) struct Polls {
    /// The server, the start of the queues' names, and the size of messages, of which none is sent
    /// after its time.
    pub(crate) load: Load,
    /// Polls, each on a connection of its own, 1 to 100,000.
    pub(crate) polls: usize,
    /// Queues they share, in turn; 1 to as many as there are polls.
    pub(crate) queues: usize,
    /// Messages to send, at most 1,000,000.
    sends: u64,
    /// The server's process, to look at its memory.
    pid: Option<u32>,
}

/// Result of polls.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct PollsReport {
    /// Messages sent; each woke a poll.
    pub(crate) sends: u64,
    /// Polls that ended without one and were asked again.
    pub(crate) renewed: u64,
    /// From the first connection to the last poll's request, seconds.
    pub(crate) opened_s: f64,
    /// Bytes resident in the server's memory before the first connection.
    pub(crate) resident_before: Option<u64>,
    /// The same with all polls waiting.
    pub(crate) resident: Option<u64>,
    /// From the sending of a message until a poll has it whole.
    pub(crate) wake: Latency,
}

/// A connection and what came on it.
struct Talk {
    stream: Stream,
    input: Vec<u8>,
    queue: usize,
    /// A deletion is under way, and no poll.
    deletes: bool,
}

impl Talk {
    /// Small requests fit into a socket's buffer.
    fn say(&mut self, request: &[u8], records: &mut Scratch) -> Result<()> {
        let mut rest = request;
        let began = Instant::now();
        while !rest.is_empty() {
            match self.stream.write(rest, records) {
                Ok(count) => rest = &rest[count..],
                Err(error) if waits(error.kind()) => {
                    ensure!(began.elapsed() < SILENCE, "the server reads nothing");
                }
                Err(error) => return Err(error).context("cannot send"),
            }
        }
        Ok(())
    }

    /// Takes in what has come.
    fn hear(&mut self, records: &mut Scratch) -> Result<()> {
        let mut some = [0; READ_BYTES];
        loop {
            match self.stream.read(&mut some, records) {
                Ok((0, _)) => bail!("the server closed a connection"),
                Ok((count, more)) => {
                    self.input.extend_from_slice(&some[..count]);
                    if !more {
                        return Ok(());
                    }
                }
                Err(error) if waits(error.kind()) => return Ok(()),
                Err(error) => return Err(error).context("cannot read"),
            }
        }
    }

    /// The next whole reply, if it is there.
    fn reply(&mut self) -> Result<Option<Got>> {
        let Some((len, got)) = sqs::received(&self.input)? else {
            return Ok(None);
        };
        self.input.drain(..len);
        Ok(Some(got))
    }
}

fn waits(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// All polls under way.
struct Line {
    poll: Poll,
    talks: Vec<Talk>,
    records: Scratch,
    names: Vec<String>,
    renewed: u64,
}

impl Polls {
    /// Those of a load's server.
    ///
    /// # Errors
    /// The protocol has none.
    pub(crate) fn new(load: Load, polls: usize, pid: Option<u32>) -> Result<Self> {
        let protocol = load.protocol.name;
        ensure!(
            protocol == "sqs",
            "--polls needs --protocol sqs, not {protocol}"
        );
        Ok(Self {
            polls,
            queues: load.queues.unwrap_or(polls),
            sends: load.count.unwrap_or(SENDS),
            pid,
            load,
        })
    }

    /// For a result file; without the address, which says nothing.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "polls": self.polls,
            "queues": self.queues,
            "size": self.load.size,
            "sends_max": self.sends,
            "seconds_max": self.load.time.as_secs_f64(),
            "tls": self.load.tls.is_some(),
        })
    }

    /// Runs it; `observe` is shown how it goes.
    ///
    /// # Errors
    /// It is not a sensible one, the server cannot be reached, breaks a connection, answers
    /// wrongly or falls silent. A server on another machine is refused unless `remote` is set,
    /// before any byte is sent.
    pub(crate) fn run(&self, observe: &mut dyn FnMut(Live)) -> Result<PollsReport> {
        self.check()?;
        raise_file_limit(self.polls + 1);
        let body = String::from_utf8(body(self.load.size))?;
        let names: Vec<String> = (0..self.queues)
            .map(|number| format!("{}{number:04}", self.load.queue))
            .collect();
        let mut line = Line {
            poll: Poll::new().context("cannot poll")?,
            talks: Vec::with_capacity(self.polls + 1),
            records: Scratch::new(READ_BYTES),
            names,
            renewed: 0,
        };
        let mut maker = self.connect(0)?;
        for name in &line.names {
            maker.say(&sqs::create(name), &mut line.records)?;
            await_reply(&mut maker, &mut line.records)?;
        }
        drop(maker);
        let memory = || self.pid.map(Usage::of).transpose();
        let resident_before = memory()?.map(|usage| usage.resident);
        let began = Instant::now();
        for number in 0..self.polls {
            let mut talk = self.connect(number % self.queues)?;
            talk.say(&sqs::poll(&line.names[talk.queue]), &mut line.records)?;
            line.watch(talk)?;
        }
        let opened_s = began.elapsed().as_secs_f64();
        line.rest(REST)?;
        let resident = memory()?.map(|usage| usage.resident);
        // A connection that was silent for so long might have had to make way.
        let sender = line.talks.len();
        line.watch(self.connect(0)?)?;
        let mut wakes = Recorder::default();
        let start = Instant::now();
        let mut observed = start;
        let mut sends = 0;
        while sends < self.sends && start.elapsed() < self.load.time {
            // Far from the one before, and of all queues in the end.
            let queue = (sends as usize * STRIDE) % self.queues;
            wakes.record(line.wake(sender, queue, &body)?);
            sends += 1;
            if observed.elapsed() >= Duration::from_millis(250) {
                observed = Instant::now();
                observe(Live {
                    seconds: start.elapsed().as_secs_f64(),
                    requests: sends,
                    rate: sends as f64 / start.elapsed().as_secs_f64(),
                    p99_us: wakes.latency().p99_us,
                });
            }
        }
        ensure!(sends > 0, "no message was sent");
        Ok(PollsReport {
            sends,
            renewed: line.renewed,
            opened_s,
            resident_before,
            resident,
            wake: wakes.latency(),
        })
    }

    fn check(&self) -> Result<()> {
        self.load.check_target()?;
        within("polls", self.polls, 1..=CONNECTIONS_MAX)?;
        within("queues", self.queues, 1..=self.polls)?;
        let sends = usize::try_from(self.sends).unwrap_or(usize::MAX);
        within("messages", sends, 1..=SENDS_MAX)?;
        within("size", self.load.size, 1..=sqs::BODY_MAX)?;
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
        ensure!(
            self.load.queue.len() <= 60 && self.load.queue.bytes().all(plain),
            "a queue is named with letters, digits, - and _, 60 at most"
        );
        Ok(())
    }

    fn connect(&self, queue: usize) -> Result<Talk> {
        Ok(Talk {
            stream: self.load.connect()?,
            input: Vec::new(),
            queue,
            deletes: false,
        })
    }
}

/// A prime, so that queues come far apart and all in the end.
const STRIDE: usize = 7919;

/// The reply on a connection that nobody watches yet.
fn await_reply(talk: &mut Talk, records: &mut Scratch) -> Result<Got> {
    let began = Instant::now();
    loop {
        talk.hear(records)?;
        if let Some(got) = talk.reply()? {
            return Ok(got);
        }
        ensure!(began.elapsed() < SILENCE, "the server is silent");
        std::thread::sleep(Duration::from_micros(50));
    }
}

impl Line {
    fn watch(&mut self, mut talk: Talk) -> Result<()> {
        let token = Token(self.talks.len());
        talk.stream
            .register(self.poll.registry(), token)
            .context("cannot watch a connection")?;
        self.talks.push(talk);
        Ok(())
    }

    /// Hears replies on all connections, for `time` at most. Polls that ended with nothing, and
    /// those whose message is deleted, are asked again.
    fn hear(&mut self, events: &mut Events, time: Duration) -> Result<Vec<(usize, Got)>> {
        match self.poll.poll(events, Some(time)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        let woken: BTreeSet<usize> = events.iter().map(|event| event.token().0).collect();
        let mut all = Vec::new();
        for at in woken {
            let talk = &mut self.talks[at];
            talk.hear(&mut self.records)?;
            while let Some(got) = talk.reply()? {
                if got != Got::Nothing {
                    all.push((at, got));
                    continue;
                }
                match std::mem::take(&mut talk.deletes) {
                    true => all.push((at, Got::Nothing)),
                    false => self.renewed += 1,
                }
                talk.say(&sqs::poll(&self.names[talk.queue]), &mut self.records)?;
            }
        }
        Ok(all)
    }

    /// Nothing is asked for so long.
    fn rest(&mut self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        let mut events = Events::with_capacity(1024);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            if let Some((_, got)) = self.hear(&mut events, left)?.pop() {
                bail!("nothing was sent, and {got:?} came: is the queue in use?");
            }
        }
    }

    /// Sends to a queue; answers after how many nanoseconds a poll had the message. That one is
    /// deleted, and its poll asked again.
    fn wake(&mut self, sender: usize, queue: usize, body: &str) -> Result<u64> {
        let request = sqs::send(&self.names[queue], body);
        let mut events = Events::with_capacity(1024);
        let sent = Instant::now();
        self.talks[sender].say(&request, &mut self.records)?;
        let (mut woke, mut done, mut deleted) = (None, false, false);
        while !(done && deleted) {
            ensure!(
                sent.elapsed() < SILENCE,
                "{} after a send: no poll has its message",
                crate::units::micros(sent.elapsed().as_micros() as f64)
            );
            for (at, got) in self.hear(&mut events, SILENCE)? {
                match got {
                    Got::Done => done = true,
                    Got::Nothing => deleted = true,
                    Got::Message { handle } => {
                        woke = Some(sent.elapsed());
                        let talk = &mut self.talks[at];
                        talk.deletes = true;
                        let delete = sqs::delete(&self.names[talk.queue], &handle);
                        talk.say(&delete, &mut self.records)?;
                    }
                }
            }
        }
        let woke = woke.context("deleted what never came")?;
        Ok(u64::try_from(woke.as_nanos()).unwrap_or(u64::MAX))
    }
}
