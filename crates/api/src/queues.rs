//! Queues: lists, numbers, pauses, an end.

use axum::Extension;
use axum::response::IntoResponse;
use hyper::{StatusCode, Uri};
use quintet_client::{Did, SetBy};
use quintet_types::{Command, Name, Operation, Outcome, Pattern, QueueStats, Tags};
use serde_json::Value;

use super::call::{Answer, Call, Of, OfQueue, RequestBody};
use super::problem::Problem;
use super::types::{Child, Dropped, Named, PastOfQueue, PauseFor, Queues};
use super::{Api, read, types};
use quintet_http::{DoneWith, Requester, reply};

impl Api {
    /// A queue's numbers, and how fast it moves.
    fn queue(&self, stats: &QueueStats) -> Value {
        let recent = self.client_api.recent(stats);
        types::queue(stats, self.client_api.rates(&stats.name), recent.as_ref())
    }

    async fn pause(&self, requester: &Requester, queue: Name, for_ms: Option<u64>) -> Answer {
        let name = queue.clone();
        let outcome = self.ask(requester, Command::Pause { queue, for_ms }).await;
        outcome.map_err(|problem| problem.of_queue(&name).of_pause())?;
        Ok(StatusCode::NO_CONTENT.into_response())
    }
}

/// Lists queues in the order they were created, some hundred at a time.
#[utoipa::path(get, path = "/api/v1/queues", tag = "queues",
    params(("cursor" = Option<String>, Query, description = "of the page before")),
    responses((status = 200, body = Queues)))]
pub(super) async fn list(Call { api, requester }: Call, uri: Uri) -> Answer {
    let query = read::Query::of(&uri, &["cursor"], &[])?;
    let page = api.queue_page(&requester, from(&query)?).await?;
    Ok(reply::document(&Queues {
        queues: page.queues.iter().map(|stats| api.queue(stats)).collect(),
        cursor: page.next.map(cursor),
    }))
}

/// Numbers of a queue: what it holds, and what went through it.
#[utoipa::path(get, path = "/api/v1/queues/{queue}", tag = "queues",
    params(("queue" = String, Path)), responses((status = 200, body = Object)))]
pub(super) async fn show(Of(api, requester, queue): OfQueue, uri: Uri) -> Answer {
    read::Query::of(&uri, &[], &[])?;
    let stats = api.queue_stats(&requester, &queue).await?;
    let mut shown = api.queue(&stats);
    if stats.paused {
        if stats.paused_left_ms > 0 {
            shown["paused_left_ms"] = stats.paused_left_ms.into();
        }
        let setup = api.setup(&requester, &queue).await?;
        if let Some(by) = SetBy::of(&setup, Tags::PAUSED_BY) {
            shown["paused_by"] = by.name.into();
            shown["paused_at_ms"] = by.at_ms.into();
        }
    }
    Ok(reply::document(&shown))
}

/// How a queue's numbers were: the last hour by the minute, the last day by
/// the quarter of an hour. Empty for one that has not moved since the server
/// started, and beyond `history_queues`.
#[utoipa::path(get, path = "/api/v1/queues/{queue}/history", operation_id = "show_history", tag = "queues",
    params(("queue" = String, Path)), responses((status = 200, body = PastOfQueue)))]
pub(super) async fn history(Of(api, requester, queue): OfQueue, uri: Uri) -> Answer {
    read::Query::of(&uri, &[], &[])?;
    // Whether it is there, and may be seen.
    api.queue_stats(&requester, &queue).await?;
    let client_api = &api.client_api;
    let ahead = client_api.ahead();
    let past = PastOfQueue::of(&queue, client_api.history(&queue), |at| ahead.wall_at(at));
    Ok(reply::document(&past))
}

/// From now on a queue `QUEUE+NAME` gets a copy of every put to this one. Both
/// are created if they are not there; deleting the child ends it.
#[utoipa::path(post, path = "/api/v1/queues/{queue}/children", tag = "queues",
    params(("queue" = String, Path)), request_body = Child, responses((status = 200, body = Named)))]
pub(super) async fn join(
    Of(api, requester, parent): OfQueue,
    RequestBody(Child { name }, _share): RequestBody<Child>,
) -> Answer {
    let child = parent.child(&read::queue(&name)?);
    let child = child.ok_or_else(|| {
        let detail = format!(
            "{parent} cannot have a child \"{name}\": {parent} is a child itself, or both names \
             together are longer than 65535 bytes"
        );
        Problem::field("name", detail)
    })?;
    let queue = child.to_string();
    api.ask(&requester, Command::Join { parent, child }).await?;
    Ok(reply::document(&Named { queue }))
}

/// Removes a queue and all in it; what is reserved vanishes when it is
/// released.
#[utoipa::path(delete, path = "/api/v1/queues/{queue}", tag = "queues",
    params(("queue" = String, Path)), responses((status = 204)))]
pub(super) async fn remove(Of(api, requester, queue): OfQueue) -> Answer {
    let (dropped, _) = api.ask(&requester, Command::Drop(queue)).await?;
    let mut response = StatusCode::NO_CONTENT.into_response();
    if let Outcome::Count(count) = dropped {
        response.extensions_mut().insert(Did::to(count));
    }
    Ok(response)
}

/// Removes the queues whose names are like `pattern` (`*` stands for any characters, `?` for one),
/// a slice of them at a time: those that are empty, or with `messages` all, with what is in them.
#[utoipa::path(delete, path = "/api/v1/queues", operation_id = "remove_queues", tag = "queues",
    params(("pattern" = String, Query), ("messages" = Option<bool>, Query),
        ("dry_run" = Option<bool>, Query, description = "only count them"),
        ("cursor" = Option<String>, Query, description = "of the slice before")),
    responses((status = 200, body = Dropped)))]
pub(super) async fn remove_many(Call { api, requester }: Call, uri: Uri) -> Answer {
    let query = read::Query::of(&uri, &["pattern", "messages", "dry_run", "cursor"], &[])?;
    let pattern = query.get("pattern");
    let pattern = pattern
        .ok_or_else(|| Problem::field("pattern", "name the queues, for example pattern=mail-*"))?;
    let dry_run = query.flag("dry_run")?;
    let pattern = Name::of_shown(pattern);
    let command = Command::DropQueues {
        pattern: Pattern::of_name(pattern.as_bytes()),
        messages: query.flag("messages")?,
        dry_run,
        from: from(&query)?,
    };
    let dropped = match api.ask(&requester, command).await {
        Ok((Outcome::Dropped(dropped), _)) => dropped,
        Ok(_) => return Err(Problem::unexpected()),
        Err(problem) => {
            let with = DoneWith(format!("of {pattern}"));
            return Ok((Extension(with), problem).into_response());
        }
    };
    let work = dry_run.then_some(Extension(Operation::Work));
    let (did, with) = (Did::to(dropped.messages), DoneWith(format!("of {pattern}")));
    let done = (!dry_run).then_some((Extension(did), Extension(with)));
    let dropped = reply::document(&Dropped {
        queues: dropped.queues,
        messages: dropped.messages,
        passed: dropped.passed,
        cursor: dropped.next.map(cursor),
    });
    Ok((work, done, dropped).into_response())
}

/// Where a list of queues goes on, from its query.
fn from(query: &read::Query) -> Result<(u8, u32), Problem> {
    let Some(text) = query.get("cursor") else {
        return Ok((0, 0));
    };
    let parts = text.split_once('.');
    let parts = parts.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    parts.ok_or_else(|| Problem::field("cursor", read::NOT_A_CURSOR))
}

fn cursor((shard, at): (u8, u32)) -> String {
    format!("{shard}.{at}")
}

/// Lets takes wait; puts go on.
#[utoipa::path(post, path = "/api/v1/queues/{queue}/pause", tag = "queues",
    params(("queue" = String, Path)), request_body = PauseFor, responses((status = 204)))]
pub(super) async fn pause(
    Of(api, requester, queue): OfQueue,
    RequestBody(PauseFor { for_ms }, _share): RequestBody<PauseFor>,
) -> Answer {
    if for_ms == Some(0) {
        let why = "takes 1 ms or more; to end a pause, send resume";
        return Err(Problem::field("for_ms", why));
    }
    api.pause(&requester, queue, for_ms).await
}

/// Ends a pause.
#[utoipa::path(post, path = "/api/v1/queues/{queue}/resume", tag = "queues",
    params(("queue" = String, Path)), responses((status = 204)))]
pub(super) async fn resume(Of(api, requester, queue): OfQueue) -> Answer {
    api.pause(&requester, queue, Some(0)).await
}
