//! Messages with all that is known of them, and their bodies as they are: what the command line
//! prints and exports. A reply is a line of JSON, `{"messages": [...], "cursor": ...}`, and behind
//! it of each message so many bytes of its body as its `follows` says.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::header::CONTENT_LENGTH;
use hyper::{StatusCode, Uri};
use md5::{Digest as _, Md5};
use quintet_client::{Share, StoreError};
use quintet_control::message_value;
use quintet_http::{
    ConnectionSlot, Consumer, Leaving, Payer, Requester, Waited, download, held, reply, upload,
};
use quintet_types::{
    Body, Command, CommandError, Lease, Message, Name, Outcome, Peek, State as Stands, Take, Verb,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::call::{Answer, Call, Of, OfMessage, OfQueue};
use super::problem::{Problem, only};
use super::types::NewMessage;
use super::uploads::is_slow;
use super::{Api, blocking, bulk, messages, read};

/// Bytes of the line before a message's body at most.
const LINE_MAX: usize = 1 << 20;

/// Queues that a take asks at most.
const QUEUES_MAX: usize = 1024;

/// Bytes of the line that are counted at a time.
const COUNTED: usize = 64 << 10;

/// Estimated size of a message in the line, without its texts, bytes.
const ROW_BYTES: u64 = 1024;

/// Bytes of a body that are its start.
const START: usize = 256;

/// How much of the bodies follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bodies {
    Whole,
    /// The first 256 bytes; nothing of a large body, which is on the disk.
    Start,
}

impl Bodies {
    fn of(self, body: &Body) -> Body {
        match (self, body) {
            (Self::Whole, body) => body.clone(),
            (Self::Start, Body::Small(bytes)) => Body::new(&bytes[..bytes.len().min(START)]),
            (Self::Start, Body::Large(_)) => Body::default(),
        }
    }
}

/// The reply: of these messages, and where a list goes on.
fn records<'a>(
    api: &Api,
    all: impl Iterator<Item = (&'a Message, Option<&'a Lease>)>,
    queue: &Name,
    bodies: Bodies,
    cursor: Option<String>,
) -> Result<Response, Problem> {
    let all: Vec<_> = all.collect();
    // Bodies are copied once; the rest is text, which has six letters for some.
    let held = all.iter().map(|(message, _)| {
        let body = bodies.of(&message.body);
        let body = body.as_small().map_or(0, |bytes| bytes.len() as u64);
        body + 6 * message.extra_bytes() + ROW_BYTES
    });
    let share = held::room(api.app.settings(), held.sum())?;
    let (mut heads, mut large, mut small) = (Vec::new(), Vec::new(), Vec::new());
    for (message, lease) in all {
        let body = bodies.of(&message.body);
        let mut head = message_value(message, queue);
        head["follows"] = body.len().into();
        if let Some(lease) = lease {
            head["lease"] = lease_reported(lease);
        }
        heads.push(head);
        match body {
            Body::Small(bytes) => small.extend_from_slice(&bytes),
            Body::Large(_) => {
                large.push(Body::new(&std::mem::take(&mut small)));
                large.push(body);
            }
        }
    }
    large.push(Body::new(&small));
    let line = json!({ "messages": heads, "cursor": cursor }).to_string() + "\n";
    let mut parts = vec![Body::new(line.as_bytes())];
    parts.extend(large.into_iter().filter(|body| !body.is_empty()));
    Ok(download::joined(api.client_api(), parts, share))
}

/// A lease: whose it is, and its times in Unix ms. When it was given, or last
/// prolonged, is known of one that ends by itself.
fn lease_reported(lease: &Lease) -> Value {
    let since = lease
        .until
        .map(|until| until.0.saturating_sub(lease.span_ms));
    json!({
        "holder": lease.client_id.0,
        "bound": lease.bound.word(),
        "since_ms": since,
        "until_ms": lease.until.map(|until| until.0),
    })
}

/// Lists messages as `GET /queues/{queue}/messages` does, each with all that is known of it and its
/// body as it is; with `bodies=start` the first 256 bytes of it.
#[utoipa::path(get, path = "/api/v1/queues/{queue}/records", operation_id = "list_records", tag = "messages",
    params(("queue" = String, Path), ("bodies" = Option<String>, Query, description = "whole or start"),
        ("state" = Option<String>, Query), ("cursor" = Option<String>, Query), ("max" = Option<u64>, Query)),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>, description = "a line of JSON, then the bodies")))]
pub(super) async fn list(Of(api, requester, queue): OfQueue, uri: Uri) -> Answer {
    let known = [messages::FILTER, &["bodies"]].concat();
    let query = read::Query::of(&uri, &known, &["header"])?;
    let bodies = match query.get("bodies") {
        None | Some("whole") => Bodies::Whole,
        Some("start") => Bodies::Start,
        Some(_) => return Err(Problem::field("bodies", "takes whole or start")),
    };
    let bulk_op = messages::bulk_op(queue.clone(), &query)?;
    let (bulk_done, _room) = api.bulk_done(&requester, bulk_op).await?;
    let mut leases = bulk_done.leases.iter();
    let all = bulk_done.messages.iter().map(|message| {
        let is_held = message.state == Stands::Reserved;
        (message, is_held.then(|| leases.next()).flatten())
    });
    // An export has no cancelled messages: an import would bring them back.
    let all = all.filter(|(message, _)| bodies == Bodies::Start || message.cancelled().is_none());
    let cursor = bulk_done.next.map(bulk::cursor_text);
    records(&api, all, &queue, bodies, cursor)
}

/// The message that is next in a queue, or due or buried first, with all that is known of it and
/// its body as it is.
#[utoipa::path(get, path = "/api/v1/queues/{queue}/peek", operation_id = "peek_queue", tag = "messages",
    params(("queue" = String, Path), ("state" = Option<String>, Query, description = "ready, delayed or buried")),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>, description = "a line of JSON, then the bodies")))]
pub(super) async fn peek(Of(api, requester, queue): OfQueue, uri: Uri) -> Answer {
    let query = read::Query::of(&uri, &["state"], &[])?;
    let peek = match query.get("state").unwrap_or("ready") {
        "ready" => Peek::Ready(queue),
        "delayed" => Peek::Delayed(queue),
        "buried" => Peek::Buried(queue),
        _ => return Err(Problem::field("state", "takes ready, delayed or buried")),
    };
    seen(&api, &requester, peek).await
}

/// A message with all that is known of it and its body as it is.
#[utoipa::path(get, path = "/api/v1/messages/{id}/record", operation_id = "show_record", tag = "messages",
    params(("id" = u64, Path)),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>, description = "a line of JSON, then the bodies")))]
pub(super) async fn show(Of(api, requester, id): OfMessage) -> Answer {
    seen(&api, &requester, Peek::Id(id)).await
}

async fn seen(api: &Api, requester: &Requester, peek: Peek) -> Result<Response, Problem> {
    let (outcome, queue) = api.ask(requester, Command::Peek(peek)).await?;
    let Outcome::Messages(messages) = outcome else {
        return Err(Problem::refused(CommandError::NotFound));
    };
    let all = messages.iter().map(|message| (message, None));
    records(api, all, &queue, Bodies::Whole, None)
}

/// Reply to a put.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct Put {
    id: u64,
    /// False: it is a repeat of the message with this id.
    fresh: bool,
}

/// Stores a message whose body may have any length. The first line of the request is a message as
/// `POST /queues/{queue}/messages` takes it, without a body; the rest is the body as it is.
#[utoipa::path(post, path = "/api/v1/queues/{queue}/record", operation_id = "put_record", tag = "messages",
    params(("queue" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    request_body(content_type = "application/octet-stream", content = Vec<u8>, description = "a line of JSON, then the body"),
    responses((status = 201, body = Put),
        (status = 507, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn put(Of(api, requester, queue): OfQueue, request: Request) -> Answer {
    if !requester.may_to(Verb::Put, &queue) {
        return Err(Problem::refused(CommandError::NotPermitted));
    }
    let token = messages::idempotency_key(request.headers())?;
    let (mut came, length) = Came::of(&api, request)?;
    let (line, rest, _share) = came.line(&api).await?;
    came.sum = token.is_some().then(|| Md5::new_with_prefix(&rest));
    let message: NewMessage = read::parsed(&line)?;
    if message.body.is_some() || message.body_base64.is_some() {
        let why = "the body follows the line of JSON: leave it out here";
        return Err(Problem::field("body", why));
    }
    // As of a list of one.
    let token = token.map(|key| format!("{key}/0").into_bytes());
    let mut put = api.new_put(&queue, message, 0, token).await?;
    let length = length.saturating_sub(line.len() as u64);
    put.body = api.upload(&queue, length, rest, &mut came).await?;
    if let (Some(body), Some(more)) = (came.sum, &mut put.more) {
        let body = body.finalize().first_chunk().copied().unwrap_or_default();
        more.token_sum = (read::sum(&line) ^ u64::from_be_bytes(body)).max(1);
    }
    let requested = api.ask(&requester, Command::Put(put)).await?;
    let put = only!(requested, (Outcome::Put { id, fresh }, _) => Put { id: id.0, fresh });
    Ok((StatusCode::CREATED, reply::document(&put)).into_response())
}

/// The result of `all`, unless it takes longer.
async fn within<T>(time: Duration, all: impl Future<Output = T>) -> Result<T, Problem> {
    let result = tokio::time::timeout(time, all).await;
    Ok(result.map_err(|_| quintet_http::Problem::TooSlow)?)
}

/// The part of a request's body that is still to come.
pub(super) struct Came {
    body: axum::body::Body,
    /// Where its client is; `None`: on this machine.
    peer: Option<IpAddr>,
    /// A piece comes in this time.
    timeout: Duration,
    /// Sums up the pieces, if that is wanted.
    sum: Option<Md5>,
}

impl Came {
    /// Of a request that says how long it is.
    pub(super) fn of(api: &Api, request: Request) -> Result<(Self, u64), Problem> {
        let length = request.headers().get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        let length = length.ok_or_else(|| {
            Problem::field(
                "Content-Length",
                "this header is missing: give the length of the request",
            )
        })?;
        let payer = request.extensions().get::<Payer>();
        let came = Self {
            peer: payer.and_then(|payer| payer.peer),
            body: request.into_body(),
            timeout: api.app.settings().limits.timeout,
            sum: None,
        };
        Ok((came, length))
    }

    /// The first line, and what came behind it; the line's share of the memory.
    pub(super) async fn line(
        &mut self,
        api: &Api,
    ) -> Result<(BytesMut, Bytes, Vec<Option<Share>>), Problem> {
        let (mut line, mut shares, timeout) = (BytesMut::new(), Vec::new(), self.timeout);
        let all = async {
            loop {
                let piece = self.piece().await?.filter(|_| line.len() < LINE_MAX);
                let piece = piece.ok_or_else(|| {
                    Problem::not_json(
                        "the request begins with a line of JSON, which ends with a line feed",
                    )
                })?;
                let before = line.len();
                while shares.len() * COUNTED < before + piece.len() {
                    shares.push(api.room(COUNTED as u64)?);
                }
                line.extend_from_slice(&piece);
                if let Some(end) = piece.iter().position(|&byte| byte == b'\n') {
                    break Ok(before + end);
                }
            }
        };
        let end: Result<usize, Problem> = within(timeout, all).await?;
        let rest = line.split_off(end? + 1).freeze();
        Ok((line, rest, shares))
    }

    /// So many bytes, `first` first.
    pub(super) async fn whole(&mut self, length: u64, first: &[u8]) -> Result<Vec<u8>, Problem> {
        let (mut body, timeout) = (first.to_vec(), self.timeout);
        let all = async {
            while (body.len() as u64) < length {
                let piece = self.piece().await?;
                let piece = piece.ok_or(quintet_http::Problem::BrokeOff)?;
                body.extend_from_slice(&piece);
            }
            Ok(body)
        };
        within(timeout, all).await?
    }

    /// The next piece; `None`: that was all.
    async fn piece(&mut self) -> Result<Option<Bytes>, Problem> {
        let broken_off = |_| quintet_http::Problem::BrokeOff;
        loop {
            let next = tokio::time::timeout(self.timeout, self.body.frame()).await;
            let frame = next.map_err(|_| quintet_http::Problem::TooSlow)?;
            let Some(frame) = frame.transpose().map_err(broken_off)? else {
                return Ok(None);
            };
            if let Ok(piece) = frame.into_data() {
                if let Some(sum) = &mut self.sum {
                    sum.update(&piece);
                }
                return Ok(Some(piece));
            }
        }
    }
}

impl Api {
    /// Stores a body of so many bytes as it comes, `first` first.
    pub(super) async fn upload(
        &self,
        queue: &Name,
        length: u64,
        first: Bytes,
        came: &mut Came,
    ) -> Result<Body, Problem> {
        if length <= messages::SMALL as u64 {
            return Ok(Body::new(&came.whole(length, &first).await?));
        }
        let _turn = self.uploads.turn(came.peer, came.timeout).await?;
        let (feed, mut pieces) = upload::pipe();
        let (client_api, queue) = (self.client_api(), queue.clone());
        let stored = blocking(move || client_api.store(&queue, length, &mut pieces));
        let fed = async {
            let (mut bytes, mut took) = (first.len() as u64, Duration::ZERO);
            let mut wanted = feed.give(first).await;
            // Nobody reads what is not wanted, so that the reply is.
            while wanted {
                let since = Instant::now();
                let piece = came.piece().await?;
                took += since.elapsed();
                match piece {
                    Some(piece) => {
                        bytes += piece.len() as u64;
                        if is_slow(bytes, took, came.timeout) {
                            return Err(quintet_http::Problem::TooSlow.into());
                        }
                        wanted = feed.give(piece).await;
                    }
                    None => {
                        feed.end().await;
                        break;
                    }
                }
            }
            Ok(())
        };
        let (stored, fed) = tokio::join!(stored, fed);
        match stored? {
            Ok(body) => fed.map(|()| body),
            Err(StoreError::Refused(command_error)) => Err(Problem::refused(command_error)),
            Err(StoreError::Source(_)) => {
                fed?;
                Err(quintet_http::Problem::BrokeOff.into())
            }
        }
    }
}

/// Where a message is taken from.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct From {
    /// Of several queues the best message over all of them comes.
    queues: Vec<String>,
    /// How long to wait for it, 60 s at most.
    #[serde(default)]
    wait_ms: u64,
}

/// Takes a message out of its queue: it is gone when the reply begins to leave. The reply has it
/// with all that is known of it and its body as it is; none: there was no message in time.
#[utoipa::path(post, path = "/api/v1/take", operation_id = "take_message", tag = "messages", request_body = From,
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>, description = "a line of JSON, then the bodies")))]
pub(super) async fn take(Call { api, requester }: Call, request: Request) -> Answer {
    let connection_slot = request.extensions().get::<Arc<ConnectionSlot>>().cloned();
    let (requested, _share): (From, _) = read::body(&api.app, request).await?;
    if requested.queues.is_empty() {
        return Err(Problem::field("queues", "takes one queue at least"));
    }
    if requested.queues.len() > QUEUES_MAX {
        let why = format!("takes at most {QUEUES_MAX} queues");
        return Err(Problem::field("queues", why));
    }
    let wait = read::wait(requested.wait_ms)?;
    let queues = requested.queues.iter().map(|queue| read::queue(queue));
    let take = Take {
        queues: queues.collect::<Result<_, _>>()?,
        wait,
        messages_max: 1,
        ..Take::default()
    };
    let consumer = Consumer {
        protocol: "http",
        user: requester.name(),
        worker: None,
    };
    let waits = (requested.wait_ms > 0).then(Instant::now);
    let (undo, queue) = api
        .take(&requester, take, None, consumer, connection_slot)
        .await?;
    let waited = waits.map(|since| Extension(Waited(since.elapsed())));
    let all = undo.messages().iter().map(|message| (message, None));
    let records = records(&api, all, &queue, Bodies::Whole, None)?;
    Ok((waited, Extension(Leaving::new(undo)), records).into_response())
}
