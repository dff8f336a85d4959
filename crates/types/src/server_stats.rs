//! Numbers of the server, for the protocols that show them.

use std::borrow::Cow;

use crate::stats::ShardStats;

/// Numbers of the server around the engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerStats {
    /// Version of the server, as in `CARGO_PKG_VERSION`.
    pub version: &'static str,
    /// Unix time in seconds.
    pub time_s: u64,
    /// Memory limit in bytes, 0 if none.
    pub memory_limit: u64,
    /// Numbers of the oldest segment and of the one that is written.
    pub log_segments: (u32, u32),
    /// Size a segment is made with, bytes.
    pub segment_bytes: u64,
    /// Random number of this process.
    pub instance: u64,
    /// Name of the machine, version of its system, kind of its processor, as
    /// uname(2) tells them.
    pub machine: [String; 3],
    /// The server takes no puts any more.
    pub draining: bool,
    /// The counters of a protocol, by its own indexes, summed over threads.
    pub tally: Vec<u64>,
    /// Every number there is, as the server's table of metrics names it; see
    /// [`ServerStats::TOLD`].
    pub numbers: Vec<(Cow<'static, str>, f64)>,
    /// The shards summed.
    pub shard: ShardStats,
}

impl ServerStats {
    /// The numbers of [`ServerStats::numbers`] that protocols use: the server's table has a row for
    /// each.
    pub const TOLD: [&'static str; 13] = [
        "bytes_read",
        "bytes_written",
        "connections",
        "connections_total",
        "cpu_system_us",
        "cpu_user_us",
        "log_records",
        "log_records_copied",
        "log_retired",
        "log_rotations",
        "pid",
        "uptime_s",
        "workers",
    ];

    /// One of [`ServerStats::TOLD`], in the unit its last word names; 0 if the
    /// server has none.
    pub fn number(&self, name: &str) -> u64 {
        debug_assert!(Self::TOLD.contains(&name), "{name} is not told");
        let found = self.numbers.iter().find(|(known, _)| known == name);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is whole and counts up from 0"
        )]
        found.map_or(0, |(_, number)| *number as u64)
    }
}
