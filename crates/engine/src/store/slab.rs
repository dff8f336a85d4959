//! Messages by slot number, in chunks that never move.

use crate::message::Message;

const CHUNK: usize = 1024;

/// A growable array with a free list. Growth adds a chunk and moves nothing:
/// a plain `Vec` would copy a gigabyte under the shard's lock now and then.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    chunks: Vec<Box<[Option<Message>]>>,
    free: Vec<u32>,
    len: usize,
}

impl Slab {
    /// Stores a message and answers its slot.
    pub(crate) fn insert(&mut self, message: Message) -> u32 {
        if self.free.is_empty() {
            let base = self.chunks.len() * CHUNK;
            self.chunks.push((0..CHUNK).map(|_| None).collect());
            let end = u32::try_from(base + CHUNK).expect("under 2^32 messages in a shard");
            self.free.extend((end - CHUNK as u32..end).rev());
        }
        let slot = self.free.pop().expect("a chunk was just added");
        self.chunks[slot as usize / CHUNK][slot as usize % CHUNK] = Some(message);
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
            self.chunks.truncate(1);
            self.free = (0..CHUNK as u32).rev().collect();
        }
        Some(message)
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

    /// One past the highest slot there can be.
    pub(crate) fn bound(&self) -> u32 {
        (self.chunks.len() * CHUNK) as u32
    }
}
