//! A node and its cluster in numbers, for the table of metrics.

use std::sync::atomic::Ordering;

use quintet_client::{ClusterNumbers, NodeNumbers};
use quintet_host::locked;
use quintet_nodes::stores::BucketCopy;

use super::Node;
use quintet_nodes::{ClusterReport, NodeReport, NodeResponse};

impl Node {
    /// How it stands, and how the others did when it looked last.
    pub fn numbers(&self) -> ClusterNumbers {
        let mut numbers = ClusterNumbers {
            drained_nodes: self.drained_nodes.load(Ordering::Relaxed),
            ..ClusterNumbers::default()
        };
        if let Some(teller) = self.teller.get().and_then(std::sync::Weak::upgrade) {
            of_this(&mut numbers, &teller.report());
        }
        if let Some(seen) = &*locked(&self.seen) {
            of_all(&mut numbers, seen);
        }
        numbers
    }
}

fn of_this(numbers: &mut ClusterNumbers, report: &NodeReport) {
    numbers.epoch = report.epoch;
    numbers.owns = report.is_owner();
    numbers.role_s = report.since_ms / 1000;
    numbers.appended = report.appended;
    numbers.acknowledged = report.acknowledged;
    numbers.on_way = report.on_way;
    numbers.unacked_bytes = report.unacked_bytes;
    numbers.last_ack_ms = report.last_ack_ms;
    numbers.ack_p99_ms = report.ack_p99_ms;
    numbers.resolves = report.resolves;
    numbers.takeovers = report.takeovers;
    numbers.handovers = report.handovers;
}

fn of_all(numbers: &mut ClusterNumbers, seen: &ClusterReport) {
    numbers.survives = Some(seen.verdict().survives);
    if let Some(stream) = seen.groups.iter().find_map(|group| group.stream.as_ref()) {
        let known = stream.stores.iter().filter(|store| store.silent.is_none());
        numbers.copies = known
            .map(|store| {
                let lacks = |copy: &BucketCopy| copy.damaged && copy.server == store.server;
                let own = store.damage.is_some() || store.frozen.is_some();
                let damaged = own || stream.buckets.iter().any(lacks);
                (store.server.clone(), damaged)
            })
            .collect();
        let entries = (stream.last + 1).saturating_sub(stream.first);
        numbers.log = Some((entries, stream.bytes));
    }
    numbers.nodes = seen.nodes.iter().map(of_node).collect();
}

fn of_node(response: &NodeResponse) -> NodeNumbers {
    let node = response.node.clone();
    let Some(report) = &response.report else {
        return NodeNumbers {
            node,
            role: "silent".to_owned(),
            ..NodeNumbers::default()
        };
    };
    let behind = (!report.is_owner()).then_some(report.lag_entries);
    NodeNumbers {
        node,
        role: report.role.clone(),
        ready: report.is_ready_standby(),
        drained: report.drained,
        lag_entries: behind,
        lag_ms: report.lag_p99_ms,
        runs_missing: behind.map(|_| report.runs_missing),
        divergences: Some(report.divergences),
        clock_off_ms: report.clock_ahead_ms.map(i64::unsigned_abs),
        tunneled: Some(report.tunneled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quintet_nodes::{GroupReport, StreamReport};

    #[test]
    fn a_node_without_a_response_has_no_lag_and_is_reported() {
        let owner = NodeReport {
            role: "owner".to_owned(),
            last_ack_ms: Some(3),
            ..NodeReport::default()
        };
        let standby = NodeReport {
            role: "standby".to_owned(),
            lag_entries: 7,
            lag_p99_ms: Some(9),
            ..NodeReport::default()
        };
        let response = |node: &str, report| NodeResponse {
            node: node.to_owned(),
            report,
            ..NodeResponse::default()
        };
        let seen = ClusterReport {
            groups: vec![GroupReport {
                stream: Some(StreamReport {
                    first: 11,
                    last: 20,
                    bytes: 1000,
                    ..StreamReport::default()
                }),
                ..GroupReport::default()
            }],
            nodes: vec![
                response("a", Some(owner)),
                response("b", Some(standby)),
                response("c", None),
            ],
            ..ClusterReport::default()
        };
        let mut numbers = ClusterNumbers::default();
        of_all(&mut numbers, &seen);
        assert_eq!(numbers.log, Some((10, 1000)));
        assert_eq!(numbers.survives, Some(false), "the stream has no leader");
        let lags: Vec<_> = numbers.nodes.iter().map(|node| node.lag_entries).collect();
        assert_eq!(lags, [None, Some(7), None]);
        let roles: Vec<_> = numbers.nodes.iter().map(|node| &*node.role).collect();
        assert_eq!(roles, ["owner", "standby", "silent"]);
        let ready: Vec<_> = numbers.nodes.iter().map(|node| node.ready).collect();
        assert_eq!(ready, [false, true, false]);
    }
}
