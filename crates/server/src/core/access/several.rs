//! Commands about queues of several shards.
//!
//! A take goes through them one by one. What changes several in one step locks
//! all of them, in the order of their numbers, so that all its facts are of
//! one frame.

use std::sync::MutexGuard;

use quintet_engine::{
    Across, Answer, Best, Caller, Command, Handed, Hold, Name, Outcome, Put, Refusal, Take, Wait,
};

use super::{Access, Decided, decided};
use crate::core::{Core, Need, Shard};

impl Access<'_> {
    /// Takes from several shards, or sets a standing take.
    pub(super) fn ask_across(
        &mut self,
        caller: Caller,
        mut across: Across,
        command: Command,
    ) -> Decided {
        if let Command::Take(take) = command
            && take.messages_max > 1
            && !take.look
            && !take.held_anywhere
            && let Some(decided) = self.take_many(caller, take)
        {
            return decided;
        }
        let mut answered = Decided::Later;
        while let Some(shard) = across.shard() {
            self.lock(shard);
            let Some((_, guard)) = &mut self.held else {
                break;
            };
            let Shard { engine, batch, .. } = &mut **guard;
            if let Some(answer) = across.step(self.now, engine, batch, self.scratch) {
                answered = decided(self.core, guard, answer);
            }
            self.collect();
        }
        answered
    }

    /// Takes as many as there are, up to the limit, in one step. `None`: there
    /// are none.
    fn take_many(&mut self, caller: Caller, mut take: Take) -> Option<Decided> {
        self.release();
        let (core, now) = (self.core, self.now);
        let wanted = take.messages_max as usize;
        let mut numbers: Vec<usize> = take
            .queues
            .iter()
            .map(|name| core.shard_of_queue(name.as_bytes()))
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut shards: Vec<MutexGuard<'_, Shard>> = numbers
            .into_iter()
            .map(|number| core.lock(number))
            .collect();
        (take.wait, take.deadline_soon_ms, take.messages_max) = (Wait::No, None, 1);
        let (mut handed, mut from, mut need) = (Handed::new(), Name::default(), Need::default());
        while handed.len() < wanted {
            let mut first: Option<(Best, usize)> = None;
            for (at, shard) in shards.iter_mut().enumerate() {
                let Shard { engine, batch, .. } = &mut **shard;
                let found = engine.best_for(now, &take, batch, self.scratch);
                core.collect(shard, self.scratch, self.out);
                if let Some(found) = found
                    && first.is_none_or(|(first, _)| first.is_worse_than(found, take.end))
                {
                    first = Some((found, at));
                }
            }
            let Some((_, at)) = first else { break };
            let Shard { engine, batch, .. } = &mut *shards[at];
            let command = Command::Take(take.clone());
            let answer = engine.submit(now, caller, command, batch, self.scratch);
            core.collect(&mut shards[at], self.scratch, self.out);
            let Decided::Now(outcome, name, held) = decided(core, &mut shards[at], answer) else {
                break;
            };
            need = need.and(held);
            match outcome {
                Outcome::Messages(messages) => {
                    if handed.is_empty() {
                        from = name;
                    }
                    handed.extend(messages);
                }
                other if handed.is_empty() => {
                    let guards: Vec<&Shard> = shards.iter().map(|shard| &**shard).collect();
                    self.leave(&guards);
                    return Some(Decided::Now(other, name, need));
                }
                _ => break,
            }
            // Counted once, as for a take from one shard.
            take.refuse_if_held = 0;
            if let Some(lease) = &mut take.lease {
                lease.held_max = 0;
            }
        }
        let guards: Vec<&Shard> = shards.iter().map(|shard| &**shard).collect();
        self.leave(&guards);
        (!handed.is_empty()).then(|| Decided::Now(Outcome::Messages(handed), from, need))
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
        self.release();
        let (core, now) = (self.core, self.now);
        let (mut from, mut into) = core.lock_two(from, into);
        if let Err(refusal) = into.engine.may_receive(to) {
            return refused(core, &mut into, refusal);
        }
        let Shard { engine, batch, .. } = &mut *from;
        let answer = engine.submit(now, caller, command, batch, self.scratch);
        core.collect(&mut from, self.scratch, self.out);
        core.carry_between(
            &mut from,
            &mut into,
            now,
            usize::MAX,
            self.scratch,
            self.out,
        );
        self.leave(&[&from, &into]);
        // No move waits.
        let Answer::Now(outcome, hold) = answer else {
            return Decided::Later;
        };
        let waits = core.waits_for_disk();
        let need = from.need(hold, &core.progress, waits);
        let need = need.and(into.need(hold, &core.progress, waits));
        Decided::Now(outcome, Name::default(), need)
    }

    /// Stores all of these or none.
    pub(super) fn put_many(&mut self, caller: Caller, puts: Vec<Put>) -> Decided {
        self.release();
        let (core, now) = (self.core, self.now);
        let mut parts: Vec<Part> = (0..core.shards.len()).map(|_| Part::default()).collect();
        let count = puts.len();
        for (at, put) in puts.into_iter().enumerate() {
            let part = &mut parts[core.shard_of_queue(put.queue.as_bytes())];
            part.places.push(at);
            part.puts.push(put);
        }
        let mut shards: Vec<(MutexGuard<'_, Shard>, Part)> = parts
            .into_iter()
            .enumerate()
            .filter(|(_, part)| !part.puts.is_empty())
            .map(|(number, part)| (core.lock(number), part))
            .collect();
        let mut no = None;
        for (shard, part) in &mut shards {
            let Shard { engine, batch, .. } = &mut **shard;
            let may = engine.may_put_many(now, &part.puts, batch, self.scratch);
            core.collect(shard, self.scratch, self.out);
            if let Err(refusal) = may {
                no = Some(refused(core, shard, refusal));
                break;
            }
        }
        let mut ids = vec![Default::default(); count];
        let mut need = Need::default();
        for (shard, part) in &mut shards {
            if no.is_some() {
                break;
            }
            let command = Command::PutMany(std::mem::take(&mut part.puts));
            let Shard { engine, batch, .. } = &mut **shard;
            let answer = engine.submit(now, caller, command, batch, self.scratch);
            core.collect(shard, self.scratch, self.out);
            // Found good under the same lock, and no put waits.
            if let Answer::Now(Outcome::PutMany(stored), _) = answer {
                for (place, id) in part.places.iter().zip(stored) {
                    ids[*place] = id;
                }
            }
            need = need.and(shard.need(Hold::Durable, &core.progress, core.waits_for_disk()));
        }
        let guards: Vec<&Shard> = shards.iter().map(|(shard, _)| &**shard).collect();
        self.leave(&guards);
        no.unwrap_or_else(|| Decided::Now(Outcome::PutMany(ids), Name::default(), need))
    }

    /// Notes what was recorded, and what is due, before shards are unlocked.
    pub(super) fn leave(&mut self, shards: &[&Shard]) {
        for shard in shards {
            if !shard.batch.is_empty() {
                self.recorded = self.core.progress.open();
            }
            // What a shard has sent elsewhere is due at once: the timer
            // carries it.
            self.core.timer.notify(shard.engine.next_deadline());
        }
    }
}

/// The puts for one shard, and where they stood in the list.
#[derive(Default)]
struct Part {
    puts: Vec<Put>,
    places: Vec<usize>,
}

pub(super) fn refused(core: &Core, shard: &mut Shard, refusal: Refusal) -> Decided {
    let hold = super::hold_of(refusal);
    let need = shard.need(hold, &core.progress, core.waits_for_disk());
    Decided::Now(Outcome::Refused(refusal), Name::default(), need)
}
