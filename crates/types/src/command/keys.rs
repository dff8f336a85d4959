//! How the keys of messages decide what a take gets.

use std::sync::Arc;

/// Companions of the same key leave together, up to these limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupLimit {
    /// Messages in a group at most.
    pub messages_max: u32,
    /// Bytes of keys and bodies in a group at most; the first always fits.
    pub bytes_max: u64,
}

/// The key of all messages that a take gets, which removes or leases them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Keys {
    /// That of the first message, or the first one alone if it has none.
    One,
    /// This one. Where keys are ordered it finds nothing and does not wait.
    Of(Arc<[u8]>),
}

impl super::Take {
    /// True if it leaves some messages to others that come later.
    pub fn passes_over(&self) -> bool {
        self.body_max.is_some() || matches!(self.keys.as_deref(), Some(Keys::Of(_)))
    }
}
