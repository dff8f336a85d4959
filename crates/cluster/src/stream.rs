//! The interface between a replicated log and the stream that orders and replicates it.

use std::{fmt, sync::Arc};

use bytes::Bytes;

/// The number of an entry: 1 for the first, then one more each. Never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// The next one.
    #[must_use]
    pub fn after(self) -> Self {
        Self(self.0 + 1)
    }

    /// The one before; 0 stands before the first.
    #[must_use]
    pub fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Result of an append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Durable, at this place.
    Stored(Seq),
    /// The stream ended elsewhere when it came. Of a copy of it that is all this says.
    Wrong,
    /// Not stored, for want of room; in the words of who said so.
    Full(String),
    /// Nobody knows; it may be stored yet.
    Unknown,
}

/// Content of a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryLookup {
    /// This. Always true, also if another server answered.
    Entry(Bytes),
    /// Nothing, or nothing any more. Who answered may have been behind.
    Nothing,
    /// Nobody answered.
    Unknown,
}

/// The places a stream has. Who answered may have been behind, so both may be higher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The oldest entry; with nothing in it, the place behind the last.
    pub first: Seq,
    /// The newest entry there ever was; 0 before the first.
    pub last: Seq,
    /// How many entries there are. Nothing removes an entry from the middle of a stream, so fewer
    /// than from `first` to `last` are a damaged copy.
    pub count: u64,
    /// The server whose copy this is of, where it is known.
    pub leader: Option<Arc<str>>,
}

impl Ends {
    /// All entries from `first` to `last`.
    pub fn whole(first: Seq, last: Seq) -> Self {
        let count = (last.0 + 1).saturating_sub(first.0);
        Self {
            first,
            last,
            count,
            leader: None,
        }
    }

    /// Entries that are missing between the first and the last.
    pub fn missing(&self) -> u64 {
        Self::whole(self.first, self.last)
            .count
            .saturating_sub(self.count)
    }
}

/// The answer to a request for another leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Distrusted {
    /// The server of this name led, and another was asked to lead.
    Requested(String),
    /// Every server but those that were distrusted before is damaged too: the last is this one.
    NoOther(String),
    /// Nobody answered, or somebody else leads by now, or every server that could lead is away.
    Unknown,
}

/// The next news of a tail: an entry, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TailEvent {
    /// The next entry.
    Entry(Seq, Bytes),
    /// The next entry is no longer there: the stream begins here now. Nothing more comes.
    Purged(Seq),
}

/// Called from any thread, possibly before the call that was given it returns; or never, which
/// means no more than that nobody knows.
pub type ReplyFn<T> = Box<dyn FnOnce(T) + Send>;

/// Keeps a tail going; dropped, it ends.
pub struct Tail(#[allow(dead_code, reason = "held for its drop")] Box<dyn Send>);

impl Tail {
    /// A tail that goes on for as long as `guard` lives.
    pub fn new(guard: impl Send + 'static) -> Self {
        Self(Box::new(guard))
    }
}

/// An ordered sequence of entries that others keep, and many append to and read.
///
/// An implementation promises: an entry is stored at one place or not at all; it is stored only
/// while the stream's last place is what was expected; what was stored stays as it is until it is
/// purged; places are never used again, also those purged. Nothing else: answers may be lost, late,
/// doubled or stale.
pub trait Stream: Send + Sync {
    /// The name to show in errors.
    fn name(&self) -> String;

    /// Appends `entry` if the stream's last place is `expected`.
    fn append(&self, expected: Seq, entry: Bytes, callback: ReplyFn<Answer>);

    /// Which places there are, asked of who appends; `None`: nobody answered.
    fn ends(&self, callback: ReplyFn<Option<Ends>>);

    /// Asks the appending connection for the content of `seq`.
    fn get(&self, seq: Seq, callback: ReplyFn<EntryLookup>);

    /// Delivers every entry from `from` on, in order, without gaps, as they are stored.
    fn tail(&self, from: Seq, each: Box<dyn FnMut(TailEvent) + Send>) -> Tail;

    /// Removes all entries below `seq`; whether it was done, as far as is known. May be repeated
    /// and may come late.
    ///
    /// # Panics
    /// If `seq` is below 2: some that implement this take that for everything.
    fn purge_below(&self, seq: Seq, callback: ReplyFn<bool>);

    /// The copy of the server that leads is damaged, if it is the one of `ends`, and the stream
    /// still begins there: asks for a leader that is not among `bad`, and for one of `doubted` only
    /// where there is no other.
    fn distrust(
        &self,
        ends: Ends,
        bad: &[String],
        doubted: &[String],
        callback: ReplyFn<Distrusted>,
    );
}
