//! Reading the frames of a log that is being written.

use crate::{
    BodyReader, FRAME_HEADER_BYTES, LogError, Position, ReplayFrame, SegmentNumber,
    frame::FrameHeader,
    scan::{Scan, Step, Window},
    segment::SegmentHeader,
    storage::read_full,
};

impl BodyReader {
    /// Hands the frames of `segment` from `from` up to `until` to `seen`, until that returns false.
    /// Returns where the frame after the last seen one begins, also if that is damaged. Reads the file only, without the
    /// log; `until` is a position where a frame ends, and the log is durable up to there. Holds one
    /// frame, or 1 MiB, in memory.
    ///
    /// # Errors
    /// [`LogError::NoSegment`] when the segment was retired, [`LogError::BadRead`] when no good
    /// frame begins at `from`; others are the disk's.
    pub fn frames(
        &self,
        segment: SegmentNumber,
        (from, until): (Position, Position),
        seen: &mut dyn FnMut(&ReplayFrame<'_>) -> bool,
    ) -> Result<Position, LogError> {
        let (file, name) = (self.open(segment)?, self.name(segment));
        let header = SegmentHeader::read(&*file, &name)?;
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

    /// True if a frame of `segment` begins at a position; its payload is not read.
    ///
    /// # Errors
    /// [`LogError::NoSegment`] when the segment was retired; others are the disk's.
    pub fn frame_begins(&self, segment: SegmentNumber, at: Position) -> Result<bool, LogError> {
        let (file, name) = (self.open(segment)?, self.name(segment));
        let header = SegmentHeader::read(&*file, &name)?;
        if at < header.first {
            return Ok(false);
        }
        let (offset, mut head) = (header.offset_of(at), [0; FRAME_HEADER_BYTES]);
        let len = read_full(&*file, offset, &mut head)
            .map_err(|error| LogError::io("read", &name, offset, error))?;
        Ok(len == head.len() && FrameHeader::decode(&head, header.salt, at).is_ok())
    }
}
