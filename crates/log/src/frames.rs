//! Reading the frames of a log that is being written.

use crate::error::OfStorage as _;
use crate::{
    BodyReader, FRAME_HEADER_BYTES, FrameKind, LogError, Position, ReplayFrame, Result,
    SegmentNumber,
    frame::FrameHeader,
    scan::{Scan, Step, Window},
    segment::SegmentHeader,
    storage::read_full,
};

/// Bytes before a position in which a frame is looked for first.
const LOOK_BACK: u64 = 1 << 20;

impl BodyReader {
    /// Hands the frames of `segment` from `from` up to `until` to `seen`, until that returns false.
    /// Returns where the frame after the last seen one begins, also if that is damaged. Reads the
    /// file only, without the log; `until` is a position where a frame ends, and the log is durable
    /// up to there. Holds one frame, or 1 MiB, in memory.
    ///
    /// # Errors
    /// [`LogError::NoSegment`] when the segment was retired, [`LogError::BadRead`] when no good
    /// frame begins at `from`, [`LogError::Damaged`] when the segment's header cannot be read;
    /// others are the disk's.
    pub fn frames(
        &self,
        segment: SegmentNumber,
        (from, until): (Position, Position),
        seen: &mut dyn FnMut(&ReplayFrame<'_>) -> bool,
    ) -> Result<Position> {
        let (file, name) = (self.open(segment)?, self.name(segment));
        let header = SegmentHeader::salvage(&*file, &name)?.header;
        let mut window = Window::default();
        let bad = |offset, why: &str| LogError::BadRead {
            file: name.clone(),
            offset,
            why: why.to_owned(),
        };
        if from < header.first || until < from {
            return Err(bad(0, "the position is in another segment"));
        }
        let mut scan = Scan::new(&*file, &name, &header, Some(until), &mut window)?.up_to(until);
        let mut at = from;
        loop {
            let found = match scan.at(at)? {
                Step::Frame(found) => found,
                Step::Limit => return Ok(at),
                Step::Stop(_) if at > from => return Ok(at),
                Step::Stop(stop) => return Err(bad(header.offset_of(at), stop.why)),
            };
            let offset = scan.payload_at();
            let more = seen(&ReplayFrame {
                position: at,
                epoch: found.epoch,
                time_ms: found.time_ms,
                kind: found.kind,
                segment,
                offset,
                first_in_segment: at == header.first,
                count: found.count,
                payload: scan.payload()?,
            });
            at = found.end();
            if !more {
                return Ok(at);
            }
        }
    }

    /// Where the frames of `segment` go on behind a position at which [`BodyReader::frames`] found
    /// no good one, and when the one there was written. At `until` the time is not known. `None`:
    /// the position lies inside a good frame. `known` is a place before it where a frame begins or
    /// began; from there on the file is read. Without it one is looked for in the 1 MiB before the
    /// position, then in twice as much.
    ///
    /// # Errors
    /// [`LogError::NoSegment`] when the segment was retired; others are the disk's.
    pub fn behind_damage(
        &self,
        segment: SegmentNumber,
        known: Option<Position>,
        (at, until): (Position, Position),
    ) -> Result<Option<(Position, Option<u64>)>> {
        let (file, name) = (self.open(segment)?, self.name(segment));
        let header = match SegmentHeader::salvage(&*file, &name) {
            // Nothing of it can be verified.
            Err(LogError::Damaged { .. }) => return Ok(Some((until, None))),
            header => header?.header,
        };
        let mut window = Window::default();
        let mut here = match known {
            Some(known) => known,
            None => {
                let mut scan = Scan::new(&*file, &name, &header, None, &mut window)?.up_to(at);
                let mut back = LOOK_BACK;
                loop {
                    let near = Position(at.0.saturating_sub(back));
                    if near <= header.first {
                        break header.first;
                    }
                    if let Some(found) = scan.find_header(near)? {
                        break found.position;
                    }
                    // A frame before it is longer, or much is damaged.
                    back *= 2;
                }
            }
        };
        let mut scan = Scan::new(&*file, &name, &header, Some(until), &mut window)?.up_to(until);
        loop {
            here = match scan.at(here)? {
                Step::Frame(found) if here > at => return Ok(Some((here, Some(found.time_ms)))),
                Step::Limit if here > at => return Ok(Some((here, None))),
                Step::Frame(found) if found.end() > at && found.kind != FrameKind::Lost => {
                    return Ok(None);
                }
                Step::Frame(found) => found.end(),
                Step::Limit => return Ok(None),
                // The frame behind may be as bad.
                Step::Stop(_) => {
                    let next = scan.find_header(Position(here.0 + 1))?;
                    next.map_or(until, |next| next.position)
                }
            };
        }
    }

    /// True if a frame of `segment` begins at a position; its payload is not read.
    ///
    /// # Errors
    /// [`LogError::NoSegment`] when the segment was retired; others are the disk's.
    pub fn frame_begins(&self, segment: SegmentNumber, at: Position) -> Result<bool> {
        let (file, name) = (self.open(segment)?, self.name(segment));
        let header = match SegmentHeader::salvage(&*file, &name) {
            Err(LogError::Damaged { .. }) => return Ok(false),
            header => header?.header,
        };
        if at < header.first {
            return Ok(false);
        }
        let (offset, mut head) = (header.offset_of(at), [0; FRAME_HEADER_BYTES]);
        let len = read_full(&*file, offset, &mut head).or_io_at("read", &name, offset)?;
        Ok(len == head.len() && FrameHeader::decode(&head, header.salt, at).is_ok())
    }
}
