//! Reading frames from a segment's file, in order or by looking for them.

use crate::error::OfStorage as _;
use crate::narrow::to_usize;
use crate::{
    FRAME_HEADER_BYTES, Position, Result, StorageFile,
    frame::{FrameHeader, u64_at},
    segment::SegmentHeader,
    storage::read_full,
};

/// Bytes read at once: large enough for the disk, small enough for the cache.
const WINDOW_BYTES: usize = 1 << 20;

/// Why no frame could be read at a position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    pub(crate) why: &'static str,
    /// Whether the bytes there look as if a frame had been written.
    pub(crate) looks_like_frame: bool,
}

/// Content of a position.
pub(crate) enum Step {
    /// A good frame; its payload is in [`Scan::payload`].
    Frame(FrameHeader),
    /// The limit: where the next segment begins.
    Limit,
    /// No good frame.
    Stop(Stop),
}

/// A moving view of a file. Holds at most one frame, or [`WINDOW_BYTES`].
#[derive(Default)]
pub(crate) struct Window {
    bytes: Vec<u8>,
    at: u64,
    len: usize,
}

impl Window {
    fn forget(&mut self) {
        self.len = 0;
    }

    /// The `want` bytes at `offset`, or fewer where the file ends.
    fn view(
        &mut self,
        file: &dyn StorageFile,
        name: &str,
        file_len: u64,
        offset: u64,
        want: usize,
    ) -> Result<&[u8]> {
        let inside = offset >= self.at && offset + want as u64 <= self.at + self.len as u64;
        if !inside {
            let rest = usize::try_from(file_len.saturating_sub(offset)).unwrap_or(usize::MAX);
            let room = want.max(WINDOW_BYTES.min(rest));
            if self.bytes.len() < room {
                self.bytes.resize(room, 0);
            }
            // One large frame must not keep its memory for the rest of the log.
            if self.bytes.len() > room.max(WINDOW_BYTES) {
                self.bytes.truncate(room);
                self.bytes.shrink_to_fit();
            }
            self.len = 0;
            self.len =
                read_full(file, offset, &mut self.bytes[..room]).or_io_at("read", name, offset)?;
            self.at = offset;
        }
        // Inside the window, so the difference fits.
        let start = to_usize(offset - self.at);
        let end = (start + want).min(self.len);
        Ok(&self.bytes[start.min(end)..end])
    }
}

/// The frames of one segment.
pub(crate) struct Scan<'a> {
    file: &'a dyn StorageFile,
    name: &'a str,
    header: &'a SegmentHeader,
    /// Where the next segment begins; frames behind it are remains.
    limit: Option<Position>,
    file_len: u64,
    window: &'a mut Window,
    /// Place of the last frame's payload.
    payload: (u64, usize),
}

impl<'a> Scan<'a> {
    pub(crate) fn new(
        file: &'a dyn StorageFile,
        name: &'a str,
        header: &'a SegmentHeader,
        limit: Option<Position>,
        window: &'a mut Window,
    ) -> Result<Self> {
        window.forget();
        let file_len = file.len().or_io("measure", name)?;
        Ok(Self {
            file,
            name,
            header,
            limit,
            file_len,
            window,
            payload: (0, 0),
        })
    }

    /// Reads nothing of the file behind `end`.
    pub(crate) fn up_to(mut self, end: Position) -> Self {
        self.file_len = self.file_len.min(self.header.offset_of(end));
        self
    }

    /// Where the payload of the last frame begins in the file.
    pub(crate) fn payload_at(&self) -> u64 {
        self.payload.0
    }

    /// Reads the step at `position`, which is not before the segment's first.
    pub(crate) fn at(&mut self, position: Position) -> Result<Step> {
        if self.limit == Some(position) {
            return Ok(Step::Limit);
        }
        let stop = |why, looks_like_frame| {
            Ok(Step::Stop(Stop {
                why,
                looks_like_frame,
            }))
        };
        let offset = self.header.offset_of(position);
        let head = self.window.view(
            self.file,
            self.name,
            self.file_len,
            offset,
            FRAME_HEADER_BYTES,
        )?;
        let Ok(head) = <&[u8; FRAME_HEADER_BYTES]>::try_from(head) else {
            return stop("the file ends", false);
        };
        let header = match FrameHeader::decode(head, self.header.salt, position) {
            Ok(header) => header,
            Err(why) => {
                // Position 0 is also what a zero-filled file seems to say.
                let is_written =
                    u64_at(head, 8) == position.0 && head.iter().any(|byte| *byte != 0);
                return stop(why, is_written);
            }
        };
        if self.limit.is_some_and(|limit| header.end() > limit) {
            return stop("the frame reaches into the next segment", true);
        }
        let payload_at = offset + FRAME_HEADER_BYTES as u64;
        if payload_at + u64::from(header.len) > self.file_len {
            return stop("the file ends inside the frame", true);
        }
        let len = header.len as usize;
        let payload = self
            .window
            .view(self.file, self.name, self.file_len, payload_at, len)?;
        if payload.len() < len || crc32c::crc32c(payload) != header.payload_crc {
            return stop("the payload's checksum is wrong", true);
        }
        self.payload = (payload_at, len);
        Ok(Step::Frame(header))
    }

    /// The payload of the frame that [`Scan::at`] returned last.
    pub(crate) fn payload(&mut self) -> Result<&[u8]> {
        let (offset, len) = self.payload;
        self.window
            .view(self.file, self.name, self.file_len, offset, len)
    }

    /// The next good frame header at or after `from`, at any offset. Its payload may be bad.
    ///
    /// A frame's place says which position it must carry, so this is one comparison per byte, and
    /// nothing a client stored can make it cost more: it does not know the salt.
    pub(crate) fn find_header(&mut self, from: Position) -> Result<Option<FrameHeader>> {
        let mut position = from;
        let last = self.file_len.saturating_sub(FRAME_HEADER_BYTES as u64);
        while self.header.offset_of(position) <= last {
            if self.limit.is_some_and(|limit| position >= limit) {
                return Ok(None);
            }
            let offset = self.header.offset_of(position);
            let rest = usize::try_from(self.file_len - offset).unwrap_or(usize::MAX);
            let view = self.window.view(
                self.file,
                self.name,
                self.file_len,
                offset,
                rest.min(WINDOW_BYTES),
            )?;
            if view.len() < FRAME_HEADER_BYTES {
                return Ok(None);
            }
            let candidates = view.len() - FRAME_HEADER_BYTES + 1;
            let mut from = 0;
            while let Some(index) = candidate(&view[..candidates + 15], position.0, from) {
                let here = Position(position.0 + index as u64);
                if self.limit.is_some_and(|limit| here >= limit) {
                    return Ok(None);
                }
                let mut head = [0; FRAME_HEADER_BYTES];
                head.copy_from_slice(&view[index..index + FRAME_HEADER_BYTES]);
                if let Ok(header) = FrameHeader::decode(&head, self.header.salt, here) {
                    return Ok(Some(header));
                }
                from = index + 1;
            }
            position.0 += candidates as u64;
        }
        Ok(None)
    }
}

/// The first index, from `index` on, where eight bytes further on `base + index` stands.
fn candidate(view: &[u8], base: u64, mut index: usize) -> Option<usize> {
    while index + 16 <= view.len() {
        let field = u64_at(view, index + 8);
        if field == base.wrapping_add(index as u64) && field != 0 {
            return Some(index);
        }
        index += 1;
        if field == 0 {
            // A fresh segment is zeros for the most part: jump to the next byte that is not.
            let zeros = zeros_at(&view[index + 8..]);
            index += zeros.saturating_sub(8);
        }
    }
    None
}

fn zeros_at(bytes: &[u8]) -> usize {
    let blocks = bytes
        .chunks_exact(64)
        .take_while(|block| **block == [0; 64])
        .count()
        * 64;
    let rest = bytes[blocks..]
        .iter()
        .take_while(|byte| **byte == 0)
        .count();
    blocks + rest
}
