//! The parts between header and trailer. Each part has a header of 24 bytes and a content, verified
//! against the file's salt and the part's position. The table "Parts" in `docs/run-format.md` has
//! the layout.

use std::{fmt, sync::Arc};

use crate::narrow::to_u32;
use crate::{LogError, Result, StorageFile, frame::u32_at, storage::read_full};

/// Bytes of a part before its content.
pub(super) const PART_HEADER_BYTES: usize = 24;

/// Zeros between the footers, bytes: the largest sector there is.
pub(super) const GAP_BYTES: usize = 4096;

/// Kind of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Block,
    Chunk,
    IdPage,
    KeyPage,
    Footer,
    Gap,
}

impl Kind {
    fn to_byte(self) -> u8 {
        match self {
            Self::Block => 1,
            Self::Chunk => 2,
            Self::IdPage => 3,
            Self::KeyPage => 4,
            Self::Footer => 5,
            Self::Gap => 6,
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Block),
            2 => Some(Self::Chunk),
            3 => Some(Self::IdPage),
            4 => Some(Self::KeyPage),
            5 => Some(Self::Footer),
            6 => Some(Self::Gap),
            _ => None,
        }
    }
}

/// A place in a run, for messages and reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPart {
    /// The first 128 bytes.
    Header,
    /// The last 128 bytes.
    Trailer,
    Block(u32),
    /// One or several chunks of large bodies.
    Chunk,
    /// A page of the id index, by its number.
    IdPage(u32),
    /// A page of the key index, by its number.
    KeyPage(u32),
    /// The first footer (0) or the second (1).
    Footer(u32),
    /// Filler between the footers.
    Gap,
    /// The whole file: its parts are good and do not agree.
    Whole,
}

impl RunPart {
    pub(super) fn kind(self) -> Option<Kind> {
        match self {
            Self::Block(_) => Some(Kind::Block),
            Self::Chunk => Some(Kind::Chunk),
            Self::IdPage(_) => Some(Kind::IdPage),
            Self::KeyPage(_) => Some(Kind::KeyPage),
            Self::Footer(_) => Some(Kind::Footer),
            Self::Gap => Some(Kind::Gap),
            Self::Header | Self::Trailer | Self::Whole => None,
        }
    }
}

impl fmt::Display for RunPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("the header"),
            Self::Trailer => f.write_str("the trailer"),
            Self::Block(number) => write!(f, "block {number}"),
            Self::Chunk => f.write_str("a chunk of a large body"),
            Self::IdPage(number) => write!(f, "page {number} of the id index"),
            Self::KeyPage(number) => write!(f, "page {number} of the key index"),
            Self::Footer(0) => f.write_str("the footer"),
            Self::Footer(_) => f.write_str("the second footer"),
            Self::Gap => f.write_str("the gap between the footers"),
            Self::Whole => f.write_str("the run"),
        }
    }
}

/// A part's header, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartHeader {
    /// Length of the content, bytes.
    pub(super) len: u32,
    pub(super) content_crc: u32,
    /// Block: its first ordinal; page: its index; else 0.
    pub(super) first: u32,
    /// Block: entries; page: pairs; else 0.
    pub(super) count: u32,
    pub(super) kind: Kind,
}

impl PartHeader {
    fn encode(&self, salt: u64, offset: u64) -> [u8; PART_HEADER_BYTES] {
        let mut out = [0; PART_HEADER_BYTES];
        out[4..8].copy_from_slice(&self.len.to_le_bytes());
        out[8..12].copy_from_slice(&self.content_crc.to_le_bytes());
        out[12..16].copy_from_slice(&self.first.to_le_bytes());
        out[16..20].copy_from_slice(&self.count.to_le_bytes());
        out[20] = self.kind.to_byte();
        let crc = header_crc(salt, offset, &out);
        out[..4].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes a header found at `offset`; `bytes` has at least its length.
    pub(super) fn decode(bytes: &[u8], salt: u64, offset: u64) -> Result<Self, &'static str> {
        if u32_at(bytes, 0) != header_crc(salt, offset, bytes) {
            return Err("its header's checksum is wrong");
        }
        let unknown = "its header is not one this version writes";
        if bytes[21..PART_HEADER_BYTES] != [0; 3] {
            return Err(unknown);
        }
        Ok(Self {
            len: u32_at(bytes, 4),
            content_crc: u32_at(bytes, 8),
            first: u32_at(bytes, 12),
            count: u32_at(bytes, 16),
            kind: Kind::from_byte(bytes[20]).ok_or(unknown)?,
        })
    }

    /// Bytes of the whole part.
    pub(super) fn part_len(&self) -> u64 {
        PART_HEADER_BYTES as u64 + u64::from(self.len)
    }
}

fn header_crc(salt: u64, offset: u64, header: &[u8]) -> u32 {
    let mut bytes = [0; 16 + PART_HEADER_BYTES - 4];
    bytes[..8].copy_from_slice(&salt.to_le_bytes());
    bytes[8..16].copy_from_slice(&offset.to_le_bytes());
    bytes[16..].copy_from_slice(&header[4..PART_HEADER_BYTES]);
    crc32c::crc32c(&bytes)
}

/// A part being filled: its content with the header's room in front, so that writing it is one
/// write and no copy.
#[derive(Debug)]
pub(super) struct PartBuf {
    bytes: Vec<u8>,
}

impl PartBuf {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; PART_HEADER_BYTES],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() - PART_HEADER_BYTES
    }

    /// To add content at the end of; what is there stays.
    pub(super) fn content_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Makes the content this long and gives it to be filled.
    pub(super) fn resized(&mut self, len: usize) -> &mut [u8] {
        self.bytes.resize(PART_HEADER_BYTES + len, 0);
        &mut self.bytes[PART_HEADER_BYTES..]
    }

    pub(super) fn clear(&mut self) {
        self.bytes.truncate(PART_HEADER_BYTES);
    }

    /// Fills the header in for this place and returns the part as it goes to the file. Every writer
    /// bounds its contents far below four GiB.
    pub(super) fn seal(
        &mut self,
        salt: u64,
        offset: u64,
        kind: Kind,
        first: u32,
        count: u32,
    ) -> &[u8] {
        let header = PartHeader {
            len: to_u32(self.len()),
            content_crc: crc32c::crc32c(&self.bytes[PART_HEADER_BYTES..]),
            first,
            count,
            kind,
        };
        self.bytes[..PART_HEADER_BYTES].copy_from_slice(&header.encode(salt, offset));
        &self.bytes
    }
}

/// A part as read and verified.
pub(super) struct ReadPart {
    pub(super) header: PartHeader,
    bytes: Vec<u8>,
}

impl ReadPart {
    pub(super) fn content(&self) -> &[u8] {
        &self.bytes[PART_HEADER_BYTES..]
    }

    /// Bytes of memory it holds.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Gives the memory back, for the next read.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// An open run's file with what is needed to verify its parts.
pub(super) struct Source {
    pub(super) file: Arc<dyn StorageFile>,
    pub(super) file_name: String,
    pub(super) salt: u64,
}

impl Source {
    /// Reads a part whose place and content length are known from a footer that was verified, so
    /// they are inside the file. `bytes` is memory to use.
    ///
    /// # Errors
    /// [`LogError::Damaged`], [`LogError::BadRead`].
    pub(super) fn read(
        &self,
        part: RunPart,
        offset: u64,
        content_len: u32,
        mut bytes: Vec<u8>,
    ) -> Result<ReadPart> {
        bytes.resize(PART_HEADER_BYTES + content_len as usize, 0);
        self.fill(part, offset, &mut bytes)?;
        let header = self.decode(part, offset, &bytes)?;
        if header.len != content_len {
            let why = format!("it has {} bytes instead of {content_len}", header.len);
            return Err(self.damaged(part, offset, &why));
        }
        self.verify_content(part, offset, &header, &bytes[PART_HEADER_BYTES..])?;
        Ok(ReadPart { header, bytes })
    }

    /// Reads a part's header only.
    ///
    /// # Errors
    /// [`LogError::Damaged`], [`LogError::BadRead`].
    pub(super) fn read_header(&self, part: RunPart, offset: u64) -> Result<PartHeader> {
        let mut bytes = [0; PART_HEADER_BYTES];
        self.fill(part, offset, &mut bytes)?;
        self.decode(part, offset, &bytes)
    }

    pub(super) fn verify_content(
        &self,
        part: RunPart,
        offset: u64,
        header: &PartHeader,
        content: &[u8],
    ) -> Result<()> {
        if crc32c::crc32c(content) == header.content_crc {
            Ok(())
        } else {
            Err(self.damaged(part, offset, "its content's checksum is wrong"))
        }
    }

    /// Reads as many bytes as asked; `part` says for what.
    pub(super) fn fill(&self, part: RunPart, offset: u64, bytes: &mut [u8]) -> Result<()> {
        match read_full(&*self.file, offset, bytes) {
            Ok(read) if read == bytes.len() => Ok(()),
            Ok(_) => Err(self.damaged(part, offset, "the file ends inside it")),
            Err(error) => Err(LogError::unreadable(&self.file_name, offset, &error)),
        }
    }

    pub(super) fn damaged(&self, part: RunPart, offset: u64, why: &str) -> LogError {
        let why = format!("{part} should be here: {why}");
        LogError::damaged(&self.file_name, offset, why)
    }

    fn decode(&self, part: RunPart, offset: u64, bytes: &[u8]) -> Result<PartHeader> {
        let header = PartHeader::decode(bytes, self.salt, offset)
            .map_err(|why| self.damaged(part, offset, why))?;
        if part.kind() != Some(header.kind) {
            let why = format!("it is of another kind, {:?}", header.kind);
            return Err(self.damaged(part, offset, &why));
        }
        Ok(header)
    }
}
