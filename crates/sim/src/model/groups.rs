//! Queues whose keys mean something: which message comes next.

use std::cmp::Reverse;
use std::sync::Arc;

use quintet_types::{End, GroupLimit, Groups, HELD, Message, MessageId, QueueId, State, Take};

use super::Model;

/// The memory of a fair queue of what it handed out.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    /// Nanoseconds at which the last one of a key would have gone, had each waited for its turn.
    paced_ns: std::collections::BTreeMap<Arc<[u8]>, u64>,
    /// Messages of keys under their share in a row while one of a key over its share waited.
    quiet_run: u64,
}

fn position(message: &Message) -> (i64, MessageId) {
    (message.position(), message.id)
}

impl Model {
    /// Settings whose change makes it forget.
    pub(super) fn meaning_of_keys(&self, queue: QueueId) -> (Groups, u64, u32, u64, u32) {
        let settings = self.settings_of(queue);
        (
            settings.groups,
            settings.key_in_flight_max,
            settings.key_take_rate.count,
            settings.key_take_rate.per_ms,
            settings.key_take_burst,
        )
    }

    pub(super) fn is_ordered(&self, queue: QueueId) -> bool {
        self.settings_of(queue).groups == Groups::Ordered
    }

    /// True if keys mean something to takes from it.
    pub(super) fn has_groups(&self, queue: QueueId) -> bool {
        let (groups, in_flight, ..) = self.meaning_of_keys(queue);
        groups != Groups::None || in_flight > 0 || self.key_interval_ns(queue) > 0
    }

    fn key_interval_ns(&self, queue: QueueId) -> u64 {
        let rate = self.settings_of(queue).key_take_rate;
        match rate.count {
            0 => 0,
            count => rate.per_ms * 1_000_000 / u64::from(count),
        }
    }

    /// A message of this key is handed out.
    pub(super) fn handed_of_key(&mut self, queue: QueueId, key: Option<&Arc<[u8]>>) {
        let (interval, now) = (self.key_interval_ns(queue), self.now.0 * 1_000_000);
        let over_share = self.noisy_keys(queue);
        let waits = over_share.iter().any(|over_share| {
            let mut here = self.items.iter().map(|item| &item.message);
            !self.key_is_limited(queue, over_share)
                && here.any(|m| m.queue == queue && m.key() == Some(over_share) && self.may_wait(m))
        });
        let quiet = key.is_none_or(|key| !over_share.contains(key));
        let keys = &mut self.queue_mut(queue).keys;
        keys.quiet_run = match quiet && waits {
            true => keys.quiet_run + 1,
            false => 0,
        };
        if let Some(key) = key.filter(|_| interval > 0) {
            let paced = keys.paced_ns.entry(key.clone()).or_default();
            *paced = (*paced).max(now) + interval;
        }
    }

    /// Ready and to be taken.
    fn may_wait(&self, message: &Message) -> bool {
        self.is_ready(message) && message.selectable && !message.is_expired(self.now)
    }

    fn in_flight(&self, queue: QueueId, key: Option<&Arc<[u8]>>) -> u64 {
        let here = self.items.iter().map(|item| &item.message);
        let here = here.filter(|m| m.queue == queue && m.state == State::Reserved);
        here.filter(|m| key.is_none() || m.key() == key).count() as u64
    }

    fn key_is_limited(&self, queue: QueueId, key: &Arc<[u8]>) -> bool {
        let settings = self.settings_of(queue);
        let max = settings.key_in_flight_max;
        let interval = self.key_interval_ns(queue);
        let early = (u64::from(settings.key_take_burst.max(1)) - 1) * interval + 999_999;
        let paced = self.queue(queue).keys.paced_ns.get(key).copied();
        let fast = interval > 0 && paced.unwrap_or(0) > self.now.0 * 1_000_000 + early;
        self.is_held(queue, key) || fast || max > 0 && self.in_flight(queue, Some(key)) >= max
    }

    /// Those with the fewest messages under leases first.
    fn noisy_keys(&self, queue: QueueId) -> Vec<Arc<[u8]>> {
        if self.settings_of(queue).groups != Groups::Fair {
            return Vec::new();
        }
        let all = self.in_flight(queue, None);
        let here = self.items.iter().map(|item| &item.message);
        let here = here.filter(|m| m.queue == queue);
        let mut keys: Vec<Arc<[u8]>> = here.filter_map(|m| m.key().cloned()).collect();
        keys.sort();
        keys.dedup();
        keys.retain(|key| {
            let held = self.in_flight(queue, Some(key));
            held >= 30 && held * 10 > all
        });
        keys
    }

    /// True if nothing before it in its group keeps it back, in an ordered queue.
    pub(super) fn is_first_of_group(&self, message: &Message) -> bool {
        let Some(key) = message.key() else {
            return true;
        };
        let others = self.items.iter().map(|item| &item.message);
        let mut others = others
            .filter(|m| m.queue == message.queue && m.key() == Some(key) && m.id != message.id);
        !others.any(|m| position(m) < position(message) && (self.may_wait(m) || self.holds_up(m)))
    }

    /// Reserved or delayed, and not held for others.
    fn holds_up(&self, message: &Message) -> bool {
        let is_delayed = message.state == State::Ready && !self.is_ready(message);
        message.state == State::Reserved || (is_delayed && message.due() != Some(HELD))
    }

    /// Messages of a queue that the take would get, one after the other.
    pub(super) fn line_of(&self, queue: QueueId, take: &Take) -> Vec<Message> {
        let here = self.items.iter().map(|item| &item.message);
        let here = here.filter(|m| m.queue == queue && self.may_wait(m));
        let mut ready: Vec<Message> = here.cloned().collect();
        let fits = |m: &Message| take.body_max.is_none_or(|max| m.body.len() <= max);
        let ordered = self.is_ordered(queue);
        if !ordered || !self.has_groups(queue) {
            ready.retain(fits);
            let oldest = take.end == End::Oldest || self.has_groups(queue) && !take.peek;
            match oldest {
                true => ready.sort_by_key(Message::order),
                false => ready.sort_by_key(|m| (m.order().0, Reverse(m.position()), Reverse(m.id))),
            }
            if take.peek || !self.has_groups(queue) {
                return ready;
            }
            // Once for each key, as messages are many and keys are few.
            let mut limited = std::collections::BTreeMap::new();
            let mut is_limited = |key: &Arc<[u8]>| {
                let known = limited.entry(key.clone());
                *known.or_insert_with(|| self.key_is_limited(queue, key))
            };
            ready.retain(|m| m.key().is_none_or(|key| !is_limited(key)));
            return self.fairly(queue, ready);
        }
        ready.sort_by_key(position);
        let heads = ready.iter().filter(|m| {
            let limited = m.key().is_some_and(|key| self.key_is_limited(queue, key));
            self.is_first_of_group(m) && (take.peek || !limited)
        });
        let mut heads: Vec<&Message> = heads.filter(|m| fits(m)).collect();
        heads.sort_by_key(|m| m.order());
        let mut line = Vec::new();
        for head in heads {
            let mut last = head.clone();
            line.push(last.clone());
            while let Some(next) = self.next_of_group(&last, take, line.len()) {
                line.push(next.clone());
                last = next;
            }
        }
        line
    }

    /// The message behind this one in its group, if nothing between keeps it back, for a take that
    /// has got `count`.
    pub(super) fn next_of_group(
        &self,
        last: &Message,
        take: &Take,
        count: usize,
    ) -> Option<Message> {
        let key = last.key()?;
        let here = self.items.iter().map(|item| &item.message);
        let mut behind: Vec<&Message> = here
            .filter(|m| {
                m.queue == last.queue && m.key() == Some(key) && position(m) > position(last)
            })
            .filter(|m| self.may_wait(m) || self.holds_up(m))
            .collect();
        behind.sort_by_key(|m| position(m));
        let next = (*behind.first()?).clone();
        let fits = take.body_max.is_none_or(|max| next.body.len() <= max);
        let limited = !take.peek && self.key_is_limited(last.queue, key);
        let left = self.cut.leaves(count, next.id);
        (self.may_wait(&next) && fits && !limited && !left).then_some(next)
    }

    /// Keys under their share first, unless a message of one over its share has waited long enough.
    fn fairly(&self, queue: QueueId, ready: Vec<Message>) -> Vec<Message> {
        let over_share = self.noisy_keys(queue);
        let is_noisy = |m: &Message| m.key().is_some_and(|key| over_share.contains(key));
        let (loud, quiet): (Vec<Message>, Vec<Message>) = ready.into_iter().partition(is_noisy);
        let first = |key: &Arc<[u8]>| {
            let here = self.items.iter().map(|item| &item.message);
            let here = here.filter(|m| m.queue == queue && m.key() == Some(key));
            let orders = here.filter(|m| self.may_wait(m)).map(|m| m.order());
            orders.min()
        };
        let of_key = |key| (key, (self.in_flight(queue, Some(key)), first(key)));
        let keys: std::collections::BTreeMap<_, _> = over_share.iter().map(of_key).collect();
        let mut loud = loud;
        loud.sort_by_key(|m| (keys[m.key().expect("it is noisy")], m.order()));
        let turn = self.queue(queue).keys.quiet_run >= 15;
        match turn && !loud.is_empty() {
            true => loud.into_iter().take(1).chain(quiet).collect(),
            false => quiet.into_iter().chain(loud).collect(),
        }
    }

    /// Companions in the order of their places, up to the first that may not go.
    pub(super) fn ordered_companions(
        &self,
        best: &Message,
        limit: GroupLimit,
        take: &Take,
    ) -> Vec<MessageId> {
        let key = best.key().expect("it has companions");
        let here = self.items.iter().map(|item| &item.message);
        let group: Vec<&Message> = here
            .filter(|m| m.queue == best.queue && m.id != best.id && m.key() == Some(key))
            .collect();
        let wall = group
            .iter()
            .filter(|m| self.holds_up(m) && position(m) > position(best));
        let wall = wall.map(|m| position(m)).min();
        let ready = group
            .iter()
            .filter(|m| self.is_ready(m) && !m.is_expired(self.now));
        let mut others: Vec<&&Message> = ready
            .filter(|m| !m.selectable || position(m) > position(best))
            .filter(|m| wall.is_none_or(|wall| position(m) < wall))
            .collect();
        others.sort_by_key(|m| position(m));
        let mut bytes = best.body.len() + key.len() as u64;
        let mut leave = vec![position(best)];
        for other in others {
            bytes += other.body.len() + key.len() as u64;
            let fits = take.body_max.is_none_or(|max| other.body.len() <= max);
            if leave.len() as u64 >= u64::from(limit.messages_max)
                || bytes > limit.bytes_max
                || !fits
            {
                break;
            }
            leave.push(position(other));
        }
        leave.sort();
        leave.into_iter().map(|(_, id)| id).collect()
    }
}
