//! The server as a whole.

use axum::Extension;
use axum::response::IntoResponse;
use hyper::{StatusCode, Uri};
use quintet_client::Exposition;
use quintet_types::Operation;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot::Receiver;

use super::call::{Answer, Call};
use super::path::Path;
use super::problem::Problem;
use super::workers::linked;
use super::{Api, read};
use quintet_http::{Requester, reply};

/// Sums over all queues. `/metrics` tells all numbers there are.
#[utoipa::path(get, path = "/api/v1/stats", operation_id = "show_stats", tag = "server",
    responses((status = 200, body = Object)))]
pub(super) async fn stats(Call { api, requester }: Call) -> Answer {
    let stats = api.sums(&requester).await?;
    let mut map = Map::new();
    map.insert("queues".into(), stats.queues.into());
    map.insert("memory_bytes".into(), stats.memory_bytes.into());
    map.extend(super::types::numbers(&stats.gauges, &stats.totals));
    Ok(reply::document(&Value::Object(map)))
}

/// Every number the server tells, by name, with its version and the last errors of hooks.
#[utoipa::path(get, path = "/api/v1/server", operation_id = "show_server", tag = "server",
    responses((status = 200, body = Object)))]
pub(super) async fn numbers(Call { api, .. }: Call) -> Answer {
    Ok(reply::written(api.client_api.numbers()))
}

/// The configuration in force, as a TOML file with its secrets hidden.
#[utoipa::path(get, path = "/api/v1/server/config", operation_id = "show_config", tag = "server",
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn config(Call { api, .. }: Call) -> Answer {
    Ok(reply::plain(StatusCode::OK, api.client_api.config()))
}

/// The same numbers as Prometheus reads them, without series of single queues.
#[utoipa::path(get, path = "/api/v1/server/metrics", operation_id = "show_metrics", tag = "server",
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn metrics(Call { api, .. }: Call) -> Answer {
    let written = api.client_api.metrics(Exposition::Prometheus, &[], false);
    Ok(reply::plain(StatusCode::OK, written.unwrap_or_default()))
}

/// Connections of all protocols and of HTTP: who, where, since when silent, what each waits for or
/// asks. A page ends at about 1 MiB; the header `Link` leads to the next.
#[utoipa::path(get, path = "/api/v1/connections", operation_id = "list_connections", tag = "server",
    params(("after" = Option<u64>, Query, description = "a connection's id: those behind it")),
    responses((status = 200, body = Vec<Object>, headers(("Link" = String, description = "the next page, rel=\"next\"")))))]
pub(super) async fn connections(Call { api, .. }: Call, uri: Uri) -> Answer {
    let query = read::Query::of(&uri, &["after"], &[])?;
    let after = query.number("after", u64::MAX)?;
    let (list, next, _room) = api.connections(after).await?;
    Ok(linked(list, next))
}

impl Api {
    /// Closes a connection; false: there is none of this id.
    ///
    /// # Errors
    /// The server stops.
    pub async fn close(&self, id: u64) -> Result<bool, Problem> {
        let (sender, receiver) = reply::channel();
        self.client_api.close_client(id, sender);
        receiver.await.map_err(|_| Problem::stopping())
    }

    /// Has the configuration read again. The receiver gets notes, or why it was not read; nothing
    /// if the server stops.
    pub fn reload(&self, requester: &Requester) -> Receiver<Result<Vec<String>, String>> {
        let (sender, receiver) = reply::channel();
        let principal = requester.known.as_ref().map(|(principal, _)| *principal);
        self.client_api.reload(principal, sender);
        receiver
    }
}

/// Closes a connection: its waits end, and its leases, but those of HTTP, which are their tokens'.
#[utoipa::path(delete, path = "/api/v1/connections/{id}", tag = "server",
    params(("id" = u64, Path)), responses((status = 204)))]
pub(super) async fn close(Call { api, .. }: Call, Path(id): Path<String>) -> Answer {
    let id = read::connection(&id)?;
    match api.close(id).await? {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(Problem::no_such_connection(id)),
    }
}

/// `drain` (puts are refused), `undrain`, or `reload` (the configuration is
/// read again; with `wait` the answer comes when that is done, with what it did
/// that nobody asked for as `notes`).
#[utoipa::path(post, path = "/api/v1/server/{act}", operation_id = "act_on_server", tag = "server",
    params(("act" = String, Path, description = "drain, undrain or reload"),
        ("wait" = Option<bool>, Query, description = "of reload: answer when it is done")),
    responses((status = 202, body = Object)))]
pub(super) async fn operate(
    Call { api, requester }: Call,
    Path(operation): Path<String>,
    uri: Uri,
) -> Answer {
    let query = read::Query::of(&uri, &["wait"], &[])?;
    let waits = query.flag("wait")?;
    let mut ordered = json!({ "ordered": operation });
    let (operation, is_heard) = match operation.as_str() {
        "drain" => (Operation::Drain, api.client_api.drain(true)),
        "undrain" => (Operation::Undrain, api.client_api.drain(false)),
        "reload" => {
            let came = api.reload(&requester);
            if waits {
                let came = came.await.map_err(|_| Problem::stopping())?;
                ordered["notes"] = came.map_err(|why| Problem::not_reloaded(&why))?.into();
            }
            (Operation::Reload, true)
        }
        _ => return Err(Problem::no_such_page()),
    };
    if !is_heard {
        return Err(Problem::stopping());
    }
    let ordered = reply::document(&ordered);
    Ok((StatusCode::ACCEPTED, Extension(operation), ordered).into_response())
}
