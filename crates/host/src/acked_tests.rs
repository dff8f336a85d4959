//! A host whose log others acknowledge, on a simulated stream and in its time: what a reply waits
//! for, and what is said while nobody acknowledges.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quintet_cluster::{ClusterId, Fences, Limits, StreamStore};
use quintet_engine::{
    BackTo, Body, Caller, Command, Delivery, LeaseAsk, LeaseOwner, LeaseTime, Outcome, Party, Put,
    Refusal, Settings, Take,
};
use quintet_log::{Options, Storage};
use quintet_sim::cluster::{Faults, Link, SimStream, SimWorld};
use quintet_sim::disk::SimDisk;

use crate::commit::Ending;
use crate::{
    Access, Core, Decided, Farewell, Layout, Need, Panics, Post, Room, SyncPolicy, Trail, locked,
    open,
};

/// Counts how often replies may have become free.
#[derive(Default)]
struct Rung(AtomicU64);

impl Post for Rung {
    fn post(&self, _: Delivery, _: Need) {}
    fn tell_written(&self) {}
    fn wake(&self) {}

    fn tell_durable(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

struct Fixture {
    world: SimWorld,
    link: Link,
    rung: Arc<Rung>,
    core: Core,
}

impl Fixture {
    fn new() -> Self {
        let world = SimWorld::new();
        let stream = SimStream::new(world.clone(), 1, Faults::none());
        let link = stream.link();
        let store = StreamStore {
            stream: Arc::new(link.share()),
            mirror: Arc::new(SimDisk::new(1)),
            options: Options::default(),
            cluster: ClusterId(7),
            node: "one".to_owned(),
            link: String::new(),
            limits: Limits::default(),
            world: Arc::new(world.clone()),
            fences: Fences::default(),
        };
        let layout = Layout {
            shards: 2,
            segment_bytes: 1 << 20,
            spares: 0,
            memory: 64 << 20,
        };
        let runs: Arc<dyn Storage> = Arc::new(SimDisk::new(2));
        let opened = open(Box::new(store), &runs, &layout, &Settings::default());
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
            link,
            rung,
            core,
        }
    }

    /// What is decided, and what its reply waits for; what it recorded is sent.
    fn ask(&self, command: Command) -> (Outcome, Need) {
        let caller = Caller {
            party: Party(1),
            ..Caller::default()
        };
        let mut trail = Trail::default();
        let now = self.core.clock.now();
        let decided = Access::new(&self.core, now, &mut trail).submit(caller, command);
        let Decided::Now(outcome, _, need) = decided else {
            panic!("nothing here waits");
        };
        locked(&self.core.committer).commit(&self.core, Ending::IfFull);
        (outcome, need)
    }

    fn put(&self) -> (Outcome, Need) {
        self.ask(Command::Put(Put {
            queue: "q".into(),
            body: Body::new(b"x"),
            ..Put::default()
        }))
    }

    fn lease(&self, queue: &str) -> (Outcome, Need) {
        self.ask(Command::Take(Take {
            queues: std::iter::once(queue.into()).collect(),
            lease: Some(LeaseAsk {
                owner: LeaseOwner::Connection,
                time: LeaseTime::OwnTtr,
                back_to: BackTo::default(),
                held_max: 0,
            }),
            ..Take::default()
        }))
    }

    fn may_leave(&self, need: Need) -> bool {
        self.core.reached().satisfies(need)
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
    for need in [put, lease, nothing] {
        assert!(!host.may_leave(need), "{need:?}");
    }
    let before = host.rung.0.load(Ordering::SeqCst);
    host.pass(10);
    for need in [put, lease, nothing] {
        assert!(host.may_leave(need), "{need:?}");
    }
    assert!(host.rung.0.load(Ordering::SeqCst) > before);
}

#[test]
fn without_a_lease_nothing_leaves_until_something_is_acknowledged_again() {
    let host = Fixture::new();
    let (_, need) = host.put();
    host.pass(10);
    assert!(host.may_leave(need));
    // Durable or not: another may own the log by now.
    host.pass(2_000);
    assert!(!host.may_leave(need));
    assert!(host.may_leave(Need::default()), "what rests on nothing may");
    let before = host.rung.0.load(Ordering::SeqCst);
    host.core.beat();
    assert!(!host.may_leave(need));
    host.pass(10);
    assert!(host.may_leave(need));
    let rung = host.rung.0.load(Ordering::SeqCst);
    assert!(rung > before, "who held it back is told");
    // The lease counts from when the beat was sent, not from its acknowledgement.
    host.pass(1_985);
    assert!(host.may_leave(need));
    host.pass(10);
    assert!(!host.may_leave(need));
}

#[test]
fn while_nobody_acknowledges_commands_are_refused_and_then_go_on() {
    let host = Fixture::new();
    host.link.cut(true, true);
    let (_, held) = host.put();
    for _ in 0..19 {
        host.pass(500);
        host.core.beat();
    }
    assert!(host.core.is_available(), "an election takes so long");
    host.pass(1_000);
    host.core.beat();
    let (refused, need) = host.put();
    assert_eq!(refused, Outcome::Refused(Refusal::Unavailable));
    assert!(host.may_leave(need), "that it is so can be said");
    assert!(!host.may_leave(held));
    host.link.cut(false, false);
    host.pass(2_000);
    assert!(host.core.is_available());
    host.core.beat();
    host.pass(10);
    assert!(host.may_leave(held));
    let (outcome, _) = host.put();
    assert!(matches!(outcome, Outcome::Put { .. }), "{outcome:?}");
}

#[test]
fn behind_a_farewell_nothing_is_kept_or_answered() {
    let host = Fixture::new();
    let (_, before) = host.put();
    host.pass(10);
    assert!(host.may_leave(before));
    // Nobody acknowledges while no time passes.
    let said = host.core.farewell("two", Duration::ZERO);
    assert_eq!(said, Farewell::Unknown);
    assert!(!host.may_leave(before), "another may own the log by now");
    let (_, behind) = host.put();
    let (_, empty) = host.lease("empty");
    host.core.beat();
    host.pass(10);
    for need in [before, behind, empty] {
        assert!(!host.may_leave(need), "{need:?}");
    }
    assert_eq!(host.core.farewell("", Duration::ZERO), Farewell::Unsaid);
}

#[test]
fn a_farewell_is_waited_for_and_no_longer_than_told() {
    let host = Fixture::new();
    host.link.cut(true, true);
    let within = Duration::from_millis(20);
    assert_eq!(host.core.farewell("", within), Farewell::Unknown);
}
