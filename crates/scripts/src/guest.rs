//! A client of the engine with a name of its own, for as long as it stays.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use quintet_door::{Door, ask};
use quintet_types::{
    BackTo, Caller, Command, LeaseAsk, LeaseOwner, LeaseTime, Message, MessageId, Outcome, Party,
    Refusal,
};

/// A party that leaves when it is dropped, and with it all it has not settled
/// goes back.
pub(crate) struct Guest {
    door: Arc<dyn Door>,
    party: Party,
    /// Commands without an outcome yet.
    said: RefCell<Vec<Receiver<Outcome>>>,
}

impl Guest {
    pub(crate) fn new(door: &Arc<dyn Door>, arrive: quintet_door::Arrive) -> Self {
        Self {
            door: Arc::clone(door),
            party: door.enter(arrive),
            said: RefCell::default(),
        }
    }

    /// Says something without waiting for its outcome.
    pub(crate) fn say(&self, command: Command) {
        let (tell, told) = mpsc::sync_channel(1);
        let caller = Caller::server(self.party);
        let reply = Box::new(move |outcome, _| {
            // Nobody listens any more only if the run is over.
            let _gone = tell.send(outcome);
        });
        self.door.submit(caller, command, reply);
        self.said.borrow_mut().push(told);
    }

    /// Waits for the outcomes of all it said, in order.
    pub(crate) fn outcomes(&self) -> Vec<Outcome> {
        let said = self.said.take();
        let dropped = Outcome::Refused(Refusal::Unknown);
        said.into_iter()
            .map(|told| told.recv().unwrap_or_else(|_| dropped.clone()))
            .collect()
    }

    pub(crate) fn ask(&self, command: Command) -> Outcome {
        ask(&*self.door, self.party, command)
    }

    /// Reserves a message for as long as this guest stays.
    pub(crate) fn reserve(&self, id: MessageId) -> Option<Message> {
        let lease = LeaseAsk {
            owner: LeaseOwner::Process,
            time: LeaseTime::Fixed(0),
            back_to: BackTo::Place,
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
        self.door.leave(self.party);
    }
}
