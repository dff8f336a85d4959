//! A thread's connections by slot, and those that have something to do without an event.

use std::collections::VecDeque;
use std::mem::{replace, take};
use std::time::Instant;

use quintet_host::ClientKey;

use super::conn::{Conn, Secrecy};

/// Connections with a large body on its way that are sent to, and as many that
/// are read from, before all others are served again: each takes about 50 us.
pub(super) const LARGE_AT_ONCE: usize = 2;

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

/// Connections of a thread that have something to do without an event, once at most in each list:
/// [`super::conn::Listed`].
#[derive(Default)]
pub(super) struct Due {
    /// Connections with something to send.
    pub(super) dirty: Vec<u32>,
    /// Connections with replies that wait.
    pub(super) held: Vec<u32>,
    /// Connections that have more to do without an event.
    pub(super) again: VecDeque<u32>,
    /// The same for those in the middle of a large body.
    pub(super) again_large: VecDeque<u32>,
    /// The same for those in the middle of a handshake.
    pub(super) again_handshake: VecDeque<u32>,
    /// When handshakes are late; those that are over too.
    pub(super) handshakes: VecDeque<(Instant, ClientKey)>,
}

impl Due {
    /// There is something to do in the next turn.
    pub(super) fn is_any(&self) -> bool {
        !self.again.is_empty()
            || !self.again_large.is_empty()
            || !self.again_handshake.is_empty()
            || !self.dirty.is_empty()
    }

    /// A connection's output may have something that can leave.
    pub(super) fn mark_dirty(&mut self, slot: u32, conn: &mut Conn) {
        if !replace(&mut conn.listed.dirty, true) {
            self.dirty.push(slot);
        }
    }

    /// Comes back to a connection in the next turn.
    pub(super) fn mark_again(&mut self, slot: u32, conn: &mut Conn) {
        if !replace(&mut conn.listed.again, true) {
            if conn.secrecy == Secrecy::Handshake {
                self.again_handshake.push_back(slot);
            } else if conn.inbox.upload.is_some() {
                self.again_large.push_back(slot);
            } else {
                self.again.push_back(slot);
            }
        }
    }

    /// A connection's replies wait.
    pub(super) fn mark_held(&mut self, slot: u32, conn: &mut Conn) {
        if !replace(&mut conn.listed.held, true) {
            self.held.push(slot);
        }
    }

    /// The replies that wait may be able to leave.
    pub(super) fn send_held(&mut self, conns: &mut Slab) {
        for slot in take(&mut self.held) {
            if let Some(conn) = conns.get_mut(slot) {
                conn.listed.held = false;
                self.mark_dirty(slot, conn);
            }
        }
    }

    /// The connections to send to now, and those to send to after the next look. Small replies
    /// are first: they do not wait for large bodies, of which a few are sent on at a time.
    pub(super) fn take_dirty(&mut self, conns: &mut Slab) -> (Vec<u32>, Vec<u32>) {
        let mut dirty = take(&mut self.dirty);
        let mut large = |slot: u32| conns.get_mut(slot).is_some_and(|conn| conn.out.is_large());
        let mut later = Vec::new();
        if dirty.iter().any(|&slot| large(slot)) {
            dirty.sort_by_key(|&slot| large(slot));
            let small = dirty.partition_point(|&slot| !large(slot));
            let now = dirty.len().min(small + LARGE_AT_ONCE);
            later = dirty.split_off(now);
        }
        (dirty, later)
    }

    /// Takes back both lists of [`Due::take_dirty`]; the first one is empty, and used again.
    pub(super) fn give_back(&mut self, dirty: Vec<u32>, mut later: Vec<u32>) {
        if self.dirty.is_empty() && later.is_empty() {
            self.dirty = dirty;
        } else {
            // Those whose turn it was come after those who wait for it.
            later.append(&mut self.dirty);
            self.dirty = later;
        }
    }
}
