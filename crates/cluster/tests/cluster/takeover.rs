//! Owners one after the other on a bad stream, in simulated time: what was acknowledged is there.
//!
//! `SEEDS=10000 cargo test -p quintet-cluster --test cluster takeover` tries more.

use crate::common;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use common::{Frame, Node, body, store};
use quintet_cluster::{Fences, Limits};
use quintet_log::{Log, LogError, SegmentNumber, Shared, Stamp};
use quintet_sim::{
    Random,
    cluster::{Faults, Link, SimStream, SimWorld},
    seeds,
};

/// Events of one seed.
#[derive(Clone, Copy, Debug, Default)]
struct SeedCounts {
    acknowledged: usize,
    takeovers: usize,
    resolves: u64,
    fenced: usize,
    retired: usize,
}

/// A fence that is taken away.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Without {
    Nothing,
    Expected,
    Padding,
    Order,
}

struct Run {
    random: Random,
    world: SimWorld,
    stream: SimStream,
    fences: Fences,
    nodes: Vec<(Node, Link)>,
    /// Frames before this position may have been given up.
    begins: quintet_log::Position,
    number: u64,
    seen: SeedCounts,
}

impl Run {
    fn new(seed: u64, without: Without) -> Self {
        let mut random = Random::new(seed);
        let faults = Faults {
            ignore_expected: without == Without::Expected,
            ..Faults::any(&mut random)
        };
        let world = SimWorld::new();
        Self {
            stream: SimStream::new(world.clone(), random.next_u64(), faults),
            random,
            world,
            fences: Fences {
                padding: without != Without::Padding,
                in_order: without != Without::Order,
                ..Fences::default()
            },
            nodes: Vec::new(),
            begins: quintet_log::Position(0),
            number: 0,
            seen: SeedCounts::default(),
        }
    }

    /// Another node claims the log; those before need not know.
    fn take_over(&mut self) -> Result<(), LogError> {
        let link = self.stream.link();
        let mut tested = store(
            Arc::new(link.share()),
            Arc::new(self.world.clone()),
            self.random.next_u64(),
            self.fences,
        );
        tested.limits = Limits {
            entries: [1, 8, 32, 64][self.random.index(4)],
            ..Limits::default()
        };
        let node = Node::open(tested)?;
        self.check(&node.found);
        self.seen.takeovers += 1;
        self.nodes.push((node, link));
        Ok(())
    }

    /// Everything acknowledged to anybody is in `found`, and in order.
    fn check(&self, found: &[Frame]) {
        let mut rest = found;
        for (node, _) in &self.nodes {
            for frame in node.acknowledged() {
                if frame.0 < self.begins {
                    continue;
                }
                let index = rest.iter().position(|one| *one == frame);
                let index = index.unwrap_or_else(|| panic!("{:?} was acknowledged", frame.0));
                rest = &rest[index + 1..];
            }
        }
        for pair in found.windows(2) {
            assert!(pair[0].0 < pair[1].0, "positions rise");
        }
    }

    fn step(&mut self) -> Result<(), LogError> {
        let which = match self.nodes.len() {
            // Mostly the owner; now and then one that was.
            many if many > 1 && self.random.chance(1, 4) => self.random.index(many),
            many => many - 1,
        };
        let owner = which + 1 == self.nodes.len();
        let (node, link) = &mut self.nodes[which];
        match self.random.below(20) {
            0..=11 => {
                for _ in 0..=self.random.below(12) {
                    self.number += 1;
                    let mut payload = self.number.to_le_bytes().to_vec();
                    payload.resize(8 + self.random.index(200), 1);
                    if let Err(error) = node.append(&payload) {
                        return Self::refused(&mut self.seen, owner, error);
                    }
                }
            }
            12 => {
                let stamp = Stamp {
                    epoch: node.log.epoch(),
                    time_ms: 5,
                };
                let end = node.log.end();
                let long = [300 << 10, 700 << 10, 10][self.random.index(3)];
                let mut frame = body(long);
                let done = match self.random.chance(1, 2) {
                    true => node.log.heartbeat(stamp),
                    false => node.log.append(end, stamp, &mut frame).map(|placed| {
                        let frame = (end, frame.payload().to_vec());
                        node.appended.push((frame, placed.end));
                    }),
                };
                if let Err(error) = done {
                    return Self::refused(&mut self.seen, owner, error);
                }
            }
            13 => node.log.begin_segment(),
            14 if owner => {
                let last = node.log.segment().0;
                let through = SegmentNumber(last.saturating_sub(1));
                let segments = node.log.segments();
                let first = segments.iter().find(|one| one.number.0 == last);
                let work = node.log.begin_retire(through)?;
                let oldest = node.log.segments()[0];
                if first
                    .is_some_and(|first| oldest.first > self.begins && first.first > self.begins)
                {
                    self.begins = oldest.first;
                    self.seen.retired += 1;
                    match work.run() {
                        Err(LogError::Fenced { .. }) => self.seen.fenced += 1,
                        done => drop(done?),
                    }
                }
            }
            15 => {
                let (to, from) = (self.random.chance(1, 2), self.random.chance(1, 2));
                link.cut(to && !owner, from && !owner);
            }
            16 if self.random.chance(1, 3) => {
                let (_, link) = self.nodes.last().expect("an owner");
                if self.random.chance(1, 2) {
                    link.cut(true, true);
                }
                return self.take_over();
            }
            _ => {
                let long = self.random.chance(1, 10);
                let most = if long { 8_000_000 } else { 4_000 };
                let time = Duration::from_micros(self.random.below(most));
                self.world.pass(time);
            }
        }
        Ok(())
    }

    fn refused(seen: &mut SeedCounts, owner: bool, error: LogError) -> Result<(), LogError> {
        match error {
            LogError::Fenced { .. } | LogError::BadEntry { .. } if !owner => {
                seen.fenced += 1;
                Ok(())
            }
            error => Err(error),
        }
    }

    fn run(mut self) -> Result<SeedCounts, LogError> {
        self.take_over()?;
        for _ in 0..150 {
            self.step()?;
        }
        // Everything heals, and everything drains.
        self.stream.heal();
        for (_, link) in &self.nodes {
            link.cut(false, false);
        }
        let (owner, _) = self.nodes.last_mut().expect("an owner");
        owner.sync()?;
        let all = owner.appended.len();
        assert_eq!(
            owner.acknowledged().len(),
            all,
            "all of the owner's is durable"
        );
        self.world.pass(Duration::from_secs(20));
        self.take_over()?;
        let last = self.nodes.len() - 1;
        for (node, _) in &mut self.nodes[..last] {
            let pending = node.log.end() > node.log.acks().durable();
            let synced = node.sync();
            assert_eq!(
                synced.is_err(),
                pending,
                "waiting clients are answered: {synced:?}"
            );
        }
        self.check(&self.nodes[last].0.found);
        for (node, _) in &self.nodes {
            self.seen.acknowledged += node.acknowledged().len();
            self.seen.resolves += node.log.acks().resolves();
        }
        Ok(self.seen)
    }
}

#[test]
fn acknowledged_entries_survive_any_owner() {
    let mut total = SeedCounts::default();
    for seed in seeds(500) {
        eprintln!("seed {seed}");
        let seen = Run::new(seed, Without::Nothing).run();
        let seen = seen.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        total.acknowledged += seen.acknowledged;
        total.takeovers += seen.takeovers;
        total.resolves += seen.resolves;
        total.fenced += seen.fenced;
        total.retired += seen.retired;
    }
    eprintln!("{total:?}");
}

/// The first seed that finds out.
fn found(without: Without) -> Option<u64> {
    (0..500).find(|seed| {
        let run = catch_unwind(AssertUnwindSafe(|| Run::new(*seed, without).run()));
        match run {
            Ok(Ok(_)) => false,
            Ok(Err(error)) => {
                eprintln!("{without:?}: seed {seed}: {error}");
                true
            }
            Err(_) => {
                eprintln!("{without:?}: seed {seed}: an assertion");
                true
            }
        }
    })
}

#[test]
fn a_stream_that_ignores_what_is_expected_is_found() {
    assert!(found(Without::Expected).is_some());
}

#[test]
fn a_missing_padding_is_found() {
    assert!(found(Without::Padding).is_some());
}

#[test]
fn acknowledgements_that_count_in_any_order_are_found() {
    assert!(found(Without::Order).is_some());
}
