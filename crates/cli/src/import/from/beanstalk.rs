//! A running beanstalkd, tube by tube.
//!
//! Ready jobs are reserved, many at once. Delayed and buried ones (and the ready ones of a paused
//! tube) are looked for by `peek-*` and taken by `reserve-job`: no kick, so a job that is given
//! back is what it was. Needs beanstalkd 1.12 or later for these.

mod yaml;

use std::collections::{HashSet, VecDeque};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail};
use quintet_control::{Head, Standing};
use quintet_host::wall_ms;
use quintet_types::Name;

use super::Remote;
use super::line::Line;
use super::peer::{Peer, PeerState, first};
use crate::import::count::Counts;
use crate::records::{Entry, Source};
use yaml::Yaml;

/// Requests sent at once at most: each is shorter than 64 bytes.
const AT_ONCE: usize = 256;
/// Bodies that are read ahead, bytes, as far as the largest of late tells.
const AHEAD: usize = 8 << 20;

/// State of a message before it was taken: where it goes when it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Was {
    Ready,
    /// Until then, Unix ms.
    Delayed(u64),
    Buried,
}

/// A job that is reserved by us.
struct ReservedJob {
    id: u64,
    priority: u32,
    was: Was,
}

struct Job {
    held: ReservedJob,
    head: Head,
    body: Vec<u8>,
}

/// The next kind of message to take from a tube.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// By `reserve`.
    Ready,
    /// By `peek-ready`: reserve waits until the pause is over.
    Paused,
    Delayed,
    Buried,
}

/// The source.
pub(super) struct Beanstalk {
    line: Line,
    state: PeerState,
    only: Option<String>,
    /// Still to be gone through; the first is the one in hand.
    tubes: VecDeque<String>,
    stage: Stage,
    /// Something was found since the tubes were listed.
    found: bool,
    /// Requests for jobs that are not answered yet, and what came of those before: jobs nothing is
    /// known of, that the tube has no more, or that none is given until others are deleted.
    requested: usize,
    reserved: Vec<(u64, Vec<u8>)>,
    dry: bool,
    soon: bool,
    /// Reserved and not given out.
    taken: VecDeque<Job>,
    /// Given out and not stored.
    delivered: VecDeque<ReservedJob>,
    /// Ids of both.
    held: HashSet<u64>,
    /// Jobs reserved at once next time.
    window: usize,
}

impl Beanstalk {
    /// Connects.
    ///
    /// # Errors
    /// Nobody is there, or it is no beanstalkd.
    pub(super) fn connect(at: &Remote, stop: Arc<AtomicBool>) -> Result<Self> {
        let mut all = Self {
            line: Line::connect(&at.address)?,
            state: PeerState::new(stop, format!("beanstalkd at {}", at.address)),
            only: at.queue.clone(),
            tubes: VecDeque::new(),
            stage: Stage::Ready,
            found: false,
            requested: 0,
            reserved: Vec::new(),
            dry: false,
            soon: false,
            taken: VecDeque::new(),
            delivered: VecDeque::new(),
            held: HashSet::new(),
            window: 16,
        };
        all.tubes = all.list()?;
        all.enter(None)?;
        Ok(all)
    }

    /// The tubes there are, or the one that was requested.
    fn list(&mut self) -> Result<VecDeque<String>> {
        self.line.send(b"list-tubes\r\n")?;
        let Some(yaml) = self.yaml()? else {
            bail!(self.strange("NOT_FOUND"));
        };
        let tubes = yaml.items();
        match &self.only {
            None => Ok(tubes.into()),
            Some(only) if tubes.contains(only) => Ok([only.clone()].into()),
            Some(only) => bail!("{} has no tube {only}", self.line.address()),
        }
    }

    /// The reply to a `stats` or `list`; `None`: there is no such thing.
    fn yaml(&mut self) -> Result<Option<Yaml>> {
        let line = self.line.line()?;
        let mut words = line.split(' ');
        match (words.next(), words.next().map(str::parse)) {
            (Some("OK"), Some(Ok(bytes))) => {
                let text = self.line.counted(bytes)?;
                Ok(Some(Yaml::of(&String::from_utf8_lossy(&text))))
            }
            (Some("NOT_FOUND"), None) => Ok(None),
            _ => bail!(self.strange(&line)),
        }
    }

    fn strange(&self, line: &str) -> String {
        self.line.strange(line, "beanstalkd does not")
    }

    /// Turns to the first of the tubes, from the one before.
    fn enter(&mut self, before: Option<&str>) -> Result<()> {
        let Some(tube) = self.tubes.front() else {
            return Ok(());
        };
        let mut text = format!("use {tube}\r\nwatch {tube}\r\n");
        // A new connection watches this one.
        let before = before.unwrap_or("default");
        if before != tube {
            write!(text, "ignore {before}\r\n").ok();
        }
        write!(text, "stats-tube {tube}\r\n").ok();
        self.line.send(text.as_bytes())?;
        for _ in 0..text.matches("\r\n").count() - 1 {
            let line = self.line.line()?;
            if !line.starts_with("USING ") && !line.starts_with("WATCHING ") {
                bail!(self.strange(&line));
            }
        }
        let stats = self.yaml()?;
        let paused = stats.is_some_and(|stats| stats.number("pause-time-left") > 0);
        self.stage = match paused {
            true => Stage::Paused,
            false => Stage::Ready,
        };
        Ok(())
    }

    /// Nothing more of this stage.
    fn turn(&mut self) -> Result<()> {
        self.stage = match self.stage {
            Stage::Ready | Stage::Paused => Stage::Delayed,
            Stage::Delayed => Stage::Buried,
            Stage::Buried => {
                let before = self.tubes.pop_front();
                if self.tubes.is_empty() && self.found {
                    // What was put, given back or became due meanwhile.
                    self.found = false;
                    self.tubes = self.list()?;
                }
                self.state.through = self.tubes.is_empty();
                return self.enter(before.as_deref());
            }
        };
        Ok(())
    }

    /// Asks for ready jobs.
    fn ask(&mut self) -> Result<()> {
        self.requested = self.window;
        let text = "reserve-with-timeout 0\r\n".repeat(self.requested);
        self.line.send(text.as_bytes())
    }

    /// Reads what was requested, before anything else is sent.
    fn collect(&mut self) -> Result<()> {
        for _ in 0..std::mem::take(&mut self.requested) {
            let line = self.line.line()?;
            match line.as_str() {
                "TIMED_OUT" => self.dry = true,
                "DEADLINE_SOON" => self.soon = true,
                _ => {
                    let job = self.body(&line, "RESERVED")?;
                    self.reserved.push(job);
                }
            }
        }
        Ok(())
    }

    /// Asks about the jobs that were reserved, and takes them.
    fn describe(&mut self) -> Result<()> {
        let jobs = std::mem::take(&mut self.reserved);
        let mut text = String::new();
        for (id, _) in &jobs {
            write!(text, "stats-job {id}\r\n").ok();
        }
        self.line.send(text.as_bytes())?;
        let mut largest = 1;
        for (id, body) in jobs {
            largest = largest.max(body.len());
            if let Some(stats) = self.yaml()? {
                self.take(id, &stats, body, Was::Ready);
            }
        }
        self.window = (self.window * 2).clamp(1, AT_ONCE.min(AHEAD / largest).max(1));
        Ok(())
    }

    /// Reserves ready jobs. False: there is none for now, as what is held should be stored first.
    fn reserve(&mut self) -> Result<bool> {
        if self.requested == 0 && self.reserved.is_empty() {
            self.ask()?;
        }
        self.collect()?;
        self.describe()?;
        let (dry, soon) = (
            std::mem::take(&mut self.dry),
            std::mem::take(&mut self.soon),
        );
        if dry {
            self.turn()?;
        } else if !soon {
            // They come while these are stored.
            self.ask()?;
        }
        Ok(!soon || dry)
    }

    /// `WORD ID BYTES` and the body behind it.
    fn body(&mut self, line: &str, word: &str) -> Result<(u64, Vec<u8>)> {
        let parts: Vec<&str> = line.split(' ').collect();
        if let [first, id, bytes] = parts[..]
            && first == word
            && let (Ok(id), Ok(bytes)) = (id.parse(), bytes.parse())
        {
            return Ok((id, self.line.counted(bytes)?));
        }
        bail!(self.strange(line))
    }

    /// Takes jobs of a state that `reserve` does not give.
    fn peek(&mut self, state: &'static str) -> Result<()> {
        let peek = format!("peek-{state}\r\n");
        self.line.send(peek.as_bytes())?;
        let mut bytes = 0;
        for left in (0..AT_ONCE).rev() {
            let line = self.line.line()?;
            if line == "NOT_FOUND" {
                return self.turn();
            }
            let (id, _) = self.body(&line, "FOUND")?;
            // As it is before it is reserved, and the next one.
            let more = left > 0 && bytes < AHEAD;
            let next = if more { peek.as_str() } else { "" };
            self.line
                .send(format!("stats-job {id}\r\nreserve-job {id}\r\n{next}").as_bytes())?;
            let stats = self.yaml()?;
            let line = self.line.line()?;
            match line.as_str() {
                // Somebody else was faster.
                "NOT_FOUND" => {}
                "UNKNOWN_COMMAND" => bail!(
                    "{} is older than 1.12 and hands out only ready jobs: {state} jobs of the \
                     tube {} stay there, and the tubes after it; kick these jobs, or wait until \
                     they are due",
                    self.line.address(),
                    self.tubes.front().map_or("", String::as_str)
                ),
                _ => {
                    let (id, body) = self.body(&line, "RESERVED")?;
                    bytes += body.len();
                    let stats = stats.unwrap_or_default();
                    let was = match stats.text("state") {
                        "buried" => Was::Buried,
                        "delayed" => Was::Delayed(wall_ms() + stats.number("time-left") * 1000),
                        _ => Was::Ready,
                    };
                    self.take(id, &stats, body, was);
                }
            }
            if !more {
                break;
            }
        }
        Ok(())
    }

    fn take(&mut self, id: u64, stats: &Yaml, body: Vec<u8>, was: Was) {
        self.found = true;
        if !self.held.insert(id) {
            // Its time to run was over before it was stored: it is on its way already.
            return;
        }
        let small = |name: &str| u32::try_from(stats.number(name)).unwrap_or(u32::MAX);
        let priority = small("pri");
        // `stats-job` of one that `reserve` gave counts that.
        let ours = u32::from(stats.text("state") == "reserved");
        let head = Head {
            queue: Name::of_shown(self.tubes.front().map_or("", String::as_str)).to_string(),
            state: match was {
                Was::Ready => Standing::Ready,
                Was::Delayed(_) => Standing::Delayed,
                Was::Buried => Standing::Buried,
            },
            priority: Some(priority),
            created_ms: Some(wall_ms().saturating_sub(stats.number("age") * 1000)),
            due_ms: match was {
                Was::Delayed(due) => Some(due),
                Was::Ready | Was::Buried => None,
            },
            ttr_ms: Some(stats.number("ttr").max(1) * 1000),
            reserves: small("reserves").saturating_sub(ours),
            timeouts: small("timeouts"),
            releases: small("releases"),
            buries: small("buries"),
            kicks: small("kicks"),
            bytes: body.len() as u64,
            ..Head::default()
        };
        let held = ReservedJob { id, priority, was };
        self.taken.push_back(Job { held, head, body });
    }

    /// Sends a request for each of these jobs, and reads the replies; how many are unknown there.
    fn each(
        &mut self,
        jobs: &[ReservedJob],
        request: impl Fn(&ReservedJob) -> String,
        yes: &str,
    ) -> Result<u64> {
        let mut unknown = 0;
        for some in jobs.chunks(AT_ONCE) {
            let text: String = some.iter().map(&request).collect();
            self.line.send(text.as_bytes())?;
            for _ in some {
                let line = self.line.line()?;
                match line.as_str() {
                    "NOT_FOUND" => unknown += 1,
                    line if line == yes => {}
                    _ => bail!(self.strange(&line)),
                }
            }
        }
        Ok(unknown)
    }
}

impl Source for Beanstalk {
    fn next(&mut self) -> Result<Option<Entry>> {
        loop {
            if let Some(Job { held, head, body }) = self.taken.pop_front() {
                self.state.place = format!(
                    "job {} of the tube {} at {}",
                    held.id,
                    head.queue,
                    self.line.address()
                );
                self.delivered.push_back(held);
                return Ok(Some(self.state.entry(head, body)));
            }
            if self.state.is_over() {
                return Ok(None);
            }
            match self.stage {
                Stage::Ready => {
                    if !self.reserve()? && self.taken.is_empty() && !self.delivered.is_empty() {
                        return Ok(None);
                    }
                }
                Stage::Paused => self.peek("ready")?,
                Stage::Delayed => self.peek("delayed")?,
                Stage::Buried => self.peek("buried")?,
            }
        }
    }

    of_fields!(peer);

    fn stored(&mut self, messages: u64) -> Result<()> {
        self.collect()?;
        let jobs = first(&mut self.delivered, messages);
        for job in &jobs {
            self.held.remove(&job.id);
        }
        // One whose time is over is ready again, and deleted all the same.
        let delete = |job: &ReservedJob| format!("delete {}\r\n", job.id);
        self.state.twice += self.each(&jobs, delete, "DELETED")?;
        Ok(())
    }
}

impl Peer for Beanstalk {
    fn counts(&mut self) -> Result<Counts> {
        let mut counts = Counts::default();
        for tube in self.list()? {
            self.line
                .send(format!("stats-tube {tube}\r\n").as_bytes())?;
            let Some(stats) = self.yaml()? else {
                continue;
            };
            for state in ["ready", "delayed", "buried", "reserved"] {
                let jobs = stats.number(&format!("current-jobs-{state}"));
                counts.add(&tube, state, jobs);
            }
        }
        Ok(counts)
    }

    fn state(&self) -> &PeerState {
        &self.state
    }

    fn give_back(&mut self) -> Result<u64> {
        self.state.through = true;
        self.collect()?;
        self.describe()?;
        let taken = self.taken.drain(..).map(|job| job.held);
        let jobs: Vec<ReservedJob> = self.delivered.drain(..).chain(taken).collect();
        self.held.clear();
        let (buried, others): (Vec<ReservedJob>, Vec<ReservedJob>) =
            jobs.into_iter().partition(|job| job.was == Was::Buried);
        let now = wall_ms();
        let release = |job: &ReservedJob| {
            let delay = match job.was {
                Was::Delayed(due) => due.saturating_sub(now).div_ceil(1000),
                Was::Ready | Was::Buried => 0,
            };
            format!("release {} {} {delay}\r\n", job.id, job.priority)
        };
        let bury = |job: &ReservedJob| format!("bury {} {}\r\n", job.id, job.priority);
        let all = (others.len() + buried.len()) as u64;
        let gone = self.each(&others, release, "RELEASED")? + self.each(&buried, bury, "BURIED")?;
        Ok(all - gone)
    }

    fn local(&mut self) -> Option<SocketAddr> {
        self.line.local()
    }
}
