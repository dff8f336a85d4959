//! A client of the engine with a name of its own, for as long as it stays.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use quintet_client::{ClientApi, ask};
use quintet_types::{
    BackTo, Caller, ClientId, Command, CommandError, LeaseOwner, LeaseRequest, LeaseTime, Message,
    MessageId, Outcome,
};

/// A client that leaves when it is dropped, and with it all it has not settled
/// goes back.
pub(crate) struct Guest {
    client_api: Arc<dyn ClientApi>,
    client_id: ClientId,
    /// Commands without an outcome yet.
    outcomes: RefCell<Vec<Receiver<Outcome>>>,
    /// The one of [`Guest::hear`].
    requested: RefCell<Option<Receiver<Outcome>>>,
}

/// Longest wait of [`Guest::hear`].
const MOMENT: Duration = Duration::from_millis(50);

impl Guest {
    pub(crate) fn new(client_api: &Arc<dyn ClientApi>, arrive: quintet_client::Arrive) -> Self {
        Self {
            client_api: Arc::clone(client_api),
            client_id: client_api.enter(arrive),
            outcomes: RefCell::default(),
            requested: RefCell::default(),
        }
    }

    /// Says something without waiting for its outcome.
    pub(crate) fn say(&self, command: Command) {
        let receiver = self.submit(command);
        self.outcomes.borrow_mut().push(receiver);
    }

    /// The outcome of a command that was requested now or before, if it comes in a moment. A
    /// thread that has more to attend to asks again later.
    pub(crate) fn hear(&self, command: impl FnOnce() -> Command) -> Option<Outcome> {
        let requested = self.requested.take();
        let requested = requested.unwrap_or_else(|| self.submit(command()));
        match requested.recv_timeout(MOMENT) {
            Ok(outcome) => Some(outcome),
            Err(RecvTimeoutError::Timeout) => {
                self.requested.replace(Some(requested));
                None
            }
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    fn submit(&self, command: Command) -> Receiver<Outcome> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let caller = Caller::server(self.client_id);
        let reply = Box::new(move |outcome, _| {
            // Nobody listens any more only if the run is over.
            let _gone = sender.send(outcome);
        });
        self.client_api.submit(caller, command, reply);
        receiver
    }

    /// Waits for the outcomes of all its lines, in order.
    pub(crate) fn outcomes(&self) -> Vec<Outcome> {
        let outcomes = self.outcomes.take();
        let dropped = Outcome::Refused(CommandError::Unknown);
        outcomes
            .into_iter()
            .map(|receiver| receiver.recv().unwrap_or_else(|_| dropped.clone()))
            .collect()
    }

    pub(crate) fn ask(&self, command: Command) -> Outcome {
        ask(&*self.client_api, self.client_id, command)
    }

    /// Reserves a message for as long as this guest stays.
    pub(crate) fn reserve(&self, id: MessageId) -> Option<Message> {
        let lease = LeaseRequest {
            owner: LeaseOwner::Process,
            time: LeaseTime::Fixed(0),
            back_to: BackTo::Position,
            held_max: 0,
        };
        let Outcome::Messages(mut messages) = self.ask(Command::ReserveId { id, lease }) else {
            return None;
        };
        messages.pop()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.client_api.leave(self.client_id);
    }
}
