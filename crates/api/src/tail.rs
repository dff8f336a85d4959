//! The events of a queue's messages, for a client that follows it.

use hyper::Uri;
use quintet_client::{Followed, Happened};
use quintet_types::{BulkOp, CommandError, ListState};
use serde::Serialize;
use utoipa::ToSchema;

use super::call::{Answer, Of, OfQueue};
use super::problem::Problem;
use super::read;
use crate::bytes_in_json::{base64_unless_text, lossy};
use quintet_http::reply;

/// The events of a queue's messages.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Tail {
    /// The newest events, oldest first.
    pub(super) events: Vec<Event>,
    /// Number of the last event; send it as `after` of the next request.
    pub(super) next: u64,
    /// Events before these that are kept no longer.
    pub(super) missed: u64,
}

/// An event of a message.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Event {
    pub(super) at_ms: u64,
    /// The message's id; 0: the event is about many messages.
    pub(super) id: u64,
    /// put, arrived, reserved, released, failed, timed_out, connection_lost, buried, kicked,
    /// edited, taken, finished, deleted, dropped, expired, replaced, cancelled, moved, dead_letter
    /// or purged.
    pub(super) event: &'static str,
    /// Why it failed or was buried; how many were purged.
    pub(super) note: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note_base64: Option<String>,
    /// Length of the body; null: the message was put before the queue was followed.
    pub(super) bytes: Option<u64>,
    /// How the body begins, 256 bytes at most.
    pub(super) body_start: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) body_start_base64: Option<String>,
}

impl Tail {
    pub(crate) fn of(followed: Followed) -> Self {
        let event = |one: Happened| Event {
            at_ms: one.at.0,
            id: one.id.0,
            event: one.what,
            note: lossy(&one.note),
            note_base64: base64_unless_text(&one.note),
            bytes: one.bytes,
            body_start: lossy(&one.body),
            body_start_base64: base64_unless_text(&one.body),
        };
        Self {
            events: followed.events.into_iter().map(event).collect(),
            next: followed.next,
            missed: followed.missed,
        }
    }
}

/// The events of a queue's messages since number `after`, the newest 1,024 at most; without
/// `after`, or with 0, only the number to go on with. Events are those decided since the first such
/// request; the queue is followed for 30 s after the last one. The queue need not be there yet.
#[utoipa::path(get, path = "/api/v1/queues/{queue}/tail", operation_id = "tail_queue", tag = "queues",
    params(("queue" = String, Path), ("after" = Option<u64>, Query, description = "`next` of the page before"),
        ("contains" = Option<String>, Query, description = "only events of messages whose body contains this text; bodies up to 64 KiB are searched, the newest of them up to tail_memory")),
    responses((status = 200, body = Tail),
        (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn tail(Of(api, requester, queue): OfQueue, uri: Uri) -> Answer {
    let query = read::Query::of(&uri, &["after", "contains"], &[])?;
    let after = query.number("after", u64::MAX)?.unwrap_or(0);
    // The stream has bodies, so it takes the right to see messages.
    let peek = BulkOp::show(queue.clone(), ListState::Ready, 1);
    match api.bulk_done(&requester, peek).await {
        Err(problem) if problem.code != CommandError::QueueNotFound.code() => return Err(problem),
        Err(_) | Ok(_) => {}
    }
    let contains = query.get("contains").unwrap_or_default().as_bytes();
    let followed = api.client_api.follow(&queue, after, contains);
    let followed = followed.ok_or_else(Problem::too_many_tails)?;
    Ok(reply::document(&Tail::of(followed)))
}
