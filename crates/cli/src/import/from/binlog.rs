//! A directory of beanstalkd's binlog, which no beanstalkd uses. It is only read.
//!
//! A file is read whole to find its records, and bodies are read again when their turn comes: so no
//! more than one file is in memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::{Context as _, Result, bail};
use quintet_control::{Head, Standing};
use quintet_import::binlog::{self, BinlogRecord, Fields, State};
use quintet_types::Name;
use rustix::process::{Flock, FlockType};

use super::bodies::{Bodies, Files, Stored};
use crate::records::BadInput;

/// A job as the files leave it.
pub(in crate::import) struct Job {
    id: u64,
    tube: String,
    fields: Fields,
    /// Where its body is: number of the file, and of the byte in it.
    file: usize,
    at: u64,
    /// When the binlog was last written, Unix ms.
    written_ms: u64,
}

/// Reads which jobs there are, by id.
///
/// # Errors
/// It is no binlog or another version's, a beanstalkd uses it, or it cannot be read.
pub(in crate::import) fn inspect(dir: &Path) -> Result<Files<Job>> {
    unused(dir)?;
    let found = numbered(dir)?;
    let mut all = Files::of(Vec::new());
    let mut written_ms: u64 = 0;
    let mut jobs = BTreeMap::new();
    let mut before = None;
    for (number, path) in found {
        if let Some(gap) = before
            .map(|before| before + 1)
            .filter(|next| *next < number)
        {
            all.damaged(format!("{}: binlog.{gap} is missing", dir.display()));
        }
        before = Some(number);
        let cannot = || format!("cannot read {}", path.display());
        let bytes = std::fs::read(&path).with_context(cannot)?;
        let written = path.metadata().and_then(|meta| meta.modified());
        let written = written.with_context(cannot)?.duration_since(UNIX_EPOCH);
        let written = written.map_or(0, |since| ms(since.as_millis()));
        written_ms = written_ms.max(written);
        let version = match binlog::version(&bytes) {
            Ok(version) => version,
            Err(number) => {
                let why = format!("version {number} of a binlog: this quintet reads 5 and 7");
                return Err(BadInput::error(path.display().to_string(), why));
            }
        };
        let file = all.bodies.add(path.clone());
        if version.is_none() {
            // beanstalkd writes the version when it makes a file.
            let what = match bytes.is_empty() {
                true => "the file is empty",
                false => "the file begins with zeros",
            };
            all.damaged(format!("{}: {what}", path.display()));
        }
        if let Some(version) = version {
            for found in binlog::records(&bytes, version) {
                match found {
                    Ok(found) => apply(&mut jobs, file, found),
                    Err((at, why)) => {
                        all.damaged(format!("{}: byte {at}: {why}", path.display()));
                    }
                }
            }
        }
    }
    let jobs = jobs.into_values();
    all.messages = jobs.map(|job| Job { written_ms, ..job }).collect();
    Ok(all)
}

/// Applies a record to the jobs.
fn apply(jobs: &mut BTreeMap<u64, Job>, file: usize, found: BinlogRecord) {
    let BinlogRecord { id, fields, full } = found;
    if fields.state == State::Gone {
        jobs.remove(&id);
        return;
    }
    match (full, jobs.get_mut(&id)) {
        (Some(full), _) => {
            let (tube, at) = (full.tube, full.at);
            let job = Job {
                id,
                tube,
                fields,
                file,
                at,
                written_ms: 0,
            };
            jobs.insert(id, job);
        }
        // Its body's length does not change.
        (None, Some(job)) => {
            let bytes = job.fields.bytes;
            job.fields = Fields { bytes, ..fields };
        }
        // Its full record was in a file that went with it.
        (None, None) => {}
    }
}

/// Says whether no beanstalkd has the directory.
fn unused(dir: &Path) -> Result<()> {
    let Ok(lock) = File::open(dir.join("lock")) else {
        return Ok(());
    };
    let requested = Flock::from(FlockType::WriteLock);
    let holder = rustix::process::fcntl_getlk(&lock, &requested);
    if let Some(holder) = holder.context("cannot find out which process uses the binlog")? {
        let process = holder.pid.map_or(0, |pid| pid.as_raw_nonzero().get());
        bail!(
            "process {process} uses {}: stop that beanstalkd first, or move its jobs with \
             --from beanstalk://HOST:PORT",
            dir.display()
        );
    }
    Ok(())
}

/// Files `binlog.N`, by their number.
fn numbered(dir: &Path) -> Result<BTreeMap<u64, PathBuf>> {
    let cannot = || format!("cannot read {}", dir.display());
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_prefix("binlog."));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            found.insert(number, path);
        }
    }
    match found.is_empty() {
        true => bail!("{} has no binlog: no file binlog.N", dir.display()),
        false => Ok(found),
    }
}

fn ms(ms: u128) -> u64 {
    u64::try_from(ms).unwrap_or(u64::MAX)
}

/// 2001 as nanoseconds since 1970: a smaller one is of a clock that began with the machine.
const WALL_NS: u64 = 1_000_000_000_000_000_000;

impl Stored for Job {
    fn counted(&self) -> (&str, &'static str) {
        let state = match self.fields.state {
            State::Ready | State::Gone => "ready",
            State::Delayed => "delayed",
            State::Buried => "buried",
        };
        (&self.tube, state)
    }

    fn read(&self, bodies: &mut Bodies) -> Result<(Head, Vec<u8>)> {
        let fields = &self.fields;
        let wall = fields.created_ns >= WALL_NS;
        let due = match wall {
            true => fields.deadline_ns / 1_000_000,
            // Nobody knows when that clock began: the delay begins when it was written.
            false => self.written_ms + fields.delay_ns / 1_000_000,
        };
        let head = Head {
            queue: Name::of_shown(&self.tube).to_string(),
            state: match fields.state {
                State::Ready | State::Gone => Standing::Ready,
                State::Delayed => Standing::Delayed,
                State::Buried => Standing::Buried,
            },
            priority: Some(fields.priority),
            created_ms: wall.then_some(fields.created_ns / 1_000_000),
            due_ms: (fields.state == State::Delayed).then_some(due),
            ttr_ms: Some((fields.ttr_ns / 1_000_000).max(1000)),
            reserves: fields.reserves,
            timeouts: fields.timeouts,
            releases: fields.releases,
            buries: fields.buries,
            kicks: fields.kicks,
            bytes: fields.bytes as u64,
            ..Head::default()
        };
        Ok((head, bodies.read(self.file, self.at, fields.bytes)?))
    }

    fn place(&self, bodies: &Bodies) -> String {
        let path = bodies.path(self.file).display();
        format!("job {} in {path}", self.id)
    }
}
