//! Commands about queues of several shards.
//!
//! A take goes through them one by one. What changes several in one step locks
//! all of them, in the order of their numbers, so that all its facts are of
//! one frame.

use std::collections::{BTreeMap, BTreeSet};

use quintet_engine::{Across, ShardBest};
use quintet_types::{
    Answer, BatchId, Caller, Command, CommandError, Handed, Hold, MessageId, Name, Outcome, Put,
    Take, Wait,
};

use super::{Access, Decided};
use crate::Required;

impl Access<'_> {
    /// Takes from several shards, or sets a subscription.
    pub(super) fn ask_across(
        &mut self,
        caller: Caller,
        mut across: Across,
        command: Command,
    ) -> Decided {
        if let Command::Take(take) = command
            && take.messages_max > 1
            && !take.peek
            && !take.held_anywhere
            && let Some(decided) = self.take_many(caller, take)
        {
            return decided;
        }
        let mut answered = Decided::Later;
        while let Some(shard) = across.shard() {
            let answer = self.step(shard, |at| {
                across.step(at.now, at.engine, at.journal, at.deliveries)
            });
            if let Some(answer) = answer {
                answered = self.decided(shard, answer);
            }
        }
        answered
    }

    /// Takes as many as there are, up to the limit, in one step. `None`: there
    /// are none.
    fn take_many(&mut self, caller: Caller, mut take: Take) -> Option<Decided> {
        let wanted = take.messages_max as usize;
        let numbers = take.queues.iter();
        let mut shards: Vec<usize> = numbers
            .map(|name| self.core.shard_of_queue(name.as_bytes()))
            .collect();
        shards.sort_unstable();
        shards.dedup();
        self.hold_all(shards.iter().copied());
        (take.wait, take.deadline_soon_ms, take.messages_max) = (Wait::No, None, 1);
        let (mut handed, mut from, mut required) =
            (Handed::new(), Name::default(), Required::default());
        while handed.len() < wanted {
            let mut first: Option<(ShardBest, usize)> = None;
            for &shard in &shards {
                let found = self.step(shard, |at| {
                    at.engine.best_for(at.now, &take, at.journal, at.deliveries)
                });
                if let Some(found) = found
                    && first.is_none_or(|(first, _)| first.is_worse_than(found, take.end))
                {
                    first = Some((found, shard));
                }
            }
            let Some((_, shard)) = first else { break };
            let command = Command::Take(take.clone());
            let Decided::Now(outcome, name, held) = self.ask(shard, caller, command) else {
                break;
            };
            required = required.and(held);
            if let Outcome::Messages(messages) = outcome {
                if handed.is_empty() {
                    from = name;
                }
                handed.extend(messages);
            } else if handed.is_empty() {
                self.release();
                return Some(Decided::Now(outcome, name, required));
            } else {
                break;
            }
            // Counted once, as for a take from one shard.
            take.refuse_if_held = 0;
            if let Some(lease) = &mut take.lease {
                lease.held_max = 0;
            }
        }
        self.release();
        (!handed.is_empty()).then(|| Decided::Now(Outcome::Messages(handed), from, required))
    }

    /// Moves messages of shard `from` to the queue `to` of shard `into`.
    pub(super) fn move_between(
        &mut self,
        from: usize,
        into: usize,
        to: &Name,
        caller: Caller,
        command: Command,
    ) -> Decided {
        self.hold_all([from, into]);
        let decided = match self.step(into, |at| at.engine.may_receive(to, &command)) {
            Err(command_error) => self.refused(into, command_error),
            Ok(()) => match self.ask(from, caller, command) {
                Decided::Now(outcome, name, required) => {
                    self.carry_held(from, into, usize::MAX);
                    let required = required.and(self.required(into, Hold::Durable));
                    Decided::Now(outcome, name, required)
                }
                // No move waits.
                Decided::Later => Decided::Later,
            },
        };
        self.release();
        decided
    }

    /// Stores a message in shard `into` that is about other shards too.
    pub(super) fn put_with_others(
        &mut self,
        into: usize,
        caller: Caller,
        command: Command,
    ) -> Decided {
        let Command::Put(mut put) = command else {
            return self.ask(into, caller, command);
        };
        let others = self.others_of(&put);
        self.hold_all(others.iter().copied().chain([into]));
        let decided = match self.ask_parents(caller.principal, [(into, &mut put)]) {
            Err((shard, command_error)) => self.refused(shard, command_error),
            Ok(parents) => {
                let batch = put.batch();
                let batch = batch.map(|batch| (batch, self.core.shard_of_id(batch.as_id())));
                let batch = batch.filter(|(_, batch_shard)| *batch_shard != into);
                let answer = self.put_held(into, batch, caller, put);
                let mut decided = self.decided(into, answer);
                let also = self.watch_parents(&parents);
                // No put waits that is decided as a part of a step.
                if let Decided::Now(_, _, required) = &mut decided {
                    *required = required.and(also);
                    if let Some((_, batch_shard)) = batch {
                        *required = required.and(self.required(batch_shard, Hold::Durable));
                    }
                }
                decided
            }
        };
        self.release();
        decided
    }

    /// Stores all of these or none, and counts those that belong to batches there.
    pub(super) fn put_many(&mut self, caller: Caller, puts: Vec<Put>) -> Decided {
        let count = puts.len();
        let mut parts: BTreeMap<usize, Part> = BTreeMap::new();
        // With the shards of their batches.
        let mut others = BTreeSet::new();
        for (at, put) in puts.into_iter().enumerate() {
            let shard = self.core.shard_of_queue(put.queue.as_bytes());
            let part = parts.entry(shard).or_default();
            part.places.push(at);
            part.batches.extend(put.batch());
            others.extend(self.others_of(&put));
            part.puts.push(put);
        }
        let batch_shards = self.batch_shards_of(parts.values().flat_map(|part| &part.batches));
        self.hold_all(parts.keys().copied().chain(others));
        let decided = self.put_parts(caller, &mut parts, &batch_shards, count);
        self.release();
        decided
    }

    pub(super) fn batch_shards_of<'b>(
        &self,
        batches: impl Iterator<Item = &'b BatchId>,
    ) -> BatchShards {
        batches
            .map(|&batch| (batch, self.core.shard_of_id(batch.as_id())))
            .collect()
    }

    /// Asks whether members may be added to all of these; their shards are held.
    ///
    /// # Errors
    /// To one they may not: its shard, and why.
    pub(super) fn may_join(
        &mut self,
        caller: Caller,
        batch_shards: &BatchShards,
    ) -> Result<(), (usize, CommandError)> {
        for (&batch, &batch_shard) in batch_shards {
            let may = self.step(batch_shard, |at| {
                at.engine.may_join(caller.principal, batch)
            });
            may.map_err(|command_error| (batch_shard, command_error))?;
        }
        Ok(())
    }

    /// Counts in batches the members that `shard` has just stored; all are held. Answers what a
    /// reply waits for.
    pub(super) fn joined(
        &mut self,
        shard: usize,
        batches: &BTreeSet<BatchId>,
        batch_shards: &BatchShards,
    ) -> Required {
        let mut required = Required::default();
        for &batch in batches {
            let batch_shard = batch_shards[&batch];
            if batch_shard != shard {
                self.carry_owed_held(batch, shard, batch_shard);
                required = required.and(self.required(batch_shard, Hold::Durable));
            }
        }
        required
    }

    /// The shards of their queues and of their batches are held.
    fn put_parts(
        &mut self,
        caller: Caller,
        parts: &mut BTreeMap<usize, Part>,
        batch_shards: &BatchShards,
        count: usize,
    ) -> Decided {
        if let Err((batch_shard, command_error)) = self.may_join(caller, batch_shards) {
            return self.refused(batch_shard, command_error);
        }
        let puts = parts.iter_mut();
        let puts =
            puts.flat_map(|(&shard, part)| part.puts.iter_mut().map(move |put| (shard, put)));
        let parents = match self.ask_parents(caller.principal, puts) {
            Ok(parents) => parents,
            Err((shard, command_error)) => return self.refused(shard, command_error),
        };
        for (&shard, part) in parts.iter_mut() {
            let may = self.step(shard, |at| {
                at.engine
                    .may_put_many(at.now, caller, &mut part.puts, at.journal, at.deliveries)
            });
            if let Err(command_error) = may {
                return self.refused(shard, command_error);
            }
        }
        let mut ids = vec![MessageId::default(); count];
        let mut required = Required::default();
        for (&shard, part) in parts {
            let command = Command::PutMany(std::mem::take(&mut part.puts));
            // As a part it waits for nothing, neither for room in memory: it
            // would be answered before it is stored.
            let answer = self.step(shard, |at| {
                at.engine
                    .submit_part(at.now, caller, command, at.journal, at.deliveries)
            });
            let Answer::Now(Outcome::PutMany(stored), _) = answer else {
                panic!("a list found good under the same lock is stored, not {answer:?}");
            };
            for (position, id) in part.places.iter().zip(stored) {
                ids[*position] = id;
            }
            required = required.and(self.required(shard, Hold::Durable));
            required = required.and(self.joined(shard, &part.batches, batch_shards));
        }
        required = required.and(self.watch_parents(&parents));
        Decided::Now(Outcome::PutMany(ids), Name::default(), required)
    }
}

pub(super) type BatchShards = BTreeMap<BatchId, usize>;

/// The puts for one shard, and where they stood in the list.
#[derive(Default)]
struct Part {
    puts: Vec<Put>,
    places: Vec<usize>,
    batches: BTreeSet<BatchId>,
}
