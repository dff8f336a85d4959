//! The host of the queues: shards, the log, and what ties them together.
//! Everything behind the sockets, and none of these: its owner brings
//! threads ([`Core::run_timer`] and its like), posts for outcomes, settings,
//! and an opened data directory.
//!
//! [`Access`] is the way into the shards. What it decides is durable when what
//! its [`Required`] names is [`Completed`].
//!
//! Order of locks: the committer before shards, shards in the order of their
//! numbers, mailboxes last. No lock is held while the disk works.

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

mod access;
mod acked;
#[cfg(test)]
mod acked_tests;
mod bodies;
#[cfg(test)]
mod carry_tests;
mod client_id;
mod clock;
mod commit;
mod commit_numbers;
mod contents;
mod deadline;
mod deliver;
mod facts;
#[cfg(test)]
mod facts_tests;
#[cfg(test)]
mod full_tests;
mod histogram;
mod holders;
#[cfg(test)]
mod idle_tests;
#[cfg(test)]
mod joint_tests;
mod keep;
mod leave;
mod observe;
#[cfg(test)]
mod owner_tests;
mod peeks;
mod post;
mod recover;
mod reserved;
mod retire;
mod room;
#[cfg(test)]
mod schedules_tests;
mod shard;
mod signal;
mod sync;
mod system;
mod timer;
#[cfg(test)]
mod waits_tests;
#[cfg(test)]
mod written_tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use quintet_engine::Engine;
use quintet_log::run::RunName;
use quintet_log::{BodyReader, FRAME_HEADER_BYTES, FrameBuf, FrameKind, LogError};
use quintet_types::{
    Attempt, ClientId, ClientStats, ColdStats, Ending, Hold, LargeBody, MessageId, PendingDecision,
    PendingDecisions, Settings,
};

use access::Inside;
pub use access::{Access, Decided, Trail};
use acked::Acked;
pub(crate) use bodies::Bodies;
pub use bodies::{ChunkError, begin_chunk};
pub use client_id::{ClientKey, SLOTS_MAX};
pub use clock::Clock;
pub(crate) use commit::Committer;
pub(crate) use commit_numbers::Progress;
pub use commit_numbers::{Completed, Required};
pub use contents::{Contents, Lost, give_up_runs};
pub(crate) use deadline::Timer;
pub use facts::{LogPlace, LoggedFact, NoFact, NotThere};
pub use histogram::{AMOUNTS, Distribution, Histogram, Point, Spread, TIMES};
pub use holders::{Holder, Work};
pub use keep::BodySource;
pub(crate) use keep::{Budget, Runs};
pub use leave::Handoff;
pub use observe::{Observer, Settled};
pub(crate) use peeks::Peeks;
pub use post::Post;
pub use quintet_policy::{Sharing, SyncPolicy, smallest};
pub use quintet_types::locked;
pub use recover::{Layout, Opened, Replay, SHARDS_FILE, open, open_dir, shards_of, take_ownership};
pub(crate) use reserved::Reserved;
pub use room::Room;
pub(crate) use shard::{Locked, Shard, ShardLock};
pub use signal::Signal;
pub(crate) use sync::SyncTime;
pub use system::{random, thread, wall_ms};

/// Primitives with which threads wait, in `deadline` and `signal`: `schedules` compiles both with
/// Shuttle's.
mod primitives {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
}

/// Moves of a message from shard to shard that are followed back.
const MOVES_MAX: usize = 100;

/// The owner of a host, who answers for its log.
pub trait Owner: Send + Sync {
    /// The number of the group that the host's shards are. A server alone is group 0.
    fn group(&self) -> u16 {
        0
    }

    /// A write or a sync of the log failed, or the log has become somebody
    /// else's. No client got a reply to the entry that failed, and none will: nothing
    /// is written or synced from now on. Called once, by the thread that
    /// noticed, which may hold the log's lock and goes on if this returns.
    fn log_failed(&self, error: &LogError);
}

/// The queues, the log, and how far they have come.
pub struct Core {
    owner: Box<dyn Owner>,
    /// The log was given up.
    failed: AtomicBool,
    /// True if decisions can be stored, as far as is known.
    available: Arc<AtomicBool>,
    /// Of a log that others could come to own.
    pub(crate) acked: Option<Arc<Acked>>,
    pub(crate) shards: Vec<ShardLock>,
    pub(crate) committer: Mutex<Committer>,
    pub(crate) policy: SyncPolicy,
    pub clock: Clock,
    pub(crate) progress: Arc<Progress>,
    pub(crate) bodies: Bodies,
    /// Of this process, or of its time as the owner: rises with each, and leases are known by it.
    pub epoch: u64,
    pub(crate) reader: BodyReader,
    /// As [`Core::log_id`], once it was requested.
    pub(crate) log_id: OnceLock<u32>,
    pub(crate) runs: Runs,
    pub(crate) timer: Timer,
    /// Wakes the log thread (`sync = "always"` only).
    pub(crate) log_work: Signal,
    /// Wakes the maintenance thread before its time.
    pub(crate) upkeep: Signal,
    /// Sync points are waited for one at a time, in order.
    pub(crate) sync_turn: Mutex<()>,
    pub(crate) sync_time: SyncTime,
    /// Of each thread that has clients, by the number in their keys.
    pub(crate) mail: Vec<Arc<dyn Post>>,
    /// Numbers of the log for statistics.
    pub counts: Counts,
    pub(crate) room: Room,
    pub(crate) peeks: Peeks,
    /// Shards of the messages that were handed out lately, by their names.
    pub(crate) reserved: Reserved,
    /// The shards know what principals may do, and check it.
    pub(crate) permits_checked: AtomicBool,
    /// Commands refused for want of a right.
    pub(crate) not_permitted: AtomicU64,
    /// Commands refused while nobody acknowledged.
    pub(crate) unavailable: AtomicU64,
    /// Messages about which hooks are to decide, for the hooks thread.
    pub(crate) pending_decisions: Mutex<Vec<MessageId>>,
    /// Wakes that thread.
    pub hooks_work: Signal,
    /// Bytes of the newest segments that are kept for readers.
    pub(crate) events_keep: AtomicU64,
}

quintet_types::defaults! {
    /// Numbers of the log for statistics.
    pub struct Counts {
        /// Bytes of its segments.
        pub log_bytes: AtomicU64 = AtomicU64::default(),
        /// Segments begun since start.
        pub rotations: AtomicU64 = AtomicU64::default(),
        /// Times the log was synced since start.
        pub syncs: AtomicU64 = AtomicU64::default(),
        /// Segments retired since start.
        pub retired: AtomicU64 = AtomicU64::default(),
        /// Records written since start.
        pub records: AtomicU64 = AtomicU64::default(),
        /// Images among them that replace older ones.
        pub copied: AtomicU64 = AtomicU64::default(),
        /// Bytes of frames written since start, and of snapshots and of copies
        /// (images, chunks) in them.
        pub log_written: AtomicU64 = AtomicU64::default(),
        /// Bytes of snapshots among them.
        pub log_snapshots: AtomicU64 = AtomicU64::default(),
        /// Bytes of copies among them.
        pub log_copied: AtomicU64 = AtomicU64::default(),
        /// Duration of syncs that something waited for, microseconds.
        pub sync_times: Histogram = Histogram::new(TIMES),
        /// Records of facts that were written together.
        pub frame_records: Histogram = Histogram::new(AMOUNTS),
    }
}

impl Counts {
    /// A frame was written.
    fn written(&self, frame: &FrameBuf) {
        let bytes = (frame.len() + FRAME_HEADER_BYTES) as u64;
        self.log_written.fetch_add(bytes, Ordering::Relaxed);
        if frame.kind() == FrameKind::Facts {
            let records = u64::from(frame.count);
            self.records.fetch_add(records, Ordering::Relaxed);
            self.frame_records.add(records, 1);
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
    pub fn log_requested(&self) -> u64 {
        let get = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let more = get(&self.log_snapshots) + get(&self.log_copied);
        get(&self.log_written).saturating_sub(more)
    }
}

impl Core {
    /// Around what was opened. `mail`: a mailbox for each thread that has
    /// clients.
    pub fn new(
        mut opened: Opened,
        policy: SyncPolicy,
        mail: Vec<Arc<dyn Post>>,
        room: Room,
        owner: Box<dyn Owner>,
    ) -> Self {
        let progress = Arc::new(Progress::new());
        let available = Arc::new(AtomicBool::new(true));
        let log = &*opened.committer.log;
        let acked = Acked::of(log, &progress, &available, &mail);
        let reserved = Reserved::new(opened.shards.len());
        for shard in &mut opened.shards {
            shard.engine.set_shared(acked.is_some());
        }
        Self {
            owner,
            failed: AtomicBool::new(false),
            available,
            acked,
            reader: opened.committer.log.reader(),
            log_id: OnceLock::new(),
            runs: opened.runs,
            shards: opened.shards.into_iter().map(ShardLock::new).collect(),
            committer: Mutex::new(opened.committer),
            policy,
            clock: opened.clock,
            progress,
            bodies: opened.bodies,
            epoch: opened.epoch.0,
            timer: Timer::new(),
            log_work: Signal::default(),
            upkeep: Signal::default(),
            sync_turn: Mutex::new(()),
            sync_time: SyncTime::default(),
            mail,
            counts: Counts::default(),
            room,
            peeks: Peeks::default(),
            reserved,
            permits_checked: AtomicBool::new(false),
            not_permitted: AtomicU64::new(0),
            unavailable: AtomicU64::new(0),
            pending_decisions: Mutex::default(),
            hooks_work: Signal::default(),
            events_keep: AtomicU64::new(0),
        }
    }

    /// The number of the group that its shards are.
    pub fn group(&self) -> u16 {
        self.owner.group()
    }

    /// When the log is synced.
    pub fn policy(&self) -> SyncPolicy {
        self.policy
    }

    /// How far the batches have come, and whether what was decided before this
    /// was asked may be answered.
    pub fn completed(&self) -> Completed {
        let completed = self.progress.completed();
        match &self.acked {
            None => completed,
            // Asked last: what is durable may have become so long ago.
            Some(acked) => completed.under_lease(acked.has_lease()),
        }
    }

    /// The condition of a reply that would wait for `hold`. Another owner may never have heard of a
    /// fact that is not durable.
    pub(crate) fn hold(&self, hold: Hold) -> Hold {
        match self.acked {
            Some(_) => Hold::Durable,
            None => hold,
        }
    }

    /// The newest batch that is with the operating system.
    pub fn written(&self) -> u64 {
        self.progress.written()
    }

    /// The newest batch that survives a power cut.
    pub fn durable(&self) -> u64 {
        self.progress.durable()
    }

    /// Moving average of the time that a sync of the log takes.
    pub fn usual_sync(&self) -> Duration {
        self.sync_time.usual()
    }

    /// Has the log synced soon, by its own thread.
    pub fn sync_soon(&self) {
        self.log_work.raise();
    }

    /// The numbers of the log's oldest and newest segment.
    pub fn log_span(&self) -> (u32, u32) {
        let committer = locked(&self.committer);
        let newest = committer.log.segment();
        let segments = committer.log.segments();
        let oldest = segments.first().map_or(newest, |oldest| oldest.number);
        (oldest.0, newest.0)
    }

    /// A client for one of the host's own, which is nobody's connection.
    pub fn own_client(&self) -> ClientId {
        self.peeks.client_id()
    }

    /// A new large body of `len` bytes, without chunks.
    pub fn create_body(&self, len: u64) -> LargeBody {
        self.bodies.create(len)
    }

    /// The memory for everything, bytes, from now on.
    pub fn set_memory(&self, bytes: u64) {
        self.runs.set_budget(bytes, self.shards.len() as u64);
    }

    /// Keeps so many bytes of the newest segments for readers of facts from now on, as far as the
    /// log is not too long and the disk not full.
    pub fn set_events_keep(&self, bytes: u64) {
        self.events_keep.store(bytes, Ordering::Relaxed);
    }

    /// Everything about messages in runs, for statistics.
    pub fn cold_numbers(&self, cold: &ColdStats) -> Vec<(&'static str, u64)> {
        self.runs.numbers(cold)
    }

    /// True if a run's file is of no use to this host: an earlier life, or another owner of the
    /// log, left it.
    pub fn is_left_over(&self, run: RunName) -> bool {
        run.number.0 < self.runs.first_of_this_life() && !self.runs.has(run.number.0)
    }

    /// Events that wait for hooks to decide, each returned once, a few at a time as their messages
    /// are copied; none while what hooks decide would be refused, as their messages would then wait
    /// for ever. Wakes the hooks thread if others are left.
    pub fn take_pending_decisions(&self) -> Vec<PendingDecision> {
        const AT_ONCE: usize = 16;
        if !self.is_available() {
            return Vec::new();
        }
        let ids: Vec<MessageId> = {
            let mut waiting = locked(&self.pending_decisions);
            let some = waiting.len().min(AT_ONCE);
            let ids = waiting.drain(..some).collect();
            if !waiting.is_empty() {
                self.hooks_work.raise();
            }
            ids
        };
        let pending = ids.into_iter().filter_map(|id| {
            let shard = self.lock(self.shard_of_id(id), Work::Server);
            shard.engine.pending_decision(id)
        });
        pending.collect()
    }

    /// Keeps events for the next [`Core::take_pending_decisions`], as the decision was refused
    /// ([`CommandError::Unavailable`](quintet_types::CommandError::Unavailable)).
    pub fn give_back_pending_decisions(&self, pending: impl Iterator<Item = PendingDecision>) {
        let ids = pending.map(|pending| pending.message.id);
        locked(&self.pending_decisions).extend(ids);
    }

    /// Wakes all threads that have to stop.
    pub fn stop_threads(&self) {
        self.hooks_work.raise();
        self.log_work.raise();
        self.upkeep.raise();
        self.runs.work.raise();
        self.runs.pressed.raise();
        self.timer.stop();
    }

    /// A write or a sync failed: what the log holds is unknown, so nobody may be
    /// answered any more. Its owner is notified once.
    pub(crate) fn fail(&self, error: &LogError) {
        if !self.failed.swap(true, Ordering::SeqCst) {
            self.owner.log_failed(error);
        }
    }

    /// Says whether what is decided can be kept. While it cannot, commands are
    /// refused before they are decided ([`CommandError::Unavailable`]), and a client that
    /// waits goes on waiting; what was decided before stays so.
    pub fn set_available(&self, available: bool) {
        self.available.store(available, Ordering::Relaxed);
    }

    /// False while commands are refused for want of a place to keep them.
    pub fn is_available(&self) -> bool {
        self.available.load(Ordering::Relaxed)
    }

    /// Commands refused for that, so far.
    pub fn unavailable(&self) -> u64 {
        self.unavailable.load(Ordering::Relaxed)
    }

    /// True if nothing is written any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// True if a reply has to wait for the disk.
    pub fn waits_for_disk(&self) -> bool {
        self.policy == SyncPolicy::Always
    }

    /// Which shard a queue lives in.
    pub(crate) fn shard_of_queue(&self, name: &[u8]) -> usize {
        quintet_types::shard_of_queue(name, self.shards.len())
    }

    /// Which shard gave an id.
    pub(crate) fn shard_of_id(&self, id: MessageId) -> usize {
        quintet_types::shard_of_id(id, self.shards.len())
    }

    /// True while the disk is full and puts are refused.
    pub fn is_full(&self) -> bool {
        self.room.full.load(Ordering::Relaxed)
    }

    /// Waits for the lock of the shard with this index; `work` is for the metrics.
    pub(crate) fn lock(&self, shard: usize, work: Work) -> Locked<'_> {
        self.shards[shard].lock(work)
    }

    /// One slice of work on a shard's engine, behind those who wait ([`ShardLock::lock_last`]).
    pub(crate) fn in_engine<T>(
        &self,
        shard: usize,
        work: Work,
        slice: impl FnOnce(&mut Engine) -> T,
    ) -> T {
        slice(&mut self.shards[shard].lock_last(work).engine)
    }

    /// The shards' numbers of these clients, in their order. It is short for some hundred of them.
    pub fn client_stats(&self, client_ids: &[ClientId]) -> Vec<ClientStats> {
        let mut all = vec![ClientStats::default(); client_ids.len()];
        for shard in 0..self.shards.len() {
            let shard = self.lock(shard, Work::Server);
            for (sum, client_id) in all.iter_mut().zip(client_ids) {
                let here = shard.engine.client_stats(*client_id);
                sum.leases += here.leases;
                sum.waits_on.extend(here.waits_on);
            }
        }
        all
    }

    /// The end of a message that is gone. Looks through the newest ends of each shard, about a
    /// tenth of a millisecond for a hundred thousand of them.
    pub fn end_of(&self, id: MessageId) -> Option<Ending> {
        let shards = 0..self.shards.len();
        let ends = shards.filter_map(|shard| self.lock(shard, Work::Server).engine.end_of(id));
        // Of one that went to another shard that shard knows the new id, and the first who sent it.
        ends.reduce(|one, other| {
            let by = one.by.or(other.by);
            let is_known = one.is_now.is_some();
            let ending = if is_known { one } else { other };
            Ending { by, ..ending }
        })
    }

    /// The newest attempts of a message that ended without success, oldest first; by its first id,
    /// or by a later one as long as its moves from shard to shard are known.
    pub fn attempts_of(&self, mut id: MessageId) -> Vec<Attempt> {
        for _ in 0..MOVES_MAX {
            let shard = self.lock(self.shard_of_id(id), Work::Server);
            let Some(before) = shard.engine.id_before(id) else {
                break;
            };
            id = before;
        }
        let shards = 0..self.shards.len();
        let known = shards.map(|shard| self.lock(shard, Work::Server).engine.attempts_of(id));
        let mut all: Vec<Attempt> = known.flatten().collect();
        all.sort_by_key(|attempt| attempt.at);
        all.split_off(all.len().saturating_sub(Attempt::SHOWN))
    }

    /// The newest purge to which a message belongs perhaps whose end is not known any more.
    pub fn purge_of(&self, id: MessageId) -> Option<Ending> {
        let shard = self.shard_of_id(id);
        self.lock(shard, Work::Server).engine.purge_of(id)
    }

    /// The work that held shards for more than a millisecond while others waited for them.
    pub fn lock_holders(&self) -> Vec<Holder> {
        holders::sum(self.shards.iter().map(|shard| &shard.holders))
    }

    /// Gives every shard new settings.
    pub fn configure(&self, settings: &Settings) {
        self.in_each(|at| at.engine.configure(settings.clone()));
    }

    /// From now on this is what hooks decide.
    pub fn want_pending_decisions(&self, pending_decisions: PendingDecisions) {
        self.in_each(|at| {
            at.engine
                .set_pending_decisions(at.now, pending_decisions, at.journal, at.deliveries);
        });
    }

    /// Takes a step in each shard, one after the other.
    pub(crate) fn in_each(&self, mut work: impl FnMut(&mut Inside<'_>)) {
        self.with_access_for(Work::Server, |access| {
            for shard in 0..self.shards.len() {
                access.step(shard, &mut work);
            }
        });
    }

    /// From now on puts are refused (or not). A step, as puts that wait are refused too.
    pub fn set_draining(&self, draining: bool) {
        self.in_each(|at| at.engine.set_draining(draining));
    }
}

/// A test goes on after its process would have ended.
#[cfg(test)]
struct Panics;

#[cfg(test)]
impl Owner for Panics {
    fn log_failed(&self, error: &LogError) {
        panic!("stopped for {error}");
    }
}
