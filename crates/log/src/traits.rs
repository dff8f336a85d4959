//! The contract of every log.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{
    FRAME_HEADER_BYTES, FrameBuf, LogError, Placed, Position, Recovery, ReplayFrame, Result,
    SegmentInfo, SegmentNumber, Spares, Stamp, StorageFile, frame::FrameHeader, storage::read_full,
};

/// Receiver of each frame of a log that is opened, oldest first. Its error ends the opening.
pub type Replay<'a> = &'a mut dyn FnMut(ReplayFrame<'_>) -> Result<(), String>;

/// A log before it is opened.
pub trait LogStore {
    /// Opens the log, beginning one where there is none, and hands every frame to `replay`, oldest
    /// first. All of it is durable when this returns, and nobody else writes it from then on, or
    /// is found out by who does.
    ///
    /// # Errors
    /// It cannot be read, or `replay` refused a frame. What `replay` has built by then is worth
    /// nothing.
    fn open(self: Box<Self>, replay: Replay<'_>) -> Result<(Box<dyn Log>, Recovery)>;
}

/// An ordered, durable sequence of frames with one writer.
///
/// Written is not durable: [`Log::append`] hands a frame to the operating system, and only a
/// [`SyncPoint`] waited for and given back with [`Log::synced`] makes it survive a power cut.
pub trait Log: Send {
    /// Where the next frame goes.
    fn end(&self) -> Position;

    /// Every frame that ends at or before this survives a crash. Never falls.
    fn durable(&self) -> Position;

    /// Writes a frame at the end: one write, no copy. It is not durable yet.
    ///
    /// `expected` must be [`Log::end`]: a writer that was overtaken, or repeats itself, gets an
    /// error instead of appending twice. The buffer keeps its payload and may be cleared and used
    /// again.
    ///
    /// Never begins a segment on its own, since only the caller can put a snapshot first: see
    /// [`Log::segment_bytes_left`] and [`Log::begin_segment`]. A frame that does not fit makes the
    /// segment longer.
    ///
    /// # Errors
    /// [`LogError::Moved`], [`LogError::Fenced`], [`LogError::TooLarge`] and [`LogError::NoSpace`]
    /// leave the log as it was. Others are final.
    fn append(&mut self, expected: Position, stamp: Stamp, frame: &mut FrameBuf) -> Result<Placed>;

    /// Makes the next append begin a new segment; nothing is written before. Does nothing while
    /// the current segment has no frame.
    fn begin_segment(&mut self);

    /// The segment of the last frame, or the first one's number while there is none.
    fn segment(&self) -> SegmentNumber;

    /// Payload bytes that one more frame may have before it makes the segment longer than it
    /// should be. 0 when there is no room for a frame, and after [`Log::begin_segment`] the room
    /// of an empty segment.
    fn segment_bytes_left(&self) -> u64;

    /// Whether the segment being written was made ahead, so that it can be filled whatever becomes
    /// of the disk.
    fn is_whole(&self) -> bool {
        true
    }

    /// Bytes that the segment being written, or about to be begun, is meant to hold; `None`: as
    /// many as its owner likes.
    fn segment_bytes(&self) -> Option<u64> {
        None
    }

    /// Length of the file that is there already for the next segment, so that it can be begun
    /// whatever becomes of the disk, bytes; `None`: there is none. A log that needs none has
    /// `u64::MAX`.
    fn next_bytes(&self) -> Option<u64> {
        Some(u64::MAX)
    }

    /// The files that are made ahead, if this log has any: some thread of the caller's
    /// has to fill them.
    fn files_ahead(&self) -> Option<Spares> {
        None
    }

    /// Everything appended so far, as a thing to wait for without holding the log.
    fn sync_point(&mut self) -> SyncPoint;

    /// Records that `point` was waited for, and so how far the log is durable.
    ///
    /// # Panics
    /// If [`SyncPoint::wait`] was not called on it, or failed: that would promise what is not so.
    fn synced(&mut self, point: SyncPoint);

    /// The segments, oldest first.
    fn segments(&self) -> Vec<SegmentInfo>;

    /// Gives up every segment up to and including `through`: from now on they are not read. The
    /// segment being written always stays. Everything that must be remembered has been appended
    /// again, and is durable, before this is called. What it answers does the directory
    /// operations, which take as long as the disk likes, and needs no lock on the log; dropped
    /// without being run, it leaves files that the next start reads again.
    ///
    /// # Errors
    /// The log has failed before.
    fn begin_retire(&mut self, through: SegmentNumber) -> Result<Retiring>;

    /// [`Log::begin_retire`] and its work; returns the bytes freed or recycled.
    ///
    /// # Errors
    /// Final, with some of the segments given up.
    fn retire(&mut self, through: SegmentNumber) -> Result<u64> {
        self.begin_retire(through)?.run()
    }

    /// Says where the log ends, so that the next start knows what must be there. After everything
    /// was made durable; more may be appended.
    ///
    /// # Errors
    /// Final.
    fn end_in_order(&mut self) -> Result<()> {
        Ok(())
    }

    /// Reads payloads by place, without the log.
    fn reader(&self) -> BodyReader;

    /// Says that the owner lives: a frame without records. Does nothing in a log that nobody else
    /// could own.
    ///
    /// # Errors
    /// As [`Log::append`].
    fn heartbeat(&mut self, _stamp: Stamp) -> Result<()> {
        Ok(())
    }

    /// Says that this is the owner's last frame, and which node it wishes to take over; empty:
    /// any node that can. From then on nothing is appended. Does nothing in a log that nobody else
    /// could own.
    ///
    /// # Errors
    /// As [`Log::append`].
    fn handoff(&mut self, _stamp: Stamp, _to: &str) -> Result<()> {
        Ok(())
    }

    /// The log's state of acknowledgements, if others acknowledge the appended frames and may own
    /// the log later.
    fn shared(&self) -> Option<Arc<dyn Shared>> {
        None
    }
}

/// A log that others acknowledge and could come to own, for those who do not write it. Written by
/// those who implement [`Log`].
pub trait Shared: Send + Sync {
    /// Everything before this is durable. Never falls.
    fn durable(&self) -> Position;

    /// Whether what was decided before this was asked may be answered: nobody else had begun to
    /// decide by then.
    fn has_lease(&self) -> bool;

    /// Whether a frame would be sent at once.
    fn has_room(&self) -> bool;

    /// For how long the oldest frame that is not durable has been on its way; none: all are.
    fn waits(&self) -> Option<Duration>;

    /// Bytes appended that are not durable.
    fn unacked(&self) -> u64;

    /// Has `callback` called from now on after each acknowledgement, by any thread and without
    /// locks, and when none will come any more.
    fn listen(&self, callback: Arc<dyn Fn() + Send + Sync>);

    /// Whether no acknowledgement will come any more.
    fn is_over(&self) -> bool;
}

/// The rest of giving up segments.
pub struct Retiring(Box<dyn FnOnce() -> Result<u64> + Send>);

impl Retiring {
    /// Work that `run` does.
    pub fn new(run: impl FnOnce() -> Result<u64> + Send + 'static) -> Self {
        Self(Box::new(run))
    }

    /// Removes or recycles the files, oldest first; returns the bytes freed or recycled.
    ///
    /// # Errors
    /// Final, with some of the files given up.
    pub fn run(self) -> Result<u64> {
        (self.0)()
    }
}

/// Where the log ended at some moment, and how to make it durable up to there.
///
/// Points are waited for, and given back, in the order they were taken.
#[must_use = "a sync point that is not waited for makes nothing durable"]
pub struct SyncPoint {
    end: Position,
    /// For the log that made it: which directory changes the work covers.
    pub(crate) mark: u64,
    work: Option<Box<dyn SyncWork>>,
    done: AtomicBool,
}

/// Work behind a [`SyncPoint`]. Implementations of [`Log`] write it.
pub trait SyncWork: Send + Sync {
    /// Returns when everything before the point is durable.
    ///
    /// # Errors
    /// Final: the log knows, and refuses everything from now on.
    fn sync(&self) -> Result<()>;
}

impl SyncPoint {
    /// A point at `end`; `work` is absent when everything is durable already.
    pub fn new(end: Position, work: Option<Box<dyn SyncWork>>) -> Self {
        Self {
            end,
            mark: 0,
            done: AtomicBool::new(work.is_none()),
            work,
        }
    }

    /// The position this makes durable.
    pub fn end(&self) -> Position {
        self.end
    }

    /// Whether there is nothing to wait for.
    pub fn is_idle(&self) -> bool {
        self.work.is_none()
    }

    /// Returns when everything before [`SyncPoint::end`] is durable; blocks on the disk.
    ///
    /// # Errors
    /// Final. What the disk holds is unknown, and a second sync could succeed without having
    /// written anything, so the log refuses everything from now on.
    pub fn wait(&self) -> Result<()> {
        if let Some(work) = &self.work {
            work.sync()?;
        }
        self.done.store(true, Ordering::Release);
        Ok(())
    }

    /// Asserts that this was waited for, and returns its position. For implementors of [`Log`].
    ///
    /// # Panics
    /// If it was not.
    pub fn finish(&self) -> Position {
        assert!(
            self.done.load(Ordering::Acquire),
            "synced() got a point without a waiter"
        );
        self.end
    }
}

impl fmt::Debug for SyncPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncPoint")
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

/// Where a [`BodyReader`] gets the files of segments from. Written by those who implement [`Log`].
pub trait ReadBodies: Send + Sync {
    /// The file of a segment; as long as the handle lives, its content stays.
    ///
    /// # Errors
    /// [`LogError::NoSegment`] when it was retired.
    fn open(&self, segment: SegmentNumber) -> Result<Arc<dyn StorageFile>>;

    /// The name to show in errors.
    fn name(&self, segment: SegmentNumber) -> String;
}

/// Reads payloads by segment and offset, from any thread.
#[derive(Clone)]
pub struct BodyReader {
    files: Arc<dyn ReadBodies>,
}

impl BodyReader {
    /// A reader that shares `files`; clones of it are cheap.
    pub fn new(files: Arc<dyn ReadBodies>) -> Self {
        Self { files }
    }

    /// The file of a segment. Holding it keeps the content, also when the segment is retired
    /// meanwhile; a body on its way to a client holds it until the last byte.
    ///
    /// # Errors
    /// [`LogError::NoSegment`] when it was retired before.
    pub fn open(&self, segment: SegmentNumber) -> Result<Arc<dyn StorageFile>> {
        self.files.open(segment)
    }

    /// The name to show in errors.
    pub(crate) fn name(&self, segment: SegmentNumber) -> String {
        self.files.name(segment)
    }

    /// Fills `out` from `offset` of a segment. Verifies nothing.
    ///
    /// # Errors
    /// [`LogError::BadRead`] when the file ends before; else as [`BodyReader::open`].
    pub fn read(&self, segment: SegmentNumber, offset: u64, out: &mut [u8]) -> Result<()> {
        let file = self.files.open(segment)?;
        self.fill(&*file, segment, offset, out)
    }

    /// The payload of `len` bytes at `offset` ([`Placed`] tells both), verified against its
    /// frame's checksum. Allocates `len` bytes.
    ///
    /// # Errors
    /// [`LogError::BadRead`] when there is no such payload or it does not read as written.
    pub fn read_frame_payload(
        &self,
        segment: SegmentNumber,
        offset: u64,
        len: u32,
    ) -> Result<Vec<u8>> {
        let bad = |why: &str| LogError::BadRead {
            file: self.files.name(segment),
            offset,
            why: why.to_owned(),
        };
        let start = offset
            .checked_sub(FRAME_HEADER_BYTES as u64)
            .ok_or_else(|| bad("no frame begins before it"))?;
        let file = self.files.open(segment)?;
        let mut head = [0; FRAME_HEADER_BYTES];
        self.fill(&*file, segment, start, &mut head)?;
        let (found, checksum) = FrameHeader::decode_unsalted(&head);
        if found != len {
            return Err(bad("the frame there has another length"));
        }
        let mut payload = vec![0; len as usize];
        self.fill(&*file, segment, offset, &mut payload)?;
        if crc32c::crc32c(&payload) != checksum {
            return Err(bad("the payload's checksum is wrong"));
        }
        Ok(payload)
    }

    fn fill(
        &self,
        file: &dyn StorageFile,
        segment: SegmentNumber,
        offset: u64,
        out: &mut [u8],
    ) -> Result<()> {
        let name = || self.files.name(segment);
        let read = read_full(file, offset, out)
            .map_err(|error| LogError::io("read", &name(), offset, error))?;
        if read < out.len() {
            let why = "the file ends before it does".to_owned();
            return Err(LogError::BadRead {
                file: name(),
                offset,
                why,
            });
        }
        Ok(())
    }
}

impl fmt::Debug for BodyReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyReader").finish_non_exhaustive()
    }
}
