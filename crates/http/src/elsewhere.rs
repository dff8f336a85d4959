//! Another protocol's name of a queue, shown in the console beside the queue's own words.

use quintet_types::{Name, QueueSetup, QueueStats};

/// Set by the part that knows such a way in.
pub trait Elsewhere: Send + Sync {
    /// A word or two for a queue of this name in a list; `None`: the protocol does not reach it.
    fn word(&self, queue: &Name) -> Option<&'static str>;

    /// True if a queue of this setup was made that way.
    fn made(&self, setup: &QueueSetup) -> bool;

    /// A sentence that names the numbers of a list in the protocol's words.
    fn legend(&self) -> &'static str;

    /// Description of a queue; `None`: the protocol does not reach it, and did not make it.
    fn called(&self, stats: &QueueStats, setup: &QueueSetup) -> Option<Called>;
}

/// A queue in the words of another way in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Called {
    /// The protocol that calls it so.
    pub by: &'static str,
    /// Its kind there, in a few words.
    pub is: String,
    /// Words of there, and what stands for them.
    pub facts: Vec<(String, CalledAs)>,
}

/// The value of such a word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CalledAs {
    Text(String),
    Count(u64),
    Bytes(u64),
    /// A duration, ms.
    Ms(u64),
    /// A queue, and what is said of it.
    Queue(Name, String),
}
