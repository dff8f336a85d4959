//! News of a lease for the worker that holds it: a stream, and a header of other replies.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Extension;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use quintet_types::{AwaitLease, Command, LeaseNews, LeaseState, Ms, Outcome};
use serde::Serialize;
use utoipa::ToSchema;

use super::bytes_in_json::{base64_unless_text, lossy};
use super::call::{Answer, Call};
use super::path::Path;
use super::problem::{LEASE_OVER, Problem};
use super::streamed::streamed;
use super::{Api, read};
use quintet_http::{ConnectionSlot, Requester};

/// A request with the tokens of leases that its worker holds.
const LEASES: HeaderName = HeaderName::from_static("quintet-leases");
/// A reply with those of them whose messages are cancelled.
const CANCELLED: HeaderName = HeaderName::from_static("quintet-cancelled");

/// Leases of one request at most.
const LEASES_MAX: usize = 32;

/// A stream says after so many ms without news that it is there.
const QUIET_MS: u64 = 15_000;

/// The data of an event of a lease.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(super) struct LeaseEvent {
    /// The id of the leased message.
    id: u64,
    /// Of `lease` and `cancelled`: it lasts so long yet; null: it has no deadline.
    left_ms: Option<u64>,
    /// When that ends, ms since 1970.
    until_ms: Option<u64>,
    /// Of `cancelled`: the reason that the canceller gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason_base64: Option<String>,
    /// Of `ended`: `waiting` (the message is in a queue again), or how the message ended: `done`,
    /// `failed`, `dead`, `expired`, `cancelled`, `gone`, `moved`, or `unknown` if the server does
    /// not know that any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
}

impl LeaseEvent {
    fn of(ask: &AwaitLease, news: &LeaseNews, now: Ms) -> Self {
        Self {
            id: ask.id.0,
            left_ms: news.until.map(|until| until.since(now)),
            until_ms: news.until.map(|until| until.0),
            ..Self::default()
        }
    }

    fn server_sent(&self, event: &str) -> String {
        let data = serde_json::to_string(self).unwrap_or_default();
        format!("event: {event}\ndata: {data}\n\n")
    }
}

/// The events that a client does not know yet.
fn describe(ask: &AwaitLease, news: &LeaseNews, now: Ms) -> String {
    let event = LeaseEvent::of(ask, news, now);
    let (knew_cancelled, until) = ask.known.unwrap_or_default();
    let lasts = news.state == LeaseState::Held;
    let mut text = String::new();
    if let Some(cancelled) = news.cancelled.as_ref().filter(|_| !knew_cancelled) {
        let event = LeaseEvent {
            reason: Some(lossy(&cancelled.reason)),
            reason_base64: base64_unless_text(&cancelled.reason),
            ..event
        };
        text += &event.server_sent("cancelled");
    } else if lasts && (ask.known.is_none() || until != news.until) {
        text += &event.server_sent("lease");
    }
    match news.state {
        LeaseState::Held => text,
        LeaseState::Back => text + &ended(ask, "waiting"),
        LeaseState::Ended(state) => text + &ended(ask, state.word()),
    }
}

/// The last event.
fn ended(ask: &AwaitLease, state: &'static str) -> String {
    let event = LeaseEvent {
        id: ask.id.0,
        state: Some(state),
        ..LeaseEvent::default()
    };
    event.server_sent("ended")
}

/// News of a lease as server-sent events: `lease` at once and whenever its end changes,
/// `cancelled` when its message is cancelled, and `ended`, the last one. Who may extend the lease
/// may hear them.
#[utoipa::path(get, path = "/api/v1/leases/{token}/events", operation_id = "lease_events", tag = "leases",
    params(("token" = String, Path)),
    responses((status = 200, description = "events `lease`, `cancelled` and `ended`, whose data is a LeaseEvent",
            content((LeaseEvent = "text/event-stream"))),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "the lease is over"),
        (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn stream(
    Call { api, requester }: Call,
    slot: Option<Extension<Arc<ConnectionSlot>>>,
    Path(token): Path<String>,
) -> Answer {
    let slot = slot.map(|Extension(slot)| slot);
    let mut ask = asks(&token)?;
    let place = api.stream_place()?;
    // A lease that is over is an error before the stream begins.
    let first = api.lease_news(&requester, ask).await?;
    let Some(first) = first.filter(|news| news.state == LeaseState::Held) else {
        return Err(Problem::lease_over());
    };
    let text = describe(&ask, &first, api.client_api.now());
    ask.known = Some((first.cancelled.is_some(), first.until));
    ask.wait_ms = QUIET_MS;
    let open = place.open(&api, slot.as_deref());
    let state = (api, requester, Some(ask), Some(text), (place, open));
    let body = stream::unfold(state, async |(api, requester, mut ask, mut first, kept)| {
        let text = match first.take() {
            Some(first) => first,
            None => {
                // The lease has ended.
                let waits = ask.as_mut()?;
                match api.lease_news(&requester, *waits).await {
                    // The client has gone away, or the server stops.
                    Ok(None) if is_let_go(&requester) => return None,
                    Ok(None) => ": it lasts\n\n".to_owned(),
                    Ok(Some(news)) => {
                        let text = describe(waits, &news, api.client_api.now());
                        waits.known = Some((news.cancelled.is_some(), news.until));
                        ask = ask.filter(|_| news.state == LeaseState::Held);
                        text
                    }
                    // It ended between two waits, and no record of that is left.
                    Err(over) if over.code == LEASE_OVER => {
                        let text = ended(waits, "unknown");
                        ask = None;
                        text
                    }
                    Err(_) => return None,
                }
            }
        };
        let state = (api, requester, ask, first, kept);
        Some((Ok::<_, Infallible>(Bytes::from(text)), state))
    });
    Ok(streamed(Body::from_stream(body)))
}

/// Asks how a lease is, without a wait.
fn asks(token: &str) -> Result<AwaitLease, Problem> {
    let (id, seen) = read::lease(token)?;
    Ok(AwaitLease {
        id,
        seen,
        known: None,
        wait_ms: 0,
    })
}

fn is_let_go(requester: &Requester) -> bool {
    use futures_util::FutureExt as _;
    let client = requester.client.as_deref();
    // Without a client nothing would end the stream but its lease.
    client.is_none_or(|client| client.is_let_go().now_or_never().is_some())
}

/// Leases that a worker holds, as it says in the header `Quintet-Leases`.
pub(super) struct HeldLeases(Vec<(String, AwaitLease)>);

impl HeldLeases {
    /// # Errors
    /// They are too many, or no tokens.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let texts = headers.get_all(LEASES).iter().map(HeaderValue::to_str);
        let mut held = Vec::new();
        for text in texts {
            let text = text.map_err(|_| Problem::field("Quintet-Leases", "tokens of leases"))?;
            for token in text.split(',').map(str::trim) {
                if held.len() == LEASES_MAX {
                    let detail = format!("at most {LEASES_MAX} leases");
                    return Err(Problem::field("Quintet-Leases", detail));
                }
                held.push((token.to_owned(), asks(token)?));
            }
        }
        Ok(Self(held))
    }
}

/// Names leases whose messages are cancelled in a reply.
pub(super) fn name_cancelled(response: &mut Response, tokens: &[&str]) {
    if let Ok(value) = HeaderValue::from_str(&tokens.join(", ")) {
        response.headers_mut().insert(CANCELLED, value);
    }
}

impl Api {
    /// Names in a reply those of these leases whose messages are cancelled, or that ended so.
    pub(super) async fn notify_cancelled(
        &self,
        requester: &Requester,
        held: HeldLeases,
        response: &mut Response,
    ) {
        let mut tokens = Vec::new();
        for (token, ask) in &held.0 {
            // One that is over and unknown is no news.
            if let Ok(Some(news)) = self.lease_news(requester, *ask).await
                && news.is_cancelled()
            {
                tokens.push(token.as_str());
            }
        }
        if !tokens.is_empty() {
            name_cancelled(response, &tokens);
        }
    }

    /// The state of a lease that is not the one that is known; `None`: there was none in time.
    async fn lease_news(
        &self,
        requester: &Requester,
        ask: AwaitLease,
    ) -> Result<Option<LeaseNews>, Problem> {
        match self.waiting(requester, Command::AwaitLease(ask)).await {
            Ok(Outcome::Lease(news)) => Ok(Some(*news)),
            Ok(_) => Ok(None),
            Err(problem) if problem.code == "not_found" => Err(Problem::lease_over()),
            Err(problem) => Err(problem),
        }
    }
}
