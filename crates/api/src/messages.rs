//! Messages: put, listed, shown, changed, removed.

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::Request;
use axum::response::IntoResponse;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::{HeaderMap, StatusCode, Uri};
use quintet_client::FOLDER;
use quintet_client::trace::{TRACEPARENT, TRACESTATE, is_traceparent, is_tracestate};
use quintet_client::{Did, StoreError};
use quintet_types::{
    BatchId, Body, BulkAction, BulkOp, By, Command, CommandError, Dedupe, Edit, Expiry, Filter,
    Guard, KEY_BYTES_MAX, Message, MessageId, MessageVersion, Name, Outcome, Peek, Put, PutMore,
    ReplyTo, Tie, Transaction, Verb, When,
};

use super::call::{Answer, Of, OfMessage, OfQueue, RequestBody, done_to, tagged};
use super::problem::Problem;
use super::read::WAIT_MAX_MS;
use super::results::{Ended, Stored};
use super::types::{Changes, MessageView, NewMessage, Page, Puts, Target};
use super::{Api, blocking, bulk, read, results};
use quintet_http::{Requester, Waited, download, reply};

/// Length of a token that a client gives.
pub(super) const TOKEN_BYTES: std::ops::RangeInclusive<usize> = 1..=255;
/// Bodies up to here are in memory, and can be replaced by one another.
pub const SMALL: usize = 64 << 10;

/// Stores messages, all or none. With `Idempotency-Key` a repeat within a day
/// stores nothing and is answered as the first was.
#[utoipa::path(post, path = "/api/v1/queues/{queue}/messages", tag = "messages",
    params(("queue" = String, Path), ("Idempotency-Key" = Option<String>, Header),
        ("traceparent" = Option<String>, Header, description = "W3C trace context, kept in the messages' headers")),
    request_body = Puts,
    responses((status = 201, body = Stored),
        (status = 503, body = Problem, content_type = "application/problem+json"),
        (status = 507, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn put(Of(api, requester, queue): OfQueue, request: Request) -> Answer {
    let token = idempotency_key(request.headers())?;
    let trace = trace_context(request.headers());
    // A wait has its place before anything is stored.
    let apart = results::Place::of(&request);
    let (Puts { messages, wait_ms }, sum, _share) = match token {
        Some(_) => read::summed(&api.app, request).await?,
        None => {
            let (puts, share) = read::body(&api.app, request).await?;
            (puts, 0, share)
        }
    };
    if messages.is_empty() {
        return Err(Problem::field("messages", read::not_so_many(0)));
    }
    let _apart = match wait_ms {
        0 => None,
        _ if messages.len() > 1 => {
            let detail = "goes with one message only: send one message, or leave out wait_ms";
            return Err(Problem::field("wait_ms", detail));
        }
        1..=WAIT_MAX_MS => {
            if !requester.may_to(Verb::Peek, &queue) {
                return Err(Problem::refused(CommandError::NotPermitted));
            }
            apart.wait(requester.client.as_deref())?
        }
        _ => return Err(read::wait_too_long("wait_ms", wait_ms)),
    };
    let mut puts = Vec::with_capacity(messages.len());
    for (at, mut message) in messages.into_iter().enumerate() {
        // What vendors add belongs to the parent it came with.
        if !message.headers.contains_key(TRACEPARENT) {
            for (name, value) in &trace {
                message.headers.insert((*name).to_owned(), value.clone());
            }
        }
        // What came of it can be asked for by its name, also when it is gone.
        message.tracked |= wait_ms > 0 && message.name.is_some();
        let token = token.as_ref().map(|key| format!("{key}/{at}").into_bytes());
        let mut put = api.new_put(&queue, message, at, token).await?;
        if let Some(more) = &mut put.more {
            more.token_sum = sum;
        }
        puts.push(put);
    }
    // One alone may be a member of any batch.
    let command = match <[Put; 1]>::try_from(puts) {
        Ok([put]) => Command::Put(put),
        Err(puts) => Command::PutMany(puts),
    };
    let (outcome, _) = api.ask(&requester, command).await?;
    let ids = if let Outcome::PutMany(ids) = outcome {
        ids.iter().map(|id| id.0).collect()
    } else if let Outcome::Put { id, .. } = outcome {
        vec![id.0]
    } else {
        return Err(Problem::unexpected());
    };
    let began = Instant::now();
    let result = match (wait_ms, &ids[..]) {
        (1.., &[id]) => {
            // The put is done: an error of the wait is no error of the request.
            let ended = api.result_of(&requester, MessageId(id), wait_ms).await;
            Some(ended.unwrap_or_else(|_| Ended::pending(MessageId(id))))
        }
        _ => None,
    };
    let waited = (wait_ms > 0).then(|| Extension(Waited(began.elapsed())));
    let stored = reply::document(&Stored { ids, result });
    Ok((StatusCode::CREATED, waited, stored).into_response())
}

/// Names the queue that a dead letter goes back to.
pub(super) const DEAD_LETTER_QUEUE: &str = "dead_letter_queue";

/// Trace context of the request; one that is malformed counts as none, as the standard asks.
fn trace_context(headers: &HeaderMap) -> Vec<(&'static str, String)> {
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let parent = parents.next().and_then(|value| value.to_str().ok());
    let parent = parent.filter(|text| is_traceparent(text) && parents.next().is_none());
    let Some(parent) = parent else {
        return Vec::new();
    };
    let states = headers.get_all(TRACESTATE).iter();
    let states: Vec<&str> = states.filter_map(|value| value.to_str().ok()).collect();
    let state = Some(states.join(",")).filter(|text| is_tracestate(text));
    let state = state.map(|state| (TRACESTATE, state));
    [(TRACEPARENT, parent.to_owned())]
        .into_iter()
        .chain(state)
        .collect()
}

pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        let why = "this header is given twice";
        return Err(Problem::field("Idempotency-Key", why));
    }
    let key = value
        .to_str()
        .ok()
        .filter(|key| TOKEN_BYTES.contains(&key.len()));
    let key =
        key.ok_or_else(|| Problem::field("Idempotency-Key", "takes 1 to 255 ASCII characters"))?;
    Ok(Some(key.to_owned()))
}

/// A body that is given as text, or in base64, or not at all.
fn body_of(text: Option<String>, base64: Option<String>, field: &str) -> Result<Vec<u8>, Problem> {
    match (text, base64) {
        (Some(_), Some(_)) => {
            let detail = "goes without body: give one of both";
            Err(Problem::field(&format!("{field}body_base64"), detail))
        }
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(text)) => BASE64_STANDARD.decode(text).map_err(|_| {
            Problem::field(
                &format!("{field}body_base64"),
                "takes base64 with padding (RFC 4648)",
            )
        }),
        (None, None) => Ok(Vec::new()),
    }
}

/// Where the result of a message goes, if somewhere.
fn reply_of(
    queue: Option<String>,
    correlation: Option<String>,
    field: &str,
) -> Result<Option<Box<ReplyTo>>, Problem> {
    let wrong = |name: &str, why: &str| Err(Problem::field(&format!("{field}{name}"), why));
    let Some(queue) = queue.map(|queue| Name::of_shown(&queue)) else {
        return match correlation {
            None => Ok(None),
            Some(_) => wrong("correlation_id", "needs the field reply_to beside it"),
        };
    };
    let too_long = |id: &String| !TOKEN_BYTES.contains(&id.len());
    if correlation.as_ref().is_some_and(too_long) {
        return wrong("correlation_id", "takes 1 to 255 bytes");
    }
    if !TOKEN_BYTES.contains(&queue.as_bytes().len()) {
        return wrong("reply_to", "takes the name of a queue, 1 to 255 bytes");
    }
    let correlation = correlation.unwrap_or_default().into_bytes().into();
    Ok(Some(Box::new(ReplyTo { queue, correlation })))
}

impl Api {
    /// A put of what a client has said; `at` is its place in what it sent.
    pub async fn new_put(
        &self,
        queue: &Name,
        message: NewMessage,
        at: usize,
        token: Option<Vec<u8>>,
    ) -> Result<Put, Problem> {
        let field = format!("messages[{at}].");
        for own in [FOLDER, DEAD_LETTER_QUEUE] {
            if message.headers.contains_key(own) {
                let detail = "this attribute is the server's own: use another name";
                return Err(Problem::field(&format!("{field}headers.{own}"), detail));
            }
        }
        let key = message.key.as_ref().map_or(0, String::len);
        let dedupe = message.dedupe.as_ref().map_or(0, |dedupe| dedupe.id.len());
        for (own, len) in [("key", key), ("dedupe.id", dedupe)] {
            if len > KEY_BYTES_MAX {
                let detail = format!("takes {KEY_BYTES_MAX} bytes at most");
                return Err(Problem::field(&format!("{field}{own}"), detail));
            }
        }
        let batch = match message.batch.as_deref().map(BatchId::parse) {
            Some(None) => {
                let field = format!("{field}batch");
                return Err(Problem::field(&field, read::NOT_A_BATCH));
            }
            Some(batch) => batch.map(Tie::member),
            None => None,
        };
        let reply = reply_of(message.reply_to, message.correlation_id, &field)?;
        let after = super::after::of_new(message.after, (message.on, message.if_failed), &field)?;
        let bytes = body_of(message.body, message.body_base64, &field)?;
        let attrs = message.headers.into_iter();
        let more = PutMore {
            key: message.key.map(|key| key.into_bytes().into()),
            name: message.name.map(|name| name.into_bytes().into()),
            attrs: attrs
                .map(|(name, value)| (name.into_bytes().into(), value.into_bytes().into()))
                .collect(),
            dedupe: message.dedupe.map(|dedupe| Dedupe {
                id: dedupe.id.into_bytes().into(),
                window_ms: dedupe.window_ms,
                scope: dedupe.until.map(Into::into),
                on_repeat: dedupe.on_repeat.map(Into::into),
            }),
            token: token.map(Vec::into_boxed_slice),
            batch,
            tracked: message.tracked,
            reply,
            after,
            ..PutMore::default()
        };
        Ok(Put {
            queue: queue.clone(),
            must_exist: false,
            body: self.stored(queue, bytes).await?,
            priority: message.priority,
            flags: message.flags,
            due: message.delay_ms.map_or(When::Default, When::In),
            expires: message.ttl_ms.map_or(Expiry::Default, Expiry::In),
            ttr_ms: message.ttr_ms,
            more: (more != PutMore::default()).then(|| Box::new(more)),
        })
    }

    /// A long body goes to the log beforehand.
    async fn stored(&self, queue: &Name, bytes: Vec<u8>) -> Result<Body, Problem> {
        if bytes.len() <= SMALL {
            return Ok(Body::new(&bytes));
        }
        let (client_api, queue) = (Arc::clone(&self.client_api), queue.clone());
        let stored = blocking(move || {
            let len = bytes.len() as u64;
            client_api.store(&queue, len, &mut bytes.as_slice())
        });
        stored.await?.map_err(|error| match error {
            StoreError::Refused(command_error) => Problem::refused(command_error),
            StoreError::Source(error) => Problem::internal(error.to_string()),
        })
    }

    /// A message, and its queue.
    ///
    /// # Errors
    /// The shards' error.
    pub async fn message(
        &self,
        requester: &Requester,
        id: MessageId,
    ) -> Result<(Message, Name), Problem> {
        let (outcome, queue) = self.ask(requester, Command::Peek(Peek::Id(id))).await?;
        let message = if let Outcome::Messages(messages) = outcome {
            messages.into_iter().next()
        } else {
            None
        };
        Ok((message.ok_or_else(Problem::not_found)?, queue))
    }

    /// The queue that a message is in, for the audit. `None`: there is no such message, or it may
    /// not be seen.
    pub(super) async fn queue_of(&self, requester: &Requester, id: MessageId) -> Option<Name> {
        let seen = self.message(requester, id).await;
        seen.ok().map(|(_, queue)| queue)
    }

    /// Gives a command that changes a message, whose queue the audit tells.
    pub(super) async fn change_message(
        &self,
        requester: &Requester,
        id: MessageId,
        command: Command,
    ) -> Answer {
        let queue = self.queue_of(requester, id).await;
        match self.ask(requester, command).await {
            Ok(_) => Ok(done_to(StatusCode::NO_CONTENT.into_response(), queue)),
            Err(problem) => Err(self.why_not(requester, id, problem).await),
        }
    }

    /// Does it, if the message still is as `version` says.
    ///
    /// # Errors
    /// It is not, or the shards refuse.
    pub async fn guarded(
        &self,
        requester: &Requester,
        id: MessageId,
        version: Option<String>,
        command: Command,
    ) -> Result<Outcome, Problem> {
        let Some(version) = version else {
            return Ok(self.ask(requester, command).await?.0);
        };
        let (message, _) = self.message(requester, id).await?;
        if read::version(&message) != version {
            return Err(Problem::changed());
        }
        let command = if_still(id, MessageVersion::of(&message), command);
        match self.ask(requester, command).await {
            Ok((outcome, _)) => Ok(outcome.of_command()),
            Err(problem) if problem.code == "conflict" => Err(Problem::changed()),
            Err(problem) => Err(problem),
        }
    }
}

/// Lists messages of one state in their order, those that fit. A page may have
/// fewer than asked for, or none, and yet a cursor: so much was looked at.
#[utoipa::path(get, path = "/api/v1/queues/{queue}/messages", tag = "messages",
    params(("queue" = String, Path), ("state" = Option<String>, Query, description = "ready, delayed, reserved, buried, prepared or archived"),
        ("contains" = Option<String>, Query), ("key" = Option<String>, Query), ("name" = Option<String>, Query),
        ("header" = Option<Vec<String>>, Query, description = "NAME=VALUE"),
        ("dead" = Option<bool>, Query, description = "dead letters alone"),
        ("older_ms" = Option<u64>, Query), ("batch" = Option<String>, Query, description = "members of this batch"), ("max" = Option<u64>, Query, description = "1 to 1000; 100"),
        ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Page)))]
pub(super) async fn browse(Of(api, requester, queue): OfQueue, uri: Uri) -> Answer {
    let query = read::Query::of(&uri, FILTER, &["header"])?;
    let bulk_op = bulk_op(queue.clone(), &query)?;
    let (bulk_done, _room) = api.bulk_done(&requester, bulk_op).await?;
    let now = api.client_api.now();
    let shown = bulk_done.messages.iter();
    Ok(reply::document(&Page {
        messages: shown
            .map(|message| MessageView::of(message, &queue, now))
            .collect(),
        cursor: bulk_done.next.map(bulk::cursor_text),
    }))
}

/// Fields of a query that says which messages of a queue are listed, beside `header`.
pub(super) const FILTER: &[&str] = &[
    "state",
    "contains",
    "key",
    "key_base64",
    "name",
    "name_base64",
    "error",
    "dead",
    "older_ms",
    "batch",
    "max",
    "cursor",
];

/// The bulk operation of such a query.
pub(super) fn bulk_op(queue: Name, query: &read::Query) -> Result<BulkOp, Problem> {
    let pair = |text: &str| {
        let (name, value) = text.split_once('=')?;
        Some((name.as_bytes().into(), value.as_bytes().into()))
    };
    let attrs: Option<Vec<_>> = query.all("header").map(pair).collect();
    let bytes = |name: &str| query.get(name).map(|text| text.as_bytes().into());
    let named = |name, base64| read::bytes_of(name, query.get(name), query.get(base64));
    Ok(BulkOp {
        max: bulk::rows(&queue, read::page_size(query)?),
        queue,
        state: read::state(query.get("state").unwrap_or("ready"))?,
        filter: Filter {
            body: bytes("contains"),
            key: named("key", "key_base64")?,
            name: named("name", "name_base64")?,
            attrs: attrs.ok_or_else(|| Problem::field("header", "takes NAME=VALUE"))?,
            older_ms: query.number("older_ms", u64::MAX)?.unwrap_or(0),
            dead: query.flag("dead")?,
            error: bytes("error"),
            tried: None,
            batch: read::batch(query.get("batch"))?,
        },
        action: BulkAction::Show,
        after: query.get("cursor").map(bulk::cursor).transpose()?,
    })
}

/// A message, whatever its state.
#[utoipa::path(get, path = "/api/v1/messages/{id}", tag = "messages",
    params(("id" = u64, Path)), responses((status = 200, body = MessageView, headers(("ETag" = String)))))]
pub(super) async fn show(Of(api, requester, id): OfMessage, uri: Uri) -> Answer {
    read::Query::of(&uri, &[], &[])?;
    let (message, queue) = api.message(&requester, id).await?;
    let shown = MessageView::of(&message, &queue, api.client_api.now());
    Ok(tagged(reply::document(&shown), Some(&shown.version)))
}

/// A message's body as it is, of any length.
#[utoipa::path(get, path = "/api/v1/messages/{id}/body", operation_id = "show_body", tag = "messages",
    params(("id" = u64, Path)),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>)))]
pub(crate) async fn body(Of(api, requester, id): OfMessage, uri: Uri) -> Answer {
    read::Query::of(&uri, &[], &[])?;
    let (message, _) = api.message(&requester, id).await?;
    let client_api = Arc::clone(&api.client_api);
    Ok(download::response(client_api, message.id, message.body))
}

/// Changes a message that is not reserved; with `If-Match` only if it still is
/// as it was seen. With another body it has another id.
#[utoipa::path(patch, path = "/api/v1/messages/{id}", tag = "messages",
    params(("id" = u64, Path), ("If-Match" = Option<String>, Header)), request_body = Changes,
    responses((status = 200, body = Stored),
        (status = 507, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn edit(
    Of(api, requester, id): OfMessage,
    headers: HeaderMap,
    RequestBody(changes, _share): RequestBody<Changes>,
) -> Answer {
    let version = read::if_match(&headers);
    let has_body = changes.body.is_some() || changes.body_base64.is_some();
    let bytes = body_of(changes.body, changes.body_base64, "")?;
    if bytes.len() > SMALL {
        return Err(Problem::field("body", "takes 65536 bytes at most"));
    }
    let edit = Edit {
        body: has_body.then(|| Body::new(&bytes)),
        priority: changes.priority,
        due: changes.delay_ms.map(When::In),
        ..Edit::default()
    };
    if edit == Edit::default() {
        let why = "nothing to change: set priority, delay_ms or body";
        return Err(Problem::field("priority", why));
    }
    let command = Command::Edit(id, Box::new(edit));
    let queue = api.queue_of(&requester, id).await;
    let outcome = match api.guarded(&requester, id, version, command).await {
        Ok(outcome) => outcome,
        Err(problem) => return Err(api.why_not(&requester, id, problem).await),
    };
    let stored = if let Outcome::Put { id: anew, .. } = outcome {
        anew
    } else {
        id
    };
    let ids = vec![stored.0];
    let mut response = reply::document(&Stored { ids, result: None });
    response.extensions_mut().insert(Did {
        messages: None,
        new_id: (stored != id).then_some(stored.0),
    });
    Ok(done_to(response, queue))
}

/// Removes a message whatever its state; with `If-Match` only if it still is as
/// it was seen.
#[utoipa::path(delete, path = "/api/v1/messages/{id}", tag = "messages",
    params(("id" = u64, Path), ("If-Match" = Option<String>, Header)), responses((status = 204)))]
pub(super) async fn remove(Of(api, requester, id): OfMessage, headers: HeaderMap) -> Answer {
    let queue = api.queue_of(&requester, id).await;
    let by = By::Anyone;
    let command = Command::Delete { id, by };
    api.guarded(&requester, id, read::if_match(&headers), command)
        .await?;
    Ok(done_to(StatusCode::NO_CONTENT.into_response(), queue))
}

/// Makes a buried or delayed message ready.
#[utoipa::path(post, path = "/api/v1/messages/{id}/kick", tag = "messages",
    params(("id" = u64, Path)), responses((status = 204)))]
pub(super) async fn kick(Of(api, requester, id): OfMessage) -> Answer {
    api.change_message(&requester, id, Command::KickId(id))
        .await
}

/// Sends a dead letter back to the queue it came from, where it is as new.
#[utoipa::path(post, path = "/api/v1/messages/{id}/redrive", tag = "messages",
    params(("id" = u64, Path)), responses((status = 204)))]
pub(super) async fn redrive(Of(api, requester, id): OfMessage) -> Answer {
    api.change_message(&requester, id, Command::Redrive(id))
        .await
}

/// Moves a message that is not reserved to the end of a queue.
#[utoipa::path(post, path = "/api/v1/messages/{id}/move", operation_id = "move_message", tag = "messages",
    params(("id" = u64, Path)), request_body = Target, responses((status = 204)))]
pub(super) async fn transfer(
    Of(api, requester, id): OfMessage,
    RequestBody(Target { to }, _share): RequestBody<Target>,
) -> Answer {
    let to = read::queue(&to).map_err(|_| Problem::field("to", read::NOT_A_QUEUE))?;
    api.change_message(&requester, id, Command::Move { id, to })
        .await
}

/// Does it if the message still is as it was seen.
pub(super) fn if_still(id: MessageId, seen: MessageVersion, command: Command) -> Command {
    let seen = Some(seen);
    Command::Transaction(Box::new(Transaction {
        guards: vec![Guard::Message { id, seen }],
        then: Some(Box::new(command)),
        ..Transaction::default()
    }))
}
