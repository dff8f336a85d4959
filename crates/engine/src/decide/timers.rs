//! Events that happen by themselves when their time has come.

use smallvec::SmallVec;

use super::choose::EXPIRED_PER_STEP;
use super::cold::MANY;
use quintet_types::{
    CommandError, DUE_MAX, MessageId, Ms, Name, Outcome, PendingDecisionKind, QueueId, Removal,
    Return, State, StateIndex, When,
};

use crate::engine::{Cx, Engine};
use crate::fact::{Fact, Journal};
use crate::pace::Speed;

/// Steps of each kind per tick: bounds how long a tick holds the shard.
const STEPS: usize = 512;
/// Messages that become ready, and that are kept no longer, per tick: more only
/// by the share of one queue.
const ALARM_STEPS: usize = 256;
/// How long a wait goes on beyond its end for what is being read from a run.
pub(crate) const COLD_WAIT_MS: u64 = 1000;
/// From one block to the next of what is due, while memory is short, ms.
const DUE_PACE_MS: u64 = 2;
/// How often idle queues are looked for, ms: a sixtieth of the shortest rest,
/// within these.
const IDLE_SCAN_MS: (u64, u64) = (1000, 60_000);
/// Queues looked at for it at once.
const IDLE_LOOKS: usize = 4096;

/// The end of a wait that brought nothing.
fn ending(warned: bool) -> Outcome {
    if warned {
        Outcome::DeadlineSoon
    } else {
        Outcome::Empty
    }
}

impl Engine {
    pub(crate) fn end_leases<J: Journal>(&mut self, cx: &mut Cx<'_, J>) {
        let mut steps = 0;
        while let Some(&(at, _)) = self.store.lease_ends.first() {
            if at > self.now || steps >= STEPS {
                // No other is over by the clock, or the next tick goes on.
                return;
            }
            // Those that end at the same moment: the newest first, so that
            // they keep their own order when they go to the head.
            let same = self
                .store
                .lease_ends
                .range((at, MessageId(0))..=(at, MessageId(u64::MAX)));
            let ids: SmallVec<[MessageId; 8]> = same.map(|&(_, id)| id).collect();
            assert!(
                !ids.is_empty(),
                "the first lease to end is among those of its moment"
            );
            for &id in ids.iter().rev() {
                if let Some(queue) = self.store.message(id).map(|message| message.queue) {
                    self.give_back(cx, id, Return::Timeout);
                    let ready = self.store.message(id).map(|message| message.state);
                    if ready == Some(State::Ready) {
                        self.withholds(cx, id, PendingDecisionKind::LeaseEnd);
                    }
                    cx.wake(queue);
                }
                // Never twice the same, whatever the index says.
                self.store.forget_lease_end(at, id);
            }
            steps += ids.len();
        }
    }

    pub(crate) fn ring_alarms<J: Journal>(&mut self, cx: &mut Cx<'_, J>) {
        let mut left = ALARM_STEPS;
        for _ in 0..STEPS {
            let Some(&(at, id)) = self.store.alarms.first() else {
                // No queue waits for a time.
                return;
            };
            if at > self.now || left == 0 {
                // No other is due by the clock, or the next tick goes on.
                return;
            }
            let now = self.now;
            if let Some(live) = self.store.live_mut(id) {
                live.more = false;
                live.pace.settle(Speed::of_takes(&live.settings), now);
            }
            let moved = self.store.promote(id, self.now);
            self.store.ring_groups(id, self.now);
            self.ring_state_indexes(id);
            self.store.end_pause(id, self.now);
            self.store.end_holds(id, self.now);
            let ended = self.end_retention(cx, id);
            left = left.saturating_sub(moved + ended);
            self.store.rearm(id);
            cx.wake(id);
        }
    }

    /// Reads the due messages of runs: delayed ones, and those kept long enough.
    fn ring_state_indexes(&mut self, id: QueueId) {
        for state_index in [StateIndex::Delayed, StateIndex::Archived] {
            let Some(queue) = self.store.queue(id) else {
                // It went when what was due in it was removed.
                return;
            };
            let first = queue.cold.as_ref().and_then(|cold| cold.first(state_index));
            let Some(((_, at, _), block)) = first else {
                // Nothing of it is in runs.
                continue;
            };
            let mut wait = 0;
            if state_index == StateIndex::Archived {
                wait = queue.live.settings.retention_ms;
            }
            if Ms(at.max(0) as u64) + wait > self.now {
                continue;
            }
            if state_index == StateIndex::Delayed && !self.may_read_due() {
                let pause = self.reading.due_next;
                if let Some(live) = self.store.live_mut(id) {
                    live.due_pause = pause;
                }
                continue;
            }
            self.want(block);
        }
    }

    /// Due messages of runs are read at once while there is memory for them. Then a block at a
    /// time: the thread that makes room keeps up with that, so no put waits for it, and consumers
    /// get their messages all the same.
    fn may_read_due(&mut self) -> bool {
        let room = self.reading.memory_room;
        let fixed = self.store.fixed_bytes();
        let enough = fixed + room.saturating_sub(fixed) / 4 * 3;
        if room == 0 || self.store.memory_bytes() <= enough {
            return true;
        }
        let may = self.now >= self.reading.due_next;
        if may {
            self.reading.due_next = self.now + DUE_PACE_MS;
        }
        may
    }

    fn end_retention<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: QueueId) -> usize {
        for ended in 0..STEPS {
            let queue = self.store.queue(id);
            let Some(queue) = queue.filter(|queue| !queue.live.dropped) else {
                // It was dropped, or went with its last message.
                return ended;
            };
            let keep = queue.live.settings.retention_ms;
            let Some((&(since, message), _)) = queue.archived.first_key_value() else {
                // No more are archived.
                return ended;
            };
            if since + keep > self.now {
                return ended;
            }
            let message = self.store.message(message);
            let message = message.expect("a message is listed as archived while it is there");
            let (at, why) = (message.at(), Removal::Retention);
            self.fact(cx, Fact::Removed { at, why });
        }
        STEPS
    }

    /// Removes expired messages; answers how many. Asked with every command,
    /// mostly in vain.
    #[inline]
    pub(crate) fn remove_expired<J: Journal>(&mut self, cx: &mut Cx<'_, J>) -> u64 {
        match self.store.expiries.first() {
            Some(&(at, _)) if at <= self.now => self.remove_due(cx),
            _ => 0,
        }
    }

    #[cold]
    fn remove_due<J: Journal>(&mut self, cx: &mut Cx<'_, J>) -> u64 {
        let mut count = 0;
        for _ in 0..STEPS {
            let Some(&(at, id)) = self.store.expiries.first() else {
                // No other expires.
                break;
            };
            if at > self.now || cx.step.expired >= EXPIRED_PER_STEP {
                break;
            }
            if self.store.message(id).is_some() {
                self.expire(cx, id);
                count += 1;
            }
            // Messages a flush has forgotten are still in the index.
            self.store.forget_expiry(at, id);
        }
        count
    }

    pub(crate) fn end_waits<J: Journal>(&mut self, cx: &mut Cx<'_, J>) {
        for _ in 0..STEPS {
            let Some(number) = self.waiters.due(self.now) else {
                // No other is over.
                return;
            };
            let waiter = self.waiters.get(number);
            let waiter = waiter.expect("a client with a deadline waits until then");
            let warned = waiter.until.is_none_or(|until| until > self.now);
            if self.is_being_read_for(cx, number) {
                self.waiters.postpone(number, self.now + COLD_WAIT_MS);
                self.reading.overdue.push((number, warned));
                continue;
            }
            self.end_wait(cx, number, ending(warned));
        }
    }

    /// Waits that only went on for what was being read end, if that is over.
    pub(crate) fn end_overdue<J: Journal>(&mut self, cx: &mut Cx<'_, J>) {
        for (number, warned) in std::mem::take(&mut self.reading.overdue) {
            if self.is_being_read_for(cx, number) {
                self.reading.overdue.push((number, warned));
            } else {
                self.end_wait(cx, number, ending(warned));
            }
        }
    }

    /// True if what this waiter would get may be in a run, or may be left to it
    /// by one before it for whom something is being read.
    fn is_being_read_for<J: Journal>(&mut self, cx: &mut Cx<'_, J>, number: u64) -> bool {
        if self.reading.stalled.contains(&number) {
            return true;
        }
        if self.store.cold.is_empty() {
            return false;
        }
        let Some(waiter) = self.waiters.get(number) else {
            // The client got something, or went.
            return false;
        };
        let (take, queues) = (waiter.take.clone(), waiter.queues.clone());
        self.is_behind_stalled(number, &queues)
            || self.is_here(cx, &take, &queues).is_err()
            || self.may_expire_into(&queues)
    }

    /// True if something that is being read may have expired and go to one of
    /// these queues.
    fn may_expire_into(&mut self, queues: &[QueueId]) -> bool {
        // Runs may have gone meanwhile.
        let cold = &self.store.cold;
        self.reading.ringing.retain(|&at| cold.block(at).is_some());
        self.reading.ringing.iter().any(|&at| {
            let from = self.store.cold.block(at).map(|block| block.row.queue);
            let to = from.and_then(|from| self.expiry_queue(from));
            let to = to.and_then(|to| self.store.find(&to));
            to.is_some_and(|to| queues.binary_search(&to).is_ok())
        })
    }

    /// Drops queues nobody has used for as long as their settings say.
    pub(crate) fn drop_idle<J: Journal>(&mut self, cx: &mut Cx<'_, J>) {
        if self.idle_least == 0 || self.now < self.idle_scan {
            // By the settings no queue goes, or by the clock it is too soon.
            return;
        }
        let (now, all) = (self.now, self.store.queues.len());
        let every = (self.idle_least / 60).clamp(IDLE_SCAN_MS.0, IDLE_SCAN_MS.1);
        let from = self.idle_from.min(all);
        let mut at = from;
        let mut idle: Vec<QueueId> = Vec::new();
        while at < all.min(from + IDLE_LOOKS) && idle.len() < STEPS {
            let queue = self.store.queues.get(at);
            at += 1;
            let Some(queue) = queue else {
                // A free number.
                continue;
            };
            if queue.is_referred_to(now) {
                // It may be so until just before the next look.
                if let Some(live) = self.store.live_mut(queue.id) {
                    live.used = now + every;
                }
            } else {
                let after = queue.live.settings.idle_ms;
                if after > 0 && queue.live.used + after <= now && !queue.live.dropped {
                    idle.push(queue.id);
                }
            }
        }
        // All are looked at in that time, in slices that hold nobody up.
        let share = match idle.len() < STEPS {
            true => every * (at - from) as u64 / (all as u64).max(1),
            false => 1,
        };
        let whole = from == 0 && at == all;
        self.idle_from = if at == all { 0 } else { at };
        self.idle_scan = now + if whole { every } else { share.max(1) };
        for id in idle {
            let recorded = self
                .store
                .queue(id)
                .is_some_and(|queue| queue.live.recorded);
            if recorded {
                let through = self.store.last_id();
                let fact = Fact::QueueDropped {
                    queue: id,
                    through,
                    idle: true,
                };
                self.fact(cx, fact);
            } else {
                self.forget_unused(id);
            }
        }
    }

    /// Removes expired messages of one queue or of all; of many the rest goes by itself.
    pub(crate) fn flush_expired<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        name: Option<&Name>,
    ) -> Result<Outcome, CommandError> {
        self.ring_blocks();
        let only = match name {
            None => None,
            Some(name) => match self.store.find(name) {
                None => return Ok(Outcome::Count(0)),
                some => some,
            },
        };
        let end = (self.now + 1, MessageId(0));
        let due = self.store.expiries.range(..end).take(MANY);
        let due = due.map(|&(_, id)| id).filter(|&id| {
            let message = self.store.message(id);
            message.is_some_and(|m| only.is_none_or(|queue| m.queue == queue))
        });
        let due: Vec<MessageId> = due.collect();
        for &id in &due {
            self.expire(cx, id);
        }
        Ok(Outcome::Count(due.len() as u64))
    }
}

impl Engine {
    /// The end of a span of time that begins now; never too early, as far as
    /// the clock can tell ([`quintet_types::Settings::clock_grain_ms`]).
    pub(crate) fn after(&self, ms: u64) -> Ms {
        match ms {
            0 => self.now,
            ms => self.now + ms + self.settings.clock_grain_ms,
        }
    }

    /// The rest of a span of time that ends at `until`, ms: after [`Engine::after`] as much as was
    /// asked for, then never more than there is.
    pub(crate) fn left(&self, until: Ms) -> u64 {
        until.since(self.now + self.settings.clock_grain_ms)
    }

    /// A due time still to come, or `None`.
    pub(crate) fn due(&self, when: When) -> Option<Ms> {
        let due = match when {
            When::Default | When::Now => None,
            When::In(ms) => (ms > 0).then(|| self.after(ms)),
            When::At(at) => (at > self.now).then_some(at),
        };
        due.map(|due| due.min(DUE_MAX))
    }
}
