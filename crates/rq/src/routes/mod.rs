//! The addresses of RQ's API; one file for each family.

mod attachments;
mod manage;
mod messages;
mod queues;
mod search;

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequest, Path, Request};
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE};
use quintet_scripts::{Fault, Rq};
use quintet_types::CommandError;

use crate::app::App;
use quintet_http::{Form, Problem, RequestBody};

/// Reply of a handler, or its problem.
type Answer = Result<Response, Problem>;

/// A form that was sent to an address.
struct Posted(Arc<App>, RequestBody);

impl FromRequest<Arc<App>> for Posted {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        Ok(Self(Arc::clone(app), app.http.form(request).await?))
    }
}

/// The queue and the id in an address.
type OfMessage = Path<(String, String)>;

/// Everything below the site's root.
pub fn router(http: Arc<quintet_http::App>, rq: Arc<Rq>) -> Router {
    Router::new()
        .route("/q", get(queues::main_page))
        .route("/q.txt", get(queues::list_text))
        .route("/q.json", get(queues::list_json))
        .route("/q/{queue}", get(queues::show))
        .route("/q/{queue}/done.json", get(queues::done))
        .route("/q/{queue}/config", get(queues::config))
        .route("/q/{queue}/config.json", get(queues::config))
        .route(
            "/q/{queue}/new_message",
            get(messages::new_page).post(messages::create),
        )
        .route("/q/{queue}/adminoper", post(manage::adminoper))
        .route("/q/{queue}/restart", post(manage::restart))
        .route("/q/{queue}/ack_errs", post(manage::ack_errs))
        .route("/q/{queue}/{id}", get(messages::show).post(messages::act))
        .route("/q/{queue}/{id}/state.json", get(messages::state))
        .route("/q/{queue}/{id}/clone", post(messages::clone))
        .route("/q/{queue}/{id}/run_now", post(messages::run_now))
        .route(
            "/q/{queue}/{id}/attach/{name}",
            get(attachments::file).post(attachments::post),
        )
        .route("/q/{queue}/{id}/log/{name}", get(attachments::log))
        .route("/q/{queue}/{id}/tailview/{name}", get(attachments::tail))
        .route(
            "/q/{queue}/{id}/tailviewlog/{name}",
            get(attachments::tail_log),
        )
        .route("/search", get(search::search))
        .route(
            "/new_queue",
            get(manage::new_queue_page).post(manage::new_queue),
        )
        .route("/new_queue_link", post(manage::new_queue_link))
        .route("/delete_queue", post(manage::delete_queue))
        .route(
            "/assets/rq.css",
            asset("text/css", include_str!("../../assets/rq.css")),
        )
        .route(
            "/assets/tail.js",
            asset("text/javascript", include_str!("../../assets/tail.js")),
        )
        .with_state(App::new(http, rq))
}

/// A file of the pages, inside the binary.
fn asset(media: &'static str, text: &'static str) -> MethodRouter<Arc<App>> {
    let headers = [(CONTENT_TYPE, media), (CACHE_CONTROL, "no-cache")];
    get(async move || (headers, text))
}

/// The status for a fault where RQ does not answer `["fail", …]`.
pub(super) fn problem(fault: &Fault) -> Problem {
    let status = match fault {
        Fault::QueueNotFound | Fault::MessageNotFound => StatusCode::NOT_FOUND,
        Fault::Down => {
            return Problem::with_text(
                StatusCode::SERVICE_UNAVAILABLE,
                "Service Unavailable - Operationally Down",
            );
        }
        Fault::Refused(CommandError::Unavailable) => return Problem::Unavailable,
        Fault::Paused => StatusCode::SERVICE_UNAVAILABLE,
        Fault::BadName(_) => StatusCode::BAD_REQUEST,
        Fault::Denied(_) => StatusCode::FORBIDDEN,
        Fault::WrongState(_) => StatusCode::CONFLICT,
        Fault::Refused(_) | Fault::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Problem::with_text(status, fault.to_string())
}

/// The result of a change, unless its fault would be taken for a change that was not made.
fn told<T>(result: Result<T, Fault>) -> Result<Result<T, Fault>, Problem> {
    match result {
        Err(fault @ (Fault::QueueNotFound | Fault::Refused(CommandError::Unknown))) => {
            Err(problem(&fault))
        }
        result => Ok(result),
    }
}

/// Sends the browser back to where it came from, or to the page of a queue.
fn back(app: &App, form: &Form, queue: &str, notice: String) -> Response {
    app.http
        .back(form, &format!("q/{}", escaped(queue)), notice)
}

/// A message that is not there is distinguished from a queue that is not.
pub(super) fn existing(rq: &Rq, queue: &str) -> Result<(), Fault> {
    if rq.has_queue(queue) {
        Ok(())
    } else {
        Err(Fault::QueueNotFound)
    }
}

/// An address's part, escaped.
pub(super) fn escaped(part: &str) -> String {
    percent_encoding::utf8_percent_encode(part, percent_encoding::NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_quorum_is_no_fault_of_the_server() {
        let fault = Fault::from(CommandError::Unavailable);
        assert_eq!(problem(&fault), Problem::Unavailable);
    }
}
