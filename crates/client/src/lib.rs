//! The way in for the parts of the server that have no connection: scripts,
//! HTTP and hooks ask the shards through a [`ClientApi`].
//!
//! The server has one that answers when what it says is durable; tests have
//! one over a bare engine (`quintet_sim::client_api`).

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

mod arrivals;
pub mod attention;
mod audit;
mod budget;
mod events;
mod followed;
mod history;
mod node;
mod reports;
mod schedules;
pub mod shown;
mod spec;
pub mod trace;
mod unique;
pub mod words;
mod worker;

use std::io::{self, Read};
use std::sync::mpsc;
use std::time::Duration;

use quintet_types::{
    Attempt, Body, Caller, ClientId, Command, CommandError, Ending, Handed, Message, MessageId, Ms,
    Name, Outcome, Overrides, Principal, QueueSetup, QueueStats, WallAhead,
};

pub use arrivals::Arrivals;
pub use attention::{Finding, Level, Rule, Thresholds};
pub use audit::{AuditLine, AuditLog, Entry};
pub use budget::{ByteBudget, Share};
pub use events::{
    Event, EventKind, EventsPage, EventsRequest, MessageEvent, News, NoEvents, Since, WATCHED_MAX,
};
pub use followed::{FOLLOWED_BODY, Followed, Happened};
pub use history::{History, Rates, Recent, Sample, Series};
pub use node::{ClusterNumbers, NodeNumbers};
pub use reports::{
    Change, ClusterSeen, Did, HookEvent, LogSeen, NoChange, NodeSeen, Parts, SetBy, Setting,
    Source, ThrottledClient,
};
pub use schedules::{
    LastRun, NotSteered, RunSeen, ScheduleAct, SchedulePage, ScheduleSeen, Steered, TellSchedules,
    TellSteered, WhichSchedules,
};
pub use spec::{
    BadSpec, SCHEDULE_NAME_MAX, ScheduleSpec, SpecMissed, SpecOverlap, SpecRepeat, SpecUnique,
    SpecUntil,
};
pub use unique::unique;
pub use worker::WorkerAction;

pub use quintet_types::FOLDER;

/// Messages of one step of a bulk operation, 1,024 at most: what others wait for.
/// As long as such a step takes is lost in what a request takes anyway.
pub const ACT_STEP: u32 = 128;
/// How long such an operation rests between its steps, so that it takes the
/// processors, and the log, from nobody: some 30,000 messages a second are left.
pub const ACT_REST: Duration = Duration::from_millis(4);

/// Tries to read two clocks at one moment.
const READINGS: usize = 8;

/// Told what came of a command: the outcome, and the name of the queue its
/// first message came from (empty if there is none). Called once, from any
/// thread, also the caller's own before [`ClientApi::submit`] returns; has to be
/// short and must not submit.
pub type OnOutcome = Box<dyn FnOnce(Outcome, Name) + Send>;

/// Notified of messages for a client's subscription ([`quintet_types::Command::Watch`]), with the
/// queue the first came from; the subscription is over then. Called from another thread, never
/// twice at once; has to be short and must not submit.
pub type Arrive = Box<dyn FnMut(Handed, Name) + Send>;

/// The way in. Shared by all threads.
#[expect(unused_variables, reason = "of defaults, which have nothing to tell")]
pub trait ClientApi: Send + Sync {
    /// Engine time.
    fn now(&self) -> Ms;

    /// The wall clock's time: for calendars, and for times that people give or are shown. It can be
    /// set at any moment, forward or back.
    fn wall(&self) -> Ms;

    /// Engine time when the wall clock will show `wall`, if nobody sets it.
    fn at_wall(&self, wall: Ms) -> Ms {
        self.ahead().engine_at(wall)
    }

    /// How far the wall clock is ahead of engine time. Both are cut to whole milliseconds, so one
    /// is no distance.
    fn ahead(&self) -> WallAhead {
        let mut now = self.now();
        let mut wall = self.wall();
        // A thread may lose its processor between two readings.
        for _ in 0..READINGS {
            let after = self.now();
            if after.since(now) <= 1 {
                break;
            }
            (now, wall) = (after, self.wall());
        }
        let ahead = WallAhead::between(now, wall);
        match ahead.0 {
            -1..=1 => WallAhead::default(),
            _ => ahead,
        }
    }

    /// The time of this process, or of its owning what it serves: leases that are given now are
    /// known by it ([`quintet_types::LeaseRef`]).
    fn epoch(&self) -> u64;

    /// Why no new work should be sent here now, though what is here is served:
    /// it is being drained, say. `None`: nothing speaks against it.
    fn unready(&self) -> Option<&'static str> {
        None
    }

    /// Clients that a `[[limit]]` throttled: `most` of them at most, the latest first.
    fn throttled(&self, most: usize) -> Vec<ThrottledClient> {
        Vec::new()
    }

    /// This server's role in its cluster, for operators. `None`: it is alone.
    fn role(&self) -> Option<String> {
        None
    }

    /// Every number this server tells, in this format; of these names alone, whole or with a `*`
    /// at the end, if there are any; with the series of single queues if `queues` says so. May take
    /// as long as there are queues. `None`: it has none.
    fn metrics(&self, exposition: Exposition, names: &[String], queues: bool) -> Option<String> {
        None
    }

    /// The same numbers by name, and the server's texts, as an object in JSON.
    fn numbers(&self) -> String {
        "{}".to_owned()
    }

    /// The configuration in force, as a TOML file with its secrets hidden.
    fn config(&self) -> String {
        String::new()
    }

    /// History of a queue's numbers. `None`: it has not moved for a day, or too many others had.
    fn history(&self, queue: &Name) -> Option<History> {
        None
    }

    /// Adds the last hour of a queue, by the minute, to that of others. `None`: nobody looked yet.
    fn add_hour(&self, queue: &Name, sum: &mut Option<Series>) {}

    /// How fast a queue's messages came and left over the last minute that is over. `None`: as of
    /// [`ClientApi::history`].
    fn rates(&self, queue: &Name) -> Option<Rates> {
        None
    }

    /// The newest counts of a queue with these numbers. `None`: the server has not looked at it
    /// yet.
    fn recent(&self, queue: &QueueStats) -> Option<Recent> {
        None
    }

    /// The events of a queue's messages from number `after` on, 0: from now on; the queue is
    /// followed as long as somebody asks. `None`: too many others are.
    fn follow(&self, queue: &Name, after: u64, contains: &[u8]) -> Option<Followed> {
        None
    }

    /// Events of messages, from the log: a page of them. Reads files.
    ///
    /// # Errors
    /// [`NoEvents`].
    fn events(&self, request: &EventsRequest) -> Result<EventsPage, NoEvents> {
        Err(NoEvents::Failed("no log is kept".to_owned()))
    }

    /// Has `news` called, by any thread, when the log is durable for longer than up to a position
    /// of [`ClientApi::events`]; true: it is already. Nobody is called who was dropped.
    fn await_events(&self, next: &str, news: &News) -> bool {
        false
    }

    /// From what on a queue needs attention.
    fn thresholds(&self) -> Thresholds {
        Thresholds::default()
    }

    /// Where the trace of a message is shown, with `{trace_id}` and `{span_id}`; empty: nowhere.
    fn trace_url(&self) -> String {
        String::new()
    }

    /// The parts of the server that are configured.
    fn parts(&self) -> Parts {
        Parts::default()
    }

    /// The end of a message that is gone. `None`: that is not known.
    fn end_of(&self, id: MessageId) -> Option<Ending> {
        None
    }

    /// The newest attempts of a message that ended without success, by its first id or a later one,
    /// oldest first.
    fn attempts_of(&self, id: MessageId) -> Vec<Attempt> {
        Vec::new()
    }

    /// The newest purge to which a message belongs perhaps whose end is not known any more.
    fn purge_of(&self, id: MessageId) -> Option<Ending> {
        None
    }

    /// Every setting in force, and where it comes from. Empty: nobody tells.
    fn settings(&self) -> Vec<Setting> {
        Vec::new()
    }

    /// The settings of a queue in force, in the order of the documentation.
    /// Empty: nobody tells.
    fn queue_settings(&self, setup: &QueueSetup) -> Vec<Setting> {
        Vec::new()
    }

    /// A queue's own settings after these changes, which somebody of this name makes.
    ///
    /// # Errors
    /// One of them is not possible.
    fn change(
        &self,
        setup: &QueueSetup,
        changes: &[Change],
        name: &str,
    ) -> Result<Overrides, NoChange> {
        Ok(setup.own.clone())
    }

    /// Work of hooks, by event; those that were never called are left out.
    fn hook_events(&self) -> Vec<HookEvent> {
        Vec::new()
    }

    /// The newest lines of the audit, `most` of them, oldest first. Reads files.
    ///
    /// # Errors
    /// They cannot be read.
    fn audit(&self, most: usize) -> io::Result<Vec<AuditLine>> {
        Ok(Vec::new())
    }

    /// The cluster this server is a node of. Asks all nodes, which takes seconds where one is gone.
    /// `None`: it is alone.
    fn cluster(&self) -> Option<ClusterSeen> {
        None
    }

    /// Has a node of the cluster own, or own nothing. Waits for the nodes. Answers what came of it,
    /// in words.
    ///
    /// # Errors
    /// Why it was not done.
    fn order_node(&self, order: NodeOrder, node: &str) -> Result<String, String> {
        Err("this server is not a node of a cluster".to_owned())
    }

    /// Lists the connections behind the one of this number, as a page in JSON; perhaps later, from
    /// another thread. Dropped without a call where the server stops.
    fn clients(&self, after: Option<u64>, sender: TellPage) {
        sender("[]".to_owned(), None);
    }

    /// Closes a connection; told, perhaps later, whether there was one of this
    /// number.
    fn close_client(&self, id: u64, sender: Box<dyn FnOnce(bool) + Send>) {
        drop(sender);
    }

    /// Lists the workers behind `after`, as a page of a list in JSON; as [`ClientApi::clients`]
    /// does.
    fn workers(&self, after: Option<String>, sender: TellPage) {
        drop(sender);
    }

    /// Asks a worker of a client for more than it was asked so far; false: it is
    /// not known.
    fn steer_worker(&self, action: WorkerAction, wid: &str) -> bool {
        false
    }

    /// Lists schedules, in a page; perhaps later, from another thread. Dropped without a call where
    /// the server stops.
    fn schedules(&self, which: WhichSchedules, sender: TellSchedules) {
        sender(Ok((Vec::new(), None)));
    }

    /// Steers the schedule of this name; replies, perhaps later, when it is durable. Dropped
    /// without a call where the server stops.
    fn steer_schedule(&self, action: ScheduleAct, name: &str, sender: TellSteered) {
        let name = name.to_owned();
        sender(Err(NotSteered::None {
            name,
            nearest: None,
        }));
    }

    /// Refuses puts in a moment, or takes them again; false: the server is stopping.
    fn drain(&self, on: bool) -> bool {
        false
    }

    /// Reads the configuration again, for this principal or for nobody in particular. `sender` is
    /// called later, from another thread; dropped where the server stops.
    fn reload(&self, principal: Option<Principal>, sender: TellReload) {
        drop(sender);
    }

    /// A new client, to hold leases and to wait. `arrive` gets what its subscription
    /// brings.
    fn enter(&self, arrive: Arrive) -> ClientId;

    /// The same, for a client whose commands come from the calling thread: its outcomes are
    /// reported there. The thread must not block until they are.
    fn enter_here(&self, arrive: Arrive) -> ClientId {
        self.enter(arrive)
    }

    /// The client goes: its waits end unanswered, and its leases of kind
    /// *connection* and *process* end, as if it had disconnected.
    fn leave(&self, client_id: ClientId);

    /// Asks the shards. `reply` is called when the outcome may be reported: when
    /// what it says is durable under the server's sync policy. Commands of a
    /// client are decided one after the other: behind a take that waits the next
    /// ones wait too, but for `StopWaiting`.
    fn submit(&self, caller: Caller, command: Command, reply: OnOutcome);

    /// Undoes takes of a client whose replies never began to leave: what they
    /// leased is free again, as if nobody had taken it. The client may have left.
    fn restore(&self, client_id: ClientId, messages: Vec<Message>) {
        let caller = Caller::server(client_id);
        self.submit(caller, Command::Restore(messages), Box::new(|_, _| {}));
    }

    /// Reads a part of a body, from byte `from` on, into `into`; answers how
    /// many bytes, fewer only at its end. Large bodies are read from the disk.
    ///
    /// # Errors
    /// The disk's; or the message has died and its bytes are gone.
    fn read(&self, body: &Body, from: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Stores the next `len` bytes of `source` as a body for `queue`; one over
    /// 64 KiB goes to the log in pieces as it is read, and is never whole in
    /// memory.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is kept then.
    fn store(&self, queue: &Name, len: u64, source: &mut dyn Read) -> Result<Body, StoreError>;
}

/// Receives a page of a list in JSON, and the name of its last row if more follow.
pub type TellPage = Box<dyn FnOnce(String, Option<String>) + Send>;

/// Told the effects of reading the configuration again that nobody asked for, a sentence each; or
/// why nothing changed.
pub type TellReload = Box<dyn FnOnce(Result<Vec<String>, String>) + Send>;

/// An order to a cluster, about one of its nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeOrder {
    /// It is to own the queues.
    Move,
    /// It is to own nothing, if others can.
    Drain,
    /// Or no longer so.
    Undrain,
}

/// How numbers are written for those who scrape them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exposition {
    /// Prometheus' text format, version 0.0.4.
    Prometheus,
    /// OpenMetrics, version 1.0.
    OpenMetrics,
}

/// Why a body was not stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The queue would not have it, or there is no room.
    #[error("{}", .0.text())]
    Refused(CommandError),
    /// The source broke off or failed.
    #[error("cannot read the body: {0}")]
    Source(io::Error),
}

/// Asks on behalf of `client_id` and waits for the answer. A take that waits
/// keeps the thread for as long.
pub fn ask(client_api: &dyn ClientApi, client_id: ClientId, command: Command) -> Outcome {
    ask_named(client_api, client_id, command).0
}

/// [`ask`], with the queue the first message came from.
pub fn ask_named(
    client_api: &dyn ClientApi,
    client_id: ClientId,
    command: Command,
) -> (Outcome, Name) {
    let caller = Caller::server(client_id);
    let (sender, receiver) = mpsc::sync_channel(1);
    let reply = Box::new(move |outcome, name| {
        // Nobody listens any more only if this thread is gone.
        let _gone = sender.send((outcome, name));
    });
    client_api.submit(caller, command, reply);
    // The drop of the reply means: decided, but never acknowledged.
    receiver
        .recv()
        .unwrap_or((Outcome::Refused(CommandError::Unknown), Name::default()))
}

/// A client for a single purpose. It leaves when this is dropped.
pub struct ScopedClient<'a> {
    client_api: &'a dyn ClientApi,
    client_id: ClientId,
}

impl<'a> ScopedClient<'a> {
    /// Enters without a subscription.
    pub fn new(client_api: &'a dyn ClientApi) -> Self {
        let client_id = client_api.enter(Box::new(|_, _| {}));
        Self {
            client_api,
            client_id,
        }
    }

    /// The number under which the shards know this client.
    pub fn client_id(&self) -> ClientId {
        self.client_id
    }

    /// Asks and waits for the answer.
    pub fn ask(&self, command: Command) -> Outcome {
        ask(self.client_api, self.client_id, command)
    }
}

impl Drop for ScopedClient<'_> {
    fn drop(&mut self) {
        self.client_api.leave(self.client_id);
    }
}

/// A body's bytes from the first to the last, as a reader.
pub struct BodyBytes<'a> {
    client_api: &'a dyn ClientApi,
    body: Body,
    at: u64,
}

impl<'a> BodyBytes<'a> {
    /// Reads `body` from the beginning.
    pub fn new(client_api: &'a dyn ClientApi, body: Body) -> Self {
        Self {
            client_api,
            body,
            at: 0,
        }
    }
}

impl Read for BodyBytes<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.client_api.read(&self.body, self.at, into)?;
        self.at += read as u64;
        Ok(read)
    }
}
