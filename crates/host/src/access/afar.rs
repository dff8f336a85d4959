//! Puts of messages that are held for messages of other shards.
//!
//! All these shards are locked before the put is decided, and its facts are of one frame with the
//! records that watch the messages for which it waits.

use std::collections::{BTreeMap, BTreeSet};

use quintet_engine::NamedParents;
use quintet_types::{AFTER_ALL_MAX, CommandError, Hold, MessageId, Principal, Put, PutAfter};
use smallvec::SmallVec;

use super::Access;
use crate::Required;

/// After the shard where messages are held, those of other shards for which they may be.
pub(super) type Parents = BTreeMap<usize, BTreeSet<MessageId>>;

fn after_of(put: &Put) -> Option<&PutAfter> {
    put.more.as_deref()?.after.as_deref()
}

impl Access<'_> {
    /// The shards that a put is about besides its queue's: that of its batch, and those of messages
    /// for which it is held. A name may be known in any.
    pub(super) fn others_of(&self, put: &Put) -> SmallVec<[usize; 4]> {
        let mut others = SmallVec::new();
        if let Some(batch) = put.batch() {
            others.push(self.core.shard_of_id(batch.as_id()));
        }
        if let Some(after) = after_of(put) {
            if after.names.is_empty() {
                others.extend(after.ids.iter().map(|id| self.core.shard_of_id(*id)));
            } else {
                others.extend(0..self.core.shards.len());
            }
            others.sort_unstable();
            others.dedup();
        }
        others
    }

    /// Asks how the messages stand for which these puts, each with its queue's shard, ask to be
    /// held, as far as they are in other shards. All of these shards are held.
    ///
    /// # Errors
    /// A shard, and why it cannot say.
    pub(super) fn ask_parents<'p>(
        &mut self,
        requester: Principal,
        puts: impl IntoIterator<Item = (usize, &'p mut Put)>,
    ) -> Result<Parents, (usize, CommandError)> {
        let puts = puts.into_iter().filter(|(_, put)| after_of(put).is_some());
        let mut puts: Vec<(usize, &mut Put)> = puts.collect();
        let (mut parents, mut shards) = (Parents::new(), BTreeSet::new());
        let mut count = 0_usize;
        for (into, put) in &puts {
            count = count.saturating_add(after_of(put).map_or(0, PutAfter::count));
            let others = self.others_of(put).into_iter();
            shards.extend(others.filter(|shard| shard != into));
        }
        let Some(&first) = shards.first() else {
            return Ok(parents);
        };
        if count > AFTER_ALL_MAX {
            return Err((first, CommandError::AfterTooMany));
        }
        self.find_names(requester, &mut puts);
        for shard in shards {
            let of_others = puts.iter_mut().filter(|(into, _)| *into != shard);
            let of_others = of_others.map(|(_, put)| &mut **put);
            let requested = self.step(shard, |at| {
                let out = (&mut *at.journal, &mut *at.deliveries);
                at.engine.ask_parents(at.now, requester, of_others, out)
            });
            requested.map_err(|command_error| (shard, command_error))?;
        }
        for (into, put) in &puts {
            let known = after_of(put).into_iter().flat_map(|after| &after.afar);
            let good = known.filter(|(_, answer)| answer.is_ok());
            let good = good.map(|(id, _)| *id);
            parents.entry(*into).or_default().extend(good);
        }
        Ok(parents)
    }

    /// Finds tracked messages by name, in all shards.
    fn find_names(&mut self, requester: Principal, puts: &mut [(usize, &mut Put)]) {
        let has_names = |put: &Put| after_of(put).is_some_and(|after| !after.names.is_empty());
        if !puts.iter().any(|(_, put)| has_names(put)) {
            return;
        }
        let mut found = NamedParents::default();
        for shard in 0..self.core.shards.len() {
            let puts = puts.iter().map(|(_, put)| &**put);
            self.step(shard, |at| {
                at.engine.find_parents(at.now, requester, puts, &mut found);
            });
        }
        found.name(puts.iter_mut().map(|(_, put)| &mut **put));
    }

    /// Sees to it that these shards learn of the ends of messages for which some wait there; all
    /// are held. Answers what a reply waits for.
    pub(super) fn watch_parents(&mut self, parents: &Parents) -> Required {
        let mut required = Required::default();
        for (&held, parents) in parents {
            let shards = parents.iter().map(|id| self.core.shard_of_id(*id));
            let shards: BTreeSet<usize> = shards.collect();
            for shard in shards {
                self.watch_held(held, shard, parents);
                required = required.and(self.required(shard, Hold::Durable));
            }
        }
        required
    }
}
