//! What became of tracked messages by their own names, and reserved ones: whoever can name one that is under a
//! lease of time alone, as all that the API reserves are, may settle it.

use std::sync::Arc;

use axum::extract::{Extension, Path, Request, State};
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use quintet_engine::{By, ByName, Command, How, Name, NamedAct, Outcome, When};

use super::problem::Problem;
use super::types::{NamedSettle, Shown, Tracked};
use super::{Api, leases, read};
use crate::reply;
use crate::visitor::Visitor;

/// What is done to the reserved message of this name; of several the one whose
/// lease has run longest.
fn by_name(queue: Name, name: String, by: By, act: NamedAct) -> Command {
    let queue = Some(queue);
    let name = name.into_bytes().into();
    Command::ByName(Box::new(ByName {
        queue,
        name,
        by,
        act,
    }))
}

/// The reserved message of this name; of several the one whose lease has run
/// longest. Those in other states are listed by `name` of `GET messages`.
#[utoipa::path(get, path = "/api/v1/queues/{queue}/names/{name}", tag = "leases",
    params(("queue" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = Shown), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(
    State(api): State<Arc<Api>>,
    Extension(visitor): Extension<Visitor>,
    Path((queue, name)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let queue = read::queue(&queue)?;
    let look = by_name(queue.clone(), name, By::Anyone, NamedAct::Look);
    let (Outcome::Messages(messages), _) = api.ask(&visitor, look).await? else {
        return Err(Problem::unexpected());
    };
    let now = api.door.now();
    Ok(reply::document(&Shown::of(&messages[0], &queue, now)))
}

/// What became of the tracked message of this name; of several the one that was put last. It is
/// known for `track_keep` after the last thing that happened to it, also when it is gone.
#[utoipa::path(get, path = "/api/v1/queues/{queue}/tracks/{name}", tag = "messages",
    params(("queue" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = Tracked), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn track(
    State(api): State<Arc<Api>>,
    Extension(visitor): Extension<Visitor>,
    Path((queue, name)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let queue = read::queue(&queue)?;
    let ask = by_name(queue, name, By::Anyone, NamedAct::Track);
    let (Outcome::Tracked(track), _) = api.ask(&visitor, ask).await? else {
        return Err(Problem::unexpected());
    };
    Ok(reply::document(&Tracked::from(*track)))
}

/// Settles the reserved message of this name, if it is under a lease of time
/// alone: `finish`, `release`, `fail`, `bury`, or `extend` its lease.
#[utoipa::path(post, path = "/api/v1/queues/{queue}/names/{name}/{act}", tag = "leases",
    params(("queue" = String, Path), ("name" = String, Path),
        ("act" = String, Path, description = "finish, release, fail, bury or extend")),
    request_body = NamedSettle,
    responses((status = 204), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn settle(
    State(api): State<Arc<Api>>,
    Extension(visitor): Extension<Visitor>,
    Path((queue, name, act)): Path<(String, String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    let queue = read::queue(&queue)?;
    let (given, _share): (NamedSettle, _) = read::body(&api.app, request).await?;
    let words = |text: Option<String>| text.unwrap_or_default().into_bytes().into();
    let act = match act.as_str() {
        "finish" => NamedAct::Settle(How::Finish),
        "release" => NamedAct::Settle(How::Release {
            rank: given.rank,
            due: given.delay_ms.map_or(When::Now, When::In),
            back_to: None,
        }),
        "fail" => NamedAct::Settle(How::Fail {
            error: words(given.error),
            note: Vec::new(),
        }),
        "bury" => NamedAct::Settle(How::Bury {
            rank: given.rank,
            reason: words(given.reason),
        }),
        "extend" => NamedAct::Extend(leases::lease_ms(given.lease_ms)?),
        _ => return Err(Problem::no_such_page()),
    };
    api.ask(&visitor, by_name(queue, name, By::Bearer, act))
        .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
