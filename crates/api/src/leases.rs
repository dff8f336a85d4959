//! Reserving, and the ends of leases. A lease is named by a token, which is of
//! no use when it is over.

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use hyper::header::USER_AGENT;
use hyper::{StatusCode, Uri};
use quintet_types::{
    BackTo, BulkOp, By, ClientId, Command, Keys, LeaseOwner, LeaseRequest, LeaseTime, ListState,
    Outcome, Take,
};

use super::call::{Answer, Call, Of, OfQueue, RequestBody};
use super::gather::Reserve;
use super::lease_events::{HeldLeases, name_cancelled};
use super::messages::{idempotency_key, if_still};
use super::path::Path;
use super::problem::Problem;
use super::types::{
    Bury, CancelNotice, Ends, Extend, Fail, Finish, Leased, Leases, MessageView, Page, Progress,
    Release,
};
use super::{Api, bulk, hold, read};
use quintet_http::{ConnectionSlot, Consumer, Leaving, Requester, WORKER_MAX, Waited, held, reply};

/// Messages reserved at once at most.
const BATCH_MAX: u32 = 100;
/// A lease of a message without a deadline, in a queue without a default, ms: nothing else would
/// end it after its worker is gone.
const LEASE_WITHOUT_TTR_MS: u64 = 60_000;
/// A lease lasts so long at most, ms.
const LEASE_MAX_MS: u64 = 7 * 24 * 3600 * 1000;

pub(super) fn lease_ms(supplied: Option<u64>) -> Result<Option<u64>, Problem> {
    match supplied {
        Some(ms) if !(1..=LEASE_MAX_MS).contains(&ms) => {
            let detail = format!("takes 1 to {LEASE_MAX_MS} ms, which is a week; not {ms}");
            Err(Problem::field("lease_ms", detail))
        }
        supplied => Ok(supplied),
    }
}

/// Lists the leases of a queue: which messages are being worked on, by whom and
/// for how long yet.
#[utoipa::path(get, path = "/api/v1/queues/{queue}/leases", tag = "leases",
    params(("queue" = String, Path),
        ("max" = Option<u64>, Query, description = "1 to 1000; 100 if left out"),
        ("cursor" = Option<String>, Query, description = "of the page before")),
    responses((status = 200, body = Leases)))]
pub(super) async fn list(Of(api, requester, queue): OfQueue, uri: Uri) -> Answer {
    let query = read::Query::of(&uri, &["max", "cursor"], &[])?;
    let after = query.get("cursor").map(bulk::cursor).transpose()?;
    let bulk_op = BulkOp {
        after,
        ..BulkOp::show(queue, ListState::Reserved, read::page_size(&query)?)
    };
    let (bulk_done, _room) = api.bulk_done(&requester, bulk_op).await?;
    // None of them is of a connection, mostly.
    let asks = bulk_done
        .leases
        .iter()
        .any(|lease| lease.client_id != ClientId(0));
    let holders = match asks {
        true => api.holders(&requester).await?,
        false => Default::default(),
    };
    let now = api.client_api.now();
    let leases = bulk_done.messages.iter().zip(&bulk_done.leases);
    Ok(reply::document(&Leases {
        leases: leases
            .map(|(message, lease)| {
                let by = (lease.client_id, lease.bound);
                let holder = api.holder(&requester, by, &holders);
                Leased::of(message, lease, holder, now)
            })
            .collect(),
        cursor: bulk_done.next.map(bulk::cursor_text),
    }))
}

/// Reserves messages: nobody else gets them until their leases end. Each comes
/// with a lease, a token for what follows; it survives this connection and a
/// restart of the server, and ends by itself when its time is over. With
/// `linger_ms` the reply waits for `min` messages once there is one; with
/// `one_key` it has messages of a single key. With `Idempotency-Key` a repeat
/// within five minutes gets the same messages and leases, whose time begins
/// anew, as long as all of them last as they were given.
#[utoipa::path(post, path = "/api/v1/queues/{queue}/reserve", operation_id = "reserve_messages", tag = "leases",
    params(("queue" = String, Path), ("Idempotency-Key" = Option<String>, Header),
        ("Quintet-Leases" = Option<String>, Header, description = "leases that the worker holds, up to 32, with commas; those whose messages are cancelled are in the reply's header `Quintet-Cancelled`")),
    request_body = Reserve,
    responses((status = 200, body = Page, description = "no messages: there were none in time")))]
pub(super) async fn reserve(Of(api, requester, queue): OfQueue, request: Request) -> Answer {
    // Others' keys are others.
    let token = idempotency_key(request.headers())?
        .map(|key| format!("{:?} {key}", requester.principal()).into_bytes());
    let held_leases = HeldLeases::of(request.headers())?;
    let connection_slot = request.extensions().get::<Arc<ConnectionSlot>>().cloned();
    let agent = request.headers().get(USER_AGENT);
    let agent = agent
        .and_then(|agent| agent.to_str().ok())
        .map(str::to_owned);
    let (requested, _share): (Reserve, _) = read::body(&api.app, request).await?;
    let max = requested.max.unwrap_or(1);
    if !(1..=BATCH_MAX).contains(&max) {
        let why = format!("takes a number from 1 to {BATCH_MAX}; not {max}");
        return Err(Problem::field("max", why));
    }
    let wait = read::wait(requested.wait_ms)?;
    let time = lease_ms(requested.lease_ms)?;
    let gather = requested.gather(max)?;
    let worker = worker(requested.worker, agent)?;
    let consumer = Consumer {
        protocol: "http",
        user: requester.name(),
        worker: worker.map(Into::into),
    };
    // As earlier versions sum it, unless one key is requested.
    let token_of = match requested.one_key {
        true => serde_json::json!([max, time, requested.min, true]),
        false => serde_json::json!([max, time, requested.min]),
    };
    let take = Take {
        queues: [queue].into_iter().collect(),
        lease: Some(LeaseRequest {
            owner: LeaseOwner::Time,
            time: time.map_or(
                LeaseTime::TtrOrDefaultElse(LEASE_WITHOUT_TTR_MS),
                LeaseTime::Fixed,
            ),
            back_to: BackTo::Position,
            held_max: 0,
        }),
        wait,
        keys: requested.one_key.then(|| Box::new(Keys::One)),
        messages_max: max,
        token: token.map(Vec::into_boxed_slice),
        // Each try may wait for another time.
        token_sum: read::sum(token_of.to_string().as_bytes()),
        ..Take::default()
    };
    let waits = (requested.wait_ms > 0 || gather.is_some()).then(Instant::now);
    let (undo, queue) = api
        .take(&requester, take, gather, consumer, connection_slot)
        .await?;
    let waited = waits.map(|since| Extension(Waited(since.elapsed())));
    let now = api.client_api.now();
    // The messages are there, and are copied into the reply.
    let sizes = undo.messages().iter().map(|message| {
        let body = message.body.as_small().map_or(0, <[u8]>::len) as u64;
        2 * (body + message.extra_bytes())
    });
    let _room = held::room(api.app.settings(), sizes.sum())?;
    let leased = undo.messages().iter();
    let messages = leased
        .map(|message| MessageView::leased(message, &queue, now))
        .collect();
    let cursor = None;
    let mut response = reply::document(&Page { messages, cursor });
    api.notify_cancelled(&requester, held_leases, &mut response)
        .await;
    Ok((waited, Extension(Leaving::new(undo)), response).into_response())
}

/// The name of a worker, as it says, or its `User-Agent`.
fn worker(supplied: Option<String>, agent: Option<String>) -> Result<Option<String>, Problem> {
    let fits = |name: &String| (1..=WORKER_MAX).contains(&name.len());
    match supplied {
        Some(worker) if !fits(&worker) => {
            let why = format!("takes 1 to {WORKER_MAX} bytes");
            Err(Problem::field("worker", why))
        }
        Some(worker) => Ok(Some(worker)),
        None => Ok(agent.filter(fits)),
    }
}

/// The reply to the holder of a lease: 204, or that the message is cancelled.
pub(super) fn cancel_response(outcome: &Outcome) -> Response {
    match *outcome == Outcome::Cancelled {
        true => reply::document(&CancelNotice { cancelled: true }),
        false => StatusCode::NO_CONTENT.into_response(),
    }
}

impl Api {
    /// Ends the lease of this token.
    async fn end(&self, requester: &Requester, token: &str, end: impl Ends) -> Answer {
        let holds = end.holds();
        let settle = hold::settle(end.how()?, holds)?;
        let held = self.to_be_held(token, holds).await;
        let response = self.settle(requester, token, settle).await?;
        Ok(hold::noted(response, held))
    }

    /// Does it to the message of a lease, if the lease still is.
    async fn settle(
        &self,
        requester: &Requester,
        token: &str,
        command: impl FnOnce(quintet_types::MessageId) -> Command,
    ) -> Result<Response, Problem> {
        let (id, seen) = read::lease(token)?;
        let command = if_still(id, seen, command(id));
        match self.ask(requester, command).await {
            Ok((outcome, _)) => {
                let outcome = outcome.of_command();
                let mut response = cancel_response(&outcome);
                if outcome == Outcome::Cancelled {
                    name_cancelled(&mut response, &[token]);
                }
                Ok(response)
            }
            Err(problem) if matches!(problem.code, "conflict" | "not_found") => {
                Err(Problem::lease_over())
            }
            Err(problem) => Err(problem),
        }
    }
}

macro_rules! ends {
    ($($(#[$doc:meta])* $end:ident $path:tt $body:ident;)*) => {$(
        $(#[$doc])*
        #[utoipa::path(post, path = $path, tag = "leases",
            params(("token" = String, Path)), request_body = $body,
            responses((status = 204), (status = 409, body = Problem, content_type = "application/problem+json", description = "the lease is over")))]
        pub(super) async fn $end(
            Call { api, requester }: Call,
            Path(token): Path<String>,
            RequestBody(end, _share): RequestBody<$body>,
        ) -> Answer {
            api.end(&requester, &token, end).await
        }
    )*};
}

ends! {
    /// The message is done, and gone or kept with its result.
    finish "/api/v1/leases/{token}/finish" Finish;
    /// The message goes back to its queue.
    release "/api/v1/leases/{token}/release" Release;
    /// The try failed: the message rests and is tried again, or not, as the queue's policy says.
    fail "/api/v1/leases/{token}/fail" Fail;
    /// The message is set aside until somebody acts.
    bury "/api/v1/leases/{token}/bury" Bury;
}

/// Says how far the work has come; the message and the leases of its queue show it.
#[utoipa::path(post, path = "/api/v1/leases/{token}/progress", operation_id = "report_progress", tag = "leases",
    params(("token" = String, Path)), request_body = Progress,
    responses((status = 204), (status = 200, body = CancelNotice, description = "the message is cancelled"), (status = 409, body = Problem, content_type = "application/problem+json", description = "the lease is over")))]
pub(super) async fn progress(
    Call { api, requester }: Call,
    Path(token): Path<String>,
    RequestBody(supplied, _share): RequestBody<Progress>,
) -> Answer {
    if supplied.percent.is_some_and(|percent| percent > 100) {
        return Err(Problem::field("percent", "takes a number from 0 to 100"));
    }
    let text = supplied.text.map(|text| text.into_bytes().into());
    let by = By::Anyone;
    let progress = |id| Command::Progress {
        id,
        by,
        percent: supplied.percent,
        text,
    };
    api.settle(&requester, &token, progress).await
}

/// The lease lasts longer.
#[utoipa::path(post, path = "/api/v1/leases/{token}/extend", tag = "leases",
    params(("token" = String, Path)), request_body = Extend,
    responses((status = 204), (status = 200, body = CancelNotice, description = "the message is cancelled"), (status = 409, body = Problem, content_type = "application/problem+json", description = "the lease is over")))]
pub(super) async fn extend(
    Call { api, requester }: Call,
    Path(token): Path<String>,
    RequestBody(supplied, _share): RequestBody<Extend>,
) -> Answer {
    let ms = lease_ms(supplied.lease_ms)?;
    api.settle(&requester, &token, |id| {
        let by = By::Anyone;
        Command::Extend { id, by, ms }
    })
    .await
}
