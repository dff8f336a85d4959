//! Metrics of a cluster: any node's of itself, and the owner's of all, as it saw them lately.

use quintet_client::{ClusterNumbers, NodeNumbers};
use quintet_host::Point;

use super::{Reading, alone};

/// A number of this server as a node of a cluster, if it is one.
pub(super) fn of_node(reading: &Reading<'_>, read: fn(&ClusterNumbers) -> u64) -> Vec<Point> {
    of_some(reading, |numbers| Some(read(numbers)))
}

/// The same, if there is such a number.
pub(super) fn of_some(
    reading: &Reading<'_>,
    read: impl Fn(&ClusterNumbers) -> Option<u64>,
) -> Vec<Point> {
    alone(reading.cluster.as_ref().and_then(read))
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

/// The role of each node, by its name.
pub(super) fn roles(reading: &Reading<'_>) -> Vec<Point> {
    let nodes = reading.cluster.iter().flat_map(|numbers| &numbers.nodes);
    let labels = nodes.map(|node| vec![node.node.clone().into(), node.role.clone().into()]);
    labels.map(|labels| (labels, 1.0)).collect()
}
