//! The common interface of other servers.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use quintet_control::Head;
use serde_json::Value;

use crate::import::count::Counts;
use crate::records::{Entry, Large, Source};

#[derive(Default)]
pub(in crate::import) struct PeerState {
    stop: Arc<AtomicBool>,
    /// The peer gives nothing more.
    pub(super) through: bool,
    /// Place of the message that came last, for people.
    pub(super) place: String,
    /// Body of that message, if it comes in pieces.
    pub(super) large: Large,
    /// Messages given out.
    pub(super) passed: u64,
    /// See [`Peer::twice`].
    pub(super) twice: u64,
}

impl PeerState {
    /// State of a peer that gave nothing yet; `stop` ends the import.
    pub(super) fn new(stop: Arc<AtomicBool>, place: String) -> Self {
        Self {
            stop,
            place,
            ..Self::default()
        }
    }

    /// True if the peer gives nothing more, also because the import stops.
    pub(super) fn is_over(&mut self) -> bool {
        self.through |= self.stop.load(Ordering::Relaxed);
        self.through
    }

    /// Gives out a message.
    pub(super) fn entry(&mut self, head: Head, body: Vec<u8>) -> Entry {
        self.passed += 1;
        self.large.entry(head, body)
    }
}

/// Another queue server, from which messages are moved.
///
/// The messages that it gave are held there until [`Source::stored`] says that they are durable
/// here; then they are deleted there. So each is in one place at least, and comes twice if a fault
/// leaves it in both.
pub(in crate::import) trait Peer: Source {
    /// The progress that all kinds of peers count alike.
    fn state(&self) -> &PeerState;

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
    fn is_through(&self) -> bool {
        self.state().through
    }

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
    fn local(&mut self) -> Option<SocketAddr> {
        None
    }

    /// How many messages that are stored here somebody else may have taken there meanwhile, as
    /// their time to run was over.
    fn twice(&self) -> u64 {
        self.state().twice
    }
}

/// Takes the first so many of what a peer gave: they are stored.
pub(super) fn first<T>(delivered: &mut VecDeque<T>, messages: u64) -> Vec<T> {
    let count = usize::try_from(messages).unwrap_or(usize::MAX);
    let count = count.min(delivered.len());
    delivered.drain(..count).collect()
}
