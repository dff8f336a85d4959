//! Batches: messages that are counted together, and what is put when all have
//! run and when all have succeeded.

use std::collections::BTreeMap;

use axum::extract::Request;
use axum::response::IntoResponse;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::StatusCode;
use quintet_client::choices;
use quintet_types::{BatchId, BatchRequest, Command, Name, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::call::{Answer, Call, RequestBody};
use super::messages::DEAD_LETTER_QUEUE;
use super::path::Path;
use super::problem::{Problem, only};
use super::{Api, read};
use crate::bytes_in_json::{base64_unless_text, lossy, text_of};
use quintet_http::{Requester, reply};

/// A batch with a callback for its completion, its success or both.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBatch {
    /// A text that lists and pages show; the server does not read it.
    description: Option<String>,
    /// The batch whose callbacks wait for this one's.
    parent: Option<String>,
    /// Put when all messages of the batch have run. This, `success`, or both.
    complete: Option<NewCallback>,
    /// Put when all have succeeded, after `complete`.
    success: Option<NewCallback>,
    /// How messages count that are cancelled; `failed` if left out.
    cancelled: Option<CancelledAs>,
}

choices! {
    /// How a batch counts a message that is cancelled.
    pub(super) enum CancelledAs of quintet_types::CancelledAs {
        /// It has run, and never succeeds.
        Failed = Failed,
        /// It counts as succeeded.
        Finished = Finished,
    }
}

/// A message that is put when something has happened to a batch. It has the
/// headers `batch`, the batch, and `batch_event`, `complete` or `success`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewCallback {
    /// The queue that the callback is put into.
    queue: String,
    /// The body as text. This or `body_base64`; neither: an empty body.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    /// The body in base64, in place of `body`, for bytes that are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    /// The message's own name, 1 to 255 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Attributes: names and values.
    #[serde(default, deserialize_with = "quintet_client::unique")]
    headers: BTreeMap<String, String>,
    /// 0 is the most urgent; left out: the queue's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u32>,
    /// Time to run of its leases, ms; left out: as the queue says.
    #[serde(
        default,
        deserialize_with = "super::read::duration_ms",
        skip_serializing_if = "Option::is_none"
    )]
    ttr_ms: Option<u64>,
}

impl From<quintet_types::Callback> for NewCallback {
    fn from(callback: quintet_types::Callback) -> Self {
        let attrs = callback.attrs.iter();
        Self {
            queue: callback.queue.to_string(),
            body: text_of(&callback.body),
            body_base64: base64_unless_text(&callback.body),
            name: callback.name.map(|name| lossy(&name)),
            headers: attrs
                .map(|(name, value)| (lossy(name), lossy(value)))
                .collect(),
            priority: callback.priority,
            ttr_ms: callback.ttr_ms,
        }
    }
}

impl NewBatch {
    /// The request to the engine.
    ///
    /// # Errors
    /// The field that is wrong, and why.
    pub fn ask(self) -> Result<BatchRequest, (String, &'static str)> {
        let parent = match self.parent.as_deref().map(BatchId::parse) {
            Some(None) => return Err(("parent".to_owned(), "this is not the id of a batch")),
            Some(parent) => parent,
            None => None,
        };
        let callback = |field: &str, supplied: Option<NewCallback>| {
            let supplied = supplied.map(NewCallback::callback).transpose();
            supplied.map_err(|(name, why)| (format!("{field}.{name}"), why))
        };
        Ok(BatchRequest::New(Box::new(quintet_types::NewBatch {
            description: self.description.unwrap_or_default().into_bytes().into(),
            parent,
            complete: callback("complete", self.complete)?,
            success: callback("success", self.success)?,
            cancelled: self.cancelled.map(Into::into).unwrap_or_default(),
        })))
    }
}

impl NewCallback {
    fn callback(self) -> Result<quintet_types::Callback, (&'static str, &'static str)> {
        let body = match (self.body, self.body_base64) {
            (Some(_), Some(_)) => {
                return Err(("body_base64", "body or body_base64, not both"));
            }
            (Some(text), None) => text.into_bytes(),
            (None, Some(text)) => BASE64_STANDARD
                .decode(text)
                .map_err(|_| ("body_base64", "this is not base64"))?,
            (None, None) => Vec::new(),
        };
        let name = self.name.filter(|name| !name.is_empty());
        if name.as_ref().is_some_and(|name| name.len() > 255) {
            return Err(("name", "255 bytes at most"));
        }
        for (own, field) in [
            (quintet_types::FOLDER, "headers.dir"),
            (DEAD_LETTER_QUEUE, "headers.dead_letter_queue"),
        ] {
            if self.headers.contains_key(own) {
                let why = "this attribute is the server's own: use another name";
                return Err((field, why));
            }
        }
        let attrs = self.headers.into_iter();
        Ok(quintet_types::Callback {
            queue: Name::of_shown(&self.queue),
            body: body.into(),
            priority: self.priority,
            ttr_ms: self.ttr_ms,
            name: name.map(|name| name.into_bytes().into()),
            retry: None,
            attrs: attrs
                .map(|(name, value)| (name.into_bytes().into(), value.into_bytes().into()))
                .collect(),
        })
    }
}

/// A batch, as the API and the command line tell it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Batch {
    pub id: String,
    pub description: String,
    /// The same in base64, if it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description_base64: Option<String>,
    /// The batch whose callbacks wait for this one's; null: none.
    pub parent: Option<String>,
    /// How messages count that are cancelled: `failed` or `finished`.
    pub cancelled: &'static str,
    pub created_ms: u64,
    /// Messages may be added; nothing is said before it is committed.
    pub open: bool,
    /// Messages there ever were.
    pub total: u64,
    /// Of these, those that have not succeeded.
    pub pending: u64,
    /// Of these, those that failed or can never succeed.
    pub failed: u64,
    /// Whether all have run: `no`, `put` (its callback was), `done` (that was finished, or there
    /// is none).
    pub complete: &'static str,
    /// The same of whether all have succeeded.
    pub success: &'static str,
    /// When the server forgets the batch, ms since 1970.
    pub until_ms: u64,
    /// Its callbacks `complete` and `success`, where one batch is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    callbacks: Option<BTreeMap<String, NewCallback>>,
}

impl From<quintet_types::Batch> for Batch {
    fn from(batch: quintet_types::Batch) -> Self {
        let progress = batch.progress;
        Self {
            id: batch.id.to_string(),
            description: lossy(&batch.made.description),
            description_base64: base64_unless_text(&batch.made.description),
            parent: batch.made.parent.map(|parent| parent.to_string()),
            cancelled: batch.made.cancelled.word(),
            created_ms: batch.created.0,
            open: progress.open,
            total: progress.total,
            pending: progress.pending,
            failed: progress.failed,
            complete: progress.complete.word(),
            success: progress.success.word(),
            until_ms: progress.until.0,
            callbacks: None,
        }
    }
}

/// A page of batches that the user may see.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Batches {
    batches: Vec<Batch>,
    /// `after` of the next page; null: that was all.
    next: Option<String>,
}

/// The page of batches that comes after, as a text for the client that asks for it.
pub fn batches_after((shard, after): (u8, BatchId)) -> String {
    format!("{shard}-{after}")
}

/// The request for a page of batches; `None`: `after` is no cursor.
pub fn list_batches(after: Option<&str>, max: u32) -> Option<BatchRequest> {
    let (shard, after) = match after {
        None | Some("") => (0, BatchId(0)),
        Some(text) => {
            let (shard, after) = text.split_once('-')?;
            (shard.parse().ok()?, BatchId::parse(after)?)
        }
    };
    Some(BatchRequest::List { shard, after, max })
}

impl Api {
    /// Does something to a batch.
    ///
    /// # Errors
    /// The shards' error.
    pub async fn batch(
        &self,
        requester: &Requester,
        ask: BatchRequest,
    ) -> Result<quintet_types::Batch, Problem> {
        let answer = self.ask(requester, Command::Batch(ask)).await?;
        Ok(only!(answer, (Outcome::Batch(batch), _) => *batch))
    }
}

/// A batch's id in an address.
fn id(text: &str) -> Result<BatchId, Problem> {
    BatchId::parse(text).ok_or_else(Problem::no_such_page)
}

/// Batches, 1 to 1000 of a page, by shard and age.
#[utoipa::path(get, path = "/api/v1/batches", tag = "batches",
    params(("after" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<u32>, Query, description = "1 to 1000; 100 if it is left out")),
    responses((status = 200, body = Batches)))]
pub(super) async fn list(Call { api, requester }: Call, request: Request) -> Answer {
    let query = read::Query::of(request.uri(), &["after", "limit"], &[])?;
    let max = read::limit(&query)?;
    let ask = list_batches(query.get("after"), max);
    let wrong = "use the value of next from the page before";
    let ask = ask.ok_or_else(|| Problem::field("after", wrong))?;
    let _room = api.room(u64::from(max) * super::ROW_BYTES)?;
    let answer = api.ask(&requester, Command::Batch(ask)).await?;
    let (found, next) = only!(answer, (Outcome::Batches(found, next), _) => (found, next));
    let page = Batches {
        batches: found.into_iter().map(Batch::from).collect(),
        next: next.map(batches_after),
    };
    Ok(reply::document(&json!(page)))
}

/// Creates a batch. Messages are added by their `batch` until it is committed.
#[utoipa::path(post, path = "/api/v1/batches", operation_id = "make_batch", tag = "batches", request_body = NewBatch,
    responses((status = 201, body = Batch), (status = "5XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn make(
    Call { api, requester }: Call,
    RequestBody(supplied, _share): RequestBody<NewBatch>,
) -> Answer {
    let ask = supplied
        .ask()
        .map_err(|(field, why)| Problem::field(&field, why))?;
    let batch = api.batch(&requester, ask).await?;
    let batch = json!(Batch::from(batch));
    Ok((StatusCode::CREATED, reply::document(&batch)).into_response())
}

/// How far a batch is, and its callbacks.
#[utoipa::path(get, path = "/api/v1/batches/{id}", tag = "batches", params(("id" = String, Path)),
    responses((status = 200, body = Batch)))]
pub(super) async fn show(Call { api, requester }: Call, Path(text): Path<String>) -> Answer {
    let batch = api
        .batch(&requester, BatchRequest::Show(id(&text)?))
        .await?;
    let made = batch.made.clone();
    let callbacks = [("complete", made.complete), ("success", made.success)];
    let callbacks = callbacks.into_iter().filter_map(|(event, callback)| {
        let callback = NewCallback::from(callback?);
        Some((event.to_owned(), callback))
    });
    let shown = Batch {
        callbacks: Some(callbacks.collect()),
        ..Batch::from(batch)
    };
    Ok(reply::document(&json!(shown)))
}

/// Forgets a batch: its callbacks are not put any more, and its messages are like any other.
#[utoipa::path(delete, path = "/api/v1/batches/{id}", tag = "batches", params(("id" = String, Path)),
    responses((status = 204)))]
pub(super) async fn forget(Call { api, requester }: Call, Path(text): Path<String>) -> Answer {
    api.batch(&requester, BatchRequest::Forget(id(&text)?))
        .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `commit`: no messages are added any more, and callbacks are put when it is time; `open`: they
/// may be added again.
#[utoipa::path(post, path = "/api/v1/batches/{id}/{act}", operation_id = "act_on_batch", tag = "batches",
    params(("id" = String, Path), ("act" = String, Path, description = "commit or open")),
    responses((status = 200, body = Batch)))]
pub(super) async fn operate(
    Call { api, requester }: Call,
    Path((text, operation)): Path<(String, String)>,
) -> Answer {
    let id = id(&text)?;
    let ask = match operation.as_str() {
        "commit" => BatchRequest::Commit(id),
        "open" => BatchRequest::Open(id),
        _ => return Err(Problem::no_such_page()),
    };
    let batch = api.batch(&requester, ask).await?;
    Ok(reply::document(&json!(Batch::from(batch))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callback_is_shown_as_it_was_given() {
        for given in [
            json!({"queue": "a", "body": "x", "headers": {}}),
            json!({"queue": "a", "body_base64": "/w==", "name": "n", "headers": {"b": "c"},
                   "priority": 3, "ttr_ms": 4}),
        ] {
            let new: NewCallback = serde_json::from_value(given.clone()).unwrap();
            let shown = NewCallback::from(new.callback().unwrap());
            assert_eq!(json!(shown), given);
        }
    }

    #[test]
    fn pages_are_requested_by_their_cursor() {
        let listed = batches_after((3, BatchId(3 << 55 | 1)));
        let listing = BatchRequest::List {
            shard: 3,
            after: BatchId(3 << 55 | 1),
            max: 7,
        };
        assert_eq!(list_batches(Some(&listed), 7), Some(listing));
        assert_eq!(list_batches(Some("x"), 7), None);
        assert_eq!(list_batches(Some("256-b-0000000000000001"), 7), None);
    }
}
