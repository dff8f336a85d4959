//! Messages that do not die young: who writes them to runs, reads them back,
//! and clears runs away.
//!
//! The compactor thread ([`spill`], [`rewrite`]) works off every lock and holds a
//! shard's only for slices. The fetch thread ([`fetch`]) reads what engines
//! ask for and hands it to them.

mod fetch;
mod rewrite;
mod spill;
#[cfg(test)]
pub(super) mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quintet_engine::{Engine, PurgedBlock, Want};
use quintet_log::run::{CHUNK_BYTES_MAX, Chunk, Run, RunName, RunOptions};
use quintet_log::{BodyReader, LogError, SegmentNumber, Storage};
use quintet_types::{ChunkPlace, ColdStats, MessageId, RunId, SegmentRef};

use super::recover::run_name;
use super::{Core, Signal, Work, locked};

/// Bytes of a block, by how many blocks there are. Each block takes some 560 bytes
/// of memory; blocks are longer in a deep backlog, so that memory hardly grows with it.
const BLOCK_BYTES: [(u64, usize); 4] = [
    (8 << 10, 64 << 10),
    (12 << 10, 128 << 10),
    (14 << 10, 256 << 10),
    (u64::MAX, 512 << 10),
];
/// Blocks that the memory for messages has room for at least: some are read
/// ahead, each with all its messages.
const BLOCKS_MIN: u64 = 64;
/// Pause between two slices of background work.
const PACE: Duration = Duration::from_millis(1);
/// Pause between two looks at the runs when nobody asks for one.
const LOOK: Duration = Duration::from_millis(500);
/// The same while messages leave all the time.
const BUSY: Duration = Duration::from_millis(20);
/// Ids of purged messages that are recorded in one step.
const PURGED_IDS: usize = 1024;
/// A run with bodies that were being sent when it died stays open for this
/// long: what is sent slower than that breaks off.
const LINGER: Duration = Duration::from_secs(600);

/// How much memory messages may take, in each shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Messages leave memory above this, bytes.
    pub(crate) high: u64,
    /// And until this is reached.
    pub(crate) low: u64,
    /// But not by runs of less than this.
    pub(crate) least: u64,
    /// Puts wait above this.
    pub(crate) limit: u64,
    /// Messages chosen at once at most: the choice takes memory too.
    pub(crate) picks: usize,
    /// Dead bytes on the disk that are not worth the work of freeing them.
    pub(crate) slack: u64,
    /// Runs beyond this are merged, the smallest first: each is asked for an
    /// id that is in none.
    pub(crate) runs: usize,
}

impl Budget {
    /// Of `memory` bytes for the whole server.
    pub(crate) fn new(memory: u64, shards: u64) -> Self {
        let each =
            memory.saturating_sub(quintet_policy::smallest(shards) / 2) / shards.max(1) * 3 / 4;
        Self {
            // The rest is what comes while a run is being written.
            high: each / 8 * 5,
            low: each / 8 * 3,
            least: each / 8,
            limit: each,
            picks: usize::try_from(each / 1024)
                .unwrap_or(usize::MAX)
                .clamp(4096, 1 << 17),
            slack: (memory / 16).clamp(1 << 20, 32 << 20),
            runs: usize::try_from(memory >> 14)
                .unwrap_or(usize::MAX)
                .clamp(512, 4096),
        }
    }
}

impl Budget {
    /// The budget where `fixed` bytes are taken by what does not leave memory:
    /// queues, tables, what is known of runs. Messages have what is left of
    /// it, a quarter at least.
    pub(super) fn beside(self, fixed: u64) -> Self {
        let room = self.limit.saturating_sub(fixed).max(self.limit / 4);
        let part = |of: u64| {
            let left = u128::from(room) * u128::from(of);
            u64::try_from(left / u128::from(self.limit.max(1))).unwrap_or(u64::MAX)
        };
        Self {
            high: fixed + part(self.high),
            low: fixed + part(self.low),
            least: part(self.least),
            limit: fixed + room,
            ..self
        }
    }
}

/// All runs, and what was asked of them.
pub(crate) struct Runs {
    storage: Arc<dyn Storage>,
    open: Mutex<BTreeMap<u32, Arc<Run>>>,
    /// Runs are numbered over all shards, so that a number names a file.
    next: AtomicU32,
    /// The first of them in this life.
    first: u32,
    pub(crate) wanted: Mutex<Vec<(usize, Want)>>,
    /// Wakes the fetch thread.
    pub(crate) work: Signal,
    /// Wakes the compactor thread.
    pub(crate) pressed: Signal,
    /// Dead runs whose files go when the commit number is durable: shard, run, commit number.
    dying: Mutex<Vec<(usize, u32, u64)>>,
    lingering: Mutex<Vec<(Instant, u32)>>,
    /// Runs whose blocks are being put in force one after the other, by the
    /// compactor or by the thread that retires segments.
    unfinished: Mutex<BTreeSet<u32>>,
    /// Runs that cannot be read whole and so are not written again.
    left_alone: Mutex<BTreeSet<u32>>,
    pub(crate) counts: KeepCounts,
    budget: Mutex<Budget>,
    /// The same as in it, to look at often.
    high: AtomicU64,
    /// The server stops: nobody waits for room any more.
    stops: AtomicBool,
    /// A budget that nothing can be done about was reported.
    warned: AtomicBool,
}

/// Numbers for statistics, since start.
#[derive(Default)]
pub(crate) struct KeepCounts {
    /// Messages written to runs.
    pub(crate) spilled: AtomicU64,
    /// Bytes of run files written.
    pub(crate) spilled_bytes: AtomicU64,
    /// Blocks read from runs.
    pub(crate) fetched: AtomicU64,
    pub(crate) fetched_messages: AtomicU64,
    /// Runs written again because little lived in them.
    pub(crate) rewritten: AtomicU64,
    /// Messages written to runs and read from them, a second, of late.
    pub(crate) spill_rate: AtomicU64,
    pub(crate) fetch_rate: AtomicU64,
    /// Bytes of all run files.
    pub(crate) bytes: AtomicU64,
    /// Reads that failed.
    pub(crate) errors: AtomicU64,
}

impl Runs {
    /// `open` are the runs in force, `next` is above every number in use.
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        open: BTreeMap<u32, Arc<Run>>,
        next: u32,
        budget: Budget,
    ) -> Self {
        let bytes = open.values().map(|run| run.file_bytes()).sum();
        let counts = KeepCounts {
            bytes: AtomicU64::new(bytes),
            ..KeepCounts::default()
        };
        Self {
            storage,
            open: Mutex::new(open),
            next: AtomicU32::new(next),
            first: next,
            wanted: Mutex::new(Vec::new()),
            work: Signal::default(),
            pressed: Signal::default(),
            dying: Mutex::new(Vec::new()),
            lingering: Mutex::new(Vec::new()),
            unfinished: Mutex::new(BTreeSet::new()),
            left_alone: Mutex::new(BTreeSet::new()),
            counts,
            budget: Mutex::new(budget),
            high: AtomicU64::new(budget.high),
            stops: AtomicBool::new(false),
            warned: AtomicBool::new(false),
        }
    }

    /// Sets the memory of the whole server.
    pub(crate) fn set_budget(&self, memory: u64, shards: u64) {
        let budget = Budget::new(memory, shards);
        *locked(&self.budget) = budget;
        self.high.store(budget.high, Ordering::Relaxed);
        self.pressed.raise();
    }

    pub(crate) fn budget(&self) -> Budget {
        *locked(&self.budget)
    }

    /// Wakes the compactor if a shard's messages take more memory than they
    /// should.
    pub(crate) fn watch(&self, bytes: u64) {
        if bytes > self.high.load(Ordering::Relaxed) {
            self.pressed.raise();
        }
    }

    /// Every run of a number below this was made in an earlier life, or is open.
    pub(crate) fn first_of_this_life(&self) -> u32 {
        self.first
    }

    /// True if messages are in it, or bodies are sent from it.
    pub(crate) fn has(&self, number: u32) -> bool {
        locked(&self.open).contains_key(&number)
    }

    fn get(&self, run: RunId) -> Option<Arc<Run>> {
        locked(&self.open).get(&run.0).cloned()
    }

    /// The name of a new run of a shard.
    fn next_name(&self, shard: usize) -> RunName {
        run_name(shard, self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn add(&self, run: Run) -> Arc<Run> {
        self.counts
            .bytes
            .fetch_add(run.file_bytes(), Ordering::Relaxed);
        let run = Arc::new(run);
        locked(&self.open).insert(run.name().number.0, Arc::clone(&run));
        run
    }

    /// Deletes the file of a shard's run. Bodies that are being sent from it
    /// keep it open.
    fn remove(&self, shard: usize, number: u32) {
        let Some(run) = locked(&self.open).get(&number).cloned() else {
            return;
        };
        // Better no server than one that deletes what another shard needs.
        assert!(
            usize::from(run.name().shard) == shard,
            "{} was to be deleted for shard {shard}: numbers of runs are those of all shards",
            run.name()
        );
        self.counts
            .bytes
            .fetch_sub(run.file_bytes(), Ordering::Relaxed);
        if let Err(error) = quintet_log::run::remove_run(&*self.storage, run.name()) {
            tracing::warn!("cannot delete {}, which is not needed: {error}", run.name());
        }
        if run.chunk_bytes() > 0 {
            locked(&self.lingering).push((Instant::now(), number));
        } else {
            locked(&self.open).remove(&number);
        }
    }

    /// Everything about cold messages, for statistics.
    pub(crate) fn numbers(&self, cold: &ColdStats) -> Vec<(&'static str, u64)> {
        let entries: u64 = {
            let open = locked(&self.open);
            open.values().map(|run| u64::from(run.entries())).sum()
        };
        let counts = &self.counts;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            ("messages", cold.messages),
            ("runs", cold.runs),
            ("run_bytes", count(&counts.bytes)),
            ("live_percent", cold.messages * 100 / entries.max(1)),
            ("blocks", cold.blocks),
            ("blocks_loaded", cold.loaded),
            ("messages_damaged", cold.damaged),
            ("spilled", count(&counts.spilled)),
            ("spilled_bytes", count(&counts.spilled_bytes)),
            ("spilled_per_s", count(&counts.spill_rate)),
            ("fetched", count(&counts.fetched_messages)),
            ("fetched_blocks", count(&counts.fetched)),
            ("fetched_per_s", count(&counts.fetch_rate)),
            ("runs_rewritten", count(&counts.rewritten)),
            ("read_errors", count(&counts.errors)),
        ]
    }

    /// Brings the rates up to date; `since` the last time.
    fn measure(&self, since: Duration, last: &mut [u64; 2]) {
        let counts = &self.counts;
        let pairs = [
            (&counts.spilled, &counts.spill_rate),
            (&counts.fetched_messages, &counts.fetch_rate),
        ];
        let ms = u64::try_from(since.as_millis()).unwrap_or(1).max(1);
        for ((counter, rate), last) in pairs.into_iter().zip(last) {
            let now = counter.load(Ordering::Relaxed);
            let new = (now - std::mem::replace(last, now)) * 1000 / ms;
            // Half of it is from the last second or two.
            let old = rate.load(Ordering::Relaxed);
            rate.store((old * 3 + new) / 4, Ordering::Relaxed);
        }
    }

    /// A chunk of a large body that lies in a run.
    fn chunk(&self, run: RunId, position: ChunkPlace) -> Result<Vec<u8>, LogError> {
        let Some(found) = self.get(run) else {
            return Err(LogError::NoSegment(SegmentNumber(position.segment)));
        };
        // Of a longer one the run says that it has none.
        let mut bytes = vec![0; CHUNK_BYTES_MAX.min(position.len as usize)];
        let chunk = Chunk {
            offset: position.offset,
            len: position.len,
        };
        found.read_chunk(chunk, &mut bytes)?;
        Ok(bytes)
    }
}

/// Reads chunks of large bodies, wherever they lie.
pub struct BodySource<'a> {
    pub(crate) log: &'a BodyReader,
    pub(crate) runs: &'a Runs,
}

impl BodySource<'_> {
    /// Bytes that end with the chunk.
    ///
    /// # Errors
    /// It cannot be read, or its segment or run is gone.
    pub fn read(&self, position: &ChunkPlace) -> Result<Vec<u8>, LogError> {
        match SegmentRef(position.segment).run() {
            Some(run) => self.runs.chunk(run, *position),
            None => {
                let segment = SegmentNumber(position.segment);
                self.log
                    .read_frame_payload(segment, position.offset, position.frame_len)
            }
        }
    }
}

impl Core {
    /// Where chunks of large bodies are read.
    pub fn body_source(&self) -> BodySource<'_> {
        BodySource {
            log: &self.reader,
            runs: &self.runs,
        }
    }

    /// The compactor thread: runs until `stop`.
    pub fn run_compactor(&self, stop: &AtomicBool) {
        let mut checked = Instant::now();
        let mut last = [0; 2];
        let mut busy = false;
        loop {
            self.runs.pressed.wait_for(if busy { BUSY } else { LOOK });
            if stop.load(Ordering::SeqCst) {
                return;
            }
            busy = false;
            for shard in 0..self.shards.len() {
                busy |= self.relieve(shard, stop);
            }
            if !busy {
                // Pressed in vain perhaps: not with every batch.
                std::thread::sleep(BUSY);
            }
            self.bury_runs();
            if checked.elapsed() >= LOOK {
                self.runs.measure(checked.elapsed(), &mut last);
                checked = Instant::now();
                for shard in 0..self.shards.len() {
                    self.rewrite_thin(shard, stop);
                    // Nobody may have passed these on.
                    let wants = self.in_engine(shard, Work::Spill, Engine::take_wants);
                    self.ask_runs(shard, wants);
                }
            }
        }
    }

    /// Deletes runs in which nothing lives, once that is durable.
    fn bury_runs(&self) {
        let mut dying = locked(&self.runs.dying);
        for (number, shard) in self.shards.iter().enumerate() {
            let mut shard = shard.lock_last(Work::Spill);
            let gone = shard.engine.take_dead_runs();
            if !gone.is_empty() {
                let open = self.progress.open();
                let commit_number = if shard.batch.is_empty() {
                    open - 1
                } else {
                    open
                };
                dying.extend(gone.into_iter().map(|run| (number, run.0, commit_number)));
            }
            // Before their files go.
            let purged = shard.engine.take_purged_blocks();
            drop(shard);
            self.record_purged(number, purged);
        }
        if !dying.is_empty() {
            let newest = dying
                .iter()
                .map(|&(.., commit_number)| commit_number)
                .max()
                .unwrap_or(0);
            if self.progress.durable() < newest && self.write_now() {
                self.sync();
                self.notify_durable();
            }
            let durable = self.progress.durable();
            dying.retain(|&(shard, run, commit_number)| {
                if commit_number > durable || locked(&self.runs.unfinished).contains(&run) {
                    return true;
                }
                // More blocks of it may have come into force since; then it
                // dies once more.
                if !self.in_engine(shard, Work::Spill, |engine| engine.needs_run(RunId(run))) {
                    self.runs.remove(shard, run);
                }
                false
            });
        }
        drop(dying);
        locked(&self.runs.lingering).retain(|(since, run)| {
            let over = since.elapsed() > LINGER;
            if over {
                locked(&self.runs.open).remove(run);
            }
            !over
        });
    }

    /// Records the ends of messages that purges have removed with their blocks. A start that reads
    /// of a purge may not have the files any more.
    fn record_purged(&self, shard: usize, purged: VecDeque<PurgedBlock>) {
        let mut runs: BTreeMap<RunId, Vec<(PurgedBlock, Vec<MessageId>)>> = BTreeMap::new();
        for block in purged {
            let blocks = runs.entry(block.at.run).or_default();
            blocks.push((block, Vec::new()));
        }
        for (run, mut blocks) in runs {
            // These ends are known to memory alone, which goes.
            if self.runs.stops.load(Ordering::SeqCst) {
                return;
            }
            blocks.sort_unstable_by_key(|(block, _)| block.at);
            let read = self.runs.get(run).map_or(Ok(()), |file| {
                file.each_id(|id, ordinal| {
                    let behind = blocks.partition_point(|(block, _)| block.at.ordinal <= ordinal);
                    let found = behind.checked_sub(1).and_then(|at| blocks.get_mut(at));
                    if let Some((block, ids)) = found
                        && block.has(ordinal)
                    {
                        ids.push(MessageId(id));
                    }
                })
            });
            if let Err(error) = read {
                tracing::warn!("the ends of some purged messages are not recorded: {error}");
            }
            for (block, ids) in &blocks {
                let none = ids.is_empty().then_some(&[][..]);
                for ids in ids.chunks(PURGED_IDS).chain(none) {
                    let mut shard = self.shards[shard].lock_last(Work::Spill);
                    shard.engine.add_purged(block, ids);
                }
            }
        }
    }

    fn run_options(&self) -> RunOptions {
        let each = self.shards.iter();
        let blocks: u64 = each
            .map(|shard| shard.lock_last(Work::Spill).engine.cold_stats().blocks)
            .sum();
        let most = locked(&self.runs.budget).limit / BLOCKS_MIN;
        let sizes = BLOCK_BYTES.iter();
        let block_bytes = sizes
            .filter(|(up_to, bytes)| blocks < *up_to || *bytes as u64 * 2 > most)
            .map(|(_, bytes)| *bytes)
            .next();
        RunOptions {
            block_bytes: block_bytes.unwrap_or(BLOCK_BYTES[0].1),
            sort_bytes: 1 << 20,
            created_ms: self.clock.now().0,
        }
    }

    /// A run could not be written. True if that is because the disk is full,
    /// which is not final.
    fn cannot_write_run(&self, error: &LogError) -> bool {
        if matches!(error, LogError::NoSpace { .. }) {
            return true;
        }
        self.fail(error);
        false
    }
}
