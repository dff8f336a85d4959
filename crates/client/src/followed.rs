//! The events of a queue's messages, for a client that follows it.

use quintet_types::{MessageId, Ms};

/// Bytes of a body that are kept with an event.
pub const FOLLOWED_BODY: usize = 256;

/// An event of a message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Happened {
    /// By the wall clock.
    pub at: Ms,
    pub id: MessageId,
    /// put, arrived, reserved, released, failed, timed_out, connection_lost, buried, kicked,
    /// edited, taken, finished, deleted, dropped, expired, replaced, moved or dead_letter; purged:
    /// of the whole queue.
    pub what: &'static str,
    /// Why it failed or was buried; how many were purged.
    pub note: Box<[u8]>,
    /// Length of the body; `None`: the message was put before the queue was followed.
    pub bytes: Option<u64>,
    /// How the body begins.
    pub body: Box<[u8]>,
}

/// The newest events of a queue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Followed {
    /// Oldest first.
    pub events: Vec<Happened>,
    /// To ask for those that come later.
    pub next: u64,
    /// Events before these that are kept no longer.
    pub missed: u64,
}
