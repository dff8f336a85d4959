//! Messages that were leased for a client that never got the reply: they go back at once.

use std::sync::{Arc, Mutex, PoisonError};

use quintet_client::ClientApi;
use quintet_types::{Caller, Handed, Message};
use tokio::sync::mpsc;

/// The way back for such messages. A thread of its own gives them back, as a callback that is
/// told an outcome must not ask the shards.
#[derive(Clone)]
pub struct Losses(mpsc::UnboundedSender<(Caller, Vec<Message>)>);

impl Losses {
    /// Starts the thread, which ends with the last clone.
    pub fn new(protocol: &str, client_api: Arc<dyn ClientApi>) -> Self {
        let (to, mut losses) = mpsc::unbounded_channel::<(Caller, Vec<Message>)>();
        let restoring = std::thread::Builder::new().name(format!("{protocol}-restore"));
        let started = restoring.spawn(move || {
            while let Some((caller, messages)) = losses.blocking_recv() {
                client_api.restore(caller.client_id, messages);
            }
        });
        if let Err(error) = started {
            // Their leases end by themselves.
            tracing::error!("{protocol}: no thread to give messages back: {error}");
        }
        Self(to)
    }

    /// Gives back messages that were leased for `caller`.
    pub fn give_back(&self, caller: Caller, messages: Vec<Message>) {
        // The thread ends before its senders only when the server stops.
        let _stopping = self.0.send((caller, messages));
    }
}

/// Messages that were leased for a reply. They go back when this is dropped, unless it is
/// disarmed.
pub struct Undo {
    losses: Losses,
    caller: Caller,
    messages: Handed,
}

impl Undo {
    /// For messages that were leased for `caller`.
    pub fn new(losses: &Losses, caller: Caller, messages: Handed) -> Self {
        Self {
            losses: losses.clone(),
            caller,
            messages,
        }
    }

    /// The messages, for the reply that is made of them.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// More messages were leased for the same client and reply. One that came back meanwhile and
    /// was leased again is there once, under its new lease.
    pub fn add(&mut self, more: Handed) {
        let again = |message: &Message| more.iter().any(|other| other.id == message.id);
        self.messages.retain(|message| !again(message));
        self.messages.extend(more);
    }

    /// The reply begins to leave.
    pub fn disarm(&mut self) {
        self.messages = Handed::new();
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        let messages = std::mem::take(&mut self.messages);
        if !messages.is_empty() {
            self.losses.give_back(self.caller, messages.into_vec());
        }
    }
}

/// Among a reply's extensions: the leases that end if the reply never begins to leave.
#[derive(Clone)]
pub struct Leaving(Arc<Mutex<Option<Undo>>>);

impl Leaving {
    /// Messages go back as `undo` says, unless the reply begins to leave.
    pub fn new(undo: Undo) -> Self {
        Self(Arc::new(Mutex::new(Some(undo))))
    }

    pub(crate) fn take(&self) -> Option<Undo> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
