//! A Quintet of our own, whose data outlive its process.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use quintet_bench::{Load, Target, Voice};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::disk::Disk;
use super::memory::Memory;
use super::settings::Settings;
use super::talk::Talk;
use crate::compare::peers::Ground;

/// A stop may take this long.
const STOP: Duration = Duration::from_secs(60);
/// How often is looked whether something has ended or settled.
const LOOK: Duration = Duration::from_millis(20);
/// Nothing may have changed for this long for a server to be at rest.
const REST: Duration = Duration::from_secs(2);
/// Rest is waited for this long at most; then it is as it is.
const REST_MAX: Duration = Duration::from_secs(60);
/// Lines of its messages that are shown when it fails.
const LAST_LINES: usize = 5;

/// A server on loopback ports of its own; killed when dropped, and its
/// directory removed.
pub(crate) struct Server {
    program: PathBuf,
    dir: TempDir,
    child: Option<Child>,
    memcache: Target,
    beanstalk: Target,
}

impl Server {
    /// Starts one on an empty directory.
    ///
    /// # Errors
    /// It does not come to listen.
    pub(crate) fn new(ground: &Ground, settings: Settings) -> Result<Self> {
        let dir = TempDir::new_in(&ground.scratch).context("cannot make a directory")?;
        fs::write(dir.path().join("quintet.toml"), settings.toml())?;
        let mut server = Self {
            program: ground.quintet.clone(),
            dir,
            child: None,
            memcache: Target::local(0),
            beanstalk: Target::local(0),
        };
        server.start()?;
        Ok(server)
    }

    /// Starts it again on its data and waits until it listens.
    ///
    /// # Errors
    /// It runs, or does not come to listen.
    pub(crate) fn start(&mut self) -> Result<()> {
        if self.child.is_some() {
            bail!("the server runs already");
        }
        let log = self.dir.path().join("messages");
        let child = Command::new(&self.program)
            .args(["serve", "--listen", "memcache=127.0.0.1:0"])
            .args(["--listen", "beanstalk=127.0.0.1:0", "--config"])
            .arg(self.dir.path().join("quintet.toml"))
            .arg("--data")
            .arg(self.data())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .spawn();
        let child = child.with_context(|| format!("cannot start {}", self.program.display()))?;
        let out = self.child.insert(child).stdout.as_mut();
        for line in BufReader::new(out.context("no output")?).lines() {
            let line = line?;
            if let Some((voice, address)) = line
                .strip_prefix("listening ")
                .and_then(|rest| rest.split_once(' '))
            {
                let target = Target::parse(address).map_err(anyhow::Error::msg)?;
                match voice {
                    "memcache" => self.memcache = target,
                    "beanstalk" => self.beanstalk = target,
                    _ => {}
                }
            }
            if line.ends_with(" ready") {
                return Ok(());
            }
        }
        let messages = fs::read_to_string(&log).unwrap_or_default();
        bail!(
            "the server ended before it was ready: {}",
            last_lines(&messages)
        )
    }

    /// Starts it and waits for the first reply: the next message of `queue`.
    /// Answers how long that took from before the process was made.
    ///
    /// # Errors
    /// As [`Server::start`], or there is no such message.
    pub(crate) fn start_timed(&mut self, queue: &str) -> Result<Duration> {
        let start = Instant::now();
        self.start()?;
        if !self.talk()?.peek(queue)? {
            bail!("after the start {queue} is empty");
        }
        Ok(start.elapsed())
    }

    /// SIGTERM, and waits for its end; answers how long that took.
    ///
    /// # Errors
    /// It does not end within a minute, or not well.
    pub(crate) fn stop(&mut self) -> Result<Duration> {
        let start = Instant::now();
        let mut child = self.child.take().context("the server does not run")?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("no process id")?, Signal::TERM)?;
        while start.elapsed() < STOP {
            if let Some(status) = child.try_wait()? {
                if !status.success() {
                    bail!("the server stopped with {status}");
                }
                return Ok(start.elapsed());
            }
            std::thread::sleep(LOOK);
        }
        // It is dropped with us, and killed then.
        self.child = Some(child);
        bail!("the server does not stop")
    }

    /// `kill -9`, and waits for its end.
    ///
    /// # Errors
    /// It does not run.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().context("the server does not run")?;
        child.kill().context("cannot kill the server")?;
        child.wait().context("cannot wait for the server")?;
        Ok(())
    }

    /// Stops and starts it in good order, so that little is in memory.
    ///
    /// # Errors
    /// As [`Server::stop`] and [`Server::start`].
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.stop()?;
        self.start()
    }

    /// A load on it in this voice, unbounded in time and count.
    ///
    /// # Errors
    /// There is no such voice.
    pub(crate) fn load(&self, voice: &str) -> Result<Load> {
        let target = match voice {
            "memcache" => &self.memcache,
            _ => &self.beanstalk,
        };
        let voice = Voice::named(voice).map_err(anyhow::Error::msg)?;
        Ok(Load::new(target.clone(), voice))
    }

    /// A connection in memcache's voice.
    ///
    /// # Errors
    /// It does not accept.
    pub(crate) fn talk(&self) -> Result<Talk> {
        Talk::connect(&self.memcache)
    }

    /// A connection in beanstalk's voice.
    ///
    /// # Errors
    /// It does not accept.
    pub(crate) fn talk_beanstalk(&self) -> Result<Talk> {
        Talk::connect(&self.beanstalk)
    }

    /// Its process id.
    ///
    /// # Errors
    /// It does not run.
    pub(crate) fn pid(&self) -> Result<u32> {
        let child = self.child.as_ref().context("the server does not run")?;
        Ok(child.id())
    }

    /// Its memory now.
    ///
    /// # Errors
    /// It does not run.
    pub(crate) fn memory(&self) -> Result<Memory> {
        Memory::of(self.pid()?)
    }

    /// Its data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// What it takes on the disk now.
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
        numbers(&self.program, &self.data())?
            .get(name)
            .and_then(Value::as_u64)
            .with_context(|| format!("the statistics have no {name}"))
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

impl Drop for Server {
    fn drop(&mut self) {
        // It is ours, and nothing it holds is kept.
        if let Some(mut child) = self.child.take()
            && child.kill().is_ok()
        {
            child.wait().ok();
        }
    }
}

fn numbers(program: &Path, data: &Path) -> Result<Value> {
    let mut command = Command::new(program);
    let output = command.args(["stats", "--json", "--data"]).arg(data);
    let output = output.output().context("cannot run quintet stats")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    serde_json::from_slice(&output.stdout).context("quintet stats wrote no JSON")
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::last_lines;

    #[test]
    fn the_last_lines_are_shown() {
        assert_eq!(last_lines("a\nb"), "a\nb");
        assert_eq!(last_lines("1\n2\n3\n4\n5\n6\n"), "2\n3\n4\n5\n6");
    }
}
