//! An entry: 48 bytes and a frame, or a part of one. The layout is the table in
//! `docs/cluster-format.md`.

use bytes::{Buf as _, BufMut, Bytes, BytesMut};
use quintet_log::{Epoch, Position, SegmentNumber};

use crate::{Beginning, ClusterId, Seq, Writer};

/// Bytes of an entry before what it carries.
pub const HEADER_BYTES: usize = 48;

/// The most an entry carries: longer frames are cut into parts of this length.
pub const PART_BYTES: usize = 256 << 10;

const MAGIC: [u8; 4] = *b"QENT";
/// Of logs whose claims do not say where the log begins.
const SILENT: u8 = 1;
const VERSION: u8 = 2;
const BEGINS: u8 = 1;
const MORE: u8 = 2;
const PADS: u8 = 4;

/// The part in front of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The version: claims of version 2 say where the log begins, those of version 1 do not.
    pub tells: bool,
    /// The frame begins a segment. Set on its first part only.
    pub begins: bool,
    /// Another part of the same frame follows.
    pub more: bool,
    /// Fills a place behind a claim and carries nothing.
    pub pads: bool,
    /// Which part of the frame, from 0.
    pub part: u16,
    pub writer: Writer,
    /// The epoch the writer's claim began.
    pub epoch: Epoch,
    /// Where the frame begins. Of what pads: where the next one will.
    pub position: Position,
    /// The segment the frame belongs to.
    pub segment: SegmentNumber,
    /// Checksum of the entry before: [`Entry::checksum`] of the newest that is neither void nor
    /// padding; 0 of the first there ever was.
    pub chain: u32,
}

/// An entry, read where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The part in front.
    pub header: Header,
    /// Its own checksum, which the next one names.
    pub checksum: u32,
    /// A frame or a part of one.
    pub carried: &'a [u8],
}

impl Header {
    /// The entry that carries `carried`.
    ///
    /// # Panics
    /// If that is longer than [`PART_BYTES`].
    pub fn encode(&self, cluster: ClusterId, carried: &[u8]) -> Bytes {
        assert!(carried.len() <= PART_BYTES, "a part is cut by who asks");
        let mut out = BytesMut::with_capacity(HEADER_BYTES + carried.len());
        out.put_slice(&MAGIC);
        out.put_u8(if self.tells { VERSION } else { SILENT });
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        out.put_u8(bit(self.begins, BEGINS) | bit(self.more, MORE) | bit(self.pads, PADS));
        out.put_u16_le(self.part);
        out.put_u64_le(self.writer.0);
        out.put_u64_le(self.epoch.0);
        out.put_u64_le(self.position.0);
        out.put_u32_le(self.segment.0);
        out.put_u32_le(self.chain);
        // At most PART_BYTES.
        out.put_u32_le(carried.len() as u32);
        let checksum = checksum(cluster, &out, carried);
        out.put_u32_le(checksum);
        out.put_slice(carried);
        out.freeze()
    }
}

impl<'a> Entry<'a> {
    /// Reads an entry.
    ///
    /// # Errors
    /// It is none, or not of this cluster.
    pub fn decode(cluster: ClusterId, bytes: &'a [u8]) -> Result<Self, Refused> {
        let (head, carried) = bytes
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or(Refused::Short(bytes.len()))?;
        if head[..4] != MAGIC {
            return Err(Refused::Magic);
        }
        if !matches!(head[4], SILENT | VERSION) {
            return Err(Refused::Version(head[4]));
        }
        let found = (&head[44..]).get_u32_le();
        if checksum(cluster, &head[..44], carried) != found {
            return Err(Refused::Checksum);
        }
        let (bits, len) = (head[5], (&head[40..]).get_u32_le() as usize);
        let mut rest = &head[6..];
        let part = rest.get_u16_le();
        let (begins, more) = (bits & BEGINS != 0, bits & MORE != 0);
        let pads = bits & PADS != 0;
        let fits = len == carried.len() && len <= PART_BYTES && pads == (len == 0);
        if bits > (BEGINS | MORE | PADS) || !fits || pads && (bits != PADS || part != 0) {
            return Err(Refused::Header);
        }
        if begins && part != 0 || more && len != PART_BYTES {
            return Err(Refused::Header);
        }
        Ok(Self {
            header: Header {
                tells: head[4] == VERSION,
                begins,
                more,
                pads,
                part,
                writer: Writer(rest.get_u64_le()),
                epoch: Epoch(rest.get_u64_le()),
                position: Position(rest.get_u64_le()),
                segment: SegmentNumber(rest.get_u32_le()),
                chain: rest.get_u32_le(),
            },
            checksum: found,
            carried,
        })
    }
}

fn checksum(cluster: ClusterId, head: &[u8], carried: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&cluster.0.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc, head), carried)
}

/// An owner's hand: turns its frames into entries that are chained.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    pub(crate) cluster: ClusterId,
    pub(crate) writer: Writer,
    pub(crate) epoch: Epoch,
    /// Checksum of the entry before.
    pub(crate) chain: u32,
}

impl Author {
    /// The entries of `frame` ([`FrameBuf::unsalted`](quintet_log::FrameBuf::unsalted)), in order.
    pub(crate) fn entries(
        &mut self,
        frame: &[u8],
        position: Position,
        segment: SegmentNumber,
        begins: bool,
    ) -> impl Iterator<Item = Bytes> {
        let parts = frame.len().div_ceil(PART_BYTES);
        assert!(parts <= 1 << 16, "a frame has at most 1 GiB");
        (0_u16..=u16::MAX)
            .zip(frame.chunks(PART_BYTES))
            .map(move |(part, carried)| {
                let header = Header {
                    begins: begins && part == 0,
                    more: usize::from(part) + 1 < parts,
                    pads: false,
                    part,
                    ..self.header(position, segment)
                };
                let entry = header.encode(self.cluster, carried);
                // The checksum that it carries.
                self.chain = (&entry[44..]).get_u32_le();
                entry
            })
    }

    /// The filler of a position behind the claim: the same bytes in each, in no chain.
    pub(crate) fn padding(&self, position: Position, segment: SegmentNumber) -> Bytes {
        let header = Header {
            pads: true,
            ..self.header(position, segment)
        };
        header.encode(self.cluster, &[])
    }

    fn header(&self, position: Position, segment: SegmentNumber) -> Header {
        Header {
            tells: true,
            begins: false,
            more: false,
            pads: false,
            part: 0,
            writer: self.writer,
            epoch: self.epoch,
            position,
            segment,
            chain: self.chain,
        }
    }
}

/// Why an entry is not believed. A reader stops there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is shorter than a header; its length in bytes.
    #[error("it has only {0} bytes")]
    Short(usize),
    /// It does not begin as entries do.
    #[error("it is not an entry of Quintet")]
    Magic,
    /// A later program wrote it.
    #[error("it has version {0}, which this program does not know: start a later one")]
    Version(u8),
    /// Its checksum is wrong: it is damaged, or of another cluster, which look the same as
    /// the cluster's number is part of what is summed.
    #[error("its checksum is wrong: it is damaged, or of another cluster")]
    Checksum,
    /// Bits, part and length do not go together.
    #[error("its header is not one this version writes")]
    Header,
    /// A sequence is missing.
    #[error("entries are missing: {expected} was expected, not {found}")]
    Gap {
        /// The next one.
        expected: Seq,
        /// The number that came.
        found: Seq,
    },
    /// The stream's first entry does not begin a segment: somebody purged it in its middle.
    #[error(
        "the stream begins with it, but it does not begin a segment: another program purged the \
         stream"
    )]
    Start,
    /// It names another entry as the one before it.
    #[error("the entry before is not the one it was written behind")]
    Chain,
    /// Its frame does not begin where the one before ended.
    #[error("its frame is at position {found}, not at {expected}")]
    Position {
        /// Where that was.
        expected: Position,
        /// Where it says it is.
        found: Position,
    },
    /// Its segment is not the one being written, or the one it begins is not the next.
    #[error("it is of segment {found}, behind segment {current}")]
    Segment {
        /// The one being written.
        current: SegmentNumber,
        /// The number in the entry.
        found: SegmentNumber,
    },
    /// It is not the part of a frame that comes next.
    #[error("it is part {found} of a frame, not part {expected}")]
    Part {
        /// The part that does.
        expected: u16,
        /// The one it says it is.
        found: u16,
    },
    /// An epoch begins with something else than a claim.
    #[error("epoch {0} begins without a claim")]
    NoClaim(Epoch),
    /// An epoch begins a second time.
    #[error("epoch {0} is claimed a second time")]
    Claimed(Epoch),
    /// It is of an epoch before the newest claim's, and not where such may stand.
    #[error("it is of epoch {epoch}, and epoch {latest} has begun")]
    Falling {
        epoch: Epoch,
        /// The newest claim's.
        latest: Epoch,
    },
    /// It is of the newest claim's epoch and not of who made that claim.
    #[error("it is not of the writer who claimed its epoch")]
    Stranger(Writer),
    /// It pads where there is no padding.
    #[error("it is padding, and not behind a claim")]
    Padding,
    /// It says that the log begins where no segment does.
    #[error(
        "it says that the log begins with segment {} at entry {}, but no such segment begins there",
        .0.segment,
        .0.seq
    )]
    Beginning(Beginning),
    /// The frame in it cannot be read.
    #[error("the frame in it: {0}")]
    Frame(&'static str),
}
