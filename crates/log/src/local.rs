//! The local log: appending, rotating, syncing, retiring.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use crate::error::OfStorage as _;
use crate::{
    BodyReader, Epoch, FRAME_HEADER_BYTES, FrameBuf, Log, LogError, LogStore, Placed, Position,
    Recovery, Replay, Result, Retiring, SegmentInfo, SegmentNumber, Spares, Stamp, Storage,
    StorageFile, SyncPoint, SyncWork,
    error::{is_full, is_scarce},
    extent::{Extent, Extents},
    failure::Failure,
    files::Files,
    recovery::{self, Segment},
    segment::{SEGMENT_HEADER_BYTES, SegmentHeader, begun_name, segment_name},
    spares::Spare,
    storage::write_all,
};

/// How a local log is laid out. None of it must stay the same from one start to the next.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size of a segment's file at most, bytes: 64 MiB unless told, at least 8 KiB. Larger segments
    /// rotate less often; smaller ones give disk space back sooner. A new log that has spares
    /// begins with smaller files, which [`Spares::grow`] makes longer.
    pub segment_bytes: u64,
    /// Spare segments to keep, 2 unless told: one for the next rotation, one in reserve for a full
    /// disk.
    pub spares: usize,
    /// The shard this log serves; 0xFFFF: all shards of the process.
    pub shard: u16,
    /// The log is a copy of what is safe elsewhere, and is thrown away rather than trusted after a
    /// crash: beginning and giving up segments syncs nothing, and there are no spares. Sync points
    /// work as ever, for a copy that should be worth something in a disaster.
    pub scratch: bool,
}

/// The least a segment may be asked to hold: its header and as much again.
const SEGMENT_BYTES_MIN: u64 = 2 * SEGMENT_HEADER_BYTES;

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            spares: 2,
            shard: u16::MAX,
            scratch: false,
        }
    }
}

/// A log in a directory of segments, not open.
pub struct LocalStore {
    /// The directory, whose [`DirLock`](crate::DirLock) the caller holds.
    pub storage: Arc<dyn Storage>,
    /// How it is laid out from now on.
    pub options: Options,
}

impl LogStore for LocalStore {
    fn open(self: Box<Self>, replay: Replay<'_>) -> Result<(Box<dyn Log>, Recovery)> {
        let (log, recovery) = LocalLog::open(self.storage, self.options, replay)?;
        Ok((Box::new(log), recovery))
    }
}

/// A log in a directory of segments, as `docs/log-format.md` describes it.
pub struct LocalLog {
    storage: Arc<dyn Storage>,
    /// Bytes the segment being written is meant to hold.
    room: u64,
    shard: u16,
    scratch: bool,
    files: Arc<Files>,
    spares: Spares,
    extents: Arc<Extents>,
    failure: Failure,
    /// Oldest first; the last one is written to, unless `begin` says that a new one comes first.
    segments: VecDeque<Segment>,
    /// The file of the last segment; `None` only while there is no segment.
    current: Option<Arc<dyn StorageFile>>,
    next_number: SegmentNumber,
    begin: bool,
    /// The current file has its length since before it was begun.
    whole: bool,
    end: Position,
    durable: Position,
    epoch: Epoch,
    /// Segments that may hold frames not yet durable, oldest first.
    unsynced: Vec<Unsynced>,
    /// Segments begun since the log was opened, and how many of them, oldest first, are durable
    /// with their names.
    begun: u64,
    begun_durable: u64,
    /// The name of the oldest segment is durable.
    rooted: bool,
}

#[derive(Clone)]
struct Unsynced {
    number: SegmentNumber,
    file: Arc<dyn StorageFile>,
    /// The segment's name says that it was synced. Shared by the sync points that are on their way,
    /// of which the first to come renames it; `None` where it was so when the log was opened.
    named: Option<Arc<Mutex<bool>>>,
}

impl LocalLog {
    /// Opens the log in `storage`, beginning one where there is none, and hands every frame to
    /// `replay`, oldest first. All of it is durable when this returns. Reads each segment once;
    /// holds one frame, or 1 MiB, in memory. The caller holds the directory's
    /// [`DirLock`](crate::DirLock).
    ///
    /// # Errors
    /// [`LogError::Damaged`], [`LogError::NewerFormat`], [`LogError::OtherShard`] and
    /// [`LogError::Replay`] change nothing. `replay` may have seen frames by then: what it built is
    /// worth nothing.
    pub fn open(
        storage: Arc<dyn Storage>,
        options: Options,
        replay: Replay<'_>,
    ) -> Result<(Self, Recovery)> {
        let found = recovery::recover(&*storage, options.shard, replay)?;
        Self::with(storage, options, found)
    }

    /// Begins a log in `storage`, which holds none, at any place: its first segment will be
    /// `segment`, and the first frame there at `first`. So a copy can have the same frames at the
    /// same places as what it is copied from.
    ///
    /// # Errors
    /// [`LogError::NotEmpty`] when a log is there; else the storage failed.
    pub fn begin_at(
        storage: Arc<dyn Storage>,
        options: Options,
        segment: SegmentNumber,
        first: Position,
    ) -> Result<Self> {
        let found = recovery::nothing_before(&*storage, segment, first)?;
        Ok(Self::with(storage, options, found)?.0)
    }

    fn with(
        storage: Arc<dyn Storage>,
        mut options: Options,
        found: recovery::RecoveredLog,
    ) -> Result<(Self, Recovery)> {
        let segment_bytes = options.segment_bytes.max(SEGMENT_BYTES_MIN);
        if options.scratch {
            options.spares = 0;
        }
        let (spares, next_spare) = recovery::find_spares(&*storage, segment_bytes, options.spares)?;
        let files = Arc::new(Files::new(Arc::clone(&storage)));
        for segment in &found.segments {
            files.add(segment.header.number, None);
        }
        if let (Some(segment), Some(file)) = (found.segments.back(), &found.current) {
            files.add(segment.header.number, Some(Arc::clone(file)));
        }
        let end = found.recovery.end;
        let rooted = options.scratch || !found.segments.is_empty();
        let made = found.whole_bytes(segment_bytes)?;
        let whole = made > 0;
        let spares = Spares::new(
            Arc::clone(&storage),
            segment_bytes,
            options.spares,
            spares,
            next_spare,
            made,
        );
        let mut begin = found.current.is_none() || found.recovery.cut.is_some();
        if options.spares > 0 && (begin || !whole) {
            spares.ahead()?;
            // One that was not made ahead (by a version before this, by a backup, or on a disk that
            // was full) is not gone on with if there is another.
            begin |= spares.any();
        }
        let extents = Extents::new(Arc::clone(&storage), found.extent, found.extent_names)
            .or_io("remove", "an extent")?;
        if let (Some(first), Some(last)) = (found.segments.front(), found.segments.back()) {
            // All of it is durable by now, with its names.
            extents
                .report(Extent {
                    oldest: first.header.number,
                    newest: last.header.number,
                    durable: end,
                })
                .or_io("rename", "the extent")?;
        }
        let log = Self {
            room: if whole { made } else { spares.bytes() },
            spares,
            extents: Arc::new(extents),
            storage,
            shard: options.shard,
            scratch: options.scratch,
            files,
            failure: Failure::default(),
            begin,
            whole,
            segments: found.segments,
            current: found.current,
            next_number: found.next_number,
            end,
            durable: end,
            epoch: found.recovery.last_epoch,
            unsynced: Vec::new(),
            begun: 0,
            begun_durable: 0,
            rooted,
        };
        Ok((log, found.recovery))
    }

    /// The spare segments, for a background thread.
    pub fn spares(&self) -> Spares {
        self.spares.clone()
    }

    /// Makes the next segment from a spare, or a new file. Nothing of it is durable until the next
    /// [`SyncPoint`], which the name of its file says.
    fn rotate(&mut self, time_ms: u64) -> Result<()> {
        let number = self.next_number;
        let name = match self.scratch {
            // What it has is not known by its name, but by where it is copied from.
            true => segment_name(number),
            false => begun_name(number),
        };
        let mut header = SegmentHeader {
            shard: self.shard,
            number,
            salt: self.storage.random(),
            first: self.end,
            created_ms: time_ms,
            synced_through: self.durable,
            made: 0,
        };
        // The name of the segment before may still be lost in a crash. That loses a tail that was
        // not durable; but if it is the first and this one's name survived without it, the log
        // would begin in its middle.
        if !self.rooted && !self.segments.is_empty() {
            self.failure
                .of(self.storage.sync_dir(), "sync", DIRECTORY)?;
            self.rooted = true;
        }
        let spare = self.spares.take();
        let is_spare = spare.is_some();
        let made = match spare {
            Some(spare) => {
                header.made = spare.bytes;
                spare
            }
            None => {
                let file = self.storage.create(&name);
                Spare {
                    name: name.clone(),
                    file: file.map_err(|error| self.refused("create", &name, 0, error))?,
                    bytes: self.spares.bytes(),
                }
            }
        };
        let (file, from) = (Arc::clone(&made.file), made.name.clone());
        self.room = made.bytes;
        if let Err(error) = write_all(&*file, 0, &header.encode()) {
            let error = self.refused("begin", &name, 0, error);
            if matches!(error, LogError::NoSpace { .. }) {
                if is_spare {
                    self.spares.give(made);
                } else if let Err(error) = self.storage.remove(&from) {
                    return Err(self.failure.record(LogError::io("remove", &from, 0, error)));
                }
            }
            return Err(error);
        }
        if is_spare && let Err(error) = self.storage.rename(&from, &name) {
            let error = self.refused("rename", &from, 0, error);
            if matches!(error, LogError::NoSpace { .. }) {
                self.spares.give(made);
            }
            return Err(error);
        }
        self.whole = is_spare;
        self.begun += 1;
        self.next_number = SegmentNumber(number.0 + 1);
        self.files.add(number, Some(Arc::clone(&file)));
        self.segments.push_back(Segment {
            header,
            end: self.end,
            modified_ms: time_ms,
            turn: self.begun,
        });
        self.unsynced.push(Unsynced {
            number,
            file: Arc::clone(&file),
            named: (!self.scratch).then(Arc::default),
        });
        self.current = Some(file);
        self.begin = false;
        Ok(())
    }

    /// A full disk refuses and leaves the log as it was; everything else is final.
    #[expect(clippy::wildcard_enum_match_arm, reason = "any other is final")]
    fn refused(
        &self,
        doing: &'static str,
        name: &str,
        offset: u64,
        error: std::io::Error,
    ) -> LogError {
        match LogError::full_or_io(doing, name, offset, error) {
            full @ LogError::NoSpace { .. } => full,
            error => self.failure.record(error),
        }
    }
}

impl Log for LocalLog {
    fn end(&self) -> Position {
        self.end
    }

    fn durable(&self) -> Position {
        self.durable
    }

    fn append(&mut self, expected: Position, stamp: Stamp, frame: &mut FrameBuf) -> Result<Placed> {
        self.failure.check()?;
        let len = frame.admitted(expected, self.end, stamp, self.epoch)?;
        if self.begin {
            self.rotate(stamp.time_ms)?;
        }
        let (Some(file), Some(segment)) = (&self.current, self.segments.back_mut()) else {
            unreachable!("rotate() leaves a current segment");
        };
        let offset = segment.header.offset_of(self.end);
        let sealed = frame.seal(segment.header.salt, self.end, stamp, self.durable, len);
        if let Err(error) = write_all(&**file, offset, sealed) {
            let name = segment_name(segment.header.number);
            let mut error = self.refused("write", &name, offset, error);
            if matches!(error, LogError::NoSpace { .. }) {
                // What was written of the frame is not in the log, and its place is written again.
                // Should the bytes that are missing already stand there, it must not come back
                // after a crash: the caller got an error. Best effort, as the disk
                // is full.
                let wiped = write_all(&**file, offset, &[0; FRAME_HEADER_BYTES]);
                if let Err(wipe) = wiped {
                    error = self.refused("write", &name, offset, wipe);
                }
            }
            return Err(error);
        }
        let number = segment.header.number;
        if self
            .unsynced
            .last()
            .is_none_or(|last| last.number != number)
        {
            // A segment begun here stays listed until it has its name.
            self.unsynced.push(Unsynced {
                number,
                file: Arc::clone(file),
                named: None,
            });
        }
        self.end = Position(self.end.0 + sealed.len() as u64);
        segment.end = self.end;
        segment.modified_ms = stamp.time_ms;
        self.epoch = stamp.epoch;
        let offset = offset + FRAME_HEADER_BYTES as u64;
        Ok(Placed {
            segment: number,
            offset,
            len,
            end: self.end,
        })
    }

    fn begin_segment(&mut self) {
        self.begin |= self
            .segments
            .back()
            .is_some_and(|last| last.end > last.header.first);
    }

    fn segment(&self) -> SegmentNumber {
        self.segments
            .back()
            .map_or(self.next_number, |last| last.header.number)
    }

    fn segment_bytes_left(&self) -> u64 {
        let used = match self.segments.back() {
            Some(last) if !self.begin => last.header.offset_of(last.end),
            _ => SEGMENT_HEADER_BYTES,
        };
        let bytes = self.segment_bytes().unwrap_or_default();
        bytes.saturating_sub(used + FRAME_HEADER_BYTES as u64)
    }

    fn segment_bytes(&self) -> Option<u64> {
        Some(match self.begin {
            true => self.next_bytes().unwrap_or_else(|| self.spares.bytes()),
            false => self.room,
        })
    }

    fn is_whole(&self) -> bool {
        self.whole
    }

    fn next_bytes(&self) -> Option<u64> {
        self.spares.next_bytes()
    }

    fn files_ahead(&self) -> Option<Spares> {
        Some(self.spares())
    }

    fn sync_point(&mut self) -> SyncPoint {
        let work = (!self.unsynced.is_empty()).then(|| {
            let oldest = self.segments.front().map(|first| first.header.number);
            Box::new(Sync {
                storage: Arc::clone(&self.storage),
                extents: Arc::clone(&self.extents),
                failure: self.failure.clone(),
                files: self.unsynced.clone(),
                dir: self.begun > self.begun_durable,
                then: Extent {
                    oldest: oldest.unwrap_or_default(),
                    newest: self.segment(),
                    durable: self.end,
                },
            }) as Box<dyn SyncWork>
        });
        let mut point = SyncPoint::new(self.end, work);
        point.mark = self.begun;
        point
    }

    fn synced(&mut self, point: SyncPoint) {
        self.begun_durable = self.begun_durable.max(point.mark);
        self.rooted |= self.begun_durable > 0;
        self.durable = self.durable.max(point.finish());
        // A segment that began before the point may still have frames after it.
        let (durable, begun_durable) = (self.durable, self.begun_durable);
        let segments = &self.segments;
        self.unsynced.retain(|unsynced| {
            let found = segments
                .iter()
                .rev()
                .find(|one| one.header.number == unsynced.number);
            found.is_some_and(|segment| segment.end > durable || segment.turn > begun_durable)
        });
    }

    fn segments(&self) -> Vec<SegmentInfo> {
        let describe = |segment: &Segment| SegmentInfo {
            number: segment.header.number,
            first: segment.header.first,
            bytes: segment.header.offset_of(segment.end),
            modified_ms: segment.modified_ms,
        };
        self.segments.iter().map(describe).collect()
    }

    fn begin_retire(&mut self, through: SegmentNumber) -> Result<Retiring> {
        self.failure.check()?;
        let mut given_up = Vec::new();
        while self.segments.len() > 1 {
            let number = self.segments[0].header.number;
            // The one that becomes the oldest must not be lost in a crash: without it those behind
            // it are worth nothing.
            let lasts = self.scratch || self.segments[1].turn <= self.begun_durable;
            if number > through || !lasts {
                break;
            }
            // Out of the readers' reach first: then who has the file now is all who ever will.
            given_up.push((number, self.files.take(number)));
            self.unsynced.retain(|unsynced| unsynced.number != number);
            self.segments.pop_front();
        }
        let retire = Retire {
            storage: Arc::clone(&self.storage),
            spares: self.spares.clone(),
            failure: self.failure.clone(),
            scratch: self.scratch,
        };
        let extents = Arc::clone(&self.extents);
        let then = Extent {
            oldest: self.segments[0].header.number,
            newest: SegmentNumber(0),
            durable: self.durable,
        };
        Ok(Retiring::new(move || {
            let mut freed = 0;
            if !given_up.is_empty() {
                // First it is said that they are not needed.
                retire
                    .failure
                    .of(patiently(|| extents.report(then)), "rename", EXTENT)?;
                retire.sync_dir()?;
            }
            for (number, file) in given_up {
                freed += retire.one(number, file)?;
            }
            Ok(freed)
        }))
    }

    fn end_in_order(&mut self) -> Result<()> {
        self.failure.check()?;
        let Some(oldest) = self.segments.front().map(|first| first.header.number) else {
            return Ok(());
        };
        let then = Extent {
            oldest,
            newest: self.segment(),
            durable: self.durable,
        };
        self.failure
            .of(patiently(|| self.extents.report(then)), "rename", EXTENT)?;
        self.failure.of(self.storage.sync_dir(), "sync", DIRECTORY)
    }

    fn reader(&self) -> BodyReader {
        BodyReader::new(Arc::clone(&self.files) as Arc<dyn crate::ReadBodies>)
    }
}

/// Input for the retirement of a segment.
struct Retire {
    storage: Arc<dyn Storage>,
    spares: Spares,
    failure: Failure,
    scratch: bool,
}

impl Retire {
    fn sync_dir(&self) -> Result<()> {
        if self.scratch {
            return Ok(());
        }
        self.failure.of(self.storage.sync_dir(), "sync", DIRECTORY)
    }

    /// Gives up one segment. Its file becomes a spare if nobody else has it.
    fn one(&self, number: SegmentNumber, file: Option<Arc<dyn StorageFile>>) -> Result<u64> {
        let name = segment_name(number);
        let fail = |doing, error| self.failure.record(LogError::io(doing, &name, 0, error));
        let remove = |name: &str| {
            patiently(|| self.storage.remove(name)).map_err(|error| fail("remove", error))?;
            self.sync_dir()
        };
        let file = match file.map_or_else(|| self.storage.open(&name), Ok) {
            Ok(file) => file,
            // It is not needed for what matters.
            Err(error) if is_scarce(&error) => {
                remove(&name)?;
                return Ok(self.spares.bytes());
            }
            Err(error) => return Err(fail("open", error)),
        };
        let bytes = file.len().map_err(|error| fail("measure", error))?;
        let recycle =
            self.spares.wanted() && bytes >= self.spares.bytes() && Arc::strong_count(&file) == 1;
        if !recycle {
            remove(&name)?;
            return Ok(bytes);
        }
        // Renamed before its links are counted: a backup links by segment name, so afterwards
        // their number can only fall.
        let spare = self.spares.new_name();
        match self.storage.rename(&name, &spare) {
            // Removing needs no room.
            Err(error) if is_full(&error) => {
                remove(&name)?;
                return Ok(bytes);
            }
            done => done.map_err(|error| fail("rename", error))?,
        }
        self.sync_dir()?;
        if file.links().map_err(|error| fail("inspect", error))? > 1 {
            remove(&spare)?;
            return Ok(bytes);
        }
        let made = bytes.min(self.spares.bytes());
        if bytes > made {
            file.set_len(made).map_err(|error| fail("shorten", error))?;
        }
        let spare = Spare {
            name: spare,
            file,
            bytes: made,
        };
        self.spares.give(spare);
        Ok(bytes)
    }
}

/// Work behind a sync point.
struct Sync {
    storage: Arc<dyn Storage>,
    extents: Arc<Extents>,
    failure: Failure,
    files: Vec<Unsynced>,
    /// The directory has names that are not known to be durable.
    dir: bool,
    /// The extent once all of that is durable.
    then: Extent,
}

impl SyncWork for Sync {
    fn sync(&self) -> Result<()> {
        self.failure.check()?;
        for unsynced in &self.files {
            let fail =
                |doing, name: &str, error| self.failure.record(LogError::io(doing, name, 0, error));
            let name = || segment_name(unsynced.number);
            unsynced
                .file
                .sync_data()
                .map_err(|error| fail("sync", &name(), error))?;
            let Some(named) = &unsynced.named else {
                continue;
            };
            let mut named = named.lock().unwrap_or_else(PoisonError::into_inner);
            if !*named {
                let begun = begun_name(unsynced.number);
                patiently(|| self.storage.rename(&begun, &name()))
                    .map_err(|error| fail("rename", &begun, error))?;
                *named = true;
            }
        }
        if self.dir {
            self.failure
                .of(self.storage.sync_dir(), "sync", DIRECTORY)?;
            // It need not be durable itself: the one before says less.
            self.failure.of(
                patiently(|| self.extents.report(self.then)),
                "rename",
                EXTENT,
            )?;
        }
        Ok(())
    }
}

/// Does what was not done for want of the system's memory again, for some seconds at most: it is
/// called in the background, and what it does cannot be left undone.
fn patiently(mut run: impl FnMut() -> std::io::Result<()>) -> std::io::Result<()> {
    const TRIES: u32 = 250;
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(20);
    for _ in 0..TRIES {
        match run() {
            Err(error) if is_scarce(&error) => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
    run()
}

/// Their names in errors.
const DIRECTORY: &str = "the log's directory";
const EXTENT: &str = "the extent";
