//! One frame: a header of 52 bytes and a payload nobody here looks into.
//!
//! The layout is the table "Frame" in `docs/log-format.md`.

use crate::narrow::to_u32;
use crate::{Epoch, LogError, Position, Result, Stamp};

/// Bytes of a frame before its payload.
pub const FRAME_HEADER_BYTES: usize = 52;

/// The longest payload, bytes (1 GiB). Far above any frame the server makes (it splits batches at
/// a few MiB, and bodies at 1 MiB); it only keeps a length from being nonsense.
pub const PAYLOAD_BYTES_MAX: u64 = 1 << 30;

/// The kind of a frame's payload. Its number is in the file and is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// The records of one group commit.
    Facts,
    /// One chunk, at most 1 MiB, of a large body.
    Body,
    /// Written by a repair in place of frames that could not be read; zeros.
    Lost,
    /// Of a replicated log only: says who writes it, and holds nothing for those above.
    Reign,
}

impl FrameKind {
    fn to_byte(self) -> u8 {
        match self {
            Self::Facts => 1,
            Self::Body => 2,
            Self::Lost => 3,
            Self::Reign => 4,
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Facts),
            2 => Some(Self::Body),
            3 => Some(Self::Lost),
            4 => Some(Self::Reign),
            _ => None,
        }
    }
}

/// A frame being filled: the payload with the header's room in front of it, so that an append is
/// one write and no copy.
#[derive(Clone, Debug)]
pub struct FrameBuf {
    bytes: Vec<u8>,
    kind: FrameKind,
    /// How many records the payload holds; the caller counts them.
    pub count: u32,
}

impl FrameBuf {
    /// Bytes of memory it takes.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// A frame without payload, with room for its header.
    pub fn new(kind: FrameKind) -> Self {
        Self {
            bytes: vec![0; FRAME_HEADER_BYTES],
            kind,
            count: 0,
        }
    }

    /// The payload so far.
    pub fn payload(&self) -> &[u8] {
        &self.bytes[FRAME_HEADER_BYTES..]
    }

    /// The buffer to add payload to. Only add at the end: its first [`FRAME_HEADER_BYTES`] bytes
    /// belong to the header. To take something back, use [`FrameBuf::truncate`].
    pub fn payload_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Bytes of payload.
    ///
    /// # Panics
    /// If [`FrameBuf::payload_mut`] was used to take the header's room away.
    pub fn len(&self) -> usize {
        let len = self.bytes.len().checked_sub(FRAME_HEADER_BYTES);
        len.expect("payload_mut() was used to shorten the frame")
    }

    /// Bytes of payload, if a log may append the frame: one that ends at `end`, and whose latest
    /// epoch is `latest`.
    ///
    /// # Errors
    /// The log ends elsewhere than `expected`, it has a later writer, or the payload is too large.
    pub(crate) fn admitted(
        &self,
        expected: Position,
        end: Position,
        stamp: Stamp,
        latest: Epoch,
    ) -> Result<u32> {
        if expected != end {
            return Err(LogError::Moved { expected, end });
        }
        let epoch = stamp.epoch;
        if epoch < latest {
            return Err(LogError::Fenced { epoch, latest });
        }
        let (bytes, limit) = (self.len() as u64, PAYLOAD_BYTES_MAX);
        match u32::try_from(bytes) {
            Ok(len) if bytes <= limit => Ok(len),
            _ => Err(LogError::TooLarge { bytes, limit }),
        }
    }

    /// Whether there is no payload.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shortens the payload to `len` bytes; does nothing when it is shorter.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(FRAME_HEADER_BYTES + len);
    }

    /// Empties the frame and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.truncate(FRAME_HEADER_BYTES);
        self.count = 0;
    }

    /// The kind that the next append writes.
    pub fn kind(&self) -> FrameKind {
        self.kind
    }

    /// Says what the payload is.
    pub fn set_kind(&mut self, kind: FrameKind) {
        self.kind = kind;
    }

    /// The frame as the last append wrote it, but with salt 0: the same bytes in whatever segment
    /// and on whatever machine it stands. Before any append it means nothing.
    pub fn unsalted(&mut self) -> &[u8] {
        let mut header = [0; FRAME_HEADER_BYTES];
        header.copy_from_slice(&self.bytes[..FRAME_HEADER_BYTES]);
        let crc = header_crc(0, &header);
        self.bytes[..4].copy_from_slice(&crc.to_le_bytes());
        &self.bytes
    }

    /// The frame as it stands at `position`, with salt 0 and synced through nothing, without an
    /// append. Read it with [`FrameView::read`].
    ///
    /// # Panics
    /// If the payload is over [`PAYLOAD_BYTES_MAX`].
    pub fn sealed(&mut self, position: Position, stamp: Stamp) -> &[u8] {
        let len = self.len();
        assert!(len as u64 <= PAYLOAD_BYTES_MAX, "a payload of {len} bytes");
        self.seal(0, position, stamp, Position(0), to_u32(len))
    }

    /// Fills the header in and returns the frame as it goes to the file. `payload_len` has been
    /// checked against [`PAYLOAD_BYTES_MAX`].
    pub(crate) fn seal(
        &mut self,
        salt: u64,
        position: Position,
        stamp: Stamp,
        synced_through: Position,
        payload_len: u32,
    ) -> &[u8] {
        let header = FrameHeader {
            len: payload_len,
            position,
            epoch: stamp.epoch,
            time_ms: stamp.time_ms,
            synced_through,
            count: self.count,
            payload_crc: crc32c::crc32c(self.payload()),
            kind: self.kind,
        };
        self.bytes[..FRAME_HEADER_BYTES].copy_from_slice(&header.encode(salt));
        &self.bytes
    }
}

/// A frame with salt 0, read where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameView<'a> {
    /// Writer and time of the frame.
    pub stamp: Stamp,
    pub kind: FrameKind,
    /// How many records the writer counted in the payload.
    pub count: u32,
    /// The payload, verified.
    pub payload: &'a [u8],
}

impl<'a> FrameView<'a> {
    /// Reads `bytes`, which must be one frame with salt 0 ([`FrameBuf::unsalted`]) at `position`,
    /// and nothing else.
    ///
    /// # Errors
    /// The reason why the bytes are no such frame.
    pub fn read(bytes: &'a [u8], position: Position) -> Result<Self, &'static str> {
        let Some((head, payload)) = bytes.split_first_chunk() else {
            return Err("it is shorter than a frame's header");
        };
        let header = FrameHeader::decode(head, 0, position)?;
        if header.len as usize != payload.len() {
            return Err("the frame there has another length");
        }
        if crc32c::crc32c(payload) != header.payload_crc {
            return Err("the payload's checksum is wrong");
        }
        Ok(Self {
            stamp: Stamp {
                epoch: header.epoch,
                time_ms: header.time_ms,
            },
            kind: header.kind,
            count: header.count,
            payload,
        })
    }
}

/// A frame's header, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) len: u32,
    pub(crate) position: Position,
    pub(crate) epoch: Epoch,
    pub(crate) time_ms: u64,
    pub(crate) synced_through: Position,
    pub(crate) count: u32,
    pub(crate) payload_crc: u32,
    pub(crate) kind: FrameKind,
}

impl FrameHeader {
    /// Bytes of the whole frame.
    pub(crate) fn frame_len(&self) -> u64 {
        FRAME_HEADER_BYTES as u64 + u64::from(self.len)
    }

    /// The position after the frame.
    pub(crate) fn end(&self) -> Position {
        Position(self.position.0 + self.frame_len())
    }

    pub(crate) fn encode(&self, salt: u64) -> [u8; FRAME_HEADER_BYTES] {
        let mut out = [0; FRAME_HEADER_BYTES];
        out[4..8].copy_from_slice(&self.len.to_le_bytes());
        out[8..16].copy_from_slice(&self.position.0.to_le_bytes());
        out[16..24].copy_from_slice(&self.epoch.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.time_ms.to_le_bytes());
        out[32..40].copy_from_slice(&self.synced_through.0.to_le_bytes());
        out[40..44].copy_from_slice(&self.count.to_le_bytes());
        out[44..48].copy_from_slice(&self.payload_crc.to_le_bytes());
        out[48] = self.kind.to_byte();
        let crc = header_crc(salt, &out);
        out[..4].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header that must be at `position` of a segment with `salt`.
    pub(crate) fn decode(
        bytes: &[u8; FRAME_HEADER_BYTES],
        salt: u64,
        position: Position,
    ) -> Result<Self, &'static str> {
        if u64_at(bytes, 8) != position.0 {
            return Err("no frame begins here");
        }
        if u32_at(bytes, 0) != header_crc(salt, bytes) {
            return Err("the frame header's checksum is wrong");
        }
        let kind = FrameKind::from_byte(bytes[48]).ok_or("the frame's kind is unknown")?;
        let len = u32_at(bytes, 4);
        if bytes[49..] != [0; 3] || u64::from(len) > PAYLOAD_BYTES_MAX {
            return Err("the frame header is not one this version writes");
        }
        let synced_through = Position(u64_at(bytes, 32));
        if synced_through > position {
            return Err("the frame claims to have been synced before it was written");
        }
        Ok(Self {
            len,
            position,
            epoch: Epoch(u64_at(bytes, 16)),
            time_ms: u64_at(bytes, 24),
            synced_through,
            count: u32_at(bytes, 40),
            payload_crc: u32_at(bytes, 44),
            kind,
        })
    }
}

impl FrameHeader {
    /// Payload length and payload checksum of a header whose segment's salt is not at hand. Says
    /// nothing on whether the header is right: a wrong one makes the payload's checksum fail.
    pub(crate) fn decode_unsalted(bytes: &[u8; FRAME_HEADER_BYTES]) -> (u32, u32) {
        (u32_at(bytes, 4), u32_at(bytes, 44))
    }
}

fn header_crc(salt: u64, header: &[u8; FRAME_HEADER_BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), &header[4..])
}

/// The four bytes at `at` as an integer; `bytes` is known to be long enough.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(four)
}

/// The eight bytes at `at` as an integer; `bytes` is known to be long enough.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}

#[cfg(test)]
mod tests {
    use super::{FrameBuf, FrameKind, FrameView};
    use crate::{Epoch, Position, Stamp};

    #[test]
    fn an_unsalted_frame_is_read_and_no_flipped_bit_passes() {
        let (at, stamp) = (
            Position(1_234),
            Stamp {
                epoch: Epoch(7),
                time_ms: 99,
            },
        );
        let mut frame = FrameBuf::new(FrameKind::Reign);
        frame.payload_mut().extend_from_slice(b"a payload");
        frame.count = 3;
        frame.seal(0xFEED, at, stamp, Position(1_000), 9);
        let bytes = frame.unsalted().to_vec();
        let expected = FrameView {
            stamp,
            kind: FrameKind::Reign,
            count: 3,
            payload: b"a payload",
        };
        assert_eq!(FrameView::read(&bytes, at), Ok(expected));
        assert_eq!(FrameView::read(frame.sealed(at, stamp), at), Ok(expected));
        assert!(FrameView::read(&bytes, Position(1_235)).is_err());
        for len in 0..bytes.len() {
            assert!(FrameView::read(&bytes[..len], at).is_err());
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(FrameView::read(&flipped, at).is_err(), "bit {bit}");
        }
    }
}
