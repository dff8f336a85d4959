//! The way back: a node's directory becomes a single server's.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use quintet_host::SHARDS_FILE;

use super::source::{LogContents, Source};

/// The folder of scripts, in a data directory.
const SCRIPTS: &str = "rq";
/// A file in the new directory until it has everything.
const UNFINISHED: &str = "detaching";

/// Why a node's directory is not what the cluster had in the end, if it is not.
pub fn doubt(found: &LogContents) -> Option<String> {
    if let Some(cut) = &found.cut {
        return Some(format!("the mirror of the log is damaged, {cut}"));
    }
    match found.handoff.as_deref() {
        Some("") => None,
        Some(successor) => Some(format!(
            "this node handed the queues over to {successor} when it stopped: later changes are there"
        )),
        None => Some(
            "this node is not the last owner of the queues, or did not stop cleanly: stop the \
             other nodes, then the owner with SIGTERM, and detach the owner's directory"
                .to_owned(),
        ),
    }
}

/// Makes the mirror, with its runs, the data directory `to`, which must not be there and on the
/// same file system.
///
/// # Errors
/// It cannot; `to` is not there then, and it may be tried again; or it is there and
/// [`is_unfinished`].
pub fn detach(data: &Path, source: &Source, found: &LogContents, to: &Path) -> Result<()> {
    if fs::symlink_metadata(to).is_ok() {
        bail!("{} exists already", to.display());
    }
    if let Some(run) = found.missing.first() {
        bail!(
            "{run} holds messages and is not in {}: start the node until `quintet cluster status` \
             shows no runs to fetch, then stop it again",
            source.runs.display()
        );
    }
    for run in &found.needed {
        let (from, into) = (
            source.runs.join(run.to_string()),
            source.log.join(run.to_string()),
        );
        if fs::symlink_metadata(&into).is_ok() {
            fs::remove_file(&into).with_context(|| format!("cannot replace {}", into.display()))?;
        }
        fs::hard_link(&from, &into)
            .with_context(|| format!("cannot link {} to {}", from.display(), into.display()))?;
    }
    let shards = data.join(SHARDS_FILE);
    if fs::symlink_metadata(&shards).is_ok() {
        fs::read(&shards)
            .and_then(|text| quintet_log::replace_file(&source.log.join(SHARDS_FILE), &text))
            .context("cannot copy the number of shards")?;
    }
    quintet_log::replace_file(&source.log.join(UNFINISHED), b"").context("cannot write a note")?;
    fs::rename(&source.log, to).with_context(|| {
        format!(
            "cannot rename {} to {}: it must be on the same file system",
            source.log.display(),
            to.display()
        )
    })?;
    finish(data, to)
}

/// Whether a detach to `to` was cut off when all but the files of scripts was there.
pub fn is_unfinished(to: &Path) -> bool {
    fs::symlink_metadata(to.join(UNFINISHED)).is_ok()
}

/// Brings the files of scripts as well.
///
/// # Errors
/// It cannot, and may be tried again.
pub fn finish(data: &Path, to: &Path) -> Result<()> {
    let sync = |dir: &Path| {
        let synced = fs::File::open(dir).and_then(|dir| dir.sync_all());
        synced.with_context(|| format!("cannot sync {}", dir.display()))
    };
    quintet_log::sync_name(to).with_context(|| format!("cannot sync {}", to.display()))?;
    let scripts = data.join(SCRIPTS);
    if fs::symlink_metadata(&scripts).is_ok() {
        fs::rename(&scripts, to.join(SCRIPTS)).with_context(|| {
            format!(
                "everything but {} is in {}",
                scripts.display(),
                to.display()
            )
        })?;
    }
    sync(to)?;
    sync(data)?;
    let note = to.join(UNFINISHED);
    fs::remove_file(&note).with_context(|| format!("cannot remove {}", note.display()))?;
    sync(to)
}
