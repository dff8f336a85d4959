//! Sorting more pairs than memory may hold: stretches are sorted in memory, written to a scratch
//! file, and merged.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
    sync::Arc,
};

use crate::error::OfStorage as _;
use crate::{
    LogError, Result, Storage, StorageFile,
    frame::{u32_at, u64_at},
    storage::{read_full, write_all},
};

/// A value and an ordinal.
type Pair = (u64, u32);

/// Bytes of a pair in the scratch file: value, ordinal.
const PAIR_BYTES: usize = 12;

/// Pairs read or written at once: about 4 KiB, of which a merge holds one for each stretch.
const WINDOW_PAIRS: usize = 340;

/// Takes pairs in any order.
pub(super) struct Sorter {
    storage: Arc<dyn Storage>,
    scratch_name: String,
    pending: Vec<Pair>,
    /// Pairs held in memory.
    pending_max: usize,
    scratch: Option<Scratch>,
    pairs: u32,
}

/// A file of sorted stretches; goes when this does.
pub(super) struct Scratch {
    storage: Arc<dyn Storage>,
    name: String,
    file: Arc<dyn StorageFile>,
    len: u64,
    stretches: Vec<Stretch>,
}

struct Stretch {
    offset: u64,
    pairs: usize,
    crc: u32,
}

impl Sorter {
    /// Holds at most `bytes` in memory (but at least two pairs), and uses a file of the given name
    /// for what does not fit.
    pub(super) fn new(storage: Arc<dyn Storage>, scratch_name: String, bytes: usize) -> Self {
        Self {
            storage,
            scratch_name,
            pending: Vec::new(),
            pending_max: (bytes / size_of::<Pair>()).max(2),
            scratch: None,
            pairs: 0,
        }
    }

    /// Takes a pair. At most `u32::MAX` may be given.
    pub(super) fn push(&mut self, pair: Pair) -> Result<()> {
        if self.pending.len() == self.pending_max {
            self.spill()?;
        }
        self.pending.push(pair);
        self.pairs += 1;
        Ok(())
    }

    /// How many pairs were given.
    pub(super) fn pairs(&self) -> u32 {
        self.pairs
    }

    /// All pairs given so far, sorted. For the end: what is given later is sorted apart.
    pub(super) fn finish(&mut self) -> Result<Sorted> {
        if self.scratch.is_some() {
            self.spill()?;
        }
        // Taken, as the memory is needed for the merge.
        let mut pending = std::mem::take(&mut self.pending);
        let Some(scratch) = self.scratch.take() else {
            pending.sort_unstable();
            return Ok(Sorted::Memory(pending.into_iter()));
        };
        drop(pending);
        let mut cursors = Vec::with_capacity(scratch.stretches.len());
        let mut heads = BinaryHeap::with_capacity(scratch.stretches.len());
        for stretch in &scratch.stretches {
            let mut cursor = Cursor::new(stretch);
            if let Some(pair) = cursor.next(&scratch)? {
                heads.push(Reverse((pair, cursors.len())));
            }
            cursors.push(cursor);
        }
        Ok(Sorted::Merge {
            scratch,
            cursors,
            heads,
        })
    }

    fn spill(&mut self) -> Result<()> {
        self.pending.sort_unstable();
        let scratch = match &mut self.scratch {
            Some(scratch) => scratch,
            none => {
                let (name, storage) = (self.scratch_name.clone(), Arc::clone(&self.storage));
                let file = storage.create(&name).or_full("create", &name)?;
                none.insert(Scratch {
                    storage,
                    name,
                    file,
                    len: 0,
                    stretches: Vec::new(),
                })
            }
        };
        scratch.add(&self.pending)?;
        self.pending.clear();
        Ok(())
    }
}

impl Scratch {
    fn add(&mut self, pairs: &[Pair]) -> Result<()> {
        let mut stretch = Stretch {
            offset: self.len,
            pairs: pairs.len(),
            crc: 0,
        };
        let mut bytes = Vec::with_capacity(WINDOW_PAIRS * PAIR_BYTES);
        for window in pairs.chunks(WINDOW_PAIRS) {
            bytes.clear();
            for (value, ordinal) in window {
                bytes.extend_from_slice(&value.to_le_bytes());
                bytes.extend_from_slice(&ordinal.to_le_bytes());
            }
            write_all(&*self.file, self.len, &bytes).or_full_at("write", &self.name, self.len)?;
            stretch.crc = crc32c::crc32c_append(stretch.crc, &bytes);
            self.len += bytes.len() as u64;
        }
        self.stretches.push(stretch);
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is removed at the next start.
        self.storage.remove(&self.name).ok();
    }
}

/// Pairs in order.
pub(super) enum Sorted {
    Memory(std::vec::IntoIter<Pair>),
    Merge {
        scratch: Scratch,
        cursors: Vec<Cursor>,
        /// The first pair of each stretch not yet used up, and which stretch that is.
        heads: BinaryHeap<Reverse<(Pair, usize)>>,
    },
}

impl Sorted {
    pub(super) fn next(&mut self) -> Result<Option<Pair>> {
        let (scratch, cursors, heads) = match self {
            Self::Memory(pairs) => return Ok(pairs.next()),
            Self::Merge {
                scratch,
                cursors,
                heads,
            } => (scratch, cursors, heads),
        };
        let Some(mut head) = heads.peek_mut() else {
            return Ok(None);
        };
        let Reverse((pair, cursor)) = *head;
        match cursors[cursor].next(scratch)? {
            Some(next) => *head = Reverse((next, cursor)),
            None => {
                PeekMut::pop(head);
            }
        }
        Ok(Some(pair))
    }
}

/// Reads a stretch again.
pub(super) struct Cursor {
    offset: u64,
    left: usize,
    expected_crc: u32,
    crc: u32,
    window: Vec<u8>,
    at: usize,
}

impl Cursor {
    fn new(stretch: &Stretch) -> Self {
        Self {
            offset: stretch.offset,
            left: stretch.pairs,
            expected_crc: stretch.crc,
            crc: 0,
            window: Vec::new(),
            at: 0,
        }
    }

    fn next(&mut self, scratch: &Scratch) -> Result<Option<Pair>> {
        if self.at == self.window.len() {
            if self.left == 0 {
                self.window = Vec::new();
                self.at = 0;
                return Ok(None);
            }
            self.refill(scratch)?;
        }
        let bytes = &self.window[self.at..self.at + PAIR_BYTES];
        self.at += PAIR_BYTES;
        Ok(Some((u64_at(bytes, 0), u32_at(bytes, 8))))
    }

    fn refill(&mut self, scratch: &Scratch) -> Result<()> {
        let pairs = self.left.min(WINDOW_PAIRS);
        self.window.resize(pairs * PAIR_BYTES, 0);
        self.at = 0;
        let read = read_full(&*scratch.file, self.offset, &mut self.window).or_io_at(
            "read",
            &scratch.name,
            self.offset,
        )?;
        self.left -= pairs;
        self.crc = crc32c::crc32c_append(self.crc, &self.window);
        let good = read == self.window.len() && (self.left > 0 || self.crc == self.expected_crc);
        if !good {
            let why = "it does not read as it was written a moment ago";
            return Err(LogError::damaged(&scratch.name, self.offset, why));
        }
        self.offset += self.window.len() as u64;
        Ok(())
    }
}
