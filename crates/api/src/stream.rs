//! Server-sent events: what changes in queues, as it changes.

use std::future::pending;
use std::sync::Arc;

use axum::extract::Extension;
use hyper::{HeaderMap, Uri};
use quintet_types::{Command, CommandError, Name, Outcome, Principal, StatsOf, StatsReply};

use super::call::{Answer, Call};
use super::message_events::{self, MessageEvents};
use super::problem::Problem;
use super::streamed::{QUEUES_MAX, streamed};
use super::{Api, read};
use crate::events::{Figures, Queues, Selection};
use quintet_http::ConnectionSlot;

/// Bytes of their names as they are shown, so that an event is below 64 KiB.
const NAMES_MAX: usize = 16 << 10;

/// With `since`: what happened to messages behind that position, from the log; as JSON, or as
/// server-sent events `messages` for who accepts `text/event-stream`. Without: changes in queues,
/// every 2 s, as server-sent events: first all of them, then those that changed, with null for one
/// that is gone; `queue` selects them, up to 100; without it the first 100 in the order of the
/// list.
#[utoipa::path(get, path = "/api/v1/events", tag = "queues",
    params(("since" = Option<String>, Query, description = "now, oldest, or `next` of the reply before"),
        ("queue" = Option<Vec<String>>, Query, description = "a queue, with `since` a pattern; up to 100 times"),
        ("kinds" = Option<String>, Query, description = "with `since`: only these kinds, with commas"),
        ("max" = Option<u32>, Query, description = "with `since`: most events"),
        ("wait_ms" = Option<u64>, Query, description = "with `since`: waits so long for an event, 60000 at most")),
    responses((status = 200, description = "with `since`: the events; without: events `queues`, whose data is an object of Figures, or null, by name",
            content((MessageEvents = "application/json"), (String = "text/event-stream"))),
        (status = 410, body = Problem, content_type = "application/problem+json", description = "the log does not have this position; `oldest` is the first one it has"),
        (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn stream(
    Call { api, requester }: Call,
    connection_slot: Option<Extension<Arc<ConnectionSlot>>>,
    uri: Uri,
    headers: HeaderMap,
) -> Answer {
    let connection_slot = connection_slot.map(|Extension(connection_slot)| connection_slot);
    if let Some(since) = message_events::since(&uri, &headers) {
        let requested = (since, uri, headers);
        return message_events::answer(api, requester, connection_slot, requested).await;
    }
    let queues = wanted(&uri)?;
    let place = api.stream_place()?;
    let hub = &api.events;
    let principal = requester.principal();
    for queue in queues.iter().flatten() {
        if let Err(command_error @ CommandError::NotPermitted) = api.figures(principal, queue).await
        {
            return Err(Problem::refused(command_error));
        }
    }
    let of = Selection {
        queues: queues.clone(),
        principal,
    };
    let reader_api = Arc::clone(&api);
    let reader = hub.follow(of, move || {
        let (api, queues) = (Arc::clone(&reader_api), queues.clone());
        async move { api.visible_queues(principal, queues.as_deref()).await }
    });
    let open = place.open(&api, connection_slot.as_deref());
    Ok(streamed(reader.body(connection_slot, open, place)))
}

/// The queues of the query, in order and each once.
fn wanted(uri: &Uri) -> Result<Option<Vec<Name>>, Problem> {
    let query = read::Query::of(uri, &[], &["queue"])?;
    let names = query.all("queue").map(read::queue);
    let mut names = names.collect::<Result<Vec<_>, _>>()?;
    names.sort();
    names.dedup();
    let bytes: usize = names.iter().map(|name| name.to_string().len()).sum();
    if names.len() > QUEUES_MAX || bytes > NAMES_MAX {
        let text = format!("takes at most {QUEUES_MAX} queues, and {NAMES_MAX} bytes of names");
        return Err(Problem::field("queue", text));
    }
    Ok((!names.is_empty()).then_some(names))
}

impl Api {
    async fn figures(&self, principal: Principal, queue: &Name) -> Result<Figures, CommandError> {
        let command = Command::Stats(StatsOf::Queue(queue.clone()));
        match self.submit(principal, None, command, pending()).await {
            Some((Outcome::Stats(stats), _)) => {
                let StatsReply::Queue(stats) = *stats else {
                    return Err(CommandError::NotFound);
                };
                Ok(Figures::of(&stats, self.client_api.rates(queue)))
            }
            Some((Outcome::Refused(command_error), _)) => Err(command_error),
            // It is stopping: nothing is known.
            Some(_) | None => Err(CommandError::Draining),
        }
    }

    /// Reads the visible queues of a selection. `None`: the server is stopping.
    async fn visible_queues(
        &self,
        principal: Principal,
        queues: Option<&[Name]>,
    ) -> Option<Queues> {
        let Some(queues) = queues else {
            return self.first_ones(principal).await;
        };
        let mut seen = Queues::new();
        for queue in queues {
            match self.figures(principal, queue).await {
                Ok(figures) => drop(seen.insert(queue.to_string(), figures)),
                Err(CommandError::Draining) => return None,
                // One that is not there, or may be seen no longer.
                Err(_) => {}
            }
        }
        Some(seen)
    }

    /// Looks at the first queues of the list.
    async fn first_ones(&self, principal: Principal) -> Option<Queues> {
        let mut seen = Queues::new();
        let (mut next, mut bytes) = (Some((0, 0)), 0);
        while let Some(from) = next.take() {
            let command = Command::Stats(StatsOf::Queues { from });
            let (outcome, _) = self.submit(principal, None, command, pending()).await?;
            let Outcome::Stats(stats) = outcome else {
                break;
            };
            let StatsReply::Queues(page) = *stats else {
                break;
            };
            for stats in &page.queues {
                let name = stats.name.to_string();
                bytes += name.len();
                if seen.len() == QUEUES_MAX || bytes > NAMES_MAX {
                    return Some(seen);
                }
                seen.insert(name, Figures::of(stats, self.client_api.rates(&stats.name)));
            }
            next = page.next;
        }
        Some(seen)
    }
}
