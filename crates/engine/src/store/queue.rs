//! One queue: its messages by state and order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use hashbrown::HashMap;

use super::cold::{ColdRuns, QueueCold, Shelf};
use super::held_keys::HeldKeys;
use super::{Ascending, Durable, KeyGroups};
use quintet_types::{
    Account, MessageId, Ms, Name, Overrides, QueueId, QueueSettings, QueueTotals, Scope,
    StateIndex, TURN_SHIFT, Tags, TakeLimit,
};

use crate::fact::{AgingClock, Pause};
use crate::pace::{Pace, Speed};

pub(crate) use quintet_types::Order;

/// Order inside a message group: selectable ones by priority, then those not
/// selectable; newest first.
pub(crate) type GroupOrder = (bool, u32, Reverse<i64>, Reverse<MessageId>);

/// A queue's durable state; `live` is the part that is not.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) id: QueueId,
    pub(crate) name: Name,
    pub(crate) created: Ms,
    pub(crate) parent: Option<QueueId>,
    pub(crate) children: Vec<QueueId>,
    /// Its own settings; `None`: it has none. See [`Queue::own`].
    pub(crate) overrides: Option<Box<Overrides>>,
    pub(crate) pause: Option<Pause>,
    /// `None`: no key is held.
    pub(crate) held_keys: Option<Box<HeldKeys>>,
    /// `None`: nothing in it ever aged.
    pub(crate) aging: Option<Box<AgingClock>>,

    /// Ready and selectable, by order.
    pub(crate) ready: Ascending<Order, u32>,
    /// Ready but not selectable.
    pub(crate) not_selectable: Ascending<Order, u32>,
    /// With a due time; moved to the two above when it has come.
    pub(crate) delayed: BTreeMap<(Ms, MessageId), u32>,
    /// Of these, messages that are held until others have ended.
    pub(crate) held: usize,
    pub(crate) reserved: Ascending<MessageId, u32>,
    /// By the order they were buried in.
    pub(crate) buried: BTreeMap<u64, u32>,
    pub(crate) prepared: Ascending<MessageId, u32>,
    /// By the time they were archived.
    pub(crate) archived: BTreeMap<(Ms, MessageId), u32>,
    /// Ready messages that have a key.
    pub(crate) keys: HashMap<Arc<[u8]>, BTreeMap<GroupOrder, u32>, foldhash::fast::RandomState>,

    /// Lowest place given to a message that went to the head.
    pub(crate) head: i64,
    /// Last turn given to a buried message.
    pub(crate) bury_order: u64,
    /// Rises with each flush; what waits from an older generation is gone. It comes
    /// round after four thousand million flushes, long after what was flushed
    /// is freed.
    pub(crate) generation: u32,
    /// The same of what is reserved, which only a purge discards.
    pub(crate) held_generation: u32,
    // Of the messages in memory:
    pub(crate) waiting_bytes: u64,
    pub(crate) reserved_bytes: u64,
    pub(crate) bytes: u64,
    /// Ready messages with a priority below 1024.
    pub(crate) urgent: u64,
    pub(crate) done: u64,
    /// Delayed messages that have failed.
    pub(crate) retrying: u64,
    pub(crate) totals: QueueTotals,

    /// Which messages their keys hold back, if its settings give keys a meaning.
    pub(crate) groups: Option<Box<KeyGroups>>,

    /// Its part in runs; `None`: nothing ever was.
    pub(crate) cold: Option<Box<QueueCold>>,

    /// Deduplication records that puts into it left.
    pub(crate) dedupe_records: u32,
    /// Those among them that end with their time alone, of this generation.
    pub(crate) timed_dedupe: u32,
    /// Rises when they are forgotten; those of an older generation are known no longer.
    pub(crate) dedupe_generation: u32,
    /// Deduplication records of older generations, which stay until their time is over.
    pub(crate) forgotten_dedupe: u32,
    /// Bytes it takes in a snapshot at most, as they are counted.
    pub(crate) restated_bytes: u64,

    /// The user who made it; `None`: nobody in particular.
    pub(crate) maker: Option<Box<[u8]>>,

    pub(crate) live: Live,
}

/// The part that is forgotten at restart.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// Resolved from the configuration and `overrides`.
    pub(crate) settings: QueueSettings,
    /// `QueueMade` is recorded; until then the queue only exists in memory.
    pub(crate) recorded: bool,
    /// Dropped, but messages of it are still reserved; not found by name.
    pub(crate) dropped: bool,
    /// The round of [`Durable::go_on_restating`] that came by last.
    pub(super) restated: u32,
    /// Waiting takes, by the order they came.
    pub(crate) line: BTreeSet<u64>,
    /// Those of them that are peeking subscriptions.
    pub(crate) waiting_peeks: u32,
    /// Those of them that take nothing, in a subscription or not.
    pub(crate) not_taking: u32,
    /// Clients that refer to it as one they put into.
    pub(crate) users: u32,
    /// Clients that refer to it as one they take from.
    pub(crate) watchers: u32,
    /// When the shard's alarm for this queue rings.
    pub(crate) alarm: Option<Ms>,
    /// Due messages of runs are not read before.
    pub(crate) due_pause: Ms,
    /// Something may be there that nobody has looked for yet.
    pub(crate) more: bool,
    /// Wait of the message taken last, ms.
    pub(crate) age_ms: u64,
    /// Takes that found nothing while a limit held something back.
    pub(crate) limited_takes: u64,
    /// Delayed messages that became due, since the start.
    pub(crate) came_due: u64,
    /// When it was last used.
    pub(crate) used: Ms,
    pub(crate) pace: Pace,
    /// The account that counts it, with all that its maker made.
    pub(crate) account: Option<Arc<Account>>,
}

/// Purpose of a place in a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitsTo {
    /// A message of its own.
    Take,
    Peek,
    /// The same, by a peeking subscription.
    Watch,
}

impl Live {
    /// Somebody waits on the queue or refers to it.
    pub(crate) fn is_named(&self) -> bool {
        !self.line.is_empty() || self.users > 0 || self.watchers > 0
    }
}

impl Durable {
    /// Somebody waits on a queue.
    pub(crate) fn enter_line(&mut self, queue: QueueId, number: u64, what_for: WaitsTo) {
        #[cfg(test)]
        {
            self.line_steps += 1;
        }
        let Self { queues, sums, .. } = self;
        let queue = queues.get_mut(queue.0 as usize);
        let queue = queue.expect("a consumer waits on a queue that was found or made");
        if queue.live.line.insert(number) {
            let stands = what_for == WaitsTo::Watch;
            queue.live.waiting_peeks += u32::from(stands);
            queue.live.not_taking += u32::from(what_for != WaitsTo::Take);
            *sums.in_line(stands) += 1;
        }
    }

    /// Somebody does not wait on a queue any more.
    pub(crate) fn leave_line(&mut self, queue: QueueId, number: u64, what_for: WaitsTo) {
        #[cfg(test)]
        {
            self.line_steps += 1;
        }
        let Self { queues, sums, .. } = self;
        let queue = queues.get_mut(queue.0 as usize);
        if let Some(queue) = queue
            && queue.live.line.remove(&number)
        {
            let stands = what_for == WaitsTo::Watch;
            queue.live.waiting_peeks -= u32::from(stands);
            queue.live.not_taking -= u32::from(what_for != WaitsTo::Take);
            *sums.in_line(stands) -= 1;
        }
    }
}

impl Queue {
    /// The turn of a message that is buried at this time: by time over all queues.
    pub(crate) fn next_turn(&self, at: Ms) -> u64 {
        let by_time = at.0.min(i64::MAX as u64 >> TURN_SHIFT) << TURN_SHIFT;
        by_time.max(self.bury_order + 1)
    }

    /// The generation by which a deduplication record of this scope is known: with a message's it
    /// ends with what waits.
    pub(crate) fn generation_of(&self, scope: Scope) -> u32 {
        match scope {
            Scope::Window => self.dedupe_generation,
            Scope::Waiting | Scope::Started | Scope::Done => self.generation,
        }
    }

    /// Messages that wait: ready, not selectable or delayed.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting_in_memory() + self.cold.as_ref().map_or(0, |cold| cold.waiting())
    }

    pub(crate) fn waiting_in_memory(&self) -> u64 {
        (self.ready.len() + self.not_selectable.len() + self.delayed.len()) as u64
    }

    /// Messages of a state index that are in a run and not in memory.
    pub(crate) fn stored(&self, state_index: StateIndex) -> u64 {
        self.cold.as_ref().map_or(0, |cold| cold.count(state_index))
    }

    /// Bytes of the bodies of all that waits.
    pub(crate) fn all_waiting_bytes(&self) -> u64 {
        self.waiting_bytes + self.cold.as_ref().map_or(0, |cold| cold.sums.waiting_bytes)
    }

    pub(crate) fn cold_mut(&mut self) -> &mut QueueCold {
        self.cold.get_or_insert_default()
    }

    /// Messages in any state.
    pub(crate) fn messages(&self) -> u64 {
        let more = self.reserved.len() + self.buried.len() + self.prepared.len();
        let archived = self.archived.len() as u64 + self.stored(StateIndex::Archived);
        self.waiting() + archived + more as u64 + self.stored(StateIndex::Buried)
    }

    /// A segment begins with it among others.
    pub(super) fn is_restated(&self) -> bool {
        let live = &self.live;
        live.recorded && !live.dropped && !live.settings.memory
    }

    /// No message in any state.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting() == 0
            && self.reserved.is_empty()
            && self.buried.is_empty()
            && self.prepared.is_empty()
            && self.archived.is_empty()
            && self.cold.as_ref().is_none_or(|cold| cold.is_empty())
    }

    /// True if its messages age, or did.
    #[inline]
    pub(crate) fn ages(&self) -> bool {
        self.aging.is_some() || self.live.settings.aging.count > 0
    }

    /// Its own settings.
    pub(crate) fn own(&self) -> &Overrides {
        static NONE: LazyLock<Overrides> = LazyLock::new(Overrides::default);
        self.overrides.as_deref().unwrap_or(&NONE)
    }

    /// True if it has settings of its own, beside the user that paused it.
    fn is_set_up(&self) -> bool {
        let Some(own) = self.overrides.as_deref() else {
            // It has the settings of the server alone.
            return false;
        };
        let is_signature = |tags: &Tags| tags.iter().all(|(name, _)| name == Tags::PAUSED_BY);
        let without = || Overrides {
            tags: None,
            ..own.clone()
        };
        !own.tags.as_ref().is_some_and(is_signature) || without() != Overrides::default()
    }

    /// True if the queue is more than an empty name: something is in it,
    /// somebody waits on it, or it has a state that would be lost.
    pub(crate) fn is_referred_to(&self, now: Ms) -> bool {
        let paused = self
            .pause
            .is_some_and(|pause| pause.until.is_none_or(|until| until > now));
        !self.is_empty()
            || self.live.is_named()
            || self.parent.is_some()
            || !self.children.is_empty()
            || self.is_set_up()
            || self.dedupe_records > self.forgotten_dedupe
            || self.held_keys.as_ref().is_some_and(|held| held.lasts(now))
            || paused
    }

    /// True if a command has paused it at least until then.
    pub(crate) fn is_paused_until(&self, until: Ms) -> bool {
        let pause = self.pause.as_ref();
        pause.is_some_and(|pause| pause.until.is_none_or(|end| end >= until))
    }

    /// True if takes are not served at `now`.
    pub(crate) fn is_paused(&self, now: Ms) -> bool {
        self.live.settings.paused
            || self
                .pause
                .is_some_and(|pause| pause.until.is_none_or(|until| until > now))
    }

    /// True if takes wait although there may be something: as many messages are
    /// under a lease as may be, or as fast handed out.
    pub(crate) fn is_limited(&self, now: Ms) -> bool {
        self.limit(now).is_some()
    }

    /// The limit that makes it so.
    pub(crate) fn limit(&self, now: Ms) -> Option<TakeLimit> {
        let max = self.live.settings.in_flight_max;
        if max > 0 && self.reserved.len() as u64 >= max {
            return Some(TakeLimit::InFlight);
        }
        let speed = Speed::of_takes(&self.live.settings);
        let waits = self.live.pace.next(speed, now).is_some();
        waits.then_some(TakeLimit::Rate)
    }

    /// True if it is so when `more` messages have been handed out, under leases or not.
    pub(crate) fn is_limited_after(&self, now: Ms, more: u64, leased: bool) -> bool {
        let settings = &self.live.settings;
        let max = settings.in_flight_max;
        let reserved = self.reserved.len() as u64 + if leased { more } else { 0 };
        let speed = Speed::of_takes(settings);
        let pace = self.live.pace.after(speed, now, more);
        max > 0 && reserved >= max || pace.next(speed, now).is_some()
    }

    /// When something happens here by itself: a message is due, a pause or a
    /// retention time ends, another message may be handed out.
    pub(crate) fn next_alarm(&self) -> Option<Ms> {
        let due = self.delayed.first_key_value().map(|(&(due, _), _)| due);
        let pause = self.pause.and_then(|pause| pause.until);
        // A log that makes no sense archives messages of a dropped queue.
        let kept = self.archived.first_key_value();
        let kept = kept.filter(|_| !self.live.dropped);
        let kept = kept.map(|(&(since, _), _)| since + self.live.settings.retention_ms);
        let paced = self.live.pace.rings();
        let keys = self.groups.as_ref().and_then(|groups| groups.alarm());
        let held = self.held_keys.as_ref().and_then(|held| held.first_end());
        let all = [due, pause, kept, paced, keys, held];
        all.into_iter().flatten().min()
    }

    /// When something happens here by itself, runs included.
    pub(crate) fn alarm(&self, cold: &ColdRuns) -> Option<Ms> {
        if self.live.more {
            return Some(Ms(0));
        }
        let next = self.next_alarm();
        match &self.cold {
            None => next,
            Some(_) => next.into_iter().chain(self.next_cold_alarm(cold)).min(),
        }
    }

    /// The same for what is in runs: when the first block must be read, and
    /// which one. A block that was requested rings when it is there.
    pub(crate) fn next_cold_alarm(&self, cold: &ColdRuns) -> Option<Ms> {
        let first = |state_index: StateIndex| {
            let ((_, at, _), block) = self.cold.as_ref()?.first(state_index)?;
            let stored = cold
                .block(block)
                .is_some_and(|block| matches!(block.shelf, Shelf::Stored));
            stored.then_some(Ms(at.max(0) as u64))
        };
        let kept = first(StateIndex::Archived).map(|since| since + self.live.settings.retention_ms);
        let due = first(StateIndex::Delayed).map(|due| due.max(self.live.due_pause));
        [due, kept].into_iter().flatten().min()
    }
}
