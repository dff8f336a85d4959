//! Carrying messages from shard to shard.
//!
//! Both are locked while it is done, so both parts of it land in one batch,
//! which becomes one frame.

use std::sync::MutexGuard;

use quintet_engine::{Delivery, Ms, Side, carry};

use super::{Core, Need, Shard};

/// Messages carried in one hold of two shards' locks.
const SLICE: usize = 512;

impl Core {
    /// Locks two shards, in the order of their numbers; answers them in the
    /// order asked for.
    pub(super) fn lock_two(
        &self,
        one: usize,
        other: usize,
    ) -> (MutexGuard<'_, Shard>, MutexGuard<'_, Shard>) {
        if one < other {
            let first = self.lock(one);
            (first, self.lock(other))
        } else {
            let first = self.lock(other);
            (self.lock(one), first)
        }
    }

    /// Carries over all that shard `from` has sent. `scratch` is empty; `out`
    /// gets the outcomes of takes that waited. Answers the newest batch
    /// something was recorded in; 0: nothing was.
    pub(super) fn carry_all(
        &self,
        from: usize,
        now: Ms,
        scratch: &mut Vec<Delivery>,
        out: &mut Vec<(Delivery, Need)>,
    ) -> u64 {
        let mut recorded = 0;
        loop {
            let shard = self.lock(from);
            let Some(into) = shard.engine.sends_to() else {
                let next = shard.engine.next_deadline();
                drop(shard);
                self.timer.notify(next);
                return recorded;
            };
            drop(shard);
            let (mut from, mut into) = self.lock_two(from, into);
            self.carry_between(&mut from, &mut into, now, SLICE, scratch, out);
            recorded = self.progress.open();
            let next = into.engine.next_deadline();
            drop((from, into));
            self.timer.notify(next);
        }
    }

    /// Carries over up to `max` messages that `from` has sent to `into`.
    pub(super) fn carry_between(
        &self,
        from: &mut Shard,
        into: &mut Shard,
        now: Ms,
        max: usize,
        scratch: &mut Vec<Delivery>,
        out: &mut Vec<(Delivery, Need)>,
    ) {
        let leaves = Side {
            engine: &mut from.engine,
            journal: &mut from.batch,
        };
        let enters = Side {
            engine: &mut into.engine,
            journal: &mut into.batch,
        };
        carry(now, leaves, enters, max, scratch);
        self.collect(into, scratch, out);
    }

    /// Says what the deliveries of a shard wait for.
    pub(super) fn collect(
        &self,
        shard: &mut Shard,
        scratch: &mut Vec<Delivery>,
        out: &mut Vec<(Delivery, Need)>,
    ) {
        let waits = self.waits_for_disk();
        out.extend(scratch.drain(..).map(|delivery| {
            let need = shard.need(delivery.hold, &self.progress, waits);
            (delivery, need)
        }));
    }
}
