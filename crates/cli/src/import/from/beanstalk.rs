//! A running beanstalkd, tube by tube.
//!
//! Ready jobs are reserved, many at once. Delayed and buried ones (and the ready ones of a paused
//! tube) are looked for by `peek-*` and taken by `reserve-job`: no kick, so a job that is given
//! back is what it was. Needs beanstalkd 1.12 or later for these.

mod yaml;

use std::collections::{HashSet, VecDeque};
use std::fmt::Write as _;
use std::net::SocketAddr;

use anyhow::{Result, bail};
use quintet_control::{Head, Standing};
use quintet_host::wall_ms;
use quintet_types::Name;

use super::Remote;
use super::line::Line;
use super::peer::{Hold, Number, Server};
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
pub(in crate::import) struct ReservedJob {
    id: u64,
    priority: u32,
    was: Was,
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

/// A tube.
pub(in crate::import) struct Tube {
    name: String,
    /// `None`: the connection does not use it yet.
    stage: Option<Stage>,
}

/// The source.
pub(in crate::import) struct Beanstalk {
    line: Line,
    only: Option<String>,
    /// The tube that the connection watches.
    watched: String,
    /// Requests for jobs that are not answered yet, and what came of those before: jobs nothing is
    /// known of, that the tube has no more, or that none is given until others are deleted.
    requested: usize,
    reserved: Vec<(u64, Vec<u8>)>,
    dry: bool,
    soon: bool,
    /// Ids of the jobs that are not deleted yet.
    held: HashSet<u64>,
    /// Jobs reserved at once next time.
    window: usize,
}

impl Beanstalk {
    /// Connects.
    ///
    /// # Errors
    /// Nobody is there, or it is no beanstalkd.
    pub(in crate::import) fn connect(at: &Remote) -> Result<Self> {
        Ok(Self {
            line: Line::connect(&at.address, "beanstalkd does not")?,
            only: at.queue.clone(),
            // As of each new connection.
            watched: "default".to_owned(),
            requested: 0,
            reserved: Vec::new(),
            dry: false,
            soon: false,
            held: HashSet::new(),
            window: 16,
        })
    }

    /// The tubes there are, or the one that was requested.
    fn list(&mut self) -> Result<Vec<String>> {
        self.line.send(b"list-tubes\r\n")?;
        let Some(yaml) = self.yaml()? else {
            bail!(self.line.strange("NOT_FOUND"));
        };
        let tubes = yaml.items();
        match &self.only {
            None => Ok(tubes),
            Some(only) if tubes.contains(only) => Ok(vec![only.clone()]),
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
            _ => bail!(self.line.strange(&line)),
        }
    }

    /// Turns to a tube, from the one before; its first stage.
    fn enter(&mut self, tube: &str) -> Result<Stage> {
        let mut text = format!("use {tube}\r\nwatch {tube}\r\n");
        let before = std::mem::replace(&mut self.watched, tube.to_owned());
        if before != tube {
            write!(text, "ignore {before}\r\n").ok();
        }
        write!(text, "stats-tube {tube}\r\n").ok();
        self.line.send(text.as_bytes())?;
        for _ in 0..text.matches("\r\n").count() - 1 {
            let line = self.line.line()?;
            if !line.starts_with("USING ") && !line.starts_with("WATCHING ") {
                bail!(self.line.strange(&line));
            }
        }
        let stats = self.yaml()?;
        let paused = stats.is_some_and(|stats| stats.number("pause-time-left") > 0);
        Ok(match paused {
            true => Stage::Paused,
            false => Stage::Ready,
        })
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
    fn describe(&mut self, hold: &mut Hold<ReservedJob>) -> Result<()> {
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
                self.job((id, body), &stats, Was::Ready, hold);
            }
        }
        self.window = (self.window * 2).clamp(1, AT_ONCE.min(AHEAD / largest).max(1));
        Ok(())
    }

    /// Reserves ready jobs. False: there are no more.
    fn reserve(&mut self, hold: &mut Hold<ReservedJob>) -> Result<bool> {
        if self.requested == 0 && self.reserved.is_empty() {
            self.ask()?;
        }
        self.collect()?;
        self.describe(hold)?;
        let (dry, soon) = (
            std::mem::take(&mut self.dry),
            std::mem::take(&mut self.soon),
        );
        if !dry && !soon {
            // They come while these are stored.
            self.ask()?;
        }
        Ok(!dry)
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
        bail!(self.line.strange(line))
    }

    /// Takes jobs of a state that `reserve` does not give. False: there are no more.
    fn peek(&mut self, state: &'static str, hold: &mut Hold<ReservedJob>) -> Result<bool> {
        let peek = format!("peek-{state}\r\n");
        self.line.send(peek.as_bytes())?;
        let mut bytes = 0;
        for left in (0..AT_ONCE).rev() {
            let line = self.line.line()?;
            if line == "NOT_FOUND" {
                return Ok(false);
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
                "UNKNOWN_COMMAND" => {
                    // What is stored is still deleted there: nothing is left unread.
                    let found = if more { self.line.line()? } else { line };
                    if found.starts_with("FOUND ") {
                        self.body(&found, "FOUND")?;
                    }
                    bail!(
                        "{} is older than 1.12 and hands out only ready jobs: {state} jobs of the \
                         tube {} stay there, and the tubes after it; kick these jobs, or wait \
                         until they are due",
                        self.line.address(),
                        self.watched
                    )
                }
                _ => {
                    let (id, body) = self.body(&line, "RESERVED")?;
                    bytes += body.len();
                    let stats = stats.unwrap_or_default();
                    let was = match stats.text("state") {
                        "buried" => Was::Buried,
                        "delayed" => Was::Delayed(wall_ms() + stats.number("time-left") * 1000),
                        _ => Was::Ready,
                    };
                    self.job((id, body), &stats, was, hold);
                }
            }
            if !more {
                break;
            }
        }
        Ok(true)
    }

    /// A job was reserved.
    fn job(
        &mut self,
        (id, body): (u64, Vec<u8>),
        stats: &Yaml,
        was: Was,
        hold: &mut Hold<ReservedJob>,
    ) {
        if !self.held.insert(id) {
            // Its time to run was over before it was stored: it is on its way already.
            return;
        }
        let small = |name: &str| u32::try_from(stats.number(name)).unwrap_or(u32::MAX);
        let priority = small("pri");
        // `stats-job` of one that `reserve` gave counts that.
        let ours = u32::from(stats.text("state") == "reserved");
        let head = Head {
            queue: Name::of_shown(&self.watched).to_string(),
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
        let (tube, at) = (&head.queue, self.line.address());
        let place = format!("job {id} of the tube {tube} at {at}");
        let held = ReservedJob { id, priority, was };
        hold.push(held, place, Ok((head, Some(body))));
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
                    _ => bail!(self.line.strange(&line)),
                }
            }
        }
        Ok(unknown)
    }
}

impl Server for Beanstalk {
    type Part = Tube;
    type Held = ReservedJob;

    fn parts(&mut self) -> Result<VecDeque<Tube>> {
        let tubes = self.list()?.into_iter();
        Ok(tubes.map(|name| Tube { name, stage: None }).collect())
    }

    fn take(&mut self, tube: &mut Tube, hold: &mut Hold<ReservedJob>) -> Result<bool> {
        let stage = match tube.stage {
            Some(stage) => stage,
            None => self.enter(&tube.name)?,
        };
        let (more, next) = match stage {
            Stage::Ready => (self.reserve(hold)?, Some(Stage::Delayed)),
            Stage::Paused => (self.peek("ready", hold)?, Some(Stage::Delayed)),
            Stage::Delayed => (self.peek("delayed", hold)?, Some(Stage::Buried)),
            Stage::Buried => (self.peek("buried", hold)?, None),
        };
        tube.stage = if more { Some(stage) } else { next };
        Ok(tube.stage.is_some())
    }

    fn delete(&mut self, stored: &[ReservedJob]) -> Result<u64> {
        self.collect()?;
        for job in stored {
            self.held.remove(&job.id);
        }
        // One whose time is over is ready again, and deleted all the same.
        let delete = |job: &ReservedJob| format!("delete {}\r\n", job.id);
        self.each(stored, delete, "DELETED")
    }

    fn give_back(&mut self, mut held: Vec<ReservedJob>) -> Result<u64> {
        self.collect()?;
        let mut late = Hold::new();
        self.describe(&mut late)?;
        held.extend(late.drain());
        self.held.clear();
        let (buried, others): (Vec<ReservedJob>, Vec<ReservedJob>) =
            held.into_iter().partition(|job| job.was == Was::Buried);
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

    fn numbers(&mut self) -> Result<Vec<Number>> {
        let mut all = Vec::new();
        for tube in self.list()? {
            self.line
                .send(format!("stats-tube {tube}\r\n").as_bytes())?;
            let Some(stats) = self.yaml()? else {
                continue;
            };
            for state in ["ready", "delayed", "buried", "reserved"] {
                let jobs = stats.number(&format!("current-jobs-{state}"));
                all.push((tube.clone(), state, jobs));
            }
        }
        Ok(all)
    }

    fn local(&mut self) -> Option<SocketAddr> {
        self.line.local()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;
    use std::sync::Arc;

    use super::super::peer::Mover;
    use super::*;
    use crate::records::Source as _;

    /// The reply of an older beanstalkd, which has a delayed job.
    fn reply(request: &str) -> String {
        let report = |text: &str| format!("OK {}\r\n{text}\r\n", text.len());
        let verb = request.split(' ').next().unwrap_or_default();
        match verb {
            "list-tubes" => report("---\n- t\n"),
            "stats-tube" | "stats-job" => report("---\npri: 1\n"),
            "use" => "USING t\r\n".to_owned(),
            "watch" | "ignore" => "WATCHING 1\r\n".to_owned(),
            "peek-delayed" => "FOUND 2 1\r\nb\r\n".to_owned(),
            "delete" => "DELETED\r\n".to_owned(),
            "reserve-with-timeout" => "TIMED_OUT\r\n".to_owned(),
            _ => "UNKNOWN_COMMAND\r\n".to_owned(),
        }
    }

    #[test]
    fn an_older_server_keeps_no_job_that_is_stored() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = Remote {
            address: listener.local_addr().unwrap().to_string(),
            password: None,
            queue: None,
        };
        let server = std::thread::spawn(move || {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            let mut ready = Some("RESERVED 1 1\r\na\r\n".to_owned());
            let mut deleted = Vec::new();
            loop {
                let mut line = String::new();
                if stream.read_line(&mut line).unwrap_or(0) == 0 {
                    return deleted;
                }
                let request = line.trim_end();
                if request.starts_with("delete ") {
                    deleted.push(request.to_owned());
                }
                let is_taken = request.starts_with("reserve-with");
                let taken = ready.take_if(|_| is_taken);
                let reply = taken.unwrap_or_else(|| reply(request));
                stream.get_mut().write_all(reply.as_bytes()).unwrap();
            }
        });
        let beanstalk = Beanstalk::connect(&at).unwrap();
        let mut mover = Mover::begin(beanstalk, Arc::default()).unwrap();
        let entry = mover.next().unwrap().expect("a ready job");
        assert_eq!(entry.body.as_deref(), Some(&b"a"[..]));
        let error = mover.next().err().expect("a delayed one").to_string();
        assert!(error.contains("is older than 1.12"), "{error}");
        mover.stored(1).unwrap();
        assert_eq!(mover.give_back().unwrap(), 0);
        drop(mover);
        assert_eq!(server.join().unwrap(), ["delete 1"]);
    }
}
