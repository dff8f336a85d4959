//! The OpenAPI document, made from the handlers and their types.

use std::sync::LazyLock;

use axum::response::Response;
use serde_json::Value;
use utoipa::OpenApi;

use super::{batches, bulk, cron, events, leases, messages, names, queues, server, workers};
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
        queues::settings,
        queues::join,
        events::stream,
        queues::remove,
        queues::pause,
        queues::resume,
        messages::browse,
        messages::put,
        messages::show,
        messages::body,
        messages::edit,
        messages::remove,
        messages::kick,
        messages::transfer,
        leases::list,
        leases::reserve,
        leases::finish,
        leases::release,
        leases::fail,
        leases::bury,
        leases::extend,
        leases::progress,
        names::show,
        names::finish,
        names::release,
        names::fail,
        names::bury,
        names::extend,
        names::track,
        bulk::act,
        server::stats,
        server::connections,
        server::close,
        batches::list,
        batches::make,
        batches::show,
        batches::forget,
        batches::act,
        workers::list,
        workers::act,
        cron::list,
        cron::pause,
        cron::resume,
        cron::run,
        server::act,
    ),
    components(schemas(crate::events::Figures))
)]
struct Document;

/// `/api/v1/openapi.json`.
pub(super) async fn document() -> Response {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let document = serde_json::to_value(Document::openapi());
        let mut document = document.expect("the document is JSON");
        whole_numbers(&mut document);
        optional_bodies(&mut document);
        document.to_string()
    });
    reply::written(TEXT.clone())
}

/// The types say `int64` of numbers up to 2^64, which would end at half of that.
fn whole_numbers(value: &mut Value) {
    if let Some(object) = value.as_object_mut()
        && object.get("minimum").is_some_and(|least| least == 0)
        && object.get("format").is_some_and(|format| format == "int64")
    {
        object.remove("format");
        object.insert("maximum".to_owned(), u64::MAX.into());
    }
    match value {
        Value::Object(object) => object.values_mut().for_each(whole_numbers),
        Value::Array(list) => list.iter_mut().for_each(whole_numbers),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// No body counts as `{}`, so it is needed only where a field is.
fn optional_bodies(document: &mut Value) {
    let schemas = document["components"]["schemas"].clone();
    let needs = |body: &Value| {
        let schema = &body["content"]["application/json"]["schema"]["$ref"];
        let name = schema.as_str().and_then(|path| path.rsplit('/').next());
        name.is_none_or(|name| schemas[name].get("required").is_some())
    };
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    let operations = paths.filter_map(|(_, path)| path.as_object_mut()).flatten();
    for (_, operation) in operations {
        if let Some(body) = operation.get_mut("requestBody")
            && !needs(body)
        {
            body["required"] = Value::Bool(false);
        }
    }
}
