//! Messages of a queue by what their fields hold.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use hyper::Uri;
use hyper::header::{HeaderName, HeaderValue};
use quintet_scripts::{Fault, SEARCH_BYTES};
use quintet_types::Operation;
use serde_json::Value;

use super::{Answer, problem};
use crate::app::App;
use quintet_http::{Requester, held, reply};

/// With a list that does not have all.
const MORE: HeaderName = HeaderName::from_static("x-more");

/// `?name=QUEUE&query[FIELD]=TEXT`: a part of the field, or with `exact` all of
/// it.
pub(super) async fn search(
    State(app): State<Arc<App>>,
    Extension(requester): Extension<Requester>,
    uri: Uri,
) -> Answer {
    let form = app.http.query(&uri)?;
    let queue = form.get("name").unwrap_or_default().to_owned();
    requester.must(Operation::Peek, &queue)?;
    let exact = form.says("exact");
    let query: Vec<(String, String)> = form
        .object("query")
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(field, text)| Some((field, text.as_str()?.to_owned())))
        .collect();
    // As they are stored, and as text.
    let _room = held::room(app.http.settings(), 2 * SEARCH_BYTES)?;
    let found = app.ask(move |rq| {
        let (found, more) = rq.search(&queue, &query, exact)?;
        Ok((Value::from(found).to_string(), more))
    });
    let (text, more) = found.await?.map_err(|fault: Fault| problem(&fault))?;
    let mut response = reply::written(text);
    if more {
        response
            .headers_mut()
            .insert(MORE, HeaderValue::from_static("true"));
    }
    Ok(response)
}
