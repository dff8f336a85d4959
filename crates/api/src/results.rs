//! Results of messages, and requests that wait for one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use quintet_types::{By, Command, MessageId, MessageResult, NamedAction, Outcome, ResultState};
use serde::Serialize;
use utoipa::ToSchema;

use super::bytes_in_json::{base64_unless_text, lossy};
use super::call::{Answer, Of, OfMessage, OfNamed};
use super::problem::{Problem, only};
use super::read::{WAIT_MAX_MS, by_name};
use super::{Api, allowed, blocking, let_go, read};
use quintet_http::{Apart, Client, ConnectionSlot, Requester, Waited, Waits, reply};

/// The new id of a message that is on its way to another shard is requested so often.
const MOVES: Duration = Duration::from_millis(20);

/// State of a message and, if it has ended, its result or error.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(super) struct Ended {
    /// Its id now: a new body, and a move to another shard, give it another one.
    id: u64,
    /// `pending`: it has not ended. `done`: finished, or taken without a lease; `failed`: not to be
    /// tried again; `dead`: buried, or a dead letter; `expired`, `cancelled`; `gone`: deleted,
    /// purged, dropped or replaced.
    state: &'static str,
    /// The queue in which it ended; null: it has not, or that queue is gone.
    queue: Option<String>,
    /// The result that its worker gave; null: none.
    result: Option<String>,
    /// The same in base64, if it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    result_base64: Option<String>,
    /// If it is not done: the error or the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_base64: Option<String>,
}

/// Reply to a put.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Stored {
    /// Ids of the stored messages, in the order of the request.
    pub(super) ids: Vec<u64>,
    /// With `wait_ms`: how the message ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<Ended>,
}

impl Ended {
    pub(super) fn pending(id: MessageId) -> Self {
        Self {
            id: id.0,
            state: "pending",
            ..Self::default()
        }
    }
}

impl From<MessageResult> for Ended {
    fn from(result: MessageResult) -> Self {
        let queue = Some(result.queue.to_string());
        let text = result.text.as_deref().map(lossy);
        let base64 = result.text.as_deref().and_then(base64_unless_text);
        let is_done = result.state == ResultState::Done;
        let (done, failed) = match is_done {
            true => ((text, base64), (None, None)),
            false => ((None, None), (text, base64)),
        };
        Self {
            id: result.id.0,
            state: result.state.word(),
            queue: queue.filter(|queue| !queue.is_empty()),
            result: done.0,
            result_base64: done.1,
            error: failed.0,
            error_base64: failed.1,
        }
    }
}

/// How a message ended, or that it has not. With `wait_ms` the reply waits for the end.
#[utoipa::path(get, path = "/api/v1/messages/{id}/result", operation_id = "message_result", tag = "messages",
    params(("id" = u64, Path), ("wait_ms" = Option<u64>, Query, description = "60000 at most")),
    responses((status = 200, body = Ended), (status = 404, body = Problem, content_type = "application/problem+json", description = "nothing is known of it")))]
pub(super) async fn message(Of(api, requester, id): OfMessage, request: Request) -> Answer {
    let (wait_ms, _apart) = waits(&requester, &request)?;
    drop(request);
    api.show_result(&requester, id, wait_ms).await
}

/// The same of the tracked message of this name; of several the one that was put last.
#[utoipa::path(get, path = "/api/v1/queues/{queue}/names/{name}/result", operation_id = "named_result", tag = "messages",
    params(("queue" = String, Path), ("name" = String, Path), ("wait_ms" = Option<u64>, Query, description = "60000 at most")),
    responses((status = 200, body = Ended)))]
pub(super) async fn named(Of(api, requester, (queue, name)): OfNamed, request: Request) -> Answer {
    let (wait_ms, _apart) = waits(&requester, &request)?;
    drop(request);
    let ask = by_name(queue, name, By::Anyone, NamedAction::Track);
    let id = only!(api.ask(&requester, ask).await?, (Outcome::Tracked(id, _), _) => id);
    api.show_result(&requester, id, wait_ms).await
}

/// How long a request waits for a result, and its place among those that wait.
///
/// # Errors
/// It is too long, or too many wait.
fn waits(requester: &Requester, request: &Request) -> Result<(u64, Option<Apart>), Problem> {
    let query = read::Query::of(request.uri(), &["wait_ms"], &[])?;
    let wait_ms = query.number("wait_ms", WAIT_MAX_MS)?.unwrap_or(0);
    let apart = match wait_ms {
        0 => None,
        _ => Place::of(request).wait(requester.client.as_deref())?,
    };
    Ok((wait_ms, apart))
}

/// The place of a request's connection.
pub(super) struct Place(Option<Arc<ConnectionSlot>>);

impl Place {
    pub(super) fn of(request: &Request) -> Self {
        Self(request.extensions().get::<Arc<ConnectionSlot>>().cloned())
    }

    pub(super) fn at(slot: Option<Arc<ConnectionSlot>>) -> Self {
        Self(slot)
    }

    /// Counts the connection apart from the others, as it waits, until the answer is dropped.
    ///
    /// # Errors
    /// Too many wait.
    pub(super) fn wait(self, client: Option<&Client>) -> Result<Option<Apart>, Problem> {
        let slot = self.0.filter(|_| client.is_some());
        let apart = slot.map(|slot| {
            let apart = slot.waits(Waits::Poll);
            apart.ok_or_else(Problem::too_many_polls)
        });
        apart.transpose()
    }
}

impl Api {
    async fn show_result(
        &self,
        requester: &Requester,
        id: MessageId,
        wait_ms: u64,
    ) -> Result<Response, Problem> {
        let began = Instant::now();
        let ended = self.result_of(requester, id, wait_ms).await?;
        let waited = (wait_ms > 0).then(|| Extension(Waited(began.elapsed())));
        Ok((waited, reply::document(&ended)).into_response())
    }

    /// How a message ended. Waits for that so many ms at most, until the client goes away or the
    /// server stops, and follows the message to another id.
    ///
    /// # Errors
    /// The shards' error; nothing is known of it.
    pub(super) async fn result_of(
        &self,
        requester: &Requester,
        mut id: MessageId,
        wait_ms: u64,
    ) -> Result<Ended, Problem> {
        let (began, wait) = (Instant::now(), Duration::from_millis(wait_ms));
        loop {
            let left = wait.saturating_sub(began.elapsed());
            let result = match self.await_result(requester, id, left).await? {
                Outcome::Result(result) if result.state != ResultState::Moved => {
                    return Ok(Ended::from(*result));
                }
                Outcome::Result(result) => result,
                // It has not ended.
                _ => return Ok(Ended::pending(id)),
            };
            id = result.id;
            match self.new_id(id).await? {
                Some(new) => id = new,
                // It has not arrived in its shard.
                None if left.is_zero() => return Ok(Ended::pending(id)),
                None => tokio::time::sleep(MOVES.min(left)).await,
            }
        }
    }

    /// The id that a message has which went to another shard, or has another body.
    async fn new_id(&self, id: MessageId) -> Result<Option<MessageId>, Problem> {
        let client_api = self.client_api();
        let end = blocking(move || client_api.end_of(id)).await?;
        Ok(end.and_then(|end| end.is_now).filter(|new| *new != id))
    }

    /// Asks once.
    async fn await_result(
        &self,
        requester: &Requester,
        id: MessageId,
        left: Duration,
    ) -> Result<Outcome, Problem> {
        // Without a client that could go away nothing would end the wait early.
        let has_client = requester.client.is_some();
        let wait_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        let wait_ms = if has_client { wait_ms } else { 0 };
        self.waiting(requester, Command::AwaitResult { id, wait_ms })
            .await
    }

    /// Asks what may wait; the end of the client, and of the server, ends the wait.
    ///
    /// # Errors
    /// The shards' error.
    pub(super) async fn waiting(
        &self,
        requester: &Requester,
        command: Command,
    ) -> Result<Outcome, Problem> {
        let client = requester.client.as_deref();
        let (who, stop) = (requester.principal(), let_go(client));
        let answered = self.submit(who, client, command, stop).await;
        Ok(allowed(answered)?.0)
    }
}
