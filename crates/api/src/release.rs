//! Leases that an operator ends: their messages are ready again, and their holders find them over.

use std::sync::Arc;

use axum::response::IntoResponse;
use hyper::StatusCode;
use quintet_client::{ACT_STEP, Slices};
use quintet_types::{
    BackTo, BulkOp, By, Caller, ClientId, Command, How, ListState, Message, MessageId,
    MessageVersion, Operation, Outcome, When,
};
use tokio::task::JoinSet;

use super::call::{Answer, Call, Of, OfMessage, OfQueue, RequestBody, done_to};
use super::messages::if_still;
use super::path::Path;
use super::problem::Problem;
use super::types::{Acted, Released};
use super::{Api, bulk, read};
use quintet_http::Requester;

/// Slices of a queue in one request.
const SLICES: u32 = 8;

/// Back at its place, and not before.
fn back() -> How {
    How::Release {
        priority: None,
        due: When::Now,
        back_to: Some(BackTo::Position),
    }
}

impl Api {
    /// Ends the lease of a message.
    ///
    /// # Errors
    /// It is not reserved, or the shards' error.
    pub async fn release(&self, requester: &Requester, id: MessageId) -> Result<(), Problem> {
        let settle = Command::Settle {
            id,
            by: By::Anyone,
            how: back(),
        };
        match self.ask(requester, settle).await {
            Ok(_) => Ok(()),
            Err(problem) if problem.code == "not_found" => {
                self.message(requester, id).await?;
                Err(Problem::not_reserved(id))
            }
            Err(problem) => Err(problem),
        }
    }
}

/// Ends the lease of a message, of any holder: the message is ready again at once, as if it had
/// been released.
#[utoipa::path(post, path = "/api/v1/messages/{id}/release", operation_id = "release_message", tag = "leases",
    params(("id" = u64, Path)),
    responses((status = 204), (status = 409, body = Problem, content_type = "application/problem+json", description = "it is not reserved")))]
pub(super) async fn of_message(Of(api, requester, id): OfMessage) -> Answer {
    let queue = api.queue_of(&requester, id).await;
    api.release(&requester, id).await?;
    Ok(done_to(StatusCode::NO_CONTENT.into_response(), queue))
}

/// Ends leases of a queue, about a thousand; `cursor` goes on.
#[utoipa::path(post, path = "/api/v1/queues/{queue}/leases/release", operation_id = "release_leases_of_queue", tag = "leases",
    params(("queue" = String, Path)), request_body = Released, responses((status = 200, body = Acted)))]
pub(super) async fn of_queue(
    Of(api, requester, queue): OfQueue,
    RequestBody(supplied, _share): RequestBody<Released>,
) -> Answer {
    let mut slices = Slices::of(BulkOp::show(queue, ListState::Reserved, ACT_STEP));
    slices.left = SLICES;
    slices.bulk_op.after = supplied.cursor.as_deref().map(bulk::cursor).transpose()?;
    let mut messages = 0;
    while let Some(bulk_op) = slices.slice() {
        let bulk_done = api.bulk_done(&requester, bulk_op.clone()).await;
        let (bulk_done, _room) = bulk_done.map_err(|problem| problem.after(messages))?;
        let mut ending = JoinSet::new();
        // What goes to a head goes newest first, and keeps its order.
        for message in bulk_done.messages.iter().rev() {
            let (api, requester) = (Arc::clone(&api), requester.clone());
            let command = guarded(message);
            ending.spawn(async move { api.ask(&requester, command).await });
        }
        while let Some(ended) = ending.join_next().await {
            match ended.map_err(|error| Problem::internal(error.to_string()))? {
                Ok(_) => messages += 1,
                // It has ended by itself.
                Err(problem) if matches!(problem.code, "conflict" | "not_found") => {}
                Err(problem) => return Err(problem.after(messages)),
            }
        }
        slices.done(&bulk_done);
    }
    let cursor = slices.bulk_op.after.map(bulk::cursor_text);
    Ok(bulk::acted(&Acted { messages, cursor }, Operation::Release))
}

/// Ends the lease that was seen, and no later one.
fn guarded(message: &Message) -> Command {
    let (id, by, how) = (message.id, By::Anyone, back());
    let settle = Command::Settle { id, by, how };
    if_still(id, MessageVersion::of(message), settle)
}

/// Ends the leases that a connection holds. The connection stays.
#[utoipa::path(post, path = "/api/v1/connections/{id}/release", operation_id = "release_leases_of_connection", tag = "leases",
    params(("id" = u64, Path)), responses((status = 200, body = Acted)))]
pub(super) async fn of_connection(Call { api, requester }: Call, Path(id): Path<String>) -> Answer {
    let id = read::connection(&id)?;
    let held = api.holders(&requester).await?.leases(id);
    let held = held.ok_or_else(|| Problem::no_such_connection(id))?;
    let caller = Caller {
        client_id: ClientId(id),
        principal: requester.principal(),
    };
    let mut messages = 0;
    // Those that it takes meanwhile are not among them.
    while messages < held {
        let settle = Command::SettleHeld {
            queue: None,
            how: back(),
            max: ACT_STEP.min(u32::try_from(held - messages).unwrap_or(u32::MAX)),
        };
        let settled = api.ask_as(caller, settle).await;
        let settled = settled.map_err(|problem| problem.after(messages))?;
        let Outcome::Count(count @ 1..) = settled else {
            break;
        };
        messages += count;
    }
    let cursor = None;
    let acted = Acted { messages, cursor };
    Ok(bulk::acted(&acted, Operation::ReleaseConnection))
}
