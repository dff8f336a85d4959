//! Orders to a node, from an operator or from another node on one's behalf.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use quintet_client::Entry;
use quintet_cluster::Role;
use quintet_nodes::registry::{self, Listed};
use quintet_proxy::ask_node;
use quintet_proxy::line::Question;
use quintet_types::Operation;

use super::teller::{Teller, line};
use quintet_nodes::{
    DRAIN, Fault, MOVE, NodeReport, NodeResponse, REPORT, REPORT_OF, Reply, STALE_MS, Successor,
    UNDRAIN,
};

/// To the owner: that node is to own.
const HAND_OVER: &str = "hand-over";
/// To any node: what the registry says of it has changed.
const LOOK: &str = "look";

/// Time that a leaving owner waits for the other nodes' reports.
const SUCCESSORS_WAIT: Duration = Duration::from_secs(1);

type OrderError = (Fault, String);

impl Teller {
    /// Does what is asked, and says how it went.
    pub(super) fn obey(&self, words: &[&str]) -> String {
        let own = self.cluster.node();
        let done = match *words {
            [REPORT] => return line(&self.report()),
            [REPORT_OF, address] if address == self.address => return line(&self.report()),
            [REPORT_OF, address] => {
                let question = Question::Order(vec![REPORT.to_owned()]);
                return ask_node(&self.settings, address, question).unwrap_or_default();
            }
            [LOOK] => {
                self.node.nudge();
                Ok(Reply::Done)
            }
            [HAND_OVER, to] => self.hand_over(to),
            [MOVE, group, to] if group == self.node.group().to_string() => self.move_to(to),
            [MOVE, group, _] => {
                let only = self.node.group();
                let why = format!("there is no group {group}: a cluster has one group, {only}");
                Err((Fault::Order, why))
            }
            [DRAIN] => self.drain(&own),
            [DRAIN, node] => self.drain(node),
            [UNDRAIN] => self.undrain(&own),
            [UNDRAIN, node] => self.undrain(node),
            _ => {
                let verb = words.first().copied().unwrap_or_default();
                let why = format!(
                    "this node does not know the command {verb:?}: is it of another version?"
                );
                Err((Fault::Order, why))
            }
        };
        let mut all = Operation::ALL.iter().copied();
        if let [word, what @ ..] = words
            && let Some(operation) =
                all.find(|one| one.name().strip_prefix("cluster ") == Some(*word))
        {
            let result = match &done {
                Ok(_) => "ok".to_owned(),
                Err((fault, _)) => fault.to_string(),
            };
            self.audit.write(&Entry {
                what: &what.join(" "),
                result: &result,
                ..Entry::of(operation)
            });
        }
        line(&done.unwrap_or_else(|(fault, why)| Reply::Refused { fault, why }))
    }

    /// The node of this name, and all that are registered.
    fn target(&self, node: &str) -> Result<(Successor, Vec<Listed>), OrderError> {
        let listed = registry::nodes(&self.stream, &self.cluster).map_err(|error| {
            let why = format!("JetStream does not respond: {error}");
            (Fault::NoQuorum, why)
        })?;
        let target = listed
            .iter()
            .find(|one| one.node == node)
            .map(|one| Successor {
                node: one.node.clone(),
                address: one.address.clone(),
            });
        let target = target.ok_or_else(|| {
            let known: Vec<&str> = listed.iter().map(|one| one.node.as_str()).collect();
            let why = format!(
                "no node {node:?} has reported in the last ten minutes; the known nodes are {}",
                known.join(", ")
            );
            (Fault::UnknownNode, why)
        })?;
        Ok((target, listed))
    }

    /// The owner, that gets acknowledgements.
    fn owner<'a>(
        &self,
        received: &'a [NodeResponse],
    ) -> Result<(&'a NodeResponse, &'a NodeReport), OrderError> {
        let owners = received.iter().filter_map(|received| {
            let report = received.report.as_ref()?;
            report.is_owner().then_some((received, report))
        });
        let newest = owners.max_by_key(|(_, report)| report.epoch);
        let (received, report) = newest.ok_or_else(|| {
            let why = "no reachable node owns the queues: run `quintet cluster status`";
            (Fault::NoOwner, why.to_owned())
        })?;
        if report.last_ack_ms.is_none_or(|ms| ms > STALE_MS) {
            let why = format!(
                "{} owns the queues but gets no acknowledgements from JetStream",
                received.node
            );
            return Err((Fault::NoQuorum, why));
        }
        Ok((received, report))
    }

    fn move_to(&self, to: &str) -> Result<Reply, OrderError> {
        let (target, listed) = self.target(to)?;
        if listed.iter().any(|one| one.node == to && one.drained) {
            let why = format!("{to} is drained: run `quintet cluster undrain {to}` first");
            return Err((Fault::Drained, why));
        }
        let received = self.nodes_of(listed);
        let (owner, report) = self.owner(&received)?;
        if owner.node == to {
            return Ok(Reply::Done);
        }
        let ready = received.iter().find(|one| one.node == to);
        match ready.and_then(|one| one.report.as_ref()) {
            Some(report) if report.is_ready_standby() => {}
            Some(report) => return Err((Fault::NoStandby, report.why_not_ready())),
            None => {
                let why = ready.and_then(|one| one.silent.clone()).unwrap_or_default();
                return Err((Fault::NoStandby, format!("{to} does not respond: {why}")));
            }
        }
        self.send_order(owner, &[HAND_OVER, to])?;
        Ok(Reply::Moving {
            from: owner.node.clone(),
            epoch: report.epoch,
            to: target,
        })
    }

    /// This node owns, and lets another.
    fn hand_over(&self, to: &str) -> Result<Reply, OrderError> {
        if self.node.status().role != Role::Owner || !self.node.serves_now() {
            let why = format!("{} does not own the queues now", self.cluster.node());
            return Err((Fault::NoOwner, why));
        }
        if !registry::is_name(to) {
            let why = "a node's name has 1 to 255 bytes".to_owned();
            return Err((Fault::UnknownNode, why));
        }
        self.node.hand_over_to(to);
        Ok(Reply::Done)
    }

    fn drain(&self, node: &str) -> Result<Reply, OrderError> {
        let (target, listed) = self.target(node)?;
        let received = self.nodes_of(listed.clone());
        let owner = self.owner(&received)?;
        let owns = owner.0.node == node;
        let successor = best(&received, &listed, node);
        if owns && successor.is_none() {
            let why = format!(
                "{node} owns the queues, and no other node is ready to take over: start one, or \
                 wait until `quintet cluster status` shows that one has caught up"
            );
            return Err((Fault::NoStandby, why));
        }
        self.write_drained(node, true)?;
        let received_from = received
            .iter()
            .find(|one| one.node == node && one.report.is_some());
        if let Some(there) = received_from {
            self.send_order(there, &[LOOK])?;
        }
        // The leader of the stream moves off its machine as well.
        if !owns {
            self.send_order(owner.0, &[LOOK])?;
        }
        Ok(match (owns, successor) {
            (true, Some(to)) => Reply::Moving {
                from: node.to_owned(),
                epoch: owner.1.epoch,
                to,
            },
            _ => told(target),
        })
    }

    fn undrain(&self, node: &str) -> Result<Reply, OrderError> {
        let (target, _) = self.target(node)?;
        self.write_drained(node, false)?;
        let there = NodeResponse {
            node: node.to_owned(),
            address: target.address.clone(),
            ..NodeResponse::default()
        };
        // One that is away finds it when it starts.
        let answer = self.send_order(&there, &[LOOK]);
        Ok(match answer {
            Ok(()) => told(target),
            Err(_) => Reply::Done,
        })
    }

    fn write_drained(&self, node: &str, drained: bool) -> Result<(), OrderError> {
        registry::drain(&self.stream, &self.cluster, node, drained).map_err(|error| {
            let why = format!("cannot write the registry of the cluster: {error}");
            (Fault::NoQuorum, why)
        })
    }

    /// Has another node, or this one, do something.
    fn send_order(&self, node: &NodeResponse, words: &[&str]) -> Result<(), OrderError> {
        let reply = if node.node == self.cluster.node() {
            self.obey(words)
        } else {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            let answer = ask_node(&self.settings, &node.address, Question::Order(words));
            answer.map_err(|error| (Fault::NoOwner, format!("{}: {error}", node.node)))?
        };
        match serde_json::from_str(&reply) {
            Ok(Reply::Refused { fault, why }) => Err((fault, why)),
            Ok(_) => Ok(()),
            Err(_) => {
                let why = "is it of another version?";
                let why = format!("cannot read the reply of {}: {why}", node.node);
                Err((Fault::Order, why))
            }
        }
    }

    /// The node that should own after this one, if one says soon that it could at once.
    pub(super) fn best_successor(self: &Arc<Self>) -> Option<String> {
        let (sender, receiver) = channel();
        let teller = Arc::clone(self);
        // Without a quorum the registry does not answer, and a node that is gone never does.
        let asks = move || {
            let listed = registry::nodes(&teller.stream, &teller.cluster).unwrap_or_default();
            let own = teller.cluster.node();
            let others = listed.iter().filter(|one| one.node != own);
            // Nobody listens to who is late.
            let requests = others.cloned().map(|one| {
                let (sender, settings) = (sender.clone(), teller.settings.clone());
                let drained = one.drained;
                std::thread::Builder::new().spawn(move || {
                    let received = super::teller::ask(&settings, one);
                    sender.send((received, drained)).unwrap_or_default();
                })
            });
            requests.for_each(drop);
        };
        // Without a thread nobody answers.
        std::thread::Builder::new().spawn(asks).ok();
        let by = Instant::now() + SUCCESSORS_WAIT;
        let mut ready = Vec::new();
        // It ends when all have answered as well: nobody holds the other side any more.
        while let Ok((one, drained)) =
            receiver.recv_timeout(by.saturating_duration_since(Instant::now()))
        {
            if !drained {
                ready.push(one);
            }
        }
        best(&ready, &[], &self.cluster.node()).map(|successor| successor.node)
    }
}

/// Of those that could serve at once and are not drained, the one that is furthest; not `but`.
fn best(received: &[NodeResponse], listed: &[Listed], but: &str) -> Option<Successor> {
    let drained = |name: &str| listed.iter().any(|one| one.node == name && one.drained);
    let ready = received.iter().filter_map(|one| {
        let report = one
            .report
            .as_ref()
            .filter(|report| report.is_ready_standby())?;
        (one.node != but && !drained(&one.node)).then_some((report.entry, one))
    });
    let (_, best) = ready.max_by_key(|(entry, one)| (*entry, std::cmp::Reverse(&one.node)))?;
    Some(Successor {
        node: best.node.clone(),
        address: best.address.clone(),
    })
}

fn told(Successor { node, address }: Successor) -> Reply {
    Reply::Told { node, address }
}
