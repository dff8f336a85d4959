//! The part of each run that is in force: a table of blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use quintet_types::{MessageId, Ms, RunId};

use crate::cold::{Block, BlockAt};
use crate::fact::Fact;

/// Whether a block's messages are in memory too. Volatile.
#[derive(Debug, Default)]
pub(crate) enum Shelf {
    /// In the file only.
    #[default]
    Stored,
    /// Asked for.
    Wanted,
    /// In memory: the turn it was loaded in, and its messages.
    Loaded(u64, Box<[MessageId]>),
    /// It cannot be read. Its messages are counted nowhere.
    Damaged,
}

#[derive(Debug)]
pub(crate) struct ColdBlock {
    pub(crate) row: Block,
    /// One bit for each entry that has left; none has, if there is no array.
    pub(crate) dead: Option<Box<[u64]>>,
    pub(crate) shelf: Shelf,
    /// When it must be read because something in it expires, if it is stored.
    pub(crate) rings: Option<Ms>,
}

impl ColdBlock {
    pub(crate) fn new(row: Block, dead: Option<Box<[u64]>>) -> Self {
        Self {
            row,
            dead,
            shelf: Shelf::Stored,
            rings: row.expires,
        }
    }

    /// The record of it in a snapshot.
    pub(crate) fn image(&self, run: RunId) -> Fact {
        Fact::RunImage {
            run,
            block: Box::new(self.row),
            dead: self.dead.clone(),
        }
    }

    /// True if the entry has not left.
    pub(crate) fn is_alive(&self, ordinal: u32) -> bool {
        let at = (ordinal - self.row.ordinal) as usize;
        at < self.row.count as usize
            && self
                .dead
                .as_ref()
                .is_none_or(|dead| dead[at / 64] & (1 << (at % 64)) == 0)
    }

    pub(crate) fn mark_dead(&mut self, ordinal: u32) {
        let at = (ordinal - self.row.ordinal) as usize;
        let words = (self.row.count as usize).div_ceil(64);
        let dead = self
            .dead
            .get_or_insert_with(|| vec![0; words].into_boxed_slice());
        if let Some(word) = dead.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    /// Its messages are not in memory, and could be.
    pub(crate) fn is_stored(&self) -> bool {
        matches!(self.shelf, Shelf::Stored | Shelf::Wanted)
    }
}

/// The part of one run that is in force.
#[derive(Debug, Default)]
pub(crate) struct RunBlocks {
    /// By the ordinal of the first entry. Boxed: nodes that grow at one end
    /// stay half empty.
    pub(crate) blocks: BTreeMap<u32, Box<ColdBlock>>,
    /// Entries that have not left.
    pub(crate) live: u64,
    /// Entries of the blocks in force, those that have left included.
    pub(crate) entries: u64,
}

impl RunBlocks {
    /// The block an entry is in, if it is in force.
    pub(crate) fn block_of(&self, ordinal: u32) -> Option<(u32, &ColdBlock)> {
        let (&first, block) = self.blocks.range(..=ordinal).next_back()?;
        (ordinal - first < block.row.count).then_some((first, block))
    }
}

/// All runs of a shard.
#[derive(Debug, Default)]
pub(crate) struct ColdRuns {
    pub(crate) runs: BTreeMap<RunId, RunBlocks>,
    /// Stored blocks in which something expires, by when.
    pub(crate) rings: BTreeSet<(Ms, BlockAt)>,
    /// Loaded blocks, longest ago first.
    pub(crate) loaded: BTreeMap<u64, BlockAt>,
    pub(crate) turn: u64,
    /// Blocks in force.
    pub(crate) blocks: u64,
    /// Bytes of memory that dead bits take.
    pub(crate) dead_bytes: u64,
    /// Changes whenever a message goes back to a run: what was known to be in
    /// memory or nowhere may not be any more.
    pub(crate) epoch: u64,
    /// Messages in blocks that cannot be read.
    pub(crate) damaged: u64,
    /// Messages in memory whose large body lies in a run, by run.
    pub(crate) bodies: BTreeMap<RunId, u64>,
    /// Runs in which nothing lives any more; their files can go once that is
    /// durable.
    pub(crate) gone: Vec<RunId>,
}

impl ColdRuns {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(crate) fn block(&self, at: BlockAt) -> Option<&ColdBlock> {
        let block = self.runs.get(&at.run)?.blocks.get(&at.ordinal);
        block.map(|block| &**block)
    }

    pub(crate) fn block_mut(&mut self, at: BlockAt) -> Option<&mut ColdBlock> {
        let table = self.runs.get_mut(&at.run)?;
        table.blocks.get_mut(&at.ordinal).map(|block| &mut **block)
    }

    /// The first block in force behind this one, or of all, by run and ordinal.
    pub(crate) fn next_block(&self, after: Option<BlockAt>) -> Option<BlockAt> {
        let from = after.map_or(RunId(0), |after| after.run);
        self.runs.range(from..).find_map(|(&run, table)| {
            let behind = match after.filter(|after| after.run == run) {
                Some(after) => Bound::Excluded(after.ordinal),
                None => Bound::Unbounded,
            };
            let next = table.blocks.range((behind, Bound::Unbounded)).next();
            next.map(|(&ordinal, _)| BlockAt { run, ordinal })
        })
    }

    /// Estimate of the memory it takes: measured over thirty million messages, with
    /// the share of the program that reads the runs (`cargo xtask backlog`).
    pub(crate) fn memory_bytes(&self) -> u64 {
        const PER_BLOCK: u64 = 560;
        self.blocks * PER_BLOCK + self.dead_bytes
    }
}
