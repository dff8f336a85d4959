//! The nodes of a cluster, and whether the loss of one machine would be survived.

use askama::Template;
use axum::extract::Request;
use quintet_client::{ClusterSeen, LogSeen, NodeSeen};
use quintet_types::Operation;

use super::frame::Frame;
use super::{Answer, PageRequest, render, words};
use quintet_api::{Path, Problem, blocking};

struct Row {
    node: String,
    address: String,
    /// Its role, and the tag's class.
    role: String,
    tag: &'static str,
    says: String,
    entries: u64,
    entries_text: String,
    p99: String,
    runs_missing: u64,
    version: String,
    /// Operations that make sense for it.
    operations: Vec<(&'static str, &'static str)>,
}

impl Row {
    fn new(node: NodeSeen) -> Self {
        if let Some(why) = node.silent {
            return Self {
                role: "silent".to_owned(),
                tag: "bad",
                says: why,
                entries: 0,
                entries_text: words::NONE.to_owned(),
                p99: words::NONE.to_owned(),
                runs_missing: 0,
                version: words::NONE.to_owned(),
                // It is written down, and found when it comes back.
                operations: vec![("drain", "Drain"), ("undrain", "Undrain")],
                node: node.node,
                address: node.address,
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
            entries: node.lag_entries,
            entries_text: words::count(node.lag_entries),
            p99: node
                .p99_ms
                .map_or_else(|| words::NONE.to_owned(), |ms| format!("{ms} ms")),
            runs_missing: node.runs_missing,
            version: node.version,
            operations,
            role: node.role,
            node: node.node,
            address: node.address,
        }
    }
}

struct Log {
    group: u16,
    silent: Option<String>,
    stream: String,
    entries: String,
    bytes: String,
    servers: Vec<(String, String)>,
}

impl Log {
    fn new(log: LogSeen) -> Self {
        Self {
            group: log.group,
            silent: log.silent,
            stream: log.stream,
            entries: format!("{} to {}", words::count(log.first), words::count(log.last)),
            bytes: words::bytes(log.bytes),
            servers: log.servers,
        }
    }
}

#[derive(Template)]
#[template(path = "cluster.html")]
struct Cluster {
    frame: Frame,
    /// `None`: the server is alone.
    seen: Option<ClusterView>,
}

struct ClusterView {
    cluster: String,
    told_by: String,
    verdict: String,
    class: &'static str,
    notes: Vec<String>,
    rows: Vec<Row>,
    logs: Vec<Log>,
}

impl ClusterView {
    fn new(seen: ClusterSeen) -> Self {
        Self {
            cluster: seen.cluster,
            told_by: seen.told_by,
            verdict: seen.verdict,
            class: match (seen.serves, seen.survives) {
                (true, true) => "good",
                (true, false) => "warn",
                (false, _) => "bad",
            },
            notes: seen.notes,
            rows: seen.nodes.into_iter().map(Row::new).collect(),
            logs: seen.logs.into_iter().map(Log::new).collect(),
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
        seen: seen.map(ClusterView::new),
    })
}

/// `POST /cluster/NODE/do/ACT`.
pub(super) async fn order(
    context: PageRequest,
    Path((node, act)): Path<(String, String)>,
    request: Request,
) -> Answer {
    context.form(request).await?;
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
