//! The cluster for those who look at it through this server: the console.

use quintet_client::{ClusterSeen, LogSeen, NodeSeen};
use quintet_nodes::{ClusterReport, DRAIN, GroupReport, MOVE, NodeResponse, Reply, UNDRAIN};
use quintet_types::Operation::{self, DrainNode, MoveGroup, UndrainNode};

use super::Node;

/// The orders about a node: the word for it, and the words behind the node's name where nothing had
/// to move.
const ORDERS: [(Operation, &str, &str); 3] = [
    (MoveGroup, MOVE, "owns the queues already."),
    (DrainNode, DRAIN, "is drained."),
    (UndrainNode, UNDRAIN, "can own the queues again."),
];

impl Node {
    /// The cluster as this node sees it; asks the others.
    pub fn seen(&self) -> Option<ClusterSeen> {
        Some(cluster_seen(self.teller.get()?.upgrade()?.report_now()))
    }

    /// As [`quintet_client::Operator::order_node`].
    ///
    /// # Errors
    /// Why it was not done.
    pub fn order(&self, operation: Operation, node: &str) -> Result<String, String> {
        let order = ORDERS.into_iter().find(|(one, ..)| *one == operation);
        let (_, verb, done) = order.ok_or("this is not an order to a node")?;
        let teller = self.teller.get().and_then(std::sync::Weak::upgrade);
        let teller = teller.ok_or("the server is stopping")?;
        let group = self.group().to_string();
        let group = (operation == MoveGroup).then_some(group.as_str());
        let words: Vec<&str> = [verb].into_iter().chain(group).chain([node]).collect();
        let text = teller.obey(&words);
        match serde_json::from_str(&text) {
            Ok(Reply::Done | Reply::Told { .. }) => Ok(format!("{node} {done}")),
            Ok(Reply::Moving { from, to, .. }) => Ok(format!("{from} hands over to {}.", to.node)),
            Ok(Reply::Refused { fault, why }) => Err(format!("{fault}: {why}")),
            Err(error) => Err(format!("{error}: {text}")),
        }
    }
}

fn cluster_seen(report: ClusterReport) -> ClusterSeen {
    let verdict = report.verdict();
    ClusterSeen {
        serves: verdict.serves,
        survives: verdict.survives,
        verdict: verdict.text().to_owned(),
        notes: verdict.notes,
        cluster: report.cluster,
        told_by: report.told_by,
        nodes: report.nodes.into_iter().map(node_seen).collect(),
        logs: report.groups.into_iter().map(log_seen).collect(),
    }
}

fn node_seen(response: NodeResponse) -> NodeSeen {
    let Some(report) = response.report else {
        return NodeSeen {
            node: response.node,
            address: response.address,
            silent: Some(response.silent.unwrap_or_else(|| "no answer".to_owned())),
            ..NodeSeen::default()
        };
    };
    NodeSeen {
        node: response.node,
        address: response.address,
        silent: None,
        owns: report.is_owner(),
        ready: report.is_ready_standby(),
        since_ms: report.since_ms,
        epoch: report.epoch,
        drained: report.drained,
        lag_entries: report.lag_entries,
        p99_ms: report.lag_p99_ms.or(report.ack_p99_ms),
        runs_missing: report.runs_missing,
        version: report.version,
        role: report.role,
    }
}

fn log_seen(group: GroupReport) -> LogSeen {
    let Some(stream) = group.stream else {
        return LogSeen {
            group: group.group,
            silent: Some(group.silent.unwrap_or_else(|| "no answer".to_owned())),
            ..LogSeen::default()
        };
    };
    let leader = stream.leader.map(|server| (server, "leader".to_owned()));
    let replicas = stream.replicas.into_iter();
    let replicas = replicas.map(|replica| (replica.server.clone(), replica.text()));
    LogSeen {
        group: group.group,
        silent: None,
        stream: stream.name,
        first: stream.first,
        last: stream.last,
        bytes: stream.bytes,
        servers: leader.into_iter().chain(replicas).collect(),
    }
}
