//! Run files without files: what was written stays, and can be read again.

use quintet_engine::read_message;
use quintet_engine::write_message;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use quintet_engine::*;
use quintet_types::*;

use super::world::{Checked, World};

/// A block's place and its messages as bytes.
type SimBlock = (BlockAt, Vec<Vec<u8>>);

/// All runs that were written and not deleted.
#[derive(Default)]
pub(crate) struct Runs {
    blocks: BTreeMap<BlockAt, Vec<Vec<u8>>>,
    next: u32,
}

impl Runs {
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    fn read(&self, at: BlockAt) -> Option<Vec<(u32, Message)>> {
        let entries = self.blocks.get(&at)?;
        let message = |(n, bytes): (usize, &Vec<u8>)| {
            let message = read_message(bytes).expect("encoded by us");
            (at.ordinal + n as u32, message)
        };
        Some(entries.iter().enumerate().map(message).collect())
    }

    fn find(&self, is: impl Fn(&Message) -> bool) -> Vec<(RunId, u32)> {
        let mut found = Vec::new();
        for &at in self.blocks.keys() {
            for (ordinal, message) in self.read(at).unwrap_or_default() {
                if is(&message) {
                    found.push((at.run, ordinal));
                }
            }
        }
        found
    }

    /// Those of a block that have not left.
    pub(crate) fn living(&self, run: RunId, block: &Block, dead: Option<&[u64]>) -> Vec<Message> {
        let at = BlockAt {
            run,
            ordinal: block.ordinal,
        };
        let alive = |ordinal: u32| {
            let n = (ordinal - block.ordinal) as usize;
            dead.is_none_or(|dead| dead[n / 64] & (1 << (n % 64)) == 0)
        };
        let messages = self.read(at).expect("a block in force exists").into_iter();
        messages
            .filter(|(ordinal, _)| alive(*ordinal))
            .map(|(_, message)| message)
            .collect()
    }

    fn forget(&mut self, run: RunId) {
        self.blocks.retain(|at, _| at.run != run);
    }

    fn write(&mut self, run: RunId, ordinal: u32, messages: &[&Message]) {
        let bytes = |message: &&Message| {
            let mut out = Vec::new();
            write_message(message, &mut out);
            out
        };
        let block: SimBlock = (
            BlockAt { run, ordinal },
            messages.iter().map(bytes).collect(),
        );
        self.blocks.insert(block.0, block.1);
    }
}

impl World {
    pub(crate) fn pick(&mut self, bytes: u64) {
        let mut spill = Spill::of(bytes);
        while self.core.engine.plan_spill(&mut spill, 2, 1) {}
        let mut spill = spill.planned();
        while self.core.engine.pick(&mut spill, 2, &mut self.picked) {}
    }

    /// Writes what was chosen before, and what is chosen now, as one run.
    pub(crate) fn evict(&mut self, bytes: Option<u64>, size: usize) {
        match bytes {
            Some(bytes) => self.pick(bytes),
            None => {
                let segment_ref = self.log[0].segment_ref;
                let mut from = Some(0);
                while let Some(at) = from {
                    from = self
                        .core
                        .engine
                        .pick_segment_ref(segment_ref, at, 3, &mut self.picked);
                }
            }
        }
        let mut picked = std::mem::take(&mut self.picked);
        picked.sort_by_key(|p| {
            (
                p.message.queue,
                p.state_index,
                p.state_index.order(&p.message),
            )
        });
        let run = RunId(self.runs.next);
        self.runs.next += 1;
        let (mut ordinal, mut number) = (0, 0);
        let mut group = Vec::new();
        for state_index in picked
            .chunk_by(|a, b| (a.message.queue, a.state_index) == (b.message.queue, b.state_index))
        {
            for block in state_index.chunks(size) {
                let messages: Vec<&Message> = block.iter().map(|p| &p.message).collect();
                self.runs.write(run, ordinal, &messages);
                let written = Written {
                    number,
                    ordinal,
                    queue: block[0].message.queue,
                    state_index: block[0].state_index,
                    entries: block.iter().map(|p| (p.message.id, p.pick)).collect(),
                };
                self.core.engine.evict(run, &written, &mut group);
                ordinal += block.len() as u32;
                number += 1;
            }
        }
        self.record(group);
        if !self.core.engine.needs_run(run) {
            self.runs.forget(run);
        }
    }

    pub(crate) fn unload(&mut self, keep: usize) {
        let mut group = Vec::new();
        while self.core.engine.unload_oldest(keep, &mut group) {}
        self.record(group);
    }

    /// Writes all runs but the newest `keep` again as one.
    pub(crate) fn rewrite(&mut self, keep: usize) {
        let all = self.core.engine.runs();
        let old: Vec<RunId> = all[..all.len().saturating_sub(keep)]
            .iter()
            .map(|(run, ..)| *run)
            .collect();
        let mut entries: Vec<(QueueId, StateIndex, EntryFacts, RunId, u32, Message)> = Vec::new();
        for &run in &old {
            for block in self.core.engine.blocks_of(run) {
                let at = BlockAt {
                    run,
                    ordinal: block.ordinal,
                };
                for (ordinal, message) in self.runs.read(at).expect("in force") {
                    // Some die between the look and the deed.
                    if self.core.engine.is_alive_in(run, ordinal) || ordinal % 2 == 0 {
                        let facts = EntryFacts::of(&message, block.state_index);
                        entries.push((
                            block.queue,
                            block.state_index,
                            facts,
                            run,
                            ordinal,
                            message,
                        ));
                    }
                }
            }
        }
        if old.is_empty() {
            return;
        }
        entries.sort_by_key(|(queue, state_index, facts, ..)| (*queue, *state_index, facts.order));
        let run = RunId(self.runs.next);
        self.runs.next += 1;
        let (mut blocks, mut ordinal) = (Vec::new(), 0);
        for state_index in entries.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            for block in state_index.chunks(2) {
                let messages: Vec<&Message> = block.iter().map(|entry| &entry.5).collect();
                self.runs.write(run, ordinal, &messages);
                blocks.push(Rewritten {
                    number: blocks.len() as u32,
                    ordinal,
                    queue: block[0].0,
                    state_index: block[0].1,
                    entries: block.iter().map(|e| (e.2, e.3, e.4)).collect(),
                });
                ordinal += block.len() as u32;
            }
        }
        let mut group = Vec::new();
        let deliveries = &mut self.core.deliveries;
        self.core
            .engine
            .replace_runs(self.core.now, &old, run, &blocks, &mut group, deliveries);
        self.record(group);
    }

    /// Messages that have expired and are in runs only: they must be read before they can go.
    pub(crate) fn expired_in_runs(&self) -> BTreeSet<MessageId> {
        let now = self.core.now;
        self.unloaded(|m| m.is_expired(now) || is_buried_over(m, now))
    }

    /// Those for which this is true of what is in blocks that are not in memory.
    pub(crate) fn unloaded(&self, is_one: impl Fn(&Message) -> bool) -> BTreeSet<MessageId> {
        let mut found = BTreeSet::new();
        for fact in self.core.engine.image() {
            if let Fact::RunImage { run, block, dead } = fact
                && !self.core.engine.is_loaded(BlockAt {
                    run,
                    ordinal: block.ordinal,
                })
            {
                let living = self.runs.living(run, &block, dead.as_deref());
                found.extend(living.iter().filter(|m| is_one(m)).map(|m| m.id));
            }
        }
        found
    }

    /// Reads what the engine asks for, until it asks for nothing.
    pub(crate) fn read_runs(&mut self) -> Checked {
        for round in 0.. {
            let wants = self.core.engine.take_wants();
            if wants.is_empty() {
                break;
            }
            prop_assert!(round < 200, "it asks again and again: {wants:?}");
            let found = wants.into_iter().filter_map(|want| match want {
                Want::Room => None,
                Want::Block(at, _) => Some(LookupResult::Block(at, self.runs.read(at))),
                Want::Id(id) => Some(LookupResult::Id(
                    id,
                    self.runs.find(|message| message.id == id),
                )),
                Want::Key(queue, key) => {
                    let found = self.runs.find(|message| message.key() == Some(&key));
                    Some(LookupResult::Key(queue, key, found))
                }
            });
            let found: Vec<LookupResult> = found.collect();
            let mut group = Vec::new();
            self.core
                .engine
                .supply(self.core.now, found, &mut group, &mut self.core.deliveries);
            self.record(group);
        }
        for run in self.core.engine.take_dead_runs() {
            self.runs.forget(run);
        }
        Ok(())
    }

    /// The answer to a command that had to wait for a run.
    pub(crate) fn parked(&mut self, client_id: ClientId) -> Option<Outcome> {
        let is_its = |delivery: &Delivery| delivery.to == client_id && !delivery.standing;
        let at = self.core.deliveries.iter().position(is_its)?;
        Some(self.core.deliveries.remove(at).outcome)
    }
}

fn is_buried_over(message: &Message, now: Ms) -> bool {
    let until = message.extra.as_ref().and_then(|extra| extra.buried_until);
    message.state == State::Buried && until.is_some_and(|until| until <= now)
}
