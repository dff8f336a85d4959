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
mod nearest;
mod node;
mod operator;
mod reports;
mod schedules;
pub mod shown;
mod slices;
mod spec;
pub mod trace;
mod unique;
pub mod words;
mod worker;

use std::io::{self, Read};
use std::sync::mpsc;
use std::time::Duration;

use quintet_types::{
    Body, Caller, ClientId, Command, CommandError, Handed, Message, Ms, Name, Outcome, WallAhead,
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
pub use nearest::Nearest;
pub use node::{ClusterNumbers, NodeNumbers};
pub use operator::{Exposition, Operator, TellPage, TellReload};
pub use reports::{
    Change, ClusterSeen, Did, HookEvent, LogSeen, NoChange, NodeSeen, Parts, SetBy, Setting,
    Source, ThrottledClient,
};
pub use schedules::{
    NotSteered, RunSeen, ScheduleAct, SchedulePage, ScheduleSeen, ScheduleView, Steered,
    TellSchedules, TellSteered, WhichSchedules,
};
pub use slices::Slices;
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
pub trait ClientApi: Operator {
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
