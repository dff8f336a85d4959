//! Deduplication records: puts leave them behind so that repeats are known.
//!
//! A record ends with its time. One with a scope is also *tied* to its message and ends with what
//! becomes of that: facts record it, whether the message is in memory or in a run. What no fact
//! tells message by message, a flush, is seen when the record is looked at.

use std::ops::Bound;

use siphasher::sip128::SipHasher24;

use super::{DedupeKey, Durable, Memory};
use quintet_types::{MessageId, Ms, QueueId, Scope, State};

use crate::fact::{DedupeId, DedupeKind};

/// Of a record: an entry of a tree, which is two thirds full.
const TREE: u64 = 104;
/// Of its end or its message: an entry of an index.
const INDEX: u64 = 64;
const _: () = assert!(quintet_types::DEDUPE_RECORD_BYTES == TREE + 2 * INDEX);

/// Bytes of memory that a record and its places in the indexes take, about.
fn memory_of(key: &DedupeKey, memory: &Memory) -> u64 {
    let indexes = u64::from(memory.until != Ms::NEVER) + u64::from(memory.scope != Scope::Window);
    let whole = match &key.2 {
        DedupeId::Whole(id) => id.len() as u64 + 16,
        DedupeId::Hash(_) => 0,
    };
    TREE + indexes * INDEX + (1 + indexes) * whole
}

impl Durable {
    /// The part of an id that a deduplication record keeps: its hash, once the key is known.
    pub(crate) fn dedupe_id(&self, id: impl AsRef<[u8]> + Into<Box<[u8]>>) -> DedupeId {
        match &self.hash_key {
            Some(key) => {
                let hash = SipHasher24::new_with_key(key).hash(id.as_ref());
                DedupeId::Hash([hash.h1, hash.h2])
            }
            None => DedupeId::Whole(id.into()),
        }
    }

    /// Records keep hashes from now on, also those that are there.
    pub(super) fn hash_dedupe(&mut self, key: [u8; 16]) {
        if self.hash_key.is_some() {
            // The log has given the key before, and the records go by it.
            return;
        }
        self.hash_key = Some(key);
        let keys: Vec<DedupeKey> = self.dedupe_records.keys().cloned().collect();
        for key in keys {
            let memory = self.dedupe_records.get(&key).copied();
            let memory = memory.filter(|_| !self.is_flushed(&key));
            self.forget(&key);
            if let (Some(memory), (queue, kind, DedupeId::Whole(id))) = (memory, key) {
                self.remember((queue, kind, self.dedupe_id(id)), memory);
            }
        }
    }

    /// Whether a put with this key is a repeat at `now`, and of what.
    pub(crate) fn known(&self, key: &DedupeKey, now: Ms) -> Option<&Memory> {
        let memory = self.dedupe_records.get(key)?;
        (memory.until > now && self.is_in_scope(key, memory, now)).then_some(memory)
    }

    fn is_in_scope(&self, key: &DedupeKey, memory: &Memory, now: Ms) -> bool {
        let here = || self.message(memory.id);
        match memory.scope {
            Scope::Window => self.is_of_this_generation(key, memory),
            // One that is tied and in a run waits there, and nothing but a flush took it untold.
            Scope::Waiting | Scope::Started | Scope::Done => here().map_or_else(
                || self.is_of_this_generation(key, memory),
                |message| {
                    let waits = matches!(message.state, State::Ready | State::Prepared);
                    !message.is_expired(now) && (waits || memory.scope != Scope::Waiting)
                },
            ),
        }
    }

    /// True if a flush took the message that it is tied to, or the record itself.
    pub(super) fn is_flushed(&self, key: &DedupeKey) -> bool {
        let known = self.dedupe_records.get(key);
        known.is_some_and(|memory| {
            let tied = memory.scope != Scope::Window;
            !(self.is_of_this_generation(key, memory) || tied && self.message(memory.id).is_some())
        })
    }

    fn is_of_this_generation(&self, key: &DedupeKey, memory: &Memory) -> bool {
        let queue = self.queue(key.0);
        queue.is_some_and(|queue| queue.generation_of(memory.scope) == memory.generation)
    }

    /// These messages leave memory for a run: flushes before did not take them.
    pub(super) fn keep_tied(&mut self, queue: QueueId, ids: &[MessageId]) {
        if self.tied.is_empty() {
            // No record is tied to a message, as with most settings.
            return;
        }
        let generation = self.queue(queue).map_or(0, |queue| queue.generation);
        for id in ids {
            if let Some(key) = self.tied.get(id) {
                let memory = self.dedupe_records.get_mut(key);
                memory
                    .expect("a message is tied to a deduplication record that is there")
                    .generation = generation;
            }
        }
    }

    pub(super) fn remember(&mut self, key: DedupeKey, memory: Memory) {
        // Records go with their queue, whose number a later one may get.
        if self.queue(key.0).is_none_or(|queue| queue.live.dropped) {
            return;
        }
        if let Some(old) = self.dedupe_records.insert(key.clone(), memory) {
            self.unlink(&key, &old);
        }
        self.dedupe_bytes += memory_of(&key, &memory);
        self.count_segment_ref(memory.segment_ref);
        if let Some(queue) = self.queue_mut(key.0) {
            queue.dedupe_records += 1;
            queue.timed_dedupe += u32::from(memory.scope == Scope::Window);
        }
        if memory.scope != Scope::Window {
            self.tied.insert(memory.id, key.clone());
        }
        if memory.until != Ms::NEVER {
            self.dedupe_ends.insert((memory.until, key));
        }
    }

    /// A record is over.
    pub(super) fn forget(&mut self, key: &DedupeKey) {
        if let Some(memory) = self.dedupe_records.remove(key) {
            self.unlink(key, &memory);
        }
    }

    /// Takes a record that is over out of the indexes and sums.
    fn unlink(&mut self, key: &DedupeKey, memory: &Memory) {
        self.dedupe_bytes -= memory_of(key, memory);
        self.uncount_segment_ref(memory.segment_ref);
        if memory.until != Ms::NEVER {
            let was = self.dedupe_ends.remove(&(memory.until, key.clone()));
            assert!(
                was,
                "a deduplication record with a time has its end until it is over"
            );
        }
        if memory.scope != Scope::Window {
            self.tied.remove(&memory.id);
        }
        if let Some(queue) = self.queue_mut(key.0) {
            queue.dedupe_records -= 1;
            match memory.scope {
                Scope::Window if memory.generation == queue.dedupe_generation => {
                    queue.timed_dedupe -= 1
                }
                Scope::Window => queue.forgotten_dedupe -= 1,
                Scope::Waiting | Scope::Started | Scope::Done => {}
            }
        }
    }

    /// Forgets records whose time is over, `max` at most.
    pub(crate) fn forget_dedupe(&mut self, now: Ms, max: usize) {
        for _ in 0..max {
            let over = self.dedupe_ends.first().filter(|(until, _)| *until <= now);
            let Some((_, key)) = over.cloned() else {
                // No other is over.
                return;
            };
            self.forget(&key);
        }
    }

    /// Records of a queue are over: of a flush, of a purge, or all, as it was dropped. Their memory
    /// is freed by and by.
    pub(super) fn bury_dedupe(&mut self, queue: QueueId) {
        if self
            .queue(queue)
            .is_some_and(|queue| queue.dedupe_records > 0)
        {
            self.tombstones.dedupe_records(queue, None);
        }
    }

    /// Looks through up to `max` records of such queues.
    pub(crate) fn free_dedupe(&mut self, max: usize) {
        let mut left = max;
        while left > 0
            && let Some((queue, after)) = self.tombstones.take_dedupe()
        {
            let from = match after {
                Some(key) => Bound::Excluded(key),
                None => {
                    Bound::Included((queue, DedupeKind::Dedupe, DedupeId::Whole(Box::default())))
                }
            };
            let range = self
                .dedupe_records
                .range((from, Bound::Unbounded))
                .map(|(key, _)| key);
            let here = range.take_while(|key| key.0 == queue).take(left);
            let keys: Vec<DedupeKey> = here.cloned().collect();
            left -= keys.len().max(1);
            if let Some(last) = keys.last() {
                self.tombstones.dedupe_records(queue, Some(last.clone()));
            }
            let dropped = self.queue(queue).is_none_or(|queue| queue.live.dropped);
            for key in keys {
                if dropped || self.is_flushed(&key) {
                    self.forget(&key);
                }
            }
        }
    }

    /// The message is gone from its queue, or done: its record is over.
    #[inline]
    pub(super) fn untie(&mut self, id: MessageId) {
        if !self.tied.is_empty() {
            self.untie_if(id, |_| true);
        }
    }

    /// The message was taken.
    #[inline]
    pub(super) fn untie_started(&mut self, id: MessageId) {
        if !self.tied.is_empty() {
            self.untie_if(id, |scope| scope == Scope::Started);
        }
    }

    #[cold]
    fn untie_if(&mut self, id: MessageId, ends: impl Fn(Scope) -> bool) {
        let Some(key) = self.tied.get(&id).cloned() else {
            // No record is tied to it.
            return;
        };
        let memory = self.dedupe_records.get(&key);
        if ends(
            memory
                .expect("what a message is tied to is a deduplication record")
                .scope,
        ) {
            self.forget(&key);
        }
    }

    /// # Errors
    /// An index over the records is not what it is made from.
    pub(super) fn verify_dedupe(&self) -> Result<(), String> {
        let (mut ends, mut tied, mut bytes) = (0, 0, 0);
        for (key, memory) in &self.dedupe_records {
            bytes += memory_of(key, memory);
            if memory.until != Ms::NEVER {
                ends += 1;
                if !self.dedupe_ends.contains(&(memory.until, key.clone())) {
                    return Err(format!("{key:?} has no end"));
                }
            }
            if memory.scope != Scope::Window {
                tied += 1;
                if self.tied.get(&memory.id) != Some(key) {
                    return Err(format!("{key:?} is not tied to {:?}", memory.id));
                }
            }
        }
        if bytes != self.dedupe_bytes {
            return Err(format!(
                "deduplication records of {bytes} bytes, not {}",
                self.dedupe_bytes
            ));
        }
        if (ends, tied) != (self.dedupe_ends.len(), self.tied.len()) {
            return Err(
                "deduplication records, their ends and what they are tied to differ".to_owned(),
            );
        }
        Ok(())
    }
}
