//! A listener's requests: checked, brought to their handler, and dressed with
//! what every answer has.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONNECTION, HeaderValue, WWW_AUTHENTICATE};
use hyper::http::Extensions;
use hyper::{HeaderMap, StatusCode, Uri};
use quintet_api::Api;
use quintet_client::{ClientApi, Did, ScopedClient};
use quintet_console as console;
use quintet_scripts::Rq;
use quintet_tls::Identity;
use quintet_types::{Command, Operation, Outcome, Principal};

use crate::{metrics, rights};
use quintet_http::{
    Answering, App, AuthenticatedClient, Client, Denied, DoneWith, Errand, Gate, Guard, Payer,
    Problem, Replied, Requester, Serve, Settings, held, interruptible, pace, paths, replies,
    reply::{self, plain},
    sessions,
};

/// How long `/healthz` waits for the shards.
const HEALTH_WAIT: Duration = Duration::from_secs(5);

/// How long a read that waits for something may take to answer a stop in words of its own.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// Service of one listener, and its rules.
pub struct Site {
    app: Arc<App>,
    api: Arc<Api>,
    guard: Guard,
    client_api: Arc<dyn ClientApi>,
    /// `None`: nothing but the API, and what others ask a server about its health, is served.
    rq: Option<Arc<Rq>>,
    /// Built for the first request, as it takes memory.
    router: OnceLock<axum::Router>,
}

/// First part of the API's addresses.
const API: &str = "/api/v1/";

/// Sheets, scripts and icons, which are in the binary.
const ASSETS: &str = "/assets/";

/// The realm when none is set, as RQ has it.
const RQ: &str = "RQ";

impl Serve for Site {
    fn protocol(&self) -> &'static str {
        "http"
    }

    fn settings(&self) -> &Settings {
        self.app.settings()
    }

    fn tells_health(&self, path: &str) -> bool {
        let path = paths::inside(path, &self.settings().relative_root);
        path.is_some_and(|path| matches!(&*path, "/healthz" | "/livez" | "/readyz" | "/metrics"))
    }

    fn ends(&self) {
        self.api.stop_events();
    }

    fn turn_away(&self, problem: Problem, request: &hyper::Request<Incoming>) -> Response {
        let path = paths::inside(request.uri().path(), &self.settings().relative_root);
        match path.is_some_and(|path| path.starts_with(API)) {
            true => quintet_api::site_error(problem),
            false => problem.into_response(),
        }
    }

    fn answer(
        self: Arc<Self>,
        peer: Option<IpAddr>,
        request: hyper::Request<Incoming>,
    ) -> Answering {
        Box::pin(async move { self.reply(peer, request).await })
    }
}

impl Site {
    /// A site with these settings; without `rq` it has the API alone.
    pub fn new(
        settings: Settings,
        rq: Option<Arc<Rq>>,
        client_api: Arc<dyn ClientApi>,
    ) -> Arc<Self> {
        let guard = settings.guard(false);
        let app = Arc::new(App::new(settings));
        let api = Api::new(Arc::clone(&app), Arc::clone(&client_api));
        Arc::new(Self {
            app,
            api,
            guard,
            client_api,
            rq,
            router: OnceLock::new(),
        })
    }

    fn router(&self) -> &axum::Router {
        self.router.get_or_init(|| {
            let pages = self.rq.as_ref().map_or_else(axum::Router::new, |rq| {
                quintet_rq::router(Arc::clone(&self.app), Arc::clone(rq)).merge(console::router(
                    Arc::clone(&self.app),
                    Arc::clone(&self.api),
                    Arc::clone(rq),
                ))
            });
            pages.nest("/api/v1", quintet_api::router(Arc::clone(&self.api)))
        })
    }

    async fn reply(&self, peer: Option<IpAddr>, request: hyper::Request<Incoming>) -> Response {
        let requested = tracing::enabled!(tracing::Level::DEBUG)
            .then(|| format!("{} {}", request.method(), request.uri().path()));
        let root = &self.settings().relative_root;
        let path = paths::inside(request.uri().path(), root);
        let of_api = path.as_ref().is_some_and(|path| path.starts_with(API));
        let method = request.method();
        let imports = path
            .as_ref()
            .is_some_and(|path| quintet_api::is_import(method, path));
        let errand = path.map(|path| Errand::of(method, &path));
        let began = Instant::now();
        let client = request.extensions().get::<Arc<Client>>().cloned();
        let stopped = client.clone().filter(|_| method.is_safe());
        let stopped = async {
            match stopped {
                Some(client) => client.is_stopped().await,
                None => std::future::pending().await,
            }
            tokio::time::sleep(LAST_WORDS).await;
        };
        let routed = tokio::select! {
            biased;
            routed = self.route(peer, request) => routed,
            // It changes nothing: nothing is lost with it.
            () = stopped => Err(Problem::Stopping),
        };
        let cut_off = client.and_then(|client| client.is_cut_off());
        let routed = match cut_off {
            Some(why) => Err(Problem::with_text(StatusCode::SERVICE_UNAVAILABLE, why)),
            None => routed,
        };
        let response = match routed {
            Ok(response) => response,
            Err(problem) if of_api => quintet_api::site_error(problem),
            Err(problem) => problem.into_response(),
        };
        if let Some(requested) = requested
            && response.status().as_u16() >= 400
        {
            let peer = peer.map(|peer| peer.to_string());
            let reason = response.status().as_u16();
            tracing::debug!(
                peer,
                protocol = "http",
                reason,
                "refused: {}",
                requested.escape_debug()
            );
        }
        if let Some(on_replied) = &self.settings().replied {
            on_replied(Replied {
                errand: errand.unwrap_or(Errand::Other),
                status: response.status().as_u16(),
                took: replies::took(&response, began.elapsed()),
            });
        }
        let mut response = held::count(response, self.settings()).await;
        if imports && response.status().as_u16() >= 400 {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        match of_api {
            true => reply::protect_data(response.headers_mut()),
            false => reply::protect(response.headers_mut()),
        }
        response
    }

    async fn route(
        &self,
        peer: Option<IpAddr>,
        request: hyper::Request<Incoming>,
    ) -> Result<Response, Problem> {
        let mut request = interruptible(request);
        let path = paths::inside(request.uri().path(), &self.settings().relative_root)
            .ok_or_else(|| Problem::not_found("Page"))?
            .into_owned();
        // A health check knows no password.
        match path.as_str() {
            "/healthz" | "/livez" => return Ok(self.health().await),
            "/readyz" => return Ok(self.readiness().await),
            _ => {}
        }
        if self.rq.is_none() && !path.starts_with(API) && path != "/metrics" {
            return Err(Problem::not_found("Page"));
        }
        let client = request.extensions().get::<Arc<Client>>().cloned();
        pace(self.guard.gate.as_ref(), peer, None, client.as_deref()).await?;
        let checked = self
            .guard
            .check(peer, request.method(), request.uri(), request.headers());
        if let Err(denied) = checked {
            return self.deny(denied, &path);
        }
        let mut payer = Payer {
            gate: self.guard.gate.clone(),
            peer,
            principal: None,
        };
        request.extensions_mut().insert(payer.clone());
        let gate = self.guard.gate.as_ref().filter(|gate| gate.is_used());
        if let (Some(gate), console::LOGIN) = (gate, path.as_str()) {
            return console::login(&self.app, &**gate, peer, request).await;
        }
        let mut requester = match self
            .requester(peer, request.headers(), request.extensions())
            .await
        {
            Ok(requester) => requester,
            // What pages look like is no secret, and the login is a page.
            Err(Denied::Login) if request.method().is_safe() && path.starts_with(ASSETS) => {
                Requester::default()
            }
            Err(Denied::Login)
                if gate.is_some()
                    && console::is_page(request.method(), &path, request.headers()) =>
            {
                return Ok(console::lead(&self.app, &with_query(&path, request.uri())));
            }
            Err(denied) => return self.deny(denied, &path),
        };
        requester.client = client;
        if let Some(client) = &requester.client {
            client.is_of(requester.known.as_ref(), requester.proof);
            if let Some(token) = requester.session {
                client.is_in(self.app.sessions().of(token));
            }
        }
        // A login may end between its check and the note of it.
        if !requester.counts() {
            return self.deny(Denied::Login, &path);
        }
        requester.pace().await?;
        // Where nobody logs in it is written down as well, for nobody in particular.
        let known = requester.known.clone();
        let known = known.or_else(|| Some((Principal::SERVER, self.guard.gate.clone()?)));
        let method = request.method();
        let (operation, queue) = rights::operation(method, &path);
        let authorized = requester.must(operation, &queue);
        if authorized.is_err()
            && operation.is_recorded()
            && let Some((who, gate)) = &known
        {
            let (act, status) = (format!("{method} {path}"), StatusCode::FORBIDDEN.as_u16());
            gate.note(*who, peer, (operation, &act), (status, Did::default()));
        }
        authorized?;
        if path == "/metrics" && request.method().is_safe() {
            let requested = metrics::MetricsQuery::of(&self.app, &request)?;
            return requested.answer(Arc::clone(&self.client_api)).await;
        }
        payer.principal = requester.known.as_ref().map(|(principal, _)| *principal);
        request.extensions_mut().insert(payer);
        request.extensions_mut().insert(requester);
        self.handle(peer, request, &path, operation, known).await
    }

    /// Has the router answer a request for `path`, and `known` noted where its operation is.
    async fn handle(
        &self,
        peer: Option<IpAddr>,
        mut request: axum::extract::Request,
        path: &str,
        operation: Operation,
        known: Option<(Principal, Arc<dyn Gate>)>,
    ) -> Result<Response, Problem> {
        let method = request.method().clone();
        if path != request.uri().path() {
            *request.uri_mut() = with_query(path, request.uri())
                .parse::<Uri>()
                .map_err(|error| Problem::bad(format!("bad address: {error}")))?;
        }
        let mut router = self.router().clone();
        let response = match tower_service::Service::call(&mut router, request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let extensions = response.extensions();
        let operation = extensions.get().copied().unwrap_or(operation);
        if let Some((who, gate)) = known.filter(|_| operation.is_recorded()) {
            let mut act = match operation == Operation::Hold {
                // The address has the lease's token.
                true => operation.name().to_owned(),
                false => format!("{method} {path}"),
            };
            if let Some(DoneWith(words)) = extensions.get() {
                act = format!("{act} {words}");
            }
            let did = extensions.get().copied().unwrap_or_default();
            let status = response.status().as_u16();
            gate.note(who, peer, (operation, &act), (status, did));
        }
        Ok(response)
    }

    /// The requester: by the session of a browser, or by the credentials of the request.
    async fn requester(
        &self,
        peer: Option<IpAddr>,
        headers: &HeaderMap,
        known: &Extensions,
    ) -> Result<Requester, Denied> {
        if let Some(AuthenticatedClient { principal, gate }) = known.get::<AuthenticatedClient>()
            && !headers.contains_key(AUTHORIZATION)
        {
            return Ok(Requester {
                known: Some((*principal, Arc::clone(gate))),
                ..Requester::default()
            });
        }
        let gate = self.guard.gate.as_ref().filter(|gate| gate.is_used());
        let session = gate.and_then(|gate| sessions::requester(self.app.sessions(), gate, headers));
        if let Some(requester) = session {
            return Ok(requester);
        }
        let shows = known.get::<Arc<Identity>>();
        let shows = shows.map(|shown| shown.common_name.as_str());
        self.guard.log_in(peer, headers, shows).await
    }

    /// # Errors
    /// The reason in `denied`; the answer asks for a login that is needed.
    fn deny(&self, denied: Denied, path: &str) -> Result<Response, Problem> {
        let of_api = path.starts_with(API);
        let status = match denied {
            Denied::Host if of_api => return Ok(quintet_api::wrong_host(denied.text())),
            Denied::Address | Denied::Host | Denied::Origin => StatusCode::FORBIDDEN,
            Denied::NotNow(_) => StatusCode::SERVICE_UNAVAILABLE,
            Denied::Login => {
                let needed = Problem::with_text(
                    StatusCode::UNAUTHORIZED,
                    "log in first: this server needs a name and a password, or a token",
                );
                let mut response = match of_api {
                    true => quintet_api::site_error(needed),
                    false => needed.into_response(),
                };
                let realm = match self.settings().realm.as_str() {
                    // RQ's name is for RQ's addresses.
                    RQ if of_api || console::has(path) => "Quintet".to_owned(),
                    realm => realm.replace(['"', '\\'], ""),
                };
                let asks = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"");
                if let Ok(asks) = HeaderValue::from_str(&asks) {
                    response.headers_mut().insert(WWW_AUTHENTICATE, asks);
                }
                return Ok(response);
            }
        };
        Err(Problem::with_text(status, denied.text()))
    }

    /// The health of the server, and its state in its cluster.
    async fn readiness(&self) -> Response {
        if let Some(why) = self.client_api.unready() {
            return plain(StatusCode::SERVICE_UNAVAILABLE, format!("503 - {why}"));
        }
        let health = self.health().await;
        match self
            .client_api
            .role()
            .filter(|_| health.status().is_success())
        {
            Some(role) => plain(StatusCode::OK, format!("ok, {role}")),
            None => health,
        }
    }

    async fn health(&self) -> Response {
        let client_api = Arc::clone(&self.client_api);
        let requested = reply::blocking(move || {
            let scoped = ScopedClient::new(&*client_api);
            !matches!(scoped.ask(Command::StopWaiting), Outcome::Refused(_))
        });
        match tokio::time::timeout(HEALTH_WAIT, requested).await {
            Ok(Ok(true)) => plain(StatusCode::OK, "ok"),
            Ok(Err(problem)) => problem.into_response(),
            Ok(Ok(false)) | Err(_) => plain(
                StatusCode::SERVICE_UNAVAILABLE,
                "503 - the shards do not answer",
            ),
        }
    }
}

/// An address of this site, with the query of the request.
fn with_query(path: &str, uri: &Uri) -> String {
    match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    }
}
