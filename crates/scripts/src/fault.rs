//! Why something asked of RQ was not done.

use std::fmt;

use quintet_engine::Refusal;

/// The normal "no" of the RQ voice. Its text is RQ's own, as it stands behind
/// `fail ` on the command line and in `["fail", text]` over HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// No such queue.
    QueueNotFound,
    /// No such message in the queue.
    MessageNotFound,
    /// The queue is administratively down and refuses all that changes it.
    Down,
    /// The queue is paused, and what was asked is not done to a paused queue.
    Paused,
    /// A name of a queue, an attachment or a file that may not be; says which
    /// and why.
    BadName(String),
    /// Not allowed by the settings.
    Denied(String),
    /// The message is in a state that does not allow it.
    WrongState(String),
    /// The engine's "no".
    Refused(Refusal),
    /// Anything else: a broken disk, a request that makes no sense.
    Failed(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::QueueNotFound => f.write_str("Queue not found"),
            Fault::MessageNotFound => f.write_str("Message ID not found"),
            Fault::Down => f.write_str("status: DOWN"),
            Fault::Paused => f.write_str("status: PAUSE"),
            Fault::BadName(text)
            | Fault::Denied(text)
            | Fault::WrongState(text)
            | Fault::Failed(text) => f.write_str(text),
            Fault::Refused(refusal) => f.write_str(refusal.text()),
        }
    }
}

impl std::error::Error for Fault {}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotFound => Fault::MessageNotFound,
            Refusal::QueueNotFound => Fault::QueueNotFound,
            Refusal::QueueDown => Fault::Down,
            other => Fault::Refused(other),
        }
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        Fault::Failed(error.to_string())
    }
}
