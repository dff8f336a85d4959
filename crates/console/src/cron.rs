//! `[[cron]]` tables: what is put by the calendar.

use askama::Template;
use axum::extract::Request;
use axum::response::Response;
use hyper::StatusCode;
use quintet_client::CronAct;
use quintet_types::Name;

use super::frame::Frame;
use super::names::{Named, seen};
use super::operate::must_operate;
use super::{Asked, names, words};
use quintet_api::{Cron, Path, Problem};
use quintet_http::reply;

/// Rows of a page.
const ROWS: usize = 200;

struct Row {
    name: String,
    /// Its part of an address.
    part: String,
    schedule: String,
    zone: String,
    queue: Named,
    paused: bool,
    next: String,
    last: String,
    /// The message it put last.
    message: Option<u64>,
    outcome: String,
    bad: bool,
    missed: u64,
    missed_text: String,
}

impl Row {
    fn new(cron: Cron) -> Self {
        let when = |ms: Option<u64>| ms.map_or_else(|| words::NONE.to_owned(), words::moment);
        let outcome = match (cron.outcome, cron.error, cron.missed_ms) {
            ("refused", Some(error), _) => format!("refused: {error}"),
            ("missed", _, at) => format!("missed, seen {}", when(at)),
            ("none", ..) => words::NONE.to_owned(),
            (outcome, ..) => outcome.to_owned(),
        };
        Self {
            part: names::in_address(&Name::from(cron.name.as_str())),
            name: seen(&cron.name),
            schedule: seen(&cron.schedule),
            zone: cron.zone,
            queue: Named::new(&Name::of_shown(&cron.queue)),
            paused: cron.paused,
            next: when(cron.next_ms),
            last: when(cron.last_ms),
            message: cron.message,
            bad: matches!(cron.outcome, "refused" | "missed"),
            outcome,
            missed: cron.missed_runs,
            missed_text: words::count(cron.missed_runs),
        }
    }
}

#[derive(Template)]
#[template(path = "cron.html")]
struct Crons {
    frame: Frame,
    facts: Vec<(&'static str, String)>,
    has: String,
    rows: Vec<Row>,
    /// More than are shown.
    more: bool,
}

/// `/cron`.
pub(super) async fn page(asked: Asked) -> Result<Response, Problem> {
    must_operate(&asked)?;
    let has = asked.query()?.get("has").unwrap_or_default().to_owned();
    let mut crons = asked.console.api.crons().await?;
    let number = |is: &dyn Fn(&&Cron) -> bool| words::count(crons.iter().filter(is).count() as u64);
    let facts = vec![
        ("Tables", words::count(crons.len() as u64)),
        ("Paused", number(&|cron| cron.paused)),
        ("Refused", number(&|cron| cron.outcome == "refused")),
        ("Missed last", number(&|cron| cron.outcome == "missed")),
    ];
    crons.retain(|cron| cron.name.contains(&has) || cron.queue.contains(&has));
    // What is due next comes first, what is paused last.
    crons.sort_by_key(|cron| cron.next_ms.unwrap_or(u64::MAX));
    let more = crons.len() > ROWS;
    crons.truncate(ROWS);
    let page = Crons {
        frame: asked.frame.of("Cron", "cron"),
        facts,
        has,
        rows: crons.into_iter().map(Row::new).collect(),
        more,
    };
    Ok(reply::show(StatusCode::OK, &page))
}

/// `POST /cron/NAME/do/ACT`.
pub(super) async fn steer(
    asked: Asked,
    Path((part, act)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    must_operate(&asked)?;
    let given = asked.console.app.form(request).await?;
    asked.must_be_ours(&given.form)?;
    let name = names::of_address(&part).ok_or_else(Problem::no_such_page)?;
    let name = String::from_utf8(name.as_bytes().to_vec());
    let name = name.map_err(|_| Problem::no_such_page())?;
    let act = match act.as_str() {
        "pause" => CronAct::Pause,
        "resume" => CronAct::Resume,
        "run" => CronAct::Run,
        _ => return Err(Problem::no_such_page()),
    };
    let done = asked.console.api.steer_cron(act, &name).await?;
    let name = seen(&name);
    let note = match (act, done.changed, done.message) {
        (CronAct::Run, _, Some(id)) => format!("{name} was put as message {}.", id.0),
        (CronAct::Run, _, None) => format!("{name} was put."),
        (CronAct::Pause, true, _) => format!("{name} is paused until it is resumed."),
        (CronAct::Pause, false, _) => format!("{name} was paused already."),
        (CronAct::Resume, true, _) => {
            format!("{name} is resumed. Missed runs are not made up for.")
        }
        (CronAct::Resume, false, _) => format!("{name} was not paused."),
    };
    Ok(asked.console.app.redirect("cron", note))
}
