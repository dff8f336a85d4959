//! `/metrics`, for Prometheus and those who read what it reads.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use quintet_client::{ClientApi, Exposition};
use tokio::sync::Semaphore;

use quintet_http::reply::{blocking, plain};
use quintet_http::{App, Problem};

/// One scrape is written at a time: it is long where there are many queues, and only counted once
/// it is written.
static SCRAPES: Semaphore = Semaphore::const_new(1);

/// Query of a request.
pub(crate) struct MetricsQuery {
    exposition: Exposition,
    /// See [`quintet_client::Operator::metrics`].
    names: Vec<String>,
}

impl MetricsQuery {
    /// Reads it.
    pub(crate) fn of(app: &App, request: &Request) -> Result<Self, Problem> {
        let form = app.query(request.uri())?;
        let names = form.all("name").chain(form.all("name[]"));
        Ok(Self {
            exposition: wanted(request.headers()),
            names: names.map(str::to_owned).collect(),
        })
    }

    /// Every number it asks for.
    pub(crate) async fn answer(self, client_api: Arc<dyn ClientApi>) -> Result<Response, Problem> {
        let Self { exposition, names } = self;
        // It goes on if the client goes, and keeps its turn.
        let turn = SCRAPES.acquire().await;
        let written = blocking(move || {
            let _turn = turn;
            client_api.metrics(exposition, &names, true)
        });
        let written = written.await?.ok_or_else(|| Problem::not_found("Page"))?;
        let mut response = plain(StatusCode::OK, written);
        let typed = HeaderValue::from_static(match exposition {
            Exposition::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        });
        response.headers_mut().insert(CONTENT_TYPE, typed);
        Ok(response)
    }
}

/// OpenMetrics for those who name it, unless they say that they want it least.
fn wanted(headers: &HeaderMap) -> Exposition {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let names = |media: &str| {
        let mut parts = media.split(';').map(str::trim);
        parts.next() == Some("application/openmetrics-text") && !parts.any(|part| part == "q=0")
    };
    match accepted.is_some_and(|accepted| accepted.split(',').any(names)) {
        true => Exposition::OpenMetrics,
        false => Exposition::Prometheus,
    }
}
