//! How runs are called, and which there are.

use std::fmt;

use crate::error::OfStorage as _;
use crate::{Result, Storage};

const PREFIX: &str = "run-";
const SUFFIX: &str = ".qrun";

/// Which run of a shard. Rises with each one made; a number in force is never used again for other
/// content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunNumber(pub u32);

impl fmt::Display for RunNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identity of a run in its directory. Displayed as the name of its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunName {
    /// The shard whose entries it holds.
    pub shard: u16,
    /// Which of that shard's runs.
    pub number: RunNumber,
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{:05}-{:010}{SUFFIX}", self.shard, self.number.0)
    }
}

impl RunName {
    /// The run a file is, if its name is that of a run.
    pub fn parse(file: &str) -> Option<Self> {
        let (name, rest) = Self::parse_stem(file)?;
        (rest == SUFFIX).then_some(name)
    }

    pub(super) fn tmp(self) -> String {
        self.with_suffix(".tmp")
    }

    /// The file's name with another ending.
    pub(super) fn with_suffix(self, suffix: &str) -> String {
        format!("{PREFIX}{:05}-{:010}{suffix}", self.shard, self.number.0)
    }

    fn parse_stem(file: &str) -> Option<(Self, &str)> {
        let (shard, rest) = digits(file.strip_prefix(PREFIX)?, 5)?;
        let (number, rest) = digits(rest.strip_prefix('-')?, 10)?;
        let name = Self {
            shard: u16::try_from(shard).ok()?,
            number: RunNumber(u32::try_from(number).ok()?),
        };
        Some((name, rest))
    }
}

fn digits(text: &str, count: usize) -> Option<(u64, &str)> {
    let (digits, rest) = text.split_at_checked(count)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((digits.parse().ok()?, rest))
}

/// All finished runs of a directory, sorted. Some may be in force nowhere: left from a crash
/// between finishing one and saying so.
///
/// # Errors
/// [`crate::LogError::Io`].
pub fn list_runs(storage: &dyn Storage) -> Result<Vec<RunName>> {
    let mut runs: Vec<RunName> = list(storage)?
        .iter()
        .filter_map(|file| RunName::parse(file))
        .collect();
    runs.sort_unstable();
    Ok(runs)
}

/// Removes what a crash left of runs that were never finished, and says how many files that were.
/// Nobody may be writing a run.
///
/// # Errors
/// [`crate::LogError::Io`].
pub fn remove_unfinished_runs(storage: &dyn Storage) -> Result<u64> {
    let mut removed = 0;
    for file in list(storage)? {
        if RunName::parse_stem(&file).is_some_and(|(_, rest)| rest.ends_with(".tmp")) {
            remove(storage, &file)?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Removes a run's file. Those that have it open keep it until they close it; a crash may bring the
/// file back, so the caller must know by other means that it is no longer in force.
///
/// # Errors
/// [`crate::LogError::Io`].
pub fn remove_run(storage: &dyn Storage, name: RunName) -> Result<()> {
    remove(storage, &name.to_string())
}

fn remove(storage: &dyn Storage, file: &str) -> Result<()> {
    storage.remove(file).or_io("remove", file)
}

fn list(storage: &dyn Storage) -> Result<Vec<String>> {
    storage.list().or_io("list", "the directory of runs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_others_are_left_alone() {
        let name = RunName {
            shard: 3,
            number: RunNumber(u32::MAX),
        };
        assert_eq!(name.to_string(), "run-00003-4294967295.qrun");
        assert_eq!(RunName::parse(&name.to_string()), Some(name));
        for other in [
            "run-00003-4294967296.qrun",
            "run-65536-0000000001.qrun",
            "run-3-0000000001.qrun",
            "run-00003-0000000001.qrun.damaged",
            "run-00003-0000000001.tmp",
            "run-00003-+000000001.qrun",
            "run-00003-000000001é.qrun",
            "segment-0000000001.log",
        ] {
            assert_eq!(RunName::parse(other), None, "{other}");
        }
    }
}
