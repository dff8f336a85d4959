//! The queues, and the state of each.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use hyper::{StatusCode, Uri};
use quintet_scripts::{QueueInfo, ROUTER, Rq, STATES};
use quintet_types::Verb;
use serde_json::{Value, json};

use super::{Answer, escaped, problem};
use crate::app::App;
use crate::pages;
use quintet_http::{
    Problem, Requester, Share, held,
    reply::{self, document, plain},
};

/// Ids a page or a JSON document lists of each state.
const LISTED: usize = 100;

/// Memory of a queue or an id in a list, about.
const ROW_BYTES: usize = 512;

/// Queues RQ has for itself; they are listed last.
const BUILT_IN: [&str; 4] = ["cleaner", "relay", ROUTER, "webhook"];

pub(super) async fn main_page(
    State(app): State<Arc<App>>,
    Extension(requester): Extension<Requester>,
    uri: Uri,
) -> Answer {
    let notice = app.notice(&uri);
    let _room = room_for_queues(&app).await?;
    let shown = Arc::clone(&app);
    // Of many queues it is long: written where nobody waits for it.
    let page = app.ask(move |rq| {
        let row = |(name, info): (String, QueueInfo)| pages::QueueRow {
            seen: pages::seen(&name),
            name,
            sizes: sizes(&info).map(|(_, size)| size),
            status: info.status,
        };
        let page = pages::Main {
            root: &shown.http.settings().relative_root,
            notice,
            warning: rq.rules_warning(),
            queues: sorted(rq, &requester).into_iter().map(row).collect(),
            uptime: shown.http.uptime(),
            version: env!("CARGO_PKG_VERSION"),
            allow_new_queue: shown.http.settings().allow_new_queue,
        };
        reply::show(StatusCode::OK, &page)
    });
    page.await
}

/// The addresses of their texts, for scripts that watch them all.
pub(super) async fn list_text(
    State(app): State<Arc<App>>,
    Extension(requester): Extension<Requester>,
) -> Answer {
    let _room = room_for_queues(&app).await?;
    let shown = Arc::clone(&app);
    // Of many queues it is long: written where nobody waits for it.
    let text = app.ask(move |rq| {
        let line = |name: &String| {
            shown
                .http
                .link(&format!("q/{}.txt\n", escaped_plainly(name)))
        };
        let queues = rq.queues();
        let seen = queues
            .iter()
            .filter(|name| requester.may(Verb::Stats, name));
        let text: String = seen.map(line).collect();
        match text.is_empty() {
            true => "\n".to_owned(),
            false => text,
        }
    });
    Ok(plain(StatusCode::OK, text.await?))
}

pub(super) async fn list_json(
    State(app): State<Arc<App>>,
    Extension(requester): Extension<Requester>,
) -> Answer {
    let _room = room_for_queues(&app).await?;
    let uptime = app.http.uptime();
    app.document(move |rq| Ok(list_of(&sorted(rq, &requester), uptime)))
        .await
}

/// Takes memory for a list of so many.
fn room(app: &App, rows: usize) -> Result<Option<Share>, Problem> {
    held::room(app.http.settings(), (rows * ROW_BYTES) as u64)
}

async fn room_for_queues(app: &App) -> Result<Option<Share>, Problem> {
    room(app, app.ask(|rq| rq.queues().len()).await?)
}

fn list_of(queues: &[(String, QueueInfo)], uptime: u64) -> Value {
    let queue = |(name, info): &(String, QueueInfo)| {
        let counts: serde_json::Map<_, _> = sizes(info)
            .map(|(state, size)| (state.to_owned(), Value::from(size)))
            .into_iter()
            .collect();
        json!({
            "name": name,
            "status": info.status,
            "ping": "pong",
            "pid": info.pid,
            "uptime": info.uptime.as_secs(),
            "counts": counts,
        })
    };
    json!({
        "status": "OPERATIONAL",
        "ping": "pong",
        "pid": std::process::id(),
        "uptime": uptime,
        "version": env!("CARGO_PKG_VERSION"),
        "time": now(),
        "queues": queues.iter().map(queue).collect::<Vec<_>>(),
    })
}

/// A queue's page, text or JSON, by the end of its name: no queue's name has a
/// dot.
pub(super) async fn show(
    State(app): State<Arc<App>>,
    Path(last): Path<String>,
    uri: Uri,
) -> Answer {
    let (name, form) = match last.split_once('.') {
        Some((name, form)) => (name.to_owned(), form),
        None => (last.clone(), ""),
    };
    let listed = matches!(form, "" | "json");
    let requested = name.clone();
    let (info, ids) = app
        .ask(move |rq| {
            let info = rq.queue(&requested)?;
            let list = |state: &str| match listed && info.status != "DOWN" {
                true => rq.list(&requested, state, LISTED).unwrap_or_default(),
                false => Vec::new(),
            };
            let ids = STATES.map(list);
            Ok((info, ids))
        })
        .await?
        .map_err(|fault| problem(&fault))?;
    match form {
        "txt" => Ok(plain(StatusCode::OK, text(&info))),
        "json" => Ok(document(&json_of(&info, ids))),
        "" => {
            let sizes = sizes(&info);
            let states = STATES.into_iter().zip(sizes).zip(ids);
            let states =
                states.map(|((name, (_, size)), ids)| pages::StateList { name, size, ids });
            let page = pages::Queue {
                root: &app.http.settings().relative_root,
                notice: app.notice(&uri),
                name: &name,
                seen: pages::seen(&name),
                states: states.collect(),
                status: info.status,
                errors: info.sizes.err,
            };
            Ok(reply::show(StatusCode::OK, &page))
        }
        _ => Err(Problem::not_found("Page")),
    }
}

/// The text that RQ's tests and monitors read.
fn text(info: &QueueInfo) -> String {
    let mut lines = vec![format!("status: {}", info.status)];
    if info.status != "DOWN" {
        lines.push(format!("uptime: {}", info.uptime.as_secs()));
        for (gap, states) in [("prep", "que run"), ("done", "err relayed")] {
            lines.push(String::new());
            for state in std::iter::once(gap).chain(states.split(' ')) {
                let size = sizes(info).into_iter().find(|(name, _)| *name == state);
                lines.push(format!("{state}: {}", size.map_or(0, |(_, size)| size)));
            }
        }
    }
    lines.join("\n") + "\n"
}

fn json_of(info: &QueueInfo, ids: [Vec<String>; 7]) -> Value {
    if info.status == "DOWN" {
        return json!({ "status": "DOWN" });
    }
    let mut all = json!({
        "status": info.status,
        "ping": "pong",
        "pid": info.pid,
        "uptime": info.uptime.as_secs(),
        "time": now(),
    });
    let mut messages = serde_json::Map::new();
    for ((state, size), ids) in sizes(info).into_iter().zip(ids) {
        all[format!("{state}_size")] = Value::from(size);
        messages.insert(state.to_owned(), Value::from(ids));
    }
    all["messages"] = Value::Object(messages);
    all
}

/// Short ids of those that are done, newest first.
pub(super) async fn done(
    State(app): State<Arc<App>>,
    Path(queue): Path<String>,
    uri: Uri,
) -> Answer {
    let limit = match app.http.query(&uri)?.get("limit") {
        Some(limit) => limit
            .parse::<usize>()
            .map_err(|_| Problem::bad("limit is not a number"))?
            .min(app.http.settings().limits.list_max),
        None => 10,
    };
    let _room = room(&app, limit)?;
    app.document(move |rq| {
        let ids = rq.list(&queue, "done", limit);
        ids.map(Value::from).map_err(|fault| problem(&fault))
    })
    .await
}

pub(super) async fn config(State(app): State<Arc<App>>, Path(queue): Path<String>) -> Answer {
    app.document(move |rq| rq.queue_config(&queue).map_err(|fault| problem(&fault)))
        .await
}

/// Every queue the requester may see, with its state; one that goes meanwhile is left out.
fn sorted(rq: &Rq, requester: &Requester) -> Vec<(String, QueueInfo)> {
    let mut names = rq.queues();
    names.retain(|name| requester.may(Verb::Stats, name));
    names.sort_unstable_by_key(|name| (BUILT_IN.contains(&name.as_str()), name.clone()));
    let info = |name: String| rq.queue(&name).ok().map(|info| (name, info));
    names.into_iter().filter_map(info).collect()
}

fn sizes(info: &QueueInfo) -> [(&'static str, u64); 7] {
    let sizes = &info.sizes;
    [
        ("prep", sizes.prep),
        ("que", sizes.que),
        ("run", sizes.run),
        ("err", sizes.err),
        ("errack", sizes.errack),
        ("done", sizes.done),
        ("relayed", sizes.relayed),
    ]
}

/// Seconds since the epoch.
fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// `-` and `_` are in most names and need no escape.
fn escaped_plainly(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if name.bytes().all(plain) {
        name.to_owned()
    } else {
        escaped(name)
    }
}
