//! Entries in a block. The layout is the table "Block" in `docs/run-format.md`.

use crate::{
    frame::u64_at,
    run::{
        part::{PartBuf, ReadPart},
        varint::{self, VARINT_BYTES_MAX},
    },
};

const KEY_BYTES: usize = 8;

/// The most bytes an entry takes beside its payload.
pub(super) const ENTRY_OVERHEAD_MAX: usize = 2 * VARINT_BYTES_MAX + KEY_BYTES;

/// An entry of a run, read from a block that is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its place in the run, from 0.
    pub ordinal: u32,
    /// Key of the entry, unique in its run.
    pub id: u64,
    /// A hash of what else it is found by, if anything.
    pub key: Option<u64>,
    /// The caller's bytes.
    pub payload: &'a [u8],
}

/// A block being filled.
pub(super) struct BlockBuf {
    pub(super) part: PartBuf,
    pub(super) count: u32,
    last_id: u64,
}

impl BlockBuf {
    pub(super) fn new() -> Self {
        Self {
            part: PartBuf::new(),
            count: 0,
            last_id: 0,
        }
    }

    pub(super) fn push(&mut self, id: u64, key: Option<u64>, payload: &[u8]) {
        let out = self.part.content_mut();
        out.reserve(ENTRY_OVERHEAD_MAX + payload.len());
        varint::put(out, (payload.len() as u64) << 1 | u64::from(key.is_some()));
        varint::put_step(out, self.last_id, id);
        if let Some(key) = key {
            out.extend_from_slice(&key.to_le_bytes());
        }
        out.extend_from_slice(payload);
        self.last_id = id;
        self.count += 1;
    }

    pub(super) fn clear(&mut self) {
        self.part.clear();
        self.count = 0;
        self.last_id = 0;
    }
}

/// A block as read from a run: verified, and whole in memory.
pub struct Block {
    part: ReadPart,
    number: u32,
    first: u32,
    count: u32,
}

impl Block {
    /// Takes a part whose checksums are right; `None` when its content is not `count` entries.
    pub(super) fn new(part: ReadPart, number: u32, first: u32, count: u32) -> Option<Self> {
        let mut rest = part.content();
        let (mut id, mut left) = (0, count);
        while !rest.is_empty() && left > 0 {
            next_entry(&mut rest, &mut id)?;
            left -= 1;
        }
        (rest.is_empty() && left == 0).then_some(Self {
            part,
            number,
            first,
            count,
        })
    }

    /// Its number in the run, from 0.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The ordinal of its first entry.
    pub fn first_ordinal(&self) -> u32 {
        self.first
    }

    /// How many entries it has; at least one.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Bytes of memory it takes, unused room in memory it was given included.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.part.capacity()
    }

    /// Its entries by rising ordinal, decoded one by one.
    pub fn entries(&self) -> Entries<'_> {
        Entries {
            rest: self.part.content(),
            ordinal: self.first,
            last_id: 0,
        }
    }

    /// One entry by its ordinal; `None` when it is in another block.
    pub fn entry(&self, ordinal: u32) -> Option<Entry<'_>> {
        self.entry_from(&mut BlockPosition::default(), ordinal)
    }

    /// The same, looked for from `position` on, which is where the one before was found: as good as
    /// [`Block::entries`] for a caller that cannot keep a borrow. Looks from the beginning where
    /// `position` is not of this block or already behind it.
    pub fn entry_from(&self, position: &mut BlockPosition, ordinal: u32) -> Option<Entry<'_>> {
        let content = self.part.content();
        if position.block != Some(self.number) || position.ordinal > ordinal {
            *position = BlockPosition {
                block: Some(self.number),
                ordinal: self.first,
                ..BlockPosition::default()
            };
        }
        let mut entries = Entries {
            rest: content.get(position.offset..)?,
            ordinal: position.ordinal,
            last_id: position.last_id,
        };
        let entry = entries.nth(ordinal.checked_sub(position.ordinal)? as usize)?;
        position.offset = content.len() - entries.rest.len();
        (position.ordinal, position.last_id) = (entries.ordinal, entries.last_id);
        Some(entry)
    }

    /// Gives the block's memory back, for
    /// [`Run::read_block_into`](crate::run::Run::read_block_into).
    pub fn into_bytes(self) -> Vec<u8> {
        self.part.into_bytes()
    }
}

/// A place between two entries of a block, for [`Block::entry_from`].
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockPosition {
    block: Option<u32>,
    offset: usize,
    ordinal: u32,
    last_id: u64,
}

/// The entries of a block, in order.
#[derive(Clone)]
pub struct Entries<'a> {
    rest: &'a [u8],
    ordinal: u32,
    last_id: u64,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let (key, payload) = next_entry(&mut self.rest, &mut self.last_id)?;
        let entry = Entry {
            ordinal: self.ordinal,
            id: self.last_id,
            key,
            payload,
        };
        // The last entry of the largest run may be the last ordinal there is.
        self.ordinal = self.ordinal.wrapping_add(1);
        Some(entry)
    }
}

/// Takes an entry off the front and brings `id` to its id; `None` when there is none.
fn next_entry<'a>(rest: &mut &'a [u8], id: &mut u64) -> Option<(Option<u64>, &'a [u8])> {
    let head = varint::get(rest)?;
    *id = varint::get_step(rest, *id)?;
    let key = if head & 1 == 1 {
        Some(u64_at(varint::take(rest, KEY_BYTES as u64)?, 0))
    } else {
        None
    };
    Some((key, varint::take(rest, head >> 1)?))
}
