//! The server under test: settings, start, end.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use quintet_faults::Faults;
use quintet_sim::Random;
use rustix::process::{Pid, Signal, kill_process};

use crate::ledger::VOICES;
use crate::load::{MOVED_FROM, MOVED_TO, REFUSED_BYTES};
use crate::voices::Addresses;

/// The longest a start or a stop may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A data directory's life: what is fixed when it is made.
pub(crate) struct Era {
    pub(crate) data: PathBuf,
    shards: u64,
    io_threads: u64,
    spares: u64,
    chunk: &'static str,
}

impl Era {
    /// One in `folder`, with settings by chance.
    pub(crate) fn new(folder: &Path, random: &mut Random) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        // Not in the data directory: a cut could undo it, and nothing syncs it.
        let script = folder.join("script.sh");
        let text = format!(
            "#!/bin/sh\necho \"$RQ_PARAM1\" >>{}\necho 'done well' >&3\n",
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
            shards: [1, 4][random.index(2)],
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

/// A listener of every voice that has one, at the address of its number.
pub(crate) fn listeners(address: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for (at, voice) in VOICES.iter().enumerate() {
        let options = match *voice {
            "control" => continue,
            "beanstalk" => "max_job_size = \"1MiB\"\n",
            "pinpriq" => "refused_push = \"close\"\n",
            _ => "",
        };
        let address = address(at);
        text += &format!("[[listen]]\nvoice = {voice:?}\naddress = {address:?}\n{options}");
    }
    text
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    pub(crate) addresses: Addresses,
    log: PathBuf,
    log_from: u64,
}

/// How a start went.
pub(crate) enum Started {
    Ready(Box<Server>),
    /// It ended before it was ready.
    Ended(ExitStatus, String),
}

impl Server {
    /// Starts on the era's directory under `faults`.
    pub(crate) fn start(binary: &Path, era: &Era, sync: &str, faults: &Faults) -> Result<Started> {
        let config = era.folder().join("quintet.toml");
        std::fs::write(&config, era.config(sync))?;
        let log = era.folder().join("server.log");
        let to = OpenOptions::new().create(true).append(true).open(&log)?;
        let log_from = to.metadata()?.len();
        let mut command = Command::new(binary);
        command
            .args(["serve", "--config"])
            .arg(&config)
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(to);
        faults.attach(&mut command);
        let mut child = command.spawn().context("the server cannot be started")?;
        let output = child.stdout.take().context("no standard output")?;
        let mut addresses = Addresses {
            of: Default::default(),
            binary: binary.to_owned(),
            data: era.data.clone(),
        };
        let began = Instant::now();
        // A start that never ends is ended: its output ends then.
        let pid = pid_of(&child)?;
        let (ready, awaited) = std::sync::mpsc::channel::<()>();
        let guard = std::thread::spawn(move || {
            use std::sync::mpsc::RecvTimeoutError;
            if awaited.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                kill_process(pid, Signal::KILL).ok();
            }
        });
        let mut is_ready = false;
        for line in BufReader::new(output).lines() {
            let line = line?;
            if line == "quintet ready" {
                is_ready = true;
                break;
            }
            let mut words = line.split(' ').skip(1);
            if let (Some(voice), Some(address)) = (words.next(), words.next())
                && let Some(at) = VOICES.iter().position(|name| *name == voice)
            {
                addresses.of[at] = address.to_owned();
            }
        }
        drop(ready);
        guard.join().ok();
        let mut server = Self {
            child,
            addresses,
            log,
            log_from,
        };
        if is_ready {
            return Ok(Started::Ready(Box::new(server)));
        }
        let status = server.child.wait()?;
        if began.elapsed() >= PATIENCE {
            bail!("no start within {PATIENCE:?}:\n{}", server.said());
        }
        let said = server.said();
        Ok(Started::Ended(status, said))
    }

    /// What it wrote to standard error.
    pub(crate) fn said(&self) -> String {
        let mut bytes = Vec::new();
        let read = File::open(&self.log).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.log_from))?;
            file.read_to_end(&mut bytes)
        });
        read.ok();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // It may have ended: then there is nothing to signal, and the pid is
        // ours until it is reaped.
        if let Ok(pid) = pid_of(&self.child) {
            kill_process(pid, signal).ok();
        }
    }

    /// Whether it has ended, and how.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for its end, which something has caused.
    ///
    /// # Errors
    /// It goes on.
    pub(crate) fn end(&mut self) -> Result<ExitStatus> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if began.elapsed() > PATIENCE {
                bail!("it does not end within {PATIENCE:?}:\n{}", self.said());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Errors: it is gone already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

pub(crate) fn pid_of(child: &Child) -> Result<Pid> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.context("no process id")
}
