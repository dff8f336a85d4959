//! Why something asked of RQ was not done.

use quintet_types::CommandError;

/// The normal "no" of the RQ protocol. Its text is RQ's own, as it stands behind
/// `fail ` on the command line and in `["fail", text]` over HTTP.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// No such queue.
    #[error("Queue not found")]
    QueueNotFound,
    /// No such message in the queue.
    #[error("Message ID not found")]
    MessageNotFound,
    /// The queue is administratively down and refuses all that changes it.
    #[error("status: DOWN")]
    Down,
    /// The queue is paused, and what was asked is not done to a paused queue.
    #[error("status: PAUSE")]
    Paused,
    /// A name of a queue, an attachment or a file that may not be; says which
    /// and why.
    #[error("{0}")]
    BadName(String),
    /// Not allowed by the settings.
    #[error("{0}")]
    Denied(String),
    /// The message is in a state that does not allow it.
    #[error("{0}")]
    WrongState(String),
    /// The engine's "no".
    #[error("{}", .0.text())]
    Refused(CommandError),
    /// Anything else: a broken disk, a request that makes no sense.
    #[error("{0}")]
    Failed(String),
}

impl From<CommandError> for Fault {
    fn from(command_error: CommandError) -> Self {
        if command_error == CommandError::NotFound {
            return Fault::MessageNotFound;
        }
        if command_error == CommandError::QueueNotFound {
            return Fault::QueueNotFound;
        }
        match command_error == CommandError::QueueDown {
            true => Fault::Down,
            false => Fault::Refused(command_error),
        }
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        Fault::Failed(error.to_string())
    }
}
