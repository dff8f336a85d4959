//! Schedules: made, seen and steered.

use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use hyper::header::IF_MATCH;
use hyper::{HeaderMap, StatusCode, Uri};
use quintet_client::{
    RunSeen, ScheduleAct, SchedulePage, ScheduleSeen, ScheduleSpec, ScheduleView, Steered,
    WhichSchedules,
};
use quintet_types::{CommandError, MessageId, Ms, Name, Verb};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::call::{Answer, Call, tagged};
use super::path::Path;
use super::problem::Problem;
use super::types::MessageView;
use super::{Api, blocking, read};
use quintet_http::{Requester, reply};

/// Due times that are shown of one.
const NEXTS: usize = 10;
/// Memory of a schedule in a list, bytes.
const ROW_BYTES: u64 = 1024;

/// Schedules in the order of their names.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct Listed {
    schedules: Vec<ScheduleView>,
    /// The name of the last one if more follow: `after` of the next request.
    next: Option<String>,
}

/// A schedule with its definition, next due times and last runs.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct One {
    #[serde(flatten)]
    schedule: ScheduleView,
    /// As it was created; null: it is in the configuration, or you may not see the messages of its
    /// queue.
    definition: Option<ScheduleSpec>,
    /// The user who created it or changed it last.
    defined_by: Option<String>,
    defined_ms: Option<u64>,
    /// The next due times, ten at most; none while it is paused.
    nexts_ms: Vec<u64>,
    /// The last runs, newest first, ten at most.
    last_runs: Vec<RunSeen>,
}

/// Result of an operation on a schedule.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
struct SteeredShown {
    /// False: the schedule was in this state already.
    changed: bool,
    /// The message that was put.
    message: Option<u64>,
}

impl Api {
    /// A page of schedules, and the name of the last one if more follow.
    ///
    /// # Errors
    /// The server is stopping, or too many requests wait.
    pub async fn schedules(&self, which: WhichSchedules) -> Result<SchedulePage, Problem> {
        let (sender, receiver) = reply::channel();
        self.client_api.schedules(which, sender);
        let page = receiver.await.map_err(|_| Problem::stopping())?;
        page.map_err(Problem::refused)
    }

    /// Steers one; answers when that is durable.
    ///
    /// # Errors
    /// Why it was not done, or that the outcome is unknown.
    pub async fn steer_schedule(&self, act: ScheduleAct, name: &str) -> Result<Steered, Problem> {
        let (sender, receiver) = reply::channel();
        self.client_api.steer_schedule(act, name, sender);
        let done = receiver.await.map_err(|_| Problem::unknown())?;
        done.map_err(Problem::not_steered)
    }

    /// Creates a schedule, or defines it anew if it is of the version that was seen; answers when
    /// that is durable.
    ///
    /// # Errors
    /// A field is wrong; its queue is not the requester's to put into; why it was not done.
    pub async fn define_schedule(
        &self,
        requester: &Requester,
        name: &str,
        spec: ScheduleSpec,
        seen: Option<u64>,
    ) -> Result<Steered, Problem> {
        let schedule = spec.schedule(name);
        let schedule = schedule.map_err(|bad| Problem::field(bad.field, bad.why))?;
        // One that is stored may have more.
        for (field, ms) in [
            ("delay_ms", spec.delay_ms),
            ("ttl_ms", spec.ttl_ms),
            ("ttr_ms", spec.ttr_ms),
        ] {
            read::duration(field, ms)?;
        }
        if !requester.may_to(Verb::Put, schedule.queue()) {
            return Err(Problem::refused(CommandError::NotPermitted));
        }
        // The search for a time that never comes takes long.
        let (timing, now) = (schedule.timing, self.client_api.wall());
        let never = blocking(move || timing.next(now) == Ms::NEVER).await?;
        let act = ScheduleAct::Define {
            never,
            spec: Box::new(spec),
            by: requester.name().unwrap_or_default().to_string(),
            seen,
        };
        self.steer_schedule(act, name).await
    }

    async fn steered(&self, act: ScheduleAct, name: &str) -> Answer {
        self.steer_schedule(act, name).await.map(respond)
    }

    /// The state of a message, or how it ended.
    async fn became(&self, requester: &Requester, id: MessageId) -> Option<&'static str> {
        match self.message(requester, id).await {
            Ok((message, queue)) => {
                let now = self.client_api.now();
                Some(MessageView::of(&message, &queue, now).state)
            }
            Err(_) => {
                let client_api = self.client_api();
                let end = blocking(move || client_api.end_of(id)).await.ok()??;
                let may = |queue: &Name| requester.may_to(Verb::Peek, queue);
                end.queue.as_ref().is_some_and(may).then(|| end.why.word())
            }
        }
    }
}

fn respond(done: Steered) -> Response {
    let message = done.message.map(|id| id.0);
    let changed = done.changed;
    let mut response = reply::document(&json!(SteeredShown { changed, message }));
    if done.made {
        *response.status_mut() = StatusCode::CREATED;
    }
    tagged(response, done.version)
}

impl Api {
    /// The version that a request has seen; with `If-Match: *` that of now, which there has to be.
    async fn seen(&self, headers: &HeaderMap, name: &str) -> Result<Option<u64>, Problem> {
        if let Some(seen) = read::if_match(headers) {
            // Another text is the version of nothing.
            let seen = seen.parse::<u64>();
            let seen = seen.map_err(|_| Problem::schedule_changed());
            return seen.map(Some);
        }
        if !headers.contains_key(IF_MATCH) {
            return Ok(None);
        }
        let which = WhichSchedules::One(name.to_owned());
        let (found, _) = self.schedules(which).await?;
        let found = found.into_iter().next();
        found
            .map(|found| found.version)
            .ok_or_else(Problem::schedule_changed)
    }
}

/// Schedules in the order of their names: when each runs, how it went last, whether it is paused.
#[utoipa::path(get, path = "/api/v1/schedules", tag = "schedules",
    params(("after" = Option<String>, Query, description = "a schedule's name: those behind it"), ("limit" = Option<u32>, Query)),
    responses((status = 200, body = Listed)))]
pub(super) async fn list(Call { api, .. }: Call, uri: Uri) -> Answer {
    let query = read::Query::of(&uri, &["after", "limit"], &[])?;
    let most = read::limit(&query)? as usize;
    let _room = api.room(most as u64 * ROW_BYTES)?;
    let mut after = query.get("after").map(str::to_owned);
    let mut schedules: Vec<ScheduleView> = Vec::new();
    let next = loop {
        let max = most - schedules.len();
        let (page, next) = api.schedules(WhichSchedules::Page { after, max }).await?;
        schedules.extend(page.into_iter().map(|one| one.view));
        if next.is_none() || schedules.len() >= most {
            break next;
        }
        after = next;
    };
    Ok(reply::document(&Listed { schedules, next }))
}

/// The `[[cron]]` tables of the configuration. This address is for older clients.
#[utoipa::path(get, path = "/api/v1/cron", operation_id = "list_cron", tag = "schedules",
    responses((status = 200, body = Vec<ScheduleView>)))]
pub(super) async fn list_of_file(Call { api, .. }: Call) -> Answer {
    let (schedules, _) = api.schedules(WhichSchedules::OfFile).await?;
    let schedules: Vec<ScheduleView> = schedules.into_iter().map(|one| one.view).collect();
    Ok(reply::document(&json!(schedules)))
}

/// A schedule with its definition, its next due times and its last runs.
#[utoipa::path(get, path = "/api/v1/schedules/{name}", operation_id = "show_schedule", tag = "schedules",
    params(("name" = String, Path)), responses((status = 200, body = One)))]
pub(super) async fn show(Call { api, requester }: Call, Path(name): Path<String>) -> Answer {
    let (found, _) = api.schedules(WhichSchedules::One(name.clone())).await?;
    let found = found.into_iter().next();
    let mut found = found.ok_or_else(|| Problem::no_such_schedule(&name))?;
    let queue = Name::of_shown(&found.view.queue);
    for run in &mut found.runs {
        if let Some(id) = run.message {
            run.became = api.became(&requester, MessageId(id)).await;
        }
    }
    let one = One {
        nexts_ms: nexts(&found, NEXTS),
        schedule: found.view,
        last_runs: found.runs,
        definition: (found.spec)
            .filter(|_| requester.may_to(Verb::Peek, &queue))
            .map(|spec| *spec),
        defined_by: Some(found.by).filter(|by| !by.is_empty()),
        defined_ms: found.defined_ms,
    };
    Ok(tagged(reply::document(&one), found.version))
}

/// The next due times of a schedule with these times, so many at most.
pub fn nexts(seen: &ScheduleSeen, most: usize) -> Vec<u64> {
    let (Some(next), Some(timing)) = (seen.view.next_ms, &seen.timing) else {
        return Vec::new();
    };
    let left = timing
        .count
        .map_or(u64::MAX, |count| count.saturating_sub(seen.view.runs));
    let most = most.min(usize::try_from(left).unwrap_or(usize::MAX));
    let nexts = timing.nexts(Ms(next.saturating_sub(1)), most);
    nexts.into_iter().map(|at| at.0).collect()
}

/// Creates a schedule, or defines it anew; then its pause and its runs stay. Other times count from
/// now on. With `If-Match` only if it is as it was seen, or with `*` if there is one. Needs the
/// right to put into its queue.
#[utoipa::path(put, path = "/api/v1/schedules/{name}", operation_id = "define_schedule", tag = "schedules",
    params(("name" = String, Path), ("If-Match" = Option<String>, Header)), request_body = ScheduleSpec,
    responses((status = 200, body = SteeredShown), (status = 201, body = SteeredShown),
        (status = "5XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn define(
    Call { api, requester }: Call,
    Path(name): Path<String>,
    request: Request,
) -> Answer {
    let headers = request.headers().clone();
    let (spec, _share) = read::body::<ScheduleSpec>(&api.app, request).await?;
    // Invalid definitions are reported before changed ones.
    let schedule = spec.schedule(&name);
    schedule.map_err(|bad| Problem::field(bad.field, bad.why))?;
    let seen = api.seen(&headers, &name).await?;
    Ok(respond(
        api.define_schedule(&requester, &name, spec, seen).await?,
    ))
}

/// Removes a schedule that was created at run time, with its pause and runs. Its messages stay.
#[utoipa::path(delete, path = "/api/v1/schedules/{name}", operation_id = "remove_schedule", tag = "schedules",
    params(("name" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 204),
        (status = "5XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn remove(
    Call { api, .. }: Call,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Answer {
    let seen = api.seen(&headers, &name).await?;
    api.steer_schedule(ScheduleAct::Remove { seen }, &name)
        .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// It puts nothing by itself until it is resumed, whatever restarts.
#[utoipa::path(post, path = "/api/v1/schedules/{name}/pause", tag = "schedules",
    params(("name" = String, Path)), responses((status = 200, body = SteeredShown)))]
pub(super) async fn pause(Call { api, .. }: Call, Path(name): Path<String>) -> Answer {
    api.steered(ScheduleAct::Pause, &name).await
}

/// It puts again; what was due in the pause is let go.
#[utoipa::path(post, path = "/api/v1/schedules/{name}/resume", tag = "schedules",
    params(("name" = String, Path)), responses((status = 200, body = SteeredShown)))]
pub(super) async fn resume(Call { api, .. }: Call, Path(name): Path<String>) -> Answer {
    api.steered(ScheduleAct::Resume, &name).await
}

/// Puts its message once, now, also if it is paused or has ended. Its due times stay.
#[utoipa::path(post, path = "/api/v1/schedules/{name}/run", tag = "schedules",
    params(("name" = String, Path)),
    responses((status = 200, body = SteeredShown), (status = "5XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn run(Call { api, .. }: Call, Path(name): Path<String>) -> Answer {
    api.steered(ScheduleAct::Run, &name).await
}
