//! A thread's connections by slot.

use quintet_host::ClientKey;

use super::conn::Conn;

/// Slots are used again; the generation tells their users apart.
#[derive(Default)]
pub(super) struct Slab {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    conn: Option<Box<Conn>>,
}

impl Slab {
    /// The key of the next connection to [`Slab::insert`]. `None`: no slot is
    /// left.
    pub(super) fn reserve(&mut self, thread: usize) -> Option<ClientKey> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = u32::try_from(self.slots.len()).ok()?;
                if slot >= quintet_host::SLOTS_MAX {
                    return None;
                }
                self.slots.push(Slot::default());
                slot
            }
        };
        let entry = &mut self.slots[slot as usize];
        // From 1 on, and past 0 after four thousand million users.
        entry.generation = entry.generation.wrapping_add(1).max(1);
        Some(ClientKey {
            thread,
            slot,
            generation: entry.generation,
        })
    }

    pub(super) fn insert(&mut self, key: ClientKey, conn: Box<Conn>) {
        self.slots[key.slot as usize].conn = Some(conn);
    }

    /// Gives back a reserved slot that was not used.
    pub(super) fn release(&mut self, key: ClientKey) {
        self.free.push(key.slot);
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Conn> {
        self.slots.get_mut(slot as usize)?.conn.as_deref_mut()
    }

    /// The slot of this client, if its connection still lives.
    pub(super) fn slot_of(&self, key: ClientKey) -> Option<u32> {
        let slot = self.slots.get(key.slot as usize)?;
        (slot.generation == key.generation && slot.conn.is_some()).then_some(key.slot)
    }

    /// The same, and the connection in it.
    #[inline]
    pub(super) fn find(&mut self, key: ClientKey) -> Option<(u32, &mut Conn)> {
        let slot = self.slot_of(key)?;
        Some((slot, self.get_mut(slot)?))
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<Box<Conn>> {
        let conn = self.slots.get_mut(slot as usize)?.conn.take()?;
        self.free.push(slot);
        Some(conn)
    }

    /// The slots in use.
    pub(super) fn slots(&self) -> Vec<u32> {
        let used = (0..)
            .zip(&self.slots)
            .filter(|(_, slot)| slot.conn.is_some());
        used.map(|(slot, _)| slot).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| slot.conn.is_none())
    }
}
