//! A hook's decision, over several shards.
//!
//! All shards it is about are locked, in the order of their numbers, every
//! part is found good, and then every part is done: all its facts are of one
//! frame. A list of puts is a part of each shard's. A take over several shards
//! comes after that, in steps of its own.

use std::collections::{BTreeMap, BTreeSet};

use quintet_types::{
    BatchId, Caller, Command, CommandError, Effect, Guard, Hold, MessageId, Name, Outcome,
    Principal, Put, Transaction,
};

use super::afar::Parents;
use super::{Access, Decided, Route};
use crate::{Core, Required};

/// The part of one shard, and where its puts stood among all.
#[derive(Default)]
struct Part {
    transaction: Transaction,
    puts: Vec<usize>,
    /// Where those of its command stood in the list, if this is a part of one.
    listed: Vec<usize>,
    /// Batches of what it stores.
    batches: BTreeSet<BatchId>,
}

/// A step by shards.
#[derive(Default)]
struct Parts {
    of: BTreeMap<usize, Part>,
    /// The shards of messages for which it puts some that are held, and of batches.
    others: BTreeSet<usize>,
    /// Batches that it makes.
    made: BTreeSet<BatchId>,
    /// Batches that it puts something into: of what the hook puts, and of the command.
    joined: [BTreeSet<BatchId>; 2],
    /// Puts among the effects.
    puts: usize,
    /// Puts of the command, if that is a list of them.
    listed: Option<usize>,
    /// The shard whose part has the command, if one has it alone.
    own_shard: Option<usize>,
    /// A command that comes after the parts, in steps of its own.
    last: Option<Command>,
}

/// The shard in which an effect is.
fn shard_of(core: &Core, effect: &Effect) -> usize {
    match effect {
        Effect::Put(put) => core.shard_of_queue(put.queue.as_bytes()),
        Effect::Set { table, .. } => core.shard_of_queue(table.as_bytes()),
        Effect::Hold { queue, .. } => core.shard_of_queue(queue.as_bytes()),
        Effect::Settle { id, .. }
        | Effect::Delete(id)
        | Effect::Cancel(id, _)
        | Effect::Move { id, .. }
        | Effect::Kick(id)
        | Effect::Edit(id, _)
        | Effect::Conclude(id) => core.shard_of_id(*id),
        Effect::MakeBatch { id, .. } | Effect::CommitBatch(id) => core.shard_of_id(id.as_id()),
    }
}

impl Access<'_> {
    pub(super) fn ask_transaction(&mut self, caller: Caller, transaction: Transaction) -> Decided {
        let Transaction {
            guards,
            effects,
            then,
        } = transaction;
        let mut parts = self.parts_of(guards, effects);
        match then.map(|then| *then) {
            None => {}
            Some(Command::Transaction(_)) => {
                return super::refused_at_once(CommandError::NotPermitted);
            }
            Some(Command::PutMany(list)) => self.add_list(&mut parts, list),
            Some(then) => self.add_command(&mut parts, caller, then),
        }
        if parts.of.is_empty() && parts.last.is_none() {
            // Nothing to do is done.
            parts.of.insert(0, Part::default());
        }
        if let (1, Some((&shard, _))) = (parts.of.len(), parts.of.first_key_value())
            && parts.last.is_none()
            && parts.others.iter().all(|other| *other == shard)
        {
            let part = parts.of.remove(&shard).unwrap_or_default();
            let command = Command::Transaction(Box::new(part.transaction));
            return self.ask(shard, caller, command);
        }
        self.ask_parts(caller, parts)
    }

    /// Guards and effects by shards.
    fn parts_of(&self, guards: Vec<Guard>, effects: Vec<Effect>) -> Parts {
        let mut parts = Parts::default();
        for guard in guards {
            let shard = match &guard {
                Guard::Message { id, .. } => self.core.shard_of_id(*id),
                Guard::Table { table, .. } => self.core.shard_of_queue(table.as_bytes()),
            };
            let part = parts.of.entry(shard).or_default();
            part.transaction.guards.push(guard);
        }
        for effect in effects {
            let shard = shard_of(self.core, &effect);
            let part = parts.of.entry(shard).or_default();
            if let Effect::MakeBatch { id, .. } = &effect {
                parts.made.insert(*id);
            }
            if let Effect::Put(put) = &effect {
                part.puts.push(parts.puts);
                parts.puts += 1;
                parts.others.extend(self.others_of(put));
                parts.joined[0].extend(put.batch());
                part.batches.extend(put.batch());
            }
            part.transaction.effects.push(effect);
        }
        parts
    }

    /// The command is a list of puts, of which each shard has a part.
    fn add_list(&self, parts: &mut Parts, list: Vec<Put>) {
        parts.listed = Some(list.len());
        let mut by_shard: BTreeMap<usize, Vec<Put>> = BTreeMap::new();
        for (at, put) in list.into_iter().enumerate() {
            let shard = self.core.shard_of_queue(put.queue.as_bytes());
            parts.others.extend(self.others_of(&put));
            parts.joined[1].extend(put.batch());
            let part = parts.of.entry(shard).or_default();
            part.listed.push(at);
            part.batches.extend(put.batch());
            by_shard.entry(shard).or_default().push(put);
        }
        for (shard, list) in by_shard {
            let part = parts.of.entry(shard).or_default();
            part.transaction.then = Some(Box::new(Command::PutMany(list)));
        }
    }

    /// The command goes with the part of its shard, if it has one.
    fn add_command(&self, parts: &mut Parts, caller: Caller, then: Command) {
        let (Route::One(shard) | Route::WithOthers(shard)) = self.route(caller.client_id, &then)
        else {
            parts.last = Some(then);
            return;
        };
        let part = parts.of.entry(shard).or_default();
        if let Command::Put(put) = &then {
            parts.joined[1].extend(put.batch());
            parts.others.extend(self.others_of(put));
        }
        part.batches.extend(&parts.joined[1]);
        part.transaction.then = Some(Box::new(then));
        parts.own_shard = Some(shard);
    }

    fn ask_parts(&mut self, caller: Caller, mut parts: Parts) -> Decided {
        let shards = parts.of.keys().chain(&parts.others);
        self.hold_all(shards.copied());
        // What a hook puts it puts as the server; the command is its caller's.
        let requested = |batches| self.batch_shards_of(BTreeSet::difference(batches, &parts.made));
        let [hooks, own] = parts.joined.each_ref().map(requested);
        let last = parts.last.take();
        let may = self.may_join(Caller::server(caller.client_id), &hooks);
        let done = match may.and_then(|()| self.may_join(caller, &own)) {
            Err((batch_shard, command_error)) => self.refused(batch_shard, command_error),
            Ok(()) => self.do_parts(caller, parts),
        };
        self.release();
        match (done, last) {
            (Decided::Now(Outcome::Transaction { ids, .. }, _, required), Some(command)) => {
                match self.decide(caller, command) {
                    Decided::Later => Decided::Later,
                    Decided::Now(outcome, name, own) => {
                        let then = Some(Box::new(outcome));
                        Decided::Now(Outcome::Transaction { ids, then }, name, required.and(own))
                    }
                }
            }
            (done, _) => done,
        }
    }

    /// Asks other shards about the messages for which these parts put some that are held: of what
    /// the hook puts as the server, of the command as its caller.
    fn ask_parents_of_parts(
        &mut self,
        caller: Caller,
        parts: &mut BTreeMap<usize, Part>,
    ) -> Result<Parents, (usize, CommandError)> {
        let (mut hooks, mut own) = (Vec::new(), Vec::new());
        for (&shard, part) in parts {
            for effect in &mut part.transaction.effects {
                if let Effect::Put(put) = effect {
                    hooks.push((shard, put));
                }
            }
            match part.transaction.then.as_deref_mut() {
                Some(Command::Put(put)) => own.push((shard, put)),
                Some(Command::PutMany(puts)) => {
                    own.extend(puts.iter_mut().map(|put| (shard, put)));
                }
                _ => {}
            }
        }
        let mut parents = self.ask_parents(Principal::SERVER, hooks)?;
        for (held, of) in self.ask_parents(caller.principal, own)? {
            parents.entry(held).or_default().extend(of);
        }
        Ok(parents)
    }

    /// Finds every part good; answers the messages that their puts are held for.
    fn find_good(
        &mut self,
        caller: Caller,
        parts: &mut BTreeMap<usize, Part>,
    ) -> Result<Parents, (usize, CommandError)> {
        let parents = self.ask_parents_of_parts(caller, parts)?;
        for (&shard, part) in parts {
            let may = self.step(shard, |at| {
                let transaction = &mut part.transaction;
                at.engine
                    .may_transaction(at.now, caller, transaction, at.journal, at.deliveries)
            });
            may.map_err(|command_error| (shard, command_error))?;
        }
        Ok(parents)
    }

    /// Finds every part good and does it; their shards are held.
    fn do_parts(&mut self, caller: Caller, parts: Parts) -> Decided {
        let batch_shards = self.batch_shards_of(parts.joined.iter().flatten());
        let (own_shard, mut parts, puts, many) =
            (parts.own_shard, parts.of, parts.puts, parts.listed);
        let parents = match self.find_good(caller, &mut parts) {
            Ok(parents) => parents,
            Err((shard, command_error)) => return self.refused(shard, command_error),
        };
        // They are committed when what the other parts put into them is counted.
        let mut commits = Vec::new();
        for (&shard, part) in &mut parts {
            let effects = &mut part.transaction.effects;
            let taken = effects.extract_if(.., |effect| matches!(effect, Effect::CommitBatch(_)));
            commits.extend(taken.map(|commit| (shard, commit)));
        }
        let mut ids = vec![MessageId(0); puts];
        let mut listed = many.map(|many| vec![MessageId(0); many]);
        let mut required = Required::default();
        let (mut then, mut name, mut later) = (None, Name::default(), false);
        // The command's own shard first: its error is the error of all.
        let mut order: Vec<usize> = parts.keys().copied().collect();
        order.sort_by_key(|shard| (Some(*shard) != own_shard, *shard));
        for &shard in &order {
            let Some(part) = parts.get_mut(&shard) else {
                continue;
            };
            let command = Command::Transaction(Box::new(std::mem::take(&mut part.transaction)));
            let answer = self.step(shard, |at| {
                at.engine
                    .submit_part(at.now, caller, command, at.journal, at.deliveries)
            });
            let is_own_shard = Some(shard) == own_shard;
            let answer = self.decided(shard, answer);
            required = required.and(self.required(shard, Hold::Durable));
            match answer {
                Decided::Now(
                    Outcome::Transaction {
                        ids: stored,
                        then: own,
                    },
                    own_name,
                    _,
                ) => {
                    for (position, id) in part.puts.iter().zip(stored) {
                        ids[*position] = id;
                    }
                    if is_own_shard {
                        (then, name) = (own, own_name);
                    } else if let Some(Outcome::PutMany(stored)) = own.as_deref()
                        && let Some(listed) = &mut listed
                    {
                        for (position, id) in part.listed.iter().zip(stored) {
                            listed[*position] = *id;
                        }
                    }
                }
                Decided::Now(command_error, ..) if is_own_shard => {
                    return Decided::Now(command_error, Name::default(), required);
                }
                Decided::Now(..) => {}
                Decided::Later => later |= is_own_shard,
            }
        }
        required = required.and(self.watch_parents(&parents));
        // All batches are there now.
        for (&shard, part) in &parts {
            required = required.and(self.joined(shard, &part.batches, &batch_shards));
        }
        required = required.and(self.commit_batches(caller, commits));
        if later {
            return Decided::Later;
        }
        if let Some(listed) = listed {
            then = Some(Box::new(Outcome::PutMany(listed)));
        }
        Decided::Now(Outcome::Transaction { ids, then }, name, required)
    }

    /// Does these commits of batches, each in its shard.
    fn commit_batches(&mut self, caller: Caller, commits: Vec<(usize, Effect)>) -> Required {
        let mut required = Required::default();
        for (shard, commit) in commits {
            let command = Command::Transaction(Box::new(Transaction {
                effects: vec![commit],
                ..Transaction::default()
            }));
            self.step(shard, |at| {
                at.engine
                    .submit_part(at.now, caller, command, at.journal, at.deliveries)
            });
            required = required.and(self.required(shard, Hold::Durable));
        }
        required
    }
}
