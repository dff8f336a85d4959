//! A consistent copy of a log that may be in use.
//!
//! Closed segments never change, so a second name is a copy. The last one is copied up to its last
//! good frame. A segment that goes away meanwhile makes the whole start over: the set of segments
//! must be one that existed.

use crate::error::OfStorage as _;
use crate::narrow::to_usize;
use crate::{
    LogError, Position, Result, Storage,
    extent::Extent,
    scan::{Scan, Step, Window},
    segment::{SEGMENT_HEADER_BYTES, SegmentFile, SegmentHeader, segment_name, segment_tmp_name},
    storage::{copy, write_all},
};

/// How often to start over. A segment goes away each time the log has moved on by a segment or
/// more, which takes far longer than linking a directory.
const ATTEMPTS: usize = 16;

/// Result of a backup: its files, the bytes that were copied, the end of its log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupSummary {
    pub segments: u64,
    /// How many of them share their bytes with the original.
    pub linked: u64,
    pub copied_bytes: u64,
    /// Where the log in the backup ends.
    pub end: Position,
}

/// Makes a copy of the log in `target`, an existing directory without a log, also while a server
/// writes to `source`, in this process or another. The copy is durable when this returns, opens as
/// a log, and holds everything that was durable when this was called.
///
/// # Errors
/// [`LogError::NotEmpty`], [`LogError::Damaged`], [`LogError::NewerFormat`],
/// [`LogError::NoSpace`], [`LogError::Io`]. What was made in `target` is removed again.
pub fn backup(source: &dyn Storage, target: &dyn Storage) -> Result<BackupSummary> {
    if let Some(file) = SegmentFile::list(target, "the target")?.first() {
        return Err(LogError::NotEmpty { file: file.name() });
    }
    for _ in 0..ATTEMPTS {
        match try_backup(source, target) {
            Ok(Some(summary)) => return Ok(summary),
            Ok(None) => remove_all(target)?,
            Err(error) => {
                remove_all(target)?;
                return Err(error);
            }
        }
    }
    let error = std::io::Error::other("its segments go away faster than they can be copied");
    Err(LogError::io("copy", "the log", 0, error))
}

/// `None` when a segment went away before it was had.
fn try_backup(source: &dyn Storage, target: &dyn Storage) -> Result<Option<BackupSummary>> {
    let segments = SegmentFile::list(source, "the log")?;
    let mut summary = BackupSummary::default();
    let mut window = Window::default();
    let mut linked: Vec<SegmentFile> = Vec::new();
    let mut end = None;
    for (index, segment) in segments.iter().enumerate() {
        let number = segment.number;
        let next = segments.get(index + 1);
        if let Some(why) = next.and_then(|next| next.doubles(Some(*segment))) {
            return Err(LogError::damaged(&segment.name(), 0, why));
        }
        // What was only begun is copied: here it gets the name of one that was synced.
        let result = match next {
            Some(_) if !segment.begun => link(source, target, &segment.name()),
            _ => Ok(false),
        };
        let result = match result {
            Ok(true) => {
                linked.push(*segment);
                end = None;
                summary.segments += 1;
                continue;
            }
            Ok(false) => copy_segment(source, target, *segment, next, &mut window),
            Err(error) => Err(error),
        };
        // A file copied while it was recycled may have had any content: what tells is whether the
        // segment is still there. That also explains an error.
        let now = SegmentFile::list(source, "the log")?;
        if !now.iter().any(|still| still.number == number) {
            return Ok(None);
        }
        let (bytes, copied_to) = match result {
            // Its header is about to be written, or a crash came before it was.
            Err(LogError::Damaged { .. }) if segments[index..].iter().all(|one| one.begun) => break,
            result => result?,
        };
        summary.segments += 1;
        summary.copied_bytes += bytes;
        end = Some(copied_to);
    }
    summary.end = match (end, linked.last()) {
        (Some(end), _) => end,
        // Nothing was copied behind it, so nothing has said yet where it ends.
        (None, Some(last)) => end_of(target, *last, &mut window)?,
        (None, None) => Position::default(),
    };
    // The server may not have synced them yet. Last, because it takes a while and they are safe.
    for name in linked.iter().map(|segment| segment.name()) {
        target
            .open(&name)
            .and_then(|file| file.sync_data())
            .or_full("sync", &name)?;
    }
    target.sync_dir().or_io("sync", "the target")?;
    report_extent(target, &segments[..to_usize(summary.segments)], summary.end)?;
    summary.linked = linked.len() as u64;
    Ok(Some(summary))
}

/// Says what must be there in the copy.
fn report_extent(target: &dyn Storage, copied: &[SegmentFile], durable: Position) -> Result<()> {
    let (Some(first), Some(last)) = (copied.first(), copied.last()) else {
        return Ok(());
    };
    let extent = Extent {
        oldest: first.number,
        newest: last.number,
        durable,
    };
    let name = extent.name();
    target.create(&name).or_full("create", &name)?;
    target.sync_dir().or_io("sync", "the target")
}

fn link(source: &dyn Storage, target: &dyn Storage, name: &str) -> Result<bool> {
    source.link_into(name, target).or_full("link", name)
}

/// Where a closed segment ends, by its own frames.
fn end_of(target: &dyn Storage, segment: SegmentFile, window: &mut Window) -> Result<Position> {
    let (name, file) = segment.open_read(target)?;
    let header = SegmentHeader::read(&*file, &name)?;
    let mut scan = Scan::new(&*file, &name, &header, None, window)?;
    let mut end = header.first;
    while let Step::Frame(frame) = scan.at(end)? {
        end = frame.end();
    }
    Ok(end)
}

fn copy_segment(
    source: &dyn Storage,
    target: &dyn Storage,
    segment: SegmentFile,
    next: Option<&SegmentFile>,
    window: &mut Window,
) -> Result<(u64, Position)> {
    let limit = match next {
        Some(next) => {
            let (name, file) = next.open_read(source)?;
            match SegmentHeader::read(&*file, &name) {
                Err(LogError::Damaged { .. }) if next.begun => None,
                header => Some(header?.first),
            }
        }
        None => None,
    };
    let (name, file) = segment.open_read(source)?;
    // The copy ends with what is in it.
    let header = SegmentHeader {
        made: 0,
        ..SegmentHeader::read(&*file, &name)?
    };
    let mut scan = Scan::new(&*file, &name, &header, limit, window)?;
    let mut end = header.first;
    loop {
        match scan.at(end)? {
            Step::Frame(frame) => end = frame.end(),
            Step::Limit => break,
            Step::Stop(_) if limit.is_none() => break,
            Step::Stop(stop) => {
                return Err(LogError::damaged(&name, header.offset_of(end), stop.why));
            }
        }
    }
    let tmp = segment_tmp_name(header.number);
    let made = target.create(&tmp).or_full("create", &tmp)?;
    write_all(&*made, 0, &header.encode()).or_full("write", &tmp)?;
    let (from, to) = ((&*file, &*name), (&*made, &*tmp));
    let bytes = copy(from, to, SEGMENT_HEADER_BYTES, Some(header.offset_of(end)))?;
    made.sync_data()
        .and_then(|()| target.rename(&tmp, &segment_name(segment.number)))
        .or_full("finish", &tmp)?;
    Ok((bytes, end))
}

/// Removes what an attempt made; there was no log before.
fn remove_all(target: &dyn Storage) -> Result<()> {
    let names = target.list().or_io("list", "the target")?;
    for name in names {
        let ours = SegmentFile::parse(&name).is_some() || Extent::parse(&name).is_some();
        if ours || crate::segment::is_tmp_name(&name) {
            target.remove(&name).or_io("remove", &name)?;
        }
    }
    Ok(())
}
