//! The machine of the measurement.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use quintet_bench::{Latency, Recorder, nanos};
use rustix::fs::statfs;
use serde::Serialize;

/// Bytes of each write that is synced.
const WRITE_BYTES: usize = 4096;
/// Syncs timed.
const SYNCS: usize = 500;

/// The machine, without any name that tells which.
#[derive(Clone, Serialize)]
pub(crate) struct Machine {
    cpu: String,
    cores: usize,
    memory_gib: f64,
    kernel: String,
    /// Of the directory the servers write to.
    file_system: String,
}

impl Machine {
    pub(crate) fn here(scratch: &Path) -> Self {
        let of = |file: &str, key: &str| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = of("/proc/meminfo", "MemTotal").unwrap_or_default();
        let kib: f64 = memory.trim_end_matches(" kB").parse().unwrap_or(0.0);
        let unknown = || "unknown".to_owned();
        Self {
            cpu: of("/proc/cpuinfo", "model name").unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: (kib / 1024.0 / 1024.0).round(),
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            file_system: file_system(scratch),
        }
    }

    /// In one line.
    pub(crate) fn describe(&self) -> String {
        format!(
            "{} cores of {}, {} GiB, Linux {}, {}",
            self.cores, self.cpu, self.memory_gib, self.kernel, self.file_system
        )
    }
}

/// By the magic numbers of statfs(2).
fn file_system(path: &Path) -> String {
    let Ok(found) = statfs(path) else {
        return "unknown file system".to_owned();
    };
    match found.f_type {
        0xef53 => "ext4".to_owned(),
        0x5846_5342 => "xfs".to_owned(),
        0x9123_683e => "btrfs".to_owned(),
        0x0102_1994 => "tmpfs (a sync costs nothing here)".to_owned(),
        0x794c_7630 => "overlayfs".to_owned(),
        other => format!("file system {other:#x}"),
    }
}

/// How long the disk alone takes to sync 4 KiB, microseconds.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct SyncTimes {
    /// Appended to a growing file.
    growing: Latency,
    /// Written into a file of zeros.
    filled: Latency,
}

impl SyncTimes {
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn measure(scratch: &Path) -> Result<Self> {
        let path = scratch.join("sync");
        let measure = |filled| times(&path, filled).context("cannot measure a sync");
        let (growing, filled) = (measure(false)?, measure(true)?);
        fs::remove_file(&path)?;
        Ok(Self { growing, filled })
    }

    /// In one line.
    pub(crate) fn describe(&self) -> String {
        let of = |times: Latency| format!("{:.0} us, p99 {:.0} us", times.p50_us, times.p99_us);
        format!(
            "a bare fdatasync of 4 KiB took {} on a growing file and {} on a zero-filled one",
            of(self.growing),
            of(self.filled)
        )
    }
}

fn times(path: &Path, filled: bool) -> std::io::Result<Latency> {
    let zeros = if filled { WRITE_BYTES * SYNCS } else { 0 };
    fs::write(path, vec![0_u8; zeros])?;
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.sync_all()?;
    let block = [b'x'; WRITE_BYTES];
    let mut all = Recorder::default();
    for _ in 0..SYNCS {
        let start = Instant::now();
        file.write_all(&block)?;
        file.sync_data()?;
        all.record(nanos(start.elapsed()));
    }
    Ok(all.latency())
}
