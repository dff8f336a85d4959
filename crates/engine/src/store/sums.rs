//! Sums over all queues, kept as they change: what the shard's numbers cost
//! does not grow with its queues.

use super::cold::Shelved;
use super::{Durable, Queue};
use quintet_types::{QueueGauges, QueueId, QueueTotals, StateIndex};

/// Sums in which every change of a queue's numbers is counted as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Messages in memory and clients, of queues that were not dropped.
    pub(crate) gauges: QueueGauges,
    /// Messages in runs.
    pub(crate) shelved: Shelved,
    /// Of all queues, those that are gone included.
    pub(crate) totals: QueueTotals,
}

impl Sums {
    /// Places in lines, of those who take or of those who only look.
    pub(super) fn in_line(&mut self, peeks: bool) -> &mut u64 {
        match peeks {
            true => &mut self.gauges.waiting_peeks,
            false => &mut self.gauges.waiters,
        }
    }
}

impl Queue {
    /// Its content, runs included.
    pub(crate) fn gauges(&self) -> QueueGauges {
        let mut gauges = self.gauges_in_memory();
        if let Some(cold) = &self.cold {
            cold.sums.add_to(&mut gauges);
        }
        gauges
    }

    fn gauges_in_memory(&self) -> QueueGauges {
        QueueGauges {
            ready: self.ready.len() as u64,
            urgent: self.urgent,
            not_selectable: self.not_selectable.len() as u64,
            delayed: self.delayed.len() as u64,
            retrying: self.retrying,
            reserved: self.reserved.len() as u64,
            buried: self.buried.len() as u64,
            prepared: self.prepared.len() as u64,
            done: self.done,
            relayed: self.archived.len() as u64 - self.done,
            waiting_bytes: self.waiting_bytes,
            bytes: self.bytes,
            cold: 0,
            waiters: self.live.line.len() as u64 - u64::from(self.live.waiting_peeks),
            waiting_peeks: u64::from(self.live.waiting_peeks),
            users: u64::from(self.live.users),
            watchers: u64::from(self.live.watchers),
        }
    }
}

impl Shelved {
    /// Messages in runs counted with those in memory.
    fn add_to(&self, gauges: &mut QueueGauges) {
        gauges.ready += self.count(StateIndex::Ready);
        gauges.urgent += self.urgent;
        gauges.not_selectable += self.count(StateIndex::NotSelectable);
        gauges.delayed += self.count(StateIndex::Delayed);
        gauges.retrying += self.retrying;
        gauges.buried += self.count(StateIndex::Buried);
        gauges.done += self.done;
        gauges.relayed += self.count(StateIndex::Archived) - self.done;
        gauges.waiting_bytes += self.waiting_bytes;
        gauges.bytes += self.bytes;
        gauges.cold += self.all();
    }
}

impl Durable {
    /// Sum of what the queues hold.
    pub(crate) fn gauges(&self) -> QueueGauges {
        let mut gauges = self.sums.gauges;
        self.sums.shelved.add_to(&mut gauges);
        gauges
    }

    /// Sum of all totals, dropped queues included.
    pub(crate) fn totals(&self) -> QueueTotals {
        self.sums.totals
    }

    /// Changes what a queue holds in memory, or who waits on it, in a way that
    /// is not counted where it is done: all its numbers are compared.
    pub(crate) fn recount<T>(
        &mut self,
        id: QueueId,
        change: impl FnOnce(&mut Queue) -> T,
    ) -> Option<T> {
        let Self { queues, sums, .. } = self;
        let queue = queues.get_mut(id.0 as usize)?;
        let counted = |queue: &Queue| match queue.live.dropped {
            true => QueueGauges::default(),
            false => queue.gauges_in_memory(),
        };
        sums.gauges.subtract(&counted(queue));
        let done = change(queue);
        sums.gauges.add(&counted(queue));
        Some(done)
    }

    /// Counts in a queue's totals; answers whether it is there.
    #[inline]
    pub(crate) fn count_in(&mut self, queue: QueueId, add: impl Fn(&mut QueueTotals)) -> bool {
        let Self { queues, sums, .. } = self;
        if let Some(queue) = queues.get_mut(queue.0 as usize) {
            add(&mut queue.totals);
            add(&mut sums.totals);
            return true;
        }
        false
    }

    /// A queue of which more living messages are counted than it holds, in memory and in runs; in
    /// words.
    pub(crate) fn lacks(&self) -> Option<String> {
        self.queues.iter().find_map(|queue| {
            if queue.live.dropped || queue.live.settings.memory || !queue.live.recorded {
                return None;
            }
            let left: u64 = queue.totals.left().values().iter().sum();
            let counted = queue.totals.came().saturating_sub(left);
            let found = queue.gauges();
            let waiting = found.ready + found.not_selectable + found.delayed;
            let known = waiting + found.reserved + found.buried + found.prepared;
            (known < counted).then(|| {
                format!(
                    "queue {}: {counted} living messages are counted, {known} are known",
                    queue.name
                )
            })
        })
    }

    /// Gives a queue, or those that are gone, other totals.
    pub(super) fn replace_totals(sum: &mut QueueTotals, old: &mut QueueTotals, new: QueueTotals) {
        sum.subtract(old);
        sum.add(&new);
        *old = new;
    }

    /// # Errors
    /// A sum is not what the queues come to.
    pub(super) fn verify_sums(&self) -> Result<(), String> {
        let mut slow = Sums {
            totals: self.counts.gone,
            ..Sums::default()
        };
        slow.totals.add(&self.memory_counts.gone);
        let mut live = 0;
        for queue in self.queues.iter() {
            slow.totals.add(&queue.totals);
            if queue.live.dropped {
                continue;
            }
            live += 1;
            slow.gauges.add(&queue.gauges_in_memory());
            if let Some(cold) = &queue.cold {
                slow.shelved.add(&cold.sums);
            }
        }
        if slow != self.sums {
            return Err(format!("{slow:?} counted as {:?}", self.sums));
        }
        if live != self.names.len() || live != self.sorted.len() {
            return Err(format!("{live} queues and {} names", self.names.len()));
        }
        Ok(())
    }
}
