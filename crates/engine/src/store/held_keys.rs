//! Keys of a queue of which nothing is handed out for a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Durable;
use quintet_types::{HeldKey, Ms, QueueId};

/// The record of a hold in a snapshot, without its key, bytes at most.
const RECORD: u64 = 48;
/// Memory of a hold beside that: entries of two trees, which are two thirds full.
const TREES: u64 = 80;

/// Held keys of one queue.
#[derive(Debug, Default)]
pub(crate) struct HeldKeys {
    /// Begin and end of each hold.
    by_key: BTreeMap<Arc<[u8]>, (Ms, Ms)>,
    by_end: BTreeSet<(Ms, Arc<[u8]>)>,
    /// Bytes in a snapshot at most.
    restated_bytes: u64,
}

/// Bytes of a held key in a snapshot at most.
pub(crate) fn restated_size_of_held(key: &[u8]) -> u64 {
    RECORD + key.len() as u64
}

impl HeldKeys {
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// The end of a key's hold.
    pub(crate) fn until(&self, key: &[u8]) -> Option<Ms> {
        self.by_key.get(key).map(|&(_, until)| until)
    }

    /// The end of the hold that ends first.
    pub(super) fn first_end(&self) -> Option<Ms> {
        self.by_end.first().map(|&(until, _)| until)
    }

    /// True if a key is held at `now`.
    pub(super) fn lasts(&self, now: Ms) -> bool {
        self.by_end.last().is_some_and(|&(until, _)| until > now)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = HeldKey> + '_ {
        self.by_key.iter().map(|(key, &(since, until))| HeldKey {
            key: Arc::clone(key),
            since,
            until,
        })
    }

    fn hold(&mut self, key: Arc<[u8]>, since: Ms, until: Ms) {
        self.end(&key);
        self.restated_bytes += restated_size_of_held(&key);
        self.by_end.insert((until, Arc::clone(&key)));
        self.by_key.insert(key, (since, until));
    }

    fn end(&mut self, key: &Arc<[u8]>) {
        if let Some((_, until)) = self.by_key.remove(key) {
            self.by_end.remove(&(until, Arc::clone(key)));
            self.restated_bytes -= restated_size_of_held(key);
        }
    }

    fn forget(&mut self, now: Ms) {
        while let Some((until, key)) = self.by_end.first().cloned()
            && until <= now
        {
            self.end(&key);
        }
    }
}

impl Durable {
    /// From now on a key is held until then; `None`: no longer.
    pub(super) fn hold_key(&mut self, id: QueueId, key: &[u8], now: Ms, until: Option<Ms>) {
        let key: Arc<[u8]> = key.into();
        self.change_held(id, |held| {
            held.forget(now);
            match until {
                Some(until) => held.hold(Arc::clone(&key), now, until),
                None => held.end(&key),
            }
        });
        let Self { queues, keyed, .. } = self;
        if let Some(queue) = queues.get_mut(id.0 as usize) {
            keyed.change(queue, |groups| groups.hold(&key, until, now));
        }
        self.rearm(id);
    }

    /// Forgets the holds of a queue that are over: a predicate on time, as the end of a pause.
    pub(super) fn end_holds(&mut self, id: QueueId, now: Ms) {
        let first = self
            .queue(id)
            .and_then(|queue| queue.held_keys.as_ref()?.first_end());
        if first.is_some_and(|until| until <= now) {
            self.change_held(id, |held| held.forget(now));
            self.rearm(id);
        }
    }

    /// A dropped queue holds nothing.
    pub(super) fn drop_holds(&mut self, id: QueueId) {
        let holds = self
            .queue(id)
            .is_some_and(|queue| queue.held_keys.is_some());
        if holds {
            self.change_held(id, |held| *held = HeldKeys::default());
        }
    }

    fn change_held(&mut self, id: QueueId, change: impl FnOnce(&mut HeldKeys)) {
        let Some(queue) = self.queue_mut(id) else {
            // The log may name a queue that is gone.
            return;
        };
        let mut held = queue.held_keys.take().unwrap_or_default();
        let before = (held.len(), held.restated_bytes);
        change(&mut held);
        let after = (held.len(), held.restated_bytes);
        queue.held_keys = (held.len() > 0).then_some(held);
        self.held_keys_count = self.held_keys_count - before.0 + after.0;
        self.held_keys_bytes = self.held_keys_bytes - before.1 + after.1;
    }

    /// Bytes of memory that held keys take, about.
    pub(super) fn held_keys_memory(&self) -> u64 {
        self.held_keys_bytes + self.held_keys_count as u64 * TREES
    }

    /// # Errors
    /// The sum over all queues is not their holds'.
    pub(super) fn verify_holds(&self) -> Result<(), String> {
        let holds = self.queues.iter();
        let holds = holds.filter_map(|queue| queue.held_keys.as_ref());
        let (mut bytes, mut count) = (0, 0);
        for held in holds {
            let keys = held.by_key.keys().map(|key| restated_size_of_held(key));
            let keys: u64 = keys.sum();
            if keys != held.restated_bytes || held.by_key.len() != held.by_end.len() {
                return Err(format!("{held:?} is counted as something else"));
            }
            bytes += keys;
            count += held.len();
        }
        let sums = (self.held_keys_count, self.held_keys_bytes);
        match (count, bytes) == sums {
            true => Ok(()),
            false => Err(format!("{count} held keys of {bytes} bytes, not {sums:?}")),
        }
    }
}
