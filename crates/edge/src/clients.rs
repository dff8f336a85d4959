//! The connections there are: each thread lists its own, one after the
//! other, so that none waits for another.

use quintet_types::{ClientId, Name};
use serde::Serialize;

/// A connection as `GET /connections` and `quintet clients` show it.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Client {
    /// Its number while the process lives; leases name it as their holder.
    pub id: u64,
    pub protocol: &'static str,
    /// The old name of `protocol`, for one release.
    pub voice: &'static str,
    /// The listener it came by.
    pub listener: String,
    /// Where its client is; `None`: on this machine, by a unix socket.
    pub peer: Option<String>,
    /// The client's user, as far as it is known.
    pub user: String,
    pub tls: bool,
    /// Since it last sent or took something, ms.
    pub idle_ms: u64,
    /// Bytes of replies it has not taken yet.
    pub unread_bytes: u64,
    /// Its present request, over HTTP: `GET /q`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asks: Option<String>,
    /// The worker it is a connection of (faktory), by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Queues its takes wait for, the first of them.
    pub waits_on: Vec<String>,
    pub leases: u64,
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
    pub(crate) fn client_id(&self) -> ClientId {
        ClientId(self.id)
    }

    pub(crate) fn set_held(&mut self, leases: u64, waits_on: &[Name]) {
        self.leases = leases;
        let shown = |name: &Name| shown(name.to_string());
        self.waits_on = waits_on.iter().map(shown).collect();
    }
}

/// Receives connections one by one.
pub trait Listing: Send {
    /// Takes one. False: it has enough, and this one is for the next page.
    fn add(&mut self, client: Client) -> bool;

    /// It has enough, or all.
    fn end(self: Box<Self>);
}

/// Where a list goes on.
#[derive(Clone, Copy)]
pub enum Place {
    /// With this slot of a thread.
    Slot(u32),
    /// Behind this number of HTTP.
    Http(u64),
}

/// A list that goes from thread to thread, a slice of it at a time.
pub struct Census {
    pub place: Place,
    pub listing: Box<dyn Listing>,
}
