//! A new log for a cluster, filled from a directory: a single server becomes a cluster, or a cluster
//! that lost its stream goes on with what a node has.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, bail};
use quintet_cluster::{Fences, Limits, StreamLog, StreamStore, Threads, Writer};
use quintet_jetstream::{JetStream, Names, Objects};
use quintet_log::{Disk, FrameBuf, FrameKind, Log as _, Options, ReplayFrame, Stamp, Storage as _};

use super::files::place;
use super::source::{Found, Source};
use super::{checks, registry};
use crate::config::Config;
use crate::scripts;

/// Bytes that are sent before they are waited for.
const AT_ONCE: u64 = 4 << 20;
/// A directory of its own for the copy that an owner writes while it appends.
const FOLDER: &str = "filling";

/// What a cluster's log is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    /// A cluster that has none yet.
    First,
    /// One that has lost it; also one that has not, if this is true.
    Again(bool),
}

/// What was done.
pub(crate) struct Filled {
    pub(crate) stream: String,
    pub(crate) entries: u64,
    pub(crate) runs: usize,
    /// Files that messages of scripts have, or had.
    pub(crate) attachments: usize,
    pub(crate) seconds: f64,
}

/// Makes the stream and fills it.
///
/// # Errors
/// It must not be, and why; or it could not be finished, and is to be tried again: no node uses a
/// stream that is not whole.
pub(crate) fn fill(config: &Config, source: &Source, found: &Found, how: Fill) -> Result<Filled> {
    let began = Instant::now();
    let cluster = &config.cluster;
    let faults = cluster.faults();
    if !faults.is_empty() {
        bail!("[cluster] cannot be used:\n  {}", faults.join("\n  "));
    }
    let stream = JetStream::connect(&checks::servers(cluster)?, Names::of(&cluster.name, 0))?;
    checks::of_servers(&stream, cluster)?;
    let replicas = usize::try_from(cluster.replicas).unwrap_or(3);
    // The standard library's hash keys are random.
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
    let begun = registry::begin_fill(&stream, cluster, config.shards, Writer(random), how)?;
    let begun = begun.map_err(|why| anyhow!(why))?;
    let runs = stream.runs(replicas, &cluster.placement_tags)?;
    bring_runs(source, found, &runs)?;
    let files = stream.files(replicas, &cluster.placement_tags)?;
    let attachments = bring_attachments(&scripts::root(config), &files)?;

    let folder = config.data.join(FOLDER);
    remove(&folder)?;
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let stream = Arc::new(stream);
    let store = StreamStore {
        stream: Arc::<JetStream>::clone(&stream),
        mirror: Arc::new(Disk::new(&folder)),
        options: Options {
            segment_bytes: config.segment_bytes,
            ..Options::default()
        },
        cluster: begun.cluster,
        node: cluster.node(),
        link: String::new(),
        limits: Limits::default(),
        world: Arc::new(Threads::new()),
        fences: Fences::default(),
    };
    let (log, _) = store.own(&mut |_| Err("a new stream is empty".to_owned()))?;
    let last = append_all(source, log)?;
    remove(&folder)?;
    registry::end_fill(&stream, cluster, &begun)?;
    Ok(Filled {
        stream: stream.names().stream.clone(),
        entries: last,
        runs: found.needed.len(),
        attachments,
        seconds: began.elapsed().as_secs_f64(),
    })
}

fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Stores the runs that are needed under their names, whatever was there; those that are only there
/// stay.
fn bring_runs(source: &Source, found: &Found, to: &Objects) -> Result<()> {
    let disk = source.disk_of_runs();
    let there = quintet_cluster::Blobs::list(to).context("cannot list the bucket of runs")?;
    for run in &found.needed {
        let name = run.to_string();
        if !found.missing.contains(run) {
            let file = disk
                .open_read(&name)
                .with_context(|| format!("cannot open {name}"))?;
            to.put_over(&name, &*file)
                .with_context(|| format!("cannot store {name}"))?;
        } else if !there.contains(&name) {
            bail!(
                "{name} holds messages and is neither in {} nor in JetStream's bucket: try another \
                 node's directory",
                source.runs.display()
            );
        }
    }
    Ok(())
}

/// Stores the attachments that lie under the folder of scripts, whatever was there; answers how many.
fn bring_attachments(root: &Path, to: &Objects) -> Result<usize> {
    let mut count = 0;
    quintet_scripts::each_attachment(root, &mut |name, path| {
        let (disk, file) = place(path)?;
        count += 1;
        to.put_over(name, &*disk.open_read(&file)?)
    })
    .with_context(|| format!("cannot store the attachments in {}", root.display()))?;
    Ok(count)
}

/// Appends the frames of `source` to an empty log, as whole segments; answers how many entries it
/// has.
fn append_all(source: &Source, mut log: StreamLog) -> Result<u64> {
    let (mut frame, mut unsynced, mut stamp) = (FrameBuf::new(FrameKind::Facts), 0, None);
    let mut begins = false;
    let mut append = |from: &ReplayFrame<'_>| -> Result<()> {
        begins |= from.first_in_segment;
        // Who reigned over the old log is none of the new one's.
        if !matches!(from.kind, FrameKind::Facts | FrameKind::Body) {
            return Ok(());
        }
        if std::mem::take(&mut begins) {
            log.begin_segment();
        }
        frame.clear();
        frame.set_kind(from.kind);
        frame.count = from.count;
        frame.payload_mut().extend_from_slice(from.payload);
        let now = Stamp {
            epoch: from.epoch,
            time_ms: from.time_ms,
        };
        stamp = Some(now);
        let end = log.end();
        log.append(end, now, &mut frame)?;
        unsynced += from.payload.len() as u64;
        if unsynced >= AT_ONCE {
            unsynced = 0;
            sync(&mut log)?;
        }
        Ok(())
    };
    source.frames(&mut append)?;
    if let Some(stamp) = stamp {
        // Whoever starts first may own it at once.
        log.farewell(stamp, "")?;
    }
    sync(&mut log)?;
    Ok(log.acks().last().0)
}

fn sync(log: &mut StreamLog) -> Result<()> {
    let point = log.sync_point();
    point.wait()?;
    log.synced(point);
    Ok(())
}
