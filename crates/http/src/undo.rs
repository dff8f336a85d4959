//! Messages that were leased for a client that never got the reply: they go back at once.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};

use quintet_client::ClientApi;
use quintet_types::{
    Caller, Cancelled, Command, Handed, Message, MessageId, Name, Outcome, locked,
};
use tokio::sync::oneshot;

/// The way back for such messages. A thread of its own gives them back, as a callback that
/// gets an outcome must not ask the shards. It starts with the first of them and ends with the last
/// clone.
#[derive(Clone)]
pub struct Losses(Arc<Restoring>);

struct Restoring {
    protocol: &'static str,
    client_api: Arc<dyn ClientApi>,
    to: OnceLock<Sender<(Caller, Vec<Message>)>>,
}

impl Losses {
    /// Gives messages back through `client_api`.
    pub fn new(protocol: &'static str, client_api: Arc<dyn ClientApi>) -> Self {
        Self(Arc::new(Restoring {
            protocol,
            client_api,
            to: OnceLock::new(),
        }))
    }

    /// Submits a command; its outcome comes later. What it leases for somebody who does not listen
    /// any more goes back.
    pub fn submit(&self, caller: Caller, command: Command) -> oneshot::Receiver<(Outcome, Name)> {
        let losses = matches!(command, Command::Take(_)).then(|| self.clone());
        let (sender, received) = oneshot::channel();
        let reply = Box::new(move |outcome: Outcome, name: Name| {
            if let Err((unheard, _)) = sender.send((outcome, name))
                && let Some(losses) = losses
                && let Outcome::Messages(messages) = unheard.of_command()
            {
                losses.give_back(caller, messages.into_vec());
            }
        });
        self.0.client_api.submit(caller, command, reply);
        received
    }

    /// Gives back messages that were leased for `caller`.
    pub fn give_back(&self, caller: Caller, messages: Vec<Message>) {
        let to = self.0.to.get_or_init(|| self.0.start());
        // There is a thread unless the system had none: then their leases end by themselves.
        let _no_thread = to.send((caller, messages));
    }
}

impl Restoring {
    fn start(&self) -> Sender<(Caller, Vec<Message>)> {
        let (to, losses) = channel::<(Caller, Vec<Message>)>();
        let client_api = Arc::clone(&self.client_api);
        let thread = std::thread::Builder::new().name(format!("{}-restore", self.protocol));
        let started = thread.spawn(move || {
            for (caller, messages) in losses {
                client_api.restore(caller.client_id, messages);
            }
        });
        if let Err(error) = started {
            tracing::error!(
                "{}: no thread to give messages back: {error}",
                self.protocol
            );
        }
        to
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

    /// The message with this id is not leased for the reply any more.
    pub fn remove(&mut self, id: MessageId) {
        self.messages.retain(|message| message.id != id);
    }

    /// Notes in the copy for the reply that the message is cancelled.
    pub fn mark(&mut self, id: MessageId, cancelled: Box<Cancelled>) {
        let message = self.messages.iter_mut().find(|message| message.id == id);
        if let Some(message) = message {
            message.extra_mut().cancelled = Some(cancelled);
        }
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
        locked(&self.0).take()
    }
}
