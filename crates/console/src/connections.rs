//! The connections, and the work of each.

use std::collections::BTreeMap;

use askama::Template;
use quintet_client::ThrottledClient;
use serde::Deserialize;

use super::frame::Frame;
use super::names::Piece;
use super::{Answer, PageRequest, Posted, names, render, words};
use quintet_api::{Path, Problem};

/// Rows of a page.
const ROWS: usize = 200;
/// Rows of throttled clients at most.
const THROTTLED_MAX: usize = 50;

/// A connection, as the server shows it.
#[derive(Clone, Debug, Deserialize)]
struct Client {
    id: u64,
    protocol: String,
    peer: Option<String>,
    user: String,
    tls: bool,
    idle_ms: u64,
    unread_bytes: u64,
    /// Over HTTP.
    asks: Option<String>,
    /// Names as they are shown everywhere.
    waits_on: Vec<String>,
    leases: u64,
}

struct Row {
    peer: String,
    does: Vec<Piece>,
    idle: String,
    /// Holds leases and has said nothing for long.
    stuck: bool,
    unread_text: String,
    client: Client,
}

impl Row {
    fn new(client: Client) -> Self {
        let does = match (client.waits_on.is_empty(), &client.asks) {
            (true, None) => words::NONE.to_owned(),
            (true, Some(asks)) => format!("requests {asks}"),
            (false, _) => format!("waits for {}", client.waits_on.join(", ")),
        };
        Self {
            peer: (client.peer.clone()).unwrap_or_else(|| "this machine".to_owned()),
            // Already in the notation of names: a backslash is one.
            does: names::pieces(does.replace("\\\\", "\\").as_bytes()),
            idle: words::duration(client.idle_ms),
            stuck: client.leases > 0 && client.idle_ms >= 30_000,
            unread_text: words::bytes(client.unread_bytes),
            client,
        }
    }
}

#[derive(Template)]
#[template(path = "connections.html")]
struct Connections {
    frame: Frame,
    facts: Vec<(&'static str, String)>,
    protocols: Vec<(String, String, bool)>,
    all: String,
    protocol: String,
    peer: String,
    rows: Vec<Row>,
    /// More than are shown.
    more: bool,
    throttled: Vec<ThrottledRow>,
}

/// A client that a `[[limit]]` throttled.
struct ThrottledRow {
    who: Vec<Piece>,
    now: String,
    times: String,
    ago: String,
}

impl ThrottledRow {
    fn new(held: ThrottledClient) -> Self {
        Self {
            who: names::pieces(held.who.as_bytes()),
            now: held.now.join(", ").replace('_', " "),
            times: words::count(held.times),
            ago: words::duration(held.ago_ms),
        }
    }
}

/// `/connections`.
pub(super) async fn page(context: PageRequest) -> Answer {
    let form = context.query()?;
    let protocol = form.get("protocol").unwrap_or_default();
    let peer = form.get("peer").unwrap_or_default();
    let shown = shown(&context, protocol, peer).await?;
    render(&shown)
}

async fn shown(context: &PageRequest, protocol: &str, peer: &str) -> Result<Connections, Problem> {
    let (mut clients, mut more, mut after) = (Vec::new(), false, None);
    let [mut all, mut waiting, mut leasing, mut unread] = [0; 4];
    let mut protocols = BTreeMap::new();
    loop {
        let (list, next, _room) = context.console.api.connections(after).await?;
        let page: Vec<Client> = serde_json::from_str(&list)
            .map_err(|error| Problem::internal(format!("connections: {error}")))?;
        after = page.last().map(|last| last.id).filter(|_| next.is_some());
        for client in &page {
            all += 1;
            waiting += u64::from(!client.waits_on.is_empty());
            leasing += u64::from(client.leases > 0);
            unread += u64::from(client.unread_bytes > 0);
            *protocols.entry(client.protocol.clone()).or_insert(0) += 1;
        }
        clients.extend(page.into_iter().filter(|client| {
            let has = |text: &str| text.contains(peer);
            (protocol.is_empty() || client.protocol == protocol)
                && (has(client.peer.as_deref().unwrap_or_default())
                    || has(&client.user)
                    || has(client.asks.as_deref().unwrap_or_default())
                    || client.waits_on.iter().any(|queue| has(queue)))
        }));
        // A client that holds leases and is silent comes first.
        clients.sort_by_key(|client| std::cmp::Reverse((client.leases > 0, client.idle_ms)));
        more |= clients.len() > ROWS;
        clients.truncate(ROWS);
        if after.is_none() {
            break;
        }
    }
    let facts = vec![
        ("Connections", words::count(all)),
        ("Waiting consumers", words::count(waiting)),
        ("With leases", words::count(leasing)),
        ("With unread replies", words::count(unread)),
    ];
    let protocols = protocols.into_iter().map(|(name, count)| {
        let on = name == protocol;
        (name, words::count(count), on)
    });
    let protocols = protocols.collect();
    let client_api = context.client_api();
    Ok(Connections {
        frame: context.frame.of("Connections", "connections"),
        facts,
        protocols,
        all: words::count(all),
        protocol: protocol.to_owned(),
        peer: peer.to_owned(),
        rows: clients.into_iter().map(Row::new).collect(),
        more,
        throttled: client_api
            .throttled(THROTTLED_MAX)
            .into_iter()
            .map(ThrottledRow::new)
            .collect(),
    })
}

/// `POST /connections/ID/do/close`.
pub(super) async fn close(Path(id): Path<String>, Posted(context, _): Posted) -> Answer {
    let id = id.parse().map_err(|_| Problem::no_such_page())?;
    let note = match context.console.api.close(id).await? {
        true => format!("Connection {id} is closed. Its leases have ended."),
        false => format!("Connection {id} was closed already."),
    };
    context.redirect("connections", note)
}
