//! Reading all of a run, for `quintet check` and `quintet repair`: every byte is accounted for, and
//! the indexes must agree with the entries.

use crate::narrow::to_u32;
use crate::{
    LogError, Result,
    run::{
        Block, Run, RunPart,
        cover::{COVER_BYTES, Cover, FooterPlaces},
        footer::BlockRef,
        pages::PageIndex,
        part::{GAP_BYTES, PART_HEADER_BYTES, PartHeader},
    },
};

const HEADER: u64 = PART_HEADER_BYTES as u64;

/// How often progress is reported, bytes.
const PROGRESS_BYTES: u64 = 4 << 20;

/// A part of a run that cannot be read, with its place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDamage {
    /// The part that belongs there.
    pub part: RunPart,
    /// Where it begins in the file, bytes.
    pub offset: u64,
    /// How many bytes of the file it may concern.
    pub bytes: u64,
    /// Description of the damage.
    pub why: String,
}

/// One report from the check of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunFinding<'a> {
    /// Something is damaged.
    Damage(&'a RunDamage),
    /// So many bytes of the file have been read, of so many.
    Progress {
        /// Bytes read.
        done: u64,
        /// Bytes in the file.
        total: u64,
    },
}

/// Result of the check of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunCheck {
    /// Good blocks.
    pub blocks: u32,
    pub entries: u32,
    /// Good chunks.
    pub chunks: u64,
    pub chunk_bytes: u64,
    /// Damaged places. None: every byte is as it was written.
    pub damaged: u64,
    /// Numbers of the damaged blocks, rising.
    pub damaged_blocks: Vec<u32>,
    /// Entries in them; [`Run::ids_in`] names them.
    pub lost_entries: u32,
    /// Whether the id index can be relied on.
    pub ids_good: bool,
    /// Whether the key index can be relied on.
    pub keys_good: bool,
}

/// The entries of damaged blocks, as far as the id index names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostIds {
    /// Entries named.
    pub named: u32,
    /// Entries in those blocks whose ids are on index pages that cannot be read either.
    pub unnamed: u32,
}

impl Run {
    /// Reads the whole file and verifies every byte of it. Damage is reported, not an error.
    pub fn verify(&self, report: &mut dyn FnMut(RunFinding<'_>)) -> RunCheck {
        let mut walk = Walk {
            run: self,
            report,
            check: RunCheck {
                ids_good: true,
                keys_good: true,
                ..RunCheck::default()
            },
            entries: Sum::default(),
            keyed: Sum::default(),
            ids: Sum::default(),
            keys: Sum::default(),
            payload_bytes: 0,
            memory: Vec::new(),
        };
        walk.cover(RunPart::Header, 0);
        walk.body();
        walk.end();
        walk.agreement();
        let total = self.file_bytes();
        (walk.report)(RunFinding::Progress { done: total, total });
        walk.check
    }

    /// Calls `visit` with id and ordinal of every entry in these blocks (their numbers rising), by
    /// rising id. This is how entries are named whose block can no longer be read. Pages of the
    /// index that cannot be read are passed over, and what they would have named is counted.
    pub fn ids_in(&self, blocks: &[u32], visit: &mut dyn FnMut(u64, u32)) -> LostIds {
        let wanted = |number: &u32| self.block(*number).map_or(0, |block| block.count);
        let wanted: u32 = blocks.iter().map(wanted).sum();
        let mut lost = LostIds::default();
        let mut memory = Vec::new();
        for page in 0..self.footer.ids.pages.len() {
            let used = std::mem::take(&mut memory);
            let index = &self.footer.ids;
            let read = self.visit_page(index, RunPart::IdPage, page, used, |(id, ordinal)| {
                let block = self.block_of(ordinal);
                if block.is_some_and(|block| blocks.binary_search(&block).is_ok()) {
                    visit(id, ordinal);
                    lost.named += 1;
                }
                true
            });
            if let Ok((_, used)) = read {
                memory = used;
            }
        }
        lost.unnamed = wanted.saturating_sub(lost.named);
        lost
    }
}

/// Pairs in any order, so that those of an index and those of the entries can be compared without
/// keeping either: their number and the sum of a hash of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    pairs: u64,
    sum: u64,
}

impl Sum {
    fn add(&mut self, salt: u64, value: u64, ordinal: u32) {
        // Two rounds of a multiply and a shift (the finish of SplitMix64), so that no two pairs
        // that differ in a few bits make up for two others.
        let mut hash = value ^ salt;
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = hash.wrapping_add(u64::from(ordinal));
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.pairs += 1;
        self.sum = self.sum.wrapping_add(hash ^ (hash >> 31));
    }
}

struct Walk<'a> {
    run: &'a Run,
    report: &'a mut dyn FnMut(RunFinding<'_>),
    check: RunCheck,
    /// Ids and keys as the entries have them, and as the indexes do.
    entries: Sum,
    keyed: Sum,
    ids: Sum,
    keys: Sum,
    payload_bytes: u64,
    memory: Vec<u8>,
}

impl Walk<'_> {
    fn cover(&mut self, part: RunPart, offset: u64) {
        let source = &self.run.source;
        let why = match Cover::read_at(&*source.file, &source.file_name, offset) {
            Ok(Ok(cover)) if cover == self.run.cover => return,
            Ok(Ok(_)) => "it differs from the other one".to_owned(),
            Ok(Err(why)) => why.to_owned(),
            Err(error) => error.to_string(),
        };
        self.damage(part, offset, COVER_BYTES, why);
    }

    /// Everything between the header and the first footer.
    fn body(&mut self) {
        let parts = PartRange::all(self.run);
        let end = self.run.cover.footer;
        let mut known = parts.into_iter().peekable();
        let (mut offset, mut reported) = (COVER_BYTES, 0);
        while offset < end {
            let here = known.next_if(|next| next.offset == offset);
            let limit = known.peek().map_or(end, |next| next.offset);
            let part = here.map_or(RunPart::Chunk, |here| here.part);
            match self.part(part, offset, limit) {
                Ok(next) => offset = next,
                Err(error) => {
                    #[expect(clippy::wildcard_enum_match_arm, reason = "others as they are")]
                    let why = match error {
                        LogError::Damaged { why, .. } | LogError::BadRead { why, .. } => why,
                        other => other.to_string(),
                    };
                    // A damaged chunk's length cannot be trusted: what is next that is known?
                    let next = here.map_or(limit, |here| here.end);
                    self.damage(part, offset, next - offset, why);
                    offset = next;
                }
            }
            if offset - reported >= PROGRESS_BYTES {
                let total = self.run.file_bytes();
                (self.report)(RunFinding::Progress {
                    done: offset,
                    total,
                });
                reported = offset;
            }
        }
    }

    /// Verifies what is at `offset` and returns where it ends.
    fn part(&mut self, part: RunPart, offset: u64, limit: u64) -> Result<u64> {
        match part {
            RunPart::Block(number) => {
                let memory = std::mem::take(&mut self.memory);
                let block = self.run.read_block_into(number, memory)?;
                let end = offset + self.run.block(number).map_or(0, |block| block.bytes);
                self.count_block(block);
                Ok(end)
            }
            RunPart::IdPage(number) => {
                let (index, part) = (&self.run.footer.ids, RunPart::IdPage);
                page(self.run, index, part, number, &mut self.ids)
            }
            RunPart::KeyPage(number) => {
                let (index, part) = (&self.run.footer.keys, RunPart::KeyPage);
                page(self.run, index, part, number, &mut self.keys)
            }
            RunPart::Chunk
            | RunPart::Header
            | RunPart::Trailer
            | RunPart::Footer(_)
            | RunPart::Gap
            | RunPart::Whole => self.chunk(offset, limit),
        }
    }

    fn count_block(&mut self, block: Block) {
        let salt = self.run.cover.salt;
        for entry in block.entries() {
            self.entries.add(salt, entry.id, entry.ordinal);
            if let Some(key) = entry.key {
                self.keyed.add(salt, key, entry.ordinal);
            }
            self.payload_bytes += entry.payload.len() as u64;
        }
        self.check.blocks += 1;
        self.check.entries += block.count();
        self.memory = block.into_bytes();
    }

    fn chunk(&mut self, offset: u64, limit: u64) -> Result<u64> {
        let source = &self.run.source;
        if limit - offset < HEADER {
            return Err(source.damaged(RunPart::Chunk, offset, "there is no room for it"));
        }
        let header = source.read_header(RunPart::Chunk, offset)?;
        if header.part_len() > limit - offset {
            return Err(source.damaged(RunPart::Chunk, offset, "it is longer than its place"));
        }
        self.memory.resize(header.len as usize, 0);
        source.fill(RunPart::Chunk, offset + HEADER, &mut self.memory)?;
        source.verify_content(RunPart::Chunk, offset, &header, &self.memory)?;
        self.check.chunks += 1;
        self.check.chunk_bytes += u64::from(header.len);
        Ok(offset + header.part_len())
    }

    /// Footers, gap and trailer.
    fn end(&mut self) {
        let cover = &self.run.cover;
        let trailer = cover.file_len - COVER_BYTES;
        // The run would not have opened if they were nowhere.
        if let Some(places) = FooterPlaces::of(cover) {
            let content = self.run.footer.encode();
            let zeros = [0; GAP_BYTES];
            let [first, second] = places.footers;
            self.same(RunPart::Footer(0), first, &content);
            self.same(RunPart::Gap, places.gap, &zeros);
            self.same(RunPart::Footer(1), second, &content);
        }
        self.cover(RunPart::Trailer, trailer);
    }

    fn same(&mut self, part: RunPart, offset: u64, content: &[u8]) {
        let source = &self.run.source;
        let memory = std::mem::take(&mut self.memory);
        // It is a footer that was read and encoded again, or the gap: far below four GiB.
        let len = to_u32(content.len());
        let why = match source.read(part, offset, len, memory) {
            Ok(read) if read.content() == content => {
                self.memory = read.into_bytes();
                return;
            }
            Ok(_) => "it is not as a writer makes it".to_owned(),
            Err(LogError::Damaged { why, .. } | LogError::BadRead { why, .. }) => why,
            Err(error) => error.to_string(),
        };
        self.damage(part, offset, HEADER + u64::from(len), why);
    }

    /// Whether the good parts say the same. A sum that lacks a damaged part says nothing.
    fn agreement(&mut self) {
        let blocks_good = self.check.damaged_blocks.is_empty();
        let footer = &self.run.footer;
        let mut wrong = Vec::new();
        if blocks_good && self.check.ids_good && self.ids != self.entries {
            self.check.ids_good = false;
            wrong.push("the id index does not name the entries that are there");
        }
        if blocks_good && self.check.keys_good && self.keys != self.keyed {
            self.check.keys_good = false;
            wrong.push("the key index does not name the entries that are there");
        }
        if blocks_good && self.payload_bytes != footer.payload_bytes {
            wrong.push("the entries are not as long as the footer says");
        }
        let chunks = (self.check.chunks, self.check.chunk_bytes);
        if self.check.damaged == 0 && chunks != (footer.chunks, footer.chunk_bytes) {
            wrong.push("the chunks are not those that the footer counts");
        }
        for why in wrong {
            self.damage(RunPart::Whole, 0, self.run.file_bytes(), why.to_owned());
        }
    }

    fn damage(&mut self, part: RunPart, offset: u64, bytes: u64, why: String) {
        self.check.damaged += 1;
        match part {
            RunPart::Block(number) => {
                self.check.damaged_blocks.push(number);
                let block = self.run.block(number);
                self.check.lost_entries += block.map_or(0, |block| block.count);
            }
            RunPart::IdPage(_) => self.check.ids_good = false,
            RunPart::KeyPage(_) => self.check.keys_good = false,
            RunPart::Chunk
            | RunPart::Header
            | RunPart::Trailer
            | RunPart::Footer(_)
            | RunPart::Gap
            | RunPart::Whole => {}
        }
        (self.report)(RunFinding::Damage(&RunDamage {
            part,
            offset,
            bytes,
            why,
        }));
    }
}

/// A part whose place the footer says.
#[derive(Clone, Copy)]
struct PartRange {
    part: RunPart,
    offset: u64,
    end: u64,
}

impl PartRange {
    /// All of them, in the order of the file.
    fn all(run: &Run) -> Vec<Self> {
        let of_block = |(number, block): (usize, &BlockRef)| Self {
            part: RunPart::Block(to_u32(number)),
            offset: block.offset,
            end: block.offset + HEADER + u64::from(block.len),
        };
        let mut all: Vec<Self> = run.footer.blocks.iter().enumerate().map(of_block).collect();
        for (index, part) in [
            (&run.footer.ids, RunPart::IdPage as fn(u32) -> RunPart),
            (&run.footer.keys, RunPart::KeyPage),
        ] {
            all.extend((0..index.pages.len()).map(|page| {
                let (offset, len) = index.position(page);
                Self {
                    part: part(to_u32(page)),
                    offset,
                    end: offset + HEADER + u64::from(len),
                }
            }));
        }
        all
    }
}

/// Verifies a page of an index and returns where it ends.
fn page(
    run: &Run,
    index: &PageIndex,
    part: fn(u32) -> RunPart,
    number: u32,
    sum: &mut Sum,
) -> Result<u64> {
    let page = number as usize;
    let (offset, len) = index.position(page);
    let source = &run.source;
    let read = source.read_header(part(number), offset)?;
    let mut seen = Sum::default();
    let mut before = None;
    let mut sorted = true;
    run.visit_page(index, part, page, Vec::new(), |pair| {
        // An id comes once; a key with several entries has them in order.
        sorted &= match before {
            None => pair.0 == index.pages[page].first,
            Some(before) => before < pair,
        };
        before = Some(pair);
        seen.add(run.cover.salt, pair.0, pair.1);
        true
    })?;
    let greatest = index
        .pages
        .get(page + 1)
        .map_or(index.greatest, |next| next.first);
    sorted &= before.is_some_and(|last| last.0 <= greatest);
    let counted = PartHeader {
        first: number,
        count: u32::try_from(seen.pairs).unwrap_or(u32::MAX),
        ..read
    };
    if !sorted || counted != read {
        let why = "its pairs are not those that belong there";
        return Err(source.damaged(part(number), offset, why));
    }
    sum.pairs += seen.pairs;
    sum.sum = sum.sum.wrapping_add(seen.sum);
    Ok(offset + HEADER + u64::from(len))
}
