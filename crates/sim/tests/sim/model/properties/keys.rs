//! Queues whose keys mean something: the order of a key, limits and holds of keys, fair shares, and
//! that nobody waits beside a message that is free.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use quintet_types::*;

use super::{Asked, Properties, Seen, SeenQueue};
use crate::model::world::Checked;

/// Messages under leases of which a key is over its share, and the part of all it must have then.
const NOISY_MIN: u64 = 30;
const NOISY_PART: u64 = 10;
/// Messages of other keys that go before one of a key over its share.
const QUIET_RUN: u64 = 15;

fn place(message: &Message) -> (i64, MessageId) {
    (message.position, message.id)
}

/// Ready and to be taken.
fn waits(message: &Message, now: Ms) -> bool {
    let due = message.due().is_none_or(|due| due <= now);
    message.state == State::Ready && due && message.selectable && !message.is_expired(now)
}

/// Keeps back what stands behind it in its key, in an ordered queue.
fn blocks(message: &Message, now: Ms) -> bool {
    let delayed = message.is_delayed(now) && message.due() != Some(HELD);
    message.state == State::Reserved || delayed || waits(message, now)
}

/// Messages handed out together; `by_id`: the one that a client named.
struct HandedOut<'a> {
    messages: &'a [Message],
    by_id: bool,
}

impl Seen {
    /// Messages of a queue under leases, by key; those without a key among them.
    fn leased(&self, queue: QueueId) -> BTreeMap<Option<Arc<[u8]>>, u64> {
        let mut leased = BTreeMap::new();
        let all = self.messages.values();
        for message in all.filter(|m| m.queue == queue && m.state == State::Reserved) {
            *leased.entry(message.key().cloned()).or_default() += 1;
        }
        leased
    }

    fn is_held(&self, queue: QueueId, key: &[u8], now: Ms) -> bool {
        let until = self.held_keys.get(&(queue, Box::<[u8]>::from(key)));
        until.is_some_and(|until| *until > now)
    }
}

impl Properties {
    pub(super) fn check_keys(
        &mut self,
        now: Ms,
        asked: Option<Asked<'_>>,
        deliveries: &[Delivery],
        seen: &Seen,
        all_hot: bool,
    ) -> Checked {
        let command = asked.map(|asked| asked.command);
        self.note_changes(command, seen);
        self.check_holds(now, command, seen)?;
        let mut lists = Vec::new();
        if let Some(Asked {
            command,
            outcome: Some(Outcome::Messages(messages)),
            at_once,
        }) = asked
        {
            match command {
                Command::Take(take) if !take.peek => {
                    if at_once && all_hot && deliveries.is_empty() {
                        self.check_turns(now, take, messages, seen)?;
                    } else {
                        self.forget_turns(messages);
                    }
                    lists.push(HandedOut {
                        messages,
                        by_id: false,
                    });
                }
                Command::ReserveId { .. } => {
                    self.forget_turns(messages);
                    lists.push(HandedOut {
                        messages,
                        by_id: true,
                    });
                }
                // Perhaps an earlier wait of the client ended instead.
                _ => self.forget_turns(messages),
            }
        }
        for delivery in deliveries {
            if let Outcome::Messages(messages) = &delivery.outcome {
                self.forget_turns(messages);
                lists.push(HandedOut {
                    messages,
                    by_id: false,
                });
            }
        }
        for list in &lists {
            for nth in 0..list.messages.len() {
                self.check_handed(now, list, nth, seen)?;
            }
        }
        self.check_leased(command, seen)
    }

    /// What makes a queue forget what it handed out.
    fn note_changes(&mut self, command: Option<&Command>, seen: &Seen) {
        let group = match command {
            Some(Command::Take(take)) => take.group,
            Some(Command::Watch(Some(take)) | Command::Rewatch(take)) => take.group,
            _ => None,
        };
        self.companions |= group.is_some();
        if let Some(
            Command::Flush { .. }
            | Command::FlushAll
            | Command::Drop(_)
            | Command::DropQueues { .. },
        ) = command
        {
            self.handed.clear();
            self.quiet_run.values_mut().for_each(|run| *run = None);
        }
        for (id, queue) in &seen.queues {
            if !queue.goes_on(self.seen.queues.get(id)) {
                self.handed.retain(|(of, _), _| of != id);
                self.quiet_run.remove(id);
            }
        }
    }

    fn forget_turns(&mut self, messages: &[Message]) {
        for message in messages {
            self.quiet_run.insert(message.queue, None);
        }
    }

    /// A queue, if its keys mean the same as before.
    fn same<'a>(&self, queue: QueueId, seen: &'a Seen) -> Option<&'a SeenQueue> {
        let found = seen.queues.get(&queue)?;
        found.goes_on(self.seen.queues.get(&queue)).then_some(found)
    }

    /// Defects it sees: a hold that ends early, or is made shorter by a later one.
    fn check_holds(&self, now: Ms, command: Option<&Command>, seen: &Seen) -> Checked {
        let ends = matches!(
            command,
            Some(Command::Hold { for_ms: 0, .. } | Command::Drop(_) | Command::DropQueues { .. })
        );
        for ((queue, key), until) in &self.seen.held_keys {
            if *until <= now || ends || !seen.queues.contains_key(queue) {
                continue;
            }
            let left = seen.held_keys.get(&(*queue, key.clone()));
            let kept = left.is_some_and(|left| left >= until);
            prop_assert!(kept, "{key:?} was held until {until:?}, not {left:?}");
        }
        Ok(())
    }

    /// Defects it sees: a message handed out before one that stands before it in its key, out of a
    /// key that is held, or sooner than its key's rate lets it go.
    fn check_handed(&mut self, now: Ms, list: &HandedOut<'_>, nth: usize, seen: &Seen) -> Checked {
        let message = &list.messages[nth];
        let Some((queue, key)) = self.same(message.queue, seen).zip(message.key()) else {
            return Ok(());
        };
        let before = self.seen.messages.get(&message.id);
        // A token gives again what is under a lease; one that was buried stands in no order.
        if before.is_some_and(|before| before.state != State::Ready) {
            return Ok(());
        }
        if queue.settings.groups == Groups::Ordered {
            let together = &list.messages[..nth];
            let here = |m: &Message| m.queue == message.queue && m.key() == Some(key);
            let mut earlier = self.seen.messages.values().filter(|m| {
                let still = seen.messages.get(&m.id).filter(|m| here(m));
                here(m)
                    && place(m) < place(message)
                    && blocks(m, now)
                    && still.is_some_and(|m| place(m) < place(message) && blocks(m, now))
            });
            let passed = earlier.find(|m| !together.iter().any(|other| other.id == m.id));
            prop_assert!(passed.is_none(), "{message:?} went before {passed:?}");
        }
        let held = |seen: &Seen| seen.is_held(message.queue, key, now);
        let free = list.by_id || !held(&self.seen) || !held(seen);
        prop_assert!(
            free || !queue.has_groups(),
            "the key of {message:?} is held"
        );
        let (rate, burst) = (
            queue.settings.key_take_rate,
            queue.settings.key_take_burst.max(1) as usize,
        );
        if rate.count > 0 {
            let of = (message.queue, Box::<[u8]>::from(&**key));
            let times = self.handed.entry(of).or_default();
            times.push(now);
            let first = times.len().checked_sub(burst + 1).map(|at| times[at]);
            let since = first.map_or(u64::MAX, |first| now.since(first));
            let unlimited = list.by_id || self.companions;
            let slow = since >= rate.per_ms / u64::from(rate.count);
            prop_assert!(slow || unlimited, "{message:?} too soon: {times:?}");
        }
        Ok(())
    }

    /// Defects it sees: more messages of a key under leases than may be.
    fn check_leased(&self, command: Option<&Command>, seen: &Seen) -> Checked {
        // By its id a message is leased whatever the others are.
        let by_id = matches!(
            command,
            Some(Command::ReserveId { .. } | Command::Extend { .. } | Command::ByName(_))
        );
        for id in seen.queues.keys() {
            let Some(queue) = self.same(*id, seen) else {
                continue;
            };
            let max = queue.settings.key_in_flight_max;
            if max == 0 || by_id || self.companions {
                continue;
            }
            let before = self.seen.leased(*id);
            for (key, count) in seen.leased(*id) {
                let most = before.get(&key).copied().unwrap_or_default().max(max);
                let fits = key.is_none() || count <= most;
                prop_assert!(fits, "{count} leases of {key:?}, {max} may be");
            }
        }
        Ok(())
    }

    /// Defects it sees: a key over its share goes before others, is starved by them, or goes before
    /// one with fewer leases; a message overtakes an older one of its key. Only where all that waits
    /// is in memory.
    fn check_turns(&mut self, now: Ms, take: &Take, list: &[Message], seen: &Seen) -> Checked {
        let queue = list.first().map(|message| message.queue);
        let queue = queue.and_then(|queue| Some((queue, self.same(queue, seen)?)));
        let fair = queue.filter(|(id, queue)| {
            let holds = self.seen.held_keys.keys().any(|(of, _)| of == id);
            let limits = queue.settings.key_in_flight_max > 0;
            let limits = limits || queue.settings.key_take_rate.count > 0;
            queue.settings.groups == Groups::Fair && !limits && !holds
        });
        let is_new = |m: &Message| {
            let known = self.seen.messages.get(&m.id);
            known.is_some_and(|known| waits(known, now))
        };
        let fair = fair.filter(|_| {
            let one = take.queues.len() == 1 && take.group.is_none();
            one && list.iter().all(is_new)
        });
        let Some((queue, _)) = fair else {
            self.forget_turns(list);
            return Ok(());
        };
        let mut leased = self.seen.leased(queue);
        let here = self.seen.messages.values();
        let here = here.filter(|m| m.queue == queue && waits(m, now));
        let mut left: BTreeMap<MessageId, &Message> = here.map(|m| (m.id, m)).collect();
        let mut run = self.quiet_run.get(&queue).copied().unwrap_or(Some(0));
        // As each of them stood before it was handed out.
        let stood = |message: &Message| self.seen.messages.get(&message.id);
        for message in list.iter().filter_map(stood) {
            let all: u64 = leased.values().sum();
            let held = |m: &Message| leased.get(&m.key().cloned()).copied().unwrap_or_default();
            let is_noisy = |m: &Message| {
                let held = held(m);
                m.key().is_some() && held >= NOISY_MIN && held * NOISY_PART > all
            };
            let fits = |m: &&Message| take.body_max.is_none_or(|max| m.body.len() <= max);
            let noisy = is_noisy(message);
            let mut others = left.values().copied().filter(fits);
            if let Some(run) = run.filter(|_| others.any(|m| is_noisy(m) != noisy)) {
                let turn = run >= QUIET_RUN;
                prop_assert_eq!(noisy, turn, "after {} others: {:?}", run, message);
            }
            let over_share = left.values().copied().filter(fits);
            let over_share = over_share.filter(|&m| is_noisy(m));
            let least = over_share.map(held).min();
            prop_assert!(
                !noisy || least == Some(held(message)),
                "of {least:?}: {message:?}"
            );
            let same_key = left.values().copied().filter(fits);
            let mut same_key = same_key.filter(|m| m.key() == message.key());
            let older = same_key.find(|m| m.order() < message.order());
            prop_assert!(older.is_none(), "{message:?} overtakes {older:?}");
            run = match !noisy && left.values().copied().any(&is_noisy) {
                true => run.map(|run| run + 1),
                false => Some(0),
            };
            left.remove(&message.id);
            if take.lease.is_some() {
                *leased.entry(message.key().cloned()).or_default() += 1;
            }
        }
        self.quiet_run.insert(queue, run);
        Ok(())
    }

    /// Defects it sees: a consumer waits beside a message that is free; a key is not served though
    /// nothing of it is under a lease, or after its hold.
    pub(super) fn check_waits(&self, now: Ms, waiters: &BTreeMap<Name, u64>) -> Checked {
        for (id, queue) in &self.seen.queues {
            let s = &queue.settings;
            let paused = queue
                .pause
                .is_some_and(|end| end.is_none_or(|end| end > now));
            let rates = s.take_rate.count > 0 || s.key_take_rate.count > 0;
            let waited = waiters.get(&queue.name).is_some_and(|count| *count > 0);
            if !waited || paused || s.paused || s.down || rates {
                continue;
            }
            let leased = self.seen.leased(*id);
            let all: u64 = leased.values().sum();
            if s.in_flight_max > 0 && all >= s.in_flight_max {
                continue;
            }
            let here = || self.seen.messages.values().filter(|m| m.queue == *id);
            for message in here().filter(|m| waits(m, now)) {
                let key = message.key();
                let bound = key.filter(|_| queue.has_groups()).is_some_and(|key| {
                    let count = leased.get(&Some(key.clone())).copied().unwrap_or_default();
                    let full = s.key_in_flight_max > 0 && count >= s.key_in_flight_max;
                    let ordered = s.groups == Groups::Ordered;
                    let mut group = here().filter(|m| m.key() == Some(key));
                    let behind = group.any(|m| place(m) < place(message) && blocks(m, now));
                    full || self.seen.is_held(*id, key, now) || ordered && behind
                });
                prop_assert!(bound, "{message:?} is free, and a consumer waits");
            }
        }
        Ok(())
    }
}
