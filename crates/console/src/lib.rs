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
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::Response;
use axum::routing::get;
use axum::{Router, middleware};
use hyper::http::request::Parts;
use hyper::{StatusCode, Uri};
use quintet_client::{ClientApi, Did};
use quintet_scripts::Rq;
use quintet_types::{
    Batch, BatchRequest, BulkDone, BulkOp, Command, Message, MessageId, Ms, Name, Operation,
    Outcome, Principal, QueuePage, QueueSetup, QueueStats,
};

use frame::{Frame, Seal};
pub use login::{LOGIN, PLACES, has, is_page, lead, login};
use quintet_api::{Api, Path, Problem};
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

/// An operation by a form of one of our pages.
struct Posted(PageRequest, RequestBody);

impl FromRequest<Arc<Console>> for Posted {
    type Rejection = Problem;

    async fn from_request(request: Request, console: &Arc<Console>) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let Ok(context) = PageRequest::from_request_parts(&mut parts, console).await;
        let fields = context.form(Request::from_parts(parts, body)).await?;
        Ok(Self(context, fields))
    }
}

/// Two parts of an address.
type Two = Path<(String, String)>;

impl PageRequest {
    async fn ask(&self, command: Command) -> Result<Outcome, Problem> {
        Ok(self.console.api.ask(&self.requester, command).await?.0)
    }

    /// Writes down a part of what a request did, or what it did after its reply.
    fn note(&self, act: (Operation, &str), came: (u16, Did)) {
        let nobody = self.console.app.settings().gate.clone();
        let nobody = nobody.map(|gate| (Principal::SERVER, gate));
        if let Some((who, gate)) = self.requester.known.clone().or(nobody) {
            gate.note(who, self.from, act, came);
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
    let framed = middleware::from_fn_with_state(Arc::clone(&console), frame::around);
    let pages: Router<Arc<Console>> = quintet_api::routes!(
        Work get "/" overview::page,
        Work get "/find" overview::find,
        Work get "/put" put::page,
        Put post "/put" put::put,
        Logout post "/logout" login::logout,
        Work get "/leases" leases::page,
        Release post "/leases/do/release" leases::release,
        Work get "/waiting" waiting::page,
        Work get "/scripts" scripts::page,
        Work get "/batches" batches::page,
        Work get "/batches/{id}" batches::show,
        Work get "/batches/{id}/ask/{act}" batches::question,
        ForgetBatch post "/batches/{id}/do/{act}" batches::steer,
        Work get "/queues/{queue}" queue::page,
        Work get "/queues/{queue}/settings" setup::page,
        Configure post "/queues/{queue}/settings/{key}" setup::change,
        Work get "/queues/{queue}/ask/{act}" ask::page,
        OnQueue post "/queues/{queue}/do/{act}" operations::on_queue,
        Work get "/messages/{id}" message::page,
        Work get "/messages/{id}/edit" put::edit_page,
        Edit post "/messages/{id}/edit" put::edit,
        Work get "/messages/{id}/body" body::download,
        Work get "/messages/{id}/log" run::download,
        OnMessage post "/messages/{id}/do/{act}" operations::on_message,
        Work get "/bulk/{act}" bulk::page,
        OnQueue post "/bulk/{act}" bulk::begin,
        Work get "/operations" operations::list,
        Work get "/operations/{number}" operations::page,
        OnQueue post "/operations/{number}/do/stop" operations::stop,
        Look get "/settings" operate::settings,
        Reload post "/settings/do/reload" operate::reload,
        Look get "/hooks" operate::hooks,
        Look get "/log" operate::log,
        Look get "/cluster" cluster::page,
        OnNode post "/cluster/{node}/do/{act}" cluster::order,
        Look get "/connections" connections::page,
        CloseConnection post "/connections/{id}/do/close" connections::close,
        Look get "/workers" workers::page,
        Look get "/workers/{wid}/ask/{act}" workers::question,
        SteerWorker post "/workers/{wid}/do/{act}" workers::steer,
        Look get "/schedules" schedules::page,
        Look get "/schedules/form" schedule_form::page,
        DefineSchedule post "/schedules/form" schedule_form::put,
        SteerSchedule post "/schedules/{name}/do/{act}" schedules::steer,
        // The page's address before.
        Look get "/cron" schedules::page,
    );
    pages
        .fallback(frame::missing)
        .layer(framed)
        // Without the frame: the look of pages is no secret.
        .route("/assets/{name}", get(assets::asset))
        .with_state(console)
}
