//! Members with the real driver on a bad stream, in simulated time: leaders that go, answers that
//! are lost, late or doubled, processes that stand still or are killed, purges under who is slow.
//!
//! `SEEDS=10000 cargo test -p quintet-cluster --test cluster members` tries more.

mod damaged;
mod late;

use crate::common;

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use common::CLUSTER;
use quintet_cluster::{
    Acks, Duty, Fences, Limits, Member, Membership, Owned, Role, Seq, Status, StreamLog, Tally,
    Timing, World, Writer,
    reader::{Read, Reader},
};
use quintet_log::{
    Epoch, Log, LogError, Options, Position, ReplayFrame, SegmentNumber, Shared, Stamp, Storage,
};
use quintet_sim::{
    Random,
    cluster::{Clocks, Connection, Faults, Link, Process, SimStream, SimWorld},
    disk::SimDisk,
    log_tests::facts,
    seeds,
};

const NODES: usize = 3;
/// Longer than a run.
const FOREVER: Duration = Duration::from_secs(3600);

type Frame = (Position, Vec<u8>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// State of a process.
#[derive(Default)]
struct App {
    /// Frames that were replayed, while it follows; and what it appended, when it owns.
    frames: Vec<Frame>,
    /// Where each frame of its own ends.
    appended: VecDeque<(Frame, Position)>,
    log: Option<StreamLog>,
    /// The log, once it has handed off.
    left: Option<StreamLog>,
    acks: Option<Acks>,
    epoch: Epoch,
    status: Status,
    /// Frames it had replayed when it claimed.
    claimed_at: Option<usize>,
    begun: usize,
    over: Option<LogError>,
    failed: Option<LogError>,
    heartbeats: usize,
    /// It has read a state that it could not serve.
    lacks: bool,
    /// The copies of the stream begin with different entries.
    differ: bool,
    /// The entry of the last request to them.
    requested_of: Option<Seq>,
    process: Option<Process>,
    /// The disk of its newest mirror.
    disk: Option<SimDisk>,
}

impl App {
    fn wall_ms(&self) -> u64 {
        self.process.as_ref().map_or(0, Process::wall_ms)
    }
}

struct Work(Arc<Mutex<App>>);

impl Duty for Work {
    type State = Vec<Frame>;

    fn begin(&mut self) -> Result<Vec<Frame>, String> {
        let mut app = lock(&self.0);
        app.begun += 1;
        app.frames.clear();
        app.claimed_at = None;
        Ok(Vec::new())
    }

    fn frame(&mut self, state: &mut Vec<Frame>, frame: ReplayFrame<'_>) -> Result<(), String> {
        let frame = (frame.position, frame.payload.to_vec());
        state.push(frame.clone());
        lock(&self.0).frames.push(frame);
        Ok(())
    }

    fn is_complete(&self, _: &Vec<Frame>) -> bool {
        !lock(&self.0).lacks
    }

    fn begins_everywhere(&mut self, first: Seq) -> bool {
        let mut app = lock(&self.0);
        app.requested_of = Some(first);
        !app.differ
    }

    fn own(&mut self, owned: Owned<Vec<Frame>>) {
        let mut app = lock(&self.0);
        assert_eq!(owned.state, app.frames);
        assert_eq!(
            app.claimed_at,
            Some(app.frames.len()),
            "a takeover replays nothing"
        );
        app.epoch = owned.log.epoch();
        app.acks = Some(owned.log.acks());
        app.log = Some(owned.log);
    }

    fn heartbeat(&mut self) {
        let mut app = lock(&self.0);
        app.heartbeats += 1;
        let stamp = Stamp {
            epoch: app.epoch,
            time_ms: app.wall_ms(),
        };
        if let Some(log) = &mut app.log {
            // Why not is found out by who drives it.
            log.heartbeat(stamp).ok();
        }
    }

    fn step_down(&mut self, why: LogError) {
        lock(&self.0).over = Some(why);
    }

    fn failed(&mut self, why: LogError) {
        lock(&self.0).failed = Some(why);
    }

    fn changed(&mut self, status: &Status) {
        let mut app = lock(&self.0);
        if status.role == Role::Claiming {
            app.claimed_at = Some(app.frames.len());
        }
        app.status = status.clone();
    }
}

struct Node {
    process: Process,
    connection: Link,
    member: Option<Arc<Member<Work>>>,
    app: Arc<Mutex<App>>,
}

/// A fence that is taken away.
#[derive(Clone, Copy, PartialEq)]
enum Without {
    Nothing,
    Lease,
    /// Where the log begins is what the stream's leader has.
    Beginning,
}

#[derive(Debug, Default)]
struct SeedCounts {
    answered: usize,
    owners: usize,
    deposed: usize,
    again: usize,
    retired: usize,
    handoffs: usize,
    heartbeats: usize,
}

struct Run {
    random: Random,
    world: SimWorld,
    stream: SimStream,
    nodes: Vec<Node>,
    without: Without,
    /// The frames that were acknowledged to any client.
    answered: Vec<Frame>,
    begins: Position,
    /// The newest epoch of which some node knew that it owns.
    newest: Epoch,
    number: u64,
    seen: SeedCounts,
}

impl Run {
    fn new(seed: u64, faults: Option<Faults>, without: Without) -> Self {
        let mut random = Random::new(seed);
        let any = Faults::any(&mut random);
        let world = SimWorld::new();
        let stream = SimStream::new(world.clone(), random.next_u64(), faults.unwrap_or(any));
        let mut run = Self {
            random,
            world,
            stream,
            nodes: Vec::new(),
            without,
            answered: Vec::new(),
            begins: Position(0),
            newest: Epoch(0),
            number: 0,
            seen: SeedCounts::default(),
        };
        for number in 0..NODES {
            let node = run.process(number);
            run.nodes.push(node);
        }
        run
    }

    /// A new process of a node.
    fn process(&mut self, number: usize) -> Node {
        let clocks = Clocks::exact(self.world.clone());
        let process = Process::new(self.world.clone(), clocks, 0);
        let connection = self.stream.link();
        let app = Arc::new(Mutex::new(App {
            process: Some(process.clone()),
            ..App::default()
        }));
        let seed = self.random.next_u64();
        let mut mirrors = Random::new(seed);
        let mirrored = Arc::clone(&app);
        let made = Membership {
            stream: Arc::new(Connection {
                process: process.clone(),
                link: connection.share(),
            }),
            mirror: Box::new(move || {
                let disk = SimDisk::new(mirrors.next_u64());
                lock(&mirrored).disk = Some(disk.clone());
                Ok(Arc::new(disk) as Arc<dyn Storage>)
            }),
            options: Options {
                segment_bytes: 64 << 10,
                ..Options::default()
            },
            cluster: CLUSTER,
            writer: Writer(seed),
            node: format!("node {number}"),
            peer_address: format!("10.0.0.{number}:4600"),
            limits: Limits::default(),
            timing: Timing {
                takeover_after: Duration::from_secs(3 + number as u64),
                ..Timing::default()
            },
            world: Arc::new(process.clone()),
            fences: Fences {
                beginning: self.without != Without::Beginning,
                ..Fences::default()
            },
        };
        let member = Member::start(made, Work(Arc::clone(&app)));
        Node {
            process,
            connection,
            member: Some(member.expect("a member")),
            app,
        }
    }

    /// Lets time pass in small steps, and everybody answers what may be answered.
    fn pass(&mut self, ms: u64) {
        let until = self.world.now() + Duration::from_millis(ms);
        while self.world.now() < until {
            let left = until - self.world.now();
            self.world.pass(left.min(Duration::from_millis(50)));
            self.answer();
        }
    }

    fn answer(&mut self) {
        for number in 0..NODES {
            let node = &self.nodes[number];
            if node.process.is_paused() {
                continue;
            }
            let mut app = lock(&node.app);
            if let Some(failed) = &app.failed {
                panic!("node {number} stopped: {failed}");
            }
            let deposed = app.over.is_some();
            if let Some(acks) = app.acks.clone().filter(|_| !deposed) {
                if app.epoch > self.newest {
                    self.newest = app.epoch;
                    self.seen.owners += 1;
                    let there: BTreeSet<Position> = app.frames.iter().map(|one| one.0).collect();
                    let lost = { self.answered.iter() }
                        .filter(|one| one.0 >= self.begins && !there.contains(&one.0));
                    assert_eq!(lost.count(), 0, "node {number} owns and knows too little");
                    let kept = app.log.as_ref().map(|log| log.segments()[0].first);
                    assert!(
                        kept <= Some(self.begins),
                        "node {number} owns and has given up entries before {kept:?}"
                    );
                }
                let may = acks.has_lease() || self.without == Without::Lease;
                assert!(
                    !may || app.epoch == self.newest,
                    "epoch {} may answer, and epoch {} has begun",
                    app.epoch,
                    self.newest
                );
                let durable = acks.durable();
                while may && app.appended.front().is_some_and(|(_, end)| *end <= durable) {
                    let (frame, _) = app.appended.pop_front().expect("just seen");
                    self.answered.push(frame);
                    self.seen.answered += 1;
                }
            }
            drop(app);
            if deposed {
                self.seen.deposed += 1;
                self.replace(number);
            }
        }
    }

    /// The process ends, and another begins.
    fn replace(&mut self, number: usize) {
        let fresh = self.process(number);
        let old = std::mem::replace(&mut self.nodes[number], fresh);
        let app = lock(&old.app);
        self.seen.again += app.begun - 1;
        self.seen.heartbeats += app.heartbeats;
    }

    fn append(&mut self, number: usize, many: u64) {
        let mut app = lock(&self.nodes[number].app);
        let app = &mut *app;
        let time_ms = app.wall_ms();
        let (Some(log), None) = (&mut app.log, &app.over) else {
            return;
        };
        for _ in 0..many {
            self.number += 1;
            let mut payload = self.number.to_le_bytes().to_vec();
            payload.resize(8 + self.random.index(3000), 1);
            let stamp = Stamp {
                epoch: app.epoch,
                time_ms,
            };
            let at = log.end();
            match log.append(at, stamp, &mut facts(&payload)) {
                Ok(placed) => app.appended.push_back(((at, payload), placed.end)),
                Err(LogError::Fenced { .. } | LogError::BadEntry { .. }) => return,
                Err(error) => panic!("{error}"),
            }
        }
        if log.segment_bytes_left() < 20_000 {
            log.begin_segment();
        }
    }

    fn retire(&mut self, number: usize) {
        let work = {
            let node = &self.nodes[number];
            let mut app = lock(&node.app);
            let (epoch, over) = (app.epoch, app.over.is_some());
            let Some(log) = app.log.as_mut().filter(|_| !over && epoch == self.newest) else {
                return;
            };
            let keep = log.segment().0.saturating_sub(2);
            let Ok(work) = log.begin_retire(SegmentNumber(keep)) else {
                return;
            };
            let oldest = log.segments()[0].first;
            if oldest > self.begins {
                self.begins = oldest;
                self.seen.retired += 1;
            }
            work
        };
        // It is waited for, and nobody else mends what is cut.
        self.nodes[number].connection.cut(false, false);
        match work.run() {
            Ok(_) | Err(LogError::Fenced { .. } | LogError::BadEntry { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// An owner hands off, and appends nothing more.
    fn leave(&mut self, number: usize, to: &str) {
        let mut app = lock(&self.nodes[number].app);
        let stamp = Stamp {
            epoch: app.epoch,
            time_ms: app.wall_ms(),
        };
        if let Some(mut log) = app.log.take() {
            // Why not is found out by who drives it.
            log.handoff(stamp, to).ok();
            app.left = Some(log);
            self.seen.handoffs += 1;
        }
    }

    /// An owner goes in good order: its process ends soon, or stands still before, or ends before
    /// anything of it is stored.
    fn go(&mut self, number: usize) {
        // The last two are nobody in particular, and nobody at all.
        let to = ["node 0", "node 1", "node 2", "", "node 9"][self.random.index(5)];
        self.leave(number, to);
        if self.random.chance(1, 4) {
            let time = Duration::from_millis(self.random.below(9_000));
            self.nodes[number].process.pause(time);
        }
        let ms = self.random.below(500) * self.random.below(3);
        self.pass(ms);
        if lock(&self.nodes[number].app).left.is_some() {
            self.replace(number);
        }
    }

    fn fault(&mut self) {
        let number = self.random.index(NODES);
        let owner = self.owner();
        let which = match owner {
            Some(owner) if self.random.chance(1, 2) => owner,
            _ => number,
        };
        match self.random.below(8) {
            0 | 1 => {
                let time = Duration::from_millis(self.random.below(9_000));
                self.nodes[which].process.pause(time);
            }
            2 => self.replace(which),
            3 => {
                let (to, from) = (self.random.chance(1, 2), self.random.chance(1, 2));
                self.nodes[which].connection.cut(to, from);
            }
            4 => (0..NODES).for_each(|at| self.nodes[at].connection.cut(false, false)),
            5 => self.go(which),
            _ => {}
        }
    }

    fn owner(&self) -> Option<usize> {
        self.nodes.iter().position(|node| {
            let app = lock(&node.app);
            app.log.is_some() && app.over.is_none() && app.epoch == self.newest
        })
    }

    fn run(mut self, steps: usize) -> SeedCounts {
        for _ in 0..steps {
            for number in 0..NODES {
                if !self.nodes[number].process.is_paused() {
                    let many = self.random.below(12);
                    self.append(number, many);
                }
            }
            if self.random.chance(1, 4) {
                self.fault();
            }
            if self.random.chance(1, 3)
                && let Some(owner) = self.owner()
                && !self.nodes[owner].process.is_paused()
            {
                self.retire(owner);
            }
            let ms = self.random.below(1_500);
            self.pass(ms);
        }
        self.end()
    }

    fn tally(&self, number: usize) -> Tally {
        let member = self.nodes[number].member.as_ref().expect("running");
        member.status().tally
    }

    /// Everything heals, and everything drains.
    fn end(mut self) -> SeedCounts {
        self.stream.heal();
        for node in &self.nodes {
            node.connection.cut(false, false);
            node.process.resume();
        }
        self.pass(40_000);
        let roles: Vec<Status> = self
            .nodes
            .iter()
            .map(|node| node.member.as_ref().expect("running").status())
            .collect();
        let owners = roles.iter().filter(|status| status.role == Role::Owner);
        assert_eq!(owners.count(), 1, "{roles:?}");
        let owner = self.owner().expect("an owner");
        for status in &roles {
            assert_eq!(status.epoch, self.newest, "all know who owns");
            let node = status.owner.as_ref().map(|claim| claim.node.as_str());
            assert_eq!(node, Some(format!("node {owner}").as_str()));
        }
        // What there is, read by nobody's copy.
        let (first, entries) = self.stream.entries();
        let mut reader = Reader::new(CLUSTER, first);
        let mut there = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            let seq = Seq(first.0 + at as u64);
            match reader.read(seq, entry) {
                Ok(Read::Frame(frame)) if frame.reign.is_none() => {
                    there.push((frame.position, frame.view.payload.to_vec()));
                }
                Ok(_) => {}
                Err(refused) => panic!("entry {seq}: {refused}"),
            }
        }
        let begins = self.begins;
        for frame in self.answered.iter().filter(|frame| frame.0 >= begins) {
            assert!(there.contains(frame), "{:?} was acknowledged", frame.0);
        }
        let from = there.first().map_or(Position(0), |frame| frame.0);
        for (number, node) in self.nodes.iter().enumerate() {
            let app = lock(&node.app);
            if number == owner {
                assert!(app.appended.is_empty(), "all of the owner's is durable");
                continue;
            }
            let copy: Vec<&Frame> = app.frames.iter().filter(|one| one.0 >= from).collect();
            let there: Vec<&Frame> = there.iter().collect();
            assert_eq!(copy, there, "node {number} has what the stream has");
        }
        let quiet = self.newest;
        self.pass(20_000);
        assert_eq!(self.newest, quiet, "a quiet group changed hands");
        for number in 0..NODES {
            self.replace(number);
        }
        self.seen
    }
}

#[test]
fn after_every_fault_one_node_owns_and_answered_entries_are_there() {
    let mut total = SeedCounts::default();
    for seed in seeds(200) {
        eprintln!("seed {seed}");
        let seen = Run::new(seed, None, Without::Nothing).run(60);
        total.answered += seen.answered;
        total.owners += seen.owners;
        total.deposed += seen.deposed;
        total.again += seen.again;
        total.retired += seen.retired;
        total.handoffs += seen.handoffs;
        total.heartbeats += seen.heartbeats;
    }
    eprintln!("{total:?}");
    assert!(total.deposed > 20 && total.again > 5, "{total:?}");
    assert!(total.handoffs > 50, "{total:?}");
}

#[test]
fn elections_of_the_stream_alone_depose_no_owner() {
    for seed in seeds(30) {
        let faults = Faults {
            leader: 10,
            ..Faults::none()
        };
        let mut run = Run::new(seed, Some(faults), Without::Nothing);
        run.pass(6_000);
        for _ in 0..60 {
            for number in 0..NODES {
                run.append(number, 3);
            }
            run.pass(1_000);
        }
        let seen = run.end();
        assert_eq!((seen.owners, seen.deposed), (1, 0), "seed {seed}: {seen:?}");
    }
}

/// After how many ms of simulated time somebody else owns.
fn handed_over(run: &mut Run) -> (u64, Option<usize>) {
    let (began, epoch) = (run.world.now(), run.newest);
    while run.newest == epoch && run.world.now() < began + Duration::from_secs(60) {
        run.pass(10);
    }
    let took = run.world.now() - began;
    (took.as_millis() as u64, run.owner())
}

#[test]
fn the_successor_of_a_handoff_takes_over_at_once_and_others_soon_if_it_does_not() {
    for seed in seeds(20) {
        let mut run = Run::new(seed, Some(Faults::none()), Without::Nothing);
        run.pass(6_000);
        assert_eq!(run.owner(), Some(0), "the others wait longer");
        run.append(0, 5);
        run.leave(0, "node 2");
        let (took, owner) = handed_over(&mut run);
        assert!(took < 500 && owner == Some(2), "{took} ms, {owner:?}");
        run.pass(1_000);
        for successor in [1, 2] {
            let tally = run.tally(successor);
            assert_eq!((tally.takeovers, tally.handovers), (0, 1), "{successor}");
        }
        run.replace(0);
        run.pass(6_000);

        // To anyone, who is the first.
        run.leave(2, "");
        let (took, owner) = handed_over(&mut run);
        assert!(took < 500 && owner < Some(2), "{took} ms, {owner:?}");
        run.replace(2);
        run.pass(6_000);

        // To one that stands still, and to one that does not exist.
        for gone in [true, false] {
            let owner = run.owner().expect("an owner");
            let named = (owner + 1) % NODES;
            if gone {
                run.nodes[named].process.pause(FOREVER);
                run.leave(owner, &format!("node {named}"));
            } else {
                run.leave(owner, "node 9");
            }
            let (took, successor) = handed_over(&mut run);
            assert!((900..2_500).contains(&took), "{took} ms");
            assert!(
                successor.is_some_and(|successor| successor != owner),
                "{successor:?}"
            );
            run.nodes[named].process.resume();
            run.replace(owner);
            run.pass(6_000);
        }
        run.end();
    }
}

#[test]
fn a_drained_node_owns_only_without_another_node() {
    let mut run = Run::new(1, Some(Faults::none()), Without::Nothing);
    run.pass(6_000);
    let drain = |run: &Run, drained| {
        run.nodes[1]
            .member
            .as_ref()
            .expect("running")
            .drain(drained);
    };
    drain(&run, true);
    run.leave(0, "node 1");
    let (took, owner) = handed_over(&mut run);
    assert_eq!(owner, Some(2), "after {took} ms");
    run.replace(0);
    run.nodes[0].process.pause(FOREVER);
    run.leave(2, "");
    run.nodes[2].process.pause(FOREVER);
    let (took, owner) = handed_over(&mut run);
    assert_eq!(owner, Some(1));
    let tally = run.tally(1);
    assert_eq!((tally.takeovers, tally.divergences), (0, 0), "{tally:?}");
    // It waits four seconds by itself.
    assert!((40_000..45_000).contains(&took), "{took} ms");
    drain(&run, false);
    run.replace(2);
    run.pass(6_000);
    run.leave(1, "");
    run.replace(1);
    let (took, _) = handed_over(&mut run);
    assert!(took < 1_000, "{took} ms");
    run.end();
}

#[test]
fn a_node_that_could_not_serve_claims_nothing_until_it_could() {
    let mut run = Run::new(1, Some(Faults::none()), Without::Nothing);
    run.pass(6_000);
    assert_eq!(run.owner(), Some(0), "the others wait longer");
    run.append(0, 5);
    // The first that would take over, behind silence and behind handoffs.
    lock(&run.nodes[1].app).lacks = true;
    run.nodes[0].process.pause(FOREVER);
    let (took, owner) = handed_over(&mut run);
    assert_eq!(owner, Some(2), "after {took} ms");
    run.replace(0);
    run.pass(6_000);
    for to in ["node 1", ""] {
        let owner = run.owner().expect("an owner");
        run.append(owner, 5);
        run.leave(owner, to);
        let (took, successor) = handed_over(&mut run);
        assert!(
            successor.is_some_and(|successor| successor != 1),
            "{took} ms, {successor:?}"
        );
        run.replace(owner);
        run.pass(6_000);
    }
    // Where there is nobody else it waits for what it lacks.
    let owner = run.owner().expect("an owner");
    for number in [0, 2] {
        run.nodes[number].process.pause(FOREVER);
    }
    run.pass(60_000);
    assert_eq!(run.owner(), Some(owner), "nobody has claimed");
    lock(&run.nodes[1].app).lacks = false;
    let (took, successor) = handed_over(&mut run);
    assert_eq!(successor, Some(1));
    assert!(took < 3_000, "{took} ms");
    run.end();
}

#[test]
fn an_owner_that_answers_without_a_lease_is_found() {
    let found = (0..200).any(|seed| {
        let run = || Run::new(seed, None, Without::Lease).run(60);
        std::panic::catch_unwind(run).is_err()
    });
    assert!(found);
}
