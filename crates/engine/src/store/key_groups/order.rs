//! Which message of a queue with message groups comes next.

use std::ops::Bound as Edge;
use std::sync::Arc;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::super::{Ascending, Hash, Order};
use super::{Eligibility, Head, KeyGroups, Position, QUIET_RUN};
use quintet_types::{Message, Ms};

use crate::pace::Pace;

/// How far a take of several has come along an ordered queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Walk {
    /// The group it follows, and the last place it got.
    follow: Option<(Arc<[u8]>, Position)>,
    /// How many of that group it would have got, if it only looks ahead.
    taken: u64,
    /// The head it got last, if it only looks ahead.
    passed: Option<Order>,
    /// Messages that it would have got of each key, in a queue that is not ordered.
    counts: HashMap<Arc<[u8]>, u64, Hash>,
}

impl Walk {
    /// It got this message for good.
    pub(crate) fn got(&mut self, message: &Message) {
        self.follow = message
            .key()
            .map(|key| (key.clone(), (message.position, message.id)));
    }

    /// It would get this one.
    pub(crate) fn pass(&mut self, message: &Message, ordered: bool) {
        let order = message.order();
        if !ordered {
            self.passed = Some(order);
            if let Some(key) = message.key() {
                *self.counts.entry(key.clone()).or_default() += 1;
            }
            // By the settings the keys have no order: their numbers are enough.
            return;
        }
        match (&mut self.follow, message.key()) {
            (Some((followed, last)), Some(key)) if followed == key => {
                *last = (message.position, message.id);
                self.taken += 1;
            }
            _ => {
                self.got(message);
                self.taken = 1;
                self.passed = Some(order);
            }
        }
    }
}

impl KeyGroups {
    /// Groups over their share of which something may go; the one with the fewest messages
    /// under leases first.
    pub(super) fn noisy_heads(&self) -> impl Iterator<Item = u32> + use<> {
        let heads = self.over_share.iter().filter_map(|&number| {
            let group = self.group(number);
            let (eligibility, order) = group.eligibility?;
            (eligibility == Eligibility::OverShare).then_some((group.in_flight, order, number))
        });
        let mut heads: SmallVec<[(u64, Order, u32); 9]> = heads.collect();
        heads.sort_unstable();
        heads.into_iter().map(|(_, _, number)| number)
    }

    /// The first message of groups over their share that fits, and whether its turn has come.
    pub(crate) fn noisy_that_fits(
        &self,
        fits: &mut impl FnMut(Head) -> bool,
    ) -> Option<((Order, Head), bool)> {
        let found = self.noisy_heads().find_map(|number| {
            let mut ready = self.group(number).ready.iter();
            let fitting = ready.find(|(_, (_, head))| fits(*head));
            fitting.map(|((_, position, id), &(priority, head))| ((priority, position, id), head))
        })?;
        Some((found, self.quiet_run >= QUIET_RUN))
    }

    /// Heads that may go, in their order.
    pub(crate) fn free_heads(&self) -> impl Iterator<Item = (Order, Head)> + '_ {
        self.free.iter().map(|(order, &head)| (order, head))
    }

    /// Messages that may be taken of a group of a queue that is not ordered, the head first.
    pub(crate) fn members(&self, key: &Arc<[u8]>) -> impl Iterator<Item = (Order, Head)> + '_ {
        let ready = self.find(key).map(|group| group.ready.iter());
        let ready = ready.into_iter().flatten();
        ready.map(|((_, position, id), &(priority, head))| ((priority, position, id), head))
    }

    /// The first head behind `walk` that may go and fits; those that a limit
    /// holds back too, if it is only to be looked at.
    pub(crate) fn head(
        &self,
        walk: Option<&Walk>,
        peek: bool,
        mut fits: impl FnMut(Head) -> bool,
    ) -> Option<(Order, Head)> {
        let passed = walk.and_then(|walk| walk.passed);
        let from = passed.map_or(Edge::Unbounded, Edge::Excluded);
        let mut first = |map: &Ascending<Order, Head>| {
            let mut heads = map.range((from, Edge::Unbounded));
            let found = heads.find(|&(_, &head)| fits(head));
            found.map(|(order, &head)| (order, head))
        };
        let free = first(&self.free);
        let limited = match peek {
            true => first(&self.limited),
            false => None,
        };
        free.into_iter()
            .chain(limited)
            .min_by_key(|&(order, _)| order)
    }

    /// The next message of a group for a take that has got some of it.
    pub(crate) fn next_of_group(
        &self,
        walk: &Walk,
        peek: bool,
        leased: bool,
        now: Ms,
    ) -> Option<(Order, Head)> {
        let (key, last) = walk.follow.as_ref()?;
        let group = self.find(key)?;
        let from = Edge::Excluded((0, last.0, last.1));
        let next = group.ready.range((from, Edge::Unbounded)).next();
        let ((_, position, id), &(priority, head)) = next?;
        let between = (Edge::Excluded(*last), Edge::Excluded((position, id)));
        if *last < (position, id) && group.blocking.range(between).next().is_some() {
            return None;
        }
        let max = self.rules.in_flight_max;
        let held = group.in_flight + if leased { walk.taken } else { 0 };
        let full = max > 0 && held >= max;
        let pace = group.pace.after(self.rules.speed, now, walk.taken);
        let fast = pace.next(self.rules.speed, now).is_some();
        let waits = full || fast || group.is_held(now);
        (peek || !waits).then_some(((priority, position, id), head))
    }

    /// True if a limit holds back a message of this key, when `walk` has come
    /// so far along a queue that is not ordered.
    pub(crate) fn is_limited(&self, walk: &Walk, key: &Arc<[u8]>, leased: bool, now: Ms) -> bool {
        let taken = walk.counts.get(key).copied().unwrap_or(0);
        let group = self.find(key);
        let max = self.rules.in_flight_max;
        let held = group.map_or(0, |group| group.in_flight) + if leased { taken } else { 0 };
        let pace = group.map_or_else(Pace::default, |group| group.pace);
        let pace = pace.after(self.rules.speed, now, taken);
        let waits = pace.next(self.rules.speed, now).is_some();
        waits || max > 0 && held >= max || group.is_some_and(|group| group.is_held(now))
    }

    /// The first that may go of what lies in known blocks, behind a walk that
    /// looks ahead along a queue that is not ordered. Of many keys that it has
    /// got something of not all are looked at.
    pub(crate) fn known_ahead(&self, walk: &Walk, leased: bool, now: Ms) -> Option<(Order, Head)> {
        const KEYS: usize = 64;
        if self.known.is_empty() {
            return None;
        }
        let is_cold = |head: Head| matches!(head, Head::Cold(_));
        let other = self.head(Some(walk), false, is_cold);
        #[expect(clippy::disallowed_methods, reason = "the first of all is chosen")]
        let keys = walk.counts.keys().take(KEYS);
        let of_keys = keys.filter(|key| !self.is_limited(walk, key, leased, now));
        let of_keys = of_keys.filter_map(|key| {
            let from = walk.passed.map_or(Edge::Unbounded, Edge::Excluded);
            let mut behind = self.find(key)?.ready.range((from, Edge::Unbounded));
            let cold = behind.find(|(_, (_, head))| is_cold(*head));
            cold.map(|(pos, &(_, head))| (pos, head))
        });
        of_keys.chain(other).min_by_key(|&(order, _)| order)
    }

    /// Where a walk that looks ahead goes on.
    pub(crate) fn passed(walk: &Walk) -> Option<Order> {
        walk.passed
    }

    /// True if this message is the one that its group begins with, or if it
    /// has no group.
    pub(crate) fn is_head(&self, message: &Message) -> bool {
        let Some(group) = message.key().and_then(|key| self.find(key)) else {
            // The client that put it gave no key.
            return true;
        };
        let position = (message.position, message.id);
        let first = group.ready.first_key_value();
        let first = first.map(|((_, position, id), _)| (position, id));
        first.is_none_or(|first| first >= position)
            && group
                .blocking
                .first_key_value()
                .is_none_or(|(first, ())| first >= position)
    }

    /// Companions of a message of an ordered queue in the order of their
    /// places, up to the first that may not go; those that are not selectable with them.
    pub(crate) fn companions(&self, best: &Message) -> impl Iterator<Item = u32> + '_ {
        let position = (best.position, best.id);
        let group = best.key().and_then(|key| self.find(key));
        let end = group.and_then(|group| {
            let behind = (Edge::Excluded(position), Edge::Unbounded);
            let next = group.blocking.range(behind).next();
            next.map(|(position, _)| position)
        });
        let from = Edge::Excluded((0, best.position, best.id));
        let ready = group.map(|group| group.ready.range((from, Edge::Unbounded)));
        let mut ready = ready
            .into_iter()
            .flatten()
            .map_while(|((_, position, id), (_, head))| match head {
                Head::Here(slot) => Some(((position, id), *slot)),
                Head::Cold(_) => None,
            })
            .peekable();
        let not_selectable = group.map(|group| group.not_selectable.iter());
        let not_selectable = not_selectable.into_iter().flatten();
        let mut not_selectable = not_selectable
            .map(|(position, &slot)| (position, slot))
            .peekable();
        let next = move || {
            let first = match (ready.peek(), not_selectable.peek()) {
                (Some(one), Some(other)) if other.0 < one.0 => not_selectable.next(),
                (None, _) => not_selectable.next(),
                (Some(_), _) => ready.next(),
            };
            first.filter(|(position, _)| end.is_none_or(|end| *position < end))
        };
        std::iter::from_fn(next).map(|(_, slot)| slot)
    }
}
