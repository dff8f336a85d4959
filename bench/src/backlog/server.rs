//! A Quintet of our own, whose data outlive its process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use quintet_bench::{Load, Protocol, Target, Usage};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::disk::Disk;
use super::talk::Talk;
use crate::common::peers::{Ground, Process, json_of};

/// A stop may take this long.
const STOP: Duration = Duration::from_secs(60);
/// How often is looked whether something has ended or settled.
const LOOK: Duration = Duration::from_millis(20);
/// Nothing may have changed for this long for a server to be at rest.
const REST: Duration = Duration::from_secs(2);
/// Rest is waited for this long at most; then it is as it is.
const REST_MAX: Duration = Duration::from_secs(60);

/// Memory of most experiments, and the default one.
pub(crate) const SMALL: &str = "64MiB";
pub(crate) const DEFAULT: &str = "256MiB";

/// A server on loopback ports of its own; killed when dropped, and its
/// directory removed.
pub(crate) struct Server {
    program: PathBuf,
    memory: &'static str,
    process: Option<Process>,
    targets: BTreeMap<String, Target>,
    dir: TempDir,
}

impl Server {
    /// Starts one with this budget on an empty directory; it syncs every 50 ms.
    ///
    /// # Errors
    /// It does not come to listen.
    pub(crate) fn new(ground: &Ground, memory: &'static str) -> Result<Self> {
        let mut server = Self {
            program: ground.quintet.clone(),
            memory,
            process: None,
            targets: BTreeMap::new(),
            dir: ground.dir()?,
        };
        server.start()?;
        Ok(server)
    }

    /// Starts it again on its data and waits until it listens.
    ///
    /// # Errors
    /// It runs, or does not come to listen.
    pub(crate) fn start(&mut self) -> Result<()> {
        ensure!(self.process.is_none(), "the server runs already");
        let config = format!("memory = \"{}\"\nsync = \"50ms\"\n", self.memory);
        let protocols = ["memcache", "beanstalk"];
        let dir = self.dir.path();
        let mut command = Command::new(&self.program);
        let (process, targets) = Process::quintet(command.arg("serve"), dir, &config, &protocols)?;
        (self.process, self.targets) = (Some(process), targets);
        Ok(())
    }

    /// Starts it and waits for the first reply: the next message of `queue`.
    /// Answers how long that took from before the process was made.
    ///
    /// # Errors
    /// As [`Server::start`], or there is no such message.
    pub(crate) fn start_timed(&mut self, queue: &str) -> Result<Duration> {
        let start = Instant::now();
        self.start()?;
        let there = self.talk("memcache")?.peek(queue)?;
        ensure!(there, "after the start {queue} is empty");
        Ok(start.elapsed())
    }

    /// SIGTERM, and waits for its end.
    ///
    /// # Errors
    /// It does not end within a minute, or not well.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let start = Instant::now();
        let pid = i32::try_from(self.pid()?).ok().and_then(Pid::from_raw);
        // It is dropped with us, and killed then if it has not ended.
        let mut process = self.process.take().context("the server does not run")?;
        kill_process(pid.context("no process id")?, Signal::TERM)?;
        let status = loop {
            if let Some(status) = process.0.try_wait()? {
                break status;
            }
            ensure!(start.elapsed() < STOP, "the server does not stop");
            std::thread::sleep(LOOK);
        };
        ensure!(status.success(), "the server stopped with {status}");
        Ok(())
    }

    /// `kill -9`, and waits for its end.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// A load on it in this protocol, unbounded in time and count.
    ///
    /// # Errors
    /// There is no such protocol.
    pub(crate) fn load(&self, protocol: &str) -> Result<Load> {
        let target = self.target(protocol)?.clone();
        let protocol = Protocol::named(protocol).map_err(anyhow::Error::msg)?;
        Ok(Load::new(target, protocol))
    }

    /// A connection in this protocol.
    ///
    /// # Errors
    /// It does not accept.
    pub(crate) fn talk(&self, protocol: &str) -> Result<Talk> {
        Talk::connect(self.target(protocol)?)
    }

    /// By the protocol's name, behind which a way of loading it may stand.
    fn target(&self, protocol: &str) -> Result<&Target> {
        let protocol = protocol.split('-').next().unwrap_or(protocol);
        self.targets
            .get(protocol)
            .context("the server has no such protocol")
    }

    /// Its process id.
    fn pid(&self) -> Result<u32> {
        let process = self.process.as_ref().context("the server does not run")?;
        Ok(process.0.id())
    }

    /// Its memory now.
    ///
    /// # Errors
    /// It does not run.
    pub(crate) fn memory(&self) -> Result<Usage> {
        Usage::of(self.pid()?)
    }

    /// Its data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Its size on the disk now.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(crate) fn disk(&self) -> Result<Disk> {
        Disk::of(&self.data())
    }

    /// A number of `quintet stats --json`.
    ///
    /// # Errors
    /// There is none of this name.
    pub(crate) fn number(&self, name: &str) -> Result<u64> {
        let number = json_of(&self.program, &["stats"], &self.data())?[name].as_u64();
        number.with_context(|| format!("the statistics have no {name}"))
    }

    /// Waits until neither its memory nor its files change, at most a minute.
    ///
    /// # Errors
    /// It does not run.
    pub(crate) fn rest(&self) -> Result<()> {
        let start = Instant::now();
        let (mut since, mut last) = (start, (self.memory()?, self.disk()?));
        while since.elapsed() < REST && start.elapsed() < REST_MAX {
            std::thread::sleep(LOOK * 10);
            let now = (self.memory()?, self.disk()?);
            // A megabyte comes and goes with buffers.
            let moved = now.0.anon.abs_diff(last.0.anon) >> 20;
            if moved > 0 || now.1 != last.1 {
                (since, last) = (Instant::now(), now);
            }
        }
        Ok(())
    }
}
