//! The common interface of other servers.

use std::collections::VecDeque;
use std::net::SocketAddr;

use anyhow::Result;
use serde_json::Value;

use crate::import::count::Counts;
use crate::records::Source;

/// Another queue server, from which messages are moved.
///
/// What it gave is held there until [`Source::stored`] says that it is durable here; then it is
/// deleted there. So nothing is in neither place, and what is in both after a fault comes twice.
pub(in crate::import) trait Peer: Source {
    /// The waiting messages, by queue and state; nothing is taken.
    ///
    /// # Errors
    /// The peer's, or it is gone.
    fn counts(&mut self) -> Result<Counts>;

    /// How the queues that were counted are set up there, as `POST /queues/{queue}` takes it.
    fn setups(&self) -> Vec<(String, Value)> {
        Vec::new()
    }

    /// False: [`Source::next`] gave nothing because what it gave before should be stored first.
    fn is_through(&self) -> bool;

    /// Gives back what is held and not stored, as it was there; how many messages.
    ///
    /// # Errors
    /// The peer is gone: then it gives them back itself.
    fn give_back(&mut self) -> Result<u64>;

    /// Why the import fails although it went on; ask before [`Self::give_back`].
    fn fault(&self) -> Option<String> {
        None
    }

    /// This end of a connection to it that stands and that it has accepted, if there is one.
    fn local(&mut self) -> Option<SocketAddr>;

    /// How many messages that are stored here somebody else may have taken there meanwhile, as
    /// their time to run was over.
    fn twice(&self) -> u64 {
        0
    }
}

/// Takes the first so many of what a peer gave: they are stored.
pub(super) fn first<T>(given: &mut VecDeque<T>, messages: u64) -> Vec<T> {
    let count = usize::try_from(messages).unwrap_or(usize::MAX);
    let count = count.min(given.len());
    given.drain(..count).collect()
}
