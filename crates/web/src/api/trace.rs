//! What is known of a message by its id.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::response::Response;
use quintet_engine::{Message, Name, WallAhead};

use super::path::Path;
use super::problem::Problem;
use super::types::{Shown, Traced};
use super::{Api, read};
use crate::reply;
use crate::visitor::Visitor;

/// What became of a message: where it is and who works on it.
#[utoipa::path(get, path = "/api/v1/messages/{id}/trace", operation_id = "trace_message", tag = "messages",
    params(("id" = u64, Path)),
    responses((status = 200, body = Traced), (status = 404, body = Problem, content_type = "application/problem+json", description = "nothing is known of it"), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(
    State(api): State<Arc<Api>>,
    Extension(visitor): Extension<Visitor>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let (message, queue) = api.message(&visitor, read::message(&id)?).await?;
    Ok(reply::document(&api.live(&visitor, &message, &queue).await))
}

impl Api {
    /// What is known of one that is there.
    async fn live(&self, visitor: &Visitor, message: &Message, queue: &Name) -> Traced {
        let now = self.door.now();
        let ahead = WallAhead::between(now, self.door.wall());
        let shown = Shown::of(message, queue, now);
        let (holder, until) = match self.held_by(visitor, message, queue).await {
            Some((holder, until)) => (Some(holder.text), until),
            None => (None, None),
        };
        let attempts = match message.reserves {
            1 => "1 attempt".to_owned(),
            attempts => format!("{attempts} attempts"),
        };
        let by = holder.as_ref().map(|holder| format!(" by {holder}"));
        Traced {
            id: message.id.0,
            state: shown.state,
            text: format!(
                "message {} is {}{}, in {}, after {attempts}",
                message.id.0,
                shown.state,
                by.unwrap_or_default(),
                shown.queue,
            ),
            queue: shown.queue,
            created_ms: Some(ahead.wall_at(message.created).0),
            attempts: Some(shown.attempts),
            failures: Some(shown.failures),
            holder,
            until_ms: until.map(|until| ahead.wall_at(until).0),
        }
    }
}
