//! State that the handlers of RQ's addresses share.

use std::sync::Arc;

use axum::response::Response;
use hyper::Uri;
use quintet_http::{Problem, reply};
use quintet_scripts::Rq;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::pages;

/// One listener's.
pub(crate) struct App {
    pub(crate) http: Arc<quintet_http::App>,
    pub(crate) rq: Arc<Rq>,
    /// Attachments that may be on their way in at once.
    pub(crate) uploads: Semaphore,
}

impl App {
    pub(crate) fn new(http: Arc<quintet_http::App>, rq: Arc<Rq>) -> Arc<Self> {
        let uploads = Semaphore::new(http.settings().limits.uploads_max);
        Arc::new(Self { http, rq, uploads })
    }

    /// The result of the form that led to this address, if one did.
    pub(crate) fn notice(&self, uri: &Uri) -> Option<String> {
        self.http.notice(uri).map(|notice| pages::seen(&notice))
    }

    /// Asks RQ in a thread that may wait.
    ///
    /// # Errors
    /// The thread failed: 500.
    pub(crate) async fn ask<T, F>(&self, question: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&Arc<Rq>) -> T + Send + 'static,
    {
        let rq = Arc::clone(&self.rq);
        reply::blocking(move || question(&rq)).await
    }

    /// Asks RQ for a document, which is written where nobody waits for it: it
    /// may be long.
    ///
    /// # Errors
    /// As the question says, or as [`App::ask`].
    pub(crate) async fn document<F>(&self, question: F) -> Result<Response, Problem>
    where
        F: FnOnce(&Arc<Rq>) -> Result<Value, Problem> + Send + 'static,
    {
        let written = self.ask(move |rq| question(rq).map(|document| document.to_string()));
        Ok(reply::written(written.await??))
    }
}
