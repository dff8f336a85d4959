//! The server under test: settings, start, end.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use quintet_faults::Faults;
use quintet_sim::Random;
use rustix::process::{Pid, Signal};

use crate::ledger::PROTOCOLS;
use crate::load::{MOVED_FROM, MOVED_TO, REFUSED_BYTES};
use crate::protocols::Addresses;

/// The longest a start or a stop may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A data directory's life: what is fixed when it is made.
pub(crate) struct Generation {
    pub(crate) data: PathBuf,
    shards: u64,
    io_threads: u64,
    spares: u64,
    chunk: &'static str,
}

impl Generation {
    /// One in `folder`, with settings by chance.
    pub(crate) fn new(folder: &Path, random: &mut Random) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        // Not in the data directory: a cut could undo it, and nothing syncs it.
        let script = folder.join("script.sh");
        let text = format!(
            "#!/bin/sh\necho \"$RQ_PARAM1\" >>'{}'\necho 'done well' >&3\n",
            folder.join("ran").display()
        );
        std::fs::write(&script, text)?;
        let rules = format!(
            "function before_put(msg)\n  if msg.queue == {MOVED_FROM:?} then\n    if msg.size % \
             {REFUSED_BYTES} == 0 then\n      return false, \"refused by a hook\"\n    end\n    \
             return {MOVED_TO:?}\n  end\nend\n"
        );
        std::fs::write(folder.join("rules.lua"), rules)?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&script, mode)?;
        Ok(Self {
            data: folder.join("data"),
            shards: [1, 2, 4][random.index(3)],
            io_threads: [1, 2, 4][random.index(3)],
            spares: 1 + random.below(2),
            chunk: ["64KiB", "256KiB"][random.index(2)],
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.data.parent().unwrap_or(&self.data)
    }

    /// The numbers that the script was run with.
    pub(crate) fn ran(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder().join("ran")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn settings(&self) -> String {
        format!(
            "{} shards, {} I/O threads, {} spare segments, chunks of {}",
            self.shards, self.io_threads, self.spares, self.chunk
        )
    }

    /// Settings that every server of it has: in front of others.
    pub(crate) fn shared(&self) -> String {
        format!(
            "hooks = {:?}\nhook_refuse_on_error = true\nshards = {}\nio_threads = {}\n",
            self.folder().join("rules.lua").display().to_string(),
            self.shards,
            self.io_threads,
        )
    }

    /// The queues' settings.
    pub(crate) fn queues(&self) -> String {
        format!(
            "[defaults]\ndefault_ttr = \"2s\"\nretention = \"3650d\"\n\
             [[queue]]\nname = \"rq\"\nscript = {:?}\nexec_prefix = \"\"\nnum_workers = 2\n",
            self.folder().join("script.sh").display().to_string(),
        )
    }

    fn config(&self, sync: &str) -> String {
        let mut text = format!(
            "{}data = {:?}\nsync = {sync:?}\nspare_segments = {}\n\
             chunk_bytes = {:?}\nsegment_bytes = \"4MiB\"\nlog_bytes = \"8MiB\"\n\
             memory = {:?}\n{}",
            self.shared(),
            self.data.display().to_string(),
            self.spares,
            self.chunk,
            // The smallest that works.
            if self.shards == 1 { "32MiB" } else { "56MiB" },
            self.queues(),
        );
        text += &listeners(|_| "127.0.0.1:0".to_owned());
        text
    }
}

/// A listener of every protocol that has one, at the address of its number.
pub(crate) fn listeners(address: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for (at, protocol) in PROTOCOLS.iter().enumerate() {
        let options = match *protocol {
            // The API is served by the listener of HTTP.
            "control" | "api" => continue,
            "beanstalk" => "max_job_size = \"1MiB\"\n",
            "faktory" => "fetch_wait_ms = 100\n",
            "pinpriq" => "refused_push = \"close\"\n",
            _ => "",
        };
        let address = address(at);
        text += &format!("[[listen]]\nprotocol = {protocol:?}\naddress = {address:?}\n{options}");
    }
    text
}

/// A running server.
pub(crate) struct Server {
    process: quintet_testkit::Server,
    pub(crate) addresses: Addresses,
}

/// How a start went.
pub(crate) enum Started {
    Ready(Box<Server>),
    /// It ended before it was ready.
    Ended(ExitStatus, String),
}

impl Server {
    /// Starts on the generation's directory under `faults`.
    pub(crate) fn start(
        binary: &Path,
        generation: &Generation,
        sync: &str,
        faults: &Faults,
    ) -> Result<Started> {
        let config = generation.folder().join("quintet.toml");
        std::fs::write(&config, generation.config(sync))?;
        let log = generation.folder().join("server.log");
        let mut command = Command::new(binary);
        command
            .args(["serve", "--config"])
            .arg(&config)
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null());
        faults.attach(&mut command);
        let process = quintet_testkit::Server::spawn_logged(&generation.data, command, &log);
        let mut process = process.context("the server cannot be started")?;
        let ended = process.try_ready();
        let ended =
            ended.with_context(|| format!("no start in time:\n{}", process.stderr_text()))?;
        let server = Self {
            addresses: process.addresses(binary),
            process,
        };
        Ok(match ended {
            None => Started::Ready(Box::new(server)),
            Some(status) => Started::Ended(status, server.stderr_text()),
        })
    }

    /// The end of what it wrote to standard error.
    pub(crate) fn stderr_text(&self) -> String {
        let text = self.process.stderr_text();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // It may have ended: then there is nothing to signal, and the pid is
        // ours until it is reaped.
        self.process.try_signal(signal).ok();
    }

    /// Whether it has ended, and how.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.process.child.try_wait()?)
    }

    /// Waits for its end, which something has caused.
    ///
    /// # Errors
    /// It goes on.
    pub(crate) fn end(&mut self) -> Result<ExitStatus> {
        let ended = self.process.end();
        ended.with_context(|| format!("it does not end:\n{}", self.stderr_text()))
    }
}

pub(crate) fn pid_of(child: &Child) -> Result<Pid> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.context("no process id")
}
