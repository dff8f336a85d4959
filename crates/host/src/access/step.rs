//! The one way into a shard: lock it, let its engine do something, say what
//! those who waited are brought, and unlock it with all seen to that the next
//! command would else have to see to: what was recorded is noted, what was sent
//! to another shard is carried there, and the timer knows the next deadline.

use std::collections::BTreeSet;

use quintet_engine::{Engine, Side, carry, carry_owed, put_with_others, watch_parents};
use quintet_types::{Answer, BatchId, Caller, Delivery, Hold, MessageId, Ms, Put, Verb};
use smallvec::SmallVec;

use crate::shard::Batch;
use crate::{Core, Locked, Required, Shard, Work};

/// Messages carried in one hold of two shards' locks.
const SLICE: usize = 512;

/// Work that steps leave behind for their caller to do when no shard is locked: [`Core::see_to`].
#[derive(Default)]
pub struct Trail {
    /// Outcomes for others that waited, and what each waits for.
    pub mail: Vec<(Delivery, Required)>,
    /// The newest batch something was recorded in; 0: nothing was.
    pub recorded: u64,
    /// Of the step that is being taken; empty between steps.
    pub(crate) scratch: Vec<Delivery>,
}

impl Trail {
    /// Adds what other steps have left.
    pub fn join(&mut self, other: Trail) {
        self.mail.extend(other.mail);
        self.recorded = self.recorded.max(other.recorded);
    }
}

/// Parts that a step works with.
pub(crate) struct Inside<'a> {
    pub(crate) now: Ms,
    pub(crate) engine: &'a mut Engine,
    pub(crate) journal: &'a mut Batch,
    pub(crate) deliveries: &'a mut Vec<Delivery>,
}

/// A shard's number, and the shard, locked.
type LockedShard<'a> = (usize, Locked<'a>);

/// Asks the shards. Keeps those asked last locked between steps, so that the
/// commands of one connection's turn usually lock once; all are unlocked when
/// it goes.
pub struct Access<'a> {
    pub(super) core: &'a Core,
    now: Ms,
    held: SmallVec<[LockedShard<'a>; 1]>,
    work: Work,
    pub(super) trail: &'a mut Trail,
}

impl<'a> Access<'a> {
    /// At the time `now`; what the steps leave is added to `trail`.
    pub fn new(core: &'a Core, now: Ms, trail: &'a mut Trail) -> Self {
        Self {
            core,
            now,
            held: SmallVec::new(),
            work: Work::Connection,
            trail,
        }
    }

    /// The next steps are for this command.
    #[inline]
    pub fn is_for(&mut self, verb: Verb) {
        self.work = Work::Command(verb);
    }

    /// Does something in a shard.
    #[inline]
    pub(crate) fn step<T>(&mut self, shard: usize, work: impl FnOnce(&mut Inside<'_>) -> T) -> T {
        self.step_in(shard, work).0
    }

    /// The same, and the shard, still locked.
    #[inline]
    pub(super) fn step_in<T>(
        &mut self,
        shard: usize,
        work: impl FnOnce(&mut Inside<'_>) -> T,
    ) -> (T, &mut Shard) {
        let at = self.hold(shard);
        let done = work(&mut self.inside(at));
        (done, self.collected(at))
    }

    /// The parts of a shard that is held at `at`; after them comes [`Access::collected`].
    #[inline]
    pub(super) fn inside(&mut self, at: usize) -> Inside<'_> {
        let guard = &mut *self.held[at].1;
        Inside {
            now: self.now,
            engine: &mut guard.engine,
            journal: &mut guard.batch,
            deliveries: &mut self.trail.scratch,
        }
    }

    /// The shard held at `at`, with all that a step in it has left for others collected.
    #[inline]
    pub(super) fn collected(&mut self, at: usize) -> &mut Shard {
        let guard = &mut *self.held[at].1;
        if !self.trail.scratch.is_empty() || guard.engine.asks() {
            self.core.collect(guard, self.trail);
        }
        guard
    }

    /// The condition for sending a reply that the last step in a shard decided.
    pub(super) fn required(&mut self, shard: usize, hold: Hold) -> Required {
        let core = self.core;
        core.required(self.shard(shard), hold)
    }

    /// A shard, locked.
    pub(super) fn shard(&mut self, shard: usize) -> &mut Shard {
        let at = self.hold(shard);
        &mut self.held[at].1
    }

    /// Locks a shard, if it is not; answers its place among those held.
    #[inline]
    pub(super) fn hold(&mut self, shard: usize) -> usize {
        match &self.held[..] {
            [(held, _)] if *held == shard => 0,
            held => match held.iter().position(|(held, _)| *held == shard) {
                Some(at) => at,
                None => self.hold_another(shard),
            },
        }
    }

    fn hold_another(&mut self, shard: usize) -> usize {
        self.release();
        self.held.push((shard, self.core.lock(shard, self.work)));
        0
    }

    /// Locks several together, so that steps in them land in one batch, which
    /// becomes one frame.
    pub(super) fn hold_all(&mut self, shards: impl IntoIterator<Item = usize>) {
        self.release();
        self.lock_all(shards);
    }

    /// In the order of their numbers, as everybody does. None is held.
    fn lock_all(&mut self, shards: impl IntoIterator<Item = usize>) {
        let mut shards: SmallVec<[usize; 8]> = shards.into_iter().collect();
        shards.sort_unstable();
        shards.dedup();
        let (core, work) = (self.core, self.work);
        let locked = shards.into_iter();
        let locked = locked.map(|shard| (shard, core.lock(shard, work)));
        self.held.extend(locked);
    }

    /// Adds what steps that were taken apart from these have left.
    pub fn join(&mut self, other: Trail) {
        self.trail.join(other);
    }

    /// Unlocks everything, also for steps that others take meanwhile, and
    /// carries what was sent to other shards.
    pub fn release(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let senders = self.unlock();
        if !senders.is_empty() {
            self.carry_from(senders);
        }
    }

    /// Carries what these have sent to other shards; none is locked.
    #[cold]
    fn carry_from(&mut self, senders: SmallVec<[usize; 4]>) {
        self.work = Work::Carry;
        for from in senders {
            loop {
                let into = self.core.lock(from, Work::Carry).engine.sends_to();
                let Some(into) = into else { break };
                self.lock_all([from, into]);
                self.carry_held(from, into, SLICE);
                if self.unlock().contains(&into) {
                    // What arrived sends on: in turn, so that messages that go
                    // round in a circle keep nobody here.
                    self.core.timer.notify(self.now);
                }
            }
            let next = self.core.lock(from, Work::Carry).engine.next_deadline();
            self.core.timer.notify(next);
        }
    }

    /// Unlocks, with what was recorded noted and the timer told. Answers the
    /// shards that have something to be carried.
    fn unlock(&mut self) -> SmallVec<[usize; 4]> {
        let several = self.core.shards.len() > 1;
        let mut senders = SmallVec::new();
        let mut next = Ms::NEVER;
        while let Some((number, mut shard)) = self.held.pop() {
            shard.work = self.work;
            if !shard.batch.is_empty() {
                self.trail.recorded = self.core.progress.open();
            }
            if several && shard.engine.sends_to().is_some() {
                senders.push(number);
            } else {
                next = next.min(shard.engine.next_deadline());
            }
        }
        self.core.timer.notify(next);
        senders
    }

    /// Carries up to `max` messages that `from` has sent to `into`; both are held.
    pub(super) fn carry_held(&mut self, from: usize, into: usize, max: usize) {
        let (from, into) = two(&mut self.held, from, into);
        let (leaves, enters) = (side(from), side(into));
        carry(self.now, leaves, enters, max, &mut self.trail.scratch);
        self.core.collect(into, self.trail);
    }

    /// Counts in a batch of `batch_shard` what `from` owes it; both are held.
    pub(super) fn carry_owed_held(&mut self, batch: BatchId, from: usize, batch_shard: usize) {
        let (from, batch_shard) = two(&mut self.held, from, batch_shard);
        carry_owed(self.now, batch, side(from), side(batch_shard));
    }

    /// Stores a message in the shard `into`, and counts it in its batch, if that is one of another
    /// shard; both are held.
    pub(super) fn put_held(
        &mut self,
        into: usize,
        batch: Option<(BatchId, usize)>,
        caller: Caller,
        put: Put,
    ) -> Answer {
        let scratch = &mut self.trail.scratch;
        let (into, counter) = match batch {
            Some((batch, batch_shard)) => {
                let (into, batch_shard) = two(&mut self.held, into, batch_shard);
                (into, Some((batch, side(batch_shard))))
            }
            None => {
                let at = self.held.iter().position(|(held, _)| *held == into);
                let at = at.expect("a put with other shards runs while all are locked");
                (&mut *self.held[at].1, None)
            }
        };
        let answer = put_with_others(self.now, caller, put, side(into), counter, scratch);
        self.core.collect(into, self.trail);
        answer
    }

    /// The shard `held` is to be notified of the ends of these messages of `watched`; both are
    /// held.
    pub(super) fn watch_held(
        &mut self,
        held: usize,
        watched: usize,
        parents: &BTreeSet<MessageId>,
    ) {
        let (held, watched) = two(&mut self.held, held, watched);
        watch_parents(self.now, parents, &held.engine, side(watched));
    }
}

/// Two of the shards that are locked, in this order.
fn two<'a>(
    held: &'a mut [LockedShard<'_>],
    first: usize,
    second: usize,
) -> (&'a mut Shard, &'a mut Shard) {
    let at = |shard: usize| held.iter().position(|(held, _)| *held == shard);
    let places = at(first).zip(at(second));
    let found = places.and_then(|(a, b)| held.get_disjoint_mut([a, b]).ok());
    let [(_, first), (_, second)] = found.expect("work of two shards runs while both are locked");
    (first, second)
}

fn side(shard: &mut Shard) -> Side<'_, Batch> {
    Side {
        engine: &mut shard.engine,
        journal: &mut shard.batch,
    }
}

impl Drop for Access<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

impl Core {
    /// Steps that no connection's turn is about; sees to what they leave.
    pub fn with_access<T>(&self, work: impl FnOnce(&mut Access<'_>) -> T) -> T {
        self.with_access_for(Work::Connection, work)
    }

    /// The same, for work of the server's own.
    pub(crate) fn with_access_for<T>(
        &self,
        of: Work,
        work: impl FnOnce(&mut Access<'_>) -> T,
    ) -> T {
        let mut trail = Trail::default();
        let mut access = Access::new(self, self.clock.now(), &mut trail);
        access.work = of;
        let done = work(&mut access);
        drop(access);
        self.see_to(trail);
        done
    }
}
