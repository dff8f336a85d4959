//! Answers: JSON arrays, texts with a status, redirects, pages.

use std::time::Duration;

use askama::Template;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION,
    REFERRER_POLICY, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{HeaderMap, StatusCode};
use quintet_types::CommandError;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::workers;

/// Why a request is not done; its answer follows from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// A form has more fields than this.
    TooManyFields(usize),
    /// A form has more bytes than this.
    FormTooLarge(usize),
    /// The body did not come in time.
    TooSlow,
    /// All connections together hold as much memory as they may.
    NoMemory,
    /// A limit of its address or user is reached: which, and when it may come
    /// again.
    TooMany(&'static str, Duration),
    /// Too few machines could store the result now.
    Unavailable,
    /// The server stops, and did nothing of it.
    Stopping,
    /// The body ended early.
    BrokeOff,
    /// The body is no form, in the parser's words.
    BadForm(String),
    /// Anything else, in RQ's manner: `404 - Queue not found`.
    Text(StatusCode, String),
}

impl Problem {
    /// An error of any status; RQ's pages show it as `STATUS - TEXT`.
    pub fn with_text(status: StatusCode, text: impl Into<String>) -> Self {
        Problem::Text(status, text.into())
    }

    /// 404 with the text `WHAT not found`.
    pub fn not_found(what: &str) -> Self {
        Problem::with_text(StatusCode::NOT_FOUND, format!("{what} not found"))
    }

    /// 400, for a request that the client must change.
    pub fn bad(text: impl Into<String>) -> Self {
        Problem::with_text(StatusCode::BAD_REQUEST, text)
    }

    /// 500, for a fault of the server.
    pub fn internal(text: impl Into<String>) -> Self {
        Problem::with_text(StatusCode::INTERNAL_SERVER_ERROR, text)
    }

    /// The status of its reply, and what it says.
    pub fn status_and_text(&self) -> (StatusCode, String) {
        let text = match self {
            Problem::TooManyFields(max) => format!("a form has at most {max} fields (max_fields)"),
            Problem::FormTooLarge(max) => format!(
                "a form or JSON body has at most {max} bytes (max_form of the http listener)"
            ),
            Problem::TooSlow => "the body did not arrive in time (timeout)".to_owned(),
            Problem::NoMemory => "no memory is left for clients (connection_memory)".to_owned(),
            Problem::TooMany(why, _) => (*why).to_owned(),
            Problem::Unavailable => CommandError::Unavailable.text().to_owned(),
            Problem::Stopping => "the server is stopping".to_owned(),
            Problem::BrokeOff => "the body ended early".to_owned(),
            Problem::BadForm(why) => format!("bad form: {why}"),
            Problem::Text(_, text) => text.clone(),
        };
        (self.status(), text)
    }

    fn status(&self) -> StatusCode {
        match self {
            Problem::TooManyFields(_) | Problem::FormTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Problem::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Problem::NoMemory | Problem::Unavailable | Problem::Stopping => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Problem::TooMany(..) => StatusCode::TOO_MANY_REQUESTS,
            Problem::BrokeOff | Problem::BadForm(_) => StatusCode::BAD_REQUEST,
            Problem::Text(status, _) => *status,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, text) = self.status_and_text();
        let mut response = plain(status, format!("{} - {text}", status.as_u16()));
        let mut again = (self == Problem::Unavailable).then_some(1);
        if let Problem::TooMany(_, wait) = self {
            // Whole seconds, rounded up.
            again = Some(wait.as_secs() + 1);
        }
        if let Some(seconds) = again {
            let seconds = HeaderValue::from(seconds);
            response.headers_mut().insert(RETRY_AFTER, seconds);
        }
        response
    }
}

/// A reply of the type `text/plain`, UTF-8.
pub fn plain(status: StatusCode, text: impl Into<String>) -> Response {
    typed(status, "text/plain; charset=utf-8", text.into())
}

pub(crate) fn page(status: StatusCode, html: String) -> Response {
    typed(status, "text/html; charset=utf-8", html)
}

/// 200 with `value` as JSON; 500 if it cannot be written as JSON.
pub fn document<T: Serialize>(value: &T) -> Response {
    match serde_json::to_string(value) {
        Ok(json) => written(json),
        Err(error) => {
            Problem::internal(format!("the reply cannot be written: {error}")).into_response()
        }
    }
}

/// 200 with text that is JSON already.
pub fn written(json: String) -> Response {
    typed(StatusCode::OK, "application/json", json)
}

/// `["ok", x]`, or `["fail", text]`, both with 200, as RQ answers.
pub fn result_value<T: std::fmt::Display, E: std::fmt::Display>(result: &Result<T, E>) -> Value {
    match result {
        Ok(text) => json!(["ok", text.to_string()]),
        Err(text) => json!(["fail", text.to_string()]),
    }
}

/// Sends the browser on with a GET.
pub fn redirect(to: &str) -> Response {
    let mut response = plain(StatusCode::SEE_OTHER, "");
    match HeaderValue::from_str(to) {
        Ok(to) => {
            response.headers_mut().insert(LOCATION, to);
            response
        }
        Err(_) => Problem::bad("cannot go there").into_response(),
    }
}

fn typed(status: StatusCode, content_type: &'static str, body: String) -> Response {
    (status, [(CONTENT_TYPE, content_type)], Body::from(body)).into_response()
}

/// Headers that keep a page's own scripts and nothing else running, unless the
/// answer has set its own.
pub fn protect(headers: &mut HeaderMap) {
    const ALL: &[(HeaderName, &str)] = &[
        (
            CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
             img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
        ),
        (REFERRER_POLICY, "same-origin"),
    ];
    protect_data(headers);
    dress(headers, ALL);
}

/// The same for what no browser shows as a page: it is taken for nothing else, and not kept.
pub fn protect_data(headers: &mut HeaderMap) {
    dress(
        headers,
        &[
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (CACHE_CONTROL, "no-store"),
        ],
    );
}

fn dress(headers: &mut HeaderMap, with: &[(HeaderName, &'static str)]) {
    for (name, value) in with {
        if !headers.contains_key(name) {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
}

/// Renders a page.
pub fn show(status: StatusCode, template: &impl Template) -> Response {
    match template.render() {
        Ok(html) => page(status, html),
        Err(error) => Problem::internal(format!("cannot show the page: {error}")).into_response(),
    }
}

/// A callback for one answer.
pub type Tell<T> = Box<dyn FnOnce(T) + Send>;

/// A callback, and where its answer comes. The client that waits may go before.
pub fn channel<T: Send + 'static>() -> (Tell<T>, oneshot::Receiver<T>) {
    let (sender, receiver) = oneshot::channel();
    let sender = move |answer| {
        let _delivered = sender.send(answer);
    };
    (Box::new(sender), receiver)
}

/// Runs what may wait for the shards, the disk or other nodes, in a thread for that.
///
/// # Errors
/// The system has no thread to give: 503.
pub async fn blocking<T, F>(ask: F) -> Result<T, Problem>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let ran = workers::run(ask).await;
    ran.map_err(|error| no_thread(&error))
}

fn no_thread(error: &std::io::Error) -> Problem {
    let text = format!("the server has no thread for this now: {error}");
    Problem::with_text(StatusCode::SERVICE_UNAVAILABLE, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_for_which_the_system_has_no_thread_is_answered_503() {
        let (status, text) = no_thread(&std::io::ErrorKind::WouldBlock.into()).status_and_text();
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(text.contains("no thread for this now"), "{text}");
    }

    /// Only the error about a missing quorum names a time to ask again: a queue that is down stays
    /// down.
    #[test]
    fn without_quorum_a_client_gets_retry_after() {
        let response = Problem::Unavailable.into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[RETRY_AFTER], "1");
        let down = Problem::with_text(StatusCode::SERVICE_UNAVAILABLE, "down").into_response();
        assert!(!down.headers().contains_key(RETRY_AFTER));
    }
}
