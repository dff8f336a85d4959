//! `quintet backup`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use quintet_host::{Contents, SHARDS_FILE};
use quintet_log::run::{RunBackup, backup_runs, list_runs};
use quintet_log::{BackupSummary, Disk};
use serde_json::json;

use super::{check::exists, progress::count_of, script_files, table::say};

/// How often to start over. A run is missing only if it was both made and
/// removed while the log was copied.
const ATTEMPTS: usize = 16;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet backup /backups/monday\n  quintet backup --data \
                        /var/lib/quintet /backups/monday\n\nA server may use the directory \
                        meanwhile. The copy is a data directory: quintet serve --data DIR. On the \
                        same file system, files that no longer change are hard links and need no \
                        space."
)]
pub(super) struct Backup {
    /// Data directory to copy.
    #[arg(long, value_name = "DIR", default_value = "data", env = "QUINTET_DATA")]
    data: PathBuf,
    /// Target directory: absent or empty
    target: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Backup {
    pub(super) fn run(self) -> Result<()> {
        exists(&self.data)?;
        if is_of_a_node(&self.data)? {
            bail!(
                "{} belongs to a node of a cluster, whose log is in NATS: copy the messages with \
                 `quintet export --data {0} --format gzip --all-states --output FILE`",
                self.data.display()
            );
        }
        let target = &self.target;
        quintet_log::make_dir(target)
            .with_context(|| format!("cannot create {}", target.display()))?;
        if fs::read_dir(target)?.next().is_some() {
            bail!("{} is not empty: name a new directory", target.display());
        }
        let shards = self.data.join(SHARDS_FILE);
        if shards.exists() {
            fs::read(&shards)
                .and_then(|text| quintet_log::replace_file(&target.join(SHARDS_FILE), &text))
                .with_context(|| format!("cannot copy {}", shards.display()))?;
        }
        let files = script_files::copy(&self.data, target)?;
        let (log, runs) = copy(&self.data, target)?;
        let files = files + script_files::copy(&self.data, target)?;
        script_files::sync(target)?;
        let (copied_bytes, all) = (
            log.copied_bytes + runs.copied_bytes,
            runs.linked + runs.copied,
        );
        let done = json!({
            "segments": log.segments,
            "linked": log.linked,
            "copied_bytes": copied_bytes,
            "runs": all,
            "runs_linked": runs.linked,
            "script_files": files,
        });
        let text = format!(
            "{}, {} of them linked, {}, {} of them linked, {} copied, {} of scripts",
            count_of(log.segments, "segment"),
            log.linked,
            count_of(all, "run"),
            runs.linked,
            count_of(copied_bytes, "byte"),
            count_of(files, "file")
        );
        say(self.json, done, text)
    }
}

/// True for the data directory of a cluster's node: it has mirrors of the log.
fn is_of_a_node(data: &Path) -> Result<bool> {
    for entry in fs::read_dir(data)? {
        let name = entry?.file_name();
        if name.to_string_lossy().starts_with("mirror-") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Copies the log and the runs, so that every run the copied log needs is in
/// the copy.
fn copy(data: &Path, target: &Path) -> Result<(BackupSummary, RunBackup)> {
    let (from, to) = (Disk::new(data), Disk::new(target));
    for _ in 0..ATTEMPTS {
        let before = backup_runs(&from, &to)?;
        let log = quintet_log::backup(&from, &to)?;
        let after = backup_runs(&from, &to)?;
        let there = list_runs(&to)?;
        let needed = Contents::read(target)?.needed();
        if needed.iter().all(|run| there.binary_search(run).is_ok()) {
            let runs = RunBackup {
                linked: before.linked + after.linked,
                copied: before.copied + after.copied,
                copied_bytes: before.copied_bytes + after.copied_bytes,
            };
            return Ok((log, runs));
        }
        clear(target)?;
    }
    clear(target)?;
    bail!(
        "cannot copy the runs: the server replaces them too fast, or some are missing: run \
         `quintet check`"
    );
}

/// Removes what an attempt made; the directory was empty before.
fn clear(target: &Path) -> Result<()> {
    for entry in fs::read_dir(target)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != SHARDS_FILE && name != script_files::FOLDER {
            fs::remove_file(entry.path())
                .with_context(|| format!("cannot remove {}", entry.path().display()))?;
        }
    }
    Ok(())
}
