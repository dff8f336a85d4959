//! Values that the host obeys.

/// When the log is synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncPolicy {
    /// Before every reply that depends on it.
    Always,
    /// Every so many ms, in the background.
    EveryMs(u64),
    /// When the system likes.
    Never,
}

quintet_types::defaults! {
    /// How a log is used that others could come to own.
    #[derive(Clone, Copy, Debug)]
    pub struct Sharing {
        /// With more bytes decided and not acknowledged nothing further is read
        /// from clients.
        pub unacked_max: u64 = 16 << 20,
        /// A reply without an append waits for an append that is made after its decision, so that
        /// no clock has to be believed.
        pub reads_by_log: bool = false,
    }
}

/// The smallest memory budget that works, bytes: the process itself, its
/// threads and buffers, and some thousand messages in each shard.
pub fn smallest(shards: u64) -> u64 {
    (24 << 20) + shards * (8 << 20)
}
