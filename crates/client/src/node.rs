//! A node of a cluster in numbers, and how it saw the others lately.

/// A node, and how it saw the others.
#[derive(Default)]
pub struct ClusterNumbers {
    pub epoch: u64,
    pub owns: bool,
    /// Since it is what it is.
    pub role_s: u64,
    pub drained_nodes: u64,
    pub appended: u64,
    pub acknowledged: u64,
    /// Sent and not acknowledged.
    pub on_way: u64,
    /// Appended and not acknowledged, sent or not.
    pub unacked_bytes: u64,
    /// Since the newest acknowledged entry was sent.
    pub last_ack_ms: Option<u64>,
    /// Within which 99 of 100 of the newest frames were acknowledged.
    pub ack_p99_ms: Option<u64>,
    pub resolves: u64,
    pub takeovers: u64,
    pub handovers: u64,
    pub survives: Option<bool>,
    /// Entries and bytes of the stream.
    pub log: Option<(u64, u64)>,
    pub nodes: Vec<NodeNumbers>,
    /// The servers whose copies of the log are known, and whether each is damaged.
    pub copies: Vec<(String, bool)>,
}

/// One of all nodes; absent is what it has not said, or has not.
#[derive(Default)]
pub struct NodeNumbers {
    pub node: String,
    /// As `quintet cluster status` has it; `silent`: it does not answer.
    pub role: String,
    /// It could take over at once.
    pub ready: bool,
    pub drained: bool,
    pub lag_entries: Option<u64>,
    pub lag_ms: Option<u64>,
    pub runs_missing: Option<u64>,
    pub divergences: Option<u64>,
    /// By how much its clock is off from the cluster's time, to either side.
    pub clock_off_ms: Option<u64>,
    pub tunneled: Option<u64>,
}
