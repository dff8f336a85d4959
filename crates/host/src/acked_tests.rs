//! A host whose log others acknowledge, on a simulated stream and in its time: what a reply waits
//! for, and what is said while nobody acknowledges.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use quintet_cluster::{ClusterId, Fences, Limits, Moment, StreamStore, Ticks, World};
use quintet_engine::Space;
use quintet_log::{LogStore as _, Options, Storage};
use quintet_sim::cluster::{Faults, Link, SimStream, SimWorld};
use quintet_sim::disk::SimDisk;
use quintet_types::{
    BackTo, Body, Caller, ClientId, Command, CommandError, Delivery, LeaseOwner, LeaseRequest,
    LeaseTime, Name, Outcome, Overrides, Pattern, Put, Settings, Take,
};

use crate::commit::Ending;
use crate::keep::tests::{everything_leaves, open_shards};
use crate::{
    Access, Core, Decided, Handoff, Layout, Panics, Post, Required, Room, Sharing, SyncPolicy,
    Trail, Work, locked, open,
};

/// Counts how often replies may have become free.
#[derive(Default)]
struct Rung(AtomicU64);

impl Post for Rung {
    fn post(&self, _: Delivery, _: Required) {}
    fn notify_written(&self) {}
    fn wake(&self) {}

    fn notify_durable(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// The time of a machine that can stand still, its clock with it, while others go on.
struct Machine {
    world: SimWorld,
    clock: Arc<Stands>,
    /// The logs it drives, in its own time.
    driven: Mutex<Vec<Arc<Own>>>,
}

/// A clock that can stand.
#[derive(Default)]
struct Stands {
    since: Mutex<Option<Moment>>,
    behind: Mutex<Moment>,
}

struct Own {
    ticks: Weak<dyn Ticks>,
    clock: Arc<Stands>,
}

impl Ticks for Own {
    fn deadline(&self) -> Option<Moment> {
        if locked(&self.clock.since).is_some() {
            return None;
        }
        let due = self.ticks.upgrade()?.deadline()?;
        Some(due + *locked(&self.clock.behind))
    }

    fn tick(&self, now: Moment) {
        let behind = *locked(&self.clock.behind);
        if let Some(ticks) = self.ticks.upgrade() {
            ticks.tick(now.saturating_sub(behind));
        }
    }
}

impl Machine {
    fn stand(&self) {
        *locked(&self.clock.since) = Some(self.now());
    }

    fn go_on(&self) {
        if let Some(stood) = locked(&self.clock.since).take() {
            *locked(&self.clock.behind) = self.world.now() - stood;
        }
    }
}

impl World for Machine {
    fn now(&self) -> Moment {
        let stands = *locked(&self.clock.since);
        stands.unwrap_or_else(|| self.world.now() - *locked(&self.clock.behind))
    }

    fn drive(&self, ticks: Weak<dyn Ticks>) {
        let own = Arc::new(Own {
            ticks,
            clock: Arc::clone(&self.clock),
        });
        let driven: Weak<Own> = Arc::downgrade(&own);
        locked(&self.driven).push(own);
        self.world.drive(driven);
    }

    fn wall_ms(&self) -> u64 {
        self.world.wall_ms()
    }

    fn wait(&self, until: Option<Moment>, ready: &mut dyn FnMut() -> bool) {
        let behind = *locked(&self.clock.behind);
        self.world.wait(until.map(|until| until + behind), ready);
    }

    fn wake(&self) {
        self.world.wake();
    }

    fn remind(&self) {
        self.world.remind();
    }
}

fn store(link: &Link, disk: u64, node: &str, world: Arc<dyn World>) -> StreamStore {
    StreamStore {
        stream: Arc::new(link.share()),
        mirror: Arc::new(SimDisk::new(disk)),
        options: Options::default(),
        cluster: ClusterId(7),
        node: node.to_owned(),
        peer_address: String::new(),
        limits: Limits::default(),
        world,
        fences: Fences::default(),
    }
}

struct Fixture {
    world: SimWorld,
    machine: Arc<Machine>,
    stream: SimStream,
    link: Link,
    rung: Arc<Rung>,
    /// Where runs are kept.
    runs: Arc<SimDisk>,
    core: Core,
}

impl Fixture {
    fn new() -> Self {
        Self::with(&Settings::default())
    }

    fn with(settings: &Settings) -> Self {
        let world = SimWorld::new();
        let stream = SimStream::new(world.clone(), 1, Faults::none());
        let link = stream.link();
        let machine = Arc::new(Machine {
            world: world.clone(),
            clock: Arc::default(),
            driven: Mutex::default(),
        });
        let store = store(&link, 1, "one", Arc::<Machine>::clone(&machine));
        let layout = Layout {
            shards: 2,
            segment_bytes: 1 << 20,
            spares: 0,
            memory: 64 << 20,
        };
        let runs = Arc::new(SimDisk::new(2));
        let kept: Arc<dyn Storage> = Arc::<SimDisk>::clone(&runs);
        let opened = open(Box::new(store), &kept, &layout, settings);
        let rung = Arc::new(Rung::default());
        let mail: Vec<Arc<dyn Post>> = vec![Arc::<Rung>::clone(&rung)];
        let room = Room::new("/".into(), 1 << 20);
        let core = Core::new(
            opened.expect("it opens"),
            SyncPolicy::Always,
            mail,
            room,
            Box::new(Panics),
        );
        Self {
            world,
            machine,
            stream,
            link,
            rung,
            runs,
            core,
        }
    }

    /// Decides a command; returns its outcome and the condition for its reply. Its facts are sent.
    fn ask(&self, command: Command) -> (Outcome, Required) {
        let decided = self.decide(command);
        locked(&self.core.committer).commit(&self.core, Ending::IfFull);
        decided
    }

    fn decide(&self, command: Command) -> (Outcome, Required) {
        let caller = Caller {
            client_id: ClientId(1),
            ..Caller::default()
        };
        let mut trail = Trail::default();
        let now = self.core.clock.now();
        let decided = Access::new(&self.core, now, &mut trail).submit(caller, command);
        let Decided::Now(outcome, _, required) = decided else {
            panic!("nothing here waits");
        };
        (outcome, required)
    }

    fn put(&self) -> (Outcome, Required) {
        self.ask(Command::Put(Put {
            queue: "q".into(),
            body: Body::new(b"x"),
            ..Put::default()
        }))
    }

    fn lease(&self, queue: &str) -> (Outcome, Required) {
        self.ask(Command::Take(Take {
            queues: std::iter::once(queue.into()).collect(),
            lease: Some(LeaseRequest {
                owner: LeaseOwner::Connection,
                time: LeaseTime::OwnTtr,
                back_to: BackTo::default(),
                held_max: 0,
            }),
            ..Take::default()
        }))
    }

    fn may_leave(&self, required: Required) -> bool {
        self.core.completed().satisfies(required)
    }

    /// As the log thread does.
    fn turn(&self) {
        let acked = self.core.acked.as_ref().expect("others acknowledge");
        self.core.window_turn(acked, Duration::from_secs(1));
    }

    fn pass(&self, ms: u64) {
        self.world.pass(Duration::from_millis(ms));
    }
}

#[test]
fn every_reply_waits_for_its_acknowledgement_also_a_lease_and_that_there_is_nothing() {
    let host = Fixture::new();
    let (_, put) = host.put();
    let (taken, lease) = host.lease("q");
    assert!(matches!(taken, Outcome::Messages(_)), "{taken:?}");
    // It rests on what is not acknowledged yet.
    let (empty, nothing) = host.lease("q");
    assert_eq!(empty, Outcome::Empty);
    for required in [put, lease, nothing] {
        assert!(!host.may_leave(required), "{required:?}");
    }
    let before = host.rung.0.load(Ordering::SeqCst);
    host.pass(10);
    for required in [put, lease, nothing] {
        assert!(host.may_leave(required), "{required:?}");
    }
    assert!(host.rung.0.load(Ordering::SeqCst) > before);
    // The log thread, which may wait for room, as well.
    let acked = host.core.acked.as_ref().expect("others acknowledge");
    assert!(acked.settled.wait_for(Duration::ZERO));
}

#[test]
fn without_a_lease_nothing_leaves_until_something_is_acknowledged_again() {
    let host = Fixture::new();
    let (_, required) = host.put();
    host.pass(10);
    assert!(host.may_leave(required));
    // Durable or not: another may own the log by now.
    host.pass(2_000);
    assert!(!host.may_leave(required));
    assert!(
        host.may_leave(Required::default()),
        "what rests on nothing may"
    );
    let before = host.rung.0.load(Ordering::SeqCst);
    host.core.heartbeat();
    assert!(!host.may_leave(required));
    host.pass(10);
    assert!(host.may_leave(required));
    let rung = host.rung.0.load(Ordering::SeqCst);
    assert!(rung > before, "the thread that delayed it is notified");
    // The lease counts from when the heartbeat was sent, not from its acknowledgement.
    host.pass(1_985);
    assert!(host.may_leave(required));
    host.pass(10);
    assert!(!host.may_leave(required));
}

#[test]
fn without_acknowledgements_commands_are_refused_and_then_continue() {
    let host = Fixture::new();
    host.link.cut(true, true);
    let (_, held) = host.put();
    for _ in 0..19 {
        host.pass(500);
        host.core.heartbeat();
    }
    assert!(host.core.is_available(), "an election takes so long");
    host.pass(1_000);
    host.core.heartbeat();
    let (refused, required) = host.put();
    assert_eq!(refused, Outcome::Refused(CommandError::Unavailable));
    assert_eq!(host.core.unavailable(), 1);
    assert!(host.may_leave(required), "the reply may leave");
    assert!(!host.may_leave(held));
    // A queue that is only referred to leaves nothing in the log.
    let referred = host.ask(Command::Refer {
        queue: "q".into(),
        uses: Some(true),
        watches: Some(true),
    });
    assert_eq!(referred.0, Outcome::Done);
    assert!(host.may_leave(referred.1));
    assert!(!host.may_leave(held));
    host.link.cut(false, false);
    host.pass(2_000);
    assert!(host.core.is_available());
    host.core.heartbeat();
    host.pass(10);
    assert!(host.may_leave(held));
    let (outcome, _) = host.put();
    assert!(matches!(outcome, Outcome::Put { .. }), "{outcome:?}");
}

#[test]
fn behind_a_handoff_nothing_is_kept_or_answered() {
    let host = Fixture::new();
    let (_, before) = host.put();
    host.pass(10);
    assert!(host.may_leave(before));
    // Nobody acknowledges while no time passes.
    let result = host.core.handoff("two", Duration::ZERO);
    assert_eq!(result, Handoff::Unknown);
    assert!(!host.may_leave(before), "another may own the log by now");
    let (_, behind) = host.put();
    let (_, empty) = host.lease("empty");
    host.core.heartbeat();
    host.pass(10);
    for required in [before, behind, empty] {
        assert!(!host.may_leave(required), "{required:?}");
    }
    assert_eq!(host.core.handoff("", Duration::ZERO), Handoff::Unsaid);
}

#[test]
fn a_handoff_is_waited_for_and_no_longer_than_configured() {
    let host = Fixture::new();
    host.link.cut(true, true);
    let within = Duration::from_millis(20);
    assert_eq!(host.core.handoff("", within), Handoff::Unknown);
}

#[test]
fn a_handoff_is_not_waited_for_when_another_owns_the_log_already() {
    let host = Fixture::new();
    let (_, put) = host.put();
    host.pass(10);
    assert!(host.may_leave(put));
    host.machine.stand();
    host.link.cut(true, true);
    host.pass(60_000);
    let other = host.stream.link();
    let other = store(&other, 3, "two", Arc::new(host.world.clone()));
    let claimed = Box::new(other).open(&mut |_| Ok(()));
    assert!(claimed.is_ok(), "another owns it now");
    host.machine.go_on();
    host.link.cut(false, false);
    let core = &host.core;
    let outcome = std::thread::scope(|scope| {
        let handoff = scope.spawn(|| core.handoff("", Duration::from_secs(20)));
        while !core.has_failed() && !handoff.is_finished() {
            std::thread::yield_now();
        }
        // It is on its way once the log is let go of.
        drop(locked(&core.committer));
        while !handoff.is_finished() {
            host.pass(10);
            std::thread::yield_now();
        }
        handoff.join().expect("no panic")
    });
    assert_eq!(outcome, Handoff::Unsaid);
}

/// The answers of an owner about a queue when its machine goes on that stood still, clock and all,
/// while another took the queue over; whether it may answer at once, and after its log was asked.
fn reads_after_a_frozen_clock(reads_by_log: bool) -> (bool, bool) {
    let host = Fixture::new();
    host.core.share(Sharing {
        reads_by_log,
        ..Sharing::default()
    });
    let (_, put) = host.put();
    host.pass(10);
    assert!(host.may_leave(put));
    host.machine.stand();
    host.link.cut(true, true);
    host.pass(60_000);
    let other = host.stream.link();
    let other = store(&other, 3, "two", Arc::new(host.world.clone()));
    let claimed = Box::new(other).open(&mut |_| Ok(()));
    assert!(claimed.is_ok(), "another owns it now");
    host.machine.go_on();
    host.link.cut(false, false);
    let (_, looked) = host.lease("empty");
    let at_once = host.may_leave(looked);
    for _ in 0..20 {
        host.turn();
        host.pass(100);
    }
    (at_once, host.may_leave(looked))
}

#[test]
fn reads_by_the_log_do_not_trust_a_clock_that_stood() {
    // The known hole, which costs nothing to leave open.
    assert!(reads_after_a_frozen_clock(false).0);
    assert_eq!(reads_after_a_frozen_clock(true), (false, false));
}

#[test]
fn reads_by_the_log_wait_for_a_later_entry_and_no_longer() {
    let host = Fixture::new();
    host.core.share(Sharing {
        reads_by_log: true,
        ..Sharing::default()
    });
    let (_, put) = host.put();
    host.pass(10);
    assert!(host.may_leave(put));
    let (empty, first) = host.lease("empty");
    assert_eq!(empty, Outcome::Empty);
    assert!(!host.may_leave(first), "its entry is on its way");
    let (_, second) = host.decide(Command::Take(Take {
        queues: std::iter::once("other".into()).collect(),
        ..Take::default()
    }));
    host.pass(10);
    assert!(host.may_leave(first));
    assert!(
        !host.may_leave(second),
        "the entry before it says nothing of it"
    );
    // One entry is enough for all that was asked by then, and nothing is appended without.
    host.turn();
    host.pass(10);
    assert!(host.may_leave(second));
    let durable = host.core.durable();
    host.turn();
    host.pass(10);
    assert_eq!(host.core.durable(), durable);
}

#[test]
fn clients_are_not_read_while_too_much_waits_and_replies_end_in_time() {
    let host = Fixture::new();
    host.core.share(Sharing {
        unacked_max: 1000,
        ..Sharing::default()
    });
    host.link.cut(true, true);
    for _ in 0..100 {
        host.put();
    }
    assert!(
        !host.core.is_choked(),
        "an acknowledgement may be about to come"
    );
    host.pass(100);
    assert!(host.core.is_choked());
    let wait = Duration::from_secs(30);
    assert!(
        !host.core.gives_up(wait),
        "an election may take so long that it seems"
    );
    for _ in 0..20 {
        host.pass(500);
        host.core.heartbeat();
    }
    host.pass(500);
    host.core.heartbeat();
    assert!(!host.core.is_available());
    assert!(host.core.gives_up(wait) && !host.core.gives_up(wait - Duration::from_millis(1)));
    host.link.cut(false, false);
    host.pass(2_000);
    assert!(!host.core.is_choked() && !host.core.gives_up(wait));
}

#[test]
fn a_log_that_cannot_be_made_shorter_does_not_grow_for_ever() {
    const LOG: u64 = 1 << 20;
    let host = Fixture::new();
    let never = AtomicBool::new(false);
    let shorten = || {
        let mut over = Instant::now().checked_sub(Duration::from_secs(2));
        host.core.retire_one(LOG, &mut over, &never)
    };
    host.runs.set_capacity(0);
    let body = vec![7; 64 << 10];
    for number in 0..200_u8 {
        let (put, required) = host.ask(Command::Put(Put {
            queue: "q".into(),
            body: Body::new(&body),
            ..Put::default()
        }));
        assert!(matches!(put, Outcome::Put { .. }), "{number}: {put:?}");
        host.pass(10);
        assert!(host.may_leave(required), "{number}");
    }
    // Segments in which nothing lives go; no run can be stored.
    while shorten() {}
    assert!(host.core.is_overgrown(LOG) && !host.core.is_overgrown(2 * LOG));
    // What makes it longer is refused, as on a full disk; what makes it shorter goes on.
    let mut reported = Space::Enough;
    host.core.see_to_overgrown(&mut reported, 2 * LOG);
    assert!(matches!(host.put().0, Outcome::Put { .. }));
    host.core.see_to_overgrown(&mut reported, LOG);
    let (refused, required) = host.put();
    assert_eq!(refused, Outcome::Refused(CommandError::NoSpace));
    host.pass(10);
    assert!(host.may_leave(required));
    let (taken, _) = host.ask(Command::Take(Take {
        queues: std::iter::once("q".into()).collect(),
        ..Take::default()
    }));
    assert!(matches!(taken, Outcome::Messages(_)), "{taken:?}");
    host.runs.set_capacity(u64::MAX);
    while shorten() {}
    assert!(host.core.counts.log_bytes.load(Ordering::Relaxed) <= 2 * LOG);
    host.core.see_to_overgrown(&mut reported, LOG);
    assert!(matches!(host.put().0, Outcome::Put { .. }));
}

/// Bytes of what a segment begins with that come before a message goes from memory to a queue whose
/// block of a run the segment has named already. Another queue's block follows.
fn named_before_a_move(core: &Core) -> usize {
    let never = AtomicBool::new(false);
    everything_leaves(core);
    let named = |first: &str| {
        let mut names = (0..).map(|number| Name::from(format!("{first}{number}").as_str()));
        let found = names.find(|name| core.shard_of_queue(name.as_bytes()) == 0);
        found.expect("names do not end")
    };
    let submit = |command| {
        let caller = Caller {
            client_id: ClientId(1),
            ..Caller::default()
        };
        let mut trail = Trail::default();
        let decided = Access::new(core, core.clock.now(), &mut trail).submit(caller, command);
        match decided {
            Decided::Now(outcome, ..) => outcome,
            Decided::Later => panic!("nothing here waits"),
        }
    };
    let queues = [named("a"), named("b")];
    for queue in &queues {
        for _ in 0..20 {
            submit(Command::Put(Put {
                queue: queue.clone(),
                ..Put::default()
            }));
        }
    }
    core.relieve(0, &never);
    let put = submit(Command::Put(Put {
        queue: named("memory"),
        ..Put::default()
    }));
    let Outcome::Put { id, .. } = put else {
        panic!("it is not stored: {put:?}");
    };
    while core.restate() {}
    assert!(core.write_now());
    locked(&core.committer).commit(core, Ending::Now);
    let (before, to) = {
        let shard = core.shards[0].lock(Work::Server);
        assert!(shard.engine.cold_stats().blocks >= 2);
        let (first, ..) = shard.engine.runs()[0];
        let queue = shard.engine.blocks_of(first)[0].queue;
        (shard.batch.snapshot, shard.engine.queue_name(queue))
    };
    let moved = submit(Command::Move { id, to });
    assert!(matches!(moved, Outcome::Done), "{moved:?}");
    core.shards[0].lock(Work::Server).batch.snapshot - before
}

#[test]
fn counters_that_standbys_cannot_know_come_when_all_blocks_are_named() {
    let mut settings = Settings::default();
    let memory = Overrides {
        memory: Some(true),
        ..Overrides::default()
    };
    settings.rules.push((Pattern::new("memory*"), memory));
    let shared = Fixture::with(&settings);
    assert!(named_before_a_move(&shared.core) > 0);
    let alone = open_shards(&SimDisk::new(1), &settings, 2);
    assert_eq!(named_before_a_move(&alone), 0);
}
