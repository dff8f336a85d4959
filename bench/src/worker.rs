//! One thread of the load: its connections, and when they send.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::fd::{AsRawFd as _, OwnedFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use quintet_tls::Scratch;

use crate::conn::Conn;
use crate::mix::Mix;
use crate::pace::Pace;
use crate::report::{Recorder, Report};
use crate::units::nanos;

/// How often a thread shows what it did.
const PUBLISH: Duration = Duration::from_millis(100);
/// A server silent this long, while requests wait, has failed the load; also
/// how long replies are waited for after the last request.
pub(crate) const SILENCE: Duration = Duration::from_secs(10);
/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// Token of the timer that paces a fixed rate.
const TIMER: Token = Token(usize::MAX);

/// Results of all threads so far.
#[derive(Default)]
pub(crate) struct LoadResults {
    pub(crate) total: Recorder,
    /// Since the last look.
    pub(crate) window: Recorder,
    /// Only its counts of puts, of takes, of these without a message or an answer.
    pub(crate) counts: Report,
    /// When the last reply came, nanoseconds since the start.
    pub(crate) last: u64,
}

/// Locks what was found; a thread that panicked left it whole.
pub(crate) fn lock(found: &Mutex<LoadResults>) -> MutexGuard<'_, LoadResults> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread at work.
pub(crate) struct Worker {
    conns: Vec<Conn>,
    depth: usize,
    mix: Mix,
    /// Requests at most.
    count: u64,
    /// No request from here on, nanoseconds since the start.
    end: u64,
    /// At a fixed rate, when each request is due.
    pace: Option<Pace>,
    found: Arc<Mutex<LoadResults>>,
    poll: Poll,
    /// Wakes it when the next request is due at a fixed rate.
    timer: OwnedFd,
    /// Memory that TLS works in.
    records: Scratch,
    start: Instant,
    /// Not yet shown to others.
    fresh: LoadResults,
    published: Instant,
    /// Requests sent, and not yet answered.
    requested: u64,
    in_flight: u64,
    /// Fixed rate: connections with room, longest first.
    row: VecDeque<usize>,
}

impl Worker {
    /// # Errors
    /// The system refuses a poll or a timer.
    pub(crate) fn new(
        mut conns: Vec<Conn>,
        depth: usize,
        mix: Mix,
        count: u64,
        end: u64,
        pace: Option<Pace>,
        found: Arc<Mutex<LoadResults>>,
    ) -> Result<Self> {
        let poll = Poll::new().context("cannot poll")?;
        for (at, conn) in conns.iter_mut().enumerate() {
            conn.register(poll.registry(), Token(at))?;
            conn.in_row = true;
        }
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK)
            .context("cannot make a timer")?;
        poll.registry()
            .register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE)
            .context("cannot watch a timer")?;
        Ok(Self {
            row: (0..conns.len()).collect(),
            conns,
            depth,
            mix,
            count,
            end,
            pace,
            found,
            poll,
            timer,
            records: Scratch::new(READ_BYTES),
            start: Instant::now(),
            fresh: LoadResults::default(),
            published: Instant::now(),
            requested: 0,
            in_flight: 0,
        })
    }

    /// Works until all is sent and answered, or given up.
    ///
    /// # Errors
    /// A connection breaks, a reply is wrong, or the server is silent.
    pub(crate) fn run(mut self, start: Instant) -> Result<()> {
        self.start = start;
        let done = self.serve();
        self.publish();
        done
    }

    fn now(&self) -> u64 {
        nanos(self.start.elapsed())
    }

    fn serve(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut buffer = vec![0; READ_BYTES];
        let mut clean = false;
        let silence = nanos(SILENCE);
        if self.pace.is_none() {
            for at in 0..self.conns.len() {
                self.next_round(at)?;
            }
        }
        loop {
            let more = match self.pace {
                Some(_) => self.send_due()?,
                None => self.may_ask(self.now()),
            };
            if !more && self.in_flight == 0 {
                if clean {
                    return Ok(());
                }
                clean = true;
                self.clean_up()?;
                continue;
            }
            match self.poll.poll(&mut events, Some(PUBLISH)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => {
                    return Err(error).context("cannot wait for replies");
                }
                _ => {}
            }
            for event in &events {
                let Token(at) = event.token();
                if event.token() == TIMER {
                    continue;
                }
                if event.is_readable() || event.is_read_closed() {
                    self.receive(at, &mut buffer)?;
                }
                if event.is_writable() {
                    self.conns[at].flush(self.poll.registry(), &mut self.records)?;
                }
            }
            if self.published.elapsed() >= PUBLISH {
                self.publish();
                let now = self.now();
                if now > self.end.saturating_add(silence) {
                    self.give_up();
                    return Ok(());
                }
                let oldest = self.conns.iter().flat_map(Conn::waiting_since).min();
                let last = oldest.map_or(now, |oldest| oldest.max(self.fresh.last));
                ensure!(
                    now <= last + silence,
                    "no reply within {} s",
                    SILENCE.as_secs()
                );
            }
        }
    }

    /// Another request may be sent.
    fn may_ask(&self, now: u64) -> bool {
        now < self.end && self.requested < self.count
    }

    fn ask(&mut self, at: usize, from: u64) {
        let conn = &mut self.conns[at];
        conn.ask(self.mix.ask(conn.requested), from);
        self.requested += 1;
        self.in_flight += 1;
    }

    /// Takes what the load has put and would have taken next, so that it
    /// leaves nothing that was not asked for.
    fn clean_up(&mut self) -> Result<()> {
        for conn in &mut self.conns {
            let owed = self.mix.owed(conn.requested);
            conn.clean_up(owed);
            self.in_flight += owed;
            conn.flush(self.poll.registry(), &mut self.records)?;
        }
        Ok(())
    }

    /// Closed loop: sends as many requests as the depth, in one write.
    fn next_round(&mut self, at: usize) -> Result<()> {
        let now = self.now();
        for _ in 0..self.depth {
            if self.may_ask(now) {
                self.ask(at, now);
            }
        }
        self.conns[at].flush(self.poll.registry(), &mut self.records)
    }

    /// Fixed rate: sends what is due, each over the connection that has had
    /// room for the longest time; what finds no room stays due. Answers if
    /// there are more to come.
    fn send_due(&mut self) -> Result<bool> {
        let now = self.now();
        let Some(mut pace) = self.pace.take() else {
            return Ok(false);
        };
        let mut touched = Vec::new();
        while let Some(&at) = self.row.front()
            && let Some(from) = pace.take(now)
        {
            self.row.pop_front();
            self.ask(at, from);
            touched.push(at);
            let conn = &mut self.conns[at];
            conn.in_row = conn.in_flight() < self.depth;
            if conn.in_row {
                self.row.push_back(at);
            }
        }
        touched.sort_unstable();
        touched.dedup();
        for at in touched {
            self.conns[at].flush(self.poll.registry(), &mut self.records)?;
        }
        let next = pace.next_at();
        if let Some(next) = next.filter(|_| !self.row.is_empty()) {
            self.set_timer(next.saturating_sub(self.now()).max(1))?;
        }
        self.pace = Some(pace);
        Ok(next.is_some())
    }

    /// Each end of the timer is an event of its own: nothing is read from it.
    fn set_timer(&self, nanoseconds: u64) -> Result<()> {
        let wait = Duration::from_nanos(nanoseconds);
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(wait).context("a time out of range")?,
        };
        let set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
        set.map(drop).context("cannot set a timer")
    }

    fn receive(&mut self, at: usize, buffer: &mut [u8]) -> Result<()> {
        let start = self.start;
        let (fresh, in_flight) = (&mut self.fresh, &mut self.in_flight);
        let mut now = None;
        let conn = &mut self.conns[at];
        conn.receive(buffer, &mut self.records, &mut |landed| {
            *in_flight -= 1;
            let Some(from) = landed.from else {
                return;
            };
            let now = *now.get_or_insert_with(|| nanos(start.elapsed()));
            fresh.total.record(now - from);
            fresh.last = now;
            fresh.counts.puts += u64::from(landed.is_put);
            fresh.counts.takes += u64::from(!landed.is_put);
            fresh.counts.empty += u64::from(landed.empty);
        })?;
        if self.pace.is_none() {
            if self.conns[at].in_flight() == 0 {
                return self.next_round(at);
            }
        } else if !self.conns[at].in_row && self.conns[at].in_flight() < self.depth {
            self.conns[at].in_row = true;
            self.row.push_back(at);
        }
        // A settle may have been written.
        self.conns[at].flush(self.poll.registry(), &mut self.records)
    }

    /// Shows others what was found since the last time.
    fn publish(&mut self) {
        self.published = Instant::now();
        let (fresh, mut found) = (&mut self.fresh, lock(&self.found));
        found.window.add(&fresh.total);
        found.total.add(&fresh.total);
        fresh.total.clear();
        let counts = std::mem::take(&mut fresh.counts);
        found.counts.puts += counts.puts;
        found.counts.takes += counts.takes;
        found.counts.empty += counts.empty;
        found.counts.unanswered += counts.unanswered;
        found.last = found.last.max(fresh.last);
    }

    /// Charges every request that has no answer with its time until now.
    fn give_up(&mut self) {
        let now = self.now();
        let sent = self.conns.iter().flat_map(Conn::waiting_since);
        let mut pace = self.pace.take();
        let unsent = std::iter::from_fn(|| pace.as_mut()?.take(now));
        for from in sent.chain(unsent) {
            self.fresh.total.record(now.saturating_sub(from));
            self.fresh.counts.unanswered += 1;
        }
    }
}
