//! `/api/v1`: queues, messages, leases and the server as JSON.
//!
//! Each request is one command, or a few, of the requester's own principal: what
//! it may do the shards know, as for every protocol. A lease belongs to the client that
//! has its token, not to a connection.

mod after;
mod attempts;
mod attention;
mod batches;
mod bulk;
mod bytes_in_json;
mod call;
mod cancel;
mod dedupe;
mod events;
mod gather;
mod hold;
mod holder;
mod imports;
mod lease_events;
mod leases;
mod message_events;
mod messages;
mod names;
mod openapi;
mod operations;
mod over;
mod path;
mod problem;
mod queues;
mod read;
mod reasons;
mod records;
mod release;
mod results;
mod schedules;
mod server;
mod setup;
mod stats;
mod stream;
mod streamed;
mod tail;
mod trace;
mod types;
mod uploads;
mod workers;

use std::future::pending;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use hyper::Method;
use hyper::header::RETRY_AFTER;
use quintet_client::{ClientApi, Share};
use quintet_types::{
    BulkDone, BulkOp, Caller, ClientId, Command, Handed, Name, Outcome, Principal, Take, Verb, Wait,
};
use tokio::sync::Semaphore;

pub use after::{Before, Fate, On};
pub use attempts::PastAttempt;
pub use batches::{Batch, NewBatch, batches_after, list_batches};
pub use bulk::{cursor, cursor_text, since};
pub use dedupe::Dedupe;
use events::Hub;
use gather::{Gather, ReserveClient};
pub use holder::{Holder, Holders};
pub use imports::is_import;
pub use messages::SMALL;
pub use operations::around;
pub use over::Group;
pub use path::Path;
use problem::only;
pub use problem::{Problem, in_a_line};
use quintet_http::Problem::NoMemory;
pub use quintet_http::reply::blocking;
use quintet_http::{
    App, Attempt, Client, ConnectionSlot, Consumer, Guest, Losses, Requester, Undo, or_never,
};
pub use read::{DURATION_MAX_MS, version};
use results::Place;
pub use schedules::nexts;
pub use setup::version as version_of_setup;
pub use types::NewMessage;
use uploads::Uploads;

/// Estimated size of a row of a list before it is known, bytes.
const ROW_BYTES: u64 = 256;

/// A page of a list ends behind so many bytes.
const PAGE_BYTES: u64 = 1 << 20;

/// Memory of a page of connections or workers while it is made, bytes.
const LIST_BYTES: u64 = 4 << 20;

/// State that all handlers share.
pub struct Api {
    app: Arc<App>,
    client_api: Arc<dyn ClientApi>,
    losses: Losses,
    events: Arc<Hub>,
    /// One page of what happened to messages is read at a time.
    event_reads: Arc<Semaphore>,
    uploads: Uploads,
}

/// A connection's client, for as long as it is there.
struct Own {
    guest: Guest,
    /// The first who took something by it. Leases are shown with the consumer of their client.
    consumer: OnceLock<Consumer>,
}

impl Api {
    /// The API of one listener, which asks `client_api`.
    pub fn new(app: Arc<App>, client_api: Arc<dyn ClientApi>) -> Arc<Self> {
        let losses = Losses::new("http", Arc::clone(&client_api));
        let limits = &app.settings().limits;
        let events = Hub::new(limits.streams_max, limits.events_every);
        Arc::new(Self {
            app,
            client_api,
            losses,
            events: Arc::new(events),
            event_reads: Arc::new(Semaphore::new(1)),
            uploads: Uploads::default(),
        })
    }

    /// Ends the streams of events, which would not end by themselves.
    pub fn stop_events(&self) {
        self.events.stop();
    }

    /// The way into the shards, for questions that are no commands.
    pub fn client_api(&self) -> Arc<dyn ClientApi> {
        Arc::clone(&self.client_api)
    }

    /// Asks the shards on behalf of the requester.
    ///
    /// # Errors
    /// Their error.
    pub async fn ask(
        &self,
        requester: &Requester,
        command: Command,
    ) -> Result<(Outcome, Name), Problem> {
        self.note_account(requester, &command);
        let (principal, client) = (requester.principal(), requester.client.as_deref());
        allowed(self.submit(principal, client, command, pending()).await)
    }

    /// Notes the account of this machine that commands over the control socket, for the traces of
    /// messages that may end by it.
    fn note_account(&self, requester: &Requester, command: &Command) {
        if requester.principal() != Principal::SERVER
            || matches!(command.about().verb, Verb::Put | Verb::Peek | Verb::Stats)
        {
            return;
        }
        let (own, user) = (self.own(requester.client.as_deref()), requester.name());
        let consumers = &self.app.settings().clients.consumers;
        if let (Some(own), Some(user)) = (own, user)
            && consumers.of(own.guest.client_id()).is_none()
        {
            let consumer = Consumer {
                protocol: "http",
                user: Some(user),
                worker: None,
            };
            consumers.note(own.guest.client_id(), consumer);
        }
    }

    /// Takes messages; `gather`: goes on until there are enough. A wait ends when the client ends
    /// its side of the connection, and when the server stops. The messages go back if the reply
    /// with them never begins to leave.
    ///
    /// # Errors
    /// The shards' error.
    async fn take(
        &self,
        requester: &Requester,
        take: Take,
        gather: Option<Gather>,
        consumer: Consumer,
        connection_slot: Option<Arc<ConnectionSlot>>,
    ) -> Result<(Undo, Name), Problem> {
        let client = requester.client.as_deref();
        let waits = client.filter(|_| take.wait != Wait::No || gather.is_some());
        let _apart = Place::at(connection_slot).wait(waits)?;
        let _in_line = match waits {
            Some(_) => self.room(take.bytes_in_line())?,
            None => None,
        };
        let own = self.own(client);
        let own = own.filter(|own| *own.consumer.get_or_init(|| consumer.clone()) == consumer);
        // Of this request alone: it has no connection, or another consumer than those before it.
        let guest = own.is_none().then(|| Guest::new(&self.client_api));
        let caller = Caller {
            client_id: client_of(own, guest.as_ref()),
            principal: requester.principal(),
        };
        if waits.is_some_and(Client::has_ended) {
            // The reply may never arrive, and no wait would be seen to end.
            let name = take.queues.first().cloned().unwrap_or_default();
            return Ok((Undo::new(&self.losses, caller, Handed::new()), name));
        }
        let attempts = &self.app.settings().clients.attempts;
        let attempt = match (&take.token, take.queues.first()) {
            (Some(token), Some(queue)) => {
                let user = caller.principal;
                Some(attempts.begin(user, queue.as_bytes(), token).await)
            }
            _ => None,
        };
        let reserve_client = ReserveClient {
            caller,
            client,
            waits,
            attempt: attempt.as_ref(),
        };
        let again = gather.map(|gather| (gather, take.clone()));
        let (messages, name) = self.take_once(&reserve_client, take).await?;
        let mut undo = Undo::new(&self.losses, caller, messages);
        if let Some((gather, take)) = again.filter(|_| !undo.messages().is_empty()) {
            self.gather(gather, &reserve_client, take, &mut undo).await;
        }
        if waits.is_some_and(Client::has_ended) {
            undo = Undo::new(&self.losses, caller, Handed::new());
        }
        if !undo.messages().is_empty() {
            let consumers = &self.app.settings().clients.consumers;
            consumers.note(caller.client_id, consumer);
        }
        Ok((undo, name))
    }

    /// One take of those that make a reply.
    async fn take_once(
        &self,
        reserve_client: &ReserveClient<'_>,
        take: Take,
    ) -> Result<(Handed, Name), Problem> {
        let ReserveClient {
            caller,
            client,
            waits,
            attempt,
        } = *reserve_client;
        let replaced = or_never(attempt.map(Attempt::is_replaced));
        let stop = or_never(waits.map(|client| either(client.is_let_go(), replaced)));
        let answered = self.hear(caller, client, Command::Take(take), stop).await;
        let (outcome, name) = allowed(answered)?;
        // Any other outcome: it waited in vain.
        let mut messages = Handed::new();
        if let Outcome::Messages(taken) = outcome {
            messages = taken;
        }
        Ok((messages, name))
    }

    /// Takes memory for a list of so many bytes, of the memory that all connections share.
    ///
    /// # Errors
    /// There is none.
    pub fn room(&self, bytes: u64) -> Result<Option<Share>, Problem> {
        let memory = self.app.settings().memory.as_ref();
        let share = memory.map(|memory| memory.take(bytes).ok_or(NoMemory));
        Ok(share.transpose()?)
    }

    /// Does one slice of an operation on the messages of a queue.
    ///
    /// # Errors
    /// The shards' error.
    pub async fn slice(&self, requester: &Requester, bulk_op: BulkOp) -> Result<BulkDone, Problem> {
        let command = Command::BulkOp(Box::new(bulk_op));
        let answer = self.ask(requester, command).await?;
        Ok(only!(answer, (Outcome::BulkDone(bulk_done), _) => *bulk_done))
    }

    /// Looks through a slice of a queue, of 1 MiB or one message more.
    ///
    /// # Errors
    /// The shards' error; or there is no room for the page.
    async fn bulk_done(
        &self,
        requester: &Requester,
        bulk_op: BulkOp,
    ) -> Result<(BulkDone, Option<Share>), Problem> {
        let mut room = self.room(u64::from(bulk_op.max) * ROW_BYTES)?;
        let queue = bulk_op.queue.clone();
        let bulk_done = self.slice(requester, bulk_op).await;
        let bulk_done = bulk_done.map_err(|problem| problem.of_queue(&queue))?;
        // As it is, as it is shown, and as text, which has six letters for some.
        let held = bulk_done.messages.iter().map(|m| 8 * m.extra_bytes());
        grow(&mut room, held.sum())?;
        Ok((bulk_done, room))
    }

    /// Asks the shards as if a client did, which may be a connection.
    ///
    /// # Errors
    /// Their error.
    async fn ask_as(&self, caller: Caller, command: Command) -> Result<Outcome, Problem> {
        let answered = self.hear(caller, None, command, pending()).await;
        Ok(allowed(answered)?.0)
    }

    /// Asks the shards as a client, `client` if that is a connection. A command that waits does
    /// so until `stop`. `None`: the server is stopping.
    async fn hear(
        &self,
        caller: Caller,
        client: Option<&Client>,
        command: Command,
        stop: impl Future<Output = ()>,
    ) -> Option<(Outcome, Name)> {
        if let Some(client) = client {
            client.waits_as(Some(caller.client_id));
        }
        let mut answered = self.losses.submit(caller, command);
        let outcome = tokio::select! {
            biased;
            outcome = &mut answered => outcome,
            () = stop => {
                // The wait itself is answered with the outcome.
                self.client_api.submit(caller, Command::StopWaiting, Box::new(|_, _| {}));
                (&mut answered).await
            }
        };
        if let Some(client) = client {
            client.waits_as(None);
        }
        outcome.ok()
    }

    /// The client of a connection, if there is one.
    fn own<'a>(&self, client: Option<&'a Client>) -> Option<&'a Own> {
        client?.own(|| Own {
            guest: Guest::new(&self.client_api),
            consumer: OnceLock::new(),
        })
    }

    /// Asks the shards on behalf of `principal`, who may wait at `client` until `stop`. `None`: the
    /// server is stopping.
    async fn submit(
        &self,
        principal: Principal,
        client: Option<&Client>,
        command: Command,
        stop: impl Future<Output = ()>,
    ) -> Option<(Outcome, Name)> {
        let own = self.own(client);
        let guest = own.is_none().then(|| Guest::new(&self.client_api));
        let caller = Caller {
            client_id: client_of(own, guest.as_ref()),
            principal,
        };
        self.hear(caller, client, command, stop).await
    }
}

/// Takes so many bytes more for a list.
///
/// # Errors
/// There is no memory left.
fn grow(room: &mut Option<Share>, bytes: u64) -> Result<(), Problem> {
    match room.as_mut().is_none_or(|room| room.grow(bytes)) {
        true => Ok(()),
        false => Err(NoMemory.into()),
    }
}

/// Returns when the client ends its side of the connection, and when the server stops.
async fn let_go(client: Option<&Client>) {
    or_never(client.map(Client::is_let_go)).await;
}

/// Returns with the first of both.
async fn either(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    tokio::select! {
        () = one => {}
        () = other => {}
    }
}

/// A connection's client, or that of a request.
fn client_of(own: Option<&Own>, guest: Option<&Guest>) -> ClientId {
    let guest = own.map(|own| &own.guest).or(guest);
    guest
        .expect("a request has a client of its own if its connection has none")
        .client_id()
}

/// The outcome of a command that was done; `None` is an outcome that nobody knows.
fn allowed(answered: Option<(Outcome, Name)>) -> Result<(Outcome, Name), Problem> {
    let (outcome, name) = answered.ok_or_else(Problem::unknown)?;
    if let Outcome::Refused(command_error) = outcome {
        return Err(Problem::refused(command_error));
    }
    if let Outcome::Denied(why) = &outcome {
        return Err(Problem::denied(why));
    }
    Ok((outcome, name))
}

/// An error of the site, as the API tells it.
pub fn site_error(problem: quintet_http::Problem) -> Response {
    let answered = Problem::from(problem.clone());
    let as_text = problem.into_response();
    let mut response = answered.into_response();
    if let Some(again) = as_text.headers().get(RETRY_AFTER) {
        response.headers_mut().insert(RETRY_AFTER, again.clone());
    }
    response
}

/// The error of a request for a host that this server is not.
pub fn wrong_host(text: &str) -> Response {
    Problem::wrong_host(text).into_response()
}

/// Everything below `/api/v1`.
pub fn router(api: Arc<Api>) -> Router {
    operations::routes()
        .route("/openapi.json", get(openapi::document))
        .fallback(|method: Method| operations::unknown(method, Problem::no_such_page()))
        .method_not_allowed_fallback(|method: Method| {
            operations::unknown(method, Problem::wrong_method())
        })
        .with_state(api)
}
