//! Messages of a queue by what their fields hold.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use hyper::Uri;
use quintet_types::Verb;
use serde_json::Value;

use super::problem;
use crate::app::App;
use quintet_http::{Problem, Requester};

/// `?name=QUEUE&query[FIELD]=TEXT`: a part of the field, or with `exact` all of
/// it.
pub(super) async fn search(
    State(app): State<Arc<App>>,
    Extension(requester): Extension<Requester>,
    uri: Uri,
) -> Result<Response, Problem> {
    let form = app.http.query(&uri)?;
    let queue = form.get("name").unwrap_or_default().to_owned();
    requester.must(Verb::Peek, &queue)?;
    let exact = form.says("exact");
    let query: Vec<(String, String)> = form
        .object("query")
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(field, text)| Some((field, text.as_str()?.to_owned())))
        .collect();
    app.document(move |rq| {
        let found = rq.search(&queue, &query, exact);
        found.map(Value::from).map_err(|fault| problem(&fault))
    })
    .await
}
