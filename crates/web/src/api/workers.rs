//! Workers of clients that say a name of their own (faktory): seen, asked to be
//! quiet or to end.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use quintet_door::WorkerAct;
use tokio::sync::oneshot;

use super::Api;
use super::path::Path;
use super::problem::Problem;
use super::server::must_operate;
use crate::reply;
use crate::visitor::Visitor;

/// Workers that are known: their names, hosts, states, how many jobs their connections hold, and
/// when they last said something.
#[utoipa::path(get, path = "/api/v1/workers", tag = "server",
    responses((status = 200, body = Vec<Object>), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    Extension(visitor): Extension<Visitor>,
) -> Result<Response, Problem> {
    must_operate(&visitor)?;
    let (tell, told) = oneshot::channel();
    api.door.workers(Box::new(move |list| {
        // The client may have gone.
        let _heard = tell.send(list);
    }));
    let list = told.await.map_err(|_| Problem::stopping())?;
    Ok(reply::written(list))
}

/// `quiet`: it gets nothing more, and is asked to finish what it has; `terminate`: it is asked to
/// end as well. What it was asked for before is not taken back.
#[utoipa::path(post, path = "/api/v1/workers/{wid}/{act}", operation_id = "act_on_worker", tag = "server",
    params(("wid" = String, Path), ("act" = String, Path, description = "quiet or terminate")),
    responses((status = 204), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn act(
    State(api): State<Arc<Api>>,
    Extension(visitor): Extension<Visitor>,
    Path((wid, act)): Path<(String, String)>,
) -> Result<Response, Problem> {
    must_operate(&visitor)?;
    let act = match act.as_str() {
        "quiet" => WorkerAct::Quiet,
        "terminate" => WorkerAct::Terminate,
        _ => return Err(Problem::no_such_page()),
    };
    match api.door.steer_worker(act, &wid) {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(Problem::no_such_page()),
    }
}
