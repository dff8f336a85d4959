//! The index of a run: the only part that stays in memory while the run is open. The table "Footer"
//! in `docs/run-format.md` has the layout.

use crate::run::{
    CHUNK_BYTES_MAX, ENTRY_BYTES_MAX, STATE_INDEX_TAG_BYTES_MAX,
    block::ENTRY_OVERHEAD_MAX,
    cover::COVER_BYTES,
    pages::{PAGE_BYTES_MAX, PageIndex, PageRef},
    part::PART_HEADER_BYTES,
    varint,
};

const HEADER: u64 = PART_HEADER_BYTES as u64;

/// The longest content of a block a writer can be asked for: its target, or one entry.
#[expect(clippy::cast_possible_truncation, reason = "some MiB")]
pub(super) const BLOCK_BYTES_MAX: u32 = (ENTRY_BYTES_MAX + ENTRY_OVERHEAD_MAX) as u32;

/// Entries that belong together and stand together, such as those of one queue in one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateIndex {
    /// The caller's label of the run.
    pub tag: Box<[u8]>,
    pub first_block: u32,
    /// How many blocks it has; none when nothing was put into it.
    pub blocks: u32,
    /// The ordinal of its first entry.
    pub first_ordinal: u32,
    /// How many entries it has.
    pub entries: u32,
    pub payload_bytes: u64,
}

/// Where a block is: 16 bytes, for there is one of these in memory for each block of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockRef {
    /// Offset of the part.
    pub(super) offset: u64,
    /// Length of its content.
    pub(super) len: u32,
    /// The ordinal of its first entry.
    pub(super) first: u32,
}

/// A footer, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) entries: u32,
    pub(super) payload_bytes: u64,
    pub(super) chunks: u64,
    pub(super) chunk_bytes: u64,
    pub(super) state_indexes: Vec<StateIndex>,
    pub(super) blocks: Vec<BlockRef>,
    pub(super) ids: PageIndex,
    pub(super) keys: PageIndex,
}

impl Footer {
    /// How many entries a block that exists has.
    pub(super) fn count_of(&self, block: usize) -> u32 {
        let end = self
            .blocks
            .get(block + 1)
            .map_or(self.entries, |next| next.first);
        end - self.blocks[block].first
    }

    /// Gives back the room that growing left.
    pub(super) fn shrink(&mut self) {
        self.state_indexes.shrink_to_fit();
        self.blocks.shrink_to_fit();
        self.ids.pages.shrink_to_fit();
        self.keys.pages.shrink_to_fit();
    }

    /// Bytes of memory it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        let tags = self.state_indexes.iter();
        let tags: usize = tags.map(|state_index| state_index.tag.len()).sum();
        size_of::<Self>()
            + self.state_indexes.capacity() * size_of::<StateIndex>()
            + tags
            + self.blocks.capacity() * size_of::<BlockRef>()
            + self.ids.memory_bytes()
            + self.keys.memory_bytes()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + 8 * self.blocks.len());
        for total in [self.payload_bytes, self.chunks, self.chunk_bytes] {
            varint::put(&mut out, total);
        }
        varint::put(&mut out, self.state_indexes.len() as u64);
        for state_index in &self.state_indexes {
            varint::put(&mut out, state_index.tag.len() as u64);
            out.extend_from_slice(&state_index.tag);
            varint::put(&mut out, u64::from(state_index.blocks));
            varint::put(&mut out, state_index.payload_bytes);
        }
        varint::put(&mut out, self.blocks.len() as u64);
        let mut end = COVER_BYTES;
        for (number, block) in self.blocks.iter().enumerate() {
            varint::put(&mut out, block.offset - end);
            varint::put(&mut out, u64::from(block.len));
            varint::put(&mut out, u64::from(self.count_of(number)));
            end = block.offset + HEADER + u64::from(block.len);
        }
        for index in [&self.ids, &self.keys] {
            varint::put(&mut out, u64::from(index.pairs));
            varint::put(&mut out, index.greatest);
            varint::put(&mut out, index.pages.len() as u64);
            let mut first = 0;
            for (number, page) in index.pages.iter().enumerate() {
                varint::put(&mut out, u64::from(index.position(number).1));
                varint::put(&mut out, page.first - first);
                first = page.first;
            }
        }
        out
    }

    /// Decodes the content of the footer that stands at `offset`. `None` when it is not one that a
    /// writer makes; every place in what is returned is inside the file and before the footer.
    pub(super) fn decode(content: &[u8], offset: u64) -> Option<Self> {
        let mut rest = content;
        let rest = &mut rest;
        let mut footer = Self {
            payload_bytes: varint::get(rest)?,
            chunks: varint::get(rest)?,
            chunk_bytes: varint::get(rest)?,
            ..Self::default()
        };
        footer.state_indexes = decode_state_indexes(rest)?;
        let blocks_end = footer.decode_blocks(rest)?;
        footer.lay_out_state_indexes()?;
        footer.ids = decode_index(rest)?;
        footer.keys = decode_index(rest)?;
        let pairs_fit = footer.ids.pairs == footer.entries && footer.keys.pairs <= footer.entries;
        if !rest.is_empty() || !pairs_fit {
            return None;
        }
        // Pages are placed from their end, where the footer is.
        let ids_end = place_pages(&mut footer.keys, offset)?;
        let pages = place_pages(&mut footer.ids, ids_end)?;
        let chunks_fit = footer.chunk_bytes <= footer.chunks.checked_mul(CHUNK_BYTES_MAX as u64)?
            && footer.chunk_bytes <= offset
            && footer.payload_bytes <= offset;
        (blocks_end <= pages && chunks_fit).then_some(footer)
    }

    /// Returns where the last block ends.
    fn decode_blocks(&mut self, rest: &mut &[u8]) -> Option<u64> {
        let count = counted(rest, 3)?;
        self.blocks = Vec::with_capacity(count);
        let (mut end, mut entries) = (COVER_BYTES, 0_u32);
        for _ in 0..count {
            let offset = end.checked_add(varint::get(rest)?)?;
            let len = u32::try_from(varint::get(rest)?).ok()?;
            let in_block = u32::try_from(varint::get(rest)?).ok()?;
            if len > BLOCK_BYTES_MAX || in_block == 0 {
                return None;
            }
            self.blocks.push(BlockRef {
                offset,
                len,
                first: entries,
            });
            end = offset.checked_add(HEADER + u64::from(len))?;
            entries = entries.checked_add(in_block)?;
        }
        self.entries = entries;
        Some(end)
    }

    /// Gives each state index its share of the blocks.
    fn lay_out_state_indexes(&mut self) -> Option<()> {
        let first_of = |block: u32| {
            let found = self.blocks.get(block as usize);
            found.map_or(self.entries, |block| block.first)
        };
        let mut block = 0_u32;
        for state_index in &mut self.state_indexes {
            state_index.first_block = block;
            state_index.first_ordinal = first_of(block);
            block = block.checked_add(state_index.blocks)?;
            if block as usize > self.blocks.len() {
                return None;
            }
            state_index.entries = first_of(block) - state_index.first_ordinal;
        }
        (block as usize == self.blocks.len()).then_some(())
    }
}

/// A count of things of at least `least` bytes each, so that nothing is allocated for more of them
/// than can follow.
fn counted(rest: &mut &[u8], least: usize) -> Option<usize> {
    let count = usize::try_from(varint::get(rest)?).ok()?;
    (count <= rest.len() / least).then_some(count)
}

fn decode_state_indexes(rest: &mut &[u8]) -> Option<Vec<StateIndex>> {
    let count = counted(rest, 3)?;
    let mut state_indexes = Vec::with_capacity(count);
    for _ in 0..count {
        let tag_len = varint::get(rest)?;
        if tag_len > STATE_INDEX_TAG_BYTES_MAX as u64 {
            return None;
        }
        state_indexes.push(StateIndex {
            tag: varint::take(rest, tag_len)?.into(),
            first_block: 0,
            blocks: u32::try_from(varint::get(rest)?).ok()?,
            first_ordinal: 0,
            entries: 0,
            payload_bytes: varint::get(rest)?,
        });
    }
    Some(state_indexes)
}

/// Decodes an index; its pages have their lengths where their offsets belong.
fn decode_index(rest: &mut &[u8]) -> Option<PageIndex> {
    let pairs = u32::try_from(varint::get(rest)?).ok()?;
    let greatest = varint::get(rest)?;
    let count = counted(rest, 2)?;
    let mut pages = Vec::with_capacity(count);
    let mut first = 0_u64;
    for _ in 0..count {
        let len = varint::get(rest)?;
        first = first.checked_add(varint::get(rest)?)?;
        if len > PAGE_BYTES_MAX as u64 {
            return None;
        }
        pages.push(PageRef {
            offset: HEADER + len,
            first,
        });
    }
    if (pairs == 0) != pages.is_empty() || first > greatest {
        return None;
    }
    Some(PageIndex {
        pages,
        end: 0,
        pairs,
        greatest,
    })
}

/// Turns the lengths into offsets; returns where the first page begins.
fn place_pages(index: &mut PageIndex, end: u64) -> Option<u64> {
    index.end = end;
    let mut at = end;
    for page in index.pages.iter_mut().rev() {
        at = at.checked_sub(page.offset)?;
        page.offset = at;
    }
    Some(at)
}
