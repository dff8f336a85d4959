//! A log in memory. Its positions count frames, not bytes, so that a suite that takes a position
//! for an offset fails.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use quintet_log::{
    BodyReader, Epoch, FRAME_HEADER_BYTES, FrameBuf, FrameKind, Log, LogError, PAYLOAD_BYTES_MAX,
    Placed, Position, ReadBodies, ReplayFrame, Retiring, SegmentInfo, SegmentNumber, Stamp,
    StorageFile, SyncPoint, SyncWork,
};

type Result<T, E = LogError> = std::result::Result<T, E>;

/// Payload bytes after which [`Log::segment_bytes_left`] says 0: small, so that tests rotate.
const SEGMENT_BYTES: u64 = 64 << 10;

/// Contents of a [`MemLog`] that outlive it, as a disk outlives a process.
#[derive(Clone, Default)]
pub(crate) struct MemStore(Arc<Mutex<Vec<Segment>>>);

struct Segment {
    number: SegmentNumber,
    first: Position,
    frames: Vec<Frame>,
    file: Arc<MemFile>,
}

#[derive(Clone, Copy)]
struct Frame {
    position: Position,
    stamp: Stamp,
    kind: FrameKind,
    count: u32,
    offset: u64,
    len: u32,
}

/// A log in memory. Durable once a sync point was waited for, like the others.
pub(crate) struct MemLog {
    store: MemStore,
    end: Position,
    durable: Position,
    epoch: Epoch,
    begin: bool,
}

impl MemStore {
    fn lock(&self) -> MutexGuard<'_, Vec<Segment>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemLog {
    /// Opens what `store` holds and hands every frame to `replay`, oldest first.
    pub(crate) fn open(
        store: MemStore,
        replay: &mut dyn FnMut(ReplayFrame<'_>) -> Result<(), String>,
    ) -> Result<Self> {
        let mut log = Self {
            store,
            end: Position(0),
            durable: Position(0),
            epoch: Epoch(0),
            begin: true,
        };
        let segments = log.store.lock();
        for segment in segments.iter() {
            log.end = log.end.max(segment.first);
            for (index, frame) in segment.frames.iter().enumerate() {
                let payload = segment.file.slice(frame.offset, frame.len as usize);
                replay(ReplayFrame {
                    position: frame.position,
                    epoch: frame.stamp.epoch,
                    time_ms: frame.stamp.time_ms,
                    kind: frame.kind,
                    segment: segment.number,
                    offset: frame.offset,
                    first_in_segment: index == 0,
                    count: frame.count,
                    payload: &payload,
                })
                .map_err(|why| LogError::Replay {
                    file: file_name(segment.number),
                    offset: frame.offset,
                    why,
                })?;
                log.end = Position(frame.position.0 + 1);
                log.epoch = log.epoch.max(frame.stamp.epoch);
            }
        }
        log.begin = segments.is_empty();
        log.durable = log.end;
        drop(segments);
        Ok(log)
    }
}

impl Log for MemLog {
    fn end(&self) -> Position {
        self.end
    }

    fn durable(&self) -> Position {
        self.durable
    }

    fn append(&mut self, expected: Position, stamp: Stamp, frame: &mut FrameBuf) -> Result<Placed> {
        let end = self.end;
        if expected != end {
            return Err(LogError::Moved { expected, end });
        }
        let (epoch, latest) = (stamp.epoch, self.epoch);
        if epoch < latest {
            return Err(LogError::Fenced { epoch, latest });
        }
        let (bytes, limit) = (frame.len() as u64, PAYLOAD_BYTES_MAX);
        if bytes > limit {
            return Err(LogError::TooLarge { bytes, limit });
        }
        let mut segments = self.store.lock();
        if self.begin || segments.is_empty() {
            let number = segments.last().map_or(1, |last| last.number.0 + 1);
            segments.push(Segment {
                number: SegmentNumber(number),
                first: self.end,
                frames: Vec::new(),
                file: Arc::default(),
            });
            self.begin = false;
        }
        let last = segments.len() - 1;
        let segment = &mut segments[last];
        let (kind, count) = (frame.kind(), frame.count);
        let len = u32::try_from(bytes).expect("within the limit");
        let sealed = frame.sealed(self.end, stamp);
        let offset = segment.file.push(sealed) + FRAME_HEADER_BYTES as u64;
        segment.frames.push(Frame {
            position: self.end,
            stamp,
            kind,
            count,
            offset,
            len,
        });
        self.epoch = stamp.epoch;
        self.end = Position(self.end.0 + 1);
        Ok(Placed {
            segment: segment.number,
            offset,
            len,
            end: self.end,
        })
    }

    fn begin_segment(&mut self) {
        let segments = self.store.lock();
        self.begin |= segments.last().is_some_and(|last| !last.frames.is_empty());
    }

    fn segment(&self) -> SegmentNumber {
        self.store
            .lock()
            .last()
            .map_or(SegmentNumber(1), |last| last.number)
    }

    fn segment_bytes_left(&self) -> u64 {
        let segments = self.store.lock();
        let used = match segments.last() {
            Some(last) if !self.begin => last.file.slice_len(),
            _ => 0,
        };
        SEGMENT_BYTES.saturating_sub(used + FRAME_HEADER_BYTES as u64)
    }

    fn sync_point(&mut self) -> SyncPoint {
        let work: Option<Box<dyn SyncWork>> = if self.end > self.durable {
            Some(Box::new(Synced))
        } else {
            None
        };
        SyncPoint::new(self.end, work)
    }

    fn synced(&mut self, point: SyncPoint) {
        self.durable = self.durable.max(point.finish());
    }

    fn segments(&self) -> Vec<SegmentInfo> {
        let describe = |segment: &Segment| SegmentInfo {
            number: segment.number,
            first: segment.first,
            bytes: segment.file.slice_len(),
            modified_ms: segment.frames.last().map_or(0, |frame| frame.stamp.time_ms),
        };
        self.store.lock().iter().map(describe).collect()
    }

    fn begin_retire(&mut self, through: SegmentNumber) -> Result<Retiring> {
        let mut segments = self.store.lock();
        let Some(current) = segments.last().map(|last| last.number) else {
            return Ok(Retiring::new(|| Ok(0)));
        };
        let mut freed = 0;
        segments.retain(|segment| {
            let keep = segment.number > through || segment.number == current;
            if !keep {
                freed += segment.file.slice_len();
            }
            keep
        });
        Ok(Retiring::new(move || Ok(freed)))
    }

    fn reader(&self) -> BodyReader {
        BodyReader::new(Arc::new(self.store.clone()))
    }
}

impl ReadBodies for MemStore {
    fn open(&self, segment: SegmentNumber) -> Result<Arc<dyn StorageFile>> {
        let segments = self.lock();
        let found = segments
            .iter()
            .find(|candidate| candidate.number == segment);
        match found {
            Some(found) => Ok(Arc::clone(&found.file) as Arc<dyn StorageFile>),
            None => Err(LogError::NoSegment(segment)),
        }
    }

    fn name(&self, segment: SegmentNumber) -> String {
        file_name(segment)
    }
}

/// Memory needs no syncing; the point only has to be waited for, as with a disk.
struct Synced;

impl SyncWork for Synced {
    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

fn file_name(segment: SegmentNumber) -> String {
    format!("memory segment {segment}")
}

/// Bytes that grow at the end.
#[derive(Default)]
struct MemFile(Mutex<Vec<u8>>);

impl MemFile {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slice_len(&self) -> u64 {
        self.lock().len() as u64
    }

    fn slice(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        if let Some(found) = self.lock().get(start..start.saturating_add(len)) {
            out.copy_from_slice(found);
        }
        out
    }

    fn push(&self, bytes: &[u8]) -> u64 {
        let mut all = self.lock();
        all.extend_from_slice(bytes);
        (all.len() - bytes.len()) as u64
    }
}

impl StorageFile for MemFile {
    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let all = self.lock();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(all.len());
        let len = bytes.len().min(all.len() - start);
        bytes[..len].copy_from_slice(&all[start..start + len]);
        Ok(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.slice_len())
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn allocate(&self, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn links(&self) -> io::Result<u64> {
        Ok(1)
    }
}
