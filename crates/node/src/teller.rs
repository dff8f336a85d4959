//! Reports of this node to others and tools: about itself, and about the cluster as it sees it.

use std::sync::Arc;

use quintet_client::AuditLog;
use quintet_cluster::entry::Entry;
use quintet_cluster::{Acks, ClusterId, Ends, EntryLookup, Role, Seq, Stream as _, World as _};
use quintet_config::Cluster;
use quintet_jetstream::{Info, JetStream};
use quintet_nodes::{
    ClusterReport, GROUP, GroupReport, NodeReport, NodeResponse, REPORT, Replica, StreamReport,
    registry, stores, together,
};
use quintet_proxy::line::Question;
use quintet_proxy::{Hint, Settings, ask_node};
use serde::Serialize;

use super::Node;

/// The whole report about this node.
pub(super) struct Teller {
    pub(super) node: Arc<Node>,
    pub(super) stream: Arc<JetStream>,
    pub(super) cluster: Cluster,
    /// Where other nodes reach this one.
    pub(super) address: String,
    pub(super) settings: Settings,
    /// The audit of orders.
    pub(super) audit: Arc<dyn AuditLog>,
}

fn ms(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain fields are JSON")
}

impl Teller {
    /// This node's role, lag and connections, read now.
    pub(super) fn report(&self) -> NodeReport {
        let (status, now) = (self.node.status(), self.node.world.now());
        let owns = status.role == Role::Owner;
        let acks = self.node.signals.acks.get().filter(|_| owns);
        let (unacked_entries, unacked_bytes) = acks.map(Acks::unacked).unwrap_or_default();
        let (appended, acknowledged) = acks.map(Acks::totals).unwrap_or_default();
        let on_way = acks.map(Acks::on_way).unwrap_or_default();
        let (tunneled, waiting) = self.node.proxy_listeners.counts();
        let owner = status.owner.clone();
        let owner = owner.map(|claim| (claim.node, claim.peer_address));
        let (owner, owner_address) = owner.unzip();
        NodeReport {
            node: self.cluster.node(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role: status.role.name().to_owned(),
            since_ms: ms(now.saturating_sub(status.since)),
            epoch: status.epoch.0,
            owner,
            owner_address,
            serves: owns && self.node.serves_now(),
            drained: self.node.is_drained(),
            entry: acks.map_or(status.read, Acks::last).0,
            lag_entries: if owns { 0 } else { status.lag() },
            lag_p99_ms: (status.role == Role::Standby)
                .then(|| self.node.signals.lags.p99_ms())
                .flatten(),
            runs_missing: if owns {
                0
            } else {
                self.node.signals.runs.missing()
            },
            last_ack_ms: acks
                .and_then(Acks::sent)
                .map(|sent| ms(now.saturating_sub(sent))),
            ack_p99_ms: acks.and_then(Acks::took_p99).map(ms),
            unacked_entries,
            unacked_bytes,
            appended,
            acknowledged,
            on_way: on_way as u64,
            takeovers: status.tally.takeovers,
            handovers: status.tally.handovers,
            divergences: status.tally.divergences,
            clock_ahead_ms: self.node.clock_ahead_ms().or(status.clock_ahead_ms),
            damage: status.damage,
            distrusted: status.distrusted,
            resolves: acks.map(Acks::resolves).unwrap_or_default(),
            tunneled,
            waiting,
        }
    }

    /// Asks the others who owns, so that clients who come here need not wait until this node has
    /// read that in the log.
    pub(super) fn ask_who_owns(self: &Arc<Self>) {
        let teller = Arc::clone(self);
        let asks = move || {
            let received = teller.nodes();
            let reported = received.into_iter().filter_map(|received| {
                let report = received.report?;
                Some((report.epoch, report.owner?, report.owner_address?))
            });
            if let Some((epoch, node, address)) = reported.max() {
                teller.node.signals.hint(Hint {
                    epoch,
                    node,
                    address,
                });
            }
        };
        // Without a thread they wait for the log.
        std::thread::Builder::new().spawn(asks).ok();
    }

    /// Why a node that starts now could not read the log: an owner purges whole segments only.
    fn spoiled(&self, ends: &Ends) -> Option<String> {
        if ends.last == Seq(0) {
            return None;
        }
        if ends.first > ends.last {
            return Some("all entries were purged".to_owned());
        }
        let (sender, reported) = std::sync::mpsc::channel();
        let answer = Box::new(move |found| drop(sender.send(found)));
        self.stream.get(ends.first, answer);
        // What was purged since is nothing, as is no answer.
        let Ok(EntryLookup::Entry(entry)) = reported.recv() else {
            return None;
        };
        match Entry::decode(ClusterId(self.settings.cluster), &entry) {
            Ok(entry) if entry.header.begins => None,
            Ok(_) => Some(format!(
                "it begins with entry {}, inside a segment",
                ends.first
            )),
            Err(refused) => Some(format!("its first entry, {}: {refused}", ends.first)),
        }
    }

    /// The entry that the log begins with, as all up to another say.
    fn begins(&self) -> Option<(Seq, Seq)> {
        let status = self.node.status();
        let acks = self.node.signals.acks.get();
        match acks.filter(|_| status.role == Role::Owner) {
            Some(acks) => Some((acks.begins(), Seq(u64::MAX))),
            None => Some((status.begins?, status.read)),
        }
    }

    /// The stream, as its leader reports it.
    fn group(&self) -> GroupReport {
        let silent = match self.stream.info() {
            Ok(Some(info)) => {
                return GroupReport {
                    group: GROUP,
                    stream: Some(self.stream_report(&info)),
                    ..GroupReport::default()
                };
            }
            Ok(None) => "the stream is gone. The server does not create it again: see `quintet \
                         cluster reseed`"
                .to_owned(),
            Err(error) => error.to_string(),
        };
        GroupReport {
            group: GROUP,
            silent: Some(silent),
            ..GroupReport::default()
        }
    }

    fn stream_report(&self, info: &Info) -> StreamReport {
        let ends = info.ends();
        let (monitor, names) = (&self.cluster.monitor, self.stream.names());
        let name = &names.stream;
        let buckets = [&names.runs, &names.files].map(|bucket| format!("OBJ_{bucket}"));
        let stores = stores::inspect(monitor, name, &buckets, || self.begins());
        let buckets = stores::differing(monitor, &buckets, info.config.num_replicas);
        let (leader, peers) = match &info.cluster {
            Some(peers) => (peers.leader.clone(), &peers.replicas[..]),
            None => (Some("the only server".to_owned()), &[][..]),
        };
        let replicas = peers.iter().map(|peer| Replica {
            server: peer.name.clone(),
            current: peer.current,
            offline: peer.offline,
            lag: peer.lag,
        });
        StreamReport {
            name: name.clone(),
            spoiled: self.spoiled(&ends),
            leader,
            replicas_wanted: info.config.num_replicas as u64,
            replicas: replicas.collect(),
            first: ends.first.0,
            last: ends.last.0,
            bytes: info.bytes(),
            stores,
            buckets,
        }
    }

    /// The cluster, with what its nodes say of themselves.
    pub(super) fn report_of_all(&self, nodes: Vec<NodeResponse>) -> ClusterReport {
        ClusterReport {
            cluster: self.cluster.name.clone(),
            id: format!("{:016x}", self.settings.cluster),
            told_by: self.cluster.node(),
            groups: vec![self.group()],
            nodes,
        }
    }

    /// [`Self::report_now`] as a line.
    pub(super) fn status(&self) -> String {
        line(&self.report_now())
    }

    /// Asks all nodes of the registry; takes as long as the slowest of them may.
    pub(super) fn report_now(&self) -> ClusterReport {
        self.report_of_all(self.nodes())
    }

    /// All nodes of the registry.
    fn nodes(&self) -> Vec<NodeResponse> {
        self.nodes_of(registry::nodes(&self.stream, &self.cluster).unwrap_or_default())
    }

    /// This node and those of `listed`, each asked for its report at the same time. Whether one
    /// is drained is in the registry, which is what counts: the node itself may not have
    /// looked there since.
    pub(super) fn nodes_of(&self, listed: Vec<registry::Listed>) -> Vec<NodeResponse> {
        let own = self.cluster.node();
        let mut report = self.report();
        if let Some(listed) = listed.iter().find(|listed| listed.node == own) {
            report.drained = listed.drained;
        }
        let ourselves = NodeResponse {
            node: own.clone(),
            address: self.address.clone(),
            report: Some(report),
            silent: None,
        };
        let others = listed.into_iter().filter(|listed| listed.node != own);
        let others: Vec<registry::Listed> = others.collect();
        let received = together(&others, |listed| ask(&self.settings, listed.clone()));
        let mut received: Vec<NodeResponse> = received.into_iter().flatten().collect();
        received.push(ourselves);
        received.sort_by(|one, other| one.node.cmp(&other.node));
        received
    }
}

/// A node's report of itself, and the registry's of its being drained.
pub(super) fn ask(settings: &Settings, listed: registry::Listed) -> NodeResponse {
    let question = Question::Order(vec![REPORT.to_owned()]);
    let reported = ask_node(settings, &listed.address, question);
    let report = reported
        .map_err(|error| error.to_string())
        .and_then(|line| report_in(&line, &listed.node));
    let (report, silent) = match report {
        Ok(report) => {
            let drained = listed.drained;
            (Some(NodeReport { drained, ..report }), None)
        }
        Err(why) => (None, Some(why)),
    };
    NodeResponse {
        node: listed.node,
        address: listed.address,
        report,
        silent,
    }
}

/// The report that the node of this name answered.
///
/// # Errors
/// It is none, or another node's: addresses change hands.
fn report_in(line: &str, node: &str) -> Result<NodeReport, String> {
    let report = serde_json::from_str::<NodeReport>(line);
    let report =
        report.map_err(|_| "cannot read its reply: is it of another version?".to_owned())?;
    match report.node == node {
        true => Ok(report),
        false => Err(format!("the node {} answers at its address", report.node)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_not_another_that_answers_at_its_address() {
        let report = NodeReport {
            node: "d".to_owned(),
            ..NodeReport::default()
        };
        let reported = line(&report);
        assert_eq!(report_in(&reported, "d"), Ok(report));
        let why = "the node d answers at its address".to_owned();
        assert_eq!(report_in(&reported, "b"), Err(why));
        assert!(report_in("no", "b").is_err());
    }
}
