//! The frame around every page, and pages for errors.

use std::hash::BuildHasher as _;
use std::hash::RandomState;
use std::sync::Arc;

use askama::Template;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hyper::header::{ACCEPT, COOKIE};
use hyper::{HeaderMap, Method, StatusCode};
use quintet_client::Parts;
use quintet_types::Operation;

use super::names::Named;
use super::{Console, assets, words};
use quintet_api::Problem;
use quintet_http::{Requester, reply};

/// The parts that all pages have in common, for one request.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    pub(super) root: String,
    pub(super) title: String,
    /// The place of the navigation it is at; empty: none.
    pub(super) here: &'static str,
    /// Its figures are fetched again and again while somebody looks: words of
    /// the address that have no part in them. `None`: they are not.
    pub(super) live: Option<&'static str>,
    /// Result of the operation that led here.
    pub(super) note: Option<String>,
    /// As the browser's cookie wants it; `None`: as its system does.
    pub(super) theme: Option<&'static str>,
    /// The token that a form has to bring along.
    pub(super) csrf: String,
    pub(super) sheet: &'static str,
    pub(super) script: &'static str,
    pub(super) icon: &'static str,
    pub(super) version: &'static str,
    pub(super) uptime: String,
    /// When it was written.
    pub(super) written: String,
    /// The requester may do what concerns all queues.
    pub(super) operates: bool,
    pub(super) parts: Parts,
    /// Some queue has a script.
    pub(super) scripts: bool,
    /// The user who logged in here, and may log out; empty: nobody did.
    pub(super) who: String,
}

impl Frame {
    /// The frame of a page of this title.
    pub(crate) fn of(&self, title: impl Into<String>, here: &'static str) -> Self {
        Self {
            title: title.into(),
            here,
            ..self.clone()
        }
    }

    /// The same with figures that refresh themselves, by the address without
    /// these words, which have spaces between.
    pub(super) fn live(self, without: &'static str) -> Self {
        Self {
            live: Some(without),
            ..self
        }
    }
}

/// Makes tokens that forms have to bring along. Keys are random, and new with
/// each start.
#[derive(Default)]
pub(super) struct Seal([RandomState; 2]);

impl Seal {
    /// The token of the requester.
    pub(crate) fn of(&self, requester: &Requester) -> String {
        let who = requester.principal().0;
        let [a, b] = &self.0;
        format!("{:016x}{:016x}", a.hash_one(who), b.hash_one(who))
    }
}

/// The theme in the cookie of the theme switch.
pub(super) fn theme(headers: &HeaderMap) -> Option<&'static str> {
    let cookies = headers.get_all(COOKIE).iter();
    let texts = cookies.filter_map(|value| value.to_str().ok());
    let mut pairs = texts.flat_map(|text| text.split(';'));
    pairs.find_map(|pair| match pair.trim() {
        "theme=light" => Some("light"),
        "theme=dark" => Some("dark"),
        _ => None,
    })
}

/// Prepares the frame, and makes pages of what is refused.
pub(super) async fn around(
    State(console): State<Arc<Console>>,
    mut request: Request,
    next: Next,
) -> Response {
    let requester = request.extensions().get::<Requester>().cloned();
    let requester = requester.unwrap_or_default();
    let settings = console.app.settings();
    let frame = Frame {
        root: settings.relative_root.clone(),
        note: console.app.notice(request.uri()),
        theme: theme(request.headers()),
        csrf: console.seal.of(&requester),
        sheet: &assets::SHEET.name,
        script: &assets::SCRIPT.name,
        icon: &assets::ICON.name,
        version: env!("CARGO_PKG_VERSION"),
        uptime: words::duration(console.app.uptime() * 1000),
        written: words::time_of_day(console.api.client_api().wall().0),
        operates: requester.may_server(),
        parts: console.api.client_api().parts(),
        scripts: console.ask_rq(|rq| rq.has_own_scripts()).await == Ok(true),
        who: requester.of_session(),
        ..Frame::default()
    };
    request.extensions_mut().insert(frame.clone());
    let path = request.uri().path();
    let back = subject(path);
    let reads = [Method::GET, Method::HEAD].contains(request.method());
    let response = next.run(request).await;
    let operation = response.extensions().get::<Operation>().copied();
    let mut response = match response.extensions().get::<Problem>() {
        Some(problem) => failed(&frame, problem, back),
        None => response,
    };
    for (name, value) in [
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        let value = hyper::header::HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    if let Some(operation) = operation.or((!reads).then_some(Operation::Unknown)) {
        response.extensions_mut().insert(operation);
    }
    response
}

/// There is nothing at an address: a page for browsers, a line for tools.
pub(super) async fn missing(headers: HeaderMap) -> Response {
    let accepts = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    match accepts.is_some_and(|accepts| accepts.contains("text/html")) {
        true => Problem::no_such_page().into_response(),
        false => reply::Problem::not_found("Page").into_response(),
    }
}

#[derive(Template)]
#[template(path = "failed.html")]
struct Failed {
    frame: Frame,
    heading: String,
    says: String,
    /// Queues that may have been meant.
    nearest: Vec<Named>,
    /// The address of the page with the form, below the root.
    back: Option<String>,
    status: u16,
}

/// The page of the queue, message or batch that an address is about.
fn subject(path: &str) -> Option<String> {
    let mut parts = path.trim_start_matches('/').split('/');
    let (kind, name) = (parts.next()?, parts.next()?);
    let is = ["queues", "messages", "batches"].contains(&kind) && !name.is_empty();
    is.then(|| format!("{kind}/{name}"))
}

fn failed(frame: &Frame, problem: &Problem, back: Option<String>) -> Response {
    let status = StatusCode::from_u16(problem.status);
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let heading = match status {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::FORBIDDEN => "Not permitted",
        _ if status.is_client_error() => "The request failed",
        _ => "The server cannot do this now",
    };
    let says = match &problem.field {
        Some(field) => format!("{field}: {}", problem.detail),
        None => problem.detail.clone(),
    };
    let page = Failed {
        frame: frame.of(heading, ""),
        heading: heading.to_owned(),
        says,
        nearest: problem.nearest.iter().map(Named::new).collect(),
        // The page itself may be what is refused, or not there.
        back: back.filter(|_| problem.field.is_some()),
        status: problem.status,
    };
    reply::show(status, &page)
}
