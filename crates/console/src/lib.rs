//! Quintet's console: pages that show what there is and steer it.
//!
//! A page is HTML from the server, each with an address of its own; the script
//! adds keys, selections and colours. An operation is a POST that answers 303 to the
//! page that shows what came of it. All questions and operations are commands of the
//! requester's own principal, as those of `/api/v1` are: what one may do the
//! shards know.

mod after;
mod ansi;
mod ask;
mod assets;
mod batches;
mod body;
mod bulk;
mod cluster;
mod connections;
mod frame;
mod graph;
mod leases;
mod listing;
mod login;
mod message;
mod names;
mod nearest;
mod operate;
mod operations;
mod overview;
mod past;
mod put;
mod queue;
mod run;
mod schedule_form;
mod schedules;
mod scripts;
mod setup;
mod tiles;
mod waiting;
mod words;
mod workers;

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use askama::Template;
use axum::extract::{FromRequestParts, Request};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Router, middleware};
use hyper::http::request::Parts;
use hyper::{StatusCode, Uri};
use quintet_client::{ClientApi, Did};
use quintet_scripts::Rq;
use quintet_types::{
    Batch, BatchRequest, BulkDone, BulkOp, Command, Message, MessageId, Ms, Name, Outcome,
    Principal, QueuePage, QueueSetup, QueueStats,
};

use frame::{Frame, Seal};
pub use login::{LOGIN, PLACES, has, is_page, lead, login};
use quintet_api::{Api, Problem};
use quintet_http::{App, Elsewhere, Form, Payer, RequestBody, Requester, reply};

/// Reply of a page, or its problem.
type Answer = Result<Response, Problem>;

/// State that all pages share.
struct Console {
    app: Arc<App>,
    api: Arc<Api>,
    rq: Arc<Rq>,
    seal: Seal,
    questions: ask::Questions,
    jobs: operations::Jobs,
}

impl Console {
    /// Asks about queues with scripts, in a thread that may wait.
    ///
    /// # Errors
    /// The thread failed: 500.
    async fn ask_rq<T, F>(&self, question: F) -> Result<T, quintet_http::Problem>
    where
        T: Send + 'static,
        F: FnOnce(&Arc<Rq>) -> T + Send + 'static,
    {
        let rq = Arc::clone(&self.rq);
        reply::blocking(move || question(&rq)).await
    }
}

struct PageRequest {
    console: Arc<Console>,
    requester: Requester,
    /// Where it comes from, for the audit.
    from: Option<IpAddr>,
    frame: Frame,
    uri: Uri,
}

impl FromRequestParts<Arc<Console>> for PageRequest {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &Arc<Console>,
    ) -> Result<Self, Infallible> {
        let extensions = &parts.extensions;
        Ok(Self {
            console: Arc::clone(state),
            requester: extensions.get().cloned().unwrap_or_default(),
            from: extensions.get::<Payer>().and_then(|payer| payer.peer),
            frame: extensions
                .get()
                .cloned()
                .expect("every page is behind frame::around, which puts it there"),
            uri: parts.uri.clone(),
        })
    }
}

impl PageRequest {
    async fn ask(&self, command: Command) -> Result<Outcome, Problem> {
        Ok(self.console.api.ask(&self.requester, command).await?.0)
    }

    /// Writes down a part of what a request did, or what it did after its reply.
    fn note(&self, act: &str, status: u16, did: Did) {
        let nobody = self.console.app.settings().gate.clone();
        let nobody = nobody.map(|gate| (Principal::SERVER, gate));
        if let Some((who, gate)) = self.requester.known.clone().or(nobody) {
            gate.note(who, self.from, act, status, did);
        }
    }

    fn client_api(&self) -> Arc<dyn ClientApi> {
        self.console.api.client_api()
    }

    /// Engine time.
    fn now(&self) -> Ms {
        self.client_api().now()
    }

    /// Leads to a page of the console, which shows the note.
    fn redirect(&self, to: &str, note: impl Into<String>) -> Answer {
        Ok(self.console.app.redirect(to, note.into()))
    }

    async fn stats(&self, queue: &Name) -> Result<QueueStats, Problem> {
        self.console.api.queue_stats(&self.requester, queue).await
    }

    async fn setup(&self, queue: &Name) -> Result<QueueSetup, Problem> {
        self.console.api.setup(&self.requester, queue).await
    }

    /// A part of all queues that may be seen, from a place on.
    async fn queues(&self, from: (u8, u32)) -> Result<QueuePage, Problem> {
        self.console.api.queue_page(&self.requester, from).await
    }

    /// The message of an address, and its queue.
    async fn message(&self, id: &str) -> Result<(Message, Name), Problem> {
        let id = id.parse().ok().filter(|id| *id > 0);
        let id = MessageId(id.ok_or_else(Problem::no_such_page)?);
        let (api, requester) = (&self.console.api, &self.requester);
        match api.message(requester, id).await {
            Ok(found) => Ok(found),
            Err(problem) => Err(api.why_not(requester, id, problem).await),
        }
    }

    async fn batch(&self, ask: BatchRequest) -> Result<Batch, Problem> {
        self.console.api.batch(&self.requester, ask).await
    }

    /// One slice.
    async fn bulk_op(&self, bulk_op: &BulkOp) -> Result<BulkDone, Problem> {
        let api = &self.console.api;
        api.slice(&self.requester, bulk_op.clone()).await
    }

    /// The names of queues in another protocol.
    fn elsewhere(&self) -> Option<&dyn Elsewhere> {
        self.console.app.settings().elsewhere.as_deref()
    }

    fn query(&self) -> Result<Form, Problem> {
        Ok(self.console.app.query(&self.uri)?)
    }

    /// The form of an operation, from a page of ours.
    ///
    /// # Errors
    /// It does not bring the token its page had, or is over a limit, too slow or no form.
    async fn form(&self, request: Request) -> Result<RequestBody, Problem> {
        let fields = self.console.app.form(request).await?;
        match fields.form.get("csrf") == Some(&self.frame.csrf) {
            true => Ok(fields),
            false => Err(Problem::forbidden(
                "the form is from before the server's start, or from another login: load its page \
                 again",
            )),
        }
    }
}

/// The page of a template.
fn render(page: &impl Template) -> Answer {
    Ok(reply::show(StatusCode::OK, page))
}

/// The queue of an address.
fn queue_of(part: &str) -> Result<Name, Problem> {
    names::of_address(part).ok_or_else(Problem::no_such_page)
}

/// A text of an address.
fn text_of(part: &str) -> Result<String, Problem> {
    let text = String::from_utf8(queue_of(part)?.as_bytes().to_vec());
    text.map_err(|_| Problem::no_such_page())
}

/// All its pages.
pub fn router(app: Arc<App>, api: Arc<Api>, rq: Arc<Rq>) -> Router {
    let console = Arc::new(Console {
        app,
        api,
        rq,
        seal: Seal::default(),
        questions: ask::Questions::default(),
        jobs: operations::Jobs::default(),
    });
    let operated: Router<Arc<Console>> = Router::new()
        .route("/settings", get(operate::settings))
        .route("/settings/do/reload", post(operate::reload))
        .route("/hooks", get(operate::hooks))
        .route("/log", get(operate::log))
        .route("/cluster", get(cluster::page))
        .route("/cluster/{node}/do/{act}", post(cluster::order))
        .route("/connections", get(connections::page))
        .route("/connections/{id}/do/close", post(connections::close))
        .route("/workers", get(workers::page))
        .route("/workers/{wid}/ask/{act}", get(workers::question))
        .route("/workers/{wid}/do/{act}", post(workers::steer))
        .route("/schedules", get(schedules::page))
        .route(
            "/schedules/form",
            get(schedule_form::page).post(schedule_form::put),
        )
        .route("/schedules/{name}/do/{act}", post(schedules::steer))
        // The page's address before.
        .route("/cron", get(schedules::page))
        .route_layer(middleware::from_fn(quintet_api::operates));
    let around = middleware::from_fn_with_state(Arc::clone(&console), frame::around);
    Router::new()
        .route("/", get(overview::page))
        .route("/find", get(overview::find))
        .route("/put", get(put::page).post(put::put))
        .route("/logout", post(login::logout))
        .route("/leases", get(leases::page))
        .route("/waiting", get(waiting::page))
        .route("/leases/do/release", post(leases::release))
        .route("/scripts", get(scripts::page))
        .route("/batches", get(batches::page))
        .route("/batches/{id}", get(batches::show))
        .route("/batches/{id}/ask/{act}", get(batches::question))
        .route("/batches/{id}/do/{act}", post(batches::steer))
        .route("/queues/{queue}", get(queue::page))
        .route("/queues/{queue}/settings", get(setup::page))
        .route("/queues/{queue}/settings/{key}", post(setup::change))
        .route("/queues/{queue}/ask/{act}", get(ask::page))
        .route("/queues/{queue}/do/{act}", post(operations::on_queue))
        .route("/messages/{id}", get(message::page))
        .route("/messages/{id}/edit", get(put::edit_page).post(put::edit))
        .route("/messages/{id}/body", get(body::download))
        .route("/messages/{id}/log", get(run::download))
        .route("/messages/{id}/do/{act}", post(operations::on_message))
        .route("/bulk/{act}", get(bulk::page).post(bulk::begin))
        .route("/operations", get(operations::list))
        .route("/operations/{number}", get(operations::page))
        .route("/operations/{number}/do/stop", post(operations::stop))
        .merge(operated)
        .fallback(frame::missing)
        .layer(around)
        // Without the frame: the look of pages is no secret.
        .route("/assets/{name}", get(assets::asset))
        .with_state(console)
}
