//! Taking, leasing, looking, and standing in line for it.

use std::sync::Arc;

use smallvec::SmallVec;

use quintet_types::{
    Answer, ClientId, CommandError, Handed, Hold, Keys, LeaseRequest, Message, MessageId, Ms, Name,
    Outcome, Pick, QueueId, Removal, Take, Wait,
};

use crate::claim::Claim;
use crate::engine::{Cx, Engine, Space};
use crate::fact::{Fact, Journal};
use crate::pace::Speed;
use crate::step::Call;
use crate::store::Walk;
use crate::waiters::{Lines, Waiter};

use super::choose::Walked;
use super::cold::{Cold, MANY};
use super::lease::{is_over, shown_ms};

impl Engine {
    pub(crate) fn take<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        client_id: ClientId,
        take: &mut Take,
    ) -> Result<Answer, Cold> {
        let queues = self.queues_of(take);
        if let Err(command_error) = self.may_take(client_id, take, &queues) {
            return Ok(Answer::Now(Outcome::Refused(command_error), Hold::Durable));
        }
        if take.token.is_some()
            && let Some(outcome) = self.take_again(cx, take, &queues)
        {
            return Ok(Answer::Now(outcome, Hold::Durable));
        }
        Ok(match self.take_now(cx, client_id, take, &queues)? {
            Some((outcome, hold)) => Answer::Now(outcome, hold),
            None => self.found_nothing(cx.call(), client_id, take, &queues),
        })
    }

    /// A take from these queues found nothing.
    pub(crate) fn count_misses(&mut self, queues: &[QueueId]) {
        let now = self.now;
        for &id in queues {
            self.count_live(id, |totals| totals.misses += 1);
            let queue = self.store.expect_queue(id);
            let keys = queue.groups.as_ref();
            let limited = keys.is_some_and(|groups| groups.limited_len() > 0);
            if (limited || queue.is_limited(now))
                && let Some(live) = self.store.live_mut(id)
            {
                live.limited_takes += 1;
            }
        }
    }

    /// A take that found nothing waits, if it may.
    fn found_nothing(
        &mut self,
        call: Call,
        client_id: ClientId,
        take: &mut Take,
        queues: &[QueueId],
    ) -> Answer {
        self.count_misses(queues);
        let warn = self.warning(client_id, take);
        if warn.is_some_and(|at| at <= self.now) {
            return Answer::Now(Outcome::DeadlineSoon, Hold::Turn);
        }
        let until = match take.wait {
            Wait::No | Wait::For(0) => return Answer::Now(Outcome::Empty, Hold::Turn),
            _ if self.waits_in_vain(take, queues) => {
                return Answer::Now(Outcome::Empty, Hold::Turn);
            }
            Wait::For(ms) => Some(self.after(ms)),
            Wait::Until(at) if at <= self.now => {
                return Answer::Now(Outcome::Empty, Hold::Turn);
            }
            Wait::Until(at) => Some(at),
            Wait::Forever => None,
        };
        let waiter = Waiter {
            client_id,
            standing: false,
            take: std::mem::take(take),
            queues: SmallVec::new(),
            until,
            warn,
            claim: None,
        };
        match self.stand_in_line(call, waiter, false) {
            Ok(()) => Answer::Later,
            Err(command_error) => Answer::Now(Outcome::Refused(command_error), Hold::Durable),
        }
    }

    /// Sets or clears the client's subscription.
    pub(crate) fn watch<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        client_id: ClientId,
        take: Option<Box<Take>>,
    ) -> Answer {
        match take {
            Some(take) => self.stand(cx, client_id, *take),
            None => {
                self.unwatch(client_id);
                Answer::Now(Outcome::Done, Hold::Turn)
            }
        }
    }

    /// Changes the client's subscription, if it has one.
    pub(crate) fn rewatch<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        client_id: ClientId,
        take: Take,
    ) -> Answer {
        match self.waiters.of(client_id, true) {
            Some(_) => self.stand(cx, client_id, take),
            None => Answer::Now(Outcome::Done, Hold::Turn),
        }
    }

    /// Adds a queue to the client's subscription, if it has one, or takes it
    /// away. All its other queues it has waited on in vain, so nobody is
    /// looked at but those in the line of this one.
    pub(crate) fn watch_queue<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        client_id: ClientId,
        name: &Name,
        on: bool,
    ) -> Answer {
        let done = Answer::Now(Outcome::Done, Hold::Turn);
        let Some(number) = self.waiters.of(client_id, true) else {
            // The client has no subscription.
            return done;
        };
        if !on {
            self.waiters.renamed(number, name, false);
            if let Some(queue) = self.store.find(name) {
                self.waiters.leave_one(number, queue, &mut self.store);
                self.forget_unused(queue);
            }
            return done;
        }
        match self.find_or_make(cx.call(), name) {
            Ok(queue) => {
                self.waiters.renamed(number, name, true);
                if self.waiters.enter_one(number, queue, &mut self.store) {
                    cx.wake(queue);
                }
                done
            }
            Err(command_error) => {
                self.unwatch(client_id);
                Answer::Now(Outcome::Refused(command_error), Hold::Durable)
            }
        }
    }

    fn stand<J: Journal>(&mut self, cx: &mut Cx<'_, J>, client_id: ClientId, take: Take) -> Answer {
        let queues = self.queues_of(&take);
        let taken = self.take_now(cx, client_id, &take, &queues);
        if let Ok(Some((outcome, hold))) = taken {
            self.unwatch(client_id);
            self.deliver(cx, client_id, true, false, outcome, hold);
            return Answer::Now(Outcome::Done, Hold::Turn);
        }
        match self.stand_or_change(cx.call(), client_id, take, None, taken.is_err()) {
            Ok(()) => Answer::Now(Outcome::Done, Hold::Turn),
            Err(command_error) => Answer::Now(Outcome::Refused(command_error), Hold::Durable),
        }
    }

    /// Enters a subscription at the end of the lines of its queues, or changes
    /// the client's, which keeps its place. Nothing stands if it is refused.
    /// `reads`: something is being read for it.
    pub(crate) fn stand_or_change(
        &mut self,
        call: Call,
        client_id: ClientId,
        mut take: Take,
        claim: Option<Claim>,
        reads: bool,
    ) -> Result<(), CommandError> {
        let Some(number) = self.waiters.of(client_id, true) else {
            // The client's first.
            let waiter = Waiter {
                client_id,
                standing: true,
                take,
                queues: SmallVec::new(),
                until: None,
                warn: None,
                claim,
            };
            return self.stand_in_line(call, waiter, reads);
        };
        match self.lines_of(call, &mut take) {
            Ok(queues) => {
                for queue in self.waiters.change(number, take, queues, &mut self.store) {
                    self.forget_unused(queue);
                }
                Ok(())
            }
            Err(command_error) => {
                self.drop_waiter(number);
                Err(command_error)
            }
        }
    }

    /// Ends the client's subscription, in other shards too.
    pub(crate) fn unwatch(&mut self, client_id: ClientId) {
        if let Some(number) = self.waiters.of(client_id, true) {
            let waiter = self.waiters.get(number);
            let waiter = waiter.expect("a client's subscription is among those that wait");
            waiter.claim();
            self.drop_waiter(number);
        }
    }

    /// Why the client may not take; `queues` are those of the take's that exist
    /// here.
    pub(crate) fn may_take(
        &self,
        client_id: ClientId,
        take: &Take,
        queues: &[QueueId],
    ) -> Result<(), CommandError> {
        let logged = |&id: &QueueId| {
            let queue = self.store.queue(id);
            queue.is_some_and(|queue| !queue.live.settings.memory)
        };
        // No client could get it.
        if !take.peek && self.space == Space::NoTakes && queues.iter().any(logged) {
            return Err(CommandError::NoSpace);
        }
        if take.must_exist {
            let ours = take
                .queues
                .iter()
                .filter(|name| !self.belongs_elsewhere(name));
            for name in ours {
                self.there(name)?;
            }
        }
        if let (1, [only]) = (take.queues.len(), queues)
            && let Some(queue) = self.store.queue(*only)
            && queue.live.settings.down
        {
            return Err(CommandError::QueueDown);
        }
        let limit = take
            .lease
            .map_or(take.refuse_if_held, |lease| lease.held_max);
        if limit > 0 {
            let held = match (take.held_anywhere, take.queues.as_slice()) {
                (true, _) => self.store.held_by(client_id),
                (false, [name]) => self.held_in(client_id, name).count(),
                (false, _) => 0,
            };
            if held >= limit as usize {
                return Err(CommandError::HeldLimit);
            }
        }
        Ok(())
    }

    /// The client's leases in the queue of this name, oldest first; those of a
    /// dropped queue of that name too.
    pub(crate) fn held_in<'a>(
        &'a self,
        client_id: ClientId,
        name: &'a Name,
    ) -> impl Iterator<Item = MessageId> + 'a {
        let held = self.store.held.get(&client_id);
        let held = held.map_or(&[][..], SmallVec::as_slice);
        held.iter().copied().filter(move |&id| {
            let message = self.store.message(id);
            let queue = message.and_then(|m| self.store.queue(m.queue));
            queue.is_some_and(|queue| queue.name == *name)
        })
    }

    /// Enters a waiter at the end of the lines of those of its queues that are
    /// this shard's; makes those that do not exist. `reads`: something is being
    /// read for it.
    pub(crate) fn stand_in_line(
        &mut self,
        call: Call,
        mut waiter: Waiter,
        reads: bool,
    ) -> Result<(), CommandError> {
        if self.many_wait() {
            return Err(CommandError::TooManyWaiters);
        }
        waiter.queues = self.lines_of(call, &mut waiter.take)?;
        let number = self.waiters.add(waiter, &mut self.store);
        if reads {
            self.reading.stall(number);
        }
        Ok(())
    }

    /// Those of the take's queues that are this shard's; makes those that do
    /// not exist. The take has no names afterwards, as they may be many: what
    /// waits goes by its lines, which change. One that asks them in their order
    /// keeps them, as lines are sorted.
    fn lines_of(&mut self, call: Call, take: &mut Take) -> Result<Lines, CommandError> {
        let mut queues = Lines::new();
        let names = std::mem::take(&mut take.queues);
        if take.pick == Pick::InOrder {
            take.queues = names.clone();
        }
        if names.len() != 1 {
            take.token = None;
        }
        for name in names {
            if self.belongs_elsewhere(&name) {
                // It has several queues, of which this shard may have one line.
                if take.peek {
                    take.messages_max = 1;
                }
                continue;
            }
            match self.find_or_make(call, &name) {
                Ok(queue) => queues.push(queue),
                Err(command_error) => {
                    for queue in queues {
                        self.forget_unused(queue);
                    }
                    return Err(command_error);
                }
            }
        }
        queues.sort_unstable();
        queues.dedup();
        Ok(queues)
    }

    /// When the client must be warned that a lease of its ends soon: as soon as
    /// it may, by the clock, have no more than the margin left.
    pub(crate) fn warning(&self, client_id: ClientId, take: &Take) -> Option<Ms> {
        let margin = take.deadline_soon_ms?;
        let held = self.store.held.get(&client_id)?;
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
        client_id: ClientId,
        take: &Take,
        queues: &[QueueId],
    ) -> Result<Option<(Outcome, Hold)>, Cold> {
        let mut handed = Handed::new();
        let mut newest = MessageId(0);
        let wanted = take.messages_max.max(1);
        if wanted > 1 && take.keys.is_none() && !self.store.cold.is_empty() {
            self.is_here(cx, take, queues)?;
        }
        let mut seen = None;
        let mut of_key: Option<(QueueId, Arc<[u8]>)> = None;
        // Boxed, as nearly no take has one.
        let mut walk: Option<Box<(QueueId, Walk)>> = None;
        while handed.len() < wanted as usize {
            let on = walk.as_deref().map(|(queue, walk)| (*queue, walk));
            let best = match &of_key {
                None => self.best(cx, take, queues, seen, on),
                Some((queue, key)) => self.next_of_key(cx, take, (*queue, key), on),
            };
            let best = match self.settled(best) {
                Ok(Some(best)) => best,
                Ok(None) => break,
                // Of more than it waited for, what was found is an answer.
                Err(_) if !handed.is_empty() => break,
                Err(cold) => return Err(cold),
            };
            if take.group.is_some()
                && let Err(cold) = self.companions_are_here(best.slot)
            {
                match handed.is_empty() {
                    true => return Err(cold),
                    false => break,
                }
            }
            if take.peek {
                let message = self.store.messages.at(best.slot);
                seen = Some(message.id);
                if wanted > 1 {
                    self.walk_on(&mut walk, best.slot, false);
                }
                let message = self.store.messages.at(best.slot);
                handed.push(message.clone());
                self.count_live(best.queue, |totals| totals.peeks += 1);
                // Only one queue can be walked along.
                if wanted == 1 || is_over_several(take, queues) {
                    break;
                }
                continue;
            }
            let group = self.group_of(&best, take);
            if wanted > 1 {
                let last = group.last().copied().unwrap_or(best.slot);
                self.walk_on(&mut walk, last, true);
            }
            for slot in group {
                let message = self.hand(cx, client_id, slot, take.lease.as_ref());
                newest = newest.max(message.id);
                handed.push(message);
            }
            if take.keys.as_deref() == Some(&Keys::One) && of_key.is_none() {
                let key = handed[0].key().cloned();
                // It has no key, so it goes alone.
                let Some(key) = key else { break };
                of_key = Some((best.queue, key));
            }
        }
        if handed.is_empty() {
            return Ok(None);
        }
        let hold = self.note_taken(cx, take, queues, &handed, newest);
        Ok(Some((Outcome::Messages(handed), hold)))
    }

    /// Notes the messages of a take; `newest`: the newest that it did not only peek. Answers how
    /// long its reply is held.
    #[inline]
    fn note_taken<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        take: &Take,
        queues: &[QueueId],
        handed: &[Message],
        newest: MessageId,
    ) -> Hold {
        if take.token.is_some() {
            self.note_token(take, queues, handed);
        }
        let Some(ask) = &take.lease else {
            // The client takes them for good, or only peeks.
            return Hold::Durable;
        };
        let over = |message: &Message| is_over(ask, message.ttr_ms);
        if !take.peek && handed.iter().any(over) {
            self.end_over(cx, ask, handed);
        }
        Hold::Written(newest)
    }

    /// Removes or leases one message and answers it as the consumer sees it.
    pub(super) fn hand<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        client_id: ClientId,
        slot: u32,
        lease: Option<&LeaseRequest>,
    ) -> Message {
        let message = self.store.messages.at(slot);
        let (at, waited) = (message.at(), self.now.since(message.created));
        let from_run = message.segment_ref.is_run();
        let now = self.now;
        if let Some(live) = self.store.live_mut(at.queue) {
            live.used = now;
            live.age_ms = waited;
            live.pace.handed(Speed::of_takes(&live.settings), now);
            if live.pace.rings().is_some() {
                self.store.rearm(at.queue);
            }
        }
        if self.store.expect_queue(at.queue).groups.is_some() {
            let key = self.store.messages.at(slot).key().cloned();
            self.store.handed_of_key(at.queue, key.as_ref(), now);
        }
        let message = match lease {
            None => {
                let why = Removal::Taken;
                self.fact(cx, Fact::Removed { at, why })
            }
            Some(ask) => {
                let lease = self.lease_for(client_id, slot, ask);
                let shown_ms = shown_ms(self.store.messages.at(slot).ttr_ms, ask, &lease);
                self.fact(cx, Fact::Leased { at, lease });
                let mut handed = self.store.messages.at(slot).clone();
                handed.ttr_ms = shown_ms;
                Some(handed)
            }
        };
        if from_run {
            self.look_ahead(at.queue);
        }
        message.expect("a message that was found is taken out")
    }

    /// True if the messages that this take would get are in memory, with their companions; of many,
    /// the first [`MANY`].
    #[cold]
    pub(super) fn is_here<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        take: &Take,
        queues: &[QueueId],
    ) -> Result<(), Cold> {
        let wanted = match take.peek && is_over_several(take, queues) {
            true => 1,
            false => (take.messages_max.max(1) as usize).min(MANY),
        };
        let mut here = Ok(());
        let mut seen: SmallVec<[Walked; 1]> = SmallVec::new();
        for _ in 0..wanted {
            let best = self.best_behind(cx, take, queues, &seen);
            let Some(best) = self.settled(best)? else {
                // There is no more.
                break;
            };
            if take.group.is_some() {
                here = here.and(self.companions_are_here(best.slot));
            }
            let count = match take.group.is_some() && here.is_ok() {
                true => self.group_of(&best, take).len() as u64,
                false => 1,
            };
            let (queue, last) = (best.queue, best.order.2);
            let at = match seen.iter().position(|walked| walked.queue == queue) {
                Some(at) => at,
                None => {
                    seen.push(Walked::new(queue));
                    seen.len() - 1
                }
            };
            let walked = &mut seen[at];
            (walked.last, walked.count) = (last, walked.count + count);
            if let Some(groups) = &self.store.expect_queue(queue).groups {
                let message = self.store.messages.at(best.slot);
                walked.walk.pass(message, groups.is_ordered());
            }
        }
        here
    }

    /// The first message a take from these queues would get.
    pub(crate) fn would_take<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        take: &Take,
        queues: &[QueueId],
    ) -> Result<Option<&Message>, Cold> {
        if !self.store.cold.is_empty() {
            self.is_here(cx, take, queues)?;
        }
        let best = self.best(cx, take, queues, None, None);
        let best = self.settled(best)?;
        Ok(best.map(|best| self.store.messages.at(best.slot)))
    }
}

/// True if the take is over more than one queue. `queues`: those of them that
/// exist here; all, if it stands in line, where it has no names any more.
fn is_over_several(take: &Take, queues: &[QueueId]) -> bool {
    queues.len() > 1 || take.queues.windows(2).any(|two| two[0] != two[1])
}
