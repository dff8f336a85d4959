//! What is told of a cluster: by any node of itself, and by the owner of all, as it saw them lately.

use quintet_host::Point;

use super::Reading;

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
    pub spliced: Option<u64>,
}

/// A number of this server as a node of a cluster, if it is one.
pub(super) fn of_node(reading: &Reading<'_>, read: fn(&ClusterNumbers) -> u64) -> Vec<Point> {
    of_some(reading, |numbers| Some(read(numbers)))
}

/// The same, if there is such a number.
pub(super) fn of_some(
    reading: &Reading<'_>,
    read: impl Fn(&ClusterNumbers) -> Option<u64>,
) -> Vec<Point> {
    let number = reading.cluster.as_ref().and_then(read);
    number
        .map(|number| (Vec::new(), number as f64))
        .into_iter()
        .collect()
}

/// A number of each node that has it, by its name.
pub(super) fn of_each(reading: &Reading<'_>, read: fn(&NodeNumbers) -> Option<u64>) -> Vec<Point> {
    let nodes = reading.cluster.iter().flat_map(|numbers| &numbers.nodes);
    let points =
        nodes.filter_map(|node| Some((vec![node.node.clone().into()], read(node)? as f64)));
    points.collect()
}

/// Whether each server's copy is damaged.
pub(super) fn copies(reading: &Reading<'_>) -> Vec<Point> {
    let copies = reading.cluster.iter().flat_map(|numbers| &numbers.copies);
    let points = copies.map(|(server, damaged)| {
        let number = if *damaged { 1.0 } else { 0.0 };
        (vec![server.clone().into()], number)
    });
    points.collect()
}

/// What each node is, by its name and that.
pub(super) fn roles(reading: &Reading<'_>) -> Vec<Point> {
    let nodes = reading.cluster.iter().flat_map(|numbers| &numbers.nodes);
    let labels = nodes.map(|node| vec![node.node.clone().into(), node.role.clone().into()]);
    labels.map(|labels| (labels, 1.0)).collect()
}
