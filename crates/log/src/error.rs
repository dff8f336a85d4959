//! Errors of a log. Each text says how to mend the cause.

use std::io;

use crate::{Epoch, Position, Result, SegmentNumber};

/// Why the log refused or failed.
///
/// [`LogError::Io`] and [`LogError::Stopped`] are final: what is on the disk is no longer known, so
/// nothing may be answered from memory, and the caller exits; the next start reads what the disk
/// has.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The log does not end where the caller expected: somebody else appended, or this append was
    /// done before. Nothing was written.
    #[error("the log ends at {end}, not at {expected} as expected")]
    Moved {
        /// Where the caller expected the end.
        expected: Position,
        /// Where the log ends.
        end: Position,
    },
    /// A later epoch has written to the log: this writer no longer owns it. Nothing was written.
    #[error("epoch {epoch} no longer owns the log: epoch {latest} has written to it")]
    Fenced {
        /// The caller's epoch.
        epoch: Epoch,
        /// The latest epoch in the log.
        latest: Epoch,
    },
    /// The payload is longer than a frame may hold. Nothing was written.
    #[error("a frame of {bytes} bytes is over the limit of {limit} bytes")]
    TooLarge {
        /// Length of the payload, bytes.
        bytes: u64,
        /// The longest allowed, bytes.
        limit: u64,
    },
    /// The disk is full. The log is as it was; the same append may be tried again once there is
    /// room.
    #[error("no space left to write {file} ({why}): free some, or delete messages")]
    NoSpace {
        /// The file that could not grow.
        file: String,
        /// The system's error: the disk, a quota or the process's limit on files is full.
        why: String,
    },
    /// No such segment: it was retired, or never existed.
    #[error("segment {0} is not in the log")]
    NoSegment(SegmentNumber),
    /// A reader asked for a payload that is not at this place, or no longer reads as written.
    #[error("cannot read the payload at byte {offset} of {file}: {why}")]
    BadRead {
        /// File that was read.
        file: String,
        /// Offset of the payload, bytes.
        offset: u64,
        /// Description of the damage.
        why: String,
    },
    /// Durable content does not read as it was written. Nothing was changed.
    #[error(
        "{file} is damaged at byte {offset}: {why}; `quintet check` shows the extent, \
         `quintet repair` salvages the rest, or restore a backup"
    )]
    Damaged {
        /// The damaged or missing file.
        file: String,
        /// Where in the file, bytes.
        offset: u64,
        /// Description of the damage.
        why: String,
    },
    /// A file was written by a later program in a format this one does not know.
    #[error(
        "{file} was written by {written_by} and has {what}, which this program does not know: \
         start that program or a later one"
    )]
    NewerFormat {
        file: String,
        /// The part of the format that is unknown.
        what: String,
        /// The program that wrote it.
        written_by: String,
    },
    /// The directory holds the log of other shards.
    #[error(
        "{file} is the log of shard {found}, not of shard {wanted}: use the directory it was \
         made in"
    )]
    OtherShard {
        /// The file that says so.
        file: String,
        /// The shard in the file.
        found: u16,
        /// The shard asked for.
        wanted: u16,
    },
    /// Another process uses the directory.
    #[error(
        "{dir} is in use by {}: stop it first, or choose another directory",
        process(pid.as_ref())
    )]
    Locked {
        dir: String,
        /// Its process id, where the lock file tells.
        pid: Option<u32>,
    },
    /// The directory for a backup already holds a log.
    #[error("the target already holds a log ({file}): choose an empty directory")]
    NotEmpty { file: String },
    /// The caller's replay function refused a frame.
    #[error("cannot replay the frame at byte {offset} of {file}: {why}")]
    Replay {
        /// File of the frame.
        file: String,
        /// Offset of its payload, bytes.
        offset: u64,
        /// The caller's reason.
        why: String,
    },
    /// A run cannot take what it was given. Nothing of it was written.
    #[error("{file} takes at most {limit} {what}, not {value}")]
    RunFull {
        /// The run's file.
        file: String,
        /// The quantity over its limit, with its unit.
        what: &'static str,
        /// How much it was.
        value: u64,
        /// The most a run takes.
        limit: u64,
    },
    /// An entry of a replicated log differs from every entry that can have been stored there.
    /// Nothing was changed, and the log behind it is not trusted.
    #[error("entry {entry} of {log} cannot be used: {why}")]
    BadEntry {
        log: String,
        /// The entry's number in it.
        entry: u64,
        /// Description of the difference.
        why: String,
    },
    /// The storage failed. Final.
    #[error("cannot {doing} {file}{}: {why}", at(*offset))]
    Io {
        /// The step that failed.
        doing: &'static str,
        /// To which file or directory.
        file: String,
        /// Where in it, bytes (0 where that means nothing).
        offset: u64,
        /// The system's error. Not a source of this error, because the text already contains it.
        why: io::Error,
    },
    /// An earlier write or sync failed, so what the disk holds is unknown. Final.
    #[error("the log stopped after an earlier failure: {why}")]
    Stopped {
        /// The earlier failure.
        why: String,
    },
}

/// Where in a file, if that means anything.
fn at(offset: u64) -> String {
    match offset {
        0 => String::new(),
        offset => format!(" at byte {offset}"),
    }
}

impl LogError {
    /// The storage failed.
    pub fn io(doing: &'static str, file: &str, offset: u64, why: io::Error) -> Self {
        Self::Io {
            doing,
            file: file.to_owned(),
            offset,
            why,
        }
    }

    /// A full disk is not a failure of the disk.
    pub(crate) fn full_or_io(
        doing: &'static str,
        file: &str,
        offset: u64,
        source: io::Error,
    ) -> Self {
        if is_full(&source) {
            Self::NoSpace {
                file: file.to_owned(),
                why: source.to_string(),
            }
        } else {
            Self::io(doing, file, offset, source)
        }
    }

    /// A bad sector takes what is in it, and need not end the process.
    pub(crate) fn unreadable(file: &str, offset: u64, source: &io::Error) -> Self {
        Self::BadRead {
            file: file.to_owned(),
            offset,
            why: format!("the system says: {source}"),
        }
    }

    pub(crate) fn damaged(file: &str, offset: u64, why: impl Into<String>) -> Self {
        Self::Damaged {
            file: file.to_owned(),
            offset,
            why: why.into(),
        }
    }
}

/// Results of the storage, as the log has them.
pub(crate) trait OfStorage<T>: Sized {
    /// A failure is [`LogError::io`], at this place of the file.
    fn or_io_at(self, doing: &'static str, file: &str, offset: u64) -> Result<T>;

    /// A failure is [`LogError::full_or_io`], at this place of the file.
    fn or_full_at(self, doing: &'static str, file: &str, offset: u64) -> Result<T>;

    /// The same of the file as a whole.
    fn or_io(self, doing: &'static str, file: &str) -> Result<T> {
        self.or_io_at(doing, file, 0)
    }

    /// The same of the file as a whole.
    fn or_full(self, doing: &'static str, file: &str) -> Result<T> {
        self.or_full_at(doing, file, 0)
    }
}

impl<T> OfStorage<T> for io::Result<T> {
    fn or_io_at(self, doing: &'static str, file: &str, offset: u64) -> Result<T> {
        self.map_err(|error| LogError::io(doing, file, offset, error))
    }

    fn or_full_at(self, doing: &'static str, file: &str, offset: u64) -> Result<T> {
        self.map_err(|error| LogError::full_or_io(doing, file, offset, error))
    }
}

/// Whether the system refused for want of room, on the disk or of its own, which is not a failure
/// of the disk: what was requested was not done, and may be tried again.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            // Beyond the limit on a process's files (RLIMIT_FSIZE).
            | io::ErrorKind::FileTooLarge
    ) || is_scarce(error)
}

/// Whether the system has no file descriptor or memory to give now. Others that have them give
/// them back sooner or later.
pub(crate) fn is_scarce(error: &io::Error) -> bool {
    /// The process, and the system, have as many files open as they may (errno(3)).
    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;
    error.kind() == io::ErrorKind::OutOfMemory
        || matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}

/// As far as the lock file tells.
fn process(pid: Option<&u32>) -> String {
    pid.map_or_else(
        || "another process".to_owned(),
        |pid| format!("process {pid}"),
    )
}
