//! Opening a data directory: replay, and the first frame of a new epoch.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use quintet_engine::format::{chunk, next_group};
use quintet_engine::{Block, Engine, Fact};
use quintet_log::run::{Run, RunName, RunNumber, list_runs, remove_run, remove_unfinished_runs};
use quintet_log::{
    Disk, Epoch, FrameBuf, FrameKind, LocalStore, Log, LogStore, Options, Recovery, ReplayFrame,
    Spares, Stamp, Storage,
};
use quintet_types::{ChunkPlace, LargeBody, Ms, QueueId, RunId, SegmentRef, Settings, WallAhead};

use super::bodies::Bodies;
use super::clock::STEP_MS;
use super::shard::fill;
use super::{Budget, Clock, Committer, Runs, Shard};

/// A data directory, open and in a new epoch.
pub struct Opened {
    pub(crate) shards: Vec<Shard>,
    pub(crate) committer: Committer,
    pub(crate) bodies: Bodies,
    pub(crate) clock: Clock,
    /// The spares of the log's files, if there are any.
    pub spares: Option<Spares>,
    /// Result of recovery.
    pub recovery: Recovery,
    pub(crate) runs: Runs,
    pub(crate) epoch: Epoch,
}

/// How the log is laid out.
pub struct Layout {
    /// Shards, 1 to 255; what the directory was made with.
    pub shards: usize,
    /// Size of one file of the log.
    pub segment_bytes: u64,
    /// Files of it made ahead.
    pub spares: usize,
    /// Memory the server may take, bytes.
    pub memory: u64,
}

/// Takes in a log's frames, in order: what a start does, and what somebody
/// does who follows a log that another writes.
pub struct Replay {
    pub(crate) engines: Vec<Engine>,
    bodies: BTreeMap<u64, PartialBody>,
    began: Instant,
    reported: Instant,
    bytes: u64,
    /// By shard: the beginning of the segment is being read, and something came before it.
    snapshots: Vec<Option<Beginning>>,
    /// Epoch of the segment's first frame.
    snapshot_epoch: Epoch,
    /// Nothing came yet.
    fresh: bool,
    contradiction: Option<String>,
}

/// The beginning of a segment, as far as it was read. Between the facts of commands come blocks of
/// runs with their queues, and the shard's counters when as many blocks were named as are in force
/// there; then the rest of both, and the counters again.
#[derive(Clone, Default)]
struct Beginning {
    /// Blocks of runs that it has named.
    blocks: u64,
    /// The shard's counters came once.
    is_counted: bool,
    /// A queue that is known here is written again; its counters come next.
    queue: Option<QueueId>,
}

impl Beginning {
    /// In what a fact contradicts the engine, in words, and whether the beginning is over.
    fn check(&mut self, shard: u64, engine: &Engine, fact: &Fact) -> (Option<String>, bool) {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "others say nothing of the state before them"
        )]
        match fact {
            Fact::RunImage { .. } => {
                self.blocks += 1;
                (engine.contradicts(fact), false)
            }
            Fact::QueueMade {
                queue,
                name,
                parent: None,
                created,
            } => {
                let known = engine.is_queue(*queue, name, *created);
                self.queue = known.then_some(*queue);
                (None, false)
            }
            Fact::QueueCounted { queue, .. } => {
                // Between facts of commands there are counters that no reader had to know.
                let again = self.queue.take() == Some(*queue);
                let found = (again || !self.is_counted).then(|| engine.contradicts(fact));
                (found.flatten(), false)
            }
            Fact::ShardCounted(_) if self.is_counted => (None, true),
            Fact::ShardCounted(_) => {
                self.is_counted = true;
                let (here, there) = (engine.cold_stats().blocks, self.blocks);
                let found = (here != there)
                    .then(|| format!("shard {shard}: {here} blocks of runs here, {there} there"));
                (found, false)
            }
            _ => (None, false),
        }
    }
}

/// A large body as far as the log told.
#[derive(Default)]
struct PartialBody {
    body: Option<LargeBody>,
    /// By its number: a damaged one must not make it huge.
    places: BTreeMap<u32, ChunkPlace>,
}

/// Opens the data directory `dir`, whose lock the caller holds: its log, and
/// the runs beside it. As [`open`].
///
/// # Errors
/// It was made with another number of shards; else as [`open`].
pub fn open_dir(dir: &Path, layout: &Layout, settings: &Settings) -> Result<Opened> {
    check_shards(dir, layout.shards)?;
    open_on(&(Arc::new(Disk::new(dir)) as _), layout, settings)
}

/// The same on any storage.
pub(super) fn open_on(
    storage: &Arc<dyn Storage>,
    layout: &Layout,
    settings: &Settings,
) -> Result<Opened> {
    let log = LocalStore {
        storage: Arc::clone(storage),
        options: Options {
            segment_bytes: layout.segment_bytes,
            spares: layout.spares,
            ..Options::default()
        },
    };
    open(Box::new(log), storage, layout, settings)
}

/// Opens a log, takes in all its frames, and begins to own it: [`take_ownership`].
/// `runs` is where run files are.
///
/// # Errors
/// The log cannot be read or written; nothing was answered to anyone.
pub fn open(
    log: Box<dyn LogStore>,
    runs: &Arc<dyn Storage>,
    layout: &Layout,
    settings: &Settings,
) -> Result<Opened> {
    let mut replay = Replay::new(layout.shards, settings)?;
    let (log, recovery) = log.open(&mut |frame| replay.frame(&frame))?;
    if let Some(cut) = &recovery.cut {
        tracing::warn!(
            "the last {} bytes of the log were not synced before the crash and are cut off: {} at \
             byte {}: {}",
            cut.bytes,
            cut.file,
            cut.offset,
            cut.why
        );
    }
    take_ownership(replay, log, recovery, None, runs, layout)
}

/// Makes what a log led to a host that decides, and appends the beginning of a new epoch, synced:
/// from here on the log is this process's to write. `runs` is where run files are: of a log that
/// others could come to own, a place that they reach as well. `lead`: where the owner's time is
/// less the monotonic clock (`CLOCK_BOOTTIME`), ms, as far as this process has followed it; else
/// the wall clock says what time it is.
///
/// # Errors
/// The log cannot be written, or a run it needs not be opened.
pub fn take_ownership(
    replay: Replay,
    log: Box<dyn Log>,
    recovery: Recovery,
    lead: Option<i64>,
    runs: &Arc<dyn Storage>,
    layout: &Layout,
) -> Result<Opened> {
    let clock = Clock::new(Ms(recovery.last_time_ms), lead);
    if lead.is_none() {
        report_future(clock.ahead());
    }
    take_ownership_at(clock, replay, log, recovery, runs, layout)
}

/// The same by this clock, which gives no time before the log's newest.
pub(crate) fn take_ownership_at(
    clock: Clock,
    mut replay: Replay,
    mut log: Box<dyn Log>,
    recovery: Recovery,
    runs: &Arc<dyn Storage>,
    layout: &Layout,
) -> Result<Opened> {
    if let Some(why) = replay.lacks() {
        tracing::warn!(
            "{why}: the others were lost, now or before, or imported as archived by an older \
             version"
        );
    }
    let spares = log.files_ahead();
    let epoch = Epoch(recovery.last_epoch.0 + 1);
    let bodies = replay.take_bodies();
    let mut shards: Vec<Shard> = replay.engines.into_iter().map(Shard::new).collect();
    let segment_ref = begin_epoch(&mut *log, &mut shards, epoch, clock.now(), &|_| Vec::new())?;
    for shard in &mut shards {
        shard.engine.set_segment_ref(segment_ref);
        shard.engine.set_wall_ahead(clock.ahead());
        let last_id = shard.engine.last_id().0;
        shard.ring.settle(last_id);
    }
    let runs = open_runs(runs, layout, &mut shards)?;
    for shard in &mut shards {
        let budget = runs.budget().beside(shard.engine.fixed_bytes());
        shard.engine.set_memory_room(budget.limit);
    }
    let committer = Committer::new(log, epoch, shards.len(), layout.segment_bytes);
    Ok(Opened {
        shards,
        committer,
        bodies: Bodies::new(bodies, epoch),
        clock,
        spares,
        recovery,
        runs,
        epoch,
    })
}

/// Reports a log whose newest frame is from the future.
fn report_future(ahead: WallAhead) {
    let behind = ahead.0.saturating_neg();
    if behind > 0 && behind.unsigned_abs() > STEP_MS {
        tracing::warn!(
            ahead_ms = ahead.0,
            "the log was last written {} in the future, by this machine's clock. If the clock is \
             wrong now, set it right: nothing has to be started again. If it was wrong then, \
             nothing stands still: time inside goes on from there, and delays and expiries that \
             were to come by then count as over. See \"Time\" in docs/operations.md",
            span(behind.unsigned_abs())
        );
    }
}

/// A span in the unit a reader would choose.
fn span(ms: u64) -> String {
    match ms / 1000 {
        seconds if seconds < 120 => format!("{seconds} s"),
        seconds if seconds < 7_200 => format!("{} min", seconds / 60),
        seconds if seconds < 172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// Opens the runs that are in force, and clears others away: the log, which is
/// synced by now, knows them no more, or never did.
fn open_runs(storage: &Arc<dyn Storage>, layout: &Layout, shards: &mut [Shard]) -> Result<Runs> {
    remove_unfinished_runs(&**storage).context("cannot clear unfinished runs away")?;
    let there = list_runs(&**storage).context("cannot list the runs")?;
    // Runs that die in the log have lost their files, or lose them here. Nobody
    // may come back to them later: their numbers would be those of new runs,
    // of other shards perhaps, whose files are needed. So they are passed over
    // as well.
    let died: Vec<u32> = shards
        .iter_mut()
        .flat_map(|shard| shard.engine.take_dead_runs())
        .map(|run| run.0)
        .collect();
    // What is needed need not be here, where others keep runs as well.
    let needed: Vec<RunId> = shards
        .iter()
        .flat_map(|shard| shard.engine.needed_runs())
        .collect();
    let needed = needed.iter().map(|run| run.0);
    let numbers = there.iter().map(|name| name.number.0);
    let numbers = numbers.chain(needed).chain(died);
    // No server came to a greater number, and no new run may get one above that.
    let newest = numbers.filter(|&number| number < 1 << 30).max();
    let next = newest.map(|newest| newest + 1);
    let (mut open, mut bad) = (BTreeMap::new(), Vec::new());
    for (number, shard) in shards.iter().enumerate() {
        for run in shard.engine.needed_runs() {
            let name = run_name(number, run.0);
            match open_run(&shard.engine, &**storage, name) {
                Ok(opened) => drop(open.insert(run.0, Arc::new(opened))),
                Err(error) => bad.push(format!("{error:#}")),
            }
        }
    }
    ensure!(bad.is_empty(), "{}", bad.join("\n"));
    for name in there {
        if !open.contains_key(&name.number.0) {
            remove_run(&**storage, name).with_context(|| format!("cannot delete {name}"))?;
        }
    }
    let budget = Budget::new(layout.memory, layout.shards as u64);
    Ok(Runs::new(
        Arc::clone(storage),
        open,
        next.unwrap_or(1),
        budget,
    ))
}

pub(super) fn run_name(shard: usize, number: u32) -> RunName {
    RunName {
        shard: u16::try_from(shard).unwrap_or(u16::MAX),
        number: RunNumber(number),
    }
}

fn living(rows: &[Block]) -> u64 {
    rows.iter().map(|row| u64::from(row.live)).sum()
}

/// Opens a run that holds what the log counts as living in it.
fn open_run(engine: &Engine, storage: &dyn Storage, name: RunName) -> Result<Run> {
    let mut rows = engine.blocks_of(RunId(name.number.0));
    let run = Run::open(storage, name).with_context(|| {
        format!(
            "{name} holds {} living messages and cannot be opened; put it back from a backup, or \
             see `quintet check` and `quintet repair`",
            living(&rows)
        )
    })?;
    rows.retain(|row| {
        let has = run.block(row.number).is_some_and(|block| {
            block.first_ordinal <= row.ordinal
                && block.first_ordinal + block.count >= row.ordinal.saturating_add(row.count)
        });
        !has || row.live > row.count
    });
    let Some(row) = rows.first() else {
        return Ok(run);
    };
    let found = run.block(row.number).map_or_else(
        || format!("{} blocks", run.blocks()),
        |block| format!("{} entries from {} there", block.count, block.first_ordinal),
    );
    bail!(
        "{name} is not the run that the log names: the log counts {} living messages in {} entries \
         from {} of block {}, and the file has {found}; {} living messages are in no run; put it \
         back from a backup",
        row.live,
        row.count,
        row.ordinal,
        row.number,
        living(&rows)
    )
}

/// Bytes that nobody can guess: a fresh `RandomState` is keyed from the system's random source.
fn random() -> [u8; 16] {
    let half = |_| RandomState::new().hash_one(0_u8).to_le_bytes();
    let halves = [0, 1].map(half);
    std::array::from_fn(|at| halves[at / 8][at % 8])
}

/// Writes and syncs the first frame of this start: each shard's snapshot (the
/// frame may be the first of a segment) and the facts that end the leases of
/// connections that are gone; then what `more` says of each. Answers the
/// segment it went to.
pub(super) fn begin_epoch(
    log: &mut dyn Log,
    shards: &mut [Shard],
    epoch: Epoch,
    now: Ms,
    more: &dyn Fn(&Engine) -> Vec<Fact>,
) -> Result<SegmentRef> {
    let mut batches = Vec::new();
    for shard in shards {
        let Shard { engine, batch, .. } = shard;
        batch.begin(engine);
        engine.begin_epoch(now, epoch.0, random(), batch);
        for fact in more(engine) {
            quintet_engine::Journal::record(batch, &fact);
        }
        batches.push(std::mem::take(batch));
    }
    let stamp = Stamp {
        epoch,
        time_ms: now.0,
    };
    let placed = loop {
        let mut frame = FrameBuf::new(FrameKind::Facts);
        let (count, last) = fill(frame.payload_mut(), &mut batches);
        frame.count = count;
        let end = log.end();
        let placed = log
            .append(end, stamp, &mut frame)
            .context("cannot begin to write the log")?;
        if last {
            break placed;
        }
    };
    let point = log.sync_point();
    point.wait().context("cannot sync the log")?;
    log.synced(point);
    Ok(SegmentRef(placed.segment.0))
}

impl Replay {
    /// Before the first frame.
    ///
    /// # Errors
    /// There are too many shards.
    pub fn new(shards: usize, settings: &Settings) -> Result<Self> {
        let now = Instant::now();
        let count = u8::try_from(shards).context("too many shards")?;
        Ok(Self {
            engines: (0..count)
                .map(|n| Engine::new(n, count, settings.clone()))
                .collect(),
            bodies: BTreeMap::new(),
            began: now,
            reported: now,
            bytes: 0,
            snapshots: vec![None; shards],
            snapshot_epoch: Epoch(0),
            fresh: true,
            contradiction: None,
        })
    }

    /// The runs whose messages the frames so far record.
    pub fn needed_runs(&self) -> Vec<RunName> {
        let engines = self.engines.iter().enumerate();
        let runs = engines.flat_map(|(shard, engine)| {
            let runs = engine.needed_runs().into_iter();
            runs.map(move |run| run_name(shard, run.0))
        });
        runs.collect()
    }

    /// The living messages that the frames so far count in a run.
    pub fn living_in(&self, name: RunName) -> u64 {
        let engine = self.engines.get(usize::from(name.shard));
        engine.map_or(0, |engine| living(&engine.blocks_of(RunId(name.number.0))))
    }

    /// Whether the file of a needed run has what the frames so far count as living in it.
    ///
    /// # Errors
    /// It cannot be opened, or has not; in words.
    pub fn check_run(&self, storage: &dyn Storage, name: RunName) -> Result<()> {
        match self.engines.get(usize::from(name.shard)) {
            Some(engine) => open_run(engine, storage, name).map(drop),
            None => Ok(()),
        }
    }

    /// Takes in the next frame; tells an operator now and then how far it is.
    ///
    /// # Errors
    /// The frame does not fit the state so far; the text says why.
    pub fn frame(&mut self, frame: &ReplayFrame<'_>) -> Result<(), String> {
        self.bytes += frame.payload.len() as u64;
        self.report();
        self.apply(frame)
    }

    /// The same, silently: for who follows for a long time.
    ///
    /// # Errors
    /// The frame does not fit the state so far; the text says why.
    pub fn apply(&mut self, frame: &ReplayFrame<'_>) -> Result<(), String> {
        let before = !std::mem::take(&mut self.fresh);
        if frame.first_in_segment {
            self.snapshots.fill(before.then(Beginning::default));
            self.snapshot_epoch = frame.epoch;
        } else if frame.epoch != self.snapshot_epoch {
            // Another owner does not go on with it.
            self.snapshots.fill(None);
        }
        self.engines.iter_mut().for_each(Engine::collect_replayed);
        match frame.kind {
            FrameKind::Facts => {
                let (epoch, now) = (frame.epoch.0, Ms(frame.time_ms));
                self.engines.iter_mut().for_each(|engine| {
                    engine.replays_epoch(epoch);
                    engine.replays_time(now);
                });
                self.facts(frame.payload, SegmentRef(frame.segment.0))
            }
            FrameKind::Body => self.chunk(frame),
            FrameKind::Reign => Ok(()),
            FrameKind::Lost => {
                tracing::warn!(
                    "a repair lost {} bytes of the log here; messages in them are gone",
                    frame.payload.len()
                );
                Ok(())
            }
        }
    }

    /// In what the newest snapshot's counters are not those that the frames before it led to, if
    /// that was not asked before. It means something only to who had read everything that was there
    /// when its first segment became the oldest: of others' messages it may know too little.
    pub fn take_contradiction(&mut self) -> Option<String> {
        self.contradiction.take()
    }

    /// A queue of which more living messages are counted than the log, read to its end, and the
    /// runs that it names hold; in words. No snapshot is there to be compared with the first one
    /// that is read: what it leaves out is found so.
    pub fn lacks(&self) -> Option<String> {
        self.engines.iter().find_map(Engine::lacks)
    }

    fn facts(&mut self, mut payload: &[u8], segment_ref: SegmentRef) -> Result<(), String> {
        let (bodies, snapshots) = (&mut self.bodies, &mut self.snapshots);
        while !payload.is_empty() {
            let (shard, mut records) =
                next_group(&mut payload).ok_or("a group of records is cut short")?;
            let at = usize::try_from(shard).unwrap_or(usize::MAX);
            let (Some(engine), Some(in_snapshot)) =
                (self.engines.get_mut(at), snapshots.get_mut(at))
            else {
                return Err(format!("records of shard {shard}, which does not exist"));
            };
            while !records.is_empty() {
                let fact = Fact::decode(&mut records, &mut |id, len| {
                    let found = bodies.entry(id).or_default();
                    // Its message lives where its oldest chunk does, or a
                    // retirement would pass it by.
                    let places = found.places.values();
                    let oldest = places.map(|position| position.segment).min();
                    let oldest = oldest.unwrap_or(segment_ref.0);
                    let body = found
                        .body
                        .get_or_insert_with(|| LargeBody::new(id, len, oldest));
                    // Those that a retirement has written again count from there.
                    body.set_places(Vec::new(), oldest);
                    body.clone()
                })
                .map_err(|error| error.to_string())?;
                if let Some(beginning) = in_snapshot {
                    let (found, is_over) = beginning.check(shard, engine, &fact);
                    self.contradiction = self.contradiction.take().or(found);
                    if is_over {
                        *in_snapshot = None;
                    }
                }
                engine.replay(fact, segment_ref);
            }
        }
        Ok(())
    }

    fn chunk(&mut self, frame: &ReplayFrame<'_>) -> Result<(), String> {
        let (id, index, bytes) = chunk(frame.payload).ok_or("a chunk without a head")?;
        // A body of 1 TiB in the smallest chunks has fewer.
        if index >= 1 << 24 {
            return Err(format!("chunk {index} of a body"));
        }
        let position = ChunkPlace {
            segment: frame.segment.0,
            offset: frame.offset,
            frame_len: u32::try_from(frame.payload.len()).unwrap_or(u32::MAX),
            len: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        };
        // A chunk written again (its segment was retired) counts from there.
        let places = &mut self.bodies.entry(id).or_default().places;
        places.insert(index, position);
        Ok(())
    }

    /// The large bodies that messages refer to, with their places; the rest
    /// are leftovers of puts that never came to be.
    fn take_bodies(&mut self) -> BTreeMap<u64, LargeBody> {
        let mut bodies = BTreeMap::new();
        for (id, found) in std::mem::take(&mut self.bodies) {
            let Some(body) = found.body.filter(|body| body.handles() > 1) else {
                continue;
            };
            let places = found.places.into_iter().zip(0_u32..);
            let places = places.map_while(|((n, position), at)| (n == at).then_some(position));
            let places: Vec<ChunkPlace> = places.collect();
            let stored: u64 = places.iter().map(|position| u64::from(position.len)).sum();
            if stored != body.len() {
                tracing::error!(
                    "of a body of {} bytes the log has {stored}: its message cannot be sent",
                    body.len()
                );
            }
            let segments = places.iter().map(|position| position.segment);
            let segment_ref = segments.min().unwrap_or(0);
            body.set_places(places, segment_ref);
            bodies.insert(id, body);
        }
        bodies
    }

    /// Reports progress to an operator who waits.
    fn report(&mut self) {
        if self.reported.elapsed() > Duration::from_secs(1) {
            self.reported = Instant::now();
            tracing::info!(
                "reading the log, {} MiB in {} s",
                self.bytes >> 20,
                self.began.elapsed().as_secs()
            );
        }
    }
}

/// Name of the file that says how many shards a data directory has.
pub const SHARDS_FILE: &str = "shards";

/// The number of shards a data directory was made with.
///
/// # Errors
/// It cannot be read.
pub fn shards_of(dir: &Path) -> Result<usize> {
    Ok(reported_shards(dir)?.unwrap_or(1))
}

/// The shards in the directory's file, if there is one. Builds before 2026-11-26 left an empty one
/// where the power went in the middle of their first start: nothing was made yet.
fn reported_shards(dir: &Path) -> Result<Option<usize>> {
    let path = dir.join(SHARDS_FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    if text.trim().is_empty() && !has_segments(dir)? {
        return Ok(None);
    }
    let reported = text.trim().parse();
    reported
        .map(Some)
        .with_context(|| format!("{} should hold a number", path.display()))
}

fn has_segments(dir: &Path) -> Result<bool> {
    let names = quintet_log::Storage::list(&Disk::new(dir))
        .with_context(|| format!("cannot list {}", dir.display()))?;
    Ok(names.iter().any(|name| name.starts_with("segment-")))
}

/// Queues are divided by the number of shards, so it cannot change.
fn check_shards(dir: &Path, shards: usize) -> Result<()> {
    let made = match reported_shards(dir)? {
        Some(made) => made,
        // Directories of one shard need no such file; a full disk must not
        // keep a server from starting.
        None if shards == 1 => return Ok(()),
        None if has_segments(dir)? => 1,
        None => {
            let path = dir.join(SHARDS_FILE);
            return quintet_log::replace_file(&path, format!("{shards}\n").as_bytes())
                .with_context(|| format!("cannot write {}", path.display()));
        }
    };
    if made != shards {
        bail!(
            "{} was created with shards = {made}, not {shards}; set it back, or use another directory",
            dir.display()
        );
    }
    Ok(())
}

#[cfg(test)]
#[path = "recover_tests.rs"]
mod tests;
