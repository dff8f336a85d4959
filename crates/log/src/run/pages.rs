//! One index of a run: pairs of a value and an ordinal in pages, and in memory the first value of
//! each page. The layout is the table "Page of an index" in `docs/run-format.md`.

use crate::narrow::{to_u32, to_usize};
use crate::run::{
    part::{PART_HEADER_BYTES, PartBuf},
    varint::{self, VARINT_BYTES_MAX},
};

/// The longest content of a page, bytes: with its header, one page of memory.
pub(super) const PAGE_BYTES_MAX: usize = 4096 - PART_HEADER_BYTES;

/// Where the pages of an index are and what they begin with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PageIndex {
    /// In the order of the file, which is that of the values.
    pub(super) pages: Vec<PageRef>,
    /// Where the last page ends, offset in the file.
    pub(super) end: u64,
    pub(super) pairs: u32,
    /// The greatest value; 0 when there is no pair.
    pub(super) greatest: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRef {
    /// Offset of the part, bytes.
    pub(super) offset: u64,
    /// The first value in the page.
    pub(super) first: u64,
}

impl PageIndex {
    /// Offset and content length of a page that exists.
    pub(super) fn position(&self, page: usize) -> (u64, u32) {
        let offset = self.pages[page].offset;
        let end = self
            .pages
            .get(page + 1)
            .map_or(self.end, |next| next.offset);
        // Checked when the footer was read: a page's content is at most PAGE_BYTES_MAX.
        let content = to_usize(end - offset) - PART_HEADER_BYTES;
        (offset, to_u32(content))
    }

    /// The first page that may hold `value`; `None` when none does.
    pub(super) fn first_page(&self, value: u64) -> Option<usize> {
        if self.pages.is_empty() || value > self.greatest || value < self.pages[0].first {
            return None;
        }
        // The same value may fill several pages and begin at the end of the one before them.
        let behind = self.pages.partition_point(|page| page.first < value);
        Some(behind.saturating_sub(1))
    }

    /// Bytes of memory it takes, itself not counted.
    pub(super) fn memory_bytes(&self) -> usize {
        self.pages.capacity() * size_of::<PageRef>()
    }
}

/// A page being filled.
pub(super) struct PageBuf {
    pub(super) part: PartBuf,
    pub(super) count: u32,
    pub(super) first: u64,
    last: (u64, u32),
}

impl PageBuf {
    pub(super) fn new() -> Self {
        Self {
            part: PartBuf::new(),
            count: 0,
            first: 0,
            last: (0, 0),
        }
    }

    /// Whether any pair fits.
    pub(super) fn has_room(&self) -> bool {
        self.part.len() + 2 * VARINT_BYTES_MAX <= PAGE_BYTES_MAX
    }

    /// Adds a pair that sorts behind the ones before.
    pub(super) fn push(&mut self, (value, ordinal): (u64, u32)) {
        if self.count == 0 {
            self.first = value;
        }
        let out = self.part.content_mut();
        varint::put(out, value - self.last.0);
        varint::put_step(out, u64::from(self.last.1), u64::from(ordinal));
        self.last = (value, ordinal);
        self.count += 1;
    }

    pub(super) fn clear(&mut self) {
        self.part.clear();
        self.count = 0;
        self.last = (0, 0);
    }
}

/// The pairs of a page, in order.
pub(super) struct Pairs<'a> {
    rest: &'a [u8],
    last: (u64, u32),
}

impl<'a> Pairs<'a> {
    pub(super) fn new(content: &'a [u8]) -> Self {
        Self {
            rest: content,
            last: (0, 0),
        }
    }

    /// The next pair; `Err` when what is there is none.
    #[inline]
    pub(super) fn next_pair(&mut self) -> Result<Option<(u64, u32)>, NotAPair> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let step = varint::get(&mut self.rest).ok_or(NotAPair)?;
        let value = self.last.0.checked_add(step).ok_or(NotAPair)?;
        let ordinal = varint::get_step(&mut self.rest, u64::from(self.last.1)).ok_or(NotAPair)?;
        let ordinal = u32::try_from(ordinal).map_err(|_| NotAPair)?;
        self.last = (value, ordinal);
        Ok(Some(self.last))
    }
}

/// A page's content is not what a writer makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotAPair;
