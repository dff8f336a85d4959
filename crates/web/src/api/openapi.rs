//! The OpenAPI document, made from the handlers and their types.

use axum::response::Response;
use utoipa::OpenApi;

use super::{bulk, events, leases, messages, queues, server};
use crate::reply;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Quintet",
        description = "Queues, messages, leases and the server. Times are in ms, moments Unix time.",
        license(name = "Apache-2.0 OR MIT")
    ),
    paths(
        queues::list,
        queues::show,
        queues::history,
        events::stream,
        queues::remove,
        queues::pause,
        queues::resume,
        messages::browse,
        messages::put,
        messages::show,
        messages::edit,
        messages::remove,
        messages::kick,
        messages::transfer,
        leases::reserve,
        leases::finish,
        leases::release,
        leases::fail,
        leases::bury,
        leases::extend,
        bulk::act,
        server::stats,
        server::connections,
        server::close,
        server::act,
    ),
    components(schemas(crate::events::Figures))
)]
struct Document;

/// `/api/v1/openapi.json`.
pub(super) async fn document() -> Response {
    let json = Document::openapi().to_json();
    reply::written(json.unwrap_or_default())
}
