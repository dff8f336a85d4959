//! Opening a log: reading it, telling a torn tail from damage, and making what was read durable.
//!
//! The rule, and why it is this one: "Recovery" in `docs/log-format.md`.

use std::{collections::VecDeque, sync::Arc};

use crate::error::OfStorage as _;
use crate::{
    Epoch, FRAME_HEADER_BYTES, LogError, Position, ReplayFrame, Result, SegmentNumber, Storage,
    StorageFile,
    extent::Extent,
    frame::FrameHeader,
    scan::{Scan, Step, Stop, Window},
    segment::{
        HEADER_LEN, SEGMENT_HEADER_BYTES, SegmentFile, SegmentHeader, is_tmp_name,
        parse_spare_name, segment_name,
    },
    spares::Spare,
    storage::{read_full, write_all},
};

/// Bytes of an unsynced tail written again at once.
const REWRITE_BYTES: usize = 1 << 20;

/// Result of opening a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Frames replayed.
    pub frames: u64,
    /// Records in them, as their writers counted.
    pub records: u64,
    /// Bytes of those frames, headers included.
    pub bytes: u64,
    /// Segments the log has.
    pub segments: u64,
    /// Where the log ends.
    pub end: Position,
    /// The highest epoch in the log; 0 when it is empty.
    pub last_epoch: Epoch,
    /// The highest wall clock in the log, Unix ms; 0 when it is empty.
    pub last_time_ms: u64,
    /// The unsynced tail that was cut, if any.
    pub cut: Option<Cut>,
}

/// An unsynced tail that a crash left half written, and that is no longer part of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The file in which the log now ends.
    pub file: String,
    /// Where in it, bytes.
    pub offset: u64,
    /// Bytes of the frames behind that place that could be recognised, in this and later segments.
    pub bytes: u64,
    /// Description of the damage in the first frame.
    pub why: String,
}

impl Cut {
    /// One with no frames behind it.
    pub(crate) fn at(file: String, offset: u64, why: impl Into<String>) -> Self {
        Self {
            file,
            offset,
            bytes: 0,
            why: why.into(),
        }
    }
}

/// An open log, before it is one.
pub(crate) struct RecoveredLog {
    pub(crate) recovery: Recovery,
    pub(crate) segments: VecDeque<Segment>,
    pub(crate) current: Option<Arc<dyn StorageFile>>,
    pub(crate) next_number: SegmentNumber,
    pub(crate) extent: Option<Extent>,
    pub(crate) extent_names: Vec<String>,
}

impl RecoveredLog {
    /// The length that the last segment's file was made with, if it still has it; else 0.
    /// `unnoted`: the length of files of versions that did not note it.
    pub(crate) fn whole_bytes(&self, unnoted: u64) -> Result<u64> {
        let (Some(file), Some(last)) = (&self.current, self.segments.back()) else {
            return Ok(0);
        };
        let len = file.len().or_io("measure", "the last segment")?;
        let made = match last.header.made {
            0 => unnoted,
            made => made,
        };
        Ok(if len >= made { made } else { 0 })
    }
}

/// A segment's file, opened.
struct File {
    name: String,
    /// It does not have the name of one that was synced.
    begun: bool,
    header: SegmentHeader,
    file: Arc<dyn StorageFile>,
}

impl File {
    /// Hands out a frame that was read in it.
    #[inline]
    fn replay(
        &self,
        header: &FrameHeader,
        offset: u64,
        payload: &[u8],
        replay: &mut dyn FnMut(ReplayFrame<'_>) -> Result<(), String>,
    ) -> Result<()> {
        replay(ReplayFrame {
            position: header.position,
            epoch: header.epoch,
            time_ms: header.time_ms,
            kind: header.kind,
            segment: self.header.number,
            offset,
            first_in_segment: header.position == self.header.first,
            count: header.count,
            payload,
        })
        .map_err(|why| LogError::Replay {
            file: self.name.clone(),
            offset,
            why,
        })
    }
}

/// A segment that was begun and never durable, and all that were begun behind it.
#[derive(Default)]
struct Strays {
    files: Vec<SegmentFile>,
    /// Description of the damage in the first header.
    why: String,
}

/// A segment that is part of the log.
pub(crate) struct Segment {
    pub(crate) header: SegmentHeader,
    /// Where its last frame ends.
    pub(crate) end: Position,
    pub(crate) modified_ms: u64,
    /// How many segments had been begun with this one; 0: it was there when the log was opened.
    pub(crate) turn: u64,
}

impl Segment {
    fn empty(file: &File) -> Self {
        let header = file.header.clone();
        Self {
            end: header.first,
            modified_ms: header.created_ms,
            turn: 0,
            header,
        }
    }
}

/// Where reading in order ended.
struct End {
    /// The segment, by index.
    index: usize,
    position: Position,
    stop: Stop,
}

/// Reads the log, decides where it ends, and makes it durable up to there.
pub(crate) fn recover(
    storage: &dyn Storage,
    shard: u16,
    replay: &mut dyn FnMut(ReplayFrame<'_>) -> Result<(), String>,
) -> Result<RecoveredLog> {
    let (extent, extent_names) = Extent::find(storage)?;
    let (files, strays) = open_segments(storage, shard)?;
    let first = files.first().map(|first| first.header.number);
    if let Some((file, why)) = Extent::missing(extent, storage, first)? {
        return Err(LogError::damaged(&file, 0, why));
    }
    let known = extent.unwrap_or_default();
    let mut recovery = Recovery::default();
    let mut segments: VecDeque<Segment> = files.iter().map(Segment::empty).collect();
    let mut window = Window::default();
    let synced = files.iter().map(|file| file.header.synced_through);
    let mut synced = synced.max().unwrap_or_default().max(known.durable);
    let last_number = files.last().map(|last| last.header.number);
    let last_number = last_number.max(strays.files.last().map(|last| last.number));
    let last_number = last_number.max(extent.map(|extent| extent.newest));
    let next_number = SegmentNumber(last_number.map_or(1, |last| last.0.saturating_add(1)));

    let end = read_in_order(&files, &mut window, |index, header, offset, payload| {
        files[index].replay(header, offset, payload, replay)?;
        recovery.frames += 1;
        recovery.records += u64::from(header.count);
        recovery.bytes += header.frame_len();
        recovery.last_epoch = recovery.last_epoch.max(header.epoch);
        recovery.last_time_ms = recovery.last_time_ms.max(header.time_ms);
        synced = synced.max(header.synced_through);
        segments[index].end = header.end();
        segments[index].modified_ms = header.time_ms;
        Ok(())
    })?;
    let log = |recovery, segments, current| RecoveredLog {
        recovery,
        segments,
        current,
        next_number,
        extent,
        extent_names,
    };
    let Some(end) = end else {
        // No segment at all. The directory's own durability still matters to the first one.
        strays.remove(storage)?;
        sync_dir(storage)?;
        return Ok(log(recovery, segments, None));
    };

    let evidence = look_behind(&files, &end, &mut window)?;
    synced = synced.max(evidence.synced);
    let last = &files[end.index];
    if end.position < synced {
        return Err(damage(&files, &end, synced, known));
    }
    let beyond = &files[end.index + 1..];
    recovery.cut = cut_at(&end, last, beyond, &strays, evidence.bytes);
    segments.truncate(end.index + 1);
    rewrite(&files, &segments, synced)?;
    for file in files[..=end.index].iter().filter(|file| file.begun) {
        storage
            .rename(&file.name, &segment_name(file.header.number))
            .or_io("rename", &file.name)?;
    }
    for file in beyond {
        storage.remove(&file.name).or_io("remove", &file.name)?;
    }
    strays.remove(storage)?;
    sync_dir(storage)?;
    recovery.end = end.position;
    recovery.segments = segments.len() as u64;
    let current = Arc::clone(&last.file);
    Ok(log(recovery, segments, Some(current)))
}

/// The tail that is cut at this end, if one is. `bytes`: those of frames recognised behind it.
fn cut_at(end: &End, last: &File, beyond: &[File], strays: &Strays, bytes: u64) -> Option<Cut> {
    if end.stop.looks_like_frame || bytes > 0 || !beyond.is_empty() {
        let offset = last.header.offset_of(end.position);
        let cut = Cut::at(last.name.clone(), offset, end.stop.why);
        return Some(Cut { bytes, ..cut });
    }
    let first = strays.files.first()?;
    Some(Cut::at(first.name(), 0, &strays.why))
}

/// The result of recovery before `first`, the position of the first frame of `segment`, in a
/// directory without a log.
pub(crate) fn nothing_before(
    storage: &dyn Storage,
    segment: SegmentNumber,
    first: Position,
) -> Result<RecoveredLog> {
    if let Some(file) = SegmentFile::list(storage, "the log's directory")?.first() {
        return Err(LogError::NotEmpty { file: file.name() });
    }
    let (extent, extent_names) = Extent::find(storage)?;
    if extent.is_some() {
        return Err(LogError::NotEmpty {
            file: extent_names.concat(),
        });
    }
    Ok(RecoveredLog {
        recovery: Recovery {
            end: first,
            ..Recovery::default()
        },
        segments: VecDeque::new(),
        current: None,
        next_number: segment,
        extent,
        extent_names,
    })
}

/// Removes what was never finished, and picks the spares of at most `most` bytes that can be used
/// again.
pub(crate) fn find_spares(
    storage: &dyn Storage,
    most: u64,
    want: usize,
) -> Result<(Vec<Spare>, u32)> {
    let mut spares = Vec::new();
    let mut next_number = 1_u32;
    let mut names = storage.list().or_io("list", "the log's directory")?;
    names.sort_unstable();
    for name in names {
        let number = parse_spare_name(&name);
        if let Some(number) = number {
            next_number = next_number.max(number.wrapping_add(1));
            let file = storage.open(&name).or_io("open", &name)?;
            let len = file.len().or_io("measure", &name)?;
            let links = file.links().or_io("inspect", &name)?;
            if (SEGMENT_HEADER_BYTES..=most).contains(&len) && links == 1 && spares.len() < want {
                wipe(&*file, &name)?;
                spares.push(Spare {
                    name,
                    file,
                    bytes: len,
                });
                continue;
            }
        }
        if number.is_some() || is_tmp_name(&name) {
            storage.remove(&name).or_io("remove", &name)?;
        }
    }
    Ok((spares, next_number))
}

/// Takes the header from a file that was a segment. A crash may have made a spare of one that was
/// begun and never durable, whose number comes again: what is left of it must not be taken for
/// what will be written.
fn wipe(file: &dyn StorageFile, name: &str) -> Result<()> {
    let mut header = [0; HEADER_LEN];
    read_full(file, 0, &mut header).or_io("read", name)?;
    if header.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    header.fill(0);
    write_all(file, 0, &header)
        .and_then(|()| file.sync_data())
        .or_io("wipe", name)
}

impl Strays {
    fn remove(&self, storage: &dyn Storage) -> Result<()> {
        self.files
            .iter()
            .map(|file| file.name())
            .try_for_each(|name| storage.remove(&name).or_io("remove", &name))
    }
}

fn open_segments(storage: &dyn Storage, shard: u16) -> Result<(Vec<File>, Strays)> {
    let found = SegmentFile::list(storage, "the log's directory")?;
    let mut files: Vec<File> = Vec::with_capacity(found.len());
    let mut strays = Strays::default();
    let mut last = None;
    for segment in found {
        let name = segment.name();
        if let Some(why) = segment.doubles(last.replace(segment)) {
            return Err(LogError::damaged(&name, 0, why));
        }
        if let Some(first) = strays.files.first() {
            if !segment.begun {
                // This one was durable, so that one was.
                return Err(LogError::damaged(&first.name(), 0, strays.why));
            }
            strays.files.push(segment);
            continue;
        }
        let file = storage.open(&name).or_io("open", &name)?;
        let header = match SegmentHeader::read(&*file, &name) {
            Err(LogError::Damaged { why, .. }) if segment.begun => {
                strays.files.push(segment);
                strays.why = why;
                continue;
            }
            header => header?,
        };
        if header.shard != shard {
            return Err(LogError::OtherShard {
                file: name,
                found: header.shard,
                wanted: shard,
            });
        }
        let len = file.len().or_io("measure", &name)?;
        if let Some(why) = header.is_cut(len) {
            return Err(LogError::damaged(&name, len, why));
        }
        if files
            .last()
            .is_some_and(|last| last.header.first > header.first)
        {
            return Err(LogError::damaged(
                &name,
                32,
                "it begins before the segment before it",
            ));
        }
        files.push(File {
            name,
            begun: segment.begun,
            header,
            file,
        });
    }
    Ok((files, strays))
}

/// Reads frames until one is not good; `None` when there are no segments.
fn read_in_order(
    files: &[File],
    window: &mut Window,
    mut visit: impl FnMut(usize, &FrameHeader, u64, &[u8]) -> Result<()>,
) -> Result<Option<End>> {
    let mut position = files
        .first()
        .map_or(Position(0), |first| first.header.first);
    for (index, file) in files.iter().enumerate() {
        let limit = files.get(index + 1).map(|next| next.header.first);
        let mut scan = Scan::new(&*file.file, &file.name, &file.header, limit, window)?;
        loop {
            match scan.at(position)? {
                Step::Frame(header) => {
                    let offset = file.header.offset_of(position) + FRAME_HEADER_BYTES as u64;
                    visit(index, &header, offset, scan.payload()?)?;
                    position = header.end();
                }
                Step::Limit => break,
                Step::Stop(stop) => {
                    return Ok(Some(End {
                        index,
                        position,
                        stop,
                    }));
                }
            }
        }
    }
    // The last segment has no limit, so its scan ends in a stop.
    Ok(None)
}

/// Traces of a log behind the position where reading ended.
#[derive(Default)]
struct Evidence {
    bytes: u64,
    synced: Position,
}

fn look_behind(files: &[File], end: &End, window: &mut Window) -> Result<Evidence> {
    let mut evidence = Evidence::default();
    for (index, file) in files.iter().enumerate().skip(end.index) {
        let limit = files.get(index + 1).map(|next| next.header.first);
        let mut scan = Scan::new(&*file.file, &file.name, &file.header, limit, window)?;
        let mut from = if index == end.index {
            end.position
        } else {
            file.header.first
        };
        while let Some(header) = scan.find_header(from)? {
            evidence.bytes += header.frame_len();
            evidence.synced = evidence.synced.max(header.synced_through);
            from = header.end();
        }
    }
    Ok(evidence)
}

fn damage(files: &[File], end: &End, synced: Position, known: Extent) -> LogError {
    let file = &files[end.index];
    let next = files.get(end.index + 1);
    let next = next.map_or(known.newest, |next| next.header.number);
    if next.0 > file.header.number.0 + 1 && !end.stop.looks_like_frame
        || files.len() == end.index + 1 && next > file.header.number
    {
        let missing = segment_name(SegmentNumber(file.header.number.0 + 1));
        return LogError::damaged(&missing, 0, "the file is missing");
    }
    let why = format!(
        "{}, and the log was durable up to position {synced}",
        end.stop.why
    );
    LogError::damaged(&file.name, file.header.offset_of(end.position), why)
}

/// Writes everything from `synced` on again, with the same bytes, and syncs it; of a segment that
/// was only begun its header too.
///
/// Syncing alone is not enough: after a sync that failed, the system may hold pages in memory as
/// clean that never reached the disk.
fn rewrite(files: &[File], segments: &VecDeque<Segment>, synced: Position) -> Result<()> {
    let mut bytes = Vec::new();
    for (file, segment) in files.iter().zip(segments) {
        let mut offset = match file.begun {
            true => 0,
            false => file.header.offset_of(synced.max(file.header.first)),
        };
        let end = file.header.offset_of(segment.end);
        if offset >= end {
            continue;
        }
        let most = usize::try_from(end - offset)
            .unwrap_or(usize::MAX)
            .min(REWRITE_BYTES);
        if bytes.len() < most {
            bytes.resize(most, 0);
        }
        while offset < end {
            let want = usize::try_from(end - offset)
                .unwrap_or(usize::MAX)
                .min(bytes.len());
            let read = read_full(&*file.file, offset, &mut bytes[..want])
                .or_io_at("read", &file.name, offset)?;
            if read < want {
                let error = std::io::ErrorKind::UnexpectedEof.into();
                return Err(LogError::io("read", &file.name, offset, error));
            }
            write_all(&*file.file, offset, &bytes[..want]).or_io_at("write", &file.name, offset)?;
            offset += want as u64;
        }
        file.file.sync_data().or_io("sync", &file.name)?;
    }
    Ok(())
}

fn sync_dir(storage: &dyn Storage) -> Result<()> {
    storage.sync_dir().or_io("sync", "the log's directory")
}
