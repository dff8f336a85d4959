//! A run: three nodes, clients, and what goes wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use quintet_cluster::{Moment, World as _};
use quintet_sim::Random;
use quintet_sim::cluster::{Clocks, Faults, SimStream, SimWorld};
use quintet_sim::history::History;
use quintet_types::MessageId;

use super::bucket::Bucket;
use super::client::Client;
use super::duty;
use super::node::{Ground, Node, Without};
use super::oracle::Oracle;
use crate::locked;

const NODES: usize = 3;
const CLIENTS: usize = 6;
/// Commands that each run acknowledges at least.
pub(super) const ACKNOWLEDGED: u64 = 200;
/// So long things go wrong at most, and at least.
const TROUBLE: [u64; 2] = [15, 40];

/// Longer than anything takes when nothing goes wrong.
pub(super) const CALM: Duration = Duration::from_secs(30);

/// Events of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunCounts {
    pub(super) acknowledged: u64,
    /// Of those, while things went wrong.
    pub(super) troubled: u64,
    pub(super) unknown: u64,
    pub(super) owners: u64,
    pub(super) again: u64,
    pub(super) purges: u64,
    pub(super) retired: u64,
    pub(super) voids: u64,
    pub(super) compared: u64,
    /// Runs that were stored.
    pub(super) runs: u64,
    /// Entries that are a part of a frame.
    pub(super) cut: u64,
    /// Chunks of bodies that were written.
    pub(super) chunks: u64,
    /// Messages of which a hook decided what becomes.
    pub(super) hooked: u64,
}

impl RunCounts {
    pub(super) fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.troubled += other.troubled;
        self.unknown += other.unknown;
        self.owners += other.owners;
        self.again += other.again;
        self.purges += other.purges;
        self.retired += other.retired;
        self.voids += other.voids;
        self.compared += other.compared;
        self.runs += other.runs;
        self.cut += other.cut;
        self.chunks += other.chunks;
        self.hooked += other.hooked;
    }
}

/// A message of a queue that nobody takes from, and what became of it.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Moved {
    /// Which of two queues it was put into.
    pub(super) from: usize,
    /// Its id, once it is acknowledged.
    pub(super) id: Option<MessageId>,
    /// A move to the other queue was requested.
    pub(super) requested: bool,
    /// That move was acknowledged.
    pub(super) moved: bool,
}

pub(super) struct Run {
    pub(super) ground: Arc<Ground>,
    pub(super) clocks: Vec<Clocks>,
    pub(super) state: Mutex<State>,
    pub(super) itself: Weak<Self>,
}

pub(super) struct State {
    pub(super) random: Random,
    pub(super) nodes: Vec<Arc<Node>>,
    /// By node, which life of it this is.
    pub(super) lives: Vec<u64>,
    pub(super) clients: Vec<Client>,
    pub(super) history: History,
    /// Connections that have not ended at the other side, and to which life.
    pub(super) open: BTreeMap<u64, u64>,
    /// Messages that are there, as far as clients know.
    pub(super) there: BTreeSet<u64>,
    /// Messages that are moved, by body.
    pub(super) moves: BTreeMap<u64, Moved>,
    pub(super) number: u64,
    pub(super) calm: bool,
    /// Until then clients ask nothing.
    pub(super) lull: Moment,
    /// Clients ask nothing any more.
    pub(super) still: bool,
}

impl State {
    pub(super) fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// A life of a node that takes commands.
    pub(super) fn serving(&mut self) -> Option<(u64, Arc<Node>)> {
        let nodes = self.lives.iter().zip(&self.nodes);
        let serving: Vec<_> = nodes.filter(|(_, node)| node.serves().is_some()).collect();
        let (life, node) = serving.get(self.random.index(serving.len().max(1)))?;
        Some((**life, Arc::clone(node)))
    }

    pub(super) fn life(&self, life: u64) -> Option<Arc<Node>> {
        let at = self.lives.iter().position(|one| *one == life)?;
        Some(Arc::clone(&self.nodes[at]))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.ground.world.end();
    }
}

impl Run {
    fn new(seed: u64, without: Without) -> Arc<Self> {
        Self::with(seed, without, false)
    }

    /// Nodes whose clocks are right and whose stream is, if `calm`; else as the seed has it.
    pub(super) fn with(seed: u64, without: Without, calm: bool) -> Arc<Self> {
        let mut random = Random::new(seed);
        let any = Faults::any(&mut random);
        let lies = lies(seed);
        let faults = Faults {
            lies: if lies { 700 } else { 0 },
            leader: if lies { 10 } else { any.leader },
            ignore_expected: without == Without::Expected,
            purge_too_far: without == Without::Purge,
            ..any
        };
        let faults = if calm { Faults::none() } else { faults };
        let world = SimWorld::new();
        let stream = SimStream::new(world.clone(), random.next_u64(), faults);
        let ground = Arc::new(Ground {
            oracle: Mutex::new(Oracle::new(stream.clone())),
            stream,
            without,
            newest: AtomicU64::new(0),
            again: AtomicU64::new(0),
            retired: AtomicU64::new(0),
            bucket: Arc::new(Bucket::new(random.next_u64(), !calm)),
            // Of every third messages leave memory, and of some of the others bodies are large.
            spills: seed % 3 == 1 && !calm,
            large: seed % 15 == 5 && !calm,
            chunks: (seed % 7 == 3 && !calm).then(AtomicU64::default),
            hook: (seed % 8 == 6 && !calm).then(AtomicU64::default),
            world: world.clone(),
        });
        // With these a takeover takes longer than a lease, by the slowest and the fastest clock.
        let mut clock = || {
            let rate = 850 + random.below(301);
            if calm {
                return Clocks::exact(world.clone());
            }
            Clocks::new(
                world.clone(),
                rate,
                Duration::from_secs(random.below(1_000_000)),
            )
        };
        let clocks: Vec<Clocks> = (0..NODES).map(|_| clock()).collect();
        let run = Arc::new_cyclic(|itself| Self {
            ground,
            clocks,
            state: Mutex::new(State {
                random,
                nodes: Vec::new(),
                lives: Vec::new(),
                clients: (0..CLIENTS).map(|_| Client::default()).collect(),
                history: History::default(),
                open: BTreeMap::new(),
                there: BTreeSet::new(),
                moves: BTreeMap::new(),
                number: 0,
                calm,
                lull: Moment::ZERO,
                still: false,
            }),
            itself: Weak::clone(itself),
        });
        for number in 0..NODES {
            let (life, node) = run.start(number);
            let state = &mut *locked(&run.state);
            state.nodes.push(node);
            state.lives.push(life);
        }
        run
    }

    /// Does it after a while, if the run is still on.
    pub(super) fn after(&self, time: Duration, then: impl FnOnce(&Self) + Send + 'static) {
        let run = Weak::clone(&self.itself);
        self.ground.world.plan(time, move || {
            if let Some(run) = run.upgrade() {
                then(&run);
            }
        });
    }

    fn start(&self, number: usize) -> (u64, Arc<Node>) {
        let (life, seed, stalls) = {
            let state = &mut *locked(&self.state);
            let stalls = [0, 2, 8][state.random.index(3)];
            let stalls = if state.calm { 0 } else { stalls };
            (state.next(), state.random.next_u64(), stalls)
        };
        let node = duty::start(number, &self.ground, &self.clocks[number], seed);
        node.process.stall(stalls);
        (life, node)
    }

    /// Processes that have ended begin again, and clients learn of it.
    pub(super) fn tend(&self) {
        for number in 0..NODES {
            let ended = locked(&self.state).nodes[number].process.is_killed();
            if ended {
                let (life, node) = self.start(number);
                let state = &mut *locked(&self.state);
                let before = std::mem::replace(&mut state.lives[number], life);
                state.nodes[number] = node;
                state.open.retain(|connection, of| {
                    if *of == before {
                        state.history.ended(*connection);
                    }
                    *of != before
                });
                for client in &mut state.clients {
                    if client.connection.is_some_and(|(_, of)| of == before) {
                        client.lose();
                    }
                }
            }
        }
        self.after(Duration::from_millis(100), Self::tend);
    }

    /// Something goes wrong, or is mended.
    fn fault(&self) {
        let mut state = locked(&self.state);
        if state.calm {
            return;
        }
        let random = &mut state.random;
        let (kind, any, owner) = (random.below(16), random.index(NODES), random.chance(2, 3));
        let long = if random.chance(1, 2) { 9_000 } else { 1_500 };
        let (time, ahead) = (random.below(long), random.below(200_000_000));
        let (to, from) = (random.chance(1, 2), random.chance(1, 2));
        let again = Duration::from_millis(random.below(2_500));
        let newest = self.ground.newest.load(Ordering::Relaxed);
        let owns = |node: &Arc<Node>| node.serves() == Some(newest);
        let at = state.nodes.iter().position(owns);
        let which = at.filter(|_| owner).unwrap_or(any);
        let node = Arc::clone(&state.nodes[which]);
        let nodes = state.nodes.clone();
        if kind == 14 {
            state.lull = self.ground.world.now() + Duration::from_millis(time);
            let clients = 0..CLIENTS;
            let some = clients
                .filter(|_| state.random.chance(1, 2))
                .collect::<Vec<_>>();
            some.into_iter()
                .for_each(|one| self.hang_up(&mut state, one));
        }
        drop(state);
        match kind {
            0..=2 => node.process.pause(Duration::from_millis(time)),
            3 => node.process.kill(),
            4 | 5 => node.link.cut(to, from),
            6..=8 | 11..=13 => nodes.iter().for_each(|node| node.link.cut(false, false)),
            9 => node.process.clocks().set_wall(ahead as i64 - 100_000_000),
            // That of a standby would make it impatient, which is why clocks may not differ much.
            10 if Some(which) == at => node.process.clocks().jump(Duration::from_millis(time)),
            15 if Some(which) == at => {
                // The last is nobody in particular.
                let to = ["node 0", "node 1", "node 2", ""][usize::try_from(time % 4).unwrap_or(0)];
                let leaving = Arc::clone(&node);
                node.process.later(move || leaving.leave(to));
            }
            _ => {}
        }
        self.after(again, Self::fault);
    }

    fn acknowledged(&self) -> u64 {
        locked(&self.state).history.acknowledged() as u64
    }

    /// Waits until it is so, at most this long.
    pub(super) fn wait(&self, time: Duration, mut so: impl FnMut() -> bool) -> bool {
        let world = &self.ground.world;
        let until = world.now() + time;
        while !so() && world.now() < until {
            world.pass(Duration::from_millis(500).min(until - world.now()));
        }
        so()
    }

    pub(super) fn pass(&self, seconds: u64) {
        self.ground.world.pass(Duration::from_secs(seconds));
    }

    /// Nodes are tended, and clients ask.
    pub(super) fn begin(&self) {
        self.after(Duration::ZERO, Self::tend);
        for number in 0..CLIENTS {
            self.after(Duration::from_millis(number as u64), move |run| {
                run.client(number)
            });
        }
    }

    /// The node that serves in the newest epoch.
    pub(super) fn owner(&self) -> Option<Arc<Node>> {
        let nodes = locked(&self.state).nodes.clone();
        let serving = nodes.into_iter().filter(|node| node.serves().is_some());
        serving.max_by_key(|node| node.serves())
    }

    fn run(self: Arc<Self>) -> RunCounts {
        self.begin();
        let [least, most] = TROUBLE.map(Duration::from_secs);
        self.after(Duration::ZERO, Self::mover);
        // The first owner is there soon.
        self.pass(5);
        self.fault();
        self.ground.world.pass(least);
        self.wait(most - least, || self.acknowledged() >= ACKNOWLEDGED);
        let troubled = self.acknowledged();
        self.heal();
        let enough = self.wait(CALM, || self.acknowledged() >= ACKNOWLEDGED);
        assert!(enough, "nothing goes wrong, and nobody answers");
        // What is asked is answered, and clients go.
        locked(&self.state).still = true;
        self.pass(15);
        self.drain();
        self.drain_moves();
        self.pass(3);
        self.settled();
        self.seen(troubled)
    }
}

/// Whether the leaders' stores are damaged as well.
pub(super) fn lies(seed: u64) -> bool {
    seed % 4 == 3
}

/// Runs one random schedule of nodes and faults; the same seed gives the same run.
pub(super) fn run(seed: u64, without: Without) -> RunCounts {
    Run::new(seed, without).run()
}
