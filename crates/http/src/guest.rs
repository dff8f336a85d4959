//! The party that asks the shards on behalf of a connection.

use std::sync::Arc;

use quintet_door::Door;
use quintet_types::Party;

/// A party that leaves when this is dropped: of a connection ([`crate::Client::own`]), or of a
/// request that has none.
pub struct Guest {
    door: Arc<dyn Door>,
    party: Party,
}

impl Guest {
    /// A new party, without a standing take.
    pub fn new(door: &Arc<dyn Door>) -> Self {
        Self {
            door: Arc::clone(door),
            party: door.enter_here(Box::new(|_, _| {})),
        }
    }

    /// Its number.
    pub fn party(&self) -> Party {
        self.party
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.door.leave(self.party);
    }
}
