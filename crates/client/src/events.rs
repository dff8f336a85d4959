//! Events of messages, as the log has them.

use std::sync::Arc;

use quintet_types::{MessageId, Ms, Name, Pattern, Principal};
use serde::Serialize;
use utoipa::ToSchema;

use crate::shown::base64_unless_text;

/// Events of a page at most.
pub const WATCHED_MAX: u32 = 1000;

/// Called when there may be new events: has to be short.
pub type News = Arc<dyn Fn() + Send + Sync>;

quintet_types::named! {
    /// Changes of a message that streams and webhooks report.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
    pub enum EventKind, name {
        /// It entered a queue, or its producer committed it.
        #[default]
        Put = "put",
        /// A worker got it under a lease.
        Reserved = "reserved",
        /// A worker finished it, or took it without a lease.
        Finished = "finished",
        /// A try failed.
        Failed = "failed",
        /// It was buried, or became a dead letter.
        Dead = "dead",
        /// It was removed as it was cancelled.
        Cancelled = "cancelled",
        /// It went back to its queue without a failure.
        Released = "released",
        /// It was deleted, purged, dropped or replaced.
        Removed = "removed",
        /// Its time ran out.
        Expired = "expired",
        /// It went to another queue.
        Moved = "moved",
        /// The server started, or another node took over: leases of connections ended.
        Restart = "restart",
        /// A part of the log is damaged, or was and a repair has cut it out: events of any queue
        /// may be missing there. Told whatever is requested.
        Lost = "lost",
    }
}

impl EventKind {
    /// The kinds in a list of words with commas.
    ///
    /// # Errors
    /// A sentence about the word that is no kind.
    pub fn list(words: &str) -> Result<Vec<Self>, String> {
        let kind = |word: &str| {
            let known = Self::ALL.into_iter().find(|kind| kind.name() == word);
            known.ok_or_else(|| {
                let all = Self::ALL.map(Self::name).join(", ");
                format!("takes words of {all}, with commas; not \"{word}\"")
            })
        };
        words.split(',').map(str::trim).map(kind).collect()
    }
}

/// Where a page begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Since {
    /// At the end of the log: the page is empty.
    Now,
    /// At the oldest event of the log.
    Oldest,
    /// Behind a page before, whose `next` this is.
    Position(String),
}

impl Since {
    /// `now`, `oldest` or a position.
    pub fn of(text: &str) -> Self {
        match text {
            "now" => Self::Now,
            "oldest" => Self::Oldest,
            position => Self::Position(position.to_owned()),
        }
    }
}

/// Selection of a stream: where it starts, queues and kinds.
#[derive(Clone, Debug)]
pub struct EventsRequest {
    pub since: Since,
    /// Of queues with such a name; empty: of all.
    pub queues: Vec<Pattern>,
    /// Of these kinds; empty: of all.
    pub kinds: Vec<EventKind>,
    /// So many at most, up to [`WATCHED_MAX`].
    pub max: u32,
    /// About so many bytes of JSON at most, up to 256 KiB.
    pub bytes: usize,
    /// On whose behalf: events of queues that it may not peek into are left out.
    pub principal: Principal,
}

/// A change of a message or a queue, as streams report it.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct MessageEvent {
    /// When it was written to the log.
    pub at: Ms,
    pub kind: EventKind,
    /// More about the kind, in a word; perhaps empty.
    pub why: &'static str,
    /// `None`: it happened to all waiting messages of the queue, or to no message.
    pub id: Option<MessageId>,
    /// `None`: it is about no queue, or about one that the reader may not see.
    pub queue: Option<Name>,
    /// The queue it went to, if the reader may see that.
    pub to: Option<Name>,
    /// The id that it had in the queue it came from.
    pub was: Option<MessageId>,
    /// Messages it happened to, if there is no id.
    pub count: Option<u64>,
    /// The message's own name, of a put.
    pub name: Option<Box<[u8]>>,
    /// Length of the body, of a put.
    pub bytes: Option<u64>,
    /// Why it failed or was buried.
    pub error: Option<Box<[u8]>>,
}

/// An event in JSON; fields that it does not have are left out.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Event {
    /// When the server wrote it to its log.
    pub at_ms: u64,
    /// put, reserved, finished, failed, dead, cancelled, released, removed, expired, moved,
    /// restart or lost.
    pub kind: &'static str,
    /// More about the kind.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub why: &'static str,
    /// Left out: it happened to `count` messages of the queue, or to all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The queue it went to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Its id in the queue it came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub was: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The message's own name, of a put.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The same in base64, if it is no text; of `error` as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_base64: Option<String>,
    /// Length of the body, of a put.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Why it failed or was buried; 1 KiB at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_base64: Option<String>,
}

impl From<&MessageEvent> for Event {
    fn from(event: &MessageEvent) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            at_ms: event.at.0,
            kind: event.kind.name(),
            why: event.why,
            id: event.id.map(|id| id.0),
            queue: event.queue.as_ref().map(Name::to_string),
            to: event.to.as_ref().map(Name::to_string),
            was: event.was.map(|id| id.0),
            count: event.count,
            name: event.name.as_deref().map(text),
            name_base64: event.name.as_deref().and_then(base64_unless_text),
            bytes: event.bytes,
            error: event.error.as_deref().map(text),
            error_base64: event.error.as_deref().and_then(base64_unless_text),
        }
    }
}

/// Events in the order of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventsPage {
    pub events: Vec<MessageEvent>,
    /// Position behind them; the next page begins there.
    pub next: String,
    /// The log goes on behind this page.
    pub more: bool,
}

/// Why there is no page.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoEvents {
    /// The position is no text of this server.
    #[error("takes now, oldest, or the position that a page has as next")]
    Malformed,
    /// The log does not have this position.
    #[error("{}; the oldest position is {oldest}", why_gone(.retired))]
    Gone {
        /// The oldest position there is.
        oldest: String,
        /// It was retired; else it is of another log.
        retired: bool,
    },
    /// The log cannot be read.
    #[error("cannot read the log: {0}")]
    Failed(String),
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "thiserror asks so")]
fn why_gone(retired: &bool) -> &'static str {
    match retired {
        true => "the log begins later, so events were missed",
        false => "this position is of another log, or of a time before a restore",
    }
}
