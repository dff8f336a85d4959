//! What another way in calls a queue, told in the console beside the queue's own words.

use quintet_types::{Name, QueueSetup, QueueStats};

/// Told by whoever knows such a way in.
pub trait Elsewhere: Send + Sync {
    /// What a list says of a queue of this name, in a word or two; `None`: it is not reached
    /// that way.
    fn word(&self, queue: &Name) -> Option<&'static str>;

    /// True if a queue of this setup was made that way.
    fn made(&self, setup: &QueueSetup) -> bool;

    /// What the numbers of a list are called there, in a sentence.
    fn legend(&self) -> &'static str;

    /// What is told of a queue; `None`: it is neither reached that way, nor was made so.
    fn called(&self, stats: &QueueStats, setup: &QueueSetup) -> Option<Called>;
}

/// A queue in the words of another way in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Called {
    /// Who calls it so.
    pub by: &'static str,
    /// What it is there, in a few words.
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
