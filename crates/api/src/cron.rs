//! `[[cron]]` tables: seen and steered.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::response::Response;
use quintet_client::{CronAct, CronDone, CronSeen};
use serde::Serialize;
use serde_json::json;
use tokio::sync::oneshot;
use utoipa::ToSchema;

use super::Api;
use super::path::Path;
use super::problem::Problem;
use super::server::must_operate;
use quintet_http::{Requester, reply};

/// A `[[cron]]` table, as the API and the command line tell it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Cron {
    pub name: String,
    pub schedule: String,
    /// The name of its time zone.
    pub zone: String,
    pub queue: String,
    /// Handling of missed runs: `skip` or `once`.
    pub missed: &'static str,
    pub paused: bool,
    /// When it is due next; null while it is paused.
    pub next_ms: Option<u64>,
    /// When it put last; null: never.
    pub last_ms: Option<u64>,
    /// Message that it put then; null: none, or it is not known.
    pub message: Option<u64>,
    /// How it went last: `none` (it never was due), `put`, `missed`, or `refused`.
    pub outcome: &'static str,
    /// Why it was refused.
    pub error: Option<String>,
    /// When it was noticed last that due times were missed.
    pub missed_ms: Option<u64>,
    /// Due times that were missed, ever.
    pub missed_runs: u64,
}

impl From<CronSeen> for Cron {
    fn from(seen: CronSeen) -> Self {
        let last = seen.last;
        let outcome = match (&seen.error, last.put_ms, last.missed_ms) {
            (Some(_), ..) => "refused",
            (None, None, None) => "none",
            (None, put, missed) if missed > put => "missed",
            (None, ..) => "put",
        };
        Self {
            name: seen.name,
            schedule: seen.schedule,
            zone: seen.zone,
            queue: seen.queue,
            missed: if seen.once { "once" } else { "skip" },
            paused: seen.paused,
            next_ms: seen.next_ms,
            last_ms: last.put_ms,
            message: last.message,
            outcome,
            error: seen.error,
            missed_ms: last.missed_ms,
            missed_runs: seen.missed,
        }
    }
}

/// Result of an operation on a table.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(super) struct Steered {
    /// False: it was so already.
    changed: bool,
    /// The message that was put.
    message: Option<u64>,
}

impl Api {
    /// Every `[[cron]]` table.
    pub async fn crons(&self) -> Result<Vec<Cron>, Problem> {
        let (tell, told) = oneshot::channel();
        self.client_api.crons(Box::new(move |crons| {
            // The client may have gone.
            let _heard = tell.send(crons);
        }));
        let crons = told.await.map_err(|_| Problem::stopping())?;
        Ok(crons.into_iter().map(Cron::from).collect())
    }

    /// Steers one; answers when that is durable.
    pub async fn steer_cron(&self, act: CronAct, name: &str) -> Result<CronDone, Problem> {
        let (tell, told) = oneshot::channel();
        let tell = Box::new(move |done| {
            let _heard = tell.send(done);
        });
        self.client_api.steer_cron(act, name, tell);
        let done = told.await.map_err(|_| Problem::unknown())?;
        done.map_err(|no| Problem::of_cron(&no))
    }

    async fn steered(
        &self,
        requester: &Requester,
        act: CronAct,
        name: &str,
    ) -> Result<Response, Problem> {
        must_operate(requester)?;
        let done = self.steer_cron(act, name).await?;
        let message = done.message.map(|id| id.0);
        let changed = done.changed;
        Ok(reply::document(&json!(Steered { changed, message })))
    }
}

/// The `[[cron]]` tables in force: when each runs, how it went last, whether it is paused.
#[utoipa::path(get, path = "/api/v1/cron", tag = "cron",
    responses((status = 200, body = Vec<Cron>), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    Extension(requester): Extension<Requester>,
) -> Result<Response, Problem> {
    must_operate(&requester)?;
    let crons = api.crons().await?;
    Ok(reply::document(&json!(crons)))
}

/// It puts nothing by itself until it is resumed, whatever restarts.
#[utoipa::path(post, path = "/api/v1/cron/{name}/pause", tag = "cron",
    params(("name" = String, Path)),
    responses((status = 200, body = Steered), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn pause(
    State(api): State<Arc<Api>>,
    Extension(requester): Extension<Requester>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    api.steered(&requester, CronAct::Pause, &name).await
}

/// It puts again; what was due in the pause is let go.
#[utoipa::path(post, path = "/api/v1/cron/{name}/resume", tag = "cron",
    params(("name" = String, Path)),
    responses((status = 200, body = Steered), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn resume(
    State(api): State<Arc<Api>>,
    Extension(requester): Extension<Requester>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    api.steered(&requester, CronAct::Resume, &name).await
}

/// Puts its message once, now, also if it is paused. Its due times stay.
#[utoipa::path(post, path = "/api/v1/cron/{name}/run", tag = "cron",
    params(("name" = String, Path)),
    responses((status = 200, body = Steered), (status = "4XX", body = Problem, content_type = "application/problem+json"), (status = "5XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn run(
    State(api): State<Arc<Api>>,
    Extension(requester): Extension<Requester>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    api.steered(&requester, CronAct::Run, &name).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use quintet_client::LastRun;

    #[test]
    fn the_last_thing_that_happened_is_the_outcome() {
        let outcome = |put_ms, missed_ms, error: Option<&str>| {
            let last = LastRun {
                put_ms,
                message: None,
                missed_ms,
            };
            let seen = CronSeen {
                name: "a".to_owned(),
                schedule: "* * * * *".to_owned(),
                zone: "UTC".to_owned(),
                queue: "w".to_owned(),
                once: false,
                paused: false,
                next_ms: None,
                last,
                error: error.map(str::to_owned),
                missed: 0,
            };
            Cron::from(seen).outcome
        };
        assert_eq!(outcome(None, None, None), "none");
        assert_eq!(outcome(Some(7), None, None), "put");
        assert_eq!(outcome(Some(7), Some(7), None), "put", "one for all missed");
        assert_eq!(outcome(Some(7), Some(8), None), "missed");
        assert_eq!(outcome(None, Some(8), None), "missed");
        assert_eq!(outcome(Some(9), Some(8), None), "put");
        assert_eq!(outcome(Some(9), None, Some("full")), "refused");
    }
}
