//! `quintet cluster adopt`, `reseed` and `detach`: from one server to a cluster, from what is left
//! of one to another, and back.

use std::io::{Write as _, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use quintet_config::{CommandLine, Config, load};
use quintet_log::DirLock;
use quintet_nodes::{Fill, LogContents, Source, ahead, detach, doubt, fill, finish, is_unfinished};

use super::progress::transfer;

#[derive(clap::Args)]
#[command(after_help = "\
Stop the server with SIGTERM first, and run no node of the cluster. The command only reads the
directory of the server; after success you do not need it any more. Give the nodes other
directories. --config has the settings of the cluster, as on the nodes; shards must be as on the
server.

With --runs-only the server may run: the command copies its present runs ahead, so that the stop is
shorter. You may repeat it. After the first time no node of the cluster starts before the adoption
is complete.

Examples:
  quintet cluster adopt --data /var/lib/quintet --config /etc/quintet-cluster.toml --runs-only
  systemctl stop quintet
  quintet cluster adopt --data /var/lib/quintet --config /etc/quintet-cluster.toml")]
pub(super) struct Adopt {
    /// Data directory of the stopped server.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    #[command(flatten)]
    of: Settings,
    /// Only copy the runs ahead, while the server runs.
    #[arg(long)]
    runs_only: bool,
}

#[derive(clap::Args)]
#[command(after_help = "\
Use it after JetStream has lost the log. Stop all nodes, and start none until the command is done.
Compare the nodes with --dry-run, and run the command on the machine with the newest mirror.
Acknowledged changes that are missing from this mirror are lost.

Examples:
  quintet cluster reseed --config /etc/quintet.toml --dry-run
  quintet cluster reseed --config /etc/quintet.toml")]
pub(super) struct Reseed {
    /// Data directory of the node [default: from the configuration].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    of: Settings,
    /// Only print the contents of the mirror.
    #[arg(long)]
    dry_run: bool,
    /// Delete the existing stream, and ignore nodes that ran a short time ago.
    #[arg(long)]
    force: bool,
}

#[derive(clap::Args)]
#[command(after_help = "\
Stop all nodes but the owner, then the owner, each with SIGTERM. The directory of the owner has all
messages. The new directory must be on the same file system. The data in JetStream does not change.

Examples:
  quintet cluster detach --data /var/lib/quintet --to /var/lib/quintet-alone
  quintet serve --data /var/lib/quintet-alone")]
pub(super) struct Detach {
    /// Data directory of the node that owned the queues last.
    #[arg(long, value_name = "DIR", default_value = "data", env = "QUINTET_DATA")]
    data: PathBuf,
    /// New data directory for a single server.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Detach even if other nodes may have newer messages, or the mirror is incomplete.
    #[arg(long)]
    force: bool,
}

/// A node's settings.
#[derive(clap::Args)]
struct Settings {
    /// Configuration file (TOML) with the cluster's settings.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// NATS servers, as nats://a:4222,nats://b:4222 [default: from the configuration].
    #[arg(long, value_name = "SERVERS")]
    cluster: Option<String>,
}

impl Settings {
    fn load(self, data: Option<PathBuf>) -> Result<Config> {
        let command_line = CommandLine {
            config: self.config,
            data,
            cluster: self.cluster,
            ..CommandLine::default()
        };
        let config = load(&command_line)?;
        if !config.cluster.is_on() {
            bail!("no NATS servers: give --config FILE with [cluster] nats, or --cluster");
        }
        Ok(config)
    }
}

fn exists(data: &Path) -> Result<()> {
    let shown = data.display();
    match data.is_dir() {
        true => Ok(()),
        false => bail!("{shown} is not a directory: name one with --data"),
    }
}

/// The directory, which no server uses now.
fn lock(data: &Path) -> Result<DirLock> {
    exists(data)?;
    Ok(DirLock::acquire(data)?)
}

fn shards_fit(config: &Config, source: &Source) -> Result<()> {
    let made = source.shards()?;
    if config.shards != made {
        bail!(
            "{} has shards = {made}, and the configuration shards = {}: set shards = {made} on \
             all nodes",
            config.data.display(),
            config.shards
        );
    }
    Ok(())
}

fn describe(found: &LogContents) -> String {
    let written = humantime_of(found.last_ms);
    format!(
        "{} frames, {} MiB, {} runs, {} of them not here; the last was written {written}",
        found.frames,
        found.bytes >> 20,
        found.needed.len(),
        found.missing.len()
    )
}

/// A wall clock's time, as an age.
fn humantime_of(ms: u64) -> String {
    let age = UNIX_EPOCH.elapsed().unwrap_or_default();
    let age = age.saturating_sub(Duration::from_millis(ms)).as_secs();
    match age {
        0..120 => format!("{age} s ago (Unix ms {ms})"),
        120..7200 => format!("{} min ago (Unix ms {ms})", age / 60),
        _ => format!("{} h ago (Unix ms {ms})", age / 3600),
    }
}

impl Adopt {
    pub(super) fn run(self) -> Result<ExitCode> {
        if self.runs_only {
            return self.runs_only();
        }
        let _lock = lock(&self.data)?;
        let config = self.of.load(Some(self.data.clone()))?;
        let source = Source::alone(&self.data);
        shards_fit(&config, &source)?;
        let found = source.inspect()?;
        if let Some(cut) = &found.cut {
            bail!(
                "the log in {} is damaged or the server did not stop cleanly, {cut}: start the \
                 server once and stop it with SIGTERM, or run `quintet check` and `quintet \
                 repair`",
                self.data.display()
            );
        }
        if found.frames == 0 {
            bail!(
                "{} holds no log: start the nodes without it",
                self.data.display()
            );
        }
        if let Some(run) = found.missing.first() {
            bail!("{run} holds messages and is missing: run `quintet check` and `quintet repair`");
        }
        eprintln!("{}", describe(&found));
        let done = transfer("adopt", true, |report| {
            fill(&config, &source, &found, Fill::First, report)
        })?;
        writeln!(
            stdout(),
            "{} is complete: {} entries, {} runs ({} of them copied before) and {} attachments in \
             {:.1} s. Now start the nodes, with other directories than {}",
            done.stream,
            done.entries,
            done.runs,
            done.ahead,
            done.attachments,
            done.seconds,
            self.data.display()
        )?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Adopt {
    /// Nothing is locked, as the server serves.
    fn runs_only(self) -> Result<ExitCode> {
        exists(&self.data)?;
        let config = self.of.load(Some(self.data.clone()))?;
        shards_fit(&config, &Source::alone(&self.data))?;
        let done = transfer("runs", true, |report| ahead(&config, report))?;
        writeln!(
            stdout(),
            "{} runs with {} MiB are copied, {} were there before, in {:.1} s: stop the server \
             with SIGTERM, then adopt it without --runs-only",
            done.stored,
            done.bytes >> 20,
            done.there,
            done.seconds
        )?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Reseed {
    pub(super) fn run(self) -> Result<ExitCode> {
        let config = self.of.load(self.data)?;
        let _lock = lock(&config.data)?;
        let source = Source::of_node(&config.data)?;
        shards_fit(&config, &source)?;
        let found = source.inspect()?;
        let mut out = stdout();
        writeln!(out, "{}: {}", source.log.display(), describe(&found))?;
        if let Some(cut) = &found.cut {
            writeln!(out, "the entries after a gap are left out, {cut}")?;
        }
        if self.dry_run {
            return Ok(ExitCode::SUCCESS);
        }
        let done = transfer("reseed", true, |report| {
            fill(&config, &source, &found, Fill::Again(self.force), report)
        })?;
        writeln!(
            out,
            "{} is complete: {} entries, {} runs and {} attachments in {:.1} s. Now start the \
             nodes",
            done.stream, done.entries, done.runs, done.attachments, done.seconds
        )?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Detach {
    pub(super) fn run(self) -> Result<ExitCode> {
        let _lock = lock(&self.data)?;
        let (data, to) = (self.data.display(), self.to.display());
        if is_unfinished(&self.to) {
            finish(&self.data, &self.to)?;
            writeln!(
                stdout(),
                "{to} is a single server's: the interrupted detach is complete. You do not need \
                 {data} any more"
            )?;
            return Ok(ExitCode::SUCCESS);
        }
        let source = Source::of_node(&self.data)?;
        let found = source.inspect()?;
        if let Some(doubt) = doubt(&found).filter(|_| !self.force) {
            bail!("{doubt} (--force detaches all the same)");
        }
        detach(&self.data, &source, &found, &self.to)
            .with_context(|| format!("{data} is not detached"))?;
        writeln!(
            stdout(),
            "{to} is a single server's: {}. You do not need {data} any more",
            describe(&found)
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
