//! Records that puts leave behind so that repeats are known.
//!
//! A mark ends with its time. One with a scope is also *tied* to its message and ends with what
//! becomes of that: facts tell of it, whether the message is in memory or in a run. What no fact
//! tells message by message, a flush, is seen when the mark is looked at.

use std::ops::Bound;

use siphasher::sip128::SipHasher24;

use super::{Durable, MarkKey, Memory};
use quintet_types::{MessageId, Ms, QueueId, Scope, State};

use crate::fact::{Mark, MarkId};

/// Of a mark: an entry of a tree, which is two thirds full.
const TREE: u64 = 104;
/// Of its end or its message: an entry of an index.
const INDEX: u64 = 64;
const _: () = assert!(quintet_types::MARK_BYTES == TREE + 2 * INDEX);

/// Bytes of memory that a mark and its places in the indexes take, about.
fn memory_of(key: &MarkKey, memory: &Memory) -> u64 {
    let indexes = u64::from(memory.until != Ms::NEVER) + u64::from(memory.scope != Scope::Window);
    let whole = match &key.2 {
        MarkId::Whole(id) => id.len() as u64 + 16,
        MarkId::Hash(_) => 0,
    };
    TREE + indexes * INDEX + (1 + indexes) * whole
}

impl Durable {
    /// The part of an id that a deduplication record keeps: its hash, once the key is known.
    pub(crate) fn mark_id(&self, id: impl AsRef<[u8]> + Into<Box<[u8]>>) -> MarkId {
        match &self.hash_key {
            Some(key) => {
                let hash = SipHasher24::new_with_key(key).hash(id.as_ref());
                MarkId::Hash([hash.h1, hash.h2])
            }
            None => MarkId::Whole(id.into()),
        }
    }

    /// Marks are hashes from now on, also those that are there.
    pub(super) fn hash_marks(&mut self, key: [u8; 16]) {
        if self.hash_key.is_some() {
            return;
        }
        self.hash_key = Some(key);
        let keys: Vec<MarkKey> = self.marks.keys().cloned().collect();
        for key in keys {
            let memory = self.marks.get(&key).copied();
            let memory = memory.filter(|_| !self.is_flushed(&key));
            self.forget(&key);
            if let (Some(memory), (queue, kind, MarkId::Whole(id))) = (memory, key) {
                self.remember((queue, kind, self.mark_id(id)), memory);
            }
        }
    }

    /// Whether a put with this mark is a repeat at `now`, and of what.
    pub(crate) fn known(&self, key: &MarkKey, now: Ms) -> Option<&Memory> {
        let memory = self.marks.get(key)?;
        (memory.until > now && self.is_in_scope(key, memory, now)).then_some(memory)
    }

    fn is_in_scope(&self, key: &MarkKey, memory: &Memory, now: Ms) -> bool {
        let here = || self.message(memory.id);
        match memory.scope {
            Scope::Window => self.is_of_this_era(key, memory),
            // One that is tied and in a run waits there, and nothing but a flush took it untold.
            Scope::Waiting | Scope::Started | Scope::Done => here().map_or_else(
                || self.is_of_this_era(key, memory),
                |message| {
                    let waits = matches!(message.state, State::Ready | State::Prepared);
                    !message.is_expired(now) && (waits || memory.scope != Scope::Waiting)
                },
            ),
        }
    }

    /// True if a flush took the message that it is tied to, or the mark itself.
    pub(super) fn is_flushed(&self, key: &MarkKey) -> bool {
        let known = self.marks.get(key);
        known.is_some_and(|memory| {
            let tied = memory.scope != Scope::Window;
            !(self.is_of_this_era(key, memory) || tied && self.message(memory.id).is_some())
        })
    }

    fn is_of_this_era(&self, key: &MarkKey, memory: &Memory) -> bool {
        let queue = self.queue(key.0);
        queue.is_some_and(|queue| queue.era_of(memory.scope) == memory.era)
    }

    /// These messages leave memory for a run: flushes before did not take them.
    pub(super) fn keep_tied(&mut self, queue: QueueId, ids: &[MessageId]) {
        if self.tied.is_empty() {
            return;
        }
        let era = self.queue(queue).map_or(0, |queue| queue.era);
        for id in ids {
            if let Some(key) = self.tied.get(id) {
                let memory = self.marks.get_mut(key);
                memory
                    .expect("a message is tied to a mark that is there")
                    .era = era;
            }
        }
    }

    pub(super) fn remember(&mut self, key: MarkKey, memory: Memory) {
        // Marks go with their queue, whose number a later one may get.
        if self.queue(key.0).is_none_or(|queue| queue.live.dropped) {
            return;
        }
        if let Some(old) = self.marks.insert(key.clone(), memory) {
            self.unlink(&key, &old);
        }
        self.mark_bytes += memory_of(&key, &memory);
        self.count_home(memory.home);
        if let Some(queue) = self.queue_mut(key.0) {
            queue.marks += 1;
            queue.timed_marks += u32::from(memory.scope == Scope::Window);
        }
        if memory.scope != Scope::Window {
            self.tied.insert(memory.id, key.clone());
        }
        if memory.until != Ms::NEVER {
            self.mark_ends.insert((memory.until, key));
        }
    }

    /// A mark is over.
    pub(super) fn forget(&mut self, key: &MarkKey) {
        if let Some(memory) = self.marks.remove(key) {
            self.unlink(key, &memory);
        }
    }

    /// Takes a mark that is over out of the indexes and sums.
    fn unlink(&mut self, key: &MarkKey, memory: &Memory) {
        self.mark_bytes -= memory_of(key, memory);
        self.uncount_home(memory.home);
        if memory.until != Ms::NEVER {
            let was = self.mark_ends.remove(&(memory.until, key.clone()));
            assert!(was, "a mark with a time has its end until it is over");
        }
        if memory.scope != Scope::Window {
            self.tied.remove(&memory.id);
        }
        if let Some(queue) = self.queue_mut(key.0) {
            queue.marks -= 1;
            match memory.scope {
                Scope::Window if memory.era == queue.mark_era => queue.timed_marks -= 1,
                Scope::Window => queue.forgotten_marks -= 1,
                Scope::Waiting | Scope::Started | Scope::Done => {}
            }
        }
    }

    /// Forgets marks whose time is over, `max` at most.
    pub(crate) fn forget_marks(&mut self, now: Ms, max: usize) {
        for _ in 0..max {
            let over = self.mark_ends.first().filter(|(until, _)| *until <= now);
            let Some((_, key)) = over.cloned() else {
                return;
            };
            self.forget(&key);
        }
    }

    /// Marks of a queue are over: of a flush, of a purge, or all, as it was dropped. Their memory
    /// is freed by and by.
    pub(super) fn bury_marks(&mut self, queue: QueueId) {
        if self.queue(queue).is_some_and(|queue| queue.marks > 0) {
            self.graves.marks(queue, None);
        }
    }

    /// Looks through up to `max` marks of such queues.
    pub(crate) fn free_marks(&mut self, max: usize) {
        let mut left = max;
        while left > 0
            && let Some((queue, after)) = self.graves.take_marks()
        {
            let from = match after {
                Some(key) => Bound::Excluded(key),
                None => Bound::Included((queue, Mark::Dedupe, MarkId::Whole(Box::default()))),
            };
            let range = self
                .marks
                .range((from, Bound::Unbounded))
                .map(|(key, _)| key);
            let here = range.take_while(|key| key.0 == queue).take(left);
            let keys: Vec<MarkKey> = here.cloned().collect();
            left -= keys.len().max(1);
            if let Some(last) = keys.last() {
                self.graves.marks(queue, Some(last.clone()));
            }
            let dropped = self.queue(queue).is_none_or(|queue| queue.live.dropped);
            for key in keys {
                if dropped || self.is_flushed(&key) {
                    self.forget(&key);
                }
            }
        }
    }

    /// The message is gone from its queue, or done: its mark is over.
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
            return;
        };
        let memory = self.marks.get(&key);
        if ends(memory.expect("what a message is tied to is a mark").scope) {
            self.forget(&key);
        }
    }

    /// # Errors
    /// An index over the marks is not what it is made from.
    pub(super) fn verify_marks(&self) -> Result<(), String> {
        let (mut ends, mut tied, mut bytes) = (0, 0, 0);
        for (key, memory) in &self.marks {
            bytes += memory_of(key, memory);
            if memory.until != Ms::NEVER {
                ends += 1;
                if !self.mark_ends.contains(&(memory.until, key.clone())) {
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
        if bytes != self.mark_bytes {
            return Err(format!("marks of {bytes} bytes, not {}", self.mark_bytes));
        }
        if (ends, tied) != (self.mark_ends.len(), self.tied.len()) {
            return Err("marks, their ends and what they are tied to differ".to_owned());
        }
        Ok(())
    }
}
