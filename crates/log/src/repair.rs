//! Making a damaged log open again, with everything that can still be read at its old place.
//!
//! A segment with damage is written anew: good frames byte for byte where they were, so that facts
//! go on naming bodies by segment and offset, and a frame of kind *lost* over each range between.

use crate::error::OfStorage as _;
use crate::narrow::{to_u32, to_usize};
use crate::{
    FRAME_HEADER_BYTES, Finding, FrameKind, LogError, LostRange, PAYLOAD_BYTES_MAX, Position,
    Result, Storage, StorageFile,
    extent::Extent,
    frame::FrameHeader,
    run::list_runs,
    segment::{SegmentHeader, segment_tmp_name},
    storage::{copy, write_all},
    survey::{Hole, Survey, Surveyed, survey, totals},
};

/// Result of a repair: the lost ranges, and counts of the frames that are left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairSummary {
    /// The lost ranges, in order. Empty: nothing was damaged, and nothing was changed.
    pub lost: Vec<LostRange>,
    /// Segments written anew or given up; the files they were are kept as `*.damaged`.
    pub replaced: u64,
    /// Good frames the log has now, those that stand for lost ones not counted.
    pub frames: u64,
    /// Records in them, as their writers counted.
    pub records: u64,
}

/// Repairs what a check calls damage. Frames that had been durable and still read well all stay; an
/// unsynced tail is left for the next start to cut. The caller holds the directory's
/// [`DirLock`](crate::DirLock), and there is room for a copy of each damaged segment, twice. `begin`
/// gets the losses before anything changes: a second run does not find what the first has replaced.
///
/// # Errors
/// [`LogError::NewerFormat`], and those of `begin`; [`LogError::NoSpace`] and [`LogError::Io`], with
/// the damage still there or partly repaired: a repair may be run again.
pub fn repair(
    storage: &dyn Storage,
    report: &mut dyn FnMut(Finding<'_>),
    begin: &mut dyn FnMut(&[LostRange]) -> Result<()>,
) -> Result<RepairSummary> {
    let survey = survey(storage, report)?;
    if !survey.damage.is_empty() {
        begin(&survey.damage)?;
    }
    let (frames, records, _) = totals(&survey);
    let mut summary = RepairSummary {
        frames,
        records,
        ..RepairSummary::default()
    };
    for segment in &survey.segments {
        if !segment.is_damaged(survey.end) {
            continue;
        }
        match &segment.header {
            Some(header) => replace(storage, segment, header, survey.end)?,
            None => {
                // Nothing in it can be verified; the segment before covers its range.
                let aside = free_name(storage, &segment.name)?;
                storage
                    .rename(&segment.name, &aside)
                    .and_then(|()| storage.sync_dir())
                    .or_io("rename", &segment.name)?;
            }
        }
        summary.replaced += 1;
    }
    if !survey.damage.is_empty() {
        renew_extent(storage, &survey)?;
    }
    summary.lost = survey.damage;
    Ok(summary)
}

/// Says what must be there from now on: what is left. Without a segment nothing says what of the
/// runs is in force, and a start would delete them: they are set aside.
fn renew_extent(storage: &dyn Storage, survey: &Survey) -> Result<()> {
    for name in &survey.extents {
        storage.remove(name).or_io("remove", name)?;
    }
    let left = survey.segments.iter().find(|left| left.header.is_some());
    match left {
        Some(oldest) => {
            let extent = Extent {
                oldest: oldest.number,
                newest: survey.newest,
                durable: Position(0),
            };
            let name = extent.name();
            storage.create(&name).or_full("create", &name)?;
        }
        None => {
            for run in list_runs(storage)? {
                let name = run.to_string();
                let aside = free_name(storage, &name)?;
                storage.rename(&name, &aside).or_io("rename", &name)?;
            }
        }
    }
    storage.sync_dir().or_io("sync", "the log's directory")
}

fn replace(
    storage: &dyn Storage,
    segment: &Surveyed,
    header: &SegmentHeader,
    end: Position,
) -> Result<()> {
    let tmp = segment_tmp_name(segment.number);
    // What an earlier repair left half done.
    let names = storage.list().or_io("list", "the log")?;
    if names.contains(&tmp) {
        storage.remove(&tmp).or_io("remove", &tmp)?;
    }
    let file = storage.create(&tmp).or_full("create", &tmp)?;
    let damaged = (&*segment.file, &*segment.name);
    // As long as it gets.
    let renewed = SegmentHeader {
        made: 0,
        ..header.clone()
    };
    write(&*file, &tmp, 0, &renewed.encode())?;
    for run in segment.runs.iter().filter(|run| run.from < end) {
        let (from, to) = (
            header.offset_of(run.from),
            header.offset_of(run.to.min(end)),
        );
        copy(damaged, (&*file, &tmp), from, Some(to))?;
    }
    for hole in segment.holes.iter().filter(|hole| hole.from < end) {
        fill(&*file, &tmp, header, hole)?;
    }
    file.sync_data().or_full("sync", &tmp)?;

    let aside = free_name(storage, &segment.name)?;
    let kept = storage.create(&aside).or_full("create", &aside)?;
    copy(damaged, (&*kept, &aside), 0, Some(segment.len))?;
    kept.sync_data()
        .and_then(|()| storage.sync_dir())
        .or_full("sync", &aside)?;
    storage
        .rename(&tmp, &segment.name)
        .and_then(|()| storage.sync_dir())
        .or_io("rename", &tmp)
}

/// Frames of kind *lost* over a whole range.
fn fill(file: &dyn StorageFile, name: &str, header: &SegmentHeader, hole: &Hole) -> Result<()> {
    let head = FRAME_HEADER_BYTES as u64;
    let mut from = hole.from;
    while from < hole.to {
        let bytes = hole.to.0 - from.0;
        let len = match bytes.checked_sub(head) {
            // What is left after the longest frame must have room for another header.
            Some(len) if len > PAYLOAD_BYTES_MAX => PAYLOAD_BYTES_MAX - head,
            Some(len) => len,
            None => {
                let why = format!("a gap of {bytes} bytes is too small for a frame");
                return Err(LogError::damaged(name, header.offset_of(from), why));
            }
        };
        let lost = FrameHeader {
            // At most PAYLOAD_BYTES_MAX, which is less than four GiB.
            len: to_u32(to_usize(len)),
            position: from,
            epoch: hole.stamp.epoch,
            time_ms: hole.stamp.time_ms,
            synced_through: from,
            count: 0,
            payload_crc: crc_of_zeros(len),
            kind: FrameKind::Lost,
        };
        write(
            file,
            name,
            header.offset_of(from),
            &lost.encode(header.salt),
        )?;
        from = lost.end();
    }
    // The zeros themselves: the file may end with them.
    let end = header.offset_of(hole.to);
    let len = file.len().or_io("measure", name)?;
    if len < end {
        file.set_len(end).or_full_at("lengthen", name, end)?;
    }
    Ok(())
}

fn crc_of_zeros(len: u64) -> u32 {
    static ZEROS: [u8; 4096] = [0; 4096];
    let mut crc = crc32c::crc32c(&[]);
    let mut left = len;
    while left > 0 {
        let some = left.min(ZEROS.len() as u64);
        // At most the length of ZEROS.
        crc = crc32c::crc32c_append(crc, &ZEROS[..to_usize(some)]);
        left -= some;
    }
    crc
}

fn write(file: &dyn StorageFile, name: &str, offset: u64, bytes: &[u8]) -> Result<()> {
    write_all(file, offset, bytes).or_full_at("write", name, offset)
}

/// A name for the damaged file that no earlier repair has taken.
fn free_name(storage: &dyn Storage, name: &str) -> Result<String> {
    let names = storage.list().or_io("list", "the log")?;
    let first = format!("{name}.damaged");
    let later = (2..).map(|number: u32| format!("{name}.{number}.damaged"));
    let mut all = std::iter::once(first.clone()).chain(later);
    Ok(all
        .find(|candidate| !names.contains(candidate))
        .unwrap_or(first))
}
