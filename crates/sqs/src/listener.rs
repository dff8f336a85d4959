//! A listener's requests: let in, read, done, answered.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, StatusCode, Uri};
use quintet_client::words::date;
use quintet_client::{ClientApi, Did, Share};
use quintet_http::{
    Answer, Answering, Client, ConnectionSlot, Denied, Errand, Guard, Guest, Leaving,
    LoginCredentials, Losses, Payer, Problem, Replied, Serve, Settings, Undo, Whole, held,
    interruptible, pace, whole,
};
use quintet_types::{Caller, ClientId, CommandError, Name, Principal, QueueSettings, Verb, mixed};
use tokio::sync::watch;

use crate::ask::{ShardClient, unexpected};
use crate::fault::{Fault, Shape};
use crate::handle::Secrets;
use crate::input::{Action, table};
use crate::message::Limits;
use crate::names::Place;
use crate::once::{self, Call, Once};
use crate::reply::{self, Reply, Written};
use crate::request::{self, Head, Nowhere, WireFormat};
use crate::sign::{self, Came, Keys};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");
const QUERY_ERROR: HeaderName = HeaderName::from_static("x-amzn-query-error");
const TARGET: HeaderName = HeaderName::from_static("x-amz-target");
const INVOCATION: HeaderName = HeaderName::from_static("amz-sdk-invocation-id");
const TRACE: HeaderName = HeaderName::from_static("x-amzn-trace-id");

/// Options of a listener beside its rules for HTTP.
#[derive(Clone, Debug)]
pub struct Options {
    /// Twelve digits, in URLs and ARNs.
    pub account: String,
    /// In ARNs.
    pub region: String,
    /// Prefix of queue URLs; empty: `http://` and the host that was asked.
    pub url: String,
    /// Keys that requests have to be signed with; none: no signature is looked at.
    pub keys: Keys,
    /// Queues are made by their first use.
    pub auto_create: bool,
    /// Delays, times and numbers beyond the bounds of AWS are taken.
    pub open: bool,
    /// Bytes of a message at most, whatever its queue says.
    pub message_bytes_max: u64,
    /// How long an answer is kept for a send that is sent again.
    pub retry_window: Duration,
    /// A queue is purged as often as that; zero: as one likes.
    pub purge_interval: Duration,
    /// A queue can be made again so long after it was deleted; zero: at once.
    pub recreate_after: Duration,
}

impl Options {
    /// Where its queues are.
    pub(crate) fn place(&self) -> Place {
        Place {
            account: self.account.clone(),
            region: self.region.clone(),
            url: self.url.clone(),
        }
    }
}

/// The configuration's settings of a queue, below those that were set for it.
pub type FileSettings = Arc<dyn Fn(&Name) -> QueueSettings + Send + Sync>;

/// The service of one listener, and its rules.
pub struct Sqs {
    pub(crate) settings: Settings,
    pub(crate) guard: Guard,
    pub(crate) options: Options,
    pub(crate) place: Place,
    pub(crate) limits: Limits,
    pub(crate) secrets: Secrets,
    pub(crate) file: FileSettings,
    pub(crate) client_api: Arc<dyn ClientApi>,
    pub(crate) once: Arc<Once>,
    pub(crate) recent: Recent,
    /// Held by the thread that changes what moves there are, or takes a step of one.
    pub(crate) moves: tokio::sync::Mutex<()>,
    /// Of the log, for as long as this process writes it.
    pub(crate) epoch: u64,
    lost: Losses,
    /// True once the server stops.
    stops: watch::Sender<bool>,
    ids: Ids,
}

/// Returns when the server stops.
pub(crate) async fn stopped(stops: &mut watch::Receiver<bool>) {
    // The listener is gone: no less.
    let _gone = stops.wait_for(|stops| *stops).await;
}

/// When queues were purged and deleted lately.
#[derive(Default)]
pub(crate) struct Recent {
    pub(crate) purged: Mutex<HashMap<Name, Instant>>,
    pub(crate) deleted: Mutex<HashMap<Name, Instant>>,
}

/// Makes the ids of requests: none is given twice, and what they tell is of no use.
struct Ids {
    base: u64,
    next: AtomicU64,
}

impl Ids {
    fn next(&self) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        // Spreads neighbours.
        let high = mixed(self.base ^ number);
        let low = mixed(number.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ self.base;
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xfff,
            low >> 48 & 0x3fff | 0x8000,
            low & 0xffff_ffff_ffff
        )
    }
}

/// The caller of a request, and the facts about it that actions need.
#[derive(Clone)]
pub(crate) struct RequestContext {
    pub(crate) shards: ShardClient,
    /// As the client calls this server.
    pub(crate) host: String,
    pub(crate) secure: bool,
    pub(crate) trace: Option<String>,
    /// The key it was signed with, if one has to be.
    pub(crate) key: Option<String>,
    /// Names a send over its attempts, where its client does.
    pub(crate) call: Option<Call>,
    /// As its client calls itself.
    pub(crate) agent: Option<String>,
    pub(crate) stops: watch::Receiver<bool>,
    /// The place its connection has, which is another's while it waits.
    pub(crate) connection_slot: Option<Arc<ConnectionSlot>>,
    /// Its connection, if it came by one.
    pub(crate) client: Option<Arc<Client>>,
}

/// Result of an action: its reply, how long it waited for messages, and the undoing if the reply
/// never begins to leave.
pub(crate) struct ActionResult {
    pub(crate) reply: Reply,
    pub(crate) waited: Duration,
    pub(crate) undo: Option<Undo>,
    /// Memory of the messages in the reply.
    pub(crate) _share: Option<Share>,
}

impl From<Reply> for ActionResult {
    fn from(reply: Reply) -> Self {
        Self {
            reply,
            waited: Duration::ZERO,
            undo: None,
            _share: None,
        }
    }
}

impl Sqs {
    /// A listener with these rules. Has to be called where a runtime of tokio is entered, or
    /// [`Sqs::begin`] be called there.
    pub fn new(
        settings: Settings,
        options: Options,
        secrets: Secrets,
        file: FileSettings,
        client_api: Arc<dyn ClientApi>,
    ) -> Arc<Self> {
        let guard = settings.guard(true);
        let lost = Losses::new("sqs", Arc::clone(&client_api));
        let place = options.place();
        let limits = Limits {
            open: options.open,
            message_bytes_max: options.message_bytes_max,
        };
        let now = client_api.wall().0;
        Arc::new(Self {
            settings,
            guard,
            place,
            limits,
            secrets,
            file,
            once: Arc::new(Once::new(options.retry_window)),
            recent: Recent::default(),
            epoch: client_api.epoch(),
            moves: tokio::sync::Mutex::default(),
            client_api,
            lost,
            stops: watch::Sender::new(false),
            ids: Ids {
                base: now.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(std::process::id()),
                next: AtomicU64::new(0),
            },
            options,
        })
    }

    async fn reply(self: Arc<Self>, peer: Option<IpAddr>, request: Request<Incoming>) -> Response {
        let began = Instant::now();
        let id = self.ids.next();
        let answered = self.answered(peer, request, &id).await;
        if let Some(on_replied) = &self.settings.replied {
            on_replied(Replied {
                errand: answered.errand,
                status: answered.response.status().as_u16(),
                took: began.elapsed().saturating_sub(answered.waited),
            });
        }
        with_id(answered.response, &id)
    }

    async fn answered(
        self: &Arc<Self>,
        peer: Option<IpAddr>,
        request: Request<Incoming>,
        id: &str,
    ) -> Answered {
        let (parts, body) = interruptible(request).into_parts();
        if parts.uri.path() == "/healthz" {
            return Answered::plain(StatusCode::OK, "text/plain", "ok");
        }
        let head = head(&parts.method, &parts.uri, &parts.headers);
        let format = request::format(&head);
        let refuse = |fault: Fault| Answered::of(reply::refuse(format, id, &fault));
        let client = parts.extensions.get::<Arc<Client>>().cloned();
        let client = client.as_ref();
        if let Err(fault) = self.admit(peer, &parts, client).await {
            return refuse(fault);
        }
        let (bytes, _held) = match self.read(peer, body, client).await {
            Ok(read) => read,
            Err(fault) => {
                let mut answered = refuse(fault);
                // What is left of the body is not read.
                let close = HeaderValue::from_static("close");
                answered.response.headers_mut().insert(CONNECTION, close);
                return answered;
            }
        };
        let (principal, key) = match self.log_in(peer, &parts, &head, &bytes, client).await {
            Ok(who) => who,
            Err(fault) => return refuse(fault),
        };
        let mut action = match request::read(&head, &bytes).map(|parsed| parsed.action) {
            Ok(Ok(action)) => action,
            Ok(Err(fault)) => return refuse(fault),
            Err(Nowhere::Path | Nowhere::NoAction) => {
                let none = "<UnknownOperationException/>";
                return Answered::plain(StatusCode::NOT_FOUND, "text/xml", none);
            }
        };
        let (name, errand) = (action.name(), errand(&action));
        let operation = action.operation();
        let put = (errand == Errand::Put).then(|| call_of(&parts, &head, principal, &bytes));
        drop(bytes);
        let own = client.and_then(|client| client.own(|| Guest::new(&self.client_api)));
        // Kept until the request is answered, where there is no connection to keep it.
        let guest = own.is_none().then(|| Guest::new(&self.client_api));
        let Some(guest) = own.or(guest.as_ref()) else {
            return refuse(unexpected());
        };
        let context = self.context(&parts, (guest.client_id(), principal), key, put.flatten());
        let noted = operation.is_recorded().then(|| subject(&mut action));
        // What is read next goes where these lie, rather than into memory of its own.
        drop(parts);
        if let Some(client) = client {
            client.waits_as(Some(guest.client_id()));
        }
        let done = self.perform(&context, action).await;
        if let Some(client) = client {
            client.waits_as(None);
        }
        let done = done.and_then(|done| self.written(format, name, id, done));
        let (mut answered, did) = done.unwrap_or_else(|fault| {
            tracing::debug!(
                peer = peer.map(|peer| peer.to_string()),
                protocol = "sqs",
                reason = fault.shape.name(),
                "refused: {name}: {}",
                fault.text.escape_debug()
            );
            (refuse(fault), Did::default())
        });
        answered.errand = errand;
        if let (Some(what), Some(gate)) = (noted, &self.guard.gate) {
            let status = answered.response.status().as_u16();
            let act = format!("sqs {name} {what}");
            gate.note(principal, peer, (operation, &act), (status, did));
        }
        answered
    }

    /// Lets a request in by its head.
    async fn admit(
        &self,
        peer: Option<IpAddr>,
        parts: &Parts,
        client: Option<&Arc<Client>>,
    ) -> Result<(), Fault> {
        if parts.method != Method::POST && parts.method != Method::GET {
            return Err(Fault::no_action(parts.method.as_str()));
        }
        let (gate, client) = (self.guard.gate.as_ref(), client.map(|client| &**client));
        let paced = pace(gate, peer, None, client).await;
        paced.map_err(|problem| of_problem(&problem))?;
        // A GET does things here, too.
        let checked = self
            .guard
            .check(peer, &Method::POST, &parts.uri, &parts.headers);
        checked.map_err(of_denied)
    }

    /// The whole body of a request, and the memory that it takes.
    async fn read(
        &self,
        peer: Option<IpAddr>,
        body: Body,
        client: Option<&Arc<Client>>,
    ) -> Result<Whole, Fault> {
        let payer = Payer {
            gate: self.guard.gate.clone(),
            peer,
            principal: None,
        };
        let mut request = Request::new(body);
        request.extensions_mut().insert(payer);
        let read = whole(request, &self.settings).await;
        read.map_err(
            |problem| match client.and_then(|client| client.is_cut_off()) {
                Some(why) => Fault::new(Shape::RequestThrottled, why),
                None => of_problem(&problem),
            },
        )
    }

    fn context(
        &self,
        parts: &Parts,
        (client_id, principal): (ClientId, Principal),
        key: Option<String>,
        call: Option<Call>,
    ) -> RequestContext {
        RequestContext {
            shards: ShardClient {
                client_api: Arc::clone(&self.client_api),
                caller: Caller {
                    client_id,
                    principal,
                },
                lost: self.lost.clone(),
            },
            host: text(&parts.headers, &hyper::header::HOST)
                .or(parts.uri.authority().map(|authority| authority.as_str()))
                .unwrap_or("localhost")
                .to_owned(),
            secure: self.settings.tls.is_some(),
            trace: text(&parts.headers, &TRACE).map(str::to_owned),
            key,
            call,
            agent: text(&parts.headers, &hyper::header::USER_AGENT).map(str::to_owned),
            stops: self.stops.subscribe(),
            connection_slot: parts.extensions.get::<Arc<ConnectionSlot>>().cloned(),
            client: parts.extensions.get::<Arc<Client>>().cloned(),
        }
    }

    /// The reply to an action that was done, if there is memory for it, and what the audit tells.
    fn written(
        &self,
        format: WireFormat,
        action: &str,
        id: &str,
        done: ActionResult,
    ) -> Result<(Answered, Did), Fault> {
        let len = reply::len_max(format, &done.reply);
        let share = self.room(len as u64)?;
        let mut did = Did::default();
        if let Reply::Removed(count) | Reply::TaskCancelled(count) = done.reply {
            did = Did::to(count);
        }
        let written = reply::write(format, action, id, (&done.reply, len));
        let mut answered = Answered::with(written, share);
        answered.waited = done.waited;
        // It goes back, unless the reply begins to leave.
        if let Some(undo) = done.undo {
            let leaving = Leaving::new(undo);
            answered.response.extensions_mut().insert(leaving);
        }
        Ok((answered, did))
    }

    /// Takes memory for so many bytes of a reply, of the memory that all connections share. Short
    /// replies are not counted.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn room(&self, bytes: u64) -> Result<Option<Share>, Fault> {
        held::room(&self.settings, bytes).map_err(|problem| of_problem(&problem))
    }

    /// Before anything of a queue is looked up as the server.
    ///
    /// # Errors
    /// The client has not this right on it.
    pub(crate) fn must_have(
        &self,
        context: &RequestContext,
        verb: Verb,
        queue: &Name,
    ) -> Result<(), Fault> {
        let gate = self.guard.gate.as_ref().filter(|gate| gate.is_used());
        let principal = context.shards.caller.principal;
        match gate.is_none_or(|gate| gate.may(principal, verb, queue)) {
            true => Ok(()),
            false => Err(CommandError::NotPermitted.into()),
        }
    }

    /// The key of a request's signature, and its secret, where keys are known.
    fn signed(
        &self,
        parts: &Parts,
        head: &Head<'_>,
        body: &[u8],
    ) -> Result<Option<(&str, &str)>, Fault> {
        let keys = &self.options.keys;
        if keys.is_empty() {
            return Ok(None);
        }
        let header = |name: &str| values(&parts.headers, name);
        let came = Came {
            method: parts.method.as_str(),
            path: head.path,
            query: head.query,
            header: &header,
            body,
        };
        let now = date(self.client_api.wall().0).unwrap_or_default();
        sign::check(&came, keys, now).map(Some)
    }

    /// The client: by the signature, where keys are known; then by the server's users, if there are
    /// any.
    async fn log_in(
        &self,
        peer: Option<IpAddr>,
        parts: &Parts,
        head: &Head<'_>,
        body: &[u8],
        client: Option<&Arc<Client>>,
    ) -> Result<(Principal, Option<String>), Fault> {
        let signed = self.signed(parts, head, body)?;
        let key = signed.map(|(id, _)| id.to_owned());
        let Some(gate) = self.guard.gate.as_ref().filter(|gate| gate.is_used()) else {
            return Ok((Principal::SERVER, key));
        };
        let certified = parts.extensions.get::<Arc<quintet_tls::Identity>>();
        let shown = match (signed, certified) {
            (Some((id, secret)), _) => LoginCredentials::Basic(id.as_bytes(), secret.as_bytes()),
            (None, Some(identity)) => LoginCredentials::Certificate(&identity.common_name),
            (None, None) => LoginCredentials::Nothing,
        };
        let (sender, receiver) = quintet_http::reply::channel();
        gate.log_in(peer, shown, sender);
        let stopping = Answer::NotNow("the server is stopping");
        let (principal, proof) = match receiver.await.unwrap_or(stopping) {
            Answer::In(principal, proof) => (principal, proof),
            Answer::No if signed.is_some() => return Err(Fault::unknown_key()),
            Answer::No => return Err(Fault::not_signed()),
            Answer::NotNow(why) => return Err(Fault::new(Shape::RequestThrottled, why)),
        };
        if let Some(client) = client {
            client.is_of(Some(&(principal, Arc::clone(gate))), proof);
        }
        // A login may end between its check and the note of it.
        if !gate.counts(principal, proof) {
            return Err(Fault::unknown_key());
        }
        let client = client.map(|client| &**client);
        let paced = pace(Some(gate), None, Some(principal), client).await;
        paced.map_err(|problem| of_problem(&problem))?;
        Ok((principal, key))
    }

    /// The way to the shards for what goes on without a request.
    pub(crate) fn shards(&self, guest: &Guest) -> ShardClient {
        ShardClient {
            client_api: Arc::clone(&self.client_api),
            caller: Caller::server(guest.client_id()),
            lost: self.lost.clone(),
        }
    }

    /// An id that is given to nothing else.
    pub(crate) fn next_id(&self) -> String {
        self.ids.next()
    }

    /// Told when the server stops.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stops.subscribe()
    }
}

macro_rules! perform {
    ($({ $($action:ident($input:ty) = $operation:ident $method:ident,)* })*) => {
        impl Sqs {
            /// Each in a box of its own: what waits, mostly a poll, takes no more memory than it needs.
            async fn perform(
                self: &Arc<Self>,
                context: &RequestContext,
                action: Action,
            ) -> Result<ActionResult, Fault> {
                Ok(match action {
                    $($(Action::$action(input) => {
                        Box::pin(self.$method(context, input)).await?.into()
                    })*)*
                })
            }
        }
    };
}

table!(perform);

impl Serve for Sqs {
    fn protocol(&self) -> &'static str {
        "sqs"
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn tells_health(&self, path: &str) -> bool {
        path == "/healthz"
    }

    fn gives_up(&self) -> bool {
        true
    }

    fn turn_away(&self, problem: Problem, request: &Request<Incoming>) -> Response {
        let head = head(request.method(), request.uri(), request.headers());
        let id = self.ids.next();
        let written = reply::refuse(request::format(&head), &id, &of_problem(&problem));
        with_id(Answered::of(written).response, &id)
    }

    fn begins(self: Arc<Self>) {
        self.resume_moves();
    }

    fn ends(&self) {
        self.stops.send_replace(true);
    }

    fn answer(self: Arc<Self>, peer: Option<IpAddr>, request: Request<Incoming>) -> Answering {
        Box::pin(self.reply(peer, request))
    }
}

struct Answered {
    response: Response,
    errand: Errand,
    waited: Duration,
}

impl Answered {
    fn plain(status: StatusCode, content_type: &'static str, body: &'static str) -> Self {
        Self::of(Written {
            status: status.as_u16(),
            content_type,
            error: None,
            body: body.into(),
        })
    }

    fn of(written: Written) -> Self {
        Self::with(written, None)
    }

    /// A reply that holds its share of the memory until it has left.
    fn with(written: Written, share: Option<Share>) -> Self {
        let mut response = Response::new(held::body(written.body.into(), share));
        *response.status_mut() = StatusCode::from_u16(written.status).unwrap_or_default();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(written.content_type));
        if let Some(error) = written
            .error
            .and_then(|text| HeaderValue::from_str(&text).ok())
        {
            headers.insert(QUERY_ERROR, error);
        }
        Self {
            response,
            errand: Errand::Other,
            waited: Duration::ZERO,
        }
    }
}

/// Subject of an action, as the audit shows it.
fn subject(action: &mut Action) -> String {
    if let Action::StartMessageMoveTask(input) = action {
        input.source_arn.clone().unwrap_or_default()
    } else if let Action::CancelMessageMoveTask(input) = action {
        let handle = input.task_handle.clone().unwrap_or_default();
        crate::names::of_handle(&handle).map_or(handle, |(_, source)| source)
    } else {
        let url = action.queue_url().cloned().flatten();
        let name = request::queue(&url).map(str::to_owned);
        name.unwrap_or_else(|_| url.unwrap_or_default())
    }
}

fn errand(action: &Action) -> Errand {
    match action {
        Action::SendMessage(_) | Action::SendMessageBatch(_) => Errand::Put,
        Action::ReceiveMessage(_) => Errand::Take,
        Action::DeleteMessage(_)
        | Action::DeleteMessageBatch(_)
        | Action::ChangeMessageVisibility(_)
        | Action::ChangeMessageVisibilityBatch(_) => Errand::Settle,
        _ => Errand::Other,
    }
}

fn of_denied(denied: Denied) -> Fault {
    let shape = match denied {
        Denied::NotNow(_) => Shape::RequestThrottled,
        Denied::Address | Denied::Host | Denied::Origin | Denied::Login => Shape::AccessDenied,
    };
    Fault::new(shape, denied.text())
}

fn of_problem(problem: &Problem) -> Fault {
    let (status, text) = problem.status_and_text();
    let shape = match problem {
        Problem::TooMany(..) => Shape::RequestThrottled,
        _ if status == StatusCode::SERVICE_UNAVAILABLE => Shape::RequestThrottled,
        Problem::FormTooLarge(max) => {
            let text = format!("A request has {max} bytes at most (max_request).");
            return Fault::parameter(text).with_status(413);
        }
        _ if status.is_server_error() => Shape::InternalFailure,
        _ => return Fault::parameter(text).with_status(status.as_u16()),
    };
    Fault::new(shape, text)
}

fn head<'a>(method: &Method, uri: &'a Uri, headers: &'a HeaderMap) -> Head<'a> {
    Head {
        get: method == Method::GET,
        path: uri.path(),
        query: uri.query().unwrap_or_default(),
        content_type: text(headers, &CONTENT_TYPE).unwrap_or_default(),
        target: text(headers, &TARGET),
    }
}

/// The call that a request is part of, if its client names it: a repeat of it is the same call.
fn call_of(parts: &Parts, head: &Head<'_>, principal: Principal, body: &[u8]) -> Option<Call> {
    let named = text(&parts.headers, &INVOCATION)?.as_bytes();
    let (who, target) = (principal.0.to_be_bytes(), head.target.unwrap_or_default());
    let [path, query, target] = [head.path, head.query, target].map(str::as_bytes);
    Some(once::call(&[named, &who, path, query, target, body]))
}

fn with_id(mut response: Response, id: &str) -> Response {
    if let Ok(id) = HeaderValue::from_str(id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// All values of a header, as a signature has them.
fn values(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut values = headers.get_all(name).iter().peekable();
    values.peek()?;
    let values = values.map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned());
    Some(values.collect::<Vec<String>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_requests_are_uuids_and_differ() {
        let ids = Ids {
            base: 7,
            next: AtomicU64::new(0),
        };
        let made: std::collections::BTreeSet<String> = (0..10_000).map(|_| ids.next()).collect();
        assert_eq!(made.len(), 10_000);
        for id in &made {
            let shape: Vec<usize> = id.split('-').map(str::len).collect();
            assert_eq!(shape, [8, 4, 4, 4, 12], "{id}");
            assert_eq!(&id[14..15], "4", "{id}");
        }
    }
}
