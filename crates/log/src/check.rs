//! Verifying a log without changing it.

use crate::{
    Finding, Position, Result, Storage,
    survey::{survey, totals},
};

/// Result of a check: counts of what is good and of what is damaged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckSummary {
    /// Segment files read.
    pub segments: u64,
    /// Good frames.
    pub frames: u64,
    /// Records in them, as their writers counted.
    pub records: u64,
    /// Bytes of good frames, headers included.
    pub bytes: u64,
    /// Damaged ranges. None: the log opens.
    pub damaged: u64,
    pub damaged_bytes: u64,
    /// Whether the next start cuts an unsynced tail.
    pub tail: bool,
    /// Where the log ends, the tail cut.
    pub end: Position,
}

/// Reads the whole log and verifies every frame. Changes nothing, needs no lock, and may run beside
/// a server (whose last frame may then look like a tail).
///
/// # Errors
/// [`crate::LogError::NewerFormat`], [`crate::LogError::Io`]. Damage is reported, not an error.
pub fn check(storage: &dyn Storage, report: &mut dyn FnMut(Finding<'_>)) -> Result<CheckSummary> {
    let survey = survey(storage, report)?;
    let (frames, records, bytes) = totals(&survey);
    Ok(CheckSummary {
        segments: survey.segments.len() as u64,
        frames,
        records,
        bytes,
        damaged: survey.damage.len() as u64,
        damaged_bytes: survey.damage.iter().map(|range| range.bytes).sum(),
        tail: survey.tail.is_some(),
        end: survey.end,
    })
}
