//! Cancelling messages, also those that a worker holds.

use axum::response::IntoResponse;
use hyper::StatusCode;
use quintet_types::{By, Command, NamedAction};

use super::call::{Answer, Of, OfMessage, OfNamed, RequestBody, done_to};
use super::problem::Problem;
use super::read::by_name;
use super::types::Cancel;

/// Cancels a message. One that nobody holds is removed. The worker of a reserved one learns of it
/// when it extends its lease or reports progress; it may still finish the message until the grace
/// is over. Then the lease ends, and the message does not come back.
#[utoipa::path(post, path = "/api/v1/messages/{id}/cancel", tag = "messages",
    params(("id" = u64, Path)), request_body = Cancel,
    responses((status = 204), (status = 409, body = Problem, content_type = "application/problem+json", description = "it is cancelled or done already")))]
pub(super) async fn message(
    Of(api, requester, id): OfMessage,
    RequestBody(supplied, _share): RequestBody<Cancel>,
) -> Answer {
    let cancel = Box::new(supplied.into_cancel()?);
    api.change_message(&requester, id, Command::Cancel(id, cancel))
        .await
}

/// Cancels the reserved message of this name; of several the one whose lease has run longest. If
/// none is reserved, it is the tracked message of this name that was put last.
#[utoipa::path(post, path = "/api/v1/queues/{queue}/names/{name}/cancel", operation_id = "cancel_named", tag = "messages",
    params(("queue" = String, Path), ("name" = String, Path)), request_body = Cancel,
    responses((status = 204), (status = 409, body = Problem, content_type = "application/problem+json", description = "it is cancelled or done already")))]
pub(super) async fn named(
    Of(api, requester, (queue, name)): OfNamed,
    RequestBody(supplied, _share): RequestBody<Cancel>,
) -> Answer {
    let action = NamedAction::Cancel(supplied.into_cancel()?);
    let command = by_name(queue.clone(), name, By::Anyone, action);
    api.ask(&requester, command).await?;
    Ok(done_to(StatusCode::NO_CONTENT.into_response(), Some(queue)))
}
