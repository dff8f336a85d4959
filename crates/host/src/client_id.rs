//! How a connection's client number says where to find it.

use quintet_types::ClientId;

/// The I/O thread, the slot there and the slot's generation, so that a
/// delivery finds its connection without a map and never another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientKey {
    /// Number of the I/O thread, below 256.
    pub thread: usize,
    /// Slot in the thread's table, below 2^24.
    pub slot: u32,
    /// Which user of the slot; from 1, so that no client is 0 (nobody).
    pub generation: u32,
}

/// Slots a thread can have.
pub const SLOTS_MAX: u32 = 1 << 24;

impl ClientKey {
    /// Packs thread, slot and generation into the number that the engine sees.
    pub fn client_id(self) -> ClientId {
        ClientId(
            (self.thread as u64 & 0xff) << 56
                | u64::from(self.slot & (SLOTS_MAX - 1)) << 32
                | u64::from(self.generation),
        )
    }

    /// Where the client of this number is.
    pub fn of(client_id: ClientId) -> Self {
        Self {
            thread: (client_id.0 >> 56) as usize,
            slot: (client_id.0 >> 32) as u32 & (SLOTS_MAX - 1),
            generation: (client_id.0 & 0xffff_ffff) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ClientKey;

    #[test]
    fn a_key_survives_its_number() {
        let key = ClientKey {
            thread: 63,
            slot: (1 << 24) - 1,
            generation: u32::MAX,
        };
        assert_eq!(ClientKey::of(key.client_id()), key);
    }
}
