//! Messages and numbers to look at.

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
    /// The message that was buried first.
    Buried(Name),
}

named! {
    /// States as an operator lists them.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum ListState, word {
        /// Ready now, those not selectable included.
        Ready = "ready",
        /// Waiting for their due time.
        Delayed = "delayed",
        /// Under a lease.
        Reserved = "reserved",
        /// Set aside.
        Buried = "buried",
        /// Not yet committed.
        Prepared = "prepared",
        /// Done or relayed.
        Archived = "archived",
    }
}

/// The statistics that are requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatsOf {
    Shard,
    Queue(Name),
    /// Some of the queues, in the order they were made: as many as bear looking
    /// at in one step, from `from` on. Says where to go on.
    Queues {
        /// A shard, and where in it; (0, 0) to begin.
        from: (u8, u32),
    },
    /// Names of queues of a shard, in order: those behind `after` that begin with `prefix`, and
    /// whose dead letters go to `dead_letter`, if it is given. As many as bear looking at in one
    /// step, `max` at most.
    Names {
        shard: u8,
        prefix: Box<[u8]>,
        after: Option<Name>,
        dead_letter: Option<Name>,
        max: u32,
    },
    Message(MessageId),
    /// Messages of a shard that wait for `parent`, which may be one of another shard: those of
    /// higher ids than `from` that the requester may peek at, of `max` that wait.
    Dependants {
        parent: MessageId,
        /// A shard, and where in it; (0, 0) to begin.
        from: (u8, MessageId),
        max: u32,
    },
    /// How a queue is set up ([`crate::QueueSetup`]).
    Setup(Name),
    /// Keys of a queue that are held ([`crate::Command::Hold`]).
    HeldKeys(Name),
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
}
