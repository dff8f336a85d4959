//! The settings of a queue: shown, and changed while the server runs.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use axum::extract::Request;
use axum::response::Response;
use hyper::Uri;
use quintet_client::{Change, Setting};
use quintet_types::{Command, CommandError, Name, QueueSetup};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::call::{Answer, Of, OfQueue, tagged};
use super::problem::Problem;
use super::{Api, read};
use quintet_http::{Requester, reply};

/// A setting of a queue with its value in force and the source of that.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct InForce {
    /// The key of a `[[queue]]` table.
    key: String,
    /// As such a table says it: a number, true or false, a text, a list.
    #[schema(value_type = Value)]
    value: Value,
    /// The same in the letters of such a table.
    toml: String,
    /// `default`, `file`, or `queue`: set for this queue while the server ran.
    source: &'static str,
    /// The configuration file forbids changes over the API.
    locked: bool,
    /// Of the source `queue`: the user who set it, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    set_by: Option<String>,
    /// When that user set it, ms since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    set_at_ms: Option<u64>,
    /// Its effect, with unit and range.
    help: String,
}

impl InForce {
    fn of(setting: Setting) -> Self {
        // What TOML says of a number, a flag, a text or a list of them is JSON.
        let value = serde_json::from_str(&setting.value);
        Self {
            key: setting.key,
            value: value.unwrap_or_else(|_| Value::String(setting.value.clone())),
            toml: setting.value,
            source: setting.source.name(),
            locked: setting.locked,
            set_at_ms: setting.set_by.as_ref().map(|by| by.at_ms),
            set_by: setting.set_by.map(|by| by.name),
            help: setting.help,
        }
    }
}

/// How a queue is set up.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct Setup {
    queue: String,
    /// All settings, in the order of the documentation.
    settings: Vec<InForce>,
    /// The queue whose puts it gets copies of.
    parent: Option<String>,
    /// Queues that get copies of its puts.
    children: Vec<String>,
}

/// How often a change is decided again that met another one.
const TRIES: usize = 8;

/// The version of these settings.
pub fn version(setup: &QueueSetup) -> String {
    let mut hasher = DefaultHasher::new();
    format!("{:?}{:?}", setup.own, setup.settings).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

impl Api {
    /// Changes settings of a queue; of a `seen` version only if they are that still. Answers how
    /// they are then.
    ///
    /// # Errors
    /// The shards' error; or a setting is locked, or not what it should be.
    pub async fn change(
        &self,
        requester: &Requester,
        queue: &Name,
        changes: &[Change],
        seen: Option<&str>,
    ) -> Result<QueueSetup, Problem> {
        for _ in 0..TRIES {
            let setup = self.setup(requester, queue).await?;
            if seen.is_some_and(|seen| version(&setup) != seen) {
                return Err(Problem::settings_changed());
            }
            let name = requester.name();
            let to = self
                .client_api
                .change(&setup, changes, name.as_deref().unwrap_or_default());
            let command = Command::Reconfigure {
                queue: queue.clone(),
                to: Box::new(to.map_err(Problem::no_change)?),
                from: Box::new(setup.own),
            };
            match self.ask(requester, command).await {
                Ok(_) => return self.setup(requester, queue).await,
                Err(problem) if problem.code != CommandError::Conflict.code() => {
                    return Err(problem);
                }
                Err(_) => {}
            }
        }
        Err(Problem::settings_changed())
    }

    fn respond(&self, setup: &QueueSetup) -> Response {
        let settings = self.client_api.queue_settings(setup).into_iter();
        let shown = Setup {
            queue: setup.name.to_string(),
            settings: settings.map(InForce::of).collect(),
            parent: setup.parent.as_ref().map(Name::to_string),
            children: setup.children.iter().map(Name::to_string).collect(),
        };
        tagged(reply::document(&shown), Some(version(setup)))
    }
}

/// The settings of a queue that are in force, who gets copies of its puts, and
/// whose puts it gets.
#[utoipa::path(get, path = "/api/v1/queues/{queue}/settings", operation_id = "show_settings", tag = "queues",
    params(("queue" = String, Path)), responses((status = 200, body = Setup)))]
pub(crate) async fn settings(Of(api, requester, queue): OfQueue, uri: Uri) -> Answer {
    read::Query::of(&uri, &[], &[])?;
    let setup = api.setup(&requester, &queue).await?;
    Ok(api.respond(&setup))
}

/// Settings and their new values.
#[derive(Deserialize)]
struct Changes(#[serde(deserialize_with = "quintet_client::unique")] BTreeMap<String, Value>);

/// Changes settings of a queue, durably. A value is as in a `[[queue]]` table and wins over the
/// configuration file until it is cleared; null clears. With `If-Match` only if the settings are as
/// they were seen.
#[utoipa::path(patch, path = "/api/v1/queues/{queue}/settings", operation_id = "change_settings", tag = "queues",
    params(("queue" = String, Path), ("If-Match" = Option<String>, Header)), request_body(content = Object, description = "at least one setting"),
    responses((status = 200, body = Setup),
        (status = 507, body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn change(Of(api, requester, queue): OfQueue, request: Request) -> Answer {
    let seen = read::if_match(request.headers());
    let (Changes(changes), _share) = read::body(&api.app, request).await?;
    let changes = changes.into_iter().map(|(key, value)| {
        let value = (!value.is_null()).then(|| value.to_string());
        (key, value)
    });
    let changes: Vec<Change> = changes.collect();
    if changes.is_empty() {
        let detail = "nothing to change: give a setting, such as {\"take_rate\": \"5/s\"}";
        return Err(Problem::field("settings", detail));
    }
    let setup = api
        .change(&requester, &queue, &changes, seen.as_deref())
        .await?;
    Ok(api.respond(&setup))
}
