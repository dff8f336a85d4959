//! Contents of a data directory, for the commands that look at it without being its server.

use quintet_engine::read_message;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use quintet_engine::{Engine, Fact};
use quintet_log::run::{Run, RunName};
use quintet_log::{Disk, Epoch, Finding, LocalLog, Options, ReplayFrame, Storage};
use quintet_types::{Body, Message, Ms, Name, QueueId, Removal, RunId, SegmentRef, Settings};

use super::Shard;
use super::recover::{Replay, begin_epoch, shards_of};

/// The state that the frames so far lead to.
pub struct Contents(Replay);

/// Messages of a queue that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub struct Lost {
    pub queue: Name,
    /// The known ids, rising.
    pub ids: Vec<u64>,
    /// How many there are.
    pub messages: u64,
}

impl Contents {
    /// Of a directory, before its first frame.
    ///
    /// # Errors
    /// Its number of shards cannot be read.
    pub fn new(dir: &Path) -> Result<Self> {
        Ok(Self(Replay::new(shards_of(dir)?, &Settings::default())?))
    }

    /// The whole state of each shard.
    #[cfg(test)]
    pub(super) fn images(&self) -> Vec<Vec<Fact>> {
        self.0.engines.iter().map(Engine::image).collect()
    }

    /// Reads the state that the log of a directory leads to.
    ///
    /// # Errors
    /// It cannot be read. Damage is passed over.
    pub fn read(dir: &Path) -> Result<Self> {
        let mut contents = Self::new(dir)?;
        quintet_log::check(&Disk::new(dir), &mut |finding| {
            if let Finding::Frame(frame) = finding {
                // A check reports it.
                contents.frame(&frame).ok();
            }
        })?;
        Ok(contents)
    }

    /// Takes in the next frame.
    ///
    /// # Errors
    /// The frame does not fit the state so far; the text says why.
    pub fn frame(&mut self, frame: &ReplayFrame<'_>) -> Result<(), String> {
        self.0.apply(frame)
    }

    /// The runs that hold messages, sorted.
    pub fn needed(&self) -> Vec<RunName> {
        self.0.needed_runs()
    }

    fn engine(&self, run: RunName) -> Option<&Engine> {
        self.0.engines.get(usize::from(run.shard))
    }

    /// The messages in these blocks of a run that are still in force.
    pub fn in_blocks(&self, run: &Run, blocks: &[u32]) -> Vec<Lost> {
        let Some(engine) = self.engine(run.name()) else {
            return Vec::new();
        };
        let id = RunId(run.name().number.0);
        let mut found = by_queue(engine, id, |number| blocks.contains(&number));
        let rows = engine.blocks_of(id);
        run.ids_in(blocks, &mut |message, ordinal| {
            let row = rows
                .iter()
                .find(|row| (row.ordinal..row.ordinal + row.count).contains(&ordinal));
            if let Some(row) = row
                && engine.is_alive_in(id, ordinal)
                && let Some((_, lost)) = found.iter_mut().find(|(queue, _)| *queue == row.queue)
            {
                lost.ids.push(message);
            }
        });
        found.into_iter().map(|(_, lost)| lost).collect()
    }

    /// All messages in a run whose file cannot be opened, by queue; ids are
    /// known of none.
    pub fn in_run(&self, run: RunName) -> Vec<Lost> {
        let Some(engine) = self.engine(run) else {
            return Vec::new();
        };
        let found = by_queue(engine, RunId(run.number.0), |_| true);
        found.into_iter().map(|(_, lost)| lost).collect()
    }

    /// The message, if the run's entry is in force.
    pub fn living(&self, run: RunName, ordinal: u32, payload: &[u8]) -> Option<Message> {
        let engine = self.engine(run)?;
        let alive = engine.is_alive_in(RunId(run.number.0), ordinal);
        alive.then(|| read_message(payload).ok()).flatten()
    }

    /// The name of the queue of a message in a run; empty if its shard is unknown.
    pub fn queue_of(&self, run: RunName, message: &Message) -> Name {
        self.engine(run)
            .map_or_else(Name::default, |engine| engine.queue_name(message.queue))
    }
}

/// Counts what lives in those blocks of a run that `wanted` accepts.
fn by_queue(engine: &Engine, run: RunId, wanted: impl Fn(u32) -> bool) -> Vec<(QueueId, Lost)> {
    let mut all: Vec<(QueueId, Lost)> = Vec::new();
    for row in engine.blocks_of(run) {
        if !wanted(row.number) || row.live == 0 {
            continue;
        }
        let messages = u64::from(row.live);
        match all.iter_mut().find(|(queue, _)| *queue == row.queue) {
            Some((_, lost)) => lost.messages += messages,
            None => all.push((
                row.queue,
                Lost {
                    queue: engine.queue_name(row.queue),
                    ids: Vec::new(),
                    messages,
                },
            )),
        }
    }
    all
}

/// Writes to the log of a directory, whose lock the caller holds, that these
/// runs are no more, and with them the messages in memory whose bodies are in
/// them. Answers those; `begin` gets them before anything is written.
///
/// # Errors
/// The log cannot be read or written; and those of `begin`.
pub fn give_up_runs(
    dir: &Path,
    runs: &[RunName],
    begin: &mut dyn FnMut(&[Lost]) -> Result<()>,
) -> Result<Vec<Lost>> {
    let mut replay = Replay::new(shards_of(dir)?, &Settings::default())?;
    let storage: Arc<dyn Storage> = Arc::new(Disk::new(dir));
    // Nothing is made ahead for one frame.
    let options = Options {
        spares: 0,
        ..Options::default()
    };
    let (mut log, recovery) = LocalLog::open(storage, options, &mut |frame| replay.apply(&frame))
        .context("cannot open the log")?;
    let runs: BTreeSet<(usize, RunId)> = runs
        .iter()
        .map(|run| (usize::from(run.shard), RunId(run.number.0)))
        .collect();
    let mut shards: Vec<Shard> = replay.engines.into_iter().map(Shard::new).collect();
    let mut lost = Vec::new();
    for Shard { engine, .. } in &shards {
        for message in bodies_in(engine, &runs).iter().map(Orphan::message) {
            lost.push(Lost {
                queue: engine.queue_name(message.queue),
                ids: vec![message.id.0],
                messages: 1,
            });
        }
    }
    begin(&lost)?;
    let epoch = Epoch(recovery.last_epoch.0 + 1);
    let now = Ms(recovery.last_time_ms);
    begin_epoch(&mut log, &mut shards, epoch, now, &|engine| {
        let orphans = bodies_in(engine, &runs).into_iter();
        let gone = runs.iter().filter(|(shard, _)| *shard == engine.shard());
        orphans
            .map(Orphan::end)
            .chain(gone.map(|&(_, run)| Fact::RunGone(run)))
            .collect()
    })?;
    Ok(lost)
}

/// A message in memory whose body is in a run that is gone.
enum Orphan {
    Stored(Message),
    /// Set aside for a queue of another shard.
    Sent(Message),
}

impl Orphan {
    fn message(&self) -> &Message {
        match self {
            Self::Stored(message) | Self::Sent(message) => message,
        }
    }

    fn end(self) -> Fact {
        match self {
            Self::Stored(message) => Fact::Removed {
                at: message.at(),
                why: Removal::Discarded,
            },
            Self::Sent(message) => Fact::Carried(message.id),
        }
    }
}

/// The messages in memory whose bodies are in one of these runs.
fn bodies_in(engine: &Engine, runs: &BTreeSet<(usize, RunId)>) -> Vec<Orphan> {
    let image = engine.image().into_iter();
    let messages = image.filter_map(|fact| {
        if let Fact::Image(message, _) = fact {
            Some(Orphan::Stored(message))
        } else if let Fact::SentImage(message, _) = fact {
            Some(Orphan::Sent(message))
        } else {
            None
        }
    });
    messages
        .filter(|orphan| match &orphan.message().body {
            Body::Large(body) => SegmentRef(body.segment_ref())
                .run()
                .is_some_and(|run| runs.contains(&(engine.shard(), run))),
            Body::Small(_) => false,
        })
        .collect()
}
