//! Queues with a script: how each is, and what failed last.

use askama::Template;
use quintet_scripts::{Admin, Scripted};
use quintet_types::{ListState, Name, QueueStats, Verb};

use super::frame::Frame;
use super::names::{self, Named, Piece};
use super::overview::Figure;
use super::{Answer, PageRequest, render};
use quintet_api::Problem;

/// Queues of a page.
const ROWS: usize = 100;
/// Failures shown of a queue.
const FAILURES: usize = 3;

/// A message that failed.
struct Failure {
    id: u64,
    /// Status of its script; empty: nothing.
    says: Vec<Piece>,
}

struct Row {
    name: Named,
    script: Vec<Piece>,
    /// A word for how it is, and its class.
    state: (&'static str, &'static str),
    /// Takes of everybody wait, also its script's.
    paused: bool,
    running: usize,
    workers: u32,
    ready: Figure,
    delayed: Figure,
    buried: Figure,
    failures: Vec<Failure>,
}

#[derive(Template)]
#[template(path = "scripts.html")]
struct Page {
    frame: Frame,
    rows: Vec<Row>,
    first: bool,
    next: Option<String>,
}

/// `/scripts`.
pub(super) async fn page(context: PageRequest) -> Answer {
    let query = context.query()?;
    let after = query.get("after").and_then(names::of_address);
    let first = after.is_some();
    let after = after.map(|name| name.to_string());
    let scripts = context.console.ask_rq(move |rq| {
        // One more tells whether there is another page.
        rq.scripts(after.as_deref(), ROWS + 1, FAILURES)
    });
    let mut scripts = scripts.await?;
    let more = scripts.len() > ROWS;
    scripts.truncate(ROWS);
    let last = scripts.last().filter(|_| more);
    let next = last.map(|last| names::in_address(&Name::from(last.name.as_str())));
    let mut rows = Vec::new();
    for script in scripts {
        if context.requester.may(Verb::Stats, &script.name) {
            rows.push(row(&context, script).await?);
        }
    }
    render(&Page {
        frame: context.frame.of("Scripts", "scripts").live(""),
        rows,
        first,
        next,
    })
}

async fn row(context: &PageRequest, script: Scripted) -> Result<Row, Problem> {
    let name = Name::from(script.name.as_str());
    let stats = match context.stats(&name).await {
        // Nothing was put to it yet.
        Err(problem) if problem.status == 404 => QueueStats::default(),
        stats => stats?,
    };
    let gauges = &stats.gauges;
    Ok(Row {
        state: state(&script),
        paused: stats.paused,
        running: script.running,
        workers: script.workers,
        ready: Figure::new(gauges.ready + gauges.not_selectable),
        delayed: Figure::new(gauges.delayed),
        buried: Figure::new(gauges.buried),
        failures: failures(context, &name, &script.failed).await,
        script: names::pieces(script.script.as_bytes()),
        name: Named::new(&name),
    })
}

/// How it is: the worst of it.
fn state(script: &Scripted) -> (&'static str, &'static str) {
    match (script.missing, script.admin) {
        (_, Admin::Down) => ("down", "alarm"),
        (true, _) => ("script missing", "alarm"),
        (false, Admin::Paused) => ("script paused", "warn"),
        (false, Admin::Up) if script.running > 0 => ("running", ""),
        (false, Admin::Up) => ("idle", ""),
    }
}

/// Messages that are still buried in this queue, if they may be seen.
async fn failures(context: &PageRequest, queue: &Name, ids: &[u64]) -> Vec<Failure> {
    let now = context.now();
    let mut all = Vec::new();
    for id in ids {
        if let Ok((message, at)) = context.message(&id.to_string()).await
            && at == *queue
            && ListState::of(&message, now) == ListState::Buried
        {
            let status = message.extra.as_deref().map(|extra| &extra.status);
            all.push(Failure {
                id: *id,
                says: status
                    .map(|says| names::first_line(says))
                    .unwrap_or_default(),
            });
        }
    }
    all
}
