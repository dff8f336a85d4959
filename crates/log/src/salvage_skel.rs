//! Check, repair, backup.
use crate::*;

/// What a check has to tell, as it goes.
#[derive(Debug)]
pub enum Finding<'a> {
    /// So many bytes of so many have been read.
    Progress {
        /// Bytes read.
        done: u64,
        /// Bytes to read.
        total: u64,
    },
    /// A good frame.
    Frame(ReplayFrame<'a>),
    /// A range that had been durable and does not read as written.
    Damage(LostRange),
    /// An unsynced tail, which the next start will cut. Not damage.
    Tail(Cut),
}

/// A range of the log that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// The damaged or missing file.
    pub file: String,
    /// Where the range begins in it, bytes.
    pub offset: u64,
    /// Its length, bytes.
    pub bytes: u64,
    /// What is wrong.
    pub why: String,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckSummary {
    /// Segments read.
    pub segments: u64,
    /// Good frames.
    pub frames: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of good frames.
    pub bytes: u64,
    /// Damaged ranges; 0: the log opens.
    pub damaged: u64,
    /// Bytes in them.
    pub damaged_bytes: u64,
    /// Whether an unsynced tail would be cut.
    pub tail: bool,
    /// Where the log ends.
    pub end: Position,
}

/// Reads the whole log and verifies every frame. Changes nothing and needs no lock.
pub fn check(
    _storage: &dyn Storage,
    _report: &mut dyn FnMut(Finding<'_>),
) -> Result<CheckSummary, LogError> {
    Ok(CheckSummary::default())
}

/// What a repair did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairSummary {
    /// What was lost, in order.
    pub lost: Vec<LostRange>,
    /// Segments written anew; the files they replace are kept as `*.damaged`.
    pub rewritten: u64,
    /// Good frames in the log now.
    pub frames: u64,
}

/// Makes a damaged log open again. The caller holds the directory's [`DirLock`].
pub fn repair(
    _storage: &dyn Storage,
    _report: &mut dyn FnMut(Finding<'_>),
) -> Result<RepairSummary, LogError> {
    Ok(RepairSummary::default())
}

/// What a backup holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupSummary {
    /// Segments in it.
    pub segments: u64,
    /// How many of them share their bytes with the original.
    pub linked: u64,
    /// Bytes copied.
    pub copied_bytes: u64,
    /// Where the log in the backup ends.
    pub end: Position,
}

/// Makes a consistent copy of the log in `target`, an existing empty directory, also while a
/// server, in this process or another, writes to `source`. The copy opens as a log.
pub fn backup(_source: &dyn Storage, _target: &dyn Storage) -> Result<BackupSummary, LogError> {
    Ok(BackupSummary::default())
}
