//! Messages by slot number, in chunks that never move.

use quintet_types::Message;

const CHUNK: usize = CHUNK_SLOTS as usize;
const CHUNK_SLOTS: u32 = 1024;

/// A growable array with a free list. Growth adds a chunk and moves nothing:
/// a plain `Vec` would copy a gigabyte under the shard's lock now and then.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    chunks: Vec<Box<[Option<Message>]>>,
    free: Vec<u32>,
    len: usize,
    /// Empty chunks that go back to the system a few at a time.
    old: Vec<Box<[Option<Message>]>>,
}

impl Slab {
    /// Stores a message and answers its slot.
    pub(crate) fn insert(&mut self, message: Message) -> u32 {
        if self.free.is_empty() {
            let base = self.chunks.len() * CHUNK;
            let old = self.old.pop();
            let chunk = old.unwrap_or_else(|| (0..CHUNK).map(|_| None).collect());
            self.chunks.push(chunk);
            let end = u32::try_from(base + CHUNK).expect("under 2^32 messages in a shard");
            self.free.extend((end - CHUNK_SLOTS..end).rev());
        }
        let slot = self.free.pop().expect("a chunk was just added");
        let old = self.chunks[slot as usize / CHUNK][slot as usize % CHUNK].replace(message);
        assert!(old.is_none(), "a slot is free when its message is gone");
        self.len += 1;
        slot
    }

    /// Takes a message out.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<Message> {
        let message = self.chunks.get_mut(slot as usize / CHUNK)?[slot as usize % CHUNK].take()?;
        self.free.push(slot);
        self.len -= 1;
        if self.len == 0 && self.chunks.len() > 1 {
            // Nothing is held: give back all but one chunk, whatever the peak was.
            self.old.extend(self.chunks.drain(1..));
            self.free = (0..CHUNK_SLOTS).rev().collect();
        }
        Some(message)
    }

    /// Gives back the room of up to `max` messages that was in use once; true
    /// if there is more.
    pub(super) fn give_back(&mut self, max: usize) -> bool {
        let kept = self.old.len().saturating_sub(max / CHUNK);
        self.old.truncate(kept);
        if kept == 0 {
            self.old = Vec::new();
        }
        kept > 0
    }

    /// There is room to give back.
    pub(crate) fn has_old(&self) -> bool {
        !self.old.is_empty()
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Message> {
        self.chunks.get(slot as usize / CHUNK)?[slot as usize % CHUNK].as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Message> {
        self.chunks.get_mut(slot as usize / CHUNK)?[slot as usize % CHUNK].as_mut()
    }

    /// The message of a slot that an index names: it is there.
    pub(crate) fn at(&self, slot: u32) -> &Message {
        self.get(slot).expect("an index names no free slot")
    }

    /// The same, to change it.
    pub(super) fn at_mut(&mut self, slot: u32) -> &mut Message {
        self.get_mut(slot).expect("an index names no free slot")
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// All messages with their slots. It stops at the last one: free slots behind it, of which an
    /// engine of few messages has a thousand, cost nothing.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Message)> {
        let slots = self.chunks.iter().flat_map(|chunk| chunk.iter());
        let all = (0_u32..).zip(slots);
        let messages = all.filter_map(|(slot, message)| Some((slot, message.as_ref()?)));
        messages.take(self.len)
    }

    /// One past the highest slot there can be.
    pub(crate) fn bound(&self) -> u32 {
        let slots = u32::try_from(self.chunks.len() * CHUNK);
        slots.expect("no chunk is added that has no slots of 32 bits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fact;
    use crate::engine::Engine;
    use crate::store::damaged::fires;
    use quintet_types::Settings;
    use quintet_types::{At, Body, Ms};
    use quintet_types::{Caller, Command, Delivery, Name, Put};

    #[test]
    fn the_room_of_a_backlog_that_is_gone_goes_back_in_pieces() {
        let (mut log, mut deliveries) = (Vec::<Fact>::new(), Vec::<Delivery>::new());
        let mut engine = Engine::new(0, 1, Settings::default());
        let queue = Name::from("q");
        let put = Put {
            queue: queue.clone(),
            ..Put::default()
        };
        let count = 20 * CHUNK_SLOTS;
        let put = Command::PutMany(vec![put; count as usize]);
        let take = quintet_types::Take {
            queues: [queue].into_iter().collect(),
            messages_max: count,
            ..quintet_types::Take::default()
        };
        for command in [put, Command::Take(take)] {
            engine.submit(Ms(1), Caller::default(), command, &mut log, &mut deliveries);
        }
        assert_eq!(engine.store.messages.old.len(), 19);
        let mut ticks = 0;
        while engine.next_deadline() <= Ms(1) {
            engine.tick(Ms(1), &mut log, &mut deliveries);
            ticks += 1;
        }
        assert!(
            ticks > 3 && !engine.store.messages.has_old(),
            "{ticks} ticks"
        );
    }

    #[test]
    fn a_slot_that_is_no_longer_free_is_noticed() {
        let message = || Message::new(At::default(), Ms(0), Body::default());
        let mut slab = Slab::default();
        let slot = slab.insert(message());
        slab.free.push(slot);
        fires("a slot is free when its message is gone", || {
            slab.insert(message());
        });
    }
}
