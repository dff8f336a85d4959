//! Messages by the name that their producers gave them.

use super::{By, How, Verb};
use crate::lease::Cancel;
use crate::name::Name;
use crate::time::Ms;

/// The longest name of a message, bytes.
pub const MESSAGE_NAME_BYTES_MAX: usize = 255;

/// Does something to a reserved message that is known by its own name
/// ([`PutMore::name`](super::PutMore::name)), or says what became of one that is tracked. Names
/// need not be unique: of several that `by` allows it is the one whose lease has run longest, from
/// when it was given or last begun anew, and of these the one that was put first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByName {
    /// Where it is; `None`: in any queue that the caller may do this to. The
    /// shards are asked in turn then, until one has it.
    pub queue: Option<Name>,
    /// The message's own name.
    pub name: Box<[u8]>,
    /// The permitted client.
    pub by: By,
    pub action: NamedAction,
}

/// The key or queue that a lease's end holds, and for how many ms: nothing of it is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// The message's key in its queue.
    Key(u64),
    /// The message's queue: it is paused.
    Queue(u64),
}

/// The operation on it. If there is none, the answer is
/// [`CommandError::NotFound`](crate::CommandError::NotFound).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedAction {
    /// It is shown: [`Outcome::Messages`](crate::Outcome::Messages).
    Peek,
    /// Asks for the outcome of the tracked message of this name
    /// ([`PutMore::tracked`](super::PutMore)), whatever its state and also if it is gone:
    /// [`Outcome::Tracked`](crate::Outcome::Tracked). Of several it is the one that was put last;
    /// `by` is not asked.
    Track,
    /// As [`Command::Settle`](super::Command::Settle).
    Settle(How),
    /// As [`Command::SettleHolding`](super::Command::SettleHolding).
    SettleHolding(How, Holding),
    /// As [`Command::Extend`](super::Command::Extend): its lease ends so many ms from now
    /// (`None`: as long as it was given for). No effect on one without a deadline.
    Extend(Option<u64>),
    /// Its lease lasts until then at least. No effect on one without a deadline.
    Until(Ms),
    /// As [`Command::Progress`](super::Command::Progress): percent, status text. Also of a tracked
    /// message that nobody holds.
    Progress(Option<u8>, Option<Box<[u8]>>),
    /// As [`Command::Cancel`](super::Command::Cancel). Also of a tracked message that nobody holds.
    Cancel(Cancel),
}

impl NamedAction {
    /// True if it may be done to a tracked message that nobody holds.
    pub fn is_of_tracks(&self) -> bool {
        matches!(
            self,
            NamedAction::Until(_) | NamedAction::Progress(..) | NamedAction::Cancel(_)
        )
    }

    /// The verb that rights and audit know it by.
    pub fn verb(&self) -> Verb {
        match self {
            NamedAction::Peek | NamedAction::Track => Verb::Peek,
            NamedAction::Settle(_) | NamedAction::SettleHolding(..) => Verb::Settle,
            NamedAction::Cancel(_) => Verb::Delete,
            NamedAction::Extend(_) | NamedAction::Until(_) | NamedAction::Progress(..) => {
                Verb::Touch
            }
        }
    }
}
