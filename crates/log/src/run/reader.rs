//! Reading a run: a block at a time, or one entry by id or key.

use std::sync::Arc;

use crate::error::OfStorage as _;
use crate::narrow::to_u32;
use crate::{
    LogError, Result, Storage, StorageFile,
    run::{
        Block, Chunk, RunName, RunPart, StateIndex,
        cover::{COVER_BYTES, Cover, FooterPlaces},
        footer::Footer,
        pages::{PageIndex, Pairs},
        part::{PART_HEADER_BYTES, PartHeader, Source},
    },
};

/// An open run. All of it may be used from several threads at once; what is read is verified.
///
/// In memory are 16 bytes for each block and each page of the indexes, and the state indexes.
/// Blocks and pages are read when they are requested and not kept.
///
/// A read that fails says nothing about the rest: [`LogError::Damaged`] names what is damaged and
/// where, [`LogError::BadRead`] what the system could not read; other blocks can be read as before.
pub struct Run {
    pub(super) source: Source,
    pub(super) cover: Cover,
    pub(super) footer: Footer,
}

/// Where a block is and what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Bytes in the file, and about as many in memory.
    pub bytes: u64,
    /// The ordinal of its first entry.
    pub first_ordinal: u32,
    /// How many entries it has; at least one.
    pub count: u32,
}

impl Run {
    /// Opens a finished run: reads header, trailer and footer, and nothing else.
    ///
    /// # Errors
    /// [`LogError::Io`] when there is no such file; [`LogError::NewerFormat`];
    /// [`LogError::Damaged`] and [`LogError::BadRead`] when neither copy of what is needed can be
    /// read.
    pub fn open(storage: &dyn Storage, name: RunName) -> Result<Self> {
        let file_name = name.to_string();
        let file = storage.open_read(&file_name).or_io("open", &file_name)?;
        let cover = Cover::read(&*file, &file_name)?;
        let source = Source {
            file,
            salt: cover.salt,
            file_name,
        };
        let places = FooterPlaces::of(&cover).ok_or_else(|| {
            let why = "the footer it names is not inside the file";
            LogError::damaged(&source.file_name, 48, why)
        })?;
        let footer = match read_footer(&source, &places, 0) {
            Ok(footer) => footer,
            Err(error) => read_footer(&source, &places, 1).map_err(|_| error)?,
        };
        Ok(Self::new(source, cover, footer))
    }

    pub(super) fn new(source: Source, cover: Cover, footer: Footer) -> Self {
        Self {
            source,
            cover,
            footer,
        }
    }

    /// The name from the header of its file.
    pub fn name(&self) -> RunName {
        self.cover.name
    }

    /// When it was begun, Unix ms, as its writer got it.
    pub fn created_ms(&self) -> u64 {
        self.cover.created_ms
    }

    /// Length of the file, head and footer included.
    pub fn file_bytes(&self) -> u64 {
        self.cover.file_len
    }

    /// Bytes of memory it takes while it is open.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() - size_of::<Footer>() + self.footer.memory_bytes()
    }

    /// How many entries it has; their ordinals are all below.
    pub fn entries(&self) -> u32 {
        self.footer.entries
    }

    /// Sum of the lengths of all payloads, without chunks.
    pub fn payload_bytes(&self) -> u64 {
        self.footer.payload_bytes
    }

    /// Bytes of all chunks of large bodies.
    pub fn chunk_bytes(&self) -> u64 {
        self.footer.chunk_bytes
    }

    /// The least and the greatest id; `None` when there is no entry.
    pub fn ids(&self) -> Option<(u64, u64)> {
        let first = self.footer.ids.pages.first()?;
        Some((first.first, self.footer.ids.greatest))
    }

    /// Its state indexes, in order; together they have all blocks.
    pub fn state_indexes(&self) -> &[StateIndex] {
        &self.footer.state_indexes
    }

    /// How many blocks it has.
    pub fn blocks(&self) -> u32 {
        // Each has an entry, and those are counted in as many bits.
        to_u32(self.footer.blocks.len())
    }

    /// Where a block is; `None` when there is no such block.
    pub fn block(&self, number: u32) -> Option<BlockInfo> {
        let block = self.footer.blocks.get(number as usize)?;
        Some(BlockInfo {
            offset: block.offset,
            bytes: PART_HEADER_BYTES as u64 + u64::from(block.len),
            first_ordinal: block.first,
            count: self.footer.count_of(number as usize),
        })
    }

    /// The block with an entry; `None` when there is no such entry.
    pub fn block_of(&self, ordinal: u32) -> Option<u32> {
        if ordinal >= self.entries() {
            return None;
        }
        let blocks = &self.footer.blocks;
        let behind = blocks.partition_point(|block| block.first <= ordinal);
        Some(to_u32(behind) - 1)
    }

    /// Reads a block.
    ///
    /// # Errors
    /// [`LogError::Damaged`], [`LogError::BadRead`]; the latter also when there is no such block.
    pub fn read_block(&self, number: u32) -> Result<Block> {
        self.read_block_into(number, Vec::new())
    }

    /// Reads a block and uses this memory for it.
    ///
    /// # Errors
    /// As [`Run::read_block`].
    pub fn read_block_into(&self, number: u32, memory: Vec<u8>) -> Result<Block> {
        let Some(block) = self.footer.blocks.get(number as usize) else {
            let why = format!("there is no block {number}");
            return Err(self.bad_read(0, why));
        };
        let part = RunPart::Block(number);
        let count = self.footer.count_of(number as usize);
        let read = self.source.read(part, block.offset, block.len, memory)?;
        if (read.header.first, read.header.count) != (block.first, count) {
            let why = "its entries are not those that the footer says";
            return Err(self.source.damaged(part, block.offset, why));
        }
        Block::new(read, number, block.first, count).ok_or_else(|| {
            let why = "its content is not entries, although its checksums are right";
            self.source.damaged(part, block.offset, why)
        })
    }

    /// The ordinal of the entry with this id. Reads at most one page of the index, and none when
    /// the id is outside [`Run::ids`].
    ///
    /// # Errors
    /// [`LogError::Damaged`], [`LogError::BadRead`]: the entry, if there is one, can still be found
    /// by reading blocks.
    pub fn find_id(&self, id: u64) -> Result<Option<u32>> {
        let mut found = None;
        self.find(&self.footer.ids, RunPart::IdPage, id, |ordinal| {
            found = Some(ordinal);
        })?;
        Ok(found)
    }

    /// The ordinals of all entries with this key, rising. Mostly reads one page of the index.
    ///
    /// # Errors
    /// As [`Run::find_id`].
    pub fn find_key(&self, key: u64) -> Result<Vec<u32>> {
        let mut found = Vec::new();
        self.find(&self.footer.keys, RunPart::KeyPage, key, |ordinal| {
            found.push(ordinal);
        })?;
        Ok(found)
    }

    /// Calls `each` with the id and the ordinal of every entry, by id.
    ///
    /// # Errors
    /// [`LogError::Damaged`], [`LogError::BadRead`]: the entries of the pages before are known.
    pub fn each_id(&self, mut each: impl FnMut(u64, u32)) -> Result<()> {
        let mut memory = Vec::new();
        for page in 0..self.footer.ids.pages.len() {
            let (_, used) = self.visit_page(
                &self.footer.ids,
                RunPart::IdPage,
                page,
                memory,
                |(id, at)| {
                    each(id, at);
                    true
                },
            )?;
            memory = used;
        }
        Ok(())
    }

    /// Calls `found` with the ordinals of `value`, in order.
    fn find(
        &self,
        index: &PageIndex,
        part: fn(u32) -> RunPart,
        value: u64,
        mut found: impl FnMut(u32),
    ) -> Result<()> {
        let Some(first) = index.first_page(value) else {
            return Ok(());
        };
        let mut memory = Vec::new();
        for page in first..index.pages.len() {
            if index.pages[page].first > value {
                break;
            }
            let (more, used) = self.visit_page(index, part, page, memory, |pair| {
                if pair.0 == value {
                    found(pair.1);
                }
                pair.0 <= value
            })?;
            if !more {
                break;
            }
            memory = used;
        }
        Ok(())
    }

    /// Calls `visit` with the pairs of a page until it says that this is enough; returns whether it
    /// never did, and the memory used.
    pub(super) fn visit_page(
        &self,
        index: &PageIndex,
        part: fn(u32) -> RunPart,
        page: usize,
        memory: Vec<u8>,
        mut visit: impl FnMut((u64, u32)) -> bool,
    ) -> Result<(bool, Vec<u8>)> {
        let part = part(to_u32(page));
        let (offset, len) = index.position(page);
        let read = self.source.read(part, offset, len, memory)?;
        let no_pair = || {
            let why = "its content is not pairs, although its checksums are right";
            self.source.damaged(part, offset, why)
        };
        let mut pairs = Pairs::new(read.content());
        while let Some(pair) = pairs.next_pair().map_err(|_| no_pair())? {
            if pair.1 >= self.entries() {
                return Err(no_pair());
            }
            if !visit(pair) {
                return Ok((false, read.into_bytes()));
            }
        }
        Ok((true, read.into_bytes()))
    }

    /// Reads a chunk of a large body into `bytes`, which has the chunk's length.
    ///
    /// # Errors
    /// [`LogError::Damaged`]; [`LogError::BadRead`], also when no chunk of this length is there.
    pub fn read_chunk(&self, chunk: Chunk, bytes: &mut [u8]) -> Result<()> {
        let header = self.chunk_header(chunk)?;
        if bytes.len() != chunk.len as usize {
            let why = format!(
                "{} bytes were asked of a chunk of {}",
                bytes.len(),
                chunk.len
            );
            return Err(self.bad_read(chunk.offset, why));
        }
        let offset = chunk.offset - PART_HEADER_BYTES as u64;
        self.source
            .fill(RunPart::Chunk, offset + PART_HEADER_BYTES as u64, bytes)?;
        self.source
            .verify_content(RunPart::Chunk, offset, &header, bytes)
    }

    /// The run's file, for sending chunks from it without copying them. What is read so is not
    /// verified.
    pub fn file(&self) -> &Arc<dyn StorageFile> {
        &self.source.file
    }

    fn chunk_header(&self, chunk: Chunk) -> Result<PartHeader> {
        let inside = |offset: &u64| {
            let end = chunk.offset.checked_add(u64::from(chunk.len));
            *offset >= COVER_BYTES && end.is_some_and(|end| end <= self.cover.footer)
        };
        let offset = chunk
            .offset
            .checked_sub(PART_HEADER_BYTES as u64)
            .filter(inside);
        let Some(offset) = offset else {
            let why = format!("no chunk of {} bytes can be there", chunk.len);
            return Err(self.bad_read(chunk.offset, why));
        };
        let header = self.source.read_header(RunPart::Chunk, offset)?;
        if header.len != chunk.len {
            let why = format!("the chunk has {} bytes, not {}", header.len, chunk.len);
            return Err(self.bad_read(chunk.offset, why));
        }
        Ok(header)
    }

    fn bad_read(&self, offset: u64, why: String) -> LogError {
        LogError::BadRead {
            file: self.source.file_name.clone(),
            offset,
            why,
        }
    }
}

fn read_footer(source: &Source, places: &FooterPlaces, copy: usize) -> Result<Footer> {
    let part = RunPart::Footer(to_u32(copy));
    let offset = places.footers[copy];
    let read = source.read(part, offset, places.content_len, Vec::new())?;
    Footer::decode(read.content(), places.footers[0]).ok_or_else(|| {
        let why = "its content is not a footer, although its checksums are right";
        source.damaged(part, offset, why)
    })
}
