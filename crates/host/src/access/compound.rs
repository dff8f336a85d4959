//! What a hook decided, over several shards.
//!
//! All shards it is about are locked, in the order of their numbers, every
//! part is found good, and then every part is done: all its facts are of one
//! frame. A take over several shards comes after that, in steps of its own.

use std::collections::{BTreeMap, BTreeSet};

use quintet_engine::{
    BatchId, Caller, Command, Compound, Effect, Guard, Hold, MessageId, Name, Outcome, Put, Refusal,
};

use super::several::Homes;
use super::{Access, Decided, Route};
use crate::Need;

/// What one shard is to do, and where its puts stood among all.
#[derive(Default)]
struct Part {
    compound: Compound,
    puts: Vec<usize>,
    /// Batches of what it stores.
    batches: BTreeSet<BatchId>,
}

impl Access<'_> {
    pub(super) fn ask_compound(&mut self, caller: Caller, compound: Compound) -> Decided {
        let Compound {
            guards,
            effects,
            then,
        } = compound;
        let mut parts: BTreeMap<usize, Part> = BTreeMap::new();
        for guard in guards {
            let shard = match &guard {
                Guard::Message { id, .. } => self.core.shard_of_id(*id),
                Guard::Table { table, .. } => self.core.shard_of_queue(table.as_bytes()),
            };
            parts.entry(shard).or_default().compound.guards.push(guard);
        }
        let mut puts = 0;
        for effect in effects {
            let shard = match &effect {
                Effect::Put(put) => self.core.shard_of_queue(put.queue.as_bytes()),
                Effect::Set { table, .. } => self.core.shard_of_queue(table.as_bytes()),
                Effect::Settle { id, .. }
                | Effect::Delete(id)
                | Effect::Move { id, .. }
                | Effect::Kick(id)
                | Effect::Edit(id, _)
                | Effect::Conclude(id) => self.core.shard_of_id(*id),
            };
            let part = parts.entry(shard).or_default();
            if let Effect::Put(put) = &effect {
                part.puts.push(puts);
                puts += 1;
                part.batches.extend(put.batch());
            }
            part.compound.effects.push(effect);
        }
        // The command goes with the part of its shard, if it has one.
        let mut last = None;
        let mut home = None;
        match then.map(|then| *then) {
            None => {}
            Some(Command::Compound(_)) => {
                return Decided::Now(
                    Outcome::Refused(Refusal::NotPermitted),
                    Name::default(),
                    Need::default(),
                );
            }
            Some(then) => match self.route(caller.party, &then) {
                Route::One(shard) => {
                    let part = parts.entry(shard).or_default();
                    if let Command::Put(put) = &then {
                        part.batches.extend(put.batch());
                    } else if let Command::PutMany(puts) = &then {
                        part.batches.extend(puts.iter().filter_map(Put::batch));
                    }
                    part.compound.then = Some(Box::new(then));
                    home = Some(shard);
                }
                Route::All
                | Route::InTurn
                | Route::Across(_)
                | Route::Between(..)
                | Route::Member(..)
                | Route::Together => {
                    last = Some(then);
                }
            },
        }
        if parts.is_empty() && last.is_none() {
            // Nothing to do is done.
            parts.insert(0, Part::default());
        }
        let homes = self.homes_of(parts.values().flat_map(|part| &part.batches));
        if let [(shard, _)] = parts
            .iter()
            .map(|(shard, part)| (*shard, part))
            .collect::<Vec<_>>()[..]
            && last.is_none()
            && homes.values().all(|home| *home == shard)
        {
            let part = parts.remove(&shard).unwrap_or_default();
            return self.ask(shard, caller, Command::Compound(Box::new(part.compound)));
        }
        self.ask_parts(caller, (parts, homes), puts, home, last)
    }

    fn ask_parts(
        &mut self,
        caller: Caller,
        (parts, homes): (BTreeMap<usize, Part>, Homes),
        puts: usize,
        home: Option<usize>,
        last: Option<Command>,
    ) -> Decided {
        self.hold_all(parts.keys().chain(homes.values()).copied());
        let done = match self.may_join(caller, &homes) {
            Err((home, refusal)) => self.refused(home, refusal),
            Ok(()) => self.do_parts(caller, (parts, homes), puts, home),
        };
        self.release();
        match (done, last) {
            (Decided::Now(Outcome::Compound { ids, .. }, _, need), Some(command)) => {
                match self.decide(caller, command) {
                    Decided::Later => Decided::Later,
                    Decided::Now(outcome, name, own) => {
                        let then = Some(Box::new(outcome));
                        Decided::Now(Outcome::Compound { ids, then }, name, need.and(own))
                    }
                }
            }
            (done, _) => done,
        }
    }

    /// Finds every part good and does it; their shards are held. The part
    /// `home` has the command.
    fn do_parts(
        &mut self,
        caller: Caller,
        (mut parts, homes): (BTreeMap<usize, Part>, Homes),
        puts: usize,
        home: Option<usize>,
    ) -> Decided {
        for (&shard, part) in &parts {
            let may = self.step(shard, |at| {
                let compound = &part.compound;
                at.engine
                    .may_compound(at.now, caller.party, compound, at.journal, at.deliveries)
            });
            if let Err(refusal) = may {
                return self.refused(shard, refusal);
            }
        }
        let mut ids = vec![MessageId(0); puts];
        let mut need = Need::default();
        let (mut then, mut name, mut later) = (None, Name::default(), false);
        // The command's own shard first: its refusal is the refusal of all.
        let mut order: Vec<usize> = parts.keys().copied().collect();
        order.sort_by_key(|shard| (Some(*shard) != home, *shard));
        for shard in order {
            let Some(part) = parts.get_mut(&shard) else {
                continue;
            };
            let batches = std::mem::take(&mut part.batches);
            let command = Command::Compound(Box::new(std::mem::take(&mut part.compound)));
            let answer = self.step(shard, |at| {
                at.engine
                    .submit_part(at.now, caller, command, at.journal, at.deliveries)
            });
            let is_home = Some(shard) == home;
            let answer = self.decided(shard, answer);
            need = need.and(self.need(shard, Hold::Durable));
            need = need.and(self.joined(shard, &batches, &homes));
            match answer {
                Decided::Now(
                    Outcome::Compound {
                        ids: stored,
                        then: own,
                    },
                    own_name,
                    _,
                ) => {
                    for (place, id) in part.puts.iter().zip(stored) {
                        ids[*place] = id;
                    }
                    if is_home {
                        (then, name) = (own, own_name);
                    }
                }
                Decided::Now(refusal, ..) if is_home => {
                    return Decided::Now(refusal, Name::default(), need);
                }
                Decided::Now(..) => {}
                Decided::Later => later |= is_home,
            }
        }
        if later {
            return Decided::Later;
        }
        Decided::Now(Outcome::Compound { ids, then }, name, need)
    }
}
