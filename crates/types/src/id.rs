//! Numbers of messages, queues and runs.

/// Identity of a message: rises, is never reused, stays below 2^63, survives
/// restart. The first id of a fresh one-shard server is 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MessageId(pub u64);

/// Number of a queue in this shard's queue table. Facts use it in place of the
/// name; protocols never see it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct QueueId(pub u32);

impl QueueId {
    /// The queue at this place in the table.
    pub fn at(position: usize) -> Self {
        QueueId(u32::try_from(position).expect("queues_max keeps their numbers below 2^32"))
    }
}

/// Number of a run of this shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RunId(pub u32);
