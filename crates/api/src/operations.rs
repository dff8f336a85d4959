//! The requests of `/api/v1`: operation, address and handler of each. The operation says who may
//! ask for it, and whether the audit writes it down. The OpenAPI document has the same rows.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::MethodRouter;
use hyper::Method;
use quintet_http::Requester;
use quintet_types::{CommandError, Name, Needed, Operation};
use utoipa::OpenApi;

use super::problem::Problem;
use super::{
    Api, after, attention, batches, bulk, cancel, hold, imports, lease_events, leases, messages,
    names, over, queues, records, release, results, schedules, server, setup, stream, tail, trace,
    workers,
};

/// Asks for the right of an operation before the handler, unless the shards ask for it, and says
/// the operation with the response, unless the handler says a more exact one. Everyday work passes
/// as it is.
pub fn around<S: Clone + 'static>(
    operation: Operation,
    handler: MethodRouter<S>,
) -> MethodRouter<S> {
    if operation == Operation::Work {
        return handler;
    }
    let is_of_shards = matches!(operation.needs(), Needed::Queue(_));
    handler.route_layer(from_fn(move |request: Request, next: Next| async move {
        let requester = request.extensions().get::<Requester>();
        let may =
            is_of_shards || requester.is_some_and(|one| one.may_ask(operation, &Name::default()));
        let response = match may {
            true => next.run(request).await,
            false => Problem::refused(CommandError::NotPermitted).into_response(),
        };
        of(operation, response)
    }))
}

fn of(operation: Operation, mut response: Response) -> Response {
    response.extensions_mut().get_or_insert(operation);
    response
}

/// A request that is none of the operations. The audit has a line if it is more than a read.
pub(super) async fn unknown(method: Method, problem: Problem) -> Response {
    let response = problem.into_response();
    match [Method::GET, Method::HEAD].contains(&method) {
        true => response,
        false => of(Operation::Unknown, response),
    }
}

/// A router with a route for each request: its operation, method, address and handler.
#[macro_export]
macro_rules! routes {
    ($($operation:ident $method:ident $path:literal $handler:path,)*) => {
        axum::Router::new()
            $(.route($path, $crate::around(
                quintet_types::Operation::$operation,
                axum::routing::$method($handler),
            )))*
    };
}

macro_rules! operations {
    (
        $($operation:ident $method:ident $path:literal $module:ident::$handler:ident,)*
        ;
        $($old_operation:ident $old_method:ident $old_path:literal $old_module:ident::$old:ident,)*
    ) => {
        #[derive(OpenApi)]
        #[openapi(
            info(
                title = "Quintet",
                description = "Queues, messages, leases and the server. Times are in ms, moments Unix time.",
                license(name = "Apache-2.0 OR MIT")
            ),
            paths($($module::$handler,)*),
            components(schemas(crate::events::Figures))
        )]
        pub(super) struct Document;

        #[cfg(test)]
        const ROWS: &[(&str, &str)] = &[$((stringify!($method), $path)),*];

        /// A route for each operation.
        pub(super) fn routes() -> Router<Arc<Api>> {
            routes!(
                $($operation $method $path $module::$handler,)*
                $($old_operation $old_method $old_path $old_module::$old,)*
            )
        }
    };
}

operations! {
    Work get "/events" stream::stream,
    Work get "/attention" attention::attention,
    Work get "/queues" queues::list,
    DropQueues delete "/queues" queues::remove_many,
    Work get "/queues/{queue}" queues::show,
    Create post "/queues/{queue}" imports::make,
    Drop delete "/queues/{queue}" queues::remove,
    Work get "/queues/{queue}/history" queues::history,
    Work get "/queues/{queue}/settings" setup::settings,
    Configure patch "/queues/{queue}/settings" setup::change,
    Work get "/queues/{queue}/leases" leases::list,
    Release post "/queues/{queue}/leases/release" release::of_queue,
    Join post "/queues/{queue}/children" queues::join,
    Pause post "/queues/{queue}/pause" queues::pause,
    Resume post "/queues/{queue}/resume" queues::resume,
    Pause post "/queues/{queue}/hold" hold::queue,
    Work get "/queues/{queue}/keys/held" hold::list,
    HoldKey post "/queues/{queue}/keys/{key}/hold" hold::hold,
    Work get "/queues/{queue}/messages" messages::browse,
    Work post "/queues/{queue}/messages" messages::put,
    Work post "/queues/{queue}/record" records::put,
    Work get "/queues/{queue}/records" records::list,
    Work post "/queues/{queue}/records" imports::store,
    Work get "/queues/{queue}/imports/{token}" imports::show,
    Work get "/queues/{queue}/peek" records::peek,
    Work get "/queues/{queue}/tail" tail::tail,
    Work post "/queues/{queue}/reserve" leases::reserve,
    OnQueue post "/queues/{queue}/operations/{operation}" bulk::operate,
    Work get "/queues/{queue}/errors" bulk::errors,
    Work post "/take" records::take,
    Work get "/queues/{queue}/names/{name}" names::show,
    Work post "/queues/{queue}/names/{name}/finish" names::finish,
    Work post "/queues/{queue}/names/{name}/release" names::release,
    Work post "/queues/{queue}/names/{name}/fail" names::fail,
    Work post "/queues/{queue}/names/{name}/bury" names::bury,
    Work post "/queues/{queue}/names/{name}/extend" names::extend,
    Cancel post "/queues/{queue}/names/{name}/cancel" cancel::named,
    Work get "/queues/{queue}/names/{name}/result" results::named,
    Work get "/queues/{queue}/tracks/{name}" names::track,
    Work get "/messages" over::list,
    Work get "/messages/{id}" messages::show,
    Edit patch "/messages/{id}" messages::edit,
    Delete delete "/messages/{id}" messages::remove,
    Work get "/messages/{id}/body" messages::body,
    Work get "/messages/{id}/record" records::show,
    Cancel post "/messages/{id}/cancel" cancel::message,
    Kick post "/messages/{id}/kick" messages::kick,
    Move post "/messages/{id}/redrive" messages::redrive,
    Move post "/messages/{id}/move" messages::transfer,
    Release post "/messages/{id}/release" release::of_message,
    Work get "/messages/{id}/parents" after::parents,
    Work get "/messages/{id}/dependents" after::dependents,
    Work get "/messages/{id}/trace" trace::show,
    Work get "/messages/{id}/result" results::message,
    Work post "/leases/{token}/finish" leases::finish,
    Work post "/leases/{token}/release" leases::release,
    Work post "/leases/{token}/fail" leases::fail,
    Work post "/leases/{token}/bury" leases::bury,
    Work post "/leases/{token}/extend" leases::extend,
    Work post "/leases/{token}/progress" leases::progress,
    Work get "/leases/{token}/events" lease_events::stream,
    Work get "/stats" server::stats,
    Look get "/connections" server::connections,
    CloseConnection delete "/connections/{id}" server::close,
    ReleaseConnection post "/connections/{id}/release" release::of_connection,
    Work get "/batches" batches::list,
    Work post "/batches" batches::make,
    Work get "/batches/{id}" batches::show,
    ForgetBatch delete "/batches/{id}" batches::forget,
    Work post "/batches/{id}/{act}" batches::operate,
    Look get "/workers" workers::list,
    SteerWorker post "/workers/{wid}/{act}" workers::operate,
    Look get "/schedules" schedules::list,
    Look get "/cron" schedules::list_of_file,
    Look get "/schedules/{name}" schedules::show,
    DefineSchedule put "/schedules/{name}" schedules::define,
    RemoveSchedule delete "/schedules/{name}" schedules::remove,
    SteerSchedule post "/schedules/{name}/pause" schedules::pause,
    SteerSchedule post "/schedules/{name}/resume" schedules::resume,
    SteerSchedule post "/schedules/{name}/run" schedules::run,
    Look get "/server" server::numbers,
    Config get "/server/config" server::config,
    Look get "/server/metrics" server::metrics,
    OnServer post "/server/{act}" server::operate,
    ;
    // Old addresses, for one release.
    OnQueue post "/queues/{queue}/acts/{operation}" bulk::operate,
    SteerSchedule post "/cron/{name}/pause" schedules::pause,
    SteerSchedule post "/cron/{name}/resume" schedules::resume,
    SteerSchedule post "/cron/{name}/run" schedules::run,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_the_routes() {
        let document = serde_json::to_value(Document::openapi()).unwrap();
        let mut documented = Vec::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            let path = path.strip_prefix("/api/v1").unwrap();
            let methods = operations.as_object().unwrap().keys();
            documented.extend(methods.map(|method| (method.as_str(), path)));
        }
        documented.sort_unstable();
        let mut routes = ROWS.to_vec();
        routes.sort_unstable();
        assert_eq!(documented, routes);
    }
}
