//! A new log for a cluster, filled from a directory: a single server becomes a cluster, or a
//! cluster that lost its stream goes on with what a node has.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use quintet_cluster::{Fences, Limits, StreamLog, StreamStore, Threads, Writer};
use quintet_config::Config;
use quintet_jetstream::{JetStream, Objects};
use quintet_log::{
    Disk, FRAME_HEADER_BYTES, FrameBuf, FrameKind, Log as _, Options, ReplayFrame, Stamp,
    Storage as _, StorageFile,
};

use super::files::place;
use super::registry::Fill;
use super::source::{LogContents, Source};
use super::{checks, registry};

/// Bytes that are sent before they are waited for.
const AT_ONCE: u64 = 4 << 20;
/// A directory of its own for the copy that an owner writes while it appends.
const FOLDER: &str = "filling";

/// Result of a fill.
pub struct Filled {
    pub stream: String,
    pub entries: u64,
    pub runs: usize,
    /// Of the runs, those that were stored already.
    pub ahead: usize,
    /// Files that messages of scripts have, or had.
    pub attachments: usize,
    pub seconds: f64,
}

/// Hears how many of how many bytes are through.
pub(crate) type ProgressCallback<'a> = &'a mut dyn FnMut(u64, u64);

/// Runs of a server that goes on serving.
#[derive(Default)]
pub struct Ahead {
    /// Stored just now.
    pub stored: u64,
    /// Stored by an earlier call.
    pub there: u64,
    pub bytes: u64,
    pub seconds: f64,
}

/// Makes the stream and fills it.
///
/// # Errors
/// It must not be, and why; or it could not be finished, and is to be tried again: no node uses a
/// stream that is not whole.
pub fn fill(
    config: &Config,
    source: &Source,
    found: &LogContents,
    how: Fill,
    progress: ProgressCallback<'_>,
) -> Result<Filled> {
    let began = Instant::now();
    let (stream, begun) = begin(config, how)?;
    let cluster = &config.cluster;
    let replicas = checks::replicas(cluster);
    let runs = stream.runs(replicas, &cluster.placement_tags)?;
    let ahead = bring_runs(source, found, &runs, progress)?;
    let files = stream.files(replicas, &cluster.placement_tags)?;
    let attachments = bring_attachments(&config.scripts_dir(), &files)?;

    let folder = config.data.join(FOLDER);
    remove(&folder)?;
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
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
        peer_address: String::new(),
        limits: Limits::default(),
        world: Arc::new(Threads::new()),
        fences: Fences::default(),
    };
    let (log, _) = store.own(&mut |_| Err("a new stream is empty".to_owned()))?;
    let last = append_all(source, found, log, progress)?;
    remove(&folder)?;
    registry::end_fill(&stream, cluster, &begun)?;
    Ok(Filled {
        stream: stream.names().stream.clone(),
        entries: last,
        runs: found.needed.len(),
        ahead,
        attachments,
        seconds: began.elapsed().as_secs_f64(),
    })
}

/// Stores the runs of the server in `data`, which may be serving, so that [`fill`] finds them
/// there. Nodes use the cluster only when that is done. `progress` hears how many of how many bytes are
/// through.
///
/// # Errors
/// It must not be, and why; or it could not be finished, and may be tried again.
pub fn ahead(config: &Config, progress: ProgressCallback<'_>) -> Result<Ahead> {
    let began = Instant::now();
    let (stream, _) = begin(config, Fill::Ahead)?;
    let cluster = &config.cluster;
    let to = stream.runs(checks::replicas(cluster), &cluster.placement_tags)?;
    let disk = Disk::new(&config.data);
    let open = |name: &str| match disk.open_read(name) {
        // The server has removed it.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        file => file
            .map(Some)
            .with_context(|| format!("cannot open {name}")),
    };
    let mut runs = Vec::new();
    for run in quintet_log::run::list_runs(&disk)? {
        let name = run.to_string();
        if let Some(file) = open(&name)? {
            runs.push((name, file.len()?));
        }
    }
    let total = runs.iter().map(|(_, bytes)| bytes).sum();
    let (mut done, mut through) = (Ahead::default(), 0);
    for (name, bytes) in runs {
        through += bytes;
        let Some(file) = open(&name)? else {
            continue;
        };
        if keep(&to, &name, &*file)? {
            done.stored += 1;
            done.bytes += bytes;
        } else {
            done.there += 1;
        }
        progress(through, total);
    }
    done.seconds = began.elapsed().as_secs_f64();
    Ok(done)
}

/// Registers that the cluster's log is being made.
fn begin(config: &Config, how: Fill) -> Result<(JetStream, registry::Begun)> {
    let cluster = &config.cluster;
    let faults = cluster.faults();
    if !faults.is_empty() {
        bail!("[cluster] cannot be used:\n  {}", faults.join("\n  "));
    }
    let stream = JetStream::connect(&checks::servers(cluster)?, checks::names(cluster))?;
    checks::of_servers(&stream, cluster)?;
    // The standard library's hash keys are random.
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
    let begun = registry::begin_fill(&stream, cluster, config.shards, Writer(random), how)?;
    Ok((stream, begun))
}

fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Stores the runs that are needed under their names, whatever else was there; those that are only
/// there stay. Answers how many were there already.
fn bring_runs(
    source: &Source,
    found: &LogContents,
    to: &Objects,
    progress: ProgressCallback<'_>,
) -> Result<usize> {
    let (mut ahead, mut through) = (0, 0);
    let disk = source.disk_of_runs();
    let there = quintet_cluster::Blobs::list(to).context("cannot list the bucket of runs")?;
    for run in &found.needed {
        let name = run.to_string();
        if !found.missing.contains(run) {
            let file = disk
                .open_read(&name)
                .with_context(|| format!("cannot open {name}"))?;
            ahead += usize::from(!keep(to, &name, &*file)?);
            through += file.len()?;
            progress(through, found.run_bytes + found.bytes);
        } else if !there.contains(&name) {
            bail!(
                "{name} holds messages and is neither in {} nor in JetStream's bucket: try another \
                 node's directory",
                source.runs.display()
            );
        }
    }
    Ok(ahead)
}

/// Stores the content under this name unless it is there; whether it was stored.
fn keep(to: &Objects, name: &str, content: &dyn StorageFile) -> Result<bool> {
    if to.has(name, content)? {
        return Ok(false);
    }
    to.put_over(name, content)
        .with_context(|| format!("cannot store {name}"))?;
    Ok(true)
}

/// Stores the attachments that lie under the folder of scripts, whatever was there; answers how
/// many.
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
fn append_all(
    source: &Source,
    found: &LogContents,
    mut log: StreamLog,
    progress: ProgressCallback<'_>,
) -> Result<u64> {
    let mut through = found.run_bytes;
    let (mut frame, mut unsynced, mut stamp) = (FrameBuf::new(FrameKind::Facts), 0, None);
    let mut begins = false;
    let mut append = |from: &ReplayFrame<'_>| -> Result<()> {
        begins |= from.first_in_segment;
        through += (from.payload.len() + FRAME_HEADER_BYTES) as u64;
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
            progress(through, found.run_bytes + found.bytes);
        }
        Ok(())
    };
    source.frames(&mut append)?;
    if through != found.run_bytes + found.bytes {
        bail!(
            "{} could be read to its end before, but not now: try again, or see `quintet check`",
            source.log.display()
        );
    }
    if let Some(stamp) = stamp {
        // The first node that starts may own it at once.
        log.handoff(stamp, "")?;
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
