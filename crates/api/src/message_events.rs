//! Events of messages, from the log: pages, and streams of them.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{FutureExt as _, stream};
use hyper::header::ACCEPT;
use hyper::{HeaderMap, Uri};
use quintet_client::{Event, EventKind, EventsPage, EventsRequest, News, NoEvents, Since};
use quintet_types::{Name, Pattern};
use serde::Serialize;
use tokio::sync::Notify;
use utoipa::ToSchema;

use super::problem::Problem;
use super::read::WAIT_MAX_MS;
use super::results::Place;
use super::streamed::{QUEUES_MAX, streamed};
use super::{Api, blocking, let_go, read};
use quintet_http::{Client, ConnectionSlot, Requester, Waited, reply};

/// A log that goes on is read this often at most for a reader that waits.
const GATHER: Duration = Duration::from_millis(20);
/// It is looked for new events this often at least, and streams say that they are there.
const LOOK: Duration = Duration::from_secs(1);
/// After so many looks without an event a stream says where it is, for a client to go on there.
const QUIET: u32 = 15;
/// Bytes of a stream's pages, about.
const STREAM_PAGE: usize = 32 << 10;

/// Events of messages, in the order of the log.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct MessageEvents {
    pub(super) events: Vec<Event>,
    /// The position behind this page; send it as `since` of the next request.
    pub(super) next: String,
    /// There may be more behind these at once.
    pub(super) more: bool,
}

impl From<EventsPage> for MessageEvents {
    fn from(page: EventsPage) -> Self {
        Self {
            events: page.events.iter().map(Event::from).collect(),
            next: page.next,
            more: page.more,
        }
    }
}

/// The client accepts a stream.
fn wants_stream(headers: &HeaderMap) -> bool {
    let accepts = headers
        .get(ACCEPT)
        .and_then(|accepts| accepts.to_str().ok());
    accepts.is_some_and(|accepts| accepts.trim_start().starts_with("text/event-stream"))
}

/// The place of the request, if it asks for what happened to messages. The position that a stream
/// ended with comes before the one it began with.
pub(super) fn since(uri: &Uri, headers: &HeaderMap) -> Option<Since> {
    let last = headers.get("last-event-id");
    let last = last.filter(|_| wants_stream(headers));
    let last = last.and_then(|last| last.to_str().ok());
    let query = uri.query().unwrap_or_default().as_bytes();
    let supplied = form_urlencoded::parse(query).find(|(name, _)| name == "since");
    let (_, supplied) = supplied?;
    Some(Since::of(last.unwrap_or(&supplied)))
}

/// A page, or a stream if the client accepts nothing but that.
///
/// # Errors
/// A parameter is wrong, the log does not have the position, too many wait.
pub(super) async fn answer(
    api: Arc<Api>,
    requester: Requester,
    slot: Option<Arc<ConnectionSlot>>,
    (since, uri, headers): (Since, Uri, HeaderMap),
) -> Result<Response, Problem> {
    let query = read::Query::of(&uri, &["since", "kinds", "max", "wait_ms"], &["queue"])?;
    let wait_ms = query.number("wait_ms", WAIT_MAX_MS)?.unwrap_or(0);
    let kinds = query.get("kinds").map(EventKind::list).transpose();
    let queues = query.all("queue");
    let queues: Vec<_> = queues
        .map(|name| Pattern::of_name(Name::of_shown(name).as_bytes()))
        .collect();
    if queues.len() > QUEUES_MAX {
        let why = format!("takes at most {QUEUES_MAX} queues");
        return Err(Problem::field("queue", why));
    }
    let is_stream = wants_stream(&headers);
    let request = EventsRequest {
        since,
        queues,
        kinds: kinds
            .map_err(|why| Problem::field("kinds", why))?
            .unwrap_or_default(),
        max: read::page_size(&query)?,
        bytes: if is_stream { STREAM_PAGE } else { usize::MAX },
        principal: requester.principal(),
    };
    if is_stream {
        return stream_of(api, requester, slot, request).await;
    }
    let began = Instant::now();
    let wait = Duration::from_millis(wait_ms);
    let client = requester.client.as_deref();
    let _apart = match wait_ms {
        0 => None,
        _ => Place::at(slot).wait(client)?,
    };
    let (page, _) = api.events_after(request, wait, client).await?;
    let mut response = reply::document(&MessageEvents::from(page));
    if wait_ms > 0 {
        response.extensions_mut().insert(Waited(began.elapsed()));
    }
    Ok(response)
}

/// Server-sent events, each with the position behind it where that is known as its id.
async fn stream_of(
    api: Arc<Api>,
    requester: Requester,
    slot: Option<Arc<ConnectionSlot>>,
    mut request: EventsRequest,
) -> Result<Response, Problem> {
    let place = api.stream_place()?;
    // A position that is wrong is an error before the stream begins.
    let page = api.events_page(&request).await?;
    request.since = Since::Position(page.next.clone());
    let open = place.open(&api, slot.as_deref());
    // The first page is sent whatever is in it.
    let state = (api, requester, request, Some(page), QUIET, (place, open));
    let body = stream::unfold(
        state,
        async |(api, requester, mut request, mut first, mut quiet, kept)| {
            let client = requester.client.as_deref();
            let text = loop {
                let page = match first.take() {
                    Some(page) => page,
                    // More may always be there: it ends all the same.
                    None if is_let_go(client) => return None,
                    None => {
                        let read = api.events_after(request.clone(), LOOK, client).await;
                        // The client asks again and gets the error.
                        let (page, let_go) = read.ok()?;
                        if let_go {
                            return None;
                        }
                        page
                    }
                };
                request.since = Since::Position(page.next.clone());
                if !page.events.is_empty() || quiet >= QUIET {
                    break server_sent(page);
                }
                quiet += 1;
            };
            let state = (api, requester, request, first, 1, kept);
            Some((Ok::<_, Infallible>(Bytes::from(text)), state))
        },
    );
    Ok(streamed(Body::from_stream(body)))
}

/// A page as one server-sent event: its id is the position to go on from.
fn server_sent(page: EventsPage) -> String {
    let page = MessageEvents::from(page);
    let mut text = String::new();
    // Text takes whatever is written.
    let _whole = write!(
        text,
        "event: messages\nid: {}\ndata: {}\n\n",
        page.next,
        serde_json::to_string(&page).unwrap_or_default()
    );
    text
}

/// The client has gone away, or the server stops.
fn is_let_go(client: Option<&Client>) -> bool {
    client.is_some_and(|client| client.is_let_go().now_or_never().is_some())
}

impl Api {
    /// The next events; waits for one that long, until the client goes away or the server stops:
    /// then without events and with true.
    async fn events_after(
        &self,
        mut request: EventsRequest,
        wait: Duration,
        client: Option<&Client>,
    ) -> Result<(EventsPage, bool), Problem> {
        let began = Instant::now();
        loop {
            let page = self.events_page(&request).await?;
            let left = wait.saturating_sub(began.elapsed());
            if !page.events.is_empty() || left.is_zero() {
                return Ok((page, false));
            }
            let let_go = match page.more {
                true => is_let_go(client),
                false => !self.news(&page.next, client, left).await,
            };
            if let_go {
                return Ok((page, true));
            }
            request.since = Since::Position(page.next);
        }
    }

    async fn events_page(&self, request: &EventsRequest) -> Result<EventsPage, Problem> {
        // Those who wait for a page hold no thread.
        let place = Arc::clone(&self.event_reads).acquire_owned().await;
        let (client_api, request) = (self.client_api(), request.clone());
        let read = move || {
            let _place = place;
            client_api.events(&request)
        };
        blocking(read).await?.map_err(|no| match no {
            NoEvents::Malformed => Problem::field("since", no.to_string()),
            NoEvents::Failed(_) => Problem::internal(no.to_string()),
            NoEvents::Gone { ref oldest, .. } => Problem::position_gone(oldest, no.to_string()),
        })
    }

    /// Returns when there may be events behind a position; false: the client is gone, or the server
    /// stops.
    async fn news(&self, next: &str, client: Option<&Client>, left: Duration) -> bool {
        let notify = Arc::new(Notify::new());
        let notified = Arc::clone(&notify);
        let news: News = Arc::new(move || notified.notify_one());
        let watch = async {
            if !self.client_api.await_events(next, &news) {
                // A server that syncs its log seldom has it synced by the next look.
                let _late = tokio::time::timeout(LOOK.min(left), notify.notified()).await;
            }
            tokio::time::sleep(GATHER.min(left)).await;
        };
        tokio::select! {
            () = let_go(client) => false,
            () = watch => true,
        }
    }
}
