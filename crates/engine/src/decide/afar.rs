//! Messages that are held for some of other shards.
//!
//! A put is held in its queue's shard. The thread that stores it holds the locks of the other
//! shards too, and asks them first how their messages stand. A message that has not ended is
//! watched there from then on. Its end is carried ([`crate::carry`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Stop;
use super::after::Awaited;
use quintet_types::{
    AFTER_MAX, CommandError, Delivery, MessageId, Ms, ParentState, Principal, Put, PutAfter,
};

use crate::engine::{Cx, Engine};
use crate::fact::{Fact, Journal};
use crate::step::Step;

fn asks(put: &mut Put) -> Option<&mut PutAfter> {
    let after = put.more.as_deref_mut()?.after.as_deref_mut()?;
    // More are refused where the put is stored.
    (after.count() <= AFTER_MAX).then_some(after)
}

/// Tracked messages of several shards, by the names for which puts ask to be held: of each name the
/// one that was put last. Of one that is gone only the end is known, which counts in its place.
#[derive(Debug, Default)]
pub struct NamedParents(BTreeMap<Arc<[u8]>, (Ms, MessageId)>);

impl NamedParents {
    /// The puts ask by id from then on. Names that are not known stay, and so does that of the put
    /// itself: that nothing waits for itself is seen where it is stored.
    pub fn name<'a>(&self, puts: impl IntoIterator<Item = &'a mut Put>) {
        for put in puts {
            let own = put.more.as_ref().and_then(|more| more.name.clone());
            // It waits for none, or for too many.
            let Some(after) = asks(put) else { continue };
            for name in std::mem::take(&mut after.names) {
                match self.0.get(&name).filter(|_| own.as_ref() != Some(&name)) {
                    Some((_, id)) => after.ids.push(*id),
                    None => after.names.push(name),
                }
            }
        }
    }
}

impl Engine {
    /// Adds messages of this shard for which puts ask by names to `found`, those that `requester`
    /// may see.
    pub fn find_parents<'a>(
        &mut self,
        now: Ms,
        requester: Principal,
        puts: impl IntoIterator<Item = &'a Put>,
        found: &mut NamedParents,
    ) {
        self.advance(now);
        let after = |put: &'a Put| put.more.as_deref()?.after.as_deref();
        let puts = puts.into_iter().filter_map(after);
        // More are refused where the put is stored.
        let puts = puts.filter(|after| after.count() <= AFTER_MAX);
        let names: BTreeSet<&Arc<[u8]>> = puts.flat_map(|after| &after.names).collect();
        for name in names {
            let Some(id) = self.tracked_parent(requester, name) else {
                // Not known here, or the client may not see it.
                continue;
            };
            let put = self.store.message(id).map(|message| message.created);
            let ended = self.store.tracks.of(id).map(|track| track.changed);
            let at = put.or(ended).unwrap_or_default();
            let last = found.0.entry(Arc::clone(name)).or_insert((at, id));
            if at > last.0 {
                *last = (at, id);
            }
        }
    }

    /// Says how messages of this shard stand for which puts of other shards ask to be held, and
    /// for which they may not.
    ///
    /// # Errors
    /// One has to be read from a run first. Asked again, it is there.
    pub fn ask_parents<'a, J: Journal>(
        &mut self,
        now: Ms,
        requester: Principal,
        puts: impl IntoIterator<Item = &'a mut Put>,
        (journal, deliveries): (&mut J, &mut Vec<Delivery>),
    ) -> Result<(), CommandError> {
        self.advance(now);
        let mut step = Step::default();
        let mut cx = Cx::new(journal, deliveries, &mut step);
        self.remove_expired(&mut cx);
        self.serve(&mut cx);
        let puts: Vec<&mut PutAfter> = puts.into_iter().filter_map(asks).collect();
        let ids = puts.iter().flat_map(|after| after.ids.iter().copied());
        let ids: BTreeSet<MessageId> = ids.filter(|id| self.is_of_our_shard(*id)).collect();
        let bad = self.may_wait_for_these(requester, &Awaited::from_afar(ids));
        let bad = bad.map_err(Stop::at_once)?;
        for after in puts {
            for id in after.ids.iter().filter(|id| self.is_of_our_shard(**id)) {
                let stands = || Ok(self.parent_now(*id).state);
                let answer = bad.get(id).map_or_else(stands, |error| Err(*error));
                after.afar.insert(*id, answer);
            }
        }
        Ok(())
    }

    /// The shard `shard` is to be notified of the end of a message of this one.
    pub(crate) fn watch_for<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        parent: MessageId,
        shard: u8,
    ) {
        let watches = &self.store.dependencies.watches;
        if watches.get(parent, shard).is_some() {
            // Another of its messages waits for the same one.
            return;
        }
        // The step that waits for it may have ended it.
        let state = self.parent_now(parent).state;
        if state == ParentState::Waiting {
            // It stays in memory from now on.
            self.load_one(parent, true, cx.journal);
        }
        let state = Some(state);
        let watched = Fact::Watched {
            parent,
            shard,
            state,
        };
        self.fact_alone(cx, watched);
    }
}
