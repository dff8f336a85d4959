//! Workers of clients that say a name of their own (faktory): how they are; asked
//! to be quiet, and to end.

use askama::Template;
use quintet_client::WorkerAction;
use quintet_types::Name;
use serde::Deserialize;

use super::frame::Frame;
use super::names::{in_address, seen};
use super::overview::Figure;
use super::{Answer, PageRequest, Posted, Two, render, text_of, words};
use quintet_api::{Path, Problem};

/// Rows of a page.
const ROWS: usize = 200;
/// Silence that is shown as such, ms: workers beat every 15 s.
const SILENT_MS: u64 = 30_000;

/// A worker, as the server shows it.
#[derive(Clone, Debug, Deserialize)]
struct Worker {
    wid: String,
    host: String,
    pid: i64,
    labels: Vec<String>,
    state: String,
    /// Jobs that its open connections hold.
    jobs: u64,
    connections: u64,
    rss_kb: u64,
    age_ms: u64,
    silent_ms: u64,
}

impl Worker {
    fn has(&self, text: &str) -> bool {
        let own = [&self.wid, &self.host, &self.state].into_iter();
        own.chain(&self.labels).any(|one| one.contains(text))
    }
}

struct Row {
    wid: String,
    /// Its part of an address.
    part: String,
    labels: String,
    place: String,
    state: &'static str,
    tag: &'static str,
    /// The requests that are still possible.
    operations: Requests,
    jobs: Figure,
    connections: Figure,
    memory: String,
    silent: String,
    /// It has said nothing for long.
    stuck: bool,
    age: String,
}

/// Requests that are possible: a word of the address and one of the button.
type Requests = &'static [(&'static str, &'static str)];

/// The work of a worker: a word, the class of its tag, and the possible requests.
fn state(word: &str) -> (&'static str, &'static str, Requests) {
    const ALL: Requests = &[("quiet", "Quiet"), ("terminate", "End")];
    match word {
        "terminate" => ("ending", "warn", &[]),
        "quiet" => ("quiet", "warn", &ALL[1..]),
        _ => ("running", "good", ALL),
    }
}

impl Row {
    fn new(worker: &Worker) -> Self {
        let (word, tag, operations) = state(&worker.state);
        let labels: Vec<String> = worker.labels.iter().map(|label| seen(label)).collect();
        Self {
            part: in_address(&Name::from(worker.wid.as_str())),
            wid: seen(&worker.wid),
            labels: labels.join(", "),
            place: place(worker),
            state: word,
            tag,
            operations,
            jobs: Figure::new(worker.jobs),
            connections: Figure::new(worker.connections),
            memory: match worker.rss_kb {
                0 => words::NONE.to_owned(),
                kb => words::bytes(kb.saturating_mul(1024)),
            },
            silent: words::duration(worker.silent_ms),
            stuck: worker.silent_ms >= SILENT_MS,
            age: words::duration(worker.age_ms),
        }
    }
}

/// Where it runs.
fn place(worker: &Worker) -> String {
    match worker.host.as_str() {
        "" => words::NONE.to_owned(),
        host => format!("{}, process {}", seen(host), worker.pid),
    }
}

#[derive(Template)]
#[template(path = "workers.html")]
struct Workers {
    frame: Frame,
    facts: Vec<(&'static str, String)>,
    has: String,
    rows: Vec<Row>,
    none: bool,
    /// More than are shown.
    more: bool,
}

/// Shows the workers to `look`, page after page, until it has seen enough.
async fn each(
    context: &PageRequest,
    mut look: impl FnMut(Vec<Worker>) -> bool,
) -> Result<(), Problem> {
    let mut after = None;
    loop {
        let (list, next, _room) = context.console.api.workers(after).await?;
        let workers = serde_json::from_str(&list);
        let workers = workers.map_err(|error| Problem::internal(format!("workers: {error}")))?;
        if look(workers) || next.is_none() {
            return Ok(());
        }
        after = next;
    }
}

/// `/workers`.
pub(super) async fn page(context: PageRequest) -> Answer {
    let has = context.query()?.get("has").unwrap_or_default().to_owned();
    let (mut workers, mut more) = (Vec::new(), false);
    let [mut all, mut running, mut quiet, mut ending, mut jobs] = [0; 5];
    each(&context, |page| {
        for worker in &page {
            all += 1;
            running += u64::from(worker.state == "running");
            quiet += u64::from(worker.state == "quiet");
            ending += u64::from(worker.state == "terminate");
            jobs += worker.jobs;
        }
        workers.extend(page.into_iter().filter(|worker| worker.has(&has)));
        // They stay where they are while somebody looks.
        workers.sort_by(|a, b| (&a.host, &a.wid).cmp(&(&b.host, &b.wid)));
        more |= workers.len() > ROWS;
        workers.truncate(ROWS);
        false
    })
    .await?;
    let facts = vec![
        ("Workers", words::count(all)),
        ("Running", words::count(running)),
        ("Quiet", words::count(quiet)),
        ("Ending", words::count(ending)),
        ("Jobs held", words::count(jobs)),
    ];
    let none = all == 0;
    render(&Workers {
        frame: context.frame.of("Workers", "workers").live(""),
        facts,
        has,
        rows: workers.iter().map(Row::new).collect(),
        none,
        more,
    })
}

/// A worker's name, by its part of an address, and what it is asked for.
fn named(part: &str, act: &str) -> Result<(String, WorkerAction), Problem> {
    let action = WorkerAction::of_word(act).ok_or_else(Problem::no_such_page)?;
    Ok((text_of(part)?, action))
}

#[derive(Template)]
#[template(path = "worker_ask.html")]
struct WorkerAsk {
    frame: Frame,
    wid: String,
    part: String,
    act: String,
    heading: String,
    says: &'static str,
    place: String,
    state: &'static str,
    jobs: String,
    silent: String,
    button: String,
    /// `None`: the name is none that a shell takes as it is.
    command: Option<String>,
}

/// `/workers/WID/ask/ACT`.
pub(super) async fn question(context: PageRequest, Path((part, act)): Two) -> Answer {
    let (wid, wanted) = named(&part, &act)?;
    let mut found = None;
    each(&context, |page| {
        found = page.into_iter().find(|worker| worker.wid == wid);
        found.is_some()
    })
    .await?;
    let worker = found.ok_or_else(Problem::no_such_page)?;
    let held = words::of(worker.jobs, "job", "jobs");
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_.:@,+-/".contains(&b);
    let command = wid.bytes().all(plain) && !wid.starts_with('-');
    let shown = seen(&wid);
    let (to, says) = match wanted {
        WorkerAction::Quiet => (
            "be quiet",
            "The worker gets no more jobs and finishes the jobs that it has. This cannot be \
             undone: only a restarted worker gets jobs again.",
        ),
        WorkerAction::Terminate => (
            "end",
            "The worker gets no more jobs and must end. Most workers give their jobs some \
             seconds, then return the rest. This cannot be undone.",
        ),
    };
    render(&WorkerAsk {
        frame: context.frame.of(format!("{act} {shown}"), "workers"),
        heading: format!("Ask {shown} to {to}?"),
        says,
        place: place(&worker),
        state: state(&worker.state).0,
        jobs: held.clone(),
        silent: words::duration(worker.silent_ms),
        button: format!("Ask the worker to {to}, with {held}"),
        command: command.then(|| format!("quintet workers {act} {wid}")),
        part,
        act,
        wid: shown,
    })
}

/// `POST /workers/WID/do/ACT`.
pub(super) async fn steer(Path((part, act)): Two, Posted(context, _): Posted) -> Answer {
    let (wid, act) = named(&part, &act)?;
    let there = context.client_api().steer_worker(act, &wid);
    let wid = seen(&wid);
    let to = match act {
        WorkerAction::Quiet => "be quiet",
        WorkerAction::Terminate => "end",
    };
    let note = match there {
        true => format!("{wid} gets no more jobs. Its next heartbeat tells it to {to}."),
        false => format!("{wid} is gone already."),
    };
    context.redirect("workers", note)
}
