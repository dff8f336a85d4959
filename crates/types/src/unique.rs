//! Deduplication: the rule by which a put repeats an earlier one.

/// The most bytes of memory that a deduplication record takes, if its id is a hash.
pub const DEDUPE_RECORD_BYTES: u64 = 232;

/// The rule by which a put repeats an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dedupe {
    /// Compared within the queue; 65,535 bytes at most, as a key.
    pub id: Box<[u8]>,
    /// For how long the first put is remembered at most, ms; 0: without a bound, which
    /// [`Scope::Window`] does not have: that remembers nothing then. `None`: as the queue says.
    pub window_ms: Option<u64>,
    /// The event that also ends it; `None`: as the queue says.
    pub scope: Option<Scope>,
    /// Handling of a repeat; `None`: as the queue says.
    pub on_repeat: Option<OnRepeat>,
}

coded! {
    /// For how long a put makes others with its id repeats, within its window. It is about its
    /// message in the queue it was put to: one that went elsewhere, or was buried, counts no more,
    /// also when it comes back.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum Scope, "scope" {
        /// The window alone, whatever becomes of the message.
        #[default]
        Window = 0 => "time",
        /// While it waits: not while it is reserved, again when it came back.
        Waiting = 1 => "waiting",
        /// Until it is taken for the first time.
        Started = 2 => "started",
        /// Until it is gone, archived or buried.
        Done = 3 => "done",
    }
}

coded! {
    /// Effect of a put that repeats a remembered one.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum OnRepeat, "repeat" {
        #[default]
        Refuse = 0 => "refuse",
        /// It is answered as if it were the first.
        First = 1 => "first",
        /// It takes the first one's place, with a due time of its own (debounce), if that still
        /// waits; else it is refused.
        Replace = 2 => "replace",
    }
}
