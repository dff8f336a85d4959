//! Looking without taking, and numbers.

use std::ops::Bound as Edge;

use smallvec::SmallVec;

use super::Stop;
use quintet_types::{
    AT_ONCE_MS, ClientId, ClientStats, CommandError, DeadLetter, Message, MessageStats, Name,
    NamePage, Outcome, Peek, Principal, QueueId, QueuePage, QueueSetup, QueueStats, ShardStats,
    State, StateIndex, StatsOf, StatsReply, TakeLimit,
};

use crate::engine::Engine;
use crate::store::{Head, Queue};

/// Queues looked at, and messages that become ready, for the shard's numbers.
const ALARMS: usize = 1024;

impl Engine {
    pub(crate) fn peek(&mut self, peek: &Peek) -> Result<Outcome, Stop> {
        let one = |shown: Message| Outcome::Messages(SmallVec::from_iter([shown]));
        let (queue, state_index) = match peek {
            Peek::Id(id) => {
                let slot = self.found(*id)?;
                let message = self.store.messages.at(slot);
                return if message.is_expired(self.now) {
                    Err(CommandError::NotFound.into())
                } else {
                    Ok(one(self.shown(message)))
                };
            }
            Peek::Ready(name) => (name, StateIndex::Ready),
            Peek::Delayed(name) => (name, StateIndex::Delayed),
            Peek::Buried(name) => (name, StateIndex::Buried),
        };
        let id = self.store.find(queue).ok_or(CommandError::NotFound)?;
        self.store.promote(id, self.now);
        let first = self.state_index(id, state_index, None, 1)?;
        let slot = first.first().ok_or(CommandError::NotFound)?;
        Ok(one(self.shown(self.store.messages.at(*slot))))
    }

    pub(crate) fn stats(&mut self, requester: Principal, of: &StatsOf) -> Result<StatsReply, Stop> {
        match of {
            StatsOf::Message(id) => {
                let slot = self.found(*id)?;
                let message = self.store.messages.at(slot);
                if message.is_expired(self.now) {
                    return Err(CommandError::NotFound.into());
                }
                let delayed = message.is_delayed(self.now);
                let until = if message.state == State::Reserved {
                    self.store.leases.get(&slot).and_then(|l| l.until)
                } else {
                    message.due().filter(|_| delayed)
                };
                let settings = &self.store.expect_queue(message.queue).live.settings;
                Ok(StatsReply::Message(MessageStats {
                    logged: !settings.memory,
                    ttr_ms: message.ttr_ms.unwrap_or(settings.default_ttr_ms),
                    queue: self.store.name_of(message.queue),
                    delayed,
                    left_ms: until.map_or(0, |until| self.left(until)),
                    age_ms: self.now.since(message.created),
                    message: self.shown(message),
                }))
            }
            StatsOf::Dependants { parent, from, max } => {
                let page = self.dependants(requester, *parent, *from, *max);
                Ok(StatsReply::Dependants(page))
            }
            StatsOf::Queue(name) => {
                let id = self.existing(name)?;
                self.store.promote(id, self.now);
                let queue = self.store.expect_queue(id);
                Ok(StatsReply::Queue(self.queue_stats(queue)))
            }
            StatsOf::Setup(name) => {
                let id = self.existing(name)?;
                let queue = self.store.expect_queue(id);
                let name_of = |id: &QueueId| self.store.name_of(*id);
                Ok(StatsReply::Setup(Box::new(QueueSetup {
                    name: queue.name.clone(),
                    settings: queue.live.settings.clone(),
                    own: queue.own().clone(),
                    parent: queue.parent.as_ref().map(name_of),
                    children: queue.children.iter().map(name_of).collect(),
                })))
            }
            StatsOf::HeldKeys(name) => Ok(StatsReply::HeldKeys(self.held_keys(name)?)),
            StatsOf::Shard => {
                self.promote_all();
                Ok(StatsReply::Shard(self.shard_stats()))
            }
            StatsOf::Queues { from } => Ok(StatsReply::Queues(self.queue_page(*from))),
            StatsOf::Names {
                shard: _,
                prefix,
                after,
                dead_letter,
                max,
            } => {
                let page = self.name_page(prefix, after.as_ref(), dead_letter.as_ref(), *max);
                Ok(StatsReply::Names(page))
            }
        }
    }

    /// This shard's numbers of a client.
    pub fn client_stats(&self, client_id: ClientId) -> ClientStats {
        const QUEUES: usize = 16;
        let waits_on = self.waiters.queues_of(client_id);
        let waits_on = waits_on.take(QUEUES).map(|queue| self.store.name_of(queue));
        ClientStats {
            leases: self.store.held_by(client_id) as u64,
            waits_on: waits_on.collect(),
        }
    }

    /// The queues from `from.1` on, as many as one step looks at.
    fn queue_page(&mut self, from: (u8, u32)) -> QueuePage {
        const LOOKS: usize = 1024;
        const QUEUES: usize = 256;
        const NAME_BYTES: usize = 64 << 10;
        let mut page = QueuePage::default();
        let mut name_bytes = 0;
        let mut at = usize::try_from(from.1).unwrap_or(usize::MAX);
        let all = self.store.queues.len();
        let end = all.min(at.saturating_add(LOOKS));
        let mut moved = 0;
        while at < end && page.queues.len() < QUEUES && name_bytes < NAME_BYTES && moved < ALARMS {
            moved += self.store.promote(QueueId::at(at), self.now);
            let queue = self.store.queues.get(at);
            at += 1;
            if let Some(queue) = queue.filter(|queue| !queue.live.dropped) {
                name_bytes += queue.name.as_bytes().len();
                page.queues.push(self.queue_stats(queue));
            }
        }
        page.next = match at < all {
            true => Some((from.0, QueueId::at(at).0)),
            false if self.shard + 1 < self.shards => Some((self.shard + 1, 0)),
            false => None,
        };
        page
    }

    fn name_page(
        &self,
        prefix: &[u8],
        after: Option<&Name>,
        dead_letter: Option<&Name>,
        max: u32,
    ) -> NamePage {
        const LOOKS: usize = 1024;
        let mut page = NamePage {
            next_shard: (self.shard + 1 < self.shards).then_some(self.shard + 1),
            ..NamePage::default()
        };
        let first = Name::new(prefix);
        let from = match after.filter(|after| **after >= first) {
            Some(after) => Edge::Excluded(after),
            None => Edge::Included(&first),
        };
        let names = self.store.sorted.range::<Name, _>((from, Edge::Unbounded));
        let names = names.take_while(|name| name.as_bytes().starts_with(prefix));
        for (examined, name) in names.enumerate() {
            if examined >= LOOKS || page.names.len() >= max as usize {
                return page;
            }
            page.next = Some(name.clone());
            // Something only waits on it or refers to it.
            let Ok(id) = self.there(name) else { continue };
            let rule = &self.store.expect_queue(id).live.settings.dead_letter;
            let goes = |to| matches!(rule, DeadLetter::To(own) if own == to);
            if dead_letter.is_none_or(goes) {
                page.names.push(name.clone());
            }
        }
        page.next = None;
        page
    }

    /// So that what is due counts as ready; of much the rest does in a moment.
    fn promote_all(&mut self) {
        let due = self
            .store
            .alarms
            .range(..=(self.now, quintet_types::QueueId(u32::MAX)));
        let due: SmallVec<[_; 8]> = due.take(ALARMS).copied().collect();
        let mut moved = 0;
        for (_, queue) in due {
            moved += self.store.promote(queue, self.now);
            if moved >= ALARMS {
                break;
            }
        }
    }

    fn shard_stats(&self) -> ShardStats {
        ShardStats {
            queues: self.store.names.len() as u64,
            queues_made: self.store.counts.made + self.store.memory_counts.made,
            queues_dropped: self.store.counts.dropped + self.store.memory_counts.dropped,
            queues_expired: self.store.counts.expired + self.store.memory_counts.expired,
            last_id: self.store.last_id().0,
            gauges: self.store.gauges(),
            totals: self.store.totals(),
            waiters: self.waiters.takes() as u64,
            sent: self.store.outbox.len() as u64,
            memory_bytes: self.store.memory_bytes(),
            snapshot_bytes: self.store.snapshot_bytes(),
            cold: self.store.cold_stats(),
            tracked: self.store.tracks.len() as u64,
            result_waiters: self.awaits.waits.len() as u64,
            replies: self.replies,
            held: self.store.dependencies.len() as u64,
            dedupe_ids: self.store.dedupe_records.len() as u64,
            batches: self.store.batches.len() as u64,
            batches_waiting: self.store.batches.waiting() as u64,
        }
    }

    /// The limit of a key that holds the next of its messages back.
    fn key_limit(&self, queue: &Queue) -> Option<TakeLimit> {
        let groups = queue.groups.as_ref()?;
        match groups.first_limited()? {
            Head::Here(slot) => groups.limit_of(self.store.messages.at(slot).key()),
            Head::Cold(_) => groups.limit_of(None),
        }
    }

    fn queue_stats(&self, queue: &Queue) -> QueueStats {
        let oldest = queue.ready.first_key_value();
        let oldest = oldest.map(|(_, &slot)| self.store.messages.at(slot));
        let hot = oldest.map(|message| (StateIndex::Ready.order(message), message.created));
        let cold = self.store.next_cold(queue.id, StateIndex::Ready, None);
        let cold = cold.and_then(|(order, at)| {
            let block = self.store.cold.block(at)?;
            Some((order, block.row.created))
        });
        let oldest = hot.into_iter().chain(cold).min();
        let oldest = oldest.map(|(_, created)| created);
        // One that is over is none, though nobody has ended it.
        let pause = queue
            .pause
            .filter(|pause| pause.until.is_none_or(|until| until > self.now));
        QueueStats {
            name: queue.name.clone(),
            id: queue.id,
            own: queue.overrides.is_some(),
            created: queue.created,
            gauges: queue.gauges(),
            totals: queue.totals,
            age_ms: queue.live.age_ms,
            oldest_ms: oldest.map_or(0, |created| self.now.since(created)),
            paused: queue.is_paused(self.now),
            paused_left_ms: pause
                .and_then(|pause| pause.until)
                .map_or(0, |until| self.left(until)),
            paused_for_ms: pause.map_or(0, |pause| pause.for_ms),
            limited: queue.limit(self.now),
            limited_takes: queue.live.limited_takes,
            came_due: queue.live.came_due,
            keys: queue
                .groups
                .as_ref()
                .map_or(0, |groups| groups.len() as u64),
            keys_limited: queue
                .groups
                .as_ref()
                .map_or(0, |groups| groups.limited_len() as u64),
            key_limit: self.key_limit(queue),
            down: queue.live.settings.down,
            memory: queue.live.settings.memory,
            at_once: queue.live.settings.default_ttr_ms == AT_ONCE_MS,
            parent: queue.parent.map(|parent| self.store.name_of(parent)),
        }
    }
}
