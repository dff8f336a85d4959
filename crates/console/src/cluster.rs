//! The nodes of a cluster, and whether the loss of one machine would be survived.

use std::mem::take;

use askama::Template;
use quintet_client::{ClusterSeen, LogSeen, NodeSeen};
use quintet_types::Operation;

use super::frame::Frame;
use super::{Answer, PageRequest, Posted, Two, render, words};
use quintet_api::{Path, Problem, blocking};

struct Row {
    node: NodeSeen,
    /// The class of its role.
    tag: &'static str,
    says: String,
    entries_text: String,
    p99: String,
    /// Operations that make sense for it.
    operations: Vec<(&'static str, &'static str)>,
}

impl Row {
    fn new(mut node: NodeSeen) -> Self {
        let none = || words::NONE.to_owned();
        if let Some(why) = node.silent.take() {
            return Self {
                tag: "bad",
                says: why,
                entries_text: none(),
                p99: none(),
                // It is written down, and found when it comes back.
                operations: vec![("drain", "Drain"), ("undrain", "Undrain")],
                node: NodeSeen {
                    node: node.node,
                    address: node.address,
                    role: "silent".to_owned(),
                    version: none(),
                    ..NodeSeen::default()
                },
            };
        }
        let since = words::duration(node.since_ms);
        let says = match (node.owns, node.drained, node.ready) {
            (true, true, _) => format!("since {since}, drained"),
            (true, false, _) => format!("since {since}, epoch {}", node.epoch),
            (false, true, _) => "drained".to_owned(),
            (false, false, true) => "can take over".to_owned(),
            (false, false, false) => "has not caught up".to_owned(),
        };
        let mut operations = Vec::new();
        if node.ready && !node.owns {
            operations.push(("move", "Make owner"));
        }
        operations.push(match node.drained {
            true => ("undrain", "Undrain"),
            false => ("drain", "Drain"),
        });
        Self {
            tag: match node.drained || !(node.owns || node.ready) {
                true => "warn",
                false => "good",
            },
            says,
            entries_text: words::count(node.lag_entries),
            p99: node.p99_ms.map_or_else(none, |ms| format!("{ms} ms")),
            operations,
            node,
        }
    }
}

struct Log {
    seen: LogSeen,
    entries: String,
    bytes: String,
}

impl Log {
    fn new(seen: LogSeen) -> Self {
        Self {
            entries: format!(
                "{} to {}",
                words::count(seen.first),
                words::count(seen.last)
            ),
            bytes: words::bytes(seen.bytes),
            seen,
        }
    }
}

#[derive(Template)]
#[template(path = "cluster.html")]
struct Cluster {
    frame: Frame,
    /// `None`: the server is alone.
    view: Option<ClusterView>,
}

struct ClusterView {
    class: &'static str,
    rows: Vec<Row>,
    logs: Vec<Log>,
    /// Without its nodes and logs, which are in `rows` and `logs`.
    seen: ClusterSeen,
}

impl ClusterView {
    fn new(mut seen: ClusterSeen) -> Self {
        let (nodes, logs) = (take(&mut seen.nodes), take(&mut seen.logs));
        Self {
            class: match (seen.serves, seen.survives) {
                (true, true) => "good",
                (true, false) => "warn",
                (false, _) => "bad",
            },
            rows: nodes.into_iter().map(Row::new).collect(),
            logs: logs.into_iter().map(Log::new).collect(),
            seen,
        }
    }
}

/// `/cluster`.
pub(super) async fn page(context: PageRequest) -> Answer {
    let client_api = context.client_api();
    // Asks the nodes, which may take seconds.
    let seen = blocking(move || client_api.cluster()).await?;
    render(&Cluster {
        frame: context.frame.of("Cluster", "cluster"),
        view: seen.map(ClusterView::new),
    })
}

/// `POST /cluster/NODE/do/ACT`.
pub(super) async fn order(Path((node, act)): Two, Posted(context, _): Posted) -> Answer {
    let operation = match act.as_str() {
        "move" => Operation::MoveGroup,
        "drain" => Operation::DrainNode,
        "undrain" => Operation::UndrainNode,
        _ => return Err(Problem::no_such_page()),
    };
    let client_api = context.client_api();
    let done = blocking(move || client_api.order_node(operation, &node)).await?;
    let note = done.unwrap_or_else(|why| format!("Not done: {why}"));
    context.redirect("cluster", note)
}
