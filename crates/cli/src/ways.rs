//! `quintet cluster adopt`, `reseed` and `detach`: from one server to a cluster, from what is left
//! of one to another, and back.

use std::io::{Write as _, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use quintet_config::{CommandLine, Config, load};
use quintet_log::DirLock;
use quintet_nodes::{Fill, Found, Source, ahead, detach, doubt, fill, finish, is_unfinished};

use super::progress::Transfer;

/// Arguments of `cluster adopt`.
#[derive(clap::Args)]
#[command(after_help = "\
The server is stopped in good order before, and no node of the cluster runs. Its directory is only
read, and not needed any more when this says so: nodes get other ones. With --config the cluster's
settings, as nodes have them; shards must be what the server had.

With --runs-only the server goes on serving: what is brought are the runs that it has, so that less is
left for when it is stopped. As often as one likes; from the first time on no node of the cluster
starts before it is adopted.

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
    /// Bring the runs ahead, while the server serves.
    #[arg(long)]
    runs_only: bool,
}

/// Arguments of `cluster reseed`.
#[derive(clap::Args)]
#[command(after_help = "\
For when JetStream has lost the log. Run it on the machine of the node that is furthest: compare what
--dry-run says of each. All nodes are stopped before, and stay so until it is done. What
was acknowledged and is not in that node's mirror is gone.

Examples:
  quintet cluster reseed --config /etc/quintet.toml --dry-run
  quintet cluster reseed --config /etc/quintet.toml")]
pub(super) struct Reseed {
    /// Data directory of the node; the configuration's, unless told.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    of: Settings,
    /// Only say what is there.
    #[arg(long)]
    dry_run: bool,
    /// Delete the stream that is there, and do not mind nodes that were heard of lately.
    #[arg(long)]
    force: bool,
}

/// Arguments of `cluster detach`.
#[derive(clap::Args)]
#[command(after_help = "\
Stop all nodes but the owner, then the owner, each with SIGTERM; its directory has everything. The
new directory must be on the same file system. What JetStream has stays as it is.

Examples:
  quintet cluster detach --data /var/lib/quintet --to /var/lib/quintet-alone
  quintet serve --data /var/lib/quintet-alone")]
pub(super) struct Detach {
    /// Data directory of the node that owned the queues last.
    #[arg(long, value_name = "DIR", default_value = "data", env = "QUINTET_DATA")]
    data: PathBuf,
    /// The data directory of a single server that this makes.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Also if other nodes may have gone on since, or the mirror is cut short.
    #[arg(long)]
    force: bool,
}

/// A node's settings.
#[derive(clap::Args)]
struct Settings {
    /// Configuration file (TOML) with the cluster's settings.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The NATS servers, as nats://a:4222,nats://b:4222; else the configuration's.
    #[arg(long, value_name = "SERVERS")]
    cluster: Option<String>,
}

impl Settings {
    fn load(self, data: Option<PathBuf>) -> Result<Config> {
        let given = CommandLine {
            config: self.config,
            data,
            cluster: self.cluster,
            ..CommandLine::default()
        };
        let config = load(&given)?;
        if !config.cluster.is_on() {
            bail!("name the NATS servers: --config FILE with [cluster] nats, or --cluster");
        }
        Ok(config)
    }
}

/// The directory, which no server uses now.
fn lock(data: &Path) -> Result<DirLock> {
    if !data.is_dir() {
        bail!("{} is no directory", data.display());
    }
    Ok(DirLock::acquire(data)?)
}

fn shards_fit(config: &Config, source: &Source) -> Result<()> {
    let made = source.shards()?;
    if config.shards != made {
        bail!(
            "{} was made with shards = {made}, and the configuration has {}: all nodes need shards \
             = {made}",
            config.data.display(),
            config.shards
        );
    }
    Ok(())
}

fn said(found: &Found) -> String {
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
        let found = source.look()?;
        if let Some(cut) = &found.cut {
            bail!(
                "the log in {} is damaged or was not ended in order, {cut}: start the server once \
                 and stop it with SIGTERM, or see `quintet check` and `quintet repair`",
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
            bail!("{run} holds messages and is gone: see `quintet check` and `quintet repair`");
        }
        eprintln!("{}", said(&found));
        let mut progress = Transfer::new("adopt");
        let told = &mut |through, of| progress.at(through, of);
        let done = fill(&config, &source, &found, Fill::First, told);
        progress.clear();
        let done = done?;
        writeln!(
            stdout(),
            "{} has everything, {} entries, {} runs ({} of them brought before) and {} attachments \
             after {:.1} s: start the nodes, with other directories than {}",
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
        if !self.data.is_dir() {
            bail!("{} is no directory", self.data.display());
        }
        let config = self.of.load(Some(self.data.clone()))?;
        shards_fit(&config, &Source::alone(&self.data))?;
        let mut progress = Transfer::new("runs");
        let done = ahead(&config, &mut |through, of| progress.at(through, of));
        progress.clear();
        let done = done?;
        writeln!(
            stdout(),
            "{} runs with {} MiB are stored, {} were before, after {:.1} s: stop the server with \
             SIGTERM, then adopt it without --runs-only",
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
        let found = source.look()?;
        let mut out = stdout();
        writeln!(out, "{}: {}", source.log.display(), said(&found))?;
        if let Some(cut) = &found.cut {
            writeln!(out, "what is behind a gap is left out, {cut}")?;
        }
        if self.dry_run {
            return Ok(ExitCode::SUCCESS);
        }
        let mut progress = Transfer::new("reseed");
        let told = &mut |through, of| progress.at(through, of);
        let done = fill(&config, &source, &found, Fill::Again(self.force), told);
        progress.clear();
        let done = done?;
        writeln!(
            out,
            "{} is made anew, {} entries, {} runs and {} attachments after {:.1} s: start the nodes",
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
                "{to} is a single server's: a detach that was cut off is done. What else is in \
                 {data} is not needed"
            )?;
            return Ok(ExitCode::SUCCESS);
        }
        let source = Source::of_node(&self.data)?;
        let found = source.look()?;
        if let Some(doubt) = doubt(&found).filter(|_| !self.force) {
            bail!("{doubt} (--force: all the same)");
        }
        detach(&self.data, &source, &found, &self.to)
            .with_context(|| format!("{data} is not detached"))?;
        writeln!(
            stdout(),
            "{to} is a single server's: {}. What else is in {data} is not needed",
            said(&found)
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
