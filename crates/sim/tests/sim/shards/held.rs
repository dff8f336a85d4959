//! Messages held for some of other shards, over crashes that lose the newest frames of the log, and
//! while segments go: each is freed once, and not before all have ended for which it is held.

use std::collections::{BTreeMap, BTreeSet};

use quintet_engine::*;
use quintet_sim::Random;
use quintet_sim::shards::{carry_from, put, settle, worlds};
use quintet_sim::world::World;
use quintet_types::*;

use super::{names, take};

/// Facts of one frame, each with its shard.
type Frame = Vec<(usize, Fact)>;

/// Shards with one log.
struct Server {
    all: Vec<World>,
    /// All that the log has had.
    frames: Vec<Frame>,
    /// Frames before this one are not lost.
    kept: usize,
    /// Of each shard the facts that are written down as frames.
    written: Vec<usize>,
    /// Where the facts of the newest segment begin, if there are two.
    segment: Option<Vec<usize>>,
    held: BTreeSet<MessageId>,
}

impl Server {
    fn new(shards: u8) -> Self {
        Self {
            all: worlds(shards),
            frames: Vec::new(),
            kept: 0,
            written: vec![0; shards.into()],
            segment: None,
            held: BTreeSet::new(),
        }
    }

    /// Writes what was recorded as one frame.
    fn write(&mut self) {
        let mut frame = Frame::new();
        for (shard, world) in self.all.iter().enumerate() {
            let facts = world.facts[self.written[shard]..].iter().cloned();
            frame.extend(facts.map(|fact| (shard, fact)));
            self.written[shard] = world.facts.len();
        }
        if !frame.is_empty() {
            self.frames.push(frame);
        }
    }

    /// The process ends, and with it the newest frames.
    fn crash(&mut self, lost: usize) {
        self.write();
        let least = self.kept.max(self.frames.len().saturating_sub(lost));
        for (shard, _) in self.frames.drain(least..).flatten() {
            self.all[shard].facts.pop();
        }
        for (written, world) in self.written.iter_mut().zip(&mut self.all) {
            *written = world.facts.len();
            world.restart();
        }
        self.segment = None;
        self.write();
    }

    /// A segment begins, or the one before it goes.
    fn turn_segment(&mut self) {
        self.write();
        self.kept = self.frames.len();
        let begins = self.segment.is_none();
        let starts: Vec<usize> = self.all.iter().map(|world| world.facts.len()).collect();
        for (shard, world) in self.all.iter_mut().enumerate() {
            let World { engine, facts, .. } = world;
            match &self.segment {
                None => engine.begin_segment(SegmentRef(1), facts),
                Some(starts) => {
                    let mut from = Some(0);
                    while let Some(slot) = from {
                        from = engine.copy_out(SegmentRef(0), slot, 8, facts).next;
                    }
                    // Else messages of a flush are not freed yet, and all of it stays.
                    if engine.segment_refs_live(SegmentRef(0)) == 0 {
                        facts.drain(..starts[shard]);
                    }
                }
            }
            self.written[shard] = world.facts.len();
        }
        if begins {
            self.segment = Some(starts);
        } else {
            // All that is left is of one segment.
            self.crash(0);
        }
    }

    fn ask(&mut self, shard: usize, command: Command) -> Option<Outcome> {
        self.all[shard].ask(1, command)
    }

    fn shard_of(&self, id: MessageId) -> usize {
        shard_of_id(id, self.all.len())
    }

    fn put(&mut self, queue: &Name, after: Option<PutAfter>) -> Option<MessageId> {
        let is_held = after.is_some();
        let put_it = Put {
            queue: queue.clone(),
            more: Some(Box::new(PutMore {
                after: after.map(Box::new),
                ..PutMore::default()
            })),
            ..Put::default()
        };
        match put(&mut self.all, Caller::default(), put_it) {
            Outcome::Put { id, .. } => {
                if is_held {
                    self.held.insert(id);
                }
                Some(id)
            }
            _ => None,
        }
    }

    /// Does something; a frame follows.
    fn act(&mut self, random: &mut Random, q: &[Name], known: &mut Vec<MessageId>) {
        let queue = q[random.index(q.len())].clone();
        let shard = super::shard_of_queue(queue.as_bytes(), self.all.len());
        let some = known.get(random.index(known.len().max(1))).copied();
        match (random.below(20), some) {
            (0..=2, _) | (_, None) => known.extend(self.put(&queue, None)),
            (3..=7, _) => {
                let count = random.below(3) + 1;
                let parents = (0..count).map(|_| known[random.index(known.len())]);
                let after = PutAfter {
                    ids: parents.collect(),
                    on: AfterOn::ALL[random.index(2)],
                    if_failed: IfFailed::ALL[random.index(3)],
                    ..PutAfter::default()
                };
                known.extend(self.put(&queue, Some(after)));
            }
            (8..=10, _) => _ = self.all[shard].take(1, take(&[queue], Wait::No, false)),
            (11, Some(id)) => {
                let by = By::Anyone;
                self.ask(self.shard_of(id), Command::Delete { id, by });
            }
            (12, Some(id)) => {
                // It waits for its time once it is free; that is told of in a new record.
                let edit = Edit {
                    due: Some(When::Now),
                    ..Edit::default()
                };
                self.ask(self.shard_of(id), Command::Edit(id, Box::new(edit)));
            }
            (13, Some(id)) => _ = self.ask(self.shard_of(id), Command::KickId(id)),
            (14, _) if random.chance(1, 4) => {
                let reserved = false;
                self.ask(shard, Command::Flush { queue, reserved });
            }
            (15..=16, _) => _ = carry_from(&mut self.all, shard),
            (17..=18, _) => self.all[shard].tick(),
            _ if random.chance(1, 3) => self.turn_segment(),
            _ => self.crash(random.index(4)),
        }
        if random.chance(2, 3) {
            self.write();
        }
    }

    /// All ends; no message waits for one that is gone.
    fn end(&mut self, q: &[Name]) {
        for _ in 0..1000 {
            settle(&mut self.all);
            self.check_watches();
            let mut popped = false;
            for queue in q {
                let shard = super::shard_of_queue(queue.as_bytes(), self.all.len());
                let plain = take(std::slice::from_ref(queue), Wait::No, false);
                popped |= self.all[shard].take(1, plain) != "empty";
            }
            if !popped {
                break;
            }
        }
        self.write();
        let mut alive = BTreeSet::new();
        for fact in self.all.iter().flat_map(|world| world.engine.image()) {
            if let Fact::Image(message, _) = fact {
                alive.insert(message.id);
            }
        }
        for (child, after) in self.records() {
            let waits = |parent: &&Parent| parent.state == ParentState::Waiting;
            for parent in after.parents.iter().filter(waits) {
                let is_there = alive.contains(&parent.id);
                assert!(is_there, "{child:?} waits for {parent:?}, which is gone");
            }
        }
    }

    fn records(&self) -> Vec<(MessageId, After)> {
        let images = self.all.iter().flat_map(|world| world.engine.image());
        let records = images.filter_map(|fact| match fact {
            Fact::Awaits { child, after } => Some((child, *after?)),
            _ => None,
        });
        records.collect()
    }

    /// Where all is carried, exactly those are watched for which somebody waits elsewhere.
    fn check_watches(&self) {
        let mut expected = BTreeSet::new();
        for (child, after) in self.records() {
            for parent in after.parents {
                let (to, of) = (self.shard_of(child), self.shard_of(parent.id));
                if parent.state == ParentState::Waiting && to != of {
                    expected.insert((parent.id, to, ParentState::Waiting));
                }
            }
        }
        let images = self.all.iter().flat_map(|world| world.engine.image());
        let watched = images.filter_map(|fact| match fact {
            Fact::Watched {
                parent,
                shard,
                state,
            } => Some((parent, usize::from(shard), state?)),
            _ => None,
        });
        let watched: BTreeSet<_> = watched.collect();
        assert_eq!(watched, expected);
    }

    /// The log records each freed message once, and of all ends before it.
    fn check_log(&self) {
        let (mut ended, mut freed) = (BTreeMap::new(), BTreeSet::new());
        for frame in &self.frames {
            // Its facts are there together.
            for (_, fact) in frame {
                note_end(fact, &mut ended);
            }
            for (_, fact) in frame {
                if let Fact::Put(message) = fact {
                    // Those that were gone when it was put are known in its own record.
                    let after = message.extra.as_ref().and_then(|e| e.after.as_ref());
                    self.check_ends(&ended, after.map(|after| &**after));
                } else if let Fact::Freed { at, after } = fact {
                    assert!(freed.insert(at.id), "{at:?} is freed twice");
                    assert!(self.held.contains(&at.id), "{at:?} was not held");
                    assert!(after.verdict().is_some(), "{at:?} is freed too early");
                    self.check_ends(&ended, Some(after));
                }
            }
        }
    }

    fn check_ends(&self, ended: &Ends, after: Option<&After>) {
        for parent in after.into_iter().flat_map(|after| &after.parents) {
            let known = ended.get(&parent.id);
            match parent.state {
                ParentState::Waiting => {}
                ParentState::Done => {
                    let is_so = known.is_some_and(|states| states.contains(&ParentState::Done));
                    assert!(is_so, "{parent:?} was not done");
                }
                // A flush tells of none.
                ParentState::Failed => {
                    let done = known.is_some_and(|states| !states.contains(&ParentState::Failed));
                    assert!(!done, "{parent:?} did not fail");
                }
            }
        }
    }
}

/// How each message has ended, by the log.
type Ends = BTreeMap<MessageId, BTreeSet<ParentState>>;

fn note_end(fact: &Fact, ended: &mut Ends) {
    if let Fact::Removed { at, why } = fact {
        let done = matches!(why, Removal::Taken | Removal::Finished);
        let states = ended.entry(at.id).or_default();
        states.insert(ParentState::ended(done));
    } else if let Fact::Buried { at, .. } = fact {
        let states = ended.entry(at.id).or_default();
        states.insert(ParentState::Failed);
    }
}

#[test]
fn held_messages_are_freed_once_over_shards_crashes_and_segments() {
    let cases = std::env::var("QUINTET_CASES").ok();
    let cases = cases.and_then(|text| text.parse().ok()).unwrap_or(400);
    let first = quintet_sim::seeds(0).start;
    for seed in first..first + cases {
        // Shown if the test fails.
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let shards = random.below(3) as u8 + 2;
        let q = names(shards.into());
        let (mut server, mut known) = (Server::new(shards), Vec::new());
        for _ in 0..random.below(120) + 20 {
            server.act(&mut random, &q, &mut known);
        }
        server.end(&q);
        server.check_log();
    }
}
