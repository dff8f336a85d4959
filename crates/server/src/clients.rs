//! The connections there are: each thread tells of its own, one after the
//! other, so that none waits for another.

use quintet_types::{Name, Party};
use serde::Serialize;

/// What one is told of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Client {
    /// Its number while the process lives; leases name it as their holder.
    pub(crate) id: u64,
    pub(crate) voice: &'static str,
    /// The listener it came by.
    pub(crate) listener: String,
    /// Where its client is; `None`: on this machine, by a unix socket.
    pub(crate) peer: Option<String>,
    /// Who the client is, as far as it is known.
    pub(crate) user: String,
    pub(crate) tls: bool,
    /// Since it last sent or took something, ms.
    pub(crate) idle_ms: u64,
    /// Bytes of replies it has not taken yet.
    pub(crate) unread_bytes: u64,
    /// What it asks for now, over HTTP: `GET /q`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) asks: Option<String>,
    /// The worker it is a connection of (faktory), by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) worker: Option<String>,
    /// Queues its takes wait for, the first of them.
    pub(crate) waits_on: Vec<String>,
    /// Leases it holds.
    pub(crate) leases: u64,
}

/// Bytes of a name or an address that are shown of a connection: there may be thousands of them.
const SHOWN_MAX: usize = 255;

/// The first part of a text.
pub(crate) fn shown(mut text: String) -> String {
    let end = (0..=SHOWN_MAX.min(text.len())).rev();
    let mut ends = end.filter(|&at| text.is_char_boundary(at));
    text.truncate(ends.next().unwrap_or(0));
    text
}

impl Client {
    pub(crate) fn party(&self) -> Party {
        Party(self.id)
    }

    pub(crate) fn set_held(&mut self, leases: u64, waits_on: &[Name]) {
        self.leases = leases;
        let shown = |name: &Name| shown(name.to_string());
        self.waits_on = waits_on.iter().map(shown).collect();
    }
}

/// Told who is connected.
pub(crate) type TellClients = Box<dyn FnOnce(Vec<Client>) + Send>;

/// A list that goes from thread to thread.
pub(crate) struct Census {
    pub(crate) clients: Vec<Client>,
    pub(crate) tell: TellClients,
}
