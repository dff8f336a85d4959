//! The shards of messages that were handed out lately, by their own names.
//!
//! A client that settles a job names the job alone. Without this memory the
//! server would lock one shard after the other until one has the job.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU8, Ordering};

use quintet_types::{ByName, Command, Message, NamedAction, Outcome, shard_of_id};

/// Names that are remembered. Two names in one slot cost the search of before.
const SLOTS: usize = 64 << 10;

/// One slot for each hash of a name: the shard that handed out a message of such a name last.
/// A wrong slot does no harm, since the other shards are asked next.
pub(crate) struct Reserved {
    shards: usize,
    hashes: RandomState,
    /// Empty with a single shard.
    slots: Vec<AtomicU8>,
}

impl Reserved {
    pub(crate) fn new(shards: usize) -> Self {
        let slots = if shards > 1 { SLOTS } else { 0 };
        Self {
            shards,
            hashes: RandomState::new(),
            slots: (0..slots).map(|_| AtomicU8::new(0)).collect(),
        }
    }

    /// The slot of a name; `None`: there is one shard.
    fn slot(&self, name: &[u8]) -> Option<&AtomicU8> {
        let hash = usize::try_from(self.hashes.hash_one(name) % SLOTS as u64);
        self.slots.get(hash.unwrap_or(0))
    }

    /// Remembers the shards of the messages that an outcome hands out.
    #[inline]
    pub(crate) fn note(&self, outcome: &Outcome) {
        if let Outcome::Messages(messages) = outcome
            && !self.slots.is_empty()
        {
            messages.iter().for_each(|message| self.note_one(message));
        }
    }

    fn note_one(&self, message: &Message) {
        if let Some(name) = message.name()
            && let Some(slot) = self.slot(name)
            && let Ok(shard) = u8::try_from(shard_of_id(message.id, self.shards))
        {
            slot.store(shard, Ordering::Relaxed);
        }
    }

    /// The shard to ask first about the message that a command names.
    pub(crate) fn first_for(&self, command: &Command) -> usize {
        // A tracked message may be one that nobody has reserved.
        if let Command::ByName(by_name) = command
            && let ByName { name, action, .. } = &**by_name
            && *action != NamedAction::Track
            && let Some(slot) = self.slot(name)
        {
            usize::from(slot.load(Ordering::Relaxed)).min(self.shards - 1)
        } else {
            0
        }
    }
}
