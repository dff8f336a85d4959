//! Writing a run: entries in, a file out that is whole or not there.

use std::sync::Arc;

use crate::error::OfStorage as _;
use crate::narrow::to_u32;
use crate::{
    LogError, Result, Storage, StorageFile,
    run::{
        CHUNK_BYTES_MAX, ENTRY_BYTES_MAX, Run, RunName, STATE_INDEX_TAG_BYTES_MAX, StateIndex,
        block::{BlockBuf, ENTRY_OVERHEAD_MAX},
        cover::{COVER_BYTES, Cover},
        footer::{BlockRef, Footer},
        pages::{PageBuf, PageIndex, PageRef},
        part::{GAP_BYTES, Kind, PART_HEADER_BYTES, PartBuf, Source},
        sorter::Sorter,
    },
    storage::write_all,
};

/// How a run is written. None of it is needed to read one.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Size at which a block is full, bytes: 32 KiB by default, at most [`ENTRY_BYTES_MAX`]. A
    /// reader of one entry reads a whole block.
    pub block_bytes: usize,
    /// Memory for sorting each of the two indexes, bytes: 4 MiB unless told, for about 260,000
    /// entries. What is beyond goes through a scratch file and needs 4 KiB for each time that this
    /// is full.
    pub sort_bytes: usize,
    /// Wall clock, Unix ms.
    pub created_ms: u64,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            block_bytes: 32 << 10,
            sort_bytes: 4 << 20,
            created_ms: 0,
        }
    }
}

/// Where a piece of a large body is. The caller keeps these in the payloads of its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Offset of the bytes themselves in the run's file.
    pub offset: u64,
    /// How many there are; at most [`CHUNK_BYTES_MAX`].
    pub len: u32,
}

/// A run being written, by one thread and off every lock. Dropped before it is finished, it leaves
/// nothing.
///
/// In memory are one block, one chunk, the pairs of [`RunOptions::sort_bytes`] for each index, and
/// what an open run keeps.
pub struct RunWriter {
    storage: Arc<dyn Storage>,
    name: RunName,
    tmp: String,
    file: Arc<dyn StorageFile>,
    salt: u64,
    options: RunOptions,
    /// Where the next part goes.
    offset: u64,
    block: BlockBuf,
    chunk: PartBuf,
    footer: Footer,
    ids: Sorter,
    keys: Sorter,
    finished: bool,
}

impl RunWriter {
    /// Begins a run of that name, of which no other exists.
    ///
    /// # Errors
    /// [`LogError::NoSpace`], [`LogError::Io`]; with the latter if the name is being written
    /// already.
    ///
    /// # Panics
    /// If an option is outside its range.
    pub fn create(storage: Arc<dyn Storage>, name: RunName, options: RunOptions) -> Result<Self> {
        assert!(
            (1..=ENTRY_BYTES_MAX).contains(&options.block_bytes),
            "a block of {} bytes",
            options.block_bytes
        );
        let tmp = name.tmp();
        let file = storage.create(&tmp).or_full("create", &tmp)?;
        let sorter = |suffix| {
            let scratch = name.with_suffix(suffix);
            Sorter::new(Arc::clone(&storage), scratch, options.sort_bytes)
        };
        let (ids, keys) = (sorter(".ids.tmp"), sorter(".keys.tmp"));
        Ok(Self {
            salt: storage.random(),
            storage,
            name,
            tmp,
            file,
            options,
            offset: COVER_BYTES,
            block: BlockBuf::new(),
            chunk: PartBuf::new(),
            footer: Footer::default(),
            ids,
            keys,
            finished: false,
        })
    }

    /// Begins a state index: entries from now on belong to it.
    ///
    /// # Errors
    /// [`LogError::NoSpace`], [`LogError::Io`]; the run can then only be dropped.
    ///
    /// # Panics
    /// If the tag is longer than [`STATE_INDEX_TAG_BYTES_MAX`].
    pub fn state_index(&mut self, tag: &[u8]) -> Result<()> {
        assert!(
            tag.len() <= STATE_INDEX_TAG_BYTES_MAX,
            "a tag of {} bytes",
            tag.len()
        );
        self.flush()?;
        self.footer.state_indexes.push(StateIndex {
            tag: tag.into(),
            first_block: to_u32(self.footer.blocks.len()),
            blocks: 0,
            first_ordinal: self.footer.entries,
            entries: 0,
            payload_bytes: 0,
        });
        Ok(())
    }

    /// Adds an entry to the state index and returns its ordinal, which counts the entries of the
    /// run.
    ///
    /// # Errors
    /// [`LogError::RunFull`] for a payload above [`ENTRY_BYTES_MAX`] or an entry too many for the
    /// run, which is then as it was. [`LogError::NoSpace`], [`LogError::Io`]: the run can then only
    /// be dropped.
    ///
    /// # Panics
    /// If there is no state index.
    pub fn push(&mut self, id: u64, key: Option<u64>, payload: &[u8]) -> Result<u32> {
        let ordinal = self.footer.entries;
        if payload.len() > ENTRY_BYTES_MAX {
            return Err(self.full("bytes in an entry", payload.len(), ENTRY_BYTES_MAX));
        }
        if ordinal == u32::MAX {
            return Err(self.full("entries", u32::MAX as usize + 1, u32::MAX as usize));
        }
        let filled = self.block.part.len() + ENTRY_OVERHEAD_MAX + payload.len();
        if filled > self.options.block_bytes && self.block.count > 0 {
            self.flush()?;
        }
        self.ids.push((id, ordinal))?;
        if let Some(key) = key {
            self.keys.push((key, ordinal))?;
        }
        self.block.push(id, key, payload);
        self.footer.entries += 1;
        self.footer.payload_bytes += payload.len() as u64;
        let state_index = self.footer.state_indexes.last_mut();
        let state_index = state_index.expect("state_index() comes before push()");
        state_index.entries += 1;
        state_index.payload_bytes += payload.len() as u64;
        Ok(ordinal)
    }

    /// Writes one chunk of a large body, of `len` bytes that `fill` provides.
    ///
    /// # Errors
    /// An error of `fill`; then nothing was written. [`LogError::RunFull`] for a length of 0 or
    /// above [`CHUNK_BYTES_MAX`]. [`LogError::NoSpace`], [`LogError::Io`]: the run can then only be
    /// dropped.
    pub fn chunk(
        &mut self,
        len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<Chunk> {
        if len == 0 || len > CHUNK_BYTES_MAX {
            return Err(self.full("bytes in a chunk", len, CHUNK_BYTES_MAX));
        }
        fill(self.chunk.resized(len))?;
        let offset = self.offset;
        let bytes = self.chunk.seal(self.salt, offset, Kind::Chunk, 0, 0);
        write(&*self.file, &self.tmp, offset, bytes)?;
        self.offset += bytes.len() as u64;
        self.footer.chunks += 1;
        self.footer.chunk_bytes += len as u64;
        Ok(Chunk {
            offset: offset + PART_HEADER_BYTES as u64,
            len: to_u32(len),
        })
    }

    /// Entries so far.
    pub fn entries(&self) -> u32 {
        self.footer.entries
    }

    /// Bytes in the file so far; the entries of the block being filled are not among them.
    pub fn bytes(&self) -> u64 {
        self.offset
    }

    /// Makes what was written so far durable, so that [`RunWriter::finish`] has less left to do at
    /// once. For nothing else: an unfinished run does not outlive a crash.
    ///
    /// # Errors
    /// [`LogError::NoSpace`], [`LogError::Io`]; the run can then only be dropped.
    pub fn sync(&mut self) -> Result<()> {
        self.file.sync_data().or_full("sync", &self.tmp)
    }

    /// Writes indexes and footer, makes all of it durable under the run's name, and opens it.
    ///
    /// # Errors
    /// [`LogError::NoSpace`], [`LogError::Io`], [`LogError::Damaged`] for a scratch file. The run
    /// is then not there, unless syncing the directory failed: then it may or may not be after a
    /// crash.
    ///
    /// # Panics
    /// If an id came twice.
    pub fn finish(mut self) -> Result<Run> {
        self.flush()?;
        self.footer.ids = self.write_index(Kind::IdPage)?;
        self.footer.keys = self.write_index(Kind::KeyPage)?;
        let cover = self.write_end()?;
        self.sync()?;
        let file_name = self.name.to_string();
        self.storage
            .rename(&self.tmp, &file_name)
            .or_full("rename", &self.tmp)?;
        self.finished = true;
        self.storage
            .sync_dir()
            .or_io("sync", "the directory of runs")?;
        let source = Source {
            file: Arc::clone(&self.file),
            file_name,
            salt: self.salt,
        };
        let mut footer = std::mem::take(&mut self.footer);
        footer.shrink();
        Ok(Run::new(source, cover, footer))
    }

    /// Footers, trailer and header, in this order.
    fn write_end(&mut self) -> Result<Cover> {
        let footer = self.offset;
        let content = self.footer.encode();
        if u32::try_from(content.len()).is_err() {
            return Err(self.full("bytes in a footer", content.len(), u32::MAX as usize));
        }
        let mut part = PartBuf::new();
        for (kind, content) in [
            (Kind::Footer, &content[..]),
            (Kind::Gap, &[0; GAP_BYTES][..]),
            (Kind::Footer, &content[..]),
        ] {
            part.resized(content.len()).copy_from_slice(content);
            let bytes = part.seal(self.salt, self.offset, kind, 0, 0);
            write(&*self.file, &self.tmp, self.offset, bytes)?;
            self.offset += bytes.len() as u64;
        }
        let cover = Cover {
            name: self.name,
            salt: self.salt,
            created_ms: self.options.created_ms,
            file_len: self.offset + COVER_BYTES,
            footer,
        };
        let bytes = cover.encode();
        write(&*self.file, &self.tmp, self.offset, &bytes)?;
        write(&*self.file, &self.tmp, 0, &bytes)?;
        self.offset = cover.file_len;
        Ok(cover)
    }

    /// Writes the block that is being filled, if anything is in it.
    fn flush(&mut self) -> Result<()> {
        let count = self.block.count;
        if count == 0 {
            return Ok(());
        }
        let len = to_u32(self.block.part.len());
        let first = self.footer.entries - count;
        let offset = self.offset;
        let bytes = self
            .block
            .part
            .seal(self.salt, offset, Kind::Block, first, count);
        write(&*self.file, &self.tmp, offset, bytes)?;
        self.offset += bytes.len() as u64;
        self.footer.blocks.push(BlockRef { offset, len, first });
        if let Some(state_index) = self.footer.state_indexes.last_mut() {
            state_index.blocks += 1;
        }
        self.block.clear();
        Ok(())
    }

    fn write_index(&mut self, kind: Kind) -> Result<PageIndex> {
        let sorter = match kind {
            Kind::IdPage => &mut self.ids,
            Kind::KeyPage | Kind::Block | Kind::Chunk | Kind::Footer | Kind::Gap => &mut self.keys,
        };
        let mut index = PageIndex {
            pairs: sorter.pairs(),
            ..PageIndex::default()
        };
        let mut sorted = sorter.finish()?;
        let mut page = PageBuf::new();
        let mut before = None;
        while let Some(pair) = sorted.next()? {
            assert!(
                kind != Kind::IdPage || before != Some(pair.0),
                "id {} came twice into {}",
                pair.0,
                self.name
            );
            before = Some(pair.0);
            if !page.has_room() {
                self.write_page(kind, &mut page, &mut index)?;
            }
            page.push(pair);
        }
        index.greatest = before.unwrap_or(0);
        self.write_page(kind, &mut page, &mut index)?;
        index.end = self.offset;
        Ok(index)
    }

    fn write_page(&mut self, kind: Kind, page: &mut PageBuf, index: &mut PageIndex) -> Result<()> {
        if page.count == 0 {
            return Ok(());
        }
        let number = to_u32(index.pages.len());
        let bytes = page
            .part
            .seal(self.salt, self.offset, kind, number, page.count);
        write(&*self.file, &self.tmp, self.offset, bytes)?;
        index.pages.push(PageRef {
            offset: self.offset,
            first: page.first,
        });
        self.offset += bytes.len() as u64;
        page.clear();
        Ok(())
    }

    fn full(&self, what: &'static str, value: usize, limit: usize) -> LogError {
        LogError::RunFull {
            file: self.name.to_string(),
            what,
            value: value as u64,
            limit: limit as u64,
        }
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        if !self.finished {
            // What cannot be removed now is removed at the next start.
            self.storage.remove(&self.tmp).ok();
        }
    }
}

fn write(file: &dyn StorageFile, name: &str, offset: u64, bytes: &[u8]) -> Result<()> {
    write_all(file, offset, bytes).or_full_at("write", name, offset)
}
