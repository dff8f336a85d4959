//! `quintet backup`.

use std::fs;
use std::io::{Write as _, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use quintet_log::Disk;
use serde_json::json;

use super::check::exists;
use crate::core::SHARDS_FILE;

/// Arguments of `backup`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet backup /backups/monday\n  quintet backup --data \
                        /var/lib/quintet /backups/monday\n\nWorks while a server uses the \
                        directory. The copy opens as a data directory: quintet serve --data DIR. \
                        Where both are on one file system, files that no longer change share \
                        their bytes with the original."
)]
pub(super) struct Backup {
    /// Data directory to copy.
    #[arg(long, value_name = "DIR", default_value = "data", env = "QUINTET_DATA")]
    data: PathBuf,
    /// Where to; made if absent, and empty before.
    target: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Backup {
    pub(super) fn run(self) -> Result<ExitCode> {
        exists(&self.data)?;
        let target = &self.target;
        fs::create_dir_all(target).with_context(|| format!("cannot make {}", target.display()))?;
        if fs::read_dir(target)?.next().is_some() {
            bail!("{} is not empty: name a new directory", target.display());
        }
        let shards = self.data.join(SHARDS_FILE);
        if shards.exists() {
            fs::copy(&shards, target.join(SHARDS_FILE))
                .with_context(|| format!("cannot copy {}", shards.display()))?;
        }
        let summary = quintet_log::backup(&Disk::new(&self.data), &Disk::new(target))?;
        let mut out = stdout().lock();
        if self.json {
            let done = json!({
                "segments": summary.segments,
                "linked": summary.linked,
                "copied_bytes": summary.copied_bytes,
            });
            writeln!(out, "{done}")?;
        } else {
            writeln!(
                out,
                "{} segments, {} of them linked, {} bytes copied",
                summary.segments, summary.linked, summary.copied_bytes
            )?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
