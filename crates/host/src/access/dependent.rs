//! Puts that wait for messages of other shards.
//!
//! The shards of the queues and of all messages that are waited for are locked together. How those
//! stand is found first; then the puts are stored, and the shards of their parents are told of
//! them: all facts are of one frame.

use std::collections::BTreeSet;

use quintet_types::{
    AFTER_MAX, Caller, Command, CommandError, Hold, MessageId, Outcome, Parent, Put,
};

use super::{Access, Decided};
use crate::Required;

impl Access<'_> {
    /// True if other shards than the queue's have a say in this put: they may have a message that
    /// it waits for.
    pub(super) fn waits_for_other_shards(&self, put: &Put) -> bool {
        let after = put.more.as_ref().and_then(|more| more.after.as_ref());
        after.is_some_and(|after| {
            let into = self.core.shard_of_queue(put.queue.as_bytes());
            let batch = put.batch();
            let elsewhere = |id| self.core.shard_of_id(id) != into;
            !after.names.is_empty()
                || after.parents.iter().any(|parent| elsewhere(parent.id))
                || batch.is_some_and(|batch| elsewhere(batch.as_id()))
        })
    }

    /// Stores messages, of which some wait for messages of other shards; `single`: one, alone.
    pub(super) fn put_dependent(
        &mut self,
        caller: Caller,
        mut puts: Vec<Put>,
        single: bool,
    ) -> Decided {
        let mut shards: BTreeSet<usize> = BTreeSet::new();
        for put in &puts {
            shards.insert(self.core.shard_of_queue(put.queue.as_bytes()));
            let batch = put.batch().map(|batch| batch.as_id());
            let after = put.more.as_ref().and_then(|more| more.after.as_ref());
            let parents = after.into_iter().flat_map(|after| &after.parents);
            let ids = parents.map(|parent| parent.id).chain(batch);
            shards.extend(ids.map(|id| self.core.shard_of_id(id)));
            if after.is_some_and(|after| !after.names.is_empty()) {
                shards.extend(0..self.core.shards.len());
            }
        }
        self.hold_all(shards.iter().copied());
        let done = match self.find_parents(caller, &mut puts) {
            Err((shard, command_error)) => self.refused(shard, command_error),
            Ok(()) => self.put_found(caller, puts, single),
        };
        self.release();
        done
    }

    /// Finds how the messages stand that these wait for; all shards are held.
    ///
    /// # Errors
    /// One is not known, or there are too many: the shard that says so, and why.
    fn find_parents(
        &mut self,
        caller: Caller,
        puts: &mut [Put],
    ) -> Result<(), (usize, CommandError)> {
        for put in puts {
            match self.find_parents_of(caller, put) {
                // What it waited for may be forgotten by now.
                Err((_, CommandError::AfterNotFound(_))) if self.is_repeat(put) => {}
                found => found?,
            }
        }
        Ok(())
    }

    fn is_repeat(&mut self, put: &Put) -> bool {
        let into = self.core.shard_of_queue(put.queue.as_bytes());
        self.step(into, |at| at.engine.is_repeat(put))
    }

    fn find_parents_of(
        &mut self,
        caller: Caller,
        put: &mut Put,
    ) -> Result<(), (usize, CommandError)> {
        let into = self.core.shard_of_queue(put.queue.as_bytes());
        let Some(more) = put.more.as_deref_mut() else {
            return Ok(());
        };
        let Some(after) = more.after.as_deref_mut() else {
            return Ok(());
        };
        if after.count() > AFTER_MAX {
            return Err((into, CommandError::AfterTooMany));
        }
        for name in std::mem::take(&mut after.names) {
            if more.name.as_ref() == Some(&name) {
                return Err((into, CommandError::AfterItself));
            }
            let shards = 0..self.core.shards.len();
            let found = shards
                .filter_map(|shard| self.step(shard, |at| at.engine.parent_named(caller, &name)));
            let none = (into, CommandError::AfterNotFound(MessageId(0)));
            let (_, id) = found.max().ok_or(none)?;
            after.parents.push(Parent {
                id,
                ..Parent::default()
            });
        }
        for parent in &mut after.parents {
            let shard = self.core.shard_of_id(parent.id);
            let id = parent.id;
            let found = self.step(shard, |at| at.engine.parent_of_another(at.now, caller, id));
            *parent = found.map_err(|command_error| (shard, command_error))?;
        }
        Ok(())
    }

    /// Stores puts whose parents were found, and tells the parents' shards.
    fn put_found(&mut self, caller: Caller, mut puts: Vec<Put>, single: bool) -> Decided {
        let queues = puts.iter().map(|put| put.queue.as_bytes());
        let into: BTreeSet<usize> = queues.map(|name| self.core.shard_of_queue(name)).collect();
        let stored = match puts.pop() {
            Some(put) if single => self.put_one_found(caller, put),
            last => {
                puts.extend(last);
                self.put_many_held(caller, puts)
            }
        };
        let mut required = Required::default();
        for shard in into {
            let told = self.step(shard, |at| at.engine.take_remote_parents());
            for (parent, child) in told {
                let shard = self.core.shard_of_id(parent);
                self.step(shard, |at| {
                    at.engine.add_dependant(parent, child, at.journal)
                });
                required = required.and(self.required(shard, Hold::Durable));
            }
        }
        match stored {
            Decided::Now(outcome, name, own) => Decided::Now(outcome, name, own.and(required)),
            Decided::Later => Decided::Later,
        }
    }

    fn put_one_found(&mut self, caller: Caller, put: Put) -> Decided {
        let into = self.core.shard_of_queue(put.queue.as_bytes());
        let batches: BTreeSet<_> = put.batch().into_iter().collect();
        let batch_shards = self.batch_shards_of(batches.iter());
        if let Err((batch_shard, command_error)) = self.may_join(caller, &batch_shards) {
            return self.refused(batch_shard, command_error);
        }
        let answer = self.step(into, |at| {
            let command = Command::Put(put);
            at.engine
                .submit_vouched(at.now, caller, command, at.journal, at.deliveries)
        });
        let joined = self.joined(into, &batches, &batch_shards);
        match self.decided(into, answer) {
            Decided::Now(outcome @ Outcome::Put { .. }, name, required) => {
                Decided::Now(outcome, name, required.and(joined))
            }
            decided @ (Decided::Now(..) | Decided::Later) => decided,
        }
    }
}
