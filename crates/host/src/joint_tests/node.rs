//! A node: a member that follows, and a host once it owns, as `server` ties them together; events
//! in the place of its threads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use quintet_cluster::{CachedRuns, Moment, Owned, Status};
use quintet_log::{LogError, Position, Storage};
use quintet_sim::Random;
use quintet_sim::cluster::{Clocks, Link, Process, SimStream, SimWorld};
use quintet_sim::disk::SimDisk;
use quintet_types::{Delivery, Ms, Outcome, PendingDecisions, WallAhead};

use super::bucket::Bucket;
use super::oracle::{Oracle, SHARDS, image};
use crate::clock::ByHand;
use crate::keep::tests::{everything_leaves, keep};
use crate::recover::take_ownership_at;
use crate::{Clock, Core, Layout, Owner, Post, Replay, Required, Room, SyncPolicy, Work, locked};

/// Bytes of a segment, so few that there are many.
const SEGMENT: u64 = 6 << 10;
/// How often the timer thread looks.
pub(super) const TIMER: Duration = Duration::from_millis(100);

/// A fence that is taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Without {
    Nothing,
    /// The stream stores an append wherever it ends.
    Expected,
    /// Answers leave before they are acknowledged.
    Acks,
    /// Answers leave without a lease.
    Lease,
    /// A purge takes a segment more.
    Purge,
    /// Claims are not padded.
    Padding,
    /// Where the log begins is what the stream's leader has.
    Beginning,
    /// The wall clock says what time it is after a takeover.
    Time,
}

/// State that all nodes of a run share.
pub(super) struct Ground {
    pub(super) world: SimWorld,
    pub(super) stream: SimStream,
    pub(super) without: Without,
    pub(super) oracle: Mutex<Oracle>,
    /// The newest epoch of which some node knew that it owns.
    pub(super) newest: AtomicU64,
    /// How often nodes read the log again.
    pub(super) again: AtomicU64,
    /// Segments that were given up.
    pub(super) retired: AtomicU64,
    /// Where runs are.
    pub(super) bucket: Arc<Bucket>,
    /// All that waits leaves memory.
    pub(super) spills: bool,
    /// Some bodies are longer than an entry.
    pub(super) large: bool,
    /// Bodies come in as chunks, and so many chunks were written.
    pub(super) chunks: Option<AtomicU64>,
    /// A hook decides what becomes of messages that expire, and has so often.
    pub(super) hook: Option<AtomicU64>,
}

impl Ground {
    /// Whether what leaves and what is replayed is looked at there and then. Where a fence is
    /// missing that is for the histories and the nodes to find; but a reply without a lease seldom
    /// says what is wrong.
    pub(super) fn watches(&self) -> bool {
        matches!(self.without, Without::Nothing | Without::Lease)
    }
}

/// Told what came of a command, and by the owner of which epoch.
pub(super) type OutcomeCallback = Box<dyn FnOnce(Outcome, u64) + Send>;

/// Tells how a member stands, and keeps it.
type Standing = Box<dyn Fn() -> Status + Send + Sync>;

/// One life of a node's process.
pub(super) struct Node {
    pub(super) number: usize,
    pub(super) process: Process,
    pub(super) link: Link,
    pub(super) ground: Arc<Ground>,
    member: OnceLock<Standing>,
    owned: Mutex<Option<Owned<Replay>>>,
    serving: OnceLock<Serving>,
    pub(super) dispatcher: Mutex<Dispatcher>,
    itself: Weak<Self>,
}

/// The host, while this process owns.
pub(super) struct Serving {
    pub(super) core: Core,
    hand: Arc<ByHand>,
    pub(super) epoch: u64,
    cached: Arc<CachedRuns>,
}

/// Replies that wait, and the state that its threads would know.
pub(super) struct Dispatcher {
    pub(super) random: Random,
    pub(super) ahead: WallAhead,
    pub(super) closed: BTreeSet<u64>,
    pub(super) waiting: BTreeMap<u64, OutcomeCallback>,
    pub(super) mail: Vec<(Delivery, Required)>,
    pub(super) held: Vec<(u64, Required, Outcome, OutcomeCallback)>,
    /// The log thread has something to do, and since when it gathers.
    pub(super) gathers: Option<Moment>,
    /// It will be woken after its time.
    pub(super) alarmed: bool,
    /// It was woken.
    pub(super) rung: bool,
    /// Where the frames of each batch end.
    pub(super) ends: BTreeMap<u64, Position>,
}

impl Node {
    /// A process that nothing happens in yet.
    pub(super) fn new(
        number: usize,
        ground: &Arc<Ground>,
        clocks: &Clocks,
        seed: u64,
    ) -> Arc<Self> {
        let process = Process::new(ground.world.clone(), clocks.clone(), seed);
        Arc::new_cyclic(|itself| Self {
            number,
            link: ground.stream.link(),
            ground: Arc::clone(ground),
            member: OnceLock::new(),
            owned: Mutex::default(),
            serving: OnceLock::new(),
            dispatcher: Mutex::new(Dispatcher {
                random: Random::new(seed),
                ahead: WallAhead::default(),
                closed: BTreeSet::new(),
                waiting: BTreeMap::new(),
                mail: Vec::new(),
                held: Vec::new(),
                gathers: None,
                alarmed: false,
                rung: false,
                ends: BTreeMap::new(),
            }),
            process,
            itself: Weak::clone(itself),
        })
    }

    /// Its member has begun, and stands like this.
    pub(super) fn follows(&self, member: Standing) {
        assert!(self.member.set(member).is_ok(), "it begins once");
    }

    /// How its member stands.
    pub(super) fn status(&self) -> Status {
        self.member.get().map(|member| member()).unwrap_or_default()
    }

    /// It owns now: the epoch is begun, soon.
    pub(super) fn owns(&self, owned: Owned<Replay>) {
        *locked(&self.owned) = Some(owned);
        self.soon(Duration::ZERO, Self::take_ownership);
    }

    /// The owner has appended nothing for the time of a heartbeat.
    pub(super) fn heartbeat(&self) {
        if let Some(serving) = self.host() {
            serving.core.heartbeat();
        }
    }

    /// Goes in good order: hands off, and ends when that stands, or soon.
    pub(super) fn leave(&self, to: &str) {
        if let Some(serving) = self.host() {
            // What is sent is not waited for here: this is the only thread.
            serving.core.handoff(to, Duration::ZERO);
            self.ring();
            let wait = locked(&self.dispatcher).random.below(1_000);
            self.soon(Duration::from_millis(wait), |node| node.process.exit());
        }
    }

    /// The epoch it serves in, if it does.
    pub(super) fn serves(&self) -> Option<u64> {
        let alive = !self.process.is_killed();
        self.serving
            .get()
            .filter(|_| alive)
            .map(|serving| serving.epoch)
    }

    /// The state of the host's shards.
    pub(super) fn image(&self) -> Option<Vec<u8>> {
        self.serving.get().map(Serving::image)
    }

    /// Does it in the process, soon.
    pub(super) fn soon(&self, time: Duration, then: impl FnOnce(&Self) + Send + 'static) {
        let node = Weak::clone(&self.itself);
        self.process.after(time, move || {
            if let Some(node) = node.upgrade() {
                then(&node);
            }
        });
    }

    /// Begins the epoch that was claimed.
    fn take_ownership(&self) {
        let Some(Owned {
            log,
            recovery,
            lead_ms,
            state,
        }) = locked(&self.owned).take()
        else {
            return;
        };
        if self.ground.watches() {
            assert_eq!(state.lacks(), None, "node {}", self.number);
        }
        let epoch = log.epoch().0;
        let layout = Layout {
            shards: SHARDS,
            segment_bytes: SEGMENT,
            spares: 0,
            memory: 64 << 20,
        };
        let cache: Arc<dyn Storage> = Arc::new(SimDisk::new(epoch));
        let cached = Arc::new(CachedRuns::new(
            cache,
            Arc::<Bucket>::clone(&self.ground.bucket),
        ));
        let runs: Arc<dyn Storage> = Arc::<CachedRuns>::clone(&cached);
        let hand = Arc::new(ByHand::default());
        self.set(&hand);
        let lead_ms = lead_ms.filter(|_| self.ground.without != Without::Time);
        let clock = Clock::by_hand(Arc::clone(&hand), Ms(recovery.last_time_ms), lead_ms);
        let opened = take_ownership_at(clock, state, Box::new(log), recovery, &runs, &layout);
        let opened = opened.unwrap_or_else(|error| match error.downcast_ref::<LogError>() {
            Some(lost) if is_lost(lost) => self.process.exit(),
            _ => panic!("node {} cannot take ownership: {error:#}", self.number),
        });
        let mail: Vec<Arc<dyn Post>> = vec![Arc::new(Mailbox(Weak::clone(&self.itself)))];
        let room = Room::new("/".into(), SEGMENT);
        let owner = Box::new(StepsDown(self.process.clone()));
        let core = Core::new(opened, SyncPolicy::Always, mail, room, owner);
        if self.ground.spills {
            everything_leaves(&core);
        }
        let serving = Serving {
            core,
            hand,
            epoch,
            cached,
        };
        self.set(&serving.hand);
        locked(&self.dispatcher).ahead = serving.core.clock.ahead();
        assert!(self.serving.set(serving).is_ok(), "it owns once");
        if let Some(serving) = self.serving.get() {
            let core = &serving.core;
            let end = locked(&core.committer).log.end();
            self.ended(serving, core.progress.written(), end);
            if self.ground.hook.is_some() {
                core.want_pending_decisions(PendingDecisions {
                    client_id: core.own_client(),
                    expire: true,
                    ..PendingDecisions::default()
                });
            }
            core.catch_up();
        }
        self.timer();
        self.upkeep();
    }

    /// Sets the host's clocks by the machine's.
    fn set(&self, hand: &ByHand) {
        let steady = self.process.clocks().now().as_millis();
        let steady = u64::try_from(steady).unwrap_or(u64::MAX);
        hand.steady.store(steady, Ordering::SeqCst);
        hand.wall
            .store(self.process.clocks().wall_ms(), Ordering::SeqCst);
    }

    /// The host, at this moment.
    pub(super) fn host(&self) -> Option<&Serving> {
        let serving = self.serving.get()?;
        self.set(&serving.hand);
        Some(serving)
    }

    /// The timer thread.
    fn timer(&self) {
        if let Some(serving) = self.host() {
            let mut ahead = locked(&self.dispatcher).ahead;
            serving.core.timer_turn(&mut ahead);
            locked(&self.dispatcher).ahead = ahead;
            self.turn();
        }
        self.soon(TIMER, Self::timer);
    }

    /// The maintenance thread. Now and then the log is longer than it may be. Then the compactor
    /// thread and the one that clears the bucket: both wait for acknowledgements, one at a time.
    fn upkeep(&self) {
        let (long, pause, rewrites) = {
            let random = &mut locked(&self.dispatcher).random;
            let long = random.chance(1, 4);
            (long, random.below(1_500), random.chance(1, 3))
        };
        if let Some(serving) = self.host() {
            let before = serving.core.counts.retired.load(Ordering::Relaxed);
            let log_bytes = if long { 0 } else { u64::MAX };
            let stop = AtomicBool::new(false);
            serving.core.retire_one(log_bytes, &mut None, &stop);
            let after = serving.core.counts.retired.load(Ordering::Relaxed);
            self.ground
                .retired
                .fetch_add(after - before, Ordering::Relaxed);
            if self.ground.spills || self.ground.chunks.is_some() {
                keep(&serving.core, rewrites);
                let core = &serving.core;
                let cleared = serving.cached.clear(&|run| core.is_left_over(run));
                cleared.expect("a bucket in memory");
            }
        }
        self.soon(Duration::from_millis(200 + pause), Self::upkeep);
    }

    /// Something was written, acknowledged or left for somebody.
    fn ring(&self) {
        if !std::mem::replace(&mut locked(&self.dispatcher).rung, true) {
            self.soon(Duration::ZERO, Self::turn);
        }
    }

    /// A batch was written. A chunk that ends a segment writes one while it has the committer.
    fn wrote(&self) {
        if let Some(serving) = self.serving.get()
            && let Some(acked) = &serving.core.acked
            && let Some((end, commit_number)) = acked.newest()
        {
            self.ended(serving, commit_number, end);
        }
    }

    /// Where a batch ends, and what the shards are there.
    fn ended(&self, serving: &Serving, commit_number: u64, end: Position) {
        locked(&self.dispatcher).ends.insert(commit_number, end);
        if self.ground.watches() {
            // All where a seed is to find something, else some: a difference rarely ends soon.
            let every = if self.ground.without == Without::Nothing {
                3
            } else {
                1
            };
            if commit_number.is_multiple_of(every) {
                let mut oracle = locked(&self.ground.oracle);
                oracle.was(serving.epoch, end, serving.image());
            }
        }
    }
}

impl Serving {
    fn image(&self) -> Vec<u8> {
        let shards: Vec<_> = self
            .core
            .shards
            .iter()
            .map(|shard| shard.lock(Work::Server))
            .collect();
        image(shards.iter().map(|shard| &shard.engine))
    }
}

/// Somebody else owns the log; or what it has is to be read again to know.
fn is_lost(error: &LogError) -> bool {
    matches!(error, LogError::Fenced { .. } | LogError::BadEntry { .. })
}

/// The process ends when its log is lost.
struct StepsDown(Process);

impl Owner for StepsDown {
    fn log_failed(&self, error: &LogError) {
        assert!(is_lost(error), "the log cannot be written: {error}");
        self.0.exit();
    }
}

/// Where a node's own threads are notified.
struct Mailbox(Weak<Node>);

impl Post for Mailbox {
    fn post(&self, delivery: Delivery, required: Required) {
        if let Some(node) = self.0.upgrade() {
            locked(&node.dispatcher).mail.push((delivery, required));
            node.ring();
        }
    }

    fn notify_written(&self) {
        if let Some(node) = self.0.upgrade() {
            node.wrote();
            node.ring();
        }
    }

    fn notify_durable(&self) {
        if let Some(node) = self.0.upgrade() {
            node.ring();
        }
    }

    fn wake(&self) {}
}
