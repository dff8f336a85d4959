//! Long polls that wait by the thousand: what they take of the server's memory, and how soon a
//! send wakes one.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use mio::{Events, Poll, Token};
use quintet_tls::Scratch;
use serde::Serialize;
use serde_json::{Value, json};

use crate::conn::Conn;
use crate::load::{CONNECTIONS_MAX, Load, body, raise_file_limit, within};
use crate::process::Usage;
use crate::protocol::{ClientRequest, Speaker, sqs};
use crate::report::{Latency, Live, Recorder};
use crate::stream::Stream;
use crate::units::{micros, nanos};
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

/// All polls under way.
struct Line {
    poll: Poll,
    conns: Vec<Conn>,
    records: Scratch,
    buffer: Vec<u8>,
    renewed: u64,
}

/// Replies that came.
#[derive(Default)]
struct Heard {
    /// When a poll had a message, before its deletion left; or it is deleted.
    message: Option<Instant>,
    deleted: bool,
    put: bool,
}

impl Polls {
    /// Those of a load's server.
    ///
    /// # Errors
    /// They are not sensible, or the protocol has none. A server on another machine is refused
    /// unless `remote` is set.
    pub(crate) fn new(load: Load, polls: usize, pid: Option<u32>) -> Result<Self> {
        let protocol = load.protocol.name;
        ensure!(
            protocol == "sqs",
            "--polls needs --protocol sqs, not {protocol}"
        );
        load.check_target()?;
        let queues = load.queues.unwrap_or(polls);
        let sends = load.count.unwrap_or(SENDS);
        within("polls", polls, 1..=CONNECTIONS_MAX)?;
        within("queues", queues, 1..=polls)?;
        let messages = usize::try_from(sends).unwrap_or(usize::MAX);
        within("messages", messages, 1..=SENDS_MAX)?;
        within("size", load.size, 1..=sqs::BODY_MAX)?;
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
        ensure!(
            load.queue.len() <= 60 && load.queue.bytes().all(plain),
            "a queue is named with letters, digits, - and _, 60 at most"
        );
        Ok(Self {
            load,
            polls,
            queues,
            sends,
            pid,
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
    /// The server cannot be reached, breaks a connection, answers wrongly or falls silent.
    pub(crate) fn run(&self, observe: &mut dyn FnMut(Live)) -> Result<PollsReport> {
        raise_file_limit(self.polls + 1);
        let body: Arc<[u8]> = body(self.load.size).into();
        let name = |number: usize| format!("{}{number:04}", self.load.queue);
        // Queues are not what polls take: they are there before.
        let mut maker = Line::new()?;
        maker.add(self.load.connect()?, sqs::maker(""), &body)?;
        for number in 0..self.queues {
            maker.conns[0].speak_as(sqs::maker(&name(number)));
            maker.put()?;
        }
        drop(maker);
        let mut line = Line::new()?;
        let memory = || self.pid.map(Usage::of).transpose();
        let resident_before = memory()?.map(|usage| usage.resident);
        let began = Instant::now();
        for number in 0..self.polls {
            let speaker = sqs::poller(&name(number % self.queues));
            line.add(self.load.connect()?, speaker, &body)?;
            line.ask(number, ClientRequest::Take)?;
        }
        let opened_s = began.elapsed().as_secs_f64();
        line.rest(REST)?;
        let resident = memory()?.map(|usage| usage.resident);
        // A connection that was silent for so long might have had to make way.
        let sender = line.conns.len();
        line.add(self.load.connect()?, sqs::poller(""), &body)?;
        let mut wakes = Recorder::default();
        let start = Instant::now();
        let mut observed = start;
        let mut sends = 0;
        while sends < self.sends && start.elapsed() < self.load.time {
            // Far from the one before, and of all queues in the end.
            let queue = (sends as usize * STRIDE) % self.queues;
            line.conns[sender].speak_as(sqs::sender(&name(queue), &body, 1));
            wakes.record(line.wake(sender)?);
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
}

/// A prime, so that queues come far apart and all in the end.
const STRIDE: usize = 7919;

impl Line {
    fn new() -> Result<Self> {
        Ok(Self {
            poll: Poll::new().context("cannot poll")?,
            conns: Vec::new(),
            records: Scratch::new(READ_BYTES),
            buffer: vec![0; READ_BYTES],
            renewed: 0,
        })
    }

    fn add(&mut self, stream: Stream, speaker: Speaker, body: &Arc<[u8]>) -> Result<()> {
        let mut conn = Conn::new(stream, speaker, Arc::clone(body));
        conn.register(self.poll.registry(), Token(self.conns.len()))?;
        self.conns.push(conn);
        Ok(())
    }

    fn ask(&mut self, at: usize, ask: ClientRequest) -> Result<()> {
        let conn = &mut self.conns[at];
        conn.ask(ask, 0);
        conn.flush(self.poll.registry(), &mut self.records)
    }

    /// Puts on the first connection, and waits for the reply.
    fn put(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(1);
        let sent = Instant::now();
        self.ask(0, ClientRequest::Put)?;
        while !self.hear(&mut events, SILENCE)?.put {
            ensure!(sent.elapsed() < SILENCE, "the server is silent");
        }
        Ok(())
    }

    /// Hears replies on all connections, for `time` at most. Polls that ended with nothing, and
    /// those whose message is deleted, are asked again.
    fn hear(&mut self, events: &mut Events, time: Duration) -> Result<Heard> {
        match self.poll.poll(events, Some(time)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        let mut heard = Heard::default();
        for event in events.iter() {
            let (conn, renewed) = (&mut self.conns[event.token().0], &mut self.renewed);
            let mut again = false;
            conn.receive(&mut self.buffer, &mut self.records, &mut |landed| {
                let is_put = landed.is_put;
                again |= !is_put;
                heard.put |= is_put;
                heard.deleted |= !is_put && !landed.empty;
                *renewed += u64::from(landed.empty);
            })?;
            if conn.is_settling() {
                heard.message.get_or_insert_with(Instant::now);
            }
            if again {
                conn.ask(ClientRequest::Take, 0);
            }
            conn.flush(self.poll.registry(), &mut self.records)?;
        }
        Ok(heard)
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
            let came = self.hear(&mut events, left)?.message;
            ensure!(
                came.is_none(),
                "nothing was sent, and a message came: is the queue in use?"
            );
        }
    }

    /// Sends a message; answers after how many nanoseconds a poll had it. It is deleted, and its
    /// poll asked again.
    fn wake(&mut self, sender: usize) -> Result<u64> {
        let mut events = Events::with_capacity(1024);
        let sent = Instant::now();
        self.ask(sender, ClientRequest::Put)?;
        let (mut woke, mut done, mut deleted) = (None, false, false);
        while !(done && deleted) {
            ensure!(
                sent.elapsed() < SILENCE,
                "{} after a send: no poll has its message",
                micros(sent.elapsed().as_micros() as f64)
            );
            let heard = self.hear(&mut events, SILENCE)?;
            done |= heard.put;
            deleted |= heard.deleted;
            woke = woke.or(heard.message);
        }
        let woke = woke.context("deleted what never came")?;
        Ok(nanos(woke.duration_since(sent)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use mio::Events;

    use super::Line;
    use crate::protocol::{ClientRequest, sqs};
    use crate::stream::Stream;
    use crate::worker::SILENCE;

    #[test]
    fn a_message_is_timed_before_its_deletion() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let stream = Stream::of(OwnedFd::from(here).into(), None).unwrap();
        let mut line = Line::new().unwrap();
        line.add(stream, sqs::poller("q"), &Arc::from(&b"b"[..]))
            .unwrap();
        line.ask(0, ClientRequest::Take).unwrap();
        let mut events = Events::with_capacity(1);
        let mut hear = |json: &str| {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", json.len());
            there.write_all((head + json).as_bytes()).unwrap();
            line.hear(&mut events, SILENCE).unwrap()
        };
        let came = hear(r#"{"Messages":[{"ReceiptHandle":"h","Body":"b"}]}"#);
        assert!(came.message.is_some() && !came.deleted);
        let gone = hear("{}");
        assert!(gone.message.is_none() && gone.deleted);
        assert!(
            !hear("{}").deleted,
            "the poll asked again ended with nothing"
        );
    }
}
