//! Tracked messages by their own names, and reserved ones. A client that can name a message that is
//! under a lease of time alone, as all that the API reserves are, may settle it.

use axum::response::Response;
use quintet_types::{By, NamedAction, Outcome};

use super::call::{Answer, Call, Of, OfNamed, RequestBody};
use super::path::Path;
use super::problem::{Problem, only};
use super::read::by_name;
use super::types::{Bury, CancelNotice, Ends, Extend, Fail, Finish, MessageView, Release, Tracked};
use super::{Api, hold, leases, read};
use quintet_http::{Requester, reply};

/// The reserved message of this name; of several the one whose lease has run
/// longest. Those in other states are listed by `name` of `GET messages`.
#[utoipa::path(get, path = "/api/v1/queues/{queue}/names/{name}", operation_id = "show_named", tag = "leases",
    params(("queue" = String, Path), ("name" = String, Path)), responses((status = 200, body = MessageView)))]
pub(super) async fn show(Of(api, requester, (queue, name)): OfNamed) -> Answer {
    let query = by_name(queue.clone(), name, By::Anyone, NamedAction::Peek);
    let found = api.ask(&requester, query).await?;
    let messages = only!(found, (Outcome::Messages(messages), _) => messages);
    let now = api.client_api.now();
    Ok(reply::document(&MessageView::of(&messages[0], &queue, now)))
}

/// Outcome of the tracked message of this name; of several the one that was put last. It is kept
/// for `track_keep` after the last change, also when the message is gone.
#[utoipa::path(get, path = "/api/v1/queues/{queue}/tracks/{name}", operation_id = "show_track", tag = "messages",
    params(("queue" = String, Path), ("name" = String, Path)), responses((status = 200, body = Tracked)))]
pub(super) async fn track(Of(api, requester, (queue, name)): OfNamed) -> Answer {
    let ask = by_name(queue, name, By::Anyone, NamedAction::Track);
    let track = only!(api.ask(&requester, ask).await?, (Outcome::Tracked(_, track), _) => track);
    Ok(reply::document(&Tracked::from(*track)))
}

impl Api {
    /// Does it to the reserved message of this name, if it is under a lease of time
    /// alone.
    async fn settle_named(
        &self,
        requester: &Requester,
        queue: &str,
        name: String,
        action: NamedAction,
    ) -> Result<Response, Problem> {
        let queue = read::queue(queue)?;
        let outcome = self.ask(requester, by_name(queue, name, By::Bearer, action));
        Ok(leases::cancel_response(&outcome.await?.0))
    }
}

macro_rules! ends {
    ($($(#[$doc:meta])* $end:ident $path:tt $id:tt $body:ident;)*) => {$(
        $(#[$doc])*
        #[utoipa::path(post, path = $path, operation_id = $id, tag = "leases",
            params(("queue" = String, Path), ("name" = String, Path)), request_body = $body,
            responses((status = 204)))]
        pub(super) async fn $end(
            Call { api, requester }: Call,
            Path((queue, name)): Path<(String, String)>,
            RequestBody(end, _share): RequestBody<$body>,
        ) -> Answer {
            let holds = end.holds();
            let action = hold::settle_named(end.how()?, holds)?;
            let held = holds.hold_ms.and_then(|_| read::queue(&queue).ok());
            let settled = api.settle_named(&requester, &queue, name, action).await?;
            Ok(hold::noted(settled, held))
        }
    )*};
}

ends! {
    /// Finishes the reserved message of this name, if it is under a lease of time alone: it is gone, or
    /// kept with its result.
    finish "/api/v1/queues/{queue}/names/{name}/finish" "finish_named" Finish;
    /// Gives the reserved message of this name back to its queue, if it is under a lease of time alone.
    release "/api/v1/queues/{queue}/names/{name}/release" "release_named" Release;
    /// Says that the try of the reserved message of this name failed, if it is under a lease of time
    /// alone: it rests and is tried again, or not, as the queue's policy says.
    fail "/api/v1/queues/{queue}/names/{name}/fail" "fail_named" Fail;
    /// Sets the reserved message of this name aside, if it is under a lease of time alone.
    bury "/api/v1/queues/{queue}/names/{name}/bury" "bury_named" Bury;
}

/// The lease of the reserved message of this name lasts longer, if it is one of time alone.
#[utoipa::path(post, path = "/api/v1/queues/{queue}/names/{name}/extend", operation_id = "extend_named", tag = "leases",
    params(("queue" = String, Path), ("name" = String, Path)), request_body = Extend,
    responses((status = 204), (status = 200, body = CancelNotice, description = "the message is cancelled")))]
pub(super) async fn extend(
    Call { api, requester }: Call,
    Path((queue, name)): Path<(String, String)>,
    RequestBody(supplied, _share): RequestBody<Extend>,
) -> Answer {
    let action = NamedAction::Extend(leases::lease_ms(supplied.lease_ms)?);
    api.settle_named(&requester, &queue, name, action).await
}
