//! Queues made, deleted, stopped and started.

use std::path::Path as FilePath;
use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use hyper::{StatusCode, Uri};
use quintet_scripts::{AdminOp, Fault, QueueConfig};
use quintet_types::Name;
use serde_json::{Value, json};

use super::{Answer, Posted, back, escaped, problem, told};
use crate::app::App;
use crate::pages;
use quintet_http::{
    Did, DoneWith, Problem,
    reply::{self, document},
};

fn allowed(app: &App) -> Result<(), Problem> {
    if app.http.settings().allow_new_queue {
        return Ok(());
    }
    let text = "Queue creation not allowed at this time.";
    Err(Problem::with_text(StatusCode::FORBIDDEN, text))
}

pub(super) async fn new_queue_page(State(app): State<Arc<App>>, uri: Uri) -> Answer {
    allowed(&app)?;
    let page = pages::NewQueue {
        root: &app.http.settings().relative_root,
        notice: app.notice(&uri),
    };
    Ok(reply::show(StatusCode::OK, &page))
}

/// Makes a queue from a form's `queue[…]` fields.
pub(super) async fn new_queue(State(app): State<Arc<App>>, request: Request) -> Answer {
    allowed(&app)?;
    let form = app.http.form(request).await?;
    let fields = form.form.object("queue").unwrap_or_default();
    let name = fields.get("name").and_then(Value::as_str);
    let name = name.unwrap_or_default().to_owned();
    let result = app
        .ask(move |rq| {
            let config = QueueConfig::from_json(&Value::Object(fields), None)?;
            rq.create_queue(config)
        })
        .await?;
    Ok(made(&app, &format!("q/{}", escaped(&name)), result))
}

/// Makes a queue from a `config.json` on the server's disk.
pub(super) async fn new_queue_link(State(app): State<Arc<App>>, request: Request) -> Answer {
    allowed(&app)?;
    let form = app.http.form(request).await?;
    let fields = form.form.object("queue").unwrap_or_default();
    let path = fields.get("json_path").and_then(Value::as_str);
    let path = path.unwrap_or_default().to_owned();
    let result = app
        .ask(move |rq| rq.create_queue_link(FilePath::new(&path)))
        .await?;
    Ok(made(&app, "", result))
}

/// Sends the browser to the new queue, or to the list of all.
fn made(app: &App, page: &str, result: Result<(), Fault>) -> Response {
    match result {
        Ok(()) => app
            .http
            .redirect(page, "queue created - awesome".to_owned()),
        Err(fault) => app.http.redirect("q", fault.to_string()),
    }
}

pub(super) async fn delete_queue(State(app): State<Arc<App>>, request: Request) -> Answer {
    allowed(&app)?;
    let form = app.http.form(request).await?;
    let queue = form.form.get("queue_name").unwrap_or_default().to_owned();
    let requested = queue.clone();
    let result = app.ask(move |rq| rq.delete_queue(&requested)).await?;
    let (notice, did) = match result {
        Ok(count) => (format!("queue {queue} deleted"), Did::to(count)),
        Err(fault) => (fault.to_string(), Did::default()),
    };
    let mut response = app.http.redirect("q", notice);
    let extensions = response.extensions_mut();
    extensions.insert(DoneWith(format!("of {}", Name::from(&*queue))));
    extensions.insert(did);
    Ok(response)
}

/// One of `pause`, `resume`, `down` and `up`, by the name of a field.
pub(super) async fn adminoper(Path(queue): Path<String>, Posted(app, form): Posted) -> Answer {
    const OPS: [(&str, &str, AdminOp); 4] = [
        ("pause", "paused", AdminOp::Pause),
        ("resume", "resumed", AdminOp::Resume),
        ("down", "downed", AdminOp::Down),
        ("up", "upped", AdminOp::Up),
    ];
    let mut named = OPS.into_iter().filter(|(name, ..)| form.form.says(name));
    let (Some((name, done, op)), None) = (named.next(), named.next()) else {
        return Err(Problem::bad("one of pause, resume, down and up is needed"));
    };
    let requested = queue.clone();
    app.ask(move |rq| rq.admin(&requested, op))
        .await?
        .map_err(|fault| couldnt(name, &fault))?;
    let notice = format!("Successfully {done} queue {queue}");
    Ok(back(&app, &form.form, &queue, notice))
}

pub(super) async fn restart(Path(queue): Path<String>, Posted(app, form): Posted) -> Answer {
    let requested = queue.clone();
    app.ask(move |rq| rq.restart(&requested))
        .await?
        .map_err(|fault| couldnt("restart", &fault))?;
    let notice = format!("Successfully restarted queue {queue}");
    Ok(back(&app, &form.form, &queue, notice))
}

/// Acknowledges the errors of a queue (the fork's).
pub(super) async fn ack_errs(Path(queue): Path<String>, Posted(app, form): Posted) -> Answer {
    let requested = queue.clone();
    let result = told(app.ask(move |rq| rq.ack_errs(&requested)).await?)?;
    if form.form.get("x_format") == Some("json") {
        return Ok(document(&match result {
            Ok(number) => json!(["ok", number]),
            Err(fault) => json!(["fail", fault.to_string()]),
        }));
    }
    result.map_err(|fault| couldnt("ack errs", &fault))?;
    let notice = "Successfully acknowledged errors".to_owned();
    Ok(back(&app, &form.form, &queue, notice))
}

fn couldnt(action: &str, fault: &Fault) -> Problem {
    if let Fault::Failed(why) = fault {
        return Problem::internal(format!("Couldn't {action} queue. {why}."));
    }
    problem(fault)
}
