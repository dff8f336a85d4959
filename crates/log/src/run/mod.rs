//! Runs: immutable files of entries that left memory. `docs/run-format.md` describes every byte.
//!
//! A [`RunWriter`] takes entries in the order in which they will be read, cut into state indexes by
//! the caller, and makes a file of blocks with two indexes behind them: by id and by key. A [`Run`]
//! reads it: a block at a time, or one entry by id or key. What an entry means, when a run is in
//! force and which of its entries still live is the caller's business; nothing here knows a
//! message.
//!
//! Layers, from the bottom: `varint`, `name`, `cover` (header and trailer), `part` (what everything
//! between them is framed in), `block`, `pages` (one index) and `sorter`, `footer`; `writer`,
//! `reader` and `verify` stand on all of them.

mod backup;
mod block;
mod cover;
mod footer;
mod name;
mod pages;
mod part;
mod reader;
mod sorter;
mod varint;
mod verify;
mod writer;

pub use backup::{RunBackup, backup_runs};
pub use block::{Block, BlockPosition, Entries, Entry};
pub use footer::StateIndex;
pub use name::{RunName, RunNumber, list_runs, remove_run, remove_unfinished_runs};
pub use part::RunPart;
pub use reader::{BlockInfo, Run};
pub use verify::{LostIds, RunCheck, RunDamage, RunFinding};
pub use writer::{Chunk, RunOptions, RunWriter};

/// The longest payload of an entry, bytes. Larger bodies go into chunks.
pub const ENTRY_BYTES_MAX: usize = 1 << 20;

/// The longest content of a chunk, bytes.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;

/// The longest tag of a state index, bytes.
pub const STATE_INDEX_TAG_BYTES_MAX: usize = 64;
