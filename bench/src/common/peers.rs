//! How servers are started, and where they write.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use quintet_bench::{Stream, Target};
use serde_json::Value;
use tempfile::TempDir;

/// A server may take this long to listen.
const START: Duration = Duration::from_secs(10);
/// The file of what a server says of errors, and how many lines of it are
/// shown when it fails.
const MESSAGES: &str = "messages";
const LAST_LINES: usize = 5;

/// Requirements for the start of servers.
#[derive(Clone, clap::Args)]
pub(crate) struct Ground {
    /// The quintet binary.
    #[arg(long, value_name = "FILE", default_value = "target/release/quintet")]
    pub(crate) quintet: PathBuf,
    /// The one that it is compared with.
    #[arg(skip)]
    pub(crate) against: Option<PathBuf>,
    /// Where the servers write; on the disk that is to be measured.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
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
    pub(crate) fn with_targets(
        command: &mut Command,
        dir: &Path,
    ) -> Result<(Self, BTreeMap<String, Target>)> {
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
    ///
    /// # Errors
    /// It does not come to listen.
    pub(crate) fn at(
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
    let changed = git("status --porcelain -- crates bench :!bench/results Cargo.lock");
    let changed = changed.is_some_and(|text| !text.is_empty());
    Some(commit + if changed { " and changes" } else { "" })
}
