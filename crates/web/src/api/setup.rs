//! The settings of a queue: shown, and changed while the server runs.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use axum::extract::{Extension, Request, State};
use axum::response::Response;
use hyper::Uri;
use hyper::header::{ETAG, HeaderValue};
use quintet_door::Change;
use quintet_engine::{Command, Name, QueueSetup, Refusal};
use serde_json::Value;

use super::path::Path;
use super::problem::Problem;
use super::types::{InForce, Setup};
use super::{Api, read};
use crate::reply;
use crate::visitor::Visitor;

/// How often a change is decided again that met another one.
const TRIES: usize = 8;

/// What tells these settings from others.
pub(crate) fn version(setup: &QueueSetup) -> String {
    let mut hasher = DefaultHasher::new();
    format!("{:?}{:?}", setup.own, setup.settings).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

impl Api {
    /// Changes settings of a queue; of a `seen` version only if they are that still. Answers how
    /// they are then.
    ///
    /// # Errors
    /// The shards' refusal; or a setting is locked, or not what it should be.
    pub(crate) async fn change(
        &self,
        visitor: &Visitor,
        queue: &Name,
        changes: &[Change],
        seen: Option<&str>,
    ) -> Result<QueueSetup, Problem> {
        for _ in 0..TRIES {
            let setup = self.setup(visitor, queue).await?;
            if seen.is_some_and(|seen| version(&setup) != seen) {
                return Err(Problem::settings_changed());
            }
            let name = visitor.name();
            let to = self
                .door
                .change(&setup, changes, name.as_deref().unwrap_or_default());
            let command = Command::Reconfigure {
                queue: queue.clone(),
                to: Box::new(to.map_err(Problem::no_change)?),
                from: Box::new(setup.own),
            };
            match self.ask(visitor, command).await {
                Ok(_) => return self.setup(visitor, queue).await,
                Err(problem) if problem.code != Refusal::Conflict.code() => return Err(problem),
                Err(_) => {}
            }
        }
        Err(Problem::settings_changed())
    }

    fn told(&self, setup: &QueueSetup) -> Response {
        let settings = self.door.queue_settings(setup).into_iter();
        let mut response = reply::document(&Setup {
            queue: setup.name.to_string(),
            settings: settings.map(InForce::of).collect(),
            parent: setup.parent.as_ref().map(Name::to_string),
            children: setup.children.iter().map(Name::to_string).collect(),
        });
        if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", version(setup))) {
            response.headers_mut().insert(ETAG, tag);
        }
        response
    }
}

/// The settings of a queue that are in force, who gets copies of its puts, and
/// whose puts it gets.
#[utoipa::path(get, path = "/api/v1/queues/{queue}/settings", operation_id = "show_settings", tag = "queues",
    params(("queue" = String, Path)),
    responses((status = 200, body = Setup), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn settings(
    State(api): State<Arc<Api>>,
    Extension(visitor): Extension<Visitor>,
    Path(queue): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    read::Query::of(&uri, &[], &[])?;
    let setup = api.setup(&visitor, &read::queue(&queue)?).await?;
    Ok(api.told(&setup))
}

/// Changes settings of a queue, durably. A value is as in a `[[queue]]` table and wins over the
/// configuration file until it is cleared; null clears. With `If-Match` only if the settings are as
/// they were seen.
#[utoipa::path(patch, path = "/api/v1/queues/{queue}/settings", operation_id = "change_settings", tag = "queues",
    params(("queue" = String, Path), ("If-Match" = Option<String>, Header)), request_body = Object,
    responses((status = 200, body = Setup), (status = "4XX", body = Problem, content_type = "application/problem+json"),
        (status = 507, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn change(
    State(api): State<Arc<Api>>,
    Extension(visitor): Extension<Visitor>,
    Path(queue): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let queue = read::queue(&queue)?;
    let seen = read::if_match(request.headers());
    let (changes, _share) = read::body::<BTreeMap<String, Value>>(&api.app, request).await?;
    let changes = changes.into_iter().map(|(key, value)| {
        let value = (!value.is_null()).then(|| value.to_string());
        (key, value)
    });
    let changes: Vec<Change> = changes.collect();
    let setup = api
        .change(&visitor, &queue, &changes, seen.as_deref())
        .await?;
    Ok(api.told(&setup))
}
