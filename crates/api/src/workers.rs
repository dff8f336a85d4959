//! Workers of clients that say a name of their own (faktory): seen, asked to be
//! quiet or to end.

use axum::response::{IntoResponse, Response};
use hyper::header::{HeaderValue, LINK};
use hyper::{StatusCode, Uri};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use quintet_client::{ClientApi, Share, TellPage, WorkerAction};

use super::call::{Answer, Call};
use super::path::Path;
use super::problem::Problem;
use super::{Api, read};
use quintet_http::reply;

/// Workers that are known: their names, hosts, states, how many jobs their connections hold, and
/// when they last said something. A page ends at about 1 MiB; the header `Link` leads to the next.
#[utoipa::path(get, path = "/api/v1/workers", tag = "server",
    params(("after" = Option<String>, Query, description = "a worker's name: those behind it")),
    responses((status = 200, body = Vec<Object>, headers(("Link" = String, description = "the next page, rel=\"next\"")))))]
pub(super) async fn list(Call { api, .. }: Call, uri: Uri) -> Answer {
    let query = read::Query::of(&uri, &["after"], &[])?;
    let (list, next, _room) = api.workers(query.get("after").map(str::to_owned)).await?;
    Ok(linked(list, next))
}

/// A page of a list, with the way to the next.
pub(super) fn linked(list: String, next: Option<String>) -> Response {
    let link = next.and_then(|next| {
        let next = utf8_percent_encode(&next, NON_ALPHANUMERIC);
        let link = HeaderValue::try_from(format!("<?after={next}>; rel=\"next\""));
        Some([(LINK, link.ok()?)])
    });
    (link, reply::written(list)).into_response()
}

/// A page of a list in JSON, how its last row is called if more follow, and the room it takes.
type ListPage = (String, Option<String>, Option<Share>);

impl Api {
    /// A page of the workers behind the one of this name.
    ///
    /// # Errors
    /// There is no room; the server stops.
    pub async fn workers(&self, after: Option<String>) -> Result<ListPage, Problem> {
        self.page(|client_api, sender| client_api.workers(after, sender))
            .await
    }

    /// A page of the connections behind the one of this number.
    ///
    /// # Errors
    /// There is no room; the server stops.
    pub async fn connections(&self, after: Option<u64>) -> Result<ListPage, Problem> {
        self.page(|client_api, sender| client_api.clients(after, sender))
            .await
    }

    async fn page(&self, list: impl FnOnce(&dyn ClientApi, TellPage)) -> Result<ListPage, Problem> {
        let room = self.room(super::LIST_BYTES)?;
        let (sender, receiver) = reply::channel();
        let sender = Box::new(move |list: String, next: Option<String>| sender((list, next)));
        list(&*self.client_api, sender);
        let (list, next) = receiver.await.map_err(|_| Problem::stopping())?;
        Ok((list, next, room))
    }
}

/// `quiet`: it gets nothing more, and is asked to finish what it has; `terminate`: it is asked to
/// end as well. What it was asked for before is not taken back.
#[utoipa::path(post, path = "/api/v1/workers/{wid}/{act}", operation_id = "act_on_worker", tag = "server",
    params(("wid" = String, Path), ("act" = String, Path, description = "quiet or terminate")),
    responses((status = 204)))]
pub(super) async fn operate(
    Call { api, .. }: Call,
    Path((wid, operation)): Path<(String, String)>,
) -> Answer {
    let operation = WorkerAction::of_word(&operation).ok_or_else(Problem::no_such_page)?;
    match api.client_api.steer_worker(operation, &wid) {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(Problem::no_such_worker(&wid)),
    }
}
