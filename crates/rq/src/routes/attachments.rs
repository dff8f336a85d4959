//! Files of a message: attachments in and out, logs out, and the page that
//! follows either.

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use hyper::{HeaderMap, StatusCode};
use quintet_scripts::{Attached, Fault, Rq};
use serde_json::json;

use super::{Answer, escaped, existing, messages::gone, problem, told};
use crate::app::App;
use crate::pages;
use quintet_http::upload;
use quintet_http::{
    Kind, Problem, content_type, files, form,
    reply::{self, document, plain, result_value},
};

type Which = (String, String, String);

pub(super) async fn file(
    State(app): State<Arc<App>>,
    Path(which): Path<Which>,
    headers: HeaderMap,
) -> Answer {
    let what = format!("Message ID attachment '{}'", which.2);
    let path = find(&app, which, Rq::attachment_path, &what).await?;
    Ok(files::send(&path, &what, &headers).await)
}

pub(super) async fn log(
    State(app): State<Arc<App>>,
    Path(which): Path<Which>,
    headers: HeaderMap,
) -> Answer {
    let what = format!("Message ID log '{}'", which.2);
    let path = find(&app, which, Rq::log_path, &what).await?;
    Ok(files::send(&path, &what, &headers).await)
}

type PathOf = fn(&Rq, &str, &str, &str) -> Result<PathBuf, Fault>;

async fn find(
    app: &App,
    (queue, id, name): Which,
    path: PathOf,
    what: &str,
) -> Result<PathBuf, Problem> {
    let found = app
        .ask(move |rq| {
            // Which of the three is not there is distinguished.
            existing(rq, &queue)?;
            rq.state(&queue, &id)?;
            Ok(path(rq, &queue, &id, &name).ok())
        })
        .await?;
    match found {
        Ok(Some(path)) => Ok(path),
        // A name that cannot be is a file that is not there.
        Ok(None) => Err(Problem::not_found(what)),
        Err(fault) => Err(problem(&fault)),
    }
}

pub(super) async fn tail(State(app): State<Arc<App>>, Path(which): Path<Which>) -> Answer {
    let what = format!("Message ID attachment '{}'", which.2);
    find(&app, which.clone(), Rq::attachment_path, &what).await?;
    Ok(tail_page(&app, &which, "attach"))
}

/// The log may come later than the page.
pub(super) async fn tail_log(State(app): State<Arc<App>>, Path(which): Path<Which>) -> Answer {
    let (queue, id) = (which.0.clone(), which.1.clone());
    app.ask(move |rq| existing(rq, &queue).and_then(|()| rq.state(&queue, &id)))
        .await?
        .map_err(|fault| problem(&fault))?;
    Ok(tail_page(&app, &which, "log"))
}

fn tail_page(app: &App, (queue, id, name): &Which, kind: &str) -> Response {
    let file = format!(
        "q/{}/{}/{kind}/{}",
        escaped(queue),
        escaped(id),
        escaped(name)
    );
    let page = pages::Tail {
        root: &app.http.settings().relative_root,
        notice: None,
        name: queue,
        id,
        file_name: pages::seen(name),
        file: app.http.link(&file),
    };
    reply::show(StatusCode::OK, &page)
}

/// `attach/new` takes a file; another name is that of an attachment to delete.
pub(super) async fn post(
    State(app): State<Arc<App>>,
    Path(which): Path<Which>,
    request: Request,
) -> Answer {
    if which.2 == "new" {
        return attach(&app, which, request).await;
    }
    let fields = app.http.form(request).await?;
    if fields.form.get("_method") != Some("delete") {
        return Err(Problem::bad("Invalid method param"));
    }
    let json = fields.form.get("x_format") == Some("json");
    let (queue, id, name) = which.clone();
    let result = app
        .ask(move |rq| {
            existing(rq, &queue)?;
            rq.delete_attachment(&queue, &id, &name)
        })
        .await?
        .map(|()| "Attachment deleted successfully");
    answer(
        &app,
        &which,
        json,
        result.map(str::to_owned),
        "Attachment deleted successfully",
    )
}

/// The form's fields may come before or behind the file; RQ's clients send the
/// file first, so what to do with it must not depend on them.
async fn attach(app: &App, which: Which, request: Request) -> Answer {
    let mut form = app.http.query(request.uri())?;
    let Kind::Multipart(boundary) = form::kind(content_type(request.headers())) else {
        return Err(Problem::not_found("Required param filedata"));
    };
    let queue = which.0.clone();
    app.ask(move |rq| existing(rq, &queue))
        .await?
        .map_err(|fault| problem(&fault))?;
    let turn = app.uploads.acquire().await;
    let _turn = turn.map_err(|_| Problem::internal("stopping"))?;
    let body = request.into_body().into_data_stream();
    let mut parts = multer::Multipart::with_constraints(
        body,
        boundary.as_str(),
        multer::Constraints::new().size_limit(sizes(app)),
    );
    let mut attached = None;
    while let Some(mut part) = next(app, &mut parts).await? {
        let name = part.name().unwrap_or_default().to_owned();
        if name == "filedata" && attached.is_none() {
            let file = part.file_name().map(str::to_owned);
            let file = file
                .ok_or_else(|| Problem::not_found("Filename of uploaded file in filedata param"))?;
            attached = Some(store(app, &which, file, &mut part).await?);
        } else {
            let value = text(app, part).await?;
            form.add(name, value, &app.http.settings().limits)?;
        }
    }
    let attached = attached.ok_or_else(|| Problem::not_found("Required param filedata"))?;
    let json = form.get("x_format") == Some("json");
    let result = attached.map(|attached| format!("{}-Attached successfully", attached.md5));
    answer(app, &which, json, result, "Attached message successfully")
}

fn sizes(app: &App) -> multer::SizeLimit {
    let limits = &app.http.settings().limits;
    let text = limits.form_bytes_max as u64;
    multer::SizeLimit::new()
        .whole_stream(limits.attachment_bytes_max.saturating_add(text))
        .per_field(text)
        .for_field("filedata", limits.attachment_bytes_max)
}

async fn next<'a>(
    app: &App,
    parts: &mut multer::Multipart<'a>,
) -> Result<Option<multer::Field<'a>>, Problem> {
    match tokio::time::timeout(app.http.settings().limits.timeout, parts.next_field()).await {
        Ok(part) => part.map_err(|error| bad_form(app, &error)),
        Err(_) => Err(Problem::TooSlow),
    }
}

async fn text(app: &App, part: multer::Field<'_>) -> Result<String, Problem> {
    match tokio::time::timeout(app.http.settings().limits.timeout, part.bytes()).await {
        Ok(Ok(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Ok(Err(error)) => Err(bad_form(app, &error)),
        Err(_) => Err(Problem::TooSlow),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "others are the form's own")]
fn bad_form(app: &App, error: &multer::Error) -> Problem {
    let limits = &app.http.settings().limits;
    match error {
        multer::Error::FieldSizeExceeded { field_name, .. }
            if field_name.as_deref() != Some("filedata") =>
        {
            Problem::FormTooLarge(limits.form_bytes_max)
        }
        multer::Error::FieldSizeExceeded { .. } | multer::Error::StreamSizeExceeded { .. } => {
            Problem::with_text(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!(
                    "an attachment has {} bytes at most (max_attachment)",
                    limits.attachment_bytes_max
                ),
            )
        }
        multer::Error::StreamReadFailed(_) | multer::Error::IncompleteStream => Problem::BrokeOff,
        multer::Error::IncompleteFieldData { .. } => Problem::BrokeOff,
        error => Problem::BadForm(error.to_string()),
    }
}

/// Hands the file on as it comes. If RQ does not want it, what is left of it
/// is read and dropped, so that the client gets to read why.
async fn store(
    app: &App,
    (queue, id, _): &Which,
    name: String,
    part: &mut multer::Field<'_>,
) -> Result<Result<Attached, Fault>, Problem> {
    let (feed, mut pieces) = upload::pipe();
    let (queue, id) = (queue.clone(), id.clone());
    let stored = app.ask(move |rq| rq.attach(&queue, &id, &name, &mut pieces, None));
    let fed = async {
        let timeout = app.http.settings().limits.timeout;
        let mut wanted = true;
        loop {
            match tokio::time::timeout(timeout, part.chunk()).await {
                Err(_) => {
                    feed.fail(upload::too_slow(timeout)).await;
                    return Err(Problem::TooSlow);
                }
                Ok(Err(error)) => {
                    feed.fail(upload::broken_off()).await;
                    return Err(bad_form(app, &error));
                }
                Ok(Ok(None)) => {
                    feed.end().await;
                    return Ok(());
                }
                Ok(Ok(Some(piece))) => wanted = wanted && feed.give(piece).await,
            }
        }
    };
    let (stored, fed) = tokio::join!(stored, fed);
    fed?;
    stored
}

fn answer(
    app: &App,
    (queue, id, name): &Which,
    json: bool,
    result: Result<String, Fault>,
    notice: &str,
) -> Answer {
    let result = told(result)?;
    if json {
        return Ok(document(&result_value(&result.map_err(gone))));
    }
    let page = format!("q/{}/{}", escaped(queue), escaped(id));
    Ok(match result {
        Ok(_) => app.http.redirect(&page, notice.to_owned()),
        Err(fault) => plain(
            StatusCode::OK,
            format!(
                "{name} on {queue}/{id} got {}",
                json!(["fail", gone(fault)])
            ),
        ),
    })
}
