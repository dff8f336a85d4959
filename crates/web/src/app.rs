//! What the handlers of a listener share: RQ, its settings, forms, links.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::Request;
use axum::response::Response;
use hyper::header::CONTENT_TYPE;
use hyper::{HeaderMap, Uri};
use quintet_scripts::Rq;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::events::Hub;
use crate::flash::Flash;
use crate::form::{self, Form, Kind};
use crate::payer::Held;
use crate::reply::{self, Problem};
use crate::sessions::Sessions;
use crate::settings::Settings;

/// One listener's.
pub(crate) struct App {
    settings: Settings,
    /// `None`: this listener serves the API alone.
    rq: Option<Arc<Rq>>,
    flash: Flash,
    uploads: Semaphore,
    events: Arc<Hub>,
    sessions: Sessions,
    started: Instant,
}

impl App {
    pub(crate) fn new(settings: Settings, rq: Option<Arc<Rq>>) -> Self {
        Self {
            uploads: Semaphore::new(settings.limits.uploads_max),
            events: Arc::new(Hub::new(
                settings.limits.streams_max,
                settings.limits.events_every,
            )),
            sessions: Sessions::new(
                settings.limits.sessions_max,
                settings.limits.session_time,
                &settings.relative_root,
                settings.tls.is_some(),
            ),
            settings,
            rq,
            flash: Flash::default(),
            started: Instant::now(),
        }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn uploads(&self) -> &Semaphore {
        &self.uploads
    }

    /// The streams of events.
    pub(crate) fn events(&self) -> &Arc<Hub> {
        &self.events
    }

    /// Who has logged in with a browser.
    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    pub(crate) fn uptime(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// An address of this site: `path` without its first slash.
    pub(crate) fn link(&self, path: &str) -> String {
        format!("{}{path}", self.settings.relative_root)
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
        let rq = self.rq.clone().ok_or_else(|| Problem::not_found("Page"))?;
        tokio::task::spawn_blocking(move || question(&rq))
            .await
            .map_err(|error| Problem::internal(format!("the request failed: {error}")))
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

    /// Query and body of a request as one form, the body's fields last, and
    /// what the body was. A JSON body is given as it is.
    ///
    /// # Errors
    /// It is over a limit, too slow or no form.
    pub(crate) async fn form(&self, request: Request) -> Result<Given, Problem> {
        let limits = &self.settings.limits;
        let mut form = Form::default();
        form.add_urlencoded(request.uri().query().unwrap_or_default().as_bytes(), limits)?;
        let kind = form::kind(content_type(request.headers()));
        let (json, share) = match &kind {
            Kind::Json => {
                let (json, share) = form::whole(request, &self.settings).await?;
                (Some(json), share)
            }
            Kind::Urlencoded | Kind::Multipart(_) => {
                let share = form::read(&kind, request, &mut form, &self.settings).await?;
                (None, share)
            }
        };
        Ok(Given {
            form,
            json,
            _share: share,
        })
    }

    /// The query as a form.
    pub(crate) fn query(&self, uri: &Uri) -> Result<Form, Problem> {
        let mut form = Form::default();
        let query = uri.query().unwrap_or_default();
        form.add_urlencoded(query.as_bytes(), &self.settings.limits)?;
        Ok(form)
    }

    /// The notice the address asks for.
    pub(crate) fn notice(&self, uri: &Uri) -> Option<String> {
        let form = self.query(uri).ok()?;
        form.get("notice")
            .and_then(|number| self.flash.take(number))
    }

    /// A redirect to a page of this site that shows `notice`.
    pub(crate) fn redirect(&self, path: &str, notice: String) -> Response {
        reply::redirect(&self.flash.add(&self.link(path), notice))
    }

    /// A redirect to where the form said, `back`, if that is on this site.
    pub(crate) fn back(&self, form: &Form, otherwise: &str, notice: String) -> Response {
        let back = form.get("back").filter(|back| {
            // Two slashes, or a backslash some browsers take for one, begin a
            // host's name.
            back.starts_with('/')
                && !back[1..].starts_with(['/', '\\'])
                && back.bytes().all(|b| b.is_ascii_graphic())
        });
        match back {
            Some(back) => reply::redirect(&self.flash.add(back, notice)),
            None => self.redirect(otherwise, notice),
        }
    }
}

/// What a request brought.
pub(crate) struct Given {
    pub(crate) form: Form,
    pub(crate) json: Option<bytes::Bytes>,
    /// What it takes of the memory for connections.
    _share: Held,
}

pub(crate) fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(CONTENT_TYPE)?.to_str().ok()
}
