//! The operations of `/api/v1`: kind, address and handler of each. The kind says who may ask for
//! it, and whether the audit writes it down. The OpenAPI document has the same rows.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn, map_response};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, delete, get, patch, post, put};
use hyper::Method;
use quintet_http::Requester;
use quintet_types::CommandError;
use utoipa::OpenApi;

use super::problem::Problem;
use super::{
    Api, after, attention, batches, bulk, cancel, hold, imports, lease_events, leases, messages,
    names, over, queues, records, release, results, schedules, server, setup, stream, tail, trace,
    workers,
};

/// With a response: it was an operation of an operator, which the audit writes down.
#[derive(Clone, Copy, Debug)]
pub struct Administers;

/// Who may ask for an operation, and whether the audit writes it down.
enum Kind {
    /// The shards check the rights of each command. Clients ask for it all day.
    Work,
    /// The same, and the audit has a line.
    Act,
    /// Only operators of the server may ask for it.
    Look,
    /// The same, and the audit has a line, also of refused requests.
    Operate,
}

impl Kind {
    fn around(self, handler: MethodRouter<Arc<Api>>) -> MethodRouter<Arc<Api>> {
        match self {
            Self::Work => handler,
            Self::Act => handler.route_layer(map_response(administers)),
            Self::Look => handler.route_layer(from_fn(operates)),
            Self::Operate => Self::Act.around(Self::Look.around(handler)),
        }
    }
}

/// Refuses a requester that may not operate the server.
pub async fn operates(request: Request, next: Next) -> Response {
    let requester = request.extensions().get::<Requester>();
    let may = requester.is_some_and(Requester::may_server);
    match may {
        true => next.run(request).await,
        false => Problem::refused(CommandError::NotPermitted).into_response(),
    }
}

async fn administers(mut response: Response) -> Response {
    response.extensions_mut().insert(Administers);
    response
}

/// A request that is none of the operations. The audit has a line if it is more than a read.
pub(super) async fn unknown(method: Method, problem: Problem) -> Response {
    let response = problem.into_response();
    match [Method::GET, Method::HEAD].contains(&method) {
        true => response,
        false => administers(response).await,
    }
}

macro_rules! operations {
    (
        $($kind:ident $method:ident $path:literal $module:ident::$handler:ident,)*
        ;
        $($old_kind:ident $old_method:ident $old_path:literal $old_module:ident::$old:ident,)*
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
            Router::new()
                $(.route($path, Kind::$kind.around($method($module::$handler))))*
                $(.route($old_path, Kind::$old_kind.around($old_method($old_module::$old))))*
        }
    };
}

operations! {
    Work get "/events" stream::stream,
    Work get "/attention" attention::attention,
    Work get "/queues" queues::list,
    Act delete "/queues" queues::remove_many,
    Work get "/queues/{queue}" queues::show,
    Act post "/queues/{queue}" imports::make,
    Act delete "/queues/{queue}" queues::remove,
    Work get "/queues/{queue}/history" queues::history,
    Work get "/queues/{queue}/settings" setup::settings,
    Act patch "/queues/{queue}/settings" setup::change,
    Work get "/queues/{queue}/leases" leases::list,
    Act post "/queues/{queue}/leases/release" release::of_queue,
    Act post "/queues/{queue}/children" queues::join,
    Act post "/queues/{queue}/pause" queues::pause,
    Act post "/queues/{queue}/resume" queues::resume,
    Act post "/queues/{queue}/hold" hold::queue,
    Work get "/queues/{queue}/keys/held" hold::list,
    Act post "/queues/{queue}/keys/{key}/hold" hold::hold,
    Work get "/queues/{queue}/messages" messages::browse,
    Work post "/queues/{queue}/messages" messages::put,
    Work post "/queues/{queue}/record" records::put,
    Work get "/queues/{queue}/records" records::list,
    Work post "/queues/{queue}/records" imports::store,
    Work get "/queues/{queue}/imports/{token}" imports::show,
    Work get "/queues/{queue}/peek" records::peek,
    Work get "/queues/{queue}/tail" tail::tail,
    Work post "/queues/{queue}/reserve" leases::reserve,
    Act post "/queues/{queue}/operations/{operation}" bulk::operate,
    Work get "/queues/{queue}/errors" bulk::errors,
    Work post "/take" records::take,
    Work get "/queues/{queue}/names/{name}" names::show,
    Work post "/queues/{queue}/names/{name}/finish" names::finish,
    Work post "/queues/{queue}/names/{name}/release" names::release,
    Work post "/queues/{queue}/names/{name}/fail" names::fail,
    Work post "/queues/{queue}/names/{name}/bury" names::bury,
    Work post "/queues/{queue}/names/{name}/extend" names::extend,
    Act post "/queues/{queue}/names/{name}/cancel" cancel::named,
    Work get "/queues/{queue}/names/{name}/result" results::named,
    Work get "/queues/{queue}/tracks/{name}" names::track,
    Work get "/messages" over::list,
    Work get "/messages/{id}" messages::show,
    Act patch "/messages/{id}" messages::edit,
    Act delete "/messages/{id}" messages::remove,
    Work get "/messages/{id}/body" messages::body,
    Work get "/messages/{id}/record" records::show,
    Act post "/messages/{id}/cancel" cancel::message,
    Act post "/messages/{id}/kick" messages::kick,
    Act post "/messages/{id}/redrive" messages::redrive,
    Act post "/messages/{id}/move" messages::transfer,
    Act post "/messages/{id}/release" release::of_message,
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
    Operate delete "/connections/{id}" server::close,
    Operate post "/connections/{id}/release" release::of_connection,
    Work get "/batches" batches::list,
    Work post "/batches" batches::make,
    Work get "/batches/{id}" batches::show,
    Act delete "/batches/{id}" batches::forget,
    Work post "/batches/{id}/{act}" batches::operate,
    Look get "/workers" workers::list,
    Operate post "/workers/{wid}/{act}" workers::operate,
    Look get "/schedules" schedules::list,
    Look get "/cron" schedules::list_of_file,
    Look get "/schedules/{name}" schedules::show,
    Operate put "/schedules/{name}" schedules::define,
    Operate delete "/schedules/{name}" schedules::remove,
    Operate post "/schedules/{name}/pause" schedules::pause,
    Operate post "/schedules/{name}/resume" schedules::resume,
    Operate post "/schedules/{name}/run" schedules::run,
    Look get "/server" server::numbers,
    Operate get "/server/config" server::config,
    Look get "/server/metrics" server::metrics,
    Operate post "/server/{act}" server::operate,
    ;
    // Old addresses, for one release.
    Act post "/queues/{queue}/acts/{operation}" bulk::operate,
    Operate post "/cron/{name}/pause" schedules::pause,
    Operate post "/cron/{name}/resume" schedules::resume,
    Operate post "/cron/{name}/run" schedules::run,
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
