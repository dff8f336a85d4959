//! Shards, the log and what ties them together: everything behind the sockets.
//!
//! Order of locks: the committer before shards, shards in the order of their
//! numbers, mailboxes last. No lock is held while the disk works.

mod access;
mod bodies;
#[cfg(test)]
mod carry_tests;
mod clock;
mod commit;
mod contents;
mod deliver;
#[cfg(test)]
mod idle_tests;
mod keep;
mod looks;
mod mail;
mod party;
mod recover;
mod retire;
mod room;
mod shard;
mod signal;
mod sync;
mod tickets;
mod timer;
#[cfg(test)]
mod written_tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use quintet_engine::{Intent, Intents, MessageId, Settings};
use quintet_log::{BodyReader, FRAME_HEADER_BYTES, FrameBuf, FrameKind, LogError};

use crate::config::SyncPolicy;

use access::Inside;
pub(crate) use access::{Access, Decided, Trail};
pub(crate) use bodies::{Bodies, begin_chunk};
pub(crate) use clock::Clock;
pub(crate) use commit::Committer;
pub(crate) use contents::{Contents, Lost, give_up_runs};
pub(crate) use keep::{BodySource, Budget, Runs, smallest};
pub(crate) use looks::Looks;
pub(crate) use mail::{Mail, Mailbox};
pub(crate) use party::{PartyKey, SLOTS_MAX};
pub(crate) use recover::{Layout, Opened, SHARDS_FILE, open};
pub(crate) use room::Room;
pub(crate) use shard::Shard;
pub(crate) use signal::Signal;
pub(crate) use sync::SyncTime;
pub(crate) use tickets::{Need, Progress, Reached};
pub(crate) use timer::Timer;

/// The queues, the log, and how far they have come.
pub(crate) struct Core {
    pub(crate) shards: Vec<Mutex<Shard>>,
    pub(crate) committer: Mutex<Committer>,
    pub(crate) policy: SyncPolicy,
    pub(crate) clock: Clock,
    pub(crate) progress: Progress,
    pub(crate) bodies: Bodies,
    pub(crate) reader: BodyReader,
    pub(crate) runs: Runs,
    pub(crate) timer: Timer,
    /// Wakes the log thread (`sync = "always"` only).
    pub(crate) log_work: Signal,
    /// Wakes the maintenance thread before its time.
    pub(crate) upkeep: Signal,
    /// Sync points are waited for one at a time, in order.
    pub(crate) sync_turn: Mutex<()>,
    pub(crate) sync_time: SyncTime,
    /// One per I/O thread, and behind them the desk's.
    pub(crate) mail: Vec<Mailbox>,
    pub(crate) counts: Counts,
    pub(crate) room: Room,
    pub(crate) looks: Looks,
    /// What happens by itself and hooks are to decide, for the hooks thread.
    pub(crate) intents: Mutex<Vec<Intent>>,
    /// Wakes it.
    pub(crate) hooks_work: Signal,
}

/// Numbers of the log for statistics.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) log_bytes: AtomicU64,
    pub(crate) rotations: AtomicU64,
    /// Times the log was synced since start.
    pub(crate) syncs: AtomicU64,
    pub(crate) retired: AtomicU64,
    /// Records written since start.
    pub(crate) records: AtomicU64,
    /// Images among them that replace older ones.
    pub(crate) copied: AtomicU64,
    /// Bytes of frames written since start, and of snapshots and of copies
    /// (images, chunks) in them.
    pub(crate) log_written: AtomicU64,
    pub(crate) log_snapshots: AtomicU64,
    pub(crate) log_copied: AtomicU64,
}

impl Counts {
    /// A frame was written.
    fn written(&self, frame: &FrameBuf) {
        let bytes = (frame.len() + FRAME_HEADER_BYTES) as u64;
        self.log_written.fetch_add(bytes, Ordering::Relaxed);
        if frame.kind() == FrameKind::Facts {
            let records = u64::from(frame.count);
            self.records.fetch_add(records, Ordering::Relaxed);
        }
    }

    /// A batch is on its way into frames.
    fn took(&self, batch: &shard::Batch) {
        let add = |to: &AtomicU64, bytes: usize| to.fetch_add(bytes as u64, Ordering::Relaxed);
        add(&self.log_snapshots, batch.snapshot);
        add(&self.log_copied, batch.copied);
    }

    /// Bytes of the log that came of what was asked: neither snapshots nor
    /// copies.
    pub(crate) fn log_asked(&self) -> u64 {
        let get = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let more = get(&self.log_snapshots) + get(&self.log_copied);
        get(&self.log_written).saturating_sub(more)
    }
}

impl Core {
    /// Around what was opened. `mail`: a mailbox for each thread that has
    /// parties.
    pub(crate) fn new(opened: Opened, policy: SyncPolicy, mail: Vec<Mailbox>, room: Room) -> Self {
        Self {
            reader: opened.committer.log.reader(),
            runs: opened.runs,
            shards: opened.shards.into_iter().map(Mutex::new).collect(),
            committer: Mutex::new(opened.committer),
            policy,
            clock: opened.clock,
            progress: Progress::new(),
            bodies: opened.bodies,
            timer: Timer::new(),
            log_work: Signal::default(),
            upkeep: Signal::default(),
            sync_turn: Mutex::new(()),
            sync_time: SyncTime::default(),
            mail,
            counts: Counts::default(),
            room,
            looks: Looks::default(),
            intents: Mutex::default(),
            hooks_work: Signal::default(),
        }
    }

    /// True if a reply has to wait for the disk.
    pub(crate) fn waits_for_disk(&self) -> bool {
        self.policy == SyncPolicy::Always
    }

    /// Which shard a queue lives in.
    pub(crate) fn shard_of_queue(&self, name: &[u8]) -> usize {
        quintet_engine::shard_of_queue(name, self.shards.len())
    }

    /// Which shard gave an id.
    pub(crate) fn shard_of_id(&self, id: MessageId) -> usize {
        quintet_engine::shard_of_id(id, self.shards.len())
    }

    /// True while the disk is full and puts are refused.
    pub(crate) fn is_full(&self) -> bool {
        self.room.full.load(Ordering::Relaxed)
    }

    /// Locks one shard.
    pub(crate) fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        locked(&self.shards[shard])
    }

    /// Gives every shard new settings.
    pub(crate) fn configure(&self, settings: &Settings) {
        self.in_each(|at| at.engine.configure(settings.clone()));
    }

    /// From now on this is what hooks decide.
    pub(crate) fn want_intents(&self, intents: Intents) {
        self.in_each(|at| {
            at.engine
                .set_intents(at.now, intents, at.journal, at.deliveries);
        });
    }

    /// Takes a step in each shard, one after the other.
    fn in_each(&self, mut work: impl FnMut(&mut Inside<'_>)) {
        self.visit(|access| {
            for shard in 0..self.shards.len() {
                access.step(shard, &mut work);
            }
        });
    }

    /// From now on puts are refused (or not).
    pub(crate) fn set_draining(&self, draining: bool) {
        for shard in &self.shards {
            locked(shard).engine.set_draining(draining);
        }
    }
}

/// Locks, also after a panic elsewhere: release builds abort on panics, and
/// tests should show the first one.
pub(crate) fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A write or a sync failed: what the disk holds is unknown, so nobody may be
/// answered. The next start reads what is there.
pub(crate) fn stop_for(error: &LogError) -> ! {
    // A test goes on after its process would have ended.
    #[cfg(test)]
    panic!("stopped for {error}");
    #[cfg(not(test))]
    exit_for(error)
}

#[cfg(not(test))]
fn exit_for(error: &LogError) -> ! {
    tracing::error!("stopping: {error}");
    eprintln!("quintet: stopping, since the log cannot be written: {error}");
    std::process::exit(1);
}
