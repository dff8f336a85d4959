//! The servers compared, each on a loopback port and a directory of its own.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use quintet_bench::{Protocol, Stream, Target, Usage};
use serde_json::Value;
use tempfile::TempDir;

/// A server may take this long to listen.
const START: Duration = Duration::from_secs(10);
/// Connections each server must take.
const CONNECTIONS: &str = "16384";
/// The file of what a server says of errors, and how many lines of it are
/// shown when it fails.
const MESSAGES: &str = "messages";
const LAST_LINES: usize = 5;

/// A server and when it makes what it says durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Quintet with this `sync`, asked in this protocol.
    Quintet(&'static str, &'static str),
    /// The same of the binary that it is compared with (`--against`).
    Against(&'static str, &'static str),
    /// memcached: one thread, no durability at all.
    Memcached,
    /// Redis with this `appendfsync`, or without a log.
    Redis(Option<&'static str>),
    /// beanstalkd with a log synced after so many ms at most, or without one.
    Beanstalkd(Option<&'static str>),
    /// The bare echo.
    Echo,
    /// The bare echo that answers what was synced.
    SyncedEcho,
}

/// Requirements for the start of servers.
pub(crate) struct Ground {
    /// The quintet binary.
    pub(crate) quintet: PathBuf,
    /// The one that it is compared with.
    pub(crate) against: Option<PathBuf>,
    /// Directories of servers are made here.
    pub(crate) scratch: PathBuf,
}

impl Ground {
    /// A directory for a server.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn dir(&self) -> Result<TempDir> {
        TempDir::new_in(&self.scratch).context("cannot make a directory")
    }
}

/// A port that is free now.
///
/// # Errors
/// None is.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Kind {
    /// For people.
    pub(crate) fn name(self) -> String {
        match self {
            Kind::Quintet(sync, _) => format!("Quintet, sync {sync}"),
            Kind::Against(sync, _) => format!("against, sync {sync}"),
            Kind::Memcached => "memcached".to_owned(),
            Kind::Redis(None) => "Redis, no log".to_owned(),
            Kind::Redis(Some(sync)) => format!("Redis, log synced {sync}"),
            Kind::Beanstalkd(None) => "beanstalkd, no log".to_owned(),
            Kind::Beanstalkd(Some("0")) => "beanstalkd, log synced always".to_owned(),
            Kind::Beanstalkd(Some(ms)) => format!("beanstalkd, log synced {ms} ms"),
            Kind::Echo => "bare echo".to_owned(),
            Kind::SyncedEcho => "bare echo, synced".to_owned(),
        }
    }

    /// It is a Quintet, of either binary.
    pub(crate) fn is_quintet(self) -> bool {
        matches!(self, Kind::Quintet(..) | Kind::Against(..))
    }

    /// The same of the binary that this one is compared with; `None` of a peer.
    pub(crate) fn against(self) -> Option<Self> {
        match self {
            Kind::Quintet(sync, protocol) => Some(Kind::Against(sync, protocol)),
            _ => None,
        }
    }

    /// The name of its protocol.
    pub(crate) fn protocol(self) -> &'static str {
        match self {
            Kind::Quintet(_, protocol) | Kind::Against(_, protocol) => protocol,
            Kind::Memcached => "memcache",
            Kind::Redis(_) => "resp",
            Kind::Beanstalkd(_) => "beanstalk",
            Kind::Echo | Kind::SyncedEcho => "echo",
        }
    }

    /// It keeps messages on disk.
    pub(crate) fn is_durable(self) -> bool {
        match self {
            Kind::Quintet(sync, _) | Kind::Against(sync, _) => sync != "never",
            Kind::Redis(log) | Kind::Beanstalkd(log) => log.is_some(),
            Kind::SyncedEcho => true,
            Kind::Memcached | Kind::Echo => false,
        }
    }

    fn program(self, ground: &Ground) -> Option<PathBuf> {
        let name = match self {
            Kind::Quintet(..) => return Some(ground.quintet.clone()),
            Kind::Against(..) => return ground.against.clone(),
            Kind::Echo | Kind::SyncedEcho => return std::env::current_exe().ok(),
            Kind::Memcached => "memcached",
            Kind::Redis(_) => "redis-server",
            Kind::Beanstalkd(_) => "beanstalkd",
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .chain([PathBuf::from("/usr/bin"), PathBuf::from("/usr/sbin")])
            .map(|folder| folder.join(name))
            .find(|program| program.is_file())
    }

    /// It can be started here.
    pub(crate) fn is_installed(self, ground: &Ground) -> bool {
        self.program(ground)
            .is_some_and(|program| program.is_file())
    }

    /// Its version, as it tells it.
    pub(crate) fn version(self, ground: &Ground) -> Option<String> {
        let flag = match self {
            Kind::Beanstalkd(_) => "-v",
            _ => "--version",
        };
        let output = Command::new(self.program(ground)?)
            .arg(flag)
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stdout);
        Some(text.lines().next()?.trim().to_owned())
    }

    /// Its settings, for people.
    pub(crate) fn describe_settings(self) -> String {
        let settings = self.settings().into_iter().map(|word| match word {
            "" => "\"\"",
            word => word,
        });
        let mut text = settings.collect::<Vec<_>>().join(" ");
        if self.is_quintet() {
            text += &format!(" (connections_max = {CONNECTIONS})");
        }
        text
    }

    /// Its settings, without the port and the directory.
    fn settings(self) -> Vec<&'static str> {
        match self {
            Kind::Quintet(sync, _) | Kind::Against(sync, _) => vec!["serve", "--sync", sync],
            Kind::Memcached => vec!["-t", "1", "-U", "0", "-c", CONNECTIONS, "-l", "127.0.0.1"],
            Kind::Redis(log) => {
                let mut settings = vec!["--bind", "127.0.0.1", "--save", "", "--appendonly"];
                match log {
                    Some(sync) => settings.extend(["yes", "--appendfsync", sync]),
                    None => settings.push("no"),
                }
                settings.extend(["--maxclients", CONNECTIONS]);
                settings
            }
            Kind::Beanstalkd(log) => {
                // The size is the largest job it takes, bytes.
                let mut settings = vec!["-l", "127.0.0.1", "-z", "16777216"];
                if let Some(ms) = log {
                    settings.extend(["-f", ms]);
                }
                settings
            }
            Kind::Echo => vec!["echo"],
            Kind::SyncedEcho => vec!["echo", "--synced"],
        }
    }

    /// Starts it on a directory of its own and waits until it listens.
    ///
    /// # Errors
    /// It is not installed, or does not come to listen.
    pub(crate) fn start(self, ground: &Ground) -> Result<Peer> {
        let dir = ground.dir()?;
        let program = self.program(ground);
        let program = program.with_context(|| format!("{} is not installed", self.name()))?;
        let (port, path) = (free_port()?.to_string(), dir.path());
        let mut command = Command::new(program);
        command.args(self.settings());
        let (process, targets) = match self {
            Kind::Quintet(_, protocol) | Kind::Against(_, protocol) => {
                let config = format!("connections_max = {CONNECTIONS}\n");
                Process::quintet(&mut command, path, &config, &[protocol])?
            }
            Kind::Memcached => {
                // It refuses to run as root without being told who to be.
                if rustix::process::geteuid().is_root() {
                    command.args(["-u", "nobody"]);
                }
                Process::at(&port, command.args(["-p", &port]), path)?
            }
            Kind::Redis(_) => {
                let command = command.args(["--port", &port, "--dir"]).arg(path);
                Process::at(&port, command, path)?
            }
            Kind::Beanstalkd(log) => {
                if log.is_some() {
                    command.arg("-b").arg(path);
                }
                Process::at(&port, command.args(["-p", &port]), path)?
            }
            Kind::Echo => Process::with_targets(&mut command, path)?,
            Kind::SyncedEcho => Process::with_targets(command.arg(path.join("echo")), path)?,
        };
        Ok(Peer {
            target: targets.into_values().next().context("no address")?,
            process,
            _dir: dir,
        })
    }
}

/// Has the program print JSON about the server of this data directory.
///
/// # Errors
/// It fails.
pub(crate) fn json_of(program: &Path, words: &[&str], data: &Path) -> Result<Value> {
    let mut command = Command::new(program);
    command.args(words).args(["--json", "--data"]).arg(data);
    let output = command.stdin(Stdio::null()).output()?;
    let words = words.join(" ");
    serde_json::from_slice(&output.stdout).with_context(|| {
        let printed = String::from_utf8_lossy(&output.stderr);
        format!("quintet {words} wrote no JSON: {}", printed.trim_end())
    })
}

/// A running server; killed when dropped, and its directory removed.
pub(crate) struct Peer {
    pub(crate) target: Target,
    process: Process,
    _dir: TempDir,
}

impl Peer {
    /// The load's end of its protocol.
    pub(crate) fn protocol(kind: Kind) -> Result<Protocol> {
        Protocol::named(kind.protocol()).map_err(anyhow::Error::msg)
    }

    /// Its usage so far.
    pub(crate) fn usage(&self) -> Result<Usage> {
        Usage::of(self.process.0.id())
    }
}

/// A process of ours; killed when dropped.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Starts one; what it says of errors goes to a file in `dir`.
    ///
    /// # Errors
    /// It is not there, or the file cannot be made.
    pub(crate) fn spawn(command: &mut Command, dir: &Path) -> Result<Self> {
        let messages = File::create(dir.join(MESSAGES))?;
        let child = command.stdin(Stdio::null()).stderr(messages).spawn();
        let context = || format!("cannot start {}", command.get_program().display());
        Ok(Self(child.with_context(context)?))
    }

    /// Starts a Quintet on a directory with this configuration, and waits until it listens in
    /// these protocols.
    ///
    /// # Errors
    /// As [`Process::with_targets`]; its configuration cannot be written.
    pub(crate) fn quintet(
        command: &mut Command,
        dir: &Path,
        config: &str,
        protocols: &[&str],
    ) -> Result<(Self, BTreeMap<String, Target>)> {
        let path = dir.join("quintet.toml");
        fs::write(&path, config)?;
        for protocol in protocols {
            command.args(["--listen", &format!("{protocol}=127.0.0.1:0")]);
        }
        let data = dir.join("data");
        command.arg("--config").arg(path).arg("--data").arg(data);
        Self::with_targets(command, dir)
    }

    /// Starts one that prints where it listens, by protocol, and then that it is
    /// ready.
    ///
    /// # Errors
    /// It ends before that; says its last words.
    fn with_targets(command: &mut Command, dir: &Path) -> Result<(Self, BTreeMap<String, Target>)> {
        let mut process = Self::spawn(command.stdout(Stdio::piped()), dir)?;
        let out = process.0.stdout.as_mut().context("no output")?;
        let mut targets = BTreeMap::new();
        for line in BufReader::new(out).lines() {
            let line = line?;
            if let Some((protocol, address)) = line
                .strip_prefix("listening ")
                .and_then(|rest| rest.split_once(' '))
                && let Ok(target) = Target::parse(address)
            {
                targets.insert(protocol.to_owned(), target);
            }
            if line.ends_with(" ready") {
                return Ok((process, targets));
            }
        }
        let messages = fs::read_to_string(dir.join(MESSAGES)).unwrap_or_default();
        let last: Vec<&str> = messages.lines().rev().take(LAST_LINES).collect();
        bail!(
            "the server ended before it was ready; it said last: {}",
            last.join(" / ")
        )
    }

    /// Starts one and waits until it listens at this port.
    fn at(
        port: &str,
        command: &mut Command,
        dir: &Path,
    ) -> Result<(Self, BTreeMap<String, Target>)> {
        let target = Target::parse(port).map_err(anyhow::Error::msg)?;
        let mut process = Self::spawn(command.stdout(Stdio::null()), dir)?;
        let start = Instant::now();
        while Stream::connect(&target, None).is_err() {
            if let Some(status) = process.0.try_wait()? {
                bail!("the server ended at once: {status}");
            }
            ensure!(start.elapsed() < START, "the server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok((process, BTreeMap::from([(String::new(), target)])))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It is ours, and nothing it holds is kept.
        if self.0.kill().is_ok() {
            self.0.wait().ok();
        }
    }
}

/// The commit the sources are at, and whether they were changed since.
pub(crate) fn commit(root: &Path) -> Option<String> {
    let git = |words: &str| {
        let mut git = Command::new("git");
        let output = git.args(words.split(' ')).current_dir(root).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git("rev-parse --short=12 HEAD").filter(|text| !text.is_empty())?;
    let changed = git("status --porcelain -- crates bench/src Cargo.lock");
    let changed = changed.is_some_and(|text| !text.is_empty());
    Some(commit + if changed { " and changes" } else { "" })
}
