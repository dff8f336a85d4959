//! Messages to look at.

use crate::id::MessageId;
use crate::message::{Message, State};
use crate::name::Name;
use crate::time::Ms;

/// Which message to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peek {
    /// This one, whatever its state.
    Id(MessageId),
    /// The next one that a FIFO consumer would get; ignores pause.
    Ready(Name),
    /// The delayed one that is due first.
    Delayed(Name),
    /// The one that was buried first.
    Buried(Name),
    /// Up to `max` messages of one state in order, from an id on (console).
    List {
        queue: Name,
        state: ListState,
        /// Skip ids up to and including this one.
        after: Option<MessageId>,
        /// Messages at most.
        max: u32,
    },
}

/// States as an operator lists them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListState {
    /// Ready now, those not selectable included.
    Ready,
    /// Waiting for their due time.
    Delayed,
    /// Under a lease.
    Reserved,
    /// Set aside.
    Buried,
    /// Not yet committed.
    Prepared,
    /// Done or relayed.
    Archived,
}

impl ListState {
    /// The state that a message is listed in at `now`.
    pub fn of(message: &Message, now: Ms) -> Self {
        match message.state {
            State::Ready if message.is_delayed(now) => ListState::Delayed,
            State::Ready => ListState::Ready,
            State::Reserved => ListState::Reserved,
            State::Buried => ListState::Buried,
            State::Prepared => ListState::Prepared,
            State::Done | State::Relayed => ListState::Archived,
        }
    }

    /// As the API calls it.
    pub const fn word(self) -> &'static str {
        match self {
            ListState::Ready => "ready",
            ListState::Delayed => "delayed",
            ListState::Reserved => "reserved",
            ListState::Buried => "buried",
            ListState::Prepared => "prepared",
            ListState::Archived => "archived",
        }
    }
}
