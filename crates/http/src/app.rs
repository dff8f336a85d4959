//! State that the handlers of a listener share: its settings, sessions, forms, links and notices.

use std::time::Instant;

use axum::extract::Request;
use axum::response::Response;
use hyper::header::CONTENT_TYPE;
use hyper::{HeaderMap, Uri};

use crate::flash::Flash;
use crate::form::{self, Form, Kind};
use crate::payer::RequestMemory;
use crate::reply::{self, Problem};
use crate::sessions::Sessions;
use crate::settings::Settings;

/// One listener's.
pub struct App {
    settings: Settings,
    flash: Flash,
    sessions: Sessions,
    started: Instant,
}

impl App {
    /// A listener with these settings.
    pub fn new(settings: Settings) -> Self {
        Self {
            sessions: Sessions::new(
                settings.limits.sessions_max,
                settings.limits.session_time,
                &settings.relative_root,
                settings.tls.is_some(),
            ),
            settings,
            flash: Flash::default(),
            started: Instant::now(),
        }
    }

    /// The listener's settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sessions of browsers that have logged in.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Time since the listener began, s.
    pub fn uptime(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// An address of this site: `path` without its first slash.
    pub fn link(&self, path: &str) -> String {
        format!("{}{path}", self.settings.relative_root)
    }

    /// Query and body of a request as one form, the body's fields last, and
    /// what the body was. A JSON body is given as it is.
    ///
    /// # Errors
    /// It is over a limit, too slow or no form.
    pub async fn form(&self, request: Request) -> Result<RequestBody, Problem> {
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
        Ok(RequestBody {
            form,
            json,
            _share: share,
        })
    }

    /// The fields of the query.
    ///
    /// # Errors
    /// More fields or bytes than the listener allows.
    pub fn query(&self, uri: &Uri) -> Result<Form, Problem> {
        let mut form = Form::default();
        let query = uri.query().unwrap_or_default();
        form.add_urlencoded(query.as_bytes(), &self.settings.limits)?;
        Ok(form)
    }

    /// The notice with the number in the query. It is shown once.
    pub fn notice(&self, uri: &Uri) -> Option<String> {
        let form = self.query(uri).ok()?;
        form.get("notice")
            .and_then(|number| self.flash.take(number))
    }

    /// A redirect to a page of this site that shows `notice`.
    pub fn redirect(&self, path: &str, notice: String) -> Response {
        reply::redirect(&self.flash.add(&self.link(path), notice))
    }

    /// A redirect to where the form said, `back`, if that is on this site.
    pub fn back(&self, form: &Form, otherwise: &str, notice: String) -> Response {
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

/// The body of a request: fields of a form, or JSON.
pub struct RequestBody {
    pub form: Form,
    pub json: Option<bytes::Bytes>,
    /// Its share of the memory for connections.
    _share: RequestMemory,
}

/// The header of that name, if it is text.
pub fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(CONTENT_TYPE)?.to_str().ok()
}
