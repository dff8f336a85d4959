//! Many messages of a queue: which, and what is done to them.

use crate::command::ListState;
use crate::lease::Cancel;
use crate::message::{Attr, Message, State};
use crate::name::Name;
use crate::state_index::Order;
use crate::tie::BatchId;
use crate::time::Ms;

/// Looks through the messages of a queue that are in one state, in their
/// order, and does something to those that fit: a slice of them at a time, of
/// what bears looking at in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkOp {
    pub queue: Name,
    pub state: ListState,
    pub filter: Filter,
    pub action: BulkAction,
    /// Start of the next slice: [`BulkDone::next`](crate::BulkDone::next) of the slice before;
    /// `None` begins.
    pub after: Option<Cursor>,
    /// Messages that fit at most.
    pub max: u32,
}

impl BulkOp {
    /// Shows all messages in this state, from the first on.
    pub fn show(queue: Name, state: ListState, max: u32) -> Self {
        Self {
            queue,
            state,
            filter: Filter::default(),
            action: BulkAction::Show,
            after: None,
            max,
        }
    }
}

/// The operation on messages that match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BulkAction {
    /// They are shown.
    Show,
    /// They are shown from the last on: a slice begins before [`BulkOp::after`]. Of ready messages
    /// it lists either those that are selectable or, with a cursor that says so, the others.
    ShowBack,
    /// Changes nothing; the reply has their number.
    Count,
    /// Those are counted that [`BulkAction::Cancel`] would cancel.
    CountToCancel,
    /// They are removed. Reserved ones stay.
    Delete,
    /// The same; and from its first slice on, no put repeats an earlier one of the queue.
    Purge,
    /// They are cancelled, as by [`Command::Cancel`](super::Command::Cancel). Those that are done
    /// or cancelled already stay as they are.
    Cancel(Cancel),
    /// Buried and delayed ones are ready again.
    Kick,
    /// They go to the tail of this queue and are ready there. Reserved and
    /// prepared ones stay.
    Move(Name),
    /// Those that came by the dead-letter rule, or because they expired, go
    /// back to the queue they came from; what was counted of them, and where they came from, is
    /// forgotten, and they live there as long as what is put now. Others stay, as do those that
    /// queue cannot be made for, or that the caller may not put into. `to`: all go to this queue
    /// instead, wherever they came from.
    Redrive { to: Option<Name> },
    /// All go to this queue as by [`BulkAction::Redrive`], but the queue is not made: where it is
    /// not there nothing goes, and the operation is refused.
    RedriveInto(Name),
}

impl BulkAction {
    /// True if it can be done to messages in this state.
    pub fn is_for(&self, state: ListState) -> bool {
        match self {
            BulkAction::Show | BulkAction::Count => true,
            BulkAction::ShowBack => matches!(state, ListState::Ready | ListState::Buried),
            BulkAction::Delete | BulkAction::Purge => state != ListState::Reserved,
            BulkAction::Cancel(_) | BulkAction::CountToCancel => state != ListState::Archived,
            BulkAction::Kick => matches!(state, ListState::Buried | ListState::Delayed),
            BulkAction::Move(_) | BulkAction::Redrive { .. } | BulkAction::RedriveInto(_) => {
                !matches!(state, ListState::Reserved | ListState::Prepared)
            }
        }
    }

    /// True if it changes anything.
    pub fn changes(&self) -> bool {
        !matches!(
            self,
            BulkAction::Show | BulkAction::ShowBack | BulkAction::Count | BulkAction::CountToCancel
        )
    }

    /// The one queue that they go to.
    pub fn goes_to(&self) -> Option<&Name> {
        match self {
            BulkAction::Move(to) | BulkAction::RedriveInto(to) => Some(to),
            BulkAction::Redrive { to } => to.as_ref(),
            BulkAction::Show
            | BulkAction::ShowBack
            | BulkAction::Count
            | BulkAction::CountToCancel
            | BulkAction::Delete
            | BulkAction::Purge
            | BulkAction::Cancel(_)
            | BulkAction::Kick => None,
        }
    }

    /// True if that queue has to be there.
    pub fn must_exist(&self) -> bool {
        matches!(self, BulkAction::RedriveInto(_))
    }
}

/// A place among the messages of one state, whether one stands there or not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cursor {
    /// Behind all that are selectable.
    pub not_selectable: bool,
    pub order: Order,
}

/// Which messages: those for which all of it is true.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The body has these bytes somewhere; a large body, which is not in
    /// memory, has not.
    pub body: Option<Box<[u8]>>,
    /// It has this grouping key.
    pub key: Option<Box<[u8]>>,
    pub name: Option<Box<[u8]>>,
    /// It has these named values.
    pub attrs: Vec<Attr>,
    /// It came by the dead-letter rule, or expired elsewhere.
    pub dead: bool,
    /// Its error is of this kind ([`Message::error_kind`]).
    pub error: Option<Box<[u8]>>,
    /// It was taken before, or it was not.
    pub tried: Option<bool>,
    /// It was put so many ms ago, or earlier.
    pub older_ms: u64,
    /// It is a member of this batch.
    pub batch: Option<BatchId>,
}

impl Filter {
    /// True if it goes by what messages are, and not by their age alone.
    pub fn picks(&self) -> bool {
        self.body.is_some()
            || self.key.is_some()
            || self.name.is_some()
            || !self.attrs.is_empty()
            || self.dead
            || self.error.is_some()
            || self.tried.is_some()
            || self.batch.is_some()
    }

    /// True if the message is one of them.
    pub fn fits(&self, message: &Message, now: Ms) -> bool {
        let extra = message.extra.as_deref();
        let has = |(name, value): &Attr| {
            let attrs = extra.map_or(&[][..], |extra| &extra.attrs);
            attrs.iter().any(|attr| attr.0 == *name && attr.1 == *value)
        };
        now.since(message.created) >= self.older_ms
            && (!self.dead || message.came_from().is_some())
            && self.batch.is_none_or(|batch| {
                let tie = message.tie().filter(|tie| tie.is_member());
                tie.is_some_and(|tie| tie.batch == batch)
            })
            && self
                .tried
                .is_none_or(|tried| tried == (message.reserves > 0))
            && (self.key.as_deref())
                .is_none_or(|key| message.key().is_some_and(|own| **own == *key))
            && (self.name.as_deref())
                .is_none_or(|name| message.name().is_some_and(|own| **own == *name))
            && self.attrs.iter().all(has)
            && (self.error.as_deref()).is_none_or(|kind| message.error_kind() == kind)
            && (self.body.as_deref()).is_none_or(|part| {
                let body = message.body.as_small();
                body.is_some_and(|body| memchr::memmem::find(body, part).is_some())
            })
    }
}

/// The named value that says which queue a dead letter came from.
const CAME_FROM: &[u8] = b"dead_letter_queue";

impl Message {
    /// The queue that this message came from by the dead-letter rule, or
    /// because it expired there; `None`: it did not. One that is in somebody's
    /// hands has no such place to go back to.
    pub fn came_from(&self) -> Option<Name> {
        let from = self.attr(CAME_FROM)?;
        (self.state != State::Reserved).then(|| Name::new(from))
    }

    /// The named value of this name.
    pub fn attr(&self, name: &[u8]) -> Option<&[u8]> {
        let attrs = &self.extra.as_deref()?.attrs;
        let at = attrs.binary_search_by(|(own, _)| (**own).cmp(name));
        Some(&attrs[at.ok()?].1)
    }

    /// Why it failed: its last error, or that of the dead letter that it is; empty: nobody said.
    pub fn error(&self) -> &[u8] {
        let own = self.extra.as_deref().map_or(&[][..], |extra| &extra.status);
        match own {
            [] => self
                .attr(ERROR)
                .or_else(|| self.attr(REASON))
                .unwrap_or_default(),
            own => own,
        }
    }

    /// The rule that made it a dead letter: `attempts`, `failures` or `expired`.
    pub fn dead_letter_reason(&self) -> Option<&[u8]> {
        self.attr(REASON)
    }

    /// The first line of its error, [`ERROR_KIND_BYTES`] of it at most, with each number as `#`:
    /// the same of messages that failed in the same way.
    pub fn error_kind(&self) -> Vec<u8> {
        let error = self.error();
        let line = error
            .split(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default();
        let mut kind: Vec<u8> = Vec::new();
        for byte in crate::cut(line, ERROR_KIND_BYTES) {
            match byte.is_ascii_digit() {
                true if kind.last() == Some(&b'#') => {}
                true => kind.push(b'#'),
                false => kind.push(*byte),
            }
        }
        kind
    }
}

/// See [`Message::error_kind`].
const ERROR_KIND_BYTES: usize = 200;
/// Named values of a dead letter: its last error, and the rule that made it one.
const ERROR: &[u8] = b"dead_letter_error";
const REASON: &[u8] = b"dead_letter_reason";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_differ_in_numbers_are_of_one_kind() {
        let at = crate::message::At {
            queue: crate::QueueId(0),
            priority: 0,
            position: 0,
            id: crate::MessageId(1),
        };
        let mut message = Message::new(at, Ms(0), crate::Body::new(b""));
        let mut kind = |status: &[u8]| {
            message.extra_mut().status = status.into();
            String::from_utf8(message.error_kind()).expect("text")
        };
        assert_eq!(kind(b"HTTP 503 after 12.5 s\nat x"), "HTTP # after #.# s");
        assert_eq!(kind(&[b'x'; 300]).len(), 200);
        assert_eq!(kind(format!("x{}", "é".repeat(200)).as_bytes()).len(), 199);
        assert_eq!(kind(b""), "");
        message.extra_mut().attrs = vec![(ERROR.into(), b"no 7"[..].into())];
        assert_eq!(message.error_kind(), b"no #");
        assert_eq!(message.error(), b"no 7");
    }
}
