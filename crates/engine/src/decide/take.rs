//! Taking, leasing, looking, and waiting for it.

use std::ops::Bound as Edge;

use smallvec::SmallVec;

use crate::claim::Claim;
use crate::cold::Lane;
use crate::command::{LeaseAsk, LeaseOwner, LeaseTime, Party, Take, Wait};
use crate::engine::{Cx, Engine, Space};
use crate::fact::{Bound, Fact, Journal, Lease, Removal};
use crate::message::{Message, MessageId, QueueId, State};
use crate::name::Name;
use crate::outcome::{Answer, Delivery, Handed, Hold, Outcome, Refusal};
use crate::time::Ms;
use crate::waiters::{Lines, Waiter};

use super::choose::Best;
use super::cold::MANY;

impl Engine {
    pub(crate) fn take<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        party: Party,
        take: Take,
    ) -> Answer {
        self.passed_cold = false;
        match self.try_take(cx, party, &take) {
            Ok(answer) => answer,
            Err(queues) => self.found_nothing(party, take, &queues),
        }
    }

    /// [`Engine::take`] where some messages are in runs. `Err`: it waits for
    /// one of them, which was asked for. Looking for what is there and taking
    /// it are one step, since most takes find it read ahead.
    pub(crate) fn take_or_ask<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        party: Party,
        take: Take,
    ) -> Result<Answer, Box<Take>> {
        self.passed_cold = false;
        match self.try_take(cx, party, &take) {
            Ok(answer) => Ok(answer),
            Err(_) if self.passed_cold => Err(Box::new(take)),
            Err(queues) => Ok(self.found_nothing(party, take, &queues)),
        }
    }

    /// `Err`: there was nothing in these, its queues that exist here.
    fn try_take<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        party: Party,
        take: &Take,
    ) -> Result<Answer, Lines> {
        let queues = self.queues_of(take);
        if let Err(refusal) = self.may_take(party, take, &queues) {
            return Ok(Answer::Now(Outcome::Refused(refusal), Hold::Durable));
        }
        match self.take_now(cx, party, take, &queues) {
            Some((outcome, hold)) => Ok(Answer::Now(outcome, hold)),
            None => Err(queues),
        }
    }

    /// A take that found nothing waits, if it may.
    fn found_nothing(&mut self, party: Party, take: Take, queues: &[QueueId]) -> Answer {
        for &queue in queues {
            self.count_live(queue, |totals| totals.misses += 1);
        }
        let warn = self.warning(party, &take);
        if warn.is_some_and(|at| at <= self.now) {
            return Answer::Now(Outcome::DeadlineSoon, Hold::Turn);
        }
        let until = match take.wait {
            Wait::No | Wait::For(0) => return Answer::Now(Outcome::Empty, Hold::Turn),
            Wait::For(ms) => Some(self.after(ms)),
            Wait::Until(at) if at <= self.now => {
                return Answer::Now(Outcome::Empty, Hold::Turn);
            }
            Wait::Until(at) => Some(at),
            Wait::Forever => None,
        };
        let waiter = Waiter {
            party,
            standing: false,
            take,
            queues: SmallVec::new(),
            until,
            warn,
            claim: None,
        };
        match self.stand_in_line(waiter) {
            Ok(()) => Answer::Later,
            Err(refusal) => Answer::Now(Outcome::Refused(refusal), Hold::Durable),
        }
    }

    /// Sets or clears the party's standing take.
    pub(crate) fn watch<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        party: Party,
        take: Option<Box<Take>>,
    ) -> Answer {
        match take {
            Some(take) => self.stand(cx, party, *take),
            None => {
                self.unwatch(party);
                Answer::Now(Outcome::Done, Hold::Turn)
            }
        }
    }

    /// Changes the party's standing take, if it has one.
    pub(crate) fn rewatch<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        party: Party,
        take: Take,
    ) -> Answer {
        match self.waiters.of(party, true) {
            Some(_) => self.stand(cx, party, take),
            None => Answer::Now(Outcome::Done, Hold::Turn),
        }
    }

    /// Adds a queue to the party's standing take, if it has one, or takes it
    /// away. All its other queues it has waited on in vain, so nobody is
    /// looked at but those in the line of this one.
    pub(crate) fn watch_queue<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        party: Party,
        name: &Name,
        on: bool,
    ) -> Answer {
        let done = Answer::Now(Outcome::Done, Hold::Turn);
        let Some(number) = self.waiters.of(party, true) else {
            return done;
        };
        if !on {
            if let Some(queue) = self.store.find(name) {
                self.waiters.leave_one(number, queue, &mut self.store);
                self.forget_unused(queue);
            }
            return done;
        }
        match self.find_or_make(name) {
            Ok(queue) => {
                if self.waiters.enter_one(number, queue, &mut self.store) {
                    cx.wake(queue);
                }
                done
            }
            Err(refusal) => {
                self.unwatch(party);
                Answer::Now(Outcome::Refused(refusal), Hold::Durable)
            }
        }
    }

    fn stand<J: Journal>(&mut self, cx: &mut Cx<'_, J>, party: Party, take: Take) -> Answer {
        self.passed_cold = false;
        let queues = self.queues_of(&take);
        if let Some((outcome, hold)) = self.take_now(cx, party, &take, &queues) {
            self.unwatch(party);
            self.deliver(cx, party, true, false, outcome, hold);
            return Answer::Now(Outcome::Done, Hold::Turn);
        }
        match self.stand_or_change(party, take, None) {
            Ok(()) => Answer::Now(Outcome::Done, Hold::Turn),
            Err(refusal) => Answer::Now(Outcome::Refused(refusal), Hold::Durable),
        }
    }

    /// Enters a standing take at the end of the lines of its queues, or changes
    /// the party's, which keeps its place. Nothing stands if it is refused.
    pub(crate) fn stand_or_change(
        &mut self,
        party: Party,
        take: Take,
        claim: Option<Claim>,
    ) -> Result<(), Refusal> {
        let Some(number) = self.waiters.of(party, true) else {
            return self.stand_in_line(Waiter {
                party,
                standing: true,
                take,
                queues: SmallVec::new(),
                until: None,
                warn: None,
                claim,
            });
        };
        match self.lines_of(&take) {
            Ok(queues) => {
                for queue in self.waiters.change(number, take, queues, &mut self.store) {
                    self.forget_unused(queue);
                }
                Ok(())
            }
            Err(refusal) => {
                self.drop_waiter(number);
                Err(refusal)
            }
        }
    }

    /// Ends the party's standing take, in other shards too.
    pub(crate) fn unwatch(&mut self, party: Party) {
        if let Some(number) = self.waiters.of(party, true) {
            if let Some(waiter) = self.waiters.get(number) {
                waiter.claim();
            }
            self.drop_waiter(number);
        }
    }

    /// Why the party may not take; `queues` are those of the take's that exist
    /// here.
    pub(crate) fn may_take(
        &self,
        party: Party,
        take: &Take,
        queues: &[QueueId],
    ) -> Result<(), Refusal> {
        let logged = |&id: &QueueId| {
            let queue = self.store.queue(id);
            queue.is_some_and(|queue| !queue.live.settings.memory)
        };
        // Nobody could be told of it.
        if !take.look && self.space == Space::NoTakes && queues.iter().any(logged) {
            return Err(Refusal::NoSpace);
        }
        if let (1, [only]) = (take.queues.len(), queues)
            && let Some(queue) = self.store.queue(*only)
            && queue.live.settings.down
        {
            return Err(Refusal::QueueDown);
        }
        let limit = take
            .lease
            .map_or(take.refuse_if_held, |lease| lease.held_max);
        if limit > 0 {
            let held = match (take.held_anywhere, take.queues.as_slice()) {
                (true, _) => self.store.held.get(&party).map_or(0, SmallVec::len),
                (false, [name]) => self.held_in(party, name).count(),
                (false, _) => 0,
            };
            if held >= limit as usize {
                return Err(Refusal::HeldLimit);
            }
        }
        Ok(())
    }

    /// The party's leases in the queue of this name, oldest first; those of a
    /// dropped queue of that name too.
    pub(crate) fn held_in<'a>(
        &'a self,
        party: Party,
        name: &'a Name,
    ) -> impl Iterator<Item = MessageId> + 'a {
        let held = self
            .store
            .held
            .get(&party)
            .map_or(&[][..], SmallVec::as_slice);
        held.iter().copied().filter(move |&id| {
            let queue = self
                .store
                .message(id)
                .and_then(|m| self.store.queue(m.queue));
            queue.is_some_and(|queue| queue.name == *name)
        })
    }

    /// Enters a waiter at the end of the lines of those of its queues that are
    /// this shard's; makes those that do not exist.
    pub(crate) fn stand_in_line(&mut self, mut waiter: Waiter) -> Result<(), Refusal> {
        if self.waiters.len() >= self.settings.waiters_max as usize {
            return Err(Refusal::TooManyWaiters);
        }
        waiter.queues = self.lines_of(&waiter.take)?;
        let number = self.waiters.add(waiter, &mut self.store);
        if self.passed_cold {
            self.stalled.push(number);
        }
        Ok(())
    }

    /// Those of the take's queues that are this shard's; makes those that do
    /// not exist.
    fn lines_of(&mut self, take: &Take) -> Result<Lines, Refusal> {
        let mut queues = Lines::new();
        for name in &take.queues {
            if self.belongs_elsewhere(name) {
                continue;
            }
            match self.find_or_make(name) {
                Ok(queue) => queues.push(queue),
                Err(refusal) => {
                    for queue in queues {
                        self.forget_unused(queue);
                    }
                    return Err(refusal);
                }
            }
        }
        queues.sort_unstable();
        queues.dedup();
        Ok(queues)
    }

    /// When the party must be warned that a lease of its ends soon: as soon as
    /// it may, by the clock, have no more than the margin left.
    pub(crate) fn warning(&self, party: Party, take: &Take) -> Option<Ms> {
        let margin = take.deadline_soon_ms?;
        let held = self.store.held.get(&party)?;
        let ends = held.iter().filter_map(|&id| {
            let slot = self.store.slot(id)?;
            self.store.leases.get(&slot)?.until
        });
        let early = margin.saturating_add(self.settings.clock_grain_ms);
        ends.min().map(|until| until - early)
    }

    /// Takes what there is, if there is something.
    pub(crate) fn take_now<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        party: Party,
        take: &Take,
        queues: &[QueueId],
    ) -> Option<(Outcome, Hold)> {
        let mut handed = Handed::new();
        let mut newest = MessageId(0);
        let wanted = take.messages_max.max(1);
        if wanted > 1 && !self.store.cold.is_empty() && !self.is_here(cx, take, queues) {
            return None;
        }
        let mut seen = None;
        while handed.len() < wanted as usize {
            let best = match self.best(cx, take, queues, seen) {
                Best::Here(best) => best,
                Best::Nothing => break,
                Best::Cold(_, queue, block) => {
                    // Of more than it waited for, what was found is an answer.
                    if handed.is_empty() {
                        self.passed_cold = true;
                        self.want(block);
                        self.want_ahead(queue, Lane::Ready);
                    }
                    break;
                }
            };
            if take.group.is_some() && !self.has_companions(best.slot) {
                self.passed_cold = true;
                break;
            }
            if take.look {
                let message = self.store.messages.at(best.slot);
                seen = Some(message.id);
                handed.push(message.clone());
                self.count_live(best.queue, |totals| totals.looks += 1);
                // Only one queue can be walked along.
                if wanted == 1 || take.queues.len() > 1 {
                    break;
                }
                continue;
            }
            let group = self.group_of(&best, take);
            for slot in group {
                let message = self.hand(cx, party, slot, take.lease.as_ref());
                newest = newest.max(message.id);
                handed.push(message);
            }
        }
        if handed.is_empty() {
            return None;
        }
        let hold = if take.lease.is_some() {
            Hold::Written(newest)
        } else {
            Hold::Durable
        };
        Some((Outcome::Messages(handed), hold))
    }

    /// Removes or leases one message and answers it as the taker sees it.
    fn hand<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        party: Party,
        slot: u32,
        lease: Option<&LeaseAsk>,
    ) -> Message {
        let message = self.store.messages.at(slot);
        let (at, waited) = (message.at(), self.now.since(message.created));
        let from_run = message.home.is_run();
        let now = self.now;
        if let Some(live) = self.store.live_mut(at.queue) {
            live.used = now;
            live.age_ms = waited;
        }
        let message = match lease {
            None => self.fact(
                cx,
                Fact::Removed {
                    at,
                    why: Removal::Taken,
                },
            ),
            Some(ask) => {
                let lease = self.lease_for(party, slot, ask);
                let given_ms = (ask.time == LeaseTime::TtrOrDefault).then_some(lease.span_ms);
                self.fact(cx, Fact::Leased { at, lease });
                let mut handed = self.store.messages.at(slot).clone();
                // The taker is to know how long it has.
                handed.ttr_ms = handed.ttr_ms.or(given_ms);
                Some(handed)
            }
        };
        if from_run {
            self.look_ahead(at.queue);
        }
        message.expect("what was found is taken out")
    }

    /// True if what this take would get is in memory, with its companions; of
    /// many, the first [`MANY`]. What is not is asked for.
    #[cold]
    pub(crate) fn is_here<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        take: &Take,
        queues: &[QueueId],
    ) -> bool {
        let wanted = match take.look && take.queues.len() > 1 {
            true => 1,
            false => (take.messages_max.max(1) as usize).min(MANY),
        };
        let mut here = true;
        // How far each queue was walked along.
        let mut seen: SmallVec<[(QueueId, MessageId); 1]> = SmallVec::new();
        for _ in 0..wanted {
            let best = match self.best_behind(cx, take, queues, &seen) {
                Best::Here(best) => best,
                Best::Nothing => break,
                Best::Cold(_, queue, block) => {
                    self.want(block);
                    self.want_ahead(queue, Lane::Ready);
                    here = false;
                    break;
                }
            };
            here &= take.group.is_none() || self.has_companions(best.slot);
            let id = best.order.2;
            match seen.iter_mut().find(|seen| seen.0 == best.queue) {
                Some(seen) => seen.1 = id,
                None => seen.push((best.queue, id)),
            }
        }
        self.passed_cold |= !here;
        here
    }

    pub(crate) fn lease_for(&self, party: Party, slot: u32, ask: &LeaseAsk) -> Lease {
        let message = self.store.messages.at(slot);
        let queue = self.store.seated(message.queue);
        let default = queue.live.settings.default_ttr_ms;
        let span_ms = match ask.time {
            LeaseTime::OwnTtr => message.ttr_ms.unwrap_or(0),
            LeaseTime::TtrOrDefault => message.ttr_ms.unwrap_or(default),
            LeaseTime::Fixed(ms) => ms,
        };
        let until = (span_ms > 0).then(|| self.after(span_ms));
        let bound = match (ask.owner, until) {
            (LeaseOwner::Connection, _) | (LeaseOwner::TimeElseConnection, None) => {
                Bound::Connection
            }
            (LeaseOwner::Process, _) => Bound::Process,
            (LeaseOwner::Time | LeaseOwner::TimeElseConnection, _) => Bound::Time,
        };
        Lease {
            party,
            bound,
            until,
            span_ms,
            back_to: ask.back_to,
        }
    }

    /// The first message a take from these queues would get; `None` too if
    /// something must be read before.
    pub(crate) fn would_take<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        take: &Take,
        queues: &[QueueId],
    ) -> Option<&Message> {
        if !self.store.cold.is_empty() && !self.is_here(cx, take, queues) {
            return None;
        }
        match self.best(cx, take, queues, None) {
            Best::Here(best) => Some(self.store.messages.at(best.slot)),
            Best::Nothing | Best::Cold(..) => None,
        }
    }

    /// Gives what is available in the woken queues to those who wait, longest
    /// first.
    pub(crate) fn serve<J: Journal>(&mut self, cx: &mut Cx<'_, J>) {
        let mut woken = cx.take_woken();
        let mut passed: Option<u64> = None;
        while !woken.is_empty() {
            let from = passed.map_or(Edge::Unbounded, Edge::Excluded);
            let mut first: Option<u64> = None;
            woken.retain(|id| {
                let Some(queue) = self.store.queue(*id) else {
                    return false;
                };
                if queue.waiting() == 0 {
                    return false;
                }
                let next = queue.live.line.range((from, Edge::Unbounded)).next();
                first = first.into_iter().chain(next.copied()).min();
                next.is_some()
            });
            let Some(number) = first else {
                return;
            };
            let waiter = self.waiters.get(number);
            let waiter = waiter.expect("who stands in a queue's line waits");
            let (party, take, queues) = (waiter.party, waiter.take.clone(), waiter.queues.clone());
            let (standing, claim) = (waiter.standing, waiter.claim.clone());
            passed = Some(number);
            if self.is_behind_stalled(number, &queues) {
                // Who comes first may get what this one would.
                self.stall(number);
                woken.retain(|id| queues.binary_search(id).is_err());
                continue;
            }
            self.passed_cold = false;
            let (dead, taken) = match &claim {
                Some(claim) if claim.is_taken() => (true, None),
                // It is taken only for something.
                Some(_) if self.would_take(cx, &take, &queues).is_none() => (false, None),
                Some(claim) if !claim.take() => (true, None),
                _ => (false, self.take_now(cx, party, &take, &queues)),
            };
            if taken.is_none() && self.passed_cold {
                self.stall(number);
            }
            match taken {
                // Another shard has served it.
                None if dead => self.drop_waiter(number),
                Some((outcome, hold)) => {
                    self.waiters.remove(number, &mut self.store);
                    self.deliver(cx, party, standing, claim.is_some(), outcome, hold);
                    if take.look {
                        cx.only_looked();
                    }
                    for queue in queues {
                        self.forget_unused(queue);
                    }
                }
                // Only a taker that cannot frame what is there leaves it to
                // those behind it; one that needs something from a run first
                // keeps its turn.
                None if take.body_max.is_some() && !self.passed_cold => {}
                None => woken.retain(|id| queues.binary_search(id).is_err()),
            }
            let more = cx.take_woken();
            if !more.is_empty() {
                woken.extend(more);
                passed = None;
            }
        }
    }

    /// A wait goes on for what is being read.
    fn stall(&mut self, number: u64) {
        if !self.stalled.contains(&number) {
            self.stalled.push(number);
        }
    }

    /// True if somebody who came before waits on one of these queues for what
    /// is being read.
    fn is_behind_stalled(&self, number: u64, queues: &[QueueId]) -> bool {
        self.stalled.iter().any(|&other| {
            other < number
                && self
                    .waiters
                    .get(other)
                    .is_some_and(|waiter| meet(&waiter.queues, queues))
        })
    }

    pub(crate) fn deliver<J>(
        &mut self,
        cx: &mut Cx<'_, J>,
        to: Party,
        standing: bool,
        claimed: bool,
        outcome: Outcome,
        hold: Hold,
    ) {
        let queue = match &outcome {
            Outcome::Messages(handed) => self.store.name_of(handed[0].queue),
            _ => Default::default(),
        };
        cx.deliveries.push(Delivery {
            to,
            standing,
            claimed,
            outcome,
            hold,
            queue,
            looked: false,
        });
    }

    /// Ends the party's waiting take.
    pub(crate) fn stop_waiting<J: Journal>(&mut self, cx: &mut Cx<'_, J>, party: Party) {
        if let Some(number) = self.waiters.of(party, false) {
            self.end_wait(cx, number, Outcome::Empty);
        }
    }

    pub(crate) fn end_wait<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        number: u64,
        outcome: Outcome,
    ) {
        let Some(waiter) = self.waiters.remove(number, &mut self.store) else {
            return;
        };
        if waiter.claim() {
            let claimed = waiter.claim.is_some();
            let standing = waiter.standing;
            self.deliver(cx, waiter.party, standing, claimed, outcome, Hold::Turn);
        }
        for queue in waiter.queues {
            self.forget_unused(queue);
        }
    }

    pub(crate) fn reserve_id<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        party: Party,
        id: MessageId,
        ask: LeaseAsk,
    ) -> Answer {
        let refused = |refusal| Answer::Now(Outcome::Refused(refusal), Hold::Durable);
        if self.space == Space::NoTakes {
            return refused(Refusal::NoSpace);
        }
        let Some(slot) = self.store.slot(id) else {
            return refused(Refusal::NotFound);
        };
        let message = self.store.messages.at(slot);
        if message.is_expired(self.now) {
            self.expire(cx, id);
            return refused(Refusal::NotFound);
        }
        if !matches!(message.state, State::Ready | State::Buried) {
            return refused(Refusal::NotFound);
        }
        if let Some(queue) = self.store.queue(message.queue) {
            if queue.live.settings.down {
                return refused(Refusal::QueueDown);
            }
            let max = ask.held_max as usize;
            if max > 0 && self.held_in(party, &queue.name).count() >= max {
                return refused(Refusal::HeldLimit);
            }
        }
        let message = self.hand(cx, party, slot, Some(&ask));
        let outcome = Outcome::Messages(SmallVec::from_iter([message]));
        Answer::Now(outcome, Hold::Written(id))
    }
}

/// True if a queue is in both lists.
fn meet(a: &[QueueId], b: &[QueueId]) -> bool {
    let (few, many) = if a.len() < b.len() { (a, b) } else { (b, a) };
    few.iter().any(|queue| many.binary_search(queue).is_ok())
}
