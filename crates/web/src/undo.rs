//! Messages that were leased for a client that never heard of it: they go back at once.

use std::sync::{Arc, Mutex, PoisonError};

use quintet_door::Door;
use quintet_engine::{Caller, Message};
use tokio::sync::mpsc;

/// Where such messages are left. A thread gives them back: whoever is told of an outcome must
/// not ask the shards.
#[derive(Clone)]
pub struct Losses(mpsc::UnboundedSender<(Caller, Vec<Message>)>);

impl Losses {
    /// Starts the thread, which ends with the last clone.
    pub fn new(voice: &str, door: Arc<dyn Door>) -> Self {
        let (to, mut losses) = mpsc::unbounded_channel::<(Caller, Vec<Message>)>();
        let restoring = std::thread::Builder::new().name(format!("{voice}-restore"));
        let started = restoring.spawn(move || {
            while let Some((caller, messages)) = losses.blocking_recv() {
                door.restore(caller.party, messages);
            }
        });
        if let Err(error) = started {
            // Their leases end by themselves.
            tracing::error!("{voice}: no thread to give messages back: {error}");
        }
        Self(to)
    }

    /// Gives back what was leased for `caller`.
    pub fn give_back(&self, caller: Caller, messages: Vec<Message>) {
        // Nobody restores any more only where the server stops.
        let _stopping = self.0.send((caller, messages));
    }
}

/// Gives messages back when it is dropped, unless it is disarmed.
pub struct Undo {
    losses: Losses,
    what: Option<(Caller, Vec<Message>)>,
}

impl Undo {
    /// Of what was leased for `caller`.
    pub fn new(losses: &Losses, caller: Caller, messages: Vec<Message>) -> Self {
        Self {
            losses: losses.clone(),
            what: Some((caller, messages)),
        }
    }

    /// The reply begins to leave.
    pub fn disarm(&mut self) {
        self.what = None;
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if let Some((caller, messages)) = self.what.take() {
            self.losses.give_back(caller, messages);
        }
    }
}

/// Among a reply's extensions: what is undone if the reply never begins to leave.
#[derive(Clone)]
pub(crate) struct Leaving(Arc<Mutex<Option<Undo>>>);

impl Leaving {
    pub(crate) fn new(undo: Undo) -> Self {
        Self(Arc::new(Mutex::new(Some(undo))))
    }

    pub(crate) fn take(&self) -> Option<Undo> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
