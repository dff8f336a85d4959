//! Periodic work of a node: whether it is drained, and, while it owns, how the others stand, and
//! that the stream's leader is where its loss would cost least.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use anyhow::Result;
use quintet_cluster::{Acks, Role};
use quintet_host::{locked, thread};
use quintet_jetstream::{Error, Peers};
use quintet_nodes::{ClusterReport, registry};

use super::teller::Teller;
use quintet_nodes::stores::Store;

/// It is seen to so often, and whenever somebody asks.
const EVERY: Duration = Duration::from_secs(10);
/// For so long nothing is sent while the leader moves, at most: well under what clients are refused
/// after, or a lease lasts.
const HOLD: Duration = Duration::from_secs(1);
/// A question that has no answer by then met no leader.
const ANSWER: Duration = Duration::from_millis(50);
/// Pause between two looks at something without a notification.
const LOOK: Duration = Duration::from_millis(5);

/// Sees to it for as long as `teller` is there; `nudges`: at once.
///
/// # Errors
/// There is no thread to be had.
pub(super) fn start(teller: &Arc<Teller>, nudges: Receiver<()>) -> Result<()> {
    let teller = Arc::downgrade(teller);
    let body = move || {
        while let Some(teller) = Weak::upgrade(&teller) {
            if let Err(error) = teller.see_to() {
                tracing::debug!("cannot check the cluster: {error}");
            }
            drop(teller);
            match nudges.recv_timeout(EVERY) {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    };
    thread("cluster", body)
}

impl Teller {
    fn see_to(self: &Arc<Self>) -> Result<(), Error> {
        let nodes = registry::nodes(&self.stream, &self.cluster)?;
        let own = self.cluster.node();
        let drained = nodes.iter().any(|node| node.node == own && node.drained);
        let count = nodes.iter().filter(|node| node.drained).count();
        self.node.drain(drained, count as u64);
        if self.node.status().role != Role::Owner || !self.node.serves_now() {
            return Ok(());
        }
        let report = self.report_of_all(self.nodes_of(nodes.clone()));
        let before = locked(&self.node.seen).replace(report.clone());
        let known = before.iter().flat_map(ClusterReport::damaged);
        let known: Vec<&Store> = known.collect();
        for store in report.damaged().filter(|store| !known.contains(store)) {
            let how = store.damage.as_deref().unwrap_or_default();
            tracing::error!(
                "the copy of the log on nats-server {} ({}) is damaged: {how}. `quintet cluster \
                 status` prints the repair",
                store.server,
                store.address
            );
        }
        if drained && let Some(successor) = self.node.best_successor() {
            tracing::info!("this node is drained: the queues move to {successor}");
            self.node.hand_over_to(&successor);
            return Ok(());
        }
        self.place_leader(&nodes, &report)
    }

    /// Sees to it that the stream's leader is on no machine whose loss would cost more than that,
    /// or that is about to be stopped, and has no damaged copy.
    fn place_leader(
        &self,
        nodes: &[registry::Listed],
        report: &ClusterReport,
    ) -> Result<(), Error> {
        let own = self.cluster.node();
        let Some(peers) = self.stream.info()?.and_then(|info| info.cluster) else {
            return Ok(());
        };
        let (Some((leader, next)), Some(acks)) = (
            next_leader(&peers, nodes, &own, report),
            self.node.signals.acks.get(),
        ) else {
            return Ok(());
        };
        tracing::info!("the stream's leader moves from {leader} to {next}");
        let began = Instant::now();
        // What is on its way while a leader goes is not answered, and then asked for: far longer
        // than the change itself takes.
        let _held = HoldGuard::new(acks);
        while acks.on_way() > 0 && began.elapsed() < HOLD {
            std::thread::sleep(LOOK);
        }
        if acks.on_way() > 0 {
            // The servers are busy or away; later.
            return Ok(());
        }
        self.stream.step_down_for(next)?;
        while began.elapsed() < HOLD {
            if self.stream.leader(ANSWER).is_some_and(|now| now != leader) {
                break;
            }
            std::thread::sleep(LOOK);
        }
        tracing::info!("nothing was sent for {} ms", began.elapsed().as_millis());
        Ok(())
    }
}

/// The server that leads and should not, and the one that is to lead in its place; `None`: it leads
/// well, or no other would. `own`: the node that owns.
fn next_leader<'a>(
    peers: &'a Peers,
    nodes: &[registry::Listed],
    own: &str,
    report: &ClusterReport,
) -> Option<(&'a str, &'a str)> {
    let shunned = nodes.iter().filter(|node| node.drained || node.node == own);
    let shunned = shunned.map(|node| node.near.as_str());
    let damaged = report.damaged().map(|store| store.server.as_str());
    let shunned: Vec<&str> = shunned.chain(damaged).collect();
    let leader = peers.leader.as_deref()?;
    if !shunned.contains(&leader) {
        return None;
    }
    // A standby that found a copy damaged would ask for another leader at once.
    let reports = report.nodes.iter().filter_map(|node| node.report.as_ref());
    let distrusted: Vec<&String> = reports.flat_map(|node| &node.distrusted).collect();
    let mut names = peers
        .replicas
        .iter()
        .filter(|peer| peer.current && !peer.offline)
        .map(|peer| &peer.name);
    let next =
        names.find(|name| !shunned.contains(&name.as_str()) && !distrusted.contains(name))?;
    Some((leader, next))
}

/// Nothing is sent while it lives.
struct HoldGuard<'a>(&'a Acks);

impl<'a> HoldGuard<'a> {
    fn new(acks: &'a Acks) -> Self {
        acks.hold(true);
        Self(acks)
    }
}

impl Drop for HoldGuard<'_> {
    fn drop(&mut self) {
        self.0.hold(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quintet_nodes::{GroupReport, NodeReport, NodeResponse, StreamReport};

    #[test]
    fn the_lead_moves_to_no_server_that_a_node_distrusts() {
        let peers = |leader: &str, others: [&str; 2]| -> Peers {
            let replicas = others.map(|name| serde_json::json!({"name": name, "current": true}));
            let peers = serde_json::json!({"leader": leader, "replicas": replicas});
            serde_json::from_value(peers).expect("peers")
        };
        let nodes: Vec<_> = ["a", "b", "c"]
            .iter()
            .enumerate()
            .map(|(at, node)| registry::Listed {
                node: (*node).to_owned(),
                address: String::new(),
                near: format!("n{at}"),
                drained: false,
                age: Duration::ZERO,
            })
            .collect();
        let distrusting = |names: &[&str]| ClusterReport {
            nodes: vec![NodeResponse {
                report: Some(NodeReport {
                    distrusted: names.iter().map(|name| (*name).to_owned()).collect(),
                    ..NodeReport::default()
                }),
                ..NodeResponse::default()
            }],
            ..ClusterReport::default()
        };
        let n0 = peers("n0", ["n1", "n2"]);
        let next = |names: &[&str]| next_leader(&n0, &nodes, "a", &distrusting(names));
        assert_eq!(next(&[]), Some(("n0", "n1")));
        assert_eq!(next(&["n1"]), Some(("n0", "n2")));
        assert_eq!(next(&["n1", "n2"]), None);
        // It leads well already.
        let n1 = peers("n1", ["n0", "n2"]);
        assert_eq!(next_leader(&n1, &nodes, "a", &distrusting(&[])), None);
        let damaged = ClusterReport {
            groups: vec![GroupReport {
                stream: Some(StreamReport {
                    stores: vec![Store {
                        server: "n1".to_owned(),
                        damage: Some("it lacks entries".to_owned()),
                        ..Store::default()
                    }],
                    ..StreamReport::default()
                }),
                ..GroupReport::default()
            }],
            ..distrusting(&[])
        };
        assert_eq!(next_leader(&n1, &nodes, "a", &damaged), Some(("n1", "n2")));
    }
}
