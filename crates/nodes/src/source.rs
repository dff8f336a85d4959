//! A log in a directory that nobody writes: a single server's that was stopped, or a node's mirror.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use quintet_cluster::Reign;
use quintet_host::Contents;
use quintet_log::run::RunName;
use quintet_log::{Disk, FRAME_HEADER_BYTES, Finding, FrameKind, ReplayFrame, Storage};

use super::mirror::Mirrors;

/// The folder of cached runs in a node's data directory.
pub const RUNS: &str = "runs";

/// Notes in a node's directory how many shards the cluster has, for when it is all that is left.
///
/// # Errors
/// It cannot be written.
pub fn report_shards(data: &Path, shards: u64) -> Result<()> {
    // Once is enough; a full disk must not keep a node from starting.
    if quintet_host::shards_of(data).is_ok_and(|listed| listed as u64 == shards) {
        return Ok(());
    }
    let path = data.join(quintet_host::SHARDS_FILE);
    quintet_log::replace_file(&path, format!("{shards}\n").as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Directories of the log and the runs from which a cluster's log is made.
pub struct Source {
    /// Its segments.
    pub log: PathBuf,
    pub runs: PathBuf,
    data: PathBuf,
}

/// The log's contents, as far as they can be read without a gap.
#[derive(Default)]
pub struct LogContents {
    pub frames: u64,
    pub bytes: u64,
    /// When the last was written, Unix ms.
    pub last_ms: u64,
    /// Why reading ended before the end, if it did.
    pub cut: Option<String>,
    /// The last frame is an owner's handoff, to that node.
    pub handoff: Option<String>,
    /// Runs that hold messages.
    pub needed: Vec<RunName>,
    pub missing: Vec<RunName>,
    pub run_bytes: u64,
}

impl Source {
    /// Of a single server.
    pub fn alone(data: &Path) -> Self {
        Self {
            log: data.to_owned(),
            runs: data.to_owned(),
            data: data.to_owned(),
        }
    }

    /// Of a node: the mirror that was written last.
    ///
    /// # Errors
    /// There is none that can be read.
    pub fn of_node(data: &Path) -> Result<Self> {
        let mut newest: Option<(u64, u64, PathBuf)> = None;
        for path in Mirrors::all(data).context("cannot list the data directory")? {
            let (mut last_ms, mut frames) = (0, 0);
            quintet_log::check(&Disk::new(&path), &mut |finding| {
                if let Finding::Frame(frame) = finding {
                    (last_ms, frames) = (frame.time_ms.max(last_ms), frames + 1);
                }
            })?;
            let later = newest
                .as_ref()
                .is_none_or(|(ms, count, _)| (last_ms, frames) > (*ms, *count));
            if frames > 0 && later {
                newest = Some((last_ms, frames, path));
            }
        }
        let (_, _, log) = newest
            .ok_or_else(|| anyhow!("{} holds no mirror of a cluster's log", data.display()))?;
        Ok(Self {
            log,
            runs: data.join(RUNS),
            data: data.to_owned(),
        })
    }

    /// Hands on the frames in order, up to the first gap; says why there is one.
    ///
    /// # Errors
    /// The disk failed, or `each` says so.
    pub fn frames(
        &self,
        each: &mut dyn FnMut(&ReplayFrame<'_>) -> Result<()>,
    ) -> Result<Option<String>> {
        let (mut next, mut cut, mut failed) = (None, None, None);
        quintet_log::check(&Disk::new(&self.log), &mut |finding| match finding {
            Finding::Frame(frame) => {
                if failed.is_some() || next.is_some_and(|next| next != frame.position.0) {
                    return;
                }
                let bytes = (frame.payload.len() + FRAME_HEADER_BYTES) as u64;
                next = Some(frame.position.0 + bytes);
                failed = each(&frame).err();
            }
            Finding::Damage(range) => {
                cut.get_or_insert_with(|| {
                    format!("{} at byte {}: {}", range.file, range.offset, range.why)
                });
            }
            Finding::Tail(tail) => {
                cut.get_or_insert_with(|| {
                    format!("{} at byte {}: {}", tail.file, tail.offset, tail.why)
                });
            }
            Finding::Progress { .. } => {}
        })?;
        failed.map_or(Ok(cut), Err)
    }

    /// Looks what is there.
    ///
    /// # Errors
    /// The disk failed, or the frames make no sense.
    pub fn inspect(&self) -> Result<LogContents> {
        let mut contents = Contents::new(&self.data)?;
        let mut found = LogContents::default();
        let cut = self.frames(&mut |frame| {
            found.frames += 1;
            found.bytes += (frame.payload.len() + FRAME_HEADER_BYTES) as u64;
            found.last_ms = found.last_ms.max(frame.time_ms);
            found.handoff = match frame.kind {
                FrameKind::Reign => match Reign::read(frame.payload) {
                    Ok(Reign::Handoff(to)) => Some(to),
                    Ok(Reign::Heartbeat | Reign::Again(..) | Reign::Claim(..)) | Err(_) => None,
                },
                FrameKind::Facts | FrameKind::Body | FrameKind::Lost => None,
            };
            contents.frame(frame).map_err(|why| anyhow!(why))
        })?;
        found.cut = cut;
        found.needed = contents.needed();
        let disk = self.disk_of_runs();
        for run in found.needed.clone() {
            match disk.open_read(&run.to_string()).and_then(|file| file.len()) {
                Ok(bytes) => found.run_bytes += bytes,
                Err(_) => found.missing.push(run),
            }
        }
        Ok(found)
    }

    /// How many shards it was made with.
    ///
    /// # Errors
    /// That cannot be read.
    pub fn shards(&self) -> Result<u64> {
        Ok(quintet_host::shards_of(&self.data)? as u64)
    }

    pub(crate) fn disk_of_runs(&self) -> Arc<dyn Storage> {
        Arc::new(Disk::new(&self.runs))
    }
}
